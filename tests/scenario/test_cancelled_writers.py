"""Cases of writers who were cancelled, or whose reader went away: C17, C18, C21 and C22 under cancellation."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from branchpoint import (
    Checkpoint,
    CheckpointConflictError,
    CheckpointNotFoundError,
    Workflow,
)
from tests.scenario.kit import (
    Around,
    LoopTime,
    Place,
    Scripted,
    Step,
    Ticks,
    bytes_of,
    chain,
    file_bytes,
    reached,
    turns,
)
from tests.scenario.leaving import Exit, Way, awaited, every_way, iterated, settled, some_exits

stored = pytest.mark.parametrize("place", ["memory", "file-json"], indirect=True)


class Held(Around):
    """Holds one commit back, before or after it is made."""

    def __init__(self, place: Place, number: int, *, after: bool = False) -> None:
        inner = place.open()
        assert inner is not None
        super().__init__(inner, **{"after" if after else "before": self.hold})
        self.number = number
        self.begun, self.gate = asyncio.Event(), asyncio.Event()

    async def hold(self, number: int) -> None:
        if number == self.number:
            self.begun.set()
            await self.gate.wait()


def two(ticks: Ticks) -> Workflow:
    return chain(Step("a", ticks), Step("b", ticks, final=True))


def is_unbroken(checkpoint: Checkpoint) -> bool:
    """Say whether the snapshots are one straight chain in commit order."""
    found = [one.snapshot_id for one in checkpoint.snapshots]
    return [one.parent_snapshot_id for one in checkpoint.snapshots] == [None, *found[:-1]]


async def let_land(storage: Held, leaving: asyncio.Future[None]) -> None:
    """Let the commit go on, and wait until who has left has cleaned up."""
    await turns()
    storage.gate.set()
    await leaving
    await settled()


@stored
@some_exits
@pytest.mark.parametrize("number", [2, 3])
async def test_c21_a_write_of_a_run_that_was_left_does_not_replace_what_came_after(
    place: Place, ticks: Ticks, leave: Exit, number: int
) -> None:
    workflow, storage = two(ticks), Held(place, number)
    checkpoint = workflow.create_checkpoint("run-1", storage)
    leaving = asyncio.ensure_future(
        leave(workflow, storage.begun, LoopTime(), message="x", checkpoint=checkpoint)
    )
    await storage.begun.wait()
    other = await place.reload()
    assert len(other.snapshots) == number - 1
    assert (await workflow.run(checkpoint=other)).get_outputs() == ["x>a>b"]
    before = bytes_of(await place.reload())
    await let_land(storage, leaving)
    assert checkpoint.in_use_by is None
    # It was refused, and who wrote it knows what it knew.
    loaded = await place.reload()
    assert bytes_of(loaded) == before
    assert loaded.head_snapshot_id == other.head_snapshot_id
    assert is_unbroken(loaded)
    assert len(checkpoint.snapshots) == number - 1
    acted = ticks.all()
    with pytest.raises(CheckpointConflictError):
        await workflow.run(checkpoint=checkpoint)
    assert ticks.all() == acted
    await checkpoint.refresh()
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == ["x>a>b"]


@stored
@some_exits
async def test_c21_a_write_that_has_landed_counts_although_its_run_was_left(
    place: Place, ticks: Ticks, leave: Exit
) -> None:
    """The reply is under way when the caller goes: another copy that goes on meanwhile sees the write."""
    workflow, storage = two(ticks), Held(place, 2, after=True)
    checkpoint = workflow.create_checkpoint("run-1", storage)
    leaving = asyncio.ensure_future(
        leave(workflow, storage.begun, LoopTime(), message="x", checkpoint=checkpoint)
    )
    await storage.begun.wait()
    other = await place.reload()
    assert len(other.snapshots) == 2
    assert (await workflow.run(checkpoint=other)).get_outputs() == ["x>a>b"]
    await let_land(storage, leaving)
    assert ticks.all() == {"a": 1, "b": 1}
    assert len(checkpoint.snapshots) == 2
    assert is_unbroken(await place.reload())
    with pytest.raises(CheckpointConflictError):
        await workflow.run(checkpoint=checkpoint)
    assert ticks.all() == {"a": 1, "b": 1}


@stored
@every_way
async def test_c17_of_two_copies_one_of_which_is_cancelled_never_both_have_written(
    place: Place, ticks: Ticks, way: Way
) -> None:
    """In every turn of the loop in which the cancellation can come."""
    workflow = two(ticks)
    await workflow.run("first", checkpoint=place.create(workflow))
    for turn in range(12):
        copies = [await place.reload(), await place.reload()]
        count = len(copies[0].snapshots)
        runs = [asyncio.ensure_future(way(workflow, message="x", checkpoint=one)) for one in copies]
        await turns(turn)
        runs[turn % 2].cancel()
        found = await asyncio.gather(*runs, return_exceptions=True)
        loaded = await place.reload()
        assert is_unbroken(loaded)
        for copy, outcome in zip(copies, found, strict=True):
            assert not isinstance(outcome, BaseException) or isinstance(
                outcome, CheckpointConflictError | asyncio.CancelledError
            )
            assert copy.in_use_by is None
            mine = set(bytes_of(copy)) - {one.snapshot_id for one in loaded.snapshots[:count]}
            assert mine <= {one.snapshot_id for one in loaded.snapshots}
        if loaded.status == "in_progress":
            await workflow.run(checkpoint=loaded)
        elif len(loaded.snapshots) == count:
            await workflow.run("x", checkpoint=loaded)
        assert loaded.outputs()[-1].value == "x>a>b"


@stored
@some_exits
async def test_c18_a_beginning_that_is_left_in_its_first_commit_is_made_or_is_not(
    place: Place, ticks: Ticks, leave: Exit
) -> None:
    """Whichever of two beginnings wins, the body runs once, and nothing that is stored is overwritten."""
    for n, after in enumerate((False, True)):
        workflow, storage = two(ticks), Held(place, 1, after=after)
        left = workflow.create_checkpoint(f"run-{n}", storage)
        second = workflow.create_checkpoint(f"run-{n}", place.open())
        leaving = asyncio.ensure_future(
            leave(workflow, storage.begun, LoopTime(), message="left", checkpoint=left)
        )
        await storage.begun.wait()
        if after:
            with pytest.raises(CheckpointConflictError):
                await iterated(workflow, message="second", checkpoint=second)
        else:
            await iterated(workflow, message="second", checkpoint=second)
        await let_land(storage, leaving)
        loaded = await place.reload(f"run-{n}")
        winner = "left" if after else "second"
        assert loaded.snapshots[0].state["messages"]["input"]["value"] == winner
        assert (await workflow.run(checkpoint=loaded)).get_outputs() == [f"{winner}>a>b"]
        assert ticks.all() == {"a": n + 1, "b": n + 1}
        assert len(left.snapshots) == (1 if after else 0)
        with pytest.raises(CheckpointConflictError):
            await awaited(
                workflow, message="third", checkpoint=workflow.create_checkpoint(f"run-{n}", place.open())
            )
        assert ticks.all() == {"a": n + 1, "b": n + 1}


@stored
@every_way
async def test_c18_of_two_beginnings_that_are_read_one_runs_the_body(
    place: Place, ticks: Ticks, way: Way
) -> None:
    workflow = two(ticks)
    both = [workflow.create_checkpoint("run-1", place.open()) for _ in range(2)]
    found = await asyncio.gather(
        *(way(workflow, message="x", checkpoint=one) for one in both), return_exceptions=True
    )
    assert sum(isinstance(one, CheckpointConflictError) for one in found) == 1
    assert ticks.all() == {"a": 1, "b": 1}
    assert is_unbroken(await place.reload())


@stored
@some_exits
@pytest.mark.parametrize("where", ["in a step", "in a commit"])
async def test_c22_a_run_that_is_left_after_the_delete_brings_nothing_back(
    place: Place, ticks: Ticks, leave: Exit, where: str, tmp_path: Path
) -> None:
    entered, let = asyncio.Event(), asyncio.Event()

    async def waits(text: str, ctx: Any) -> None:
        if where == "in a step" and ticks["b"] == 1:
            entered.set()
            await let.wait()

    workflow = chain(Step("a", ticks), Scripted("b", ticks, waits), Step("c", ticks, final=True))
    storage = Held(place, 3 if where == "in a commit" else 0)
    checkpoint = workflow.create_checkpoint("run-1", storage)
    stands = storage.begun if where == "in a commit" else entered
    deleted = asyncio.Event()  # the caller leaves once that is done
    leaving = asyncio.ensure_future(leave(workflow, deleted, LoopTime(), message="x", checkpoint=checkpoint))
    await reached(stands, leaving)
    await storage.delete("run-1")
    deleted.set()
    await let_land(storage, leaving)
    with pytest.raises(CheckpointNotFoundError):
        await place.reload()
    assert {name for name in file_bytes(tmp_path) if "/.lock-" not in name} == set()
    fresh = workflow.create_checkpoint("run-1", place.open())
    await workflow.run("new", checkpoint=fresh)
    before, acted = bytes_of(await place.reload()), ticks.all()
    for use in (lambda: workflow.run(checkpoint=checkpoint), checkpoint.commit_snapshot, checkpoint.abandon):
        with pytest.raises(CheckpointConflictError):
            await use()
    assert (bytes_of(await place.reload()), ticks.all()) == (before, acted)
