"""Going back and going on: the requirements R20 to R23 over whole runs."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from branchpoint import (
    Checkpoint,
    CheckpointConflictError,
    CheckpointInUseError,
    Executor,
    SnapshotNotFoundError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    state,
)
from tests.scenario.kit import (
    Ask,
    Join,
    Outside,
    Place,
    Step,
    Ticks,
    boundaries,
    bytes_of,
    chain,
    every_file,
    every_place,
    every_storage,
    file_bytes,
    in_new_process,
    lineage,
    only_request,
    place_of,
    reached,
    shared,
)


class Gate(Outside):
    def __init__(self) -> None:
        self.closed = False
        self.entered = asyncio.Event()
        self.let = asyncio.Event()


class Counts(Executor):
    """Counts every lap in each kind of state, and yields what it counted after as many laps as asked."""

    laps: list[int] = state(factory=list)

    def __init__(self, id: str, ticks: Ticks, gate: Gate) -> None:
        super().__init__(id=id)
        self.ticks = ticks
        self.gate = gate

    @handler
    async def on_left(self, left: int, ctx: WorkflowContext[int, Any]) -> None:
        self.ticks(self.id)
        if self.gate.closed:
            self.gate.entered.set()
            await self.gate.let.wait()
        self.laps.append(left)
        ctx.update_state("n", lambda n: (n or 0) + 1)
        if left:
            await ctx.send_message(left - 1)
        else:
            await ctx.yield_output((self.laps, ctx.get_state("n")))


def laps(ticks: Ticks | None = None, gate: Gate | None = None) -> Workflow:
    start = Counts("x", ticks or Ticks(), gate or Gate())
    return WorkflowBuilder(name="laps", start_executor=start).add_edge(start, start).build()


def ids(checkpoint: Checkpoint) -> list[str]:
    return [one.snapshot_id for one in checkpoint.snapshots]


# R20.


@every_place
async def test_r20_it_moves_the_head_in_memory_and_deletes_nothing(place: Place, tmp_path: Path) -> None:
    assert not inspect.iscoroutinefunction(Checkpoint.restart_from)
    workflow = laps()
    cp = place.create(workflow)
    await workflow.run(3, checkpoint=cp)
    before, files, tip = bytes_of(cp), file_bytes(tmp_path), cp.head_snapshot_id
    for one in [*cp.snapshots, *reversed(cp.snapshots)]:
        cp.restart_from(one.snapshot_id)
        assert cp.head_snapshot_id == one.snapshot_id
        assert cp.head_snapshot is one
        assert cp.status == one.status
        assert cp.stored_head_snapshot_id == tip
        assert [record.value for record in cp.outputs()] == [
            tuple(record["value"]) for record in one.state["messages"]["output"]
        ]
    assert (bytes_of(cp), file_bytes(tmp_path)) == (before, files)
    if place.is_stored:
        loaded = await place.reload()
        assert (loaded.head_snapshot_id, bytes_of(loaded)) == (tip, before)


@every_place
async def test_r20_it_takes_only_a_snapshot_of_this_checkpoint(place: Place) -> None:
    workflow = laps()
    cp, other = place.create(workflow, "one"), place.create(workflow, "two")
    await workflow.run(1, checkpoint=cp)
    await workflow.run(1, checkpoint=other)
    head = cp.head_snapshot_id
    for foreign in ids(other):
        with pytest.raises(SnapshotNotFoundError):
            cp.restart_from(foreign)
        assert cp.head_snapshot_id == head


@every_place
async def test_r20_it_is_refused_while_a_run_is_active_and_allowed_right_after(
    place: Place, ticks: Ticks
) -> None:
    gate = Gate()
    workflow = laps(ticks, gate)
    cp = place.create(workflow)
    await workflow.run(1, checkpoint=cp)
    gate.closed = True
    for stream in (False, True):
        gate.entered.clear()
        running: Any = workflow.run(1, checkpoint=cp, stream=stream)
        task = asyncio.create_task(running.get_final_response() if stream else as_coroutine(running))
        await reached(gate.entered, task)
        head = cp.head_snapshot_id
        for target in (*ids(cp), None):
            with pytest.raises(CheckpointInUseError):
                cp.restart_from(target)
        assert cp.head_snapshot_id == head
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        cp.restart_from(ids(cp)[2])
        assert cp.status == "idle"


async def as_coroutine(running: Any) -> Any:
    return await running


# R21.


@every_place
@pytest.mark.parametrize("reload", [False, True])
@pytest.mark.parametrize("point", [0, 1, 2, 3])
async def test_r21_the_next_run_starts_from_the_selected_snapshot_alone(
    place: Place, point: int, reload: bool
) -> None:
    workflow = laps()
    cp = place.create(workflow)
    await workflow.run(3, checkpoint=cp)
    first = ids(cp)
    assert len(first) == 5
    # Every branch ends as the uninterrupted run did, whatever happened on the others.
    for _ in range(3):
        if reload:
            cp = await place.reload()
        before = bytes_of(cp)
        cp.restart_from(first[point])
        result = await workflow.run(checkpoint=cp)
        assert result.get_outputs() == [([3, 2, 1, 0], 4)]
        new = [one for one in lineage(cp) if one[0] not in before]
        assert [parent for _, parent in new] == [first[point], *[one for one, _ in new[:-1]]]
        assert boundaries(cp)[-len(new)] == "restarted"
        assert len(new) == 5 - point
        assert {key: data for key, data in bytes_of(cp).items() if key in before} == before
        assert cp.head_snapshot.state["workflow_state"]["iteration_count"] == 4
    assert len(cp.snapshots) == 5 + 3 * (5 - point)


@every_place
async def test_r21_a_message_after_a_rewind_sees_the_selected_state_alone(place: Place) -> None:
    workflow = laps()
    cp = place.create(workflow)
    tips = []
    for _ in range(3):
        await workflow.run(0, checkpoint=cp)
        tips.append(cp.head_snapshot_id)
    for n in (1, 2, 1):
        cp.restart_from(tips[n - 1])
        result = await workflow.run(0, checkpoint=cp)
        assert result.get_outputs() == [([0] * (n + 1), n + 1)]
        entered = cp.snapshots[-2]
        assert (entered.boundary, entered.parent_snapshot_id) == ("input_accepted", tips[n - 1])
    cp.restart_from(tips[2])
    assert shared(cp.head_snapshot) == {"n": 3}
    assert (await workflow.run(0, checkpoint=cp)).get_outputs() == [([0] * 4, 4)]


@every_place
async def test_r21_a_half_filled_join_and_open_questions_are_those_of_the_selected_snapshot(
    place: Place, ticks: Ticks
) -> None:
    src, b, ask, j = Step("src"), Step("b"), Ask("ask", ticks), Join("j", ticks)
    builder = WorkflowBuilder(name="w", start_executor=src).add_fan_out_edges(src, [b, ask])
    workflow = builder.add_fan_in_edges([b, ask], j).build()
    cp = place.create(workflow)
    await workflow.run("t", checkpoint=cp)
    entered, before, paused = ids(cp)
    request_id = only_request(cp)
    await workflow.run(responses={request_id: "one"}, checkpoint=cp)
    for point, asked in ((paused, 1), (before, 2), (paused, 2), (entered, 3)):
        cp.restart_from(point)
        await workflow.run(checkpoint=cp)
        assert ticks["ask"] == asked
        result = await workflow.run(responses={only_request(cp): "two"}, checkpoint=cp)
        assert result.get_outputs() == [["t>src>b", "t>src>ask=two"]]
        assert cp.head_snapshot.state["edge_states"] == {}
    assert ticks["j"] == 5


@every_place
async def test_r21_only_a_prune_removes_what_is_not_on_the_way(place: Place) -> None:
    workflow = laps()
    cp = place.create(workflow)
    await workflow.run(2, checkpoint=cp)
    cp.restart_from(ids(cp)[1])
    await workflow.run(checkpoint=cp)
    known = ids(cp)
    cp = await place.reload()
    assert ids(cp) == known
    removed = await cp.prune(keep=[one.snapshot_id for one in cp.ancestors()])
    assert [one.snapshot_id for one in removed] == known[2:4]
    cp = await place.reload()
    assert ids(cp) == [*known[:2], *known[4:]]
    with pytest.raises(SnapshotNotFoundError):
        cp.restart_from(known[3])
    cp.restart_from(known[0])
    assert (await workflow.run(checkpoint=cp)).get_outputs() == [([2, 1, 0], 3)]


# R22.


async def look(kind: str, folder: str) -> dict[str, Any]:
    """In another process: what a loaded checkpoint shows, then a run from every snapshot it holds."""
    place = place_of(kind, Path(folder))
    cp = await place.reload()
    told: dict[str, Any] = {
        "head": cp.head_snapshot_id,
        "stored": cp.stored_head_snapshot_id,
        "lineage": lineage(cp),
        "boundaries": boundaries(cp),
        "digests": [one.root for one in cp.snapshots],
    }
    outputs = []
    for one in cp.snapshots:
        cp.restart_from(one.snapshot_id)
        result = await laps().run(checkpoint=cp)
        outputs.append(result.get_outputs())
    return {**told, "outputs": outputs, "last": cp.head_snapshot_id}


@every_storage
async def test_r22_a_loaded_checkpoint_shows_its_head_and_every_branch_and_any_can_be_selected(
    place: Place, tmp_path: Path
) -> None:
    workflow = laps()
    cp = place.create(workflow)
    await workflow.run(2, checkpoint=cp)
    for point in (1, 0):
        cp.restart_from(ids(cp)[point])
        await workflow.run(checkpoint=cp)
    cp.restart_from(ids(cp)[3])  # in memory alone
    stored = {
        "head": cp.stored_head_snapshot_id,
        "stored": cp.stored_head_snapshot_id,
        "lineage": [list(one) for one in lineage(cp)],
        "boundaries": boundaries(cp),
        "digests": [one.root for one in cp.snapshots],
    }
    known = len(cp.snapshots)
    if place.kind == "memory":
        loaded = await place.reload()
        assert bytes_of(loaded) == bytes_of(cp)
        assert loaded.head_snapshot_id == stored["head"]
        for one in loaded.snapshots:
            loaded.restart_from(one.snapshot_id)
            assert (await workflow.run(checkpoint=loaded)).get_outputs() == [([2, 1, 0], 3)]
        return
    told = in_new_process(look, place.kind, str(tmp_path))
    assert {key: told[key] for key in stored} == stored
    assert told["outputs"] == [[[[2, 1, 0], 3]]] * known
    after = await place.reload()
    assert bytes_of(after).items() >= bytes_of(cp).items()
    assert after.stored_head_snapshot_id == after.snapshots[-1].snapshot_id


# R23.


async def advance(kind: str, folder: str) -> str:
    cp = await place_of(kind, Path(folder)).reload()
    await laps().run(5, checkpoint=cp, max_supersteps=1)
    assert cp.head_snapshot_id is not None
    return cp.head_snapshot_id


@every_file
@pytest.mark.parametrize("call", ["run(message)", "run()", "run() of unfinished work"])
async def test_r23_a_second_writer_in_another_process_conflicts_before_the_first_handler(
    place: Place, tmp_path: Path, ticks: Ticks, call: str
) -> None:
    workflow = laps(ticks)
    cp = place.create(workflow)
    await workflow.run(3, checkpoint=cp)
    if call == "run() of unfinished work":
        await workflow.run(3, checkpoint=cp, max_supersteps=1)
        in_new_process(finish, place.kind, str(tmp_path))
    else:
        cp.restart_from(ids(cp)[4 if call == "run(message)" else 1])
        in_new_process(advance, place.kind, str(tmp_path))
    counted, files, known, head = ticks.all(), file_bytes(tmp_path), bytes_of(cp), cp.head_snapshot_id
    arguments: Any = (3,) if call == "run(message)" else ()
    for stream in (False, True):
        running: Any = workflow.run(*arguments, checkpoint=cp, stream=stream)
        with pytest.raises(CheckpointConflictError, match="run-1"):
            await (running.get_final_response() if stream else running)
        assert (ticks.all(), file_bytes(tmp_path)) == (counted, files)
        assert (bytes_of(cp), cp.head_snapshot_id) == (known, head)
        assert cp.in_use_by is None
    await cp.refresh()
    assert bytes_of(cp) == bytes_of(await place.reload())


async def finish(kind: str, folder: str) -> None:
    await laps().run(checkpoint=await place_of(kind, Path(folder)).reload())


def asking(ticks: Ticks | None = None) -> Workflow:
    return chain(Ask("ask", ticks), Step("fin", ticks, final=True))


async def answer(kind: str, folder: str) -> None:
    cp = await place_of(kind, Path(folder)).reload()
    await asking().run(responses={only_request(cp): "first"}, checkpoint=cp)


@every_file
async def test_r23_so_does_a_second_answer(place: Place, tmp_path: Path, ticks: Ticks) -> None:
    workflow = asking(ticks)
    cp = place.create(workflow)
    await workflow.run("t", checkpoint=cp)
    in_new_process(answer, place.kind, str(tmp_path))
    files = file_bytes(tmp_path)
    with pytest.raises(CheckpointConflictError):
        await workflow.run(responses={only_request(cp): "second"}, checkpoint=cp)
    assert ticks.all() == {"ask": 1}
    assert file_bytes(tmp_path) == files
    await cp.refresh()
    assert (await workflow.run(checkpoint=cp)).get_outputs() == ["t>ask=first>fin"]


@every_storage
async def test_r23_the_head_compared_is_the_one_last_seen_in_storage(place: Place) -> None:
    workflow = laps()
    cp = place.create(workflow)
    await workflow.run(3, checkpoint=cp)
    one, two = await place.reload(), await place.reload()
    first = ids(cp)
    one.restart_from(first[1])
    two.restart_from(first[1])
    assert one.stored_head_snapshot_id == two.stored_head_snapshot_id == first[4]
    # The same parent is chosen twice; only the second writer is stale.
    await workflow.run(checkpoint=one)
    with pytest.raises(CheckpointConflictError):
        await workflow.run(checkpoint=two)
    loaded = await place.reload()
    assert bytes_of(loaded) == bytes_of(one)
    children = [child for child, parent in lineage(loaded) if parent == first[1]]
    assert len(children) == 2, "the first branch and the one that won"
    # The winner goes on rewinding and running without ever reading storage again.
    for point in (0, 2, 3):
        one.restart_from(first[point])
        assert (await workflow.run(checkpoint=one)).get_outputs() == [([3, 2, 1, 0], 4)]
    assert (await place.reload()).head_snapshot_id == one.head_snapshot_id
