"""A workflow as an agent: where its conversation is, and that it goes on from there."""

from __future__ import annotations

import copy
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    AgentSession,
    Content,
    FileSessionStore,
    Message,
    SessionStore,
    SupportsAgentRun,
    tool,
)

from branchpoint import (
    Executor,
    FileCheckpointStorage,
    InvalidCallError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    register_state_type,
    response_handler,
)
from branchpoint.agents import WorkflowAgent
from branchpoint.errors import DefinitionError, SnapshotNotFoundError
from branchpoint.testing import check_lineage_law
from branchpoint.testing.agents import scripted_agent, tool_call
from tests.scenario.kit import Ticks, in_new_process

KEY = "branchpoint.checkpoint"


class Clerk(Executor):
    """Asks whether to do what it is told, and says how often it was told anything."""

    def __init__(self, ticks: Ticks) -> None:
        super().__init__(id="clerk")
        self.ticks = ticks

    @handler
    async def on_messages(self, messages: list[Message], ctx: WorkflowContext[Any, str]) -> None:
        self.ticks("clerk")
        await ctx.request_info({"what": messages[-1].text}, bool)

    @response_handler
    async def on_answer(self, question: dict[str, str], answer: bool, ctx: WorkflowContext[Any, str]) -> None:
        await ctx.yield_output(f"{question['what']}: {'done' if answer else 'left'}")


def clerk(folder: str) -> Workflow:
    return WorkflowBuilder(name="office", start_executor=Clerk(Ticks(f"{folder}/ticks"))).build()


def remembering(name: str = "memory") -> Workflow:
    """An agent that says everything it was ever told by a user."""
    agent = scripted_agent(lambda told: " ".join(m.text for m in told if m.role == "user"), name=name)
    return WorkflowBuilder(name="remembering", start_executor=agent).build()


