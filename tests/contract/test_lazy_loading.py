"""A storage with `lazy_over` leaves older snapshots behind, and nothing else about it changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from branchpoint import Executor, Workflow, WorkflowBuilder, WorkflowContext, handler
from branchpoint.checkpoint import Checkpoint, CheckpointSnapshot, CheckpointStorage
from branchpoint.errors import (
    CheckpointConflictError,
    CheckpointNotFoundError,
    InvalidCallError,
    SnapshotNotFoundError,
    SnapshotNotLoadedError,
)
from tests.states import commit_superstep
from tests.storages import LAZY, Lazily, create, lineage, shared, state

COMMITS = 40


@pytest.fixture(params=sorted(LAZY))
def lazily(request: pytest.FixtureRequest, tmp_path: Path) -> Lazily:
    return LAZY[request.param](tmp_path)


def page(n: int) -> dict[str, Any]:
    """A state of which 4 kB are its own and 2 kB belong to every page."""
    return state(n, own=f"{n:04} " * 800, same="same " * 400, n=n)


async def written(storage: CheckpointStorage, commits: int = COMMITS) -> Checkpoint:
    """A checkpoint of many pages, all of it in memory."""
    checkpoint = create(storage)
    for n in range(commits):
        await checkpoint.commit_snapshot(page(n))
    return checkpoint


def size(parts: Mapping[str, bytes]) -> int:
    return sum(map(len, parts.values()))


def loaded(checkpoint: Checkpoint) -> list[int]:
    """The places in commit order of the snapshots whose state is in memory."""
    return [n for n, snapshot in enumerate(checkpoint.snapshots) if snapshot.is_loaded]


def watched(storage: CheckpointStorage) -> list[set[str]]:
    """Note which parts each commit hands to a storage to be written."""
    handed: list[set[str]] = []
    commit = storage.commit_snapshot

    async def noting(checkpoint: Checkpoint, snapshot: CheckpointSnapshot, **more: Any) -> None:
        handed.append(set(snapshot.new_parts))
        await commit(checkpoint, snapshot, **more)

    storage.commit_snapshot = noting  # type: ignore[method-assign, assignment]
    return handed


# What a load leaves behind.


async def test_older_snapshots_stay_in_storage(lazily: Lazily) -> None:
    whole = await written(lazily(None))
    assert size(whole.parts) > 160_000
    lazy = await lazily(30_000).load("order-17")
    assert size(lazy.parts) <= 30_000
    assert loaded(lazy) == list(range(COMMITS - 6, COMMITS))  # the newest ones, as far as they fit
    assert lineage(lazy) == lineage(whole)
    assert [one.manifest for one in lazy.snapshots] == [one.manifest for one in whole.snapshots]
    assert lazy.header == whole.header
    for n in loaded(lazy):
        assert lazy.snapshots[n].state == page(n)


@pytest.mark.parametrize("lazy_over", [0, 1, 3000])
async def test_the_head_is_always_there(lazily: Lazily, lazy_over: int) -> None:
    whole = await written(lazily(None), 4)
    lazy = await lazily(lazy_over).load("order-17")
    assert whole.head_snapshot is not None
    assert lazy.parts == whole.head_snapshot.parts()
    assert loaded(lazy) == [3]
    assert shared(lazy.head_snapshot)["n"] == 3


async def test_what_fits_is_there_as_a_whole(lazily: Lazily) -> None:
    whole = await written(lazily(None))
    exactly = await lazily(size(whole.parts)).load("order-17")
    assert exactly.parts == whole.parts
    assert len(loaded(exactly)) == COMMITS
    less = await lazily(size(whole.parts) - 1).load("order-17")
    assert loaded(less) == list(range(1, COMMITS))


async def test_a_snapshot_whose_state_the_head_has_again_is_there(lazily: Lazily) -> None:
    whole = await written(lazily(None), 5)
    whole.restart_from(whole.snapshots[1].snapshot_id)
    await whole.commit_snapshot()
    assert loaded(await lazily(0).load("order-17")) == [1, 5]


# Reading.


async def test_a_state_left_behind_is_fetched_when_asked_for(lazily: Lazily) -> None:
    whole = await written(lazily(None))
    lazy = await lazily(0).load("order-17")
    before = size(lazy.parts)
    old = lazy.snapshots[7]
    assert (old.status, old.superstep, old.metadata) == ("idle", 7, {"boundary": "edited"})
    for read in (lambda: old.state, old.plain_state, old.parts, old.to_bytes):
        with pytest.raises(SnapshotNotLoadedError) as caught:
            read()
        for word in (f"await checkpoint.load_snapshot({old.snapshot_id!r})", "order-17"):
            assert word in str(caught.value)
    assert await lazy.load_snapshot(old.snapshot_id) is old
    assert old.state == page(7)
    assert old.to_bytes() == whole.snapshots[7].to_bytes()
    assert loaded(lazy) == [7, COMMITS - 1]
    assert size(lazy.parts) - before < 6000


async def test_outputs_requests_and_events_of_what_is_not_there(lazily: Lazily) -> None:
    whole = create(lazily(None))
    for n in range(4):
        found = state(n, requests=("r",) if n == 1 else (), own=f"{n}" * 2000)
        record = {"turn": 1, "superstep": 1, "executor_id": "a", "output_id": "o", "value": "v" * 2000}
        found["messages"]["output"] = [{**record, "output_id": f"o{k}", "superstep": k + 1} for k in range(n)]
        await commit_superstep(whole, found, "a")
    lazy = await lazily(0).load("order-17")
    assert [one.output_id for one in lazy.outputs()] == ["o0", "o1", "o2"]
    assert lazy.pending_requests == []
    for one in (whole, lazy):
        one.restart_from(one.snapshots[1].snapshot_id)
    assert lazy.status == "idle_with_pending_requests"
    for read in (lazy.outputs, lambda: lazy.pending_requests, lazy.events):
        with pytest.raises(SnapshotNotLoadedError, match="load_snapshot"):
            read()  # type: ignore[operator]
    await lazy.load_snapshot(lazy.snapshots[1].snapshot_id)
    assert [one.output_id for one in lazy.outputs()] == ["o0"]
    assert [one.request_id for one in lazy.pending_requests] == ["r"]
    with pytest.raises(SnapshotNotLoadedError, match=lazy.snapshots[0].snapshot_id):
        lazy.events()
    for snapshot in lazy.ancestors():
        await lazy.load_snapshot(snapshot.snapshot_id)
    assert [event.event_id for event in lazy.events()] == [event.event_id for event in whole.events()]


# Committing.


async def test_a_commit_does_not_write_again_what_storage_has(lazily: Lazily) -> None:
    whole = await written(lazily(None), 10)
    stored = set(whole.parts)
    storage = lazily(0)
    handed = watched(storage)
    lazy = await storage.load("order-17")
    for n in (3, 4, 3, 11, 4):
        snapshot = await lazy.commit_snapshot(page(n))
        assert snapshot.state == page(n)
        assert snapshot.new_parts == {}
        assert not handed[-1] & stored
        stored |= handed[-1]
    assert [bool(one) for one in handed] == [False, False, False, True, False]
    again = await lazily(None).load("order-17")
    assert [one.state for one in again.snapshots] == [page(n) for n in (*range(10), 3, 4, 3, 11, 4)]
    assert set(again.parts) == stored
    assert loaded(lazy) == list(range(9, 15))
    assert size(lazy.parts) < size(again.parts) / 2


async def test_a_part_that_is_fetched_while_a_commit_needs_it_is_not_written_again(lazily: Lazily) -> None:
    await written(lazily(None), 5)
    storage = lazily(0)
    lazy = await storage.load("order-17")
    handed: list[int] = []
    commit = storage.commit_snapshot

    async def fetching(checkpoint: Checkpoint, snapshot: CheckpointSnapshot, **more: Any) -> None:
        await lazy.load_snapshot(lazy.snapshots[2].snapshot_id)
        handed.append(len(snapshot.new_parts))
        await commit(checkpoint, snapshot, **more)

    storage.commit_snapshot = fetching  # type: ignore[method-assign, assignment]
    await lazy.commit_snapshot(page(2))
    assert handed == [0]
    assert (await lazily(None).load("order-17")).snapshots[-1].state == page(2)


async def test_a_lazy_checkpoint_rewinds_forks_and_gives_up_by_itself(lazily: Lazily) -> None:
    whole = create(lazily(None))
    for n in range(6):
        unfinished = page(n)
        if n > 2:
            unfinished["messages"]["pending"]["deliveries"] = [
                {"value": 1, "sources": ["a"], "targets": ["a"]}
            ]
        await whole.commit_snapshot(unfinished)
    lazy = await lazily(0).load("order-17")
    given_up = await lazy.abandon("enough")
    assert shared(given_up) == shared(whole.snapshots[2])
    assert loaded(lazy) == [2, 5, 6]
    lazy.restart_from(lazy.snapshots[1].snapshot_id)
    moved = await lazy.commit_snapshot()
    assert moved.state == page(1)
    fork = await lazy.fork(lazy.snapshots[0].snapshot_id)
    assert fork.snapshots[0].state == page(0)
    assert lineage(await lazily(None).load("order-17")) == lineage(lazy)


# Pruning.


async def test_a_prune_keeps_what_it_did_not_load_out_of_memory(lazily: Lazily) -> None:
    whole = await written(lazily(None))
    states = {one.snapshot_id: one.state for one in whole.snapshots}
    storage = lazily(0)
    lazy = await storage.load("order-17")
    before = size(lazy.parts)
    gone, kept = lazy.snapshots[3], [lazy.snapshots[n].snapshot_id for n in (2, 9, 20)]
    removed = await lazy.prune(kept)
    assert len(removed) == COMMITS - 4
    assert size(lazy.parts) == before
    assert loaded(lazy) == [3]
    again = await lazily(None).load("order-17")
    assert {one.snapshot_id: one.state for one in again.snapshots} == {
        one: states[one] for one in (*kept, lazy.head_snapshot_id)
    }
    with pytest.raises(SnapshotNotLoadedError):
        _ = gone.state
    with pytest.raises(SnapshotNotFoundError, match="holds no snapshot"):
        await lazy.load_snapshot(gone.snapshot_id)
    # What the prune left is still known to be there, and what it removed is known to be gone.
    handed = watched(storage)
    await lazy.commit_snapshot(page(9))
    await lazy.commit_snapshot(page(3))
    assert handed[0] == set()
    assert handed[1]
    final = await lazily(None).load("order-17")
    assert [one.state for one in final.snapshots[-2:]] == [page(9), page(3)]
    await lazy.load_snapshot(kept[0])
    assert lazy.snapshots[0].state == page(2)


async def test_another_writer_who_removed_the_parts_is_told_from_damage(lazily: Lazily) -> None:
    await written(lazily(None), 6)
    lazy = await lazily(0).load("order-17")
    other = await lazily(None).load("order-17")
    await other.prune([other.snapshots[1].snapshot_id])
    assert (await lazy.load_snapshot(lazy.snapshots[1].snapshot_id)).state == page(1)
    with pytest.raises(CheckpointConflictError, match=r"pruned elsewhere.*refresh\(\)"):
        await lazy.load_snapshot(lazy.snapshots[2].snapshot_id)
    await lazy.refresh()
    assert len(lazy.snapshots) == 2
    assert loaded(lazy) == [1]
    await lazily(None).delete("order-17")
    with pytest.raises(CheckpointNotFoundError):
        await lazy.load_snapshot(lazy.snapshots[0].snapshot_id)
    await written(lazily(None), 1)
    with pytest.raises(CheckpointConflictError, match="moved on"):
        await lazy.load_snapshot(lazy.snapshots[0].snapshot_id)


# Running.


class Grow(Executor):
    """Sends a text to itself, longer each time, until it is long enough."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        ctx.set_state("page", f"{len(text)} " * 1000)
        if len(text) < 12:
            await ctx.send_message(text + "x")
        else:
            await ctx.yield_output(text)


