"""The page that specifies the bytes, held against a reader written from that page alone."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from branchpoint.checkpoint import Format
from branchpoint.storage import FileCheckpointStorage
from tests.storages import create, state

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "snapshot-format.md"


def blake(data: bytes, size: int, **more: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=size, **more).digest()


def text(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def read(data: bytes) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """Header, manifests and parts (as values) of a journal, after sections 6.2 and 6.3."""
    title = json.loads(data[:64])
    assert title["branchpoint"] == "journal"
    assert title["version"] == 1
    slots = []
    for line in (data[64:126], data[126:188]):
        slot = json.loads(line)
        assert int(slot["c"], 16) == zlib.crc32(line[: line.index(b',"c"')])
        slots.append((slot["committed"], slot["last"]))
    committed, last = max(slots)
    assert len(data) == committed
    bodies, key, at = [], b"", 188
    places = []
    while at < committed:
        places.append(at)
        if title["format"] == "json":
            end = data.index(b"\n", at) + 1
            body = b"{" + data[at + 19 : end - 1]
            seal = base64.urlsafe_b64decode(data[at + 6 : at + 17] + b"=")
        else:
            end = at + 12 + int.from_bytes(data[at : at + 4], "big")
            seal, body = data[at + 4 : at + 12], data[at + 12 : end]
        assert seal == blake(body, 8, salt=at.to_bytes(8, "big"), key=key)
        key, at = key or seal, end
        bodies.append(body)
    assert places[-1] == last
    decode = (msgspec.json if title["format"] == "json" else msgspec.msgpack).decode
    parts: dict[str, Any] = {}
    for body in bodies[1:]:
        raw = decode(body, type=dict[str, msgspec.Raw])["parts"]
        for name, part in decode(bytes(raw), type=dict[str, msgspec.Raw]).items():
            assert name == text(blake(bytes(part), 16))
            parts[name] = decode(part)
    return decode(bodies[0])["header"], [decode(body)["manifest"] for body in bodies[1:]], parts


def whole(tree: Any, parts: dict[str, Any]) -> Any:
    """A wire tree with references and cuts resolved, after section 5.3."""
    if isinstance(tree, list):
        return [whole(item, parts) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if "$p" in tree:
        return whole(parts[tree["$p"]], parts)
    if "$l" in tree:
        return [item for node in tree["$l"] for item in whole(node, parts)]
    if "$d" in tree:
        return {key: item for node in tree["$d"] for key, item in whole(node, parts).items()}
    return {key: whole(item, parts) for key, item in tree.items()}


@pytest.mark.parametrize("format", ["json", "msgpack"])
async def test_a_reader_written_from_the_page_reads_what_is_written(runs: Path, format: Format) -> None:
    checkpoint = create(FileCheckpointStorage(runs, serialization_format=format))
    history = [f"message {n} " + "x" * (n % 300) for n in range(400)]
    for n in range(5):
        await checkpoint.commit_snapshot(
            state(n, history=history[: 200 + n * 40], n=n, table={"k": {"a": [n] * 90}})
        )
    checkpoint.restart_from(checkpoint.snapshots[1].snapshot_id)
    await checkpoint.commit_snapshot(state(9, branch="other"))
    await checkpoint.prune([one.snapshot_id for one in checkpoint.snapshots[1:]])
    header, manifests, parts = read((runs / "order-17.journal").read_bytes())
    assert (header["branchpoint"], header["id"], header["wf"], header["gen"]) == (1, "order-17", "orders", 1)
    assert [(one["id"], one.get("up")) for one in manifests] == [
        (one.snapshot_id, one.parent_snapshot_id) for one in checkpoint.snapshots
    ]
    assert parts.keys() == checkpoint.parts.keys()
    for manifest, snapshot in zip(manifests, checkpoint.snapshots, strict=True):
        assert (manifest["b"], manifest["st"]) == (snapshot.boundary, snapshot.status)
        assert whole(parts[manifest["root"]], parts) == snapshot.plain_state()


def test_the_page_names_every_field_of_the_envelopes() -> None:
    from branchpoint.checkpoint import Header, Manifest

    page = PAGE.read_text(encoding="utf-8")
    for kind, start, end in ((Header, "### 3.1", "### 3.2"), (Manifest, "### 3.2", "## 4")):
        table = page[page.index(start) : page.index(end)]
        names = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
        assert names == [field.encode_name for field in msgspec.structs.fields(kind)]
