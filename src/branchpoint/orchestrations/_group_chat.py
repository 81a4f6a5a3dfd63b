"""The builder of a group chat: participants speak in turns, as an orchestrator says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Self

from agent_framework import SupportsAgentRun

from branchpoint.errors import DefinitionError
from branchpoint.orchestrations._designation import IntermediateFrom, OutputFrom
from branchpoint.orchestrations._group_chat_agent import AgentBasedGroupChatOrchestrator
from branchpoint.orchestrations._group_chat_base import BaseGroupChatOrchestrator
from branchpoint.orchestrations._group_chat_function import GroupChatOrchestrator, GroupChatSelectionFunction
from branchpoint.orchestrations._participants import Participant, ParticipantReference, as_participants
from branchpoint.orchestrations._registry import ParticipantRegistry
from branchpoint.orchestrations._review import Reviewed
from branchpoint.orchestrations._star import star
from branchpoint.orchestrations._termination import TerminationCondition
from branchpoint.workflow import Workflow

__all__ = ["GroupChatBuilder"]


class GroupChatBuilder:
    """Makes a conversation of several: an orchestrator asks one participant at a time to speak.

    Each participant is told what all others say. The output is the orchestrator's last message; the
    turns are in its `conversation`, and are outputs themselves where `output_from` says so.

    A message on a checkpoint whose conversation is over continues it: everybody knows what was said, the
    rounds are counted anew, and the termination condition looks at what is said from then on.

    Example:
        ```python
        def in_turn(state: GroupChatState) -> str:
            names = list(state.participants)
            return names[state.current_round % len(names)]


        workflow = GroupChatBuilder(
            participants=[writer, reviewer], selection_func=in_turn, max_rounds=4
        ).build()
        ```
    """

    DEFAULT_ORCHESTRATOR_ID: ClassVar[str] = "group_chat_orchestrator"

    def __init__(
        self,
        *,
        name: str | None = None,
        participants: Sequence[Participant] | None = None,
        participant_factories: Sequence[Callable[[], Participant]] | None = None,
        orchestrator_agent: SupportsAgentRun | Callable[[], SupportsAgentRun] | None = None,
        orchestrator: BaseGroupChatOrchestrator | Callable[[], BaseGroupChatOrchestrator] | None = None,
        selection_func: GroupChatSelectionFunction | None = None,
        orchestrator_name: str | None = None,
        termination_condition: TerminationCondition | None = None,
        max_rounds: int | None = None,
        output_from: OutputFrom = None,
        intermediate_output_from: IntermediateFrom = None,
    ) -> None:
        """Collect what the conversation is made of.

        Args:
            name: The workflow's name, "GroupChat" by default.
            participants: Agents, and executors that take `GroupChatRequestMessage`.
            participant_factories: Functions that make them, called by `build`; instead of `participants`.
            orchestrator_agent: An agent that chooses who speaks next, or a function that makes one.
            orchestrator: An orchestrator of your own, or a function that makes one; what is said here of
                rounds and termination is said to it instead.
            selection_func: A function that chooses who speaks next.
            orchestrator_name: Under which name a conversation that is led by a function ends.
            termination_condition: Says of what was said since the last input whether the conversation is over.
            max_rounds: How many turns an input gets. By default no number ends the conversation; a run of 100
                supersteps, 50 turns, is then a `ConvergenceError`.
            output_from: Whose turns are outputs, too, or "all".
            intermediate_output_from: Whose turns are intermediate outputs, "all", or "all_other" that are
                not in `output_from`. Those of others are not seen.

        Raises:
            DefinitionError: Not exactly one of the three orchestrators is given, or both or neither of the
                two ways to give participants.
        """
        if (participants is None) == (participant_factories is None):
            raise DefinitionError("Give a group chat either participants or participant_factories.")
        leads = (orchestrator_agent, orchestrator, selection_func)
        if sum(lead is not None for lead in leads) != 1:
            raise DefinitionError(
                "Give a group chat exactly one of orchestrator_agent, orchestrator and selection_func."
            )
        self._name = name or "GroupChat"
        self._participants = participants
        self._factories = participant_factories or ()
        self._agent = orchestrator_agent
        self._orchestrator = orchestrator
        self._select = selection_func
        self._orchestrator_name = orchestrator_name
        self._condition = termination_condition
        self._max_rounds = max_rounds
        self._output_from: OutputFrom = output_from
        self._intermediate_from: IntermediateFrom = intermediate_output_from
        self._reviewed = Reviewed()

    def with_termination_condition(self, termination_condition: TerminationCondition) -> Self:
        """Set the condition under which the conversation is over."""
        self._condition = termination_condition
        return self

    def with_max_rounds(self, max_rounds: int | None) -> Self:
        """Set how many turns an input gets."""
        self._max_rounds = max_rounds
        return self

    def with_request_info(self, *, agents: Sequence[ParticipantReference] | None = None) -> Self:
        """Ask a person about each turn before it counts; see `AgentRequestInfoResponse`.

        Args:
            agents: Whose turns, by agent or name; those of all agents by default.

        Raises:
            DefinitionError: It is no list, or an empty one.
        """
        self._reviewed.include(agents)
        return self

    def build(self) -> Workflow:
        """Check everything and make the workflow.

        Raises:
            DefinitionError: Participants, outputs, limits or the orchestrator are wrong.
        """
        given = [make() for make in self._factories] if self._participants is None else self._participants
        participants = as_participants(given, self._reviewed.wrap)
        self._reviewed.check(given, participants)
        orchestrator = self._lead(ParticipantRegistry(participants))
        return star(self._name, orchestrator, participants, self._output_from, self._intermediate_from)

    def _lead(self, registry: ParticipantRegistry) -> BaseGroupChatOrchestrator:
        if self._select is not None:
            return GroupChatOrchestrator(
                self.DEFAULT_ORCHESTRATOR_ID,
                registry,
                self._select,
                name=self._orchestrator_name,
                max_rounds=self._max_rounds,
                termination_condition=self._condition,
            )
        lead: object = self._agent if self._orchestrator is None else self._orchestrator
        if not isinstance(lead, BaseGroupChatOrchestrator) and not hasattr(lead, "run") and callable(lead):
            lead = lead()
        if isinstance(lead, BaseGroupChatOrchestrator):
            if self._max_rounds is not None or self._condition is not None:
                raise DefinitionError(
                    f"The orchestrator {lead.id!r} has rounds and a condition of its own: give max_rounds and "
                    "termination_condition to it and not to the builder."
                )
            if list(lead.registry.participants) != list(registry.participants):
                raise DefinitionError(
                    f"The orchestrator {lead.id!r} leads {list(lead.registry.participants)}, and the participants are "
                    f"{list(registry.participants)}."
                )
            return lead
        if self._orchestrator is not None or not isinstance(lead, SupportsAgentRun):
            raise DefinitionError(
                f"A group chat is led by an agent, a BaseGroupChatOrchestrator or a selection function, got {lead!r}."
            )
        return AgentBasedGroupChatOrchestrator(
            lead, registry, max_rounds=self._max_rounds, termination_condition=self._condition
        )
