"""Agents whose answers a person looks at before they count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from agent_framework import AgentResponse, AgentResponseUpdate, Message, SupportsAgentRun

from branchpoint.agents import AgentExecutor, AgentExecutorResponse, as_messages
from branchpoint.codec import register_state_type
from branchpoint.errors import DefinitionError
from branchpoint.graph import Executor, RequestCancelled, WorkflowContext, response_handler, state
from branchpoint.orchestrations._participants import ParticipantReference, named, participant_id

__all__ = ["AgentApprovalExecutor", "AgentRequestInfoResponse", "Reviewed"]


@register_state_type("branchpoint.agent_request_info_response")
@dataclass
class AgentRequestInfoResponse:
    """What a person says to an agent's answer: nothing, which approves it, or what is to be done.

    Attributes:
        messages: What the agent is told before it answers anew; empty approves the answer.

    Example:
        ```python
        (request,) = result.get_request_info_events()
        answer = AgentRequestInfoResponse.from_strings(["Shorter, please."])
        await workflow.run(responses={request.request_id: answer}, checkpoint=checkpoint)
        ```
    """

    messages: list[Message] = field(default_factory=list)

    @staticmethod
    def from_messages(messages: Message | list[Message]) -> AgentRequestInfoResponse:
        """Return a response that tells the agent these messages."""
        return AgentRequestInfoResponse(as_messages(messages))

    @staticmethod
    def from_strings(texts: str | list[str]) -> AgentRequestInfoResponse:
        """Return a response that tells the agent these texts, as its user."""
        return AgentRequestInfoResponse(as_messages(texts))

    @staticmethod
    def approve() -> AgentRequestInfoResponse:
        """Return a response that approves the answer as it is."""
        return AgentRequestInfoResponse([])


class AgentApprovalExecutor(AgentExecutor):
    """Runs an agent whose answers a person approves, or sends back with what is to be changed.

    An answer becomes a request with an `AgentExecutorResponse`, to be answered with an
    `AgentRequestInfoResponse`. It is yielded and sent on once it is approved; until then nothing of it
    is an output, not even in a stream. What the agent itself asks comes first, as with any agent.

    Attributes:
        under_review: The id of the request about its last answer, while that waits.
        is_wanted: Whether it was asked to answer again meanwhile.
    """

    under_review: str | None = state(None)
    is_wanted: bool = state(False)

    def check_response(self, request: Any, response: Any) -> None:
        """Refuse an answer to another question; see `Executor.check_response`."""
        if not isinstance(request, AgentExecutorResponse):
            super().check_response(request, response)

    async def _respond(self, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]) -> None:
        if self.under_review is not None:
            self.is_wanted = True
            return
        await super()._respond(ctx)

    async def _conclude(
        self, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse], response: AgentResponse[Any]
    ) -> None:
        draft = AgentExecutorResponse(self.id, response, self.full_conversation)
        self.under_review = await ctx.request_info(draft, AgentRequestInfoResponse | RequestCancelled)

    async def _show(
        self, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse], update: AgentResponseUpdate
    ) -> None:
        """Show nothing: it is no output yet, and may never be one."""

    @response_handler
    async def handle_review(
        self,
        draft: AgentExecutorResponse,
        review: AgentRequestInfoResponse | RequestCancelled,
        ctx: WorkflowContext[AgentExecutorResponse, AgentResponse],
    ) -> None:
        """Take what a person says to an answer; a review that is cancelled ends the work on it."""
        self.under_review = None
        if isinstance(review, AgentRequestInfoResponse) and review.messages:
            self.is_wanted = False
            held, self.cache = self.cache, []
            await self._answer(ctx, [*review.messages, *held], draft.full_conversation)
            return
        if isinstance(review, AgentRequestInfoResponse):
            await super()._conclude(ctx, draft.agent_response)
        if self.is_wanted:
            self.is_wanted = False
            await self._respond(ctx)


class Reviewed:
    """Which agents of an orchestration are reviewed: none, until a builder is told otherwise."""

    def __init__(self) -> None:
        self._ids: list[str] | None = []

    def include(self, agents: Sequence[ParticipantReference] | None) -> Self:
        """Review these agents, or all of them."""
        if agents is not None and (isinstance(agents, str) or not list(agents)):
            raise DefinitionError(
                f"with_request_info(agents=...) takes a list of agents, got {agents!r}; leave it out for all of them."
            )
        self._ids = None if agents is None else [participant_id(agent) for agent in agents]
        return self

    def wrap(self, agent: SupportsAgentRun, **options: Any) -> AgentExecutor:
        """Return the executor of an agent."""
        if self._ids is None or (self._ids and participant_id(agent) in self._ids):
            return AgentApprovalExecutor(agent, **options)
        return AgentExecutor(agent, **options)

    def check(self, given: Sequence[Any], executors: Sequence[Executor]) -> None:
        """Refuse names of nobody, and of executors, which are never reviewed.

        Args:
            given: The participants as the caller gave them.
            executors: Their executors.

        Raises:
            DefinitionError: It names somebody who is not reviewed.
        """
        if self._ids:
            wrapped = [executor for executor in executors if all(executor is not one for one in given)]
            named(self._ids, wrapped, "with_request_info(agents=...)")
