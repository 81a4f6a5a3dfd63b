"""The graph of a led conversation: everybody speaks to the orchestrator, and it to everybody."""

from __future__ import annotations

from collections.abc import Sequence

from branchpoint.errors import DefinitionError
from branchpoint.graph import DEFAULT_MAX_ITERATIONS, Executor
from branchpoint.orchestrations._designation import IntermediateFrom, OutputFrom, designated
from branchpoint.orchestrations._group_chat_base import BaseGroupChatOrchestrator
from branchpoint.workflow import Workflow, WorkflowBuilder

__all__ = ["star"]


def star(
    name: str,
    orchestrator: BaseGroupChatOrchestrator,
    participants: Sequence[Executor],
    output_from: OutputFrom,
    intermediate_from: IntermediateFrom,
) -> Workflow:
    """Return the workflow of an orchestrator in the middle of its participants.

    Raises:
        DefinitionError: A participant has the orchestrator's id, or the outputs are wrong.
    """
    if any(participant.id == orchestrator.id for participant in participants):
        raise DefinitionError(
            f"The orchestrator and a participant both have the id {orchestrator.id!r}; give one of them another name."
        )
    outputs, intermediate = designated(participants, output_from, intermediate_from, always=[orchestrator])
    # A round is two supersteps, and a few more where a person is asked: the rounds are what ends it.
    builder = WorkflowBuilder(
        max_iterations=max(DEFAULT_MAX_ITERATIONS, 4 * (orchestrator.max_rounds or 0)),
        name=name,
        start_executor=orchestrator,
        output_from=outputs,
        intermediate_output_from=intermediate,
    )
    for participant in participants:
        builder.add_edge(orchestrator, participant).add_edge(participant, orchestrator)
    return builder.build()
