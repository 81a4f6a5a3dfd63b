"""Cancellation, the grace period, and handlers that are abandoned."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from branchpoint.engine import Channel, RunRequest, ended, stop
from branchpoint.engine._port import Origin
from branchpoint.engine._state import Delivery
from branchpoint.engine._superstep import Superstep
from branchpoint.errors import ExecutorStateError
from branchpoint.events import WorkflowEvent
from branchpoint.graph import Executor, WorkflowContext, handler
from tests.unit.engine.shapes import Text, graph_of, state_of


class Worker:
    """A task that waits, and does as told when it is cancelled."""

    def __init__(
        self, *, cleans_up: bool = False, swallows: bool = False, raises: Exception | None = None
    ) -> None:
        self.entered = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.gate = asyncio.Event()
        self.cleaned = False
        self._cleans_up, self._swallows, self._raises = cleans_up, swallows, raises
        self.task = asyncio.create_task(self._work())

    async def _work(self) -> str:
        self.entered.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            if self._cleans_up or self._swallows:
                await self.gate.wait()
                self.cleaned = True
            if self._raises is not None:
                raise self._raises from None
            if not self._swallows:
                raise
        return "done"


async def started(*workers: Worker) -> list[asyncio.Task[str]]:
    for worker in workers:
        await worker.entered.wait()
    return [worker.task for worker in workers]


async def test_tasks_are_cancelled_and_their_clean_up_is_waited_for() -> None:
    plain, cleaning = Worker(), Worker(cleans_up=True)
    tasks = await started(plain, cleaning)
    stopping = asyncio.create_task(stop(tasks, 60))
    await cleaning.cancelled.wait()
    assert not stopping.done()
    cleaning.gate.set()
    assert await stopping == set()
    assert plain.task.cancelled()
    assert cleaning.task.cancelled()
    assert cleaning.cleaned


async def test_who_does_not_end_within_the_grace_period_is_left_and_named() -> None:
    good, stuck = Worker(), Worker(swallows=True)
    tasks = await started(good, stuck)
    assert await stop(tasks, 0.01) == {stuck.task}
    assert good.task.cancelled()
    assert not stuck.task.done()
    stuck.gate.set()
    assert await stuck.task == "done"


async def test_without_a_grace_period_nobody_is_waited_for() -> None:
    stuck = Worker(swallows=True)
    assert await stop(await started(stuck), 0) == {stuck.task}
    stuck.gate.set()
    await stuck.task


async def test_what_has_ended_is_left_alone() -> None:
    worker = Worker()
    worker.gate.set()
    assert await worker.task == "done"
    assert await stop([worker.task], 60) == set()
    assert await stop([], 60) == set()
    assert worker.task.result() == "done"


async def test_a_failure_in_clean_up_does_not_reach_who_stops() -> None:
    failing = Worker(raises=ValueError("in clean-up"))
    tasks = await started(failing)
    assert await stop(tasks, 60) == set()
    assert isinstance(failing.task.exception(), ValueError)


async def test_a_second_cancellation_does_not_shorten_the_clean_up() -> None:
    cleaning = Worker(cleans_up=True)
    stopping = asyncio.create_task(stop(await started(cleaning), 60))
    await cleaning.cancelled.wait()
    for _ in range(3):
        stopping.cancel()
        await asyncio.sleep(0)
        assert not stopping.done()
    cleaning.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert cleaning.cleaned


async def test_a_failure_of_an_abandoned_task_is_not_reported_as_never_retrieved() -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    stuck = Worker(swallows=True, raises=ValueError("late"))
    assert await stop(await started(stuck), 0.01) == {stuck.task}
    stuck.gate.set()
    await asyncio.wait({stuck.task})
    del stuck
    import gc

    gc.collect()
    assert reported == []


async def test_ended_waits_whatever_the_outcome() -> None:
    good = Worker()
    good.gate.set()
    await ended(good.task)
    assert good.task.result() == "done"

    async def fail() -> None:
        raise ValueError("for whoever asks the task")

    failing = asyncio.create_task(fail())
    await ended(failing)
    assert isinstance(failing.exception(), ValueError)


async def test_ended_waits_to_the_end_and_raises_the_very_cancellation_it_met() -> None:
    worker = Worker()
    await worker.entered.wait()
    met: list[BaseException] = []

    async def wait() -> None:
        try:
            await ended(worker.task)
        except asyncio.CancelledError as error:
            met.append(error)
            raise

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel("because")
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    assert not worker.task.done()
    worker.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert met[0].args == ("because",)
    assert worker.task.result() == "done"


async def test_a_task_that_was_cancelled_is_not_a_cancellation_of_the_waiter() -> None:
    worker = Worker()
    await worker.entered.wait()
    worker.task.cancel()
    await ended(worker.task)
    assert worker.task.cancelled()


# Handlers of a superstep.


class Stubborn(Executor):
    """Ignores its cancellation until the gate opens, then goes on writing; says how that went."""

    def __init__(
        self, id: str, entered: asyncio.Event, gate: asyncio.Event, said: Callable[[object], None]
    ) -> None:
        super().__init__(id=id)
        self.entered = entered
        self.gate = gate
        self.said = said

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext) -> None:
        self.entered.set()
        while not self.gate.is_set():
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.said("ignored")
        for write in (
            lambda: ctx.send_message("late"),
            lambda: ctx.yield_output("late"),
            lambda: ctx.request_info("late", str),
            lambda: ctx.add_event(WorkflowEvent("data", "late")),
        ):
            try:
                await write()
            except ExecutorStateError as error:
                self.said(error)
        for change in (
            lambda: ctx.set_state("k", "late"),
            lambda: ctx.delete_state("k"),
            lambda: ctx.get_state("k"),
        ):
            try:
                change()
            except ExecutorStateError as error:
                self.said(error)


class Fails(Executor):
    """Raises once the other has been entered."""

    def __init__(self, id: str, entered: asyncio.Event) -> None:
        super().__init__(id=id)
        self.entered = entered

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext) -> None:
        await self.entered.wait()
        raise ValueError("the reason")


def superstep(executors: Sequence[Executor], grace: float) -> tuple[Superstep, Channel]:
    """A superstep in which every executor gets a text."""
    graph = graph_of(executors)
    state = state_of(graph, deliveries=[Delivery("x", (), tuple(graph.executors))])
    channel = Channel("a run", None)
    origin = Origin("run", "parent", 1, "in-1", {}, False, 1)
    request = RunRequest(message="x", grace_seconds=grace)
    return Superstep(state, {}, origin, channel, request, asyncio.get_running_loop()), channel


async def warnings_of(channel: Channel) -> list[tuple[str | None, str]]:
    channel.close()
    found = []
    while (event := await channel.get()) is not None:
        if event.type == "warning":
            found.append((event.executor_id, event.data))
    return found


@pytest.mark.parametrize("why", ["a sibling fails", "cancelled", "cancelled again and again"])
async def test_a_handler_that_ignores_its_cancellation_is_abandoned_named_and_heard_no_more(
    why: str, caplog: pytest.LogCaptureFixture
) -> None:
    entered, gate = asyncio.Event(), asyncio.Event()
    said: list[object] = []
    stubborn = Stubborn("stubborn", entered, gate, lambda what: said.append(what))
    other: Executor = Fails("fails", entered) if why == "a sibling fails" else Text(id="other")
    step, channel = superstep([stubborn, other], 0.05)
    before = asyncio.all_tasks()
    running = asyncio.create_task(step.run())
    await entered.wait()
    if why == "a sibling fails":
        with pytest.raises(ValueError, match="the reason"):
            await running
    else:
        running.cancel()
        while why == "cancelled again and again" and not running.done():
            await asyncio.sleep(0)
            running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    heard = list(said)
    left = asyncio.all_tasks() - before - {running}
    gate.set()
    await asyncio.wait(left)
    assert len(left) == 1
    assert heard == ["ignored"]
    ((named, text),) = await warnings_of(channel)
    assert named == "stubborn"
    assert "'stubborn' did not end within 0.05 s" in text
    assert text in caplog.text
    errors = said[1:]
    assert len(errors) == 7
    for error in errors:
        assert "'stubborn' after its handler had ended" in str(error)
    assert step.state.shared == {}


async def test_siblings_clean_up_before_a_failure_is_told() -> None:
    entered = asyncio.Event()
    order: list[str] = []

    class Cleans(Executor):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext) -> None:
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(5):
                    await asyncio.sleep(0)
                order.append("cleaned up")

    step, channel = superstep([Cleans(id="cleans"), Fails("fails", entered)], 60)
    with pytest.raises(ValueError, match="the reason") as caught:
        await step.run()
    order.append("told")
    assert order == ["cleaned up", "told"]
    assert caught.value.__notes__ == ["executor 'fails', superstep 1, a run"]
    assert await warnings_of(channel) == []


async def test_of_several_failures_the_first_in_declared_order_is_raised_and_names_the_others() -> None:
    entered = asyncio.Event()
    failing = [Fails(id, entered) for id in ("b", "a", "c")]
    step, _ = superstep([Text(id="first"), *failing], 60)
    entered.set()
    with pytest.raises(ValueError, match="the reason") as caught:
        await step.run()
    told = caught.value.__notes__
    assert told[0] == "executor 'b', superstep 1, a run"
    assert [note.split("'")[1] for note in told[1:]] == ["a", "c"]
    for note in told[1:]:
        assert "ValueError" in note
        assert "the reason" in note


async def test_an_abandoned_thread_goes_nowhere_either() -> None:
    entered, gate, done = threading.Event(), threading.Event(), threading.Event()
    said: list[object] = []

    class Sync(Executor):
        @handler
        def on_text(self, text: str, ctx: WorkflowContext) -> None:
            context: Any = ctx
            entered.set()
            gate.wait(60)
            for write in (
                lambda: context.send_message("late"),
                lambda: context.yield_output("late"),
                lambda: context.set_state("k", "late"),
                lambda: context.add_event(WorkflowEvent("data", "late")),
            ):
                try:
                    write()
                except ExecutorStateError as error:
                    said.append(error)
            done.set()

    step, channel = superstep([Sync(id="sync")], 60)
    running = asyncio.create_task(step.run())
    await asyncio.to_thread(entered.wait, 60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    gate.set()
    await asyncio.to_thread(done.wait, 60)
    assert len(said) == 4
    assert step.state.shared == {}
    assert await warnings_of(channel) == []
