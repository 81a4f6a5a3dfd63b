"""Every way in which a caller calls a run, and every way in which it leaves one: asyncio's, anyio's, a reader's.

An exit calls `workflow.run(**call)` in one of the ways, and leaves as soon as `entered` is set. It
checks what its caller sees, and returns when that is over. Whoever cancels knows by then that the run
has cleaned up; whoever lets go of a stream does not, and waits with `settled`.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from branchpoint import Workflow, WorkflowContext
from tests.scenario.kit import Boom, LoopTime, Scripted, Step, Ticks, chain, reached, turns

Go = Callable[[], Awaitable[Any]]
Way = Callable[..., Awaitable[Any]]
Exit = Callable[..., Awaitable[None]]


# Ways to call.


async def awaited(workflow: Workflow, **call: Any) -> Any:
    return await workflow.run(**call)


async def iterated(workflow: Workflow, **call: Any) -> None:
    async for _ in workflow.run(stream=True, **call):
        pass


async def final(workflow: Workflow, **call: Any) -> Any:
    return await workflow.run(stream=True, **call).get_final_response()


WAYS: list[Way] = [awaited, iterated, final]
every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


# Ways to be ended from outside.


@asynccontextmanager
async def once(entered: asyncio.Event, do: Callable[[], object]) -> AsyncIterator[None]:
    """Do something as soon as an event is set, while the block goes on."""

    async def wait() -> None:
        await entered.wait()
        do()

    waiting = asyncio.create_task(wait())
    try:
        yield
    finally:
        waiting.cancel()
        await asyncio.wait({waiting})


async def cancelled(go: Go, entered: asyncio.Event, time: LoopTime) -> None:
    task = asyncio.ensure_future(go())
    await reached(entered, task)
    task.cancel("why")
    with pytest.raises(asyncio.CancelledError, match="why"):
        await task


async def cancelled_again_and_again(go: Go, entered: asyncio.Event, time: LoopTime) -> None:
    task = asyncio.ensure_future(go())
    await reached(entered, task)
    task.cancel("why")
    while not task.done():
        await asyncio.sleep(0)
        task.cancel("again")
    with pytest.raises(asyncio.CancelledError, match="why"):
        await task


async def timed_out(go: Go, entered: asyncio.Event, time: LoopTime) -> None:
    async with once(entered, lambda: time.forward(100)):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await go()


async def waited_for_too_long(go: Go, entered: asyncio.Event, time: LoopTime) -> None:
    async with once(entered, lambda: time.forward(100)):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(go(), 60)


async def failed_beside(go: Go, entered: asyncio.Event, time: LoopTime) -> None:
    async def fail() -> None:
        await entered.wait()
        raise Boom

    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            await go()
    assert [type(error) for error in caught.value.exceptions] == [Boom]


async def moved_on(go: Go, entered: asyncio.Event, time: LoopTime) -> None:
    async with once(entered, lambda: time.forward(100)):
        with anyio.move_on_after(60) as scope:
            await go()
            pytest.fail("nobody moved on")
        assert scope.cancelled_caught


async def failed_after(go: Go, entered: asyncio.Event, time: LoopTime) -> None:
    async with once(entered, lambda: time.forward(100)):
        with pytest.raises(TimeoutError):
            with anyio.fail_after(60):
                await go()


async def scope_cancelled(go: Go, entered: asyncio.Event, time: LoopTime) -> None:
    with anyio.CancelScope() as scope:
        async with once(entered, scope.cancel):
            await go()
            pytest.fail("nobody cancelled the scope")
    assert scope.cancelled_caught


async def group_cancelled(go: Go, entered: asyncio.Event, time: LoopTime) -> None:
    ended: list[BaseException] = []

    async def member() -> None:
        try:
            await go()
        except BaseException as error:
            ended.append(error)
            raise

    async with anyio.create_task_group() as group:
        group.start_soon(member)
        await entered.wait()
        group.cancel_scope.cancel()
    assert [type(error) for error in ended] == [asyncio.CancelledError]


async def member_failed(go: Go, entered: asyncio.Event, time: LoopTime) -> None:
    async def fail() -> None:
        await entered.wait()
        raise Boom

    with pytest.raises(ExceptionGroup) as caught:
        async with anyio.create_task_group() as group:
            group.start_soon(fail)
            group.start_soon(go)
    assert [type(error) for error in caught.value.exceptions] == [Boom]


ENDERS = [
    cancelled,
    cancelled_again_and_again,
    timed_out,
    waited_for_too_long,
    failed_beside,
    moved_on,
    failed_after,
    scope_cancelled,
    group_cancelled,
    member_failed,
]


def _exit(ender: Any, way: Way) -> Exit:
    async def leave(workflow: Workflow, entered: asyncio.Event, time: LoopTime, **call: Any) -> None:
        await ender(lambda: way(workflow, **call), entered, time)

    leave.__name__ = f"{ender.__name__}-{way.__name__}"
    return leave


# Ways for a reader to go.


async def breaks(workflow: Workflow, entered: asyncio.Event, time: LoopTime, **call: Any) -> None:
    async for _ in workflow.run(stream=True, **call):
        await entered.wait()  # the run goes on meanwhile, ahead of its reader
        break


async def breaks_and_keeps_the_stream(
    workflow: Workflow, entered: asyncio.Event, time: LoopTime, **call: Any
) -> None:
    stream = workflow.run(stream=True, **call)
    async for _ in stream:
        await entered.wait()  # the run goes on meanwhile, ahead of its reader
        break
    with pytest.raises(asyncio.CancelledError):
        await stream.get_final_response()


async def raises(workflow: Workflow, entered: asyncio.Event, time: LoopTime, **call: Any) -> None:
    with pytest.raises(Boom):
        async for _ in workflow.run(stream=True, **call):
            await entered.wait()
            raise Boom


async def drops(workflow: Workflow, entered: asyncio.Event, time: LoopTime, **call: Any) -> None:
    reader: Any = aiter(workflow.run(stream=True, **call))
    await anext(reader)
    await entered.wait()
    del reader
    gc.collect()


async def drops_a_cycle(workflow: Workflow, entered: asyncio.Event, time: LoopTime, **call: Any) -> None:
    held: list[Any] = [workflow.run(stream=True, **call)]
    held += [held, aiter(held[0])]
    await anext(held[2])
    await entered.wait()
    del held
    gc.collect()


async def cancels_the_stream(workflow: Workflow, entered: asyncio.Event, time: LoopTime, **call: Any) -> None:
    stream = workflow.run(stream=True, **call)
    reading = asyncio.ensure_future(stream.get_final_response())
    await reached(entered, reading)
    await stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def cancels_the_stream_in_a_scope(
    workflow: Workflow, entered: asyncio.Event, time: LoopTime, **call: Any
) -> None:
    """The canceller is cancelled itself, and still waits for the clean-up."""
    stream = workflow.run(stream=True, **call)
    reading = asyncio.ensure_future(stream.get_final_response())
    await reached(entered, reading)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


READERS = [
    breaks,
    breaks_and_keeps_the_stream,
    raises,
    drops,
    drops_a_cycle,
    cancels_the_stream,
    cancels_the_stream_in_a_scope,
]

CANCELLING: list[Exit] = [_exit(ender, way) for ender in ENDERS for way in WAYS]
EXITS: list[Exit] = [*CANCELLING, *READERS]
A_FEW: list[Exit] = [
    _exit(cancelled, awaited),
    _exit(timed_out, final),
    _exit(moved_on, awaited),
    _exit(group_cancelled, iterated),
    breaks,
    drops,
    cancels_the_stream,
]
"""One of each kind, for tests that cross exits with much else."""

every_exit = pytest.mark.parametrize("leave", EXITS, ids=lambda leave: leave.__name__)
some_exits = pytest.mark.parametrize("leave", A_FEW, ids=lambda leave: leave.__name__)


def _crossed(exits: list[Exit], with_a_file: list[Exit]) -> pytest.MarkDecorator:
    pairs = [("none", one) for one in exits] + [("file-json", one) for one in with_a_file]
    ids = [f"{one.__name__}-{kind}" for kind, one in pairs]
    return pytest.mark.parametrize(("place", "leave"), pairs, indirect=["place"], ids=ids)


every_exit_somewhere = _crossed(EXITS, A_FEW)
"""Every exit from a run in memory, and one of each kind from one that is kept in a file."""

some_exits_somewhere = _crossed(A_FEW, [A_FEW[0], breaks])


async def settled() -> None:
    """Wait until every other task has ended; what a reader let go of cleans up in the background."""
    here = asyncio.current_task()
    while others := {task for task in asyncio.all_tasks() if task is not here}:
        await asyncio.wait(others)
    await turns(1)


# What is left.


class Stuck:
    """What a scripted step does: half of its work, then it waits until it is cancelled. Once only."""

    def __init__(self, ticks: Ticks) -> None:
        self.ticks = ticks
        self.entered = asyncio.Event()

    async def __call__(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        if self.entered.is_set():
            return
        ctx.set_state("half", text)
        await ctx.send_message("half")
        await ctx.yield_output("half")
        self.entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.ticks("cleaned up")


def row(ticks: Ticks, position: int, does: Any) -> Workflow:
    """Four steps, of which one does something else first."""
    steps = [
        Scripted(id, ticks, does, final=id == "d") if n == position else Step(id, ticks, final=id == "d")
        for n, id in enumerate("abcd")
    ]
    return chain(*steps)
