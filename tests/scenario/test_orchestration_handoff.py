"""Agents that give each other the word: who gets the turn, what it is told, when the user is asked, when it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    Content,
    ContextProvider,
    FunctionInvocationContext,
    FunctionMiddleware,
    InMemoryHistoryProvider,
    Message,
    tool,
)

from branchpoint import (
    Checkpoint,
    Executor,
    FileCheckpointStorage,
    HandlerError,
    RequestCancelled,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
)
from branchpoint.errors import DefinitionError
from branchpoint.orchestrations import HandoffAgentUserRequest, HandoffBuilder, HandoffSentEvent
from branchpoint.testing.agents import scripted_agent, tool_call
from tests.scenario.kit import file_bytes, only_request
from tests.scenario.orchestrating import (
    Play,
    check_branches,
    check_crashes,
    check_pauses,
    check_second_process,
    check_two_at_once,
    given,
    said,
    speaker,
)


def to(name: str) -> Content:
    """A call that hands over."""
    return tool_call(f"handoff_to_{name}")


@tool(approval_mode="always_require")
def refund(order: str) -> str:
    """Give the money back."""
    return f"{order} is refunded"


def desk() -> Play:
    """Triage hands over; refunds asks the user, needs an approval, goes on by itself once, and hands back."""

    def build() -> Workflow:
        triage = scripted_agent([to("refunds"), "Anything else?", "Bye."], name="triage")
        refunds = scripted_agent(
            ["Which order?", tool_call("refund", order="7"), "Nearly.", [to("triage"), "It is done."]],
            name="refunds",
            tools=[refund],
        )
        builder = HandoffBuilder(participants=[triage, refunds])
        return builder.with_autonomous_mode(agents=["refunds"], turn_limits={"refunds": 0}).build()

    def answer(request: Any) -> Any:
        if isinstance(request.data, Content):
            return request.data.to_function_approval_response(approved=True)
        text = request.data.agent_response.text
        if text == "Anything else?":
            return HandoffAgentUserRequest.create_response("No.")
        return HandoffAgentUserRequest.create_response("7.") if text != "Bye." else []

    return Play(build, answer=answer)


def question(checkpoint: Checkpoint) -> HandoffAgentUserRequest:
    (request,) = checkpoint.pending_requests
    assert isinstance(request.data, HandoffAgentUserRequest)
    return request.data


async def answered(workflow: Workflow, checkpoint: Checkpoint, *texts: str) -> Any:
    response = HandoffAgentUserRequest.create_response(list(texts))
    return await workflow.run(responses={only_request(checkpoint): response}, checkpoint=checkpoint)


def roles(agent: Agent[Any]) -> list[list[str]]:
    """What an agent's model was given, per time it was asked: who said it, or which kind of content."""
    return [
        [message.text or message.contents[0].type for message in call.messages] for call in agent.client.calls
    ]


async def test_who_gets_the_turn_is_told_what_was_said_since_its_last_one() -> None:
    a = scripted_agent([to("b"), "a1"], name="a")
    b = scripted_agent(["b0", [to("c"), "Over to c."]], name="b")
    c = scripted_agent([[to("a"), "And back."]], name="c")
    workflow = HandoffBuilder(participants=[a, b, c]).build()
    checkpoint = workflow.create_checkpoint("one")
    result = await workflow.run("Go.", checkpoint=checkpoint)
    sent = [event for event in result if event.type == "handoff_sent"]
    assert [event.data for event in sent] == [HandoffSentEvent("a", "b")]
    assert (sent[0].executor_id, question(checkpoint).agent_response.text) == ("a", "b0")
    await answered(workflow, checkpoint, "More.")
    assert question(checkpoint).agent_response.text == "a1"
    assert given(b) == [["Go."], ["Go.", "b0", "More."]]
    assert given(c) == [["Go.", "b0", "More.", "Over to c."]]
    assert roles(a) == [
        ["Go."],
        ["Go.", "function_call", "function_result", "b0", "More.", "Over to c.", "And back."],
    ]
    assert [output.executor_id for output in checkpoint.outputs()] == ["a", "b", "b", "c", "a"]


