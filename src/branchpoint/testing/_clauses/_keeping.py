"""What was committed is there, for whoever opens the place again."""

from __future__ import annotations

from branchpoint.errors import CheckpointConflictError, CheckpointNotFoundError, CorruptCheckpointError
from branchpoint.testing._clause import clause
from branchpoint.testing._findings import holds, refused, same
from branchpoint.testing._lineage_law import check_lineage_law
from branchpoint.testing._place import Place
from branchpoint.testing.samples import create, grown, lineage, shared, small_state


@clause("keeping", shows="R30")
async def a_commit_stores_snapshot_lineage_and_head_as_one(place: Place) -> None:
    """Another storage object on the same place finds header, lineage, head, states and metadata."""
    checkpoint = create(await place.storage(), metadata={"tenant": "a"})
    first = await checkpoint.commit_snapshot(small_state(1, n=1), metadata={"by": "me"})
    second = await checkpoint.commit_snapshot(small_state(2, n=2))
    loaded = await (await place.storage()).load("order-17")
    same(lineage(loaded), [(first.snapshot_id, None), (second.snapshot_id, first.snapshot_id)])
    same(loaded.head_snapshot_id, second.snapshot_id)
    same(loaded.stored_head_snapshot_id, second.snapshot_id)
    for mine, stored in zip(checkpoint.snapshots, loaded.snapshots, strict=True):
        same(stored.manifest, mine.manifest)
        same(stored.state, mine.state)
        same(stored.metadata, mine.metadata)
        same(stored.to_bytes(), mine.to_bytes())
    same(loaded.header, checkpoint.header)
    same(loaded.metadata, {"tenant": "a"})
    check_lineage_law(checkpoint, loaded)


@clause("keeping", shows="R30")
async def what_was_committed_outlives_the_storage_object(place: Place) -> None:
    """What was committed is still there when every storage object is closed and a new one is opened."""
    checkpoint = await grown(await place.storage(), commits=2)
    await place.close_storages()
    loaded = await (await place.storage()).load("order-17")
    same(lineage(loaded), lineage(checkpoint))
    await loaded.commit_snapshot(small_state(3, n="later"))
    await place.close_storages()
    again = await (await place.storage()).load("order-17")
    same(shared(again.head_snapshot), {"n": "later"})


@clause("keeping", shows="R32")
async def a_loaded_checkpoint_stays_attached(place: Place) -> None:
    """A loaded checkpoint commits to the storage it came from."""
    await grown(await place.storage(), commits=1)
    storage = await place.storage()
    loaded = await storage.load("order-17")
    await loaded.commit_snapshot(small_state(2, n="later"))
    again = await (await place.storage()).load("order-17")
    same(shared(again.head_snapshot), {"n": "later"})


@clause("keeping", shows="R22")
async def every_retained_branch_is_there_and_can_be_selected(place: Place) -> None:
    """All branches come back in commit order, each can be gone on from, and the head is the last commit."""
    checkpoint = await grown(await place.storage(), commits=3)
    root = checkpoint.snapshots[0].snapshot_id
    for branch in ("left", "right"):
        checkpoint.restart_from(root)
        await checkpoint.commit_snapshot(small_state(1, branch=branch))
    checkpoint.restart_from(None)
    await checkpoint.commit_snapshot(small_state(0, branch="second root"))
    loaded = await (await place.storage()).load("order-17")
    same(lineage(loaded), lineage(checkpoint))
    same([one.parent_snapshot_id for one in loaded.snapshots[-3:]], [root, root, None])
    for n, branch in enumerate(("left", "right", "second root"), start=3):
        loaded.restart_from(loaded.snapshots[n].snapshot_id)
        same(shared(loaded.head_snapshot), {"branch": branch})
    left = loaded.snapshots[3].snapshot_id
    loaded.restart_from(left)
    await loaded.commit_snapshot(small_state(2, branch="left of left"))
    again = await (await place.storage()).load("order-17")
    same(again.snapshots[-1].parent_snapshot_id, left)
    same(again.head_snapshot_id, again.snapshots[-1].snapshot_id)
    check_lineage_law(loaded, again)


