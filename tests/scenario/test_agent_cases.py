"""Agents as steps: whose conversation it is, where it is kept, what they ask, and what a call lends them."""

from __future__ import annotations

import asyncio
import datetime
import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Never

import pytest
from agent_framework import (
    AgentResponse,
    AgentResponseUpdate,
    AgentSession,
    Content,
    FunctionInvocationContext,
    FunctionTool,
    Message,
    tool,
)

from branchpoint import (
    Checkpoint,
    Executor,
    FileCheckpointStorage,
    InvalidCallError,
    InvalidResponseError,
    MemoryCheckpointStorage,
    RequestCancelled,
    SyncWorkflowContext,
    UnknownRequestError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowInvocationKwargs,
    WorkflowValidationError,
    executor,
    handler,
    register_state_type,
    response_handler,
)
from branchpoint.agents import AgentExecutor, AgentExecutorRequest, AgentExecutorResponse
from branchpoint.codec import decode, encode, isolated_registry, new_parts
from branchpoint.errors import DefinitionError
from branchpoint.testing import check_lineage_law
from branchpoint.testing.agents import ScriptedChatClient, scripted_agent, tool_call
from tests.agent_values import alike
from tests.scenario.kit import (
    Boom,
    file_bytes,
    in_new_process,
    only_request,
    reached,
    turns,
)

PIECES = {
    "cache",
    "full_conversation",
    "agent_session",
    "pending_agent_requests",
    "pending_responses_to_agent",
    "pending_request_order",
}


def counting(name: str = "counter") -> Any:
    """An agent that says how many messages it was given."""
    return scripted_agent(lambda messages: str(len(messages)), name=name)


def one_step(agent: Any) -> Workflow:
    return WorkflowBuilder(name="one", start_executor=agent).build()


def said(result: Any) -> list[str]:
    return [output.text for output in result.get_outputs()]


def session_of(checkpoint: Checkpoint, executor_id: str) -> AgentSession:
    assert checkpoint.head_snapshot is not None
    session: AgentSession = checkpoint.head_snapshot.state["executor_states"][executor_id]["agent_session"]
    return session


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages]


# Whose conversation it is.


async def test_c85_a_conversation_belongs_to_its_checkpoint_and_to_nobody_else() -> None:
    workflow = one_step(counting())
    before = dict(vars(workflow.get_start_executor()))
    one, other = workflow.create_checkpoint("one"), workflow.create_checkpoint("other")
    assert said(await workflow.run("hi", checkpoint=one)) == ["1"]
    assert said(await workflow.run("hi")) == ["1"], "a run without a checkpoint sees no conversation"
    assert said(await workflow.run("hi", checkpoint=other)) == ["1"]
    assert said(await workflow.run("hi", checkpoint=one)) == ["3"]
    together = await asyncio.gather(
        *(workflow.run("hi", checkpoint=checkpoint) for checkpoint in (one, other)), workflow.run("hi")
    )
    assert [said(result) for result in together] == [["5"], ["3"], ["1"]]
    after = vars(workflow.get_start_executor())
    assert after.keys() == before.keys() and all(after[name] is before[name] for name in before)
    assert session_of(one, "counter").session_id != session_of(other, "counter").session_id


async def test_r50_all_pieces_of_the_state_are_in_the_entry_of_the_executor() -> None:
    workflow = one_step(counting())
    checkpoint = workflow.create_checkpoint()
    await workflow.run("hi", checkpoint=checkpoint)
    assert checkpoint.head_snapshot is not None
    state = checkpoint.head_snapshot.state["executor_states"]["counter"]
    assert state.keys() == PIECES
    definition = workflow.get_start_executor()
    assert isinstance(definition, AgentExecutor)
    assert not [item for item in vars(definition).values() if isinstance(item, AgentSession | Message)]