async def test_an_agent_has_a_tool_for_each_that_it_may_hand_over_to() -> None:
    a, b, c = (scripted_agent(["ok"], name=name, description=f"Agent {name}.") for name in ("a", "b", "c d"))
    before = dict(a.default_options), a.middleware, list(a.context_providers)
    builder = HandoffBuilder(participants=[a, b, c]).add_handoff(a, [b]).add_handoff("a", ["c d"])
    builder.add_handoff(a, [b], description="To b at once.").add_handoff(b, [a])
    await builder.build().run("Go.")
    (call,) = a.client.calls
    tools = {one.name: one.description for one in call.options["tools"]}
    assert tools == {"handoff_to_b": "To b at once.", "handoff_to_c_d": "Agent c d."}
    assert call.options["allow_multiple_tool_calls"] is False
    assert (dict(a.default_options), a.middleware, list(a.context_providers)) == before


async def test_the_start_agent_is_the_first_or_the_one_that_is_said() -> None:
    a, b = speaker("a"), speaker("b")
    await HandoffBuilder(participants=[a, b]).build().run("Go.")
    await HandoffBuilder(participants=[a, b]).with_start_agent(b).build().run("Go.")
    assert (given(a), given(b)) == ([["Go."]], [["Go."]])


@pytest.mark.parametrize("back", [True, False])
async def test_what_the_user_says_goes_to_who_asked_or_to_the_start_agent(back: bool) -> None:
    a = scripted_agent([to("b"), "a1"], name="a")
    b = scripted_agent(["b0", "b1"], name="b")
    workflow = HandoffBuilder(participants=[a, b]).enable_return_to_previous(back).build()
    checkpoint = workflow.create_checkpoint("one")
    await workflow.run("Go.", checkpoint=checkpoint)
    await answered(workflow, checkpoint, "More.")
    assert question(checkpoint).agent_response.text == ("b1" if back else "a1")
    if not back:
        assert roles(a)[1] == ["Go.", "function_call", "function_result", "b0", "More."]


# Autonomous mode.


async def test_in_autonomous_mode_each_turn_is_a_superstep_until_the_limit() -> None:
    agent = speaker("a")
    builder = HandoffBuilder(participants=[agent]).with_autonomous_mode(
        prompts={"a": "Go on."}, turn_limits={"a": 2}
    )
    workflow = builder.build()
    checkpoint = workflow.create_checkpoint("one")
    await workflow.run("Go.", checkpoint=checkpoint)
    assert given(agent)[-1] == ["Go.", "a0", "Go on.", "a1", "Go on."]
    assert question(checkpoint).agent_response.text == "a2"
    turns = [
        snapshot.state["executor_states"]["a"].get("autonomous_turns", 0)
        for snapshot in checkpoint.snapshots
        if snapshot.state["executor_states"].get("a")
    ]
    assert turns == [1, 2, 2]
    await answered(workflow, checkpoint, "More.")
    assert question(checkpoint).agent_response.text == "a5", "the count begins anew"


@pytest.mark.parametrize("limits", [{"a": 0}, None])
async def test_a_limit_of_nothing_asks_at_once_and_without_one_there_are_fifty(limits: Any) -> None:
    agent = scripted_agent(lambda messages: f"{len(messages)}", name="a")
    workflow = HandoffBuilder(participants=[agent]).with_autonomous_mode(turn_limits=limits).build()
    checkpoint = workflow.create_checkpoint("one")
    await workflow.run("Go.", checkpoint=checkpoint)
    assert len(agent.client.calls) == (1 if limits else 51)
    assert question(checkpoint)


async def test_only_the_agents_that_are_named_go_on_by_themselves() -> None:
    a = scripted_agent(["a0", to("b")], name="a")
    b = scripted_agent(["b0"], name="b")
    workflow = HandoffBuilder(participants=[a, b]).with_autonomous_mode(agents=[a]).build()
    checkpoint = workflow.create_checkpoint("one")
    await workflow.run("Go.", checkpoint=checkpoint)
    assert question(checkpoint).agent_response.text == "b0"
    assert given(b) == [["Go.", "a0"]], "a prompt to go on is for the agent alone"


# The end.


def over(text: str) -> Callable[[list[Message]], bool]:
    return lambda conversation: conversation[-1].text == text


