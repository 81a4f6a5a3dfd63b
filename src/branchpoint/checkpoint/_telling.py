"""The events of the past, told again from stored snapshots."""

from __future__ import annotations

from branchpoint.checkpoint._events import BoundaryView, OpenedRequest, ProducedOutput, durable_events
from branchpoint.checkpoint._history import History
from branchpoint.checkpoint._reading import new_outputs, pending_requests
from branchpoint.checkpoint._snapshot import CheckpointSnapshot
from branchpoint.errors import InvalidCallError
from branchpoint.events import WorkflowEvent

__all__ = ["boundary_view", "told"]


def boundary_view(snapshot: CheckpointSnapshot, before: CheckpointSnapshot | None) -> BoundaryView:
    """Return what a snapshot added to the retained snapshot before it.

    The root of a fork adds nothing: what it holds happened elsewhere.
    """
    earlier = snapshot if snapshot.forked_from is not None else before
    known_requests = set(earlier.manifest.requests) if earlier is not None else set()
    manifest = snapshot.manifest
    return BoundaryView(
        status=manifest.status,
        superstep=manifest.superstep,
        completed_superstep=manifest.superstep > (earlier.superstep if earlier is not None else 0),
        executors=manifest.executors,
        outputs=[
            ProducedOutput(record.executor_id, record.output_id, record.value, record.kind == "intermediate")
            for record in new_outputs(snapshot, earlier)
        ],
        requests=[
            OpenedRequest(
                request.request_id,
                request.source_executor_id,
                request.data,
                request.request_type,
                request.response_type,
                request.response_schema,
                request.path,
            )
            for request in pending_requests(snapshot)
            if request.request_id not in known_requests
        ],
        checkpoint_id=snapshot.checkpoint_id,
        snapshot_id=snapshot.snapshot_id,
        input_id=manifest.input_id,
    )


def told(history: History, *, after: str | None, input_id: str | None) -> list[WorkflowEvent]:
    """Return the durable events on the way from the root to the selected head, oldest first.

    Raises:
        InvalidCallError: `after` is not the id of an event on this way.
    """
    head = history.head()
    path = [] if head is None else history.ancestors(head.snapshot_id)[::-1]
    first, skipped = _place(after, path)
    events: list[WorkflowEvent] = []
    for index in range(first, len(path)):
        if input_id is None or path[index].input_id == input_id:
            found = durable_events(boundary_view(path[index], path[index - 1] if index else None))
            events += found[skipped if index == first else 0 :]
    return events


def _place(after: str | None, path: list[CheckpointSnapshot]) -> tuple[int, int]:
    if after is None:
        return 0, 0
    snapshot_id, _, number = after.rpartition("/")
    for index, snapshot in enumerate(path):
        if snapshot.snapshot_id == snapshot_id and number.isascii() and number.isdigit():
            return index, int(number) + 1
    raise InvalidCallError(
        f"{ascii(after)[:80]} is not the id of an event on the way to the selected head; read from the start"
    )
