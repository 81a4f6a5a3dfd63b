"""Calls of a workflow as an agent: streams, failures, cancellation, many sessions at once, providers."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    AgentResponse,
    AgentSession,
    Content,
    HistoryProvider,
    Message,
)

from branchpoint import (
    CheckpointInUseError,
    Executor,
    FileCheckpointStorage,
    GraphMismatchError,
    MemoryCheckpointStorage,
    PendingRequestsError,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
    response_handler,
)
from branchpoint.agents import WorkflowAgent
from branchpoint.checkpoint import Checkpoint
from branchpoint.testing import check_lineage_law
from branchpoint.testing.agents import scripted_agent
from tests.scenario.kit import Boom, Ticks, reached, turns
from tests.scenario.test_workflow_agent import Clerk


class Recording(HistoryProvider):
    """Keeps every message it is told of, outside of the session."""

    def __init__(self, **more: Any) -> None:
        super().__init__("recording", **more)
        self.messages: list[Message] = []

    async def get_messages(self, session_id: str | None, **more: Any) -> list[Message]:
        return list(self.messages)

    async def save_messages(self, session_id: str | None, messages: Sequence[Message], **more: Any) -> None:
        self.messages += messages


def history(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in messages]


class Gate:
    """Lets each piece of a scripted reply wait for the test."""

    def __init__(self, piece: int) -> None:
        self.piece, self.there, self.open = piece, asyncio.Event(), asyncio.Event()

    async def __call__(self, number: int, piece: int) -> None:
        if piece == self.piece:
            self.there.set()
            await self.open.wait()


def users(told: Sequence[Message]) -> str:
    return " ".join(message.text for message in told if message.role == "user")


def remembering(**more: Any) -> WorkflowAgent:
    inside = scripted_agent(users, name="memory", gate=more.pop("gate", None))
    return WorkflowBuilder(name="remembering", start_executor=inside).build().as_agent(**more)


class Flaky(Executor):
    """Says what it got and passes it on to one that fails once, which says so too."""

    def __init__(self, id: str, ticks: Ticks, fails: bool = False) -> None:
        super().__init__(id=id)
        self.ticks, self.fails = ticks, fails

    @handler
    async def on_messages(self, messages: list[Message], ctx: WorkflowContext[list[Message], str]) -> None:
        if self.ticks(self.id) == 1 and self.fails:
            raise Boom(self.id)
        await ctx.yield_output(f"{self.id}:{messages[-1].text}")
        if not self.fails:
            await ctx.send_message(messages)


def failing_once(ticks: Ticks, **more: Any) -> WorkflowAgent:
    first, second = Flaky("first", ticks), Flaky("second", ticks, fails=True)
    return (
        WorkflowBuilder(name="flaky", start_executor=first).add_edge(first, second).build().as_agent(**more)
    )


def storage_of(stored: bool) -> MemoryCheckpointStorage | None:
    return MemoryCheckpointStorage() if stored else None


def told(response: AgentResponse[Any]) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in response.messages]


both = pytest.mark.parametrize("stored", [False, True])


# Streams.


async def test_r52_a_stream_tells_agents_inside_as_they_speak_and_nothing_twice() -> None:
    gate = Gate(1)
    agent = remembering(gate=gate)
    session = agent.create_session()
    stream = agent.run("one two three", stream=True, session=session)
    texts = []
    async for update in stream:
        texts.append(update.text)
        if len(texts) == 1:
            assert gate.there.is_set() or not gate.open.is_set(), "it came while the agent was speaking"
            gate.open.set()
    assert texts == ["one", " two", " three"]
    response = await stream.get_final_response()
    assert told(response) == [("assistant", "one two three")]
    assert told(await agent.run("x", session=session)) == [("assistant", "one two three x")]


async def test_r52_a_stream_and_a_whole_response_say_the_same() -> None:
    async def start(messages: list[Message], ctx: WorkflowContext[list[Message], Any]) -> None:
        await ctx.yield_output("starts")
        await ctx.yield_output({"n": 1})
        await ctx.send_message(messages)

    one, two = scripted_agent(["from one"], name="one"), scripted_agent(["from two"], name="two")
    workflow = WorkflowBuilder(name="w", start_executor=start).add_fan_out_edges(start, [one, two]).build()
    agent = workflow.as_agent()
    whole = await agent.run("hi", session=agent.create_session())
    stream = agent.run("hi", session=agent.create_session(), stream=True)
    streamed = await stream.get_final_response()
    assert sorted(told(whole)) == sorted(told(streamed))
    assert [text for _, text in told(whole)][:2] == ["starts", '{"n": 1}']
    assert {message.author_name for message in streamed.messages} == {"start", "one", "two"}


@pytest.mark.parametrize("direct", [False, True])
async def test_r52_children_are_heard_as_they_speak_where_their_outputs_are_those_of_the_whole(
    direct: bool,
) -> None:
    deep = WorkflowBuilder(name="deep", start_executor=scripted_agent(["one two"], name="inner")).build()
    nested = WorkflowExecutor(deep, id="nested", allow_direct_output=True)
    middle = WorkflowBuilder(name="middle", start_executor=nested).build()
    outer = WorkflowExecutor(middle, id="outer", allow_direct_output=direct)

    async def ends(response: Any, ctx: WorkflowContext[Any, str]) -> None:
        await ctx.yield_output("public")

    builder = WorkflowBuilder(name="w", start_executor=outer)
    agent = (builder if direct else builder.add_edge(outer, ends)).build().as_agent()
    stream = agent.run("hi", session=agent.create_session(), stream=True)
    assert [update.text async for update in stream] == (["one", " two"] if direct else ["public"])
    whole = await agent.run("hi", session=agent.create_session())
    assert told(whole) == [("assistant", "one two" if direct else "public")]


@both
async def test_r52_a_stream_left_early_leaves_the_session_usable(stored: bool) -> None:
    gate = Gate(2)
    agent = remembering(gate=gate, checkpoint_storage=storage_of(stored))
    session = agent.create_session()
    await agent.run("a", session=session)
    async for _ in agent.run("b c d", stream=True, session=session):
        break
    gate.open.set()
    # At once, with no turn of the loop between: the call that was left ends first.
    assert (await agent.run(session=session)).text == "a b c d"
    assert (await agent.run("e", session=session)).text == "a b c d e"
    assert len(agent._sessions) == 0


@both
async def test_r52_a_stream_that_nobody_reads_gives_way_to_the_next_call(stored: bool) -> None:
    agent = remembering(checkpoint_storage=storage_of(stored))
    session = agent.create_session()
    kept = agent.run("b c d", stream=True, session=session)
    async for _ in kept:
        break
    # Nothing came in between: it can be read on.
    assert told(await kept.get_final_response()) == [("assistant", "b c d")]
    kept = agent.run("e", stream=True, session=session)
    async for _ in kept:
        break
    assert (await agent.run(session=session)).text == "b c d e"
    with pytest.raises(CheckpointInUseError, match="another call on its session has ended it"):
        async for _ in kept:
            pass


async def test_r52_a_stream_that_is_read_again_does_not_give_way() -> None:
    gate = Gate(1)
    agent = remembering(gate=gate)
    session = agent.create_session()
    stream = agent.run("a b", stream=True, session=session)
    async for _ in stream:
        break
    task = asyncio.ensure_future(stream.get_final_response())
    await reached(gate.there, task)
    with pytest.raises(CheckpointInUseError):
        await agent.run("c", session=session)
    gate.open.set()
    assert (await task).text == "a b"


async def test_r52_a_stream_that_was_read_without_a_loop_ends_when_it_is_dropped() -> None:
    agent = remembering()
    session = agent.create_session()
    stream = agent.run("a b", stream=True, session=session)
    assert (await stream.__anext__()).text == "a"
    del stream
    assert (await agent.run(session=session)).text == "a b"


async def test_r52_a_call_waits_for_a_stream_that_is_just_being_closed() -> None:
    gate = Gate(1)
    agent = remembering(gate=gate)
    session = agent.create_session()
    stream = agent.run("a b", stream=True, session=session)
    await stream.__anext__()
    await gate.there.wait()
    closing = asyncio.ensure_future(stream.close())
    await asyncio.sleep(0)
    assert len(agent._sessions) == 1, "it cleans up"
    gate.open.set()
    assert (await agent.run(session=session)).text == "a b"
    await closing


async def test_r52_a_stream_is_closed_by_its_block() -> None:
    gate = Gate(1)
    agent = remembering(gate=gate)
    session = agent.create_session()
    async with agent.run("a b", stream=True, session=session) as stream:
        async for _ in stream:
            break
    assert len(agent._sessions) == 0
    gate.open.set()
    assert (await agent.run(session=session)).text == "a b"


async def test_r52_nothing_starts_before_the_first_read() -> None:
    agent = remembering()
    session = agent.create_session()
    agent.run("never", stream=True, session=session)
    assert len(agent._sessions) == 0
    assert (await agent.run("a", session=session)).text == "a"


# Cancellation and failure.


@both
async def test_r52_a_cancelled_call_leaves_the_session_at_its_last_boundary(stored: bool) -> None:
    gate = Gate(0)
    agent = remembering(gate=gate, checkpoint_storage=storage_of(stored))
    session = agent.create_session()
    task = asyncio.ensure_future(agent.run("a", session=session))
    await reached(gate.there, task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.open.set()
    checkpoint = await agent.get_checkpoint(session)
    assert checkpoint is not None and checkpoint.status == "in_progress"
    assert (await agent.run(session=session)).text == "a"


async def test_r52_cancelling_in_the_middle_of_a_stream_leaves_nothing() -> None:
    gate = Gate(1)
    agent = remembering(gate=gate)
    session = agent.create_session()

    async def read() -> None:
        async for _ in agent.run("a b", stream=True, session=session):
            pass

    task = asyncio.ensure_future(read())
    await reached(gate.there, task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.open.set()
    assert (await agent.run(session=session)).text == "a b"
    assert len(agent._sessions) == 0


@both
async def test_r52_a_call_that_failed_is_finished_and_tells_the_whole_turn(
    ticks: Ticks, stored: bool
) -> None:
    agent = failing_once(ticks, checkpoint_storage=storage_of(stored))
    session = agent.create_session()
    with pytest.raises(Boom):
        await agent.run("hi", session=session)
    session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    response = await agent.run(session=session)
    assert [text for _, text in told(response)] == ["first:hi", "second:hi"]
    assert (ticks["first"], ticks["second"]) == (1, 2)
    assert told(await agent.run(session=session)) == told(response), "told again, and nothing runs"
    assert (ticks["first"], ticks["second"]) == (1, 2)


@both
async def test_r52_a_new_message_gives_an_unfinished_turn_up(
    ticks: Ticks, stored: bool, caplog: pytest.LogCaptureFixture
) -> None:
    record = Recording()
    agent = failing_once(ticks, checkpoint_storage=storage_of(stored), context_providers=[record])
    session = agent.create_session(session_id="s")
    with pytest.raises(Boom):
        await agent.run("hi", session=session)
    unfinished = await agent.get_checkpoint(session)
    assert unfinished is not None and unfinished.head_snapshot is not None
    left = unfinished.head_snapshot.snapshot_id
    assert [text for _, text in told(await agent.run("new", session=session))] == ["first:new", "second:new"]
    assert "session 's': an unfinished turn was given up" in caplog.text
    assert [text for _, text in history(record.messages)] == ["new", "first:new", "second:new"]
    checkpoint = await agent.get_checkpoint(session)
    assert checkpoint is not None
    (given_up,) = (one for one in checkpoint.snapshots if one.boundary == "abandoned")
    assert given_up.parent_snapshot_id == left and "new message" in given_up.metadata["reason"]
    # Nothing is lost: one can go back, and finish it.
    checkpoint.restart_from(left)
    agent.set_checkpoint(session, checkpoint)
    assert [text for _, text in told(await agent.run(session=session))] == ["first:hi", "second:hi"]
    check_lineage_law(checkpoint)


async def test_r52_a_message_for_an_unfinished_turn_of_another_agent_gives_nothing_up(ticks: Ticks) -> None:
    session = AgentSession()
    with pytest.raises(Boom):
        await failing_once(ticks).run("hi", session=session)
    before = json.dumps(session.to_dict())
    with pytest.raises(GraphMismatchError):
        await remembering().run("new", session=session)
    assert json.dumps(session.to_dict()) == before


class AskAndSend(Executor):
    """Asks, and sends what it got on."""

    @handler
    async def on_messages(self, messages: list[Message], ctx: WorkflowContext[list[Message], str]) -> None:
        await ctx.request_info("which?", str)
        await ctx.send_message(messages)

    @response_handler
    async def on_answer(self, question: str, answer: str, ctx: WorkflowContext[list[Message], str]) -> None:
        await ctx.yield_output(f"{question} {answer}")


@both
async def test_r52_open_questions_of_an_unfinished_turn_are_not_given_up(ticks: Ticks, stored: bool) -> None:
    asks, fails = AskAndSend(id="asks"), Flaky("fails", ticks, fails=True)
    workflow = WorkflowBuilder(name="w", start_executor=asks).add_edge(asks, fails).build()
    agent = workflow.as_agent(checkpoint_storage=storage_of(stored))
    session = agent.create_session()
    with pytest.raises(Boom):
        await agent.run("hi", session=session)
    with pytest.raises(PendingRequestsError) as refused:
        await agent.run("new", session=session)
    checkpoint = await agent.get_checkpoint(session)
    assert checkpoint is not None and checkpoint.status == "in_progress"
    (request,) = checkpoint.pending_requests
    assert request.request_id in str(refused.value)
    answer = Content.from_function_result(request.request_id, result="that one")
    response = await agent.run(answer, session=session)
    assert sorted(text for _, text in told(response)) == ["fails:hi", "which? that one"]
    assert response.user_input_requests == []


@both
async def test_r52_a_paused_turn_can_be_given_up(ticks: Ticks, stored: bool) -> None:
    workflow = WorkflowBuilder(name="w", start_executor=Clerk(ticks)).build()
    agent = workflow.as_agent(checkpoint_storage=storage_of(stored))
    session = agent.create_session()
    await agent.run("hi", session=session)
    checkpoint = await agent.get_checkpoint(session)
    assert checkpoint is not None
    await checkpoint.abandon()
    agent.set_checkpoint(session, checkpoint)
    (asked,) = (await agent.run("new", session=session)).user_input_requests
    assert asked.parse_arguments()["data"] == {"what": "new"}


async def test_r52_a_delivery_acts_once_also_when_the_session_was_not_saved(
    tmp_path: Path, ticks: Ticks
) -> None:
    agent = failing_once(ticks, checkpoint_storage=FileCheckpointStorage(tmp_path))
    session = agent.create_session()
    with pytest.raises(Boom):
        await agent.run("a", session=session, input_id="m1")
    before = AgentSession.from_dict(session.to_dict())
    response = await agent.run("a", session=session, input_id="m1")
    assert [text for _, text in told(response)] == ["first:a", "second:a"]
    counts = ticks["first"], ticks["second"]
    # The process died before it saved the session; the queue delivers again.
    assert told(await agent.run("a", session=before, input_id="m1")) == told(response)
    assert (ticks["first"], ticks["second"]) == counts
    old = AgentSession.from_dict(before.to_dict())
    await agent.run("b", session=session, input_id="m2")
    counts = ticks["first"], ticks["second"]
    assert told(await agent.run("b", session=old, input_id="m2")) == [
        ("assistant", "first:b"),
        ("assistant", "second:b"),
    ]
    assert (ticks["first"], ticks["second"]) == counts
    assert old.state == session.state


# Many at once.


async def test_r52_a_second_call_on_a_session_is_refused_also_by_its_id() -> None:
    gate = Gate(0)
    agent = remembering(gate=gate)
    session = agent.create_session(session_id="s")
    task = asyncio.ensure_future(agent.run("a", session=session))
    await reached(gate.there, task)
    same = AgentSession(session_id="s")
    for other in (session, same):
        with pytest.raises(CheckpointInUseError, match="session 's' is in use"):
            await agent.run("b", session=other)
        with pytest.raises(CheckpointInUseError, match="session 's' is in use"):
            await agent.run("b", session=other, stream=True).get_final_response()
    with pytest.raises(CheckpointInUseError):
        agent.set_checkpoint(session, agent.workflow.create_checkpoint())
    gate.open.set()
    assert (await task).text == "a"
    assert same.state == {}
    assert (await agent.run("b", session=session)).text == "a b"


async def test_r52_five_hundred_sessions_at_once_and_nothing_is_left_of_them() -> None:
    agent = remembering()

    async def talk(number: int) -> str:
        session = agent.create_session()
        await agent.run(str(number), session=session)
        stream = agent.run("again", session=session, stream=True)
        return (await stream.get_final_response()).text

    def alive() -> int:
        gc.collect()
        return sum(isinstance(one, Checkpoint | AgentSession) for one in gc.get_objects())

    client = agent.workflow.get_start_executor()._agent.client  # type: ignore[attr-defined]
    await talk(-1)
    client.calls.clear()
    before = alive()
    assert await asyncio.gather(*map(talk, range(500))) == [f"{number} again" for number in range(500)]
    assert len(agent._sessions) == 0
    client.calls.clear()  # the script remembers what it was asked
    assert alive() == before


async def test_r52_two_calls_that_wait_for_one_that_cleans_up_do_not_both_get_the_session() -> None:
    agent = remembering()
    session = agent.create_session()
    async for _ in agent.run("a b c", stream=True, session=session):
        break
    results = await asyncio.gather(
        agent.run(session=session), agent.run(session=session), return_exceptions=True
    )
    kinds = sorted(type(one).__name__ for one in results)
    assert kinds == ["AgentResponse", "CheckpointInUseError"]
    await turns()
