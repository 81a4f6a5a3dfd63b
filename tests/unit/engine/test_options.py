"""What a call gives for itself alone, and what of it reaches which executor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from branchpoint import InvalidCallError, WorkflowInvocationKwargs
from branchpoint.engine._options import check_options, options_of

IDS = ("a", "b")


@dataclass
class Foreign:
    """As Agent Framework's own class looks."""

    global_kwargs: dict[str, Any] = field(default_factory=dict)
    executor_kwargs: dict[str, dict[str, Any]] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("given", "for_a", "for_b"),
    [
        ({"user": 1}, {"user": 1}, {"user": 1}),
        ({"a": {"user": 1}}, {"user": 1}, None),
        ({"a": {"user": 1}, "b": {"user": 2}}, {"user": 1}, {"user": 2}),
        (
            WorkflowInvocationKwargs({"user": 0, "x": 1}, {"a": {"user": 1}}),
            {"user": 1, "x": 1},
            {"user": 0, "x": 1},
        ),
        (Foreign({"user": 0}, {"b": {"user": 2}}), {"user": 0}, {"user": 2}),
        ({}, None, None),
    ],
)
def test_arguments_are_for_all_or_per_executor(given: Any, for_a: Any, for_b: Any) -> None:
    options = {"tools": ["t"], "client_kwargs": given}
    check_options(options, IDS)
    for executor_id, expected in (("a", for_a), ("b", for_b)):
        found = options_of(executor_id, options, IDS)
        assert found["tools"] == ["t"]
        assert found.get("client_kwargs") == expected


@pytest.mark.parametrize("name", ["function_invocation_kwargs", "client_kwargs"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (5, "got int"),
        ({"a": {"user": 1}, "c": {"user": 2}}, "'c' is no executor"),
        ({"a": 5}, "'a' is not given a mapping"),
        (WorkflowInvocationKwargs({}, {"c": {}}), "'c' is no executor"),
    ],
)
def test_what_could_reach_nobody_is_refused(name: str, given: Any, said: str) -> None:
    with pytest.raises(InvalidCallError, match=said):
        check_options({name: given}, IDS)
