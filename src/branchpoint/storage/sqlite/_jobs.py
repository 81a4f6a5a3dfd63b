"""Work on a database that is done as a whole or not at all, and several such works in one transaction."""

from __future__ import annotations

import contextvars
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from branchpoint.errors import BranchpointError
from branchpoint.storage.sqlite._failures import breaks_connection, translated

__all__ = ["Job", "Outcome", "do_all"]

Work = Callable[[sqlite3.Connection], Any]
"""Does something inside a transaction; it refuses, with an error of ours, before it changes anything."""


class Job:
    """One work, and on whose behalf it is done.

    Attributes:
        work: What is done; it may be done again when what it did was rolled back.
        what: The checkpoint that it is about, for messages.
        full: Whether its commit waits for the disk.
        size: How many bytes it holds in memory, about.
    """

    __slots__ = ("_context", "full", "size", "what", "work")

    def __init__(self, work: Work, what: str, *, full: bool = True, size: int = 0) -> None:
        self.work = work
        self.what = what
        self.full = full
        self.size = size
        self._context = contextvars.copy_context()  # the clock and the ids of whoever asked

    def do(self, db: sqlite3.Connection) -> Any:
        return self._context.run(self.work, db)


class Outcome:
    """What came of one job: its result, or its error."""

    __slots__ = ("error", "result")

    def __init__(self, result: Any = None, error: Exception | None = None) -> None:
        self.result = result
        self.error = error

    def get(self) -> Any:
        """Return the result or raise the error."""
        if self.error is not None:
            raise self.error
        return self.result


def do_all(db: sqlite3.Connection, jobs: Sequence[Job], where: str) -> tuple[list[Outcome], bool]:
    """Do several jobs in one transaction, so that they share one wait for the disk.

    A job that refuses leaves the others alone. When anything else goes wrong, all is rolled back and each is
    done again in a transaction of its own, so that a fault stays with the job whose it is.

    Returns:
        An outcome for each, and whether the connection is as good as before.
    """
    if len(jobs) > 1:
        outcomes = _together(db, jobs)
        if outcomes is not None:
            return outcomes, True
        if db.in_transaction:  # it could not even be rolled back
            failure = sqlite3.OperationalError("rolling back failed")
            return [_failed(job, failure, where) for job in jobs], False
    alone, sound = [], True
    for job in jobs:
        outcome, still = _alone(db, job, where)
        alone.append(outcome)
        sound = sound and still
    return alone, sound


def _together(db: sqlite3.Connection, jobs: Sequence[Job]) -> list[Outcome] | None:
    """Do all in one transaction; None when nothing of it happened."""
    outcomes: list[Outcome] = []
    try:
        db.execute("BEGIN IMMEDIATE")
        for job in jobs:
            before = db.total_changes
            try:
                outcomes.append(Outcome(job.do(db)))
            except BranchpointError as error:
                if db.total_changes != before:
                    raise
                outcomes.append(Outcome(error=error))
        db.execute("COMMIT")
    except Exception:
        _roll_back(db)
        return None
    except BaseException:
        _roll_back(db)
        raise
    return outcomes


def _alone(db: sqlite3.Connection, job: Job, where: str) -> tuple[Outcome, bool]:
    try:
        db.execute("BEGIN IMMEDIATE")
        result = job.do(db)
        db.execute("COMMIT")
    except Exception as error:
        return _failed(job, error, where), _roll_back(db) and not breaks_connection(error)
    except BaseException:
        _roll_back(db)
        raise
    return Outcome(result), True


def _failed(job: Job, error: Exception, where: str) -> Outcome:
    return Outcome(error=translated(error, f"{job.what} in {where}"))


def _roll_back(db: sqlite3.Connection) -> bool:
    """End a transaction that failed; SQLite has ended it by itself after some errors."""
    if db.in_transaction:
        try:
            db.execute("ROLLBACK")
        except sqlite3.Error:
            return False
    return True
