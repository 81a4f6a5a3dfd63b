"""The requirements on checkpoints and branching, as far as they need no engine: R10-R12, R16-R18, R20-R23.

Also the cases C13 and C17. Everything runs without storage, and with a storage in both formats.
"""

from __future__ import annotations

import asyncio
import inspect
from datetime import UTC
from typing import Any

import pytest

from branchpoint.checkpoint import Checkpoint, CheckpointSnapshot, CheckpointStorage
from branchpoint.errors import (
    CheckpointConflictError,
    CheckpointInUseError,
    InvalidCallError,
    SnapshotNotFoundError,
)
from tests.states import make_state
from tests.unit.checkpoint.doubles import Faults, TinyStorage, new_checkpoint


@pytest.fixture(params=["none", "json", "msgpack"])
def storage(request: pytest.FixtureRequest) -> TinyStorage | None:
    return None if request.param == "none" else TinyStorage(request.param)


@pytest.fixture(params=["json", "msgpack"])
def stored(request: pytest.FixtureRequest) -> TinyStorage:
    return TinyStorage(request.param)


async def chain(cp: Checkpoint, count: int) -> list[CheckpointSnapshot]:
    return [await cp.commit_snapshot(make_state(n)) for n in range(count)]


def same(one: Checkpoint, other: Checkpoint) -> bool:
    return [found.to_bytes() for found in one.snapshots] == [found.to_bytes() for found in other.snapshots]


async def test_r10_a_checkpoint_has_these_names_and_no_storage_in_what_is_kept(
    storage: TinyStorage | None,
) -> None:
    cp = new_checkpoint(storage, "run-1")
    assert cp.checkpoint_id == "run-1"
    assert cp.workflow_name == "count"
    assert cp.graph_signature_hash == "sig-1"
    assert cp.snapshots == []
    assert cp.head_snapshot_id is None
    assert cp.head_snapshot is None
    assert cp.checkpoint_storage is storage
    assert inspect.iscoroutinefunction(cp.commit_snapshot)
    assert list(inspect.signature(cp.commit_snapshot).parameters) == ["state", "metadata"]
    snapshot = await cp.commit_snapshot(state=make_state(1), metadata={"k": "v"})
    assert cp.snapshots == [snapshot]
    assert cp.head_snapshot is cp.get_snapshot(snapshot.snapshot_id) is snapshot
    assert cp.head_snapshot_id == snapshot.snapshot_id
    assert cp.snapshots is not cp.snapshots
    assert b"TinyStorage" not in snapshot.to_bytes()
    assert "storage" not in type(cp.header).__struct_fields__
    with pytest.raises(SnapshotNotFoundError, match="'nope'"):
        cp.get_snapshot("nope")
    assert new_checkpoint().checkpoint_id != new_checkpoint().checkpoint_id


async def test_r11_a_snapshot_has_these_names_and_cannot_be_changed(storage: TinyStorage | None) -> None:
    cp = new_checkpoint(storage)
    parent = await cp.commit_snapshot(make_state(1))
    snapshot = await cp.commit_snapshot(make_state(2, shared={"k": [1]}), {"tags": ["a"]})
    assert snapshot.parent_snapshot_id == parent.snapshot_id
    assert snapshot.timestamp.tzinfo is UTC or snapshot.timestamp.utcoffset() is not None
    assert snapshot.format_version == 1
    before = snapshot.to_bytes()
    for name in ("snapshot_id", "parent_snapshot_id", "timestamp", "state", "metadata", "format_version"):
        with pytest.raises(AttributeError):
            setattr(snapshot, name, None)
    snapshot.state["workflow_state"]["shared"]["k"].append(2)
    snapshot.state.clear()
    snapshot.metadata["tags"].append("b")
    snapshot.metadata["boundary"] = "lunch"
    assert snapshot.state["workflow_state"]["shared"] == {"k": [1]}
    assert snapshot.metadata == {"tags": ["a"], "boundary": "edited"}
    assert snapshot.to_bytes() == before
    if storage is not None:
        assert same(await storage.load(cp.checkpoint_id), cp)


@pytest.mark.parametrize("change", [{"fifth": {}}, {"messages": None}, {"edge_states": None}])
async def test_r12_another_number_of_buckets_is_refused(
    storage: TinyStorage | None, change: dict[str, Any]
) -> None:
    cp = new_checkpoint(storage)
    state = {key: value for key, value in {**make_state(1), **change}.items() if value is not None}
    with pytest.raises(
        InvalidCallError, match="exactly workflow_state, executor_states, edge_states, messages"
    ):
        await cp.commit_snapshot(state)
    assert cp.snapshots == []
    if storage is not None:
        assert storage.records == {}


