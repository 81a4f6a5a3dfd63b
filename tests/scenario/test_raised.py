"""What a caller gets raised: the very cancellation, the very exception, and no cancellation that nobody sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from branchpoint import (
    HandlerError,
    MemoryCheckpointStorage,
    WorkflowBuilder,
    WorkflowContext,
)
from tests.scenario.kit import (
    Around,
    Boom,
    Join,
    Place,
    Scripted,
    Step,
    Ticks,
    boundaries,
    fan,
    reached,
    turns,
)
from tests.scenario.leaving import Stuck, Way, awaited, every_way, row


class Watched:
    """Passes everything on, and notes the very cancellations that went in and what came out."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.received: list[BaseException] = []
        self.raised: BaseException | None = None

    def __await__(self) -> Any:
        steps = self.inner.__await__()
        go_on: Callable[[], Any] = lambda: steps.send(None)  # noqa: E731
        while True:
            try:
                waits_for = go_on()
            except StopIteration as ended:
                return ended.value
            except BaseException as error:
                self.raised = error
                raise
            try:
                yield waits_for
                go_on = lambda: steps.send(None)  # noqa: E731
            except asyncio.CancelledError as error:
                self.received.append(error)
                go_on = lambda error=error: steps.throw(error)  # noqa: E731


@every_way
@pytest.mark.parametrize("when", ["in a handler", "in a commit", "while it waits to begin"])
async def test_the_cancellation_that_is_raised_is_the_very_one_received(
    ticks: Ticks, way: Way, when: str
) -> None:
    stuck, begun, gate = Stuck(ticks), asyncio.Event(), asyncio.Event()

    async def hold(number: int) -> None:
        if when != "in a handler" and number == 2:
            begun.set()
            await gate.wait()

    workflow = row(ticks, 1, stuck)
    checkpoint = workflow.create_checkpoint("run-1", Around(MemoryCheckpointStorage(), before=hold))
    first, call = None, {"message": "x"}
    if when == "while it waits to begin":
        first = asyncio.create_task(awaited(workflow, message="x", checkpoint=checkpoint))
        await reached(begun, first)
        first.cancel()
        await turns()
        call = {}
    watched = Watched(way(workflow, checkpoint=checkpoint, **call))

    async def run() -> Any:
        return await watched

    task = asyncio.create_task(run())
    if when == "while it waits to begin":
        await turns()
    else:
        await reached(stuck.entered if when == "in a handler" else begun, task)
    for message in ("why", "again"):
        task.cancel(message)
        await turns(1)
    gate.set()
    with pytest.raises(asyncio.CancelledError, match="why"):
        await task
    assert watched.raised is watched.received[0]
    assert watched.raised.args == ("why",)
    if first is not None:
        with pytest.raises(asyncio.CancelledError):
            await first


def cancels_its_own_task(text: str, ctx: Any) -> Any:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return asyncio.sleep(0)


async def raises_it(text: str, ctx: Any) -> None:
    raise asyncio.CancelledError("mine")


@every_way
@pytest.mark.parametrize("does", [cancels_its_own_task, raises_it], ids=lambda does: does.__name__)
async def test_a_step_that_cancels_itself_has_failed_and_its_caller_was_not_cancelled(
    place: Place, ticks: Ticks, way: Way, does: Any
) -> None:
    workflow = fan(Step("src", ticks), [Scripted("b", ticks, does), Step("c", ticks)], Join("j", ticks))
    with pytest.raises(HandlerError, match="nobody cancelled the run"):
        await way(workflow, message="x", checkpoint=place.create(workflow))
    assert boundaries(await place.reload()) == ["input_accepted", "superstep_completed"]


@every_way
async def test_nor_was_it_when_a_reducer_raises_a_cancellation(place: Place, ticks: Ticks, way: Way) -> None:
    def reduce(current: int, value: int) -> int:
        raise asyncio.CancelledError("mine")

    async def writes(text: str, ctx: WorkflowContext[str, str]) -> None:
        ctx.set_state("n", 1)

    builder = WorkflowBuilder(name="reduces", start_executor=Scripted("a", ticks, writes, final=True))
    workflow = builder.add_state("n", int, default=0, reducer=reduce).build()
    checkpoint = place.create(workflow)
    with pytest.raises(HandlerError, match="a reducer"):
        await way(workflow, message="x", checkpoint=checkpoint)
    assert (checkpoint.in_use_by, boundaries(checkpoint)) == (None, ["input_accepted"])


class Proud(Exception):
    """An exception that takes no notes."""

    def add_note(self, text: str) -> None:
        raise TypeError("no notes")


@every_way
@pytest.mark.parametrize("where", ["handler", "two handlers", "condition", "reducer"])
async def test_an_exception_that_takes_no_notes_is_still_the_one_that_is_raised(
    place: Place, ticks: Ticks, way: Way, where: str
) -> None:
    raised = Proud("mine")

    async def does(text: str, ctx: WorkflowContext[str, str]) -> None:
        ctx.set_state("n", 1)
        if "handler" in where:
            raise raised

    async def also(text: str, ctx: WorkflowContext[str, str]) -> None:
        if where == "two handlers":
            raise Boom

    def condition(text: str) -> bool:
        if where == "condition":
            raise raised
        return True

    def reduce(current: int, value: int) -> int:
        raise raised

    builder = WorkflowBuilder(name="proud", start_executor=Step("src", ticks))
    builder.add_state("n", int, default=0, reducer=reduce)
    builder.add_fan_out_edges("src", [Scripted("b", ticks, does), Scripted("c", ticks, also)])
    workflow = builder.add_edge("b", Step("z", ticks, final=True), condition=condition).build()
    with pytest.raises(Proud) as caught:
        await way(workflow, message="x", checkpoint=place.create(workflow))
    assert caught.value is raised
    assert boundaries(await place.reload()) == ["input_accepted", "superstep_completed"]
