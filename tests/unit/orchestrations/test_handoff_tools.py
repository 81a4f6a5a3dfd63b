"""What an answer says about handing over, and the copy of an agent that can."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agent_framework import Content, ContextProvider, Message

from branchpoint.orchestrations import HandoffConfiguration
from branchpoint.orchestrations._handoff_tools import Handoff, handoff_in, handoff_tool_name, with_handoffs
from branchpoint.testing.agents import scripted_agent

TOOLS = frozenset({"handoff_to_b", "handoff_to_c"})
OWN = frozenset({"handoff_to_crm", "look_up"})


def call(name: str, call_id: str = "c1") -> Content:
    return Content.from_function_call(call_id=call_id, name=name, arguments={})


def result(target: Any, call_id: str = "c1", **more: Any) -> Content:
    said = target if isinstance(target, str) and " " in target else json.dumps({"handoff_to": target})
    return Content.from_function_result(call_id=call_id, result=said, **more)


def answer(*contents: Content) -> list[Message]:
    calls = [one for one in contents if one.type != "function_result"]
    results = [one for one in contents if one.type == "function_result"]
    made = [Message("assistant", calls)]
    return [*made, Message("tool", results)] if results else made


def found(*contents: Content, **made: str) -> Handoff:
    return handoff_in(answer(*contents), made, TOOLS, OWN)


def test_a_call_that_was_made_hands_over_with_its_result() -> None:
    messages = answer(call("handoff_to_b"), result("b"))
    assert handoff_in(messages, {"c1": "b"}, TOOLS, OWN) == Handoff("b", messages[-1])
    assert handoff_in(messages[1:], {"c1": "b"}, TOOLS, OWN) == Handoff("b", messages[-1]), "an older call"
    assert handoff_in(messages, {}, TOOLS, OWN) == Handoff(), "a tool of somebody else says the same"


@pytest.mark.parametrize(
    "contents",
    [
        [Content.from_text("Hello.")],
        [call("handoff_to_b")],
        [call("handoff_to_b"), result("Not now, sorry.")],
        [call("handoff_to_b"), result("c")],
        [call("handoff_to_b"), result(["b"])],
        [call("handoff_to_b"), result("b", "c2")],
        [call("look_up"), result("Error: it failed.", exception="failed")],
        [call("handoff_to_crm"), result("Error: it failed.", exception="failed")],
    ],
    ids=range(8),
)
def test_what_hands_over_to_nobody(contents: list[Content]) -> None:
    assert found(*contents, c1="b") == Handoff()
    assert handoff_in([], {"c1": "b"}, TOOLS, OWN) == Handoff()


def test_a_result_counts_at_the_end_only() -> None:
    messages = [*answer(call("handoff_to_b"), result("b")), Message("assistant", ["I am still here."])]
    assert handoff_in(messages, {"c1": "b"}, TOOLS, OWN) == Handoff()


def test_the_first_of_several_counts() -> None:
    made = found(result("c", "c1"), result("b", "c2"), c2="b", c1="c")
    assert (made.target, made.ignored) == ("c", ("b",))


def test_a_tool_that_is_not_there_is_named_unless_another_handoff_was_made() -> None:
    missing = [call("handoff_to_d"), result("Error: not found.", exception="not found")]
    assert found(*missing) == Handoff(unknown=("handoff_to_d",))
    messages = [*answer(*missing), *answer(call("handoff_to_b", "c2"), result("b", "c2"))]
    made = handoff_in(messages, {"c2": "b"}, TOOLS, OWN)
    assert (made.target, made.unknown) == ("b", ())


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("billing", "handoff_to_billing"),
        ("the billing.agent", "handoff_to_the_billing_agent"),
        ("é", "handoff_to__"),
        ("x" * 80, "handoff_to_" + "x" * 53),
    ],
)
def test_names_of_tools_are_what_services_accept(target: str, name: str) -> None:
    assert handoff_tool_name(target) == name


@pytest.mark.parametrize("providers", [[], [ContextProvider("p")]])
def test_the_copy_has_tools_and_the_agent_is_as_it_was(providers: list[ContextProvider]) -> None:
    agent = scripted_agent([], name="a", context_providers=providers)
    before = dict(agent.default_options), agent.middleware, list(agent.context_providers)
    copied = with_handoffs(agent, [HandoffConfiguration(target="b"), HandoffConfiguration(target="c")])
    assert [tool.name for tool in copied.default_options["tools"]] == ["handoff_to_b", "handoff_to_c"]
    assert len(copied.middleware or ()) == (0 if providers else 1)
    assert len(copied.context_providers) == (2 if providers else 0)
    copied.context_providers.append(ContextProvider("late"))
    assert (dict(agent.default_options), agent.middleware, list(agent.context_providers)) == before


def test_handoffs_to_one_agent_are_equal() -> None:
    one = HandoffConfiguration(target="b", description="To b.")
    assert (
        one == HandoffConfiguration(target=scripted_agent([], name="b")) != HandoffConfiguration(target="c")
    )
    assert len({one, HandoffConfiguration(target="b")}) == 1
    assert repr(one) == "HandoffConfiguration(target='b', description='To b.')"
