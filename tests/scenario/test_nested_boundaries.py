"""Boundaries inside of a child: what is in their snapshots, and what a failure, a crash or a rewind there costs."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from branchpoint import (
    Checkpoint,
    CorruptCheckpointError,
    Executor,
    FileCheckpointStorage,
    GraphMismatchError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    append,
    handler,
)
from branchpoint.testing.samples import request
from tests.scenario.kit import (
    Around,
    Boom,
    BoomOnce,
    Join,
    Place,
    Scripted,
    Step,
    Talking,
    Ticks,
    boundaries,
    chain,
    every_place,
    every_storage,
    in_new_process,
    listen,
    pending,
    reached,
    say,
)
from tests.scenario.nests import around, behind, inside, lawful, nested

every_depth = pytest.mark.parametrize("depth", [1, 2, 3])


def row(ticks: Ticks, *ids: str, name: str = "child") -> Workflow:
    """A row of steps, the last one final."""
    return chain(*[Step(id, ticks, final=id == ids[-1]) for id in ids], name=name)


# What is committed.


@every_place
async def test_r51_each_superstep_of_a_child_is_a_boundary(place: Place, ticks: Ticks) -> None:
    workflow = nested(row(ticks, "a", "b", "c"), ticks)
    checkpoint = place.create(workflow)
    assert (await workflow.run("x", checkpoint=checkpoint)).get_outputs() == [behind("x>a>b>c")]
    # The last boundary of the child is the parent's.
    inner = ["child_superstep_completed"] * 2
    assert boundaries(checkpoint) == ["input_accepted", *inner, "superstep_completed", "completed"]
    accepted, first, second, after, _ = checkpoint.snapshots
    assert [one.superstep for one in (accepted, first, second, after)] == [0, 0, 0, 1]
    assert pending(first) == pending(second) == pending(accepted)
    checkpoint.restart_from(second.snapshot_id)
    assert inside(checkpoint, "kid")["workflow_state"]["iteration_count"] == 2
    (waiting,) = inside(checkpoint, "kid")["messages"]["pending"]["deliveries"]
    assert (waiting["value"], waiting["targets"]) == ("x>a>b", ["c"])
    await lawful(place, checkpoint)


@every_storage
async def test_r51_a_child_has_no_checkpoint_of_its_own(place: Place, ticks: Ticks) -> None:
    workflow = nested(row(ticks, "a", "b"), ticks, 3)
    await workflow.run("x", checkpoint=place.create(workflow))
    storage: Any = place.open()
    assert [one.checkpoint_id for one in await storage.list_checkpoints()] == ["run-1"]


@every_place
async def test_r51_a_boundary_inside_holds_nothing_of_the_siblings(place: Place, ticks: Ticks) -> None:
    kid = WorkflowExecutor(chain(Step("a", ticks), BoomOnce("b", ticks, final=True), name="child"), "kid")
    source, sibling = Step("src", ticks), Step("sib", ticks)
    builder = WorkflowBuilder(name="parent", start_executor=source)
    join = Join("join", ticks)
    workflow = (
        builder.add_fan_out_edges(source, [kid, sibling]).add_fan_in_edges([kid, sibling], join).build()
    )
    checkpoint = place.create(workflow)
    with pytest.raises(Boom):
        await workflow.run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    assert boundaries(checkpoint)[-1] == "child_superstep_completed"
    assert checkpoint.head_snapshot is not None
    assert checkpoint.head_snapshot.state["edge_states"] == {}
    result = await workflow.run(checkpoint=checkpoint)
    assert result.get_outputs() == [["x>src>a>b", "x>src>sib"]]
    assert ticks.all() == {"src": 1, "a": 1, "b": 2, "sib": 2, "join": 1}
    await lawful(place, checkpoint)


# Failures and crashes.


@every_place
@every_depth
async def test_r51_a_failure_inside_costs_one_superstep_of_the_child(
    place: Place, ticks: Ticks, depth: int
) -> None:
    steps = [Step("a", ticks), Step("b", ticks), BoomOnce("c", ticks), Step("d", ticks, final=True)]
    workflow = nested(chain(*steps, name="child"), ticks, depth)
    checkpoint = place.create(workflow)
    with pytest.raises(Boom, match="c got x>a>b") as raised:
        await workflow.run("x", checkpoint=checkpoint)
    notes = raised.value.__notes__
    inmost = "".join(f"child {name!r} of " for name in reversed(around(depth))) + "checkpoint 'run-1'"
    assert notes[0] == f"executor 'c', superstep 3, {inmost}"
    assert notes[-1] == f"executor {around(depth)[0]!r}, superstep 1, checkpoint 'run-1'"
    assert len(notes) == depth + 1
    checkpoint = await place.reload()
    result = await workflow.run(checkpoint=checkpoint)
    assert result.get_outputs() == [behind("x>a>b>c>d", depth)]
    assert ticks.all() == {"a": 1, "b": 1, "c": 2, "d": 1, **{f"after{n}": 1 for n in range(depth)}}
    await lawful(place, checkpoint)


def long_one(ticks: Ticks, depth: int, does: Any) -> Workflow:
    steps = [Step("a", ticks), Step("b", ticks), Scripted("c", ticks, does), Step("d", ticks, final=True)]
    return nested(chain(*steps, name="child"), ticks, depth)


async def dies_inside(folder: str, depth: int) -> None:
    async def wait(text: str, ctx: Any) -> None:
        say("in c")
        listen()

    workflow = long_one(Ticks(f"{folder}/ticks"), depth, wait)
    storage = FileCheckpointStorage(f"{folder}/runs")
    await workflow.run("x", checkpoint=workflow.create_checkpoint("run-1", storage))


async def goes_on(folder: str, depth: int) -> list[str]:
    async def nothing(text: str, ctx: Any) -> None: ...

    workflow = long_one(Ticks(f"{folder}/ticks"), depth, nothing)
    checkpoint = await FileCheckpointStorage(f"{folder}/runs").load("run-1")
    return (await workflow.run(checkpoint=checkpoint)).get_outputs()


@every_depth
async def test_r51_a_killed_process_costs_one_superstep_of_the_child(tmp_path: Path, depth: int) -> None:
    with Talking(dies_inside, str(tmp_path), depth) as process:
        assert process.hear() == "in c"
        process.kill()
    assert Ticks(tmp_path / "ticks").all() == {"a": 1, "b": 1, "c": 1}
    assert in_new_process(goes_on, str(tmp_path), depth) == [behind("x>a>b>c>d", depth)]
    after = {f"after{n}": 1 for n in range(depth)}
    assert Ticks(tmp_path / "ticks").all() == {"a": 1, "b": 1, "c": 2, "d": 1, **after}


class Twice(Step):
    """Calls twice."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.send_message("A")
        await ctx.send_message("B")


