"""Streams: the same story for every reader, at the reader's pace, durable where it says so, and left cleanly: C81."""

from __future__ import annotations

import asyncio
import gc
import threading
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from branchpoint import (
    Checkpoint,
    CheckpointConflictError,
    CheckpointInUseError,
    Executor,
    InvalidCallError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowRunState,
    clock,
    executor,
    handler,
    ids,
    response_handler,
)
from branchpoint.clock import SteppingClock
from branchpoint.ids import SequentialIds
from tests.scenario.kit import (
    Around,
    Ask,
    Boom,
    Outside,
    Place,
    Scripted,
    Shuffle,
    Step,
    Ticks,
    boundaries,
    chain,
    every_place,
    every_storage,
    reached,
    turns,
)
from tests.scenario.leaving import Way, every_way, once, settled

BUFFER = 64
"""How far a run may be ahead of its reader."""


class Telling(Executor):
    """Yields, tells of its progress, asks, and sends on: every kind of event there is."""

    def __init__(self, id: str, shuffle: Shuffle) -> None:
        super().__init__(id=id)
        self.shuffle = shuffle

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str | int, str]) -> None:
        await ctx.add_event(WorkflowEvent("data", {"progress": 1}))
        await self.shuffle.turn()
        await ctx.yield_output(f"{self.id} saw {text}")
        await ctx.request_info(f"{self.id}?", str)
        await ctx.send_message(f"{text}>{self.id}")
        await ctx.send_message(7)

    @response_handler
    async def on_answer(self, question: str, answer: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(f"{self.id}={answer}")


class Counted(Executor):
    """Takes numbers, so that texts do not reach it."""

    @handler
    async def on_number(self, number: int, ctx: WorkflowContext[str, str]) -> None:
        if number > 7:
            raise Boom


def talkative(seed: int = 0, *, fails: bool = False) -> Workflow:
    shuffle = Shuffle(seed)
    src = Step("src")
    tellers = [Telling(id, shuffle) for id in "bc"]
    builder = WorkflowBuilder(
        name="talkative",
        start_executor=src,
        output_from=["b", "z", "join"],
        intermediate_output_from=["c"],
        undelivered="drop",
    )
    builder.add_fan_out_edges(src, tellers)
    for teller in tellers:
        builder.add_edge(teller, Step("z", final=True) if teller is tellers[0] else "z", condition=nonsense)
        builder.add_edge(teller, Counted(id="n") if teller is tellers[0] else "n")
    if fails:
        builder.add_edge("n", fail)
    return builder.add_fan_in_edges(["z", "b"], Joined(id="join")).build()


class Joined(Executor):
    """Joins texts."""

    @handler
    async def on_texts(self, texts: list[str | int], ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(str(texts))


@executor(id="fail")
async def fail(text: str, ctx: WorkflowContext[str, str]) -> None:
    raise Boom


def nonsense(message: object) -> bool:
    return message != "x>src>c"


async def story(way: str, place: Place | None, seed: int) -> list[list[WorkflowEvent]]:
    """What a reader is told by a turn, its answers, and a call that runs nothing."""
    told: list[list[WorkflowEvent]] = []
    with ids.injected(SequentialIds()), clock.injected(SteppingClock()):
        workflow = talkative(seed)
        checkpoint = None if place is None else place.create(workflow, f"run-{way}"[:4])

        async def call(**more: Any) -> None:
            if way == "run":
                result = await workflow.run(checkpoint=checkpoint, include_status_events=True, **more)
                told.append(list(result))
            elif way == "iterated":
                stream = workflow.run(checkpoint=checkpoint, include_status_events=True, stream=True, **more)
                told.append([event async for event in stream])
                assert list(await stream.get_final_response()) == told[-1]
            else:
                stream = workflow.run(checkpoint=checkpoint, include_status_events=True, stream=True, **more)
                told.append(list(await stream.get_final_response()))

        await call(message="x", input_id="in-1")
        if checkpoint is not None:
            asked = [request.request_id for request in checkpoint.pending_requests]
            await call()
            await call(responses={asked[0]: "yes"}, input_id="in-2")
            await call(responses={asked[1]: "no"}, input_id="in-3")
            await call()
    return told


async def test_every_reader_is_told_the_same_events_in_the_same_order(tmp_path: Any) -> None:
    from tests.scenario.kit import place_of

    for kind in (None, "none", "memory", "file-json"):
        stories = []
        for n, way in enumerate(("run", "iterated", "final")):
            (folder := tmp_path / f"{kind}-{way}").mkdir()
            place = None if kind is None else place_of(kind, folder)
            stories.append(await story(way, place, seed=n))
        assert stories[0] == stories[1] == stories[2]
        types = {event.type for events in stories[0] for event in events}
        assert types >= {
            "started",
            "status",
            "superstep_started",
            "executor_invoked",
            "executor_completed",
            "superstep_completed",
            "data",
            "output",
            "intermediate",
            "request_info",
            "message_ended",
        }
        durable = [event for events in stories[0] for event in events if event.durable]
        assert bool(durable) == (kind is not None)
        assert all((event.event_id is not None) == event.durable for events in stories[0] for event in events)


@every_place
async def test_so_they_are_of_a_run_that_fails(place: Place) -> None:
    stories = []
    for n, way in enumerate(("run", "iterated", "final")):
        with ids.injected(SequentialIds()), clock.injected(SteppingClock()):
            workflow = chain(Step("a"), Scripted("b", None, explode), name="fails")
            checkpoint = place.create(workflow, f"{n}")
            events: list[WorkflowEvent] = []
            stream = workflow.run("x", checkpoint=checkpoint, stream=True, input_id="in-1")
            with pytest.raises(Boom):
                if way == "run":
                    await workflow.run("x", checkpoint=checkpoint, input_id="in-1")
                elif way == "iterated":
                    async for event in stream:
                        events.append(event)  # noqa: PERF401
                else:
                    await stream.get_final_response()
            if way == "iterated":
                assert [event.type for event in events[-2:]] == ["executor_failed", "failed"]
                assert events[-1].state is WorkflowRunState.FAILED
                assert events[-1].details is not None
                assert events[-1].details.error_type == "Boom"
                with pytest.raises(Boom):
                    await stream.get_final_response()
        stories.append(checkpoint.events())
    assert [[(one.type, one.data) for one in events] for events in stories] == [
        [(one.type, one.data) for one in stories[0]]
    ] * 3


async def explode(text: str, ctx: Any) -> None:
    raise Boom


# What a stream is.


async def test_a_stream_is_read_by_iterating_or_by_asking_for_the_end_and_not_by_await(ticks: Ticks) -> None:
    workflow = chain(Step("a", ticks), Step("b", ticks, final=True))
    stream = workflow.run("x", stream=True)
    with pytest.raises(InvalidCallError, match="async for"):
        await stream  # type: ignore[misc]
    assert ticks.all() == {}
    reader = aiter(stream)
    first = await anext(reader)
    rest = [event async for event in stream]  # another reader of the same run
    result = await stream.get_final_response()
    assert result.get_outputs() == ["x>a>b"]
    assert [first.type, *(event.type for event in rest)][0] == "started"
    assert [event.type for event in result] == [
        event.type for event in [first, *rest] if event.type != "status"
    ]
    # Asked again, it says the same, and has nothing more to tell.
    assert list(await stream.get_final_response()) == list(result)
    assert [event async for event in stream] == []
    with pytest.raises(StopAsyncIteration):
        await anext(reader)
    assert ticks.all() == {"a": 1, "b": 1}


async def test_two_readers_share_one_run(ticks: Ticks) -> None:
    workflow = chain(Step("a", ticks), Step("b", ticks), Step("c", ticks, final=True))
    stream = workflow.run("x", stream=True)

    async def read() -> list[WorkflowEvent]:
        return [event async for event in stream]

    found = await asyncio.gather(read(), read(), stream.get_final_response())
    assert ticks.all() == {"a": 1, "b": 1, "c": 1}
    whole = [event.type for event in await stream.get_final_response()]
    assert len(found[0]) + len(found[1]) <= len(whole) + 2
    assert found[2].get_outputs() == ["x>a>b>c"]


async def test_every_reader_gets_the_refusal(place: Place, ticks: Ticks) -> None:
    workflow = chain(Step("a", ticks))
    checkpoint = place.create(workflow)
    stream = workflow.run(checkpoint=checkpoint, stream=True)
    for _ in range(2):
        with pytest.raises(InvalidCallError, match="nothing to run"):
            await stream.get_final_response()
        with pytest.raises(InvalidCallError, match="nothing to run"):
            await anext(aiter(stream))
    with checkpoint.hold("a test"):
        stream = workflow.run("x", checkpoint=checkpoint, stream=True)
        for _ in range(2):
            with pytest.raises(CheckpointInUseError):
                await stream.get_final_response()
    assert ticks.all() == {}


# Backpressure.


class Floods(Executor):
    """Emits as fast as it may."""

    def __init__(self, id: str, count: int, emitted: Ticks) -> None:
        super().__init__(id=id)
        self.count, self.emitted = count, emitted

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        for n in range(self.count):
            await ctx.add_event(WorkflowEvent("data", n))
            self.emitted("emitted")
        await ctx.send_message(text)


class FloodsInAThread(Floods):
    @handler
    def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        context: Any = ctx
        for n in range(self.count):
            context.add_event(WorkflowEvent("data", n))
            self.emitted("emitted")
        context.send_message(text)


@pytest.mark.parametrize("kind", [Floods, FloodsInAThread])
async def test_a_slow_reader_holds_the_run_back_and_misses_nothing(ticks: Ticks, kind: type[Floods]) -> None:
    workflow = chain(kind("a", 300, ticks), Step("b", final=True))
    seen: list[int] = []
    async for event in workflow.run("x", stream=True):
        if event.type == "data":
            seen.append(event.data)
            await turns(5)
            assert ticks["emitted"] <= len(seen) + BUFFER + 1
    assert seen == list(range(300))
    # Whoever waits for the end does not hold it back, and is told all the same.
    ticks.clear("emitted")
    result = await workflow.run("x")
    assert [event.data for event in result if event.type == "data"] == seen


@every_storage
async def test_the_head_is_ahead_of_a_slow_reader_by_the_buffer_at_most_and_never_behind(
    place: Place, ticks: Ticks
) -> None:
    class Rounds(Step):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            if self.ticks(self.id) < 40:
                await ctx.send_message(text)
            else:
                await ctx.yield_output(text)

    rounds = Rounds("r", ticks)
    workflow = WorkflowBuilder(name="rounds", start_executor=rounds).add_edge(rounds, rounds).build()
    checkpoint = place.create(workflow)
    completed = 0
    async for event in workflow.run("x", checkpoint=checkpoint, stream=True):
        await turns(5)
        if event.type == "superstep_completed":
            completed += 1
            assert event.iteration == completed
        head = checkpoint.head_snapshot
        # Four events to a superstep.
        assert completed <= (head.superstep if head is not None else 0) <= completed + BUFFER // 4 + 2
    assert completed == 40


async def test_a_run_that_waits_for_its_reader_ends_when_the_reader_goes(place: Place, ticks: Ticks) -> None:
    workflow = chain(Floods("a", 1000, ticks), Step("b", final=True))
    checkpoint = place.create(workflow)
    stream: Any = workflow.run("x", checkpoint=checkpoint, stream=True)
    reader = aiter(stream)
    await anext(reader)
    await turns(300)
    assert ticks["emitted"] <= BUFFER + 1
    held = [stream, reader]
    held.append(held)  # nobody else knows of the run now, which waits for a reader
    del stream, reader, held
    gc.collect()
    result = await workflow.run(checkpoint=checkpoint)
    assert (result.get_outputs(), ticks["emitted"] > 1000) == (["x>b"], True)


@pytest.mark.parametrize("kind", [Floods, FloodsInAThread])
async def test_whoever_waits_for_room_is_cancelled_too(
    place: Place, ticks: Ticks, kind: type[Floods]
) -> None:
    workflow = chain(kind("a", 1000, ticks), Step("b", final=True))
    checkpoint = place.create(workflow)
    stream = workflow.run("x", checkpoint=checkpoint, stream=True)
    reader = aiter(stream)
    await anext(reader)
    while ticks["emitted"] < BUFFER - 10:
        await asyncio.sleep(0)
    await turns(50)
    with anyio.fail_after(30):
        await stream.cancel()
    assert checkpoint.in_use_by is None
    assert boundaries(checkpoint) == ["input_accepted"]
    with pytest.raises(asyncio.CancelledError):
        await stream.get_final_response()
    for thread in threading.enumerate():
        if thread.name == "branchpoint-handler":
            await asyncio.to_thread(thread.join, 60)


# C81: what was told as done is in the loaded head.


@every_storage
@pytest.mark.parametrize("until", ["superstep_completed", "output", "request_info"])
async def test_c81_what_was_told_as_done_before_a_break_is_there_after_a_reload(
    place: Place, ticks: Ticks, until: str
) -> None:
    """On a storage that takes its time, so that the run is in the middle of a commit when the reader goes."""

    class Yields(Step):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            self.ticks(self.id)
            await ctx.yield_output(f"{self.id} saw {text}")
            await self.done(f"{text}>{self.id}", ctx)

    steps = [Yields(id, ticks) for id in "abc"]
    workflow = chain(*steps, Ask("ask", ticks), Yields("e", ticks, final=True))
    inner = place.open()
    assert inner is not None

    async def slow(number: int) -> None:
        await turns(30)

    checkpoint = workflow.create_checkpoint("run-1", Around(inner, before=slow, after=slow))
    seen: list[WorkflowEvent] = []
    async for event in workflow.run("x", checkpoint=checkpoint, stream=True):
        seen.append(event)
        if event.durable:
            assert event in (await place.reload()).events()
        if event.type == until and (until != "superstep_completed" or event.iteration == 3):
            break
    await settled()
    loaded = await place.reload()
    told = [event for event in seen if event.durable]
    assert told
    assert loaded.events()[: len(told)] == told
    outputs = [event.data for event in told if event.type == "output"]
    assert [one.value for one in loaded.outputs()][: len(outputs)] == outputs
    assert loaded.head_snapshot_id == checkpoint.head_snapshot_id == checkpoint.stored_head_snapshot_id


@every_storage
async def test_c81_nothing_is_told_as_done_that_a_failed_commit_did_not_keep(
    place: Place, ticks: Ticks
) -> None:
    inner = place.open()
    assert inner is not None

    def full(number: int) -> None:
        if number >= 3:
            raise OSError(28, "no space left on device")

    workflow = chain(Step("a", ticks), Step("b", ticks, final=True))
    checkpoint = workflow.create_checkpoint("run-1", Around(inner, before=full))
    seen: list[WorkflowEvent] = []
    with pytest.raises(OSError, match="no space"):
        async for event in workflow.run("x", checkpoint=checkpoint, stream=True):
            seen.append(event)  # noqa: PERF401
    told = [event for event in seen if event.durable]
    assert [event.type for event in told] == ["executor_completed", "superstep_completed"]
    assert (await place.reload()).events() == told
    assert not any(event.type == "output" for event in seen)


# The caller's context.

who: ContextVar[str] = ContextVar("who", default="nobody")


class InContext(Outside):
    """What handlers saw."""

    def __init__(self) -> None:
        self.saw: list[str] = []


@every_way
async def test_handlers_see_the_callers_context_and_what_they_set_does_not_leak(
    place: Place, way: Way
) -> None:
    held = InContext()

    class Async(Executor):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            held.saw.append(f"async {who.get()}")
            who.set("the async handler")
            await ctx.send_message(text)

    class Sync(Executor):
        @handler
        def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            context: Any = ctx
            held.saw.append(f"sync {who.get()}")
            who.set("the sync handler")
            context.send_message(text)

    def condition(text: str) -> bool:
        held.saw.append(f"condition {who.get()}")
        return True

    builder = WorkflowBuilder(name="context", start_executor=Async(id="a"))
    builder.add_edge("a", Sync(id="b")).add_edge("b", Async(id="c"), condition=condition)
    workflow = builder.add_edge("c", Step("d", final=True)).build()
    running = way(workflow, message="x", checkpoint=place.create(workflow))
    token = who.set("the caller")  # as it is when the run begins, not when it was called for
    try:
        await running
        assert held.saw == ["async the caller", "sync the caller", "condition the caller", "async the caller"]
        assert who.get() == "the caller"
    finally:
        who.reset(token)
    held.saw.clear()
    who_else = who.set("somebody else")
    try:
        await way(workflow, message="y")
    finally:
        who.reset(who_else)
    assert {line.split(" ", 1)[1] for line in held.saw} == {"somebody else"}


# Streams and others at once.


@every_storage
async def test_c17_of_two_copies_that_stream_one_wins_and_the_other_is_told_nothing_as_done(
    place: Place, ticks: Ticks
) -> None:
    workflow = chain(Step("a", ticks), Step("b", ticks, final=True))
    await workflow.run("first", checkpoint=place.create(workflow))
    for n in range(5):
        before = ticks.all()
        copies = [await place.reload(), await place.reload()]

        async def read(checkpoint: Checkpoint, n: int = n) -> list[WorkflowEvent]:
            seen = []
            try:
                async for event in workflow.run(f"{n}", checkpoint=checkpoint, stream=True):
                    seen.append(event)
                    await asyncio.sleep(0)
            except CheckpointConflictError:
                assert not any(event.durable or event.type == "executor_invoked" for event in seen)
                return []
            return seen

        found = await asyncio.gather(*map(read, copies))
        assert sorted(map(bool, found)) == [False, True]
        assert ticks.all() - before == {"a": 1, "b": 1}
        told = [event for event in found[0] or found[1] if event.durable]
        assert told == (await place.reload()).events()[-len(told) :]


async def test_a_reader_in_a_scope_that_ends_leaves_other_runs_alone(place: Place, ticks: Ticks) -> None:
    entered, let = asyncio.Event(), asyncio.Event()

    async def waits(text: str, ctx: Any) -> None:
        if text == "other":
            entered.set()
            await let.wait()

    workflow = chain(Scripted("a", ticks, waits, final=True))
    other = asyncio.ensure_future(workflow.run("other", checkpoint=place.create(workflow, "other")))
    await reached(entered, other)
    with anyio.CancelScope() as scope:
        async with once(entered, scope.cancel):
            async for _ in workflow.run("x", checkpoint=place.create(workflow), stream=True):
                await turns(3)
    assert scope.cancelled_caught
    assert not other.done()
    let.set()
    assert (await other).get_outputs() == ["other>a"]