async def test_r50_one_agent_serves_many_executors_checkpoints_and_runs_at_once() -> None:
    agent = scripted_agent(lambda messages: f"{len(messages)}:{messages[0].text}")
    chain = [AgentExecutor(agent, id=f"step-{number}") for number in range(3)]
    workflow = WorkflowBuilder(name="many", start_executor=chain[0]).add_chain(chain).build()
    checkpoints = [workflow.create_checkpoint(f"run-{number}") for number in range(40)]
    for turn in range(2):
        results = await asyncio.gather(
            *(workflow.run(one.checkpoint_id, checkpoint=one) for one in checkpoints)
        )
        for result, checkpoint in zip(results, checkpoints, strict=True):
            counts = [text.partition(":") for text in said(result)]
            assert [who for _, _, who in counts] == [checkpoint.checkpoint_id] * 3
            assert [int(count) for count, _, _ in counts] == ([1, 2, 3] if turn == 0 else [3, 5, 7])


def c86_workflow() -> Workflow:
    return one_step(counting())


async def c86_turn(folder: str) -> tuple[list[str], list[str]]:
    storage = FileCheckpointStorage(folder)
    checkpoint = await storage.load("c86")
    result = await c86_workflow().run("and now?", checkpoint=checkpoint)
    session = session_of(checkpoint, "counter")
    return said(result), texts(session.state["in_memory"]["messages"])


async def test_c86_after_a_restart_the_agent_remembers_the_conversation(tmp_path: Path) -> None:
    workflow = c86_workflow()
    checkpoint = workflow.create_checkpoint("c86", FileCheckpointStorage(tmp_path))
    assert said(await workflow.run("hi", checkpoint=checkpoint)) == ["1"]
    assert in_new_process(c86_turn, str(tmp_path)) == [["3"], ["hi", "1", "and now?", "3"]]


async def test_c89_going_back_takes_the_agents_memory_along() -> None:
    agent = scripted_agent(lambda messages: " ".join(m.text for m in messages if m.role == "user"))
    workflow = one_step(agent)
    storage = MemoryCheckpointStorage()
    checkpoint = workflow.create_checkpoint("c89", storage)
    ends = []
    for text in ("a", "b", "c"):
        await workflow.run(text, checkpoint=checkpoint)
        ends.append(checkpoint.head_snapshot_id)
    checkpoint.restart_from(ends[0])
    assert said(await workflow.run("other", checkpoint=checkpoint)) == ["a other"]
    checkpoint = await storage.load("c89")
    checkpoint.restart_from(ends[2])
    assert said(await workflow.run("d", checkpoint=checkpoint)) == ["a b c d"]
    checkpoint.restart_from(ends[0])
    assert said(await workflow.run("third", checkpoint=checkpoint)) == ["a third"]
    check_lineage_law(checkpoint)


@dataclass(frozen=True)
class Custom:
    number: int


class Tone(enum.StrEnum):
    KIND = "kind"


@pytest.fixture
def registered() -> Iterator[None]:
    with isolated_registry():
        register_state_type(Custom, type_id="c90.custom")
        register_state_type(Tone, type_id="c90.tone")
        yield


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("format", ["json", "msgpack"])
async def test_c90_what_is_kept_in_a_session_is_kept_in_shared_state_and_the_other_way_round(
    tmp_path: Path, format: Any
) -> None:
    kept = {
        "custom": Custom(7),
        "tone": Tone.KIND,
        "at": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        "pair": (1, "two"),
    }
    session = AgentSession(session_id="own")
    session.state = dict(kept)

    @executor(id="first")
    async def first(text: str, ctx: WorkflowContext[str]) -> None:
        ctx.set_state("kept", kept)
        await ctx.send_message(text)

    agent = AgentExecutor(counting(), session=session)
    workflow = WorkflowBuilder(name="c90", start_executor=first).add_edge(first, agent).build()
    storage = FileCheckpointStorage(tmp_path, serialization_format=format)
    await workflow.run("hi", checkpoint=workflow.create_checkpoint("c90", storage))

    loaded = await storage.load("c90")
    assert loaded.head_snapshot is not None
    state = loaded.head_snapshot.state
    nested = state["executor_states"]["counter"]["agent_session"]
    shared = state["workflow_state"]["shared"]["kept"]
    assert session.state == kept, "the session that was given is not the run's"
    encoded, _ = encode(nested, format=format)
    alone = decode(encoded.data, new_parts(encoded, ()), format=format)
    assert alike(alone, nested)
    for read in (shared, {name: nested.state[name] for name in kept}):
        assert alike(read, kept)


# What goes in and out.


