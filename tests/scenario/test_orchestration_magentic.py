"""A team that is led by plans and ledgers: who acts, what is given up, and that nothing interrupts it for good."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_framework import Content, Message, tool

from branchpoint import HandlerError, MemoryCheckpointStorage, RequestCancelled, Workflow
from branchpoint.errors import DefinitionError
from branchpoint.orchestrations import (
    MagenticBuilder,
    MagenticContext,
    MagenticManagerBase,
    MagenticOrchestratorEventType,
    MagenticPlanReviewRequest,
    MagenticPlanReviewResponse,
    MagenticProgressLedger,
    MagenticProgressLedgerItem,
    StandardMagenticManager,
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

Judge = Callable[[list[str]], str]


def ledger(speaker: str = "a", *, done: bool = False, progress: bool = True, loop: bool = False) -> str:
    """What a manager's agent answers when it is asked where the task stands."""
    answers = {
        "is_request_satisfied": done,
        "is_in_loop": loop,
        "is_progress_being_made": progress,
        "next_speaker": speaker,
        "instruction_or_question": f"Do it, {speaker}.",
    }
    return json.dumps({name: {"reason": "so", "answer": answer} for name, answer in answers.items()})


def boss(judge: Judge) -> Any:
    """A manager's agent; a ledger is made of what was said so far."""

    def answer(messages: Any) -> str:
        said = [message.text for message in messages]
        match said[-1].split()[:3]:
            case ["Here", "is", "a"]:
                return f"Facts after {len(said) - 1}."
            case ["These", "are", "the"]:
                return "Plan A."
            case ["The", "work", "on"]:
                return f"New facts after {len(said) - 1}."
            case ["Say", "in", "a"]:
                return "Plan B."
            case ["This", "task", "is"]:
                return f"The answer after {len(said) - 1}."
        return judge(said)

    return scripted_agent(answer, name="boss")


def in_order(*speakers: str) -> Judge:
    """Each acts once, in order; then the task is done."""

    def judge(said: list[str]) -> str:
        done = sum(text.startswith("Do it") for text in said)
        return ledger(speakers[done]) if done < len(speakers) else ledger(done=True)

    return judge


def worker(name: str, **more: Any) -> Any:
    return scripted_agent(lambda messages: f"{name} did {messages[-1].text}", name=name, **more)


def heard(agent: Any) -> list[list[str]]:
    return [[message.text for message in call.messages] for call in agent.client.calls]


def team(judge: Judge, *agents: Any, **more: Any) -> MagenticBuilder:
    return MagenticBuilder(
        participants=agents or [worker("a"), worker("b")], manager_agent=boss(judge), **more
    )


def stalls_once(said: list[str]) -> str:
    """With plan A nothing comes of it; with plan B one turn does."""
    if any("Plan B" in text for text in said):
        return in_order("b")(said)
    return ledger("a", progress=False)


def entry(checkpoint: Any) -> Any:
    return checkpoint.head_snapshot.state["executor_states"]["magentic_orchestrator"]


def reviewed() -> Play:
    """A plan stalls, the next one is sent back once, and a tool needs approval."""

    def build() -> Workflow:
        @tool(approval_mode="always_require")
        def look_up(what: str) -> str:
            """Look something up."""
            return f"{what} is 42"

        b = scripted_agent([tool_call("look_up", what="it"), "b found it"], name="b", tools=[look_up])
        return team(stalls_once, worker("a"), b, max_stall_count=1).with_plan_review().build()

    def answer(request: Any) -> Any:
        if isinstance(request.data, Content):
            return request.data.to_function_approval_response(approved=True)
        assert isinstance(request.data, MagenticPlanReviewRequest)
        if request.data.is_stalled and "New facts after 2." not in request.data.plan.text:
            return request.data.revise("Cheaper.")
        return request.data.approve()

    return Play(build, answer=answer)


