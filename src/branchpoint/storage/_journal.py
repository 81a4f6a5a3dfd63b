"""The bytes of a journal, without a file system.

A journal is a preamble, a header record, then one record per commit; it only grows. The preamble
is three lines of text in both formats: what the file is, and two slots that say how many bytes
are committed and where the last commit begins. A slot is rewritten after the bytes it speaks of
are on the disk, and the two take turns, so one is whole at every moment.

Each record is sealed: a checksum over its place in the file, the seal of the header and its
bytes. A record that was moved, cut, changed or taken from another journal does not fit its seal.
Bytes below the committed length were promised to somebody: if they are missing or bad, that is
damage. Bytes beyond it belong to a commit that did not live to say so: whole records there count,
and the first bad one begins a torn tail that nobody was promised.
"""

from __future__ import annotations

import binascii
import hashlib
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from branchpoint.errors import CorruptCheckpointError, UnknownVersionError

__all__ = [
    "PREAMBLE_SIZE",
    "RECORD_START",
    "Format",
    "Preamble",
    "Record",
    "Slot",
    "SlotWrite",
    "damaged",
    "framed",
    "header_record",
    "joined",
    "length_told",
    "new_preamble",
    "next_slot",
    "read_preamble",
    "records",
    "seal_record",
    "sealed",
    "whole_journal",
]

Format = Literal["json", "msgpack"]

JOURNAL_VERSION = 1

_TITLE_SIZE = 64
_SLOT_SIZE = 62
PREAMBLE_SIZE = _TITLE_SIZE + 2 * _SLOT_SIZE
_SLOT_OFFSETS = (_TITLE_SIZE, _TITLE_SIZE + _SLOT_SIZE)

_TITLE = re.compile(rb'\{"branchpoint":"journal","version":(\d{1,9}),"format":"(\w{1,16})"\} *\n')
_SLOT = re.compile(rb'\{"committed":( *\d{1,12}),"last":( *\d{1,12}),"c":"([0-9a-f]{8})"\}\n')

_SEAL_BYTES = 8
_SEAL_CHARACTERS = 11  # the same in base64url without padding
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_JSON_START = b'{"c":"'
_JSON_BODY = len(_JSON_START) + _SEAL_CHARACTERS + 2
_FRAME_LENGTH = 4
_FRAME_BODY = _FRAME_LENGTH + _SEAL_BYTES
RECORD_START = _FRAME_BODY + 1
"""How many bytes tell whether a record can begin with them."""


class Slot(msgspec.Struct, frozen=True):
    """Where the promised bytes end, and where the last commit among them begins."""

    committed: int
    last: int


class Preamble(msgspec.Struct, frozen=True):
    """What the first bytes of a journal say."""

    format: Format
    slot: Slot
    index: int
    """Which of the two slots said it; the next one goes to the other place."""
    alone: bool = False
    """Whether the other slot cannot be read, so that it may have promised more."""
    untouched: bool = False
    """Whether both slots say the same, so that nothing was promised since the file was made."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record whose seal fits."""

    start: int
    end: int
    seal: bytes
    body: bytes


class SlotWrite(msgspec.Struct, frozen=True):
    """Bytes to be written at a place of the preamble."""

    offset: int
    data: bytes


# Writing.


def new_preamble(format: Format, slot: Slot) -> bytes:
    """Return the preamble of a journal that is complete when it appears: both slots agree."""
    title = f'{{"branchpoint":"journal","version":{JOURNAL_VERSION},"format":"{format}"}}'
    return title.ljust(_TITLE_SIZE - 1).encode("ascii") + b"\n" + _slot_line(slot) * 2


def next_slot(current: Preamble, slot: Slot) -> SlotWrite:
    """Return how to note a longer committed length without touching the slot that is valid now."""
    return SlotWrite(_SLOT_OFFSETS[1 - current.index], _slot_line(slot))


def seal_record(body: bytes, *, start: int, key: bytes, format: Format) -> Record:
    """Return the record to be written at `start`; its bytes are `framed(record)`.

    Args:
        body: A JSON object of one line, or a MessagePack map; never empty.
        start: The place in the file where the record will begin.
        key: The seal of the header; `b""` for the header itself.
        format: The format of the journal.

    Raises:
        ValueError: A JSON body has a line break, which would end the record; parts never have one.
    """
    if format == "json" and b"\n" in body:
        raise ValueError("the body of a record in JSON is one line")
    overhead = _JSON_BODY if format == "json" else _FRAME_BODY
    # In JSON the body's opening brace gives way to the seal, and a line break follows.
    return Record(start, start + overhead + len(body), _seal(body, start, key), body)


