"""Agents side by side: what they are given, how their answers are put together, in which order they come."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import Any, Never

import pytest
from agent_framework import AgentResponse, Message

from branchpoint import Executor, HandlerError, SyncWorkflowContext, Workflow, WorkflowContext, handler
from branchpoint.agents import AgentExecutorRequest, AgentExecutorResponse
from branchpoint.errors import DefinitionError
from branchpoint.orchestrations import AgentRequestInfoResponse, ConcurrentBuilder
from branchpoint.testing.agents import scripted_agent
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


def fan() -> Play:
    """Two agents, one of which is reviewed and sent back once."""

    def build() -> Workflow:
        builder = ConcurrentBuilder(participants=[speaker("a"), speaker("b")])
        return builder.with_request_info(agents=["b"]).build()

    def answer(request: Any) -> AgentRequestInfoResponse:
        if request.data.agent_response.text == "b0":
            return AgentRequestInfoResponse.from_strings(["Again."])
        return AgentRequestInfoResponse.approve()

    return Play(build, answer=answer)


def told(answers: list[AgentExecutorResponse]) -> str:
    return " ".join(answer.agent_response.text for answer in answers)


async def test_all_get_the_input_and_the_output_has_the_order_of_the_participants() -> None:
    first_may_speak = asyncio.Event()

    async def wait(number: int, piece: int) -> None:
        await first_may_speak.wait()

    async def go(number: int, piece: int) -> None:
        first_may_speak.set()

    agents = [
        scripted_agent(["one"], name="a", gate=wait),
        scripted_agent(["two"], name="b", gate=go),
    ]
    result = await ConcurrentBuilder(participants=agents).build().run("Go.")
    (output,) = result.get_outputs()
    assert [(message.author_name, message.text) for message in output.messages] == [
        ("a", "one"),
        ("b", "two"),
    ]
    assert [given(agent) for agent in agents] == [[["Go."]], [["Go."]]]


@pytest.mark.parametrize(
    "message",
    ["Go.", Message("user", ["Go."]), ["Go."], AgentExecutorRequest([Message("user", ["Go."])])],
)
async def test_an_input_is_a_text_a_message_several_or_a_request(message: Any) -> None:
    agents = [speaker("a"), speaker("b")]
    await ConcurrentBuilder(participants=agents).build().run(message)
    assert [given(agent) for agent in agents] == [[["Go."]], [["Go."]]]


async def later(answers: list[AgentExecutorResponse]) -> str:
    return told(answers)


async def yields(answers: list[AgentExecutorResponse], ctx: WorkflowContext[Never, str]) -> None:
    await ctx.yield_output(told(answers))


def yields_in_a_thread(answers: list[AgentExecutorResponse], ctx: SyncWorkflowContext[Never, str]) -> None:
    ctx.yield_output(told(answers))


class Callable:
    async def __call__(self, answers: list[AgentExecutorResponse]) -> str:
        return told(answers)


class Own(Executor):
    @handler
    async def put(self, answers: list[AgentExecutorResponse], ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(told(answers))


@pytest.mark.parametrize(
    ("aggregator", "name"),
    [
        (told, "told"),
        (later, "later"),
        (yields, "yields"),
        (yields_in_a_thread, "yields_in_a_thread"),
        (lambda answers: told(answers), "aggregator"),
        (functools.partial(later), "later"),
        (Callable(), "Callable"),
        (Own("own"), "own"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_an_aggregator_is_any_function_or_an_executor(aggregator: Any, name: str) -> None:
    builder = ConcurrentBuilder(participants=[speaker("a"), speaker("b")]).with_aggregator(aggregator)
    workflow = builder.build()
    checkpoint = workflow.create_checkpoint("one")
    await workflow.run("Go.", checkpoint=checkpoint)
    (output,) = checkpoint.outputs()
    assert (output.value, output.executor_id) == ("a0 b0", name)


async def test_an_aggregator_that_returns_nothing_yields_nothing() -> None:
    def nothing(answers: list[AgentExecutorResponse]) -> None:
        return None

    builder = ConcurrentBuilder(participants=[speaker("a"), speaker("b")]).with_aggregator(nothing)
    assert (await builder.build().run("Go.")).get_outputs() == []


async def test_a_plain_function_that_returns_something_to_await_is_refused() -> None:
    builder = ConcurrentBuilder(participants=[speaker("a"), speaker("b")])
    workflow = builder.with_aggregator(lambda answers: later(answers)).build()
    with pytest.raises(HandlerError, match="returned something to await"):
        await workflow.run("Go.")


async def test_an_executor_takes_part() -> None:
    class Mute(Executor):
        @handler
        async def on_request(
            self, request: AgentExecutorRequest, ctx: WorkflowContext[AgentExecutorResponse]
        ) -> None:
            await ctx.send_message(AgentExecutorResponse(self.id, AgentResponse(), request.messages))

    result = await ConcurrentBuilder(participants=[speaker("a"), Mute("mute")]).build().run("Go.")
    assert [message.text for message in result.get_outputs()[0].messages] == ["a0"]
    with pytest.raises(HandlerError, match="None of the participants"):
        await ConcurrentBuilder(participants=[Mute("one"), Mute("two")]).build().run("Go.")


async def test_whose_answers_are_outputs() -> None:
    async def heard(**more: Any) -> tuple[list[str], list[str]]:
        participants = [speaker("a"), speaker("b")]
        result = await ConcurrentBuilder(participants=participants, **more).build().run("Go.")
        return sorted(one.text for one in result.get_outputs()), sorted(
            one.text for one in result.get_intermediate_outputs()
        )

    assert await heard() == (["a0b0"], [])
    assert await heard(output_from=["a"]) == (["a0", "a0b0"], [])
    assert await heard(intermediate_output_from="all_other") == (["a0b0"], ["a0", "b0"])


async def test_r53_a_second_message_keeps_the_conversations() -> None:
    agents = [speaker("a"), speaker("b")]
    workflow = ConcurrentBuilder(participants=agents).build()
    checkpoint = workflow.create_checkpoint("two")
    await workflow.run("Go.", checkpoint=checkpoint)
    await workflow.run("More.", checkpoint=checkpoint)
    assert given(agents[1])[1] == ["Go.", "b0", "More."]
    assert [message.text for message in checkpoint.outputs()[-1].value.messages] == ["a1", "b1"]


def test_what_a_builder_refuses() -> None:
    with pytest.raises(DefinitionError, match="'a' is alone"):
        ConcurrentBuilder(participants=[speaker("a")]).build()
    builder = ConcurrentBuilder(participants=[speaker("a"), speaker("b")])
    with pytest.raises(DefinitionError, match="an executor or a function"):
        builder.with_aggregator(Own)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="'told' already"):
        builder.with_aggregator(told).with_aggregator(told)


async def test_r53_paused_and_reloaded_a_fan_ends_as_if_it_ran_through(tmp_path: Path) -> None:
    await check_pauses(fan(), tmp_path)


async def test_r53_another_process_finishes_a_fan(tmp_path: Path) -> None:
    await check_second_process(fan, tmp_path)


async def test_r53_a_fan_crashes_at_any_commit_and_goes_on() -> None:
    assert await check_crashes(fan()) == 8


async def test_r53_two_runs_of_one_fan_never_see_each_other() -> None:
    await check_two_at_once(fan())


async def test_r53_a_fan_is_branched_at_every_snapshot() -> None:
    await check_branches(fan())
