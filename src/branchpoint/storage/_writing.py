"""Changing one journal: appending a commit, publishing a new file, replacing an old one.

Whoever calls this holds the lock. Each function returns only when what it did is on the disk, and
leaves the journal as it was when it raises.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from branchpoint.checkpoint import StoredHead
from branchpoint.storage._disk import Disk, read_at
from branchpoint.storage._journal import (
    Format,
    Preamble,
    Record,
    Slot,
    framed,
    joined,
    next_slot,
    seal_record,
    sealed,
)
from branchpoint.storage._reading import Journal, Standing

__all__ = ["append", "promise", "publish", "replace", "take_back"]


_KEPT = 1 << 16
"""Up to so many bytes of a last record are remembered, to be compared as they are."""


def append(disk: Disk, descriptor: int, standing: Standing, body: bytes, head_snapshot_id: str) -> Standing:
    """Add a commit's record to an open journal and return where it stands then.

    Raises:
        OSError: It failed; the journal ends where it ended, or in a torn tail that is never shown.
    """
    format = standing.preamble.format  # noqa: A001
    if standing.size > standing.end:
        os.ftruncate(descriptor, standing.end)
        disk.sync(descriptor)  # or a power cut could make a whole of the new beginning and the old end
    _write_again(disk, descriptor, standing)
    record = seal_record(body, start=standing.end, key=standing.header_seal, format=format)
    data = framed(record, format=format)
    disk.append(descriptor, data, standing.end)
    grown = msgspec.structs.replace(
        standing,
        last=record.start,
        last_seal=record.seal,
        head_snapshot_id=head_snapshot_id,
        newest=max(standing.newest, head_snapshot_id),
        end=record.end,
        size=record.end,
        named=True,
        ending=data if len(data) <= _KEPT else b"",
    )
    return _note(disk, descriptor, grown)


def promise(disk: Disk, descriptor: int, path: Path, standing: Standing) -> None:
    """Make a commit durable whose writer did not live, or did not manage, to do so.

    Raises:
        OSError: It failed; what is there still counts, but may not outlive the machine.
    """
    _write_again(disk, descriptor, standing)
    disk.sync(descriptor)
    disk.sync_folder(path.parent)
    if standing.end > standing.preamble.slot.committed:
        _note(disk, descriptor, standing)


def publish(
    disk: Disk, path: Path, temporary: Path, bodies: Sequence[bytes], *, head: StoredHead, format: Format
) -> Standing:
    """Make a new journal of whole records appear at `path`, where nothing is, and return where it stands.

    Raises:
        FileExistsError: Something is there; it is left alone.
        OSError: It failed; nothing is at `path`, unless taking it away failed as well.
    """
    made = sealed(bodies, format=format)
    with disk.new_file(temporary, joined(made, made[-1], format=format)):
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:
            # A file system without hard links. The lock keeps others from making `path` meanwhile.
            os.rename(temporary, path)
        try:
            disk.sync_folder(path.parent)
        except BaseException:
            with suppress(OSError):
                os.unlink(path)
            raise
    return _new(made, made[-1], head, head.head_snapshot_id, format)


def replace(
    disk: Disk,
    path: Path,
    temporary: Path,
    bodies: Sequence[bytes],
    *,
    last: int,
    head: StoredHead,
    newest: str,
    format: Format,
) -> Standing:
    """Put a new journal of whole records in the place of the one at `path`, and return where it stands.

    Args:
        last: Which of the bodies is the head's; only records that are none of this version follow it.

    Raises:
        OSError: It failed; the old journal is at `path`, or, if only the last sync failed, the new one.
    """
    made = sealed(bodies, format=format)
    with disk.new_file(temporary, joined(made, made[last], format=format)):
        os.replace(temporary, path)
        disk.sync_folder(path.parent)
    return _new(made, made[last], head, newest, format)


def take_back(disk: Disk, descriptor: int, path: Path, journal: Journal, snapshot_id: str) -> None:
    """Remove a commit that failed and could not be removed then, if it is still the last one.

    Raises:
        OSError: It failed again.
    """
    if journal.commits[-1].manifest.snapshot_id != snapshot_id:
        return  # it was removed then, or somebody has gone on from it
    if len(journal.commits) == 1:
        os.unlink(path)
        disk.sync_folder(path.parent)
    else:
        os.ftruncate(descriptor, journal.standing.last)
        disk.sync(descriptor)


def _new(made: Sequence[Record], last: Record, head: StoredHead, newest: str, format: Format) -> Standing:
    end = made[-1].end
    return Standing(
        preamble=Preamble(format, Slot(end, last.start), 0, untouched=True),
        header_seal=made[0].seal,
        generation=head.generation,
        last=last.start,
        last_seal=last.seal,
        head_snapshot_id=head.head_snapshot_id,
        newest=newest,
        end=end,
        size=end,
        named=True,
    )


def _write_again(disk: Disk, descriptor: int, standing: Standing) -> None:
    # Who wrote what lies beyond the promise may have died, or have had a sync that failed. After that
    # an operating system may show bytes that it will never write, unless they are written once more.
    start = standing.preamble.slot.committed
    if standing.end > start:
        disk.write_all(descriptor, read_at(descriptor, start, standing.end), start)


def _note(disk: Disk, descriptor: int, standing: Standing) -> Standing:
    slot = Slot(standing.end, standing.last)
    write = next_slot(standing.preamble, slot)
    # The record is durable already and counts without the slot; the next commit writes one again.
    try:
        disk.write_all(descriptor, write.data, write.offset)
    except OSError:
        return msgspec.structs.replace(standing, beginning=b"")
    beginning = standing.beginning
    if beginning:
        end = write.offset + len(write.data)
        beginning = b"".join((beginning[: write.offset], write.data, beginning[end:]))
    preamble = Preamble(standing.preamble.format, slot, 1 - standing.preamble.index)
    return msgspec.structs.replace(standing, preamble=preamble, beginning=beginning)
