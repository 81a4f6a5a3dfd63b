"""What an accepted input and a finished superstep make of the state: no event loop, no clock."""

from __future__ import annotations

import operator
from typing import Any

import pytest

from branchpoint.codec import decode_state, encode_state, new_parts
from branchpoint.engine._admission import payload_digest
from branchpoint.engine._cell import Cell
from branchpoint.engine._routing import Routed
from branchpoint.engine._state import Delivery, RunState
from branchpoint.engine._transitions import (
    accept_answers,
    accept_message,
    finish_superstep,
    incomplete_joins,
    settle_status,
)
from branchpoint.errors import HandlerError, StateConflictError
from branchpoint.graph import ABSENT, EdgeGroup, Graph, StateKey, last_write, merge
from tests.unit.engine.shapes import Anything, Texts, asked, graph_of, share_of, state_of


def graph(*keys: StateKey, **more: Any) -> Graph:
    executors = [Anything(id="a"), Anything(id="b"), Anything(id="c"), Texts(id="j")]
    return graph_of(executors, state_keys={key.key: key for key in keys}, **more)


def shared(state: RunState) -> dict[str, Any]:
    return {key: cell.value(state.medium) for key, cell in state.shared.items()}


def outputs(state: RunState) -> list[dict[str, Any]]:
    return [output.read(state.medium) for output in state.outputs]


def earlier(state: RunState) -> list[dict[str, Any]]:
    return [cell.value(state.medium) for cell in state.earlier]


def finish(state: RunState, *shares: Any, **routed: Any) -> None:
    finish_superstep(state, shares, Routed(**routed))
    settle_status(state)


# Accepting.


def test_an_accepted_message_is_pending_for_the_start_executor() -> None:
    state = state_of(graph())
    accept_message(state, "hello", "in-1")
    assert state.deliveries == [Delivery("hello", (), ("a",))]
    assert (state.turn, state.iteration, state.input_iteration, state.status) == (1, 0, 0, "in_progress")
    assert state.input is not None
    assert (state.input.input_id, state.input.kind, state.input.turn) == ("in-1", "message", 1)
    assert state.input.value.value(state.medium) == "hello"
    assert state.earlier == []


def test_the_next_turn_counts_on_and_the_bound_starts_anew() -> None:
    state = state_of(graph())
    accept_message(state, "one", "in-1")
    for _ in range(3):
        finish(state, share_of(state, "a"))
    accept_message(state, "two", "in-2")
    assert (state.turn, state.iteration, state.input_iteration) == (2, 3, 3)
    assert earlier(state) == [
        {"input_id": "in-1", "turn": 1, "digest": payload_digest("message", "one"), "superstep": 0}
    ]


def test_accepted_answers_go_to_those_who_asked_in_the_order_given_behind_what_is_pending() -> None:
    state = state_of(graph())
    accept_message(state, "go", "in-1")
    finish(
        state,
        share_of(state, "a", asked=[asked("r1", "a", "q1")]),
        share_of(state, "b", asked=[asked("r2", "b", "q2"), asked("r3", "b", "q3")]),
        deliveries=[Delivery("on", ("a",), ("c",))],
    )
    accept_answers(state, {"r1": "one", "r3": "three"}, "in-2", "digest")
    assert state.deliveries == [
        Delivery("on", ("a",), ("c",)),
        Delivery("one", ("a",), ("a",), "r1", "q1"),
        Delivery("three", ("b",), ("b",), "r3", "q3"),
    ]
    assert list(state.requests) == ["r2"]
    assert (state.turn, state.input_iteration, state.status) == (1, 1, "in_progress")
    assert state.input is not None
    assert (state.input.input_id, state.input.kind, state.input.turn) == ("in-2", "responses", 1)
    assert state.input.digest == "digest"
    assert [record["input_id"] for record in earlier(state)] == ["in-1"]
    accept_answers(state, {"r2": "two"}, "in-3")
    assert [record["digest"] for record in earlier(state)][1:] == ["digest"]


# A finished superstep.


