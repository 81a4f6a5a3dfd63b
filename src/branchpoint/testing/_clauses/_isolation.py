"""Nothing that a caller holds is shared with what is stored, or with another caller."""

from __future__ import annotations

from branchpoint.testing._clause import clause
from branchpoint.testing._findings import holds, same
from branchpoint.testing._place import Place
from branchpoint.testing.samples import create, grown, lineage, shared, small_state


@clause("isolation")
async def nothing_a_caller_holds_reaches_the_store(place: Place) -> None:
    """Changing what was committed or loaded, afterwards, changes nothing that is stored."""
    labels, notes, items = {"tenant": "a"}, {"tags": ["x"]}, ["one"]
    storage = await place.storage()
    checkpoint = create(storage, metadata=labels)
    given = small_state(1, items=items)
    await checkpoint.commit_snapshot(given, metadata=notes)
    labels["tenant"], notes["tags"][0], items[0] = "b", "y", "two"
    given["workflow_state"]["shared"]["more"] = 1
    header = checkpoint.header
    header.metadata["tenant"], header.signature["name"] = "c", "d"
    loaded = await storage.load("order-17")
    shared(loaded.head_snapshot)["items"].append("three")
    loaded.header.signature["name"] = "e"
    loaded.snapshots.clear()
    for found in (loaded, await storage.load("order-17"), await (await place.storage()).load("order-17")):
        same(found.metadata, {"tenant": "a"})
        same(found.header.signature, {"name": "orders"})
        same(found.snapshots[0].metadata["tags"], ["x"])
        same(shared(found.snapshots[0]), {"items": ["one"]})


@clause("isolation")
async def every_load_is_a_checkpoint_of_its_own(place: Place) -> None:
    """Two loads give two checkpoints, neither of which is the one that was committed."""
    storage = await place.storage()
    committed = await grown(storage)
    one, other = await storage.load("order-17"), await storage.load("order-17")
    holds(one is not other and one is not committed, "a load gave an object that somebody has already")
    one.restart_from(one.snapshots[0].snapshot_id)
    for found in (other, committed):
        same(found.head_snapshot_id, found.snapshots[-1].snapshot_id, "the head that somebody else selected")
    with one.hold("a run"), other.hold("another run"), committed.hold("a third"):
        pass


@clause("isolation", shows="C53")
async def checkpoints_do_not_hinder_each_other(place: Place) -> None:
    """Commits to different checkpoints side by side all land, each in its own lineage."""
    storages = [await place.storage() for _ in range(4)]
    names = [f"run-{n}" for n in range(24)]

    from asyncio import gather

    grown_up = await gather(*(grown(storages[n % 4], name, commits=4) for n, name in enumerate(names)))
    for name, checkpoint in zip(names, grown_up, strict=True):
        same(lineage(await storages[0].load(name)), lineage(checkpoint))
