"""A storage in front of another, that fails at the moments a test chooses."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Literal, TypeVar

from branchpoint.checkpoint import (
    Checkpoint,
    CheckpointInfo,
    CheckpointSnapshot,
    CheckpointStorage,
    Header,
    Lease,
    Status,
    StoredHead,
    StoredRecords,
)
from branchpoint.errors import StorageError

__all__ = ["Fault", "FaultyStorage", "Gate"]

T = TypeVar("T")


class Gate:
    """Holds a write until it is released; belongs to one event loop.

    Attributes:
        after: Whether it holds the reply of a write that was made, in place of the write.
    """

    def __init__(self, *, after: bool = False) -> None:
        self.after = after
        self._reached = asyncio.Event()
        self._released = asyncio.Event()

    async def reached(self) -> None:
        """Wait until the write is here."""
        await self._reached.wait()

    def release(self) -> None:
        """Let it go on."""
        self._released.set()

    async def _pass(self) -> None:
        self._reached.set()
        await self._released.wait()


Fault = Literal["fail", "lose", "silence"] | Gate | Callable[[int], Any]
"""What befalls one write.

- `"fail"`: it raises `StorageError`, and nothing was written.
- `"lose"`: it was written, and raises `StorageError`: the reply was lost.
- `"silence"`: the same, and from then on nothing can be read either, until `answers` is set.
- a `Gate`: it waits.
- a function: it is called with the number of the write before it is made; it may be async, and may raise.
"""


class FaultyStorage(CheckpointStorage):
    """Passes everything on to another storage, but for the writes that the plan names.

    Writes are commits and prunes, counted from 1 in the order in which they begin. What it loads is attached to
    it and not to the inner one, so later commits come through it as well.

    Attributes:
        inner: The storage that does the work.
        plan: The number of a write, and what befalls it; may be changed at any time.
        writes: How many were begun.
        answers: False while nothing can be read; see `"silence"`.

    Example:
        >>> import asyncio
        >>> from branchpoint.storage import MemoryCheckpointStorage
        >>> from branchpoint.testing import FaultyStorage
        >>> storage = FaultyStorage(MemoryCheckpointStorage(), {2: "lose"})
        >>> asyncio.run(storage.list_checkpoints())
        []
    """

    def __init__(self, inner: CheckpointStorage, plan: Mapping[int, Fault] | None = None) -> None:
        self.inner = inner
        self.plan: dict[int, Fault] = dict(plan or {})
        self.writes = 0
        self.answers = True
        self._made: list[tuple[str, dict[str, Any]]] = []
        self.serialization_format = inner.serialization_format
        self.lazy_over, self.leases, self.lease_seconds = inner.lazy_over, inner.leases, inner.lease_seconds
        # It differs between objects here, where a backend has one for its class.
        self.capabilities = inner.capabilities  # type: ignore[misc]

    def arm(self, plan: Mapping[int, Fault]) -> None:
        """Begin again: count writes from 1, by another plan; it answers again."""
        self.plan, self.writes, self.answers = dict(plan), 0, True

    async def repeat(self, n: int = -1) -> None:
        """Make a write again that was made before, past the plan: as who got no reply may do."""
        name, asked = self._made[n]
        await getattr(self.inner, name)(**asked)

    async def commit_snapshot(
        self, checkpoint: Checkpoint, snapshot: CheckpointSnapshot, *, expected_head_snapshot_id: str | None
    ) -> None:
        """Pass a commit on, unless the plan says otherwise."""
        await self._write(
            "commit_snapshot",
            checkpoint=checkpoint,
            snapshot=snapshot,
            expected_head_snapshot_id=expected_head_snapshot_id,
        )

    async def prune(
        self,
        checkpoint: Checkpoint,
        *,
        header: Header,
        keep: Sequence[str],
        parts: frozenset[str],
        expected_head_snapshot_id: str,
    ) -> None:
        """Pass a prune on, unless the plan says otherwise."""
        await self._write(
            "prune",
            checkpoint=checkpoint,
            header=header,
            keep=keep,
            parts=parts,
            expected_head_snapshot_id=expected_head_snapshot_id,
        )

    async def _write(self, name: str, **asked: Any) -> None:
        self.writes += 1
        fault = self.plan.get(self.writes)
        if fault == "fail":
            raise StorageError("nothing was written, as the plan says")
        if isinstance(fault, Gate) and not fault.after:
            await fault._pass()
        elif callable(fault):
            waited = fault(self.writes)
            if inspect.isawaitable(waited):
                await waited
        await getattr(self.inner, name)(**asked)
        self._made.append((name, asked))
        if isinstance(fault, Gate) and fault.after:
            await fault._pass()
        elif fault in ("lose", "silence"):
            self.answers = fault != "silence"
            raise StorageError("it was written and the reply was lost, as the plan says")

    async def load_records(self, checkpoint_id: str) -> StoredRecords:
        """Return what the inner storage has; also of one that stores whole snapshots."""
        if type(self.inner).load is CheckpointStorage.load:
            return await self._read(self.inner.load_records(checkpoint_id))
        loaded = await self._read(self.inner.load(checkpoint_id))
        manifests = [snapshot.manifest for snapshot in loaded.snapshots]
        return StoredRecords(
            header=loaded.header, manifests=manifests, parts=loaded.parts, storage_token=loaded.storage_token
        )

    async def load_lineage(self, checkpoint_id: str) -> StoredRecords:
        """Return the lineage that the inner storage has."""
        return await self._read(self.inner.load_lineage(checkpoint_id))

    async def load_parts(self, checkpoint_id: str, digests: Collection[str]) -> dict[str, bytes]:
        """Return parts that the inner storage has."""
        return await self._read(self.inner.load_parts(checkpoint_id, digests))

    async def load_head(self, checkpoint_id: str) -> StoredHead:
        """Return the head that the inner storage has."""
        return await self._read(self.inner.load_head(checkpoint_id))

    async def list_checkpoints(
        self,
        *,
        workflow_name: str | None = None,
        status: Status | None = None,
        metadata: Mapping[str, str] | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[CheckpointInfo]:
        """Return the listing of the inner storage."""
        return await self._read(
            self.inner.list_checkpoints(
                workflow_name=workflow_name, status=status, metadata=metadata, after=after, limit=limit
            )
        )

    async def delete(self, checkpoint_id: str) -> None:
        """Delete from the inner storage."""
        await self.inner.delete(checkpoint_id)

    async def take_lease(self, checkpoint_id: str) -> Lease:
        """Take a lease of the inner storage."""
        return await self.inner.take_lease(checkpoint_id)

    async def renew_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """Renew a lease of the inner storage."""
        await self.inner.renew_lease(checkpoint_id, lease)

    async def end_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """End a lease of the inner storage."""
        await self.inner.end_lease(checkpoint_id, lease)

    async def aclose(self) -> None:
        """Close the inner storage."""
        await self.inner.aclose()

    async def _read(self, reading: Coroutine[Any, Any, T]) -> T:
        if not self.answers:
            reading.close()
            raise StorageError("nothing answers, as the plan says")
        return await reading
