"""Processes that race for one head, and processes that are killed in the middle of a commit."""

from __future__ import annotations

from branchpoint.testing._children import Children
from branchpoint.testing._clause import clause
from branchpoint.testing._findings import holds, same
from branchpoint.testing._place import Place
from branchpoint.testing.samples import create, grown, lineage, shared, small_state


@clause("processes", shows="R31 C17", hooks=("process",))
async def of_racing_processes_exactly_one_wins_every_round(place: Place) -> None:
    """Processes that commit on one head at the same time: one lands, every other one conflicts."""
    await grown(await place.storage(), commits=1)
    with Children(place, place.writers) as children:
        for n in range(place.rounds):
            children.do("load", checkpoint_id="order-17")
            answers = children.do("commit", n=n)
            won = [k for k, answer in enumerate(answers) if "won" in answer]
            lost = [answer for answer in answers if answer.get("error") == "CheckpointConflictError"]
            same((len(won), len(lost)), (1, place.writers - 1), f"winners and conflicts of {answers}")
            loaded = await (await place.storage()).load("order-17")
            same(loaded.head_snapshot_id, answers[won[0]]["won"])
            same(shared(loaded.head_snapshot), {"n": n, "writer": won[0]})
    loaded = await (await place.storage()).load("order-17")
    await loaded.load_lineage()
    parents = [parent for _, parent in lineage(loaded)]
    same((len(parents), len(set(parents))), (place.rounds + 1,) * 2, "snapshots, and parents of them")


@clause("processes", shows="R31 C18", hooks=("process",))
async def of_processes_that_begin_exactly_one_wins(place: Place) -> None:
    """Processes that make a first commit under one id at the same time: one is stored."""
    with Children(place, place.writers) as children:
        for n in range(max(2, place.rounds // 3)):
            children.do("create", checkpoint_id=f"new-{n}")
            answers = children.do("commit", n=n)
            won = [k for k, answer in enumerate(answers) if "won" in answer]
            lost = [answer for answer in answers if answer.get("error") == "CheckpointConflictError"]
            same((len(won), len(lost)), (1, place.writers - 1), f"winners and conflicts of {answers}")
            loaded = await (await place.storage()).load(f"new-{n}")
            same([one.snapshot_id for one in loaded.snapshots], [answers[won[0]]["won"]])


@clause("processes", shows="R33", hooks=("process",))
async def a_killed_process_leaves_whole_commits(place: Place) -> None:
    """After `kill -9` every commit that was acknowledged is there, and at most one more, whole."""
    for n in range(max(2, place.rounds // 5)):
        checkpoint_id = f"run-{n}"
        with Children(place, 1) as children:
            children.do("create", checkpoint_id=checkpoint_id)
            children.do("commit", n=0)
            acknowledged = 1 + children.killed_while_committing(checkpoint_id, after=3 + n)
        storage = await place.storage()
        loaded = await storage.load(checkpoint_id)
        await loaded.load_lineage()
        found = len(loaded.snapshots)
        holds(
            acknowledged <= found <= acknowledged + 1,
            f"{acknowledged} commits were acknowledged, {found} are stored",
        )
        same([shared(one)["n"] for one in loaded.snapshots], list(range(found)))
        same([parent for _, parent in lineage(loaded)][1:], [one for one, _ in lineage(loaded)][:-1])
        await loaded.commit_snapshot(small_state(found, n=found))
        again = await storage.load(checkpoint_id)
        same(again.head_snapshot_id, loaded.head_snapshot_id)
    await create(await place.storage(), "another").commit_snapshot(small_state(0))
