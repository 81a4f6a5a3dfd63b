"""Who takes part in a conversation that is led by an orchestrator, and what each of them takes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from branchpoint.agents import AgentExecutor
from branchpoint.errors import DefinitionError
from branchpoint.graph import Executor
from branchpoint.orchestrations._group_chat_messages import (
    GroupChatParticipantMessage,
    GroupChatRequestMessage,
)
from branchpoint.orchestrations._participants import Participant, as_participants

__all__ = ["ParticipantRegistry"]

_ASKED: Final = GroupChatRequestMessage()
_TOLD: Final = GroupChatParticipantMessage([])


class ParticipantRegistry:
    """The participants of a conversation, by name; it does not change.

    Args:
        participants: Agents, and executors that take `GroupChatRequestMessage`.

    Raises:
        DefinitionError: There are none, two have one name, or an executor cannot be asked to speak.
    """

    EMPTY_DESCRIPTION_PLACEHOLDER: Final = "<says nothing about itself; its name tells what it is for>"

    def __init__(self, participants: Sequence[Participant]) -> None:
        executors = as_participants(participants, AgentExecutor)
        self._agents = frozenset(one.id for one in executors if isinstance(one, AgentExecutor))
        mute = [one.id for one in executors if one.id not in self._agents and not one.can_handle(_ASKED)]
        if mute:
            raise DefinitionError(
                f"The executors {mute} cannot be asked to speak: a participant that is no agent needs a handler for "
                "GroupChatRequestMessage, and answers with a GroupChatResponseMessage."
            )
        self._listening = self._agents | {one.id for one in executors if one.can_handle(_TOLD)}
        self._executors = {one.id: one for one in executors}
        self._described = tuple((one.id, self._description(one)) for one in executors)

    def _description(self, executor: Executor) -> str:
        said = executor.description if isinstance(executor, AgentExecutor) else None
        return said or self.EMPTY_DESCRIPTION_PLACEHOLDER

    def is_agent(self, name: str) -> bool:
        """Say whether a participant is an agent."""
        return name in self._agents

    def hears(self, name: str) -> bool:
        """Say whether a participant takes what others say; an executor need not."""
        return name in self._listening

    def takes(self, name: str, message: object) -> bool:
        """Say whether a participant has a handler for a message."""
        return self._executors[name].can_handle(message)

    @property
    def participants(self) -> OrderedDict[str, str]:
        """Names and descriptions in order, the caller's own copy."""
        return OrderedDict(self._described)