def growing() -> Workflow:
    grow = Grow(id="grow")
    return WorkflowBuilder(name="growing", start_executor=grow).add_edge(grow, grow).build()


async def test_a_run_fetches_what_it_goes_on_from(lazily: Lazily) -> None:
    workflow = growing()
    whole = workflow.create_checkpoint("order-17", checkpoint_storage=lazily(None))
    assert (await workflow.run("x", checkpoint=whole)).get_outputs() == ["x" * 12]
    lazy = await lazily(0).load("order-17")
    lazy.restart_from(lazy.snapshots[5].snapshot_id)
    assert loaded(lazy) == [len(lazy.snapshots) - 1]
    before = len(lazy.snapshots)
    assert (await workflow.run(checkpoint=lazy)).get_outputs() == ["x" * 12]
    assert [one.boundary for one in lazy.snapshots[before:]] == [
        "restarted",
        *["superstep_completed"] * 6,
        "completed",
    ]
    assert loaded(lazy) == [5, *range(before - 1, before + 8)]
    again = await lazily(None).load("order-17")
    assert again.snapshots[-1].state == lazy.snapshots[-1].state
    assert set(again.parts) >= set(lazy.parts)


# How much is a matter of numbers.


@pytest.mark.parametrize("wrong", [-1, 1.5, "1 MB", True])
def test_lazy_over_is_a_number_of_bytes(lazily: Lazily, wrong: Any) -> None:
    with pytest.raises(InvalidCallError, match="lazy_over"):
        lazily(wrong)
