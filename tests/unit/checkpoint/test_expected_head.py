"""Loading a checkpoint with the head that the caller remembers: a store that was set back is seen."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from branchpoint.checkpoint import CheckpointStorage
from branchpoint.errors import (
    CheckpointConflictError,
    CheckpointNotFoundError,
    CorruptCheckpointError,
    InvalidCallError,
)
from branchpoint.storage import FileCheckpointStorage
from tests.instruments import Recorder, attached
from tests.sealing import OnDemand
from tests.storages import grown, opener, state

LOCAL = ("memory", "file-json", "encrypted-file-msgpack")


@pytest.fixture(params=[*LOCAL, "on demand"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStorage:
    return OnDemand(lazy_over=0) if request.param == "on demand" else opener(request.param, tmp_path)()


async def test_the_expected_head_is_loaded(storage: CheckpointStorage) -> None:
    checkpoint = await grown(storage)
    head = checkpoint.stored_head_snapshot_id
    loaded = await storage.load("order-17", expected_head_snapshot_id=head)
    assert loaded.stored_head_snapshot_id == loaded.head_snapshot_id == head
    checkpoint.restart_from(checkpoint.snapshots[0].snapshot_id)  # selected in memory; the stored head counts
    assert await storage.load("order-17", expected_head_snapshot_id=head)


async def test_a_head_that_somebody_moved_is_a_conflict_that_names_both(storage: CheckpointStorage) -> None:
    checkpoint = await grown(storage)
    old = checkpoint.stored_head_snapshot_id
    await checkpoint.commit_snapshot(state(9))
    with pytest.raises(CheckpointConflictError, match=f"'order-17'.*{old}.*{checkpoint.head_snapshot_id}"):
        await storage.load("order-17", expected_head_snapshot_id=old)


async def test_a_head_that_is_not_there_is_no_conflict_to_be_retried(storage: CheckpointStorage) -> None:
    checkpoint = await grown(storage)
    old = checkpoint.stored_head_snapshot_id
    await checkpoint.commit_snapshot(state(9))
    await checkpoint.prune()
    with pytest.raises(
        CorruptCheckpointError, match=f"'order-17'.*{old}.*{checkpoint.head_snapshot_id}.*set back"
    ):
        await storage.load("order-17", expected_head_snapshot_id=old)
    with pytest.raises(InvalidCallError, match="expected_head_snapshot_id"):
        await storage.load("order-17", expected_head_snapshot_id="")
    with pytest.raises(CheckpointNotFoundError):
        await storage.load("order-18", expected_head_snapshot_id=old)


async def test_it_is_compared_under_instruments_too(storage: CheckpointStorage) -> None:
    await grown(storage)
    recorder = Recorder()
    with attached(recorder), pytest.raises(CorruptCheckpointError):
        await storage.load("order-17", expected_head_snapshot_id="another")
    assert [type(block.error) for block in recorder.of("load")] == [CorruptCheckpointError]


async def test_a_folder_that_was_restored_from_an_older_copy_is_seen(tmp_path: Path) -> None:
    storage = FileCheckpointStorage(tmp_path / "runs")
    checkpoint = await grown(storage)
    shutil.copytree(tmp_path / "runs", tmp_path / "copy")
    await checkpoint.commit_snapshot(state(9))
    shutil.rmtree(tmp_path / "runs")
    (tmp_path / "copy").rename(tmp_path / "runs")
    head = checkpoint.stored_head_snapshot_id
    again = FileCheckpointStorage(tmp_path / "runs")
    assert len((await again.load("order-17")).snapshots) == 3
    with pytest.raises(CorruptCheckpointError, match="set back"):
        await again.load("order-17", expected_head_snapshot_id=head)
