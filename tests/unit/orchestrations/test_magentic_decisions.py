"""What follows from a progress ledger, and which answers of a model are one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from branchpoint.orchestrations import MagenticProgressLedger, MagenticProgressLedgerItem
from branchpoint.orchestrations._magentic_decisions import Step, next_step, read_ledger


def ledger(*, done: bool = False, loop: bool = False, progress: bool = True) -> MagenticProgressLedger:
    answers = (done, loop, progress, "a", "Go.")
    return MagenticProgressLedger(*(MagenticProgressLedgerItem("", answer) for answer in answers))


@pytest.mark.parametrize(
    ("given", "more", "step"),
    [
        ({}, {}, Step("act", 1)),
        ({}, {"stall_count": 0}, Step("act", 0)),
        ({"progress": False}, {}, Step("act", 3)),
        ({"loop": True}, {}, Step("act", 3)),
        ({"loop": True}, {"stall_count": 3}, Step("replan", 4)),
        ({"progress": False}, {"stall_count": 3}, Step("replan", 4)),
        ({"progress": False}, {"stall_count": 3, "is_new_plan": True}, Step("act", 4)),
        ({}, {"stall_count": 4}, Step("act", 3)),
        ({}, {"stall_count": 5}, Step("replan", 4)),
        ({"progress": False}, {"stall_count": 3, "max_reset_count": 1}, Step("replan", 4)),
        ({"progress": False}, {"stall_count": 3, "max_reset_count": 1, "reset_count": 1}, Step("give_up", 4)),
        ({"done": True, "progress": False}, {"stall_count": 9}, Step("finish", 9)),
        ({"progress": False}, {"stall_count": 0, "max_stall_count": 0}, Step("replan", 1)),
    ],
)
def test_what_follows_from_a_ledger(given: dict[str, bool], more: dict[str, Any], step: Step) -> None:
    facts: dict[str, Any] = {
        "stall_count": 2,
        "max_stall_count": 3,
        "reset_count": 0,
        "max_reset_count": None,
        "is_new_plan": False,
    }
    assert next_step(ledger(**given), **{**facts, **more}) == step


def written(**answers: Any) -> dict[str, Any]:
    said: dict[str, Any] = {
        "is_request_satisfied": False,
        "is_in_loop": False,
        "is_progress_being_made": True,
        "next_speaker": "a",
        "instruction_or_question": "Go.",
        **answers,
    }
    return {name: {"reason": "so", "answer": answer} for name, answer in said.items()}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(written()),
        f"Here it is:\n```json\n{json.dumps(written(), indent=2)}\n```\nGood luck.",
        json.dumps(written(next_speaker="b")) + json.dumps(written()),
        json.dumps(written(is_in_loop="No", is_progress_being_made=" TRUE ")),
        json.dumps(written()) + " {not json} {}",
        json.dumps({**written(), "more": 1}),
    ],
)
def test_a_ledger_is_read(text: str) -> None:
    read = read_ledger(text, ["a", "b"])
    assert (read.next_speaker.answer, read.is_in_loop.answer, read.is_progress_being_made.answer) == (
        "a",
        False,
        True,
    )
    assert read.next_speaker.reason == "so"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no JSON object"),
        ("True", "no JSON object"),
        ("{}", "is_request_satisfied is missing"),
        (json.dumps({**written(), "is_in_loop": True}), "is_in_loop is missing, or no object"),
        (json.dumps(written(is_in_loop="maybe")), "'maybe', neither true nor false"),
        (json.dumps(written(is_in_loop=0)), "0, neither true nor false"),
        (json.dumps(written(next_speaker=None)), "next_speaker is None, which is no text"),
        (json.dumps(written(next_speaker="c")), r"'c', which is none of \['a', 'b'\]"),
        (json.dumps(written(instruction_or_question=["Go."])), "which is no text"),
    ],
)
def test_what_is_no_ledger(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_ledger(text, ["a", "b"])


def test_a_task_that_is_done_needs_nobody_to_act() -> None:
    assert (
        read_ledger(
            json.dumps(written(is_request_satisfied=True, next_speaker="")), ["a"]
        ).next_speaker.answer
        == ""
    )


def test_a_ledger_is_plain_json_and_back() -> None:
    plain = ledger(progress=False).to_dict()
    assert plain["is_progress_being_made"] == {"reason": "", "answer": False}
    assert MagenticProgressLedger.from_dict(json.loads(json.dumps(plain))) == ledger(progress=False)
    with pytest.raises(ValueError, match="the answer is None"):
        MagenticProgressLedgerItem.from_dict({"reason": "so"})


def test_a_word_for_no_finishes_nothing() -> None:
    said = ledger()
    said.is_request_satisfied = MagenticProgressLedgerItem("", "False")
    step = next_step(
        said, stall_count=0, max_stall_count=3, reset_count=0, max_reset_count=None, is_new_plan=False
    )
    assert step == Step("act", 0)
