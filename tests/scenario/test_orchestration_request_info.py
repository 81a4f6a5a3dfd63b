"""A person behind the agents: what is asked, what an answer does, and what others see until it is approved."""

from __future__ import annotations

from typing import Any

import pytest
from agent_framework import Content, Message, tool

from branchpoint import (
    Executor,
    InvalidResponseError,
    RequestCancelled,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
)
from branchpoint.agents import AgentExecutorResponse
from branchpoint.orchestrations import AgentRequestInfoResponse, ConcurrentBuilder, SequentialBuilder
from branchpoint.orchestrations._review import AgentApprovalExecutor
from branchpoint.testing.agents import scripted_agent, tool_call
from tests.scenario.kit import only_request
from tests.scenario.orchestrating import Play, given, play_through, speaker

AGAIN = AgentRequestInfoResponse.from_strings(["Again."])
APPROVED = AgentRequestInfoResponse.approve()


def reviewed(*names: str, agents: Any = None) -> tuple[Workflow, list[Any]]:
    made = [speaker(name) for name in names]
    return SequentialBuilder(participants=made).with_request_info(agents=agents).build(), made


async def test_an_answer_is_asked_about_with_the_conversation_that_led_to_it() -> None:
    workflow, _ = reviewed("a")
    checkpoint = workflow.create_checkpoint("one")
    result = await workflow.run("Go.", checkpoint=checkpoint)
    (event,) = result.get_request_info_events()
    assert isinstance(event.data, AgentExecutorResponse) and event.source_executor_id == "a"
    assert event.data.agent_response.text == "a0"
    assert [message.text for message in event.data.full_conversation] == ["Go.", "a0"]
    assert not checkpoint.outputs()


async def test_an_agent_goes_on_from_what_the_person_says_and_the_next_one_hears_it_all() -> None:
    workflow, (first, second) = reviewed("a", "b", agents=["a"])
    checkpoint = workflow.create_checkpoint("one")
    await workflow.run("Go.", checkpoint=checkpoint)
    for answer in (AGAIN, AGAIN, APPROVED):
        await workflow.run(responses={only_request(checkpoint): answer}, checkpoint=checkpoint)
    assert given(first)[-1] == ["Go.", "a0", "Again.", "a1", "Again."]
    assert given(second) == [["Go.", "a0", "Again.", "a1", "Again.", "a2"]]
    assert [record.value.text for record in checkpoint.outputs()] == ["b0"]


async def test_nothing_of_an_answer_is_seen_before_it_is_approved() -> None:
    workflow, _ = reviewed("a")
    checkpoint = workflow.create_checkpoint("one")
    before = [event.type async for event in workflow.run("Go.", checkpoint=checkpoint, stream=True)]
    assert "output" not in before and "request_info" in before
    answers = {only_request(checkpoint): APPROVED}
    after = [event async for event in workflow.run(responses=answers, checkpoint=checkpoint, stream=True)]
    assert [event.data.text for event in after if event.type == "output"] == ["a0"]


async def test_a_review_that_is_cancelled_drops_the_answer() -> None:
    workflow, (_, second) = reviewed("a", "b")
    checkpoint = workflow.create_checkpoint("one")
    await workflow.run("Go.", checkpoint=checkpoint)
    await workflow.run(responses={only_request(checkpoint): RequestCancelled()}, checkpoint=checkpoint)
    assert (checkpoint.status, checkpoint.outputs(), given(second)) == ("idle", [], [])
    await workflow.run("Go on.", checkpoint=checkpoint)
    assert len(checkpoint.pending_requests) == 1, "the next message begins anew"


async def test_another_kind_of_answer_is_refused_and_the_question_stays() -> None:
    workflow, _ = reviewed("a")
    checkpoint = workflow.create_checkpoint("one")
    await workflow.run("Go.", checkpoint=checkpoint)
    with pytest.raises(InvalidResponseError):
        await workflow.run(responses={only_request(checkpoint): "fine"}, checkpoint=checkpoint)
    assert len(checkpoint.pending_requests) == 1


