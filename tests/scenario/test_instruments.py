"""What instruments are told of runs, commits, loads and builds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from branchpoint import (
    CheckpointInUseError,
    CheckpointNotFoundError,
    DefinitionError,
    FileCheckpointStorage,
    GraphConnectivityError,
    InvalidCallError,
    MemoryCheckpointStorage,
    StorageError,
    Workflow,
    WorkflowBuilder,
)
from tests.instruments import Recorder, attached
from tests.scenario.kit import (
    Around,
    Ask,
    Boom,
    BoomOnce,
    Join,
    LoopTime,
    Place,
    Scripted,
    Step,
    Ticks,
    chain,
    every_place,
    every_storage,
    fan,
    only_request,
    reached,
    turns,
)
from tests.scenario.leaving import Way, every_way

FIRST_CALL = [
    "run",
    "  commit input_accepted 0",
    "  superstep 1",
    "    executor s 1",
    "  commit superstep_completed 1",
    "  superstep 2",
    "    executor a 2",
    "    executor b 2",
    "  commit paused 2",
]
SECOND_CALL = [
    "run",
    "  commit responses_accepted 2",
    "  superstep 3",
    "    executor a 3",
    "  commit superstep_completed 3",
    "  superstep 4",
    "    executor j 4",
    "  commit completed 4",
]


def asking(ticks: Ticks) -> Workflow:
    """A fan-out, one of whose branches asks."""
    return fan(Step("s", ticks), [Ask("a", ticks), Step("b", ticks)], Join("j", ticks))


# What is told.


@every_place
@every_way
async def test_blocks_are_nested_and_say_what_they_are_about(place: Place, ticks: Ticks, way: Way) -> None:
    workflow = asking(ticks)
    checkpoint = place.create(workflow)
    told, streams = Recorder(), way.__name__ != "awaited"
    with attached(told):
        await way(workflow, message="x", checkpoint=checkpoint, input_id="in-1")
        assert told.outline() == FIRST_CALL
        (run,) = told.of("run")
        assert run.before == {
            "workflow_name": "fan",
            "checkpoint_id": "run-1",
            "input_id": "in-1",
            "stream": streams,
            "status": None,
        }
        assert run.after == {**run.before, "status": "idle_with_pending_requests"}
        told.clear()

        checkpoint = await place.reload()
        assert told.outline() == (["load"] if place.is_stored else [])
        for load in told.of("load"):
            assert load.before["checkpoint_id"] == "run-1" and load.before["head_snapshot_id"] is None
            assert load.before["storage"] == type(checkpoint._history.storage).__name__
            assert load.after == {**load.before, "head_snapshot_id": checkpoint.head_snapshot_id}
        told.clear()

        await way(workflow, responses={only_request(checkpoint): "yes"}, checkpoint=checkpoint)
        assert told.outline() == SECOND_CALL
        (run,) = told.of("run")
        assert run.before["input_id"] is None and run.after is not None
        assert run.after["input_id"] == checkpoint.snapshots[-1].manifest.input_id
        assert run.after["status"] == "idle"
        told.check_balanced()

    after = checkpoint.snapshots[3:]
    for commit, snapshot in zip(told.of("commit"), after, strict=True):
        assert commit.before == {
            "checkpoint_id": "run-1",
            "boundary": snapshot.boundary,
            "superstep": snapshot.superstep,
            "parent_snapshot_id": snapshot.parent_snapshot_id,
            "snapshot_id": None,
        }
        assert commit.after == {**commit.before, "snapshot_id": snapshot.snapshot_id}
    for superstep, snapshot in zip(told.of("superstep"), after, strict=False):
        assert superstep.before == superstep.after
        assert superstep.before == {
            "checkpoint_id": "run-1",
            "superstep": snapshot.superstep + 1,
            "parent_snapshot_id": snapshot.snapshot_id,
        }
    first = told.of("executor")[0]
    assert first.before == first.after == {"checkpoint_id": "run-1", "executor_id": "a", "superstep": 3}
    assert all(block.error is None for block in told.blocks)


async def test_a_block_is_entered_in_the_task_that_does_the_work(ticks: Ticks) -> None:
    tasks: dict[str, asyncio.Task[Any] | None] = {}

    async def does(text: str, ctx: Any) -> None:
        tasks["handler"] = asyncio.current_task()

    told = Recorder()
    with attached(told):
        await chain(Scripted("a", ticks, does, final=True)).run("x")
    build, run, superstep, worker = told.blocks
    assert build.task is asyncio.current_task()
    assert worker.task is tasks["handler"]
    assert run.task is superstep.task not in (build.task, worker.task)


async def test_a_run_without_a_checkpoint_commits_nothing(ticks: Ticks) -> None:
    told = Recorder()
    workflow = chain(Step("a", ticks), Step("b", ticks, final=True))
    with attached(told):
        result = await workflow.run("x")
    assert told.outline() == ["run", "  superstep 1", "    executor a 1", "  superstep 2", "    executor b 2"]
    run, superstep, worker = told.blocks[:3]
    assert run.after == {
        "workflow_name": "chain",
        "checkpoint_id": None,
        "input_id": result[-1].input_id,
        "stream": False,
        "status": "idle",
    }
    assert superstep.after == {"checkpoint_id": None, "superstep": 1, "parent_snapshot_id": None}
    assert worker.after == {"checkpoint_id": None, "executor_id": "a", "superstep": 1}


@every_storage
async def test_a_failure_is_seen_by_all_it_passes_as_it_is(place: Place, ticks: Ticks) -> None:
    async def waits(text: str, ctx: Any) -> None:
        if ticks["c"] == 1:
            await asyncio.Event().wait()

    workflow = fan(Step("s", ticks), [BoomOnce("b", ticks), Scripted("c", ticks, waits)], Join("j", ticks))
    checkpoint = place.create(workflow)
    told = Recorder()
    with attached(told):
        with pytest.raises(Boom) as caught:
            await workflow.run("x", checkpoint=checkpoint)
        told.check_balanced()
        assert told.outline()[-3:] == ["  superstep 2", "    executor b 2", "    executor c 2"]
        run = told.blocks[0]
        superstep, b, c = told.blocks[-3:]
        assert run.error is superstep.error is b.error is caught.value
        assert isinstance(c.error, asyncio.CancelledError)
        assert run.after is not None and run.after["status"] == "failed"
        told.clear()
        await workflow.run(checkpoint=checkpoint)
        assert told.outline()[1:4] == ["  superstep 2", "    executor b 2", "    executor c 2"]
        assert {repr(block.error) for block in told.blocks} == {"None"}


@every_way
async def test_a_cancellation_is_seen_by_all_it_passes(ticks: Ticks, way: Way) -> None:
    entered = asyncio.Event()

    async def waits(text: str, ctx: Any) -> None:
        entered.set()
        await asyncio.Event().wait()

    workflow = chain(Step("a", ticks), Scripted("b", ticks, waits))
    checkpoint = workflow.create_checkpoint()
    told = Recorder()
    with attached(told):
        task = asyncio.ensure_future(way(workflow, message="x", checkpoint=checkpoint))
        await reached(entered, task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    told.check_balanced()
    run, *_, superstep, worker = told.blocks
    assert (run.kind, superstep.kind, worker.kind) == ("run", "superstep", "executor")
    assert run.after is not None and run.after["status"] == "cancelled"
    assert {type(block.error) for block in (run, superstep, worker)} == {asyncio.CancelledError}


async def test_an_abandoned_handler_leaves_its_block_when_it_ends(
    ticks: Ticks, caplog: pytest.LogCaptureFixture
) -> None:
    time, entered, swallowed, let = LoopTime(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def swallows(text: str, ctx: Any) -> None:
        entered.set()
        while not let.is_set():
            try:
                await let.wait()
            except asyncio.CancelledError:
                swallowed.set()

    workflow = chain(Scripted("a", ticks, swallows, final=True))
    told = Recorder()
    with attached(told):
        task = asyncio.ensure_future(workflow.run("x"))
        await reached(entered, task)
        task.cancel()
        await reached(swallowed, task)
        time.forward(100)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [repr(block) for block in told.left] == ["superstep 1", "run"]
    let.set()  # it is left also when the instrument is gone meanwhile
    await turns()
    assert [repr(block) for block in told.left] == ["superstep 1", "run", "executor a 1"]
    assert "was abandoned" in caplog.text


# Commits that fail, are cancelled, or are made outside of a run.


async def test_a_commit_that_fails_has_no_snapshot(ticks: Ticks) -> None:
    def fails(number: int) -> None:
        if number == 2:
            raise StorageError("no space left")

    workflow = chain(Step("a", ticks), Step("b", ticks, final=True))
    checkpoint = workflow.create_checkpoint("run-1", Around(MemoryCheckpointStorage(), before=fails))
    told = Recorder()
    with attached(told), pytest.raises(StorageError) as caught:
        await workflow.run("x", checkpoint=checkpoint)
    told.check_balanced()
    run, failed = told.of("run")[0], told.of("commit")[-1]
    assert failed.error is run.error is caught.value
    assert failed.after == failed.before and failed.before["boundary"] == "superstep_completed"
    assert run.after is not None and run.after["status"] == "failed"


async def test_a_commit_whose_reply_was_lost_has_one(ticks: Ticks) -> None:
    def loses(number: int) -> None:
        raise StorageError("no reply")

    workflow = chain(Step("a", ticks, final=True))
    checkpoint = workflow.create_checkpoint("run-1", Around(MemoryCheckpointStorage(), after=loses))
    told = Recorder()
    with attached(told):
        await workflow.run("x", checkpoint=checkpoint)
    assert [block.after and block.after["snapshot_id"] for block in told.of("commit")] == [
        snapshot.snapshot_id for snapshot in checkpoint.snapshots
    ]


async def test_a_commit_that_lands_after_a_cancellation_has_one(ticks: Ticks) -> None:
    waits, gate = asyncio.Event(), asyncio.Event()

    async def before(number: int) -> None:
        waits.set()
        await gate.wait()

    workflow = chain(Step("a", ticks, final=True))
    checkpoint = workflow.create_checkpoint("run-1", Around(MemoryCheckpointStorage(), before=before))
    told = Recorder()
    with attached(told):
        task = asyncio.ensure_future(workflow.run("x", checkpoint=checkpoint))
        await reached(waits, task)
        task.cancel()
        await turns()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    (commit,) = told.of("commit")
    assert isinstance(commit.error, asyncio.CancelledError)
    assert commit.after is not None and commit.after["snapshot_id"] == checkpoint.head_snapshot_id
    assert len(checkpoint.snapshots) == 1
    assert checkpoint.status == "in_progress"


@every_place
async def test_commits_outside_of_a_run_are_told_too(place: Place, ticks: Ticks) -> None:
    workflow = chain(Step("a", ticks), Step("b", ticks, final=True))
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    first, middle, last = checkpoint.snapshots
    told = Recorder()

    def commit() -> dict[str, Any]:
        (block,) = told.of("commit")
        told.clear()
        assert block.outer is None and block.after is not None
        return block.after

    with attached(told):
        checkpoint.restart_from(middle.snapshot_id)
        again = await checkpoint.commit_snapshot()
        assert commit() == {
            "checkpoint_id": "run-1",
            "boundary": "restarted",
            "superstep": 1,
            "parent_snapshot_id": middle.snapshot_id,
            "snapshot_id": again.snapshot_id,
        }
        given_up = await checkpoint.abandon()
        assert commit() == {
            "checkpoint_id": "run-1",
            "boundary": "abandoned",
            "superstep": 1,
            "parent_snapshot_id": again.snapshot_id,
            "snapshot_id": given_up.snapshot_id,
        }
        edited = await checkpoint.commit_snapshot(last.state)
        assert commit() == {
            "checkpoint_id": "run-1",
            "boundary": "edited",
            "superstep": 2,
            "parent_snapshot_id": given_up.snapshot_id,
            "snapshot_id": edited.snapshot_id,
        }
        forked = await checkpoint.fork(first.snapshot_id, "fork-1")
        assert commit() == {
            "checkpoint_id": "fork-1",
            "boundary": "forked",
            "superstep": 0,
            "parent_snapshot_id": None,
            "snapshot_id": forked.head_snapshot_id,
        }
        with pytest.raises(InvalidCallError):
            await checkpoint.commit_snapshot({"no": "state"})
        refused = commit()
        assert (refused["boundary"], refused["superstep"], refused["snapshot_id"]) == ("edited", None, None)
        with pytest.raises(InvalidCallError):
            await place.create(workflow, "empty").commit_snapshot()
        assert commit()["superstep"] is None


async def test_refused_calls_and_what_runs_nothing(ticks: Ticks) -> None:
    entered, gate = asyncio.Event(), asyncio.Event()

    async def waits(text: str, ctx: Any) -> None:
        entered.set()
        await gate.wait()

    workflow = chain(Scripted("a", ticks, waits, final=True))
    checkpoint = workflow.create_checkpoint()
    told = Recorder()
    with attached(told):
        with pytest.raises(InvalidCallError) as caught:
            await workflow.run(checkpoint=checkpoint)
        assert told.outline() == ["run"] and told.blocks[0].error is caught.value
        assert told.blocks[0].after is not None and told.blocks[0].after["status"] == "failed"
        told.clear()
        task = asyncio.ensure_future(workflow.run("x", checkpoint=checkpoint))
        await reached(entered, task)
        before = list(told.blocks)
        with pytest.raises(CheckpointInUseError):
            await workflow.run("y", checkpoint=checkpoint)  # another run has it: this one never began
        assert told.blocks == before
        gate.set()
        result = await task
        told.clear()
        assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == result.get_outputs()
        assert told.outline() == ["run"]
        assert told.blocks[0].after is not None and told.blocks[0].after["status"] == "idle"


# Loads and builds.


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_a_load_says_what_it_found(kind: str, tmp_path: Path, ticks: Ticks) -> None:
    class Mine(FileCheckpointStorage):
        pass

    storage = MemoryCheckpointStorage() if kind == "memory" else Mine(tmp_path)
    workflow = chain(Step("a", ticks, final=True))
    checkpoint = workflow.create_checkpoint("run-1", storage)
    await workflow.run("x", checkpoint=checkpoint)
    told = Recorder()
    with attached(told):
        await storage.load("run-1")
        await checkpoint.refresh()
        with pytest.raises(CheckpointNotFoundError) as caught:
            await storage.load("run-2")
    told.check_balanced()
    name = "MemoryCheckpointStorage" if kind == "memory" else "Mine"
    head = checkpoint.head_snapshot_id
    assert [block.after for block in told.blocks] == [
        {"checkpoint_id": "run-1", "storage": name, "head_snapshot_id": head},
        {"checkpoint_id": "run-1", "storage": name, "head_snapshot_id": head},
        {"checkpoint_id": "run-2", "storage": name, "head_snapshot_id": None},
    ]
    assert [block.error for block in told.blocks] == [None, None, caught.value]


def test_a_build_says_what_it_made(ticks: Ticks) -> None:
    told = Recorder()
    with attached(told):
        workflow = chain(Step("a", ticks), Step("b", ticks))
        lonely = WorkflowBuilder(start_executor=Step("a", ticks)).add_edge(Step("b", ticks), Step("c", ticks))
        with pytest.raises(GraphConnectivityError) as caught:
            lonely.build()
        with pytest.raises(DefinitionError):
            WorkflowBuilder(name="", start_executor=Step("a", ticks))  # it came to no build
    made, failed = told.blocks
    assert made.before == {"workflow_name": "chain", "graph_signature_hash": None}
    assert made.after == {"workflow_name": "chain", "graph_signature_hash": workflow.graph_signature_hash}
    assert failed.after == {"workflow_name": None, "graph_signature_hash": None}
    assert failed.error is caught.value
