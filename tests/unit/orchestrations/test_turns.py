"""Whose turn it is, whether there is another one, and what JSON a model answered."""

from __future__ import annotations

import pytest

from branchpoint.errors import DefinitionError, HandlerError
from branchpoint.orchestrations._json_answers import objects_in, quoted
from branchpoint.orchestrations._turns import checked_limit, checked_speaker, is_spent


@pytest.mark.parametrize(
    ("count", "limit", "spent"),
    [(0, None, False), (99, None, False), (1, 2, False), (2, 2, True), (3, 2, True)],
)
def test_a_budget(count: int, limit: int | None, spent: bool) -> None:
    assert is_spent(count, limit) is spent


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "2"])
def test_limits_that_are_refused(limit: object) -> None:
    with pytest.raises(DefinitionError, match="max_rounds is a number from 1 on, or None for no limit, got"):
        checked_limit("max_rounds", limit, least=1)  # type: ignore[arg-type]


def test_limits_that_are_taken() -> None:
    assert [checked_limit("x", limit, least=0) for limit in (None, 0, 3)] == [None, 0, 3]


@pytest.mark.parametrize("chosen", ["c", "A", None, ["a"], ""])
def test_strangers_are_refused(chosen: object) -> None:
    with pytest.raises(
        HandlerError, match=r"It chose .* to speak next, who does not take part; .* \['a', 'b'\]"
    ):
        checked_speaker(chosen, ["a", "b"], "It")


def test_a_participant_is_taken() -> None:
    assert checked_speaker("b", {"a": "", "b": ""}, "It") == "b"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("no", []),
        ('{"a": 1}', [{"a": 1}]),
        ('```json\n{"a": "}"}\n```', [{"a": "}"}]),
        ('{"a": 1}{"a": 2}', [{"a": 1}, {"a": 2}]),
        ('With {name} it is {"a": {"b": [1]}}.', [{"a": {"b": [1]}}]),
        ('{"a": 1', []),
        ('{"a": {"b": 1}', [{"b": 1}]),
        ("[1, 2]", []),
        ("{" * 100_000, []),
        ("[" * 100_000 + "{" + "[" * 10, []),
        ('{"a":' * 50_000, []),
    ],
)
def test_objects_in_an_answer(text: str, found: object) -> None:
    assert objects_in(text) == found


def test_a_long_answer_is_quoted_in_part() -> None:
    assert quoted("ab") == "'ab'"
    assert len(quoted("x" * 10_000)) == 205
