"""Where calls stand: keys that tell alike calls apart, and an order that does not depend on timing."""

from __future__ import annotations

from branchpoint.functional._places import Scope


def test_alike_calls_of_a_scope_are_told_apart_by_their_number() -> None:
    scope = Scope()
    first, second, other = (scope.next("step", "a", it) for it in ("x", "x", "y"))
    assert len({first.key, second.key, other.key}) == 3
    again = Scope()
    assert [again.next("step", "a", it).key for it in ("x", "x", "y")] == [first.key, second.key, other.key]


def test_a_call_in_between_changes_no_other_key() -> None:
    one, two = Scope(), Scope()
    two.next("step", "b", "z")
    assert one.next("step", "a", "x").key == two.next("step", "a", "x").key


def test_names_kinds_and_arguments_do_not_run_together() -> None:
    parts = [("step", "ab", "c"), ("step", "a", "bc"), ("request", "ab", "c"), ("first step", "ab", "c")]
    assert len({Scope().next(*one).key for one in parts}) == 4


def test_the_scope_of_a_task_is_known_by_its_first_call() -> None:
    root = Scope()
    left, right = (root.next("first step", "a", it) for it in ("x", "y"))
    inside = [root.of_task(call, None).next("step", "b", "") for call in (left, right)]
    assert inside[0].key != inside[1].key

    other = Scope()  # tasks that come to their first calls the other way round
    right_again, left_again = (other.next("first step", "a", it) for it in ("y", "x"))
    again = [other.of_task(call, None).next("step", "b", "") for call in (left_again, right_again)]
    assert [one.key for one in again] == [one.key for one in inside]
    assert [one.order for one in again] == [one.order for one in inside]


def test_calls_sort_as_the_code_makes_them() -> None:
    root = Scope()
    calls = [root.next("step", "a", it) for it in "zyx"]
    body = Scope(calls[1].key, calls[1].order, None, calls[1])
    inner = body.next("step", "i", "")
    task = root.next("first step", "t", "")
    assert sorted([task, inner, *calls], key=lambda one: one.order) == [
        calls[0],
        calls[1],
        inner,
        calls[2],
        task,
    ]