async def test_an_agent_takes_texts_messages_lists_and_requests() -> None:
    workflow = one_step(counting())
    for given, count in (
        ("hi", "1"),
        (Message("user", ["hi"]), "1"),
        (["hi", Message("user", ["ho"])], "2"),
        ([Message("user", ["hi"])], "1"),
        (AgentExecutorRequest([Message("user", ["hi"]), Message("user", ["ho"])]), "2"),
    ):
        assert said(await workflow.run(given)) == [count]
    checkpoint = workflow.create_checkpoint()
    later = AgentExecutorRequest([Message("user", ["first"])], should_respond=False)
    assert said(await workflow.run(later, checkpoint=checkpoint)) == []
    assert said(await workflow.run("second", checkpoint=checkpoint)) == ["2"]


def _last_two(messages: list[Message]) -> list[Message]:
    return messages[-2:]


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({}, ["q", "draft"]),
        ({"context_mode": "full", "ensure_trailing_user_turn": True}, ["q", "draft", "please continue."]),
        ({"context_mode": "last_agent"}, ["draft"]),
        ({"context_mode": "custom", "context_filter": lambda messages: messages[:1]}, ["q"]),
    ],
)
async def test_what_the_next_agent_sees_of_the_one_before(options: Any, seen: list[str]) -> None:
    reader = scripted_agent(["read"], name="reader")
    reading = AgentExecutor(reader, **options)
    writing = scripted_agent(["draft"], name="writer")
    workflow = WorkflowBuilder(name="two", start_executor=writing).add_edge(writing, reading).build()
    checkpoint = workflow.create_checkpoint()
    assert said(await workflow.run("q", checkpoint=checkpoint)) == ["draft", "read"]
    assert isinstance(reader.client, ScriptedChatClient)
    assert texts(reader.client.calls[0].messages) == seen
    assert checkpoint.head_snapshot is not None
    conversation = checkpoint.head_snapshot.state["executor_states"]["reader"]["full_conversation"]
    assert "please continue." not in texts(conversation)


async def test_with_text_replaces_what_an_agent_said_and_keeps_what_came_before() -> None:
    class Louder(Executor):
        @handler
        async def on(self, prior: AgentExecutorResponse, ctx: WorkflowContext[AgentExecutorResponse]) -> None:
            await ctx.send_message(prior.with_text(prior.agent_response.text.upper()))

    writer, reader = scripted_agent(["draft"], name="writer"), scripted_agent(["read"], name="reader")
    workflow = WorkflowBuilder(name="three", start_executor=writer).add_chain(
        [writer, Louder("louder"), reader]
    )
    await workflow.build().run("q")
    assert isinstance(reader.client, ScriptedChatClient)
    assert texts(reader.client.calls[0].messages) == ["q", "DRAFT"]


def test_an_agent_that_is_defined_wrongly_is_refused() -> None:
    nameless = scripted_agent(["x"], name="")
    builder = WorkflowBuilder(start_executor=AgentExecutor(nameless))
    with pytest.raises(WorkflowValidationError, match="give one of them another id"):
        builder.add_edge(nameless, AgentExecutor(nameless))
    with pytest.raises(WorkflowValidationError, match="give one of them another id"):
        WorkflowBuilder(start_executor=counting()).add_edge("counter", counting())
    for wrong, text in (
        (lambda: AgentExecutor(5), "takes an agent"),  # type: ignore[arg-type]
        (lambda: AgentExecutor(counting(), session="s"), "is an AgentSession"),  # type: ignore[arg-type]
        (lambda: AgentExecutor(counting(), context_mode="half"), "context_mode is"),  # type: ignore[arg-type]
        (lambda: AgentExecutor(counting(), context_mode="custom"), "needs one"),
        (lambda: AgentExecutor(counting(), context_filter=_last_two), "needs one"),
    ):
        with pytest.raises(DefinitionError, match=text):
            wrong()


