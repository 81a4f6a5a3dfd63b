"""A workflow as an agent wherever an agent goes: in other workflows, as a tool, in Agent Framework's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import agent_framework
import pytest
from agent_framework import AgentSession, Content, Message

from branchpoint import FileCheckpointStorage, Workflow, WorkflowBuilder
from branchpoint.agents import WorkflowAgent
from branchpoint.testing import check_lineage_law
from branchpoint.testing.agents import scripted_agent, tool_call
from tests.scenario.kit import Ticks, in_new_process
from tests.scenario.test_workflow_agent import Clerk, refund, remembering


def outer(folder: str, stored: bool) -> Workflow:
    storage = FileCheckpointStorage(f"{folder}/inner") if stored else None
    inner = WorkflowBuilder(name="office", start_executor=Clerk(Ticks(f"{folder}/ticks"))).build()
    agent = inner.as_agent(name="office", checkpoint_storage=storage)
    after = scripted_agent(lambda told: f"heard {told[-1].text}", name="after")
    return WorkflowBuilder(name="outer", start_executor=agent).add_edge(agent, after).build()


async def answer_elsewhere(folder: str, stored: bool) -> list[Any]:
    checkpoint = await FileCheckpointStorage(f"{folder}/outer").load("o")
    (request,) = checkpoint.pending_requests
    answer = Content.from_function_result(request.data.call_id, result=True)
    result = await outer(folder, stored).run(responses={request.request_id: answer}, checkpoint=checkpoint)
    check_lineage_law(checkpoint)
    return [[one.text for one in result.get_outputs()], Ticks(f"{folder}/ticks")["clerk"]]


@pytest.mark.parametrize("stored", [False, True])
async def test_r52_as_a_step_of_another_workflow_it_pauses_and_goes_on_in_any_process(
    tmp_path: Path, stored: bool
) -> None:
    folder = str(tmp_path)
    workflow = outer(folder, stored)
    checkpoint = workflow.create_checkpoint("o", FileCheckpointStorage(tmp_path / "outer"))
    result = await workflow.run("refund 7", checkpoint=checkpoint)
    (asked,) = result.get_request_info_events()
    assert asked.data.parse_arguments()["data"] == {"what": "refund 7"}
    assert in_new_process(answer_elsewhere, folder, stored) == [
        ["refund 7: done", "heard refund 7: done"],
        1,
    ]


async def test_r52_going_back_in_the_outer_workflow_takes_the_inner_one_along() -> None:
    agent = remembering().as_agent(name="memory")
    workflow = WorkflowBuilder(name="outer", start_executor=agent).build()
    checkpoint = workflow.create_checkpoint()
    ends = []
    for text in ("a", "b"):
        result = await workflow.run(text, checkpoint=checkpoint)
        ends.append(checkpoint.head_snapshot_id)
    assert result.get_outputs()[0].text == "a b"
    checkpoint.restart_from(ends[0])
    assert (await workflow.run("c", checkpoint=checkpoint)).get_outputs()[0].text == "a c"
    checkpoint.restart_from(ends[1])
    assert (await workflow.run("d", checkpoint=checkpoint)).get_outputs()[0].text == "a b d"
    check_lineage_law(checkpoint)


async def test_r52_a_stream_of_the_outer_workflow_has_what_agents_in_the_inner_one_say() -> None:
    inner = WorkflowBuilder(name="inner", start_executor=scripted_agent(["one two"], name="deep")).build()
    workflow = WorkflowBuilder(name="outer", start_executor=inner.as_agent(name="middle")).build()
    pieces = [event.data.text async for event in workflow.run("hi", stream=True) if event.type == "output"]
    assert pieces == ["one", " two", "one two"], "as it is said, and then whole"


async def test_r52_an_agent_calls_it_as_a_tool() -> None:
    agent = remembering().as_agent(name="notes", description="Remembers.")
    called = agent.as_tool()
    assert (called.name, called.description) == ("notes", "Remembers.")
    boss = scripted_agent(
        [tool_call("notes", task="milk"), lambda told: f"it said {told[-1].contents[0].result}"],
        tools=[called],
    )
    assert (await boss.run("note it")).text == "it said milk"


async def test_r52_a_tool_that_shares_the_session_goes_on_with_its_checkpoint() -> None:
    agent = remembering().as_agent(name="notes")
    boss = scripted_agent(_reply, tools=[agent.as_tool(propagate_session=True)], name="boss")
    session = AgentSession()
    assert (await boss.run("milk", session=session)).text == "milk"
    assert (await boss.run("bread", session=session)).text == "milk bread"


def _reply(told: Any) -> Any:
    last = told[-1]
    if last.role == "tool":
        return last.contents[0].result
    return tool_call("notes", task=last.text)


async def test_r52_agent_frameworks_own_workflow_takes_it_as_an_agent() -> None:
    agent = remembering().as_agent(name="notes")
    builder = agent_framework.WorkflowBuilder(start_executor=agent)
    result = await builder.build().run("milk")
    assert [one.text for one in result.get_outputs()] == ["milk"]


async def test_r52_agent_frameworks_own_workflow_pauses_on_what_it_asks() -> None:
    agent = WorkflowBuilder(name="office", start_executor=Clerk(Ticks())).build().as_agent(name="office")
    workflow = agent_framework.WorkflowBuilder(start_executor=agent).build()
    (event,) = (await workflow.run("refund 7")).get_request_info_events()
    answer = Content.from_function_result(event.data.call_id, result=True)
    result = await workflow.run(responses={event.request_id: answer})
    assert [one.text for one in result.get_outputs()] == ["refund 7: done"]


async def test_r52_its_stream_is_one_of_agent_frameworks() -> None:
    agent = remembering().as_agent()
    workflow = agent_framework.WorkflowBuilder(start_executor=agent).build()
    told = [event.data.text async for event in workflow.run("a b", stream=True) if event.type == "output"]
    assert told == ["a", " b"]
    session = agent.create_session()
    texts = agent.run("c d", session=session, stream=True).map(
        lambda update: update.text, finalizer=lambda texts: "|".join(texts)
    )
    assert [text async for text in texts] == ["c", " d"]
    assert await texts.get_final_response() == "c| d"
    texts = agent.run("e", session=session, stream=True).map(str, finalizer=list)
    async for _ in texts:
        break
    await texts.close()
    assert (await agent.run(session=session)).text == "c d e"


async def test_r52_an_approval_of_an_agent_two_workflows_deep() -> None:
    deep = scripted_agent([tool_call("refund", order="7"), "All done."], name="desk", tools=[refund])
    inner = WorkflowBuilder(name="inner", start_executor=deep).build().as_agent(name="inner")
    agent = WorkflowBuilder(name="outer", start_executor=inner).build().as_agent()
    session = agent.create_session()
    (asked,) = (await agent.run("refund 7", session=session)).user_input_requests
    session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    response = await agent.run(asked.to_function_approval_response(approved=True), session=session)
    assert response.text.endswith("All done.")


def declaring() -> WorkflowAgent:
    declared = agent_framework.FunctionTool(name="ask_user", description="Asks.", func=None)
    inside = scripted_agent(
        [tool_call("ask_user", question="which?"), lambda told: f"so {told[-1].contents[0].result}"],
        tools=[declared],
    )
    return WorkflowBuilder(name="w", start_executor=inside).build().as_agent()


@pytest.mark.parametrize("stream", [False, True])
async def test_r52_a_tool_that_is_only_declared_is_answered_as_with_any_agent(stream: bool) -> None:
    agent = declaring()
    session = agent.create_session()

    async def say(given: Any) -> Any:
        if stream:
            return await agent.run(given, session=session, stream=True).get_final_response()
        return await agent.run(given, session=session)

    (asked,) = (await say("go")).user_input_requests
    assert (asked.name, asked.parse_arguments()) == ("ask_user", {"question": "which?"})
    response = await say(Message("tool", [Content.from_function_result(asked.call_id, result="the red one")]))
    assert response.text == "so the red one"
