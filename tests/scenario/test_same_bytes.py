"""A snapshot's bytes depend on its state alone: not on what was remembered, nor on how the state came about."""

from __future__ import annotations

import operator
from typing import Any

import pytest

from branchpoint import (
    Checkpoint,
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    append,
    codec,
    handler,
    merge,
    state,
)
from tests.scenario.kit import Place, every_place

ROUNDS = 7


class Worker(Executor):
    """Keeps something of a given size, and writes to every kind of key."""

    kept: dict[str, Any] = state(factory=dict)

    def __init__(self, id: str, size: int, far: str) -> None:
        super().__init__(id=id)
        self.size = size
        self.far = far

    @handler
    async def on_round(self, number: int, ctx: WorkflowContext[int, str]) -> None:
        self.kept[f"round-{number % 3}"] = f"{number}".ljust(self.size, "x")
        ctx.set_state("last", {"number": number, "$odd": ["$p"]} if number % 2 else number)
        ctx.set_state("history", {"who": self.id, "text": "y" * self.size, "n": number})
        ctx.set_state("known", {f"{self.size}-{number}": [number, -0.0, 2**60, None, True]})
        ctx.set_state("added", [number] * (self.size // 50))
        if number == ROUNDS:
            await ctx.yield_output("z" * self.size)
        else:
            await ctx.send_message(number + 1, target_id=self.far if number % 2 else None)


def working(count: int, size: int) -> Workflow:
    ring = [Worker(f"w{place}", size, f"w{(place + 1) % count}") for place in range(count)]
    builder = WorkflowBuilder(name="ring", start_executor=ring[0], max_iterations=100)
    builder.add_state("history", list[dict[str, Any]], reducer=append)
    builder.add_state("known", reducer=merge).add_state("added", reducer=operator.add)
    for place, worker in enumerate(ring):
        builder.add_edge(worker, ring[(place + 1) % count])
    return builder.build()


def assert_canonical(checkpoint: Checkpoint) -> None:
    """Every state, encoded anew by somebody who remembers nothing, has the digest it is stored under."""
    for snapshot in checkpoint.snapshots:
        part, _ = codec.encode_state(snapshot.state, format=checkpoint.format)
        assert part.digest == snapshot.root, snapshot


@every_place
@pytest.mark.parametrize("size", [3, 60, 100, 150, 300, 700, 1_500])
@pytest.mark.parametrize("count", [2, 40])
async def test_r12_a_state_has_one_encoding_however_it_came_about(
    place: Place, size: int, count: int
) -> None:
    workflow = working(count, size)
    cp = place.create(workflow)
    for bound in (3, 2, 1, None):  # between them everything is made anew, from what is stored
        await _go(workflow, cp, bound)
        cp = await place.reload()
    assert_canonical(cp)
    state = cp.head_snapshot.state if cp.head_snapshot else {}
    assert [one["n"] for one in state["workflow_state"]["shared"]["history"]] == list(range(1, ROUNDS + 1))

    cp.restart_from(cp.snapshots[3].snapshot_id)
    await working(count, size).run(checkpoint=cp, max_supersteps=2)
    await cp.abandon("enough")
    edited = cp.head_snapshot.state if cp.head_snapshot else {}
    edited["executor_states"]["w1"] = {"kept": {"by hand": "e" * size}}
    await cp.commit_snapshot(state=edited)
    await working(count, size).run(1, checkpoint=cp)
    assert_canonical(cp)
    assert_canonical(await cp.fork(checkpoint_id="fork"))


async def _go(workflow: Workflow, cp: Checkpoint, bound: int | None) -> None:
    if cp.head_snapshot is None:
        await workflow.run(1, checkpoint=cp, max_supersteps=bound)
    else:
        await workflow.run(checkpoint=cp, max_supersteps=bound)
