"""Giving up unfinished work: where it goes back to, and the state that is left."""

from __future__ import annotations

from typing import Any

from branchpoint.checkpoint._history import History
from branchpoint.checkpoint._snapshot import CheckpointSnapshot
from branchpoint.checkpoint._stored import Stored, stored_state
from branchpoint.codec import Encoded
from branchpoint.errors import BranchpointError, InvalidCallError

__all__ = ["abandoned_state", "last_completed", "unfinished_head"]


def unfinished_head(history: History) -> CheckpointSnapshot:
    """Return the selected head, which has work to give up.

    Raises:
        InvalidCallError: It has none.
    """
    head = history.head()
    if head is None or head.status == "idle":
        raise InvalidCallError(
            f"checkpoint {history.header.checkpoint_id!r} has no unfinished work to abandon: its selected "
            f"head is {'the empty start' if head is None else 'completed'}; run it with a message"
        )
    return head


def last_completed(history: History, head: CheckpointSnapshot) -> CheckpointSnapshot | None:
    """Return the nearest ancestor at which nothing was pending; None when this lineage never had one.

    Raises:
        InvalidCallError: A prune removed snapshots on the way, or they were left behind by a fork.
    """
    child = head
    for found in history.ancestors(head.snapshot_id)[1:]:
        if child.parent_snapshot_id != found.snapshot_id:
            break
        if found.status == "idle":
            return found
        child = found
    if child.forked_from is not None:
        raise InvalidCallError(
            f"checkpoint {history.header.checkpoint_id!r} was forked from the unfinished snapshot "
            f"{child.forked_from.snapshot_id!r} of {child.forked_from.checkpoint_id!r}, so the last completed boundary "
            "is not in it: abandon there and fork again, or delete this fork"
        )
    if child.parent_snapshot_id is None:
        return None
    raise InvalidCallError(
        f"checkpoint {history.header.checkpoint_id!r} cannot tell what abandoning {head.snapshot_id!r} goes "
        f"back to: a prune removed {child.parent_snapshot_id!r}, and with it the way to the last completed "
        "boundary. Use `restart_from` a snapshot you choose"
    )


def abandoned_state(head: CheckpointSnapshot, completed: CheckpointSnapshot | None) -> dict[str, Any]:
    """Return the state that giving up leaves behind: the last completed boundary's, nothing pending.

    The last accepted input and all counters stay those of the head: the input did enter this
    lineage, so its id is not accepted a second time, and no turn or superstep is counted twice.
    Nothing is decoded, so no type needs to be registered, and the head may have another shape than a
    run would take.
    """
    given_up = stored_state(head).entries()
    left: dict[str, Any] = {"executor_states": {}, "edge_states": {}}
    shared: Any = {}
    output: Any = []
    if completed is not None:
        kept = stored_state(completed).entries()
        left = {name: _framed(kept[name]) for name in left}
        before = kept["workflow_state"].entries()
        shared = _framed(before["shared"]) if "shared" in before else {}
        output = _encoded(kept["messages"])["output"]
    return {
        "workflow_state": {**_encoded(given_up["workflow_state"]), "status": "idle", "shared": shared},
        **left,
        "messages": {
            "input": _framed(given_up["messages"].entries()["input"]),
            "pending": {"deliveries": [], "requests": {}},
            "output": output,
        },
    }


def _framed(stored: Stored) -> dict[str, Encoded] | Encoded:
    """Return a dict of the frame with its values as they are stored; something else there as it is."""
    try:
        return _encoded(stored)
    except BranchpointError:
        return stored.encoded


def _encoded(stored: Stored) -> dict[str, Encoded]:
    return {key: found.encoded for key, found in stored.entries().items()}