async def test_the_manager_plans_instructs_judges_and_answers() -> None:
    agents = [worker("a"), worker("b")]
    workflow = team(in_order("a", "b", "a"), *agents).build()
    checkpoint = workflow.create_checkpoint("task")
    result = await workflow.run("Go.", checkpoint=checkpoint)
    (output,) = result.get_outputs()
    assert (output.text, output.messages[0].author_name) == ("The answer after 8.", "boss")
    assert heard(agents[0]) == [
        ["Do it, a."],
        ["Do it, a.", "a did Do it, a.", "b did Do it, b.", "Do it, a."],
    ]
    assert heard(agents[1]) == [["a did Do it, a.", "Do it, b."]]
    told = [event.data for event in result if event.type == "magentic_orchestrator"]
    kinds = MagenticOrchestratorEventType
    assert [one.event_type for one in told] == [kinds.PLAN_CREATED] + [kinds.PROGRESS_LEDGER_UPDATED] * 4
    assert "Plan A." in told[0].content.text
    assert told[1].content.next_speaker.answer == "a"
    assert entry(checkpoint)["manager_state"]["task_ledger"].facts.text == "Facts after 1."


async def test_what_stalls_gets_another_plan_and_everybody_forgets() -> None:
    agents = [worker("a"), worker("b")]
    workflow = team(stalls_once, *agents, max_stall_count=1).build()
    checkpoint = workflow.create_checkpoint("stalls")
    (output,) = (await workflow.run("Go.", checkpoint=checkpoint)).get_outputs()
    assert output.text == "The answer after 3."
    assert heard(agents[0])[-1] == ["Do it, a."]
    assert heard(agents[1]) == [["Do it, b."]]
    state = entry(checkpoint)
    assert (state["round_index"], state["reset_count"], state.get("stall_count", 0)) == (4, 1, 0)
    # The second list of facts was made from what had been said, not from nothing.
    assert state["manager_state"]["task_ledger"].facts.text == "New facts after 4."


@pytest.mark.parametrize(
    ("limits", "text", "turns"),
    [
        ({"max_round_count": 3}, "all of its rounds are used up", 3),
        ({"max_stall_count": 0, "max_reset_count": 0}, "no other plan is allowed", 1),
        ({"max_stall_count": 0, "max_reset_count": 2}, "no other plan is allowed", 3),
        ({"max_stall_count": 1, "max_reset_count": 1}, "no other plan is allowed", 2),
    ],
)
async def test_limits(limits: Any, text: str, turns: int) -> None:
    agent = worker("a")
    result = await team(lambda said: ledger(progress=False), agent, **limits).build().run("Go.")
    assert text in result.get_outputs()[0].text
    assert len(agent.client.calls) == turns


async def test_r53_another_message_is_another_task_with_limits_of_its_own() -> None:
    def judge(said: list[str]) -> str:
        return ledger(done=said[-2].startswith("a did"))

    workflow = team(judge, max_round_count=2).build()
    checkpoint = workflow.create_checkpoint("two")
    await workflow.run("Go.", checkpoint=checkpoint)
    result = await workflow.run(["More", Message("user", ["of it."])], checkpoint=checkpoint)
    assert result.get_outputs()[0].text.startswith("The answer after")
    state = entry(checkpoint)
    assert (state["task"], state["round_index"]) == ("More\nof it.", 2)
    assert state["conversation"][0].text == "Go."


async def test_a_plan_is_reviewed_until_it_is_approved() -> None:
    workflow = team(in_order("a"), enable_plan_review=True).build()
    checkpoint = workflow.create_checkpoint("reviews")
    await workflow.run("Go.", checkpoint=checkpoint)
    (request,) = checkpoint.pending_requests
    assert (request.data.is_stalled, request.data.current_progress) == (False, None)
    revise = request.data.revise(["Shorter.", Message("user", ["Cheaper."])])
    await workflow.run(responses={request.request_id: revise}, checkpoint=checkpoint)
    (request,) = checkpoint.pending_requests
    assert "Plan B." in request.data.plan.text
    approve = MagenticPlanReviewResponse.approve()
    result = await workflow.run(responses={request.request_id: approve}, checkpoint=checkpoint)
    assert result.get_outputs()[0].text == "The answer after 6."
    assert [message.text for message in entry(checkpoint)["conversation"]][:3] == [
        "Go.",
        "Shorter.",
        "Cheaper.",
    ]


async def test_a_review_that_is_cancelled_ends_the_task() -> None:
    workflow = team(in_order("a"), enable_plan_review=True).build()
    checkpoint = workflow.create_checkpoint("cancelled")
    await workflow.run("Go.", checkpoint=checkpoint)
    (request,) = checkpoint.pending_requests
    result = await workflow.run(responses={request.request_id: RequestCancelled()}, checkpoint=checkpoint)
    assert "nobody reviewed its plan" in result.get_outputs()[0].text
    assert checkpoint.status == "idle"


