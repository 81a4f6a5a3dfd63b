"""Running one superstep: different executors at once, one executor's messages one at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from branchpoint.codec import copy_value
from branchpoint.engine._channel import Channel
from branchpoint.engine._notes import note
from branchpoint.engine._port import HandlerPort, Origin
from branchpoint.engine._request import RunRequest
from branchpoint.engine._routing import find_ways
from branchpoint.engine._share import Share
from branchpoint.engine._state import Delivery, RunState
from branchpoint.engine._stopping import forget, stop
from branchpoint.engine._threads import call_in_thread
from branchpoint.errors import HandlerError, UndeliverableMessageError
from branchpoint.events import WorkflowErrorDetails, WorkflowEvent
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


def inboxes(deliveries: Sequence[Delivery], order: Mapping[str, Any]) -> dict[str, list[Delivery]]:
    """Sort deliveries by receiver: receivers in declared order, messages in the order of sending."""
    inbox: dict[str, list[Delivery]] = {}
    for delivery in deliveries:
        for target in delivery.targets:
            inbox.setdefault(target, []).append(delivery)
    if len(inbox) < 2:
        return inbox
    return {executor_id: inbox[executor_id] for executor_id in order if executor_id in inbox}


class Superstep(msgspec.Struct):
    """One superstep of one run.

    Attributes:
        state: The run's state; only read here.
        live: The run-scoped executors made so far; new ones are added.
        origin: What keys derive from.
        channel: Where live events go.
        request: The call, for its options and its grace period.
    """

    state: RunState
    live: dict[str, Executor]
    origin: Origin
    channel: Channel
    request: RunRequest

    async def run(self) -> list[Share]:
        """Deliver every pending message and return what the executors did, in declared order.

        Raises:
            Exception: What a handler raised, with executor and superstep in its notes; of several the
                first in declared order, the others in its notes. Siblings were cancelled and have
                cleaned up, or were abandoned after the grace period.
        """
        inbox = inboxes(self.state.deliveries, self.state.graph.executors)
        shares = [Share(target, self.state.graph, self.state.shared, self.state.medium) for target in inbox]
        tasks = {asyncio.create_task(self._serve(share, inbox[share.executor_id])): share for share in shares}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            # Also after a success: nothing may be written once the superstep is over.
            try:
                await stop(tasks, self.request.grace_seconds)
            finally:
                self._abandon(tasks)
                for task, share in tasks.items():
                    share.closed = True
                    forget(task)
        self._raise_first(tasks)
        return shares

    async def _serve(self, share: Share, deliveries: Sequence[Delivery]) -> None:
        try:
            await self._work(share, deliveries)
        except asyncio.CancelledError as error:
            if _asked_to_end():
                raise
            # Otherwise siblings would be waited for, as if this one had ended well.
            raise _uncalled_for(share) from error

    async def _work(self, share: Share, deliveries: Sequence[Delivery]) -> None:
        executor = self.live.get(share.executor_id)
        if executor is None:
            executor = await self._made(share.executor_id)
        self._emit(WorkflowEvent("executor_invoked", executor_id=share.executor_id))
        await self.channel.drain()
        for ordinal, delivery in enumerate(deliveries):
            await self._handle(share, executor, ordinal, delivery)
        await find_ways(self.state.graph, share)
        if self.state.medium is not None:  # a one-shot run keeps nothing
            share.saved = await dehydrate(executor)

    async def _made(self, executor_id: str) -> Executor:
        executor = self.state.graph.spawn(executor_id)
        saved = self.state.executors.get(executor_id)
        if saved is not None:
            await hydrate(executor, saved.take(self.state.medium))
        self.live[executor_id] = executor
        return executor

    async def _handle(self, share: Share, executor: Executor, ordinal: int, delivery: Delivery) -> None:
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
            sources=delivery.sources,
            request_id=delivery.request_id,
            emit=self._emitter(share.executor_id),
            options=self.request.options,
        )
        try:
            await self._call(spec, executor, args, port)
        finally:
            port.close()
        share.check_lent()
        check_configuration(executor)

    async def _call(
        self, spec: HandlerSpec | ResponseSpec, executor: Executor, args: tuple[Any, ...], port: HandlerPort
    ) -> None:
        call: Callable[..., Any] = spec.call
        if spec.is_async:
            result = await call(executor, *args, WorkflowContext(port))
        else:
            result = await call_in_thread(call, executor, *args, SyncWorkflowContext(port))
        if result is not None and isinstance(spec, HandlerSpec) and spec.sends_result:
            port.send(result, None)

    def _emitter(self, executor_id: str) -> Callable[[WorkflowEvent[Any]], Awaitable[None] | None]:
        loop = asyncio.get_running_loop()

        def emit(event: WorkflowEvent[Any]) -> Awaitable[None] | None:
            stamped = self.channel.stamp(event, executor_id=event.executor_id or executor_id)
            try:
                here = asyncio.get_running_loop() is loop
            except RuntimeError:
                here = False
            if here:
                self.channel.put(stamped)
                return self.channel.drain()
            asyncio.run_coroutine_threadsafe(self._told(stamped), loop).result()
            return None

        return emit

    async def _told(self, event: WorkflowEvent[Any]) -> None:
        self.channel.put(event)
        await self.channel.drain()

    def _emit(self, event: WorkflowEvent[Any]) -> None:
        self.channel.put(self.channel.stamp(event))

    def _abandon(self, tasks: Mapping[asyncio.Task[None], Share]) -> None:
        for task, share in tasks.items():
            if not task.done():
                text = (
                    f"executor {share.executor_id!r} did not end within {self.request.grace_seconds:g} s of its "
                    "cancellation and was abandoned; what it does from now on goes nowhere"
                )
                _logger.warning(text)
                self._emit(WorkflowEvent("warning", text, executor_id=share.executor_id))

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
            self._emit(WorkflowEvent("executor_failed", details=details, executor_id=failed.executor_id))
        raise first


def _uncalled_for(share: Share) -> HandlerError:
    return HandlerError(
        f"Code of executor {share.executor_id!r} (a handler, a condition behind it, or saving its state) raised "
        "CancelledError although nobody cancelled the run. Let it raise an exception of its own, or catch "
        "what it awaits."
    )


def _asked_to_end() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _failure(task: asyncio.Task[None]) -> BaseException | None:
    if not task.done():
        return asyncio.CancelledError()
    return asyncio.CancelledError() if task.cancelled() else task.exception()
