"""The executor that leads a team by plans and ledgers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeVar

from agent_framework import Message

from branchpoint.agents import AgentExecutor
from branchpoint.errors import DefinitionError, HandlerError
from branchpoint.events import WorkflowEvent
from branchpoint.graph import RequestCancelled, WorkflowContext, handler, response_handler, state
from branchpoint.orchestrations._group_chat_base import BaseGroupChatOrchestrator, ChatContext
from branchpoint.orchestrations._group_chat_messages import MagenticResetSignal
from branchpoint.orchestrations._magentic_decisions import next_step
from branchpoint.orchestrations._magentic_manager import MagenticManagerBase, run_scoped, saved
from branchpoint.orchestrations._magentic_types import (
    MAGENTIC_MANAGER_NAME,
    MagenticContext,
    MagenticOrchestratorEvent,
    MagenticOrchestratorEventType,
    MagenticPlanReviewRequest,
    MagenticPlanReviewResponse,
    MagenticProgressLedger,
)
from branchpoint.orchestrations._registry import ParticipantRegistry
from branchpoint.orchestrations._turns import checked_speaker, is_spent

__all__ = ["MagenticAgentExecutor", "MagenticOrchestrator"]

T = TypeVar("T", Message, MagenticProgressLedger)
_Kind = MagenticOrchestratorEventType


class MagenticAgentExecutor(AgentExecutor):
    """Runs an agent of a team; forgets everything when the orchestrator begins anew with another plan."""

    @handler
    async def handle_magentic_reset(self, signal: MagenticResetSignal, ctx: WorkflowContext) -> None:
        """Forget the conversation, and begin the next one in a new session."""
        self.cache, self.full_conversation, self.agent_session = [], [], None
        self.pending_agent_requests, self.pending_responses_to_agent = {}, []
        self.pending_request_order = []


class MagenticOrchestrator(BaseGroupChatOrchestrator):
    """Leads a team: a manager plans, and after each turn judges where the task stands and who acts next.

    A task that is stalled for too long gets another plan: what was said is forgotten, by the team too,
    but for what the manager wrote down of it.

    An input on a checkpoint whose task is done is another task: what was said stays, and rounds, stalls
    and resets are counted from 0 again.

    Attributes:
        task: What is to be done.
        task_ledger: The plan in force, or under review.
        progress_ledger: Where the task stood after the last turn.
        stall_count: How far the task is stalled.
        reset_count: How many plans were given up.
        manager_state: What the manager saves.
    """

    MANAGER_NAME: ClassVar[str] = "magentic_orchestrator"

    task: str = state("")
    task_ledger: Message | None = state(None)
    progress_ledger: MagenticProgressLedger | None = state(None)
    stall_count: int = state(0)
    reset_count: int = state(0)
    manager_state: dict[str, Any] = state(factory=dict)

    def __init__(
        self,
        manager: MagenticManagerBase,
        participant_registry: ParticipantRegistry,
        *,
        require_plan_signoff: bool = False,
    ) -> None:
        """Make the definition of an orchestrator.

        Args:
            manager: Plans and judges.
            participant_registry: Who takes part.
            require_plan_signoff: Whether a person approves each plan before anybody acts on it.

        Raises:
            DefinitionError: It is no manager.
        """
        if not isinstance(manager, MagenticManagerBase):
            raise DefinitionError(f"A team is led by a MagenticManagerBase, got {manager!r}.")
        super().__init__(self.MANAGER_NAME, participant_registry, max_rounds=manager.max_round_count)
        self._manager = manager
        self._review = require_plan_signoff

    async def _choose(self, ctx: ChatContext) -> str | Message:
        raise AssertionError("a manager chooses by its ledger")

    async def _handle_messages(self, messages: list[Message], ctx: ChatContext) -> None:
        self.task = "\n".join(message.text for message in messages).strip()
        if not self.task:
            raise HandlerError(f"Executor {self.id!r} was given no text; a task is one.")
        self.round_index = self.stall_count = self.reset_count = 0
        self.progress_ledger = None
        self._append_messages(messages)
        await self._plan(ctx, _Kind.PLAN_CREATED)
        await self._begin(ctx, is_stalled=False)

    async def _after_turn(self, ctx: ChatContext) -> None:
        await self._go_on_with(ctx, is_new_plan=False)

    @response_handler
    async def handle_plan_review_response(
        self,
        original_request: MagenticPlanReviewRequest,
        response: MagenticPlanReviewResponse | RequestCancelled,
        ctx: ChatContext,
    ) -> None:
        """Act on a plan, or make another one; a review that is cancelled ends the task."""
        if isinstance(response, RequestCancelled):
            await self._end(ctx, "The task was given up: nobody reviewed its plan.")
        elif response.review:
            self._append_messages(response.review)
            await self._plan(ctx, _Kind.REPLANNED)
            await self._ask_for_review(ctx, is_stalled=original_request.is_stalled)
        else:
            await self._act_on_plan(ctx)

    async def _begin(self, ctx: ChatContext, *, is_stalled: bool) -> None:
        if self._review:
            await self._ask_for_review(ctx, is_stalled=is_stalled)
        else:
            await self._act_on_plan(ctx)

    async def _ask_for_review(self, ctx: ChatContext, *, is_stalled: bool) -> None:
        if self.task_ledger is None:
            raise HandlerError(f"Executor {self.id!r} has no plan to be reviewed; its state was edited.")
        request = MagenticPlanReviewRequest(self.task_ledger, self.progress_ledger, is_stalled)
        await ctx.request_info(request, MagenticPlanReviewResponse | RequestCancelled)

    async def _act_on_plan(self, ctx: ChatContext) -> None:
        if self.task_ledger is not None:
            self._append_messages([self.task_ledger])
        await self._go_on_with(ctx, is_new_plan=True)

    async def _plan(self, ctx: ChatContext, kind: MagenticOrchestratorEventType) -> None:
        if kind is _Kind.PLAN_CREATED:
            self.task_ledger = await self._asked(lambda manager, task: manager.plan(task), Message)
        else:
            self.task_ledger = await self._asked(lambda manager, task: manager.replan(task), Message)
        await self._report(ctx, kind, self.task_ledger)

    async def _go_on_with(self, ctx: ChatContext, *, is_new_plan: bool) -> None:
        """Ask where the task stands, and do what follows from it."""
        if is_spent(self.round_index, self._max_rounds):
            await self._end(ctx, "The task was given up: all of its rounds are used up.")
            return
        self.round_index += 1
        ledger = self.progress_ledger = await self._asked(
            lambda manager, task: manager.create_progress_ledger(task), MagenticProgressLedger
        )
        await self._report(ctx, _Kind.PROGRESS_LEDGER_UPDATED, ledger)
        try:
            step = next_step(
                ledger,
                stall_count=self.stall_count,
                max_stall_count=self._manager.max_stall_count,
                reset_count=self.reset_count,
                max_reset_count=self._manager.max_reset_count,
                is_new_plan=is_new_plan,
            )
        except ValueError as error:
            raise HandlerError(
                f"The manager {type(self._manager).__name__} gave a ledger that cannot be used: {error}. Nothing of "
                "this superstep was kept; mend the manager and run the checkpoint again."
            ) from error
        self.stall_count = step.stall_count
        if step.kind == "finish":
            answer = await self._asked(lambda manager, task: manager.prepare_final_answer(task), Message)
            await self._yield_completion(ctx, answer)
        elif step.kind == "give_up":
            await self._end(ctx, "The task was given up: it is stalled, and no other plan is allowed.")
        elif step.kind == "replan":
            await self._reset(ctx)
        else:
            await self._instruct(ctx, ledger)

    async def _instruct(self, ctx: ChatContext, ledger: MagenticProgressLedger) -> None:
        kind = type(self._manager).__name__
        speaker = checked_speaker(
            ledger.next_speaker.answer, self._registry.participants, f"The manager {kind}"
        )
        instruction = str(ledger.instruction_or_question.answer)
        self._append_messages([Message("assistant", [instruction], author_name=MAGENTIC_MANAGER_NAME)])
        await self._send_request_to_participant(speaker, ctx, additional_instruction=instruction)

    async def _reset(self, ctx: ChatContext) -> None:
        """Make another plan of what was said, then forget that."""
        await self._plan(ctx, _Kind.REPLANNED)
        self.conversation = []
        self.stall_count = 0
        self.reset_count += 1
        signal = MagenticResetSignal()
        for name in self._registry.participants:
            if self._registry.takes(name, signal):
                await ctx.send_message(signal, target_id=name)
        await self._begin(ctx, is_stalled=True)

    async def _end(self, ctx: ChatContext, text: str) -> None:
        await self._yield_completion(ctx, Message("assistant", [text], author_name=MAGENTIC_MANAGER_NAME))

    async def _asked(
        self, question: Callable[[MagenticManagerBase, MagenticContext], Awaitable[T]], kind: type[T]
    ) -> T:
        """Ask a copy of the manager, and keep what it has to remember."""
        manager = run_scoped(self._manager, self.manager_state)
        answer = await question(manager, self._context())
        if not isinstance(answer, kind):
            raise HandlerError(
                f"The manager {type(manager).__name__} answered with a {type(answer).__qualname__}, where a "
                f"{kind.__name__} was asked for."
            )
        self.manager_state = saved(self._manager, manager)
        return answer

    def _context(self) -> MagenticContext:
        return MagenticContext(
            task=self.task,
            chat_history=self._get_conversation(),
            participant_descriptions=dict(self._registry.participants),
            round_count=self.round_index,
            stall_count=self.stall_count,
            reset_count=self.reset_count,
        )

    async def _report(
        self, ctx: ChatContext, kind: MagenticOrchestratorEventType, content: Message | MagenticProgressLedger
    ) -> None:
        data = MagenticOrchestratorEvent(kind, content)
        await ctx.add_event(WorkflowEvent("magentic_orchestrator", data=data, executor_id=self.id))
