"""A write whose reply was lost is no conflict when it is tried again."""

from __future__ import annotations

from branchpoint.errors import CheckpointConflictError, CheckpointNotFoundError
from branchpoint.testing._clause import clause
from branchpoint.testing._faulty import FaultyStorage
from branchpoint.testing._findings import refused, same
from branchpoint.testing._place import Place
from branchpoint.testing.samples import create, grown, lineage, small_state


@clause("replies")
async def a_lost_reply_to_a_commit_is_no_conflict(place: Place) -> None:
    """A commit that is repeated is success while it is anywhere in the stored lineage, and stored once."""
    storage = await place.storage()
    unanswered = FaultyStorage(await place.storage(), {1: "lose", 2: "lose"})
    checkpoint = create(unanswered)
    await checkpoint.commit_snapshot(small_state(1, n=1))  # settled by reading back
    same(len(checkpoint.snapshots), 1)
    await unanswered.repeat()
    other = await storage.load("order-17")
    same(len(other.snapshots), 1, "a commit that was made twice")
    later = await other.commit_snapshot(small_state(2, n=2))
    await unanswered.repeat()  # it is further down the lineage by now, and still stored
    await checkpoint.refresh()
    await checkpoint.commit_snapshot(small_state(3, n=3))
    await unanswered.repeat()
    found = await (await place.storage()).load("order-17")
    same([parent for _, parent in lineage(found)][1:], [found.snapshots[0].snapshot_id, later.snapshot_id])
    # Whatever head it names: what is stored is not stored twice.
    for snapshot in found.snapshots:
        for expected in (found.head_snapshot_id, snapshot.snapshot_id, "nonsense", None):
            await storage.commit_snapshot(found, snapshot, expected_head_snapshot_id=expected)
    same(lineage(await storage.load("order-17")), lineage(found))
    await storage.delete("order-17")
    with refused(CheckpointConflictError):
        await unanswered.repeat()
    with refused(CheckpointNotFoundError):
        await storage.load("order-17")


@clause("replies", needs=("prune",))
async def a_lost_reply_to_a_prune_is_no_conflict(place: Place) -> None:
    """A prune that is repeated is success while nothing else happened since."""
    storage = await place.storage()
    unanswered = FaultyStorage(await place.storage(), {5: "lose"})
    checkpoint = await grown(unanswered, commits=4)
    same(len(await checkpoint.prune()), 3)  # settled by reading back
    same(len(checkpoint.snapshots), 1)
    await unanswered.repeat()
    same(lineage(await storage.load("order-17")), lineage(checkpoint))
    await checkpoint.commit_snapshot(small_state(4))
    same(lineage(await storage.load("order-17")), lineage(checkpoint))
