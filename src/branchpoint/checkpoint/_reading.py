"""What a checkpoint says without a workflow: status, open requests, outputs.

Nothing here needs a registered type, until a caller reads a value that is of one.
"""

from __future__ import annotations

from branchpoint.checkpoint._manifest import BoundaryName, Status
from branchpoint.checkpoint._records import EarlierInput, OutputRecord, PendingRequest
from branchpoint.checkpoint._shape import OpenedInput, open_messages, read_input
from branchpoint.checkpoint._snapshot import CheckpointSnapshot
from branchpoint.checkpoint._state import Summary
from branchpoint.checkpoint._stored import stored_state

__all__ = ["new_outputs", "outputs", "pending_requests", "status", "summary_again"]


def status(head: CheckpointSnapshot | None) -> Status | None:
    """Return the status at a head; None at the empty start."""
    return None if head is None else head.status


def pending_requests(head: CheckpointSnapshot | None) -> list[PendingRequest]:
    """Return the requests that are open at a head, in the order they were made."""
    if head is None or not head.manifest.requests:
        return []
    requests = open_messages(stored_state(head))["pending"].fields("deliveries", "requests")["requests"]
    return [PendingRequest(key, stored, head.snapshot_id) for key, stored in requests.entries().items()]


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


def new_outputs(snapshot: CheckpointSnapshot, earlier: CheckpointSnapshot | None) -> list[OutputRecord]:
    """Return what a snapshot holds as output and an earlier one does not.

    Compares the bytes of the records, so that a long history is not opened once more per snapshot.
    """
    earlier_ones = [] if earlier is None else open_messages(stored_state(earlier))["output"].items()
    known = {stored.encoded.data for stored in earlier_ones}
    found = open_messages(stored_state(snapshot))["output"].items()
    return [OutputRecord(stored) for stored in found if stored.encoded.data not in known]


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