def framed(record: Record, *, format: Format) -> bytes:
    """Return the bytes of a record, from its `start` to its `end`."""
    if format == "json":
        return b"".join((_json_head(record.seal), record.body[1:], b"\n"))
    return b"".join((len(record.body).to_bytes(_FRAME_LENGTH, "big"), record.seal, record.body))


def whole_journal(bodies: Sequence[bytes], *, format: Format) -> bytes:
    """Return a complete journal: the body of the header, then those of all records, a commit last."""
    made = sealed(bodies, format=format)
    return joined(made, made[-1], format=format)


def sealed(bodies: Sequence[bytes], *, format: Format) -> list[Record]:
    """Return the records of a complete journal, the header's first."""
    made: list[Record] = []
    end, key = PREAMBLE_SIZE, b""
    for body in bodies:
        made.append(record := seal_record(body, start=end, key=key, format=format))
        key, end = key or record.seal, record.end
    return made


def joined(made: Sequence[Record], head: Record, *, format: Format) -> bytes:
    """Return a complete journal of these records, all of them promised; `head` is the last commit's."""
    preamble = new_preamble(format, Slot(made[-1].end, head.start))
    return b"".join((preamble, *(framed(record, format=format) for record in made)))


# Reading.


def read_preamble(data: bytes, *, where: str) -> Preamble:
    """Return what the first `PREAMBLE_SIZE` bytes of a journal say.

    Raises:
        UnknownVersionError: A newer program wrote the journal.
        CorruptCheckpointError: This is not a journal, or neither slot can be read.
    """
    title = _TITLE.fullmatch(data[:_TITLE_SIZE])
    if title is None or len(data) < _TITLE_SIZE:
        raise _not_a_journal(data, where)
    version, written_format = int(title[1]), title[2]
    if version != JOURNAL_VERSION:
        raise UnknownVersionError(
            f"{where}: the journal has version {version}, this program reads version {JOURNAL_VERSION}. "
            "Read it with the program that wrote it, or a newer one."
        )
    slots = [(slot, n) for n in (0, 1) if (slot := _slot(data, _SLOT_OFFSETS[n])) is not None]
    if not slots:
        raise CorruptCheckpointError(
            f"{where}: the committed length cannot be read; the file is kept as it is."
        )
    slot, index = max(slots, key=lambda item: item[0].committed)
    alone = len(slots) == 1
    untouched = not alone and slots[0][0] == slots[1][0]
    if written_format == b"json":
        return Preamble("json", slot, index, alone, untouched)
    if written_format == b"msgpack":
        return Preamble("msgpack", slot, index, alone, untouched)
    raise CorruptCheckpointError(f"{where}: the journal names an unknown format; the file is kept as it is.")


def header_record(data: bytes, preamble: Preamble, *, size: int, where: str) -> Record | None:
    """Return the header's record from the beginning of a journal; None when more bytes are needed for it.

    Args:
        data: The file's first bytes.
        preamble: What they say.
        size: How many bytes the file has.
        where: The checkpoint and its file, for messages.

    Raises:
        CorruptCheckpointError: The file is shorter than promised, or the header is damaged.
    """
    _refuse_cut(size, preamble, where)
    record = _record(data, PREAMBLE_SIZE, 0, b"", preamble.format)
    if record is not None and record.end <= preamble.slot.committed:
        return record
    if len(data) < size:
        return None
    raise damaged(PREAMBLE_SIZE, where)


