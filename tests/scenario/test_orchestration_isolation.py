"""What functions and managers of a caller are given is theirs: it reaches no other run, and not what was said."""

from __future__ import annotations

from typing import Any

import pytest
from agent_framework import Content, Message

from branchpoint import HandlerError
from branchpoint.orchestrations import (
    GroupChatBuilder,
    GroupChatState,
    HandoffBuilder,
    MagenticBuilder,
    MagenticContext,
    MagenticManagerBase,
    MagenticProgressLedger,
    MagenticProgressLedgerItem,
)
from tests.scenario.orchestrating import speaker


class Noting(MagenticManagerBase):
    """A manager that is done at once, and notes each task in a list inside a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: dict[str, list[str]] = {"tasks": []}

    async def plan(self, magentic_context: MagenticContext) -> Message:
        self.notes["tasks"].append(magentic_context.task)
        return Message("assistant", ["Note it."])

    async def replan(self, magentic_context: MagenticContext) -> Message:
        raise AssertionError("nothing is planned twice")

    async def create_progress_ledger(self, magentic_context: MagenticContext) -> MagenticProgressLedger:
        yes, no = MagenticProgressLedgerItem("", True), MagenticProgressLedgerItem("", False)
        return MagenticProgressLedger(yes, no, yes, MagenticProgressLedgerItem("", "a"), no)

    async def prepare_final_answer(self, magentic_context: MagenticContext) -> Message:
        return Message("assistant", [", ".join(self.notes["tasks"])])


class Remembering(Noting):
    """One that saves its notes."""

    def on_snapshot_save(self) -> dict[str, Any]:
        return {"notes": self.notes}

    def on_snapshot_restore(self, state: dict[str, Any]) -> None:
        self.notes = state["notes"]


def conversation(checkpoint: Any, executor_id: str) -> list[str]:
    """What an orchestrator keeps of what was said."""
    entry = checkpoint.head_snapshot.state["executor_states"][executor_id]
    return [message.text for message in entry["conversation"]]


async def test_r53_what_a_manager_notes_in_nested_containers_stays_in_its_run() -> None:
    manager = Remembering()
    workflow = MagenticBuilder(participants=[speaker("a")], manager=manager).build()
    for task in ("One.", "Two."):
        assert (await workflow.run(task)).get_outputs()[0].text == task
    assert manager.notes == {"tasks": []}


async def test_a_manager_that_forgets_what_it_notes_in_nested_containers_is_told_of() -> None:
    workflow = MagenticBuilder(participants=[speaker("a")], manager=Noting()).build()
    with pytest.raises(HandlerError, match=r"changed \['notes'\] during a run and does not save it"):
        await workflow.run("One.")


async def test_a_manager_gets_messages_of_its_own() -> None:
    class Scribbling(Noting):
        async def plan(self, magentic_context: MagenticContext) -> Message:
            magentic_context.chat_history[0].contents.append(Content.from_text("kept by nobody"))
            return Message("assistant", ["Scribble."])

    workflow = MagenticBuilder(participants=[speaker("a")], manager=Scribbling()).build()
    checkpoint = workflow.create_checkpoint()
    await workflow.run("Go.", checkpoint=checkpoint)
    assert conversation(checkpoint, "magentic_orchestrator")[0] == "Go."


async def test_functions_of_a_conversation_get_messages_of_their_own() -> None:
    def scribbling(messages: list[Message]) -> None:
        messages[-1].contents.append(Content.from_text("kept by nobody"))

    def select(chat: GroupChatState) -> str:
        scribbling(chat.conversation)
        return "a"

    def is_over(messages: list[Message]) -> bool:
        scribbling(messages)
        return False

    group = GroupChatBuilder(
        participants=[speaker("a")], selection_func=select, termination_condition=is_over, max_rounds=2
    ).build()
    checkpoint = group.create_checkpoint()
    await group.run("Go.", checkpoint=checkpoint)
    assert conversation(checkpoint, "group_chat_orchestrator")[:3] == ["Go.", "a0", "a1"]

    handoffs = HandoffBuilder(participants=[speaker("a")], termination_condition=is_over).build()
    checkpoint = handoffs.create_checkpoint()
    await handoffs.run("Go.", checkpoint=checkpoint)
    assert checkpoint.head_snapshot is not None
    shared = checkpoint.head_snapshot.state["workflow_state"]["shared"]
    assert [message.text for message in shared["handoff_conversation"]] == ["Go.", "a0"]
