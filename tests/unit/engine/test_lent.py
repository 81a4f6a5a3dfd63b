"""Copies of shared state: each change of one is written back, or said to be lost."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

from branchpoint.codec import isolated_registry, register_state_type
from branchpoint.engine._cell import Cell
from branchpoint.engine._share import Share
from branchpoint.errors import ExecutorStateError
from branchpoint.graph import ABSENT, StateKey
from tests.unit.engine.shapes import Anything, graph_of, state_of


class Hands:
    """What a handler does with the keys `k` and `other`, both `[0]`, and `sum`, which adds up."""

    def __init__(self) -> None:
        graph = graph_of([Anything(id="a")], state_keys={"sum": StateKey("sum", list, reducer=operator.add)})
        state = state_of(graph)
        for key in ("k", "other", "sum"):
            state.shared[key] = Cell(f"workflow_state.shared.{key}", 3, live=[0])
        self.share = Share("a", graph, state.shared, state.medium)

    def get(self, key: str = "k", default: Any = None) -> Any:
        return self.share.lend(key, default)

    def set(self, value: Any, key: str = "k") -> None:
        self.share.write(key, value)

    def update(self, value: Any, key: str = "k") -> None:
        self.share.write(key, value, replaces=True)

    def delete(self, key: str = "k") -> None:
        self.share.write(key, ABSENT)


Deed = Callable[[Hands], None]


def changed(hands: Hands, *, key: str = "k", by: Any = 1) -> Any:
    copy = hands.get(key)
    copy.append(by)
    return copy


def nothing(hands: Hands) -> None:
    hands.get()


def the_copy(hands: Hands) -> None:
    hands.set(changed(hands))


def one_built_from_it(hands: Hands) -> None:
    hands.set(list(changed(hands)))


def one_made_of_it(hands: Hands) -> None:
    hands.set(changed(hands)[-1:])


def one_built_from_the_second_of_two(hands: Hands) -> None:
    hands.get()
    hands.set([*changed(hands), 2])


def one_equal_to_the_first_of_two(hands: Hands) -> None:
    first, _ = changed(hands), hands.get()
    hands.set(list(first))


def each_of_two(hands: Hands) -> None:
    hands.set(changed(hands))
    hands.set(changed(hands, by=2))


def each_of_two_late(hands: Hands) -> None:
    first, second = changed(hands), changed(hands, by=2)
    hands.set(second)
    hands.set(first)


def what_each_of_two_became(hands: Hands) -> None:
    first, second = changed(hands), changed(hands, by=2)
    hands.set(list(first))
    hands.set(list(second))


def two_that_are_equal(hands: Hands) -> None:
    first, second = changed(hands), changed(hands)
    assert first == second
    hands.set(second)


def it_again_and_again(hands: Hands) -> None:
    for _ in range(5):
        hands.get()
        copy = changed(hands)
        hands.set(copy)
        copy.append(2)
        hands.set(copy)


def built_anew_again_and_again(hands: Hands) -> None:
    for _ in range(5):
        before = len(hands.get())
        hands.set([*changed(hands)])
        assert len(hands.get()) == before + 1


def two_keys(hands: Hands) -> None:
    first, second = changed(hands), changed(hands, key="other")
    hands.set(first)
    hands.set(list(second), "other")


def a_default_that_two_keys_share(hands: Hands) -> None:
    default: list[int] = []
    hands.get("x", default)
    hands.get("y", default).append(1)
    hands.set(default, "x")
    hands.set(default, "y")


def a_default_asked_for_twice(hands: Hands) -> None:
    default: list[int] = []
    hands.get("x", default)
    hands.get("x", default).append(1)
    hands.set(default, "x")


def its_removal(hands: Hands) -> None:
    changed(hands)
    changed(hands, by=2)
    hands.delete()


def the_whole(hands: Hands) -> None:
    hands.get()
    hands.update([*changed(hands)])


def an_addition(hands: Hands) -> None:
    changed(hands, key="sum")
    hands.set([1], "sum")


@pytest.mark.parametrize(
    "deed",
    [
        nothing,
        the_copy,
        one_built_from_it,
        one_made_of_it,
        one_built_from_the_second_of_two,
        one_equal_to_the_first_of_two,
        each_of_two,
        each_of_two_late,
        what_each_of_two_became,
        two_that_are_equal,
        it_again_and_again,
        built_anew_again_and_again,
        two_keys,
        a_default_that_two_keys_share,
        a_default_asked_for_twice,
        its_removal,
        the_whole,
        an_addition,
    ],
)
def test_what_is_written_back_is_no_error(deed: Deed) -> None:
    hands = Hands()
    deed(hands)
    hands.share.check_lent()
    hands.set([0])
    deed(hands)  # by the next handler of the same executor
    hands.share.check_lent()


def only_the_other(hands: Hands) -> None:
    changed(hands)
    hands.set(hands.get())


def only_the_other_changed_too(hands: Hands) -> None:
    changed(hands)
    hands.set(changed(hands, by=2))


def what_the_other_became(hands: Hands) -> None:
    changed(hands)
    hands.set([*changed(hands, by=2), 3])


def the_other_and_then_changed(hands: Hands) -> None:
    first, second = hands.get(), hands.get()
    hands.set(second)
    first.append(1)


def it_and_then_changed(hands: Hands) -> None:
    copy = changed(hands)
    hands.set(copy)
    copy.append(2)


def it_then_changed_and_the_other(hands: Hands) -> None:
    copy = changed(hands)
    hands.set(copy)
    copy.append(2)
    hands.set(hands.get())


def another_key(hands: Hands) -> None:
    changed(hands)
    hands.set(changed(hands, key="other"), "other")


def one_that_was_read_after_it(hands: Hands) -> None:
    hands.set([1])
    changed(hands)


def a_default(hands: Hands) -> None:
    hands.get("x", []).append(1)


@pytest.mark.parametrize(
    ("deed", "key"),
    [
        (lambda hands: changed(hands), "k"),
        (only_the_other, "k"),
        (only_the_other_changed_too, "k"),
        (what_the_other_became, "k"),
        (the_other_and_then_changed, "k"),
        (it_and_then_changed, "k"),
        (it_then_changed_and_the_other, "k"),
        (another_key, "k"),
        (one_that_was_read_after_it, "k"),
        (a_default, "x"),
    ],
)
def test_a_change_that_would_be_lost_is_an_error_naming_executor_and_key(deed: Deed, key: str) -> None:
    hands = Hands()
    deed(hands)
    with pytest.raises(ExecutorStateError, match=f"Executor 'a' changed its copy of shared state '{key}'"):
        hands.share.check_lent()
    hands.share.check_lent()  # told once


def test_with_two_copies_out_the_error_says_to_change_the_one_that_is_written() -> None:
    hands = Hands()
    only_the_other(hands)
    with pytest.raises(ExecutorStateError, match="every get_state gives a copy of its own"):
        hands.share.check_lent()


class Looked:
    """Counts how often a fingerprint was taken of what it is in."""

    times = 0


def _look(looked: Looked) -> str:
    Looked.times += 1
    return "the same"


def test_a_write_looks_at_nothing_while_one_copy_is_out() -> None:
    """Long values are common, and so is reading once and writing once."""
    with isolated_registry():
        register_state_type(
            Looked,
            type_id="test.looked",
            encoder=lambda looked: None,
            decoder=lambda payload: Looked(),
            copy=lambda looked: looked,
            fingerprint=_look,
        )
        hands, Looked.times = Hands(), 0
        hands.share.shared["k"].set([Looked()])
        one_built_from_it(hands)
        hands.share.check_lent()
        assert Looked.times == 0
        for n in range(100):
            hands.set(changed(hands, by=n))
        assert 0 < Looked.times < 400  # not with the square of the writes
