"""Opening journals by hand, and disks that fail, for tests of what a file storage makes of them."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterable
from pathlib import Path

from branchpoint.storage._disk import Disk
from branchpoint.storage._journal import Format, header_record, read_preamble, records, whole_journal
from branchpoint.storage._names import file_name


def journal_of(folder: Path, checkpoint_id: str = "order-17") -> Path:
    """Where a checkpoint's journal is."""
    return folder / file_name(checkpoint_id)


def bodies_of(path: Path) -> tuple[Format, list[bytes]]:
    """The format of a journal and the bodies of its records, the header first."""
    data = path.read_bytes()
    preamble = read_preamble(data, where=str(path))
    first = header_record(data, preamble, size=len(data), where=str(path))
    assert first is not None
    rest = records(data, preamble, start=first.end, base=0, key=first.seal, where=str(path))
    return preamble.format, [first.body, *(record.body for record in rest)]


def reseal(path: Path, bodies: Iterable[bytes]) -> None:
    """Write a journal whose seals fit whatever is in it, as somebody would who knows the format."""
    path.write_bytes(whole_journal(list(bodies), format=read_preamble(path.read_bytes(), where="").format))


def ends_of(path: Path) -> list[int]:
    """Where each record of a journal ends, the header first."""
    data = path.read_bytes()
    preamble = read_preamble(data, where=str(path))
    first = header_record(data, preamble, size=len(data), where=str(path))
    assert first is not None
    rest = records(data, preamble, start=first.end, base=0, key=first.seal, where=str(path))
    return [first.end, *(record.end for record in rest)]


class FailingDisk(Disk):
    """A disk that is full after some more bytes, or cannot sync; until it is mended."""

    def __init__(self) -> None:
        self.room: int | None = None
        self.broken: set[str] = set()

    def mend(self) -> None:
        self.room = None
        self.broken.clear()

    def write(self, descriptor: int, data: bytes | memoryview, offset: int) -> int:
        if self.room is None:
            return super().write(descriptor, data, offset)
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = super().write(descriptor, memoryview(data)[: self.room], offset)
        self.room -= written
        return written

    def sync(self, descriptor: int) -> None:
        self._fail("sync")
        super().sync(descriptor)

    def sync_folder(self, folder: Path) -> None:
        self._fail("sync_folder")
        super().sync_folder(folder)

    def _fail(self, what: str) -> None:
        if what in self.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


class HesitantDisk(Disk):
    """A disk whose next sync, once it is `armed`, takes until `go` is set and fails then."""

    def __init__(self) -> None:
        self.armed = False
        self.reached, self.go = threading.Event(), threading.Event()

    def sync(self, descriptor: int) -> None:
        if self.armed:
            self.armed = False
            self.reached.set()
            self.go.wait()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(descriptor)


class StoppingDisk(Disk):
    """A disk that says how far it is and stops there until the process is killed.

    The steps of one append are `write`, `half`, `written`, `synced` and `slot`; for a new file
    `new` (written, not yet under its name), `named` and `folder`.
    """

    def __init__(self, step: str) -> None:
        self.step = step
        self.writes = 0

    def stop(self, step: str) -> None:
        if step == self.step:
            print(step, flush=True)
            os.read(0, 1)  # the other end never writes

    def write(self, descriptor: int, data: bytes | memoryview, offset: int) -> int:
        self.writes += 1
        if self.writes > 1:  # the second write of a commit is the slot
            self.stop("synced")
            written = super().write(descriptor, data, offset)
            self.stop("slot")
            return written
        self.stop("write")
        if self.step == "half":
            super().write(descriptor, memoryview(data)[: len(data) // 2], offset)
            self.stop("half")
        written = super().write(descriptor, data, offset)
        self.stop("written")
        return written

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        self.stop("new")

    def sync_folder(self, folder: Path) -> None:
        self.stop("named")
        super().sync_folder(folder)
        self.stop("folder")
