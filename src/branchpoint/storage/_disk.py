"""The few things a journal needs of a file system, each with its durability spelled out.

Everything that can fail for want of space or for a bad disk goes through a `Disk`, so a test can
give a storage one that fails.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from branchpoint.errors import CorruptCheckpointError, StorageError

if sys.platform == "darwin":
    import fcntl

__all__ = ["Disk", "is_there", "make_folder", "open_journal", "read_at", "reported", "token"]

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700

_ADVICE = {
    "give this process the right to read and write there": (errno.EACCES, errno.EPERM, errno.EROFS),
    "make room": (errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    "remove the symbolic link there, which is never followed": (errno.ELOOP,),
    "move away the folder that is in the place of a file": (errno.EISDIR,),
    "move away the file that is in the place of a folder": (errno.ENOTDIR,),
    "move away what is there; it is not a regular file": (errno.ENXIO,),
    "let this process have more open files": (errno.EMFILE, errno.ENFILE),
    "check the disk": (errno.EIO,),
}


class Disk:
    """The writing half of the operating system."""

    def write(self, descriptor: int, data: bytes | memoryview, offset: int) -> int:
        """Write some of `data` at `offset` and return how many bytes that was, as `os.pwrite`."""
        return os.pwrite(descriptor, data, offset)

    def sync(self, descriptor: int) -> None:
        """Return when the file's bytes and length are on the disk."""
        if sys.platform == "darwin":
            # fsync stops at the drive's own cache there.
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        elif hasattr(os, "fdatasync"):
            os.fdatasync(descriptor)
        else:
            os.fsync(descriptor)

    def sync_folder(self, folder: Path) -> None:
        """Return when the names in `folder` are on the disk."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def write_all(self, descriptor: int, data: bytes, offset: int) -> None:
        """Write all of `data` at `offset`."""
        rest = memoryview(data)
        while rest:
            written = self.write(descriptor, rest, offset)
            if not written:  # or this would go on for ever
                raise OSError(errno.EIO, "nothing was written and no reason given")
            rest, offset = rest[written:], offset + written

    def append(self, descriptor: int, data: bytes, end: int) -> None:
        """Make `data` durable at `end`, the length of the file; when that fails, restore the length.

        Raises:
            OSError: It failed. The file has its old length again, unless that failed as well.
        """
        try:
            self.write_all(descriptor, data, end)
            self.sync(descriptor)
        except BaseException:
            with suppress(OSError):  # what stays is a torn tail, which the next write cuts off
                os.ftruncate(descriptor, end)
                self.sync(descriptor)
            raise

    @contextmanager
    def new_file(self, path: Path, data: bytes) -> Iterator[None]:
        """Make a durable file of `data`; what of it is still at `path` after the block is removed.

        Raises:
            OSError: It failed; nothing is at `path`.
        """
        descriptor = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, _FILE_MODE
        )
        try:
            try:
                self.write_all(descriptor, data, 0)
                self.sync(descriptor)
            finally:
                os.close(descriptor)
            yield
        finally:
            with suppress(OSError):  # a leftover is never read, and swept by a later writer
                os.unlink(path)


def token() -> str:
    """Return what makes the name of a temporary file its writer's own."""
    return f"{os.getpid():x}{secrets.token_hex(6)}"


def make_folder(folder: Path, disk: Disk) -> None:
    """Make `folder` and what is missing above it, private to this user, and durable.

    What is there already may have been made by a writer that died before it was durable, so the names
    of folders that look like made here are synced again.
    """
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        with suppress(FileExistsError):  # another writer made it in the meantime
            one.mkdir(_FOLDER_MODE)
    for one in (folder, *folder.parents):
        if one not in missing and not _may_be_made_here(one):
            break
        disk.sync_folder(one.parent)


def _may_be_made_here(folder: Path) -> bool:
    found = os.stat(folder)
    return (
        stat.S_IMODE(found.st_mode) == _FOLDER_MODE
        and found.st_uid == os.geteuid()
        and os.access(folder.parent, os.R_OK | os.W_OK)
    )


def is_there(path: Path) -> bool:
    """Say whether anything has this name, a broken link too.

    Raises:
        OSError: Nobody knows; `os.path.lexists` would say no.
    """
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def open_journal(path: Path, *, where: str, write: bool = False) -> Iterator[int]:
    """Open a journal by its path and give its descriptor; closed after the block.

    Raises:
        FileNotFoundError: There is none.
        CorruptCheckpointError: There is something else under that name; it is not followed or opened.
    """
    # Without O_NONBLOCK a pipe under that name would wait for its other end for ever.
    flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    if os.path.islink(path):
        raise CorruptCheckpointError(f"{where}: this is a symbolic link, which is never followed; remove it.")
    descriptor = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise CorruptCheckpointError(f"{where}: this is not a regular file; remove it.")
        yield descriptor
    finally:
        os.close(descriptor)


def read_at(descriptor: int, start: int, end: int) -> bytes:
    """Return the bytes of a file from `start` to `end`, fewer only when the file is shorter."""
    pieces: list[bytes] = []
    while start < end and (piece := os.pread(descriptor, min(end - start, 1 << 30), start)):
        pieces.append(piece)
        start += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@contextmanager
def reported(doing: str, where: str) -> Iterator[None]:
    """Turn an error of the operating system inside the block into a `StorageError` that says where.

    Raises:
        StorageError: The operating system refused; it is the cause.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StorageError(
            f"{where}: {doing} failed: {reason}. What was committed before is unchanged; "
            f"{_advice(error)}, then try again."
        ) from error


def _advice(error: OSError) -> str:
    # The file at fault may be another one than `where`, a lock for instance.
    named = f" ({error.filename})" if isinstance(error.filename, str) else ""
    for advice, numbers in _ADVICE.items():
        if error.errno in numbers:
            return advice + named
    return "mend what the operating system names" + named
