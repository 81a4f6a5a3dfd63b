"""What agents send each other: a request, and a response with the conversation that led to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent_framework import AgentResponse, Content, Message

from branchpoint.codec import register_state_type

__all__ = ["AgentExecutorRequest", "AgentExecutorResponse", "as_messages"]


@register_state_type("branchpoint.agent_executor_request")
@dataclass
class AgentExecutorRequest:
    """Messages for an agent.

    Attributes:
        messages: What is said to it.
        should_respond: Whether it answers now; otherwise the messages wait until it is to answer.
    """

    messages: list[Message]
    should_respond: bool = True


@register_state_type("branchpoint.agent_executor_response")
@dataclass
class AgentExecutorResponse:
    """What an agent answered.

    Attributes:
        executor_id: Which executor ran it.
        agent_response: The answer.
        full_conversation: What was said before it and the answer: what another agent needs to go on.
    """

    executor_id: str
    agent_response: AgentResponse[Any]
    full_conversation: list[Message]

    def with_text(self, text: str) -> AgentExecutorResponse:
        """Return this response with another text in place of the agent's messages.

        An executor between two agents sends this on, so that the next one still gets the whole
        conversation; of a bare text it would know nothing else.
        """
        replaced = self.agent_response.messages
        author = replaced[-1].author_name if replaced else None
        message = Message("assistant", [text], author_name=author)
        said = len(replaced)
        before = self.full_conversation[: len(self.full_conversation) - said]
        return AgentExecutorResponse(self.executor_id, AgentResponse(messages=[message]), [*before, message])


def as_messages(given: str | Message | Sequence[str | Message]) -> list[Message]:
    """Return what was given as messages; a text is one of the user."""
    if isinstance(given, str):
        return [Message("user", [Content.from_text(given)])]
    if isinstance(given, Message):
        return [given]
    return [message for item in given for message in as_messages(item)]