def test_a_finished_superstep_replaces_what_was_pending() -> None:
    state = state_of(graph())
    accept_message(state, "go", "in-1")
    following = [Delivery(1, ("a",), ("b", "c"))]
    buffers = {"fan_in:b,c->j": {"b": [Cell("p", 5, live="x")]}}
    finish(state, share_of(state, "a"), deliveries=following, buffers=buffers)
    assert (state.iteration, state.status) == (1, "in_progress")
    assert state.deliveries is following
    assert state.buffers is buffers


def test_writes_are_folded_in_declared_order_of_the_executors() -> None:
    state = state_of(
        graph(
            StateKey("log", list[str], factory=list, reducer=operator.add),
            StateKey("seen", reducer=merge),
            StateKey("last", reducer=last_write),
        )
    )
    for _ in range(2):
        finish(
            state,
            share_of(
                state, "a", writes=[("log", ["a1"]), ("log", ["a2"]), ("seen", {"a": 1}), ("last", "a")]
            ),
            share_of(state, "b", writes=[("last", "b"), ("seen", {"b": 1, "a": 2}), ("log", ["b1"])]),
        )
    assert shared(state) == {
        "log": ["a1", "a2", "b1"] * 2,
        "seen": {"a": 2, "b": 1},
        "last": "b",
    }


def test_two_writers_of_one_key_without_a_reducer_conflict_and_are_named() -> None:
    state = state_of(graph())
    with pytest.raises(StateConflictError) as refused:
        finish(
            state,
            share_of(state, "a", writes=[("k", 1)]),
            share_of(state, "b", writes=[("other", 1)]),
            share_of(state, "c", writes=[("k", 1)]),
        )
    for word in ("'a'", "'c'", "'k'"):
        assert word in str(refused.value)
    assert "'b'" not in str(refused.value)


def test_one_writer_may_write_as_often_as_it_likes_and_delete() -> None:
    state = state_of(graph())
    finish(state, share_of(state, "a", writes=[("k", 1), ("k", 2), ("gone", 1)]))
    assert shared(state) == {"k": 2, "gone": 1}
    finish(state, share_of(state, "a", writes=[("gone", ABSENT), ("never", ABSENT)]))
    assert shared(state) == {"k": 2}


def test_outputs_say_turn_superstep_and_maker() -> None:
    state = state_of(graph(output_ids=frozenset({"a"}), intermediate_ids=frozenset({"b"})))
    accept_message(state, "go", "in-1")
    finish(
        state,
        share_of(state, "a", yielded=["a1", None]),
        share_of(state, "b", yielded=["b1"]),
        share_of(state, "c", yielded=["hidden"]),
    )
    accept_message(state, "again", "in-2")
    finish(state, share_of(state, "a", yielded=["a2"]))
    first = {"turn": 1, "superstep": 1}
    assert outputs(state) == [
        {**first, "executor_id": "a", "output_id": "a-output-0", "value": "a1"},
        {**first, "executor_id": "a", "output_id": "a-output-1", "value": None},
        {**first, "executor_id": "b", "output_id": "b-output-0", "value": "b1", "kind": "intermediate"},
        {"turn": 2, "superstep": 2, "executor_id": "a", "output_id": "a-output-0", "value": "a2"},
    ]
    assert [record["value"] for record in state.turn_outputs()] == ["a2"]


@pytest.mark.parametrize("together", [True, False])
def test_two_requests_under_one_id_are_refused(together: bool) -> None:
    state = state_of(graph())
    first = share_of(state, "a", asked=[asked("r1", "a")])
    second = share_of(state, "b", asked=[asked("r1", "b")])
    with pytest.raises(HandlerError, match="'b' asked under the request id 'r1'"):
        if together:
            finish(state, first, second)
        else:
            finish(state, first)
            finish(state, second)


def test_an_id_may_be_asked_under_again_once_it_was_answered() -> None:
    state = state_of(graph())
    accept_message(state, "go", "in-1")
    for n in range(3):
        finish(state, share_of(state, "a", asked=[asked("r1", "a", n)]))
        accept_answers(state, {"r1": "y"}, f"in-{n + 2}")
        assert state.deliveries == [Delivery("y", ("a",), ("a",), "r1", n)]
        assert state.requests == {}


# The status.


