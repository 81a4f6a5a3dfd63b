"""What SQLite says when it fails, in words that say what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from branchpoint.errors import BranchpointError, CorruptCheckpointError, StorageError
from branchpoint.storage._disk import reported

__all__ = ["BUSY_SECONDS", "breaks_connection", "told", "translated"]

BUSY_SECONDS = 60.0
"""How long a statement waits for another program that holds a lock; programs of ours take turns before that."""

_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_MISMATCH", "SQLITE_SCHEMA", "SQLITE_FORMAT")
_ADVICE = {
    "SQLITE_FULL": "make room on the disk",
    "SQLITE_READONLY": "give this process the right to write the file and its folder",
    "SQLITE_CANTOPEN": "give this process the right to read and write the file and its folder",
    "SQLITE_PERM": "give this process the right to read and write the file and its folder",
    "SQLITE_AUTH": "give this process the right to read and write the file and its folder",
    "SQLITE_BUSY": f"let the other program go on that has held its lock for over {BUSY_SECONDS:.0f} seconds",
    "SQLITE_LOCKED": "let the other program go on that holds its lock",
    "SQLITE_PROTOCOL": "let the other programs go on that hold its lock",
    "SQLITE_IOERR": "check the disk",
    "SQLITE_NOMEM": "give this process more memory",
    "SQLITE_TOOBIG": "keep a value of that size elsewhere and its name in the state",
}
# After these the connection is as it was; after any other it is opened anew.
_HARMLESS = ("SQLITE_BUSY", "SQLITE_CONSTRAINT", "SQLITE_FULL", "SQLITE_TOOBIG")


def translated(error: Exception, where: str) -> BranchpointError:
    """Return what SQLite, Python or the operating system raised as an error of ours that says `where`."""
    failure = error if isinstance(error, BranchpointError) else _made(error, where)
    if failure is not error:
        failure.__cause__ = error
    return failure


def _made(error: Exception, where: str) -> BranchpointError:
    if isinstance(error, OSError):
        try:
            with reported("opening the database", where):
                raise error
        except StorageError as failure:
            return failure
    name = _name(error)
    said = f"{where}: SQLite failed ({name}: {error})"
    if isinstance(error, OverflowError):
        name = "SQLITE_TOOBIG"
    if isinstance(error, sqlite3.Error) and (name.startswith(_DAMAGE) or not name.startswith("SQLITE_")):
        # One without a code is Python's, which can make nothing of what is in a row.
        return CorruptCheckpointError(f"{said}: the database is damaged or is none; restore it from a backup")
    advice = next((text for code, text in _ADVICE.items() if name.startswith(code)), "mend what it names")
    return StorageError(f"{said}. What was committed before is unchanged; {advice}, then try again.")


def breaks_connection(error: BaseException) -> bool:
    """Say whether a connection is better opened anew after this."""
    return not (isinstance(error, BranchpointError) or _name(error).startswith(_HARMLESS))


@contextmanager
def told(where: str) -> Iterator[None]:
    """Turn what SQLite and the operating system raise inside the block into our errors.

    Raises:
        StorageError: It could not be done.
        CorruptCheckpointError: The database is damaged.
    """
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise translated(error, where) from error


def _name(error: BaseException) -> str:
    return getattr(error, "sqlite_errorname", None) or type(error).__name__
