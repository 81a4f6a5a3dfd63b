"""What of a conversation other agents may be told: what people and agents said, not how tools were used. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agent_framework import Message

__all__ = ["clean_conversation_for_handoff", "create_completion_message"]

_SAID: Final = frozenset({"text"})
_GIVEN: Final = frozenset({"text", "data", "uri", "hosted_file", "hosted_vector_store"})


def clean_conversation_for_handoff(conversation: Sequence[Message]) -> list[Message]:
    """Return a conversation as another agent may be given it.

    A service refuses calls without results, and results of calls it does not know; so of an agent only
    the text stays, and of a user also pictures, files and links. A message of which nothing stays is
    left out. The messages given are not changed.
    """
    cleaned: list[Message] = []
    for message in conversation:
        kinds = _GIVEN if str(message.role).lower() == "user" else _SAID
        contents = [one for one in message.contents if one.type in kinds and (one.type != "text" or one.text)]
        if contents:
            cleaned.append(
                Message(
                    message.role,
                    contents,
                    author_name=message.author_name,
                    additional_properties=dict(message.additional_properties or {}),
                )
            )
    return cleaned


def create_completion_message(
    *, text: str | None = None, author_name: str, reason: str = "completed"
) -> Message:
    """Return the message with which an orchestrator ends a conversation.

    Args:
        text: What it says; otherwise it tells the reason.
        author_name: Who says it.
        reason: Why it ended.
    """
    return Message("assistant", [text or f"Conversation {reason}."], author_name=author_name)
