"""Asking whether a conversation is over."""

from __future__ import annotations

from typing import Any

import pytest
from agent_framework import Message

from branchpoint.errors import DefinitionError, HandlerError
from branchpoint.orchestrations._termination import checked_condition, is_over


async def later(conversation: list[Message]) -> bool:
    return not conversation


def raises(conversation: list[Message]) -> bool:
    raise KeyError("x")


async def test_a_condition_answers_at_once_or_later_and_without_one_nothing_is_over() -> None:
    assert await is_over(None, [], "host") is False
    assert await is_over(lambda conversation: True, [], "host") is True
    assert await is_over(later, [], "host") is True


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (raises, "'raises', asked by executor 'host' about 0 messages, raised KeyError"),
        (lambda conversation: None, "answered None, which is neither True nor False"),
    ],
)
async def test_a_condition_that_fails_is_named(condition: Any, text: str) -> None:
    with pytest.raises(HandlerError, match=text):
        await is_over(condition, [], "host")


def test_a_condition_is_a_function() -> None:
    assert checked_condition(None) is None
    assert checked_condition(later) is later
    with pytest.raises(DefinitionError, match="got 7"):
        checked_condition(7)  # type: ignore[arg-type]
