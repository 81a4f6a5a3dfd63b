"""Whose answers a caller sees, and as what."""

from __future__ import annotations

from typing import Any

import pytest

from branchpoint.agents import AgentExecutor
from branchpoint.errors import DefinitionError
from branchpoint.orchestrations._designation import designated
from branchpoint.testing.agents import scripted_agent

AGENTS = {name: scripted_agent([], name=name) for name in "abc"}
A, B, C = (AgentExecutor(agent) for agent in AGENTS.values())
HOST = AgentExecutor(scripted_agent([], name="host"))


@pytest.mark.parametrize(
    ("output_from", "intermediate_from", "expected"),
    [
        (None, None, (["host", "c"], [])),
        ("all", None, (["host", "a", "b", "c"], [])),
        (["a"], None, (["host", "a"], [])),
        ([AGENTS["a"], B], None, (["host", "a", "b"], [])),
        (None, ["a"], (["host", "c"], ["a"])),
        (None, ["c"], (["host"], ["c"])),
        (None, "all", (["host"], ["a", "b", "c"])),
        (None, "all_other", (["host"], ["a", "b", "c"])),
        (["a"], "all_other", (["host", "a"], ["b", "c"])),
        (["a"], ["b"], (["host", "a"], ["b"])),
        ([], ["b"], (["host"], ["b"])),
    ],
)
def test_outputs_and_intermediate_outputs(output_from: Any, intermediate_from: Any, expected: Any) -> None:
    assert designated([A, B, C], output_from, intermediate_from, default=[C], always=[HOST]) == expected


@pytest.mark.parametrize(
    ("output_from", "intermediate_from", "text"),
    [
        ([], None, "both empty"),
        ([], [], "both empty"),
        ("some", None, "output_from is 'all', or a list"),
        ("all_other", None, "output_from is 'all', or a list"),
        (None, "some", "is 'all' or 'all_other', or a list"),
        (["d"], None, r"output_from names 'd', who is not among \['a', 'b', 'c'\]"),
        (["a", A], None, "output_from names 'a' more than once"),
        ([7], None, "A participant is an agent"),
        (["a"], ["a"], r"both name \['a'\]"),
        ("all", "all", r"both name \['a', 'b', 'c'\]"),
    ],
)
def test_what_is_refused(output_from: Any, intermediate_from: Any, text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        designated([A, B, C], output_from, intermediate_from, default=[C])