async def test_a_plan_that_stalled_is_reviewed_with_what_was_found() -> None:
    workflow = team(stalls_once, max_stall_count=0, enable_plan_review=True).build()
    checkpoint = workflow.create_checkpoint("stalled")
    await workflow.run("Go.", checkpoint=checkpoint)
    (request,) = checkpoint.pending_requests
    await workflow.run(responses={request.request_id: request.data.approve()}, checkpoint=checkpoint)
    (request,) = checkpoint.pending_requests
    assert request.data.is_stalled
    assert request.data.current_progress.is_progress_being_made.answer is False


@pytest.mark.parametrize(
    ("nonsense", "told"),
    [
        ("Hm.", r"asked 10 time\(s\) for a progress ledger.*'Hm\.': there is no JSON object"),
        ("{}", "is_request_satisfied is missing"),
        (ledger("stranger"), r"next_speaker is 'stranger', which is none of \['a', 'b'\]"),
    ],
)
async def test_a_manager_that_answers_nonsense_ten_times(nonsense: str, told: str) -> None:
    mended = False

    def judge(said: list[str]) -> str:
        # Nonsense after the first turn; what was complained about stands behind the question.
        turns = [text for text in said if text.startswith("a did")]
        return nonsense if turns and not mended else in_order("a")(said)

    async def play(storage: MemoryCheckpointStorage, *, expect: bool) -> dict[str, Any]:
        nonlocal mended
        agents = [worker("a"), worker("b")]
        manager = StandardMagenticManager(boss(judge), progress_ledger_retry_count=10)
        workflow = MagenticBuilder(participants=agents, manager=manager).build()
        checkpoint = workflow.create_checkpoint("nonsense", checkpoint_storage=storage)
        if expect:
            with pytest.raises(HandlerError, match=told):
                await workflow.run("Go.", checkpoint=checkpoint)
            assert (checkpoint.status, len(checkpoint.snapshots)) == ("in_progress", 3)
            mended = True
            checkpoint = await storage.load("nonsense")
            await workflow.run(checkpoint=checkpoint)
            assert len(agents[0].client.calls) == 1
        else:
            await workflow.run("Go.", checkpoint=checkpoint)
        return story(checkpoint)

    failed = await play(MemoryCheckpointStorage(), expect=True)
    assert failed == await play(MemoryCheckpointStorage(), expect=False)


class Counting(MagenticManagerBase):
    """A manager of one's own: lets `a` act as often as it was told, and counts."""

    def __init__(self, turns: int, **more: Any) -> None:
        super().__init__(**more)
        self.turns = turns
        self.counted: list[int] = []

    async def plan(self, magentic_context: MagenticContext) -> Message:
        magentic_context.chat_history.append(Message("user", ["kept by nobody"]))
        return Message("assistant", ["Count."])

    async def replan(self, magentic_context: MagenticContext) -> Message:
        return Message("assistant", ["Count again."])

    async def create_progress_ledger(self, magentic_context: MagenticContext) -> MagenticProgressLedger:
        assert "kept by nobody" not in [message.text for message in magentic_context.chat_history]
        self.counted.append(magentic_context.round_count)
        no, yes = MagenticProgressLedgerItem("", False), MagenticProgressLedgerItem("", True)
        done = yes if len(self.counted) > self.turns else no
        return MagenticProgressLedger(
            done, no, yes, MagenticProgressLedgerItem("", "a"), MagenticProgressLedgerItem("", "Count.")
        )

    async def prepare_final_answer(self, magentic_context: MagenticContext) -> Message:
        return Message("assistant", [str(self.counted)])

    def on_snapshot_save(self) -> dict[str, Any]:
        return {"counted": self.counted}

    def on_snapshot_restore(self, state: dict[str, Any]) -> None:
        self.counted = state["counted"]


def counted() -> Play:
    """One manager object leads every workflow that is built."""
    manager = Counting(3)
    return Play(lambda: MagenticBuilder(participants=[worker("a")], manager=manager).build())


async def test_a_manager_of_ones_own_saves_what_it_remembers() -> None:
    manager = Counting(2)
    workflow = MagenticBuilder(participants=[worker("a")], manager_factory=lambda: manager).build()
    for _ in range(2):
        assert (await workflow.run("Go.")).get_outputs()[0].text == "[1, 2, 3]"
    assert manager.counted == []