async def test_in_a_stream_updates_are_pieces_of_one_output() -> None:
    workflow = one_step(scripted_agent(["one two three"]))
    checkpoint = workflow.create_checkpoint()
    events = [event async for event in workflow.run("hi", checkpoint=checkpoint, stream=True)]
    outputs = [event for event in events if event.type == "output"]
    pieces, (whole,) = outputs[:-1], outputs[-1:]
    assert [piece.data.text for piece in pieces] == ["one", " two", " three"]
    assert all(type(piece.data) is AgentResponseUpdate and not piece.durable for piece in pieces)
    assert type(whole.data) is AgentResponse and whole.data.text == "one two three" and whole.durable
    assert len({event.output_id for event in outputs}) == 1
    assert whole.output_id == checkpoint.outputs()[0].output_id
    told = [event for event in checkpoint.events() if event.type == "output"]
    assert [event.event_id for event in told] == [whole.event_id], "a piece is never told again"
    result = await workflow.run(checkpoint=checkpoint)
    assert said(result) == ["one two three"]


async def test_pieces_of_an_intermediate_or_hidden_output_are_as_the_output_is() -> None:
    for selection, kinds in (({"intermediate_output_from": "all_other"}, {"intermediate"}), ({}, set())):
        first, last = scripted_agent(["a b"], name="first"), scripted_agent(["c d"], name="last")
        workflow = (
            WorkflowBuilder(name="w", start_executor=first, output_from=[last], **selection)  # type: ignore[arg-type]
            .add_edge(first, last)
            .build()
        )
        events = [event async for event in workflow.run("hi", stream=True)]
        told = [event for event in events if event.executor_id == "first" and event.output_id]
        assert {event.type for event in told} == kinds
        assert {event.type for event in events if event.executor_id == "last" and event.output_id} == {
            "output"
        }


async def test_an_executor_of_ones_own_streams_pieces_and_refuses_answers_as_agents_do() -> None:
    class Own(Executor):
        @handler
        def on_text(self, text: str, ctx: SyncWorkflowContext[Never, str]) -> None:
            for word in text.split():
                ctx.stream_output(word)
            ctx.yield_output(text)
            ctx.stream_output("of the next")
            ctx.request_info("even?", int)

        @response_handler
        async def on_answer(self, asked: str, number: int, ctx: WorkflowContext[Never, str]) -> None:
            await ctx.yield_output(str(number))

        def check_response(self, request: Any, response: Any) -> None:
            if response % 2:
                raise ValueError("it is odd")

    workflow = one_step(Own("own"))
    checkpoint = workflow.create_checkpoint()
    events = [event async for event in workflow.run("a b", checkpoint=checkpoint, stream=True)]
    told = [(event.data, event.durable) for event in events if event.type == "output"]
    assert told == [("a", False), ("b", False), ("of the next", False), ("a b", True)]
    ids = [event.output_id for event in events if event.type == "output"]
    assert ids[0] == ids[1] == ids[3] != ids[2]
    request_id = only_request(checkpoint)
    with pytest.raises(InvalidResponseError, match=f"'{request_id}' of executor 'own' .* it is odd"):
        await workflow.run(responses={request_id: 3}, checkpoint=checkpoint)
    assert (await workflow.run(responses={request_id: 4}, checkpoint=checkpoint)).get_outputs()[-1] == "4"


# What agents ask.


@tool(approval_mode="always_require")
def refund(order: str) -> str:
    """Give the money back."""
    return f"refunded {order}"


def clerk(name: str = "clerk") -> Any:
    return scripted_agent(
        [["let me see", tool_call("refund", order="7")], "It is done."], name=name, tools=[refund]
    )


def approved(event: Any, yes: bool = True) -> Content:
    answer: Content = event.data.to_function_approval_response(yes)
    return answer


async def approve_elsewhere(folder: str, yes: bool) -> tuple[list[str], list[str]]:
    storage = FileCheckpointStorage(folder)
    checkpoint = await storage.load("ask")
    workflow = one_step(clerk())
    (event,) = (await workflow.run(checkpoint=checkpoint)).get_request_info_events()
    result = await workflow.run(responses={event.request_id: approved(event, yes)}, checkpoint=checkpoint)
    session = session_of(checkpoint, "clerk")
    results = [
        content.result
        for message in session.state["in_memory"]["messages"]
        for content in message.contents
        if content.type == "function_result"
    ]
    return said(result), results


