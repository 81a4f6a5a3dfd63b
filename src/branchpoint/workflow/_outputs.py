"""Which executors' yields a caller sees, and as what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from branchpoint.errors import DefinitionError, ValidationTypeEnum, WorkflowValidationError
from branchpoint.graph import Executor
from branchpoint.workflow._candidates import ExecutorLike, id_of

__all__ = ["IntermediateSelection", "OutputSelection", "designate"]

OutputSelection: TypeAlias = Sequence[ExecutorLike] | Literal["all"] | None
IntermediateSelection: TypeAlias = Sequence[ExecutorLike] | Literal["all", "all_other"] | None


def designate(
    executors: Mapping[str, Executor],
    output_from: OutputSelection,
    intermediate_output_from: IntermediateSelection,
) -> tuple[frozenset[str] | None, frozenset[str]]:
    """Turn a builder's two selections into ids.

    Returns:
        The ids of outputs, or None when every yield is one, and the ids of intermediate outputs.

    Raises:
        WorkflowValidationError: A selection names an executor twice.
        DefinitionError: A selection is of the wrong form.
    """
    if output_from is None and intermediate_output_from is None:
        return None, frozenset()
    capable = [executor_id for executor_id, executor in executors.items() if executor.workflow_output_types]
    outputs = _selected("output_from", output_from, {"all": frozenset(capable)})
    words = {"all": frozenset(capable), "all_other": frozenset(capable) - outputs}
    return outputs, _selected("intermediate_output_from", intermediate_output_from, words)


def _selected(name: str, selection: Any, words: Mapping[str, frozenset[str]]) -> frozenset[str]:
    if selection is None:
        return frozenset()
    if isinstance(selection, str):
        if selection not in words:
            raise DefinitionError(
                f"{name} must be {' or '.join(repr(word) for word in words)}, or a list of executors, "
                f"got {selection!r}."
            )
        return words[selection]
    if not hasattr(selection, "__iter__"):
        raise DefinitionError(f"{name} must be a list of executors, got {type(selection).__qualname__}.")
    ids = [id_of(item) for item in selection]
    twice = sorted({executor_id for executor_id in ids if ids.count(executor_id) > 1})
    if twice:
        raise WorkflowValidationError(
            f"{name} names executors {twice} more than once; name each once.",
            ValidationTypeEnum.OUTPUT_VALIDATION,
        )
    return frozenset(ids)
