"""A connection to one database file, opened so that what is committed lasts."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from branchpoint.errors import StorageError
from branchpoint.storage._disk import Disk, make_folder
from branchpoint.storage.sqlite._failures import BUSY_SECONDS, told
from branchpoint.storage.sqlite._schema import SCRIPTS, bring_up_to_date, check_tables, version_of

__all__ = ["Connection", "OutdatedTablesError", "make_file", "open_database", "use_wal"]

PAGE_SIZE = 8192
"""Large enough that messages of agents fill pages well, small enough that a commit writes little."""

LOG_PAGES = 128
"""How long the write-ahead log grows before it is emptied and written over from its beginning.

To write over a file takes less of the disk than to make it longer, so a short log is the quicker one, as
long as it is not emptied at every other commit.
"""

_FILE_MODE = 0o600


class OutdatedTablesError(Exception):
    """The tables are of an older version, and only a writer brings them up to date."""


class Connection:
    """An open database, and which file it was.

    Attributes:
        db: What executes statements; in autocommit mode, so transactions are spelled out.
        full: Whether a commit waits for the disk.
    """

    __slots__ = ("_identity", "_path", "db", "full")

    def __init__(self, db: sqlite3.Connection, path: Path, identity: tuple[int, int]) -> None:
        self.db = db
        self.full = True
        self._path = path
        self._identity = identity

    def is_current(self) -> bool:
        """Say whether the file at the path is still the one that was opened."""
        try:
            return _identity(self._path) == self._identity
        except OSError:
            return False

    def wait_for_disk(self, full: bool) -> None:
        """Choose whether the next commits wait for the disk; outside of a transaction."""
        self.db.execute("PRAGMA synchronous = FULL" if full else "PRAGMA synchronous = NORMAL")
        self.full = full

    def close(self) -> None:
        """Close it; what was committed is committed, so a failure to tidy up is none."""
        with suppress(sqlite3.Error):
            self.db.close()


def make_file(path: Path) -> None:
    """Make an empty file at `path` for this user alone, and its folder, unless something is there; durable.

    Raises:
        OSError: It cannot be made.
    """
    if path.exists():
        return
    disk = Disk()
    make_folder(path.parent, disk)
    # An empty file is an empty database. SQLite gives its other files the mode of this one.
    with suppress(FileExistsError):  # another program was quicker
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE))
        disk.sync_folder(path.parent)


def open_database(path: Path, *, write: bool) -> Connection | None:
    """Open the database at `path`; None where there is none, or an empty one that is only to be read.

    Only one caller at a time, over all processes, opens a database to write.

    Raises:
        StorageError: It cannot be opened.
        CorruptCheckpointError: It is no database, or damaged.
        UnknownVersionError: A newer version of the library made it.
        InvalidCallError: It belongs to another program.
        OutdatedTablesError: It is to be read, and has to be opened to write once before.
    """
    where = str(path)
    with told(where):
        if write:
            make_file(path)
        elif not path.exists():
            return None
        _require_file(path)
        identity = _identity(path)
        # Without a mode it would make an empty database where a file has just been removed.
        db = sqlite3.connect(
            f"{path.as_uri()}?mode=rw",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=BUSY_SECONDS,
        )
        try:
            db.execute("PRAGMA trusted_schema = OFF")
            db.execute("PRAGMA cell_size_check = ON")
            if not _prepared(db, where, write=write):
                db.close()
                return None
        except BaseException:
            db.close()
            raise
    return Connection(db, path, identity)


def _prepared(db: sqlite3.Connection, where: str, *, write: bool) -> bool:
    version = version_of(db, where)
    if not write and version < len(SCRIPTS):
        if version == 0:
            return False
        raise OutdatedTablesError
    if write:
        if version == 0:
            db.execute(f"PRAGMA page_size = {PAGE_SIZE:d}")
        use_wal(db, where)
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES:d}")
        if version < len(SCRIPTS):
            bring_up_to_date(db, where)
    else:
        db.execute("PRAGMA query_only = ON")
    check_tables(db, where)
    return True


def use_wal(db: sqlite3.Connection, where: str) -> None:
    """Have the database keep a write-ahead log.

    Raises:
        StorageError: It cannot, where it is.
    """
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StorageError(
            f"{where} cannot keep a write-ahead log here, only {mode!r}: it needs shared memory between the "
            "processes that use it, so put the file on a local disk."
        )


def _require_file(path: Path) -> None:
    if path.is_dir():
        raise StorageError(
            f"{path} is a folder: give the path of a file, for instance {path / 'checkpoints.db'}."
        )
    if not path.is_file():
        raise StorageError(f"{path} is not a regular file; move it away or give another path.")


def _identity(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino
