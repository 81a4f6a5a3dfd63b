"""Wrong input around agents: each is refused by an error that says what to do, and nothing is consumed."""

from __future__ import annotations

from typing import Any

import pytest
from agent_framework import Agent, AgentSession, tool

from branchpoint import (
    Checkpoint,
    CheckpointConflictError,
    Executor,
    GraphMismatchError,
    InvalidResponseError,
    UnknownRequestError,
    Workflow,
    WorkflowBuilder,
    WorkflowExecutor,
    WorkflowValidationError,
)
from branchpoint.agents import AgentExecutor
from branchpoint.testing import check_lineage_law
from branchpoint.testing.agents import ScriptedChatClient, scripted_agent, tool_call
from tests.scenario.kit import Place, Ticks, bytes_of, every_place, only_request


def clerk(ticks: Ticks, name: str = "clerk") -> Any:
    """An agent that asks before each refund, for the order that the user names last; its calls have one id."""

    @tool(approval_mode="always_require")
    def refund(order: str) -> str:
        """Give the money back."""
        ticks(f"refund {order}")
        return f"refunded {order}"

    def reply(messages: Any) -> Any:
        ticks("model")
        if messages[-1].role == "tool":
            return f"done: {messages[-1].contents[0].result}"
        call = tool_call("refund", order=messages[-1].text)
        call.call_id = "call-1"  # some services count from the beginning in each turn
        return call

    return scripted_agent(reply, name=name, tools=[refund])


def one_step(agent: Any) -> Workflow:
    return WorkflowBuilder(name="one", start_executor=agent).build()


def approved(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        one.request_id: one.data.to_function_approval_response(True) for one in checkpoint.pending_requests
    }


async def refused(error: type[Exception], words: str, checkpoint: Checkpoint, call: Any) -> None:
    """Expect an error, and the checkpoint as it was, byte by byte."""
    before, head = bytes_of(checkpoint), checkpoint.head_snapshot_id
    with pytest.raises(error, match=words):
        await call
    assert bytes_of(checkpoint) == before
    assert checkpoint.head_snapshot_id == head
    check_lineage_law(checkpoint)


# An agent without a name.


def unnamed() -> Agent[Any]:
    return Agent(ScriptedChatClient(lambda messages: str(len(messages))))


def test_an_agent_without_a_name_in_two_executors_is_told_to_name_one() -> None:
    agent = unnamed()
    first = AgentExecutor(agent)
    with pytest.raises(WorkflowValidationError, match="give one of them another id"):
        WorkflowBuilder(start_executor=first).add_edge(first, AgentExecutor(agent)).build()


async def test_an_agent_without_a_name_in_two_executors_with_ids_is_two_conversations() -> None:
    agent = unnamed()
    first, second = AgentExecutor(agent, id="first"), AgentExecutor(agent, id="second")
    workflow = WorkflowBuilder(start_executor=first).add_edge(first, second).build()
    checkpoint = workflow.create_checkpoint()
    for expected in (["1", "2"], ["3", "5"]):
        result = await workflow.run("x", checkpoint=checkpoint)
        assert [one.text for one in result.get_outputs()] == expected


@every_place
async def test_an_agent_without_a_name_in_another_process_is_told_to_be_named(place: Place) -> None:
    """It has an id of its own in each: the checkpoint is left as it is, and the error says why."""
    mine, elsewhere = one_step(unnamed()), one_step(unnamed())
    checkpoint = place.create(mine)
    await mine.run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    words = "made anew in each process: give the agent a name, or the executor an id"
    await refused(GraphMismatchError, words, checkpoint, elsewhere.run("y", checkpoint=checkpoint))
    result = await mine.run("y", checkpoint=checkpoint)
    assert [one.text for one in result.get_outputs()] == ["3"]


# A session that another one has, too.


async def test_a_session_given_to_two_agents_is_two_by_value() -> None:
    session = AgentSession(session_id="given")
    one, two = [
        AgentExecutor(scripted_agent(lambda messages: str(len(messages)), name=name), session=session)
        for name in ("one", "two")
    ]
    workflow = WorkflowBuilder(start_executor=one).add_edge(one, two).build()
    checkpoint = workflow.create_checkpoint()
    for _ in range(2):
        await workflow.run("x", checkpoint=checkpoint)
    assert session.state == {}
    assert checkpoint.head_snapshot is not None
    states = checkpoint.head_snapshot.state["executor_states"]
    counts = [len(states[name]["agent_session"].state["in_memory"]["messages"]) for name in ("one", "two")]
    assert counts == [4, 6]


