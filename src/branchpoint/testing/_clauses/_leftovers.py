"""Nothing stays behind: looked at past the storage."""

from __future__ import annotations

import asyncio

from branchpoint.checkpoint import Checkpoint
from branchpoint.errors import (
    CheckpointConflictError,
    CheckpointNotFoundError,
    CorruptCheckpointError,
    StorageError,
    UnknownVersionError,
)
from branchpoint.testing._clause import clause
from branchpoint.testing._findings import refused, same
from branchpoint.testing._place import Place
from branchpoint.testing.samples import create, grown, lineage, shared, small_state


@clause("leftovers", shows="R34 C22", hooks=("peek",))
async def a_delete_leaves_nothing(place: Place) -> None:
    """After a delete nothing of the checkpoint is stored, and everything of the others is."""
    storage = await place.storage()
    same(dict(await place.peek()), {}, "what an empty place holds")
    await grown(storage, "bystander")
    before = dict(await place.peek())
    checkpoint = create(storage)
    for n in range(3):
        await checkpoint.commit_snapshot(small_state(n, text=f"{n}" * 4000))
    if "prune" in storage.capabilities:
        await checkpoint.prune()
    if storage.leases:
        await storage.take_lease("order-17")
    await storage.delete("order-17")
    same(sorted(await place.peek()), sorted(before), "what is stored")
    await storage.delete("bystander")
    same(sorted(await place.peek()), [], "what is stored")


@clause("leftovers", shows="C22", hooks=("peek",), needs=("lease",), options=("leases",))
async def a_delete_leaves_no_lease(place: Place) -> None:
    """A lease goes with its checkpoint, also one of a checkpoint that was never stored."""
    storage = await place.storage(leases=True)
    await storage.take_lease("order-17")
    await storage.delete("order-17")
    same(sorted(await place.peek()), [], "what is stored")


@clause("leftovers", shows="R31", hooks=("peek",))
async def a_conflict_stores_nothing(place: Place) -> None:
    """A commit that conflicts leaves what is stored as it was, byte for byte."""
    await grown(await place.storage(), commits=2)
    stale = await (await place.storage()).load("order-17")
    await (await (await place.storage()).load("order-17")).commit_snapshot(small_state(3))
    before = dict(await place.peek())
    with refused(CheckpointConflictError):
        await stale.commit_snapshot(small_state(4, text="never stored " * 1000))
    with refused(CheckpointConflictError):
        await create(await place.storage()).commit_snapshot(small_state(0, text="never stored " * 1000))
    same(sorted(await place.peek()), sorted(before), "what is stored")


@clause("leftovers", shows="R61", hooks=("peek",), needs=("prune",))
async def a_prune_takes_the_bytes_with_it(place: Place) -> None:
    """What only pruned snapshots needed is gone from storage, not merely out of sight."""
    checkpoint = create(await place.storage())
    for n in range(6):
        await checkpoint.commit_snapshot(small_state(n, text=f"{n} {n} " * 5000))
    before = sum(map(len, (await place.peek()).values()))
    await checkpoint.prune()
    after = sum(map(len, (await place.peek()).values()))
    same(after < before / 3, True, f"{before} bytes were stored, {after} are; fewer than a third")


@clause("leftovers", hooks=("peek",))
async def a_commit_that_was_cut_off_leaves_nothing_for_ever(place: Place) -> None:
    """What an interrupted commit left over is never shown, and a delete takes it away."""
    storage = await place.storage()
    for turns in range(place.rounds):
        checkpoint = create(storage)
        committing = asyncio.ensure_future(checkpoint.commit_snapshot(small_state(0, text="x " * 4000)))
        for _ in range(turns):
            await asyncio.sleep(0)
        committing.cancel()
        await asyncio.wait([committing])
        await storage.delete("order-17")
        same(sorted(await place.peek()), [], "what is stored")


@clause("leftovers", shows="R33 C54", hooks=("peek", "poke"))
async def damage_is_reported_and_never_an_older_head(place: Place) -> None:
    """Whatever stored bytes are cut or changed: a load says so, or shows the states that were committed."""
    checkpoint = await _written(place)
    expected = _told(checkpoint)
    stored = dict(await place.peek())
    for name, data in sorted(stored.items()):
        middle = len(data) // 2
        # Another bit in the middle is found by a digest where it is in a part; elsewhere it may be another id.
        changed = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :] if data else b"x"
        for damaged in (data[:-1], data[:middle], b"", changed):
            if damaged == data:
                continue
            await place.poke(name, damaged)
            shown = await _shown(place)
            what = f"{name} has {len(damaged)} bytes of {len(data)}"
            if shown is not None and damaged is changed:
                same([one for _, one in shown], [one for _, one in expected], what)
            elif shown is not None:
                same(shown, expected, what)
        await place.poke(name, data)
    same(lineage(await (await place.storage()).load("order-17")), lineage(checkpoint))


@clause("leftovers", shows="R33 C54", hooks=("peek", "poke"))
async def a_loss_is_reported_and_never_an_older_head(place: Place) -> None:
    """Whatever stored thing is lost: a load says so, or that there is nothing, and shows no older head."""
    storage = await place.storage()
    lost = 0
    while True:
        checkpoint = await _written(place)
        names = sorted(await place.peek())
        if lost >= len(names):
            return
        await place.poke(names[lost], None)
        shown = await _shown(place)
        if shown is not None:
            same(shown, _told(checkpoint), f"{names[lost]} is gone")
        for name in await place.peek():  # what a delete does not find any more
            await place.poke(name, None)
        await storage.delete("order-17")
        lost += 1


async def _written(place: Place) -> Checkpoint:
    checkpoint = create(await place.storage())
    for n in range(3):
        await checkpoint.commit_snapshot(small_state(n, n=n, text=f"{n} " * 300))
    return checkpoint


def _told(checkpoint: Checkpoint) -> list[tuple[str, dict[str, object]]]:
    return [(one.snapshot_id, shared(one)) for one in checkpoint.snapshots]


async def _shown(place: Place) -> list[tuple[str, dict[str, object]]] | None:
    """What a load shows; None when it says that there is nothing, or damage."""
    storage = await place.storage()
    try:
        found = await storage.load("order-17")
        await found.load_lineage()
        for snapshot in found.snapshots:
            await found.load_snapshot(snapshot.snapshot_id)
        return _told(found)
    except (CorruptCheckpointError, UnknownVersionError, CheckpointNotFoundError, StorageError):
        return None
    finally:
        await storage.aclose()