async def test_a_condition_ends_it_after_an_answer_and_before_a_turn() -> None:
    async def over_later(conversation: list[Message]) -> bool:
        return conversation[-1].text == "a0"

    for condition in (over("a0"), over_later):
        workflow = HandoffBuilder(participants=[speaker("a")], termination_condition=condition).build()
        result = await workflow.run("Go.")
        assert [output.text for output in result.get_outputs()] == ["a0"]
        assert not result.get_request_info_events()
    agent = speaker("a")
    workflow = HandoffBuilder(participants=[agent]).with_termination_condition(over("Bye.")).build()
    checkpoint = workflow.create_checkpoint("one")
    await workflow.run("Go.", checkpoint=checkpoint)
    await answered(workflow, checkpoint, "Bye.")
    assert (checkpoint.status, given(agent)) == ("idle", [["Go."]])


@pytest.mark.parametrize("ending", [HandoffAgentUserRequest.terminate(), RequestCancelled()])
async def test_a_user_who_says_nothing_ends_it(ending: Any) -> None:
    workflow = HandoffBuilder(participants=[speaker("a")]).build()
    checkpoint = workflow.create_checkpoint("one")
    await workflow.run("Go.", checkpoint=checkpoint)
    await workflow.run(responses={only_request(checkpoint): ending}, checkpoint=checkpoint)
    assert checkpoint.status == "idle"


async def test_r53_a_second_message_keeps_the_conversation_and_begins_a_new_budget() -> None:
    a = scripted_agent([to("b"), to("b")], name="a")
    b = speaker("b")
    seen: list[list[str]] = []

    def three(conversation: list[Message]) -> bool:
        seen.append([message.text for message in conversation])
        return len(conversation) >= 3

    builder = HandoffBuilder(participants=[a, b]).with_termination_condition(three)
    workflow = builder.with_autonomous_mode(agents=[b], prompts={"b": "Go on."}).build()
    checkpoint = workflow.create_checkpoint("one")
    await workflow.run("Go.", checkpoint=checkpoint)
    assert checkpoint.status == "idle"
    assert seen[-1] == ["Go.", "b0", "b1"]
    await workflow.run("More.", checkpoint=checkpoint)
    assert seen[-1] == ["More.", "b2", "b3"]
    assert given(b)[-1] == ["Go.", "b0", "Go on.", "b1", "More.", "b2", "Go on."]
    assert roles(a)[-1][-2:] == ["b1", "More."]


async def test_handoffs_inside_another_workflow_begin_anew_with_each_message() -> None:
    inner = HandoffBuilder(
        participants=[speaker("a")], termination_condition=lambda conversation: len(conversation) == 2
    ).build()
    start = WorkflowExecutor(inner, id="desk", allow_direct_output=True)
    workflow = WorkflowBuilder(name="outer", start_executor=start).build()
    checkpoint = workflow.create_checkpoint("one")
    for message, answer in (("Go.", "a0"), ("More.", "a1")):
        result = await workflow.run(message, checkpoint=checkpoint)
        assert [output.text for output in result.get_outputs()] == [answer]
        assert not checkpoint.pending_requests


# What goes wrong.


async def test_r53_a_condition_that_raises_costs_one_superstep() -> None:
    broken = [True]

    def condition(conversation: list[Message]) -> bool:
        if len(conversation) == 2 and broken:
            raise ValueError("no idea")
        return len(conversation) == 2

    workflow = HandoffBuilder(participants=[speaker("a")], termination_condition=condition).build()
    checkpoint = workflow.create_checkpoint("one")
    with pytest.raises(
        HandlerError, match=r"'condition', asked by executor 'a' .*raised ValueError: no idea"
    ):
        await workflow.run("Go.", checkpoint=checkpoint)
    assert checkpoint.status == "in_progress" and not checkpoint.outputs()
    broken.clear()
    result = await workflow.run(checkpoint=checkpoint)
    assert [output.text for output in result.get_outputs()] == ["a0"]


async def test_a_condition_answers_yes_or_no() -> None:
    workflow = HandoffBuilder(participants=[speaker("a")], termination_condition=len).build()  # type: ignore[arg-type]
    with pytest.raises(HandlerError, match="'len', asked by executor 'a', answered 1, which is neither"):
        await workflow.run("Go.")


async def test_r53_a_handoff_to_nobody_costs_one_superstep() -> None:
    replies = [to("nobody"), "Sorry."]
    a = scripted_agent(lambda messages: replies[sum(one.role == "assistant" for one in messages)], name="a")
    workflow = HandoffBuilder(participants=[a, speaker("b")]).build()
    checkpoint = workflow.create_checkpoint("one")
    with pytest.raises(HandlerError, match=r"handed over by handoff_to_nobody, .* hand over to \['b'\]"):
        await workflow.run("Go.", checkpoint=checkpoint)
    assert checkpoint.status == "in_progress" and not checkpoint.outputs()
    replies[:] = [to("b")]
    await workflow.run(checkpoint=checkpoint)
    assert question(checkpoint).agent_response.text == "b0"


