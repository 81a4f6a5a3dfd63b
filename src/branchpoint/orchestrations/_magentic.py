"""The builder of a Magentic orchestration: a team that a manager leads by plans and ledgers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from agent_framework import SupportsAgentRun

from branchpoint.errors import DefinitionError
from branchpoint.orchestrations._designation import IntermediateFrom, OutputFrom
from branchpoint.orchestrations._magentic_manager import MagenticManagerBase
from branchpoint.orchestrations._magentic_orchestrator import MagenticAgentExecutor, MagenticOrchestrator
from branchpoint.orchestrations._magentic_standard import StandardMagenticManager
from branchpoint.orchestrations._magentic_types import MagenticTaskLedger
from branchpoint.orchestrations._participants import Participant, as_participants
from branchpoint.orchestrations._registry import ParticipantRegistry
from branchpoint.orchestrations._star import star
from branchpoint.workflow import Workflow

__all__ = ["MagenticBuilder"]


class MagenticBuilder:
    """Makes a team for tasks whose steps nobody knows beforehand: a manager plans, instructs and judges.

    The output is the manager's final answer, or its word that the task was given up. A message on a
    checkpoint whose task is over is another task, with limits of its own; what was said stays.

    Example:
        ```python
        builder = MagenticBuilder(
            participants=[researcher, analyst], manager_agent=manager, max_round_count=10
        )
        result = await builder.build().run("How much energy does a search need?")
        ```
    """

    def __init__(
        self,
        *,
        participants: Sequence[Participant],
        manager: MagenticManagerBase | None = None,
        manager_factory: Callable[[], MagenticManagerBase] | None = None,
        manager_agent: SupportsAgentRun | None = None,
        manager_agent_factory: Callable[[], SupportsAgentRun] | None = None,
        task_ledger: MagenticTaskLedger | None = None,
        task_ledger_facts_prompt: str | None = None,
        task_ledger_plan_prompt: str | None = None,
        task_ledger_full_prompt: str | None = None,
        task_ledger_facts_update_prompt: str | None = None,
        task_ledger_plan_update_prompt: str | None = None,
        progress_ledger_prompt: str | None = None,
        final_answer_prompt: str | None = None,
        max_stall_count: int | None = None,
        max_reset_count: int | None = None,
        max_round_count: int | None = None,
        name: str | None = None,
        enable_plan_review: bool = False,
        output_from: OutputFrom = None,
        intermediate_output_from: IntermediateFrom = None,
    ) -> None:
        """Collect what the team is made of. Prompts and limits are those of `StandardMagenticManager`.

        Args:
            participants: Agents, and executors that take `GroupChatRequestMessage`.
            manager: A manager of your own, with prompts and limits of its own.
            manager_factory: A function that makes one, called by `build`.
            manager_agent: An agent that a `StandardMagenticManager` asks.
            manager_agent_factory: A function that makes one, called by `build`.
            task_ledger: What the manager begins with; its first plan replaces it.
            task_ledger_facts_prompt: Asks for facts.
            task_ledger_plan_prompt: Asks for a plan.
            task_ledger_full_prompt: Puts the plan into the conversation, which the manager sees.
            task_ledger_facts_update_prompt: Asks for the facts again.
            task_ledger_plan_update_prompt: Asks for another plan.
            progress_ledger_prompt: Asks for a progress ledger.
            final_answer_prompt: Asks for the answer.
            max_stall_count: How far a task may be stalled until another plan is made; 3 by default.
            max_reset_count: How many plans may be given up, per input; no limit by default.
            max_round_count: How many rounds an input gets. By default no number ends the work; a run of 100
                supersteps, 50 rounds, is then a `ConvergenceError`.
            name: The workflow's name, "Magentic" by default.
            enable_plan_review: Whether a person approves each plan; see `MagenticPlanReviewRequest`.
            output_from: Whose turns are outputs, too, or "all".
            intermediate_output_from: Whose turns are intermediate outputs, "all", or "all_other" that are
                not in `output_from`. Those of others are not seen.

        Raises:
            DefinitionError: Not exactly one of the four managers is given, or a manager of your own and
                prompts or limits for another one.
        """
        managers = (manager, manager_factory, manager_agent, manager_agent_factory)
        if sum(one is not None for one in managers) != 1:
            raise DefinitionError(
                "Give a team exactly one of manager, manager_factory, manager_agent and manager_agent_factory."
            )
        options: dict[str, Any] = {
            "task_ledger": task_ledger,
            "task_ledger_facts_prompt": task_ledger_facts_prompt,
            "task_ledger_plan_prompt": task_ledger_plan_prompt,
            "task_ledger_full_prompt": task_ledger_full_prompt,
            "task_ledger_facts_update_prompt": task_ledger_facts_update_prompt,
            "task_ledger_plan_update_prompt": task_ledger_plan_update_prompt,
            "progress_ledger_prompt": progress_ledger_prompt,
            "final_answer_prompt": final_answer_prompt,
            "max_stall_count": max_stall_count,
            "max_reset_count": max_reset_count,
            "max_round_count": max_round_count,
        }
        self._options = {key: value for key, value in options.items() if value is not None}
        if self._options and (manager is not None or manager_factory is not None):
            raise DefinitionError(
                f"A manager of your own has its own prompts and limits: give {sorted(self._options)} to it and not to "
                "the builder."
            )
        self._participants = participants
        self._manager = manager
        self._manager_factory = manager_factory
        self._agent = manager_agent
        self._agent_factory = manager_agent_factory
        self._name = name or "Magentic"
        self._review = enable_plan_review
        self._output_from: OutputFrom = output_from
        self._intermediate_from: IntermediateFrom = intermediate_output_from

    def with_plan_review(self, enable: bool = True) -> Self:
        """Say whether a person approves each plan before anybody acts on it."""
        self._review = enable
        return self

    def build(self) -> Workflow:
        """Check everything and make the workflow.

        Raises:
            DefinitionError: Participants, outputs, limits, prompts or the manager are wrong.
        """
        participants = as_participants(self._participants, MagenticAgentExecutor)
        orchestrator = MagenticOrchestrator(
            self._made(), ParticipantRegistry(participants), require_plan_signoff=self._review
        )
        return star(self._name, orchestrator, participants, self._output_from, self._intermediate_from)

    def _made(self) -> MagenticManagerBase:
        if self._manager is not None:
            return self._manager
        if self._manager_factory is not None:
            return self._manager_factory()
        agent: Any = self._agent if self._agent_factory is None else self._agent_factory()
        return StandardMagenticManager(agent, **self._options)
