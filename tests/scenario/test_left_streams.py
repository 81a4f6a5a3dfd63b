"""Streams that are left: dropped, closed, cancelled, while they start, from other threads, after their loop."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import anyio
import pytest

from branchpoint import (
    MemoryCheckpointStorage,
)
from tests.scenario.kit import (
    Around,
    Place,
    Scripted,
    Step,
    Ticks,
    chain,
    reached,
    turns,
)
from tests.scenario.leaving import settled


def waits_once(entered: asyncio.Event | threading.Event, ticks: Ticks) -> Any:
    """What a handler does that waits for ever the first time, and says so when it cleans up."""

    async def waits(text: str, ctx: Any) -> None:
        if not entered.is_set():
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                ticks("cleaned up")

    return waits


async def test_an_iterator_that_is_dropped_takes_the_run_with_it_and_one_that_is_kept_reads_on(
    place: Place, ticks: Ticks
) -> None:
    workflow = chain(Step("a", ticks), Step("b", ticks, final=True))
    checkpoint = place.create(workflow)
    stream = workflow.run("x", checkpoint=checkpoint, stream=True)
    reader = aiter(stream)
    first = await anext(reader)
    assert len([event async for event in reader]) > 3
    assert (await stream.get_final_response()).get_outputs() == ["x>a>b"]
    stream = workflow.run("y", checkpoint=checkpoint, stream=True)
    assert (await anext(aiter(stream))).type == first.type == "started"
    with pytest.raises(asyncio.CancelledError):
        await stream.get_final_response()
    assert checkpoint.in_use_by is None
    assert checkpoint.status == "in_progress"
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == ["y>a>b"]


async def test_a_generator_around_a_stream_ends_the_run_when_it_is_closed(place: Place, ticks: Ticks) -> None:
    entered = asyncio.Event()

    workflow = chain(Scripted("a", ticks, waits_once(entered, ticks), final=True))
    checkpoint = place.create(workflow)

    async def lines() -> Any:
        async for event in workflow.run("x", checkpoint=checkpoint, stream=True):
            yield event.type

    reading = lines()
    assert await anext(reading) == "started"
    await entered.wait()
    await reading.aclose()
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == ["x>a"]
    assert ticks["cleaned up"] == 1


@pytest.mark.parametrize("how", ["closed", "dropped", "cancelled", "cancelled before", "scope"])
@pytest.mark.parametrize("waits", [False, True], ids=["at once", "behind a clean-up"])
async def test_a_stream_that_is_left_while_it_starts_starts_nothing(
    place: Place, ticks: Ticks, how: str, waits: bool
) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def hold(number: int) -> None:
        if number == 1 and waits:
            begun.set()
            await gate.wait()

    workflow = chain(Step("a", ticks), Step("b", ticks, final=True))
    checkpoint = workflow.create_checkpoint("run-1", Around(MemoryCheckpointStorage(), before=hold))
    first = None
    if waits:
        first = asyncio.ensure_future(workflow.run("x", checkpoint=checkpoint))
        await reached(begun, first)
        first.cancel()
        await turns()
    stream: Any = workflow.run("y", checkpoint=checkpoint, stream=True)
    if how == "closed":  # its loop went away between two steps of it, as far as it knows
        reading = stream.get_final_response()
        reading.send(None)
        reading.close()
        del stream, reading
    elif how == "dropped":
        reader: Any = aiter(stream)
        step: Any = anext(reader).__await__()
        step.send(None)
        held = [stream, reader, step]
        held.append(held)
        del stream, reader, step, held
        gc.collect()
    elif how == "cancelled":
        reading = asyncio.ensure_future(stream.get_final_response())
        await turns(1)
        await stream.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    elif how == "cancelled before":
        await stream.cancel()
        for _ in range(2):
            with pytest.raises(asyncio.CancelledError):
                await stream.get_final_response()
    else:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await stream.get_final_response()
    gate.set()
    await settled()
    assert checkpoint.in_use_by is None
    assert ticks.all() == {}
    if first is not None:
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == ["x>a>b"]
    else:
        assert (await workflow.run("z", checkpoint=checkpoint)).get_outputs() == ["z>a>b"]


async def test_cancelling_again_after_the_end_or_from_many_tasks_is_fine(place: Place, ticks: Ticks) -> None:
    entered, cleaning, clean = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def waits(text: str, ctx: Any) -> None:
        if entered.is_set():
            return
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await clean.wait()
            ticks("cleaned up")

    workflow = chain(Scripted("a", ticks, waits, final=True))
    checkpoint = place.create(workflow)
    stream = workflow.run("x", checkpoint=checkpoint, stream=True)
    reading = asyncio.ensure_future(stream.get_final_response())
    await reached(entered, reading)
    cancelling = [asyncio.ensure_future(stream.cancel()) for _ in range(3)]
    await reached(cleaning, reading)
    for _ in range(3):  # a canceller that is cancelled waits for the clean-up all the same
        cancelling[1].cancel("why")
        await turns()
        assert not any(task.done() for task in cancelling)
    clean.set()
    await asyncio.gather(cancelling[0], cancelling[2])
    with pytest.raises(asyncio.CancelledError, match="why"):
        await cancelling[1]
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert (checkpoint.in_use_by, ticks["cleaned up"]) == (None, 1)
    await stream.cancel()
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == ["x>a"]
    finished = workflow.run("y", checkpoint=checkpoint, stream=True)
    assert (await finished.get_final_response()).get_outputs() == ["y>a"]
    await finished.cancel()
    assert (await finished.get_final_response()).get_outputs() == ["y>a"]


def test_a_stream_may_be_dropped_in_another_thread_or_after_its_loop(ticks: Ticks) -> None:
    entered = threading.Event()

    workflow = chain(Scripted("a", ticks, waits_once(entered, ticks), final=True))
    checkpoint = workflow.create_checkpoint()
    held: list[Any] = []

    async def begin(*, stay: bool) -> None:
        held.append(aiter(workflow.run("x", checkpoint=checkpoint, stream=True)))
        await anext(held[0])
        if stay:
            await asyncio.to_thread(held.clear)
            await settled()
            assert checkpoint.in_use_by is None

    asyncio.run(begin(stay=True))
    assert ticks["cleaned up"] == 1
    checkpoint.restart_from(None)
    entered.clear()
    asyncio.run(begin(stay=False))  # the loop ends over the run
    assert ticks["cleaned up"] == 2
    assert checkpoint.in_use_by is None
    held.clear()
    gc.collect()
    assert asyncio.run(as_coroutine(workflow.run(checkpoint=checkpoint))).get_outputs() == ["x>a"]


async def as_coroutine(running: Any) -> Any:
    return await running


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_run_in_a_loop_that_was_closed_over_it_frees_the_checkpoint_for_the_next_loop(ticks: Ticks) -> None:
    """A loop that nobody shut down properly: its run will never go on, and holds nothing."""

    async def waits(text: str, ctx: Any) -> None:
        if ticks["a"] == 1:
            await asyncio.Event().wait()

    workflow = chain(Scripted("a", ticks, waits, final=True))
    checkpoint = workflow.create_checkpoint()
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)  # it would tell of the task that it lost
    task = loop.create_task(as_coroutine(workflow.run("x", checkpoint=checkpoint)))
    while not ticks["a"]:
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert checkpoint.in_use_by is not None
    assert asyncio.run(as_coroutine(workflow.run(checkpoint=checkpoint))).get_outputs() == ["x>a"]
    del task
    gc.collect()