async def test_r16_commit_assigns_the_parent_persists_then_shows(stored: TinyStorage) -> None:
    faults = Faults(stored)
    cp = new_checkpoint(faults)
    first = await cp.commit_snapshot(make_state(1))
    faults.gate = asyncio.Event()
    faults.entered.clear()
    committing = asyncio.create_task(cp.commit_snapshot(make_state(2)))
    await faults.entered.wait()
    # Persisting has begun, and nothing is shown before it has succeeded.
    assert cp.snapshots == [first]
    assert cp.head_snapshot_id == cp.stored_head_snapshot_id == first.snapshot_id
    faults.gate.set()
    second = await committing
    assert cp.snapshots == [first, second]
    assert cp.head_snapshot_id == second.snapshot_id
    assert second.parent_snapshot_id == first.snapshot_id
    assert same(await stored.load(cp.checkpoint_id), cp)


async def test_r16_without_storage_it_is_the_same_in_memory() -> None:
    stored, kept = new_checkpoint(TinyStorage(), "run-1"), new_checkpoint(checkpoint_id="run-1")
    for cp in (stored, kept):
        snapshots = await chain(cp, 3)
        cp.restart_from(snapshots[1].snapshot_id)
        await cp.commit_snapshot()
    for cp in (stored, kept):
        order = [found.snapshot_id for found in cp.snapshots]
        parents = [found.parent_snapshot_id for found in cp.snapshots]
        assert parents == [None, order[0], order[1], order[1]]
        assert order == sorted(order)
        assert cp.head_snapshot_id == order[-1]
    assert [found.root for found in stored.snapshots] == [found.root for found in kept.snapshots]


async def test_r17_two_commits_at_once_never_make_two_children_of_one_head(
    storage: TinyStorage | None,
) -> None:
    cp = new_checkpoint(storage)
    for n in range(100):
        done = await asyncio.gather(
            cp.commit_snapshot(make_state(n)),
            cp.commit_snapshot(make_state(1000 + n)),
            return_exceptions=True,
        )
        for found in done:
            assert isinstance(found, CheckpointSnapshot | CheckpointInUseError)
    parents = [found.parent_snapshot_id for found in cp.snapshots]
    assert len(set(parents)) == len(parents) >= 100
    assert parents[1:] == [found.snapshot_id for found in cp.snapshots[:-1]]


async def test_r18_a_failed_commit_changes_nothing_and_is_not_swallowed(stored: TinyStorage) -> None:
    faults = Faults(stored)
    cp = new_checkpoint(faults)
    snapshots = await chain(cp, 2)
    cp.restart_from(snapshots[0].snapshot_id)
    error = OSError(28, "no space left on device")
    faults.before = error
    with pytest.raises(OSError, match="no space") as caught:
        await cp.commit_snapshot(make_state(9))
    assert caught.value is error
    assert cp.snapshots == snapshots
    assert cp.head_snapshot_id == snapshots[0].snapshot_id
    assert cp.stored_head_snapshot_id == snapshots[1].snapshot_id
    assert same(await stored.load(cp.checkpoint_id), cp)
    assert (await cp.commit_snapshot(make_state(9))).parent_snapshot_id == snapshots[0].snapshot_id


async def test_r20_restart_from_moves_the_head_in_memory_and_deletes_nothing(
    storage: TinyStorage | None,
) -> None:
    cp = new_checkpoint(storage)
    snapshots = await chain(cp, 3)
    calls = [] if storage is None else list(storage.calls)
    cp.restart_from(snapshots[0].snapshot_id)
    assert cp.head_snapshot is snapshots[0]
    assert cp.snapshots == snapshots
    with cp.hold("a run"), pytest.raises(CheckpointInUseError):
        cp.restart_from(snapshots[1].snapshot_id)
    assert cp.head_snapshot is snapshots[0]
    cp.restart_from(None)
    assert cp.head_snapshot is None
    if storage is not None:
        assert storage.calls == calls
        assert (await storage.load(cp.checkpoint_id)).head_snapshot_id == snapshots[2].snapshot_id


async def test_r21_the_next_commit_continues_the_selected_snapshot_and_all_others_stay(
    storage: TinyStorage | None,
) -> None:
    cp = new_checkpoint(storage)
    snapshots = await chain(cp, 3)
    cp.restart_from(snapshots[0].snapshot_id)
    branch = await cp.commit_snapshot(make_state(7))
    next_one = await cp.commit_snapshot(make_state(8))
    assert branch.parent_snapshot_id == snapshots[0].snapshot_id
    assert next_one.parent_snapshot_id == branch.snapshot_id
    assert cp.snapshots == [*snapshots, branch, next_one]
    cp.restart_from(None)
    second_root = await cp.commit_snapshot(make_state(9))
    assert second_root.parent_snapshot_id is None
    assert len(cp.snapshots) == 6


