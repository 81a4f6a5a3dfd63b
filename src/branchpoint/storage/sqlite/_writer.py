"""The thread that writes to one database: it does all that waits, together, and tells those who wait for it."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence

from branchpoint.storage.sqlite._jobs import Job, Outcome

__all__ = ["Deliver", "Writer", "deliver_to"]

Deliver = tuple[asyncio.AbstractEventLoop, "asyncio.Future[object]"]
"""Where an outcome goes: to a future, in the loop that it belongs to."""

_MOST_JOBS = 1_000
_MOST_BYTES = 32 * 1024 * 1024

_STOP = object()
_Item = tuple[Job, Deliver] | threading.Event | object


class Writer:
    """A thread that begins with the first job and ends with `stop`. What was put is done, whoever waits.

    Args:
        do: Does jobs and returns their outcomes.
        after: Called on the thread when it ends.
        name: That of the thread.
    """

    def __init__(
        self, do: Callable[[Sequence[Job]], list[Outcome]], after: Callable[[], None], *, name: str
    ) -> None:
        self._do = do
        self._after = after
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        # A daemon, so that a forgotten storage does not keep the interpreter; its end waits for what was put.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, job: Job, deliver: Deliver) -> None:
        """Have a job done, after those that were put before."""
        self._queue.put((job, deliver))

    def flush(self) -> threading.Event:
        """Return what is set when all is done that was put before."""
        flushed = threading.Event()
        self._queue.put(flushed)
        return flushed

    def stop(self, *, wait: bool) -> None:
        """End the thread when all is done that was put before."""
        self._queue.put(_STOP)
        if wait:
            self._thread.join()

    def _run(self) -> None:
        going = True
        while going:
            batch, flushed, going = self._next()
            if batch:
                outcomes = self._outcomes([job for job, _ in batch])
                _tell([(deliver, outcome) for (_, deliver), outcome in zip(batch, outcomes, strict=True)])
            for event in flushed:
                event.set()
            # Or the last of them would be kept until the next ones come.
            del batch, flushed
        self._after()

    def _next(self) -> tuple[list[tuple[Job, Deliver]], list[threading.Event], bool]:
        """Wait for something to do; return all that waits, up to a bound, and whether to go on then."""
        batch: list[tuple[Job, Deliver]] = []
        flushed: list[threading.Event] = []
        size = 0
        item = self._queue.get()
        while True:
            if item is _STOP:
                return batch, flushed, False
            if isinstance(item, threading.Event):
                flushed.append(item)
            else:
                assert isinstance(item, tuple)
                batch.append(item)
                size += item[0].size
            if len(batch) >= _MOST_JOBS or size >= _MOST_BYTES:
                return batch, flushed, True
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return batch, flushed, True

    def _outcomes(self, jobs: Sequence[Job]) -> list[Outcome]:
        try:
            return self._do(jobs)
        except Exception as error:  # a fault of this library; nobody is to wait for ever
            return [Outcome(error=error) for _ in jobs]


def deliver_to(loop: asyncio.AbstractEventLoop) -> Deliver:
    """Return a place for an outcome in a loop."""
    return loop, loop.create_future()


def _tell(told: list[tuple[Deliver, Outcome]]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[object], Outcome]]] = {}
    for (loop, future), outcome in told:
        by_loop.setdefault(loop, []).append((future, outcome))
    for loop, outcomes in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, outcomes)
        except RuntimeError:
            pass  # the loop was closed; what was done is done


def _settle(outcomes: list[tuple[asyncio.Future[object], Outcome]]) -> None:
    for future, outcome in outcomes:
        if future.done():
            continue  # nobody waits any more
        if outcome.error is not None:
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome.result)
