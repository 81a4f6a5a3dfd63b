"""`WorkflowAgent`: a workflow as an agent of Agent Framework."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, overload

from agent_framework import (
    AgentResponse,
    AgentResponseUpdate,
    AgentRunInputs,
    AgentSession,
    BaseAgent,
    ContextProvider,
    ResponseStream,
    normalize_messages,
)

from branchpoint.agents._agent_call import AgentCall
from branchpoint.agents._agent_stream import AgentStream
from branchpoint.agents._carried import carried_by, carry
from branchpoint.agents._inputs import find_form
from branchpoint.agents._providers import Providers
from branchpoint.agents._sessions import Sessions, Stay
from branchpoint.checkpoint import Checkpoint, CheckpointStorage
from branchpoint.errors import DefinitionError, InvalidCallError

if TYPE_CHECKING:
    from branchpoint.engine import WorkflowInvocationKwargs
    from branchpoint.workflow import Workflow

__all__ = ["WorkflowAgent"]


class WorkflowAgent(BaseAgent):
    """A workflow that Agent Framework takes wherever it takes an agent; `workflow.as_agent()` makes one.

    The agent holds nothing of any conversation, so one serves any number of sessions at once, and
    memory is as before when they end. Where a conversation is, is in the state of its session, under
    one key: the whole checkpoint, or, with a `checkpoint_storage`, its `checkpoint_id` and the
    `snapshot_id` the session is at. A session that is kept, by a `FileSessionStore` for instance, goes
    on in any process. An older copy of a session goes on from its own snapshot: that is a branch, and
    takes nothing from the other copy.

    Outputs of the workflow become messages of the response: messages and responses of agents as they
    are, texts as text, other values as JSON. In a stream, agents inside are heard as they speak.

    What the workflow asks becomes a call of the function `request_info` with the arguments
    `{request_id, data, response_schema}`; the result of that function is the answer. What agents inside
    ask for (approvals, results of tools that are only declared) passes through and is answered as with
    any agent. Requests that stay open are part of every response until they are answered.

    What a call does depends on where the session's checkpoint is, as with `workflow.run`:

    - A message starts a turn. If the last turn was left unfinished, because its call failed or was
      cancelled, or its stream was left early, that turn is given up first (boundary `abandoned`, and
      a warning in the log), as in any conversation; its work stays in the checkpoint, for `restart_from`.
    - Answers, and nothing beside them, continue a paused turn; some of them may be given. A message
      without an answer is refused while questions are open.
    - Nothing continues an unfinished turn, and so does the delivery that began it, repeated under its
      `input_id`: the response tells the whole turn. Where nothing is left to do, the last response is
      told again.

    A refused call changes nothing. Whatever ends a call early, the session is at the last boundary that
    was committed.

    Context providers run before and after. What they add goes to the workflow along with a message,
    except for what a history has loaded: that is for a workflow that begins, since one that goes on
    remembers. A history provider is told each message once.

    Example:
        ```python
        agent = workflow.as_agent(name="clerk")
        session = agent.create_session()
        response = await agent.run("Refund order 7.", session=session)
        for question in response.user_input_requests:
            answer = Content.from_function_result(question.call_id, result=True)
            response = await agent.run(answer, session=session)
        ```
    """

    def __init__(
        self,
        workflow: Workflow,
        *,
        id: str | None = None,
        name: str | None = None,
        description: str | None = None,
        context_providers: Sequence[ContextProvider] | None = None,
        checkpoint_storage: CheckpointStorage | None = None,
    ) -> None:
        """Make an agent of a workflow.

        Args:
            workflow: What runs.
            id: The agent's id; otherwise it gets one of its own in every process.
            name: Its name; otherwise the workflow's.
            description: What it is for; otherwise the workflow's.
            context_providers: What goes before and after each call, as with other agents.
            checkpoint_storage: Where checkpoints live; otherwise each is in its session, whole.

        Raises:
            DefinitionError: The workflow does not start with messages, or has no name and a storage.
        """
        where = f"workflow {workflow.name!r}"
        self._form = find_form(workflow.input_types, where)
        if checkpoint_storage is not None and not workflow.name:
            raise DefinitionError(
                "An unnamed workflow cannot have stored checkpoints: its name could not match after a restart. "
                "Build it with WorkflowBuilder(name=...)."
            )
        super().__init__(
            id=id,
            name=name or workflow.name,
            description=description or workflow.description,
            context_providers=context_providers,
        )
        self._workflow = workflow
        self._storage = checkpoint_storage
        self._sessions = Sessions()

    @property
    def workflow(self) -> Workflow:
        """The workflow."""
        return self._workflow

    @property
    def checkpoint_storage(self) -> CheckpointStorage | None:
        """Where the checkpoints live; None if each is in its session."""
        return self._storage

    async def get_checkpoint(self, session: AgentSession) -> Checkpoint | None:
        """Return the checkpoint of a session, at the snapshot the session is at; None before its first turn.

        Without a storage it is the session's own, and what is done to it is done to the session. With one
        it is loaded afresh: after `abandon`, `restart_from` and the like, `set_checkpoint` has the session
        go on from there.

        Raises:
            CheckpointNotFoundError: It was deleted from the storage.
            SnapshotNotFoundError: The session's snapshot was pruned.
            InvalidCallError: The session keeps no checkpoint that this agent can reach.
        """
        return await carried_by(session, self._storage)

    def set_checkpoint(self, session: AgentSession, checkpoint: Checkpoint) -> None:
        """Have a session go on from the selected head of a checkpoint of this workflow.

        Raises:
            InvalidCallError: The checkpoint lives in a storage, and the agent has none.
            CheckpointInUseError: A call is at work on the session.
        """
        self._sessions.refuse_busy(session.session_id)
        if checkpoint.checkpoint_storage is not None and self._storage is None:
            raise InvalidCallError(
                f"checkpoint {checkpoint.checkpoint_id!r} lives in a storage, and this agent has none to load it from: "
                "make it with as_agent(checkpoint_storage=...)"
            )
        carry(session, checkpoint)

    @overload
    def run(
        self,
        messages: AgentRunInputs | None = ...,
        *,
        stream: Literal[False] = ...,
        session: AgentSession | None = ...,
        input_id: str | None = ...,
        tools: Any = ...,
        function_invocation_kwargs: Mapping[str, Any] | WorkflowInvocationKwargs | None = ...,
        client_kwargs: Mapping[str, Any] | WorkflowInvocationKwargs | None = ...,
    ) -> Coroutine[Any, Any, AgentResponse[Any]]: ...

    @overload
    def run(
        self,
        messages: AgentRunInputs | None = ...,
        *,
        stream: Literal[True],
        session: AgentSession | None = ...,
        input_id: str | None = ...,
        tools: Any = ...,
        function_invocation_kwargs: Mapping[str, Any] | WorkflowInvocationKwargs | None = ...,
        client_kwargs: Mapping[str, Any] | WorkflowInvocationKwargs | None = ...,
    ) -> ResponseStream[AgentResponseUpdate, AgentResponse[Any]]: ...

    def run(
        self,
        messages: AgentRunInputs | None = None,
        *,
        stream: bool = False,
        session: AgentSession | None = None,
        input_id: str | None = None,
        tools: Any = None,
        function_invocation_kwargs: Mapping[str, Any] | WorkflowInvocationKwargs | None = None,
        client_kwargs: Mapping[str, Any] | WorkflowInvocationKwargs | None = None,
    ) -> Coroutine[Any, Any, AgentResponse[Any]] | ResponseStream[AgentResponseUpdate, AgentResponse[Any]]:
        """Say something to the workflow, answer what it asks, or have it go on.

        Nothing starts before the first await or iteration.

        Args:
            messages: What is said, or answers; nothing, to go on where the session is.
            stream: Return a stream of updates in place of an awaitable.
            session: The conversation. Without one nothing is kept, and no request can be answered.
            input_id: The caller's name for what is said; a delivery repeated under it acts once. A copy
                of the session from before the first delivery finds it in the storage, where there is one.
            tools: Tools for agents inside, for this call alone.
            function_invocation_kwargs: Arguments for tools, for this call alone; see `Workflow.run`.
            client_kwargs: Arguments for chat clients, for this call alone.

        Raises:
            CheckpointInUseError: At the await: another call is at work on this session, or on one of its id.
            PendingRequestsError: At the await: it is paused, and the messages hold no answer.
            UnknownRequestError: At the await: an answer is to no open request of this session.
            InvalidResponseError: At the await: an answer is not of the type that was asked for.
            GraphMismatchError: At the await: the session is that of another agent.
        """
        options = {
            "input_id": input_id,
            "tools": tools,
            "function_invocation_kwargs": function_invocation_kwargs,
            "client_kwargs": client_kwargs,
        }
        stay = self._sessions.stay(session)
        updates = self._updates(stay, stream, messages, session, options)
        return AgentStream(updates, stay) if stream else _whole(updates)

    async def _updates(
        self,
        stay: Stay,
        stream: bool,
        messages: AgentRunInputs | None,
        session: AgentSession | None,
        options: Mapping[str, Any],
    ) -> AsyncGenerator[AgentResponseUpdate, None]:
        async with stay:
            checkpoint = None if session is None else await self._checkpoint(session, options["input_id"])
            call = AgentCall(
                self._workflow,
                self._form,
                Providers(self, session),
                normalize_messages(messages),
                session,
                checkpoint,
                options,
            )
            async with aclosing(call.updates(stream)) as updates:
                async for update in updates:
                    yield update

    async def _checkpoint(self, session: AgentSession, input_id: str | None) -> Checkpoint:
        checkpoint = await carried_by(session, self._storage, input_id)
        if checkpoint is None:
            return self._workflow.create_checkpoint(
                checkpoint_storage=self._storage, metadata={"session_id": session.session_id}
            )
        return checkpoint


async def _whole(updates: AsyncGenerator[AgentResponseUpdate, None]) -> AgentResponse[Any]:
    async with aclosing(updates):
        return AgentResponse.from_updates([update async for update in updates])
