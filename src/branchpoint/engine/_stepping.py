"""Stepping a state from boundary to boundary: that of a run, and those of the child workflows inside, alike."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from branchpoint.checkpoint import BoundaryName, OpenedRequest
from branchpoint.codec import copy_value
from branchpoint.engine._cell import Cell
from branchpoint.engine._channel import Channel, Inside
from branchpoint.engine._nest import Nest
from branchpoint.engine._notes import note
from branchpoint.engine._options import options_inside
from branchpoint.engine._port import Origin
from branchpoint.engine._request import RunRequest
from branchpoint.engine._routing import route
from branchpoint.engine._share import Share
from branchpoint.engine._state import IDLE, IN_PROGRESS, RunState
from branchpoint.engine._superstep import Superstep
from branchpoint.engine._transitions import Done, finish_superstep, incomplete_joins, settle_status
from branchpoint.errors import ConvergenceError, EncodingError
from branchpoint.events import WorkflowEventType, instrumented, instruments
from branchpoint.graph import Executor

__all__ = ["Keeper", "Stepper", "open_requests"]


class Keeper(Protocol):
    """Has the boundaries of a state committed: for a run's own its hold, for a child's the parent."""

    def origin(self, state: RunState) -> Origin:
        """Return where the next superstep starts from."""
        ...

    async def commit(self, state: RunState, boundary: BoundaryName, done: Done | None = None) -> None:
        """Commit the boundary that the state is at, then tell what it made durable."""
        ...

    async def commit_inner(self, boundary: BoundaryName = "child_superstep_completed") -> None:
        """Commit the last boundary again, with what goes on inside the superstep as far as it has come."""
        ...


class Stepper(msgspec.Struct):
    """One state, the executors made for it, and the child workflows inside.

    Attributes:
        state: At a boundary, but while `superstep` applies what a superstep did.
        channel: Where events go.
        request: The call.
        keeper: Commits the boundaries.
        live: The run-scoped executors made so far.
        nests: What runs the children, by executor.
    """

    state: RunState
    channel: Channel | Inside
    request: RunRequest
    keeper: Keeper
    live: dict[str, Executor] = msgspec.field(default_factory=dict)
    nests: dict[str, Nest] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        for executor_id in self.state.graph.nesting:
            self.nests[executor_id] = Nest(self, executor_id)

    def inner(self, executor_id: str, state: RunState, keeper: Keeper) -> Stepper:
        """Return what steps an execution of a child."""
        request, executors = self.request, self.state.graph.executors
        if request.options:
            options = options_inside(executor_id, request.options, executors, state.graph.executors)
            request = msgspec.structs.replace(request, options=options)
        return Stepper(state, Inside(self.channel, executor_id), request, keeper)

    def check_bound(self) -> None:
        """Refuse a superstep beyond those that an input may take.

        Raises:
            ConvergenceError: The bound is reached.
        """
        state = self.state
        used = state.iteration - state.input_iteration
        if state.deliveries and used >= state.graph.max_iterations:
            raise ConvergenceError(
                f"Workflow {state.graph.name!r} ran {used} supersteps since its last input and is not done "
                f"({self.channel.where}, max_iterations={state.graph.max_iterations}). Its snapshots are kept: "
                "a workflow rebuilt with a larger max_iterations resumes it with run(checkpoint=...)."
            )

    async def superstep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run one superstep and have its boundary committed."""
        state = self.state
        self.channel.tell("superstep_started", iteration=state.iteration + 1)
        origin = self.keeper.origin(state)
        superstep = Superstep(
            state, self.live, origin, self.channel, self.request, loop, self.nests, self.keep_step
        )
        shares = await (self._instrumented(superstep) if instruments else superstep.run())
        routed = route(state.graph, shares, state.buffers, state.medium)
        for ended in routed.ended:
            text = f"a {ended.type_name} from executor {ended.source_id!r} went nowhere: {ended.why}"
            kind: WorkflowEventType = "warning" if ended.undeliverable else "message_ended"
            self.channel.tell(kind, text, executor_id=ended.source_id)
        try:
            done = finish_superstep(state, shares, routed)
        except Exception as error:  # a reducer's own, or two writers of one key
            note(error, f"superstep {state.iteration}, {self.channel.where}")
            raise
        if state.medium is not None:  # a one-shot run keeps none
            self._keep_executors(shares)
        settle_status(state)
        boundary: BoundaryName = "superstep_completed"
        if state.status != IN_PROGRESS:
            boundary = "completed" if state.status == IDLE else "paused"
            if state.status == IDLE:  # a turn that is over drops its half-filled joins, and says so
                self.tell_dropped(incomplete_joins(state))
        try:
            await self.keeper.commit(state, boundary, done)
        except EncodingError as error:
            self._name_makers(error, shares)
            raise

    async def _instrumented(self, superstep: Superstep) -> list[Share]:
        origin, at_all = superstep.origin, self.channel.checkpoint_id
        known = {
            "checkpoint_id": at_all,
            "superstep": superstep.state.iteration + 1,
            "parent_snapshot_id": None if at_all is None else origin.parent_key or None,
        }
        with instrumented("superstep", known):
            return await superstep.run()

    def tell_dropped(self, joins: Sequence[tuple[str, Sequence[str]]]) -> None:
        """Say which joins were dropped half filled."""
        for group_id, sources in joins:
            self.channel.tell("incomplete_join", {"edge": group_id, "received_from": sources})

    def _name_makers(self, error: EncodingError, shares: Sequence[Share]) -> None:
        """Note whose values cannot be kept; the path in the error says where they would stand."""
        state = self.state
        medium = state.medium
        for share in shares:
            cell = state.executors.get(share.executor_id)
            kept = cell is None or medium is None or medium.keeps(cell.value(medium))
            if not kept or share.holds_what_cannot_be_kept():
                where = self.channel.where
                note(error, f"executor {share.executor_id!r}, superstep {state.iteration}, {where}")

    def _keep_executors(self, shares: Sequence[Share]) -> None:
        """Take the declared state of the executors that ran."""
        state = self.state
        pending = {target for delivery in state.deliveries for target in delivery.targets}
        for share in shares:
            self.keep_executor(share.executor_id, share.saved)
            if (
                share.saved is not None
                and share.executor_id not in pending
                and share.executor_id not in self.nests
            ):
                state.executors[share.executor_id].spare()  # maybe it runs again in the next call

    async def keep_step(self, executor_id: str, fields: dict[str, Any]) -> None:
        """Commit the last boundary again, with the state that an executor has in the middle of the superstep."""
        self.keep_executor(executor_id, fields)
        await self.keeper.commit_inner("step_completed")

    def keep_executor(self, executor_id: str, fields: dict[str, Any] | None) -> None:
        """Take the state of one executor; None when there is nothing to keep."""
        state = self.state
        cell = state.executors.get(executor_id)
        if fields is None:
            if cell is not None:
                del state.executors[executor_id]
                state.changed = None
            return
        if cell is None:
            path = f"{state.at}executor_states.{executor_id}"
            cell = state.executors[executor_id] = Cell(path, state.depth)
        cell.set(fields, shared=True)
        if state.changed is not None:
            state.changed.add(executor_id)


def open_requests(state: RunState, only: Sequence[str] | None = None) -> list[OpenedRequest]:
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
