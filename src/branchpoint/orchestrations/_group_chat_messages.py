"""What an orchestrator and its participants send each other, and what it tells of that as events."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from agent_framework import Message

from branchpoint.codec import register_state_type

__all__ = [
    "GroupChatParticipantMessage",
    "GroupChatRequestMessage",
    "GroupChatRequestSentEvent",
    "GroupChatResponseMessage",
    "GroupChatResponseReceivedEvent",
    "GroupChatState",
    "MagenticResetSignal",
]


@register_state_type("branchpoint.group_chat_request")
@dataclass
class GroupChatRequestMessage:
    """Asks an executor to speak; an agent gets an `AgentExecutorRequest`.

    Attributes:
        additional_instruction: What it is to do now, where the orchestrator says that.
        metadata: What an orchestrator of one's own adds.
    """

    additional_instruction: str | None = None
    metadata: dict[str, Any] | None = None


@register_state_type("branchpoint.group_chat_participant_message")
@dataclass
class GroupChatParticipantMessage:
    """Tells an executor what was said since it was last told; nothing is to be answered.

    Attributes:
        messages: What was said.
    """

    messages: list[Message]


@register_state_type("branchpoint.group_chat_response")
@dataclass
class GroupChatResponseMessage:
    """What an executor says when it was asked to speak.

    Attributes:
        message: Its turn.
    """

    message: Message


@register_state_type("branchpoint.magentic_reset", immutable=True)
@dataclass(frozen=True)
class MagenticResetSignal:
    """Tells a participant to forget what was said: the task begins anew with another plan."""


@register_state_type("branchpoint.group_chat_request_sent", immutable=True)
@dataclass
class GroupChatRequestSentEvent:
    """The data of a `group_chat` event: somebody was asked to speak.

    Attributes:
        round_index: How many rounds of the present input had begun before.
        participant_name: Who was asked.
    """

    round_index: int
    participant_name: str


@register_state_type("branchpoint.group_chat_response_received", immutable=True)
@dataclass
class GroupChatResponseReceivedEvent:
    """The data of a `group_chat` event: somebody spoke.

    Attributes:
        round_index: How many rounds of the present input have begun.
        participant_name: Who spoke.
    """

    round_index: int
    participant_name: str


@dataclass(frozen=True)
class GroupChatState:
    """What a selection function chooses the next speaker from.

    Attributes:
        current_round: How many rounds of the present input are over; each input begins at 0.
        participants: Names and descriptions, in order.
        conversation: All that was said, earlier inputs and their rounds included.
    """

    current_round: int
    participants: OrderedDict[str, str]
    conversation: list[Message]
