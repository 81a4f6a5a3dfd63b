"""Declared state keys, and the fold of one superstep's writes."""

from __future__ import annotations

import operator
from typing import Any

import pytest

from branchpoint.errors import DefinitionError, ExecutorStateError, StateConflictError
from branchpoint.graph import ABSENT, StateKey, Write, append, fold, last_write, merge


def test_a_key_nobody_wrote_to_is_absent() -> None:
    assert StateKey("k").initial() is ABSENT
    assert StateKey("k", default=None).initial() is None
    assert repr(ABSENT) == "ABSENT"


def test_initial_values_are_never_shared() -> None:
    given: list[int] = []
    for key in (StateKey("k", factory=list), StateKey("k", default=given), StateKey("k", reducer=append)):
        first = key.initial()
        assert first == []
        assert first is not key.initial()
        assert first is not given


def test_r04_a_default_is_the_keys_own_from_its_declaration() -> None:
    given = {"words": ["a"]}
    key = StateKey("k", default=given)
    given["words"].append("b")
    assert key.initial() == {"words": ["a"]}
    with pytest.raises(DefinitionError, match=r"default of state key 'k' cannot be copied .*generator"):
        StateKey("k", default=(n for n in ()))


def test_append_and_merge_start_empty_by_themselves() -> None:
    assert StateKey("k", reducer=append).initial() == []
    assert StateKey("k", reducer=merge).initial() == {}
    assert StateKey("k", default=[1], reducer=append).initial() == [1]
    assert StateKey("k", reducer=operator.add).initial() is ABSENT
    assert StateKey("k", reducer=last_write).initial() is ABSENT


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": ""}, "text that is not empty"),
        ({"key": 3}, "text that is not empty"),
        ({"key": "k", "default": 1, "factory": int}, "a default and a factory"),
        ({"key": "k", "factory": 3}, "factory of state key 'k' must be a function, got int"),
        ({"key": "k", "reducer": "sum"}, "reducer of state key 'k' must be a function, got str"),
    ],
)
def test_a_wrong_declaration_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        StateKey(**arguments)


def test_a_start_value_of_another_type_is_refused() -> None:
    StateKey("k", int, default=0).check_default()
    StateKey("k", list[int], factory=list).check_default()
    StateKey("k", int).check_default()
    with pytest.raises(DefinitionError, match="'k' is declared as int, but starts as str"):
        StateKey("k", int, default="").check_default()


def test_no_writes_change_nothing() -> None:
    value = [1]
    assert fold("k", None, value, []) is value
    assert fold("k", StateKey("k", reducer=append), ABSENT, []) is ABSENT


def test_without_a_reducer_an_executors_last_write_stands() -> None:
    assert fold("k", None, 1, [Write("a", 2), Write("a", 3)]) == 3
    assert fold("k", None, 1, [Write("a", 2), Write("a", ABSENT)]) is ABSENT
    assert fold("k", StateKey("k"), ABSENT, [Write("a", None)]) is None


def test_without_a_reducer_two_writers_conflict() -> None:
    with pytest.raises(
        StateConflictError, match=r"'a' and 'b' wrote state key 'k' .* add_state\('k', reducer"
    ):
        fold("k", StateKey("k", default=0), 1, [Write("a", 2), Write("b", 2)])
    with pytest.raises(StateConflictError, match="'a' and 'b'"):
        fold("k", None, 1, [Write("a", 2), Write("b", 2), Write("a", 4)])


def test_a_reducer_folds_in_the_order_given() -> None:
    total = StateKey("total", int, default=0, reducer=operator.add)
    assert fold("total", total, ABSENT, [Write("a", 2), Write("b", 3)]) == 5
    assert fold("total", total, 10, [Write("a", 2), Write("a", 3)]) == 15
    words = StateKey("words", reducer=append)
    assert fold("words", words, ABSENT, [Write("a", "x"), Write("b", "y")]) == ["x", "y"]
    assert fold("words", words, ["w"], [Write("b", "y"), Write("a", "x")]) == ["w", "y", "x"]
    notes = StateKey("notes", reducer=merge)
    assert fold("notes", notes, {"p": 1, "q": 1}, [Write("a", {"q": 2}), Write("b", {"r": 3})]) == {
        "p": 1,
        "q": 2,
        "r": 3,
    }
    latest = StateKey("latest", reducer=last_write)
    assert fold("latest", latest, 0, [Write("a", 1), Write("b", 2)]) == 2


