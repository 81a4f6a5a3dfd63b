"""What the records of a journal say: the header, the commits, and kinds that are yet to come.

Envelopes are checked here: a body must be spelled exactly as this library spells it. Parts are
carried as they are, inline, and named by the digest of their bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from branchpoint import codec
from branchpoint.checkpoint import (
    Header,
    Manifest,
    decode_header,
    decode_manifest,
    encode_header,
    encode_manifest,
)
from branchpoint.errors import CorruptCheckpointError, UnknownVersionError, quotable
from branchpoint.storage._journal import Format

__all__ = ["Commit", "commit_body", "header_body", "peek_id", "read_commit", "read_header"]


class Commit(msgspec.Struct, frozen=True):
    """What one commit added: a manifest, and the parts that were new."""

    manifest: Manifest
    parts: dict[str, bytes]


class _HeaderBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    header: msgspec.Raw


class _Named(msgspec.Struct, frozen=True):
    checkpoint_id: str = msgspec.field(name="id")


class _CommitBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    manifest: msgspec.Raw
    parts: list[msgspec.Raw]


class _OtherBody(msgspec.Struct, frozen=True):
    """A kind of record that a later version may write: `must` says whether this one may skip it."""

    kind: str
    must: bool


_ENCODERS = {"json": msgspec.json.Encoder().encode, "msgpack": msgspec.msgpack.Encoder().encode}
_COMMIT = {
    "json": msgspec.json.Decoder(_CommitBody).decode,
    "msgpack": msgspec.msgpack.Decoder(_CommitBody).decode,
}
_HEADER = {
    "json": msgspec.json.Decoder(_HeaderBody).decode,
    "msgpack": msgspec.msgpack.Decoder(_HeaderBody).decode,
}
_NAMED = {"json": msgspec.json.Decoder(_Named).decode, "msgpack": msgspec.msgpack.Decoder(_Named).decode}
_OTHER = {
    "json": msgspec.json.Decoder(_OtherBody).decode,
    "msgpack": msgspec.msgpack.Decoder(_OtherBody).decode,
}
# The beginning tells a commit from a kind that is yet to come; in MessagePack after the map's size.
_COMMIT_START = {"json": b'{"manifest":', "msgpack": b"\x82\xa8manifest"}


def header_body(header: Header, *, format: Format) -> bytes:
    """Return the body of the first record."""
    return _ENCODERS[format](_HeaderBody(msgspec.Raw(encode_header(header, format=format))))


def commit_body(manifest: Manifest, parts: Iterable[bytes], *, format: Format) -> bytes:
    """Return the body of a commit's record."""
    body = _CommitBody(
        msgspec.Raw(encode_manifest(manifest, format=format)), [msgspec.Raw(part) for part in parts]
    )
    return _ENCODERS[format](body)


def read_header(body: bytes, *, format: Format, checkpoint_id: str, where: str) -> Header:
    """Read the first record's body.

    Raises:
        UnknownVersionError: A newer program wrote it.
        CorruptCheckpointError: It is no header, is spelled otherwise, or names another checkpoint.
    """
    try:
        found = _HEADER[format](body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable("header", where, error) from None  # it quotes what was stored as it is
    header = decode_header(bytes(found.header), format=format, checkpoint_id=checkpoint_id)
    _refuse_other_spelling(body, _ENCODERS[format](found), "header", where)
    return header


def peek_id(body: bytes, *, format: Format, where: str) -> str:
    """Return the checkpoint id in the first record's body; nothing else of it is checked.

    Raises:
        CorruptCheckpointError: It is no header.
    """
    try:
        named = _NAMED[format](_HEADER[format](body).header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable("header", where, error) from None
    return named.checkpoint_id


def read_commit(body: bytes, *, format: Format, checkpoint_id: str, where: str) -> Commit | None:
    """Read a later record's body; None for a kind that this program does not know and may skip.

    Raises:
        UnknownVersionError: A newer program wrote it, and it must not be skipped.
        CorruptCheckpointError: It is no such record, or is spelled otherwise.
    """
    try:
        if not body.startswith(_COMMIT_START[format]):
            _refuse_required(_OTHER[format](body), where)
            return None
        found = _COMMIT[format](body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable("commit", where, error) from None
    manifest = decode_manifest(bytes(found.manifest), format=format, checkpoint_id=checkpoint_id)
    _refuse_other_spelling(body, _ENCODERS[format](found), "commit", where)
    parts = [bytes(part) for part in found.parts]
    return Commit(manifest, {codec.digest(part): part for part in parts})


def _refuse_required(other: _OtherBody, where: str) -> None:
    if other.must:
        raise UnknownVersionError(
            f"{where}: the journal holds a record of the kind {other.kind[:40]!a}, which this program "
            "does not know and must not skip. Read it with a newer version."
        )


def _refuse_other_spelling(body: bytes, again: bytes, what: str, where: str) -> None:
    if again != body:
        raise CorruptCheckpointError(
            f"{where}: the {what} record is not in canonical form; it was edited. It is kept as it is."
        )


def _unreadable(what: str, where: str, error: Exception) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"{where}: the {what} record cannot be read ({type(error).__name__}: {quotable(str(error), 120)}). "
        "The file is kept as it is; restore it from a backup."
    )