# A stale approval.


@every_place
async def test_an_approval_of_an_earlier_turn_approves_nothing_now(place: Place, ticks: Ticks) -> None:
    """Also where the model gives every call the same id: each question has one of its own."""
    workflow = one_step(clerk(ticks))
    checkpoint = place.create(workflow)
    await workflow.run("7", checkpoint=checkpoint)
    stale = approved(checkpoint)
    await workflow.run(responses=stale, checkpoint=checkpoint)
    await workflow.run("8", checkpoint=checkpoint)
    checkpoint, acted = await place.reload(), ticks.all()
    (old,), new = stale, only_request(checkpoint)
    assert old != new

    await refused(UnknownRequestError, old, checkpoint, workflow.run(responses=stale, checkpoint=checkpoint))
    await refused(
        InvalidResponseError,
        "it answers the approval request",
        checkpoint,
        workflow.run(responses={new: stale[old]}, checkpoint=checkpoint),
    )
    both = approved(checkpoint) | stale
    await refused(UnknownRequestError, old, checkpoint, workflow.run(responses=both, checkpoint=checkpoint))
    assert ticks.all() == acted
    result = await workflow.run(responses=approved(checkpoint), checkpoint=checkpoint)
    assert result.get_outputs()[-1].text == "done: refunded 8"


async def test_an_approval_of_a_branch_that_was_left_approves_nothing(ticks: Ticks) -> None:
    workflow = one_step(clerk(ticks))
    checkpoint = workflow.create_checkpoint()
    await workflow.run("7", checkpoint=checkpoint, max_supersteps=0)
    begun = checkpoint.head_snapshot_id
    await workflow.run(checkpoint=checkpoint)
    await workflow.run(responses=approved(checkpoint), checkpoint=checkpoint)
    await workflow.run("8", checkpoint=checkpoint)
    stale = approved(checkpoint)
    checkpoint.restart_from(begun)
    await workflow.run(checkpoint=checkpoint)
    (old,) = stale
    await refused(UnknownRequestError, old, checkpoint, workflow.run(responses=stale, checkpoint=checkpoint))
    assert ticks("refund 7") == 2, "it ran once, on the branch that was left"


async def test_an_approval_given_twice_at_once_acts_once(tmp_path: Any, ticks: Ticks) -> None:
    """Two processes show the question, and both are told yes: one wins, before the tool of the other runs."""
    from branchpoint import FileCheckpointStorage

    workflow, storage = one_step(clerk(ticks)), FileCheckpointStorage(tmp_path)
    checkpoint = workflow.create_checkpoint("case", storage)
    await workflow.run("7", checkpoint=checkpoint)
    mine, yours = await storage.load("case"), await storage.load("case")
    await workflow.run(responses=approved(mine), checkpoint=mine)
    await refused(
        CheckpointConflictError, "case", yours, workflow.run(responses=approved(yours), checkpoint=yours)
    )
    assert ticks("refund 7") == 2, "it ran once"
    check_lineage_law(await storage.load("case"))


# A child whose graph changed.


@every_place
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("change", ["renamed", "joined by another"])
async def test_an_agent_inside_that_changed_is_named_with_its_path(
    place: Place, ticks: Ticks, depth: int, change: str
) -> None:
    def build(change: str = "") -> Workflow:
        agent: Any = clerk(ticks, "other" if change == "renamed" else "clerk")
        builder = WorkflowBuilder(name="desk", start_executor=agent)
        if change == "joined by another":
            builder.add_edge(agent, scripted_agent(["x"], name="other"))
        workflow = builder.build()
        for level in range(depth):
            child: Executor = WorkflowExecutor(workflow, id=f"child-{level}", allow_direct_output=True)
            workflow = WorkflowBuilder(name=f"parent-{level}", start_executor=child).build()
        return workflow

    checkpoint = place.create(build())
    await build().run("7", checkpoint=checkpoint)
    checkpoint, acted = await place.reload(), ticks.all()
    words = "inside 'child-0': executor " + {"renamed": "renamed: 'clerk' is now 'other'"}.get(
        change, "added: 'other'"
    )
    if depth == 2:
        words = f"inside 'child-1': {words}"
    changed = build(change)
    for call in ({}, {"message": "8"}, {"responses": approved(checkpoint)}):
        await refused(GraphMismatchError, words, checkpoint, changed.run(checkpoint=checkpoint, **call))
    assert ticks.all() == acted
    result = await build().run(responses=approved(checkpoint), checkpoint=checkpoint)
    assert result.get_outputs()[-1].text == "done: refunded 7"
