"""Commits inside of a child that meet another writer, a storage that fails, a cancellation, or each other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from branchpoint import (
    CheckpointConflictError,
    StorageError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    clock,
    handler,
    ids,
)
from tests.scenario.kit import (
    Around,
    Join,
    Place,
    Scripted,
    Shuffle,
    Step,
    Ticks,
    boundaries,
    bytes_of,
    chain,
    every_storage,
    reached,
)
from tests.scenario.nests import behind, lawful, nested

every_depth = pytest.mark.parametrize("depth", [1, 2])


@every_storage
@every_depth
async def test_r51_another_writer_is_met_at_the_next_boundary_inside(
    place: Place, ticks: Ticks, depth: int
) -> None:
    async def another(text: str, ctx: Any) -> None:
        if ticks["b"] == 1:
            other = await place.reload()
            await other.commit_snapshot(metadata={"by": "another"})

    steps = [Step("a", ticks), Scripted("b", ticks, another), Step("c", ticks), Step("d", ticks, final=True)]
    workflow = nested(chain(*steps, name="child"), ticks, depth)
    checkpoint = place.create(workflow)
    with pytest.raises(CheckpointConflictError):
        await workflow.run("x", checkpoint=checkpoint)
    assert ticks["c"] == 0
    checkpoint = await place.reload()
    result = await workflow.run(checkpoint=checkpoint)
    assert result.get_outputs() == [behind("x>a>b>c>d", depth)]
    assert ticks["a"] == 1
    await lawful(place, checkpoint)


@every_storage
@every_depth
@pytest.mark.parametrize("lost", [False, True])
async def test_r51_a_commit_inside_that_fails_or_loses_its_reply(
    place: Place, ticks: Ticks, depth: int, lost: bool
) -> None:
    def fail(number: int) -> None:
        if number == 3:
            raise StorageError("the disk is gone")

    workflow = nested(chain(*[Step(i, ticks, final=i == "d") for i in "abcd"], name="child"), ticks, depth)
    inner = place.open()
    assert inner is not None
    storage = Around(inner, **{"after" if lost else "before": fail})
    checkpoint = workflow.create_checkpoint("run-1", storage)
    if lost:
        result = await workflow.run("x", checkpoint=checkpoint)
    else:
        with pytest.raises(StorageError, match="the disk is gone"):
            await workflow.run("x", checkpoint=checkpoint)
        assert boundaries(checkpoint) == ["input_accepted", "child_superstep_completed"]
        result = await workflow.run(checkpoint=checkpoint)
    assert result.get_outputs() == [behind("x>a>b>c>d", depth)]
    assert ticks.all() == {
        "a": 1,
        "b": 1 if lost else 2,
        "c": 1,
        "d": 1,
        **{f"after{n}": 1 for n in range(depth)},
    }
    await lawful(place, checkpoint)


@every_storage
@every_depth
async def test_c82_a_commit_inside_that_is_in_flight_lands(place: Place, ticks: Ticks, depth: int) -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    async def wait(number: int) -> None:
        if number == 3:
            entered.set()
            await go.wait()

    workflow = nested(chain(*[Step(i, ticks, final=i == "d") for i in "abcd"], name="child"), ticks, depth)
    inner = place.open()
    assert inner is not None
    checkpoint = workflow.create_checkpoint("run-1", Around(inner, before=wait))
    task = asyncio.ensure_future(workflow.run("x", checkpoint=checkpoint))
    await reached(entered, task)
    task.cancel("why")
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError, match="why"):
        await task
    assert boundaries(checkpoint) == ["input_accepted", *["child_superstep_completed"] * 2]
    result = await workflow.run(checkpoint=checkpoint)
    assert result.get_outputs() == [behind("x>a>b>c>d", depth)]
    assert ticks["b"] == 1
    await lawful(place, checkpoint)


# The same calls make the same states, whatever the timing.


class Timed(Step):
    """Takes its turn at any time."""

    def __init__(self, id: str, shuffle: Shuffle, *, final: bool = False) -> None:
        super().__init__(id, final=final)
        self.turn = shuffle.turn

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        await self.turn()
        await self.done(f"{text}>{self.id}:{ctx.idempotency_key}", ctx)


def timed(seed: int, children: int) -> Workflow:
    shuffle = Shuffle(seed)
    child = chain(Timed("a", shuffle), Timed("b", shuffle, final=True), name="child")
    kids = [WorkflowExecutor(child, f"kid{n}") for n in range(children)]
    source, join = Timed("src", shuffle), Join("join")
    if children == 1:
        return chain(source, kids[0], Timed("end", shuffle, final=True), name="parent")
    builder = WorkflowBuilder(name="parent", start_executor=source).add_fan_out_edges(source, kids)
    return builder.add_fan_in_edges(kids, join).build()


@pytest.mark.parametrize("children", [1, 3])
async def test_r15_children_make_the_same_states_whatever_the_timing(children: int) -> None:
    async def made(seed: int) -> tuple[dict[str, bytes], str]:
        with ids.injected(ids.SequentialIds()), clock.injected(clock.SteppingClock()):
            workflow = timed(seed, children)
            checkpoint = workflow.create_checkpoint("run-1")
            await workflow.run("x", checkpoint=checkpoint, input_id="in-1")
            await workflow.run("y", checkpoint=checkpoint, input_id="in-2")
            head = checkpoint.head_snapshot
            assert head is not None
            return bytes_of(checkpoint), head.root

    first, root = await made(1)
    for seed in range(2, 8):
        again, other = await made(seed)
        if children == 1:  # of several, the order in which they come to their boundaries is timing
            assert again == first
        assert len(again) == len(first)
        assert other == root or children > 1
