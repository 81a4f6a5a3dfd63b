"""A sync function in a thread of its own, which can be abandoned."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from branchpoint.engine._threads import call_in_thread

request = contextvars.ContextVar("request", default="none")


async def test_it_runs_in_another_thread_and_gives_back_the_result() -> None:
    found = await call_in_thread(lambda a, b: (threading.current_thread(), a + b), 1, 2)
    assert found[0] is not threading.main_thread()
    assert found[0].daemon
    assert found[1] == 3


async def test_it_sees_the_context_variables_and_changes_only_a_copy() -> None:
    request.set("mine")

    def look() -> str:
        seen = request.get()
        request.set("changed")
        return seen

    assert await call_in_thread(look) == "mine"
    assert request.get() == "mine"


class Own(BaseException):
    """An exception that is no `Exception`."""


@pytest.mark.parametrize("error", [ValueError("x"), Own("y"), asyncio.CancelledError("z"), KeyError("k")])
async def test_what_it_raises_is_raised_as_it_is(error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await call_in_thread(fail)
    if not isinstance(error, asyncio.CancelledError):
        assert caught.value is error


async def test_a_stop_iteration_becomes_an_error_that_a_future_can_carry() -> None:
    with pytest.raises(RuntimeError, match="StopIteration") as caught:
        await call_in_thread(next, iter(()))
    assert isinstance(caught.value.__cause__, StopIteration)


async def test_the_loop_goes_on_meanwhile_and_many_run_at_once() -> None:
    gate = threading.Barrier(5)

    def meet(n: int) -> int:
        gate.wait(30)
        return n

    assert await asyncio.gather(*(call_in_thread(meet, n) for n in range(5))) == list(range(5))


@pytest.mark.parametrize("late", ["result", "failure"])
async def test_cancelling_the_wait_abandons_the_thread_and_what_it_says_later_goes_nowhere(late: str) -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    entered, gate = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def stubborn() -> str:
        threads.append(threading.current_thread())
        entered.set()
        gate.wait(30)
        if late == "failure":
            raise ValueError("late")
        return "late"

    waiting = asyncio.create_task(call_in_thread(stubborn))
    await asyncio.to_thread(entered.wait, 30)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert threads[0].is_alive()
    gate.set()
    await asyncio.to_thread(threads[0].join, 30)
    await asyncio.sleep(0)
    assert reported == []


def test_a_thread_that_outlives_the_loop_ends_in_silence() -> None:
    entered, gate = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def stubborn() -> None:
        threads.append(threading.current_thread())
        entered.set()
        gate.wait(30)

    async def leave() -> None:
        waiting = asyncio.create_task(call_in_thread(stubborn))
        while not entered.is_set():
            await asyncio.sleep(0)
        waiting.cancel()

    failed: list[Any] = []
    before, threading.excepthook = threading.excepthook, failed.append
    try:
        asyncio.run(leave())
        gate.set()
        threads[0].join(30)
    finally:
        threading.excepthook = before
    assert failed == []