@every_place
async def test_r51_a_call_that_is_over_is_not_made_again(place: Place, ticks: Ticks) -> None:
    """Of two calls of one superstep the second one fails."""

    async def fail(text: str, ctx: Any) -> None:
        if text == "B" and ticks["a"] == 2:
            raise Boom(text)

    child = chain(Scripted("a", ticks, fail), Step("b", ticks, final=True), name="child")
    workflow = chain(
        Twice("twice", ticks), WorkflowExecutor(child, "kid"), Step("end", ticks, final=True), name="p"
    )
    checkpoint = place.create(workflow)
    with pytest.raises(Boom):
        await workflow.run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    assert inside(checkpoint, "kid")["workflow_state"]["status"] == "idle"
    result = await workflow.run(checkpoint=checkpoint)
    assert result.get_outputs() == ["A>a>b>end", "B>a>b>end"]
    assert ticks.all() == {"a": 3, "b": 2, "end": 2}
    await lawful(place, checkpoint)


# Several children at once.


def three(ticks: Ticks, does: Any) -> tuple[Workflow, list[str]]:
    """Three children of one workflow in one superstep, of which each does something before its last step."""
    kids = [f"kid{n}" for n in range(3)]
    executors: list[Executor] = []
    for name in kids:
        last = Scripted("c", ticks, does, final=True)
        executors.append(
            WorkflowExecutor(chain(Step("a", ticks), Step("b", ticks), last, name="child"), name)
        )
    source = Step("src", ticks)
    builder = WorkflowBuilder(name="parent", start_executor=source).add_fan_out_edges(source, executors)
    return builder.add_fan_in_edges(executors, Join("join", ticks)).build(), kids


