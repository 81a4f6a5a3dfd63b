"""Section 7 of the page that specifies the bytes, held against a reader written from that page alone."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from branchpoint.checkpoint import Format, Header, encode_header, encode_manifest
from branchpoint.storage import FileCheckpointStorage
from branchpoint.storage.encrypted import EncryptionKeys
from branchpoint.storage.encrypted._sealer import Birth, Sealer
from tests.sealing import NEW, OLD, sealed
from tests.storages import create, shared, state

KEYS = {"k1": OLD, "k2": NEW}
ID = 'an "id" – 17'


def array(*items: object) -> bytes:
    return json.dumps(items, ensure_ascii=False, separators=(",", ":")).encode()


def digest(data: bytes, **more: Any) -> str:
    return (
        base64.urlsafe_b64encode(hashlib.blake2b(data, digest_size=16, **more).digest()).decode().rstrip("=")
    )


def key_of(key_id: str, purpose: str) -> bytes:
    return HKDF(SHA256(), 32, None, array("branchpoint", 1, purpose, ID)).derive(KEYS[key_id])


def opened(seal: bytes, format: Format, kind: str, name: str) -> bytes:
    version, key_id, closed = seal.split(b".", 2)
    assert version == b"1"
    bound = array("branchpoint", 1, format, ID, key_id.decode(), kind, name)
    nonce = hashlib.blake2b(bound, digest_size=12).digest()
    return AESGCMSIV(key_of(key_id.decode(), "seal")).decrypt(nonce, closed, bound)


def seal_of(text: str) -> bytes:
    version, key_id, closed = text.split(".")
    return f"{version}.{key_id}.".encode() + base64.b64decode(closed, validate=True)


@pytest.mark.parametrize("format", ["json", "msgpack"])
async def test_a_reader_by_the_page_opens_everything(runs: Path, format: Format) -> None:
    inner = FileCheckpointStorage(runs, serialization_format=format)
    checkpoint = create(sealed(inner, k1=OLD), ID, metadata={"tenant": "a"})
    for n in range(4):
        checkpoint.restart_from(None)
        await checkpoint.commit_snapshot(state(n, n=n, text=f"{n} " * 200), {"by": n})
    committed = [one.snapshot_id for one in checkpoint.snapshots]
    both = await sealed(inner, **KEYS).load(ID)
    await both.prune(keep=[both.snapshots[1].snapshot_id])
    await both.commit_snapshot(state(5, n=5))

    decode = (msgspec.json if format == "json" else msgspec.msgpack).decode
    records = await inner.load_records(ID)
    outer = decode(encode_header(records.header, format=format))
    found = decode(
        opened(seal_of(outer["meta"]["sealed"]), format, "header", ""), type=dict[str, msgspec.Raw]
    )
    assert list(found) == ["header", "birth", "kept"]
    assert bytes(found["header"]) == encode_header(both.header, format=format)
    header, birth, kept = (decode(found[name]) for name in found)
    assert birth["names"] == "k1"
    ids = [one.snapshot_id for one in both.snapshots]
    assert kept == {"head": ids[1], "lineage": digest(array(*ids[:2]))}
    assert outer == {
        **{name: header[name] for name in ("branchpoint", "id", "at", "gen")},
        "wf": "sealed",
        "sig": "sealed",
        "meta": outer["meta"],
    }

    def stored_name(part: str) -> str:
        return digest(part.encode(), key=key_of("k1", "name"))

    after = [committed[0], committed[2], committed[3]]
    for place, (stored, mine) in enumerate(zip(records.manifests, both.snapshots, strict=True)):
        outer = decode(encode_manifest(stored, format=format))
        (text,) = outer["rq"]
        assert text.startswith(["1.k1.", "1.k1.", "1.k2."][place])
        raw = opened(seal_of(text), format, "manifest", outer["id"])
        found = decode(raw, type=dict[str, msgspec.Raw])
        assert list(found) == ["manifest", "after", "gen", "mark"]
        assert bytes(found["manifest"]) == encode_manifest(mine.manifest, format=format)
        manifest = decode(found["manifest"])
        assert decode(found["after"]) == after[place]
        assert decode(found["gen"]) == [0, 0, 1][place]
        assert decode(found["mark"]) == birth["mark"]
        inside = {name: manifest[name] for name in ("id", "up", "at", "st") if name in manifest}
        assert outer == {
            **inside,
            "root": stored_name(manifest["root"]),
            "b": "superstep_completed",
            "sig": "sealed",
            "rq": [text],
        }

    parts = {}
    for name, data in records.parts.items():
        seal = seal_of(json.loads(data)) if format == "json" else msgspec.msgpack.decode(data)
        plain = opened(seal, format, "part", name)
        assert stored_name(digest(plain)) == name
        parts[digest(plain)] = plain
    assert parts == both.parts
    assert shared(both.head_snapshot) == {"n": 5}


def test_the_bytes_of_seals_do_not_change() -> None:
    """Sealing is a function of record, place and key; these were written by the first version."""
    for format, expected in PINNED.items():
        sealer = Sealer(EncryptionKeys({"k1": OLD}), "order-17", format)
        birth = Birth("k1", "mark")
        ((name, part),) = sealer.seal_parts({"d" * 22: b"\x01"}, birth=birth).items()
        header: Header = sealer.seal_header(HEADER, birth=birth, kept=None)
        assert (name, part, header.metadata["sealed"]) == expected


HEADER = msgspec.json.decode(
    b'{"branchpoint":1,"id":"order-17","wf":"orders","sig":"s","at":"2026-01-02T03:04:05Z"}', type=Header
)
PINNED: dict[Format, tuple[str, bytes, str]] = {
    "json": (
        "Ax6W1QJ4guNP7RQC9T8atA",
        b'"1.k1.8ci06wKQRdAicwyvRTmtDBs="',
        "1.k1.psEilYene5MK98Lx5ZCLUGLRdxv8BvLEPDSjzK4znF9ofn6MekErg7sdfmlWy/rsJzpVvbeYTHCjLJU7QPMxn2o6jQE+XcAig2XQWxNrdncKt4uTxsoYtGnSOQJvsWa2iR0tz0OlM2BjQJ50nedtOW5EY1TR+VY+ZNEv3juWwKzTn0pe+pldM1NI41olHC4DWONJ0Bvzb6r50lNQMoVGNL4=",
    ),
    "msgpack": (
        "Ax6W1QJ4guNP7RQC9T8atA",
        b"\xc4\x161.k1.W\xfco&\x18\xc6-\xf9W\x16$'\xe1\xb4\x07\xea8",
        "1.k1.V2X6xL1aZoS0zbt117+ZqjqmaAQEVabGVej6Nn0RaBYnIZei09zNQ0Eh2NEIsPjw9LfjNkkHchPvK2Nh7qYgKmExgX284uTr0mhLsQMBONtEeFoAP6g3OrGcuI9J66Bm4eSPfnvG98VOOgM=",
    ),
}
