"""Agents inside of a child: whose conversation it is, what they ask, and what a call lends them."""

from __future__ import annotations

from typing import Any

import pytest
from agent_framework import tool

from branchpoint import Checkpoint, Workflow, WorkflowBuilder, WorkflowExecutor
from branchpoint.testing.agents import scripted_agent, tool_call
from tests.scenario.kit import Place, every_place
from tests.scenario.nests import NAMES, around, inside, lawful

every_depth = pytest.mark.parametrize("depth", [1, 2])


def around_agent(agent: Any, depth: int) -> Workflow:
    return in_parents(WorkflowBuilder(name="child", start_executor=agent).build(), depth)


def in_parents(workflow: Workflow, depth: int) -> Workflow:
    for level in range(depth):
        kid = WorkflowExecutor(workflow, NAMES[level], allow_direct_output=True)
        workflow = WorkflowBuilder(name=f"parent{level}", start_executor=kid).build()
    return workflow


def counting(depth: int) -> Workflow:
    return around_agent(scripted_agent(lambda messages: str(len(messages)), name="counter"), depth)


def said(result: Any) -> list[str]:
    return [output.text for output in result.get_outputs()]


@every_place
@every_depth
async def test_c86_an_agent_inside_remembers_across_turns_and_processes(place: Place, depth: int) -> None:
    checkpoint = place.create(counting(depth))
    for count in ("1", "3", "5"):
        assert said(await counting(depth).run("hi", checkpoint=checkpoint)) == [count]
        checkpoint = await place.reload()
    session = inside(checkpoint, *around(depth))["executor_states"]["counter"]["agent_session"]
    assert session.session_id
    assert said(await counting(depth).run("hi")) == ["1"]
    await lawful(place, checkpoint)


@every_place
@every_depth
async def test_c89_a_branch_sees_the_conversation_up_to_its_beginning(place: Place, depth: int) -> None:
    workflow = counting(depth)
    checkpoint = place.create(workflow)
    heads = []
    for _ in range(3):
        await workflow.run("hi", checkpoint=checkpoint)
        heads.append(checkpoint.head_snapshot_id)
    checkpoint.restart_from(heads[0])
    assert said(await workflow.run("another way", checkpoint=checkpoint)) == ["3"]
    checkpoint.restart_from(heads[2])
    assert said(await workflow.run("on", checkpoint=checkpoint)) == ["7"]


@every_place
@every_depth
@pytest.mark.parametrize("yes", [True, False])
async def test_c87_an_approval_inside_is_answered_after_a_reload(place: Place, depth: int, yes: bool) -> None:
    booked: list[str] = []

    @tool(approval_mode="always_require")
    def book(city: str) -> str:
        """Book a trip."""
        booked.append(city)
        return f"booked {city}"

    def agent() -> Any:
        return scripted_agent([tool_call("book", city="Oslo"), "done"], name="clerk", tools=[book])

    workflow = around_agent(agent(), depth)
    checkpoint = place.create(workflow)
    await workflow.run("go", checkpoint=checkpoint)
    checkpoint = await place.reload()
    (request,) = checkpoint.pending_requests
    assert (request.path, request.source_executor_id) == (around(depth), "clerk")
    assert booked == []
    answer = request.data.to_function_approval_response(yes)
    result = await around_agent(agent(), depth).run(
        responses={request.request_id: answer}, checkpoint=checkpoint
    )
    assert booked == (["Oslo"] if yes else [])
    assert said(result) == ["done"]
    await lawful(place, checkpoint)


@every_place
@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("pauses", [0, 1, 2])
async def test_r51_from_every_boundary_of_agents_inside_there_is_a_way_to_the_end(
    place: Place, depth: int, pauses: int
) -> None:
    """Going back, pausing and nesting, crossed: an agent that asks so many times, and one that reads it."""
    booked: list[str] = []

    @tool(approval_mode="always_require")
    def book(city: str) -> str:
        """Book a trip."""
        booked.append(city)
        return f"booked {city}"

    def build() -> Workflow:
        calls = [tool_call("book", city=f"city{number}") for number in range(pauses)]
        clerk = scripted_agent([*calls, "done"], name="clerk", tools=[book])
        reader = scripted_agent(lambda messages: f"read {len(messages)}", name="reader")
        builder = WorkflowBuilder(name="child", start_executor=clerk, output_from=[reader])
        return in_parents(builder.add_edge(clerk, reader).build(), depth)

    async def finish(checkpoint: Checkpoint) -> list[str]:
        while True:
            requests = checkpoint.pending_requests
            answers = {one.request_id: one.data.to_function_approval_response(True) for one in requests}
            if checkpoint.status == "in_progress" or not answers:
                result = await build().run(checkpoint=checkpoint)
            else:
                result = await build().run(responses=answers, checkpoint=checkpoint)
            if not checkpoint.pending_requests:
                return said(result)

    checkpoint = place.create(build())
    await build().run("go", checkpoint=checkpoint)
    expected = await finish(checkpoint)
    cities = [f"city{number}" for number in range(pauses)]
    assert booked == cities and len(expected) == 1
    for snapshot in checkpoint.snapshots[:-1]:
        answered = [
            one for one in checkpoint.ancestors(snapshot.snapshot_id) if one.boundary == "responses_accepted"
        ]
        checkpoint = await place.reload()
        checkpoint.restart_from(snapshot.snapshot_id)
        booked.clear()
        assert await finish(checkpoint) == expected
        # What was done before the boundary is not done again, and the rest is done once.
        done = len(answered) - (snapshot.boundary == "responses_accepted")
        assert booked == cities[done:]
    await lawful(place, checkpoint)
