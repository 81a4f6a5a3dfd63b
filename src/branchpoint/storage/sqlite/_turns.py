"""Writers of several processes take turns: who waits longest is not overtaken by who was just writing.

SQLite lets a writer that finds the database locked try again after a while, so a busy process could
keep the others out and make them time out. Here they queue at two locks of the operating system, beside
the database file: whoever holds the first one is next, and waits for the second one, which is held while
writing. A process that has just written must stand behind the one that is next. Neither file is ever
removed or replaced. SQLite's own locks keep the data safe all the same, from programs that know nothing
of this, and where there is no `flock`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if sys.platform != "win32":
    import fcntl

__all__ = ["Turns"]


class Turns:
    """The two locks of one database, open until `close`. Used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._paths = (f"{path}-next", f"{path}-lock")
        self._open: tuple[int, int] | None = None

    def take(self) -> None:
        """Wait until it is this process's turn.

        Raises:
            OSError: A lock file cannot be made or locked.
        """
        if sys.platform == "win32":
            return
        queue, lock = self._open or self._opened()
        fcntl.flock(queue, fcntl.LOCK_EX)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        finally:
            fcntl.flock(queue, fcntl.LOCK_UN)

    def give_back(self) -> None:
        """End the turn, if there is one."""
        if sys.platform != "win32" and self._open is not None:
            fcntl.flock(self._open[1], fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the files; they are opened again when they are needed."""
        opened, self._open = self._open, None
        for descriptor in opened or ():
            os.close(descriptor)

    def _opened(self) -> tuple[int, int]:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        queue = os.open(self._paths[0], flags, 0o600)
        try:
            lock = os.open(self._paths[1], flags, 0o600)
        except OSError:
            os.close(queue)
            raise
        self._open = (queue, lock)
        return self._open
