"""A group chat: who speaks, who is told what, when it is over, and that nothing interrupts it for good."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agent_framework import AgentResponse, Content, Message, tool

from branchpoint import (
    ConvergenceError,
    Executor,
    FileCheckpointStorage,
    HandlerError,
    MemoryCheckpointStorage,
    Workflow,
    WorkflowContext,
    handler,
    state,
)
from branchpoint.errors import DefinitionError
from branchpoint.orchestrations import (
    AgentBasedGroupChatOrchestrator,
    AgentRequestInfoResponse,
    BaseGroupChatOrchestrator,
    GroupChatBuilder,
    GroupChatParticipantMessage,
    GroupChatRequestMessage,
    GroupChatRequestSentEvent,
    GroupChatResponseMessage,
    GroupChatResponseReceivedEvent,
    GroupChatState,
    ParticipantRegistry,
)
from branchpoint.testing.agents import scripted_agent, tool_call
from tests.scenario.orchestrating import (
    Play,
    check_branches,
    check_crashes,
    check_pauses,
    check_second_process,
    check_two_at_once,
    story,
)


def in_turn(chat: GroupChatState) -> str:
    """One after the other."""
    names = list(chat.participants)
    return names[chat.current_round % len(names)]


def talker(name: str, **more: Any) -> Any:
    """An agent that says its name, and how often it spoke."""
    return scripted_agent([f"{name}{number}" for number in range(30)], name=name, **more)


def heard(agent: Any) -> list[list[str]]:
    """What an agent's model was given, per time it was asked."""
    return [[message.text for message in call.messages] for call in agent.client.calls]


def chat(*agents: Any, **more: Any) -> GroupChatBuilder:
    more.setdefault("selection_func", in_turn)
    return GroupChatBuilder(participants=agents or [talker(name) for name in "abc"], **more)


def decision(speaker: str | None = None, **more: Any) -> str:
    """What an agent that leads a chat answers."""
    said = {"terminate": speaker is None, "reason": "so", "next_speaker": speaker, "final_message": None}
    return json.dumps({**said, **more})


class Clerk(Executor):
    """A participant that is no agent: says how much it was told."""

    told: int = state(0)

    @handler
    async def hear(self, told: GroupChatParticipantMessage, ctx: WorkflowContext) -> None:
        self.told += len(told.messages)

    @handler
    async def speak(
        self, asked: GroupChatRequestMessage, ctx: WorkflowContext[GroupChatResponseMessage]
    ) -> None:
        text = f"{self.told} heard"
        await ctx.send_message(GroupChatResponseMessage(Message("assistant", [text], author_name=self.id)))


def reviewed() -> Play:
    """A function leads; a tool needs approval, and one agent's turns are reviewed."""

    def build() -> Workflow:
        @tool(approval_mode="always_require")
        def refund(order: str) -> str:
            """Refund an order."""
            return f"refunded {order}"

        a = scripted_agent(["a0", tool_call("refund", order="7"), "a1"], name="a", tools=[refund])
        return chat(a, talker("b"), Clerk("c"), max_rounds=5).with_request_info(agents=["b"]).build()

    def answer(request: Any) -> Any:
        if isinstance(request.data, Content):
            return request.data.to_function_approval_response(approved=True)
        if request.data.agent_response.text == "b0":
            return AgentRequestInfoResponse.from_strings(["Again."])
        return AgentRequestInfoResponse.approve()

    return Play(build, answer=answer)


def led() -> Play:
    """An agent leads, and a turn is reviewed."""

    def build() -> Workflow:
        lead = scripted_agent([decision("b"), decision("a"), decision(final_message="Settled.")], name="lead")
        agents = [talker("a"), talker("b")]
        return (
            GroupChatBuilder(participants=agents, orchestrator_agent=lead)
            .with_request_info(agents=["a"])
            .build()
        )

    return Play(build, answer=lambda request: AgentRequestInfoResponse.approve())


async def test_everybody_is_told_once_what_the_others_say() -> None:
    agents = [talker(name) for name in "abc"]
    workflow = chat(*agents, max_rounds=4).build()
    checkpoint = workflow.create_checkpoint("chat")
    result = await workflow.run("Go.", checkpoint=checkpoint)
    assert [output.text for output in result.get_outputs()] == [
        BaseGroupChatOrchestrator.MAX_ROUNDS_MET_MESSAGE
    ]
    assert heard(agents[0]) == [["Go."], ["Go.", "a0", "b0", "c0"]]
    assert heard(agents[1]) == [["Go.", "a0"]]
    assert heard(agents[2]) == [["Go.", "a0", "b0"]]
    entry = checkpoint.head_snapshot.state["executor_states"]["group_chat_orchestrator"]  # type: ignore[union-attr]
    assert [message.text for message in entry["conversation"]][:-1] == ["Go.", "a0", "b0", "c0", "a1"]


