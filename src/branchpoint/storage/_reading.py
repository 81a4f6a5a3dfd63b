"""Reading one open journal: all of it, or only where it stands.

A commit is added only to a journal whose records are all sound. Somebody who has not seen it before
reads all of it. For somebody who has, the seal of the header and that of the last commit they saw
tell that it is the same journal, so they check these two and what was added since; the records
between them are not read again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from branchpoint.checkpoint import Header, StoredHead, refuse_v1
from branchpoint.errors import CorruptCheckpointError, DataError
from branchpoint.storage._disk import read_at
from branchpoint.storage._journal import (
    PREAMBLE_SIZE,
    RECORD_START,
    Format,
    Preamble,
    Record,
    damaged,
    header_record,
    length_told,
    read_preamble,
    records,
)
from branchpoint.storage._records import Commit, odd_name, peek_id, read_commit, read_header

__all__ = [
    "Journal", "Place", "Standing", "parse_journal", "read_bytes", "read_end", "read_id", "read_on",
    "read_whole",
]  # fmt: skip

_FIRST_LOOK = 1 << 14
_PIECE = 1 << 16
_SMALL = 1 << 22
_LONGEST_V1 = 1 << 26


class Place(msgspec.Struct, frozen=True):
    """Which checkpoint a file should hold, and how to speak of it.

    Attributes:
        stripe: Which lock guards it.
    """

    checkpoint_id: str
    path: Path
    stripe: int = 0

    def __str__(self) -> str:
        return f"checkpoint {self.checkpoint_id!r} in {self.path}"


class Standing(msgspec.Struct, frozen=True):
    """Where a journal stands: everything the next commit needs to know.

    Attributes:
        last: Where the last commit's record begins.
        newest: The greatest of the snapshot ids that were read; ids sort by the time they were made.
        end: Where the last whole record ends; what lies beyond is a torn tail.
        size: How long the file is.
        named: Whether whoever keeps this has seen to it that the name of the file is durable.
        beginning: The bytes up to the end of the header, as they were left; empty when that is not known.
        ending: The bytes of the last record, likewise.
    """

    preamble: Preamble
    header_seal: bytes
    generation: int
    last: int
    last_seal: bytes
    head_snapshot_id: str
    newest: str
    end: int
    size: int
    named: bool = False
    beginning: bytes = b""
    ending: bytes = b""

    @property
    def head(self) -> StoredHead:
        """What a commit is compared with."""
        return StoredHead(self.head_snapshot_id, self.generation)


class Journal(msgspec.Struct, frozen=True):
    """What was read of a journal: its header, and commits up to the last one.

    Attributes:
        records: Every record after the header that was read, as its commit, or as its body where it is of
            a kind that this program may skip.
        commits: The commits among them, oldest first; the last one holds the head.
        parts: The parts that the commits added, by name.
    """

    header: Header
    records: list[Commit | bytes]
    commits: list[Commit]
    parts: dict[str, bytes]
    standing: Standing


def parse_journal(data: bytes, place: Place, size: int | None = None) -> Journal:
    """Read a whole journal, checking in this order: version, checksums, envelopes.

    Args:
        data: What `read_bytes` gave.
        place: Whose it is.
        size: How long the file is, if it goes on with what `read_bytes` left out.

    Raises:
        UnknownVersionError: A newer program wrote it, or it is a v1 checkpoint of Agent Framework.
        CorruptCheckpointError: It is damaged.
    """
    preamble = _preamble(data, len(data), place)
    first = header_record(data, preamble, size=len(data), where=str(place))
    if first is None:
        raise CorruptCheckpointError(f"{place}: the journal has no header; the file is kept as it is.")
    found = records(data, preamble, start=first.end, base=0, key=first.seal, where=str(place))
    return _journal(preamble, first, found, len(data) if size is None else size, place)


def read_bytes(descriptor: int, place: Place) -> bytes:
    """Return the bytes of an open journal, without what cannot be a record at its end.

    A file may be far longer than what was ever written to it. Its beginning says where it stands, so that is
    looked at first.

    Raises:
        UnknownVersionError: A newer program wrote it, or it is a v1 checkpoint of Agent Framework.
        CorruptCheckpointError: It is damaged, as far as that was seen.
    """
    size = os.fstat(descriptor).st_size
    data, preamble, first = _beginning(descriptor, size, place)
    end = _end(descriptor, preamble, first.end, size, place)
    return data[:end] if len(data) >= end else read_at(descriptor, 0, end)


def read_end(descriptor: int, place: Place) -> Journal:
    """Read header and last commit of an open journal, and nothing between them.

    Raises:
        UnknownVersionError: A newer program wrote it, or it is a v1 checkpoint of Agent Framework.
        CorruptCheckpointError: What was read is damaged.
    """
    size = os.fstat(descriptor).st_size
    data, preamble, first = _beginning(descriptor, size, place)
    start = max(preamble.slot.last, first.end)
    end = _end(descriptor, preamble, start, size, place)
    tail = data[start:end] if len(data) >= end else read_at(descriptor, start, end)
    found = records(tail, preamble, start=start, base=start, key=first.seal, where=str(place))
    return _journal(preamble, first, found, size, place)


def read_whole(descriptor: int, place: Place) -> Journal:
    """Read all of an open journal; see `parse_journal`."""
    return parse_journal(read_bytes(descriptor, place), place, os.fstat(descriptor).st_size)


def read_on(descriptor: int, place: Place, seen: Standing) -> Standing | None:
    """Return where an open journal stands that was `seen` before; None when it is not the same journal.

    Checks the header, the last commit that was seen, and every record after it. What lies between the
    two was checked by whoever saw it, and is not read again.

    Raises:
        UnknownVersionError: A newer program wrote it, or it is a v1 checkpoint of Agent Framework.
        CorruptCheckpointError: What was read is damaged.
    """
    size = os.fstat(descriptor).st_size
    if size == seen.end and _is_as_left(descriptor, seen):
        return seen
    data, preamble, first = _beginning(descriptor, size, place)
    if first.seal != seen.header_seal:
        return None
    try:
        end = _end(descriptor, preamble, seen.last, size, place)
        tail = data[seen.last : end] if len(data) >= end else read_at(descriptor, seen.last, end)
        found = list(
            records(tail, preamble, start=seen.last, base=seen.last, key=first.seal, where=str(place))
        )
    except CorruptCheckpointError:
        return None  # whoever reads all of it tells damage from a journal that went another way
    if not found or found[0].seal != seen.last_seal:
        return None
    if found[-1].end == seen.end:
        return msgspec.structs.replace(
            seen, preamble=preamble, size=size, beginning=data[: first.end], ending=b""
        )
    now = _journal(preamble, first, iter(found), size, place).standing
    return msgspec.structs.replace(now, newest=max(now.newest, seen.newest), named=seen.named)


def _is_as_left(descriptor: int, seen: Standing) -> bool:
    """Say whether beginning and last record are, byte for byte, what whoever saw them left there."""
    return bool(
        seen.ending
        and seen.beginning
        and seen.size == seen.end
        and read_at(descriptor, 0, len(seen.beginning)) == seen.beginning
        and read_at(descriptor, seen.last, seen.end) == seen.ending
    )


def read_id(descriptor: int, path: Path) -> str:
    """Return the id of the checkpoint that an open journal says it holds.

    Raises:
        UnknownVersionError: A newer program wrote it, or it is a v1 checkpoint of Agent Framework.
        CorruptCheckpointError: What was read is damaged.
    """
    place = Place(path.name, path)
    _, preamble, first = _beginning(descriptor, os.fstat(descriptor).st_size, place)
    return peek_id(first.body, format=preamble.format, where=str(path))


def _beginning(descriptor: int, size: int, place: Place) -> tuple[bytes, Preamble, Record]:
    look = _FIRST_LOOK
    data = read_at(descriptor, 0, look)
    preamble = _preamble(data, size, place, descriptor)
    # The header is promised, so it ends where the promise does at the latest; a hole in the file never is one.
    while (first := header_record(data, preamble, size=size, where=str(place))) is None:
        if len(data) < look:  # somebody cut it who holds no lock
            size = len(data)
            continue
        told = length_told(data[PREAMBLE_SIZE:], format=preamble.format)
        wrong = b"\0" in data if told is None else not 0 < told <= preamble.slot.committed - PREAMBLE_SIZE
        if wrong or len(data) >= preamble.slot.committed:
            raise damaged(PREAMBLE_SIZE, str(place))
        look *= 8
        data = read_at(descriptor, 0, look)
    return data, preamble, first


def _end(descriptor: int, preamble: Preamble, start: int, size: int, place: Place) -> int:
    """Return where what is worth reading ends.

    A large file is read only as far as one record after the other may be whole, because it may be far
    larger than what was ever written to it. What is small is read as it is.

    Raises:
        CorruptCheckpointError: There is something else where a record was promised.
    """
    committed = preamble.slot.committed
    if size <= _SMALL:
        return size
    end = start
    while end < committed:
        further = _next_end(descriptor, end, committed, preamble.format)
        if further is None:
            raise damaged(end, str(place))
        end = further
    while (further := _next_end(descriptor, end, size, preamble.format)) is not None:
        end = further
    return end


def _next_end(descriptor: int, start: int, size: int, format: Format) -> int | None:
    """Return where a record ends that begins at `start`; None when none that is whole can."""
    told = length_told(read_at(descriptor, start, min(start + RECORD_START, size)), format=format)
    if told is not None:
        return start + told if 0 < told <= size - start else None
    while start < size:
        piece = read_at(descriptor, start, min(start + _PIECE, size))
        stop = piece.find(b"\n")
        if stop >= 0:
            return start + stop + 1
        if not piece or b"\0" in piece:  # a hole; JSON has no such byte
            return None
        start += len(piece)
    return None


def _preamble(data: bytes, size: int, place: Place, descriptor: int | None = None) -> Preamble:
    try:
        return read_preamble(data, where=str(place))
    except CorruptCheckpointError:
        # Only the whole file tells a v1 checkpoint from damage.
        if data.lstrip()[:1] == b"{" and size <= _LONGEST_V1:
            whole = data if descriptor is None else read_at(descriptor, 0, size)
            refuse_v1(whole, checkpoint_id=place.checkpoint_id)
        raise


def _journal(preamble: Preamble, first: Record, found: Iterator[Record], size: int, place: Place) -> Journal:
    format, checkpoint_id, where = preamble.format, place.checkpoint_id, str(place)  # noqa: A001
    read: list[Commit | bytes] = []
    last, end = first, first.end
    try:
        header = read_header(first.body, format=format, checkpoint_id=checkpoint_id, where=where)
        for record in found:
            end = record.end
            commit = read_commit(record.body, format=format, checkpoint_id=checkpoint_id, where=where)
            if commit is None:
                read.append(record.body)
            else:
                read.append(commit)
                last = record
    except DataError:
        for _ in found:  # damage is told before anything else
            pass
        raise
    commits = [one for one in read if isinstance(one, Commit)]
    if not commits:
        raise CorruptCheckpointError(f"{where}: the journal holds no commit; the file is kept as it is.")
    standing = Standing(
        preamble=preamble,
        header_seal=first.seal,
        generation=header.generation,
        last=last.start,
        last_seal=last.seal,
        head_snapshot_id=commits[-1].manifest.snapshot_id,
        newest=max(commit.manifest.snapshot_id for commit in commits),
        end=end,
        size=size,
    )
    return Journal(header, read, commits, _merged(commits, where), standing)


def _merged(commits: list[Commit], where: str) -> dict[str, bytes]:
    """Return the parts of all commits, by name.

    Raises:
        CorruptCheckpointError: A name is none, or two commits give it to different bytes.
    """
    parts: dict[str, bytes] = {}
    for commit in commits:
        parts.update(commit.parts)
    odd = odd_name(parts)
    if odd is not None:
        raise CorruptCheckpointError(
            f"{where}: a part has the name {odd[:80]!a}, which is none; it was not written by branchpoint. "
            "The file is kept as it is."
        )
    if len(parts) != sum(len(commit.parts) for commit in commits):
        for commit in commits:
            for name, part in commit.parts.items():
                if parts[name] != part:
                    raise CorruptCheckpointError(
                        f"{where}: two commits give the name {name} to different parts; it was edited. "
                        "The file is kept as it is."
                    )
    return parts