async def test_r22_a_loaded_checkpoint_shows_the_stored_head_and_every_branch(stored: TinyStorage) -> None:
    cp = new_checkpoint(stored, "run-1", metadata={"owner": "ann"})
    snapshots = await chain(cp, 3)
    cp.restart_from(snapshots[0].snapshot_id)
    branch = await cp.commit_snapshot(make_state(7))
    cp.restart_from(snapshots[1].snapshot_id)  # not stored: nothing was committed after it
    loaded = await stored.load("run-1")
    assert same(loaded, cp)
    assert loaded.head_snapshot_id == loaded.stored_head_snapshot_id == branch.snapshot_id
    assert (loaded.workflow_name, loaded.graph_signature_hash) == ("count", "sig-1")
    assert (loaded.metadata, loaded.header) == ({"owner": "ann"}, cp.header)
    assert loaded.checkpoint_storage is stored
    for found in loaded.snapshots:
        loaded.restart_from(found.snapshot_id)
        assert loaded.head_snapshot is found


async def test_r23_a_stored_rewind_then_commit_succeeds(stored: TinyStorage) -> None:
    cp = new_checkpoint(stored, "run-1")
    snapshots = await chain(cp, 6)
    loaded = await stored.load("run-1")
    loaded.restart_from(snapshots[2].snapshot_id)
    await loaded.check_head()
    branch = await loaded.commit_snapshot(make_state(7))
    assert branch.parent_snapshot_id == snapshots[2].snapshot_id
    assert (await stored.load("run-1")).head_snapshot_id == branch.snapshot_id


async def test_r23_a_real_second_writer_still_conflicts_before_it_acts(stored: TinyStorage) -> None:
    cp = new_checkpoint(stored, "run-1")
    snapshots = await chain(cp, 6)
    loaded, other = await stored.load("run-1"), await stored.load("run-1")
    loaded.restart_from(snapshots[2].snapshot_id)
    advanced = await other.commit_snapshot(make_state(6))
    with pytest.raises(CheckpointConflictError):
        await loaded.check_head()
    with pytest.raises(CheckpointConflictError):
        await loaded.commit_snapshot(make_state(7))
    assert loaded.head_snapshot_id == snapshots[2].snapshot_id
    assert len(loaded.snapshots) == 6
    assert same(await stored.load("run-1"), other)
    await loaded.refresh()
    assert loaded.head_snapshot_id == loaded.stored_head_snapshot_id == advanced.snapshot_id
    await loaded.commit_snapshot(make_state(8))


async def test_c13_a_restart_from_what_is_not_there_changes_nothing(storage: TinyStorage | None) -> None:
    cp1, cp2 = new_checkpoint(storage), new_checkpoint(storage)
    with pytest.raises(SnapshotNotFoundError):
        cp1.restart_from("nope")
    snapshots = await chain(cp1, 2)
    await chain(cp2, 2)
    for wrong in ("nope", cp2.head_snapshot_id, "", 7):
        with pytest.raises(SnapshotNotFoundError, match="holds no snapshot"):
            cp1.restart_from(wrong)  # type: ignore[arg-type]
    with cp1.hold("a run"), pytest.raises(CheckpointInUseError, match="a run"):
        cp1.restart_from(snapshots[0].snapshot_id)
    assert cp1.head_snapshot_id == snapshots[1].snapshot_id
    assert cp1.snapshots == snapshots
    await cp1.commit_snapshot(make_state(9))


async def test_c17_of_two_loaded_copies_one_commits_and_one_conflicts(stored: TinyStorage) -> None:
    await hundred_rounds(stored)


async def hundred_rounds(storage: CheckpointStorage) -> None:
    cp = new_checkpoint(storage, "run-1")
    await cp.commit_snapshot(make_state(0))
    for n in range(1, 100):
        copies = [await storage.load("run-1") for _ in range(2)]
        done = await asyncio.gather(
            *(copy.commit_snapshot(make_state(n)) for copy in copies), return_exceptions=True
        )
        assert sum(isinstance(found, CheckpointSnapshot) for found in done) == 1
        assert sum(isinstance(found, CheckpointConflictError) for found in done) == 1
        for copy, found in zip(copies, done, strict=True):
            assert len(copy.snapshots) == (n + 1 if isinstance(found, CheckpointSnapshot) else n)
    final = await storage.load("run-1")
    parents = [found.parent_snapshot_id for found in final.snapshots]
    assert len(parents) == len(set(parents)) == 100
    assert parents[1:] == [found.snapshot_id for found in final.snapshots[:-1]]


async def test_c17_with_memory_storage() -> None:
    storage = pytest.importorskip("branchpoint.storage")
    await hundred_rounds(storage.MemoryCheckpointStorage())
