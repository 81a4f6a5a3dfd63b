"""The two ways to call a workflow: await it, or read it as a stream.

Both start the same task, see the same events in the same order, and end it cleanly however the
caller leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Generator
from typing import TYPE_CHECKING, Any

from branchpoint.checkpoint import Checkpoint, Hold
from branchpoint.engine import Channel, Finished, Runner, RunRequest, settle
from branchpoint.errors import InvalidCallError
from branchpoint.events import WorkflowEvent
from branchpoint.workflow._result import WorkflowRunResult

if TYPE_CHECKING:
    from branchpoint.graph import Graph

__all__ = ["PendingRun", "WorkflowRunStream"]

STREAM_BUFFER = 64
"""How many events a run may be ahead of its reader."""


class _Call:
    """One call, before and after it has started."""

    def __init__(
        self, graph: Graph, request: RunRequest, checkpoint: Checkpoint | None, limit: int | None
    ) -> None:
        self.graph = graph
        self.request = request
        self.checkpoint = checkpoint
        self.limit = limit

    async def start(self) -> _Started:
        """Take the checkpoint and start the run in a task of its own.

        Raises:
            CheckpointInUseError: Another run holds the checkpoint; no handler was entered.
        """
        checkpoint = self.checkpoint
        hold: Hold | None = None
        if checkpoint is None:
            channel = Channel(f"a run of workflow {self.graph.name!r} without a checkpoint", None, self.limit)
        else:
            owner = f"a run of workflow {self.graph.name!r}"
            hold = await checkpoint.take_hold(owner, grace=self.request.grace_seconds)
            channel = Channel(
                f"checkpoint {checkpoint.checkpoint_id!r}", checkpoint.checkpoint_id, self.limit
            )
        runner = Runner(self.graph, self.request, channel, checkpoint, hold)
        task = asyncio.get_running_loop().create_task(runner.run(), name=channel.where)
        return _Started(channel, task, hold)


class _Started:
    """A run that is under way; the checkpoint is free as soon as its task has ended, however."""

    def __init__(self, channel: Channel, task: asyncio.Task[Finished], hold: Hold | None) -> None:
        self.channel = channel
        self.task = task
        self._hold = hold
        task.add_done_callback(lambda _: _end(channel, hold))

    def cancel(self) -> None:
        """Ask the run to end; its handlers are cancelled and may clean up."""
        if self.task.done():
            return
        self._mark_closing()
        self.task.cancel()

    def leave(self) -> None:
        """Ask the run to end, from whatever thread dropped its reader."""
        if self.task.done():
            return
        self._mark_closing()  # now, not in a turn of the loop: the next run may already be about to start
        try:
            self.task.get_loop().call_soon_threadsafe(self.cancel)
        except RuntimeError:
            pass  # the loop is closed, and the run with it

    def _mark_closing(self) -> None:
        if self._hold is not None:
            self._hold.mark_closing()

    async def stop(self) -> None:
        """Cancel the run and wait until it has cleaned up; the grace period bounds this."""
        self.cancel()
        try:
            await settle(self.task)
        except asyncio.CancelledError:
            if not self.task.cancelled():
                raise
        except Exception:
            pass  # whoever awaits the run itself is told


def _end(channel: Channel, hold: Hold | None) -> None:
    if hold is not None:
        hold.release()
    channel.close()


class PendingRun(Awaitable[WorkflowRunResult]):
    """A call that starts when it is awaited; nothing happens before, and no guard is taken."""

    def __init__(self, call: _Call, *, include_status_events: bool) -> None:
        self._call: _Call | None = call
        self._include_status_events = include_status_events

    def __await__(self) -> Generator[Any, None, WorkflowRunResult]:
        return self._run().__await__()

    async def _run(self) -> WorkflowRunResult:
        call, self._call = self._call, None
        if call is None:
            raise InvalidCallError(
                "This run was awaited before. Call workflow.run(...) again for another one."
            )
        started = await call.start()
        try:
            await asyncio.wait({started.task})
        except asyncio.CancelledError:
            await started.stop()
            raise
        finished = started.task.result()
        events: list[WorkflowEvent[Any]] = []
        while (event := await started.channel.get()) is not None:
            events.append(event)
        return WorkflowRunResult(events, finished, include_status_events=self._include_status_events)


class WorkflowRunStream:
    """The events of one run, as they come.

    Nothing starts before the first iteration or `get_final_response()`. The run may be ahead of its
    reader by a bounded number of events and then waits. A reader that leaves early, drops the
    stream or is cancelled ends the run: its handlers are cancelled, the checkpoint is free and its
    head is the last boundary.

    Example:
        ```python
        stream = workflow.run("hello", checkpoint=checkpoint, stream=True)
        async for event in stream:
            print(event.type)
        result = await stream.get_final_response()
        ```
    """

    def __init__(self, call: _Call, *, include_status_events: bool) -> None:
        self._call: _Call | None = call
        self._include_status_events = include_status_events
        self._events: list[WorkflowEvent[Any]] = []
        self._started: _Started | None = None
        self._cancelled = False

    def __aiter__(self) -> AsyncIterator[WorkflowEvent[Any]]:
        return _Reader(self)

    async def get_final_response(self) -> WorkflowRunResult:
        """Read what is left and return the result of the run.

        Raises:
            asyncio.CancelledError: The run was cancelled, or its reader left early.
            Exception: What made the run fail.
        """
        while await self._next() is not None:
            pass
        assert self._started is not None
        return WorkflowRunResult(
            self._events, self._started.task.result(), include_status_events=self._include_status_events
        )

    async def cancel(self) -> None:
        """End the run, from any task; returns when it has cleaned up and the checkpoint is free."""
        self._cancelled = True
        if self._started is not None:
            await self._started.stop()

    async def _next(self) -> WorkflowEvent[Any] | None:
        """Return the next event, or None at the end; raises what the run raised."""
        if self._started is None:
            call, self._call = self._call, None
            if call is None or self._cancelled:
                raise asyncio.CancelledError("the stream was cancelled before it started")
            self._started = await call.start()
        try:
            event = await self._started.channel.get()
        except asyncio.CancelledError:
            await self._started.stop()
            raise
        if event is None:
            await asyncio.wait({self._started.task})
            self._started.task.result()
            return None
        self._events.append(event)
        return event

    def _leave(self) -> None:
        """End the run from wherever the last reference was dropped."""
        if self._started is not None:
            self._started.leave()

    def __del__(self) -> None:
        self._leave()


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
