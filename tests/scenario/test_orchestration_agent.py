"""An orchestration as an agent: what it asks is answered through Agent Framework, and the session goes on anywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agent_framework import AgentSession, Content

from branchpoint import InvalidResponseError
from branchpoint.codec import to_json
from branchpoint.orchestrations import HandoffAgentUserRequest, HandoffBuilder, SequentialBuilder
from tests.scenario.orchestrating import given, speaker

SAID = [{"role": "user", "contents": [{"type": "text", "text": 'It\'s "7", née {x}.'}]}]


@pytest.mark.parametrize(
    "result",
    [SAID, json.dumps(SAID), to_json(HandoffAgentUserRequest.create_response('It\'s "7", née {x}.'))],
    ids=["list", "text", "to_json"],
)
async def test_a_list_answers_what_handoffs_ask_through_an_agent(result: Any) -> None:
    """Agent Framework keeps the result of a function as text: a list as Python writes it."""
    a = speaker("a")
    agent = HandoffBuilder(participants=[a]).build().as_agent(name="desk")
    session = agent.create_session()
    (question,) = (await agent.run("Go.", session=session)).user_input_requests

    session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    answer = Content.from_function_result(question.call_id, result=result)
    response = await agent.run(answer, session=session)
    assert response.text == "a1"
    assert given(a)[-1] == ["Go.", "a0", 'It\'s "7", née {x}.']

    (question,) = response.user_input_requests
    over = Content.from_function_result(question.call_id, result=HandoffAgentUserRequest.terminate())
    assert not (await agent.run(over, session=session)).user_input_requests


async def test_what_agent_framework_does_not_keep_of_an_answer_is_refused() -> None:
    agent = HandoffBuilder(participants=[speaker("a")]).build().as_agent(name="desk")
    session = agent.create_session()
    (question,) = (await agent.run("Go.", session=session)).user_input_requests
    lost = Content.from_function_result(question.call_id, result=HandoffAgentUserRequest.create_response("7"))
    with pytest.raises(InvalidResponseError, match="the request stays open"):
        await agent.run(lost, session=session)


async def test_a_review_is_answered_through_an_agent() -> None:
    workflow = SequentialBuilder(participants=[speaker("a")]).with_request_info().build()
    agent = workflow.as_agent(name="row")
    session = agent.create_session()
    (question,) = (await agent.run("Go.", session=session)).user_input_requests
    no = Content.from_function_result(question.call_id, result={"messages": SAID})
    (question,) = (await agent.run(no, session=session)).user_input_requests
    yes = Content.from_function_result(question.call_id, result={"messages": []})
    assert (await agent.run(yes, session=session)).text == "a1"
