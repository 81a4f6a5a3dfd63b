"""What a workflow takes of messages: a list of them, one message, or a text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from agent_framework import Message

from branchpoint.errors import DefinitionError, InvalidInputError
from branchpoint.graph import matches

__all__ = ["Form", "find_form"]

Form: TypeAlias = Callable[[list[Message]], Any]
"""Makes an input of messages."""


def find_form(input_types: Sequence[Any], where: str) -> Form:
    """Return what makes an input of messages: a list where that is taken, or one message, or its text.

    Raises:
        DefinitionError: None of these is taken.
    """
    message = Message("user", ["hi"])
    for example, form in (([message], _all_of_them), (message, _only), ("hi", _text)):
        if any(matches(example, tp) for tp in input_types):
            return form
    raise DefinitionError(
        f"{where} cannot be an agent: its start takes no messages. Have it start with an executor that takes "
        "list[Message], a Message or a str."
    )


def _all_of_them(messages: list[Message]) -> Any:
    return messages


def _only(messages: list[Message]) -> Message:
    if len(messages) != 1:
        raise InvalidInputError(
            f"The workflow starts with one message, and got {len(messages)}: those given, and what context providers "
            "add. Give one, or have it start with an executor that takes list[Message]."
        )
    return messages[0]


def _text(messages: list[Message]) -> str:
    message = _only(messages)
    others = sorted({content.type for content in message.contents if content.type != "text"})
    if others:
        raise InvalidInputError(
            f"The workflow starts with a text, and got {', '.join(others)} with it. Have it start with an executor "
            "that takes a Message or list[Message]."
        )
    return message.text