@pytest.mark.parametrize("yes", [True, False])
@pytest.mark.parametrize("stream", [False, True])
async def test_r54_an_approval_is_asked_in_one_process_and_answered_in_another(
    tmp_path: Path, yes: bool, stream: bool
) -> None:
    workflow = one_step(clerk())
    checkpoint = workflow.create_checkpoint("ask", FileCheckpointStorage(tmp_path))
    if stream:
        asked = await workflow.run("please", checkpoint=checkpoint, stream=True).get_final_response()
    else:
        asked = await workflow.run("please", checkpoint=checkpoint)
    (event,) = asked.get_request_info_events()
    assert asked.get_outputs() == [] and event.data.function_call.arguments == {"order": "7"}
    outputs, results = in_new_process(approve_elsewhere, str(tmp_path), yes)
    assert outputs == ["It is done."]
    assert (results == ["refunded 7"]) == yes and len(results) == 1


async def test_r54_a_wrong_answer_is_refused_and_nothing_is_consumed() -> None:
    workflow = one_step(clerk())
    one, other = workflow.create_checkpoint("one"), workflow.create_checkpoint("other")
    (event,) = (await workflow.run("please", checkpoint=one)).get_request_info_events()
    (others,) = (await workflow.run("please", checkpoint=other)).get_request_info_events()
    before = [snapshot.snapshot_id for snapshot in one.snapshots]
    for answer in (approved(others), Content.from_text("yes"), "yes", True, Message("user", ["yes"])):
        with pytest.raises(InvalidResponseError):
            await workflow.run(responses={event.request_id: answer}, checkpoint=one)
    with pytest.raises(UnknownRequestError):
        await workflow.run(responses={others.request_id: approved(others)}, checkpoint=one)
    assert [snapshot.snapshot_id for snapshot in one.snapshots] == before
    wire = approved(event).to_dict()  # as it comes from a web client
    assert said(await workflow.run(responses={event.request_id: wire}, checkpoint=one)) == ["It is done."]
    with pytest.raises(UnknownRequestError):
        await workflow.run(responses={event.request_id: approved(event)}, checkpoint=one)


async def test_r54_a_question_is_asked_under_the_same_id_when_it_is_asked_again() -> None:
    failing = iter([True])

    @executor(id="beside")
    async def beside(text: str) -> None:
        if next(failing, False):
            raise Boom

    @executor(id="start")
    async def start(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)

    agent = clerk()
    workflow = (
        WorkflowBuilder(name="w", start_executor=start).add_fan_out_edges(start, [agent, beside]).build()
    )
    told = []
    for _ in range(2):
        checkpoint = workflow.create_checkpoint("fixed")
        with pytest.raises(Boom):
            await workflow.run("please", checkpoint=checkpoint)
        (event,) = (await workflow.run(checkpoint=checkpoint)).get_request_info_events()
        told.append(event.request_id)
        failing = iter([True])
    assert told[0] != told[1], "another lineage asks under another id"
    sessions = {call.kwargs["session"].session_id for call in agent.client.calls}
    assert len(agent.client.calls) == 4 and len(sessions) == 2, "a superstep that is repeated has one session"


async def test_two_agents_ask_at_once_under_ids_of_their_own() -> None:
    @executor(id="start")
    async def start(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)

    agents = [clerk("one"), clerk("two")]
    workflow = WorkflowBuilder(name="w", start_executor=start).add_fan_out_edges(start, agents).build()
    checkpoint = workflow.create_checkpoint()
    first, second = (await workflow.run("please", checkpoint=checkpoint)).get_request_info_events()
    assert first.data.function_call.call_id == second.data.function_call.call_id
    assert first.request_id != second.request_id
    with pytest.raises(InvalidResponseError):
        await workflow.run(responses={first.request_id: approved(second)}, checkpoint=checkpoint)
    half = await workflow.run(responses={second.request_id: approved(second)}, checkpoint=checkpoint)
    assert said(half) == ["It is done."]
    result = await workflow.run(responses={first.request_id: approved(first)}, checkpoint=checkpoint)
    assert len(said(result)) == 2


def asking_twice() -> Any:
    declared = FunctionTool(name="lookup", description="Looks up.", func=None)
    script = [
        [tool_call("lookup", key="a"), tool_call("lookup", key="b")],
        lambda messages: _results(messages),
    ]
    return scripted_agent(script, name="asker", tools=[declared])