@pytest.mark.parametrize(
    ("deliveries", "requests", "status"),
    [
        (False, False, "idle"),
        (False, True, "idle_with_pending_requests"),
        (True, False, "in_progress"),
        (True, True, "in_progress"),
    ],
)
def test_the_status_follows_what_is_pending(deliveries: bool, requests: bool, status: str) -> None:
    state = state_of(graph())
    finish(
        state,
        share_of(state, "a", asked=[asked("r1", "a")] if requests else []),
        deliveries=[Delivery(1, ("a",), ("b",))] if deliveries else [],
    )
    assert state.status == status


# Half-filled joins.


def test_a_completed_turn_drops_half_filled_joins_and_says_who_had_sent() -> None:
    kept = EdgeGroup.fan_in(["a", "b"], "j", keep=True)
    dropped = EdgeGroup.fan_in(["b", "c"], "k")
    executors = [Anything(id="a"), Anything(id="b"), Anything(id="c"), Texts(id="j"), Texts(id="k")]
    state = state_of(graph_of(executors, [kept, dropped]))
    state.buffers = {
        kept.id: {"a": [Cell("p", 5, live="x")]},
        dropped.id: {"c": [Cell("p", 5, live="y"), Cell("p", 5, live="z")]},
    }
    assert incomplete_joins(state) == [(dropped.id, ["c"])]
    assert list(state.buffers) == [kept.id]
    assert incomplete_joins(state) == []


def test_a_message_finds_nothing_at_a_join_of_the_turn_before() -> None:
    """Whatever ended that turn: an edit may have."""
    kept, dropped = EdgeGroup.fan_in(["a", "b"], "j", keep=True), EdgeGroup.fan_in(["b", "c"], "k")
    executors = [Anything(id="a"), Anything(id="b"), Anything(id="c"), Texts(id="j"), Texts(id="k")]
    state = state_of(graph_of(executors, [kept, dropped]))
    assert accept_message(state, "one", "in-1") == []
    state.buffers = {group.id: {"b": [Cell("p", 5, live="x")]} for group in (kept, dropped)}
    assert accept_message(state, "two", "in-2") == [(dropped.id, ["b"])]
    assert list(state.export()["edge_states"]) == [kept.id]


# What a snapshot holds.


def test_the_exported_state_has_exactly_the_four_buckets_and_the_three_kinds_of_messages() -> None:
    state = state_of(graph())
    accept_message(state, "go", "in-1")
    finish(
        state,
        share_of(state, "b", yielded=["out"], writes=[("k", 1)], asked=[asked("r1", "b")]),
        deliveries=[Delivery("on", ("b",), ("c",))],
        buffers={"fan_in:b,c->j": {"b": [Cell("p", 5, live="x")]}},
    )
    exported = state.export()
    assert list(exported) == ["workflow_state", "executor_states", "edge_states", "messages"]
    assert exported["workflow_state"] | {"shared": None} == {
        "iteration_count": 1,
        "status": "in_progress",
        "turn": 1,
        "shared": None,
        "cursor": {"input_iteration": 0},
    }
    assert list(exported["messages"]) == ["input", "pending", "output"]
    root, _ = encode_state(exported, format="json")
    stored = decode_state(root.digest, new_parts(root, ()), format="json")
    assert list(stored["messages"]["pending"]["requests"]) == ["r1"]
    assert stored["messages"]["pending"]["deliveries"] == [
        {"value": "on", "sources": ["b"], "targets": ["c"]}
    ]
    assert [made["value"] for made in stored["messages"]["output"]] == ["out"]
    assert list(exported["edge_states"]) == ["fan_in:b,c->j"]
    assert state_of(graph()).export()["messages"]["input"] == {}


@pytest.mark.parametrize(
    "delivery",
    [
        Delivery(None, (), ("a",)),
        Delivery([1], ("a", "b"), ("c", "j")),
        Delivery("yes", ("a",), ("a",), "r1", "really?"),
        Delivery("yes", ("a",), ("a",), "r1", None),
    ],
)
def test_a_delivery_comes_back_from_its_record(delivery: Delivery) -> None:
    assert Delivery.from_record(delivery.record()) == delivery
