"""Cases of users whose run went on wrongly after it had stopped, once more with agents: C23 to C35."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Never

import pytest
from agent_framework import Content, Message, tool

from branchpoint import (
    BranchpointError,
    Checkpoint,
    ConvergenceError,
    Executor,
    GraphMismatchError,
    InvalidCallError,
    PendingRequestsError,
    UnfinishedWorkError,
    UnknownRequestError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
)
from branchpoint.agents import AgentExecutorResponse
from branchpoint.testing import check_lineage_law
from branchpoint.testing.agents import scripted_agent, tool_call
from tests.scenario.kit import Boom, Place, Shuffle, Ticks, every_place, only_request
from tests.scenario.test_resume_cases import refused, unchanged

Gate = Callable[[int, int], Awaitable[object]]


@tool(approval_mode="always_require")
def refund(order: str) -> str:
    """Give the money back."""
    return f"refunded {order}"


def counting(name: str, ticks: Ticks, gate: Gate | None = None) -> Any:
    """An agent that says its name and how much it was told."""

    def reply(messages: Any) -> str:
        ticks(name)
        return f"{name}{len(messages)}"

    return scripted_agent(reply, name=name, gate=gate)


def clerk(ticks: Ticks, name: str = "clerk") -> Any:
    """An agent that asks before it gives money back, each turn anew."""

    def reply(messages: Any) -> Any:
        ticks(name)
        if messages[-1].role == "tool":
            return f"done: {messages[-1].contents[0].result}"
        return ["let me see", tool_call("refund", order="7")]

    return scripted_agent(reply, name=name, tools=[refund])


def failing(name: str, ticks: Ticks) -> Any:
    """An agent whose model is not there at its first call."""

    def reply(messages: Any) -> Any:
        return Boom(name) if ticks(name) == 1 else f"{name}{len(messages)}"

    return scripted_agent(reply, name=name)


class Reader(Executor):
    """Yields who said what, in the order it sees them."""

    def __init__(self, ticks: Ticks) -> None:
        super().__init__(id="reader")
        self.ticks = ticks

    @handler
    async def on_all(
        self, responses: list[AgentExecutorResponse], ctx: WorkflowContext[Never, list[str]]
    ) -> None:
        self.ticks(self.id)
        await ctx.yield_output([f"{one.executor_id}: {one.agent_response.text}" for one in responses])


def joined(agents: list[Any], ticks: Ticks, source: Any) -> Workflow:
    """An agent speaks to several, and a reader joins what they say."""
    builder = WorkflowBuilder(name="joined", start_executor=source, output_from=["reader"])
    return builder.add_fan_out_edges(source, agents).add_fan_in_edges(agents, Reader(ticks)).build()


def approved(checkpoint: Checkpoint) -> dict[str, Content]:
    return {
        one.request_id: one.data.to_function_approval_response(True) for one in checkpoint.pending_requests
    }


def said(result: Any) -> list[str]:
    return [output.text for output in result.get_outputs()]


@every_place
async def test_c23_what_an_agent_said_waits_at_a_join_for_the_one_that_asks(
    place: Place, ticks: Ticks
) -> None:
    def build() -> Workflow:
        return joined([clerk(ticks), counting("quick", ticks)], ticks, counting("src", ticks))

    checkpoint = place.create(build())
    await build().run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    assert checkpoint.head_snapshot is not None
    waiting = checkpoint.head_snapshot.state["edge_states"]["fan_in:clerk,quick->reader"]["received"]
    assert [one.agent_response.text for one in waiting["quick"]] == ["quick2"]
    paused = checkpoint.head_snapshot_id
    for fired in (1, 2):
        result = await build().run(responses=approved(checkpoint), checkpoint=checkpoint)
        assert result.get_outputs() == [["clerk: done: refunded 7", "quick: quick2"]]
        assert ticks.all() == {"src": 1, "clerk": 1 + fired, "quick": 1, "reader": fired}
        checkpoint = await place.reload()
        checkpoint.restart_from(paused)
    check_lineage_law(checkpoint)


def lapping(ticks: Ticks, first: Any, *, bound: int = 100, laps: int = 3) -> Workflow:
    """Two agents that speak in turn until the conversation is long enough."""

    def goes_on(said: AgentExecutorResponse) -> bool:
        return len(said.full_conversation) <= 2 * laps

    second = counting("two", ticks)
    builder = WorkflowBuilder(name="lapping", start_executor=first, max_iterations=bound, output_from=["two"])
    return builder.add_edge(first, second).add_edge(second, first, goes_on).build()


@every_place
@pytest.mark.parametrize("after", range(7))
async def test_c25_agents_in_a_cycle_go_on_from_every_boundary(
    place: Place, ticks: Ticks, after: int
) -> None:
    workflow = lapping(ticks, counting("one", ticks))
    expected = said(await lapping(Ticks(), counting("one", Ticks())).run("x"))
    assert len(expected) == 3
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint, max_supersteps=after)
    checkpoint = await place.reload()
    assert said(await workflow.run(checkpoint=checkpoint)) == expected
    assert ticks.all() == {"one": 3, "two": 3}
    for snapshot in checkpoint.snapshots[:-1]:
        checkpoint.restart_from(snapshot.snapshot_id)
        assert said(await workflow.run(checkpoint=checkpoint)) == expected
    check_lineage_law(checkpoint)


@every_place
async def test_c26_agents_of_a_finished_run_are_not_asked_again(place: Place, ticks: Ticks) -> None:
    workflow = lapping(ticks, counting("one", ticks))
    checkpoint = place.create(workflow)
    first = said(await workflow.run("x", checkpoint=checkpoint))
    checkpoint = await place.reload()
    for _ in range(2):
        assert said(await unchanged(checkpoint, lambda: workflow.run(checkpoint=checkpoint))) == first
    assert ticks.all() == {"one": 3, "two": 3}


@every_place
@pytest.mark.parametrize("stream", [False, True])
async def test_c27_an_agent_that_failed_is_asked_again_and_those_before_it_are_not(
    place: Place, ticks: Ticks, stream: bool
) -> None:
    def build() -> Workflow:
        one, two, three = counting("one", ticks), failing("two", ticks), counting("three", ticks)
        return WorkflowBuilder(name="row", start_executor=one).add_chain([one, two, three]).build()

    checkpoint = place.create(build())
    with pytest.raises(Boom):
        if stream:
            await build().run("x", checkpoint=checkpoint, stream=True).get_final_response()
        else:
            await build().run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    assert checkpoint.status == "in_progress"
    assert checkpoint.head_snapshot is not None
    assert "two" not in checkpoint.head_snapshot.state["executor_states"]
    assert said(await build().run(checkpoint=checkpoint)) == ["one1", "two2", "three3"]
    assert ticks.all() == {"one": 1, "two": 2, "three": 1}


@every_place
async def test_c29_what_an_agent_said_is_routed_again_when_the_condition_raised(
    place: Place, ticks: Ticks
) -> None:
    def cond(response: AgentExecutorResponse) -> bool:
        if ticks("cond") == 1:
            raise Boom("cond")
        return response.agent_response.text == "one1"

    one, two = counting("one", ticks), counting("two", ticks)
    workflow = WorkflowBuilder(name="routed", start_executor=one).add_edge(one, two, cond).build()
    checkpoint = place.create(workflow)
    with pytest.raises(Boom, match="cond"):
        await workflow.run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    assert said(await workflow.run(checkpoint=checkpoint)) == ["one1", "two2"]
    assert ticks.all() == {"one": 2, "cond": 2, "two": 1}


@every_place
@pytest.mark.parametrize("change", ["renamed", "replaced"])
async def test_c30_an_agent_of_another_name_is_another_graph(place: Place, ticks: Ticks, change: str) -> None:
    def build(agent: Any) -> Workflow:
        return WorkflowBuilder(name="one", start_executor=agent).build()

    checkpoint = place.create(build(clerk(ticks)))
    await build(clerk(ticks)).run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    rid = only_request(checkpoint)
    changed = build(clerk(ticks, "other") if change == "renamed" else Reader(ticks))
    for call in ({}, {"message": "y"}, {"responses": approved(checkpoint)}):
        words = await refused(
            checkpoint, GraphMismatchError, lambda call=call: changed.run(checkpoint=checkpoint, **call)
        )
        assert "'clerk'" in words and ("'other'" if change == "renamed" else "'reader'") in words
    assert only_request(checkpoint) == rid
    result = await build(clerk(ticks)).run(responses=approved(checkpoint), checkpoint=checkpoint)
    assert said(result) == ["done: refunded 7"]


@every_place
async def test_c31_the_next_turn_tells_its_own_outputs_and_has_a_bound_of_its_own(
    place: Place, ticks: Ticks
) -> None:
    def build() -> Workflow:
        one, two = counting("one", ticks), counting("two", ticks)
        builder = WorkflowBuilder(name="row", start_executor=one, max_iterations=2, output_from=["two"])
        return builder.add_edge(one, two).build()

    checkpoint = place.create(build())
    told: list[list[str]] = []
    for turn in range(3):
        told.append(said(await build().run(f"q{turn}", checkpoint=checkpoint)))
        checkpoint = await place.reload()
    assert len({str(one) for one in told}) == 3 and all(len(one) == 1 for one in told)
    assert [one.value.text for one in checkpoint.outputs()] == [text for one in told for text in one]
    assert ticks.all() == {"one": 3, "two": 3}


@every_place
@pytest.mark.parametrize("stream", [False, True])
async def test_c33_while_an_agent_waits_every_mix_does_one_thing_or_is_refused(
    place: Place, ticks: Ticks, stream: bool
) -> None:
    asks, fails = clerk(ticks), failing("fails", ticks)
    workflow = WorkflowBuilder(name="row", start_executor=asks).add_edge(asks, fails).build()
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    rid, answers = only_request(checkpoint), approved(checkpoint)

    def call(*args: Any, **more: Any) -> Callable[[], Any]:
        def made() -> Any:
            run: Any = workflow.run(*args, checkpoint=checkpoint, stream=stream, **more)
            return run.get_final_response() if stream else run

        return made

    assert rid in await refused(checkpoint, PendingRequestsError, call("new"))
    await refused(checkpoint, InvalidCallError, call("new", responses=answers))
    await refused(checkpoint, InvalidCallError, call(responses={}))
    await refused(checkpoint, UnknownRequestError, call(responses=answers | {"other": "2"}))
    await refused(checkpoint, BranchpointError, call(responses={rid: "yes"}))
    result = await unchanged(checkpoint, call())
    assert [event.request_id for event in result.get_request_info_events()] == [rid]
    assert ticks.all() == {"clerk": 1}
    with pytest.raises(Boom):
        await call(responses=answers)()
    checkpoint = await place.reload()
    await refused(checkpoint, UnfinishedWorkError, call("new"))
    await refused(checkpoint, UnknownRequestError, call(responses=answers))
    result = await call()()
    assert said(result)[0] == "done: refunded 7"
    assert ticks.all() == {"clerk": 2, "fails": 2}


@every_place
async def test_c34_agents_that_find_no_end_are_stopped_and_a_larger_bound_resumes(
    place: Place, ticks: Ticks
) -> None:
    def build(bound: int) -> Workflow:
        return lapping(ticks, counting("one", ticks), bound=bound, laps=5)

    checkpoint = place.create(build(4))
    for message in ({"message": "x"}, {}):
        with pytest.raises(ConvergenceError):
            await build(4).run(checkpoint=checkpoint, **message)
        checkpoint = await place.reload()
        assert ticks.all() == {"one": 2, "two": 2}
    await build(20).run(checkpoint=checkpoint)
    assert ticks.all() == {"one": 5, "two": 5}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("crash", [False, True])
async def test_c35_what_agents_say_at_once_stays_with_their_names_whatever_the_timing(
    nested: bool, crash: bool
) -> None:
    found = set()
    for seed in range(8):
        shuffle, ticks = Shuffle(seed), Ticks()

        async def slowly(call: int, piece: int, shuffle: Shuffle = shuffle) -> None:
            await shuffle.turn()

        sides: list[Any] = [counting(name, ticks, slowly) for name in ("b2", "b1", "b3")]
        sides += [failing("last", ticks) if crash else counting("last", ticks)]
        workflow = joined(sides, ticks, counting("src", ticks))
        if nested:
            child = WorkflowExecutor(workflow, "child", allow_direct_output=True)
            workflow = WorkflowBuilder(name="parent", start_executor=child).build()
        checkpoint = workflow.create_checkpoint()
        try:
            result = await workflow.run([Message("user", ["x"])], checkpoint=checkpoint)
        except Boom:
            result = await workflow.run(checkpoint=checkpoint)
        found.add(repr(result.get_outputs()))
    assert found == {"[['b2: b22', 'b1: b12', 'b3: b32', 'last: last2']]"}
