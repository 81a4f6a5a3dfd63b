"""The builder of a row: each participant goes on from what those before it said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

from agent_framework import AgentResponse, Message, SupportsAgentRun

from branchpoint.agents import AgentExecutorResponse, ContextMode
from branchpoint.graph import Executor
from branchpoint.orchestrations._designation import IntermediateFrom, OutputFrom, designated
from branchpoint.orchestrations._opening import InputToConversation, ResponseToConversation
from branchpoint.orchestrations._participants import Participant, ParticipantReference, as_participants
from branchpoint.orchestrations._review import Reviewed
from branchpoint.workflow import Workflow, WorkflowBuilder

__all__ = ["SequentialBuilder"]

_ANSWER: Final = AgentExecutorResponse("", AgentResponse(), [])
_MESSAGES: Final = [Message("user", [""])]


class SequentialBuilder:
    """Puts agents and executors in a row: input, first, second, and so on; the last one's answer is the output.

    An agent gets the conversation so far and adds its answer. An executor takes `list[Message]`, or an
    `AgentExecutorResponse`, and sends one of both on; as the last one, it yields the output.

    A message on a checkpoint whose run is over goes through the row again. Each agent remembers what it
    heard and said before, since its session is in the checkpoint.

    Example:
        ```python
        workflow = SequentialBuilder(participants=[writer, reviewer]).build()
        result = await workflow.run("Write about rain.")
        ```
    """

    def __init__(
        self,
        *,
        participants: Sequence[Participant],
        name: str | None = None,
        chain_only_agent_responses: bool = False,
        output_from: OutputFrom = None,
        intermediate_output_from: IntermediateFrom = None,
        ensure_trailing_user_turn: bool = False,
    ) -> None:
        """Collect what the row is made of.

        Args:
            participants: Agents and executors, in order.
            name: The workflow's name, "Sequential" by default.
            chain_only_agent_responses: Whether an agent is given the answer before it alone, and not the
                conversation that led to it.
            output_from: Whose answers are outputs, or "all"; the last one's by default.
            intermediate_output_from: Whose answers are intermediate outputs, "all", or "all_other" that are
                not in `output_from`. Those of others are not seen.
            ensure_trailing_user_turn: Whether an agent is told to go on where its conversation ends with an
                assistant, after which some services say nothing.
        """
        self._participants = participants
        self._name = name or "Sequential"
        self._only_answers = chain_only_agent_responses
        self._output_from: OutputFrom = output_from
        self._intermediate_from: IntermediateFrom = intermediate_output_from
        self._ensure_user = ensure_trailing_user_turn
        self._reviewed = Reviewed()

    def with_request_info(self, *, agents: Sequence[ParticipantReference] | None = None) -> Self:
        """Ask a person about answers before they go on: a request per answer, see `AgentRequestInfoResponse`.

        Args:
            agents: Whose answers, by agent or name; those of all agents by default. Executors ask
                themselves if they want to, also an `AgentExecutor` of yours.

        Raises:
            DefinitionError: It is no list, or an empty one.
        """
        self._reviewed.include(agents)
        return self

    def build(self) -> Workflow:
        """Check everything and make the workflow.

        Raises:
            DefinitionError: Participants or outputs are wrong, or somebody is named who does not take part.
            TypeCompatibilityError: An executor does not take what the one before it sends.
        """
        mode: ContextMode = "last_agent" if self._only_answers else "full"

        def wrap(agent: SupportsAgentRun) -> Executor:
            return self._reviewed.wrap(agent, context_mode=mode, ensure_trailing_user_turn=self._ensure_user)

        participants = as_participants(self._participants, wrap)
        self._reviewed.check(self._participants, participants)
        outputs, intermediate = designated(
            participants, self._output_from, self._intermediate_from, default=participants[-1:]
        )
        before: Executor = InputToConversation(id="input-conversation")
        builder = WorkflowBuilder(
            name=self._name,
            start_executor=before,
            output_from=outputs,
            intermediate_output_from=intermediate,
        )
        for executor in participants:
            if _takes_messages_alone(executor) and AgentExecutorResponse in before.output_types:
                bridge = ResponseToConversation(
                    f"to-conversation:{executor.id}", only_answer=self._only_answers
                )
                builder.add_edge(before, bridge)
                before = bridge
            builder.add_edge(before, executor)
            before = executor
        return builder.build()


def _takes_messages_alone(executor: Executor) -> bool:
    return executor.can_handle(_MESSAGES) and not executor.can_handle(_ANSWER)
