"""Managers of Magentic orchestrations: they plan, judge progress, and give the final answer."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any

from agent_framework import Message

from branchpoint.codec import copy_value
from branchpoint.errors import DefinitionError, HandlerError
from branchpoint.graph import Copier, unchanged
from branchpoint.orchestrations._magentic_types import MagenticContext, MagenticProgressLedger
from branchpoint.orchestrations._turns import checked_limit

__all__ = ["MagenticManagerBase", "run_scoped", "saved"]


class MagenticManagerBase(ABC):
    """Leads the work on a task: plans, says after each turn where it stands, and answers in the end.

    A manager is a part of the definition. Each question is put to a copy of it that has what
    `on_snapshot_save` returned after the question before; so what it must remember is what that method
    returns, and one manager serves any number of checkpoints at once. The copy has containers of its own;
    other objects, such as clients, are shared.

    Attributes:
        max_stall_count: How far a task may be stalled until another plan is made.
        max_reset_count: How many plans may be given up, per input; no limit with None.
        max_round_count: How many rounds an input gets; no limit with None.
    """

    def __init__(
        self,
        *,
        max_stall_count: int = 3,
        max_reset_count: int | None = None,
        max_round_count: int | None = None,
    ) -> None:
        """Set the limits.

        Raises:
            DefinitionError: A limit is no number, or makes no sense.
        """
        if max_stall_count is None:
            raise DefinitionError(
                "max_stall_count is a number from 0 on: without it no plan is ever replaced."
            )
        self.max_stall_count = max_stall_count
        self.max_reset_count = max_reset_count
        self.max_round_count = max_round_count
        checked_limit("max_stall_count", max_stall_count, least=0)
        checked_limit("max_reset_count", max_reset_count, least=0)
        checked_limit("max_round_count", max_round_count, least=1)

    @abstractmethod
    async def plan(self, magentic_context: MagenticContext) -> Message:
        """Return the first plan of a task."""

    @abstractmethod
    async def replan(self, magentic_context: MagenticContext) -> Message:
        """Return another plan, after one that led nowhere or that a person wants changed."""

    @abstractmethod
    async def create_progress_ledger(self, magentic_context: MagenticContext) -> MagenticProgressLedger:
        """Return where the task stands, and who acts next."""

    @abstractmethod
    async def prepare_final_answer(self, magentic_context: MagenticContext) -> Message:
        """Return the answer to the task."""

    def on_snapshot_save(self) -> dict[str, Any]:
        """Return what the manager must remember: any value that can be kept. Nothing by default."""
        return {}

    def on_snapshot_restore(self, state: dict[str, Any]) -> None:
        """Take what `on_snapshot_save` returned; not called where that was empty.

        Args:
            state: A copy of the manager's own.

        Raises:
            HandlerError: It is not overridden.
        """
        raise HandlerError(
            f"{type(self).__qualname__} has an on_snapshot_save and no on_snapshot_restore, so it would remember "
            f"nothing of {sorted(state)}. Override both."
        )


def run_scoped(definition: MagenticManagerBase, state: dict[str, Any]) -> MagenticManagerBase:
    """Return a copy of a manager that remembers what is in a state, with containers of its own, however nested."""
    manager = copy.copy(definition)
    copier = Copier(definition, manager)
    vars(manager).update((name, copier.copy(value)) for name, value in vars(definition).items())
    if state:
        manager.on_snapshot_restore(copy_value(state))
    return manager


def saved(definition: MagenticManagerBase, manager: MagenticManagerBase) -> dict[str, Any]:
    """Return what a copy must remember.

    Raises:
        HandlerError: It saves no dict, or it changed something and saves nothing.
    """
    state: Any = manager.on_snapshot_save()
    kind = type(definition).__qualname__
    if not isinstance(state, dict):
        raise HandlerError(
            f"{kind}.on_snapshot_save returned a {type(state).__qualname__}, and what a manager saves is a dict."
        )
    if type(definition).on_snapshot_save is MagenticManagerBase.on_snapshot_save:
        before = vars(definition)
        changed = sorted(
            name
            for name, value in vars(manager).items()
            if name not in before or not unchanged(before[name], value, definition, manager)
        )
        if changed:
            raise HandlerError(
                f"The manager {kind} changed {changed} during a run and does not save it, so the change would be "
                "lost. Return it from on_snapshot_save, and take it back in on_snapshot_restore."
            )
    return state
