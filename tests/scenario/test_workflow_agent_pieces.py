"""Outputs that come in pieces, as a workflow agent tells them: live, and nothing of the whole is lost."""

from __future__ import annotations

from typing import Any

import pytest
from agent_framework import AgentResponse, AgentResponseUpdate, Content, Message

from branchpoint import Executor, Workflow, WorkflowBuilder, WorkflowContext, WorkflowExecutor, handler
from branchpoint.functional import RunContext, step, workflow


def update(text: str) -> AgentResponseUpdate:
    return AgentResponseUpdate(contents=[Content.from_text(text)], role="assistant")


class Speaker(Executor):
    """Delivers pieces, and then the whole."""

    def __init__(self, pieces: list[Any], whole: Any) -> None:
        super().__init__(id="speaker")
        self.pieces = pieces
        self.whole = whole

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[None, Any]) -> None:
        for piece in self.pieces:
            await ctx.stream_output(piece)
        await ctx.yield_output(self.whole)


def graph(pieces: list[Any], whole: Any) -> Workflow:
    return WorkflowBuilder(name="speaking", start_executor=Speaker(pieces, whole)).build()


def nested(pieces: list[Any], whole: Any) -> Workflow:
    child = WorkflowExecutor(graph(pieces, whole), id="child", allow_direct_output=True)
    return WorkflowBuilder(name="around", start_executor=child).build()


def function(pieces: list[Any], whole: Any) -> Workflow:
    @workflow
    async def speaking(text: str, ctx: RunContext) -> Any:
        for piece in pieces:
            await ctx.stream_output(piece)
        return whole

    return speaking


HELLO = [
    pytest.param(["Hel", "lo"], "Hello", ["Hel", "lo"], id="texts"),
    pytest.param(["Hel", "lo"], "Hello!", ["Hel", "lo", "!"], id="texts, and the whole has more"),
    pytest.param(["Hel", "", "lo"], "Goodbye", ["Hel", "lo", "Goodbye"], id="texts of something else"),
    pytest.param(["Hel", "lo"], {"n": 1}, ["Hel", "lo", '{"n": 1}'], id="texts, and no text"),
    pytest.param(["lo"], Message("assistant", ["lo"]), ["lo"], id="a text, and its message"),
    pytest.param([{"done": 1}], {"done": 2}, ['{"done": 2}'], id="no texts"),
    pytest.param([update("Hel"), update("lo")], "Hello", ["Hel", "lo"], id="updates, and a text"),
    pytest.param([update("He")], "Hello", ["He", "llo"], id="updates, and a text with more"),
    pytest.param([update("Hi")], {"n": 1}, ["Hi", '{"n": 1}'], id="updates, and no text"),
    pytest.param(
        [update("A"), update("B c")],
        AgentResponse(messages=[Message("assistant", ["B", "c"])]),
        ["A", "B c"],
        id="updates, and a response",
    ),
    pytest.param(
        [update("A")], AgentResponse(messages=[Message("assistant", ["B"])]), ["A", "B"], id="of another"
    ),
    pytest.param([], "Hello", ["Hello"], id="no pieces"),
]


@pytest.mark.parametrize("make", [graph, nested, function])
@pytest.mark.parametrize("has_session", [True, False])
@pytest.mark.parametrize(("pieces", "whole", "told"), HELLO)
async def test_pieces_are_told_to_a_reader_and_of_the_whole_what_they_did_not_say(
    make: Any, has_session: bool, pieces: list[Any], whole: Any, told: list[str]
) -> None:
    agent = make(pieces, whole).as_agent()
    session = agent.create_session() if has_session else None

    stream = agent.run("hi", session=session, stream=True)
    assert [one.text async for one in stream if one.text] == told
    assert (await stream.get_final_response()).text == "".join(told)
    # Nobody reads them here, so the response is what the workflow yields.
    response = await agent.run("hi", session=session)
    assert response.text == (await make([], whole).as_agent().run("hi")).text


async def test_what_a_step_has_streamed_before_a_pause_takes_nothing_from_the_answer_after_it() -> None:
    @step
    async def think(text: str, ctx: RunContext) -> str:
        await ctx.stream_output(update(f"{text} "))
        return f"{text} "

    @workflow
    async def speaking(text: str, ctx: RunContext) -> str:
        await ctx.stream_output("So, ")  # again, whenever the function runs
        thought = await think(text)
        return thought + str(await ctx.request_info("go on?", bool))

    agent = speaking.as_agent()
    session = agent.create_session()
    stream = agent.run("well", session=session, stream=True)
    assert [one.text async for one in stream if one.text] == ["So, ", "well "]
    (question,) = (await stream.get_final_response()).user_input_requests
    answer = Content.from_function_result(question.call_id, result=True)
    assert (await agent.run(answer, session=session)).text == "well True"
