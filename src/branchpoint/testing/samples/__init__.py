"""Complete states, and checkpoints of them, for tests that commit without running a workflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from branchpoint.checkpoint import Checkpoint, CheckpointSnapshot, CheckpointStorage

__all__ = ["create", "grown", "lineage", "make_state", "request", "shared", "small_state"]


def request(data: Any = "?", **more: Any) -> dict[str, Any]:
    """Return the record of one open request."""
    return {
        "data": data,
        "source_executor_id": "ask",
        "path": [],
        "input_id": "in-1",
        "superstep": 0,
        "request_type": "str",
        "response_type": "int",
        "response_schema": {"type": "integer"},
        **more,
    }


def make_state(
    n: int = 0,
    *,
    deliveries: Sequence[Any] = (),
    requests: Mapping[str, Any] | None = None,
    input_id: str | None = "in-1",
    turn: int = 1,
    earlier: Sequence[Any] = (),
    output: Sequence[Any] = (),
    shared: Mapping[str, Any] | None = None,
    executors: Mapping[str, Any] | None = None,
    status: str = "idle",
) -> dict[str, Any]:
    """Return a complete state, bucket by bucket."""
    accepted: dict[str, Any] = {}
    if input_id is not None:
        accepted = {"input_id": input_id, "turn": turn, "kind": "message", "value": "go"}
        accepted["earlier"] = list(earlier)
    return {
        "workflow_state": {
            "iteration_count": n,
            "status": status,
            "turn": turn,
            "shared": dict(shared or {}),
            "cursor": {"input_iteration": 0},
        },
        "executor_states": dict(executors or {}),
        "edge_states": {},
        "messages": {
            "input": accepted,
            "pending": {"deliveries": list(deliveries), "requests": dict(requests or {})},
            "output": list(output),
        },
    }


def small_state(superstep: int = 0, /, *, requests: Sequence[str] = (), **shared: Any) -> dict[str, Any]:
    """Return a complete state after that many supersteps, with these shared values."""
    return make_state(
        superstep,
        requests={found: request() for found in requests},
        status="idle_with_pending_requests" if requests else "idle",
        shared=shared,
    )


def shared(snapshot: CheckpointSnapshot | None) -> dict[str, Any]:
    """Return the user's part of a snapshot's state."""
    if snapshot is None:
        raise AssertionError("there is no snapshot")
    found: dict[str, Any] = snapshot.state["workflow_state"]["shared"]
    return found


def create(
    storage: CheckpointStorage | None, checkpoint_id: str | None = "order-17", **more: Any
) -> Checkpoint:
    """Return a new checkpoint of a small workflow."""
    return Checkpoint.create(
        **{
            "checkpoint_id": checkpoint_id,
            "workflow_name": "orders",
            "graph_signature_hash": "sig",
            "signature": {"name": "orders"},
            "checkpoint_storage": storage,
            **more,
        }
    )


async def grown(
    storage: CheckpointStorage | None, checkpoint_id: str | None = "order-17", commits: int = 3
) -> Checkpoint:
    """Return a checkpoint with a straight line of commits."""
    checkpoint = create(storage, checkpoint_id)
    for n in range(commits):
        await checkpoint.commit_snapshot(small_state(n, n=n))
    return checkpoint


def lineage(checkpoint: Checkpoint) -> list[tuple[str, str | None]]:
    """Return ids and parents, in commit order."""
    return [(one.snapshot_id, one.parent_snapshot_id) for one in checkpoint.snapshots]
