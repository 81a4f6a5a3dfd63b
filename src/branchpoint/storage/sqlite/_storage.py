"""The storage that keeps checkpoints in an SQLite database."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import warnings
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from branchpoint.checkpoint import (
    Capability,
    Checkpoint,
    CheckpointInfo,
    CheckpointSnapshot,
    CheckpointStorage,
    Format,
    Header,
    Lease,
    Status,
    StoredHead,
    StoredRecords,
    check_id,
    check_lazy_over,
    check_lease_seconds,
    encode_header,
    encode_manifest,
)
from branchpoint.errors import BranchpointError, CheckpointNotFoundError, InvalidCallError, StorageError
from branchpoint.storage._formats import check_format
from branchpoint.storage._listing import Page
from branchpoint.storage.sqlite._database import Use
from branchpoint.storage.sqlite._jobs import Job, Work
from branchpoint.storage.sqlite._reads import listing, load_lineage, load_parts, load_records
from branchpoint.storage.sqlite._rows import Head
from branchpoint.storage.sqlite._writer import deliver_to
from branchpoint.storage.sqlite._writes import Commit, Prune, delete, end_lease, renew_lease, take_lease

__all__ = ["SQLiteCheckpointStorage"]

_T = TypeVar("_T")


class SQLiteCheckpointStorage(CheckpointStorage):
    """Keeps many checkpoints in one SQLite database; made for one machine.

    A commit that returned is on the disk. A commit that was interrupted, by an error, a kill or a power
    cut, is there as a whole or not at all. Manifests and headers have checksums, parts are checked by
    their names, and a head whose row is damaged is reported with its checkpoint's id, never answered with
    an older one.

    Any number of processes, threads and event loops may use one database at once. In each process one
    thread writes, for all storages of that file: commits that wait at the same time share one transaction
    and one wait for the disk, and a conflict or fault of one is none of the others'. Processes take turns.
    Reading goes on beside writing. No call blocks the event loop, unless `commit_thread=False` says that
    commits may.

    Beside the file there are `-wal` and `-shm`, which SQLite removes when the last user closes, and the
    empty `-next` and `-lock`, at which processes queue. The file must be on a local file system.

    `aclose` waits for what was handed over and closes what this process has open, if no other storage
    uses the same file. A storage that is used after it opens again.

    Args:
        path: The file; it is made at the first commit, for this user alone (0600, folders 0700).
        serialization_format: `"json"` or `"msgpack"`. It belongs to each checkpoint: one of the other
            format in this database is listed, and refused when opened.
        lazy_over: How many bytes of parts a loaded checkpoint may hold at first. Of a larger one only the
            head is read; the rest comes when it is needed: `run()` and other calls fetch by themselves,
            and reading a snapshot that is not there says `await checkpoint.load_snapshot(id)`. None: all
            of it is there after a load.
        commit_thread: False commits on the event loop's own thread, which stands still meanwhile: quicker
            for a program that runs one checkpoint at a time, wrong for a server. Everything else is the same.
        leases: Whether a run takes a lease, so that nobody else runs the same checkpoint meanwhile.
        lease_seconds: How long a lease lasts that nobody renews.
        lose_newest_on_power_cut: True does not wait for the disk: the newest commits may be gone after a power
            cut or a crash of the operating system, with what is older whole. A crash of the process alone
            loses nothing.

    Raises:
        InvalidCallError: An argument is of the wrong form.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {"load_head", "list_checkpoints", "prune", "load_parts", "load_lineage", "lease"}
    )

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        serialization_format: Format = "json",
        lazy_over: int | None = None,
        commit_thread: bool = True,
        leases: bool = False,
        lease_seconds: float = 30.0,
        lose_newest_on_power_cut: bool = False,
    ) -> None:
        self.serialization_format = check_format(serialization_format)
        self.lazy_over = check_lazy_over(lazy_over)
        self.commit_waits = commit_thread
        self.leases = leases
        self.lease_seconds = check_lease_seconds(lease_seconds)
        self._full = not lose_newest_on_power_cut
        # Absolute, so that a later change of the working folder moves nothing.
        self._path = _checked(path)
        self._use = Use(self._path)
        # For whoever drops a storage without closing it. The end of the interpreter is seen to elsewhere.
        weakref.finalize(self, self._use.end_elsewhere).atexit = False

    @property
    def path(self) -> Path:
        """The file of the database."""
        return self._path

    def __repr__(self) -> str:
        return (
            f"SQLiteCheckpointStorage({str(self.path)!r}, serialization_format={self.serialization_format!r})"
        )

    async def setup(self) -> None:
        """Make the database, or bring it up to date, now; otherwise the first commit does.

        Raises:
            CorruptCheckpointError: It is no database, or damaged.
            UnknownVersionError: A newer version of the library made it.
            InvalidCallError: It belongs to another program.
            StorageError: It cannot be made or opened.
        """
        await self._do(Job(lambda db: None, "setting up", full=self._full), on_loop=False)

    async def commit_snapshot(
        self,
        checkpoint: Checkpoint,
        snapshot: CheckpointSnapshot,
        *,
        expected_head_snapshot_id: str | None,
    ) -> None:
        """Store the snapshot; on return it is on the disk.

        If this is interrupted, by cancellation of the caller or the death of the process, the snapshot is
        stored as a whole or not at all; a cancelled caller's commit still lands or fails.

        Raises:
            CheckpointConflictError: The expected head or the generation is stale, or the checkpoint
                was deleted; nothing is persisted.
            CheckpointLeasedError: Another's lease is in force; nothing is persisted.
            CorruptCheckpointError: The database is damaged where it was looked at; it is left as it is.
            InvalidCallError: The checkpoint is kept in the other format.
            StorageError: The database could not be written; it is as it was.
        """
        form, manifest = self.serialization_format, snapshot.manifest
        first = expected_head_snapshot_id is None
        header = checkpoint.header if first else None
        commit = Commit(
            checkpoint_id=checkpoint.checkpoint_id,
            format=form,
            snapshot_id=manifest.snapshot_id,
            status=manifest.status,
            manifest=encode_manifest(manifest, format=form),
            parts=snapshot.new_parts,
            expected=expected_head_snapshot_id,
            generation=checkpoint.generation,
            header=None if header is None else (header.workflow_name, encode_header(header, format=form)),
            held=checkpoint.lease if self.leases else None,
            leases=self.leases,
        )
        await self._write(commit, checkpoint.checkpoint_id, size=commit.part_bytes)

    async def load_records(self, checkpoint_id: str) -> StoredRecords:
        """Return what is stored, as of one moment; `load` is made from this.

        With `lazy_over`, of a checkpoint with more bytes of parts: its header and its head's manifest.

        Raises:
            CheckpointNotFoundError: There is no checkpoint of this id.
            CorruptCheckpointError: Its rows or the database are damaged; they are left as they are.
            UnknownVersionError: A newer version wrote it.
            InvalidCallError: The id is none that a storage could keep, or the checkpoint is kept in the
                other format.
            StorageError: The database could not be read.
        """
        return await self._read(
            checkpoint_id, partial(load_records, format=self.serialization_format, lazy_over=self.lazy_over)
        )

    async def load_lineage(self, checkpoint_id: str) -> StoredRecords:
        """Return header and all manifests.

        Raises:
            CheckpointNotFoundError: There is no checkpoint of this id.
            CorruptCheckpointError: Its rows or the database are damaged; they are left as they are.
            UnknownVersionError: A newer version wrote it.
            InvalidCallError: The id is none that a storage could keep, or the checkpoint is kept in the
                other format.
            StorageError: The database could not be read.
        """
        return await self._read(checkpoint_id, partial(load_lineage, format=self.serialization_format))

    async def load_parts(self, checkpoint_id: str, digests: Collection[str]) -> dict[str, bytes]:
        """Return the named parts; what is not there is left out.

        Raises:
            CheckpointNotFoundError: There is no checkpoint of this id.
            CorruptCheckpointError: The database is damaged where it was read.
            InvalidCallError: The id is none that a storage could keep.
            StorageError: The database could not be read.
        """
        return await self._read(checkpoint_id, partial(load_parts, names=list(digests)))

    async def load_head(self, checkpoint_id: str) -> StoredHead:
        """Return the stored head; reads two rows.

        Raises:
            CheckpointNotFoundError: There is no checkpoint of this id.
            CorruptCheckpointError: The row of its head is damaged.
            InvalidCallError: The id is none that a storage could keep.
            StorageError: The database could not be read.
        """
        return await self._read(checkpoint_id, lambda db, head: head.stored)

    async def list_checkpoints(
        self,
        *,
        workflow_name: str | None = None,
        status: Status | None = None,
        metadata: Mapping[str, str] | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[CheckpointInfo]:
        """Return what is stored, by checkpoint id in code point order; no state is decoded.

        A page is read from where it begins, until it is full. A checkpoint whose rows are damaged is left
        out, with a `RuntimeWarning` that names it.

        Raises:
            InvalidCallError: An argument is of the wrong form.
            CorruptCheckpointError: The database is damaged.
            StorageError: The database could not be read.
        """
        page = Page(workflow_name=workflow_name, status=status, metadata=metadata, after=after, limit=limit)
        lines, unreadable = await asyncio.to_thread(
            self._list, page, _storable(after) or "", _storable(workflow_name), status
        )
        for error in unreadable:
            warnings.warn(f"Left out of the listing: {error}", RuntimeWarning, stacklevel=2)
        return lines

    async def prune(
        self,
        checkpoint: Checkpoint,
        *,
        header: Header,
        keep: Sequence[str],
        parts: frozenset[str],
        expected_head_snapshot_id: str,
    ) -> None:
        """Remove what is not kept, in one transaction; the file keeps its size, and uses the room again.

        Raises:
            CheckpointConflictError: The head or the generation is stale; nothing is removed.
            CheckpointLeasedError: Another's lease is in force; nothing is removed.
            CorruptCheckpointError: The database is damaged where it was looked at; it is left as it is.
            InvalidCallError: The checkpoint is kept in the other format.
            StorageError: The database could not be written; it is as it was.
        """
        prune = Prune(
            checkpoint_id=header.checkpoint_id,
            format=self.serialization_format,
            header=encode_header(header, format=self.serialization_format),
            generation=header.generation,
            keep=keep,
            parts=parts,
            expected=expected_head_snapshot_id,
            held=checkpoint.lease if self.leases else None,
            leases=self.leases,
        )
        await self._write(prune, header.checkpoint_id, on_loop=False)

    async def delete(self, checkpoint_id: str) -> None:
        """Remove every row of the checkpoint, readable or not, and its lease; an unknown id is no error.

        Raises:
            InvalidCallError: The id is none that a storage could keep.
            StorageError: The database could not be written; it is as it was.
        """
        check_id(checkpoint_id)
        if await asyncio.to_thread(self._path.exists):
            await self._write(partial(delete, checkpoint_id=checkpoint_id), checkpoint_id, on_loop=False)

    async def take_lease(self, checkpoint_id: str) -> Lease:
        """Take the lease of a checkpoint, stored or not.

        Raises:
            CheckpointLeasedError: Another's is in force.
            InvalidCallError: The id is none that a storage could keep.
            StorageError: The database could not be written; it is as it was.
        """
        check_id(checkpoint_id)
        take = partial(take_lease, checkpoint_id=checkpoint_id, seconds=self.lease_seconds)
        lease: Lease = await self._write(take, checkpoint_id, on_loop=False)
        return lease

    async def renew_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """Let a lease last from now.

        Raises:
            CheckpointLeasedError: It passed on to another, or was removed.
            InvalidCallError: The id is none that a storage could keep.
            StorageError: The database could not be written; it is as it was.
        """
        check_id(checkpoint_id)
        renew = partial(renew_lease, checkpoint_id=checkpoint_id, lease=lease)
        await self._write(renew, checkpoint_id, on_loop=False)

    async def end_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """Remove a lease; one that passed on stays with its holder.

        Raises:
            InvalidCallError: The id is none that a storage could keep.
            StorageError: The database could not be written; it is as it was.
        """
        check_id(checkpoint_id)
        end = partial(end_lease, checkpoint_id=checkpoint_id, lease=lease)
        await self._write(end, checkpoint_id, on_loop=False)

    async def aclose(self) -> None:
        """Wait for what was handed over, and close the database if this process has no other use for it."""
        if self._use.is_open:
            await asyncio.to_thread(self._use.end)

    # Where it is done.

    async def _write(self, work: Work, checkpoint_id: str, *, size: int = 0, on_loop: bool = True) -> Any:
        job = Job(work, f"checkpoint {checkpoint_id!r}", full=self._full, size=size)
        return await self._do(job, on_loop=on_loop)

    async def _do(self, job: Job, *, on_loop: bool) -> Any:
        """Do something in a transaction: on the writer's thread, on this one, or on another one."""
        database = self._use.database()
        if self.commit_waits:
            deliver = deliver_to(asyncio.get_running_loop())
            try:
                database.hand_over(job, deliver)
            except RuntimeError as error:  # no thread can be started
                raise StorageError(f"{job.what} was not handed over: {error}") from error
            return await deliver[1]
        if on_loop:
            return database.do([job])[0].get()
        return (await asyncio.to_thread(database.do, [job]))[0].get()

    async def _read(self, checkpoint_id: str, read: Callable[[sqlite3.Connection, Head], _T]) -> _T:
        check_id(checkpoint_id)
        return await asyncio.to_thread(self._read_now, checkpoint_id, read)

    def _read_now(self, checkpoint_id: str, read: Callable[[sqlite3.Connection, Head], _T]) -> _T:
        path = str(self._path)
        with self._use.database().reading(f"checkpoint {checkpoint_id!r} in {path}") as connection:
            head = None if connection is None else Head.find(connection.db, checkpoint_id)
            if connection is None or head is None:
                raise CheckpointNotFoundError(
                    f"No checkpoint {checkpoint_id!r} in {path}; create it, or look where it was saved."
                )
            return read(connection.db, head)

    def _list(
        self, page: Page, after: str, workflow_name: str | None, status: str | None
    ) -> tuple[list[CheckpointInfo], list[BranchpointError]]:
        unreadable: list[BranchpointError] = []
        with self._use.database().reading(str(self._path)) as connection:
            if connection is None:
                return [], []
            found = listing(connection.db, after=after, workflow_name=workflow_name, status=status)
            return page.first_of(_readable(found, unreadable)), unreadable


def _checked(path: str | os.PathLike[str]) -> Path:
    given: object = os.fspath(path) if isinstance(path, os.PathLike) else path
    if type(given) is not str or not given or "\0" in given:
        raise InvalidCallError(f"path is the path of a file, not {ascii(path)[:80]}.")
    if given == ":memory:":
        raise InvalidCallError(
            "a database in memory lasts no longer than its process: use MemoryCheckpointStorage."
        )
    return Path(given).absolute()


def _storable(text: str | None) -> str | None:
    """Return a text if a database can hold it; half of a surrogate pair is in none, and found by the page."""
    try:
        return None if text is None else text.encode().decode()
    except UnicodeEncodeError:
        return None


def _readable(
    found: Iterable[CheckpointInfo | BranchpointError], unreadable: list[BranchpointError]
) -> Iterator[CheckpointInfo]:
    for line in found:
        if isinstance(line, CheckpointInfo):
            yield line
        else:
            unreadable.append(line)
