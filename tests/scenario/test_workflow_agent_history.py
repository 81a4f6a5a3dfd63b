"""Context providers around a workflow as an agent: a history is told each message once."""

from __future__ import annotations

import json

import pytest
from agent_framework import AgentSession, Content, InMemoryHistoryProvider, Message

from branchpoint import InputMismatchError, WorkflowBuilder
from tests.scenario.kit import Boom, Ticks, turns
from tests.scenario.test_workflow_agent import Clerk
from tests.scenario.test_workflow_agent_calls import (
    Recording,
    both,
    failing_once,
    history,
    remembering,
    storage_of,
)
from tests.scenario.test_workflow_agent_questions import Several


@pytest.mark.parametrize("stream", [False, True])
async def test_r52_the_history_is_user_assistant_user_assistant_once_each(stream: bool) -> None:
    record = Recording()
    agent = remembering(context_providers=[record, InMemoryHistoryProvider()])
    session = agent.create_session()
    for text in ("a", "b", "a"):
        if stream:
            await agent.run(text, session=session, stream=True).get_final_response()
        else:
            await agent.run(text, session=session)
        session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    expected = [
        ("user", "a"),
        ("assistant", "a"),
        ("user", "b"),
        ("assistant", "a b"),
        ("user", "a"),
        ("assistant", "a b a"),
    ]
    assert history(record.messages) == expected
    assert history(session.state["in_memory"]["messages"]) == expected
    await agent.run(session=session)
    assert history(record.messages) == expected, "nothing was said"


async def test_r52_a_workflow_that_begins_is_given_the_history_there_is() -> None:
    record = Recording()
    record.messages = [Message("user", ["before"]), Message("assistant", ["yes"])]
    agent = remembering(context_providers=[record])
    session = agent.create_session()
    assert (await agent.run("a", session=session)).text == "before a"
    assert (await agent.run("b", session=session)).text == "before a b"
    assert [text for _, text in history(record.messages)] == [
        "before",
        "yes",
        "a",
        "before a",
        "b",
        "before a b",
    ]


async def test_r52_after_a_failure_the_history_is_whole(ticks: Ticks) -> None:
    record = Recording(load_messages=False)
    agent = failing_once(ticks, context_providers=[record])
    session = agent.create_session()
    with pytest.raises(Boom):
        await agent.run("hi", session=session)
    assert record.messages == []
    session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    await agent.run(session=session)
    expected = [("user", "hi"), ("assistant", "first:hi"), ("assistant", "second:hi")]
    assert history(record.messages) == expected
    assert list(session.state) == ["branchpoint.checkpoint", "recording"]


@both
async def test_r52_a_delivery_that_is_repeated_is_recorded_once(stored: bool, ticks: Ticks) -> None:
    record = Recording()
    agent = failing_once(ticks, checkpoint_storage=storage_of(stored), context_providers=[record])
    session = agent.create_session()
    with pytest.raises(Boom):
        await agent.run("a", session=session, input_id="m1")
    for _ in range(2):
        await agent.run("a", session=session, input_id="m1")
    with pytest.raises(InputMismatchError):
        await agent.run("b", session=session, input_id="m1")
    assert history(record.messages) == [("user", "a"), ("assistant", "first:a"), ("assistant", "second:a")]


async def test_r52_a_copy_from_before_a_delivery_gets_its_own_history_of_it(ticks: Ticks) -> None:
    agent = failing_once(
        ticks, checkpoint_storage=storage_of(True), context_providers=[InMemoryHistoryProvider()]
    )
    session = agent.create_session()
    with pytest.raises(Boom):
        await agent.run("a", session=session, input_id="m1")
    await agent.run(session=session)
    older = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    refused = json.dumps(older.to_dict())
    await agent.run("b", session=session, input_id="m2")
    with pytest.raises(InputMismatchError):
        await agent.run("c", session=older, input_id="m2")
    assert json.dumps(older.to_dict()) == refused, "a refused call changes nothing"
    await agent.run("b", session=older, input_id="m2")
    assert history(older.state["in_memory"]["messages"]) == history(session.state["in_memory"]["messages"])
    assert older.state["branchpoint.checkpoint"] == session.state["branchpoint.checkpoint"]


async def test_r52_the_end_of_a_turn_whose_reader_left_is_recorded() -> None:
    record = Recording()
    agent = remembering(context_providers=[record])
    session = agent.create_session()
    async for _ in agent.run("a b", session=session, stream=True):
        await turns()  # the run is ahead of its reader, and comes to its end
        break
    assert record.messages == []
    assert (await agent.run("c", session=session)).text == "a b c"
    expected = [("user", "a b"), ("assistant", "a b"), ("user", "c"), ("assistant", "a b c")]
    assert history(record.messages) == expected


async def test_r52_a_paused_turn_is_recorded_once() -> None:
    record = Recording()
    agent = (
        WorkflowBuilder(name="w", start_executor=Clerk(Ticks())).build().as_agent(context_providers=[record])
    )
    session = agent.create_session()
    (asked,) = (await agent.run("it", session=session)).user_input_requests
    again = await agent.run(session=session)
    assert [one.call_id for one in again.user_input_requests] == [asked.call_id]
    await agent.run(
        Message("tool", [Content.from_function_result(asked.call_id, result=True)]), session=session
    )
    kinds = [(message.role, [one.type for one in message.contents]) for message in record.messages]
    assert kinds == [
        ("user", ["text"]),
        ("assistant", ["function_call"]),
        ("tool", ["function_result"]),
        ("assistant", ["text"]),
    ]


async def test_r52_a_question_that_is_told_again_is_recorded_once() -> None:
    record = Recording()
    workflow = WorkflowBuilder(name="several", start_executor=Several(id="several")).build()
    agent = workflow.as_agent(context_providers=[record])
    session = agent.create_session()
    one, two = (await agent.run("2", session=session)).user_input_requests
    response = await agent.run(Content.from_function_result(one.call_id, result="x"), session=session)
    assert [asked.call_id for asked in response.user_input_requests] == [two.call_id]
    asked = [content.call_id for message in record.messages for content in message.contents if content.name]
    assert asked == [one.call_id, two.call_id]
    assert [(message.role, message.text) for message in record.messages if message.text] == [
        ("user", "2"),
        ("assistant", "q0=x"),
    ]