async def test_a_model_that_mends_its_handoff_to_nobody_hands_over() -> None:
    a = scripted_agent([to("nobody"), to("b")], name="a")
    workflow = HandoffBuilder(participants=[a, speaker("b")]).build()
    checkpoint = workflow.create_checkpoint("one")
    await workflow.run("Go.", checkpoint=checkpoint)
    assert question(checkpoint).agent_response.text == "b0"


async def test_of_two_handoffs_in_one_answer_the_first_counts_and_the_other_is_told_of() -> None:
    a = scripted_agent([[to("b"), to("c")]], name="a")
    result = await HandoffBuilder(participants=[a, speaker("b"), speaker("c")]).build().run("Go.")
    assert result.get_outputs()[-1].text == "b0"
    warnings = [event.data for event in result if event.type == "warning"]
    assert "also handed over to 'c', which is ignored: 'b' is next" in warnings[0]


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_handoff_beside_a_call_that_has_to_be_approved_waits_for_it(
    approved: bool, order: int, stream: bool
) -> None:
    calls = [tool_call("refund", order="7"), to("b")]
    a = scripted_agent([calls[::order]], name="a", tools=[refund])
    workflow = HandoffBuilder(participants=[a, speaker("b")]).build()
    checkpoint = workflow.create_checkpoint("one")

    async def run(*message: str, **more: Any) -> None:
        if stream:
            async for _ in workflow.run(*message, checkpoint=checkpoint, stream=True, **more):
                pass
        else:
            await workflow.run(*message, checkpoint=checkpoint, **more)

    await run("Go.")
    (request,) = checkpoint.pending_requests
    await run(responses={request.request_id: request.data.to_function_approval_response(approved=approved)})
    assert question(checkpoint).agent_response.text == "b0"


async def test_middleware_of_the_agent_may_refuse_a_handoff() -> None:
    class Refuse(FunctionMiddleware):
        async def process(
            self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
        ) -> None:
            context.result = "Not now."

    class Provider(ContextProvider):
        async def before_run(self, *, context: Any, **more: Any) -> None:
            context.extend_middleware(self.source_id, Refuse())

    for more in ({"middleware": [Refuse()]}, {"context_providers": [Provider("p")]}):
        a = scripted_agent([to("b"), "I stay."], name="a", **more)  # type: ignore[arg-type]
        workflow = HandoffBuilder(participants=[a, speaker("b")]).build()
        checkpoint = workflow.create_checkpoint("one")
        await workflow.run("Go.", checkpoint=checkpoint)
        assert question(checkpoint).agent_response.text == "I stay."


@pytest.mark.parametrize("per_call", [False, True])
@pytest.mark.parametrize("provided", [False, True])
async def test_the_result_of_a_handoff_is_in_the_history_once(per_call: bool, provided: bool) -> None:
    a = scripted_agent(
        [to("b"), "a1"],
        name="a",
        context_providers=[InMemoryHistoryProvider()] if provided else [],
        require_per_service_call_history_persistence=per_call,
    )
    b = scripted_agent([to("a")], name="b")
    await HandoffBuilder(participants=[a, b]).build().run("Go.")
    assert roles(a)[-1] == ["Go.", "function_call", "function_result"]


async def test_a_service_that_keeps_the_history_is_told_the_result_with_the_next_turn() -> None:
    def reply(messages: Sequence[Message]) -> Any:
        return "a1" if messages[0].contents[0].type == "function_result" else to("b")

    a = scripted_agent(reply, name="a")
    a.create_session = lambda session_id=None: AgentSession(session_id=session_id, service_session_id="kept")
    b = scripted_agent([[to("a"), "b0"]], name="b")
    await HandoffBuilder(participants=[a, b]).build().run("Go.")
    assert roles(a) == [["Go."], ["function_result", "b0"]]


