"""Records of complete states, for tests that commit without running a workflow."""

from __future__ import annotations

from typing import Any

from branchpoint import Checkpoint, CheckpointSnapshot
from branchpoint.checkpoint import Summary, status_of
from branchpoint.testing.samples import make_state, request

__all__ = ["DELIVERY", "commit_superstep", "earlier_input", "make_state", "output", "request"]

DELIVERY: dict[str, Any] = {"value": 1, "sources": [], "targets": ["tally"]}


def output(output_id: str, value: Any, turn: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "turn": turn,
        "superstep": turn,
        "executor_id": "tally",
        "output_id": output_id,
        "value": value,
        **more,
    }


def earlier_input(input_id: str, turn: int) -> dict[str, Any]:
    return {"input_id": input_id, "turn": turn, "digest": "d", "superstep": 0}


async def commit_superstep(
    checkpoint: Checkpoint, state: dict[str, Any], *executors: str
) -> CheckpointSnapshot:
    """Commit a state as a run does whose superstep made it; by default `tally` ran in it."""
    own, messages = state["workflow_state"], state["messages"]
    status = status_of(messages["pending"]["deliveries"], messages["pending"]["requests"])
    summary = Summary(
        "superstep_completed",
        status,
        own["iteration_count"],
        messages["input"].get("input_id"),
        tuple(messages["pending"]["requests"]),
        executors or ("tally",),
    )
    with checkpoint.hold("a run") as hold:
        return await hold.commit_snapshot(
            {**state, "workflow_state": {**own, "status": status}}, summary=summary
        )
