"""A storage that fails in the ways that storages fail."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from branchpoint import Checkpoint, CheckpointSnapshot, CheckpointStorage, StorageError
from branchpoint.checkpoint import StoredHead
from tests.scenario.kit import Around


class Shaky(Around):
    """A storage that fails once: before the write, after it, after it and for good, or by a cancellation.

    Attributes:
        at: The number of the write from here on, and what happens at it.
        cancel: Cancels the caller.
    """

    def __init__(self, inner: CheckpointStorage) -> None:
        super().__init__(inner)
        self.at: tuple[int, str] | None = None
        self.writes = 0
        self.silent = False
        self.cancel: Callable[[], object] = lambda: None

    def arm(self, at: tuple[int, str] | None) -> None:
        self.at, self.writes, self.silent = at, 0, False

    async def _write(self, write: Coroutine[Any, Any, None]) -> None:
        self.writes += 1
        number, what = self.at or (0, "")
        if self.writes != number:
            await write
            return
        if what == "before":
            write.close()
            raise StorageError("nothing was written")
        if what == "cancelled":
            self.cancel()
        await write
        self.silent = what == "unknown"
        if what in ("lost", "unknown"):
            raise StorageError("it was written, and nobody was told")

    async def commit_snapshot(
        self, checkpoint: Checkpoint, snapshot: CheckpointSnapshot, *, expected_head_snapshot_id: str | None
    ) -> None:
        await self._write(
            self.inner.commit_snapshot(
                checkpoint, snapshot, expected_head_snapshot_id=expected_head_snapshot_id
            )
        )

    async def prune(self, checkpoint: Checkpoint, **more: Any) -> None:
        await self._write(self.inner.prune(checkpoint, **more))

    async def load_head(self, checkpoint_id: str) -> StoredHead:
        self._answer()
        return await self.inner.load_head(checkpoint_id)

    async def load(self, checkpoint_id: str) -> Checkpoint:
        """Return the checkpoint, attached to this storage in place of the inner one."""
        self._answer()
        loaded = await self.inner.load(checkpoint_id)
        head = loaded.head_snapshot_id
        assert head is not None
        return Checkpoint.restore(
            header=loaded.header,
            manifests=[one.manifest for one in loaded.snapshots],
            head_snapshot_id=head,
            parts=loaded.parts,
            checkpoint_storage=self,
        )

    def _answer(self) -> None:
        if self.silent:
            raise StorageError("nobody answers")
