"""Cancellation, the grace period, and handlers that are abandoned."""

from __future__ import annotations

import asyncio

import pytest

from branchpoint.engine import ended, stop


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
