"""What handoffs are told and asked with: who may hand over to whom, that it happened, what the user is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent_framework import AgentResponse, Message, SupportsAgentRun

from branchpoint.agents import as_messages
from branchpoint.codec import register_state_type
from branchpoint.orchestrations._participants import participant_id

__all__ = ["HandoffAgentUserRequest", "HandoffConfiguration", "HandoffSentEvent"]


class HandoffConfiguration:
    """One handoff that an agent may make. Two to the same agent are equal.

    Attributes:
        target_id: Whom it hands over to.
        description: What the model is told about it.
    """

    __slots__ = ("description", "target_id")

    def __init__(self, *, target: str | SupportsAgentRun, description: str | None = None) -> None:
        self.target_id = participant_id(target)
        self.description = description

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HandoffConfiguration) and other.target_id == self.target_id

    def __hash__(self) -> int:
        return hash(self.target_id)

    def __repr__(self) -> str:
        return f"HandoffConfiguration(target={self.target_id!r}, description={self.description!r})"


@register_state_type("branchpoint.handoff_sent_event")
@dataclass
class HandoffSentEvent:
    """The data of a `handoff_sent` event.

    Attributes:
        source: The agent that hands over.
        target: The agent whose turn it is.
    """

    source: str
    target: str


@register_state_type("branchpoint.handoff_agent_user_request")
@dataclass
class HandoffAgentUserRequest:
    """Asks the user to go on, after an answer that hands over to nobody; answered with a list of messages.

    Attributes:
        agent_response: What the agent said.

    Example:
        ```python
        (request,) = checkpoint.pending_requests
        answer = HandoffAgentUserRequest.create_response("My order is number 7.")
        await workflow.run(responses={request.request_id: answer}, checkpoint=checkpoint)
        ```
    """

    agent_response: AgentResponse[Any]

    @staticmethod
    def create_response(response: str | Message | list[str] | list[Message]) -> list[Message]:
        """Return an answer: what the user says next."""
        return as_messages(response)

    @staticmethod
    def terminate() -> list[Message]:
        """Return the answer that ends the conversation."""
        return []