def test_a_fold_changes_neither_the_value_nor_what_was_written() -> None:
    current, written = ["w"], {"q": 2}
    assert fold("k", StateKey("k", reducer=append), current, [Write("a", "x")]) == ["w", "x"]
    assert current == ["w"]
    result = fold("k", StateKey("k", reducer=merge), {}, [Write("a", written), Write("b", {"r": 1})])
    assert result == {"q": 2, "r": 1}
    assert written == {"q": 2}


def test_a_first_write_starts_a_key_without_default() -> None:
    assert fold("k", StateKey("k", reducer=operator.add), ABSENT, [Write("a", "x"), Write("b", "y")]) == "xy"


def test_an_update_replaces_and_is_not_counted_twice() -> None:
    total = StateKey("total", int, default=0, reducer=operator.add)
    assert fold("total", total, 10, [Write("a", 11, replaces=True)]) == 11
    assert fold("total", total, 10, [Write("a", 1), Write("a", 12, replaces=True), Write("a", 2)]) == 14


def test_a_deleted_key_starts_again_from_its_default() -> None:
    total = StateKey("total", int, default=100, reducer=operator.add)
    assert fold("total", total, 7, [Write("a", ABSENT)]) is ABSENT
    assert fold("total", total, 7, [Write("a", ABSENT), Write("a", 1)]) == 101


@pytest.mark.parametrize("lossy", [Write("a", ABSENT), Write("a", 5, replaces=True)])
def test_an_update_or_a_deletion_beside_another_writer_conflicts(lossy: Write) -> None:
    total = StateKey("total", int, default=0, reducer=operator.add)
    for writes in ([lossy, Write("b", 1)], [Write("b", 1), lossy]):
        with pytest.raises(StateConflictError, match=r"'a' (deleted|updated) it"):
            fold("total", total, 1, writes)


def test_last_write_takes_deletions_and_updates_too() -> None:
    latest = StateKey("latest", reducer=last_write)
    assert fold("latest", latest, 0, [Write("a", 1), Write("b", ABSENT)]) is ABSENT
    assert fold("latest", latest, 0, [Write("a", ABSENT), Write("b", 4, replaces=True)]) == 4


def test_a_value_of_another_type_is_refused_with_its_writers() -> None:
    with pytest.raises(
        ExecutorStateError, match=r"'k' is declared as list\[int\], but 'a' and 'b' left a str"
    ):
        fold("k", StateKey("k", list[int], reducer=last_write), [], [Write("a", [1]), Write("b", "x")])
    assert fold("k", StateKey("k", int), 1, [Write("a", ABSENT)]) is ABSENT


def test_what_a_reducer_raises_says_for_whom() -> None:
    with pytest.raises(TypeError) as caught:
        fold("total", StateKey("total", reducer=operator.add), 1, [Write("a", "x")])
    assert caught.value.__notes__ == ["raised by the reducer of state key 'total' for what 'a' wrote"]


def test_a_reducer_that_cannot_be_hashed_is_no_obstacle() -> None:
    class Sum:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, current: int, value: int) -> int:
            return current + value

    assert fold("k", StateKey("k", reducer=Sum()), 1, [Write("a", 2)]) == 3


def test_a_declaration_is_shown_by_names() -> None:
    assert StateKey("k", list[int], reducer=append).to_dict() == {
        "key": "k",
        "type": "list[int]",
        "reducer": "append",
    }
    assert StateKey("k").to_dict() == {"key": "k", "type": None, "reducer": None}
