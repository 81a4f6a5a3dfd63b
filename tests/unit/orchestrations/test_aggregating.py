"""Which function becomes which aggregator, and what an agent said last."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from agent_framework import AgentResponse, Message

from branchpoint.agents import AgentExecutorResponse
from branchpoint.orchestrations._aggregating import (
    AsyncAggregate,
    SyncAggregate,
    aggregator_of,
    last_answer,
)


def plain(answers: Any, separator: str = " ") -> str:
    return ""


async def later(answers: Any, ctx: Any) -> None: ...


class Object:
    async def __call__(self, answers: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "kind", "wants_context", "name"),
    [
        (plain, SyncAggregate, False, "plain"),
        (later, AsyncAggregate, True, "later"),
        (functools.partial(later, ctx=None), AsyncAggregate, False, "later"),
        (lambda answers, ctx: None, SyncAggregate, True, "aggregator"),
        (Object(), AsyncAggregate, False, "Object"),
        (len, SyncAggregate, False, "len"),
        (dict.fromkeys, SyncAggregate, False, "fromkeys"),
    ],
    ids=lambda value: getattr(value, "__name__", "") or "",
)
def test_kinds_of_functions(function: Any, kind: type, wants_context: bool, name: str) -> None:
    made: Any = aggregator_of(function)
    assert type(made) is kind
    assert (made._wants_context, made.id) == (wants_context, name)


def test_the_last_thing_an_agent_said() -> None:
    def heard(said: list[Message], conversation: list[Message]) -> str | None:
        found = last_answer(AgentExecutorResponse("a", AgentResponse(messages=said), conversation))
        return found and found.text

    one, other, user = Message("assistant", ["1"]), Message("assistant", ["2"]), Message("user", ["?"])
    assert heard([one, other, Message("tool", ["x"])], []) == "2"
    assert heard([], [one, user]) == "1"
    assert heard([user], [user]) is None
