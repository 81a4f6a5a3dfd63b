"""A computer call among local calls: their results wait with it, and are told in one order. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Any, Final

import agent_framework
from agent_framework import AgentSession, Content, InMemoryHistoryProvider, Message

from branchpoint.errors import HandlerError

__all__ = ["DEFER_RESULTS", "Slot", "forget_results", "slots"]

DEFER_RESULTS: Final[str] = getattr(
    getattr(agent_framework, "_sessions", None),
    "_WORKFLOW_DEFER_COMPUTER_FUNCTION_RESULTS_KEY",
    "workflow.defer_computer_function_results",
)
"""The mark in a session's state by which its history leaves out results that are told again later."""

Slot = tuple[Content, Content | None]
"""What was asked, or a local call, with its result."""


def slots(messages: Sequence[Message]) -> list[Slot]:
    """Return what a response asks, in order; after a computer call also the local calls that have a result."""
    asked: list[Slot] = [
        (content, None) for message in messages for content in message.contents if content.user_input_request
    ]
    start = _first_computer_call(messages)
    if start is None:
        return asked
    contents = [content for message in messages[start:] for content in message.contents]
    results = _results(contents)
    found: list[Slot] = []
    for content in contents:
        if content.user_input_request:
            found.append((content, None))
        elif id(content) in results:
            found.append((content, results[id(content)]))
    if sum(result is None for _, result in found) != len(asked):
        raise HandlerError("An agent asked something before the computer call of the same turn.")
    return found


def _first_computer_call(messages: Sequence[Message]) -> int | None:
    for place, message in enumerate(messages):
        if any(one.type == "computer_tool_call" and one.user_input_request for one in message.contents):
            return place
    return None


def _results(contents: Sequence[Content]) -> dict[int, Content]:
    """Return the result of each local call, by the identity of the call; one call id may come twice."""
    waiting: dict[str, deque[Content]] = {}
    for content in contents:
        if content.type == "function_result" and content.call_id:
            waiting.setdefault(content.call_id, deque()).append(content)
    found: dict[int, Content] = {}
    for content in contents:
        if content.type == "function_call" and not content.informational_only and content.call_id:
            results = waiting.get(content.call_id)
            if results:
                found[id(content)] = results.popleft()
    return found


def forget_results(
    session: AgentSession, providers: Any, answers: Sequence[Content], computer_calls: Collection[str | None]
) -> None:
    """Take out of a session's own history the results that are about to be told again."""
    results = {(one.id, one.call_id) for one in answers if one.type == "function_result"}
    history = session.state.get(_source_id(providers))
    messages = history.get("messages") if isinstance(history, dict) else None
    if not results or not computer_calls or not isinstance(messages, list):
        return
    for start in range(len(messages) - 1, -1, -1):
        if any(
            one.type == "computer_tool_call" and one.id in computer_calls for one in messages[start].contents
        ):
            break
    else:
        return
    for message in messages[start:]:
        message.contents[:] = [
            one
            for one in message.contents
            if one.type != "function_result" or (one.id, one.call_id) not in results
        ]
    messages[start:] = [message for message in messages[start:] if message.contents]


def _source_id(providers: Any) -> str:
    for provider in providers if isinstance(providers, Sequence) else ():
        if isinstance(provider, InMemoryHistoryProvider) and provider.load_messages:
            return provider.source_id
    return InMemoryHistoryProvider.DEFAULT_SOURCE_ID
