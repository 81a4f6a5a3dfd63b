"""The journal: what a turn has behind it, to the form of a snapshot and back."""

from __future__ import annotations

import pytest

from branchpoint.codec import Encoded, decode, encode, new_parts
from branchpoint.errors import EncodingError, ExecutorStateError
from branchpoint.functional._journal import Journal


def kept(count: int) -> Journal:
    journal = Journal(1, {"n": count})
    for n in range(count):
        journal.records[f"k{n}"] = journal.record(f"k{n}", "work", [n], "json", 2, "here")
    return journal


def test_a_journal_comes_back_as_it_was() -> None:
    journal = kept(3)
    journal.asked, journal.answers = {"q": "id"}, {"p": True}
    whole, _ = encode(journal.export("json", 2), format="json", depth=2)
    again = Journal.of(decode(whole.data, new_parts(whole, ()), format="json", path=""))
    assert [record.plain() for record in again.records.values()] == [
        {"step": "work", "key": f"k{n}", "result": [n]} for n in range(3)
    ]
    assert (again.turn, again.message, again.asked, again.answers, again.over) == (
        1, {"n": 3}, {"q": "id"}, {"p": True}, False,
    )  # fmt: skip
    same, _ = encode(again.export("json", 2), format="json", depth=2)
    assert same.data == whole.data


def test_a_record_is_encoded_once() -> None:
    journal = kept(2)
    before = [record.encoded for record in journal.records.values()]
    assert all(type(one) is Encoded for one in before)
    journal.export("json", 2)
    assert all(a is b for a, b in zip(before, (r.encoded for r in journal.records.values()), strict=True))


def test_without_a_format_nothing_is_encoded() -> None:
    journal = Journal(1, object)
    record = journal.record("k", "work", print, None, 2, "here")
    assert record.encoded is None and record.result is print
    with pytest.raises(EncodingError):
        journal.record("k", "work", print, "json", 2, "here")


def test_arranging_sorts_what_was_called_and_keeps_the_rest_behind_it() -> None:
    journal = kept(4)
    journal.arrange({"k3": (0, 1), "k0": (0, 2)})
    assert list(journal.records) == ["k3", "k0", "k1", "k2"]
    journal.drop(["k0", "unknown"])
    assert list(journal.records) == ["k3", "k1", "k2"]


@pytest.mark.parametrize(
    "broken", [{}, {"turn": 1, "message": 1, "steps": [1], "asked": {}, "answers": {}, "over": False}]
)
def test_a_state_of_another_form_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(ExecutorStateError, match="not that of a functional workflow"):
        Journal.of(broken)
