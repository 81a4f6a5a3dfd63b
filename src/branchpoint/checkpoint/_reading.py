"""What a checkpoint says without a workflow: status, open requests, outputs.

Nothing here needs a registered type, until a caller reads a value that is of one.
"""

from __future__ import annotations

from collections.abc import Collection

from branchpoint.checkpoint._manifest import BoundaryName, Status
from branchpoint.checkpoint._records import EarlierInput, OutputRecord, PendingRequest
from branchpoint.checkpoint._shape import OpenedInput, open_messages, read_input
from branchpoint.checkpoint._snapshot import CheckpointSnapshot
from branchpoint.checkpoint._state import Summary
from branchpoint.checkpoint._stored import Stored, stored_state

__all__ = ["outputs", "outputs_made_in", "pending_requests", "requests_made_in", "status", "summary_again"]


def status(head: CheckpointSnapshot | None) -> Status | None:
    """Return the status at a head; None at the empty start."""
    return None if head is None else head.status


def pending_requests(head: CheckpointSnapshot | None) -> list[PendingRequest]:
    """Return the requests that are open at a head, in the order they were made."""
    if head is None:
        return []
    return [PendingRequest(key, stored, head.snapshot_id) for key, stored in _open_requests(head).items()]


def outputs(head: CheckpointSnapshot | None, input_id: str | None = None) -> list[OutputRecord]:
    """Return what was produced up to a head; with an input id, in the turn of that input alone."""
    if head is None:
        return []
    messages = open_messages(stored_state(head))
    records = [OutputRecord(stored) for stored in messages["output"].items()]
    if input_id is None:
        return records
    turn = _turn_of(read_input(messages["input"]), input_id)
    return [] if turn is None else [record for record in records if record.turn == turn]


def outputs_made_in(snapshot: CheckpointSnapshot, supersteps: Collection[int]) -> dict[str, Stored]:
    """Return the records of what some supersteps produced, as a snapshot holds them, by output id.

    Outputs are only ever added, so those of earlier supersteps are not looked into.
    """
    found: list[tuple[str, Stored]] = []
    if supersteps:
        first = min(supersteps)
        for stored in reversed(open_messages(stored_state(snapshot))["output"].items()):
            record = OutputRecord(stored)
            if record.superstep < first:
                break
            if record.superstep in supersteps:
                found.append((record.output_id, stored))
    return dict(reversed(found))


def requests_made_in(snapshot: CheckpointSnapshot, supersteps: Collection[int]) -> dict[str, Stored]:
    """Return the records of what some supersteps asked and is open at a snapshot, by request id."""
    if not supersteps:
        return {}
    found = _open_requests(snapshot)
    return {
        key: stored for key, stored in found.items() if PendingRequest(key, stored).superstep in supersteps
    }


def _open_requests(snapshot: CheckpointSnapshot) -> dict[str, Stored]:
    if not snapshot.manifest.requests:
        return {}
    pending = open_messages(stored_state(snapshot))["pending"]
    return pending.fields("deliveries", "requests")["requests"].entries()


def _turn_of(accepted: OpenedInput | None, input_id: str) -> int | None:
    if accepted is None:
        return None
    if accepted.input_id == input_id:
        return accepted.turn
    earlier = (EarlierInput.read(stored) for stored in accepted.earlier)
    return next((record.turn for record in earlier if record.input_id == input_id), None)


def summary_again(snapshot: CheckpointSnapshot, boundary: BoundaryName) -> Summary:
    """Return the summary of a snapshot's state committed once more under another boundary's name."""
    found = snapshot.manifest
    return Summary(boundary, found.status, found.superstep, found.input_id, found.requests)