@every_storage
async def test_r51_children_of_one_superstep_are_committed_one_after_the_other(
    place: Place, ticks: Ticks
) -> None:
    async def slow(number: int) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def nothing(text: str, ctx: Any) -> None: ...

    workflow, _ = three(ticks, nothing)
    inner = place.open()
    assert inner is not None
    checkpoint = workflow.create_checkpoint("run-1", Around(inner, before=slow))
    result = await workflow.run("x", checkpoint=checkpoint)
    assert result.get_outputs() == [["x>src>a>b>c"] * 3]
    assert boundaries(checkpoint).count("child_superstep_completed") == 9
    await lawful(place, checkpoint)


@every_place
async def test_r51_what_each_of_several_children_has_done_is_kept(place: Place, ticks: Ticks) -> None:
    entered, count = asyncio.Event(), itertools.count(1)

    async def all_wait(text: str, ctx: Any) -> None:
        if next(count) == 3:
            entered.set()
        if next_time.is_set():
            return
        await asyncio.Event().wait()

    next_time = asyncio.Event()
    workflow, kids = three(ticks, all_wait)
    checkpoint = place.create(workflow)
    task = asyncio.ensure_future(workflow.run("x", checkpoint=checkpoint))
    await reached(entered, task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    next_time.set()
    checkpoint = await place.reload()
    for kid in kids:
        assert inside(checkpoint, kid)["workflow_state"]["iteration_count"] == 2
    result = await workflow.run(checkpoint=checkpoint)
    assert result.get_outputs() == [["x>src>a>b>c"] * 3]
    assert ticks.all() == {"src": 1, "a": 3, "b": 3, "c": 6, "join": 1}
    await lawful(place, checkpoint)


# Going back, forking and pruning in the middle.


class Keyed(Step):
    """Writes down its idempotency key."""

    def __init__(self, id: str, keys: dict[str, list[str]], ticks: Ticks, *, boom: bool = False) -> None:
        super().__init__(id, ticks)
        self.keys = lambda: keys  # the test's own
        self.boom = boom

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.keys().setdefault(self.id, []).append(ctx.idempotency_key)
        await ctx.yield_output(self.id)
        if self.ticks(self.id) == 1 and self.boom:
            raise Boom(self.id)
        await self.done(f"{text}>{self.id}", ctx)


def keyed(keys: dict[str, list[str]], ticks: Ticks, depth: int) -> Workflow:
    child = chain(
        Keyed("a", keys, ticks), Keyed("b", keys, ticks), Keyed("c", keys, ticks, boom=True), name="child"
    )
    kid = WorkflowExecutor(nested(child, ticks, depth - 1) if depth > 1 else child, "outer")
    source, sibling = Step("src", ticks), Keyed("sib", keys, ticks)
    return WorkflowBuilder(name="p", start_executor=source).add_fan_out_edges(source, [kid, sibling]).build()


@every_place
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("pruned", [False, True])
async def test_r51_keys_stay_the_same_when_work_is_done_again(
    place: Place, ticks: Ticks, depth: int, pruned: bool
) -> None:
    keys: dict[str, list[str]] = {}
    workflow = keyed(keys, ticks, depth)
    checkpoint = place.create(workflow)
    with pytest.raises(Boom):
        await workflow.run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    if pruned:
        await checkpoint.prune()
    assert boundaries(checkpoint)[-1] == "child_superstep_completed"
    await workflow.run(checkpoint=checkpoint)
    assert {id: len(made) for id, made in keys.items()} == {"a": 1, "b": 1, "c": 2, "sib": 2}
    assert keys["c"][0] == keys["c"][1]
    assert keys["sib"][0] == keys["sib"][1]
    distinct = {id: made[0] for id, made in keys.items()}
    assert len(set(distinct.values())) == 4
    await lawful(place, checkpoint)


class Round(Step):
    """Goes round once more, then yields."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(text) if text.count(">c") > 1 else await ctx.send_message(text)


@every_place
async def test_r51_they_do_so_in_a_later_call_of_the_same_run(place: Place, ticks: Ticks) -> None:
    keys: dict[str, list[str]] = {}

    class Last(Keyed):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            self.keys().setdefault(self.id, []).append(ctx.idempotency_key)
            if self.ticks(self.id) == 2:
                raise Boom(self.id)
            await ctx.yield_output(f"{text}>{self.id}")

    kid = WorkflowExecutor(chain(Step("a", ticks), Last("c", keys, ticks), name="child"), "kid")
    loop = Round("round", ticks)
    workflow = WorkflowBuilder(name="p", start_executor=kid).add_edge(kid, loop).add_edge(loop, kid).build()
    checkpoint = place.create(workflow)
    with pytest.raises(Boom):
        await workflow.run("x", checkpoint=checkpoint)
    result = await workflow.run(checkpoint=await place.reload())
    assert result.get_outputs() == ["x>a>c>a>c"]
    first, failed, again = keys["c"]
    assert first != failed == again


@every_place
@pytest.mark.parametrize("way", ["back", "fork"])
async def test_r51_keys_differ_on_another_branch(place: Place, ticks: Ticks, way: str) -> None:
    keys: dict[str, list[str]] = {}
    workflow = keyed(keys, ticks, 1)
    checkpoint = place.create(workflow)
    with pytest.raises(Boom):
        await workflow.run("x", checkpoint=checkpoint)
    head = checkpoint.head_snapshot_id
    await workflow.run(checkpoint=checkpoint)
    if way == "back":
        checkpoint.restart_from(head)
        await workflow.run(checkpoint=checkpoint)
        assert "restarted" in boundaries(checkpoint)
        await lawful(place, checkpoint)
    else:
        fork = await checkpoint.fork(head, checkpoint_id="fork")
        await workflow.run(checkpoint=fork)
    assert keys["c"][0] == keys["c"][1] != keys["c"][2]
    assert keys["sib"][0] == keys["sib"][1] != keys["sib"][2]


@every_place
async def test_r51_giving_up_inside_a_child(place: Place, ticks: Ticks) -> None:
    child = chain(Step("a", ticks), BoomOnce("b", ticks, final=True), name="child")
    workflow = nested(child, ticks)
    checkpoint = place.create(workflow)
    with pytest.raises(Boom):
        await workflow.run("x", checkpoint=checkpoint)
    await checkpoint.abandon()
    assert checkpoint.head_snapshot is not None
    assert checkpoint.head_snapshot.state["executor_states"] == {}
    assert (await workflow.run("y", checkpoint=checkpoint)).get_outputs() == [behind("y>a>b")]
    await lawful(place, checkpoint)


# Edits.


async def stopped_inside(place: Place, ticks: Ticks) -> tuple[Workflow, Checkpoint]:
    child = chain(Step("a", ticks), BoomOnce("b", ticks, final=True), name="child")
    workflow = nested(child, ticks)
    checkpoint = place.create(workflow)
    with pytest.raises(Boom):
        await workflow.run("x", checkpoint=checkpoint)
    return workflow, checkpoint


@every_place
async def test_r51_the_state_of_a_child_can_be_edited(place: Place, ticks: Ticks) -> None:
    workflow, checkpoint = await stopped_inside(place, ticks)
    assert checkpoint.head_snapshot is not None
    state = checkpoint.head_snapshot.state
    kid = state["executor_states"]["kid"]["executions"]["0"]
    kid["messages"]["pending"]["deliveries"][0]["value"] = "edited"
    await checkpoint.commit_snapshot(state)
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == [behind("edited>b")]


@pytest.mark.parametrize(
    ("error", "change", "told"),
    [
        (CorruptCheckpointError, lambda kid: kid.update(more=1), "executor_states.kid.more"),
        (
            CorruptCheckpointError,
            lambda kid: kid.pop("executions"),
            "executor_states.kid.executions is missing",
        ),
        (
            CorruptCheckpointError,
            lambda kid: kid["executions"]["0"].pop("messages"),
            "executor_states.kid.executions.0.messages is missing",
        ),
        (
            CorruptCheckpointError,
            lambda kid: kid["accepted"].append(["0", 0]),
            "executor_states.kid.accepted[1]",
        ),
        (
            CorruptCheckpointError,
            lambda kid: kid.update(accepted=[["7", 0]]),
            "executor_states.kid.accepted[0]",
        ),
        (
            GraphMismatchError,
            lambda kid: kid["executions"]["0"]["messages"]["pending"]["deliveries"][0].update(targets=["z"]),
            "executor_states.kid.executions.0.messages.pending.deliveries[0] to 'z'",
        ),
        (
            GraphMismatchError,
            lambda kid: kid["executions"]["0"]["messages"]["pending"]["requests"].update(
                r=request(source_executor_id="b", path=["z"])
            ),
            "executor_states.kid.executions.0.messages.pending.requests.r of 'z/b'",
        ),
    ],
)
async def test_r51_an_edit_that_no_child_can_be_is_refused_before_anything_runs(
    place: Place, ticks: Ticks, error: type[Exception], change: Any, told: str
) -> None:
    workflow, checkpoint = await stopped_inside(place, ticks)
    assert checkpoint.head_snapshot is not None
    state = checkpoint.head_snapshot.state
    change(state["executor_states"]["kid"])
    await checkpoint.commit_snapshot(state)
    before = ticks.all()
    with pytest.raises(error) as raised:
        await workflow.run(checkpoint=checkpoint)
    assert told in str(raised.value)
    assert ticks.all() == before


async def test_r51_a_child_whose_graph_changed_is_named(place: Place, ticks: Ticks) -> None:
    workflow = nested(row(ticks, "a", "b"), ticks, 2)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    other = nested(row(ticks, "a", "c"), ticks, 2)
    with pytest.raises(
        GraphMismatchError, match="inside 'mid': inside 'kid': executor renamed: 'b' is now 'c'"
    ):
        await other.run("x", checkpoint=checkpoint)


# Bytes.


class Remember(Executor):
    """Appends to a history, and goes round until it is long."""

    @handler
    async def on_number(self, number: int, ctx: WorkflowContext[int, int]) -> None:
        ctx.set_state("history", [f"{number:04d} " + "x" * 95])
        if number > 1:
            await ctx.send_message(number - 1)
        else:
            await ctx.yield_output(number)


@pytest.mark.parametrize("depth", [1, 2])
async def test_r51_a_long_history_inside_is_not_copied_at_each_boundary(depth: int) -> None:
    def remembering() -> Workflow:
        loop = Remember(id="loop")
        builder = WorkflowBuilder(name="child", start_executor=loop, max_iterations=2000)
        return builder.add_edge(loop, loop).add_state("history", list, factory=list, reducer=append).build()

    async def stored(count: int, depth: int) -> int:
        workflow = remembering()
        for level in range(depth):
            kid = WorkflowExecutor(workflow, f"kid{level}", allow_direct_output=True)
            workflow = WorkflowBuilder(name=f"parent{level}", start_executor=kid).build()
        checkpoint = workflow.create_checkpoint()
        await workflow.run(count, checkpoint=checkpoint)
        assert len(checkpoint.snapshots) == count + 1
        return sum(map(len, checkpoint.parts.values()))

    short, long = await stored(100, depth), await stored(800, depth)
    assert long < 10 * short  # 8 times as much, and a tree that is one level higher
    assert long < 2.5 * await stored(800, 0)
