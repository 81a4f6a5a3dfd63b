"""One writer at a time, across threads and processes.

A lock is an advisory `flock` on a file of its own. Lock files are few (a fixed number of stripes
for a whole folder), are made when first needed, and are never removed or replaced: whoever opens
the path always opens the same file, so there is no moment at which two holders could each hold
"the" lock. Deleting a checkpoint therefore leaves nothing of it behind, and needs no care for
somebody who waits for its lock at that moment. The price is that two checkpoints of one stripe
wait for each other for the length of one commit.

Every acquisition opens the file anew, and `flock` belongs to the open file, so two threads of one
process exclude each other exactly as two processes do. The operating system releases the lock of
a process that dies.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from branchpoint.errors import StorageError

if sys.platform != "win32":
    import fcntl

__all__ = ["STRIPES", "holding", "require_locks"]

STRIPES = 64

_held: set[int] = set()


def _forget_in_child() -> None:
    # A forked child shares the open file, and with it the lock. Closing its copy leaves the parent's
    # lock alone, and keeps the child from holding on to it should the parent die.
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)


def require_locks() -> None:
    """Refuse a platform without `flock`.

    Raises:
        StorageError: This platform has no `flock`.
    """
    if sys.platform == "win32":
        raise StorageError("File storage needs flock, which Windows does not have; use another storage.")


@contextmanager
def holding(folder: Path, stripe: int, *, shared: bool = False, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of one stripe of `folder` inside the block.

    Args:
        folder: The folder the lock belongs to; it exists.
        stripe: Which lock, below `STRIPES`.
        shared: Hold it together with other readers. Where there is no lock file yet and none can be
            made, because this process may only read the folder, nobody has ever written under this lock,
            and the block is entered without it.
        wait: Block until it is free; otherwise the block is entered with False at once.

    Yields:
        Whether the lock is held; when waiting, False only for a reader of a folder without lock files.

    Raises:
        OSError: The lock file cannot be opened or locked.
    """
    if sys.platform == "win32":
        require_locks()
        return
    descriptor = _open(os.path.join(folder, f".lock-{stripe:02x}"), shared=shared)
    if descriptor is None:
        yield False
        return
    _held.add(descriptor)
    try:
        yield _lock(descriptor, shared=shared, wait=wait)
    finally:
        if descriptor in _held:  # not so in a child that was forked inside the block
            try:
                # Said out loud, because such a child may keep the open file alive a moment longer.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            finally:
                _held.discard(descriptor)
                os.close(descriptor)


def _open(path: str, *, shared: bool) -> int | None:
    if sys.platform == "win32":
        return None
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    if not shared:
        return os.open(path, flags | os.O_RDWR | os.O_CREAT, 0o600)
    try:
        return os.open(path, flags | os.O_RDONLY)
    except FileNotFoundError:
        try:
            return os.open(path, flags | os.O_RDONLY | os.O_CREAT, 0o600)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                return None
            raise


def _lock(descriptor: int, *, shared: bool, wait: bool) -> bool:
    if sys.platform == "win32":
        return False
    operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, operation if wait else operation | fcntl.LOCK_NB)
    except OSError as error:
        if not wait and error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True
