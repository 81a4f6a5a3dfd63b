"""What a Magentic orchestration speaks of: the task so far, ledgers, reviews of plans, and its events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Final

from agent_framework import Message

from branchpoint.agents import as_messages
from branchpoint.codec import register_state_type

__all__ = [
    "MAGENTIC_MANAGER_NAME",
    "MagenticContext",
    "MagenticOrchestratorEvent",
    "MagenticOrchestratorEventType",
    "MagenticPlanReviewRequest",
    "MagenticPlanReviewResponse",
    "MagenticProgressLedger",
    "MagenticProgressLedgerItem",
    "MagenticTaskLedger",
    "yes_or_no",
]

MAGENTIC_MANAGER_NAME: Final = "magentic_manager"
"""Under which name the manager speaks."""

_YES_OR_NO: Final = frozenset({"is_request_satisfied", "is_in_loop", "is_progress_being_made"})
_WORDS: Final = {"true": True, "false": False, "yes": True, "no": False}


@register_state_type("branchpoint.magentic_task_ledger")
@dataclass
class MagenticTaskLedger:
    """What a manager knows of a task, and what it means to do.

    Attributes:
        facts: What is known, and what is to be found out.
        plan: The steps, and who takes them.
    """

    facts: Message
    plan: Message


@register_state_type("branchpoint.magentic_progress_ledger_item")
@dataclass
class MagenticProgressLedgerItem:
    """A manager's answer to one question about where a task is at.

    Attributes:
        reason: Why.
        answer: The answer.
    """

    reason: str
    answer: str | bool

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {"reason": self.reason, "answer": self.answer}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> MagenticProgressLedgerItem:
        """Return what `to_dict` returned, or what a model wrote; a reason may be missing.

        Raises:
            ValueError: The answer is neither a text, nor true or false.
        """
        answer = data.get("answer")
        if not isinstance(answer, str | bool):
            raise ValueError(f"the answer is {answer!r}, neither a text nor true or false")
        return MagenticProgressLedgerItem(str(data.get("reason") or ""), answer)


def yes_or_no(answer: Any, question: str) -> bool:
    """Return an answer as true or false, also where it is a word for that.

    Raises:
        ValueError: It is neither.
    """
    read = _WORDS.get(answer.strip().lower()) if isinstance(answer, str) else answer
    if not isinstance(read, bool):
        raise ValueError(f"the answer of {question} is {answer!r}, neither true nor false")
    return read


@register_state_type("branchpoint.magentic_progress_ledger")
@dataclass
class MagenticProgressLedger:
    """Where a task is at, as its manager sees it after a turn.

    Attributes:
        is_request_satisfied: Whether the task is done.
        is_in_loop: Whether the same is done over and over.
        is_progress_being_made: Whether the last turns brought it forward.
        next_speaker: Who is to act next.
        instruction_or_question: What that one is told.
    """

    is_request_satisfied: MagenticProgressLedgerItem
    is_in_loop: MagenticProgressLedgerItem
    is_progress_being_made: MagenticProgressLedgerItem
    next_speaker: MagenticProgressLedgerItem
    instruction_or_question: MagenticProgressLedgerItem

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {one.name: getattr(self, one.name).to_dict() for one in fields(self)}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> MagenticProgressLedger:
        """Return what `to_dict` returned, or what a model wrote: "yes" and "true" are true, too.

        Raises:
            ValueError: A question is missing, or has an answer of the wrong kind.
        """
        items: dict[str, MagenticProgressLedgerItem] = {}
        for name in (one.name for one in fields(MagenticProgressLedger)):
            item = data.get(name)
            if not isinstance(item, Mapping):
                raise ValueError(f"{name} is missing, or no object with reason and answer")
            answer = item.get("answer")
            if name in _YES_OR_NO:
                answer = yes_or_no(answer, name)
            elif not isinstance(answer, str):
                raise ValueError(f"the answer of {name} is {answer!r}, which is no text")
            items[name] = MagenticProgressLedgerItem.from_dict({**item, "answer": answer})
        return MagenticProgressLedger(**items)


@dataclass
class MagenticContext:
    """What a manager is given with each question, its own copy: what it changes in it is not kept.

    Attributes:
        task: What is to be done.
        chat_history: What was said since the last reset.
        participant_descriptions: Who can act, by name.
        round_count: How many rounds have begun since the last input.
        stall_count: How many rounds in a row brought nothing, less those that did.
        reset_count: How often it began anew since the last input.
    """

    task: str
    chat_history: list[Message] = field(default_factory=list)
    participant_descriptions: dict[str, str] = field(default_factory=dict)
    round_count: int = 0
    stall_count: int = 0
    reset_count: int = 0


@register_state_type("branchpoint.magentic_event_type")
class MagenticOrchestratorEventType(str, Enum):
    """What a manager did."""

    PLAN_CREATED = "plan_created"
    REPLANNED = "replanned"
    PROGRESS_LEDGER_UPDATED = "progress_ledger_updated"


@register_state_type("branchpoint.magentic_event")
@dataclass
class MagenticOrchestratorEvent:
    """The data of a `magentic_orchestrator` event.

    Attributes:
        event_type: What the manager did.
        content: The plan, as a message, or the progress ledger.
    """

    event_type: MagenticOrchestratorEventType
    content: Message | MagenticProgressLedger


@register_state_type("branchpoint.magentic_plan_review_response")
@dataclass
class MagenticPlanReviewResponse:
    """What a person says to a plan: nothing, which approves it, or what is to be changed.

    Attributes:
        review: What the manager is told before it plans anew; empty approves the plan.
    """

    review: list[Message] = field(default_factory=list)

    @staticmethod
    def approve() -> MagenticPlanReviewResponse:
        """Return a response that approves the plan."""
        return MagenticPlanReviewResponse([])

    @staticmethod
    def revise(feedback: str | Message | Sequence[str | Message]) -> MagenticPlanReviewResponse:
        """Return a response that asks for another plan."""
        return MagenticPlanReviewResponse(as_messages(feedback))


@register_state_type("branchpoint.magentic_plan_review_request")
@dataclass
class MagenticPlanReviewRequest:
    """Asks a person whether a plan is good; answered with a `MagenticPlanReviewResponse`.

    Attributes:
        plan: The task as the manager sees it: facts, plan and who can act.
        current_progress: What the ledger said when the last plan was given up; None for a first plan.
        is_stalled: Whether this plan replaces one that led nowhere.
    """

    plan: Message
    current_progress: MagenticProgressLedger | None
    is_stalled: bool

    def approve(self) -> MagenticPlanReviewResponse:
        """Return the answer that approves the plan."""
        return MagenticPlanReviewResponse.approve()

    def revise(self, feedback: str | Message | Sequence[str | Message]) -> MagenticPlanReviewResponse:
        """Return the answer that asks for another plan."""
        return MagenticPlanReviewResponse.revise(feedback)
