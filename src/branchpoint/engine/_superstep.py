"""Running one superstep: different executors at once, one executor's messages one at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from branchpoint.codec import copy_value
from branchpoint.engine._channel import Channel, Inside
from branchpoint.engine._nest import Nest
from branchpoint.engine._notes import note
from branchpoint.engine._port import HandlerPort, KeepStep, Origin
from branchpoint.engine._request import RunRequest
from branchpoint.engine._routing import find_ways
from branchpoint.engine._share import Share
from branchpoint.engine._state import Delivery, RunState
from branchpoint.engine._stopping import asked_to_end, ended, stop
from branchpoint.engine._threads import call_in_thread
from branchpoint.errors import HandlerError, UndeliverableMessageError
from branchpoint.events import WorkflowErrorDetails, WorkflowEvent, instrumented, instruments
from branchpoint.graph import (
    Executor,
    HandlerSpec,
    ResponseSpec,
    SyncWorkflowContext,
    WorkflowContext,
    check_configuration,
    dehydrate,
    find_handler,
    find_response_handler,
    hydrate,
)

__all__ = ["Superstep", "inboxes"]

_logger = logging.getLogger("branchpoint")


def inboxes(deliveries: Sequence[Delivery], order: Callable[[str], int]) -> dict[str, list[Delivery]]:
    """Sort deliveries by receiver: receivers in declared order, messages in the order of sending."""
    if len(deliveries) == 1 and len(deliveries[0].targets) == 1:
        return {deliveries[0].targets[0]: [*deliveries]}
    inbox: dict[str, list[Delivery]] = {}
    for delivery in deliveries:
        for target in delivery.targets:
            inbox.setdefault(target, []).append(delivery)
    return {executor_id: inbox[executor_id] for executor_id in sorted(inbox, key=order)}


class Arrivals:
    """Tells the driver when all tasks of a superstep are through, or the first one has failed.

    A task says so itself, one turn of the loop before a callback could; a callback stands in only
    for a task that was cancelled before it began.

    Attributes:
        missing: How many are not through.
        stopping: They are being cancelled; one that swallows this enters no further handler.
    """

    __slots__ = ("_expected", "future", "missing", "stopping")

    def __init__(self, future: asyncio.Future[None], missing: int) -> None:
        self.future = future
        self.missing = missing
        self.stopping = False
        self._expected: dict[str, asyncio.Task[None]] = {}

    def expect(self, executor_id: str, task: asyncio.Task[None]) -> None:
        """A task was made."""
        self._expected[executor_id] = task
        task.add_done_callback(self.over)

    def began(self, executor_id: str) -> None:
        """It began; from here on it speaks for itself."""
        self._expected.pop(executor_id).remove_done_callback(self.over)

    def arrived(self) -> None:
        """One task has done all it had to do."""
        self.missing -= 1
        if not self.missing:
            self.over()

    def over(self, task: asyncio.Task[None] | None = None) -> None:
        """Wake the driver: all are through, or this one never will be."""
        if not self.future.done():
            self.future.set_result(None)

    def check(self) -> None:
        """End a task that is being stopped and whose handler swallowed that."""
        if self.stopping:
            raise asyncio.CancelledError("the superstep is being stopped")

    def ended(self, task: asyncio.Task[None]) -> None:
        """A task has ended, however; also one that was cancelled before it began."""
        if (task.cancelled() or task.exception() is not None) and not self.future.done():
            self.future.set_result(None)


class Superstep(msgspec.Struct):
    """One superstep of one run.

    Attributes:
        state: The run's state; only read here.
        live: The run-scoped executors made so far; new ones are added.
        origin: What keys derive from.
        channel: Where live events go.
        request: The call, for its options and its grace period.
        loop: The event loop of the run.
        nests: What runs the child workflows, by the executors that stand for them.
        keep_step: Commits the state that an executor has in the middle of the superstep.
    """

    state: RunState
    live: dict[str, Executor]
    origin: Origin
    channel: Channel | Inside
    request: RunRequest
    loop: asyncio.AbstractEventLoop
    nests: Mapping[str, Nest] = msgspec.field(default_factory=dict)
    keep_step: KeepStep | None = None

    async def run(self) -> list[Share]:
        """Deliver every pending message and return what the executors did, in declared order.

        Raises:
            Exception: What a handler raised, with executor and superstep in its notes; of several the
                first in declared order, the others in its notes. Siblings were cancelled and have
                cleaned up, or were abandoned after the grace period.
        """
        state = self.state
        inbox = inboxes(state.deliveries, state.graph.order)
        shares = [Share(target, state.graph, state.shared, state.medium) for target in inbox]
        all_in = Arrivals(self.loop.create_future(), len(shares))
        tasks: dict[asyncio.Task[None], Share] = {}
        for share in shares:
            inbound = inbox[share.executor_id]
            work = (
                self._watched(share, inbound, all_in) if instruments else self._serve(share, inbound, all_in)
            )
            task = self.loop.create_task(work)
            all_in.expect(share.executor_id, task)
            tasks[task] = share
        try:
            await all_in.future
        finally:
            # Also after a success: nothing may be written once the superstep is over.
            all_in.stopping = True
            try:
                if all_in.missing:
                    await self._stop(tasks)
            finally:
                for share in shares:
                    share.closed = True
                if all_in.missing:
                    self._abandon(tasks)
        if all_in.missing:
            self._raise_first(tasks)
        return shares

    async def _stop(self, tasks: Mapping[asyncio.Task[None], Share]) -> None:
        """Stop all tasks. Those that run a child stop what is in there, within its own grace period."""
        try:
            await stop(tasks, self.request.grace_seconds)
        finally:
            for task, share in tasks.items():
                if share.executor_id in self.nests:
                    await ended(task)

    async def _watched(self, share: Share, deliveries: Sequence[Delivery], all_in: Arrivals) -> None:
        known = {
            "checkpoint_id": self.channel.checkpoint_id,
            "executor_id": share.executor_id,
            "superstep": self.state.iteration + 1,
        }
        with instrumented("executor", known):
            await self._serve(share, deliveries, all_in)

    async def _serve(self, share: Share, deliveries: Sequence[Delivery], all_in: Arrivals) -> None:
        all_in.began(share.executor_id)
        try:
            if self.nests and share.executor_id in self.nests:
                await self._enter(share, deliveries, all_in)
            else:
                executor = self.live.get(share.executor_id)
                if executor is None:
                    executor = await self._made(share.executor_id)
                self.channel.tell("executor_invoked", executor_id=share.executor_id)
                if self.channel.is_full:
                    await self.channel.drain()
                for ordinal, delivery in enumerate(deliveries):
                    all_in.check()
                    await self._handle(share, executor, ordinal, delivery, ordinal == len(deliveries) - 1)
                all_in.check()
                if share.sent:
                    await find_ways(self.state.graph, share)
                if self.state.medium is not None:  # a one-shot run keeps nothing
                    share.saved = await dehydrate(executor)
        except BaseException as error:
            all_in.over()
            if isinstance(error, asyncio.CancelledError) and not (all_in.stopping or asked_to_end()):
                raise _uncalled_for(share) from error
            raise
        all_in.arrived()

    async def _enter(self, share: Share, deliveries: Sequence[Delivery], all_in: Arrivals) -> None:
        """Have a child workflow do all it can."""
        self.channel.tell("executor_invoked", executor_id=share.executor_id)
        if self.channel.is_full:
            await self.channel.drain()
        await self.nests[share.executor_id].serve(share, deliveries, self.origin, self.loop)
        all_in.check()

    async def _made(self, executor_id: str) -> Executor:
        executor = self.state.graph.spawn(executor_id)
        saved = self.state.executors.get(executor_id)
        if saved is not None:
            await hydrate(executor, saved.take(self.state.medium))
        self.live[executor_id] = executor
        return executor

    async def _handle(
        self, share: Share, executor: Executor, ordinal: int, delivery: Delivery, is_last: bool
    ) -> None:
        value = copy_value(delivery.value)
        if delivery.request_id is None:
            args: tuple[Any, ...] = (value,)
            spec: HandlerSpec | ResponseSpec | None = find_handler(executor, value)
        else:
            request = copy_value(delivery.request)
            args = (request, value)
            spec = find_response_handler(executor, request, value)
        if spec is None:
            raise UndeliverableMessageError(
                f"Executor {executor.id!r} has no handler for {', '.join(type(arg).__name__ for arg in args)}, "
                "which is pending for it: the graph's handlers changed since it was sent. Restore the handler."
            )
        port = HandlerPort(
            share,
            executor,
            spec,
            self.origin,
            ordinal,
            delivery.sources,
            delivery.request_id,
            self._told_by_handler,
            self.request.options,
            self.keep_step,
            is_last,
        )
        try:
            call: Callable[..., Any] = spec.call
            if spec.is_async:
                result = await call(executor, *args, WorkflowContext(port))
            else:
                result = await call_in_thread(call, executor, *args, SyncWorkflowContext(port))
            if result is not None and isinstance(spec, HandlerSpec) and spec.sends_result:
                port.send(result, None)
        finally:
            port.closed = True
        if share.lent is not None:
            share.check_lent()
        check_configuration(executor)

    def _told_by_handler(self, event: WorkflowEvent[Any], executor_id: str) -> Awaitable[None] | None:
        stamped = self.channel.stamp(event, executor_id=event.executor_id or executor_id)
        try:
            here = asyncio.get_running_loop() is self.loop
        except RuntimeError:
            here = False
        if here:
            self.channel.put(stamped)
            return self.channel.drain()
        asyncio.run_coroutine_threadsafe(self._told(stamped), self.loop).result()
        return None

    async def _told(self, event: WorkflowEvent[Any]) -> None:
        self.channel.put(event)
        await self.channel.drain()

    def _abandon(self, tasks: Mapping[asyncio.Task[None], Share]) -> None:
        for task, share in tasks.items():
            if not task.done():
                text = (
                    f"executor {share.executor_id!r} did not end within {self.request.grace_seconds:g} s of its "
                    "cancellation and was abandoned; what it does from now on goes nowhere"
                )
                _logger.warning(text)
                self.channel.tell("warning", text, executor_id=share.executor_id)

    def _raise_first(self, tasks: Mapping[asyncio.Task[None], Share]) -> None:
        failures = [
            (share, failure) for task, share in tasks.items() if (failure := _failure(task)) is not None
        ]
        # A sibling that was cancelled because another failed is not a failure of its own.
        real = [entry for entry in failures if not isinstance(entry[1], asyncio.CancelledError)] or failures
        if not real:
            return
        share, first = real[0]
        where = f"executor {share.executor_id!r}, superstep {self.state.iteration + 1}, {self.channel.where}"
        note(first, where)
        for other, error in real[1:]:
            told = WorkflowErrorDetails.from_exception(error)
            note(
                first,
                f"executor {other.executor_id!r} failed in the same superstep: {told.error_type}: {told.message}",
            )
        for failed, error in real:
            details = WorkflowErrorDetails.from_exception(error, executor_id=failed.executor_id)
            self.channel.tell("executor_failed", details=details, executor_id=failed.executor_id)
        raise first


def _uncalled_for(share: Share) -> HandlerError:
    return HandlerError(
        f"Code of executor {share.executor_id!r} (a handler, a condition behind it, or saving its state) raised "
        "CancelledError although nobody cancelled the run. Let it raise an exception of its own, or catch "
        "what it awaits."
    )


def _failure(task: asyncio.Task[None]) -> BaseException | None:
    if not task.done():
        return asyncio.CancelledError()
    return asyncio.CancelledError() if task.cancelled() else task.exception()
