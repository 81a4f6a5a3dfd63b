from __future__ import annotations

import pytest

from branchpoint.checkpoint import BUCKETS, MESSAGES, Status, status_of


def test_the_buckets_are_four_and_the_messages_three() -> None:
    assert BUCKETS == ("workflow_state", "executor_states", "edge_states", "messages")
    assert MESSAGES == ("input", "pending", "output")


@pytest.mark.parametrize(
    ("deliveries", "requests", "status"),
    [
        ([], {}, "idle"),
        ([], {"r": {}}, "idle_with_pending_requests"),
        ([1], {"r": {}}, "in_progress"),
        ([1], {}, "in_progress"),
    ],
)
def test_the_status_follows_what_is_pending(
    deliveries: list[int], requests: dict[str, object], status: Status
) -> None:
    assert status_of(deliveries, requests) == status
