"""Cases of users who cancelled a run, or let it time out: C79, C82, C83, and what a cancellation may never do."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from branchpoint import (
    Case,
    CheckpointInUseError,
    Default,
    Executor,
    ExecutorStateError,
    MemoryCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowRunState,
    handler,
    state,
)
from tests.scenario.kit import (
    Around,
    LoopTime,
    Place,
    Scripted,
    Step,
    Ticks,
    boundaries,
    bytes_of,
    chain,
    pending,
    reached,
    shared,
    turns,
)
from tests.scenario.leaving import (
    A_FEW,
    CANCELLING,
    Exit,
    Stuck,
    awaited,
    every_exit,
    every_exit_somewhere,
    row,
    settled,
    some_exits,
    some_exits_somewhere,
)


async def goes_on(workflow: Workflow, place: Place, ticks: Ticks, position: int) -> None:
    """The head is the last boundary before a step, nothing of the step is kept, and the run can be resumed."""
    checkpoint = await place.reload()
    assert checkpoint.in_use_by is None
    assert boundaries(checkpoint) == ["input_accepted", *["superstep_completed"] * position]
    assert shared(checkpoint.head_snapshot) == {}
    assert checkpoint.outputs() == []
    (waiting,) = pending(checkpoint.head_snapshot)["deliveries"]
    assert (waiting["value"], waiting["targets"]) == (
        "x" + "".join(f">{id}" for id in "abcd"[:position]),
        ["abcd"[position]],
    )
    before = ticks.all()
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == ["x>a>b>c>d"]
    assert ticks.all() - before == dict.fromkeys("abcd"[position:], 1)


# C79: a cancel is heard at every step, at once.


@every_exit_somewhere
@pytest.mark.parametrize("position", [1, 2])
async def test_c79_whoever_leaves_ends_the_step_it_is_in_and_it_runs_again(
    place: Place, ticks: Ticks, leave: Exit, position: int
) -> None:
    stuck = Stuck(ticks)
    workflow = row(ticks, position, stuck)
    await leave(workflow, stuck.entered, LoopTime(), message="x", checkpoint=place.create(workflow))
    await settled()
    assert ticks.all() == {**dict.fromkeys("abcd"[: position + 1], 1), "cleaned up": 1}
    await goes_on(workflow, place, ticks, position)


@every_exit
async def test_c79_so_does_a_run_without_a_checkpoint(ticks: Ticks, leave: Exit) -> None:
    stuck = Stuck(ticks)
    workflow = row(ticks, 1, stuck)
    await leave(workflow, stuck.entered, LoopTime(), message="x")
    await settled()
    assert ticks.all() == {"a": 1, "b": 1, "cleaned up": 1}
    assert (await workflow.run("y")).get_outputs() == ["y>a>b>c>d"]


class Elsewhere(Executor):
    """Manages its own state, and waits while it is saved or restored."""

    def __init__(self, id: str, wait: Callable[[str], Any]) -> None:
        super().__init__(id=id)
        self.wait = wait
        self.n = 0

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.n += 1
        await ctx.send_message(f"{text}>{self.id}{self.n}")

    async def on_snapshot_save(self) -> dict[str, Any]:
        await self.wait("save")
        return {"n": self.n}

    async def on_snapshot_restore(self, state: dict[str, Any]) -> None:
        await self.wait("restore")
        self.n = state["n"]


@some_exits_somewhere
@pytest.mark.parametrize("where", ["condition", "selection", "case", "save", "restore"])
async def test_c79_wherever_code_of_the_developer_waits(
    place: Place, ticks: Ticks, leave: Exit, where: str
) -> None:
    entered, waits = asyncio.Event(), False

    async def wait(here: str) -> None:
        if here == where and waits:
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                ticks("cleaned up")

    async def condition(text: str) -> bool:
        await wait("condition")
        return True

    async def case(text: str) -> bool:
        await wait("case")
        return True

    async def selection(text: str, targets: list[str]) -> list[str]:
        await wait("selection")
        return ["c"]

    b, c, d, z = Step("b", ticks), Step("c", ticks), Step("d", ticks), Step("z", ticks, final=True)
    builder = WorkflowBuilder(name="elsewhere", start_executor=Elsewhere("a", wait))
    builder.add_edge("a", b, condition=condition)
    builder.add_multi_selection_edge_group(b, [c, z], selection_func=selection)
    builder.add_switch_case_edge_group(c, [Case(condition=case, target=d), Default(target=z)])
    workflow = builder.add_edge(d, z).build()
    checkpoint = place.create(workflow)
    assert (await workflow.run("x", checkpoint=checkpoint)).get_outputs() == ["x>a1>b>c>d>z"]
    before, waits = bytes_of(checkpoint), True
    await leave(workflow, entered, LoopTime(), message="y", checkpoint=checkpoint)
    await settled()
    assert ticks["cleaned up"] == 1
    waits = False
    checkpoint = await place.reload()
    assert len(checkpoint.snapshots) > len(before)
    assert checkpoint.status == "in_progress"
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == ["y>a2>b>c>d>z"]


# C82: what a handler has started ends with it.


async def in_a_task_group(count: Callable[[], Any]) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(count())


async def in_an_anyio_task_group(count: Callable[[], Any]) -> None:
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(count)


async def in_nested_groups(count: Callable[[], Any]) -> None:
    async with asyncio.TaskGroup() as outer:
        outer.create_task(in_an_anyio_task_group(count))
        with anyio.CancelScope():
            await in_a_task_group(count)


async def in_tasks_of_its_own(count: Callable[[], Any]) -> None:
    tasks = [asyncio.create_task(count()) for _ in range(3)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def behind_timeouts_of_its_own(count: Callable[[], Any]) -> None:
    with anyio.fail_after(3600):
        async with asyncio.timeout(3600):
            await asyncio.wait_for(count(), 3600)


INNER = [
    in_a_task_group,
    in_an_anyio_task_group,
    in_nested_groups,
    in_tasks_of_its_own,
    behind_timeouts_of_its_own,
]


@some_exits_somewhere
@pytest.mark.parametrize("inner", INNER, ids=lambda inner: inner.__name__)
async def test_c82_tasks_that_a_handler_has_started_end_with_it(
    place: Place, ticks: Ticks, leave: Exit, inner: Any
) -> None:
    entered, busy = asyncio.Event(), True

    async def count() -> None:
        while busy:
            ticks("counted")
            await asyncio.sleep(0)
            if ticks["counted"] > 9:
                entered.set()

    async def works(text: str, ctx: WorkflowContext[str, str]) -> None:
        await inner(count)

    workflow = row(ticks, 1, works)
    # No time is put forward: timeouts of the handler's own would see it too.
    time = LoopTime()
    time.forward = lambda seconds: time.__class__.forward(time, min(seconds, 100))  # type: ignore[method-assign]
    await leave(workflow, entered, time, message="x", checkpoint=place.create(workflow))
    await settled()
    counted = ticks["counted"]
    await turns(50)
    assert ticks["counted"] == counted
    busy = False
    ticks.clear("counted")
    await goes_on(workflow, place, ticks, 1)


async def test_c82_a_group_inside_a_handler_that_cancels_itself_is_no_cancellation_of_the_run(
    ticks: Ticks,
) -> None:
    async def works(text: str, ctx: WorkflowContext[str, str]) -> None:
        with anyio.move_on_after(0):
            await anyio.sleep_forever()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep_forever)
            group.cancel_scope.cancel()
        assert await anyio.to_thread.run_sync(lambda: 7) == 7

    assert (await row(ticks, 1, works).run("x")).get_outputs() == ["x>a>b>c>d"]


# C83: what is written late.


@every_exit_somewhere
@pytest.mark.parametrize("swallows", [False, True], ids=["raises", "swallows"])
async def test_c83_what_a_step_writes_before_and_after_it_was_ended_is_in_no_snapshot(
    place: Place, ticks: Ticks, leave: Exit, swallows: bool
) -> None:
    entered = asyncio.Event()

    async def writes(text: str, ctx: WorkflowContext[str, str], what: str) -> None:
        ctx.set_state(what, what)
        await ctx.send_message(what)
        await ctx.yield_output(what)

    async def does(text: str, ctx: WorkflowContext[str, str]) -> None:
        if entered.is_set():
            return
        await writes(text, ctx, "early")
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await writes(text, ctx, "late")
            if not swallows:
                raise

    workflow = row(ticks, 1, does)
    await leave(workflow, entered, LoopTime(), message="x", checkpoint=place.create(workflow))
    await settled()
    assert ticks.all() == {"a": 1, "b": 1}
    for snapshot in (await place.reload()).snapshots:
        assert not {b"early", b"late"} & {word for word in (b"early", b"late") if word in snapshot.to_bytes()}
    await goes_on(workflow, place, ticks, 1)
    assert not any(
        word in str(one.state) for one in (await place.reload()).snapshots for word in ("early", "late")
    )


@some_exits
async def test_c83_a_step_that_swallows_its_end_is_given_no_further_message(
    place: Place, ticks: Ticks, leave: Exit
) -> None:
    """Three messages wait for one executor; none is handled, and no condition asked, after the end."""
    entered = asyncio.Event()

    async def swallows(text: str, ctx: WorkflowContext[str, str]) -> None:
        if entered.is_set():
            return
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ticks("swallowed")

    def asked(text: str) -> bool:
        ticks("asked")
        return True

    src, target = Step("src", ticks), Scripted("t", ticks, swallows)
    builder = WorkflowBuilder(name="many", start_executor=src)
    builder.add_fan_out_edges(src, [Step(id, ticks) for id in "abc"])
    for id in "abc":
        builder.add_edge(id, target)
    workflow = builder.add_edge(target, Step("z", ticks, final=True), condition=asked).build()
    checkpoint = place.create(workflow)
    await leave(workflow, entered, LoopTime(), message="x", checkpoint=checkpoint)
    await settled()
    assert ticks.all() == {"src": 1, "a": 1, "b": 1, "c": 1, "t": 1, "swallowed": 1}
    result = await workflow.run(checkpoint=checkpoint)
    assert result.get_outputs() == [f"x>src>{id}>t>z" for id in "abc"]


@some_exits_somewhere
@pytest.mark.parametrize("where", ["handler", "condition"])
async def test_c83_who_swallows_for_ever_is_abandoned_after_the_grace_period_and_heard_no_more(
    place: Place, ticks: Ticks, leave: Exit, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    time, entered, swallowed, let = LoopTime(), asyncio.Event(), asyncio.Event(), asyncio.Event()
    said: list[str] = []

    async def swallow() -> None:
        entered.set()
        while not let.is_set():
            try:
                await let.wait()
            except asyncio.CancelledError:
                swallowed.set()

    async def does(text: str, ctx: WorkflowContext[str, str]) -> None:
        if where != "handler" or ticks["b"] > 1:
            return
        ctx.set_state("early", "early")
        await swallow()
        for write in (
            lambda: ctx.send_message("late"),
            lambda: ctx.yield_output("late"),
            lambda: ctx.add_event(WorkflowEvent("data", "late")),
        ):
            with pytest.raises(ExecutorStateError, match="after its handler had ended"):
                await write()
        with pytest.raises(ExecutorStateError, match="after its handler had ended"):
            ctx.set_state("late", "late")
        said.append("all refused")

    async def condition(text: str) -> bool:
        if where == "condition" and ticks["b"] == 1:
            await swallow()
        return True

    builder = WorkflowBuilder(name="swallows", start_executor=Step("a", ticks))
    builder.add_edge("a", Scripted("b", ticks, does)).add_edge("b", Step("c", ticks), condition=condition)
    workflow = builder.add_edge("c", Step("d", ticks, final=True)).build()
    checkpoint = place.create(workflow)
    leaving = asyncio.create_task(leave(workflow, entered, time, message="x", checkpoint=checkpoint))
    await swallowed.wait()
    await turns()
    assert checkpoint.in_use_by is not None
    assert not caplog.records
    # The next one waits for the clean-up, and no longer than the grace period.
    following = asyncio.create_task(awaited(workflow, checkpoint=checkpoint))
    await turns()
    assert not following.done()
    with caplog.at_level(logging.WARNING, logger="branchpoint"):
        time.forward(6)
        await leaving
        result = await following
    assert [record.message.split(" did not")[0] for record in caplog.records] == ["executor 'b'"]
    assert result.get_outputs() == ["x>a>b>c>d"]
    assert ticks.all() == {"a": 1, "b": 2, "c": 1, "d": 1}
    before = bytes_of(await place.reload())
    let.set()
    await settled()
    assert said == (["all refused"] if where == "handler" else [])
    assert bytes_of(await place.reload()) == before
    assert not any(word in repr(before).encode() for word in (b"early", b"late"))


async def test_c83_the_next_run_is_refused_when_the_clean_up_takes_longer_than_the_grace_period(
    ticks: Ticks,
) -> None:
    """A commit in flight is never given up, so its run holds the checkpoint; nobody waits for ever."""
    time, begun, gate = LoopTime(), asyncio.Event(), asyncio.Event()

    async def hold(number: int) -> None:
        if number == 2:
            begun.set()
            await gate.wait()

    workflow = row(ticks, 3, Stuck(ticks))
    checkpoint = workflow.create_checkpoint("run-1", Around(MemoryCheckpointStorage(), before=hold))
    task = asyncio.create_task(awaited(workflow, message="x", checkpoint=checkpoint))
    await reached(begun, task)
    task.cancel()
    await turns()
    following = asyncio.create_task(awaited(workflow, checkpoint=checkpoint))
    await turns()
    assert not following.done()
    time.forward(6)
    await turns(50)
    assert following.done(), "it waits for one grace period, not for two"
    with pytest.raises(CheckpointInUseError, match="run-1"):
        await following
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert checkpoint.in_use_by is None
    assert ticks.all() == {"a": 1}


@some_exits_somewhere
async def test_c83_a_sync_step_is_abandoned_in_its_thread_and_writes_nowhere(
    place: Place, ticks: Ticks, leave: Exit
) -> None:
    loop, entered = asyncio.get_running_loop(), asyncio.Event()
    let, done = threading.Event(), threading.Event()
    said: list[str] = []
    threads: list[threading.Thread] = []

    class Sync(Executor):
        n: int = state(0)

        @handler
        def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            context: Any = ctx
            threads.append(threading.current_thread())
            self.n += 1
            if ticks("b") == 1:
                context.set_state("early", "early")
                loop.call_soon_threadsafe(entered.set)
                assert let.wait(60)
                self.n = 100
                for write in (
                    lambda: context.send_message("late"),
                    lambda: context.set_state("late", "late"),
                    lambda: context.add_event(WorkflowEvent("data", "late")),
                ):
                    try:
                        write()
                    except ExecutorStateError as error:
                        said.append(str(error))
                done.set()
                return
            context.send_message(f"{text}>b{self.n}")

    workflow = chain(Step("a", ticks), Sync(id="b"), Step("c", ticks, final=True))
    checkpoint = place.create(workflow)
    await leave(workflow, entered, LoopTime(), message="x", checkpoint=checkpoint)
    await settled()
    assert checkpoint.in_use_by is None
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == ["x>a>b1>c"]
    before = bytes_of(await place.reload())
    let.set()
    await asyncio.to_thread(threads[0].join, 60)
    assert done.is_set()
    assert len(said) == 3
    assert bytes_of(await place.reload()) == before
    assert (await workflow.run("y", checkpoint=checkpoint)).get_outputs() == ["y>a>b2>c"]


# A commit in flight.


@pytest.mark.parametrize("leave", [*CANCELLING, A_FEW[-1]], ids=lambda leave: leave.__name__)
@pytest.mark.parametrize("number", [1, 2, 3])
async def test_c21_a_commit_in_flight_is_waited_for_however_the_run_is_ended(
    place: Place, ticks: Ticks, leave: Exit, number: int
) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def hold(commit: int) -> None:
        if commit == number and not gate.is_set():
            begun.set()
            await gate.wait()

    storage = MemoryCheckpointStorage()
    workflow = chain(Step("a", ticks), Step("b", ticks, final=True))
    checkpoint = workflow.create_checkpoint("run-1", Around(storage, before=hold))
    leaving = asyncio.create_task(leave(workflow, begun, LoopTime(), message="x", checkpoint=checkpoint))
    await begun.wait()
    await turns(50)
    assert not leaving.done()
    assert len(checkpoint.snapshots) == number - 1
    gate.set()
    await leaving
    loaded = await storage.load("run-1")
    assert bytes_of(loaded) == bytes_of(checkpoint)
    assert len(checkpoint.snapshots) == number
    assert checkpoint.head_snapshot_id == checkpoint.stored_head_snapshot_id == loaded.head_snapshot_id
    # Also when that commit completed the run: it was cancelled all the same, and its result is kept.
    result = await workflow.run(checkpoint=checkpoint)
    assert result.get_outputs() == ["x>a>b"]
    assert result.get_final_state() is WorkflowRunState.IDLE
    assert ticks.all() == {"a": 1, "b": 1}


def test_a_run_can_be_the_whole_of_an_anyio_program(ticks: Ticks) -> None:
    """Under `anyio.run`, and from a thread through its portal, where cancelling is anyio's affair."""

    async def main() -> list[Any]:
        return (await row(ticks, 1, quick).run("x")).get_outputs()

    async def quick(text: str, ctx: Any) -> None:
        await anyio.lowlevel.checkpoint()

    assert anyio.run(main) == ["x>a>b>c>d"]
    stuck = Stuck(ticks)
    workflow = row(ticks, 1, stuck)
    checkpoint = workflow.create_checkpoint()
    with anyio.from_thread.start_blocking_portal() as portal:
        future = portal.start_task_soon(lambda: awaited(workflow, message="x", checkpoint=checkpoint))
        portal.call(stuck.entered.wait)
        future.cancel()
    assert future.cancelled()
    assert ticks["cleaned up"] == 1
    assert checkpoint.in_use_by is None
    assert asyncio.run(awaited(workflow, checkpoint=checkpoint)).get_outputs() == ["x>a>b>c>d"]
