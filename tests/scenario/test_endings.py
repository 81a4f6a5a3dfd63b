"""After any ending of any run nothing is left: no task, no thread, no guard, no memory, and the next run finishes."""

from __future__ import annotations

import asyncio
import gc
import threading
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from branchpoint import (
    Checkpoint,
    CheckpointStorage,
    Executor,
    SyncWorkflowContext,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    handler,
    state,
)
from tests.profiles import SOAKING
from tests.scenario.kit import (
    Around,
    Boom,
    LoopTime,
    Outside,
    Place,
    Scripted,
    Step,
    Ticks,
    bytes_of,
    chain,
    place_of,
)
from tests.scenario.leaving import (
    Exit,
    Way,
    awaited,
    breaks,
    breaks_and_keeps_the_stream,
    cancelled,
    cancels_the_stream,
    cancels_the_stream_in_a_scope,
    drops,
    drops_a_cycle,
    failed_after,
    final,
    group_cancelled,
    iterated,
    raises,
    settled,
    timed_out,
)

# What happens inside of the run, and how its caller sees it end.


class Script(Outside):
    """What the middle step of the workflow does in the run that is to end, and where it has come to."""

    def __init__(self, does: str, ticks: Ticks) -> None:
        self.does = does
        self.ticks = ticks
        self.entered = asyncio.Event()
        self.let = threading.Event()

    async def __call__(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        does, self.does = self.does, "finish"
        ctx.set_state("half", does != "finish")
        await ctx.add_event(WorkflowEvent("data", does))
        if does == "fail":
            raise Boom
        if does == "exit":
            raise SystemExit(3)
        if does in ("wait", "swallow"):
            self.entered.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.ticks("cleaned up")
                if does == "wait":
                    raise


class InAThread(Executor):
    """A sync step."""

    n: int = state(0)

    @handler
    def on_text(self, text: str, ctx: SyncWorkflowContext[str, str]) -> None:
        self.n += 1
        ctx.send_message(f"{text}>t")


def scripted(script: Script) -> Workflow:
    asked = script.does

    def condition(text: str) -> bool:
        if script.does == "condition":
            script.does = "finish"
            raise Boom
        return True

    builder = WorkflowBuilder(name="scripted", start_executor=InAThread(id="t"))
    builder.add_edge("t", Scripted("b", script.ticks, script if asked != "condition" else nothing))
    return builder.add_edge("b", Step("c", script.ticks, final=True), condition=condition).build()


async def nothing(text: str, ctx: WorkflowContext[str, str]) -> None: ...


class Ending:
    """One way for a run to end.

    Attributes:
        does: What the middle step does.
        read: Calls the run, sees it end as it should, and is where the caller reads durable events.
        held_commit: The number of the commit that is held back until the caller has left; None for none.
    """

    def __init__(self, name: str, does: str, leave: Any, *, commit: int | None = None) -> None:
        self.name = name
        self.does = does
        self.leave = leave
        self.commit = commit


def by(way: Way, error: type[BaseException] | None) -> Exit:
    async def leave(workflow: Workflow, entered: asyncio.Event, time: LoopTime, **call: Any) -> None:
        if error is None:
            await way(workflow, **call)
            return
        with pytest.raises(error):
            await way(workflow, **call)

    return leave


def ended_by(ender: Any, way: Way) -> Exit:
    async def leave(workflow: Workflow, entered: asyncio.Event, time: LoopTime, **call: Any) -> None:
        await ender(lambda: way(workflow, **call), entered, time)

    return leave


PLAIN = [awaited]
STREAMED = [iterated, final]


def endings(ways: list[Way]) -> list[Ending]:
    found: list[Ending] = []
    for way in ways:
        name = way.__name__
        found += [
            Ending(f"success-{name}", "finish", by(way, None)),
            Ending(f"error-{name}", "fail", by(way, Boom)),
            Ending(f"condition fails-{name}", "condition", by(way, Boom)),
            Ending(f"swallowed-{name}", "swallow", ended_by(cancelled, way)),
            Ending(f"commit fails-{name}", "finish", by(way, OSError), commit=-3),
            Ending(f"cancelled in a commit-{name}", "finish", ended_by(cancelled, way), commit=3),
        ]
        found += [
            Ending(f"{ender.__name__}-{name}", "wait", ended_by(ender, way))
            for ender in (cancelled, timed_out, failed_after, group_cancelled)
        ]
    if ways is STREAMED:
        readers = (
            breaks,
            breaks_and_keeps_the_stream,
            raises,
            drops,
            drops_a_cycle,
            cancels_the_stream,
            cancels_the_stream_in_a_scope,
        )
        found += [Ending(reader.__name__, "wait", reader) for reader in readers]
        found.append(Ending("break swallowed", "swallow", breaks))
        found.append(Ending("break in a commit", "finish", breaks, commit=3))
        found.append(Ending("drop in a commit", "finish", drops, commit=3))
    return found


class Held(Around):
    """Holds one commit until the caller has left, or fails it."""

    def __init__(self, inner: CheckpointStorage, ending: Ending, begun: asyncio.Event) -> None:
        super().__init__(inner, before=self.hold)
        self.number = ending.commit
        self.begun = begun

    async def hold(self, number: int) -> None:
        if self.number is None or number != abs(self.number):
            return
        wanted, self.number = self.number, None
        if wanted < 0:
            raise OSError(28, "no space left on device")
        self.begun.set()
        for _ in range(60):  # as slow as a disk is, in turns of the loop
            await asyncio.sleep(0)


class Recorder:
    """A workflow that is called through it, with every durable event that a reader was given."""

    def __init__(self, workflow: Workflow) -> None:
        self.workflow = workflow
        self.seen: list[WorkflowEvent] = []

    def run(self, **call: Any) -> Any:
        running: Any = self.workflow.run(**call)
        return Noted(running, self.seen) if call.get("stream") else self.awaited(running)

    async def awaited(self, running: Any) -> Any:
        result = await running
        self.seen += [event for event in result if event.durable]
        return result


class Noted:
    """A stream or one of its readers, whose durable events are noted; dropping this drops it."""

    def __init__(self, inner: Any, seen: list[WorkflowEvent]) -> None:
        self.inner = inner
        self.seen = seen

    def __aiter__(self) -> Noted:
        return Noted(aiter(self.inner), self.seen)

    async def __anext__(self) -> WorkflowEvent:
        event: WorkflowEvent = await anext(self.inner)
        if event.durable:
            self.seen.append(event)
        return event

    async def get_final_response(self) -> Any:
        result = await self.inner.get_final_response()
        self.seen += [event for event in result if event.durable]
        return result

    async def cancel(self) -> None:
        await self.inner.cancel()


async def end(
    ending: Ending, workflow: Recorder, checkpoint: Checkpoint | None, script: Script, begun: asyncio.Event
) -> None:
    """Let a run end, and look that it leaves no task in this loop."""
    before = asyncio.all_tasks()
    entered = begun if ending.commit is not None else script.entered
    await ending.leave(workflow, entered, LoopTime(), message="x", checkpoint=checkpoint)
    await settled()
    assert asyncio.all_tasks() == before
    assert checkpoint is None or checkpoint.in_use_by is None


async def in_this_loop(run: Callable[[], Awaitable[None]]) -> None:
    await run()


async def in_a_thread_with_a_loop_of_its_own(run: Callable[[], Awaitable[None]]) -> None:
    failed: list[BaseException] = []

    def work() -> None:
        async def there() -> None:
            await run()

        try:
            asyncio.run(there())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    await asyncio.to_thread(thread.join, 60)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


TOLD_APART = ("success-awaited", "cancelled-awaited", "cancelled in a commit-awaited", "breaks", "drops")


def grid() -> list[Any]:
    found = []
    for ending in [*endings(PLAIN), *endings(STREAMED)]:
        kinds = (
            ("one-shot", "none", "memory", "file-json") if ending.commit is None else ("memory", "file-json")
        )
        for kind in kinds:
            found.append((kind, ending, in_this_loop))
            if "final" not in ending.name and (
                kind == "none" or (kind == "file-json" and ending.name in TOLD_APART)
            ):
                found.append((kind, ending, in_a_thread_with_a_loop_of_its_own))
    return [pytest.param(*one, id=f"{one[1].name}-{one[0]}-{one[2].__name__}") for one in found]


@pytest.mark.parametrize(("kind", "ending", "where"), grid())
async def test_nothing_is_left_and_the_next_run_finishes(
    tmp_path: Any, ticks: Ticks, kind: str, ending: Ending, where: Any
) -> None:
    script, begun = Script(ending.does, ticks), asyncio.Event()
    workflow = Recorder(scripted(script))
    place: Place | None = None
    checkpoint: Checkpoint | None = None
    if kind != "one-shot":
        place = place_of(kind, tmp_path)
        inner = place.open()
        storage = None if inner is None else Held(inner, ending, begun)
        checkpoint = workflow.workflow.create_checkpoint("run-1", storage)
        place._held["run-1"] = checkpoint
    await where(lambda: end(ending, workflow, checkpoint, script, begun))
    handlers = [one for one in threading.enumerate() if one.name == "branchpoint-handler"]
    for thread in handlers:  # one that has done its work may take a moment to be gone
        await asyncio.to_thread(thread.join, 60)
    if ending.does in ("wait", "swallow"):
        assert ticks["cleaned up"] == 1
    if place is None or checkpoint is None:
        assert (await workflow.workflow.run("y")).get_outputs() == ["y>t>b>c"]
        return
    loaded = await place.reload()
    if place.is_stored:
        assert bytes_of(loaded) == bytes_of(checkpoint)
        assert loaded.stored_head_snapshot_id == checkpoint.stored_head_snapshot_id
    assert loaded.head_snapshot_id == checkpoint.head_snapshot_id == checkpoint.snapshots[-1].snapshot_id
    told = loaded.events()
    assert [event for event in workflow.seen if event not in told] == []
    held = {"success": 4, "cancelled in a commit": 3, "break in a commit": 3, "drop in a commit": 3}
    assert len(loaded.snapshots) == held.get(ending.name.split("-")[0], 2)
    for snapshot in loaded.snapshots[:2]:
        assert snapshot.state["workflow_state"]["shared"] == {}
    result = await workflow.workflow.run(checkpoint=loaded)
    assert result.get_outputs() == ["x>t>b>c"]
    result = await workflow.workflow.run("y", checkpoint=loaded)
    assert result.get_outputs() == ["y>t>b>c"]
    assert loaded.in_use_by is None


@pytest.mark.parametrize("kind", ["none", "memory", "file-json"])
def test_a_step_that_exits_the_program_leaves_the_checkpoint_usable(
    tmp_path: Any, ticks: Ticks, kind: str
) -> None:
    script = Script("exit", ticks)
    place, workflow = place_of(kind, tmp_path), scripted(script)
    checkpoint = place.create(workflow)
    with pytest.raises(SystemExit, match="3"):
        asyncio.run(awaited(workflow, message="x", checkpoint=checkpoint))
    assert checkpoint.in_use_by is None
    assert asyncio.run(awaited(workflow, checkpoint=checkpoint)).get_outputs() == ["x>t>b>c"]


# Memory.

MANY = 10_000 if SOAKING else 300
SOME = 2_000 if SOAKING else 150


class Light(Executor):
    """Does as the text says."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        ctx.set_state("text", text)
        await ctx.add_event(WorkflowEvent("data", text))
        if text == "fail":
            raise Boom
        if text == "wait":
            await asyncio.Event().wait()
        await ctx.yield_output(text)


async def succeeds(workflow: Workflow) -> None:
    assert (await workflow.run("x")).get_outputs() == ["x"]


async def streams(workflow: Workflow) -> None:
    async for _ in workflow.run("x", stream=True):
        pass


async def fails(workflow: Workflow) -> None:
    try:
        await workflow.run("fail")
    except Boom:
        return
    raise AssertionError("no error")


async def is_cancelled(workflow: Workflow) -> None:
    task = asyncio.create_task(awaited(workflow, message="wait"))
    for _ in range(4):
        await asyncio.sleep(0)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return
    raise AssertionError("not cancelled")


async def is_cancelled_at_once(workflow: Workflow) -> None:
    task = asyncio.create_task(workflow.run("wait"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})


async def is_dropped(workflow: Workflow) -> None:
    reader: Any = aiter(workflow.run("wait", stream=True))
    await anext(reader)
    del reader
    await settled()


async def is_broken_off(workflow: Workflow) -> None:
    async for _ in workflow.run("wait", stream=True):
        break
    await settled()


async def is_refused(workflow: Workflow) -> None:
    try:
        await workflow.run(7)
    except Exception:
        return
    raise AssertionError("not refused")


ONE_SHOTS: list[tuple[Any, int]] = [
    (succeeds, MANY),
    (streams, SOME),
    (fails, SOME),
    (is_cancelled, SOME),
    (is_cancelled_at_once, SOME),
    (is_dropped, SOME),
    (is_broken_off, SOME),
    (is_refused, SOME),
]


SLACK = 8_000  # what the interpreter keeps at times; 150 of the smallest objects with a dict are more


def _counted() -> Counter[str]:
    """Return how many objects there are of each type, without a new one that stays.

    ``Counter(generator)`` would ask every kind of mapping whether a generator is one: each keeps the answer,
    made after the objects were listed, so that the first count of a process would find it as growth.
    """
    counted: Counter[str] = Counter()
    gc.collect()
    for one in gc.get_objects():
        counted[type(one).__qualname__] += 1
    return counted


async def growth(one_run: Callable[[], Awaitable[None]], count: int) -> tuple[dict[str, int], int]:
    """Return which objects so many runs leave behind, by type, and how many bytes."""
    for _ in range(30):  # whatever is made once is made now
        await one_run()
    tracemalloc.start()
    try:
        for _ in range(5):
            await one_run()
        objects = _counted()
        held = tracemalloc.get_traced_memory()[0]
        for _ in range(count):
            await one_run()
        left = _counted() - objects
        return {name: more for name, more in left.items() if more >= count // 20}, (
            tracemalloc.get_traced_memory()[0] - held
        )
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("run", "count"), ONE_SHOTS, ids=[run.__name__ for run, _ in ONE_SHOTS])
async def test_so_many_one_shot_runs_leave_memory_flat(run: Any, count: int) -> None:
    workflow = chain(Light(id="a"), name="light")
    left, grown = await growth(lambda: run(workflow), count)
    assert left == {}
    assert grown < max(20 * count, SLACK), "each run keeps a few bytes: nothing has that size"


@pytest.mark.parametrize("ending", ["finish", "fail", "wait"])
async def test_so_many_runs_on_checkpoints_that_are_dropped_leave_memory_flat(
    ticks: Ticks, ending: str
) -> None:
    workflow = chain(Light(id="a"), name="light")

    async def once_more() -> None:
        checkpoint = workflow.create_checkpoint()
        run = {"finish": "x", "fail": "fail", "wait": "wait"}[ending]
        task = asyncio.create_task(awaited(workflow, message=run, checkpoint=checkpoint))
        for _ in range(6):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})

    left, grown = await growth(once_more, SOME)
    assert left == {}
    assert grown < max(20 * SOME, SLACK)


def test_loops_that_come_and_go_leave_memory_flat() -> None:
    """A web worker, a notebook: every call in a loop of its own."""
    workflow = chain(Light(id="a"), name="light")
    count = SOME // 10

    async def leave_it() -> None:
        asyncio.create_task(awaited(workflow, message="wait"))  # noqa: RUF006
        for _ in range(5):
            await asyncio.sleep(0)

    def once_more() -> None:
        asyncio.run(succeeds(workflow))
        asyncio.run(leave_it())

    for _ in range(5):
        once_more()
    before = _counted()
    for _ in range(count):
        once_more()
    left = {name: more for name, more in (_counted() - before).items() if more >= count // 2}
    assert left == {}


@pytest.mark.parametrize(
    "run",
    [succeeds, streams, is_refused, is_cancelled, is_dropped, is_broken_off],
    ids=lambda run: run.__name__,
)
async def test_a_run_leaves_nothing_for_the_collector(run: Any) -> None:
    """No reference cycle: what a run held is free at once, also where the collector is switched off."""
    workflow = chain(Light(id="a"), name="light")
    for _ in range(20):
        await run(workflow)
    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            await run(workflow)
        assert gc.collect() < 50
    finally:
        gc.enable()