def records(
    data: bytes, preamble: Preamble, *, start: int, base: int, key: bytes, where: str
) -> Iterator[Record]:
    """Yield the sealed records in `data`, which holds the file's bytes from `base` to its end.

    Stops without a word at the first bad record beyond the committed length: a torn tail.

    Args:
        data: Bytes of the file, from `base` to its end.
        preamble: What the beginning of the file says.
        start: Where the first record begins that is asked for; not before `base`.
        base: The place in the file of the first byte of `data`.
        key: The seal of the header.
        where: The checkpoint and its file, for messages.

    Raises:
        CorruptCheckpointError: A promised record is missing, cut or changed, or may be: one slot cannot be
            read, and there is nothing beyond what the other one promises.
    """
    end, committed = base + len(data), preamble.slot.committed
    _refuse_cut(end, preamble, where)
    while start < end:
        record = _record(data, start, base, key, preamble.format)
        if record is None or start < committed < record.end:
            if start >= committed:
                break
            raise damaged(start, where)
        yield record
        start = record.end
    # A slot is written after its record. One that was torn while it was written has a whole record
    # beyond the other one's promise; where there is none, that record may be gone.
    if preamble.alone and start <= committed:
        raise CorruptCheckpointError(
            f"{where}: one of the two slots cannot be read, and nothing whole lies beyond the {committed} bytes "
            "that the other one promises, so a later commit may be missing. The file is kept as it is; "
            "restore it from a backup."
        )


def _refuse_cut(size: int, preamble: Preamble, where: str) -> None:
    if size < preamble.slot.committed:
        raise CorruptCheckpointError(
            f"{where}: {preamble.slot.committed} bytes were committed but the file has {size}; it was cut. "
            "It is kept as it is; restore it from a backup."
        )


def damaged(start: int, where: str) -> CorruptCheckpointError:
    """Return the error that says where the first bad record is that was promised."""
    return CorruptCheckpointError(
        f"{where}: the record at byte {start} does not fit its checksum. "
        "The file is kept as it is; restore it from a backup."
    )


def _record(data: bytes, start: int, base: int, key: bytes, format: Format) -> Record | None:
    at = start - base
    if format == "msgpack":
        return _frame(data, at, start, key)
    stop = data.find(b"\n", at)
    if stop < at + _JSON_BODY:
        return None
    body = b"{" + data[at + _JSON_BODY : stop]
    seal = _seal(body, start, key)
    return Record(start, start + stop + 1 - at, seal, body) if data.startswith(_json_head(seal), at) else None


def _frame(data: bytes, at: int, start: int, key: bytes) -> Record | None:
    size = _FRAME_BODY + int.from_bytes(data[at : at + _FRAME_LENGTH], "big")
    if size == _FRAME_BODY or at + size > len(data):
        return None
    body = data[at + _FRAME_BODY : at + size]
    seal = _seal(body, start, key)
    return Record(start, start + size, seal, body) if data.startswith(seal, at + _FRAME_LENGTH) else None


def length_told(data: bytes, *, format: Format) -> int | None:
    """Return the length that the first `RECORD_START` bytes of a record tell, 0 when no record begins so.

    None: it is as long as its line.
    """
    if format == "json":
        return None if data.startswith(_JSON_START) else 0
    if len(data) < RECORD_START or (
        data[_FRAME_BODY] & 0xF0 != 0x80 and data[_FRAME_BODY] not in (0xDE, 0xDF)
    ):
        return 0  # the body is a map
    size = int.from_bytes(data[:_FRAME_LENGTH], "big")
    return size and _FRAME_BODY + size


def _seal(body: bytes, start: int, key: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_SEAL_BYTES, key=key, salt=start.to_bytes(8, "big")).digest()


def _json_head(seal: bytes) -> bytes:
    text = binascii.b2a_base64(seal, newline=False).translate(_URL_SAFE)
    return b'%b%b",' % (_JSON_START, text[:_SEAL_CHARACTERS])


def _slot_line(slot: Slot) -> bytes:
    head = f'{{"committed":{slot.committed:>12},"last":{slot.last:>12}'
    return f'{head},"c":"{zlib.crc32(head.encode("ascii")):08x}"}}\n'.encode("ascii")


def _slot(data: bytes, offset: int) -> Slot | None:
    found = _SLOT.fullmatch(data, offset, offset + _SLOT_SIZE)
    if found is None or int(found[3], 16) != zlib.crc32(data[offset : found.end(2)]):
        return None
    return Slot(int(found[1]), int(found[2]))


def _not_a_journal(data: bytes, where: str) -> CorruptCheckpointError:
    if not data:
        return CorruptCheckpointError(f"{where}: the file is empty; a journal never is. It is kept as it is.")
    return CorruptCheckpointError(f"{where}: this is not a checkpoint journal; the file is kept as it is.")
