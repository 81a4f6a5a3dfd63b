"""Durable events as one pure function of a boundary.

The live stream and later readings of a checkpoint use this same function, so that both tell the
same story. A boundary is seen through a small view that a run has at hand without decoding
anything, and that can be rebuilt from the stored snapshot alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from branchpoint.events import WorkflowEvent, WorkflowEventType, WorkflowRunState

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
    """What one boundary did.

    Only a superstep has executors, and only one with executors has outputs and requests of its own.
    """

    status: str
    superstep: int
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
    told: list[WorkflowEvent[Any]] = []
    at, input_id, superstep, snapshot_id = (
        view.checkpoint_id,
        view.input_id,
        view.superstep,
        view.snapshot_id,
    )
    durable = snapshot_id is not None

    # These two come with every superstep, so they are made in one go.
    for name in view.executors:
        told.append(
            WorkflowEvent(
                "executor_completed",
                executor_id=name,
                durable=durable,
                event_id=f"{snapshot_id}/{len(told)}" if durable else None,
                checkpoint_id=at,
                snapshot_id=snapshot_id,
                input_id=input_id,
                superstep=superstep,
            )
        )
    for output in view.outputs:
        kind: WorkflowEventType = "intermediate" if output.intermediate else "output"
        made: WorkflowEvent[Any] = WorkflowEvent(
            kind, output.value, executor_id=output.executor_id, output_id=output.output_id
        )
        told.append(_stamped(made, view, len(told)))
    for request in view.requests:
        told.append(_stamped(request_event(request), view, len(told)))
    if view.executors:
        told.append(
            WorkflowEvent(
                "superstep_completed",
                iteration=superstep,
                durable=durable,
                event_id=f"{snapshot_id}/{len(told)}" if durable else None,
                checkpoint_id=at,
                snapshot_id=snapshot_id,
                input_id=input_id,
                superstep=superstep,
            )
        )
    if view.status != _IN_PROGRESS:
        status: WorkflowEvent[Any] = WorkflowEvent("status", state=WorkflowRunState(view.status))
        told.append(_stamped(status, view, len(told)))
    return told


def _stamped(event: WorkflowEvent[Any], view: BoundaryView, n: int) -> WorkflowEvent[Any]:
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


_IN_PROGRESS: Final = WorkflowRunState.IN_PROGRESS.value


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
