"""The manager that asks an agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from agent_framework import Message, SupportsAgentRun

from branchpoint.agents import as_messages, run_whole
from branchpoint.errors import DefinitionError, HandlerError
from branchpoint.orchestrations import _magentic_prompts as prompts
from branchpoint.orchestrations._json_answers import quoted
from branchpoint.orchestrations._magentic_decisions import read_ledger
from branchpoint.orchestrations._magentic_manager import MagenticManagerBase
from branchpoint.orchestrations._magentic_types import (
    MAGENTIC_MANAGER_NAME,
    MagenticContext,
    MagenticProgressLedger,
    MagenticTaskLedger,
)

__all__ = ["StandardMagenticManager"]

_FIELDS: Final = {
    "task_ledger_facts_prompt": ("task",),
    "task_ledger_plan_prompt": ("team",),
    "task_ledger_full_prompt": ("task", "team", "facts", "plan"),
    "task_ledger_facts_update_prompt": ("task", "old_facts"),
    "task_ledger_plan_update_prompt": ("team",),
    "progress_ledger_prompt": ("task", "team", "names"),
    "final_answer_prompt": ("task",),
}
"""What each prompt may name."""


class StandardMagenticManager(MagenticManagerBase):
    """Asks an agent for facts, plans, ledgers and the final answer.

    Each question is put in a session of its own, together with the whole conversation since the last
    reset; what the agent is asked stays out of that conversation. So a plan that is given up is
    forgotten, and nothing of the agent's has to be kept but the facts and the plan.

    Attributes:
        task_ledger: The facts and the plan of the task; saved in every snapshot.
        progress_ledger_retry_count: How often it is asked for one ledger.
    """

    def __init__(
        self,
        agent: SupportsAgentRun,
        task_ledger: MagenticTaskLedger | None = None,
        *,
        task_ledger_facts_prompt: str | None = None,
        task_ledger_plan_prompt: str | None = None,
        task_ledger_full_prompt: str | None = None,
        task_ledger_facts_update_prompt: str | None = None,
        task_ledger_plan_update_prompt: str | None = None,
        progress_ledger_prompt: str | None = None,
        final_answer_prompt: str | None = None,
        max_stall_count: int = 3,
        max_reset_count: int | None = None,
        max_round_count: int | None = None,
        progress_ledger_retry_count: int | None = None,
    ) -> None:
        """Make the definition of a manager. Prompts are filled in with `str.format`.

        Args:
            agent: Who is asked.
            task_ledger: What it begins with; the first plan replaces it, so it is for subclasses.
            task_ledger_facts_prompt: Asks for the facts of `{task}`.
            task_ledger_plan_prompt: Asks for a plan for `{team}`.
            task_ledger_full_prompt: Puts the plan into the conversation: `{task}`, `{team}`, `{facts}`, `{plan}`.
            task_ledger_facts_update_prompt: Asks for the facts again: `{task}`, `{old_facts}`.
            task_ledger_plan_update_prompt: Asks for another plan for `{team}`.
            progress_ledger_prompt: Asks for a ledger as JSON: `{task}`, `{team}`, `{names}`.
            final_answer_prompt: Asks for the answer to `{task}`.
            max_stall_count: How far a task may be stalled until another plan is made.
            max_reset_count: How many plans may be given up, per input.
            max_round_count: How many rounds an input gets.
            progress_ledger_retry_count: How often the agent is asked for one ledger, until its answer can
                be used; 3 by default. After that the superstep fails, and nothing of it is kept.

        Raises:
            DefinitionError: It is no agent, a limit makes no sense, or a prompt asks for what is not there.
        """
        super().__init__(
            max_stall_count=max_stall_count, max_reset_count=max_reset_count, max_round_count=max_round_count
        )
        if not callable(getattr(agent, "run", None)) or isinstance(agent, type):
            raise DefinitionError(f"A StandardMagenticManager asks an agent, got {agent!r}.")
        tries = 3 if progress_ledger_retry_count is None else progress_ledger_retry_count
        if type(tries) is not int or tries < 1:
            raise DefinitionError(f"progress_ledger_retry_count is a number from 1 on, got {tries!r}.")
        self._agent = agent
        self.progress_ledger_retry_count = tries
        self.task_ledger = task_ledger
        self.task_ledger_facts_prompt = task_ledger_facts_prompt or prompts.FACTS
        self.task_ledger_plan_prompt = task_ledger_plan_prompt or prompts.PLAN
        self.task_ledger_full_prompt = task_ledger_full_prompt or prompts.FULL
        self.task_ledger_facts_update_prompt = task_ledger_facts_update_prompt or prompts.FACTS_UPDATE
        self.task_ledger_plan_update_prompt = task_ledger_plan_update_prompt or prompts.PLAN_UPDATE
        self.progress_ledger_prompt = progress_ledger_prompt or prompts.PROGRESS
        self.final_answer_prompt = final_answer_prompt or prompts.FINAL_ANSWER
        for name, fields in _FIELDS.items():
            _check_prompt(name, getattr(self, name), fields)

    def on_snapshot_save(self) -> dict[str, Any]:
        """Save the facts and the plan."""
        return {} if self.task_ledger is None else {"task_ledger": self.task_ledger}

    def on_snapshot_restore(self, state: dict[str, Any]) -> None:
        """Take them back."""
        self.task_ledger = state["task_ledger"]

    async def plan(self, magentic_context: MagenticContext) -> Message:
        """Ask for the facts, then for a plan."""
        return await self._planned(
            magentic_context,
            self.task_ledger_facts_prompt.format(task=magentic_context.task),
            self.task_ledger_plan_prompt.format(team=_team(magentic_context)),
        )

    async def replan(self, magentic_context: MagenticContext) -> Message:
        """Ask for the facts again, then for another plan."""
        old = self.task_ledger.facts.text if self.task_ledger is not None else ""
        return await self._planned(
            magentic_context,
            self.task_ledger_facts_update_prompt.format(task=magentic_context.task, old_facts=old),
            self.task_ledger_plan_update_prompt.format(team=_team(magentic_context)),
        )

    async def create_progress_ledger(self, magentic_context: MagenticContext) -> MagenticProgressLedger:
        """Ask for a ledger until one can be read.

        Raises:
            HandlerError: None of the answers could be read.
        """
        names = list(magentic_context.participant_descriptions)
        prompt = self.progress_ledger_prompt.format(
            task=magentic_context.task, team=_team(magentic_context), names=", ".join(names)
        )
        asked = [*magentic_context.chat_history, *as_messages(prompt)]
        trouble: ValueError | None = None
        answer = Message("assistant", [""])
        for _ in range(self.progress_ledger_retry_count):
            answer = await self._complete(asked)
            try:
                return read_ledger(answer.text, names)
            except ValueError as error:
                trouble = error
                asked += [answer, *as_messages(f"This cannot be used: {error}. Answer again, as JSON.")]
        raise HandlerError(
            f"The manager's agent was asked {self.progress_ledger_retry_count} time(s) for a progress ledger and "
            f"gave none that can be read; the last answer was {quoted(answer.text)}: {trouble}. Nothing of this "
            "superstep was kept; run the checkpoint again, or mend the agent."
        ) from trouble

    async def prepare_final_answer(self, magentic_context: MagenticContext) -> Message:
        """Ask for the answer."""
        prompt = self.final_answer_prompt.format(task=magentic_context.task)
        answer = await self._complete([*magentic_context.chat_history, *as_messages(prompt)])
        return Message("assistant", [answer.text], author_name=answer.author_name or MAGENTIC_MANAGER_NAME)

    async def _planned(self, context: MagenticContext, facts_prompt: str, plan_prompt: str) -> Message:
        asked = [*context.chat_history, *as_messages(facts_prompt)]
        facts = await self._complete(asked)
        plan = await self._complete([*asked, facts, *as_messages(plan_prompt)])
        self.task_ledger = MagenticTaskLedger(facts, plan)
        full = self.task_ledger_full_prompt.format(
            task=context.task, team=_team(context), facts=facts.text, plan=plan.text
        )
        return Message("assistant", [full], author_name=MAGENTIC_MANAGER_NAME)

    async def _complete(self, messages: Sequence[Message]) -> Message:
        response = await run_whole(self._agent, messages, self._agent.create_session(), {})
        if not response.messages:
            raise HandlerError("The manager's agent answered without a message; run the checkpoint again.")
        return response.messages[-1]


def _team(context: MagenticContext) -> str:
    return "\n".join(f"- {name}: {said}" for name, said in context.participant_descriptions.items())


def _check_prompt(name: str, prompt: str, fields: Sequence[str]) -> None:
    try:
        prompt.format(**dict.fromkeys(fields, ""))
    except (LookupError, ValueError, AttributeError) as error:
        raise DefinitionError(
            f"{name} cannot be filled in ({type(error).__name__}: {error}); it may name "
            f"{', '.join(f'{{{field}}}' for field in fields)}, and any other brace is written twice."
        ) from error
