"""Who takes part in an orchestration: agents and executors, told apart by id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from agent_framework import SupportsAgentRun

from branchpoint.errors import DefinitionError
from branchpoint.graph import Executor

__all__ = ["Participant", "ParticipantReference", "as_participants", "named", "participant_id"]

Participant: TypeAlias = SupportsAgentRun | Executor
ParticipantReference: TypeAlias = str | SupportsAgentRun | Executor
"""A participant, or its id: an executor's id, an agent's name or id."""


def as_participants(
    participants: Sequence[Participant], wrap: Callable[[SupportsAgentRun], Executor]
) -> list[Executor]:
    """Return the executors of participants, in their order.

    Args:
        participants: Agents and executors.
        wrap: Makes the executor of an agent.

    Raises:
        DefinitionError: There are none, one is neither agent nor executor, or two have one id.
    """
    executors: dict[str, Executor] = {}
    for participant in _several(participants):
        executor = participant if isinstance(participant, Executor) else wrap(participant)
        if executor.id in executors:
            raise DefinitionError(
                f"Two participants have the id {executor.id!r}. Give one of the agents another name, or wrap it: "
                "AgentExecutor(agent, id=...)."
            )
        executors[executor.id] = executor
    if not executors:
        raise DefinitionError("An orchestration needs participants, and the list is empty.")
    return list(executors.values())


def participant_id(reference: ParticipantReference) -> str:
    """Return the id that a reference means.

    Raises:
        DefinitionError: It is no participant, and no id of one.
    """
    if isinstance(reference, str):
        return reference
    if isinstance(reference, Executor):
        return reference.id
    if callable(getattr(reference, "run", None)):
        name = getattr(reference, "name", None) or getattr(reference, "id", None)
        if isinstance(name, str) and name:
            return name
    raise DefinitionError(f"A participant is an agent, an executor, or the id of one, got {reference!r}.")


def named(
    references: Iterable[ParticipantReference], participants: Iterable[Executor], what: str
) -> list[Executor]:
    """Return those participants that are referred to, in the order of the references.

    Args:
        references: Who is meant.
        participants: Who takes part.
        what: Where the references stand, for errors.

    Raises:
        DefinitionError: Somebody does not take part, or is named twice.
    """
    known = {participant.id: participant for participant in participants}
    found: dict[str, Executor] = {}
    for reference in _several(references):
        key = participant_id(reference)
        if key not in known:
            raise DefinitionError(f"{what} names {key!r}, who is not among {sorted(known)}.")
        if key in found:
            raise DefinitionError(f"{what} names {key!r} more than once; name each once.")
        found[key] = known[key]
    return list(found.values())


def _several(items: Any) -> list[Any]:
    if isinstance(items, str | bytes) or not hasattr(items, "__iter__"):
        raise DefinitionError(f"Participants come in a list, got {type(items).__qualname__}.")
    return list(items)
