"""Workflows inside of workflows, for the scenarios of nesting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from branchpoint import Checkpoint, Executor, Workflow, WorkflowBuilder, WorkflowExecutor
from branchpoint.codec import encode_state
from branchpoint.testing import check_lineage_law
from tests.scenario.kit import Place, Step, Ticks, chain

NAMES = ["kid", "mid", "top"]


def nested(child: Workflow, ticks: Ticks, depth: int = 1, **more: Any) -> Workflow:
    """`depth` workflows around a child: in each a `WorkflowExecutor`, and a step behind it that is final."""
    workflow = child
    for level in range(depth):
        inside = WorkflowExecutor(workflow, NAMES[level], **more)
        after = Step(f"after{level}", ticks, final=True)
        workflow = chain(inside, after, name=f"parent{level}")
    return workflow


def around(depth: int) -> tuple[str, ...]:
    """The path that leads into the child of `nested`."""
    return tuple(reversed(NAMES[:depth]))


def behind(text: str, depth: int = 1) -> str:
    """What comes out of `nested` when the child yields a text."""
    return text + "".join(f">after{level}" for level in range(depth))


def beside(executors: Sequence[Executor], ticks: Ticks, *, name: str = "beside", **more: Any) -> Workflow:
    """A step `src` that sends to all of some executors."""
    builder = WorkflowBuilder(name=name, start_executor=(src := Step("src", ticks)), **more)
    return builder.add_fan_out_edges(src, executors).build()


def inside(checkpoint: Checkpoint, *path: str, execution: str = "0") -> dict[str, Any]:
    """The four buckets of a child, at the selected head."""
    assert checkpoint.head_snapshot is not None
    state: dict[str, Any] = checkpoint.head_snapshot.state
    for executor_id in path:
        state = state["executor_states"][executor_id]["executions"][execution]
    return state


async def lawful(place: Place, checkpoint: Checkpoint) -> None:
    """The lineage law holds, and every state is spelled as if it had been encoded in one go."""
    check_lineage_law(checkpoint, await place.reload(checkpoint.checkpoint_id) if place.is_stored else None)
    for snapshot in checkpoint.snapshots:
        part, _ = encode_state(snapshot.state, format=checkpoint.format)
        assert part.digest == snapshot.root, snapshot