@pytest.mark.parametrize("by_condition", [False, True])
async def test_r53_a_second_message_continues_with_rounds_of_its_own(by_condition: bool) -> None:
    agents = [talker(name) for name in "ab"]
    rounds: list[int] = []

    async def select(state: GroupChatState) -> str:
        rounds.append(state.current_round)
        return in_turn(state)

    over = {"termination_condition": lambda said: len(said) == 3} if by_condition else {"max_rounds": 2}
    workflow = chat(*agents, selection_func=select, **over).build()
    checkpoint = workflow.create_checkpoint("two")
    await workflow.run("Go.", checkpoint=checkpoint)
    await workflow.run("More.", checkpoint=checkpoint)
    assert rounds == [0, 1, 0, 1]
    assert heard(agents[0])[1] == ["Go.", "a0", "b0", "More."]
    assert heard(agents[1])[1] == ["Go.", "a0", "b0", "More.", "a1"]


async def test_a_condition_ends_it_after_an_input_or_a_turn() -> None:
    async def said_b(conversation: list[Message]) -> bool:
        return conversation[-1].text in ("b0", "Stop.")

    workflow = chat(termination_condition=said_b, orchestrator_name="Chair").build()
    (output,) = (await workflow.run("Go.")).get_outputs()
    assert isinstance(output, AgentResponse)
    assert output.messages[0].author_name == "Chair"
    assert output.text == BaseGroupChatOrchestrator.TERMINATION_CONDITION_MET_MESSAGE
    events = await workflow.run("Stop.")
    assert not [event for event in events if event.type == "group_chat"]


async def test_events_tell_who_is_asked_and_who_spoke() -> None:
    events = await chat(max_rounds=2).build().run("Go.")
    told = [event.data for event in events if event.type == "group_chat"]
    assert told == [
        GroupChatRequestSentEvent(0, "a"),
        GroupChatResponseReceivedEvent(1, "a"),
        GroupChatRequestSentEvent(1, "b"),
        GroupChatResponseReceivedEvent(2, "b"),
    ]


async def test_turns_are_outputs_where_that_is_said() -> None:
    workflow = chat(max_rounds=3, output_from=["b"], intermediate_output_from="all_other").build()
    result = await workflow.run("Go.")
    assert result.get_outputs()[0].text == "b0"
    assert [output.text for output in result.get_intermediate_outputs()] == ["a0", "c0"]


async def test_an_executor_hears_and_speaks() -> None:
    clerk = Clerk("clerk")
    workflow = chat(talker("a"), clerk, max_rounds=4, output_from="all").build()
    checkpoint = workflow.create_checkpoint("clerk")
    await workflow.run("Go.", checkpoint=checkpoint)
    conversation = checkpoint.head_snapshot.state["executor_states"]["group_chat_orchestrator"][
        "conversation"
    ]  # type: ignore[union-attr]
    assert [message.text for message in conversation][:-1] == ["Go.", "a0", "2 heard", "a1", "3 heard"]


async def test_an_agent_leads_and_is_told_only_what_is_new() -> None:
    lead = scripted_agent(
        [
            decision("b"),
            f"```json\n{decision('a')}\n```",
            "As I said: " + decision("x") + decision(final_message="Done."),
            decision(final_message="Again."),
        ],
        name="lead",
    )
    agents = [talker("a"), talker("b")]
    workflow = GroupChatBuilder(participants=agents, orchestrator_agent=lambda: lead).build()
    checkpoint = workflow.create_checkpoint("led")
    result = await workflow.run("Go.", checkpoint=checkpoint)
    assert [output.text for output in result.get_outputs()] == ["Done."]
    result = await workflow.run("More.", checkpoint=checkpoint)
    assert [output.text for output in result.get_outputs()] == ["Again."]
    last = heard(lead)[-1]
    assert [text for text in last if not text.startswith(("Say how", "```", "{", "As I"))] == [
        "Go.",
        "b0",
        "a0",
        "More.",
    ]
    assert "Done." in [
        message.text for message in checkpoint.head_snapshot.state["executor_states"]["a"]["cache"]
    ]  # type: ignore[union-attr]


async def test_an_agent_that_leads_may_be_asked_again() -> None:
    lead = scripted_agent(["Hm.", decision("nobody"), decision("a"), decision()], name="lead")
    agents = [talker("a")]
    orchestrator = AgentBasedGroupChatOrchestrator(lead, ParticipantRegistry(agents), retry_attempts=2)
    result = await GroupChatBuilder(participants=agents, orchestrator=orchestrator).build().run("Go.")
    assert [output.text for output in result.get_outputs()] == ["It is over: so"]
    assert "cannot be used: there is no JSON object in it." in heard(lead)[1][-1]
    assert "chose 'nobody'" in heard(lead)[2][-1]


