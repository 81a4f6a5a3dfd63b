"""The two ways to call a workflow: await it, or read it as a stream.

Both start the same task, see the same events in the same order, and end it cleanly however the
caller leaves.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Coroutine, Generator
from contextlib import suppress
from typing import Any, NoReturn

from branchpoint.engine import ended
from branchpoint.errors import InvalidCallError
from branchpoint.events import WorkflowEvent
from branchpoint.workflow._call import Call, Started
from branchpoint.workflow._result import WorkflowRunResult
from branchpoint.workflow._underway import UNDER_WAY

__all__ = ["STREAM_BUFFER", "PendingRun", "WorkflowRunStream"]

STREAM_BUFFER = 64
"""How many events a run may be ahead of its reader."""


class PendingRun(Coroutine[Any, Any, WorkflowRunResult]):
    """A call that starts when it is awaited, or when a task made of it first runs.

    Nothing happens before, and no guard is taken; one that is never awaited leaves nothing behind.
    It may be given to `asyncio.create_task`, `gather` and `wait_for` like any coroutine.
    """

    def __init__(self, call: Call, *, include_status_events: bool) -> None:
        self._call = call
        self._include_status_events = include_status_events
        self._begun: Coroutine[Any, Any, WorkflowRunResult] | None = None

    def __del__(self) -> None:
        if self._begun is None:
            warnings.warn(
                f"A run of workflow {self._call.graph.name!r} was never awaited, so nothing ran: write "
                "`await workflow.run(...)`.",
                RuntimeWarning,
                stacklevel=2,
            )

    def __getattr__(self, name: str) -> NoReturn:
        hint = ": write `(await workflow.run(...))` first" if hasattr(WorkflowRunResult, name) else ""
        raise AttributeError(f"a run that was not awaited has no {name!r}{hint}")

    def __aiter__(self) -> NoReturn:
        raise InvalidCallError("This run is to be awaited. For its events as they come, pass stream=True.")

    def __await__(self) -> Generator[Any, None, WorkflowRunResult]:
        if self._begun is not None:
            raise InvalidCallError(
                "This run was awaited before. Call workflow.run(...) again for another one."
            )
        return self._coroutine().__await__()

    def send(self, value: Any) -> Any:
        """Go on; for event loops."""
        return self._coroutine().send(value)

    def throw(self, *error: Any) -> Any:
        """Go on with an exception; for event loops."""
        return self._coroutine().throw(*error)

    def close(self) -> None:
        """End without a result; for event loops."""
        self._coroutine().close()

    def _coroutine(self) -> Coroutine[Any, Any, WorkflowRunResult]:
        if self._begun is None:
            self._begun = self._run()
        return self._begun

    async def _run(self) -> WorkflowRunResult:
        started = await self._call.start()
        try:
            await asyncio.wait({started.task})
        except asyncio.CancelledError:
            with suppress(asyncio.CancelledError):  # the first one is the one that is raised
                await started.stop()
            raise
        try:
            finished = started.task.result()
            return WorkflowRunResult(
                started.channel.take(), finished, include_status_events=self._include_status_events
            )
        finally:
            del started  # its task holds what it raised, which holds this frame


class WorkflowRunStream:
    """The events of one run, as they come.

    Nothing starts before the first iteration or `get_final_response()`. The run may be ahead of its
    reader by a bounded number of events and then waits.

    A reader that stops early ends the run: by leaving its loop (`break`, `return`, an exception), by
    being cancelled, or by dropping the stream. This holds also while the stream object itself is kept:
    an iterator that is dropped, as `anext(aiter(stream))` drops one, takes the run with it; keep the
    iterator to read on later. Handlers are then cancelled and may clean up for the grace period, the
    checkpoint is free, its head is the last boundary, and `get_final_response()` raises
    `asyncio.CancelledError`. `run(checkpoint=...)` goes on from there, and waits for the clean-up.

    Example:
        ```python
        stream = workflow.run("hello", checkpoint=checkpoint, stream=True)
        async for event in stream:
            print(event.type)
        result = await stream.get_final_response()
        ```
    """

    def __init__(self, call: Call, *, include_status_events: bool) -> None:
        self._call = call
        self._include_status_events = include_status_events
        self._events: list[WorkflowEvent[Any]] = []
        self._starting: asyncio.Task[Started] | None = None
        self._cancelled = False

    def __aiter__(self) -> AsyncIterator[WorkflowEvent[Any]]:
        return _Reader(self)

    def __await__(self) -> NoReturn:
        raise InvalidCallError(
            "A stream is not awaited: iterate it with `async for`, or `await stream.get_final_response()`."
        )

    async def get_final_response(self) -> WorkflowRunResult:
        """Read what is left and return the result of the run.

        Raises:
            asyncio.CancelledError: The run was cancelled, or its reader left early.
            Exception: What made the run fail.
        """
        while await self._next() is not None:
            pass
        started = await self._start()
        return WorkflowRunResult(
            self._events, started.task.result(), include_status_events=self._include_status_events
        )

    async def cancel(self) -> None:
        """End the run, from any task; returns when it has cleaned up and the checkpoint is free.

        Raises:
            asyncio.CancelledError: The caller's own cancellation, once the run has cleaned up all the same.
        """
        self._cancelled = True
        starting = self._starting
        if starting is None:
            return
        _end_start(starting)
        cancelled: asyncio.CancelledError | None = None
        try:
            await ended(starting)
        except asyncio.CancelledError as error:
            cancelled = error
        try:
            if not starting.cancelled() and starting.exception() is None:
                try:
                    await starting.result().stop()
                except asyncio.CancelledError as error:
                    cancelled = cancelled or error
            if cancelled is not None:
                raise cancelled
        finally:
            del cancelled  # it holds this frame, which would hold it

    async def _start(self) -> Started:
        """Start the run at the first call; every reader gets the same run, or the same refusal."""
        if self._starting is None:
            if self._cancelled:
                raise asyncio.CancelledError("the stream was cancelled before it started")
            self._starting = asyncio.get_running_loop().create_task(self._call.start())
            UNDER_WAY.keep(self._starting, lambda: None)
        if not self._starting.done():
            try:
                await asyncio.wait({self._starting})
            except asyncio.CancelledError:
                with suppress(asyncio.CancelledError):
                    await self.cancel()
                raise
        return self._starting.result()

    async def _next(self) -> WorkflowEvent[Any] | None:
        """Return the next event, or None at the end; raises what the run raised."""
        started = await self._start()
        try:
            event = await started.channel.get()
        except asyncio.CancelledError:
            with suppress(asyncio.CancelledError):
                await started.stop()
            raise
        if event is None:
            await asyncio.wait({started.task})
            started.task.result()
            return None
        self._events.append(event)
        return event

    def _leave(self) -> None:
        """End the run from wherever the last reference was dropped."""
        starting = self._starting
        if starting is None:
            return
        if starting.done():
            if not starting.cancelled() and starting.exception() is None:
                starting.result().leave()
            return
        try:
            starting.get_loop().call_soon_threadsafe(_end_start, starting)
        except RuntimeError:
            pass  # the loop is closed, and the run with it

    def __del__(self) -> None:
        self._leave()


def _end_start(starting: asyncio.Task[Started]) -> None:
    starting.cancel()
    if starting.done():  # it came to its end before the cancellation did
        _end_started(starting)
    else:
        starting.add_done_callback(_end_started)


def _end_started(starting: asyncio.Task[Started]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().cancel()


class _Reader(AsyncIterator[WorkflowEvent[Any]]):
    """One `async for` over a stream; leaving the loop early ends the run."""

    def __init__(self, stream: WorkflowRunStream) -> None:
        self._stream = stream

    async def __anext__(self) -> WorkflowEvent[Any]:
        event = await self._stream._next()
        if event is None:
            raise StopAsyncIteration
        return event

    def __del__(self) -> None:
        self._stream._leave()
