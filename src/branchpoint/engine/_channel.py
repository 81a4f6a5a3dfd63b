"""Where a run puts its events, and where a reader takes them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from branchpoint.events import WorkflowErrorDetails, WorkflowEvent, WorkflowEventType, WorkflowRunState

__all__ = ["Channel", "Inside"]


class Channel:
    """A queue from one run to one reader.

    `put` never waits, so handlers and threads may use it; the run waits in `drain`, at every
    boundary and where a handler emits, until the reader is within `limit` events.

    Attributes:
        where: What the run is called in messages.
        checkpoint_id: Stamped on live events.
        input_id: Stamped on live events.
        superstep: Stamped on live events; the run keeps it current.
    """

    def __init__(self, where: str, checkpoint_id: str | None, limit: int | None = None) -> None:
        self.where = where
        self.checkpoint_id = checkpoint_id
        self.input_id: str | None = None
        self.superstep = 0
        self._limit = limit
        self._events: deque[WorkflowEvent[Any]] = deque()
        # Several may wait on either side: handlers of one superstep, or two tasks on one stream.
        self._ready = asyncio.Event()
        self._room = asyncio.Event()
        self._awaited = False  # nobody has waited so far
        self._closed = False

    def stamp(self, event: WorkflowEvent[Any], *, executor_id: str | None = None) -> WorkflowEvent[Any]:
        """Return a live event that says where it belongs; live events are never durable."""
        return msgspec.structs.replace(
            event,
            executor_id=executor_id or event.executor_id,
            checkpoint_id=self.checkpoint_id,
            input_id=self.input_id,
            superstep=self.superstep,
            durable=False,
            event_id=None,
        )

    def tell(
        self,
        type: WorkflowEventType,
        data: Any = None,
        *,
        executor_id: str | None = None,
        iteration: int | None = None,
        state: WorkflowRunState | None = None,
        details: WorkflowErrorDetails | None = None,
    ) -> None:
        """Add a live event of the engine's own."""
        if self._closed:
            return
        event: WorkflowEvent[Any] = WorkflowEvent(
            type,
            data,
            executor_id=executor_id,
            iteration=iteration,
            state=state,
            details=details,
            checkpoint_id=self.checkpoint_id,
            input_id=self.input_id,
            superstep=self.superstep,
        )
        self._events.append(event)
        if self._awaited:
            self._ready.set()

    def put(self, event: WorkflowEvent[Any]) -> None:
        """Add an event and wake the reader."""
        if not self._closed:
            self._events.append(event)
            if self._awaited:
                self._ready.set()

    def put_all(self, events: Iterable[WorkflowEvent[Any]]) -> None:
        """Add events and wake the reader."""
        if not self._closed:
            self._events.extend(events)
            if self._awaited:
                self._ready.set()

    @property
    def is_full(self) -> bool:
        """Whether the run is further ahead of its reader than the limit, so that `drain` would wait."""
        return self._limit is not None and len(self._events) > self._limit and not self._closed

    async def drain(self) -> None:
        """Wait until the reader has caught up to within the limit."""
        while self.is_full:
            self._room.clear()
            await self._room.wait()

    def close(self) -> None:
        """Say that no more events come, or that nobody reads them."""
        self._closed = True
        self._ready.set()
        self._room.set()

    def take(self) -> list[WorkflowEvent[Any]]:
        """Take all events there are, for a reader that comes when the run has ended."""
        taken = list(self._events)
        self._events.clear()
        return taken

    async def get(self) -> WorkflowEvent[Any] | None:
        """Return the next event, or None when the channel is closed and empty."""
        while not self._events:
            if self._closed:
                return None
            self._ready.clear()
            self._awaited = True
            await self._ready.wait()
        event = self._events.popleft()
        if self._limit is None or len(self._events) <= self._limit // 2:
            self._room.set()
        return event


class Inside:
    """The way of a child workflow's events into the channel of the run: they say where they come from.

    Attributes:
        where: What the child is called in messages.
        path: The executors that lead to the child, outermost first.
    """

    def __init__(self, outer: Channel | Inside, executor_id: str) -> None:
        before: tuple[str, ...] = outer.path if isinstance(outer, Inside) else ()
        self._channel: Channel = outer._channel if isinstance(outer, Inside) else outer
        self.where: str = f"child {executor_id!r} of {outer.where}"
        self.path: tuple[str, ...] = (*before, executor_id)

    @property
    def checkpoint_id(self) -> str | None:
        """That of the run."""
        return self._channel.checkpoint_id

    @property
    def is_full(self) -> bool:
        """Whether the run is further ahead of its reader than the limit."""
        return self._channel.is_full

    async def drain(self) -> None:
        """Wait until the reader has caught up to within the limit."""
        await self._channel.drain()

    def stamp(self, event: WorkflowEvent[Any], *, executor_id: str | None = None) -> WorkflowEvent[Any]:
        """Return a live event that says where it belongs."""
        return msgspec.structs.replace(self._channel.stamp(event, executor_id=executor_id), path=self.path)

    def tell(self, type: WorkflowEventType, data: Any = None, **fields: Any) -> None:
        """Add a live event of the engine's own."""
        self.put(self.stamp(WorkflowEvent(type, data, **fields)))

    def put(self, event: WorkflowEvent[Any]) -> None:
        """Add an event and wake the reader."""
        self._channel.put(event)
