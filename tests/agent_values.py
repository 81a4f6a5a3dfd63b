"""Made-up values of Agent Framework, and when two of them are the same."""

from __future__ import annotations

import typing
from typing import Any

from agent_framework import AgentResponse, AgentResponseUpdate, AgentSession, Content, Message
from agent_framework._types import _MERGEABLE_CONTENT_TYPES, ContentType
from hypothesis import strategies as st

from branchpoint.testing import strategies

__all__ = ["CLASSES", "alike", "contents", "messages", "responses", "sessions", "updates", "values"]

CLASSES = (Content, Message, AgentResponse, AgentResponseUpdate, AgentSession)
KINDS = typing.get_args(ContentType)
_RAW = "raw_representation"

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_MAYBE_TEXT = st.none() | _TEXT
_TEXTS = (
    "protected_data", "uri", "media_type", "message", "error_code", "error_details", "call_id", "name",
    "exception", "file_id", "vector_store_id", "image_id", "status", "stdout", "stderr", "tool_name",
    "server_name", "id", "consent_link",
)  # fmt: skip
_FLAGS = ("timed_out", "user_input_request", "approved")
_COUNTS = ("timeout_ms", "max_output_length", "exit_code")
_CHECKS = st.lists(st.fixed_dictionaries({"id": _TEXT}, optional={"code": _TEXT}), max_size=2)


def _properties() -> st.SearchStrategy[dict[str, Any]]:
    keys = _TEXT.filter(lambda key: key != "server_label")
    return st.dictionaries(keys, strategies.values(3), max_size=2)


def _fields(inner: st.SearchStrategy[Content] | None) -> dict[str, st.SearchStrategy[Any]]:
    found: dict[str, st.SearchStrategy[Any]] = dict.fromkeys(_TEXTS, _TEXT)
    found |= dict.fromkeys(_FLAGS, st.booleans())
    found |= dict.fromkeys(_COUNTS, st.integers(-5, 2**40))
    found |= {
        "arguments": _TEXT | st.dictionaries(_TEXT, strategies.values(3), max_size=3),
        "informational_only": st.booleans(),
        "result": strategies.values(4),
        "output": strategies.values(4),
        "commands": st.lists(_TEXT, max_size=2),
        "actions": st.lists(st.dictionaries(_TEXT, strategies.plain_values(3), max_size=2), max_size=2),
        "pending_safety_checks": _CHECKS,
        "acknowledged_safety_checks": _CHECKS,
        "usage_details": st.dictionaries(_TEXT, st.integers(0, 2**40), max_size=2),
        "annotations": st.lists(st.dictionaries(_TEXT, strategies.plain_values(3), max_size=2), max_size=2),
        "additional_properties": _properties(),
        _RAW: st.just(object()),
    }
    if inner is not None:
        several = st.lists(inner, max_size=2)
        found |= {"items": several, "inputs": several, "outputs": several | strategies.values(3)}
        found |= {"screenshot": inner, "function_call": inner}
    return found


@st.composite
def contents(draw: st.DrawFn, depth: int = 1) -> Content:
    """A content of any kind, with any of its fields."""
    kind = draw(st.sampled_from(KINDS))
    fields = _fields(contents(depth - 1) if depth else None)
    chosen = draw(st.lists(st.sampled_from(sorted(fields)), max_size=5, unique=True))
    given = {name: draw(fields[name]) for name in chosen}
    if kind == "function_call":
        given["hosted"] = draw(st.booleans())
    if kind in _MERGEABLE_CONTENT_TYPES:
        given["merge_mode"] = draw(st.sampled_from([None, "append", "replace"]))
    if kind in ("text", "text_reasoning"):
        given["text"] = draw(_TEXT)
    return Content(kind, **given)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """A message of any role."""
    return Message(
        draw(st.sampled_from(["user", "assistant", "system", "tool"]) | _TEXT),
        draw(st.lists(contents(), max_size=3)),
        author_name=draw(_MAYBE_TEXT),
        message_id=draw(_MAYBE_TEXT),
        additional_properties=draw(_properties()),
        raw_representation=draw(st.none() | st.just(object())),
    )


@st.composite
def responses(draw: st.DrawFn) -> AgentResponse[Any]:
    """A response, with or without a value and its format."""
    return AgentResponse(
        messages=draw(st.lists(messages(), max_size=2)),
        response_id=draw(_MAYBE_TEXT),
        agent_id=draw(_MAYBE_TEXT),
        created_at=draw(_MAYBE_TEXT),
        finish_reason=draw(st.none() | st.just("stop")),
        usage_details=draw(st.none() | st.just({"input_token_count": 3})),
        value=draw(strategies.values(3)),
        response_format=draw(st.none() | st.just({"type": "object"}) | st.just(strategies.Order)),
        continuation_token=draw(st.none() | st.just({"token": "t"})),
        raw_representation=draw(st.none() | st.just(object())),
        additional_properties=draw(_properties()),
    )


@st.composite
def updates(draw: st.DrawFn) -> AgentResponseUpdate:
    """An update of a stream."""
    return AgentResponseUpdate(
        contents=draw(st.lists(contents(), max_size=2)),
        role=draw(st.none() | st.just("assistant")),
        author_name=draw(_MAYBE_TEXT),
        message_id=draw(_MAYBE_TEXT),
        merge_mode=draw(st.sampled_from([None, "append", "replace"])),
        additional_properties=draw(st.none() | _properties()),
        raw_representation=draw(st.none() | st.just(object())),
    )


@st.composite
def sessions(draw: st.DrawFn) -> AgentSession:
    """A session, with messages and anything else in its state."""
    session = AgentSession(
        session_id=draw(_TEXT.filter(bool)),
        service_session_id=draw(_MAYBE_TEXT | st.just({"thread": "t1"})),
    )
    session.state = draw(st.dictionaries(_TEXT, strategies.values(4) | contents() | responses(), max_size=2))
    session.state["in_memory"] = {"messages": draw(st.lists(messages(), max_size=3))}
    return session


def values() -> st.SearchStrategy[Any]:
    """Any of them."""
    return st.one_of(contents(2), messages(), responses(), updates(), sessions())


def alike(left: Any, right: Any) -> bool:
    """Whether two values are the same but for what the rules leave out."""
    if type(left) is not type(right):
        return False
    if isinstance(left, CLASSES):
        one, other = (
            {name: item for name, item in vars(value).items() if name != _RAW} for value in (left, right)
        )
        return one.keys() == other.keys() and all(
            left.type == right.type if name == "type" else alike(one[name], other[name]) for name in one
        )
    if type(left) is dict:
        return len(left) == len(right) and all(
            alike(a, c) and alike(b, d) for (a, b), (c, d) in zip(left.items(), right.items(), strict=True)
        )
    if type(left) in (list, tuple):
        return len(left) == len(right) and all(map(alike, left, right))
    return left is right or strategies.same(left, right)