@pytest.mark.parametrize("agents", [["b"], None])
async def test_those_who_are_named_are_asked_about_or_all(agents: Any) -> None:
    made = [speaker("a"), speaker("b")]
    if agents:
        agents = [made[1]]
    workflow = ConcurrentBuilder(participants=made).with_request_info(agents=agents).build()
    checkpoint = workflow.create_checkpoint("one")
    await workflow.run("Go.", checkpoint=checkpoint)
    assert [one.source_executor_id for one in checkpoint.pending_requests] == (
        ["b"] if agents else ["a", "b"]
    )
    first, *others = [one.request_id for one in checkpoint.pending_requests]
    await workflow.run(responses={first: APPROVED}, checkpoint=checkpoint)
    for request_id in others:
        assert not checkpoint.outputs(), "the aggregator waits for all"
        await workflow.run(responses={request_id: APPROVED}, checkpoint=checkpoint)
    assert checkpoint.outputs()[0].value.text == "a0b0"


async def test_what_the_agent_itself_asks_comes_before_the_review() -> None:
    @tool(approval_mode="always_require")
    def refund(order: str) -> str:
        """Give the money back."""
        return f"{order} is refunded"

    def build() -> Workflow:
        clerk = scripted_agent([tool_call("refund", order="7"), "Done."], name="clerk", tools=[refund])
        return SequentialBuilder(participants=[clerk, speaker("b")]).with_request_info().build()

    asked: list[str] = []

    def answer(request: Any) -> Any:
        asked.append(type(request.data).__name__)
        if isinstance(request.data, Content):
            return request.data.to_function_approval_response(approved=True)
        return APPROVED

    checkpoint = await play_through(Play(build, answer=answer))
    assert asked == ["Content", "AgentExecutorResponse", "AgentExecutorResponse"]
    assert [record.value.text for record in checkpoint.outputs()] == ["b0"]


class Twice(Executor):
    """Sends a text now, and another in the next superstep."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text, "a")
        if text == "One.":
            await ctx.send_message("Two.", "twice")


@pytest.mark.parametrize(
    ("answer", "heard"),
    [
        (AGAIN, [["One."], ["One.", "a0", "Again.", "Two."]]),
        (APPROVED, [["One."], ["One.", "a0", "Two."]]),
        (RequestCancelled(), [["One."], ["One.", "a0", "Two."]]),
    ],
)
async def test_a_message_that_comes_during_a_review_waits_for_it(answer: Any, heard: Any) -> None:
    agent, source = speaker("a"), Twice("twice")
    builder = WorkflowBuilder(name="late", start_executor=source).add_edge(source, source)
    workflow = builder.add_edge(source, AgentApprovalExecutor(agent)).build()
    checkpoint = workflow.create_checkpoint("one")
    await workflow.run("One.", checkpoint=checkpoint)
    await workflow.run(responses={only_request(checkpoint): answer}, checkpoint=checkpoint)
    assert given(agent) == heard
    assert len(checkpoint.pending_requests) == 1


async def test_an_orchestration_inside_another_workflow_asks_its_caller() -> None:
    inner, _ = reviewed("a")
    workflow = WorkflowBuilder(
        name="outer", start_executor=WorkflowExecutor(inner, id="inner", allow_direct_output=True)
    ).build()
    checkpoint = workflow.create_checkpoint("one")
    await workflow.run("Go.", checkpoint=checkpoint)
    await workflow.run(responses={only_request(checkpoint): AGAIN}, checkpoint=checkpoint)
    result = await workflow.run(responses={only_request(checkpoint): APPROVED}, checkpoint=checkpoint)
    assert [output.text for output in result.get_outputs()] == ["a1"]


def test_one_text_and_one_message_are_what_a_person_says() -> None:
    message = Message("user", ["Shorter."])
    for response in (
        AgentRequestInfoResponse.from_strings("Shorter."),
        AgentRequestInfoResponse.from_strings(["Shorter."]),
        AgentRequestInfoResponse.from_messages(message),
        AgentRequestInfoResponse.from_messages([message]),
    ):
        assert [said.text for said in response.messages] == ["Shorter."]
