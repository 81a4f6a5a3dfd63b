"""A checkpoint that was deleted is gone, and no late writer brings it back."""

from __future__ import annotations

from branchpoint.errors import CheckpointConflictError, CheckpointNotFoundError
from branchpoint.testing._clause import clause
from branchpoint.testing._findings import refused, same
from branchpoint.testing._place import Place
from branchpoint.testing.samples import create, grown, lineage, shared, small_state


@clause("deleting", shows="R34 C22")
async def a_late_commit_brings_nothing_back(place: Place) -> None:
    """A commit to a deleted checkpoint conflicts, also when another one was made under its id."""
    storage = await place.storage()
    stale = await grown(storage, commits=3)
    await grown(storage, "bystander")
    await (await place.storage()).delete("order-17")
    with refused(CheckpointConflictError, "deleted"):
        await stale.commit_snapshot(small_state(9))
    with refused(CheckpointNotFoundError):
        await storage.load("order-17")
    same(len((await storage.load("bystander")).snapshots), 3)
    fresh = await grown(await place.storage(), commits=2)
    with refused(CheckpointConflictError):
        await stale.commit_snapshot(small_state(9))
    with refused(CheckpointConflictError):
        await stale.check_head()
    loaded = await (await place.storage()).load("order-17")
    same(lineage(loaded), lineage(fresh))
    same(loaded.created_at, fresh.created_at)
    same(loaded.parts, fresh.parts)


@clause("deleting", shows="R34")
async def an_id_can_be_used_again(place: Place) -> None:
    """A new checkpoint under a deleted one's id begins from nothing, however often."""
    for n in range(3):
        storage = await place.storage()
        checkpoint = create(storage, workflow_name=f"w{n}", metadata={"n": str(n)})
        for k in range(3 - n):
            await checkpoint.commit_snapshot(small_state(k, n=n, k=k))
        found = await (await place.storage()).load("order-17")
        same(lineage(found), lineage(checkpoint))
        same((found.workflow_name, found.metadata), (f"w{n}", {"n": str(n)}))
        same(shared(found.head_snapshot), {"n": n, "k": 2 - n})
        same((await storage.load_head("order-17")).generation, 0)
        await (await place.storage()).delete("order-17")
        with refused(CheckpointNotFoundError):
            await storage.load("order-17")