def test_what_a_builder_refuses() -> None:
    a, b = speaker("a"), speaker("b")

    class Mute(Executor):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext) -> None: ...

    with pytest.raises(DefinitionError, match="need participants"):
        HandoffBuilder().build()
    with pytest.raises(DefinitionError, match="needs participants"):
        HandoffBuilder(participants=[])
    with pytest.raises(DefinitionError, match="of the class Agent"):
        HandoffBuilder(participants=[a, Mute("mute")])  # type: ignore[list-item]
    with pytest.raises(DefinitionError, match="of the class Agent"):
        HandoffBuilder(participants=["a"])  # type: ignore[list-item]
    with pytest.raises(DefinitionError, match="Two participants have the id 'a'"):
        HandoffBuilder(participants=[a, speaker("a")])
    builder = HandoffBuilder(participants=[a, b])
    with pytest.raises(DefinitionError, match="already"):
        builder.participants([a])
    with pytest.raises(DefinitionError, match=r"add_handoff names 'c', who is not among \['a', 'b'\]"):
        builder.add_handoff(a, [speaker("c")])
    with pytest.raises(DefinitionError, match="cannot hand over to itself"):
        builder.add_handoff(a, [a])
    with pytest.raises(DefinitionError, match="takes a list"):
        builder.add_handoff(a, "b")
    with pytest.raises(DefinitionError, match="with_start_agent names 'c'"):
        builder.with_start_agent("c")
    with pytest.raises(DefinitionError, match="turn_limits of with_autonomous_mode names 'c'"):
        builder.with_autonomous_mode(turn_limits={"c": 1})
    with pytest.raises(DefinitionError, match="whole number"):
        builder.with_autonomous_mode(turn_limits={"a": -1})
    for more in ({"turn_limits": {"b": 1}}, {"prompts": {"b": "Go on."}}):
        with pytest.raises(DefinitionError, match="for 'b', who is not among its agents"):
            builder.with_autonomous_mode(agents=[a], **more)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="is a function"):
        builder.with_termination_condition(7)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="Nobody hands over to 'c'"):
        HandoffBuilder(participants=[a, b, speaker("c")]).add_handoff(a, [b]).build()

    @tool
    def handoff_to_b() -> None:
        """Do something else."""

    with pytest.raises(DefinitionError, match="two tools named 'handoff_to_b'"):
        HandoffBuilder(participants=[scripted_agent([], name="a", tools=[handoff_to_b]), b]).build()
    with pytest.raises(DefinitionError, match="two tools named 'handoff_to_b_c'"):
        HandoffBuilder(participants=[a, speaker("b c"), speaker("b.c")]).build()


# However it is interrupted.


async def test_r53_paused_and_reloaded_handoffs_end_as_if_they_ran_through(tmp_path: Path) -> None:
    await check_pauses(desk(), tmp_path)


async def test_r53_another_process_finishes_handoffs(tmp_path: Path) -> None:
    await check_second_process(desk, tmp_path)


async def test_r53_handoffs_crash_at_any_commit_and_go_on() -> None:
    assert await check_crashes(desk()) == 14


async def test_r53_two_runs_of_one_builders_handoffs_never_see_each_other() -> None:
    await check_two_at_once(desk())


async def test_r53_handoffs_are_branched_at_every_snapshot() -> None:
    await check_branches(desk())


async def test_r53_a_conversation_is_kept_once_and_not_once_per_turn(tmp_path: Path) -> None:
    """Twenty turns of 2 kB among four agents, every snapshot of them on disk."""
    names = "abcd"
    agents = [
        scripted_agent(
            lambda messages, after=after: [to(after), f"{len(messages)} " + "word " * 400], name=name
        )
        for name, after in zip(names, names[1:] + names[:1], strict=True)
    ]
    builder = HandoffBuilder(participants=agents)
    for agent, after in zip(agents, [*agents[1:], agents[0]], strict=True):
        builder.add_handoff(agent, [after])
    workflow = builder.with_termination_condition(lambda conversation: len(conversation) > 20).build()
    checkpoint = workflow.create_checkpoint("big", checkpoint_storage=FileCheckpointStorage(tmp_path))
    await workflow.run("Go.", checkpoint=checkpoint)
    assert len(said(checkpoint.outputs())) == 20
    stored = sum(map(len, file_bytes(tmp_path).values()))
    assert stored < 150_000, stored


async def test_autonomous_mode_is_for_all_agents_also_when_they_are_given_later() -> None:
    builder = HandoffBuilder(termination_condition=lambda said: len(said) > 3).with_autonomous_mode()
    workflow = builder.participants([speaker("a")]).build()
    assert [output.text for output in (await workflow.run("Go.")).get_outputs()] == ["a0", "a1", "a2"]
