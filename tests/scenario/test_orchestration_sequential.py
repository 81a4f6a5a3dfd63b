"""A row of agents: who is told what, whose answer is the output, and that nothing interrupts it for good."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Never

import pytest
from agent_framework import AgentResponse, Content, FunctionTool, Message, tool

from branchpoint import (
    Executor,
    FileCheckpointStorage,
    TypeCompatibilityError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
)
from branchpoint.agents import AgentExecutor, AgentExecutorResponse
from branchpoint.errors import DefinitionError
from branchpoint.orchestrations import AgentRequestInfoResponse, HandoffBuilder, SequentialBuilder
from branchpoint.testing.agents import scripted_agent, tool_call
from tests.scenario.kit import file_bytes
from tests.scenario.orchestrating import (
    Play,
    check_branches,
    check_crashes,
    check_pauses,
    check_second_process,
    check_two_at_once,
    given,
    speaker,
)


def row() -> Play:
    """Three agents; the first and the last are reviewed, and the first is sent back once."""

    def build() -> Workflow:
        builder = SequentialBuilder(participants=[speaker("a"), speaker("b"), speaker("c")])
        return builder.with_request_info(agents=["a", "c"]).build()

    def answer(request: Any) -> AgentRequestInfoResponse:
        if request.data.agent_response.text == "a0":
            return AgentRequestInfoResponse.from_strings(["Again."])
        return AgentRequestInfoResponse.approve()

    return Play(build, answer=answer)


class Shout(Executor):
    """Takes a conversation, and passes it on in capitals."""

    @handler
    async def on_messages(self, messages: list[Message], ctx: WorkflowContext[list[Message]]) -> None:
        await ctx.send_message([Message(message.role, [message.text.upper()]) for message in messages])


class Close(Executor):
    """Takes a conversation, and yields how long it was."""

    @handler
    async def on_messages(self, messages: list[Message], ctx: WorkflowContext[Never, AgentResponse]) -> None:
        await ctx.yield_output(AgentResponse(messages=[Message("assistant", [f"{len(messages)} messages"])]))


async def test_each_agent_is_given_the_conversation_and_the_last_answer_is_the_output() -> None:
    agents = [speaker(name) for name in "abc"]
    result = await SequentialBuilder(participants=agents).build().run("Go.")
    assert [output.text for output in result.get_outputs()] == ["c0"]
    assert [given(agent) for agent in agents] == [[["Go."]], [["Go.", "a0"]], [["Go.", "a0", "b0"]]]


@pytest.mark.parametrize("message", ["Go.", Message("user", ["Go."]), ["Go."], [Message("user", ["Go."])]])
async def test_an_input_is_a_text_a_message_or_several(message: Any) -> None:
    agent = speaker("a")
    await SequentialBuilder(participants=[agent]).build().run(message)
    assert given(agent) == [["Go."]]


async def test_a_chain_of_answers_alone() -> None:
    agents = [speaker(name) for name in "abc"]
    await SequentialBuilder(participants=agents, chain_only_agent_responses=True).build().run("Go.")
    assert [given(agent) for agent in agents] == [[["Go."]], [["a0"]], [["b0"]]]


async def test_an_agent_may_be_told_to_go_on() -> None:
    agents = [speaker(name) for name in "ab"]
    await SequentialBuilder(participants=agents, ensure_trailing_user_turn=True).build().run("Go.")
    assert [given(agent) for agent in agents] == [[["Go."]], [["Go.", "a0", "please continue."]]]


@pytest.mark.parametrize("only", [False, True])
async def test_executors_take_and_send_messages(only: bool) -> None:
    first, last = speaker("a"), speaker("b")
    participants = [first, Shout("shout"), last, Close("close")]
    builder = SequentialBuilder(participants=participants, chain_only_agent_responses=only)
    result = await builder.build().run("Go.")
    assert given(last) == [["A0"] if only else ["GO.", "A0"]]
    assert result.get_outputs()[0].text == ("1 messages" if only else "3 messages")


async def test_an_executor_may_take_answers_as_they_are() -> None:
    class Sign(Executor):
        @handler
        async def sign(
            self, answer: AgentExecutorResponse, ctx: WorkflowContext[AgentExecutorResponse]
        ) -> None:
            await ctx.send_message(answer.with_text(f"{answer.agent_response.text}, signed"))

    last = speaker("b")
    await SequentialBuilder(participants=[speaker("a"), Sign("sign"), last]).build().run("Go.")
    assert given(last) == [["Go.", "a0, signed"]]


async def test_whose_answers_are_outputs() -> None:
    def outputs(**more: Any) -> Any:
        return SequentialBuilder(participants=[speaker(name) for name in "abc"], **more).build()

    async def heard(**more: Any) -> tuple[list[str], list[str]]:
        result = await outputs(**more).run("Go.")
        return [one.text for one in result.get_outputs()], [
            one.text for one in result.get_intermediate_outputs()
        ]

    assert await heard(output_from="all") == (["a0", "b0", "c0"], [])
    assert await heard(output_from=["b"]) == (["b0"], [])
    assert await heard(intermediate_output_from=["a"]) == (["c0"], ["a0"])
    assert await heard(output_from=["b"], intermediate_output_from="all_other") == (["b0"], ["a0", "c0"])
    with pytest.raises(DefinitionError, match="'d', who is not among"):
        outputs(output_from=["d"])


async def test_r53_a_second_message_keeps_the_conversation() -> None:
    agents = [speaker(name) for name in "ab"]
    workflow = SequentialBuilder(participants=agents).build()
    checkpoint = workflow.create_checkpoint("two")
    await workflow.run("Go.", checkpoint=checkpoint)
    result = await workflow.run("More.", checkpoint=checkpoint)
    assert [output.text for output in result.get_outputs()] == ["b1"]
    assert given(agents[0])[1] == ["Go.", "a0", "More."]
    assert given(agents[1])[1] == ["Go.", "a0", "b0", "More.", "a1"]


def test_what_a_builder_refuses() -> None:
    with pytest.raises(DefinitionError, match="needs participants"):
        SequentialBuilder(participants=[]).build()
    with pytest.raises(DefinitionError, match="Two participants have the id 'a'"):
        SequentialBuilder(participants=[speaker("a"), speaker("a")]).build()
    with pytest.raises(DefinitionError, match="takes an agent"):
        SequentialBuilder(participants=[7]).build()  # type: ignore[list-item]
    with pytest.raises(DefinitionError, match="names 'b', who is not among"):
        SequentialBuilder(participants=[speaker("a")]).with_request_info(agents=["b"]).build()
    with pytest.raises(DefinitionError, match="names 'a', who is not among"):
        own = AgentExecutor(speaker("a"))
        SequentialBuilder(participants=[own]).with_request_info(agents=["a"]).build()
    with pytest.raises(DefinitionError, match="takes a list of agents"):
        SequentialBuilder(participants=[speaker("a")]).with_request_info(agents=[])

    class Numbers(Executor):
        @handler
        async def on_number(self, number: int, ctx: WorkflowContext[int]) -> None:
            await ctx.send_message(number)

    with pytest.raises(TypeCompatibilityError):
        SequentialBuilder(participants=[speaker("a"), Numbers("numbers")]).build()


async def test_r53_paused_and_reloaded_a_row_ends_as_if_it_ran_through(tmp_path: Path) -> None:
    await check_pauses(row(), tmp_path)


async def test_r53_another_process_finishes_a_row(tmp_path: Path) -> None:
    await check_second_process(row, tmp_path)


async def test_r53_a_row_crashes_at_any_commit_and_goes_on() -> None:
    assert await check_crashes(row()) == 11


async def test_r53_two_runs_of_one_row_never_see_each_other() -> None:
    await check_two_at_once(row())


async def test_r53_a_row_is_branched_at_every_snapshot() -> None:
    await check_branches(row())


async def test_r53_a_row_costs_what_is_said_and_not_the_conversation_per_agent(tmp_path: Path) -> None:
    """Twenty agents that say 2 kB each, every snapshot of them on disk."""
    agents = [
        scripted_agent(lambda messages: f"{len(messages)} " + "word " * 400, name=f"agent{number}")
        for number in range(20)
    ]
    workflow = SequentialBuilder(participants=agents).build()
    checkpoint = workflow.create_checkpoint("long", checkpoint_storage=FileCheckpointStorage(tmp_path))
    await workflow.run("Go.", checkpoint=checkpoint)
    assert len(checkpoint.snapshots) == 22
    stored = sum(map(len, file_bytes(tmp_path).values()))
    assert stored < 100_000, stored


async def test_the_next_agent_is_given_the_call_of_each_result_also_after_an_approval() -> None:
    """A workflow that is an agent asks for approval without the call beside it; no model takes a result alone."""

    @tool(approval_mode="always_require")
    def refund(order: str) -> str:
        """Refund an order."""
        return f"refunded {order}"

    def desk(name: str) -> Any:
        clerk = scripted_agent(
            [tool_call("refund", order="7"), f"{name}0"], name=f"{name}-clerk", tools=[refund]
        )
        return WorkflowBuilder(name=name, start_executor=clerk).build().as_agent(name=name)

    last = speaker("c")
    workflow = SequentialBuilder(participants=[desk("a"), desk("b"), last]).build()
    checkpoint = workflow.create_checkpoint()
    await workflow.run("Go.", checkpoint=checkpoint)
    for asking in ("a", "b"):
        (request,) = checkpoint.pending_requests
        assert request.source_executor_id == asking
        answer = request.data.to_function_approval_response(approved=True)
        await workflow.run(responses={request.request_id: answer}, checkpoint=checkpoint)
    told = [content for message in last.client.calls[0].messages for content in message.contents]
    assert [content.text or content.type for content in told] == [
        "Go.",
        *("function_call", "function_result", "a0"),
        *("function_call", "function_result", "b0"),
    ]


async def test_what_was_asked_and_answered_before_is_a_conversation_for_the_next_agent() -> None:
    """Also where that is a workflow, which takes results for answers to its own questions."""
    look = FunctionTool(name="look", description="Looks.", func=None)
    first = scripted_agent([tool_call("look"), "It rains."], name="first", tools=[look])
    desk = HandoffBuilder(
        participants=[speaker("a")], termination_condition=lambda said: said[-1].text == "a1"
    )
    asking = desk.build().as_agent(name="asking")
    telling = WorkflowBuilder(name="telling", start_executor=speaker("t")).build().as_agent(name="telling")
    workflow = SequentialBuilder(participants=[first, asking, telling]).build()
    checkpoint = workflow.create_checkpoint()
    await workflow.run("Go.", checkpoint=checkpoint)
    for result in ("wet", '[{"role": "user", "contents": []}]'):
        (request,) = checkpoint.pending_requests
        answer = Content.from_function_result(request.data.call_id, result=result)
        await workflow.run(responses={request.request_id: answer}, checkpoint=checkpoint)
    assert checkpoint.status == "idle"
    assert [output.value.text for output in checkpoint.outputs()] == ["t0"]
