"""What runs inside of a workflow: calls and their state, outputs, bounds, options, definitions."""

from __future__ import annotations

import asyncio
from typing import Any, Never

import pytest

from branchpoint import (
    ConvergenceError,
    DefinitionError,
    Executor,
    Factory,
    InvalidInputError,
    SyncWorkflowContext,
    UndeliverableMessageError,
    UnregisteredTypeError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    WorkflowInvocationKwargs,
    executor,
    handler,
    state,
)
from tests.scenario.kit import (
    Boom,
    Join,
    Place,
    Step,
    Ticks,
    boundaries,
    chain,
    every_place,
    workflow_picture,
)
from tests.scenario.nests import around, behind, inside, lawful, nested

every_depth = pytest.mark.parametrize("depth", [1, 2, 3])


class Count(Executor):
    """Remembers how many texts it got, and yields the last one with that number."""

    seen: int = state(0)

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[Never, str]) -> None:
        self.seen += 1
        ctx.set_state("last", text)
        await ctx.yield_output(f"{text}{self.seen}")


def counting() -> Workflow:
    return WorkflowBuilder(name="child", start_executor=Count(id="count")).build()


# Without a checkpoint.


class Unkept:
    """Can be copied, and cannot be stored."""

    def __init__(self, text: str) -> None:
        self.text = text


@executor(id="wrap")
async def wrap(text: str, ctx: WorkflowContext[Unkept]) -> None:
    await ctx.send_message(Unkept(text))


@executor(id="unwrap")
async def unwrap(value: Unkept, ctx: WorkflowContext[Never, Unkept]) -> None:
    await ctx.yield_output(Unkept(value.text + "!"))