@clause("keeping")
async def a_fork_is_a_checkpoint_of_its_own(place: Place) -> None:
    """A fork says where it came from, and the two go on apart."""
    checkpoint = await grown(await place.storage(), commits=3)
    origin = checkpoint.snapshots[1].snapshot_id
    fork = await checkpoint.fork(origin, "fork", await place.storage())
    await fork.commit_snapshot(small_state(9, by="fork"))
    await checkpoint.commit_snapshot(small_state(4, by="source"))
    storage = await place.storage()
    found, source = await storage.load("fork"), await storage.load("order-17")
    same(lineage(found), lineage(fork))
    same(lineage(source), lineage(checkpoint))
    same(shared(found.snapshots[0]), {"n": 1})
    told = found.snapshots[0].forked_from
    same(told and (told.checkpoint_id, told.snapshot_id), ("order-17", origin))
    await storage.delete("order-17")
    same(shared((await storage.load("fork")).head_snapshot), {"by": "fork"})


@clause("keeping", shows="R34")
async def an_unknown_id_is_not_found_and_may_be_deleted(place: Place) -> None:
    """Loading what is not there raises CheckpointNotFoundError with the id; deleting it does nothing."""
    storage = await place.storage()
    for _ in range(2):
        with refused(CheckpointNotFoundError, "nobody"):
            await storage.load("nobody")
        with refused(CheckpointNotFoundError, "nobody"):
            await storage.load_head("nobody")
        await storage.delete("nobody")


@clause("keeping")
async def a_storage_may_be_closed_twice(place: Place) -> None:
    """A storage is an async context manager, closing it twice is fine, and what was committed stays."""
    async with await place.storage() as storage:
        checkpoint = await grown(storage)
    await storage.aclose()
    loaded = await (await place.storage()).load("order-17")
    same(lineage(loaded), lineage(checkpoint))


@clause("keeping", shows="R23")
async def the_head_compared_is_the_one_seen_in_storage(place: Place) -> None:
    """A commit is compared by the head that its writer saw in storage, and not by its parent."""
    await grown(await place.storage(), commits=5)
    mine = await (await place.storage()).load("order-17")
    mine.restart_from(mine.snapshots[1].snapshot_id)
    await mine.commit_snapshot(small_state(2, by="mine"))
    other = await (await place.storage()).load("order-17")
    await other.commit_snapshot(small_state(3, by="other"))
    mine.restart_from(mine.snapshots[1].snapshot_id)
    with refused(CheckpointConflictError):
        await mine.commit_snapshot(small_state(2, by="mine again"))


@clause("keeping", needs=("load_head",))
async def load_head_says_what_a_commit_is_compared_with(place: Place) -> None:
    """The head alone is the id of the last commit and the generation."""
    storage = await place.storage()
    checkpoint = await grown(storage, commits=2)
    head = await (await place.storage()).load_head("order-17")
    same((head.head_snapshot_id, head.generation), (checkpoint.head_snapshot_id, 0))
    await checkpoint.commit_snapshot(small_state(3))
    same((await storage.load_head("order-17")).head_snapshot_id, checkpoint.head_snapshot_id)
    await checkpoint.check_head()
    holds(len((await storage.load("order-17")).snapshots) == 3, "load_head() changed what is stored")


@clause("keeping")
async def a_load_may_ask_for_the_head_it_knows(place: Place) -> None:
    """A load that names the head it expects gives that one, and tells a later writer from a store set back."""
    await grown(await place.storage(), commits=3)
    storage = await place.storage()
    loaded = await storage.load("order-17")
    head, earlier = str(loaded.head_snapshot_id), loaded.snapshots[1].snapshot_id
    same(lineage(await storage.load("order-17", expected_head_snapshot_id=head)), lineage(loaded))
    with refused(CheckpointConflictError):
        await storage.load("order-17", expected_head_snapshot_id=earlier)
    with refused(CorruptCheckpointError):
        await storage.load("order-17", expected_head_snapshot_id="of a later time")
