"""The builder of a fan: everybody works on the same input at once, and the answers are put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from branchpoint.errors import DefinitionError
from branchpoint.graph import Executor
from branchpoint.orchestrations._aggregating import Aggregate, Answers, aggregator_of
from branchpoint.orchestrations._designation import IntermediateFrom, OutputFrom, designated
from branchpoint.orchestrations._opening import InputToRequest
from branchpoint.orchestrations._participants import Participant, ParticipantReference, as_participants
from branchpoint.orchestrations._review import Reviewed
from branchpoint.workflow import Workflow, WorkflowBuilder

__all__ = ["ConcurrentBuilder"]


class ConcurrentBuilder:
    """Gives one input to agents and executors at once, and puts together what they answer.

    The output is one `AgentResponse` with the last message of each participant, in their order, unless
    `with_aggregator` says otherwise. An executor takes an `AgentExecutorRequest` and sends one
    `AgentExecutorResponse`.

    A message on a checkpoint whose run is over is given to all of them again. Each agent remembers what
    it heard and said before, since its session is in the checkpoint.

    Example:
        ```python
        def vote(answers: list[AgentExecutorResponse]) -> str:
            return ", ".join(answer.agent_response.text for answer in answers)


        workflow = ConcurrentBuilder(participants=[optimist, pessimist]).with_aggregator(vote).build()
        result = await workflow.run("Shall we?")
        ```
    """

    def __init__(
        self,
        *,
        participants: Sequence[Participant],
        name: str | None = None,
        output_from: OutputFrom = None,
        intermediate_output_from: IntermediateFrom = None,
    ) -> None:
        """Collect who takes part.

        Args:
            participants: Agents and executors, two or more.
            name: The workflow's name, "Concurrent" by default.
            output_from: Whose answers are outputs beside that of the aggregator, or "all"; nobody's by
                default.
            intermediate_output_from: Whose answers are intermediate outputs, "all", or "all_other" that are
                not in `output_from`. Those of others are not seen.
        """
        self._participants = participants
        self._name = name or "Concurrent"
        self._output_from: OutputFrom = output_from
        self._intermediate_from: IntermediateFrom = intermediate_output_from
        self._aggregator: Executor | None = None
        self._reviewed = Reviewed()

    def with_aggregator(self, aggregator: Executor | Aggregate) -> Self:
        """Put the answers together in another way.

        Args:
            aggregator: A function of `list[AgentExecutorResponse]`, plain or async, whose result is the
                output unless it is None; or of that and the context, which may yield it. A plain function
                runs in a thread and gets a `SyncWorkflowContext`. Or an executor that takes such a list.

        Raises:
            DefinitionError: It is neither, or there is one already.
        """
        if self._aggregator is not None:
            raise DefinitionError(f"This builder has the aggregator {self._aggregator.id!r} already.")
        self._aggregator = aggregator_of(aggregator)
        return self

    def with_request_info(self, *, agents: Sequence[ParticipantReference] | None = None) -> Self:
        """Ask a person about answers before they count: a request per answer, see `AgentRequestInfoResponse`.

        The aggregator waits until all are approved.

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
            TypeCompatibilityError: An executor does not take a request, or sends something else than an answer.
        """
        participants = as_participants(self._participants, self._reviewed.wrap)
        self._reviewed.check(self._participants, participants)
        if len(participants) < 2:
            raise DefinitionError(
                f"Participant {participants[0].id!r} is alone, so nothing would be concurrent; give another, or use "
                "SequentialBuilder."
            )
        aggregator = self._aggregator or Answers(id="aggregator")
        outputs, intermediate = designated(
            participants, self._output_from, self._intermediate_from, always=[aggregator]
        )
        dispatcher = InputToRequest(id="dispatcher")
        builder = WorkflowBuilder(
            name=self._name,
            start_executor=dispatcher,
            output_from=outputs,
            intermediate_output_from=intermediate,
        )
        builder.add_fan_out_edges(dispatcher, participants)
        return builder.add_fan_in_edges(participants, aggregator).build()
