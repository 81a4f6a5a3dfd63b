"""The one commit path: failure, cancellation, lost replies, aliasing."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from branchpoint import clock, ids
from branchpoint.checkpoint import Checkpoint, StoredHead, Summary
from branchpoint.errors import (
    CheckpointConflictError,
    CheckpointInUseError,
    CorruptCheckpointError,
    InvalidCallError,
    StorageError,
    UnregisteredTypeError,
)
from tests.states import DELIVERY, earlier_input, make_state, output, request
from tests.unit.checkpoint.doubles import Faults, TinyStorage, new_checkpoint


def seen(cp: Checkpoint) -> tuple[Any, ...]:
    """Everything that a failed commit must leave alone."""
    return (
        [found.snapshot_id for found in cp.snapshots],
        cp.head_snapshot_id,
        cp.stored_head_snapshot_id,
        dict(cp.parts),
        cp.in_use_by,
        cp.status,
    )


@pytest.fixture(params=["none", "json", "msgpack"])
def cp(request: pytest.FixtureRequest) -> Checkpoint:
    return new_checkpoint(None if request.param == "none" else TinyStorage(request.param))


async def test_what_was_committed_is_read_back(cp: Checkpoint) -> None:
    state = make_state(3, shared={"k": [1, "two", None, 2.5, {"deep": "x" * 2000}]})
    snapshot = await cp.commit_snapshot(state, {"why": "a test"})
    assert snapshot.state == state
    assert snapshot.plain_state() == state
    assert snapshot.metadata == {"why": "a test", "boundary": "edited"}
    assert (snapshot.superstep, snapshot.input_id, snapshot.status) == (3, "in-1", "idle")
    assert cp.get_snapshot(snapshot.snapshot_id) is snapshot
    assert snapshot.new_parts == {}
    assert repr(snapshot.snapshot_id) not in repr(cp)
    assert snapshot.snapshot_id in repr(cp)
    assert "edited" in repr(snapshot)


async def test_unchanged_parts_are_written_once(cp: Checkpoint) -> None:
    state = make_state(1, shared={"log": [f"line {n} " + "x" * 200 for n in range(100)]})
    await cp.commit_snapshot(state)
    before = sum(len(data) for data in cp.parts.values())
    state["workflow_state"]["iteration_count"] = 2
    await cp.commit_snapshot(state)
    assert sum(len(data) for data in cp.parts.values()) - before < 1000


async def test_a_hold_may_hand_over_leaves_that_are_encoded_already(cp: Checkpoint) -> None:
    from branchpoint import codec

    state = make_state(1)
    leaf, _ = codec.encode({"n": ["x" * 300]}, format=cp.format, depth=2)
    state["executor_states"] = {"tally": leaf}
    with cp.hold("a run") as hold:
        summary = Summary("completed", "idle", 1, "in-1", (), ("tally",))
        snapshot = await hold.commit_snapshot(state, {"who": "me"}, summary=summary, trace="00-aa-bb-01")
    assert snapshot.state["executor_states"] == {"tally": {"n": ["x" * 300]}}
    assert snapshot.manifest.trace == "00-aa-bb-01"
    assert snapshot.manifest.executors == ("tally",)
    assert snapshot.metadata == {"who": "me", "boundary": "completed"}
    plain = make_state(1, executors={"tally": {"n": ["x" * 300]}})
    again = await cp.commit_snapshot(plain)
    assert again.root == snapshot.root


async def test_no_reader_reaches_the_snapshot(cp: Checkpoint) -> None:
    state = make_state(1, shared={"k": [1]})
    metadata: dict[str, Any] = {"tags": ["a"]}
    snapshot = await cp.commit_snapshot(state, metadata)
    root, parts = snapshot.root, dict(cp.parts)
    state["workflow_state"]["shared"]["k"].append(2)
    metadata["tags"].append("b")
    snapshot.state["workflow_state"]["shared"]["k"].append(3)
    snapshot.metadata["tags"].append("c")
    snapshot.manifest.metadata["tags"].append("d")
    snapshot.new_parts["x"] = b"y"
    cp.header.signature["start"] = "other"
    cp.header.metadata["owner"] = "eve"
    cp.metadata["owner"] = "eve"
    cp.snapshots.clear()
    with pytest.raises(TypeError):
        cp.parts["x"] = b"y"  # type: ignore[index]
    with pytest.raises(AttributeError, match="immutable"):
        snapshot.status = "idle"  # type: ignore[misc]
    with pytest.raises(AttributeError, match="immutable"):
        snapshot._manifest = snapshot.manifest
    with pytest.raises(AttributeError, match="immutable"):
        del snapshot._manifest
    assert snapshot.state["workflow_state"]["shared"] == {"k": [1]}
    assert snapshot.metadata == {"tags": ["a"], "boundary": "edited"}
    assert (snapshot.root, dict(cp.parts)) == (root, parts)
    assert cp.header.signature["start"] == "tally"
    assert cp.metadata == {}
    assert len(cp.snapshots) == 1


async def test_the_creator_s_objects_are_not_shared() -> None:
    signature = {"executors": {"a": "A"}}
    metadata = {"owner": "ann"}
    cp = Checkpoint.create(
        workflow_name="count", graph_signature_hash="h", signature=signature, metadata=metadata
    )
    signature["executors"]["a"] = "B"
    metadata["owner"] = "eve"
    assert cp.header.signature == {"executors": {"a": "A"}}
    assert cp.metadata == {"owner": "ann"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: s | {"extra": {}}, "'extra' is not one"),
        (lambda s: {k: v for k, v in s.items() if k != "edge_states"}, "edge_states is missing"),
        (lambda s: s | {"messages": s["messages"] | {"inbox": []}}, "'inbox' is not one"),
        (lambda s: s | {"messages": {"input": {}, "output": []}}, "pending is missing"),
        (lambda s: s | {"executor_states": [1]}, "executor_states is a mapping, not list"),
        (lambda s: list(s), "not list"),
    ],
)
async def test_r12_r13_buckets_are_exactly_these(cp: Checkpoint, change: Any, says: str) -> None:
    await cp.commit_snapshot(make_state(1))
    before = seen(cp)
    with pytest.raises(InvalidCallError, match=says):
        await cp.commit_snapshot(change(make_state(2)))
    with cp.hold("a run") as hold, pytest.raises(InvalidCallError, match=says):
        await hold.commit_snapshot(change(make_state(2)), summary=Summary("completed", "idle"))
    assert seen(cp) == before


async def test_a_value_that_cannot_be_kept_changes_nothing(cp: Checkpoint) -> None:
    await cp.commit_snapshot(make_state(1))
    before = seen(cp)
    with pytest.raises(UnregisteredTypeError, match=r"workflow_state\.shared\.lock\[1\]"):
        await cp.commit_snapshot(make_state(2, shared={"lock": [0, threading.Lock()]}))
    assert seen(cp) == before
    await cp.commit_snapshot(make_state(2))


async def test_the_status_of_an_edit_follows_what_is_pending(cp: Checkpoint) -> None:
    working = await cp.commit_snapshot(make_state(1, deliveries=[DELIVERY], requests={"r": request()}))
    assert working.status == working.state["workflow_state"]["status"] == "in_progress"
    paused = await cp.commit_snapshot(make_state(1, requests={"r": request(), "q": request()}))
    assert paused.status == paused.state["workflow_state"]["status"] == "idle_with_pending_requests"
    assert paused.manifest.requests == ("r", "q")
    done = await cp.commit_snapshot(make_state(1, status="in_progress"))
    assert done.status == done.state["workflow_state"]["status"] == "idle"


async def test_an_edit_says_for_itself_what_its_manifest_says(cp: Checkpoint) -> None:
    state = make_state(4, input_id="in-7", requests={"b": request(), "a": request()})
    with cp.hold("a run") as hold:
        found = (await hold.commit_snapshot(state)).manifest
    assert (found.boundary, found.status, found.superstep) == ("edited", "idle_with_pending_requests", 4)
    assert (found.input_id, found.requests, found.executors) == ("in-7", ("b", "a"), ())
    assert (await cp.commit_snapshot(make_state(0, input_id=None))).input_id is None


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            {"turn": 2**63},
            "workflow_state.turn must be a whole number from 0, and is int 9223372036854775808",
        ),
        (
            {"output": [output("o", 1), output("o", 1, turn=2)]},
            r"messages.output\[1\].turn is 2, but only 1 turns",
        ),
        ({"earlier": [{}]}, r"messages.input.earlier\[0\].input_id is missing"),
        (
            {"earlier": [earlier_input("in-0", 2)]},
            r"messages.input.earlier\[0\].turn is 2, but only 1 turns began",
        ),
        (
            {"deliveries": [{**DELIVERY, "request_id": "r"}]},
            r"messages.pending.deliveries\[0\].kind is missing",
        ),
        ({"executors": {"tally": (1,)}}, "executor_states.tally must be a dict .*, and is tuple"),
    ],
)
async def test_an_edit_of_another_shape_is_refused_by_path_and_changes_nothing(
    cp: Checkpoint, more: dict[str, Any], says: str
) -> None:
    await cp.commit_snapshot(make_state(1))
    before = seen(cp)
    with pytest.raises(InvalidCallError, match=says):
        await cp.commit_snapshot(make_state(2, **more))
    assert seen(cp) == before


async def test_an_edit_cannot_go_back_to_before_the_turn_of_its_input(cp: Checkpoint) -> None:
    state = make_state(2, turn=2)
    state["workflow_state"]["turn"] = 1
    with pytest.raises(InvalidCallError, match=r"messages\.input\.turn is 2, but only 1 turns began"):
        await cp.commit_snapshot(state)


async def test_a_state_that_its_maker_vouches_for_is_not_looked_into(cp: Checkpoint) -> None:
    with cp.hold("a run") as hold:
        await hold.commit_snapshot(make_state(1, output=[7]), summary=Summary("completed", "idle"))
    with pytest.raises(CorruptCheckpointError, match=r"messages.output\[0\] must be a dict"):
        cp.outputs()


async def test_without_a_state_the_move_alone_is_stored(cp: Checkpoint) -> None:
    with pytest.raises(InvalidCallError, match="empty start"):
        await cp.commit_snapshot()
    first = await cp.commit_snapshot(make_state(1), {"who": "ann"})
    await cp.commit_snapshot(make_state(2))
    cp.restart_from(first.snapshot_id)
    moved = await cp.commit_snapshot(metadata={"note": "back"})
    assert moved.parent_snapshot_id == first.snapshot_id
    assert moved.root == first.root
    assert moved.metadata == {"who": "ann", "note": "back", "boundary": "restarted"}
    if cp.checkpoint_storage is not None:
        loaded = await cp.checkpoint_storage.load(cp.checkpoint_id)
        assert loaded.head_snapshot_id == moved.snapshot_id


async def test_ids_and_times_are_injected() -> None:
    with ids.injected(ids.SequentialIds()), clock.injected(clock.SteppingClock()):
        one = new_checkpoint()
        await one.commit_snapshot(make_state(1))
    with ids.injected(ids.SequentialIds()), clock.injected(clock.SteppingClock()):
        other = new_checkpoint()
        await other.commit_snapshot(make_state(1))
    assert one.snapshots[0].to_bytes() == other.snapshots[0].to_bytes()
    assert one.snapshots[0].timestamp.isoformat() == "2026-01-01T00:00:01+00:00"


# Failures.


@pytest.mark.parametrize("error", [OSError(28, "disk full"), StorageError("down"), RuntimeError("custom")])
async def test_a_failed_commit_reaches_the_caller_and_changes_nothing(error: Exception) -> None:
    faults = Faults(TinyStorage())
    cp = new_checkpoint(faults)
    for n in range(5):
        before, stored = seen(cp), dict(faults.inner.records)
        faults.before = error
        with pytest.raises(type(error)) as caught:
            await cp.commit_snapshot(make_state(n))
        assert caught.value is error
        assert seen(cp) == before
        assert faults.inner.records == stored
        await cp.commit_snapshot(make_state(n))
    assert [found.superstep for found in cp.snapshots] == list(range(5))


async def test_a_commit_whose_reply_was_lost_is_a_success_when_it_is_in_storage() -> None:
    faults = Faults(TinyStorage())
    cp = new_checkpoint(faults)
    for number in (1, 2):
        faults.after = StorageError("connection reset")
        snapshot = await cp.commit_snapshot(make_state(number))
        assert cp.head_snapshot_id == cp.stored_head_snapshot_id == snapshot.snapshot_id
    await cp.commit_snapshot(make_state(3))
    loaded = await faults.inner.load(cp.checkpoint_id)
    assert [found.superstep for found in loaded.snapshots] == [1, 2, 3]


class Blind(Faults):
    """Storage that loses a reply and cannot be read for a while either."""

    blind = False

    async def load_head(self, checkpoint_id: str) -> StoredHead:
        if self.blind:
            raise StorageError("still down")
        return await super().load_head(checkpoint_id)

    async def load(self, checkpoint_id: str) -> Checkpoint:
        if self.blind:
            raise StorageError("still down")
        return await super().load(checkpoint_id)


async def test_refresh_settles_a_lost_reply_that_could_not_be_settled_at_once() -> None:
    faults = Blind(TinyStorage())
    cp = new_checkpoint(faults)
    first = await cp.commit_snapshot(make_state(1))
    faults.after = StorageError("connection reset")
    faults.blind = True
    with pytest.raises(StorageError, match="reset"):
        await cp.commit_snapshot(make_state(2))
    assert cp.head_snapshot_id == first.snapshot_id
    faults.blind = False
    with pytest.raises(CheckpointConflictError):
        await cp.commit_snapshot(make_state(2))
    await cp.refresh()
    assert [found.superstep for found in cp.snapshots] == [1, 2]
    await cp.commit_snapshot(make_state(3))


async def test_refresh_of_what_was_never_stored_is_the_empty_start() -> None:
    cp = new_checkpoint(TinyStorage())
    await cp.refresh()
    assert cp.head_snapshot is None
    await cp.commit_snapshot(make_state(1))


async def test_refresh_without_storage_selects_the_last_commit() -> None:
    cp = new_checkpoint()
    first = await cp.commit_snapshot(make_state(1))
    second = await cp.commit_snapshot(make_state(2))
    cp.restart_from(first.snapshot_id)
    await cp.refresh()
    assert cp.head_snapshot_id == second.snapshot_id


# Cancellation.


async def in_flight(cp: Checkpoint, faults: Faults) -> asyncio.Task[Any]:
    faults.gate = asyncio.Event()
    faults.entered.clear()
    task = asyncio.create_task(cp.commit_snapshot(make_state(7)))
    await faults.entered.wait()
    return task


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_cancelled_commit_waits_until_it_has_landed() -> None:
    faults = Faults(TinyStorage())
    cp = new_checkpoint(faults)
    task = await in_flight(cp, faults)
    task.cancel("first")
    await turns()
    task.cancel("second")
    await turns()
    assert not task.done()
    assert cp.in_use_by == "commit_snapshot()"
    assert cp.snapshots == []
    assert faults.gate is not None
    faults.gate.set()
    with pytest.raises(asyncio.CancelledError, match="first"):
        await task
    assert [found.superstep for found in cp.snapshots] == [7]
    assert cp.head_snapshot_id == faults.inner.records[cp.checkpoint_id].head
    assert cp.in_use_by is None
    await cp.commit_snapshot(make_state(8))


async def test_a_cancelled_commit_that_fails_changes_nothing_and_says_why() -> None:
    faults = Faults(TinyStorage())
    cp = new_checkpoint(faults)
    task = await in_flight(cp, faults)
    error = OSError("disk full")
    faults.before = error
    task.cancel()
    await turns()
    assert faults.gate is not None
    faults.gate.set()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert caught.value.__cause__ is error
    assert cp.snapshots == []
    assert cp.in_use_by is None
    faults.gate = None
    await cp.commit_snapshot(make_state(8))


async def test_a_timeout_around_a_commit_is_still_a_timeout() -> None:
    faults = Faults(TinyStorage())
    cp = new_checkpoint(faults)
    faults.gate = asyncio.Event()

    async def commit() -> None:
        async with asyncio.timeout(0):
            await cp.commit_snapshot(make_state(1))

    task = asyncio.create_task(commit())
    await faults.entered.wait()
    await turns()
    faults.gate.set()
    with pytest.raises(TimeoutError):
        await task
    assert len(cp.snapshots) == 1


async def test_a_hold_released_over_a_commit_in_flight_frees_it_when_it_has_landed() -> None:
    faults = Faults(TinyStorage())
    cp = new_checkpoint(faults)
    faults.gate = asyncio.Event()
    hold = cp.hold("a run")
    task = asyncio.create_task(hold.commit_snapshot(make_state(1)))
    await faults.entered.wait()
    hold.release()
    with pytest.raises(CheckpointInUseError, match="still in flight"):
        cp.restart_from(None)
    waiting = asyncio.create_task(cp.take_hold("the next", grace=60))
    await turns()
    assert not waiting.done()
    faults.gate.set()
    await task
    next_hold = await waiting
    assert len(cp.snapshots) == 1
    next_hold.release()


async def test_a_storage_call_cancelled_from_inside_is_no_cancellation_of_the_caller() -> None:
    faults = Faults(TinyStorage())
    cp = new_checkpoint(faults)
    faults.before = asyncio.CancelledError()
    with pytest.raises(StorageError, match="refresh"):
        await cp.commit_snapshot(make_state(1))
    assert cp.in_use_by is None
    await cp.commit_snapshot(make_state(1))


async def test_a_storage_call_cancelled_before_it_began_frees_the_checkpoint() -> None:
    storage = TinyStorage()
    cp = new_checkpoint(storage)
    committing = asyncio.create_task(cp.commit_snapshot(make_state(1)))
    await asyncio.sleep(0)
    (call,) = (task for task in asyncio.all_tasks() if task.get_name().startswith("the commit of"))
    call.cancel()
    with pytest.raises(StorageError, match="refresh"):
        await committing
    assert storage.calls == []
    assert cp.in_use_by is None
    await cp.commit_snapshot(make_state(1))


def test_a_loop_that_ends_over_a_commit_in_flight_leaves_the_checkpoint_usable() -> None:
    faults = Faults(TinyStorage())
    cp = new_checkpoint(faults)

    async def begin() -> None:
        await in_flight(cp, faults)

    asyncio.run(begin())
    assert cp.snapshots == []
    faults.gate = None
    asyncio.run(cp.commit_snapshot(make_state(1)))
    assert len(cp.snapshots) == 1


async def test_while_a_run_holds_it_others_only_read_and_fork() -> None:
    cp = new_checkpoint(TinyStorage())
    first = await cp.commit_snapshot(make_state(1, requests={"r": request()}))
    with cp.hold("a run"):
        before = seen(cp)
        for call in (cp.commit_snapshot, cp.refresh, cp.prune, cp.abandon):
            with pytest.raises(CheckpointInUseError, match="a run"):
                await call()
        with pytest.raises(CheckpointInUseError, match="a run"):
            cp.restart_from(first.snapshot_id)
        assert seen(cp) == before
        assert cp.status == "idle_with_pending_requests"
        assert first.state["messages"]["input"]["value"] == "go"
        assert (await cp.fork()).snapshots[0].root == first.root