async def test_a_manager_that_would_forget_is_told_of() -> None:
    class Forgetful(Counting):
        on_snapshot_save = MagenticManagerBase.on_snapshot_save

    class HalfWay(Counting):
        on_snapshot_restore = MagenticManagerBase.on_snapshot_restore

    class Odd(Counting):
        def on_snapshot_save(self) -> Any:
            return self.counted

    class Vague(Counting):
        async def create_progress_ledger(self, magentic_context: MagenticContext) -> MagenticProgressLedger:
            given = await super().create_progress_ledger(magentic_context)
            given.is_request_satisfied = MagenticProgressLedgerItem("", "perhaps")
            return given

    class Wrong(Counting):
        async def plan(self, magentic_context: MagenticContext) -> Any:
            return "Count."

    for kind, told in (
        (Forgetful, r"changed \['counted'\] during a run and does not save it"),
        (HalfWay, "no on_snapshot_restore"),
        (Odd, "returned a list"),
        (Vague, "the answer of is_request_satisfied is 'perhaps'"),
        (Wrong, "answered with a str, where a Message"),
    ):
        with pytest.raises(HandlerError, match=told):
            await MagenticBuilder(participants=[worker("a")], manager=kind(1)).build().run("Go.")


def test_what_a_builder_refuses() -> None:
    with pytest.raises(DefinitionError, match="exactly one of manager"):
        MagenticBuilder(participants=[worker("a")])
    with pytest.raises(DefinitionError, match=r"give \['max_round_count'\] to it"):
        MagenticBuilder(participants=[worker("a")], manager=Counting(1), max_round_count=2)
    with pytest.raises(DefinitionError, match="led by a MagenticManagerBase"):
        MagenticBuilder(participants=[worker("a")], manager_factory=lambda: 7).build()  # type: ignore[arg-type,return-value]
    with pytest.raises(DefinitionError, match="asks an agent"):
        MagenticBuilder(participants=[worker("a")], manager_agent=7).build()  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="max_round_count is a number from 1 on"):
        team(in_order(), max_round_count=0).build()
    with pytest.raises(DefinitionError, match="max_stall_count is a number from 0 on"):
        team(in_order(), max_stall_count=-1).build()
    with pytest.raises(DefinitionError, match="final_answer_prompt cannot be filled in"):
        team(in_order(), final_answer_prompt="{tsak}").build()
    with pytest.raises(DefinitionError, match=r"task_ledger_facts_prompt cannot be filled in.*\{task\}"):
        team(in_order(), task_ledger_facts_prompt="For {team}: {task}").build()
    with pytest.raises(DefinitionError, match="progress_ledger_retry_count is a number from 1 on"):
        StandardMagenticManager(worker("a"), progress_ledger_retry_count=0)


async def test_prompts_may_be_ones_own() -> None:
    def answer(messages: Any) -> str:
        return ledger(done=True) if messages[-1].text == "? a, b" else f"[{messages[-1].text}]"

    builder = MagenticBuilder(
        participants=[worker("a"), worker("b")],
        manager_agent_factory=lambda: scripted_agent(answer, name="boss"),
        task_ledger_facts_prompt="f {task}",
        task_ledger_plan_prompt="p",
        task_ledger_full_prompt="{facts}{plan}",
        progress_ledger_prompt="? {names}",
        final_answer_prompt="a {task}",
    )
    result = await builder.build().run("Go.")
    assert result.get_outputs()[0].text == "[a Go.]"
    plan, _ = [event.data for event in result if event.type == "magentic_orchestrator"]
    assert plan.content.text == "[f Go.][p]"


async def test_r53_paused_and_reloaded_a_team_ends_as_if_it_ran_through(tmp_path: Path) -> None:
    await check_pauses(reviewed(), tmp_path)


async def test_r53_another_process_finishes_the_work_of_a_team(tmp_path: Path) -> None:
    await check_second_process(reviewed, tmp_path)


@pytest.mark.parametrize(("make", "commits"), [(reviewed, 18), (counted, 8)])
async def test_r53_a_team_crashes_at_any_commit_and_goes_on(make: Any, commits: int) -> None:
    assert await check_crashes(make()) == commits


@pytest.mark.parametrize("make", [reviewed, counted])
async def test_r53_two_runs_of_one_team_never_see_each_other(make: Any) -> None:
    await check_two_at_once(make())


@pytest.mark.parametrize("make", [reviewed, counted])
async def test_r53_a_team_is_branched_at_every_snapshot(make: Any) -> None:
    await check_branches(make())
