"""A commit that is interrupted or watched is there as a whole or not at all."""

from __future__ import annotations

import asyncio

from branchpoint.checkpoint import Checkpoint, CheckpointSnapshot
from branchpoint.errors import CheckpointNotFoundError
from branchpoint.testing._clause import clause
from branchpoint.testing._faulty import FaultyStorage
from branchpoint.testing._findings import holds, same
from branchpoint.testing._lineage_law import check_lineage_law
from branchpoint.testing._place import Place
from branchpoint.testing.samples import create, grown, lineage, shared, small_state


@clause("interrupting", shows="C21")
async def a_cancelled_commit_lands_or_fails_before_its_caller_goes_on(place: Place) -> None:
    """After a cancelled commit, memory and storage agree about whether it landed."""
    storage = await place.storage()
    checkpoint = await grown(storage, commits=1)
    for n in range(place.rounds):
        committing = asyncio.ensure_future(checkpoint.commit_snapshot(small_state(n, n=n)))
        for _ in range(n % 5):
            await asyncio.sleep(0)
        committing.cancel()
        await asyncio.wait([committing])
        loaded = await storage.load("order-17")
        same(lineage(loaded), lineage(checkpoint))
        same(loaded.head_snapshot_id, checkpoint.head_snapshot_id)
    await checkpoint.commit_snapshot(small_state(99))
    check_lineage_law(checkpoint, await (await place.storage()).load("order-17"))


class _Cut(FaultyStorage):
    """Cancels each commit of the inner storage after some turns of the loop, looks, and repeats it."""

    turns = 0

    async def commit_snapshot(
        self, checkpoint: Checkpoint, snapshot: CheckpointSnapshot, *, expected_head_snapshot_id: str | None
    ) -> None:
        async def commit() -> None:
            await self.inner.commit_snapshot(
                checkpoint, snapshot, expected_head_snapshot_id=expected_head_snapshot_id
            )

        committing = asyncio.ensure_future(commit())
        for _ in range(self.turns):
            await asyncio.sleep(0)
        committing.cancel()
        await asyncio.wait([committing])
        try:
            found = await self.inner.load(checkpoint.checkpoint_id)
        except CheckpointNotFoundError:
            same(expected_head_snapshot_id, None, "the checkpoint is gone; its head was")
        else:
            holds(
                found.head_snapshot_id in (expected_head_snapshot_id, snapshot.snapshot_id),
                f"the head is {found.head_snapshot_id!r} after a commit was interrupted",
            )
        await commit()  # it may have landed, or land just now


@clause("interrupting", shows="C21")
async def a_commit_that_is_cut_inside_is_whole_or_absent(place: Place) -> None:
    """Cancelling the storage's own commit after any number of turns leaves all or nothing, and it can be repeated.

    Nothing stands between the cancellation and the storage here: it strikes whatever the storage waits for.
    """
    cut = _Cut(await place.storage())
    checkpoint = create(cut)
    for n in range(place.rounds):
        cut.turns = n
        await checkpoint.commit_snapshot(small_state(n, n=n, text=f"{n} " * 400))
        stored = await (await place.storage()).load("order-17")
        same(lineage(stored), lineage(checkpoint))
        same(shared(stored.head_snapshot), {"n": n, "text": f"{n} " * 400})


@clause("interrupting", shows="R30")
async def a_reader_sees_a_commit_whole_or_not_at_all(place: Place) -> None:
    """Whoever loads while commits are made finds whole snapshots, up to one of them."""
    writer, reader = await place.storage(), await place.storage()
    checkpoint = create(writer)
    loads = 0

    async def write() -> None:
        for n in range(place.rounds * 2):
            await checkpoint.commit_snapshot(small_state(n, n=n, text=f"{n} " * 400))

    writing = asyncio.ensure_future(write())
    try:
        while not writing.done():
            try:
                found = await reader.load("order-17")
            except CheckpointNotFoundError:
                same(loads, 0, "a checkpoint is gone that was loaded before; loads")
                await asyncio.sleep(0)
                continue
            loads += 1
            await found.load_lineage()
            n = len(found.snapshots) - 1
            same(shared(found.head_snapshot), {"n": n, "text": f"{n} " * 400})
            await asyncio.sleep(0)
    finally:
        await writing
    found = await reader.load("order-17")
    await found.load_lineage()
    same(lineage(found), lineage(checkpoint))
