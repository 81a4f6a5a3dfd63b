"""The events of the past, told again from stored snapshots.

What a snapshot announces depends on that snapshot alone, so an event keeps its id whatever becomes of
the others.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from branchpoint.checkpoint._events import BoundaryView, OpenedRequest, ProducedOutput, durable_events
from branchpoint.checkpoint._history import History
from branchpoint.checkpoint._reading import outputs_made_in, requests_made_in
from branchpoint.checkpoint._records import OutputRecord, PendingRequest
from branchpoint.checkpoint._snapshot import CheckpointSnapshot
from branchpoint.checkpoint._stored import Stored
from branchpoint.errors import InvalidCallError
from branchpoint.events import WorkflowEvent

if TYPE_CHECKING:
    from branchpoint.checkpoint._checkpoint import Checkpoint

__all__ = ["Announced", "announced", "boundary_view", "told"]


class _Made(msgspec.Struct, frozen=True):
    """Records by their ids."""

    outputs: dict[str, Stored]
    requests: dict[str, Stored]

    @classmethod
    def of(cls, snapshot: CheckpointSnapshot, supersteps: Collection[int]) -> _Made:
        """Return what some supersteps made, as a snapshot holds it."""
        return cls(outputs_made_in(snapshot, supersteps), requests_made_in(snapshot, supersteps))

    @classmethod
    def by(cls, snapshot: CheckpointSnapshot) -> _Made:
        """Return what a snapshot's own superstep made; where nothing ran, nothing was made."""
        return cls.of(snapshot, (snapshot.superstep,) if snapshot.manifest.executors else ())


def boundary_view(snapshot: CheckpointSnapshot) -> BoundaryView:
    """Return what a snapshot added to those before it.

    Outputs and requests are those of the superstep that it completed. All that a fork took over, an
    edit wrote or a restart committed again happened elsewhere, or was not produced.
    """
    return _view(snapshot, _Made.by(snapshot))


def _view(snapshot: CheckpointSnapshot, made: _Made) -> BoundaryView:
    manifest = snapshot.manifest
    return BoundaryView(
        status=manifest.status,
        superstep=manifest.superstep,
        executors=manifest.executors,
        outputs=[_produced(OutputRecord(stored)) for stored in made.outputs.values()],
        requests=[_opened(PendingRequest(key, stored)) for key, stored in made.requests.items()],
        checkpoint_id=snapshot.checkpoint_id,
        snapshot_id=snapshot.snapshot_id,
        input_id=manifest.input_id,
    )


def _produced(record: OutputRecord) -> ProducedOutput:
    return ProducedOutput(record.executor_id, record.output_id, record.value, record.kind == "intermediate")


def _opened(request: PendingRequest) -> OpenedRequest:
    return OpenedRequest(
        request.request_id,
        request.source_executor_id,
        request.data,
        request.request_type,
        request.response_type,
        request.response_schema,
        request.path,
    )


def told(history: History, *, after: str | None, input_id: str | None) -> list[WorkflowEvent]:
    """Return the durable events on the way from the root to the selected head, oldest first.

    Raises:
        InvalidCallError: `after` is not the id of an event on this way. So it is when the snapshot of
            that event was pruned, since nothing is left to say which events came after it.
    """
    head = history.head()
    path = [] if head is None else history.ancestors(head.snapshot_id)[::-1]
    first, skipped = _place(after, path)
    events: list[WorkflowEvent] = []
    for index in range(first, len(path)):
        if input_id is None or path[index].input_id == input_id:
            found = durable_events(boundary_view(path[index]))
            events += found[skipped if index == first else 0 :]
    return events


class Announced(msgspec.Struct):
    """The durable events that once announced what a snapshot holds.

    Attributes:
        outputs: By output id.
        requests: By request id.
        status: That of the snapshot itself; None while work is unfinished.
    """

    outputs: dict[str, WorkflowEvent] = msgspec.field(default_factory=dict)
    requests: dict[str, WorkflowEvent] = msgspec.field(default_factory=dict)
    status: WorkflowEvent | None = None


async def announced(
    checkpoint: Checkpoint, at: CheckpointSnapshot, *, supersteps: Collection[int]
) -> Announced:
    """Return the events by which outputs, requests and the status that a snapshot holds were announced.

    They are the same that `told` gives, by the same function; only the snapshots that may have made one
    are looked into. What a fork brought with it was announced elsewhere, what an edit wrote was never
    announced, and what a pruned snapshot announced went with it: these are not among them.

    Args:
        checkpoint: Where it is; what a lazy storage left behind is fetched.
        at: The snapshot.
        supersteps: In which the outputs and requests were made.
    """
    await checkpoint.load_snapshot(at.snapshot_id)
    held = _Made.of(at, supersteps)
    found = Announced()
    if supersteps:
        await checkpoint.load_lineage()
    for snapshot in reversed(checkpoint.ancestors(at.snapshot_id) if supersteps else [at]):
        is_last = snapshot.snapshot_id == at.snapshot_id
        if not (is_last or (snapshot.superstep in supersteps and snapshot.manifest.executors)):
            continue
        await checkpoint.load_snapshot(snapshot.snapshot_id)
        made = _Made.by(snapshot)
        for event in durable_events(_view(snapshot, made)):
            if event.output_id is not None:
                if _is_same(event.output_id, made.outputs, held.outputs):
                    found.outputs[event.output_id] = event
            elif event.request_id is not None:
                if _is_same(event.request_id, made.requests, held.requests):
                    found.requests[event.request_id] = event
            elif event.type == "status" and is_last:
                found.status = event
    return found


def _is_same(key: str, made: dict[str, Stored], held: dict[str, Stored]) -> bool:
    """Say whether a record is still what it was when it was made: an edit may have changed it."""
    return key in held and _spelled(made[key]) == _spelled(held[key])


def _spelled(stored: Stored) -> bytes:
    """Return what equal values have in common, wherever they are cut into parts."""
    return msgspec.json.encode(stored.plain())


def _place(after: str | None, path: list[CheckpointSnapshot]) -> tuple[int, int]:
    if after is None:
        return 0, 0
    if type(after) is not str:
        raise InvalidCallError(f"after is the `event_id` of an event, a text, not {type(after).__name__}")
    snapshot_id, _, number = after.rpartition("/")
    for index, snapshot in enumerate(path):
        if snapshot.snapshot_id == snapshot_id and number.isascii() and number.isdigit():
            return index, int(number) + 1
    raise InvalidCallError(
        f"{ascii(after)[:80]} is not the id of an event on the way to the selected head: its snapshot was pruned, "
        "or is on another branch. Read from the start; events that are still there have the ids they had"
    )
