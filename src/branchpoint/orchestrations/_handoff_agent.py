"""The executor of an agent that may hand over to others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from agent_framework import Agent, AgentResponse, AgentSession, Message

from branchpoint.agents import AgentExecutor, AgentExecutorResponse
from branchpoint.errors import DefinitionError, HandlerError
from branchpoint.events import WorkflowEvent
from branchpoint.graph import RequestCancelled, WorkflowContext, response_handler, scratch, state
from branchpoint.orchestrations._cleaning import clean_conversation_for_handoff
from branchpoint.orchestrations._handoff_tools import (
    HANDOFFS_MADE,
    handoff_in,
    handoff_tool_name,
    tool_names,
    with_handoffs,
)
from branchpoint.orchestrations._handoff_values import (
    HandoffAgentUserRequest,
    HandoffConfiguration,
    HandoffSentEvent,
)
from branchpoint.orchestrations._termination import TerminationCondition, checked_condition, is_over

__all__ = ["CONVERSATION", "DEFAULT_TURN_LIMIT", "START", "HandoffAgentExecutor"]

CONVERSATION: Final = "handoff_conversation"
"""The key of the shared state under which all that users and agents said is kept, once for all agents."""

START: Final = "handoff_start"
"""The key under which it is kept where in the conversation the last input of the workflow begins."""

DEFAULT_TURN_LIMIT: Final = 50
_DEFAULT_PROMPT: Final = "The user gives no answer. Go on by yourself as far as you can."


class HandoffAgentExecutor(AgentExecutor):
    """Runs an agent that may hand the conversation over to others; a `HandoffBuilder` makes these.

    What is said is shared state. An agent whose turn it is gets what was said since its last turn,
    without the tool calls of others; what is sent between agents is only whose turn it is.

    Attributes:
        heard: How much of the conversation the agent was given or said itself.
        aside: What it alone is told with its next turn: to go on, or a result that its service lacks.
        autonomous_turns: How often it went on by itself since it was given the conversation.
        made: The handoffs of the turn that it is taking, by the ids of their calls.
    """

    heard: int = state(0)
    aside: list[Message] = state(factory=list)
    autonomous_turns: int = state(0)
    made: dict[str, str] = scratch(factory=dict)

    def __init__(
        self,
        agent: Agent[Any],
        handoffs: Sequence[HandoffConfiguration],
        *,
        agent_session: AgentSession | None = None,
        user_response_target_id: str | None = None,
        termination_condition: TerminationCondition | None = None,
        autonomous_mode: bool = False,
        autonomous_mode_prompt: str | None = None,
        autonomous_mode_turn_limit: int | None = None,
    ) -> None:
        """Make the executor of an agent.

        Args:
            agent: An `Agent`; it is copied, and its copy gets the tools to hand over.
            handoffs: Whom it may hand over to.
            agent_session: What every new conversation of it begins with.
            user_response_target_id: Whose turn it is when the user has answered; its own by default.
            termination_condition: When the conversation is over.
            autonomous_mode: Whether it goes on by itself after an answer that hands over to nobody.
            autonomous_mode_prompt: What it is told then.
            autonomous_mode_turn_limit: How often, before the user is asked; 50 by default.

        Raises:
            DefinitionError: It is no `Agent`, a tool has the name of a handoff, or a limit is no number.
        """
        if not isinstance(agent, Agent):
            raise DefinitionError(
                f"Agents that hand over are of the class Agent, which takes tools and middleware, got {agent!r}."
            )
        limit = DEFAULT_TURN_LIMIT if autonomous_mode_turn_limit is None else autonomous_mode_turn_limit
        if type(limit) is not int or limit < 0:
            raise DefinitionError(f"A turn limit is a whole number, 0 or more, got {limit!r}.")
        super().__init__(
            with_handoffs(agent, handoffs),
            session=agent_session,
            context_mode="custom",
            context_filter=_nothing,
        )
        self._own_tools = frozenset(tool_names(agent))
        self._targets = {handoff_tool_name(one.target_id): one.target_id for one in handoffs}
        self._answered_by = user_response_target_id
        self._condition = checked_condition(termination_condition)
        self._turn_limit = limit if autonomous_mode else 0
        self._prompt = autonomous_mode_prompt or _DEFAULT_PROMPT

    def check_response(self, request: Any, response: Any) -> None:
        """Refuse an answer to another question; see `Executor.check_response`."""
        if not isinstance(request, HandoffAgentUserRequest):
            super().check_response(request, response)

    async def _respond(self, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]) -> None:
        """Take the turn, unless the conversation is over."""
        conversation = ctx.get_state(CONVERSATION, copy=False)
        if not ctx.source_executor_ids and ctx.request_id is None:
            ctx.set_state(START, len(conversation))
        if ctx.request_id is not None or ctx.source_executor_ids != [self.id]:
            self.autonomous_turns = 0
        given = [*self.aside, *(conversation[at] for at in range(self.heard, len(conversation))), *self.cache]
        said, self.cache = self.cache, []
        if said:
            ctx.set_state(CONVERSATION, said)
        if await self._is_over(ctx):
            return
        self.heard, self.aside = len(conversation) + len(said), []
        await self._answer(ctx, given)

    async def _run(
        self, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse], given: Sequence[Message]
    ) -> AgentResponse[Any]:
        self.made = {}
        before = HANDOFFS_MADE.set(self.made)
        try:
            return await super()._run(ctx, given)
        finally:
            HANDOFFS_MADE.reset(before)

    async def _conclude(
        self, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse], response: AgentResponse[Any]
    ) -> None:
        said = clean_conversation_for_handoff(response.messages)
        ctx.set_state(CONVERSATION, said)
        self.heard += len(said)
        await ctx.yield_output(response)
        handoff = handoff_in(response.messages, self.made, self._targets, self._own_tools)
        if handoff.unknown:
            raise HandlerError(
                f"Agent {self.id!r} handed over by {', '.join(handoff.unknown)}, a tool that it does not have: it may "
                f"hand over to {sorted(self._targets.values())}. Nothing of this turn was kept; run the checkpoint "
                "again, or allow it with add_handoff."
            )
        if handoff.target is not None and handoff.result is not None:
            for target in handoff.ignored:
                text = f"agent {self.id!r} also handed over to {target!r}, which is ignored: {handoff.target!r} is next"
                await ctx.add_event(WorkflowEvent("warning", text))
            if self.agent_session is not None and self.agent_session.service_session_id is not None:
                self.aside = [handoff.result]  # what a service keeps ends with the call
            await self._give_turn(ctx, handoff.target)
            await ctx.add_event(WorkflowEvent("handoff_sent", HandoffSentEvent(self.id, handoff.target)))
        elif await self._is_over(ctx):
            return
        elif self.autonomous_turns < self._turn_limit:
            self.autonomous_turns += 1
            self.aside = [Message("user", [self._prompt])]
            await self._give_turn(ctx, self.id)  # a superstep of its own, so that a crash costs one turn
        else:
            await ctx.request_info(HandoffAgentUserRequest(response), list[Message] | RequestCancelled)

    @response_handler
    async def handle_response(
        self,
        request: HandoffAgentUserRequest,
        response: list[Message] | RequestCancelled,
        ctx: WorkflowContext[AgentExecutorResponse, AgentResponse],
    ) -> None:
        """Take what the user says, and go on; nothing, or no answer, ends the conversation."""
        if isinstance(response, RequestCancelled) or not response:
            return
        if self._answered_by is None or self._answered_by == self.id:
            self.cache.extend(response)
            await self._respond(ctx)
        else:
            ctx.set_state(CONVERSATION, response)
            await self._give_turn(ctx, self._answered_by)

    async def _give_turn(
        self, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse], target_id: str
    ) -> None:
        await ctx.send_message(AgentExecutorResponse(self.id, AgentResponse(), []), target_id)

    async def _is_over(self, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]) -> bool:
        if self._condition is None:
            return False
        conversation = ctx.get_state(CONVERSATION, copy=False)
        since = range(ctx.get_state(START), len(conversation))
        return await is_over(self._condition, [conversation[at] for at in since], self.id)


def _nothing(conversation: list[Message]) -> list[Message]:
    """Take nothing of what another agent sends: the conversation is shared."""
    return []
