"""The real OpenAI client of Agent Framework, over HTTP, against a server of ours with a script for a model."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_framework import Agent, AgentResponse, AgentResponseUpdate, AgentSession, tool
from agent_framework.openai import OpenAIChatClient, OpenAIChatCompletionClient

from branchpoint import Checkpoint, FileCheckpointStorage, Workflow, WorkflowBuilder
from branchpoint.testing import check_lineage_law
from tests.scenario.kit import boundaries, file_bytes, in_new_process
from tests.servers.openai import Asked, Call, Cut, Fault, OpenAIServer, openai_server

# Chat completions; the Responses API, where the service keeps the conversation, and where it keeps none.
CLIENTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "completions": (OpenAIChatCompletionClient, {}),
    "responses": (OpenAIChatClient, {}),
    "responses-unkept": (OpenAIChatClient, {"store": False}),
}
every_client = pytest.mark.parametrize("client", CLIENTS)
every_way = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])

SCRIPT = [
    ["Let me see.", Call("look_up", {"order": "7"})],
    [Call("refund", {"order": "7", "euros": 20})],
    "It is on its way.",
    "You are welcome.",
]


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """A model that looks an order up, gives the money back, and says so; another one that sums it up."""
    with openai_server() as server:
        server.script = {"clerk": SCRIPT, "scribe": lambda asked: f"He said: {asked.said[-1][1]}"}
        yield server


def desk(url: str, folder: Path, client: str) -> Workflow:
    """A clerk who may look up, and asks before it gives money back; and a scribe who hears what it says."""
    cls, options = CLIENTS[client]

    def did(what: str) -> None:
        with (folder / "done").open("a") as file:
            file.write(f"{what} {os.getpid()}\n")

    @tool(approval_mode="never_require")
    def look_up(order: str) -> str:
        """Say what an order cost."""
        did(f"look_up {order}")
        return f"Order {order} cost 20 euros."

    @tool(approval_mode="always_require")
    def refund(order: str, euros: int) -> str:
        """Give money back."""
        did(f"refund {order} {euros}")
        return f"{euros} euros for order {order} are sent."

    def agent(name: str, **more: Any) -> Agent[Any]:
        return Agent(
            cls(model=name, api_key="the key", base_url=url), name=name, default_options=options, **more
        )

    clerk = agent("clerk", tools=[look_up, refund], instructions="Be kind.")
    return WorkflowBuilder(name="desk", start_executor=clerk).add_edge(clerk, agent("scribe")).build()


def done(folder: Path) -> list[tuple[str, int]]:
    """What the tools really did, and in which process."""
    lines = (folder / "done").read_text().splitlines() if (folder / "done").exists() else []
    return [(what, int(process)) for what, _, process in (line.rpartition(" ") for line in lines)]


async def heard(workflow: Workflow, stream: bool, *message: Any, **options: Any) -> list[str]:
    """Run, and return what the agents said."""
    if not stream:
        result = await workflow.run(*message, **options)
        return [output.text for output in result.get_outputs()]
    whole, pieces = [], []
    async for event in workflow.run(*message, stream=True, **options):
        if event.type == "output":
            (pieces if isinstance(event.data, AgentResponseUpdate) else whole).append(event.data.text)
    assert not whole or "".join(pieces).endswith(whole[-1])
    assert not whole or len([piece for piece in pieces if piece]) > len(whole)
    return whole


def tellings(server: OpenAIServer, role: str, model: str = "clerk") -> list[str]:
    """What was said in a role, by the last request to a model."""
    last = [asked for asked in server.asked if asked.model == model][-1]
    return [text for said_by, text in last.said if said_by == role]


async def pause(url: str, folder: str, client: str, stream: bool) -> dict[str, Any]:
    """In a process of its own: ask, until the clerk does."""
    workflow, storage = desk(url, Path(folder), client), FileCheckpointStorage(Path(folder) / "runs")
    case = workflow.create_checkpoint(checkpoint_id="case", checkpoint_storage=storage)
    said = await heard(workflow, stream, "My order 7 is broken.", checkpoint=case)
    assert said == []
    return {"pid": os.getpid(), "status": case.status}


async def finish(url: str, folder: str, client: str, stream: bool) -> dict[str, Any]:
    """In another one: load, answer, and thank."""
    workflow, storage = desk(url, Path(folder), client), FileCheckpointStorage(Path(folder) / "runs")
    case = await storage.load("case")
    (request,) = case.pending_requests
    answers = {request.request_id: request.data.to_function_approval_response(approved=True)}
    said = await heard(workflow, stream, responses=answers, checkpoint=case)
    said += await heard(workflow, stream, "Thanks.", checkpoint=case)
    return {"pid": os.getpid(), "said": said, "asked": request.data.function_call.parse_arguments()}


@pytest.mark.parametrize(
    ("client", "stream"), [("completions", True), ("responses", True), ("responses-unkept", False)]
)
async def test_r54_an_approval_is_asked_in_one_process_and_given_in_another(
    server: OpenAIServer, tmp_path: Path, client: str, stream: bool
) -> None:
    first = in_new_process(pause, server.url, str(tmp_path), client, stream)
    assert first["status"] == "idle_with_pending_requests"
    assert done(tmp_path) == [("look_up 7", first["pid"])]

    second = in_new_process(finish, server.url, str(tmp_path), client, stream)

    assert second["asked"] == {"order": "7", "euros": 20}
    assert second["said"] == [
        "It is on its way.",
        "He said: It is on its way.",
        "You are welcome.",
        "He said: You are welcome.",
    ]
    assert done(tmp_path) == [("look_up 7", first["pid"]), ("refund 7 20", second["pid"])]
    assert first["pid"] != second["pid"]
    # The model was told each thing once, whoever keeps the conversation.
    assert tellings(server, "user") == ["My order 7 is broken.", "Thanks."]
    assert tellings(server, "tool") == ["Order 7 cost 20 euros.", "20 euros for order 7 are sent."]
    assert {asked.key for asked in server.asked} == {"the key"}
    assert not any(b"the key" in data for data in file_bytes(tmp_path / "runs").values())


@every_client
async def test_c89_a_branch_of_an_approval_has_the_conversation_up_to_it(
    server: OpenAIServer, tmp_path: Path, client: str
) -> None:
    """Also where the service keeps the conversation: a response of it is never changed, and goes on twice."""
    workflow = desk(server.url, tmp_path, client)
    case = workflow.create_checkpoint()
    await workflow.run("My order 7 is broken.", checkpoint=case)
    (request,), paused = case.pending_requests, case.head_snapshot_id
    told = []
    for yes in (True, False):
        case.restart_from(paused)
        answer = request.data.to_function_approval_response(approved=yes)
        await workflow.run(responses={request.request_id: answer}, checkpoint=case)
        told.append(tellings(server, "tool")[1:])
    assert told[0] == ["20 euros for order 7 are sent."]
    assert len(told[1]) == 1 and "reject" in told[1][0]
    assert [what for what, _ in done(tmp_path)] == ["look_up 7", "refund 7 20"]
    check_lineage_law(case)


@pytest.mark.parametrize(
    ("client", "stream"), [("completions", True), ("responses", True), ("responses", False)]
)
async def test_r52_a_workflow_as_an_agent_on_it_passes_the_approval_on(
    server: OpenAIServer, tmp_path: Path, client: str, stream: bool
) -> None:
    agent = desk(server.url, tmp_path, client).as_agent(name="desk")

    async def talk(message: Any, session: AgentSession) -> AgentResponse[Any]:
        if not stream:
            return await agent.run(message, session=session)
        return await agent.run(message, stream=True, session=session).get_final_response()

    session = agent.create_session()
    (question,) = (await talk("My order 7 is broken.", session)).user_input_requests
    assert question.function_call.parse_arguments() == {"order": "7", "euros": 20}
    session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    agent = desk(server.url, tmp_path, client).as_agent(name="desk")
    response = await talk(question.to_function_approval_response(True), session)
    assert [message.text for message in response.messages if message.text] == [
        "It is on its way.",
        "He said: It is on its way.",
    ]
    assert [what for what, _ in done(tmp_path)] == ["look_up 7", "refund 7 20"]
    assert tellings(server, "tool") == ["Order 7 cost 20 euros.", "20 euros for order 7 are sent."]


# What a server does.

FAULTS: dict[str, tuple[Fault, bool]] = {
    "500": (500, False),
    "500-stream": (500, True),
    "cut-stream": (Cut(2), True),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at", [0, 1], ids=["first", "after-a-tool"])
@every_client
async def test_r60_a_server_that_fails_is_told_and_the_run_goes_on_from_the_last_boundary(
    server: OpenAIServer, tmp_path: Path, client: str, at: int, fault: str
) -> None:
    what, stream = FAULTS[fault]
    workflow, storage = desk(server.url, tmp_path, client), FileCheckpointStorage(tmp_path / "runs")
    case = workflow.create_checkpoint(checkpoint_id="case", checkpoint_storage=storage)
    server.faults.extend([*[None] * at, what])

    with pytest.raises(Exception) as caught:  # what the client raised, whichever it is
        await heard(workflow, stream, "My order 7 is broken.", checkpoint=case)
    assert type(caught.value).__module__.startswith(("agent_framework", "openai", "httpx2")), caught.value
    _at_boundary(case, await storage.load("case"), ["input_accepted"])

    case = await storage.load("case")
    await heard(workflow, stream, checkpoint=case)
    # The step is done again as a whole: at least once, also for the tool.
    assert [what for what, _ in done(tmp_path)] == ["look_up 7"] * (at + 1)
    assert tellings(server, "user") == ["My order 7 is broken."]
    await _to_the_end(workflow, case, stream)
    assert tellings(server, "tool") == ["Order 7 cost 20 euros.", "20 euros for order 7 are sent."]
    check_lineage_law(case)


@pytest.mark.parametrize("fault", ["500", "cut-stream"])
@every_client
async def test_r60_a_server_that_fails_after_an_approval_does_not_take_it_back(
    server: OpenAIServer, tmp_path: Path, client: str, fault: str
) -> None:
    what, stream = FAULTS[fault]
    workflow, storage = desk(server.url, tmp_path, client), FileCheckpointStorage(tmp_path / "runs")
    case = workflow.create_checkpoint(checkpoint_id="case", checkpoint_storage=storage)
    await heard(workflow, stream, "My order 7 is broken.", checkpoint=case)
    before = boundaries(case)
    server.faults.append(what)
    (request,) = case.pending_requests
    answers = {request.request_id: request.data.to_function_approval_response(approved=True)}
    with pytest.raises(Exception, match=r"."):
        await heard(workflow, stream, responses=answers, checkpoint=case)
    _at_boundary(case, await storage.load("case"), [*before, "responses_accepted"])

    case = await storage.load("case")
    assert not case.pending_requests
    said = await heard(workflow, stream, checkpoint=case)
    assert said[-2:] == ["It is on its way.", "He said: It is on its way."]
    assert [what for what, _ in done(tmp_path)] == ["look_up 7", "refund 7 20", "refund 7 20"]
    assert tellings(server, "tool") == ["Order 7 cost 20 euros.", "20 euros for order 7 are sent."]


@every_way
async def test_r60_when_the_second_agent_fails_the_first_is_not_asked_again(
    server: OpenAIServer, tmp_path: Path, stream: bool
) -> None:
    workflow = desk(server.url, tmp_path, "responses")
    server.script["clerk"] = ["Hello."]
    case = workflow.create_checkpoint()
    server.faults.extend([None, 503])
    with pytest.raises(Exception, match=r"503"):
        await heard(workflow, stream, "Hi.", checkpoint=case)
    assert boundaries(case) == ["input_accepted", "superstep_completed"]
    said = await heard(workflow, stream, checkpoint=case)
    assert said == (
        ["He said: Hello."] if stream else ["Hello.", "He said: Hello."]
    )  # a result is of the turn
    assert [asked.model for asked in server.asked] == ["clerk", "scribe", "scribe"]


async def test_many_runs_talk_with_one_client_at_once(server: OpenAIServer, tmp_path: Path) -> None:
    def script(asked: Asked) -> str:
        return f"Your {asked.turn + 1}: {asked.said[-1][1]}"

    server.script = {"clerk": script, "scribe": script}
    workflow = desk(server.url, tmp_path, "responses")
    cases = [workflow.create_checkpoint() for _ in range(8)]

    async def talk(number: int) -> list[str]:
        said = []
        for turn in range(3):
            result = await workflow.run(f"case {number}, turn {turn}", checkpoint=cases[number])
            said.append(result.get_outputs()[0].text)
        return said

    told = await asyncio.gather(*map(talk, range(8)))
    assert told == [[f"Your {turn + 1}: case {one}, turn {turn}" for turn in range(3)] for one in range(8)]


def _at_boundary(case: Checkpoint, stored: Checkpoint, expected: list[str]) -> None:
    assert boundaries(case) == boundaries(stored) == expected
    assert case.head_snapshot_id == stored.head_snapshot_id


async def _to_the_end(workflow: Workflow, case: Checkpoint, stream: bool) -> None:
    (request,) = case.pending_requests
    answers = {request.request_id: request.data.to_function_approval_response(approved=True)}
    said = await heard(workflow, stream, responses=answers, checkpoint=case)
    assert said == ["It is on its way.", "He said: It is on its way."]
