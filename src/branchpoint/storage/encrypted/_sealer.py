"""The sealed forms of one checkpoint's records: what stands outside of a seal, and what is in it."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Mapping
from typing import Final

import msgspec

from branchpoint import codec
from branchpoint.checkpoint import (
    CheckpointInfo,
    Format,
    Header,
    Manifest,
    decode_header,
    decode_manifest,
    encode_header,
    encode_manifest,
)
from branchpoint.errors import CorruptCheckpointError, DataError, UnknownVersionError
from branchpoint.storage.encrypted._cipher import SEAL_VERSION, Cipher
from branchpoint.storage.encrypted._keys import EncryptionKeys

__all__ = ["Birth", "Kept", "OpenedHeader", "OpenedManifest", "Sealer"]

_OUTSIDE: Final = "sealed"
"""What stands for a text that the store does not learn."""


_DECODE_TEXT = msgspec.json.Decoder(bytes).decode  # several times as quick as the standard library's


class Kept(msgspec.Struct, frozen=True):
    """The lineage that the last prune left.

    Attributes:
        head: The stored head then.
        lineage: Digest of the ids that stayed, in commit order.
    """

    head: str
    lineage: str


class Birth(msgspec.Struct, frozen=True):
    """What the first commit of a checkpoint settled for as long as it lives.

    Attributes:
        names: Id of the key that names its parts.
        mark: Tells it from one that was stored under the same id before or after it.
    """

    names: str
    mark: str


class OpenedHeader(msgspec.Struct, frozen=True):
    """What was in the seal of a header: the header as its checkpoint knows it, and what it says of the store."""

    header: Header
    birth: Birth
    kept: Kept | None


class OpenedManifest(msgspec.Struct, frozen=True):
    """What was in the seal of a manifest.

    Attributes:
        after: The id of the snapshot that was committed before it.
        generation: The checkpoint's, when it was committed.
    """

    manifest: Manifest
    after: str | None
    generation: int


class _HeaderText(msgspec.Struct, frozen=True):
    header: msgspec.Raw
    birth: Birth
    kept: Kept | None


class _ManifestText(msgspec.Struct, frozen=True):
    manifest: msgspec.Raw
    after: str | None
    gen: int
    mark: str


class Sealer:
    """Seals and opens the records of one checkpoint, in one format, with the keys of its storage."""

    def __init__(self, keys: EncryptionKeys, checkpoint_id: str, format: Format) -> None:
        self._keys = keys
        self._id = checkpoint_id
        self._format: Format = format
        self._ciphers: dict[str, Cipher] = {}
        self._wire = msgspec.json if format == "json" else msgspec.msgpack

    def naming(self, key_id: str) -> Cipher:
        """Return the cipher that names parts.

        Raises:
            DataError: There is no such key.
        """
        return self._cipher(key_id, f"checkpoint {self._id!r}")

    def _cipher(self, key_id: str, where: str) -> Cipher:
        found = self._ciphers.get(key_id)
        if found is None:
            secret = self._keys.secret(key_id)
            if secret is None:
                raise DataError(
                    f"{where} is sealed with the key {key_id!r}, which this storage was not given: add it to "
                    "its keys. Nothing was changed"
                )
            found = self._ciphers[key_id] = Cipher(secret, key_id, self._id, self._format)
        return found

    # Headers.

    def seal_header(self, header: Header, *, birth: Birth, kept: Kept | None) -> Header:
        """Return the header that stands in the store."""
        text = _HeaderText(msgspec.Raw(encode_header(header, format=self._format)), birth, kept)
        return _outer_header(header, self._seal_text("header", "", self._wire.encode(text)))

    def open_header(self, stored: Header) -> OpenedHeader:
        """Open a header.

        Raises:
            CorruptCheckpointError: It is not sealed, or was sealed as something else, or changed.
            DataError: Its key is not here, or a newer version wrote it.
        """
        opened = self._open_header(stored.metadata)
        if _outer_header(opened.header, stored.metadata[_OUTSIDE]) != stored:
            raise _changed(f"the header of checkpoint {self._id!r}")
        return opened

    def _open_header(self, metadata: Mapping[str, str]) -> OpenedHeader:
        where = f"the header of checkpoint {self._id!r}"
        text = self._wire.decode(
            self._open_text("header", "", metadata.get(_OUTSIDE, ""), where), type=_HeaderText
        )
        header = decode_header(bytes(text.header), format=self._format, checkpoint_id=self._id)
        return OpenedHeader(header, text.birth, text.kept)

    # Manifests.

    def seal_manifest(
        self, manifest: Manifest, *, after: str | None, generation: int, birth: Birth
    ) -> Manifest:
        """Return the manifest that stands in the store."""
        encoded = msgspec.Raw(encode_manifest(manifest, format=self._format))
        text = _ManifestText(encoded, after, generation, birth.mark)
        sealed = self._seal_text("manifest", manifest.snapshot_id, self._wire.encode(text))
        return _outer_manifest(manifest, self.naming(birth.names).name(manifest.root), sealed)

    def open_manifest(self, stored: Manifest, *, birth: Birth) -> OpenedManifest:
        """Open a manifest.

        Raises:
            CorruptCheckpointError: It is not sealed, or was sealed as something else, or changed.
            DataError: Its key is not here, or a newer version wrote it.
        """
        where = self._snapshot(stored.snapshot_id)
        sealed = _only(stored.requests)
        opened = self._open_manifest(stored.snapshot_id, sealed, where, birth)
        manifest = opened.manifest
        if _outer_manifest(manifest, self.naming(birth.names).name(manifest.root), sealed) != stored:
            raise _changed(where)
        return opened

    def open_line(self, line: CheckpointInfo) -> CheckpointInfo:
        """Open a line of the inner storage's listing.

        Raises:
            CorruptCheckpointError: It is not sealed, or was sealed as something else, or changed.
            DataError: A key is not here, or a newer version wrote it.
        """
        opened = self._open_header(line.metadata)
        where = self._snapshot(line.head_snapshot_id)
        head = self._open_manifest(line.head_snapshot_id, _only(line.requests), where, opened.birth).manifest
        inside = CheckpointInfo.of(opened.header, head)
        if _seen(inside) != _seen(line):
            raise _changed(where)
        return inside

    def _open_manifest(self, snapshot_id: str, sealed: str, where: str, birth: Birth) -> OpenedManifest:
        text = self._wire.decode(self._open_text("manifest", snapshot_id, sealed, where), type=_ManifestText)
        manifest = decode_manifest(bytes(text.manifest), format=self._format, checkpoint_id=self._id)
        if text.mark != birth.mark:
            raise CorruptCheckpointError(
                f"{where} is of an earlier or later checkpoint of this id than its header: one of them was "
                "put here; restore the checkpoint from a backup"
            )
        return OpenedManifest(manifest, text.after, text.gen)

    def _snapshot(self, snapshot_id: str) -> str:
        return f"snapshot {ascii(snapshot_id)[:80]} of checkpoint {self._id!r}"

    # Parts.

    def seal_parts(self, parts: Mapping[str, bytes], *, birth: Birth) -> dict[str, bytes]:
        """Return parts under the names and in the form in which they stand in the store."""
        key_id, naming = self._keys.current, self.naming(birth.names)
        cipher = self._cipher(key_id, "")
        before = f"{SEAL_VERSION}.{key_id}.".encode()
        sealed: dict[str, bytes] = {}
        for digest, plain in parts.items():
            name = naming.name(digest)
            closed = cipher.seal("part", name, plain)
            if self._format == "json":
                sealed[name] = b'"%b%b"' % (before, b2a_base64(closed, newline=False))
            else:
                sealed[name] = msgspec.msgpack.encode(before + closed)
        return sealed

    def open_parts(self, stored: Mapping[str, bytes]) -> dict[str, bytes]:
        """Open parts; they keep their stored names.

        Raises:
            CorruptCheckpointError: One is not sealed, or was sealed as something else, or changed.
            DataError: A key is not here, or a newer version wrote it.
        """
        return {name: self._open_part(name, data) for name, data in stored.items()}

    def open_named(self, stored: Mapping[str, bytes], *, birth: Birth) -> dict[str, bytes]:
        """Open parts and give them back by their digests, which are computed, and their names from those.

        Raises:
            CorruptCheckpointError: One is not sealed, or was sealed as something else, or changed.
            DataError: A key is not here, or a newer version wrote it.
        """
        parts: dict[str, bytes] = {}
        naming = self.naming(birth.names)
        for name, data in stored.items():
            plain = self._open_part(name, data)
            digest = codec.digest(plain)
            if naming.name(digest) != name:
                raise _changed(self._part(name))
            parts[digest] = plain
        return parts

    def _open_part(self, name: str, data: bytes) -> bytes:
        if self._format == "json":
            inside = data[1:-1] if len(data) > 1 and data[:1] == data[-1:] == b'"' else b""
        else:
            inside = _bin(data)
        return self._open("part", name, inside, self._part(name), text=self._format == "json")

    def _part(self, name: str) -> str:
        return f"part {ascii(name)[:80]} of checkpoint {self._id!r}"

    # Seals.

    def _seal_text(self, kind: str, name: str, plain: bytes) -> str:
        key_id = self._keys.current
        closed = self._cipher(key_id, "").seal(kind, name, plain)
        return f"{SEAL_VERSION}.{key_id}.{b2a_base64(closed, newline=False).decode()}"

    def _open_text(self, kind: str, name: str, sealed: str, where: str) -> bytes:
        return self._open(kind, name, sealed.encode(), where, text=True)

    def _open(self, kind: str, name: str, sealed: bytes, where: str, *, text: bool) -> bytes:
        version, _, rest = sealed.partition(b".")
        key, dot, closed = rest.partition(b".")
        if not dot or not version.isdigit() or not key:
            raise CorruptCheckpointError(
                f"{where} is not sealed, and this storage reads and adds to sealed checkpoints only: open what "
                "was stored in plain text with the storage it was stored by, and fork it into this one"
            )
        if version != b"%d" % SEAL_VERSION:
            raise UnknownVersionError(
                f"{where} is sealed in version {version[:20].decode()} and this program knows version "
                f"{SEAL_VERSION}: upgrade branchpoint to read it"
            )
        key_id = key[:80].decode("ascii", "backslashreplace")
        cipher = self._cipher(key_id, where)
        raw = _from_base64(closed) if text else closed
        plain = None if raw is None else cipher.open(kind, name, raw)
        if plain is None:
            raise CorruptCheckpointError(
                f"{where} cannot be opened with the key {key_id!r}: it was changed, damaged or moved here, or it "
                "was sealed with another key of this id. Give the storage the right key, or restore the "
                "checkpoint from a backup"
            )
        return plain


def _only(texts: tuple[str, ...]) -> str:
    return texts[0] if len(texts) == 1 else ""


def _seen(line: CheckpointInfo) -> tuple[object, ...]:
    return line.status, line.created_at, line.updated_at


def _outer_header(header: Header, sealed: str) -> Header:
    return Header(
        format_version=header.format_version,
        checkpoint_id=header.checkpoint_id,
        workflow_name=_OUTSIDE,
        graph_signature_hash=_OUTSIDE,
        metadata={_OUTSIDE: sealed},
        created_at=header.created_at,
        generation=header.generation,
    )


def _outer_manifest(manifest: Manifest, root: str, sealed: str) -> Manifest:
    # A listing shows `requests` and nothing else of a manifest that could hold the text.
    return Manifest(
        snapshot_id=manifest.snapshot_id,
        parent_snapshot_id=manifest.parent_snapshot_id,
        timestamp=manifest.timestamp,
        root=root,
        boundary="superstep_completed",
        status=manifest.status,
        requests=(sealed,),
        graph_signature_hash=_OUTSIDE,
        format_version=manifest.format_version,
    )


def _changed(where: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"{where} does not match its seal: what stands outside of it was changed; restore it from a backup"
    )


def _from_base64(text: bytes) -> bytes | None:
    """Decode base64 in the one spelling that is written."""
    try:
        raw: bytes = _DECODE_TEXT(b'"%b"' % text)
    except msgspec.MsgspecError:
        return None
    return raw if b2a_base64(raw, newline=False) == text else None


def _bin(data: bytes) -> bytes:
    """Decode MessagePack's binary type in the one spelling that is written; empty when it is none."""
    try:
        inside: bytes = msgspec.msgpack.decode(data, type=bytes)
    except msgspec.MsgspecError:
        return b""
    return inside if msgspec.msgpack.encode(inside) == data else b""
