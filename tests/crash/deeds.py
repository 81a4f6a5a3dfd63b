"""What is done to a checkpoint while its process is killed or its disk fails."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from branchpoint.checkpoint import Checkpoint, Format
from branchpoint.errors import CheckpointConflictError, CheckpointNotFoundError, StorageError
from branchpoint.storage import FileCheckpointStorage
from tests.crash.story import Labels, labels
from tests.crash.system_calls import Act, Call, SystemCalls
from tests.journals import journal_of
from tests.storages import create, grown, state

__all__ = ["DEEDS", "Attempt", "Deed", "deletes", "prepared"]

Deed = Callable[[Checkpoint], Awaitable[object]]


async def commits(checkpoint: Checkpoint) -> None:
    await checkpoint.commit_snapshot(state(10, n=10, text="x" * 300))


async def prunes(checkpoint: Checkpoint) -> None:
    await checkpoint.prune()


async def deletes(checkpoint: Checkpoint) -> None:
    assert checkpoint.checkpoint_storage is not None
    await checkpoint.checkpoint_storage.delete("order-17")


DEEDS: dict[str, tuple[Labels, bytes, Deed]] = {
    "a first commit": ((), b"", commits),
    "a later commit": ((0, 1, 2), b"", commits),
    "a commit after a torn tail": ((0, 1, 2), b'{"c":"torn', commits),
    "a prune": ((0, 1, 2), b"", prunes),
    "a delete": ((0, 1, 2), b"", deletes),
}
"""What is there, what lies beyond its last record, and what is done."""


async def prepared(folder: Path, format: Format, what: str) -> None:
    """A folder with another checkpoint, what a dead writer left, and what the deed is done to."""
    before, tail, _ = DEEDS[what]
    folder.mkdir()
    storage = FileCheckpointStorage(folder, serialization_format=format)
    await grown(storage, "bystander", commits=2)
    (folder / ".tmp-05-dead").write_bytes(b"half a journal")
    if before:
        await grown(storage, commits=len(before))
        with journal_of(folder).open("ab") as journal:
            journal.write(tail)


class Attempt:
    """One deed in a copy of a folder, with its calls dealt with by an act."""

    def __init__(self, pattern: Path, folder: Path, format: Format, what: str) -> None:
        shutil.copytree(pattern, folder)
        self.folder, self.format = folder, format
        self.before, _, self.deed = DEEDS[what]
        self.calls: list[Call] = []
        self.error: StorageError | None = None

    def opened(self) -> FileCheckpointStorage:
        return FileCheckpointStorage(self.folder, serialization_format=self.format)

    async def found(self) -> Labels:
        """What somebody else finds; nothing for no checkpoint."""
        try:
            return labels(await self.opened().load("order-17"))
        except CheckpointNotFoundError:
            return ()

    async def make(self, act: Act | None) -> None:
        storage = self.opened()
        self.checkpoint = await storage.load("order-17") if self.before else create(storage)
        self.known = self.checkpoint.head_snapshot_id
        with SystemCalls(self.folder) as calls:
            calls.arm(act)
            try:
                await self.deed(self.checkpoint)
            except StorageError as error:
                self.error = error
        self.calls = calls.calls
        assert self.checkpoint.in_use_by is None
        assert self.checkpoint.head_snapshot_id == self.checkpoint.stored_head_snapshot_id

    async def settle(self, *, single: bool) -> None:
        """What must hold once the disk is mended, and does not, if it is not `single`, before."""
        memory = labels(self.checkpoint)
        if self.error is not None:
            assert isinstance(self.error.__cause__, OSError)
            assert "order-17" in str(self.error)
            assert memory == self.before
            assert self.checkpoint.head_snapshot_id == self.known
        if self.deed is deletes:
            assert await self.found() in (self.before, ())
            if self.error is None:
                assert await self.found() == ()
            await self.opened().delete("order-17")
            assert await self.found() == ()
            with pytest.raises(CheckpointConflictError, match="deleted"):
                await self.checkpoint.commit_snapshot(state(11, n=11))
        else:
            if single or self.error is None:
                assert await self.found() == memory
            await self.checkpoint.commit_snapshot(state(11, n=11))
            assert await self.found() == labels(self.checkpoint) == (*memory, 11)
        assert labels(await self.opened().load("bystander")) == (0, 1)

    async def tidy(self) -> None:
        """No file in the making is left, at the latest once the next writer has begun."""
        failed = {call.name for call in self.calls if call.failed}
        if not failed & {"unlink", "listdir", "flock", "open"}:
            assert not list(self.folder.glob(".tmp-*"))
        await (await self.opened().load("bystander")).commit_snapshot(state(2, n=2))
        assert not list(self.folder.glob(".tmp-*"))