def kept_in(folder: str | Path) -> FileSessionStore:
    """Agent Framework's own store, which says that it is experimental."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return FileSessionStore(Path(folder) / "sessions")


def again(session: AgentSession) -> AgentSession:
    """What another process would make of a session that was saved as JSON."""
    return AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))


async def c87_second_process(folder: str, stored: bool) -> list[Any]:
    storage = FileCheckpointStorage(f"{folder}/runs") if stored else None
    agent = clerk(folder).as_agent(checkpoint_storage=storage)
    session = await kept_in(folder).get("s")
    assert session is not None
    checkpoint = await agent.get_checkpoint(session)
    assert checkpoint is not None
    (request,) = checkpoint.pending_requests
    answer = Content.from_function_result(request.request_id, result=True)
    response = await agent.run(Message("tool", [answer]), session=session)
    await kept_in(folder).set("s", session)
    return [response.text, Ticks(f"{folder}/ticks")["clerk"]]


@pytest.mark.parametrize("stored", [False, True])
async def test_c87_an_open_question_survives_the_process_with_its_session(
    tmp_path: Path, stored: bool
) -> None:
    folder = str(tmp_path)
    storage = FileCheckpointStorage(tmp_path / "runs") if stored else None
    agent = clerk(folder).as_agent(name="office", checkpoint_storage=storage)
    session = agent.create_session()
    response = await agent.run("refund 7", session=session)
    (asked,) = response.user_input_requests
    assert asked.type == "function_call" and asked.name == "request_info"
    arguments = asked.parse_arguments()
    assert arguments == json.loads(json.dumps(arguments)), "the arguments are plain JSON"
    assert arguments == {
        "request_id": asked.call_id,
        "data": {"what": "refund 7"},
        "response_schema": {"type": "boolean"},
    }
    await kept_in(tmp_path).set("s", session)
    assert in_new_process(c87_second_process, folder, stored) == ["refund 7: done", 1]
    # And back here, after the other process.
    found = await kept_in(tmp_path).get("s")
    assert found is not None
    response = await agent.run("refund 8", session=found)
    assert response.user_input_requests[0].parse_arguments()["data"] == {"what": "refund 8"}
    assert Ticks(f"{folder}/ticks")["clerk"] == 2


async def test_c87_two_sessions_of_one_agent_stay_apart(tmp_path: Path) -> None:
    agent = clerk(str(tmp_path)).as_agent()
    one, two = agent.create_session(), agent.create_session()
    asked = (await agent.run("a", session=one)).user_input_requests[0]
    other = (await agent.run("b", session=two)).user_input_requests[0]
    two = again(two)
    told = await agent.run(Content.from_function_result(other.call_id, result=False), session=two)
    assert told.text == "b: left"
    told = await agent.run(Content.from_function_result(asked.call_id, result=True), session=again(one))
    assert told.text == "a: done"


async def test_r52_the_checkpoint_is_whole_in_the_session_where_there_is_no_storage() -> None:
    workflow = remembering()
    agent = workflow.as_agent()
    assert isinstance(agent, WorkflowAgent) and isinstance(agent, SupportsAgentRun)
    session = agent.create_session(session_id="s")
    assert await agent.get_checkpoint(session) is None
    assert (await agent.run("a", session=session)).text == "a"
    assert list(session.state) == [KEY]
    session = again(session)
    checkpoint = await agent.get_checkpoint(session)
    assert checkpoint is not None and checkpoint.metadata == {"session_id": "s"}
    assert [one.boundary for one in checkpoint.snapshots] == ["input_accepted", "completed"]
    # It is the very checkpoint: the workflow takes it, and the session is where that led.
    await workflow.run("b", checkpoint=checkpoint)
    assert (await agent.run("c", session=session)).text == "a b c"
    check_lineage_law(checkpoint)


async def test_r52_with_a_storage_the_session_has_the_ids_alone(tmp_path: Path) -> None:
    storage = FileCheckpointStorage(tmp_path)
    agent = remembering().as_agent(checkpoint_storage=storage)
    session = agent.create_session()
    await agent.run("a", session=session)
    checkpoint = await agent.get_checkpoint(session)
    assert checkpoint is not None
    ids = {"checkpoint_id": checkpoint.checkpoint_id, "snapshot_id": checkpoint.head_snapshot_id}
    assert session.state == {KEY: ids}
    stored = await storage.load(checkpoint.checkpoint_id)
    assert stored.head_snapshot_id == checkpoint.head_snapshot_id


async def test_r52_a_session_that_was_restored_before_this_package_was_imported() -> None:
    agent = remembering().as_agent()
    session = agent.create_session()
    await agent.run("a", session=session)
    plain = AgentSession(session_id=session.session_id)
    plain.state = json.loads(json.dumps(session.to_dict()))["state"]  # nobody knew the type
    assert (await agent.run("b", session=plain)).text == "a b"


@pytest.mark.parametrize("stored", [False, True])
async def test_r52_an_older_copy_of_a_session_goes_on_from_its_own_snapshot(
    tmp_path: Path, stored: bool
) -> None:
    agent = remembering().as_agent(checkpoint_storage=FileCheckpointStorage(tmp_path) if stored else None)
    session = agent.create_session()
    await agent.run("a", session=session)
    older, shallow = again(session), again(session)
    shallow.state = dict(older.state)
    await agent.run("b", session=session)
    assert (await agent.run("c", session=older)).text == "a c", "a branch"
    assert (await agent.run("d", session=session)).text == "a b d", "and the other one goes on"
    if stored:
        assert (await agent.run("e", session=shallow)).text == "a e"
        checkpoint = await agent.get_checkpoint(session)
        assert checkpoint is not None
        roots = [one for one in checkpoint.snapshots if one.parent_snapshot_id is None]
        assert len(roots) == 1, "all are branches of one checkpoint"
        check_lineage_law(checkpoint)


async def test_r52_copies_by_value_share_nothing() -> None:
    agent = remembering().as_agent()
    session = agent.create_session()
    await agent.run("a", session=session)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # it is experimental
        store = SessionStore()
    await store.set("s", session)
    deep = copy.deepcopy(session)
    await agent.run("b", session=session)
    assert (await agent.run("c", session=deep)).text == "a c"
    found = await store.get("s")
    assert found is not None
    assert (await agent.run("d", session=found)).text == "a d"
    assert (await agent.run("e", session=session)).text == "a b e"


async def test_r52_a_session_with_its_whole_checkpoint_grows_linearly() -> None:
    agent = WorkflowBuilder(name="w", start_executor=scripted_agent(lambda _: "y" * 500)).build().as_agent()
    session = agent.create_session()
    sizes = []
    for turn in range(1, 121):
        await agent.run("x" * 500, session=session)
        if turn % 40 == 0:
            sizes.append(len(json.dumps(session.to_dict())))
    first, second = sizes[1] - sizes[0], sizes[2] - sizes[1]
    assert second < 1.3 * first, sizes  # 1.67, if a turn wrote all of what was said before
    # A turn says 1 kB; it is kept as output, and in both memories of the agent.
    assert second / 40 < 14_000, sizes


async def test_c85_conversations_of_one_agent_stay_apart() -> None:
    agent = (
        WorkflowBuilder(name="w", start_executor=scripted_agent(lambda told: str(len(told))))
        .build()
        .as_agent()
    )
    one, two = agent.create_session(), agent.create_session()
    said = [(await agent.run("hi", session=session)).text for session in (one, two, one, two, one)]
    assert said == ["1", "1", "3", "3", "5"]
    assert (await agent.run("hi")).text == "1", "a call without a session sees none"
    assert (await agent.run("hi", session=two)).text == "5"


async def c86_turn(folder: str) -> list[str]:
    session = await kept_in(folder).get("s")
    assert session is not None
    agent = remembering().as_agent(checkpoint_storage=FileCheckpointStorage(f"{folder}/runs"))
    return [(await agent.run("b", session=session)).text]


async def test_c86_after_a_restart_the_agent_inside_remembers(tmp_path: Path) -> None:
    agent = remembering().as_agent(checkpoint_storage=FileCheckpointStorage(tmp_path / "runs"))
    session = agent.create_session()
    await agent.run("a", session=session)
    await kept_in(tmp_path).set("s", session)
    assert in_new_process(c86_turn, str(tmp_path)) == ["a b"]


@pytest.mark.parametrize("stored", [False, True])
async def test_c89_going_back_takes_the_memory_along(tmp_path: Path, stored: bool) -> None:
    agent = remembering().as_agent(checkpoint_storage=FileCheckpointStorage(tmp_path) if stored else None)
    session = agent.create_session()
    await agent.run("a", session=session)
    checkpoint = await agent.get_checkpoint(session)
    assert checkpoint is not None
    first = checkpoint.head_snapshot_id
    for text in ("b", "c"):
        await agent.run(text, session=session)
    old = again(session)
    checkpoint = await agent.get_checkpoint(session)
    assert checkpoint is not None
    checkpoint.restart_from(first)
    agent.set_checkpoint(session, checkpoint)
    assert (await agent.run("other", session=session)).text == "a other"
    assert (await agent.run("d", session=old)).text == "a b c d"


async def test_r52_a_message_is_taken_in_each_form_that_a_workflow_starts_with() -> None:
    def of(kind: Any) -> WorkflowAgent:
        async def start(given: Any, ctx: WorkflowContext[Any, str]) -> None:
            await ctx.yield_output(f"{type(given).__name__} {getattr(given, 'text', given)}")

        start.__annotations__["given"] = kind
        return WorkflowBuilder(name="w", start_executor=start).build().as_agent()

    assert (await of(str).run("hi")).text == "str hi"
    assert (await of(Message).run("hi")).text == "Message hi"
    assert (await of(list[Message]).run(["hi", "ho"])).text.startswith("list [")
    assert (await of(Any).run("hi")).text.startswith("list [")
    with pytest.raises(TypeError, match=r"one message, and got 2"):
        await of(Message).run(["hi", "ho"])
    with pytest.raises(TypeError, match="got uri with it"):
        await of(str).run(Content.from_uri("https://example.org/a.png", media_type="image/png"))
    for wrong in (int, list[int], dict[str, str]):
        with pytest.raises(DefinitionError, match="takes no messages"):
            of(wrong)


async def test_r52_outputs_are_messages_of_the_response() -> None:
    @register_state_type("workflow_agent.order")
    @dataclass
    class Order:
        number: int

    async def start(given: list[Message], ctx: WorkflowContext[Any, Any]) -> None:
        for output in (
            "text",
            3,
            True,
            Order(7),
            {"a": [1]},
            Message("assistant", ["said"]),
            [Message("user", ["m"])],
        ):
            await ctx.yield_output(output)

    agent = WorkflowBuilder(name="w", start_executor=start).build().as_agent()
    response = await agent.run("hi", session=agent.create_session())
    told = [(message.role, message.text, message.author_name) for message in response.messages]
    texts = ["text", "3", "true", '{"number": 7}', '{"a": [1]}', "said"]
    assert told == [*(("assistant", text, "start") for text in texts), ("user", "m", "start")]
    assert len({message.message_id for message in response.messages}) == len(told)


async def test_r52_a_session_that_cannot_be_reached_is_refused(tmp_path: Path) -> None:
    storage = FileCheckpointStorage(tmp_path)
    workflow = remembering()
    agent = workflow.as_agent(checkpoint_storage=storage)
    session = agent.create_session(session_id="s")
    await agent.run("a", session=session)
    before = dict(session.state)
    with pytest.raises(InvalidCallError, match=r"session 's' names checkpoint .* this agent has none"):
        await workflow.as_agent().run("b", session=session)
    checkpoint = await agent.get_checkpoint(session)
    assert checkpoint is not None
    with pytest.raises(InvalidCallError, match="lives in a storage"):
        workflow.as_agent().set_checkpoint(session, checkpoint)
    session.state[KEY] = {**before[KEY], "snapshot_id": "gone"}
    with pytest.raises(SnapshotNotFoundError, match="gone"):
        await agent.run("b", session=session)
    session.state[KEY] = {"checkpoint_id": 7}
    with pytest.raises(InvalidCallError, match="no checkpoint"):
        await agent.run("b", session=session)
    with pytest.raises(DefinitionError, match="unnamed"):
        WorkflowBuilder(start_executor=scripted_agent(["x"])).build().as_agent(checkpoint_storage=storage)


@tool(approval_mode="always_require")
def refund(order: str) -> str:
    return f"{order} is refunded"


async def test_r52_an_approval_passes_through_and_comes_back() -> None:
    inside = scripted_agent([tool_call("refund", order="7"), "All done."], name="desk", tools=[refund])
    agent = WorkflowBuilder(name="w", start_executor=inside).build().as_agent()
    session = agent.create_session()
    (asked,) = (await agent.run("refund 7", session=session)).user_input_requests
    assert asked.type == "function_approval_request" and asked.function_call is not None
    assert asked.function_call.parse_arguments() == {"order": "7"}
    session = again(session)
    checkpoint = await agent.get_checkpoint(session)
    assert checkpoint is not None and asked.id == checkpoint.pending_requests[0].request_id
    response = await agent.run(asked.to_function_approval_response(approved=True), session=session)
    results = [content for message in response.messages for content in message.contents]
    assert [(one.type, one.result or one.text) for one in results] == [
        ("function_result", "7 is refunded"),
        ("text", "All done."),
    ]