def _results(messages: Sequence[Message]) -> str:
    found = [content for message in messages for content in message.contents]
    return ",".join(str(one.result) for one in found if one.type == "function_result")


async def test_a_tool_that_is_only_declared_is_a_question_and_answers_keep_their_order() -> None:
    workflow = one_step(asking_twice())
    storage = MemoryCheckpointStorage()
    checkpoint = workflow.create_checkpoint("declared", storage)
    first, second = (await workflow.run("go", checkpoint=checkpoint)).get_request_info_events()
    assert [event.data.parse_arguments()["key"] for event in (first, second)] == ["a", "b"]
    answers = {
        event.request_id: Content.from_function_result(call_id=event.data.call_id, result=text)
        for event, text in ((first, "A"), (second, "B"))
    }
    later = await workflow.run(
        responses={second.request_id: answers[second.request_id]}, checkpoint=checkpoint
    )
    assert said(later) == [] and only_request(checkpoint) == first.request_id
    checkpoint = await storage.load("declared")
    last = {first.request_id: answers[first.request_id]}
    assert said(await workflow.run(responses=last, checkpoint=checkpoint)) == ["A,B"]


async def test_a_question_that_is_given_up_is_told_to_the_agent() -> None:
    workflow = one_step(asking_twice())
    checkpoint = workflow.create_checkpoint()
    events = (await workflow.run("go", checkpoint=checkpoint)).get_request_info_events()
    gone = {event.request_id: RequestCancelled("closed") for event in events}
    assert said(await workflow.run(responses=gone, checkpoint=checkpoint)) == [
        "Error: Tool call was cancelled.,Error: Tool call was cancelled."
    ]


async def test_messages_that_come_while_it_waits_are_held_for_the_agent() -> None:
    agent = asking_twice()

    @executor(id="start")
    async def start(text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)
        await ctx.send_message("and this")

    workflow = WorkflowBuilder(name="w", start_executor=start).add_edge(start, agent).build()
    checkpoint = workflow.create_checkpoint()
    events = (await workflow.run("go", checkpoint=checkpoint)).get_request_info_events()
    assert len(agent.client.calls) == 1, "the second message does not run it"
    answers = {
        event.request_id: Content.from_function_result(call_id=event.data.call_id, result="x")
        for event in events
    }
    assert said(await workflow.run(responses=answers, checkpoint=checkpoint)) == ["x,x"]
    assert [message.text for message in agent.client.calls[1].messages if message.role == "user"] == [
        "go",
        "and this",
    ]


def screen(call_id: str = "s") -> Content:
    return Content(
        "computer_tool_call",
        id=f"item-{call_id}",
        call_id=call_id,
        actions=[{"type": "click"}],
        user_input_request=True,
    )


class Looker:
    """An agent that asks for a screen between two local calls, and then says what it was told."""

    id = name = "looker"
    description = None

    def create_session(self, *, session_id: str | None = None) -> AgentSession:
        return AgentSession(session_id=session_id)

    async def run(self, messages: Any, *, session: AgentSession, **kwargs: Any) -> AgentResponse[Any]:
        if messages[-1].role == "user":
            calls = [
                Content.from_function_call(call_id=one, name="local", arguments={}, id=one)
                for one in ("a", "b")
            ]
            results = [Content.from_function_result(call_id=one, result=one, id=one) for one in ("a", "b")]
            return AgentResponse(
                messages=[Message("assistant", [calls[0], screen(), calls[1]]), Message("tool", results)]
            )
        told = [content.call_id for message in messages for content in message.contents]
        return AgentResponse(messages=[Message("assistant", [f"{told} {sorted(session.state)}"])])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_computer_call_is_a_question_and_local_results_are_told_in_its_order(stream: bool) -> None:
    workflow = one_step(Looker()) if not stream else one_step(_Streaming())
    checkpoint = workflow.create_checkpoint()
    asked = workflow.run("go", checkpoint=checkpoint, stream=True) if stream else None
    result = await asked.get_final_response() if asked else await workflow.run("go", checkpoint=checkpoint)
    (event,) = result.get_request_info_events()
    assert event.data.type == "computer_tool_call"
    wrong = Content("computer_tool_result", call_id="t")
    with pytest.raises(InvalidResponseError, match="'t'"):
        await workflow.run(responses={event.request_id: wrong}, checkpoint=checkpoint)
    right = Content("computer_tool_result", call_id="s", screenshot=Content.from_text("shot"))
    answered = await workflow.run(responses={event.request_id: right}, checkpoint=checkpoint)
    told = "['a', 's', 'b'] ['workflow.defer_computer_function_results']"
    assert said(answered) == [told]
    assert session_of(checkpoint, "looker").state == {}, "the mark is for the run alone"


