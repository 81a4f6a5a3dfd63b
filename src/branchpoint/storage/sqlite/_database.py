"""One database file, as all storages of this process share it: one writer, some readers, one thread."""

from __future__ import annotations

import _thread
import atexit
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from branchpoint.errors import BranchpointError
from branchpoint.storage.sqlite._connection import Connection, OutdatedTablesError, make_file, open_database
from branchpoint.storage.sqlite._failures import told, translated
from branchpoint.storage.sqlite._jobs import Job, Outcome, do_all
from branchpoint.storage.sqlite._turns import Turns
from branchpoint.storage.sqlite._writer import Deliver, Writer

__all__ = ["Database", "Use"]

_T = TypeVar("_T")

_IDLE_READERS = 4

_register = threading.Lock()
_databases: dict[Path, Database] = {}
_lost: list[Database] = []
"""Those of the process that this one was forked from unnoticed: closing them here would harm that one's."""


class Database:
    """A database file in use. It is opened when it is first needed, and anew after anything went wrong.

    Attributes:
        users: How many storages use it; the last one to leave closes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.process = os.getpid()
        self.users = 0
        self._writing = threading.Lock()
        self._turns = Turns(path)
        self._connection: Connection | None = None
        self._writer: Writer | None = None
        self._reading = threading.Condition()
        self._idle: list[Connection] = []
        self._in_use = 0

    # Writing.

    def hand_over(self, job: Job, deliver: Deliver) -> None:
        """Give a job to the writer's thread, which does it, with all others that wait, also if nobody waits."""
        with _register:
            writer = self._writer
            if writer is None:
                writer = self._writer = Writer(self.do, self._close, name=f"writer of {self.path.name}")
            writer.put(job, deliver)
            if not self.users:  # everybody left while this job was made
                self._writer = None
                writer.stop(wait=False)

    def do(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Do jobs on this thread, in one transaction; waits for whoever writes to the database now."""
        outcomes = self._do(jobs)
        if not self.users and self._writer is None:
            self._close()
        return outcomes

    def _do(self, jobs: Sequence[Job]) -> list[Outcome]:
        with self._writing:
            try:
                return self._in_turn(
                    lambda db: do_all(db, jobs, str(self.path)), any(job.full for job in jobs)
                )
            except (sqlite3.Error, OSError, BranchpointError) as error:
                self._drop()
                failure = translated(error, str(self.path))
                return [Outcome(error=_again(failure, job)) for job in jobs]
            except BaseException:
                self._drop()
                raise

    def _in_turn(self, do: Callable[[sqlite3.Connection], tuple[_T, bool]], full: bool = True) -> _T:
        """Do something when it is this process's turn, with a connection to the file that is at the path now."""
        if self._connection is None:
            make_file(self.path)
        self._turns.take()
        try:
            connection = self._connection
            anew = connection is None or not connection.is_current()
            if connection is None or anew:
                connection = self._opened()
            if full is not connection.full:
                connection.wait_for_disk(full)
            result, sound = do(connection.db)
            if not sound:
                self._drop()
        finally:
            self._turns.give_back()
        if anew:
            self._turns.close()  # if the file was gone, so may have been those of the queue
        return result

    def flush(self) -> None:
        """Wait until what was handed over is done."""
        with _register:
            flushed = None if self._writer is None else self._writer.flush()
        if flushed is not None:
            flushed.wait()

    def _opened(self) -> Connection:
        self._drop()
        self._connection = connection = open_database(self.path, write=True)
        assert connection is not None  # it is made where there is none
        return connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # Reading.

    @contextmanager
    def reading(self, where: str) -> Iterator[Connection | None]:
        """Read as of one moment inside the block, while others write; None where there is no database.

        Raises:
            StorageError: It could not be read.
            CorruptCheckpointError: The database is damaged.
        """
        with self._reading:
            self._in_use += 1
            connection = self._idle.pop() if self._idle else None
        sound = False
        try:
            with told(where):
                connection = self._current(connection)
                if connection is None:
                    yield None
                    return
                connection.db.execute("BEGIN")
                try:
                    yield connection
                except BranchpointError:
                    sound = True
                    raise
                else:
                    sound = True
                finally:
                    if sound:
                        connection.db.execute("ROLLBACK")
        finally:
            # After a failure of SQLite it is opened anew the next time.
            self._give_back(connection, keep=sound)

    def _current(self, connection: Connection | None) -> Connection | None:
        if connection is not None and connection.is_current():
            return connection
        if connection is not None:
            connection.close()
        try:
            return open_database(self.path, write=False)
        except OutdatedTablesError:
            with self._writing:
                self._in_turn(lambda db: (None, True))
            return open_database(self.path, write=False)

    def _give_back(self, connection: Connection | None, *, keep: bool) -> None:
        with self._reading:
            if connection is not None and keep and self.users and len(self._idle) < _IDLE_READERS:
                self._idle.append(connection)
                connection = None
            self._in_use -= 1
            self._reading.notify_all()
        if connection is not None:
            connection.close()

    # Ending.

    def leave(self, *, wait: bool = True) -> None:
        """Count one user out; the last one closes everything, after what was handed over is done."""
        with _register:
            self.users -= 1
            if self.users > 0:
                return
            if _databases.get(self.path) is self:
                del _databases[self.path]
            writer, self._writer = self._writer, None
        if writer is None:
            self._close()
        else:
            writer.stop(wait=wait)

    def _close(self) -> None:
        """Close all connections that are not in use; those are closed when they are given back."""
        with self._reading:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        with self._writing:
            # The last connection to be closed empties the log into the database, and others may open it now.
            if self._connection is not None:
                with suppress(OSError):
                    self._turns.take()
                self._drop()
                self._turns.give_back()
            self._turns.close()

    def pause(self) -> None:
        """Close all connections and keep everybody from opening others, until `go_on`."""
        self._reading.acquire()
        while self._in_use:
            self._reading.wait()
        self._writing.acquire()
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        self._drop()
        self._turns.close()

    def go_on(self) -> None:
        """Take back a `pause`."""
        self._writing.release()
        self._reading.release()


class Use:
    """That one storage uses a database, from its first call until `end`; begins again with the next call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database: Database | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has begun and not ended."""
        return self._database is not None

    def database(self) -> Database:
        """Return the database, which all storages of this process on the same file share."""
        database = self._database
        if database is not None and database.process == os.getpid():
            return database
        with _register:
            database = self._database
            if database is None or database.process != os.getpid():
                database = self._database = _shared(self._path)
            return database

    def end(self, *, wait: bool = True) -> None:
        """Wait for what was handed over, and close the database if nobody else uses it.

        Args:
            wait: Without it a running writer does so soon.
        """
        with _register:
            database, self._database = self._database, None
        if database is not None and database.process == os.getpid():
            if wait:
                database.flush()
            database.leave(wait=wait)

    def end_elsewhere(self) -> None:
        """Have it ended soon, and wait for nothing: for finalizers, which run wherever the collector runs."""
        if self._database is not None:
            # `threading.Thread` would wait for its beginning, under whatever locks this thread has.
            with suppress(RuntimeError):  # the interpreter ends, which sees to it by itself
                _thread.start_new_thread(self.end, (), {"wait": False})


def _shared(path: Path) -> Database:
    real = Path(os.path.realpath(path))
    database = _databases.get(real)
    if database is not None and database.process != os.getpid():
        _lost.append(database)  # this process was forked without a word
        database = None
    if database is None:
        database = _databases[real] = Database(real)
    database.users += 1
    return database


def _again(error: BranchpointError, job: Job) -> BranchpointError:
    """Return a failure that met several jobs as one that names this one."""
    again = type(error)(f"{job.what}: {error}")
    again.__cause__ = error.__cause__ or error
    return again


# Around a fork. A connection must not be used on both sides of it, so none is open while it happens.


def _before_fork() -> None:
    _register.acquire()
    for database in _databases.values():
        database.pause()


def _after_fork_in_parent() -> None:
    for database in _databases.values():
        database.go_on()
    _register.release()


def _after_fork_in_child() -> None:
    global _register
    _register = threading.Lock()
    _databases.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )


@atexit.register
def _close_all() -> None:
    """Do what was handed over and close everything, when the interpreter ends."""
    for database in list(_databases.values()):
        database.users = 1
        database.leave()
