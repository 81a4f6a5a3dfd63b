"""Durable events as one pure function of a boundary and the boundary before it.

The live stream and later readings of a checkpoint use this same function, so that both tell the
same story. A boundary is seen through a small view that a run has at hand without decoding
anything, and that can be rebuilt from two stored snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from branchpoint.events import WorkflowEvent, WorkflowRunState

__all__ = ["BoundaryView", "OpenedRequest", "ProducedOutput", "durable_events"]


class ProducedOutput(msgspec.Struct, frozen=True):
    """An output that this boundary made durable."""

    executor_id: str
    output_id: str
    value: Any
    intermediate: bool = False


class OpenedRequest(msgspec.Struct, frozen=True):
    """A request for outside input that this boundary made durable."""

    request_id: str
    source_executor_id: str
    data: Any
    request_type: str | None = None
    response_type: str | None = None
    response_schema: Any = None
    path: tuple[str, ...] = ()


class BoundaryView(msgspec.Struct, frozen=True):
    """What one boundary added to the one before it."""

    status: str
    superstep: int
    completed_superstep: bool
    executors: Sequence[str] = ()
    outputs: Sequence[ProducedOutput] = ()
    requests: Sequence[OpenedRequest] = ()
    checkpoint_id: str | None = None
    snapshot_id: str | None = None
    input_id: str | None = None


def durable_events(view: BoundaryView) -> list[WorkflowEvent[Any]]:
    """Return the events this boundary made so, in the order every reader sees them.

    Without a snapshot (a run without a checkpoint) the same events come out as not durable.
    """
    return [_stamped(event, n, view) for n, event in enumerate(_bare(view))]


def _bare(view: BoundaryView) -> Iterator[WorkflowEvent[Any]]:
    for executor_id in view.executors:
        yield WorkflowEvent("executor_completed", executor_id=executor_id)
    for output in view.outputs:
        yield WorkflowEvent(
            "intermediate" if output.intermediate else "output",
            output.value,
            executor_id=output.executor_id,
            output_id=output.output_id,
        )
    for request in view.requests:
        yield request_event(request)
    if view.completed_superstep:
        yield WorkflowEvent("superstep_completed", iteration=view.superstep)
    if view.status != WorkflowRunState.IN_PROGRESS.value:
        yield WorkflowEvent("status", state=WorkflowRunState(view.status))


def request_event(request: OpenedRequest) -> WorkflowEvent[Any]:
    """Return the event that announces an open request."""
    return WorkflowEvent(
        "request_info",
        request.data,
        executor_id=request.source_executor_id,
        source_executor_id=request.source_executor_id,
        request_id=request.request_id,
        request_type=request.request_type,
        response_type=request.response_type,
        response_schema=request.response_schema,
        path=request.path,
    )


def _stamped(event: WorkflowEvent[Any], n: int, view: BoundaryView) -> WorkflowEvent[Any]:
    durable = view.snapshot_id is not None
    return msgspec.structs.replace(
        event,
        durable=durable,
        event_id=f"{view.snapshot_id}/{n}" if durable else None,
        checkpoint_id=view.checkpoint_id,
        snapshot_id=view.snapshot_id,
        input_id=view.input_id,
        superstep=view.superstep,
    )
