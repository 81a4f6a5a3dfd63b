"""The queue between a run and its reader: order, waiting on both sides, and its end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from branchpoint.engine import Channel
from branchpoint.events import WorkflowEvent


def event(n: int) -> WorkflowEvent[Any]:
    return WorkflowEvent("data", n)


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_events_come_out_in_the_order_they_went_in_then_none_for_ever() -> None:
    channel = Channel("a run", None)
    for n in range(3):
        channel.put(event(n))
    channel.close()
    found = [await channel.get() for _ in range(5)]
    assert [one and one.data for one in found] == [0, 1, 2, None, None]


async def test_a_reader_waits_for_the_next_event() -> None:
    channel = Channel("a run", None)
    reading = asyncio.create_task(channel.get())
    await turns()
    assert not reading.done()
    channel.put(event(1))
    found = await reading
    assert found is not None
    assert found.data == 1


async def test_closing_wakes_a_waiting_reader() -> None:
    channel = Channel("a run", None)
    reading = asyncio.create_task(channel.get())
    await turns()
    channel.close()
    assert await reading is None


async def test_what_comes_after_the_end_is_dropped() -> None:
    channel = Channel("a run", None)
    channel.close()
    channel.put(event(1))
    assert await channel.get() is None


async def test_without_a_limit_the_run_never_waits() -> None:
    channel = Channel("a run", None)
    for n in range(10_000):
        channel.put(event(n))
    await asyncio.wait_for(channel.drain(), 60)


@pytest.mark.parametrize("limit", [1, 2, 64])
async def test_the_run_is_ahead_by_at_most_the_limit(limit: int) -> None:
    channel = Channel("a run", None, limit)
    made = 0

    async def run() -> None:
        nonlocal made
        for n in range(10 * limit):
            channel.put(event(n))
            made = n + 1
            await channel.drain()
        channel.close()

    running = asyncio.create_task(run())
    read = 0
    while True:
        await turns()
        assert made - read <= limit + 1  # the one it has just put, and waits behind
        if await channel.get() is None:
            break
        read += 1
    assert read == 10 * limit
    await running


async def test_a_run_that_waits_goes_on_when_half_is_read() -> None:
    channel = Channel("a run", None, 4)
    for n in range(6):
        channel.put(event(n))
    waiting = asyncio.create_task(channel.drain())
    await turns()
    for _ in range(3):
        assert not waiting.done()
        await channel.get()
        await turns()
    await channel.get()
    await asyncio.wait_for(waiting, 60)


async def test_a_reader_that_leaves_sets_a_waiting_run_free() -> None:
    channel = Channel("a run", None, 1)
    channel.put(event(1))
    channel.put(event(2))
    waiting = asyncio.create_task(channel.drain())
    await turns()
    assert not waiting.done()
    channel.close()
    await asyncio.wait_for(waiting, 60)
    await asyncio.wait_for(channel.drain(), 60)


async def test_several_handlers_may_wait_for_room_at_once() -> None:
    channel = Channel("a run", None, 1)
    for n in range(3):
        channel.put(event(n))
    waiting = [asyncio.create_task(channel.drain()) for _ in range(3)]
    await turns()
    assert not any(task.done() for task in waiting)
    for _ in range(3):
        await channel.get()
    await asyncio.wait_for(asyncio.gather(*waiting), 60)


async def test_several_readers_share_the_events() -> None:
    channel = Channel("a run", None)
    reading = [asyncio.create_task(channel.get()) for _ in range(3)]
    await turns()
    channel.put(event(1))
    channel.put(event(2))
    await turns()
    channel.close()
    found = await asyncio.wait_for(asyncio.gather(*reading), 60)
    assert sorted(one.data for one in found if one is not None) == [1, 2]


async def test_who_is_cancelled_while_it_waits_takes_nobody_with_it() -> None:
    channel = Channel("a run", None, 1)
    channel.put(event(1))
    channel.put(event(2))
    first, second = (asyncio.create_task(channel.drain()) for _ in range(2))
    await turns()
    first.cancel()
    await asyncio.wait({first})
    await turns()
    assert not second.done()
    await channel.get()
    await channel.get()
    await asyncio.wait_for(second, 60)


async def test_a_cancelled_wait_leaves_the_channel_as_it_was() -> None:
    channel = Channel("a run", None, 1)
    reading = asyncio.create_task(channel.get())
    await turns()
    reading.cancel()
    await asyncio.wait({reading})
    channel.put(event(1))
    channel.put(event(2))
    waiting = asyncio.create_task(channel.drain())
    await turns()
    waiting.cancel()
    await asyncio.wait({waiting})
    found = [await channel.get(), await channel.get()]
    assert [one and one.data for one in found] == [1, 2]
    await channel.drain()


def test_a_live_event_is_stamped_with_where_it_belongs_and_is_never_durable() -> None:
    channel = Channel("checkpoint 'c'", "c", 4)
    channel.input_id, channel.superstep = "in-1", 7
    forged = WorkflowEvent("data", 1, durable=True, event_id="s/0", checkpoint_id="other", executor_id="a")
    stamped = channel.stamp(forged)
    assert (stamped.checkpoint_id, stamped.input_id, stamped.superstep) == ("c", "in-1", 7)
    assert (stamped.durable, stamped.event_id, stamped.executor_id) == (False, None, "a")
    assert channel.stamp(forged, executor_id="b").executor_id == "b"
    assert forged.durable
