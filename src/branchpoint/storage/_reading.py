"""Reading one open journal: all of it, or only where it stands.

A commit is added only to a journal whose records are all sound. Somebody who has not seen it before
reads all of it. For somebody who has, the seal of the header and that of the last commit they saw
tell that it is the same journal, so they check these two and what was added since; the records
between them are not read again.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from branchpoint.checkpoint import Header, StoredHead, refuse_v1
from branchpoint.errors import CorruptCheckpointError
from branchpoint.storage._disk import read_at
from branchpoint.storage._journal import (
    Preamble,
    Record,
    header_record,
    read_preamble,
    records,
)
from branchpoint.storage._records import Commit, peek_id, read_commit, read_header

__all__ = ["Journal", "Place", "Standing", "parse_journal", "read_end", "read_id", "read_on", "read_whole"]

_FIRST_LOOK = 1 << 14


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

    @property
    def head(self) -> StoredHead:
        """What a commit is compared with."""
        return StoredHead(self.head_snapshot_id, self.generation)


class Journal(msgspec.Struct, frozen=True):
    """What was read of a journal: its header, and commits up to the last one.

    Attributes:
        bodies: The body of every record after the header that was read, and its commit; None for a
            kind of record that this program may skip.
    """

    header: Header
    bodies: list[tuple[bytes, Commit | None]]
    standing: Standing

    @property
    def commits(self) -> list[Commit]:
        """The commits that were read, oldest first; the last one holds the head."""
        return [commit for _, commit in self.bodies if commit is not None]

    @property
    def parts(self) -> dict[str, bytes]:
        """The parts that the commits added, by digest."""
        return {digest: part for commit in self.commits for digest, part in commit.parts.items()}


def parse_journal(data: bytes, place: Place) -> Journal:
    """Read a whole journal, checking in this order: version, checksums, envelopes.

    Raises:
        UnknownVersionError: A newer program wrote it, or it is a v1 checkpoint of Agent Framework.
        CorruptCheckpointError: It is damaged.
    """
    preamble = _preamble(data, len(data), place)
    first = header_record(data, preamble, size=len(data), where=str(place))
    if first is None:
        raise CorruptCheckpointError(f"{place}: the journal has no header; the file is kept as it is.")
    found = records(data, preamble, start=first.end, base=0, key=first.seal, where=str(place))
    return _journal(preamble, first, list(found), len(data), place)


def read_end(descriptor: int, place: Place) -> Journal:
    """Read header and last commit of an open journal, and nothing between them.

    Raises:
        UnknownVersionError: A newer program wrote it, or it is a v1 checkpoint of Agent Framework.
        CorruptCheckpointError: What was read is damaged.
    """
    size = os.fstat(descriptor).st_size
    data, preamble, first = _beginning(descriptor, size, place)
    start = max(preamble.slot.last, first.end)
    tail = data[start:] if len(data) >= size else read_at(descriptor, start, size)
    found = records(tail, preamble, start=start, base=start, key=first.seal, where=str(place))
    return _journal(preamble, first, list(found), size, place)


def read_whole(descriptor: int, place: Place) -> Journal:
    """Read all of an open journal; see `parse_journal`."""
    return parse_journal(read_at(descriptor, 0, os.fstat(descriptor).st_size), place)


def read_on(descriptor: int, place: Place, seen: Standing) -> Standing | None:
    """Return where an open journal stands that was `seen` before; None when it is not the same journal.

    Checks the header, the last commit that was seen, and every record after it. What lies between the
    two was checked by whoever saw it, and is not read again.

    Raises:
        UnknownVersionError: A newer program wrote it, or it is a v1 checkpoint of Agent Framework.
        CorruptCheckpointError: What was read is damaged.
    """
    size = os.fstat(descriptor).st_size
    data, preamble, first = _beginning(descriptor, size, place)
    if first.seal != seen.header_seal:
        return None
    tail = data[seen.last :] if len(data) >= size else read_at(descriptor, seen.last, size)
    try:
        found = list(
            records(tail, preamble, start=seen.last, base=seen.last, key=first.seal, where=str(place))
        )
    except CorruptCheckpointError:
        return None  # whoever reads all of it tells damage from a journal that went another way
    if not found or found[0].seal != seen.last_seal:
        return None
    if found[-1].end == seen.end:
        return msgspec.structs.replace(seen, preamble=preamble, size=size)
    now = _journal(preamble, first, found, size, place).standing
    return msgspec.structs.replace(now, newest=max(now.newest, seen.newest))


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
    while (first := header_record(data, preamble, size=size, where=str(place))) is None:
        look *= 8
        data = read_at(descriptor, 0, look)
    return data, preamble, first


def _preamble(data: bytes, size: int, place: Place, descriptor: int | None = None) -> Preamble:
    try:
        return read_preamble(data, where=str(place))
    except CorruptCheckpointError:
        # Only the whole file tells a v1 checkpoint from damage.
        whole = data if descriptor is None else read_at(descriptor, 0, size)
        refuse_v1(whole, checkpoint_id=place.checkpoint_id)
        raise


def _journal(preamble: Preamble, first: Record, found: list[Record], size: int, place: Place) -> Journal:
    format, checkpoint_id, where = preamble.format, place.checkpoint_id, str(place)  # noqa: A001
    header = read_header(first.body, format=format, checkpoint_id=checkpoint_id, where=where)
    commits = [
        read_commit(one.body, format=format, checkpoint_id=checkpoint_id, where=where) for one in found
    ]
    head = next((n for n in range(len(found) - 1, -1, -1) if commits[n] is not None), None)
    if head is None or (commit := commits[head]) is None:
        raise CorruptCheckpointError(f"{where}: the journal holds no commit; the file is kept as it is.")
    standing = Standing(
        preamble=preamble,
        header_seal=first.seal,
        generation=header.generation,
        last=found[head].start,
        last_seal=found[head].seal,
        head_snapshot_id=commit.manifest.snapshot_id,
        newest=max(one.manifest.snapshot_id for one in commits if one is not None),
        end=found[-1].end,
        size=size,
    )
    return Journal(header, [(one.body, commit) for one, commit in zip(found, commits, strict=True)], standing)
