"""Of several writers on one head exactly one wins, and nothing of the others is there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from branchpoint.checkpoint import CheckpointSnapshot
from branchpoint.errors import CheckpointConflictError
from branchpoint.testing._clause import clause
from branchpoint.testing._findings import holds, refused, same
from branchpoint.testing._lineage_law import check_lineage_law
from branchpoint.testing._place import Place
from branchpoint.testing.samples import create, grown, lineage, shared, small_state


def _winner(outcomes: Sequence[object]) -> int:
    """The place of the one that won; every other one conflicted."""
    won = [k for k, outcome in enumerate(outcomes) if isinstance(outcome, CheckpointSnapshot)]
    lost = [outcome for outcome in outcomes if isinstance(outcome, CheckpointConflictError)]
    others = [outcome for outcome in outcomes if not isinstance(outcome, CheckpointSnapshot)]
    same(len(won), 1, f"writers that won, beside {others}")
    same(len(lost), len(outcomes) - 1, f"writers that conflicted, of {others}")
    return won[0]


@clause("winning", shows="R31 C17")
async def a_stale_writer_conflicts_and_nothing_of_it_is_persisted(place: Place) -> None:
    """A writer who has not seen the last commit conflicts; after a refresh it goes on."""
    await grown(await place.storage(), commits=2)
    mine, other = [await (await place.storage()).load("order-17") for _ in range(2)]
    await mine.commit_snapshot(small_state(3, by="mine"))
    before = lineage(other)
    with refused(CheckpointConflictError, "order-17"):
        await other.commit_snapshot(small_state(3, by="other"))
    same(lineage(other), before, "the history of the stale writer")
    loaded = await (await place.storage()).load("order-17")
    same(lineage(loaded), lineage(mine))
    same(loaded.parts, mine.parts)
    await other.refresh()
    await other.commit_snapshot(small_state(4, by="other"))
    again = await (await place.storage()).load("order-17")
    same(shared(again.head_snapshot), {"by": "other"})
    check_lineage_law(other, again)


@clause("winning", shows="C17")
async def of_two_writers_exactly_one_wins_every_round(place: Place) -> None:
    """Two writers that commit at the same time on one head: one lands, the other conflicts."""
    await grown(await place.storage(), commits=1)
    storages = [await place.storage() for _ in range(2)]
    rounds = place.rounds * 3
    for n in range(rounds):
        two = [await storage.load("order-17") for storage in storages]
        _winner(
            await asyncio.gather(
                *(one.commit_snapshot(small_state(n, writer=k)) for k, one in enumerate(two)),
                return_exceptions=True,
            )
        )
    loaded = await (await place.storage()).load("order-17")
    await loaded.load_lineage()
    parents = [parent for _, parent in lineage(loaded)]
    same((len(parents), len(set(parents))), (rounds + 1, rounds + 1), "snapshots, and parents of them")


@clause("winning", shows="C18")
async def of_several_first_commits_exactly_one_wins(place: Place) -> None:
    """Several new checkpoints under one id: one is stored, the others conflict, also one that comes later."""
    storages = [await place.storage() for _ in range(4)]
    for n in range(place.rounds):
        several = [create(storage, f"new-{n}") for storage in storages]
        won = _winner(
            await asyncio.gather(
                *(one.commit_snapshot(small_state(0, writer=k)) for k, one in enumerate(several)),
                return_exceptions=True,
            )
        )
        loaded = await storages[0].load(f"new-{n}")
        same(lineage(loaded), lineage(several[won]))
        same(shared(loaded.head_snapshot), {"writer": won})
        with refused(CheckpointConflictError):
            await create(storages[1], f"new-{n}").commit_snapshot(small_state(0, writer="late"))


@clause("winning")
async def one_storage_serves_several_threads_and_event_loops(place: Place) -> None:
    """One storage object is used from event loops in several threads at once, and still one writer wins."""
    storage = await place.storage()
    await grown(storage, "race", commits=1)
    wins: list[int] = []
    failures: list[BaseException] = []
    start = threading.Barrier(3)

    async def work(k: int) -> None:
        await grown(storage, f"own-{k}", commits=3)
        for _ in range(place.rounds // 2):
            race = await storage.load("race")
            start.wait()
            try:
                await race.commit_snapshot(small_state(1, writer=k))
                wins.append(k)
            except CheckpointConflictError:
                pass
            start.wait()

    def run(k: int) -> None:
        try:
            asyncio.run(work(k))
        except BaseException as error:
            failures.append(error)
            start.abort()

    threads = [threading.Thread(target=run, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    holds(not failures, f"a thread failed: {failures}")
    same(len(wins), place.rounds // 2)
    parents = [parent for _, parent in lineage(await storage.load("race"))]
    same((len(parents), len(set(parents))), (len(wins) + 1, len(wins) + 1), "snapshots, and parents of them")