class Wrong:
    """Something of a definition that is wrong until it is mended."""

    def __init__(self) -> None:
        self.mended = False

    def select(self, chat: GroupChatState) -> str:
        if len(chat.conversation) == 2 and not self.mended:
            return "stranger"
        return in_turn(chat)

    def select_nobody(self, chat: GroupChatState) -> Any:
        if len(chat.conversation) == 2 and not self.mended:
            raise LookupError("nobody is left")
        return in_turn(chat)

    def over(self, conversation: list[Message]) -> bool:
        if len(conversation) == 2 and not self.mended:
            raise KeyError("score")
        return len(conversation) > 2

    def lead(self, messages: Any) -> str:
        texts = [message.text for message in messages]
        if "a0" in texts and not self.mended:
            return "nonsense"
        return decision(None if "b0" in texts else "b" if "a0" in texts else "a")


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("select", r"'select' chose 'stranger' to speak next.*one of \['a', 'b'\]"),
        ("select_nobody", "'select_nobody'.*in round 1, raised LookupError: nobody is left"),
        ("over", "termination condition 'over'.*raised KeyError: 'score'"),
        ("lead", r"agent 'lead'.*asked 10 time\(s\) in round 1.*'nonsense'.*no JSON object"),
    ],
)
async def test_what_is_wrong_is_told_and_the_chat_goes_on_once_it_is_mended(what: str, told: str) -> None:
    async def play(wrong: Wrong, *, expect: bool) -> dict[str, Any]:
        agents = [talker("a"), talker("b")]
        storage = MemoryCheckpointStorage()
        if what == "over":
            workflow = chat(*agents, termination_condition=wrong.over).build()
        elif what == "lead":
            lead = scripted_agent(wrong.lead, name="lead")
            orchestrator = AgentBasedGroupChatOrchestrator(
                lead, ParticipantRegistry(agents), retry_attempts=9
            )
            workflow = chat(*agents, selection_func=None, orchestrator=orchestrator).build()
        else:
            workflow = chat(*agents, selection_func=getattr(wrong, what), max_rounds=2).build()
        checkpoint = workflow.create_checkpoint("wrong", checkpoint_storage=storage)
        if expect:
            with pytest.raises(HandlerError, match=told):
                await workflow.run("Go.", checkpoint=checkpoint)
            assert checkpoint.status == "in_progress"
            assert len(checkpoint.snapshots) == 3  # the input, the choice, the turn
            wrong.mended = True
            checkpoint = await storage.load("wrong")
            await workflow.run(checkpoint=checkpoint)
            assert len(agents[0].client.calls) == 1
        else:
            await workflow.run("Go.", checkpoint=checkpoint)
        return story(checkpoint)

    never = Wrong()
    never.mended = True
    assert await play(Wrong(), expect=True) == await play(never, expect=False)


async def test_twenty_rounds_of_two_kilobytes_stay_under_two_hundred_on_disk(tmp_path: Path) -> None:
    def long(name: str) -> Any:
        return scripted_agent(
            [" ".join(f"{name}{turn}-{word}" for word in range(400))[:2_000] for turn in range(20)], name=name
        )

    workflow = chat(long("a"), long("b"), long("c"), max_rounds=20).build()
    checkpoint = workflow.create_checkpoint("long", checkpoint_storage=FileCheckpointStorage(tmp_path))
    await workflow.run("Go.", checkpoint=checkpoint)
    assert len(checkpoint.snapshots) == 43
    conversation = checkpoint.head_snapshot.state["executor_states"]["group_chat_orchestrator"][
        "conversation"
    ]  # type: ignore[union-attr]
    assert sum(len(message.text) for message in conversation) > 40_000
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert size < 140_000, "it was 130,468; the promise is 200,000"


async def test_a_chat_of_many_rounds_is_ended_by_its_rounds_and_not_by_the_bound_on_supersteps() -> None:
    result = await chat(scripted_agent(lambda messages: "a", name="a"), max_rounds=60).build().run("Go.")
    assert result.get_outputs()[0].text == BaseGroupChatOrchestrator.MAX_ROUNDS_MET_MESSAGE


