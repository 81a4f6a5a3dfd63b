"""Commits on the event loop's own thread: quicker, and in every other way the same."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from branchpoint.checkpoint import Checkpoint, CheckpointSnapshot
from branchpoint.errors import CheckpointConflictError, StorageError
from branchpoint.storage import FileCheckpointStorage
from branchpoint.storage._disk import Disk
from tests.journals import FailingDisk
from tests.storages import create, grown, lineage, state


class SeenDisk(Disk):
    """A disk that tells which threads synced it."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def sync(self, descriptor: int) -> None:
        self.threads.add(threading.get_ident())
        super().sync(descriptor)


@pytest.mark.parametrize("commit_thread", [True, False])
async def test_the_loops_thread_commits_only_when_it_was_asked_to(runs: Path, commit_thread: bool) -> None:
    disk = SeenDisk()
    storage = FileCheckpointStorage(runs, commit_thread=commit_thread, disk=disk)
    checkpoint = await grown(storage, commits=4)
    assert (threading.get_ident() in disk.threads) is not commit_thread
    assert len(disk.threads) == 1 or commit_thread
    assert lineage(await FileCheckpointStorage(runs).load("order-17")) == lineage(checkpoint)


async def test_c55_a_commit_that_the_disk_refuses_changes_nothing_and_the_next_one_works(runs: Path) -> None:
    disk = FailingDisk()
    checkpoint = await grown(FileCheckpointStorage(runs, commit_thread=False, disk=disk))
    before = lineage(checkpoint)
    disk.broken = {"sync"}
    with pytest.raises(StorageError):
        await checkpoint.commit_snapshot(state(7))
    assert (lineage(checkpoint), checkpoint.in_use_by) == (before, None)
    disk.mend()
    await checkpoint.commit_snapshot(state(8))
    stored = await FileCheckpointStorage(runs).load("order-17")
    assert lineage(stored) == lineage(checkpoint)
    assert len(lineage(stored)) == len(before) + 1


async def test_two_who_commit_on_one_head_have_one_winner(runs: Path) -> None:
    await grown(FileCheckpointStorage(runs))
    one, other = [await FileCheckpointStorage(runs, commit_thread=False).load("order-17") for _ in range(2)]
    await one.commit_snapshot(state(8))
    with pytest.raises(CheckpointConflictError):
        await other.commit_snapshot(state(9))
    assert lineage(await FileCheckpointStorage(runs).load("order-17")) == lineage(one)


class LosesReplies(FileCheckpointStorage):
    """Commits, and says that it did not."""

    async def commit_snapshot(
        self, checkpoint: Checkpoint, snapshot: CheckpointSnapshot, *, expected_head_snapshot_id: str | None
    ) -> None:
        await super().commit_snapshot(
            checkpoint, snapshot, expected_head_snapshot_id=expected_head_snapshot_id
        )
        raise StorageError("the reply was lost")


async def test_a_lost_reply_is_settled_also_while_its_caller_is_cancelled(runs: Path) -> None:
    checkpoint = create(LosesReplies(runs, commit_thread=False))
    await checkpoint.commit_snapshot(state(0))
    task = asyncio.create_task(checkpoint.commit_snapshot(state(1)))
    await asyncio.sleep(0)  # it waits for the answer of `load_head` now
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert checkpoint.in_use_by is None
    assert len(lineage(checkpoint)) == 2
    assert lineage(await FileCheckpointStorage(runs).load("order-17")) == lineage(checkpoint)
