"""`AgentExecutor`: an agent as a step of a workflow."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Literal

from agent_framework import (
    AgentResponse,
    AgentResponseUpdate,
    AgentSession,
    Content,
    Message,
    SupportsAgentRun,
)

from branchpoint.agents._answers import (
    as_content,
    calls_of_results,
    check_answer,
    is_cancelled_call,
    said_besides,
    told,
)
from branchpoint.agents._calling import accepts, run_streaming, run_whole
from branchpoint.agents._messages import AgentExecutorRequest, AgentExecutorResponse, as_messages
from branchpoint.agents._replay import DEFER_RESULTS, forget_results, slots
from branchpoint.errors import DefinitionError
from branchpoint.events import WorkflowEvent
from branchpoint.graph import (
    Executor,
    RequestCancelled,
    WorkflowContext,
    handler,
    response_handler,
    state,
)

__all__ = ["AgentExecutor", "ContextMode"]

ContextMode = Literal["full", "last_agent", "custom"]
_MODES = ("full", "last_agent", "custom")


class AgentExecutor(Executor):
    """Runs an agent on the messages it gets, yields its response and sends it on.

    The agent is shared: one object may serve many executors, checkpoints and runs at once. What
    belongs to one conversation, the `AgentSession` among it, is declared state, and so in the entry
    of this executor in `executor_states`; the executor object holds none of it. A conversation kept
    by a service, or by a history provider outside of the session, is not rewound with a snapshot.

    In a stream the agent's updates come as pieces of one output: live events of the output's kind,
    with its `output_id`, then the response itself, once it is committed.

    What an agent asks (approvals, tools that are only declared, computer calls) becomes requests.
    Each is answered with the `Content` that belongs to it, or with `RequestCancelled`; an answer to
    another question is refused, and nothing of the call is accepted. The agent goes on when all are
    answered; messages that come before that wait.

    Example:
        ```python
        writer = AgentExecutor(agent, id="writer", context_mode="last_agent")
        workflow = WorkflowBuilder(name="texts", start_executor=writer).build()
        result = await workflow.run("Write a haiku.")
        ```

    Attributes:
        cache: Messages the agent has not been given yet.
        full_conversation: What was said up to and including its last response.
        agent_session: The session it runs on; made with the first message.
        pending_agent_requests: What it asked and is not answered, by request id.
        pending_responses_to_agent: Answers that wait for the others, in the order of what was asked.
        pending_request_order: What was asked since the agent last ran, answered or not.
    """

    cache: list[Message] = state(factory=list)
    full_conversation: list[Message] = state(factory=list)
    agent_session: AgentSession | None = state(None)
    pending_agent_requests: dict[str, Content] = state(factory=dict)
    pending_responses_to_agent: list[Content] = state(factory=list)
    pending_request_order: list[str] = state(factory=list)

    def __init__(
        self,
        agent: SupportsAgentRun,
        *,
        session: AgentSession | None = None,
        id: str | None = None,
        context_mode: ContextMode | None = None,
        context_filter: Callable[[list[Message]], list[Message]] | None = None,
        ensure_trailing_user_turn: bool = False,
    ) -> None:
        """Make the executor of an agent.

        Args:
            agent: Anything with the `run` of Agent Framework's agents.
            session: What every new conversation begins with, by value; a fresh session otherwise.
            id: The executor's id; otherwise the agent's name, or its id. An agent without a name gets an
                id of its own in every process, so give one of the two where checkpoints are stored.
            context_mode: What of another agent's response this one is given: the "full" conversation,
                which is the default, the messages of the "last_agent" alone, or a "custom" choice.
            context_filter: Makes the custom choice from the full conversation.
            ensure_trailing_user_turn: Whether to add "please continue." for this one run where the
                conversation ends with an assistant, after which some services say nothing.

        Raises:
            DefinitionError: It is no agent, has no id, or mode and filter contradict each other.
        """
        if not callable(getattr(agent, "run", None)) or isinstance(agent, type):
            raise DefinitionError(f"AgentExecutor takes an agent, something that runs, got {agent!r}.")
        name = id or getattr(agent, "name", None) or getattr(agent, "id", None)
        if not name:
            raise DefinitionError(
                f"This {type(agent).__name__} has no name, so its executor needs one: give the agent a name, or "
                "write AgentExecutor(agent, id=...)."
            )
        super().__init__(id=name)
        mode = context_mode or "full"
        if mode not in _MODES:
            raise DefinitionError(f"context_mode is 'full', 'last_agent' or 'custom', got {mode!r}.")
        if (mode == "custom") != (context_filter is not None):
            raise DefinitionError(
                f"context_mode is {mode!r} and context_filter is {context_filter!r}: a filter is for the mode "
                "'custom', which needs one."
            )
        if session is not None:
            if not isinstance(session, AgentSession):
                raise DefinitionError(f"session is an AgentSession, got {type(session).__name__}.")
            self.agent_session = session
        self._agent = agent
        self._mode = mode
        self._filter = context_filter
        self._ensure_user = ensure_trailing_user_turn

    @property
    def agent(self) -> SupportsAgentRun:
        """The agent."""
        return self._agent

    @property
    def description(self) -> str | None:
        """What the agent says it is for."""
        return getattr(self._agent, "description", None)

    def check_response(self, request: Any, response: Any) -> None:
        """Refuse an answer to another question; see `Executor.check_response`."""
        check_answer(request, response)

    @handler
    async def run(
        self, request: AgentExecutorRequest, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]
    ) -> None:
        """Take messages, and let the agent answer unless it is not to yet."""
        self.cache.extend(request.messages)
        if request.should_respond:
            await self._respond(ctx)

    @handler
    async def from_response(
        self, prior: AgentExecutorResponse, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]
    ) -> None:
        """Take what another agent answered, as `context_mode` says, and answer."""
        if self._mode == "last_agent":
            self.cache.extend(prior.agent_response.messages)
        elif self._filter is not None:
            self.cache.extend(self._filter(prior.full_conversation))
        else:
            self.cache.extend(prior.full_conversation)
        await self._respond(ctx)

    @handler
    async def from_str(self, text: str, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]) -> None:
        """Take what a user says, and answer.

        A text says nothing of what came before; between two agents send `AgentExecutorResponse.with_text`.
        """
        self.cache.extend(as_messages(text))
        await self._respond(ctx)

    @handler
    async def from_message(
        self, message: Message, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]
    ) -> None:
        """Take a message, and answer."""
        self.cache.append(message)
        await self._respond(ctx)

    @handler
    async def from_messages(
        self, messages: list[str | Message], ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]
    ) -> None:
        """Take messages and texts, and answer."""
        self.cache.extend(as_messages(messages))
        await self._respond(ctx)

    @response_handler
    async def handle_user_input_response(
        self,
        request: Content,
        answer: Content | RequestCancelled,
        ctx: WorkflowContext[AgentExecutorResponse, AgentResponse],
    ) -> None:
        """Take an answer, and go on when there is one to everything that the agent asked."""
        request_id = ctx.request_id or ""
        asked = self.pending_agent_requests.pop(request_id, request)
        if request_id not in self.pending_request_order:  # somebody edited the snapshot
            self.pending_request_order.append(request_id)
        before = self.pending_request_order[: self.pending_request_order.index(request_id)]
        place = sum(slot not in self.pending_agent_requests for slot in before)
        self.pending_responses_to_agent.insert(place, as_content(asked, answer))
        if not self.pending_agent_requests:
            await self._resume(ctx)

    async def _resume(self, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]) -> None:
        answers = self.pending_responses_to_agent
        messages = told(answers)
        self.pending_responses_to_agent, self.pending_request_order = [], []
        before = self.full_conversation
        if any(map(is_cancelled_call, answers)):
            # No agent can go on with a computer call that has no result, so the next message begins anew.
            self.full_conversation = [*before, *messages]
            self.agent_session = None
            await ctx.yield_output(AgentResponse(messages=messages))
            return
        session = self._session(ctx)
        calls = {
            one.id
            for message in before
            for one in message.contents
            if one.type == "computer_tool_call" and one.user_input_request
        }
        forget_results(session, getattr(self._agent, "context_providers", ()), answers, calls)
        held, self.cache = self.cache, []
        await self._answer(ctx, [*messages, *held], before)

    async def _respond(self, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]) -> None:
        """Run the agent on what it has not been given yet, unless it waits for an answer itself."""
        if self.pending_agent_requests:
            return
        given, self.cache = self.cache, []
        await self._answer(ctx, given)

    async def _answer(
        self,
        ctx: WorkflowContext[AgentExecutorResponse, AgentResponse],
        given: Sequence[Message],
        before: Sequence[Message] = (),
    ) -> None:
        """Run the agent on some messages, after a conversation that led to them, and ask what it asks."""
        response = await self._run(ctx, given)
        before = [*before, *calls_of_results(given, [*before, *response.messages])]
        if response.user_input_requests:
            self.full_conversation = [*before, *said_besides([*given, *response.messages])]
            await self._ask(ctx, response)
            return
        said = [*before, *said_besides(given)] if before else given
        self.full_conversation = [*said, *response.messages]
        await self._conclude(ctx, response)

    async def _conclude(
        self, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse], response: AgentResponse[Any]
    ) -> None:
        """Say what the agent answered; for subclasses that do something else with it."""
        await ctx.yield_output(response)
        await ctx.send_message(AgentExecutorResponse(self.id, response, self.full_conversation))

    async def _show(
        self, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse], update: AgentResponseUpdate
    ) -> None:
        """Show a reader of the stream a piece of the answer; for subclasses whose answers are no outputs."""
        await ctx.stream_output(update)

    async def _run(
        self, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse], given: Sequence[Message]
    ) -> AgentResponse[Any]:
        messages = list(given)
        if self._ensure_user and messages and messages[-1].role == "assistant":
            messages.append(Message("user", ["please continue."]))
        session = self._session(ctx)
        options = await self._options(ctx)

        async def tell(update: AgentResponseUpdate) -> None:
            told = [content for content in update.contents if not content.user_input_request]
            if len(told) < len(update.contents):
                if not told:
                    return
                update = copy.copy(update)
                update.contents = told
            await self._show(ctx, update)

        session.state[DEFER_RESULTS] = True
        try:
            if ctx.is_streaming():
                return await run_streaming(self._agent, messages, session, options, tell)
            return await run_whole(self._agent, messages, session, options)
        finally:
            session.state.pop(DEFER_RESULTS, None)

    async def _ask(
        self, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse], response: AgentResponse[Any]
    ) -> None:
        """Ask what the agent asks. The ids are the engine's, so two agents never ask under one."""
        for content, result in slots(response.messages):
            if result is None:
                request_id = await ctx.request_info(content, Content | RequestCancelled)
                self.pending_agent_requests[request_id] = content
                self.pending_request_order.append(request_id)
            else:
                self.pending_request_order.append(f"done/{len(self.pending_request_order)}")
                self.pending_responses_to_agent.append(result)

    def _session(self, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]) -> AgentSession:
        session = self.agent_session
        if session is None:
            # The key is the same when this is executed again, so the session is the same one, too.
            session = self.agent_session = self._agent.create_session(session_id=ctx.idempotency_key)
        return session

    async def _options(self, ctx: WorkflowContext[AgentExecutorResponse, AgentResponse]) -> dict[str, Any]:
        options = dict(ctx.run_options)
        if "tools" in options and not accepts(self._agent, "tools"):
            del options["tools"]
            text = f"the agent of executor {self.id!r} takes no tools from a call, so it runs without them"
            await ctx.add_event(WorkflowEvent("warning", text))
        return options
