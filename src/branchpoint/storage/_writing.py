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

from branchpoint.storage._disk import Disk
from branchpoint.storage._journal import Format, Slot, framed, next_slot, seal_record, whole_journal
from branchpoint.storage._reading import Standing

__all__ = ["append", "promise", "publish", "replace"]


def append(disk: Disk, descriptor: int, standing: Standing, body: bytes, head_snapshot_id: str) -> Standing:
    """Add a commit's record to an open journal and return where it stands then.

    Raises:
        OSError: It failed; the journal ends where it ended, or in a torn tail that is never shown.
    """
    format = standing.preamble.format  # noqa: A001
    if standing.size > standing.end:
        os.ftruncate(descriptor, standing.end)
    record = seal_record(body, start=standing.end, key=standing.header_seal, format=format)
    disk.append(descriptor, framed(record, format=format), standing.end)
    grown = msgspec.structs.replace(
        standing,
        last=record.start,
        last_seal=record.seal,
        head_snapshot_id=head_snapshot_id,
        newest=max(standing.newest, head_snapshot_id),
        end=record.end,
        size=record.end,
    )
    return _note(disk, descriptor, grown)


def promise(disk: Disk, descriptor: int, path: Path, standing: Standing) -> None:
    """Make a commit durable whose writer did not live, or did not manage, to do so.

    Raises:
        OSError: It failed; what is there still counts, but may not outlive the machine.
    """
    disk.sync(descriptor)
    disk.sync_folder(path.parent)
    if standing.end > standing.preamble.slot.committed:
        _note(disk, descriptor, standing)


def publish(disk: Disk, path: Path, temporary: Path, bodies: Sequence[bytes], *, format: Format) -> None:
    """Make a new journal of whole records appear at `path`; nothing may be there.

    Raises:
        FileExistsError: Something is there; it is left alone.
        OSError: It failed; nothing is at `path`.
    """
    with disk.new_file(temporary, whole_journal(bodies, format=format)):
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


def replace(disk: Disk, path: Path, temporary: Path, bodies: Sequence[bytes], *, format: Format) -> None:
    """Put a new journal of whole records in the place of the one at `path`, in one step.

    Raises:
        OSError: It failed; the old journal is at `path`, or, if only the last sync failed, the new one.
    """
    with disk.new_file(temporary, whole_journal(bodies, format=format)):
        os.replace(temporary, path)
        disk.sync_folder(path.parent)


def _note(disk: Disk, descriptor: int, standing: Standing) -> Standing:
    slot = Slot(standing.end, standing.last)
    write = next_slot(standing.preamble, slot)
    # The record is durable already and counts without the slot; the next commit writes one again.
    with suppress(OSError):
        disk.write_all(descriptor, write.data, write.offset)
    return standing
