from __future__ import annotations

from typing import Any

import pytest

from branchpoint.checkpoint import BUCKETS, MESSAGES, Summary, status_of, summarize
from tests.unit.checkpoint.doubles import make_state


def test_the_buckets_are_four_and_the_messages_three() -> None:
    assert BUCKETS == ("workflow_state", "executor_states", "edge_states", "messages")
    assert MESSAGES == ("input", "pending", "output")


@pytest.mark.parametrize(
    ("pending", "status"),
    [
        ({}, "idle"),
        ({"deliveries": [], "requests": {}}, "idle"),
        ({"deliveries": [], "requests": {"r": {}}}, "idle_with_pending_requests"),
        ({"deliveries": [1], "requests": {"r": {}}}, "in_progress"),
        ({"deliveries": [1]}, "in_progress"),
        ([], "idle"),
        (None, "idle"),
        ([1], "in_progress"),
    ],
)
def test_the_status_follows_what_is_pending(pending: Any, status: str) -> None:
    assert status_of(pending) == status


def test_a_summary_says_what_the_state_says() -> None:
    state = make_state(4, input_id="in-7", requests={"b": {}, "a": {}})
    assert summarize(state, boundary="paused", executors=("x",)) == Summary(
        "paused", "idle_with_pending_requests", 4, "in-7", ("b", "a"), ("x",)
    )
    assert summarize(make_state(0, input_id=None)) == Summary("edited", "idle", 0, None, (), ())


def test_odd_contents_are_no_reason_to_fail() -> None:
    state = make_state()
    state["workflow_state"]["iteration_count"] = "many"
    state["messages"] = {"input": 7, "pending": {"requests": [1]}, "output": None}
    assert summarize(state) == Summary("edited", "idle_with_pending_requests")
