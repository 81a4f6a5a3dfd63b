"""What follows from a progress ledger, and how one is read from a model's answer. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from branchpoint.orchestrations._json_answers import objects_in
from branchpoint.orchestrations._magentic_types import MagenticProgressLedger, yes_or_no
from branchpoint.orchestrations._turns import is_spent

__all__ = ["Step", "next_step", "read_ledger"]


@dataclass(frozen=True)
class Step:
    """What comes next.

    Attributes:
        kind: The task is done, somebody acts, another plan is made, or resets are used up.
        stall_count: How far the task is stalled now.
    """

    kind: Literal["finish", "act", "replan", "give_up"]
    stall_count: int


def next_step(
    ledger: MagenticProgressLedger,
    *,
    stall_count: int,
    max_stall_count: int,
    reset_count: int,
    max_reset_count: int | None,
    is_new_plan: bool,
) -> Step:
    """Decide what follows from a ledger.

    Args:
        ledger: Where the task is at.
        stall_count: How far it was stalled before.
        max_stall_count: How far it may be, until another plan is made.
        reset_count: How many plans were given up.
        max_reset_count: How many may be.
        is_new_plan: Whether nobody has acted on the plan yet; then somebody does, whatever the ledger says.

    Raises:
        ValueError: An answer is neither true nor false.
    """
    if yes_or_no(ledger.is_request_satisfied.answer, "is_request_satisfied"):
        return Step("finish", stall_count)
    advances = yes_or_no(ledger.is_progress_being_made.answer, "is_progress_being_made")
    stalled = yes_or_no(ledger.is_in_loop.answer, "is_in_loop") or not advances
    count = stall_count + 1 if stalled else max(0, stall_count - 1)
    if count <= max_stall_count or is_new_plan:
        return Step("act", count)
    return Step("give_up" if is_spent(reset_count, max_reset_count) else "replan", count)


def read_ledger(text: str, participants: Iterable[str]) -> MagenticProgressLedger:
    """Return the last ledger in an answer.

    Raises:
        ValueError: There is none, or it sends the task to somebody who does not take part.
    """
    trouble = "there is no JSON object in it"
    for found in reversed(objects_in(text)):
        try:
            ledger = MagenticProgressLedger.from_dict(found)
        except ValueError as error:
            trouble = str(error)
            continue
        names = list(participants)
        if not ledger.is_request_satisfied.answer and ledger.next_speaker.answer not in names:
            raise ValueError(f"next_speaker is {ledger.next_speaker.answer!r}, which is none of {names}")
        return ledger
    raise ValueError(trouble)
