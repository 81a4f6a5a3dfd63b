"""What a workflow asks through its agent, and what is no answer to it: clear errors, and nothing is consumed."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest
from agent_framework import AgentSession, Content, Message

from branchpoint import (
    Executor,
    GraphMismatchError,
    InvalidCallError,
    InvalidResponseError,
    PendingRequestsError,
    UnknownRequestError,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    register_state_type,
    response_handler,
)
from branchpoint.agents import WorkflowAgent
from branchpoint.codec import isolated_registry
from branchpoint.testing.agents import scripted_agent, tool_call
from tests.scenario.kit import Ticks
from tests.scenario.test_workflow_agent import Clerk, refund, remembering


def result(request_id: str | None, value: Any) -> Message:
    assert request_id is not None
    return Message("tool", [Content.from_function_result(request_id, result=value)])


def clerk(ticks: Ticks) -> WorkflowAgent:
    return WorkflowBuilder(name="office", start_executor=Clerk(ticks)).build().as_agent()


class Several(Executor):
    """Asks as many questions as the message says, and tells each answer."""

    @handler
    async def on_messages(self, messages: list[Message], ctx: WorkflowContext[Any, str]) -> None:
        for number in range(int(messages[-1].text)):
            await ctx.request_info(f"q{number}", str)

    @response_handler
    async def on_answer(self, question: str, answer: str, ctx: WorkflowContext[Any, str]) -> None:
        await ctx.yield_output(f"{question}={answer}")


def several() -> WorkflowAgent:
    return WorkflowBuilder(name="several", start_executor=Several(id="several")).build().as_agent()


async def state_of(agent: WorkflowAgent, session: AgentSession) -> Any:
    checkpoint = await agent.get_checkpoint(session)
    assert checkpoint is not None
    return [one.snapshot_id for one in checkpoint.snapshots], [
        one.request_id for one in checkpoint.pending_requests
    ]


async def test_r52_wrong_answers_name_the_id_and_consume_nothing(ticks: Ticks) -> None:
    agent = clerk(ticks)
    session, other = agent.create_session(session_id="s"), agent.create_session()
    (asked,) = (await agent.run("a", session=session)).user_input_requests
    (elsewhere,) = (await agent.run("b", session=other)).user_input_requests
    before = await state_of(agent, session)

    async def refused(given: Any, error: type[Exception], match: str) -> None:
        for stream in (False, True):
            with pytest.raises(error, match=match):
                if stream:
                    await agent.run(given, session=session, stream=True).get_final_response()
                else:
                    await agent.run(given, session=session)
        assert await state_of(agent, session) == before

    await refused("hello?", PendingRequestsError, rf"session 's' waits for answers to \['{asked.call_id}'\]")
    await refused(result(elsewhere.call_id, True), UnknownRequestError, str(elsewhere.call_id))
    await refused(result("made-up", True), UnknownRequestError, r"'made-up': open are \['")
    await refused(result(asked.call_id, "perhaps"), InvalidResponseError, str(asked.call_id))
    await refused(result(asked.call_id, 1), InvalidResponseError, str(asked.call_id))
    twice = [result(asked.call_id, True), result(asked.call_id, False)]
    await refused(twice, InvalidCallError, f"two answers to '{asked.call_id}'")
    await refused([result(asked.call_id, True), "and this"], InvalidCallError, "text beside them")
    assert ticks["clerk"] == 2
    assert (await agent.run(result(asked.call_id, True), session=session)).text == "a: done"
    with pytest.raises(UnknownRequestError, match=f"'{asked.call_id}': nothing is pending"):
        await agent.run(result(asked.call_id, True), session=session)
    with pytest.raises(UnknownRequestError, match="nothing is pending"):
        await agent.run([Message("assistant", [asked]), result(asked.call_id, True)], session=session)


async def test_r52_a_question_that_stands_beside_its_answer_is_no_matter(ticks: Ticks) -> None:
    agent = clerk(ticks)
    session = agent.create_session()
    (asked,) = (await agent.run("a", session=session)).user_input_requests
    given = [Message("assistant", [asked]), result(asked.call_id, False)]
    assert (await agent.run(given, session=session)).text == "a: left"


async def test_r52_calls_of_others_with_their_results_are_a_conversation() -> None:
    agent = remembering().as_agent()
    call = Content.from_function_call("c1", "search", arguments={"q": "x"})
    told = [
        Message("user", ["look"]),
        Message("assistant", [call]),
        result("c1", "found"),
        Message("user", ["so?"]),
    ]
    session = agent.create_session()
    assert (await agent.run(told, session=session)).text == "look so?"
    with pytest.raises(UnknownRequestError, match="'c2'"):
        await agent.run(result("c2", "found"), session=session)


async def test_r52_a_question_of_another_agent_is_a_conversation_once_an_assistant_went_on(
    ticks: Ticks,
) -> None:
    other = clerk(ticks)
    (asked,) = (await other.run("a", session=other.create_session())).user_input_requests
    agent = remembering().as_agent()
    told = [Message("user", ["look"]), Message("assistant", [asked]), result(asked.call_id, True)]
    with pytest.raises(UnknownRequestError, match=asked.call_id):
        await agent.run(told, session=agent.create_session())
    session = agent.create_session()
    told = [*told, Message("assistant", ["found"]), Message("user", ["so?"])]
    assert (await agent.run(told, session=session)).text == "look so?"


async def test_r52_some_answers_may_be_given_and_the_rest_is_asked_again() -> None:
    agent = several()
    session = agent.create_session()
    asked = (await agent.run("3", session=session)).user_input_requests
    assert [one.parse_arguments()["data"] for one in asked] == ["q0", "q1", "q2"]
    response = await agent.run(result(asked[1].call_id, "one"), session=session)
    assert response.text == "q1=one"
    assert [one.call_id for one in response.user_input_requests] == [asked[0].call_id, asked[2].call_id]
    streamed = agent.run(result(asked[2].call_id, "two"), session=session, stream=True)
    response = await streamed.get_final_response()
    assert [one.call_id for one in response.user_input_requests] == [asked[0].call_id]
    response = await agent.run(result(asked[0].call_id, "zero"), session=session)
    assert (response.text, response.user_input_requests) == ("q0=zero", [])


class Size(Enum):
    SMALL = "small"


@dataclass
class Decision:
    approved: bool
    note: str


@pytest.mark.parametrize(
    ("kind", "given", "told"),
    [
        (str, "yes", "'yes'"),
        (str, '{"a": 1}', "'{\"a\": 1}'"),
        (bool, True, "True"),
        (bool, "false", "False"),
        (int, 7, "7"),
        (Size, "small", "<Size.SMALL: 'small'>"),
        (Decision, {"approved": True, "note": "ok"}, "Decision(approved=True, note='ok')"),
        (list[int], [1, 2], "[1, 2]"),
        (dict[str, int], {"a": 1}, "{'a': 1}"),
    ],
)
async def test_r52_an_answer_has_the_type_that_was_asked_for(kind: Any, given: Any, told: str) -> None:
    class Asking(Executor):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[Any, str]) -> None:
            await ctx.request_info(text, kind)

        async def on_answer(self, question: str, answer: Any, ctx: WorkflowContext[Any, str]) -> None:
            await ctx.yield_output(repr(answer))

        on_answer.__annotations__["answer"] = kind
        on_answer = response_handler(on_answer)

    with isolated_registry():
        register_state_type(Size, type_id="questions.size")
        register_state_type(Decision, type_id="questions.decision")
        agent = WorkflowBuilder(name="w", start_executor=Asking(id="a")).build().as_agent()
        session = agent.create_session()
        (asked,) = (await agent.run("?", session=session)).user_input_requests
        session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
        assert (await agent.run(result(asked.call_id, given), session=session)).text == told


async def test_r52_a_question_of_yes_or_no_is_answered_by_an_approval_too(ticks: Ticks) -> None:
    agent = clerk(ticks)
    session = agent.create_session()
    (asked,) = (await agent.run("a", session=session)).user_input_requests
    assert asked.call_id is not None
    answer = Content.from_function_approval_response(True, asked.call_id, asked)
    assert (await agent.run(answer, session=session)).text == "a: done"


def asking_twice() -> WorkflowAgent:
    inside = scripted_agent(
        lambda told: "done" if told[-1].role == "tool" else tool_call("refund", order="7"),
        name="desk",
        tools=[refund],
    )
    return WorkflowBuilder(name="w", start_executor=inside).build().as_agent()


async def test_r52_a_stale_approval_is_refused() -> None:
    agent = asking_twice()
    session = agent.create_session()
    (first,) = (await agent.run("refund 7", session=session)).user_input_requests
    approval = first.to_function_approval_response(approved=True)
    await agent.run(approval, session=session)
    with pytest.raises(UnknownRequestError, match=str(first.id)):
        await agent.run(approval, session=session)
    (second,) = (await agent.run("refund 7 again", session=session)).user_input_requests
    before = await state_of(agent, session)
    # The same call with the same arguments: it is a new question all the same.
    with pytest.raises(UnknownRequestError, match=str(first.id)):
        await agent.run(approval, session=session)
    changed = copy.deepcopy(second.to_function_approval_response(approved=True))
    assert changed.function_call is not None
    changed.function_call.arguments = {"order": "8"}
    with pytest.raises(InvalidResponseError, match=str(second.id)):
        await agent.run(changed, session=session)
    assert await state_of(agent, session) == before
    response = await agent.run(second.to_function_approval_response(approved=False), session=session)
    assert response.text == "done"


async def test_r52_two_agents_that_ask_under_one_id_are_answered_apart() -> None:
    def desk(name: str) -> Any:
        return scripted_agent(
            lambda told: (
                str(told[-1].contents[0].result)
                if told[-1].role == "tool"
                else tool_call("refund", order="7")
            ),
            name=name,
            tools=[refund],
        )

    async def start(messages: list[Message], ctx: WorkflowContext[list[Message]]) -> None:
        await ctx.send_message(messages)

    builder = WorkflowBuilder(name="w", start_executor=start)
    agent = builder.add_fan_out_edges(start, [desk("one"), desk("two")]).build().as_agent()
    session = agent.create_session()
    one, two = (await agent.run("refund 7", session=session)).user_input_requests
    assert one.id != two.id
    response = await agent.run(two.to_function_approval_response(approved=True), session=session)
    assert response.text == "7 is refunded" and [asked.id for asked in response.user_input_requests] == [
        one.id
    ]
    response = await agent.run(one.to_function_approval_response(approved=False), session=session)
    assert "7 is refunded" not in response.text and not response.user_input_requests


async def test_r52_a_session_of_another_agent_is_refused(ticks: Ticks) -> None:
    session = AgentSession()
    await remembering().as_agent().run("a", session=session)
    before = session.to_dict()
    with pytest.raises(GraphMismatchError, match="remembering"):
        await clerk(ticks).run("b", session=session)
    assert session.to_dict() == before and ticks["clerk"] == 0


async def test_r52_what_a_new_session_is_refused_leaves_no_trace(ticks: Ticks) -> None:
    agent = clerk(ticks)
    session = agent.create_session()
    with pytest.raises(InvalidCallError, match="is new"):
        await agent.run(session=session)
    with pytest.raises(UnknownRequestError, match="nothing is pending"):
        await agent.run(result("r", True), session=session)
    with pytest.raises(InvalidCallError, match="nothing to run"):
        await agent.run()
    assert session.state == {} and ticks["clerk"] == 0
