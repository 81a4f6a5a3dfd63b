"""A storage that fails where a plan says, and is like the one behind it everywhere else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from branchpoint.checkpoint import Checkpoint, CheckpointSnapshot, CheckpointStorage
from branchpoint.errors import StorageError
from branchpoint.storage import FileCheckpointStorage, MemoryCheckpointStorage
from branchpoint.testing import FaultyStorage, Gate, Place, validate
from tests.storages import create, grown, lineage, state


@pytest.fixture
def inner() -> MemoryCheckpointStorage:
    return MemoryCheckpointStorage()


async def test_a_write_that_fails_has_not_happened(inner: MemoryCheckpointStorage) -> None:
    storage = FaultyStorage(inner, {2: "fail"})
    checkpoint = create(storage)
    await checkpoint.commit_snapshot(state(1))
    with pytest.raises(StorageError, match="nothing was written"):
        await checkpoint.commit_snapshot(state(2))
    assert len((await inner.load("order-17")).snapshots) == 1
    await checkpoint.commit_snapshot(state(2))
    assert lineage(await inner.load("order-17")) == lineage(checkpoint)
    assert storage.writes == 3


async def test_a_lost_reply_is_settled_by_reading_back(inner: MemoryCheckpointStorage) -> None:
    storage = FaultyStorage(inner, {1: "lose", 2: "lose"})
    checkpoint = await grown(storage, commits=2)
    assert lineage(await inner.load("order-17")) == lineage(checkpoint)
    await storage.repeat(0)
    await storage.repeat()
    assert lineage(await inner.load("order-17")) == lineage(checkpoint)


async def test_silence_is_settled_later(inner: MemoryCheckpointStorage) -> None:
    storage = FaultyStorage(inner, {2: "silence"})
    checkpoint = create(storage)
    await checkpoint.commit_snapshot(state(1))
    with pytest.raises(StorageError, match="the reply was lost"):
        await checkpoint.commit_snapshot(state(2))
    assert len(checkpoint.snapshots) == 1
    with pytest.raises(StorageError, match="nothing answers"):
        await checkpoint.refresh()
    with pytest.raises(StorageError, match="nothing answers"):
        await storage.list_checkpoints()
    storage.arm({})
    await checkpoint.refresh()
    assert len(checkpoint.snapshots) == 2


@pytest.mark.parametrize("after", [False, True])
async def test_a_gate_holds_a_write_or_its_reply(inner: MemoryCheckpointStorage, after: bool) -> None:
    gate = Gate(after=after)
    checkpoint = create(FaultyStorage(inner, {1: gate}))
    committing = asyncio.ensure_future(checkpoint.commit_snapshot(state(1)))
    await gate.reached()
    assert bool(await inner.list_checkpoints()) == after
    assert checkpoint.snapshots == []
    gate.release()
    await committing
    assert len(checkpoint.snapshots) == 1


async def test_a_function_is_called_before_the_write(inner: MemoryCheckpointStorage) -> None:
    called: list[tuple[int, int]] = []

    async def seen(number: int) -> None:
        called.append((number, len(await inner.list_checkpoints())))

    def full(number: int) -> None:
        raise OSError("disk full")

    checkpoint = create(FaultyStorage(inner, {1: seen, 2: full}))
    await checkpoint.commit_snapshot(state(1))
    assert called == [(1, 0)]
    with pytest.raises(OSError, match="disk full"):
        await checkpoint.commit_snapshot(state(2))


async def test_what_it_loads_commits_through_it(inner: MemoryCheckpointStorage) -> None:
    await grown(inner)
    storage = FaultyStorage(inner, {1: "fail"})
    loaded = await storage.load("order-17")
    with pytest.raises(StorageError):
        await loaded.commit_snapshot(state(9))


class Whole(CheckpointStorage):
    """Stores through another, and overrides `load` as a store of whole documents does."""

    def __init__(self) -> None:
        self.inner = MemoryCheckpointStorage()

    async def commit_snapshot(
        self, checkpoint: Checkpoint, snapshot: CheckpointSnapshot, *, expected_head_snapshot_id: str | None
    ) -> None:
        await self.inner.commit_snapshot(
            checkpoint, snapshot, expected_head_snapshot_id=expected_head_snapshot_id
        )

    async def load(self, checkpoint_id: str, *, expected_head_snapshot_id: str | None = None) -> Checkpoint:
        loaded = await self.inner.load(checkpoint_id, expected_head_snapshot_id=expected_head_snapshot_id)
        assert loaded.head_snapshot_id is not None
        return Checkpoint.restore(
            header=loaded.header,
            manifests=[one.manifest for one in loaded.snapshots],
            head_snapshot_id=loaded.head_snapshot_id,
            parts=loaded.parts,
            checkpoint_storage=self,
        )

    async def delete(self, checkpoint_id: str) -> None:
        await self.inner.delete(checkpoint_id)


async def test_it_stands_before_a_storage_of_whole_snapshots_too() -> None:
    checkpoint = await grown(FaultyStorage(Whole(), {2: "lose"}))
    storage = checkpoint.checkpoint_storage
    assert storage is not None
    loaded = await storage.load("order-17")
    assert lineage(loaded) == lineage(checkpoint)
    assert loaded.checkpoint_storage is storage


def test_without_faults_it_keeps_the_contract_that_the_inner_one_keeps(tmp_path: Path) -> None:
    class FaultyPlace(Place):
        rounds = 3

        def __init__(self) -> None:
            super().__init__()
            FaultyPlace.count += 1
            self.folder = tmp_path / str(FaultyPlace.count)

        count = 0

        def open(
            self, *, lazy_over: int | None = None, leases: bool = False, lease_seconds: float = 30.0
        ) -> FaultyStorage:
            return FaultyStorage(
                FileCheckpointStorage(
                    self.folder, lazy_over=lazy_over, leases=leases, lease_seconds=lease_seconds
                )
            )

    report = validate(FaultyPlace)
    assert report.ok, str(report)
    assert {one.clause.partition(".")[0] for one in report.outcomes if one.result == "skipped"} == {
        "leftovers",
        "processes",
    }
