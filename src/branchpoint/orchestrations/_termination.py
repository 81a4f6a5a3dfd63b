"""Conditions under which a conversation is over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from agent_framework import Message

from branchpoint.codec import copy_value
from branchpoint.errors import DefinitionError, HandlerError
from branchpoint.orchestrations._asking import ask, called

__all__ = ["TerminationCondition", "checked_condition", "is_over"]

TerminationCondition: TypeAlias = Callable[[list[Message]], bool | Awaitable[bool]]
"""A function of a conversation, plain or async: whether it is over."""


def checked_condition(condition: TerminationCondition | None) -> TerminationCondition | None:
    """Return a condition that a builder was given.

    Raises:
        DefinitionError: It is no function.
    """
    if condition is not None and not callable(condition):
        raise DefinitionError(
            f"A termination condition is a function of the conversation, got {condition!r}."
        )
    return condition


async def is_over(
    condition: TerminationCondition | None, conversation: list[Message], executor_id: str
) -> bool:
    """Ask a condition.

    Args:
        condition: The condition; without one, nothing is ever over.
        conversation: What was said; the condition gets a copy.
        executor_id: Who asks, for errors.

    Raises:
        HandlerError: The condition raised, or answered something else than true or false.
    """
    if condition is None:
        return False
    who, asker = f"The termination condition {called(condition)!r}", f"executor {executor_id!r}"
    about = f"{asker} about {len(conversation)} messages"
    answer = await ask(condition, copy_value(conversation), who, about, "condition")
    if not isinstance(answer, bool):
        raise HandlerError(f"{who}, asked by {asker}, answered {answer!r}, which is neither True nor False.")
    return answer