class _Streaming(Looker):
    """The same, whose stream is a plain one."""

    async def run(self, messages: Any, *, stream: bool = False, **kwargs: Any) -> Any:
        response = await super().run(messages, **kwargs)

        async def updates() -> Any:
            for message in response.messages:
                yield AgentResponseUpdate(contents=message.contents, role=message.role)

        return updates() if stream else response


async def test_a_computer_call_that_is_given_up_ends_the_conversation() -> None:
    workflow = one_step(Looker())
    checkpoint = workflow.create_checkpoint()
    (event,) = (await workflow.run("go", checkpoint=checkpoint)).get_request_info_events()
    first = session_of(checkpoint, "looker").session_id
    given_up = {event.request_id: RequestCancelled()}
    (output,) = (await workflow.run(responses=given_up, checkpoint=checkpoint)).get_outputs()
    assert [one.type for message in output.messages for one in message.contents] == [
        "function_result",
        "error",
        "function_result",
    ]
    assert (await workflow.run("again", checkpoint=checkpoint)).get_request_info_events()
    assert session_of(checkpoint, "looker").session_id != first


# What a call lends.


async def test_options_are_for_one_call_reach_their_executor_and_are_never_stored(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    @tool
    def whisper(word: str, context: FunctionInvocationContext) -> str:
        """Whisper."""
        seen[word] = context.kwargs.get("secret")
        return "heard"

    one = scripted_agent([[tool_call("whisper", word="one")], "done", "done"], name="one")
    two = scripted_agent([[tool_call("whisper", word="two")], "done", "done"], name="two")
    workflow = WorkflowBuilder(name="w", start_executor=one).add_edge(one, two).build()
    checkpoint = workflow.create_checkpoint("w", FileCheckpointStorage(tmp_path))
    lent = WorkflowInvocationKwargs({"secret": "hush-all"}, {"two": {"secret": "hush-two"}})
    await workflow.run(
        "go",
        checkpoint=checkpoint,
        tools=[whisper],
        function_invocation_kwargs=lent,
        client_kwargs={"one": {"key": "hush-key"}},
    )
    assert seen == {"one": "hush-all", "two": "hush-two"}
    assert isinstance(one.client, ScriptedChatClient) and isinstance(two.client, ScriptedChatClient)
    assert one.client.calls[0].kwargs.get("key") == "hush-key" and "key" not in two.client.calls[0].kwargs
    assert not [data for data in file_bytes(tmp_path).values() if b"hush" in data]
    await workflow.run("again", checkpoint=checkpoint)
    assert not one.client.calls[-1].options.get("tools") and "key" not in one.client.calls[-1].kwargs
    with pytest.raises(InvalidCallError, match="no executor of this workflow"):
        await workflow.run("x", function_invocation_kwargs={"one": {}, "tow": {}})


async def test_an_agent_that_takes_no_tools_from_a_call_is_said_to() -> None:
    class Plain(Looker):
        async def run(self, messages: Any, *, session: AgentSession) -> AgentResponse[Any]:  # type: ignore[override]
            return AgentResponse(messages=[Message("assistant", ["plain"])])

    result = await one_step(Plain()).run("hi", tools=[refund])
    assert said(result) == ["plain"]
    assert [event.data for event in result if event.type == "warning"] == [
        "the agent of executor 'looker' takes no tools from a call, so it runs without them"
    ]


# How it ends.


async def test_r60_an_agent_that_failed_is_given_the_same_again() -> None:
    failing = iter([True])

    def reply(messages: Sequence[Message]) -> Any:
        return Boom("no service") if next(failing, False) else " ".join(texts(messages))

    workflow = one_step(scripted_agent(reply))
    checkpoint = workflow.create_checkpoint()
    with pytest.raises(Boom):
        await workflow.run("hi", checkpoint=checkpoint)
    assert checkpoint.head_snapshot is not None
    assert checkpoint.head_snapshot.state["executor_states"] == {}, "nothing of the superstep is kept"
    assert said(await workflow.run(checkpoint=checkpoint)) == ["hi"]
    assert said(await workflow.run("ho", checkpoint=checkpoint)) == ["hi hi ho"]


@pytest.mark.parametrize("stream", [False, True])
async def test_c79_a_cancelled_run_closes_the_stream_of_its_agent_and_goes_on_later(stream: bool) -> None:
    here, closed = asyncio.Event(), asyncio.Event()
    open_gate = False

    async def gate(reply: int, piece: int) -> None:
        if open_gate or (stream and not piece):
            return
        here.set()
        try:
            await asyncio.Event().wait()
        finally:
            closed.set()

    workflow = one_step(scripted_agent(["one two three"], gate=gate))
    checkpoint = workflow.create_checkpoint()
    if stream:
        running = workflow.run("hi", checkpoint=checkpoint, stream=True)
        reading = asyncio.ensure_future(running.get_final_response())
        await reached(here, reading)
        await running.cancel()
    else:
        reading = asyncio.ensure_future(workflow.run("hi", checkpoint=checkpoint))
        await reached(here, reading)
        reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await turns()
    assert closed.is_set()
    assert checkpoint.head_snapshot is not None and checkpoint.head_snapshot.boundary == "input_accepted"
    open_gate = True
    assert said(await workflow.run(checkpoint=checkpoint)) == ["one two three"]


async def test_a_reader_that_leaves_has_the_stream_of_an_agent_closed_before_the_run_ends() -> None:
    told: list[str] = []

    class Talker(Looker):
        async def run(self, messages: Any, *, stream: bool = False, **kwargs: Any) -> Any:
            async def updates() -> Any:
                try:
                    for number in range(1_000):  # more than a run may be ahead of its reader
                        yield AgentResponseUpdate(contents=[Content.from_text(str(number))], role="assistant")
                finally:
                    await turns(3)
                    told.append("closed")

            return updates()

    workflow = one_step(Talker())
    stream = workflow.run("hi", stream=True)
    async for event in stream:
        if event.type == "output":
            break
    with pytest.raises(asyncio.CancelledError):
        await stream.get_final_response()
    assert told == ["closed"]


def words(seed: str) -> str:
    """2 kB of text that no other seed makes."""
    return "".join(f"{seed} {number}," for number in range(400))[:2000]


class Asker(Executor):
    """Asks an agent 20 questions of 2 kB in one run."""

    @handler
    async def begin(self, first: int, ctx: WorkflowContext[str]) -> None:
        ctx.set_state("next", first + 1)
        await ctx.send_message(words(f"question {first}"))

    @handler
    async def go_on(self, answer: AgentExecutorResponse, ctx: WorkflowContext[str]) -> None:
        number = ctx.get_state("next")
        if number % 20:
            ctx.set_state("next", number + 1)
            await ctx.send_message(words(f"question {number}"))


async def test_a_conversation_that_only_grows_costs_linear_bytes(tmp_path: Path) -> None:
    """200 turns, in each a question and an answer of 2 kB, in ten runs."""
    agent = scripted_agent(lambda messages: words(f"answer {len(messages)}"))
    asker = Asker("asker")
    builder = WorkflowBuilder(name="long", start_executor=asker, output_from=[agent])
    workflow = builder.add_edge(asker, agent).add_edge(agent, asker).build()
    checkpoint = workflow.create_checkpoint("long", FileCheckpointStorage(tmp_path))
    for run in range(10):
        result = await workflow.run(20 * run, checkpoint=checkpoint)
        assert len(said(result)) == 20
    assert len(session_of(checkpoint, "agent").state["in_memory"]["messages"]) == 400
    raw = 200 * (2000 + 2000)
    (journal,) = list(tmp_path.rglob("*.journal"))
    print(f"{journal.stat().st_size / raw:.2f} times the raw text")
    assert journal.stat().st_size < 3 * raw
