"""The order of commits is the order in which they were made, whatever the clocks of the writers say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from branchpoint import clock, ids
from branchpoint.testing._clause import clause
from branchpoint.testing._findings import same
from branchpoint.testing._place import MovableClock, Place
from branchpoint.testing.samples import create, lineage, shared, small_state


@contextmanager
def _machine_that_is(days: float) -> Iterator[None]:
    """The block runs on a machine whose clock is that far ahead, with ids made there."""
    there = MovableClock()
    there.ahead = timedelta(days=days)
    with clock.injected(there), ids.injected(ids.RandomIds()):
        yield


@clause("clocks")
async def writers_with_wrong_clocks_keep_their_order(place: Place) -> None:
    """Snapshots whose ids and times run backwards come back in commit order, and the head is the last one."""
    ahead = (0, 30, -30, 400, -400)
    checkpoint = create(await place.storage())
    for n, days in enumerate(ahead):
        with _machine_that_is(days):
            await checkpoint.commit_snapshot(small_state(n, n=n))
            mine = checkpoint
            checkpoint = await (await place.storage()).load("order-17")
        await checkpoint.load_lineage()
        same(lineage(checkpoint), lineage(mine))
        same(checkpoint.head_snapshot_id, mine.head_snapshot_id)
    same([shared(one)["n"] for one in checkpoint.snapshots], list(range(len(ahead))))
    moments = [one.timestamp for one in checkpoint.snapshots]
    same(moments == sorted(moments), False, "the clocks were right after all; sorted")
    storage = await place.storage()
    if "load_head" in storage.capabilities:
        same((await storage.load_head("order-17")).head_snapshot_id, checkpoint.head_snapshot_id)
    if "list_checkpoints" in storage.capabilities:
        (line,) = await storage.list_checkpoints()
        same((line.head_snapshot_id, line.superstep), (checkpoint.head_snapshot_id, len(ahead) - 1))
    if "prune" in storage.capabilities:
        keep = [checkpoint.snapshots[1].snapshot_id]
        await checkpoint.prune(keep)
        found = await storage.load("order-17")
        same([one.snapshot_id for one in found.snapshots], [*keep, checkpoint.head_snapshot_id])
