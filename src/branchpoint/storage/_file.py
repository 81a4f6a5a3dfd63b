"""Checkpoints in files: one append-only journal each, in one folder."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

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
    check_lazy_over,
    check_lease_seconds,
    parts_below,
)
from branchpoint.storage._disk import Disk
from branchpoint.storage._folder import Folder
from branchpoint.storage._formats import check_format
from branchpoint.storage._listing import Page
from branchpoint.storage._lock import require_locks

__all__ = ["FileCheckpointStorage"]


class FileCheckpointStorage(CheckpointStorage):
    """Keeps each checkpoint in an append-only journal of its own; made for one machine.

    A commit that returned is on the disk. A commit that was interrupted, by an error, a kill or a
    power cut, is there as a whole or not at all. A journal that was shortened or changed is reported
    with its checkpoint's id and never answered with an older head. A commit adds nothing to a journal
    in which it finds damage: it checks the header and the last commit, and whatever this object has not
    read before. Damage to older commits that befalls a journal while this object works with it is
    found by the next load.

    Any number of processes, threads and event loops may use one folder at once: each commit compares
    the head under a lock. Blocking work runs in the loop's default executor, so no loop is held up, unless
    `commit_thread=False` says that it may be; nothing stays open between calls.

    The folder must be on a file system whose `flock` works between all who use it: any local one. On
    a network file system whose locks are local to each machine, two machines could both win.

    Args:
        path: The folder; it is made at the first commit, for this user alone (0700, files 0600).
        serialization_format: `"json"`, one readable line per commit, or `"msgpack"`. It belongs to
            each journal: one of the other format in this folder is listed, and refused when opened.
        lazy_over: How many bytes of parts a loaded checkpoint may hold at first. A load reads and checks
            the whole journal in any case; then it keeps what the head needs, and of the other
            snapshots the newest as far as they fit. The rest comes when it is needed: `run()` and
            other calls fetch by themselves, and reading a snapshot that is not there says
            `await checkpoint.load_snapshot(id)`. Each fetch reads the journal once. None: all parts
            are there after a load.
        commit_thread: False commits on the event loop's own thread, which stands still meanwhile: quicker
            for a program that runs one checkpoint at a time, wrong for a server. Everything else is the same.
        leases: Whether a run takes a lease, a small file beside the journal, so that no other process on this
            machine runs the same checkpoint meanwhile. All who use the folder agree on it.
        lease_seconds: How long a lease lasts that nobody renews, by the clock of the machine.
        disk: How bytes are written; replaced only by tests of disks that fail.

    Raises:
        InvalidCallError: The format is another, `lazy_over` is no number of bytes, or `lease_seconds` no
            number of seconds.
        StorageError: The platform has no `flock`.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {"load_head", "list_checkpoints", "prune", "load_parts", "lease"}
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
        disk: Disk | None = None,
    ) -> None:
        require_locks()
        self.serialization_format = check_format(serialization_format)
        self.lazy_over = check_lazy_over(lazy_over)
        self.commit_waits = commit_thread
        self.leases = leases
        self.lease_seconds = check_lease_seconds(lease_seconds)
        # Absolute, so that a later change of the working folder moves nothing.
        self._folder = Folder(
            Path(path).absolute(), serialization_format, Disk() if disk is None else disk, leases=leases
        )

    @property
    def path(self) -> Path:
        """The folder the journals are in."""
        return self._folder.path

    def __repr__(self) -> str:
        return (
            f"FileCheckpointStorage({str(self.path)!r}, serialization_format={self.serialization_format!r})"
        )

    async def commit_snapshot(
        self,
        checkpoint: Checkpoint,
        snapshot: CheckpointSnapshot,
        *,
        expected_head_snapshot_id: str | None,
    ) -> None:
        """Append the snapshot to the checkpoint's journal; on return it is on the disk.

        If this is interrupted, by cancellation of the caller or the death of the process, the
        snapshot is stored as a whole or not at all; a cancelled caller's commit still lands or fails.

        Raises:
            CheckpointConflictError: The expected head or the generation is stale, or the checkpoint
                was deleted; nothing is persisted.
            CheckpointLeasedError: Another's lease is in force; nothing is persisted.
            CorruptCheckpointError: The journal is damaged in its header, its last commit, or anywhere
                that this object has not read before; it is left as it is.
            InvalidCallError: The journal is of the other format.
            StorageError: The disk refused; the journal is as it was, and the next commit may succeed. If
                the disk does not even let the new record be cut off, this object does so before it does
                anything else with the checkpoint; until then others may see it.
        """
        commit = partial(
            self._folder.commit,
            checkpoint.checkpoint_id,
            snapshot,
            header=lambda: checkpoint.header,
            generation=checkpoint.generation,
            expected_head_snapshot_id=expected_head_snapshot_id,
            lease=checkpoint.lease if self.leases else None,
        )
        if self.commit_waits:
            await asyncio.to_thread(commit)
        else:
            commit()

    async def load_records(self, checkpoint_id: str) -> StoredRecords:
        """Return what the journal holds, all of it read and checked; `load` is made from this.

        Raises:
            CheckpointNotFoundError: There is no journal of this id.
            CorruptCheckpointError: The journal is damaged; it is left as it is.
            UnknownVersionError: A newer version wrote it, or it is a v1 checkpoint of Agent Framework.
            InvalidCallError: The id is none that a storage could keep, or the journal is of the
                other format.
            StorageError: The file could not be read.
        """
        journal = await asyncio.to_thread(self._folder.load, checkpoint_id)
        return StoredRecords(
            header=journal.header,
            manifests=[commit.manifest for commit in journal.commits],
            parts=journal.parts,
            sealed=True,
        )

    async def load_parts(self, checkpoint_id: str, digests: Collection[str]) -> dict[str, bytes]:
        """Return the named parts, and those below them; what is not in the journal is left out.

        Reads and checks the whole journal, once.

        Raises:
            CheckpointNotFoundError: There is no journal of this id.
            CorruptCheckpointError: The journal is damaged; it is left as it is.
            UnknownVersionError: A newer version wrote it, or it is a v1 checkpoint of Agent Framework.
            InvalidCallError: The id is none that a storage could keep, or the journal is of the
                other format.
            StorageError: The file could not be read.
        """
        return await asyncio.to_thread(self._load_parts, checkpoint_id, digests)

    def _load_parts(self, checkpoint_id: str, digests: Collection[str]) -> dict[str, bytes]:
        journal = self._folder.load(checkpoint_id)
        return parts_below(digests, journal.parts, format=self.serialization_format)

    async def delete(self, checkpoint_id: str) -> None:
        """Remove the checkpoint's journal, readable or not; on return it does not come back.

        An unknown id is no error. Nothing else in the folder is touched.

        Raises:
            InvalidCallError: The id is none that a storage could keep.
            StorageError: The file could not be removed.
        """
        await asyncio.to_thread(self._folder.delete, checkpoint_id)

    async def load_head(self, checkpoint_id: str) -> StoredHead:
        """Return the stored head; reads the beginning and the end of the journal at most.

        Raises:
            CheckpointNotFoundError: There is no journal of this id.
            CorruptCheckpointError: The journal is damaged where it was read.
            UnknownVersionError: A newer version wrote it, or it is a v1 checkpoint of Agent Framework.
            StorageError: The file could not be read.
        """
        return await asyncio.to_thread(self._folder.load_head, checkpoint_id)

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

        Reads the beginning and the end of every journal. One that is damaged, is no file, or cannot be
        opened is left out, with a `RuntimeWarning` that names it.

        Raises:
            InvalidCallError: An argument is of the wrong form.
            StorageError: The folder could not be read.
        """
        page = Page(workflow_name=workflow_name, status=status, metadata=metadata, after=after, limit=limit)
        lines, unreadable = await asyncio.to_thread(self._folder.describe)
        for error in unreadable:
            warnings.warn(f"Left out of the listing: {error}", RuntimeWarning, stacklevel=2)
        return page.of(lines)

    async def prune(
        self,
        checkpoint: Checkpoint,
        *,
        header: Header,
        keep: Sequence[str],
        parts: frozenset[str],
        expected_head_snapshot_id: str,
    ) -> None:
        """Replace the journal, in one step, by one that holds only what is kept.

        Raises:
            CheckpointConflictError: The head or the generation is stale; nothing is removed.
            CheckpointLeasedError: Another's lease is in force; nothing is removed.
            CorruptCheckpointError: The journal is damaged; it is left as it is.
            StorageError: The disk refused; the old journal is there, or the new one as a whole if
                only its name could not be made durable, which the next commit or prune makes up for.
        """
        await asyncio.to_thread(
            self._folder.prune,
            header,
            keep=keep,
            parts=parts,
            expected_head_snapshot_id=expected_head_snapshot_id,
            lease=checkpoint.lease if self.leases else None,
        )

    async def take_lease(self, checkpoint_id: str) -> Lease:
        """Take the lease of a checkpoint, stored or not.

        A lease file that a power cut tore, or that is none of this checkpoint, leases nothing.

        Raises:
            CheckpointLeasedError: Another's is in force.
            InvalidCallError: The id is none that a storage could keep.
            UnknownVersionError: A newer version wrote the one that is there.
            StorageError: The disk refused.
        """
        return await asyncio.to_thread(self._folder.take_lease, checkpoint_id, self.lease_seconds)

    async def renew_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """Let a lease last from now.

        Raises:
            CheckpointLeasedError: It passed on to another, or was removed.
            InvalidCallError: The id is none that a storage could keep.
            StorageError: The disk refused; the lease is as it was.
        """
        await asyncio.to_thread(self._folder.renew_lease, checkpoint_id, lease)

    async def end_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """Remove a lease; one that passed on stays with its holder.

        Raises:
            InvalidCallError: The id is none that a storage could keep.
            StorageError: The disk refused; the lease expires.
        """
        await asyncio.to_thread(self._folder.end_lease, checkpoint_id, lease)
