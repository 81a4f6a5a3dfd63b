"""Executions in an SQLite database that were left long ago: what it costs to take one up for one superstep."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from beds import DIMENSIONS, ENDLESS, Dimension, Reading
from workloads import small_state

from branchpoint import Executor, Workflow, WorkflowBuilder, WorkflowContext, handler
from branchpoint.storage.sqlite import SQLiteCheckpointStorage

__all__ = ["ALL"]


class Bounce(Executor):
    """Writes a small state, and passes the number to the other one."""

    @handler
    async def on_number(self, n: int, ctx: WorkflowContext[int]) -> None:
        ctx.set_state("data", small_state(n))
        await ctx.send_message(n + 1)


class LeftBed:
    """A checkpoint of many snapshots, of which a load fetches the newest alone."""

    def __init__(self, workflow: Workflow, path: Path, snapshots: int) -> None:
        self.workflow = workflow
        self.path = path
        self.snapshots = snapshots

    async def measure(self, warm: int, ticks: int) -> Reading:
        """Load the head, do one superstep and store it, some times; each adds a snapshot."""
        async with SQLiteCheckpointStorage(self.path, lazy_over=0) as storage:
            for _ in range(warm):
                await self._resume(storage)
            before, begun = self._stored(), time.perf_counter()
            for _ in range(ticks):
                await self._resume(storage)
            seconds = time.perf_counter() - begun
            return Reading(seconds / ticks, (self._stored() - before) / ticks)

    async def _resume(self, storage: SQLiteCheckpointStorage) -> None:
        checkpoint = await storage.load("bed")
        await self.workflow.run(checkpoint=checkpoint, max_supersteps=1)
        self.snapshots += 1

    def _stored(self) -> int:
        # The log is written over from its beginning, so what grows is told by the database alone.
        return self.path.stat().st_size

    async def is_right(self) -> bool:
        """Say whether the stored head is what that many supersteps leave, and all of them are there."""
        async with SQLiteCheckpointStorage(self.path) as storage:
            records = await storage.load_lineage("bed")
            checkpoint = await storage.load("bed")
        state: dict[str, Any] = checkpoint.head_snapshot.state["workflow_state"]["shared"]
        return len(records.manifests) == self.snapshots and state == {"data": small_state(self.snapshots - 1)}


async def _left(size: int, folder: Path | None) -> LeftBed:
    """Snapshots of a small state in one checkpoint."""
    assert folder is not None
    ping, pong = Bounce(id="ping"), Bounce(id="pong")
    builder = WorkflowBuilder(name="bed", start_executor=ping, max_iterations=ENDLESS)
    workflow = builder.add_edge(ping, pong).add_edge(pong, ping).build()
    path = folder / "checkpoints.db"
    async with SQLiteCheckpointStorage(path, commit_thread=False, lose_newest_on_power_cut=True) as storage:
        checkpoint = workflow.create_checkpoint("bed", storage)
        await workflow.run(1, checkpoint=checkpoint, max_supersteps=size - 1)
    return LeftBed(workflow, path, size)


_RESUMED = Dimension(
    "snapshots in the checkpoint that is resumed",
    (100, 10_000, 50_000),
    100,
    _left,
    ticks=20,
    places=("sqlite",),
)
ALL: tuple[Dimension, ...] = (*DIMENSIONS, _RESUMED)