@executor(id="show")
async def show(value: Unkept, ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(value.text)


def unkept() -> Workflow:
    child = WorkflowBuilder(name="child", start_executor=wrap).add_edge(wrap, unwrap).build()
    kid = WorkflowExecutor(child, "kid")
    return WorkflowBuilder(name="parent", start_executor=kid).add_edge(kid, show).build()


@every_depth
async def test_r51_a_run_without_a_checkpoint_runs_children(ticks: Ticks, depth: int) -> None:
    child = chain(Step("a", ticks), Step("b", ticks, final=True), name="child")
    result = await nested(child, ticks, depth).run("x")
    assert result.get_outputs() == [behind("x>a>b", depth)]


async def test_r51_a_run_without_a_checkpoint_encodes_nothing() -> None:
    assert (await unkept().run("x")).get_outputs() == ["x!"]


async def test_r51_with_a_checkpoint_the_maker_of_what_cannot_be_kept_is_named() -> None:
    workflow = unkept()
    with pytest.raises(UnregisteredTypeError) as raised:
        await workflow.run("x", checkpoint=workflow.create_checkpoint("run-1"))
    assert "executor_states.kid.executions.0.messages.pending.deliveries[0].value" in str(raised.value)
    assert "executor 'wrap', superstep 1, child 'kid' of checkpoint 'run-1'" in raised.value.__notes__


# Calls and their state.


@every_place
@every_depth
async def test_r51_a_child_keeps_its_state_from_turn_to_turn(place: Place, ticks: Ticks, depth: int) -> None:
    workflow = nested(counting(), ticks, depth)
    checkpoint = place.create(workflow)
    for number, text in enumerate("xyz", 1):
        result = await workflow.run(text, checkpoint=checkpoint)
        assert result.get_outputs() == [behind(f"{text}{number}", depth)]
        checkpoint = await place.reload()
    child = inside(checkpoint, *around(depth))
    assert child["executor_states"] == {"count": {"seen": 3}}
    assert child["workflow_state"]["shared"] == {"last": "z"}
    assert child["workflow_state"]["turn"] == 3
    await lawful(place, checkpoint)


@every_place
async def test_r51_calls_of_one_superstep_run_apart(place: Place, ticks: Ticks) -> None:
    sources = [Step(id, ticks) for id in "pq"]
    kid, join = WorkflowExecutor(counting(), "kid"), Step("end", ticks, final=True)
    source = Step("src", ticks)
    builder = WorkflowBuilder(name="parent", start_executor=source).add_fan_out_edges(source, sources)
    for one in sources:
        builder.add_edge(one, kid)
    workflow = builder.add_edge(kid, join).build()
    checkpoint = place.create(workflow)
    for turn in (1, 2):
        result = await workflow.run("x", checkpoint=checkpoint)
        # The main execution goes on from turn to turn; the other one begins with nothing.
        assert result.get_outputs() == [f"x>src>p{turn}>end", "x>src>q1>end"]
    assert checkpoint.head_snapshot is not None
    assert [*checkpoint.head_snapshot.state["executor_states"]["kid"]["executions"]] == ["0"]
    await lawful(place, checkpoint)


async def test_r51_one_workflow_serves_many_executors_parents_and_runs(ticks: Ticks) -> None:
    child = counting()
    first, second = WorkflowExecutor(child, "first"), WorkflowExecutor(child, "second")
    source, join = Step("src", ticks), Join("join", ticks)
    builder = WorkflowBuilder(name="both", start_executor=source).add_fan_out_edges(source, [first, second])
    both = builder.add_fan_in_edges([first, second], join).build()
    alone = nested(child, ticks, 2)
    pictures = [workflow_picture(one) for one in (child, both, alone)]
    checkpoints = [both.create_checkpoint(f"run-{n}") for n in range(20)]
    results = await asyncio.gather(
        *(both.run(f"t{n}", checkpoint=one) for n, one in enumerate(checkpoints)),
        *(alone.run(f"t{n}") for n in range(20)),
        child.run("plain"),
    )
    assert [one.get_outputs() for one in results[:20]] == [[[f"t{n}>src1"] * 2] for n in range(20)]
    assert [one.get_outputs() for one in results[20:40]] == [[behind(f"t{n}1", 2)] for n in range(20)]
    assert results[40].get_outputs() == ["plain1"]
    assert [workflow_picture(one) for one in (child, both, alone)] == pictures


# Outputs.


class Talk(Executor):
    """Yields a hint and a result."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(f"hint {text}")
        await ctx.send_message(text)


def talking(ticks: Ticks) -> Workflow:
    talk, end = Talk(id="talk"), Step("end", ticks, final=True)
    designated: Any = {"output_from": [end], "intermediate_output_from": [talk]}
    return WorkflowBuilder(name="child", start_executor=talk, **designated).add_edge(talk, end).build()


@every_place
@pytest.mark.parametrize("stored", [True, False])
async def test_r51_outputs_of_a_child_can_be_the_parents(place: Place, ticks: Ticks, stored: bool) -> None:
    kid = WorkflowExecutor(talking(ticks), "kid", allow_direct_output=True)
    workflow = WorkflowBuilder(name="parent", start_executor=kid).build()
    checkpoint = place.create(workflow) if stored else None
    result = await workflow.run("x", checkpoint=checkpoint)
    told = [(one.type, one.executor_id, one.data) for one in result if one.type in ("output", "intermediate")]
    assert told == [("intermediate", "kid", "hint x"), ("output", "kid", "x>end")]
    assert result.get_outputs() == ["x>end"]
    if checkpoint is not None:
        kinds = [(one.kind, one.executor_id, one.value) for one in (await place.reload()).outputs()]
        assert kinds == told
        await lawful(place, checkpoint)


async def test_r51_otherwise_they_are_messages_and_hints_stay_hints(ticks: Ticks) -> None:
    result = await nested(talking(ticks), ticks).run("x")
    told = [(one.type, one.executor_id, one.data) for one in result if one.type in ("output", "intermediate")]
    assert told == [("intermediate", "kid", "hint x"), ("output", "after0", behind("x>end"))]


async def test_r51_the_parent_designates_what_its_children_yield(ticks: Ticks) -> None:
    kid = WorkflowExecutor(talking(ticks), "kid", allow_direct_output=True)
    more = Step("more", ticks)
    hidden = WorkflowBuilder(name="p", start_executor=more, output_from=[more]).add_edge(more, kid).build()
    assert (await hidden.run("x")).get_outputs() == []
    builder = WorkflowBuilder(name="p", start_executor=kid, intermediate_output_from=[kid])
    result = await builder.build().run("x")
    assert [one.type for one in result if one.data in ("hint x", "x>end")] == ["intermediate"] * 2


def test_r51_a_parent_knows_what_its_child_takes_and_yields(ticks: Ticks) -> None:
    direct = WorkflowExecutor(counting(), "kid", allow_direct_output=True)
    assert direct.workflow_output_types == [str]
    assert direct.output_types == []
    assert WorkflowBuilder(name="p", start_executor=direct).build().output_types == [str]
    sending = WorkflowExecutor(counting(), "kid")
    assert (sending.output_types, sending.workflow_output_types) == ([str], [])
    workflow = WorkflowBuilder(name="p", start_executor=sending).build()
    assert (workflow.input_types, workflow.input_schema) == ([str], {"type": "string"})


async def test_r51_an_output_that_nobody_takes_is_told_as_a_message_is(ticks: Ticks) -> None:
    @executor(id="number")
    async def number(value: int, ctx: WorkflowContext) -> None: ...

    @executor(id="any")
    async def anything(value: str, ctx: WorkflowContext) -> None:
        await ctx.yield_output(value)

    kid = WorkflowExecutor(WorkflowBuilder(name="child", start_executor=anything).build(), "kid")
    workflow = WorkflowBuilder(name="p", start_executor=kid).add_edge(kid, number).build()
    with pytest.raises(UndeliverableMessageError, match="Executor 'kid' sent a str"):
        await workflow.run("x")


# Bounds.


class Round(Executor):
    """Goes round so many times."""

    @handler
    async def on_number(self, number: int, ctx: WorkflowContext[int, int]) -> None:
        if number:
            await ctx.send_message(number - 1)
        else:
            await ctx.yield_output(number)


def going_round(bound: int, parent_bound: int = 100) -> Workflow:
    loop = Round(id="loop")
    child = (
        WorkflowBuilder(name="child", start_executor=loop, max_iterations=bound).add_edge(loop, loop).build()
    )
    kid = WorkflowExecutor(child, "kid", allow_direct_output=True)
    return WorkflowBuilder(name="parent", start_executor=kid, max_iterations=parent_bound).build()


@every_place
async def test_r51_max_iterations_counts_for_each_child(place: Place) -> None:
    checkpoint = place.create(going_round(5))
    for call in ({"message": 7}, {}):  # with the same bound it raises again at once
        with pytest.raises(ConvergenceError) as raised:
            await going_round(5).run(**call, checkpoint=checkpoint)
        assert "'child' ran 5 supersteps since its last input and is not done (child 'kid' of" in str(
            raised.value
        )
        assert any("executor 'kid'" in text for text in raised.value.__notes__)
        assert boundaries(checkpoint).count("child_superstep_completed") == 5
    result = await going_round(8, 1).run(checkpoint=checkpoint)
    assert result.get_outputs() == [0]
    assert boundaries(checkpoint).count("child_superstep_completed") == 7


@every_place
async def test_r51_max_supersteps_counts_those_of_the_parent(place: Place, ticks: Ticks) -> None:
    child = chain(*[Step(id, ticks, final=id == "c") for id in "abc"], name="child")
    workflow = nested(child, ticks)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint, max_supersteps=0)
    assert ticks.all() == {}
    await workflow.run(checkpoint=checkpoint, max_supersteps=1)
    assert ticks.all() == {"a": 1, "b": 1, "c": 1}
    assert checkpoint.status == "in_progress"
    result = await workflow.run(checkpoint=checkpoint, max_supersteps=1)
    assert result.get_outputs() == [behind("x>a>b>c")]


# What else stands in a child.


async def test_r51_functions_threads_and_factories_stand_in_a_child(ticks: Ticks) -> None:
    @executor(id="sync")
    def sync(text: str, ctx: SyncWorkflowContext[str]) -> str:
        ctx.executor_state["n"] = ctx.executor_state.get("n", 0) + 1
        return f"{text}{ctx.executor_state['n']}"

    last = Factory(lambda: Step("last", ticks, final=True), id="last")
    child = WorkflowBuilder(name="child", start_executor=sync).add_edge(sync, last).build()
    workflow = nested(child, ticks)
    checkpoint = workflow.create_checkpoint()
    assert (await workflow.run("x", checkpoint=checkpoint)).get_outputs() == [behind("x1>last")]
    assert (await workflow.run("y", checkpoint=checkpoint)).get_outputs() == [behind("y2>last")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"a": 1}, {"a": 1}),
        ({"kid": {"a": 1}}, {"a": 1}),
        ({"kid": {"inner": {"a": 1}}}, {"a": 1}),
        ({"after0": {"a": 1}}, None),
        (WorkflowInvocationKwargs({"a": 1}, {"kid": {"b": 2}}), {"a": 1, "b": 2}),
        (WorkflowInvocationKwargs({"a": 1}, {"kid": {"inner": {"b": 2}}}), {"a": 1, "b": 2}),
    ],
)
async def test_r51_options_of_a_call_reach_into_children(ticks: Ticks, given: Any, expected: Any) -> None:
    seen: list[Any] = []

    @executor(id="inner")
    async def inner(text: str, ctx: WorkflowContext[Never, str]) -> None:
        seen.append(dict(ctx.run_options))
        await ctx.yield_output(text)

    workflow = nested(WorkflowBuilder(name="child", start_executor=inner).build(), ticks)
    await workflow.run("x", tools=["t"], client_kwargs=given)
    assert seen == [{"tools": ["t"], **({} if expected is None else {"client_kwargs": expected})}]


async def test_r51_metadata_reaches_into_children(ticks: Ticks) -> None:
    seen: list[Any] = []

    @executor(id="inner")
    async def inner(text: str, ctx: WorkflowContext[Never, str]) -> None:
        seen.append(ctx.run_metadata)

    workflow = nested(WorkflowBuilder(name="child", start_executor=inner).build(), ticks, 2)
    await workflow.run("x", metadata={"user": "u1"})
    assert seen == [{"user": "u1"}]


# Wrong definitions and input.


def test_r51_what_is_no_workflow_is_refused(ticks: Ticks) -> None:
    with pytest.raises(DefinitionError, match="runs a Workflow, got WorkflowBuilder: build"):
        WorkflowExecutor(WorkflowBuilder(start_executor=Step("a", ticks)), "kid")  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="wrap it, WorkflowExecutor"):
        WorkflowBuilder(start_executor=counting())  # type: ignore[arg-type]


def test_r51_handlers_that_no_message_would_reach_are_refused() -> None:
    class Mine(WorkflowExecutor):
        @handler
        async def on_number(self, number: int, ctx: WorkflowContext) -> None: ...

    with pytest.raises(DefinitionError, match="declares handlers or state of its own"):
        Mine(counting(), "kid")


async def test_r51_input_that_the_child_does_not_take_is_refused(ticks: Ticks) -> None:
    workflow = nested(counting(), ticks)
    with pytest.raises(InvalidInputError, match="'kid' accepts str"):
        await workflow.run(3)


@every_place
async def test_r51_two_failures_inside_are_told_as_two(place: Place, ticks: Ticks) -> None:
    @executor(id="one")
    async def one(text: str, ctx: WorkflowContext) -> None:
        raise Boom("one")

    @executor(id="two")
    async def two(text: str, ctx: WorkflowContext) -> None:
        raise Boom("two")

    source = Step("src", ticks)
    child = WorkflowBuilder(name="child", start_executor=source).add_fan_out_edges(source, [one, two]).build()
    workflow = nested(child, ticks)
    with pytest.raises(Boom, match="one") as raised:
        await workflow.run("x", checkpoint=place.create(workflow))
    assert any("executor 'kid', superstep 1" in text for text in raised.value.__notes__)