def test_what_a_builder_refuses() -> None:
    with pytest.raises(DefinitionError, match="exactly one of"):
        GroupChatBuilder(participants=[talker("a")])
    with pytest.raises(DefinitionError, match="exactly one of"):
        chat(orchestrator_agent=talker("l"))
    with pytest.raises(DefinitionError, match="either participants or"):
        GroupChatBuilder(selection_func=in_turn)
    with pytest.raises(DefinitionError, match="max_rounds is a number from 1 on"):
        chat(max_rounds=0).build()
    with pytest.raises(DefinitionError, match="needs participants"):
        GroupChatBuilder(participants=[], selection_func=in_turn).build()
    with pytest.raises(DefinitionError, match="function of the conversation"):
        chat().with_termination_condition(7).build()  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="is a function of a GroupChatState"):
        chat(selection_func=7).build()
    with pytest.raises(DefinitionError, match="both have the id 'a'"):
        GroupChatBuilder(participants=[talker("a")], orchestrator_agent=talker("a")).build()
    with pytest.raises(DefinitionError, match="is led by an agent"):
        GroupChatBuilder(participants=[talker("a")], orchestrator=7).build()  # type: ignore[arg-type]
    other = AgentBasedGroupChatOrchestrator(talker("lead"), ParticipantRegistry([talker("b")]))
    with pytest.raises(DefinitionError, match=r"leads \['b'\], and the participants are \['a'\]"):
        GroupChatBuilder(participants=[talker("a")], orchestrator=other).build()
    with pytest.raises(DefinitionError, match="has rounds and a condition of its own"):
        GroupChatBuilder(participants=[talker("b")], orchestrator=lambda: other, max_rounds=2).build()

    class Mute(Executor):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext) -> None: ...

    with pytest.raises(DefinitionError, match=r"\['mute'\] cannot be asked to speak"):
        chat(Mute("mute")).build()


async def test_participants_may_be_made_by_functions() -> None:
    made: list[Any] = []

    def make() -> Any:
        made.append(talker("a"))
        return made[-1]

    builder = GroupChatBuilder(participant_factories=[make], selection_func=in_turn).with_max_rounds(1)
    await builder.build().run("Go.")
    await builder.build().run("Go.")
    assert [heard(agent) for agent in made] == [[["Go."]], [["Go."]]]


@pytest.mark.parametrize("make", [reviewed, led])
async def test_r53_paused_and_reloaded_a_chat_ends_as_if_it_ran_through(make: Any, tmp_path: Path) -> None:
    await check_pauses(make(), tmp_path)


@pytest.mark.parametrize("make", [reviewed, led])
async def test_r53_another_process_finishes_a_chat(make: Any, tmp_path: Path) -> None:
    await check_second_process(make, tmp_path)


@pytest.mark.parametrize(("make", "commits"), [(reviewed, 21), (led, 9)])
async def test_r53_a_chat_crashes_at_any_commit_and_goes_on(make: Any, commits: int) -> None:
    assert await check_crashes(make()) == commits


@pytest.mark.parametrize("make", [reviewed, led])
async def test_r53_two_runs_of_one_chat_never_see_each_other(make: Any) -> None:
    await check_two_at_once(make())


@pytest.mark.parametrize("make", [reviewed, led])
async def test_r53_a_chat_is_branched_at_every_snapshot(make: Any) -> None:
    await check_branches(make())


async def test_a_chat_that_nothing_ends_stops_and_goes_on_with_a_limit() -> None:
    def build(max_rounds: int | None) -> Workflow:
        return chat(scripted_agent(lambda messages: "And?", name="a"), max_rounds=max_rounds).build()

    checkpoint = build(None).create_checkpoint()
    with pytest.raises(ConvergenceError):
        await build(None).run("Go.", checkpoint=checkpoint)
    assert checkpoint.status == "in_progress"
    await build(60).run(checkpoint=checkpoint)
    assert checkpoint.status == "idle" and checkpoint.head_snapshot is not None
    state = checkpoint.head_snapshot.state["executor_states"]["group_chat_orchestrator"]
    assert [message.text for message in state["conversation"]].count("And?") == 60


async def test_a_participant_that_answers_twice_does_not_double_the_chat() -> None:
    said = ["One.", "Two."]

    class Hasty(Clerk):
        @handler
        async def speak(
            self, asked: GroupChatRequestMessage, ctx: WorkflowContext[GroupChatResponseMessage]
        ) -> None:
            for text in said:
                await ctx.send_message(GroupChatResponseMessage(Message("assistant", [text])))

    workflow = chat(Hasty("c"), talker("a"), max_rounds=4).build()
    checkpoint = workflow.create_checkpoint()
    with pytest.raises(HandlerError, match="'c' spoke without being asked"):
        await workflow.run("Go.", checkpoint=checkpoint)
    assert not checkpoint.outputs()

    said.pop()
    _, asked, *_ = checkpoint.snapshots
    checkpoint.restart_from(asked.snapshot_id)
    await workflow.run(checkpoint=checkpoint)
    assert len(checkpoint.outputs()) == 1
