"""Checkpoints in the memory of this process: for tests, and for runs that need not outlive it."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from branchpoint.checkpoint import (
    Capability,
    Checkpoint,
    CheckpointInfo,
    CheckpointSnapshot,
    CheckpointStorage,
    Header,
    Lease,
    LeaseRecord,
    Manifest,
    Status,
    StoredHead,
    StoredRecords,
    check_id,
    check_lazy_over,
    check_lease_seconds,
    decode_header,
    decode_manifest,
    encode_header,
    encode_manifest,
    parts_below,
    refuse_leased,
    refuse_stale,
)
from branchpoint.errors import CheckpointNotFoundError
from branchpoint.storage._listing import Page

__all__ = ["InMemoryCheckpointStorage", "MemoryCheckpointStorage"]


class _Kept:
    """The bytes of one checkpoint, and what its commits are compared with."""

    __slots__ = ("generation", "header", "manifests", "parts")

    def __init__(self, header: bytes, generation: int) -> None:
        self.header = header
        self.generation = generation
        self.manifests: dict[str, bytes] = {}
        self.parts: dict[str, bytes] = {}

    @property
    def head(self) -> StoredHead:
        return StoredHead(next(reversed(self.manifests)), self.generation)


class MemoryCheckpointStorage(CheckpointStorage):
    """Keeps encoded bytes under a lock, so nothing in it is shared with anybody.

    It behaves as the durable storages do, in everything but durability: values are encoded and
    decoded, conflicts are found, a loaded checkpoint is a fresh one. Any number of tasks, threads
    and event loops of this process may use it at once. What it holds is gone with the object.

    Args:
        lazy_over: How many bytes of parts a loaded checkpoint may hold at first; older snapshots beyond
            that come when they are needed, as with `FileCheckpointStorage`. None: all are there.
        leases: Whether a run takes a lease, so that nobody else runs the same checkpoint meanwhile.
        lease_seconds: How long a lease lasts that nobody renews.

    Raises:
        InvalidCallError: `lazy_over` is no number of bytes, or `lease_seconds` no number of seconds.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {"load_head", "list_checkpoints", "prune", "load_parts", "lease"}
    )

    def __init__(
        self, *, lazy_over: int | None = None, leases: bool = False, lease_seconds: float = 30.0
    ) -> None:
        self.lazy_over = check_lazy_over(lazy_over)
        self.leases = leases
        self.lease_seconds = check_lease_seconds(lease_seconds)
        # A subclass with a commit of its own may well wait in it.
        self.commit_waits = type(self).commit_snapshot is not MemoryCheckpointStorage.commit_snapshot
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._leases: dict[str, LeaseRecord] = {}

    def __repr__(self) -> str:
        with self._lock:
            return f"<{type(self).__name__} of {len(self._kept)} checkpoints>"

    async def commit_snapshot(
        self,
        checkpoint: Checkpoint,
        snapshot: CheckpointSnapshot,
        *,
        expected_head_snapshot_id: str | None,
    ) -> None:
        """Keep the snapshot; it is there as a whole on return, and not at all when this raises.

        Raises:
            CheckpointConflictError: The expected head or the generation is stale, or the checkpoint
                was deleted; nothing is kept.
            CheckpointLeasedError: Another's lease is in force; nothing is kept.
        """
        checkpoint_id, parts = checkpoint.checkpoint_id, snapshot.new_parts
        manifest = encode_manifest(snapshot.manifest, format="json")
        with self._lock:
            kept = self._kept.get(checkpoint_id)
            if kept is not None and snapshot.snapshot_id in kept.manifests:
                return  # an earlier reply was lost
            if self.leases:
                self._refuse_leased(checkpoint)
            refuse_stale(
                checkpoint_id,
                expected_head_snapshot_id=expected_head_snapshot_id,
                generation=checkpoint.generation,
                stored=None if kept is None else kept.head,
            )
            if kept is None:
                header = checkpoint.header
                kept = self._kept[checkpoint_id] = _Kept(
                    encode_header(header, format="json"), header.generation
                )
            kept.parts.update(parts)
            kept.manifests[snapshot.snapshot_id] = manifest

    async def load_records(self, checkpoint_id: str) -> StoredRecords:
        """Return what is kept; with `lazy_over`, `load` may leave the parts of older snapshots here.

        Raises:
            CheckpointNotFoundError: There is none of this id.
        """
        check_id(checkpoint_id)
        with self._lock:
            kept = self._find(checkpoint_id)
            header, manifests, parts = kept.header, list(kept.manifests.values()), dict(kept.parts)
        return StoredRecords(
            header=decode_header(header, format="json", checkpoint_id=checkpoint_id),
            manifests=[_manifest(data, checkpoint_id) for data in manifests],
            parts=parts,
        )

    async def delete(self, checkpoint_id: str) -> None:
        """Forget the checkpoint; an unknown id is no error.

        Raises:
            InvalidCallError: The id is none that a storage could keep.
        """
        check_id(checkpoint_id)
        with self._lock:
            self._kept.pop(checkpoint_id, None)
            self._leases.pop(checkpoint_id, None)

    async def load_head(self, checkpoint_id: str) -> StoredHead:
        """Return the kept head and generation.

        Raises:
            CheckpointNotFoundError: There is none of this id.
            InvalidCallError: The id is none that a storage could keep.
        """
        check_id(checkpoint_id)
        with self._lock:
            return self._find(checkpoint_id).head

    async def list_checkpoints(
        self,
        *,
        workflow_name: str | None = None,
        status: Status | None = None,
        metadata: Mapping[str, str] | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[CheckpointInfo]:
        """Return what is kept, by checkpoint id in code point order; no state is decoded.

        Raises:
            InvalidCallError: An argument is of the wrong form.
        """
        page = Page(workflow_name=workflow_name, status=status, metadata=metadata, after=after, limit=limit)
        with self._lock:
            found = [
                (checkpoint_id, kept.header, next(reversed(kept.manifests.values())))
                for checkpoint_id, kept in self._kept.items()
            ]
        lines = [
            CheckpointInfo.of(
                decode_header(header, format="json", checkpoint_id=checkpoint_id),
                _manifest(head, checkpoint_id),
            )
            for checkpoint_id, header, head in found
        ]
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
        """Drop what is not kept, in one step.

        Raises:
            CheckpointConflictError: The head or the generation is stale; nothing is removed.
            CheckpointLeasedError: Another's lease is in force; nothing is removed.
        """
        raised = encode_header(header, format="json")
        with self._lock:
            kept = self._kept.get(header.checkpoint_id)
            if kept is not None and kept.header == raised and list(kept.manifests) == list(keep):
                return  # an earlier reply was lost
            if self.leases:
                self._refuse_leased(checkpoint)
            refuse_stale(
                header.checkpoint_id,
                expected_head_snapshot_id=expected_head_snapshot_id,
                generation=header.generation - 1,
                stored=None if kept is None else kept.head,
            )
            staying, old = set(keep), self._kept[header.checkpoint_id]
            fresh = _Kept(raised, header.generation)
            fresh.manifests = {found: data for found, data in old.manifests.items() if found in staying}
            fresh.parts = {digest: data for digest, data in old.parts.items() if digest in parts}
            self._kept[header.checkpoint_id] = fresh

    async def load_parts(self, checkpoint_id: str, digests: Collection[str]) -> dict[str, bytes]:
        """Return the named parts, and those below them; what is not there is left out.

        Raises:
            CheckpointNotFoundError: There is none of this id.
            InvalidCallError: The id is none that a storage could keep.
        """
        check_id(checkpoint_id)
        with self._lock:
            parts = dict(self._find(checkpoint_id).parts)
        return parts_below(digests, parts, format="json")

    async def take_lease(self, checkpoint_id: str) -> Lease:
        """Take the lease of a checkpoint, kept or not.

        Raises:
            CheckpointLeasedError: Another's is in force.
            InvalidCallError: The id is none that a storage could keep.
        """
        check_id(checkpoint_id)
        with self._lock:
            record = LeaseRecord.taken(
                checkpoint_id, self._leases.get(checkpoint_id), seconds=self.lease_seconds
            )
            self._leases[checkpoint_id] = record
        return record.lease

    async def renew_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """Let a lease last from now.

        Raises:
            CheckpointLeasedError: It passed on to another, or was removed.
            InvalidCallError: The id is none that a storage could keep.
        """
        check_id(checkpoint_id)
        with self._lock:
            stored = self._leases.get(checkpoint_id)
            self._leases[checkpoint_id] = LeaseRecord.renewed(checkpoint_id, stored, lease)

    async def end_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """Remove a lease; one that passed on stays with its holder.

        Raises:
            InvalidCallError: The id is none that a storage could keep.
        """
        check_id(checkpoint_id)
        with self._lock:
            stored = self._leases.get(checkpoint_id)
            if stored is not None and stored.token == lease.token:
                del self._leases[checkpoint_id]

    def _refuse_leased(self, checkpoint: Checkpoint) -> None:
        stored = self._leases.get(checkpoint.checkpoint_id)
        if stored is not None:
            refuse_leased(checkpoint.checkpoint_id, held=checkpoint.lease, stored=stored.as_of_now())

    def _find(self, checkpoint_id: str) -> _Kept:
        kept = self._kept.get(checkpoint_id)
        if kept is None:
            raise CheckpointNotFoundError(
                f"No checkpoint {checkpoint_id!r} in this memory storage; "
                "create it, or ask the storage it was saved in."
            )
        return kept


def _manifest(data: bytes, checkpoint_id: str) -> Manifest:
    return decode_manifest(data, format="json", checkpoint_id=checkpoint_id)


InMemoryCheckpointStorage = MemoryCheckpointStorage
