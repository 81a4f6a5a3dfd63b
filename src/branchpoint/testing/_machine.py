"""A state machine over one storage, whose rules are beside it; made without hypothesis at import."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from branchpoint.testing._place import Place

if TYPE_CHECKING:
    from hypothesis.stateful import RuleBasedStateMachine

__all__ = ["storage_machine"]


def storage_machine(make_place: Callable[[], Place]) -> type[RuleBasedStateMachine]:
    """Return a state machine of hypothesis that does to checkpoints whatever can be done, in any order.

    Several holders commit, branch, prune, fork, delete and reload a few checkpoints on one place; a small model
    foretells what is stored and who conflicts, and the lineage law holds after every step. No workflow runs.
    Needs the extra `testing`.

    Args:
        make_place: Returns another empty place for each example.

    Example:
        >>> from branchpoint.storage import MemoryCheckpointStorage
        >>> from branchpoint.testing import Place, storage_machine
        >>> class MemoryPlace(Place):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.kept = MemoryCheckpointStorage()
        ...
        ...     def open(self):
        ...         return self.kept
        >>> TestMemory = storage_machine(MemoryPlace).TestCase  # pytest and unittest run it
    """
    from branchpoint.testing._machine_rules import machine_of

    return machine_of(make_place)
