"""`Workflow`: the definition a caller holds, reusable and never changed by a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Union, overload

import msgspec

from branchpoint.checkpoint import Checkpoint, CheckpointStorage
from branchpoint.codec import from_json, json_schema, type_expression
from branchpoint.engine import ABSENT, RunRequest, WorkflowInvocationKwargs, check_options
from branchpoint.errors import BranchpointError, InvalidCallError, UnsupportedValueError
from branchpoint.graph import Executor, Graph, SubWorkflowResponseMessage, describe
from branchpoint.workflow._agents import agents_room
from branchpoint.workflow._call import Call
from branchpoint.workflow._run import STREAM_BUFFER, PendingRun, WorkflowRunStream

if TYPE_CHECKING:
    from agent_framework import ContextProvider

    from branchpoint.workflow._agents import WorkflowAgent

__all__ = ["Workflow"]


class Workflow:
    """A workflow as it was built: topology, executors, types and bounds, and nothing of any run.

    One workflow runs any number of checkpoints at once, from tasks, threads and event loops.
    Everything that survives a call is in the caller's `Checkpoint`.
    """

    __slots__ = ("_graph", "__weakref__")

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __repr__(self) -> str:
        return f"<Workflow {self._graph.name!r}: {len(self._graph.executors)} executors>"

    # What it is.

    @property
    def graph(self) -> Graph:
        """The frozen definition."""
        return self._graph

    @property
    def name(self) -> str | None:
        """The name, part of the signature; None for an unnamed workflow."""
        return self._graph.name

    @property
    def description(self) -> str | None:
        """What it is for."""
        return self._graph.description

    @property
    def max_iterations(self) -> int:
        """Bound of supersteps since the last accepted input."""
        return self._graph.max_iterations

    @property
    def graph_signature_hash(self) -> str:
        """Hash of the signature, the same in every process."""
        return self._graph.signature_hash

    @property
    def signature(self) -> dict[str, Any]:
        """The readable signature; a value of your own."""
        copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self._graph.signature))
        return copied

    @property
    def input_types(self) -> list[Any]:
        """Types of input the start executor accepts; an answer to a child's question is none."""
        taken = self._graph.executors[self._graph.start_id].input_types
        return [tp for tp in taken if tp is not SubWorkflowResponseMessage]

    @property
    def output_types(self) -> list[Any]:
        """Types of output its output executors declare."""
        found: dict[Any, None] = {}
        for executor in self.get_output_executors():
            found.update(dict.fromkeys(executor.workflow_output_types))
        return list(found)

    def get_start_executor(self) -> Executor:
        """Return the definition of the start executor."""
        return self._graph.executors[self._graph.start_id]

    def get_executors_list(self) -> list[Executor]:
        """Return all executor definitions in declared order."""
        return list(self._graph.executors.values())

    def get_output_executors(self) -> list[Executor]:
        """Return the definitions whose yields are outputs."""
        return [e for e in self._graph.executors.values() if self.is_terminal_executor(e.id)]

    def get_intermediate_executors(self) -> list[Executor]:
        """Return the definitions whose yields are intermediate outputs."""
        return [e for e in self._graph.executors.values() if self.is_intermediate_executor(e.id)]

    def is_terminal_executor(self, executor_id: str) -> bool:
        """Say whether yields of this executor are outputs."""
        return self._graph.classify_output(executor_id) == "output"

    def is_intermediate_executor(self, executor_id: str) -> bool:
        """Say whether yields of this executor are intermediate outputs."""
        return self._graph.classify_output(executor_id) == "intermediate"

    def to_dict(self) -> dict[str, Any]:
        """Return a description of the definition as plain JSON."""
        return describe(self._graph)

    def to_json(self) -> str:
        """Return `to_dict()` as text."""
        return msgspec.json.encode(self.to_dict()).decode()

    # What it takes and gives, for the outside world.

    @property
    def input_schema(self) -> dict[str, Any]:
        """JSON schema of the input."""
        return _schema(self.input_types)

    @property
    def output_schema(self) -> dict[str, Any]:
        """JSON schema of the outputs: of anything, where a handler does not say what it yields."""
        declared: list[tuple[Any, ...] | None] = []
        for executor in self.get_output_executors():
            declared += [spec.workflow_output_types for spec in executor.handlers]
            declared += [spec.workflow_output_types for spec in executor.response_handlers]
        types = [Any] if None in declared else self.output_types
        return _schema(types) if types else {"not": {}}  # a yield of anything would be refused

    def parse_input(self, value: Any) -> Any:
        """Turn plain JSON into an input of the first accepted type it fits.

        Raises:
            UnsupportedValueError: It fits none; the message names the types, and why it fits none of them.
        """
        reasons: list[str] = []
        for tp in self.input_types:
            try:
                return from_json(value, tp)
            except BranchpointError as error:
                reasons.append(f"{type_expression(tp)} ({error})")
        raise UnsupportedValueError(
            f"The value fits no input of workflow {self.name!r}, whose start executor "
            f"{self._graph.start_id!r} accepts {'; '.join(reasons)}"
        )

    # What it does.

    def create_checkpoint(
        self,
        checkpoint_id: str | None = None,
        checkpoint_storage: CheckpointStorage | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
    ) -> Checkpoint:
        """Make a new checkpoint: one logical execution, owned by the caller.

        Nothing is stored before the first commit; that commit conflicts if the id is stored already.

        Args:
            checkpoint_id: Any text of 1 to 512 characters without control characters; a fresh id
                when absent. It is not an authorization boundary.
            checkpoint_storage: Where snapshots last; fixed from here on. Without it they live in
                memory, with the same rules.
            metadata: Text to text, fixed here: the place for owner and tenant.

        Raises:
            InvalidCallError: The id is refused, or a storage was given and the workflow has no name
                that could match after a restart.
        """
        return Checkpoint.create(
            checkpoint_id=checkpoint_id,
            workflow_name=self._graph.name or "",
            graph_signature_hash=self._graph.signature_hash,
            signature=self.signature,
            checkpoint_storage=checkpoint_storage,
            metadata=metadata,
        )

    def as_agent(
        self,
        name: str | None = None,
        *,
        description: str | None = None,
        context_providers: Sequence[ContextProvider] | None = None,
        checkpoint_storage: CheckpointStorage | None = None,
    ) -> WorkflowAgent:
        """Return this workflow as an agent, for wherever Agent Framework takes one.

        Args:
            name: The agent's name; otherwise the workflow's.
            description: What it is for; otherwise the workflow's.
            context_providers: Context providers of Agent Framework, which run before and after each call.
            checkpoint_storage: Where the checkpoints of its sessions live; otherwise each session carries
                its own, whole.

        Raises:
            DefinitionError: Its start executor takes neither `list[Message]` nor a `Message` nor a `str`,
                or it has no name and a storage was given.
            ModuleNotFoundError: Agent Framework is not installed.

        Example:
            ```python
            agent = workflow.as_agent(name="clerk")
            session = agent.create_session()
            response = await agent.run("Refund order 7.", session=session)
            ```
        """
        agent: WorkflowAgent = agents_room().WorkflowAgent(
            self,
            name=name,
            description=description,
            context_providers=context_providers,
            checkpoint_storage=checkpoint_storage,
        )
        return agent

    @overload
    def run(
        self,
        message: Any = ...,
        *,
        stream: Literal[True],
        checkpoint: Checkpoint | None = ...,
        responses: Mapping[str, Any] | None = ...,
        input_id: str | None = ...,
        metadata: Mapping[str, Any] | None = ...,
        max_supersteps: int | None = ...,
        include_status_events: bool = ...,
        tools: Any = ...,
        function_invocation_kwargs: Mapping[str, Any] | WorkflowInvocationKwargs | None = ...,
        client_kwargs: Mapping[str, Any] | WorkflowInvocationKwargs | None = ...,
    ) -> WorkflowRunStream: ...

    @overload
    def run(
        self,
        message: Any = ...,
        *,
        stream: Literal[False] = ...,
        checkpoint: Checkpoint | None = ...,
        responses: Mapping[str, Any] | None = ...,
        input_id: str | None = ...,
        metadata: Mapping[str, Any] | None = ...,
        max_supersteps: int | None = ...,
        include_status_events: bool = ...,
        tools: Any = ...,
        function_invocation_kwargs: Mapping[str, Any] | WorkflowInvocationKwargs | None = ...,
        client_kwargs: Mapping[str, Any] | WorkflowInvocationKwargs | None = ...,
    ) -> PendingRun: ...

    def run(
        self,
        message: Any = ABSENT,
        *,
        stream: bool = False,
        checkpoint: Checkpoint | None = None,
        responses: Mapping[str, Any] | None = None,
        input_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        max_supersteps: int | None = None,
        include_status_events: bool = False,
        tools: Any = None,
        function_invocation_kwargs: Mapping[str, Any] | WorkflowInvocationKwargs | None = None,
        client_kwargs: Mapping[str, Any] | WorkflowInvocationKwargs | None = None,
    ) -> PendingRun | WorkflowRunStream:
        """Run the workflow: start a turn, answer requests, or go on where it stopped.

        Nothing starts and no guard is taken before the first await or iteration. What the call
        means depends on the head of the checkpoint:

        - new: a message starts the first turn.
        - completed: a message starts the next turn on all retained state; no message returns the
          last turn's result again, and nothing runs.
        - paused on requests: `responses` are accepted and the run continues; no message reports the
          same requests again, and nothing runs.
        - unfinished: no message resumes with the same pending messages.

        Everything else is refused before any commit and before any handler. If the process dies,
        the head is the last boundary that was committed, and the superstep in flight happens again:
        recovery is at least once.

        Args:
            message: The input; `None` is a legal message, so absence is a value of its own.
            stream: Return a stream of events in place of an awaitable.
            checkpoint: The execution to continue; without it the run is independent, nothing is
                kept, nothing is encoded and no storage is touched.
            responses: Answers by request id; a subset may be given.
            input_id: The caller's name for this input; a delivery repeated under it acts once.
            metadata: Plain JSON up to 16 KiB, in the metadata of every snapshot of this input.
            max_supersteps: Stop at the boundary after so many supersteps of this call; with 0 the
                input is accepted and nothing runs.
            include_status_events: Keep status events in the result's list.
            tools: Tools for agents, for this call alone; never persisted.
            function_invocation_kwargs: Arguments for tools, for this call alone; never persisted. A
                mapping of them, one of executor id to such a mapping, or `WorkflowInvocationKwargs`.
            client_kwargs: Arguments for chat clients, given and treated in the same way.

        Returns:
            An awaitable of `WorkflowRunResult`, or a `WorkflowRunStream`.

        Raises:
            InvalidCallError: The arguments contradict each other.
            CallError: Raised at the await: the call does not fit the head, or the checkpoint is in use.
            GraphMismatchError: Raised at the await: the checkpoint belongs to another graph.
            CheckpointConflictError: Raised at the await: another writer moved the stored head.
        """
        if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
            raise InvalidCallError(
                f"checkpoint= takes a Checkpoint, got {type(checkpoint).__name__}. "
                "Make one with workflow.create_checkpoint(), or load one from its storage."
            )
        options = {
            "tools": tools,
            "function_invocation_kwargs": function_invocation_kwargs,
            "client_kwargs": client_kwargs,
        }
        check_options(options, self._graph.executors)
        request = RunRequest(
            message=message,
            responses=responses,
            input_id=input_id,
            metadata=metadata,
            max_supersteps=max_supersteps,
            streaming=stream,
            options={key: value for key, value in options.items() if value is not None},
        )
        call = Call(self._graph, request, checkpoint, STREAM_BUFFER if stream else None)
        if stream:
            return WorkflowRunStream(call, include_status_events=include_status_events)
        return PendingRun(call, include_status_events=include_status_events)


def _schema(types: list[Any]) -> dict[str, Any]:
    # As one union, so that the definitions all stand where the references look for them.
    return json_schema(Union[tuple(types)])  # noqa: UP007 - made of a list
