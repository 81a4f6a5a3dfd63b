"""The one thin driver: it awaits and commits; everything it decides is decided elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from branchpoint import ids
from branchpoint.checkpoint import (
    BoundaryView,
    Checkpoint,
    Hold,
    OpenedRequest,
    ProducedOutput,
    Summary,
    copy_metadata,
    durable_events,
    request_event,
)
from branchpoint.codec import copy_value
from branchpoint.engine._admission import Answer, Begin, Report, Resume, admit, check_input
from branchpoint.engine._cell import Cell
from branchpoint.engine._channel import Channel
from branchpoint.engine._notes import note
from branchpoint.engine._opening import open_state
from branchpoint.engine._port import Origin
from branchpoint.engine._request import ABSENT, RunRequest
from branchpoint.engine._routing import route
from branchpoint.engine._share import Share
from branchpoint.engine._state import IDLE, PAUSED, RunState
from branchpoint.engine._superstep import Superstep
from branchpoint.engine._transitions import (
    accept_answers,
    accept_message,
    finish_superstep,
    incomplete_joins,
    settle_status,
)
from branchpoint.errors import (
    ConvergenceError,
    DataError,
    EncodingError,
    InvalidCallError,
    SnapshotNotFoundError,
)
from branchpoint.events import WorkflowErrorDetails, WorkflowEvent, WorkflowEventType, WorkflowRunState
from branchpoint.graph import Executor, Graph, explain_difference

__all__ = ["Finished", "Runner"]


class Finished(msgspec.Struct, frozen=True):
    """How a call ended.

    Attributes:
        status: The status of the head.
        outputs: The records of the turn's outputs, oldest first; the reader's own.
        requests: What is open.
        input_id: The last accepted input.
    """

    status: WorkflowRunState
    outputs: list[dict[str, Any]]
    requests: list[OpenedRequest]
    input_id: str | None


class Runner(msgspec.Struct):
    """One call of `run()`: made for it, hydrated from the head, and thrown away after it.

    Attributes:
        graph: The definition; never changed.
        request: The call.
        channel: Where events go.
        checkpoint: The caller's checkpoint, or None for a one-shot run.
        hold: The right to commit on it.
    """

    graph: Graph
    request: RunRequest
    channel: Channel
    checkpoint: Checkpoint | None = None
    hold: Hold | None = None
    live: dict[str, Executor] = msgspec.field(default_factory=dict)
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    run_key: str = ""

    async def run(self) -> Finished:
        """Do what the call means and return how it ended.

        Raises:
            BranchpointError: The call was refused before anything was committed, a commit failed, or
                the engine's own rules were broken in a superstep.
            Exception: What a handler or a condition raised.
        """
        try:
            return await self._run()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._say_where(error)
            details = WorkflowErrorDetails.from_exception(error)
            self._emit(WorkflowEvent("failed", details=details, state=WorkflowRunState.FAILED))
            raise

    def _say_where(self, error: BaseException) -> None:
        """Note which checkpoint an error about a value speaks of; the path in it is one inside a state."""
        where = self.channel.where
        if isinstance(error, DataError | EncodingError):
            said = (str(error), *getattr(error, "__notes__", ()))
            if not any(where in text for text in said):
                note(error, where)

    async def _run(self) -> Finished:
        if self.checkpoint is not None and (head := self.checkpoint.head_snapshot) and not head.is_loaded:
            await self.checkpoint.load_snapshot(head.snapshot_id)
        state = self._opened()
        self.channel.superstep = state.iteration
        plan = admit(state, self.request, self.channel.where) if self.checkpoint else self._one_shot()
        if isinstance(plan, Report):
            return await self._report(state, plan)
        self._emit(WorkflowEvent("started"))
        self._emit(WorkflowEvent("status", state=WorkflowRunState.IN_PROGRESS))
        if isinstance(plan, Resume):
            await self._resume(state)
        else:
            await self._accept(state, plan)
        await self._supersteps(state)
        return self._finished(state)

    def _opened(self) -> RunState:
        checkpoint = self.checkpoint
        if checkpoint is None:
            self.run_key = ids.new_id()
            return RunState(self.graph, None)
        self.run_key = checkpoint.checkpoint_id
        graph = self.graph
        checkpoint.verify_graph(
            workflow_name=graph.name or "",
            graph_signature_hash=graph.signature_hash,
            signature=graph.signature,
            explain=explain_difference,
        )
        return open_state(self.graph, checkpoint, checkpoint.head_snapshot)

    def _one_shot(self) -> Begin:
        if self.request.responses is not None:
            raise InvalidCallError(
                "run(responses=...) needs checkpoint=: only a checkpoint keeps requests to answer."
            )
        if self.request.message is ABSENT:
            raise InvalidCallError(
                "run() got neither a message nor a checkpoint, so there is nothing to run."
            )
        check_input(self.graph, self.request.message)
        return Begin(copy_value(self.request.message, path="messages.input.value"))

    async def _accept(self, state: RunState, plan: Begin | Answer) -> None:
        input_id = self.request.input_id or ids.new_id()
        self.channel.input_id = input_id
        self.metadata = copy_metadata(self.request.metadata)
        if isinstance(plan, Begin):
            accept_message(state, plan.message, input_id)
            await self._commit(state, "input_accepted")
        else:
            accept_answers(state, plan.responses, input_id, plan.digest)
            await self._commit(state, "responses_accepted")

    async def _resume(self, state: RunState) -> None:
        checkpoint, hold = self.checkpoint, self.hold
        assert checkpoint is not None and hold is not None
        self.channel.input_id = state.input_id
        self.metadata = self._head_metadata()
        if self.request.max_supersteps != 0:
            self._check_bound(state)
            if checkpoint.head_snapshot_id != checkpoint.stored_head_snapshot_id:
                await self._commit(state, "restarted", same=True)
            else:
                await checkpoint.check_head()
        for request in self._open_requests(state):
            self._emit(request_event(request))

    def _head_metadata(self) -> dict[str, Any]:
        assert self.checkpoint is not None
        head = self.checkpoint.head_snapshot
        metadata = dict(head.metadata) if head is not None else {}
        metadata.pop("boundary", None)
        return metadata

    async def _supersteps(self, state: RunState) -> None:
        done = 0
        while state.deliveries:
            if done == self.request.max_supersteps:
                return
            self._check_bound(state)
            await self._superstep(state)
            done += 1
            await self.channel.drain()

    def _check_bound(self, state: RunState) -> None:
        used = state.iteration - state.input_iteration
        if state.deliveries and used >= self.graph.max_iterations:
            raise ConvergenceError(
                f"Workflow {self.graph.name!r} ran {used} supersteps since its last input and is not done "
                f"({self.channel.where}, max_iterations={self.graph.max_iterations}). Its snapshots are kept: "
                "a workflow rebuilt with a larger max_iterations resumes it with run(checkpoint=...)."
            )

    async def _superstep(self, state: RunState) -> None:
        self._emit(WorkflowEvent("superstep_started", iteration=state.iteration + 1))
        shares = await Superstep(state, self.live, self._origin(state), self.channel, self.request).run()
        routed = route(self.graph, shares, state.buffers, state.medium)
        for ended in routed.ended:
            text = f"a {ended.type_name} from executor {ended.source_id!r} went nowhere: {ended.why}"
            kind: WorkflowEventType = "warning" if ended.undeliverable else "message_ended"
            self._emit(WorkflowEvent(kind, text, executor_id=ended.source_id))
        before = len(state.outputs)
        try:
            finish_superstep(state, shares, routed)
        except Exception as error:  # a reducer's own, or two writers of one key
            note(error, f"superstep {state.iteration}, {self.channel.where}")
            raise
        self._keep_executors(state, shares)
        settle_status(state)
        if state.status == IDLE:
            for group_id, sources in incomplete_joins(state):
                data = {"edge": group_id, "received_from": sources}
                self._emit(WorkflowEvent("incomplete_join", data))
        boundary = {IDLE: "completed", PAUSED: "paused"}.get(state.status, "superstep_completed")
        opened = [asked.request_id for share in shares for asked in share.asked]
        try:
            await self._commit(
                state,
                boundary,
                executors=[share.executor_id for share in shares],
                outputs=[_produced(output.read(state.medium)) for output in state.outputs[before:]],
                requests=self._open_requests(state, opened),
            )
        except EncodingError as error:
            self._name_makers(error, state, shares)
            raise
        if state.status == PAUSED and self.checkpoint is None:
            text = "the run stopped at a request; only a run with a checkpoint can be answered"
            self._emit(WorkflowEvent("warning", text))

    def _name_makers(self, error: EncodingError, state: RunState, shares: Sequence[Share]) -> None:
        """Note whose values cannot be kept; the path in the error says where they would stand."""
        medium = state.medium
        for share in shares:
            cell = state.executors.get(share.executor_id)
            kept = cell is None or medium is None or medium.keeps(cell.value(medium))
            if not kept or share.holds_what_cannot_be_kept():
                where = self.channel.where
                note(error, f"executor {share.executor_id!r}, superstep {state.iteration}, {where}")

    def _origin(self, state: RunState) -> Origin:
        head = self.checkpoint.head_snapshot_id if self.checkpoint is not None else str(state.iteration)
        return Origin(self.run_key, head or "", self.channel.input_id, self.metadata, self.request.streaming)

    def _keep_executors(self, state: RunState, shares: Sequence[Share]) -> None:
        """Take the declared state of the executors that ran; a one-shot run keeps none."""
        if state.medium is None:
            return
        for share in shares:
            fields = share.saved
            cell = state.executors.get(share.executor_id)
            if fields is None:
                state.executors.pop(share.executor_id, None)
            elif cell is None:
                state.executors[share.executor_id] = Cell(
                    f"executor_states.{share.executor_id}", 2, live=fields
                )
            else:
                cell.set(fields)

    async def _commit(
        self,
        state: RunState,
        boundary: Any,
        *,
        executors: Sequence[str] = (),
        outputs: Sequence[ProducedOutput] = (),
        requests: Sequence[OpenedRequest] = (),
        same: bool = False,
    ) -> None:
        """Commit the boundary, then tell what it made durable."""
        snapshot_id = None
        if self.hold is not None:
            summary = Summary(
                boundary=boundary,
                status=state.status,  # type: ignore[arg-type]
                superstep=state.iteration,
                input_id=state.input_id,
                requests=tuple(state.requests),
                executors=tuple(executors),
            )
            snapshot = await self.hold.commit_snapshot(
                state=None if same else state.export(), metadata=self.metadata, summary=summary
            )
            snapshot_id = snapshot.snapshot_id
        self.channel.superstep = state.iteration
        view = BoundaryView(
            status=state.status,
            superstep=state.iteration,
            completed_superstep=bool(executors),
            executors=executors,
            outputs=outputs,
            requests=requests,
            checkpoint_id=self.channel.checkpoint_id,
            snapshot_id=snapshot_id,
            input_id=state.input_id,
        )
        for event in durable_events(view):
            self.channel.put(event)

    async def _report(self, state: RunState, plan: Report) -> Finished:
        """Tell again what a head that needs no run already holds."""
        if plan.input_id is not None and plan.input_id != state.input_id:
            state = await self._recorded(state, plan.input_id)
        self.channel.input_id = state.input_id
        for record in state.turn_outputs():
            output = _produced(record)
            kind: WorkflowEventType = "intermediate" if output.intermediate else "output"
            self._emit(
                WorkflowEvent(kind, output.value, executor_id=output.executor_id, output_id=output.output_id)
            )
        if state.status == PAUSED:
            for request in self._open_requests(state):
                self._emit(request_event(request))
        self._emit(WorkflowEvent("status", state=WorkflowRunState(state.status)))
        return self._finished(state)

    async def _recorded(self, state: RunState, input_id: str) -> RunState:
        """Return the state in which the lineage left an earlier input."""
        checkpoint = self.checkpoint
        assert checkpoint is not None
        for snapshot in checkpoint.ancestors():
            if snapshot.input_id == input_id:
                await checkpoint.load_snapshot(snapshot.snapshot_id)
                return open_state(self.graph, checkpoint, snapshot)
        raise SnapshotNotFoundError(
            f"{self.channel.where} accepted input {input_id!r} before, and its snapshots were pruned, so its result "
            "cannot be told again. It does not act a second time; outputs of all turns are in checkpoint.outputs()."
        )

    def _emit(self, event: WorkflowEvent[Any]) -> None:
        self.channel.put(self.channel.stamp(event))

    def _open_requests(self, state: RunState, only: Sequence[str] | None = None) -> list[OpenedRequest]:
        """Return the open requests, the reader's own; of `only` these, so that no other one is copied."""
        opened = []
        for key in state.requests if only is None else only:
            record = copy_value(state.requests[key].read(state.medium))
            opened.append(
                OpenedRequest(
                    key,
                    record["source_executor_id"],
                    record["data"],
                    record["request_type"],
                    record["response_type"],
                    record["response_schema"],
                    tuple(record["path"]),
                )
            )
        return opened

    def _finished(self, state: RunState) -> Finished:
        return Finished(
            WorkflowRunState(state.status),
            copy_value(state.turn_outputs()),
            self._open_requests(state),
            state.input_id,
        )


def _produced(record: dict[str, Any]) -> ProducedOutput:
    return ProducedOutput(
        record["executor_id"],
        record["output_id"],
        copy_value(record["value"]),
        record.get("kind") == "intermediate",
    )
