"""Complete states and the records in them, for tests that commit without running a workflow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from branchpoint import Checkpoint, CheckpointSnapshot
from branchpoint.checkpoint import Summary, status_of

DELIVERY: dict[str, Any] = {"value": 1, "sources": [], "targets": ["tally"]}


def request(data: Any = "?", **more: Any) -> dict[str, Any]:
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


def make_state(
    n: int = 0,
    *,
    deliveries: Sequence[Any] = (),
    requests: dict[str, Any] | None = None,
    input_id: str | None = "in-1",
    turn: int = 1,
    earlier: Sequence[Any] = (),
    output: Sequence[Any] = (),
    shared: dict[str, Any] | None = None,
    executors: dict[str, Any] | None = None,
    status: str = "idle",
) -> dict[str, Any]:
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
