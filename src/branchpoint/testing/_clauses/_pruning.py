"""A prune removes what is not kept and nothing else, and no commit can refer to what it removed."""

from __future__ import annotations

from branchpoint.errors import CheckpointConflictError
from branchpoint.testing._clause import clause
from branchpoint.testing._findings import refused, same
from branchpoint.testing._lineage_law import check_lineage_law
from branchpoint.testing._place import Place
from branchpoint.testing.samples import create, grown, lineage, shared, small_state


@clause("pruning", shows="R61", needs=("prune",))
async def a_prune_removes_what_is_not_kept_and_nothing_else(place: Place) -> None:
    """Kept snapshots come back with their states, way to the root and header; the others are gone."""
    checkpoint = create(await place.storage())
    for n in range(6):
        await checkpoint.commit_snapshot(small_state(n, n=n, text=f"{n}" * 400, same="s" * 400))
    keep = [checkpoint.snapshots[n].snapshot_id for n in (1, 3)]
    states = {one.snapshot_id: one.state for one in checkpoint.snapshots}
    same(len(await checkpoint.prune(keep)), 3)
    expected = [*keep, checkpoint.head_snapshot_id]
    stored = await (await place.storage()).load("order-17")
    for found in (checkpoint, stored):
        same([one.snapshot_id for one in found.snapshots], expected)
        same(
            {one.snapshot_id: one.state for one in found.snapshots},
            {one: states[str(one)] for one in expected},
        )
        same([one.snapshot_id for one in found.ancestors()], expected[::-1])
        same(found.generation, 1)
    same(stored.header, checkpoint.header)
    same(stored.parts, checkpoint.parts)
    check_lineage_law(checkpoint, stored)
    await checkpoint.commit_snapshot(small_state(7, n=7))
    await checkpoint.prune()
    again = await (await place.storage()).load("order-17")
    same([one.snapshot_id for one in again.snapshots], [checkpoint.head_snapshot_id])


@clause("pruning", shows="R61", needs=("prune",))
async def branches_that_are_kept_stay(place: Place) -> None:
    """A kept snapshot stays on whatever branch it is, with the parts it shares with what went."""
    checkpoint = create(await place.storage())
    big = {"text": "shared " * 300}
    await checkpoint.commit_snapshot(small_state(0, **big))
    root = checkpoint.snapshots[0].snapshot_id
    for n in range(3):
        checkpoint.restart_from(root)
        await checkpoint.commit_snapshot(small_state(1, branch=n, **big))
    await checkpoint.prune([checkpoint.snapshots[2].snapshot_id])
    loaded = await (await place.storage()).load("order-17")
    same([shared(one) for one in loaded.snapshots], [{"branch": 1, **big}, {"branch": 2, **big}])


@clause("pruning", shows="R61", needs=("prune",))
async def a_commit_that_has_not_seen_a_prune_conflicts(place: Place) -> None:
    """A prune moves no head and still makes who has not seen it conflict, at commits and at prunes."""
    pruner = await grown(await place.storage(), commits=4)
    other = await (await place.storage()).load("order-17")
    await pruner.prune()
    same(other.stored_head_snapshot_id, pruner.stored_head_snapshot_id)
    other.restart_from(other.snapshots[0].snapshot_id)
    with refused(CheckpointConflictError, "pruned"):
        await other.commit_snapshot(small_state(9))
    with refused(CheckpointConflictError):
        await other.check_head()
    with refused(CheckpointConflictError):
        await other.prune()
    await other.refresh()
    await other.commit_snapshot(small_state(9))
    with refused(CheckpointConflictError):
        await pruner.commit_snapshot(small_state(10))
    same(lineage(await (await place.storage()).load("order-17")), lineage(other))


@clause("pruning", shows="R61 C22", needs=("prune",))
async def a_stale_prune_removes_nothing(place: Place) -> None:
    """A prune by who has not seen the last commit, or the deletion, conflicts and changes nothing."""
    storage = await place.storage()
    stale = await grown(storage, commits=3)
    other = await (await place.storage()).load("order-17")
    await other.commit_snapshot(small_state(4))
    with refused(CheckpointConflictError):
        await stale.prune()
    same(lineage(await storage.load("order-17")), lineage(other))
    await (await place.storage()).delete("order-17")
    with refused(CheckpointConflictError):
        await stale.prune()
    fresh = await grown(await place.storage(), commits=3)
    with refused(CheckpointConflictError):
        await stale.prune()
    same(lineage(await storage.load("order-17")), lineage(fresh))
