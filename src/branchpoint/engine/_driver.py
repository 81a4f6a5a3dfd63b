"""The one thin driver: it awaits and commits; everything it decides is decided elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import msgspec

from branchpoint import ids
from branchpoint.checkpoint import (
    Announced,
    BoundaryName,
    BoundaryView,
    Checkpoint,
    CheckpointSnapshot,
    Hold,
    OpenedRequest,
    ProducedOutput,
    Summary,
    announced,
    copy_metadata,
    durable_events,
    request_event,
)
from branchpoint.codec import copy_value
from branchpoint.engine._admission import Answer, Begin, Report, Resume, admit, check_input
from branchpoint.engine._channel import Channel
from branchpoint.engine._notes import note
from branchpoint.engine._opening import open_state
from branchpoint.engine._port import Origin
from branchpoint.engine._recorded import recorded
from branchpoint.engine._request import ABSENT, RunRequest
from branchpoint.engine._state import PAUSED, RunState
from branchpoint.engine._stepping import Stepper, open_requests
from branchpoint.engine._stopping import asked_to_end
from branchpoint.engine._transitions import (
    Done,
    accept_answers,
    accept_message,
)
from branchpoint.errors import (
    DataError,
    EncodingError,
    HandlerError,
    InvalidCallError,
)
from branchpoint.events import (
    WorkflowErrorDetails,
    WorkflowEvent,
    WorkflowEventType,
    WorkflowRunState,
    instrumented,
    instruments,
)
from branchpoint.graph import Graph, explain_difference

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
        state: What is run, once it is opened.
        turns: Lets one commit of a child be made at a time.
        metadata: Of the input.
        run_key: What keys of this run derive from.
    """

    graph: Graph
    request: RunRequest
    channel: Channel
    checkpoint: Checkpoint | None = None
    hold: Hold | None = None
    state: RunState | None = None
    turns: asyncio.Lock | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    run_key: str = ""

    def run(self) -> Coroutine[Any, Any, Finished]:
        """Do what the call means and return how it ended.

        Raises:
            BranchpointError: The call was refused before anything was committed, a commit failed, or
                the engine's own rules were broken in a superstep.
            Exception: What a handler or a condition raised.
        """
        return self._watched() if instruments else self._unwatched()

    async def _watched(self) -> Finished:
        channel = self.channel
        known = {
            "workflow_name": self.graph.name,
            "checkpoint_id": channel.checkpoint_id,
            "input_id": self.request.input_id,
            "stream": self.request.streaming,
            "status": None,
        }
        with instrumented("run", known) as info:
            status = WorkflowRunState.FAILED
            try:
                finished = await self._unwatched()
                status = finished.status
                return finished
            except asyncio.CancelledError:
                status = WorkflowRunState.CANCELLED
                raise
            finally:
                info["status"] = status.value
                info["input_id"] = channel.input_id or self.request.input_id

    async def _unwatched(self) -> Finished:
        try:
            try:
                return await self._run()
            except asyncio.CancelledError as error:
                if asked_to_end():
                    raise
                # Its caller must not take it for a cancellation of his own.
                raise _uncalled_for(self.channel.where) from error
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._say_where(error)
            details = WorkflowErrorDetails.from_exception(error)
            self.channel.tell("failed", details=details, state=WorkflowRunState.FAILED)
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
        self.state = state = self._opened()
        self.channel.superstep = state.iteration
        plan = admit(state, self.request, self.channel.where) if self.checkpoint else self._one_shot()
        if isinstance(plan, Report):
            return await self._report(state, plan)
        if self.hold is not None:
            self.hold.rest(None)
        self.channel.tell("started")
        self.channel.tell("status", state=WorkflowRunState.IN_PROGRESS)
        stepper = Stepper(state, self.channel, self.request, self)
        if isinstance(plan, Resume):
            await self._resume(stepper)
        else:
            await self._accept(stepper, plan)
        await self._supersteps(stepper)
        finished = self._finished(state)
        if self.hold is not None and not state.deliveries:
            state.rest()
            self.hold.rest(state)
        return finished

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
        rested = None if self.hold is None else self.hold.rested()
        if isinstance(rested, RunState) and rested.graph is graph:
            return rested  # what the last run left is what the head says
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

    async def _accept(self, stepper: Stepper, plan: Begin | Answer) -> None:
        state = stepper.state
        input_id = self.request.input_id or ids.new_id()
        self.channel.input_id = input_id
        self.metadata = copy_metadata(self.request.metadata)
        if isinstance(plan, Begin):
            stepper.tell_dropped(accept_message(state, plan.message, input_id))
            await self.commit(state, "input_accepted")
        else:
            accept_answers(state, plan.responses, input_id, plan.digest)
            await self.commit(state, "responses_accepted")

    async def _resume(self, stepper: Stepper) -> None:
        state, checkpoint = stepper.state, self.checkpoint
        assert checkpoint is not None
        self.channel.input_id = state.input_id
        self.metadata = self._head_metadata()
        if self.request.max_supersteps != 0:
            stepper.check_bound()
            if checkpoint.head_snapshot_id != checkpoint.stored_head_snapshot_id:
                await self.commit(state, "restarted", same=True)
                state.began = ""  # it begins here
            else:
                await checkpoint.check_head()
        head = checkpoint.head_snapshot
        if state.requests and head is not None:
            before = await announced(checkpoint, head, supersteps=_asked_in(state))
            for request in open_requests(state):
                self._tell_again(before.requests.get(request.request_id), request_event(request))

    def _head_metadata(self) -> dict[str, Any]:
        assert self.checkpoint is not None
        head = self.checkpoint.head_snapshot
        metadata = dict(head.metadata) if head is not None else {}
        metadata.pop("boundary", None)
        return metadata

    async def _supersteps(self, stepper: Stepper) -> None:
        loop = asyncio.get_running_loop()
        state = stepper.state
        done = 0
        while state.deliveries:
            if done == self.request.max_supersteps:
                return
            stepper.check_bound()
            await stepper.superstep(loop)
            done += 1
            if self.channel.is_full:
                await self.channel.drain()

    def origin(self, state: RunState) -> Origin:
        """Return where the next superstep starts from."""
        head = self.checkpoint.head_snapshot_id if self.checkpoint is not None else str(state.iteration)
        return Origin(
            self.run_key,
            state.began or head or "",
            state.iteration + 1,
            self.channel.input_id,
            self.metadata,
            self.request.streaming,
            state.turn,
        )

    async def commit(
        self, state: RunState, boundary: BoundaryName, done: Done | None = None, *, same: bool = False
    ) -> None:
        """Commit the boundary, then tell what it made durable."""
        snapshot_id = None
        made = done or _NOTHING
        if self.hold is not None:
            snapshot = await self._keep(self.hold, state, boundary, made.executors, same=same)
            snapshot_id = snapshot.snapshot_id
        self.channel.superstep = state.iteration
        view = BoundaryView(
            status=state.status,
            superstep=state.iteration,
            executors=made.executors,
            outputs=[_produced(output.read(state.medium)) for output in made.outputs] if made.outputs else (),
            requests=open_requests(state, made.asked) if made.asked else (),
            checkpoint_id=self.channel.checkpoint_id,
            snapshot_id=snapshot_id,
            input_id=state.input_id,
        )
        self.channel.put_all(durable_events(view))
        if state.status == PAUSED and self.checkpoint is None:
            text = "the run stopped at a request; only a run with a checkpoint can be answered"
            self.channel.tell("warning", text)

    async def commit_inner(self, boundary: BoundaryName = "child_superstep_completed") -> None:
        """Commit the last boundary again, with what goes on inside the superstep as far as it has come.

        Those of one superstep may come at once; they are taken one after the other.
        """
        state = self.state
        assert self.hold is not None and self.checkpoint is not None and state is not None
        if self.turns is None:
            self.turns = asyncio.Lock()
        async with self.turns:
            state.began = state.began or self.checkpoint.head_snapshot_id or ""
            await self._keep(self.hold, state, boundary)

    async def _keep(
        self,
        hold: Hold,
        state: RunState,
        boundary: BoundaryName,
        executors: Sequence[str] = (),
        *,
        same: bool = False,
    ) -> CheckpointSnapshot:
        summary = Summary(
            boundary=boundary,
            status=state.status,  # type: ignore[arg-type]
            superstep=state.iteration,
            input_id=state.input_id,
            requests=tuple(state.requests),
            executors=tuple(executors),
        )
        return await hold.commit_snapshot(
            state=None if same else state.export(), metadata=self.metadata, summary=summary
        )

    async def _report(self, state: RunState, plan: Report) -> Finished:
        """Tell again what a head that needs no run already holds, by the events that announced it."""
        checkpoint = self.checkpoint
        assert checkpoint is not None
        at = head = checkpoint.head_snapshot
        if plan.input_id is not None:
            state, at = await recorded(checkpoint, state, plan.input_id, self.channel.where)
        self.channel.input_id = plan.input_id or state.input_id
        self.channel.superstep = state.iteration
        records = state.turn_outputs()
        asked = state.requests if state.status == PAUSED else ()
        supersteps = {record["superstep"] for record in records}
        before = Announced()
        if (holder := at or head) is not None:
            asked_in = _asked_in(state) if asked else ()
            before = await announced(checkpoint, holder, supersteps=supersteps.union(asked_in))
        for record in records:
            output = _produced(record)
            kind: WorkflowEventType = "intermediate" if output.intermediate else "output"
            self._tell_again(
                before.outputs.get(output.output_id),
                WorkflowEvent(kind, output.value, executor_id=output.executor_id, output_id=output.output_id),
            )
        for request in open_requests(state, list(asked)):
            self._tell_again(before.requests.get(request.request_id), request_event(request))
        ended = before.status if at is not None else None  # the holder is a later one otherwise
        self._tell_again(ended, WorkflowEvent("status", state=WorkflowRunState(state.status)))
        return self._finished(state)

    def _tell_again(self, before: WorkflowEvent[Any] | None, anew: WorkflowEvent[Any]) -> None:
        """Tell what an earlier commit made durable by its own event, and anew what has none."""
        self.channel.put(before or self.channel.stamp(anew))

    def _finished(self, state: RunState) -> Finished:
        return Finished(
            WorkflowRunState(state.status),
            copy_value(state.turn_outputs()),
            open_requests(state),
            self.channel.input_id,
        )


_NOTHING: Final = Done([], [], [])


def _asked_in(state: RunState) -> set[int]:
    """Return the supersteps that asked what is open."""
    return {request.read(state.medium)["superstep"] for request in state.requests.values()}


def _uncalled_for(where: str) -> HandlerError:
    return HandlerError(
        f"Code that runs inside of {where} (a handler, a reducer, a copy or encoder of a value, its storage) raised "
        "CancelledError, or cancelled the task it ran in, although nobody cancelled the run. Let it raise an "
        "exception of its own, or catch what it awaits."
    )


def _produced(record: dict[str, Any]) -> ProducedOutput:
    return ProducedOutput(
        record["executor_id"],
        record["output_id"],
        copy_value(record["value"]),
        record.get("kind") == "intermediate",
    )
