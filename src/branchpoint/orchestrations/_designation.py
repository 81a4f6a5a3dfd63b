"""Whose answers a caller of an orchestration sees, and as what. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from branchpoint.errors import DefinitionError
from branchpoint.graph import Executor
from branchpoint.orchestrations._participants import ParticipantReference, named

__all__ = ["IntermediateFrom", "OutputFrom", "designated"]

OutputFrom: TypeAlias = Sequence[ParticipantReference] | Literal["all"] | None
IntermediateFrom: TypeAlias = Sequence[ParticipantReference] | Literal["all", "all_other"] | None


def designated(
    participants: Sequence[Executor],
    output_from: OutputFrom,
    intermediate_from: IntermediateFrom,
    *,
    default: Sequence[Executor] = (),
    always: Sequence[Executor] = (),
) -> tuple[list[str], list[str]]:
    """Return the ids whose yields are outputs, and those whose yields are intermediate outputs.

    Args:
        participants: Who takes part.
        output_from: Whose yields are outputs, as the caller said it.
        intermediate_from: Whose yields are intermediate outputs, as the caller said it.
        default: Whose yields are outputs where the caller did not say it, unless they are intermediate.
        always: Others whose yields are outputs, such as an orchestrator.

    Raises:
        DefinitionError: A selection is of the wrong form, names a stranger, or contradicts the other.
    """
    explicit = output_from is not None or intermediate_from is not None
    if explicit and not output_from and not intermediate_from:
        raise DefinitionError(
            "output_from and intermediate_output_from are both empty, so nobody would hear anything; leave "
            "them out for the default."
        )
    _check_word("output_from", output_from, ("all",))
    _check_word("intermediate_output_from", intermediate_from, ("all", "all_other"))

    capable = [one for one in participants if one.workflow_output_types]
    chosen: Sequence[Executor] | None = None
    if output_from == "all":
        chosen = capable
    elif output_from is not None:
        chosen = named(output_from, participants, "output_from")
    elif isinstance(intermediate_from, str):
        chosen = ()

    between: Sequence[Executor] = ()
    if intermediate_from == "all":
        between = capable
    elif intermediate_from == "all_other":
        between = [one for one in capable if one not in (chosen or ())]
    elif intermediate_from is not None:
        between = named(intermediate_from, participants, "intermediate_output_from")
    if chosen is None:
        chosen = [one for one in default if one not in between]

    both = sorted({one.id for one in chosen} & {one.id for one in between})
    if both:
        raise DefinitionError(
            f"output_from and intermediate_output_from both name {both}; an answer is one of them."
        )
    return [one.id for one in (*always, *chosen)], [one.id for one in between]


def _check_word(what: str, selection: object, words: Sequence[str]) -> None:
    if isinstance(selection, str) and selection not in words:
        raise DefinitionError(
            f"{what} is {' or '.join(map(repr, words))}, or a list of participants, got {selection!r}."
        )
