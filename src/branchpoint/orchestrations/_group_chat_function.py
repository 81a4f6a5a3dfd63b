"""A conversation in which a function chooses who speaks next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from branchpoint.errors import DefinitionError
from branchpoint.orchestrations._asking import ask, called
from branchpoint.orchestrations._group_chat_base import BaseGroupChatOrchestrator, ChatContext
from branchpoint.orchestrations._group_chat_messages import GroupChatState
from branchpoint.orchestrations._registry import ParticipantRegistry
from branchpoint.orchestrations._termination import TerminationCondition
from branchpoint.orchestrations._turns import checked_speaker

__all__ = ["GroupChatOrchestrator", "GroupChatSelectionFunction"]

GroupChatSelectionFunction: TypeAlias = Callable[[GroupChatState], Awaitable[str] | str]
"""A function of a conversation, plain or async: the name of who speaks next."""


class GroupChatOrchestrator(BaseGroupChatOrchestrator):
    """Leads a conversation in which a function chooses who speaks next.

    The function is a part of the definition and keeps nothing: a superstep that is executed again asks
    it again.
    """

    def __init__(
        self,
        id: str,
        participant_registry: ParticipantRegistry,
        selection_func: GroupChatSelectionFunction,
        *,
        name: str | None = None,
        max_rounds: int | None = None,
        termination_condition: TerminationCondition | None = None,
    ) -> None:
        """Make the definition of an orchestrator.

        Args:
            id: The executor's id.
            participant_registry: Who takes part.
            selection_func: Chooses who speaks next.
            name: Under which name it says that the conversation is over; the id by default.
            max_rounds: How many turns an input gets; see `BaseGroupChatOrchestrator`.
            termination_condition: Says whether the conversation is over.

        Raises:
            DefinitionError: An argument is of the wrong form.
        """
        super().__init__(
            id,
            participant_registry,
            name=name,
            max_rounds=max_rounds,
            termination_condition=termination_condition,
        )
        if not callable(selection_func):
            raise DefinitionError(
                f"selection_func is a function of a GroupChatState that returns a name, got {selection_func!r}."
            )
        self._select = selection_func

    async def _choose(self, ctx: ChatContext) -> str:
        state = GroupChatState(self.round_index, self._registry.participants, self._get_conversation())
        who = f"The selection function {called(self._select)!r}"
        when = f"executor {self.id!r} in round {self.round_index}"
        chosen = await ask(self._select, state, who, when, "function")
        return checked_speaker(chosen, state.participants, who)
