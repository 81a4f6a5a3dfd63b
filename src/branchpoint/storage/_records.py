"""What the records of a journal say: the header, the commits, and kinds that are yet to come.

Envelopes are checked here: a body must be spelled exactly as this library spells it. Parts are
carried as they are, inline, each under the name it was given; what the name was made of is not asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NoReturn

import msgspec

from branchpoint.checkpoint import (
    Header,
    Manifest,
    check_manifest,
    decode_header,
    decode_manifest,
    encode_header,
)
from branchpoint.errors import CorruptCheckpointError, InvalidCallError, UnknownVersionError, quotable
from branchpoint.storage._journal import Format

__all__ = ["Commit", "commit_body", "header_body", "odd_name", "peek_id", "read_commit", "read_header"]

_NAME_CHARACTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_NAME_SIZES = frozenset(range(1, 65))


class Commit(msgspec.Struct, frozen=True, gc=False):
    """What one commit added: a manifest, and the parts that were new, by name."""

    manifest: Manifest
    parts: dict[str, bytes]


class _HeaderBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    header: msgspec.Raw


class _Named(msgspec.Struct, frozen=True):
    checkpoint_id: str = msgspec.field(name="id")


class _CommitBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    manifest: Manifest
    parts: dict[str, msgspec.Raw]


class _CommitRaw(msgspec.Struct, frozen=True):
    """As much of a commit's body as must be right for a fault to be found inside its manifest."""

    manifest: msgspec.Raw


class _OtherBody(msgspec.Struct, frozen=True):
    """A kind of record that a later version may write: `must` says whether this one may skip it."""

    kind: str
    must: bool


_ENCODERS = {"json": msgspec.json.Encoder().encode, "msgpack": msgspec.msgpack.Encoder().encode}
_COMMIT = {
    "json": msgspec.json.Decoder(_CommitBody).decode,
    "msgpack": msgspec.msgpack.Decoder(_CommitBody).decode,
}
_COMMIT_RAW = {
    "json": msgspec.json.Decoder(_CommitRaw).decode,
    "msgpack": msgspec.msgpack.Decoder(_CommitRaw).decode,
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


def commit_body(manifest: Manifest, parts: Mapping[str, bytes], *, format: Format) -> bytes:
    """Return the body of a commit's record.

    Raises:
        InvalidCallError: A part has a name that no journal could give back.
    """
    odd = odd_name(parts)
    if odd is not None:
        raise InvalidCallError(f"a part is named by 1 to 64 letters, digits, - and _, not {odd[:80]!a}")
    return _ENCODERS[format](_CommitBody(manifest, {name: msgspec.Raw(parts[name]) for name in parts}))


def odd_name(names: Collection[str]) -> str | None:
    """Return one that is not 1 to 64 letters, digits, `-` and `_`; None when there is none."""
    if _are_plain("".join(names)) and _NAME_SIZES.issuperset(map(len, names)):
        return None
    return next(name for name in names if len(name) not in _NAME_SIZES or not _are_plain(name))


def _are_plain(text: str) -> bool:
    return text.isascii() and not text.encode("ascii").translate(None, _NAME_CHARACTERS)


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
    if _ENCODERS[format](found) != body:
        _refuse_spelling("header", where, "it was edited")
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

    The names of the parts are the caller's to check, with `odd_name`, for many commits at once.

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
        _refuse_manifest(body, format, checkpoint_id)
        raise _unreadable("commit", where, error) from None
    check_manifest(found.manifest, checkpoint_id=checkpoint_id)
    if _ENCODERS[format](found) != body:
        _refuse_manifest(body, format, checkpoint_id)
        _refuse_spelling("commit", where, "it names a part twice, or was edited")
    return Commit(found.manifest, {name: bytes(part) for name, part in found.parts.items()})


def _refuse_manifest(body: bytes, format: Format, checkpoint_id: str) -> None:
    """Raise what is wrong with the manifest in a commit's body, if that is where the fault lies."""
    try:
        found = _COMMIT_RAW[format](body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    decode_manifest(bytes(found.manifest), format=format, checkpoint_id=checkpoint_id)


def _refuse_required(other: _OtherBody, where: str) -> None:
    if other.must:
        raise UnknownVersionError(
            f"{where}: the journal holds a record of the kind {other.kind[:40]!a}, which this program "
            "does not know and must not skip. Read it with a newer version."
        )


def _refuse_spelling(what: str, where: str, why: str) -> NoReturn:
    raise CorruptCheckpointError(
        f"{where}: the {what} record is not in canonical form: {why}. It is kept as it is."
    )


def _unreadable(what: str, where: str, error: Exception) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"{where}: the {what} record cannot be read ({type(error).__name__}: {quotable(str(error), 120)}). "
        "The file is kept as it is; restore it from a backup."
    )
