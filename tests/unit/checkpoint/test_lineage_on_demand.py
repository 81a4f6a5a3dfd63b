"""A lazy storage may leave older manifests behind as well; a checkpoint fetches them, or says so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import ClassVar

import msgspec
import pytest

from branchpoint import Executor, Workflow, WorkflowBuilder, WorkflowContext, handler
from branchpoint.checkpoint import Capability, Checkpoint, CheckpointStorage, StoredRecords
from branchpoint.errors import (
    CheckpointConflictError,
    CheckpointNotFoundError,
    CorruptCheckpointError,
    SnapshotNotFoundError,
    SnapshotNotLoadedError,
)
from branchpoint.storage import MemoryCheckpointStorage
from tests.storages import create, grown, lineage, shared, state


class DistantStorage(MemoryCheckpointStorage):
    """Gives the newest manifests and no part, and only the parts that are named; notes what it is asked."""

    capabilities: ClassVar[frozenset[Capability]] = MemoryCheckpointStorage.capabilities | {"load_lineage"}

    def __init__(self, newest: int = 1) -> None:
        super().__init__(lazy_over=0)
        self.newest = newest
        self.asked: list[str] = []
        self.before: dict[str, Callable[[], Awaitable[object]]] = {}

    async def meanwhile(self, what: str) -> None:
        """Let something happen after a lineage was read, and before parts are."""
        happens = self.before.pop(what, None)
        if happens is not None:
            await happens()

    async def load_records(self, checkpoint_id: str) -> StoredRecords:
        self.asked.append("records")
        found = await super().load_records(checkpoint_id)
        newest = found.manifests[-self.newest :]
        return msgspec.structs.replace(found, manifests=newest, parts={}, complete=False)

    async def load_lineage(self, checkpoint_id: str) -> StoredRecords:
        self.asked.append("lineage")
        found = msgspec.structs.replace(await super().load_records(checkpoint_id), parts={})
        await self.meanwhile("lineage")
        return found

    async def load_parts(self, checkpoint_id: str, digests: Collection[str]) -> dict[str, bytes]:
        self.asked.append("parts")
        await self.meanwhile("parts")
        kept = await super().load_parts(checkpoint_id, digests)
        return {digest: kept[digest] for digest in digests if digest in kept}


async def branched(storage: CheckpointStorage) -> Checkpoint:
    """Six snapshots: a line of four, and a branch of two from the second; all of it in memory."""
    checkpoint = await grown(storage, commits=4)
    checkpoint.restart_from(checkpoint.snapshots[1].snapshot_id)
    for n in range(2):
        await checkpoint.commit_snapshot(state(2 + n, branch=n, text="words " * 200))
    return checkpoint


@pytest.mark.parametrize("newest", [1, 3, 6])
async def test_a_load_reads_the_head_alone_and_everything_can_be_fetched(newest: int) -> None:
    storage = DistantStorage(newest)
    whole = await branched(storage)
    lazy = await storage.load("order-17")
    assert "lineage" not in storage.asked
    assert lazy.head_snapshot_id == lazy.stored_head_snapshot_id == whole.head_snapshot_id
    assert shared(lazy.head_snapshot) == shared(whole.head_snapshot)
    assert "6 snapshots" in repr(whole)
    assert f"{newest} snapshots" in repr(lazy)
    await lazy.load_lineage()
    assert lineage(lazy) == lineage(whole)
    assert [one.is_loaded for one in lazy.snapshots] == [False] * 5 + [True]
    for snapshot in whole.snapshots:
        assert (await lazy.load_snapshot(snapshot.snapshot_id)).state == snapshot.state
    await lazy.load_lineage()
    assert storage.asked.count("lineage") == 1


async def test_what_is_not_async_says_how_to_fetch_it() -> None:
    storage = DistantStorage()
    whole = await branched(storage)
    first = whole.snapshots[0].snapshot_id
    lazy = await storage.load("order-17")
    for ask in (
        lambda: lazy.snapshots,
        lazy.ancestors,
        lazy.events,
        lambda: lazy.get_snapshot(first),
        lambda: lazy.restart_from(first),
        lambda: lazy.restart_from("nobody"),
    ):
        with pytest.raises(SnapshotNotLoadedError, match=r"order-17.*load_lineage\(\)"):
            ask()
    assert lazy.head_snapshot_id == whole.head_snapshot_id
    assert "lineage" not in storage.asked
    await lazy.load_lineage()
    with pytest.raises(SnapshotNotFoundError):
        lazy.get_snapshot("nobody")
    lazy.restart_from(first)
    assert [one.snapshot_id for one in lazy.ancestors()] == [first]


async def test_a_commit_needs_no_lineage_and_is_found_by_it_later() -> None:
    storage = DistantStorage()
    whole = await branched(storage)
    lazy = await storage.load("order-17")
    added = await lazy.commit_snapshot(state(4, by="lazy"))
    assert "lineage" not in storage.asked
    await lazy.load_lineage()
    assert lineage(lazy) == [*lineage(whole), (added.snapshot_id, whole.head_snapshot_id)]
    assert lazy.snapshots[-1] is added


async def test_fork_prune_and_load_snapshot_fetch_by_themselves() -> None:
    storage = DistantStorage()
    whole = await branched(storage)
    third = whole.snapshots[2]
    lazy = await storage.load("order-17")
    forked = await lazy.fork(third.snapshot_id, checkpoint_id="fork")
    assert shared(forked.head_snapshot) == shared(third)
    lazy = await storage.load("order-17")
    with pytest.raises(SnapshotNotFoundError, match="nobody"):
        await lazy.load_snapshot("nobody")
    lazy = await storage.load("order-17")
    removed = await lazy.prune([third.snapshot_id])
    assert len(removed) == 4
    again = await storage.load("order-17")
    await again.load_lineage()
    assert [one.snapshot_id for one in again.snapshots] == [third.snapshot_id, whole.head_snapshot_id]
    for snapshot in again.snapshots:
        assert (await again.load_snapshot(snapshot.snapshot_id)).state == whole.get_snapshot(
            snapshot.snapshot_id
        ).state


async def test_refresh_takes_what_is_stored_lazily_again() -> None:
    storage = DistantStorage()
    await branched(storage)
    lazy, other = await storage.load("order-17"), await storage.load("order-17")
    await lazy.load_lineage()
    await other.commit_snapshot(state(9, by="other"))
    with pytest.raises(CheckpointConflictError):
        await lazy.commit_snapshot(state(9, by="lazy"))
    await lazy.refresh()
    assert lazy.head_snapshot_id == other.head_snapshot_id
    with pytest.raises(SnapshotNotLoadedError):
        _ = lazy.snapshots


# Somebody else at work.


async def test_later_commits_of_another_writer_do_not_show() -> None:
    storage = DistantStorage()
    whole = await branched(storage)
    lazy, other = await storage.load("order-17"), await storage.load("order-17")
    await other.commit_snapshot(state(9, by="other"))
    await lazy.load_lineage()
    assert lineage(lazy) == lineage(whole)
    with pytest.raises(CheckpointConflictError):
        await lazy.commit_snapshot(state(9, by="lazy"))


async def test_what_this_object_learns_while_its_lineage_is_fetched_is_not_lost() -> None:
    """A lineage that was read before a refresh has not what was committed between, and is read again."""
    storage = DistantStorage()
    whole, mine = await branched(storage), await storage.load("order-17")

    async def overtaken() -> None:
        for n in range(3):
            await whole.commit_snapshot(state(n, later=n))
        await mine.refresh()

    storage.before["lineage"] = overtaken
    await mine.load_lineage()
    assert lineage(mine) == lineage(whole)
    assert [one.snapshot_id for one in mine.ancestors()] == [one.snapshot_id for one in whole.ancestors()]

    mine = await storage.load("order-17")
    storage.before["lineage"] = lambda: mine.commit_snapshot(state(0))
    await mine.load_lineage()
    assert [one.snapshot_id for one in mine.snapshots[:-1]] == [one.snapshot_id for one in whole.snapshots]

    mine = await storage.load("order-17")
    storage.before["lineage"] = mine.prune
    await mine.load_lineage()
    assert [one.snapshot_id for one in mine.snapshots] == [mine.head_snapshot_id]


async def test_what_this_object_prunes_while_it_is_fetched_is_not_called_damaged() -> None:
    storage = DistantStorage()
    await branched(storage)
    mine = await storage.load("order-17")
    await mine.load_lineage()
    first = mine.snapshots[0].snapshot_id
    storage.before["parts"] = mine.prune
    with pytest.raises(SnapshotNotFoundError, match=first):
        await mine.load_snapshot(first)


async def test_a_prune_elsewhere_conflicts() -> None:
    storage = DistantStorage()
    whole = await branched(storage)
    lazy = await storage.load("order-17")
    await whole.prune()
    with pytest.raises(CheckpointConflictError, match="pruned elsewhere"):
        await lazy.load_lineage()


async def test_a_checkpoint_that_was_replaced_conflicts() -> None:
    storage = DistantStorage()
    await branched(storage)
    lazy, deleted = await storage.load("order-17"), await storage.load("order-17")
    await storage.delete("order-17")
    with pytest.raises(CheckpointNotFoundError):
        await deleted.load_lineage()
    await grown(storage)
    with pytest.raises(CheckpointConflictError):
        await lazy.load_lineage()


async def test_a_damaged_lineage_is_found_when_it_is_read() -> None:
    storage = DistantStorage()
    whole = await branched(storage)
    lazy = await storage.load("order-17")
    del storage._kept["order-17"].manifests[whole.snapshots[1].snapshot_id]
    with pytest.raises(CorruptCheckpointError, match="is missing"):
        await lazy.load_lineage()
    with pytest.raises(SnapshotNotLoadedError):
        _ = lazy.snapshots


# Runs.


class Tally(Executor):
    """Counts, asks at three, and tells what it has counted."""

    @handler
    async def count(self, n: int, ctx: WorkflowContext[int, int]) -> None:
        total = ctx.get_state("total", 0) + n
        ctx.set_state("total", total)
        if n > 1:
            await ctx.send_message(n - 1, target_id="tally")
        else:
            await ctx.yield_output(total)


def tally() -> Workflow:
    counter = Tally(id="tally")
    return WorkflowBuilder(name="tally", start_executor=counter).add_edge(counter, counter).build()


async def test_runs_go_on_and_a_delivery_repeated_late_is_told_again() -> None:
    storage, workflow = DistantStorage(), tally()
    checkpoint = workflow.create_checkpoint(checkpoint_id="a", checkpoint_storage=storage)
    await workflow.run(3, checkpoint=checkpoint, input_id="one")
    told = await workflow.run(2, checkpoint=checkpoint, input_id="two")
    lazy = await storage.load("a")
    assert (await workflow.run(1, checkpoint=lazy, input_id="three")).get_outputs() == [10]
    assert "lineage" not in storage.asked
    lazy = await storage.load("a")
    again = await workflow.run(2, checkpoint=lazy, input_id="two")
    assert again.get_outputs() == told.get_outputs() == [9]
    assert "lineage" in storage.asked
    lazy = await storage.load("a")
    await lazy.load_lineage()
    for snapshot in lazy.snapshots:
        await lazy.load_snapshot(snapshot.snapshot_id)
    await checkpoint.refresh()
    await checkpoint.load_lineage()
    for snapshot in checkpoint.snapshots:
        await checkpoint.load_snapshot(snapshot.snapshot_id)
    assert lazy.events() == checkpoint.events()


async def test_abandon_fetches_the_way_back() -> None:
    storage = DistantStorage()
    whole = await grown(storage, commits=2)
    await whole.commit_snapshot(state(2, requests=("q",), doubtful=True))
    lazy = await storage.load("order-17")
    given_up = await lazy.abandon()
    assert shared(given_up) == shared(whole.snapshots[1])


def test_create_is_complete() -> None:
    assert create(DistantStorage()).snapshots == []
