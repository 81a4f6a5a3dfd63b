"""A storage with `lazy_over` leaves older snapshots behind, and nothing else about it changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from branchpoint.checkpoint import Checkpoint, CheckpointSnapshot, CheckpointStorage
from branchpoint.errors import (
    CheckpointConflictError,
    CheckpointNotFoundError,
    InvalidCallError,
    SnapshotNotFoundError,
    SnapshotNotLoadedError,
)
from branchpoint.testing._clause import clause
from branchpoint.testing._faulty import FaultyStorage
from branchpoint.testing._findings import holds, refused, same
from branchpoint.testing._place import Place
from branchpoint.testing.samples import create, lineage, make_state, shared, small_state

_COMMITS = 24
_LAZY: dict[str, Any] = {"needs": ("load_parts",), "options": ("lazy_over",)}


def page(n: int) -> dict[str, Any]:
    """A state of which 4 kB are its own and 2 kB belong to every page."""
    return small_state(n, own=f"{n:04} " * 800, same="same " * 400, n=n)


async def written(storage: CheckpointStorage, commits: int = _COMMITS) -> Checkpoint:
    checkpoint = create(storage)
    for n in range(commits):
        await checkpoint.commit_snapshot(page(n))
    return checkpoint


def size(parts: Mapping[str, bytes]) -> int:
    return sum(map(len, parts.values()))


class _Watched(FaultyStorage):
    """Notes which parts each commit hands to the storage to be written."""

    def __init__(self, inner: CheckpointStorage) -> None:
        super().__init__(inner)
        self.handed: list[set[str]] = []

    async def commit_snapshot(
        self, checkpoint: Checkpoint, snapshot: CheckpointSnapshot, *, expected_head_snapshot_id: str | None
    ) -> None:
        self.handed.append(set(snapshot.new_parts))
        await super().commit_snapshot(
            checkpoint, snapshot, expected_head_snapshot_id=expected_head_snapshot_id
        )


@clause("lazy", **_LAZY)
async def older_states_stay_in_storage(place: Place) -> None:
    """A load holds about as many bytes as it may, the head is among them, and every manifest is the same."""
    whole = await written(await place.storage())
    holds(whole.head_snapshot, "there is a head")
    head = size(whole.head_snapshot.parts()) if whole.head_snapshot else 0
    for lazy_over in (0, 1, 3000, 30_000):
        lazy = await (await place.storage(lazy_over=lazy_over)).load("order-17")
        held = size(lazy.parts)
        holds(
            held <= max(lazy_over, head),
            f"{held} bytes are loaded, of at most {lazy_over}; the head has {head}",
        )
        same(shared(lazy.head_snapshot)["n"], _COMMITS - 1)
        await lazy.load_lineage()
        same(lineage(lazy), lineage(whole))
        same([one.manifest for one in lazy.snapshots], [one.manifest for one in whole.snapshots])
        same(lazy.header, whole.header)
        holds(not lazy.snapshots[0].is_loaded, "the oldest state is in memory")
        for n, one in enumerate(lazy.snapshots):
            if one.is_loaded:
                same(one.state, page(n))


@clause("lazy", **_LAZY)
async def what_fits_is_there_as_a_whole(place: Place) -> None:
    """Where all parts fit, a lazy load is a complete one."""
    whole = await written(await place.storage(), 6)
    # Twice as many: a storage may count what it keeps beside the parts, an encryption for instance.
    exactly = await (await place.storage(lazy_over=2 * size(whole.parts))).load("order-17")
    same(exactly.parts, whole.parts)
    same([one.is_loaded for one in exactly.snapshots], [True] * 6)


@clause("lazy", **_LAZY)
async def a_state_left_behind_is_fetched_when_asked_for(place: Place) -> None:
    """Reading it says how to fetch it, and then it is what it was, at the cost of itself alone."""
    whole = await written(await place.storage())
    wanted = whole.snapshots[7]
    lazy = await (await place.storage(lazy_over=0)).load("order-17")
    before = size(lazy.parts)
    await lazy.load_lineage()
    old = lazy.snapshots[7]
    same((old.status, old.superstep, old.metadata), ("idle", 7, {"boundary": "edited"}))
    for read in (lambda: old.state, old.plain_state, old.parts, old.to_bytes):
        with refused(SnapshotNotLoadedError, wanted.snapshot_id) as caught:
            read()
        for word in (f"await checkpoint.load_snapshot({old.snapshot_id!r})", "order-17"):
            holds(word in str(caught.error), f"the error says {word}")
    holds(await lazy.load_snapshot(old.snapshot_id) is old, "it is the same snapshot object")
    same(old.state, page(7))
    same(old.to_bytes(), wanted.to_bytes())
    holds(size(lazy.parts) - before < 6000, "one state was fetched")
    with refused(SnapshotNotFoundError):
        await lazy.load_snapshot("nobody")


@clause("lazy", **_LAZY)
async def a_snapshot_may_be_fetched_before_the_lineage_is(place: Place) -> None:
    """`load_snapshot` finds an older snapshot by its id alone."""
    whole = await written(await place.storage())
    lazy = await (await place.storage(lazy_over=0)).load("order-17")
    for n in (0, 11):
        found = await lazy.load_snapshot(whole.snapshots[n].snapshot_id)
        same(found.state, page(n))
    same(lineage(lazy), lineage(whole))


@clause("lazy", **_LAZY)
async def a_commit_does_not_write_again_what_storage_has(place: Place) -> None:
    """Parts of states that were left behind are known to be stored."""
    whole = await written(await place.storage(), 10)
    stored = set(whole.parts)
    watched = _Watched(await place.storage(lazy_over=0))
    lazy = await watched.load("order-17")
    for n in (9, 11, 9):
        snapshot = await lazy.commit_snapshot(page(n))
        same(snapshot.state, page(n))
        same(watched.handed[-1] & stored, set(), "parts that were written a second time")
        stored |= watched.handed[-1]
    same([bool(one) for one in watched.handed], [False, True, False])
    again = await (await place.storage()).load("order-17")
    await again.load_lineage()
    same([one.state for one in again.snapshots], [page(n) for n in (*range(10), 9, 11, 9)])


@clause("lazy", **_LAZY)
async def a_state_may_be_fetched_while_a_commit_is_made(place: Place) -> None:
    """A fetch between the encoding of a commit and its write does no harm."""
    await written(await place.storage(), 5)
    storage = FaultyStorage(await place.storage(lazy_over=0))
    lazy = await storage.load("order-17")
    await lazy.load_lineage()
    wanted = lazy.snapshots[2].snapshot_id
    storage.arm({1: lambda _: lazy.load_snapshot(wanted)})
    await lazy.commit_snapshot(page(2))
    same(lazy.snapshots[2].state, page(2))
    again = await (await place.storage()).load("order-17")
    same(again.snapshots[-1].state, page(2))


@clause("lazy", **_LAZY)
async def what_an_older_snapshot_needs_is_found_again(place: Place) -> None:
    """A commit of an older state, written again or not, leaves a checkpoint that loads as a whole."""
    await written(await place.storage(), 8)
    lazy = await (await place.storage(lazy_over=0)).load("order-17")
    for n in (3, 4, 3):
        await lazy.commit_snapshot(page(n))
    await lazy.load_lineage()
    lazy.restart_from(lazy.snapshots[1].snapshot_id)
    same((await lazy.commit_snapshot()).state, page(1))
    again = await (await place.storage()).load("order-17")
    same([one.state for one in again.snapshots], [page(n) for n in (*range(8), 3, 4, 3, 1)])


@clause("lazy", **_LAZY)
async def a_lazy_checkpoint_rewinds_forks_and_gives_up_by_itself(place: Place) -> None:
    """Calls that need an older state fetch it themselves."""
    whole = create(await place.storage())
    sent = {"value": 1, "sources": ["a"], "targets": ["a"]}
    for n in range(6):
        found = page(n)
        if n > 2:
            found["messages"]["pending"]["deliveries"] = [sent]
        await whole.commit_snapshot(found)
    lazy = await (await place.storage(lazy_over=0)).load("order-17")
    same(shared(await lazy.abandon("enough")), shared(whole.snapshots[2]))
    lazy.restart_from(lazy.snapshots[1].snapshot_id)
    moved = await lazy.commit_snapshot()
    same(moved.state, page(1))
    fork = await lazy.fork(lazy.snapshots[0].snapshot_id)
    same(fork.snapshots[0].state, page(0))
    loaded = await (await place.storage()).load("order-17")
    same(lineage(loaded), lineage(lazy))


@clause("lazy", needs=("load_parts", "prune"), options=("lazy_over",))
async def a_prune_keeps_what_it_did_not_load_out_of_memory(place: Place) -> None:
    """A lazy checkpoint prunes what it never loaded, and knows afterwards what is stored."""
    whole = await written(await place.storage(), 12)
    states = {one.snapshot_id: one.state for one in whole.snapshots}
    watched = _Watched(await place.storage(lazy_over=0))
    lazy = await watched.load("order-17")
    before = size(lazy.parts)
    await lazy.load_lineage()
    gone, kept = lazy.snapshots[3], [lazy.snapshots[n].snapshot_id for n in (2, 9)]
    same(len(await lazy.prune(kept)), 9)
    same(size(lazy.parts), before)
    again = await (await place.storage()).load("order-17")
    expected = [*kept, str(lazy.head_snapshot_id)]
    same({one.snapshot_id: one.state for one in again.snapshots}, {one: states[one] for one in expected})
    with refused(SnapshotNotLoadedError):
        _ = gone.state
    with refused(SnapshotNotFoundError, "holds no snapshot"):
        await lazy.load_snapshot(gone.snapshot_id)
    await lazy.commit_snapshot(page(3))
    holds(watched.handed[0], "what the prune removed is written again")
    final = await (await place.storage()).load("order-17")
    same(final.snapshots[-1].state, page(3))
    same((await lazy.load_snapshot(kept[0])).state, page(2))


@clause("lazy", needs=("load_parts", "prune"), options=("lazy_over",))
async def another_writer_is_told_from_damage(place: Place) -> None:
    """Parts that another writer pruned, deleted or replaced are a conflict, and no damage."""
    await written(await place.storage(), 6)
    lazy = await (await place.storage(lazy_over=0)).load("order-17")
    await lazy.load_lineage()
    other = await (await place.storage()).load("order-17")
    await other.prune([other.snapshots[1].snapshot_id])
    same((await lazy.load_snapshot(lazy.snapshots[1].snapshot_id)).state, page(1))
    with refused(CheckpointConflictError, r"pruned elsewhere.*refresh\(\)"):
        await lazy.load_snapshot(lazy.snapshots[2].snapshot_id)
    await lazy.refresh()
    await lazy.load_lineage()
    same(len(lazy.snapshots), 2)
    await (await place.storage()).delete("order-17")
    with refused(CheckpointNotFoundError):
        await lazy.load_snapshot(lazy.snapshots[0].snapshot_id)
    await written(await place.storage(), 1)
    with refused(CheckpointConflictError, "moved on"):
        await lazy.load_snapshot(lazy.snapshots[0].snapshot_id)


@clause("lazy", **_LAZY)
async def outputs_and_requests_are_those_of_the_head(place: Place) -> None:
    """What a run reads of the head is there without fetching anything."""
    whole = create(await place.storage())
    made: list[dict[str, Any]] = []
    for n in range(4):
        await whole.commit_snapshot(make_state(n, output=made, shared={"own": f"{n}" * 2000}))
        made.append(
            {"turn": 1, "superstep": n, "executor_id": "a", "output_id": f"o{n}", "value": "v" * 2000}
        )
    lazy = await (await place.storage(lazy_over=0)).load("order-17")
    same([one.output_id for one in lazy.outputs()], ["o0", "o1", "o2"])
    same(lazy.pending_requests, [])
    await lazy.load_lineage()
    lazy.restart_from(lazy.snapshots[1].snapshot_id)
    with refused(SnapshotNotLoadedError, "load_snapshot"):
        lazy.outputs()
    await lazy.load_snapshot(lazy.snapshots[1].snapshot_id)
    same([one.output_id for one in lazy.outputs()], ["o0"])


@clause("lazy", **_LAZY)
async def lazy_over_is_a_number_of_bytes(place: Place) -> None:
    """Anything else is refused when the storage is made."""
    wrong: tuple[Any, ...] = (-1, 1.5, "1 MB", True)
    for value in wrong:
        with refused(InvalidCallError, "lazy_over"):
            await place.storage(lazy_over=value)
