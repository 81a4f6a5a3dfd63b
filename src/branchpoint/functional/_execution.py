"""One execution of a function, from its top to its end, or to where only answers can take it further.

The function and its steps run in tasks of their own; commits are made by the task of the handler, so no
code of the function can swallow what a commit raises.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import msgspec

from branchpoint.codec import comparison_digest, copy_value, type_expression
from branchpoint.engine import forget, note, stop
from branchpoint.errors import ExecutorStateError, HandlerError
from branchpoint.events import WorkflowErrorDetails, WorkflowEvent, WorkflowEventType
from branchpoint.functional._journal import Journal, Record
from branchpoint.functional._places import Call, Scope
from branchpoint.graph import Port

if TYPE_CHECKING:
    from branchpoint.functional._context import RunContext

__all__ = ["Execution", "Here", "here"]

SETTLING: Final = 20
"""Turns of the loop after which a function that did nothing but wait is taken to wait for answers alone."""

GRACE: Final = 5.0


class Here(msgspec.Struct, frozen=True):
    """Where code stands: in which execution, and in which scope of it."""

    execution: Execution
    scope: Scope


here: ContextVar[Here | None] = ContextVar("branchpoint.functional", default=None)


class Question(msgspec.Struct, eq=False):
    """A question that code of the function waits on."""

    call: Call
    data: Any
    response_type: Any
    request_id: str | None


class Batch(msgspec.Struct, eq=False):
    """Steps that finished in one turn of the loop, and who waits for them to be kept."""

    records: list[tuple[Record, list[str]]] = msgspec.field(default_factory=list)
    waiting: list[asyncio.Future[None]] = msgspec.field(default_factory=list)


class Execution:
    """Runs the function once.

    Attributes:
        port: What the engine does for the delivery.
        journal: What is done; more is added.
        context: What the function and its steps work through.
        orders: The places of all calls that were made, by key.
        closing: The function is being unwound, or has ended.
    """

    def __init__(self, port: Port, journal: Journal, make: Callable[[Execution], RunContext]) -> None:
        self.port = port
        self.journal = journal
        self.context = make(self)
        self.orders: dict[str, tuple[int | str, ...]] = {}
        self.closing = False
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._moves = 0
        self._questions: list[Question] = []
        self._running: dict[str, int] = {}  # steps under way, and how much is under way inside of each
        self._steps: dict[str, Any] = {}  # the code of the steps that were called, by name
        self._tasks: dict[asyncio.Task[Any], int] = {}  # those that are inside of a step or a question
        self._batches: deque[Batch] = deque()
        self._open: Batch | None = None

    # Places.

    def place(self, kind: str, name: str, identity: Callable[[], Any]) -> Call:
        """Return the call that the code makes now.

        Raises:
            EncodingError: What it is told apart by cannot be encoded.
            HandlerError: It is made after the function has ended, or from a thread.
        """
        now = here.get()
        if now is None or now.execution is not self:
            raise ExecutorStateError(
                f"{name!r} was called on the context of {self.port.executor_id!r} by code that does not run in it. "
                "Ask get_run_context() for the one that is running."
            )
        try:
            task = asyncio.current_task()
        except RuntimeError as error:
            raise HandlerError(
                f"{name!r} was called in the thread of a sync step, where nothing can be awaited. Make the step "
                "that calls it async, or call the plain function, Step.function."
            ) from error
        self.check(name)
        token = (
            "" if self.port.format is None else comparison_digest(kind, identity(), path=f"call of {name!r}")
        )
        scope = now.scope
        if scope.task is None:  # a loop that starts tasks eagerly is in there before anybody could say
            scope.task = task
        if scope.task is task or task is None:
            call = scope.next(kind, name, token)
        else:
            call = scope.next(f"first {kind}", name, token)
            here.set(Here(self, scope.of_task(call, task)))
        self.orders[call.key] = call.order
        return call

    def know(self, name: str, function: Any) -> None:
        """Refuse a second step of one name, whose calls could not be told from those of the first.

        Raises:
            HandlerError: There are two.
        """
        code = getattr(function, "__code__", function)
        known = self._steps.setdefault(name, code)
        if known is not code:
            raise HandlerError(
                f"Two steps of {self.port.executor_id!r} are named {name!r}, so their results could be taken for each "
                "other's. Give one of them another name: @step(name='...')."
            )

    def check(self, what: str) -> None:
        """Refuse work once the function is being unwound or has ended."""
        if self.closing:
            raise asyncio.CancelledError(f"{what!r}: the function has paused or ended")

    @contextmanager
    def _under_way(self, call: Call) -> Iterator[None]:
        """Count a call as being under way, in the step that made it, by the task that awaits it."""
        task, step = asyncio.current_task(), call.scope.step
        self._moves += 1
        if task is not None:
            self._tasks[task] = self._tasks.get(task, 0) + 1
        if step is not None and step.key in self._running:
            self._running[step.key] += 1
        try:
            yield
        finally:
            self._moves += 1
            if step is not None and step.key in self._running:
                self._running[step.key] -= 1
            if task is not None:
                self._tasks[task] -= 1
                if not self._tasks[task]:
                    del self._tasks[task]
            self._woken.set()

    # Steps.

    async def perform(self, call: Call, body: Callable[[], Awaitable[Any]]) -> Any:
        """Return what the step returned before, or do it, have that kept, and return it."""
        self.check(call.name)
        done = self.journal.records.get(call.key)
        if done is not None:
            self._done_inside(call)
            return copy_value(done.result)
        with self._under_way(call):
            scope = Scope(call.key, call.order, asyncio.current_task(), call)
            token = here.set(Here(self, scope))
            self._running[call.key] = 0
            try:
                await self.tell("executor_invoked", call.name)
                result = await body()
                self.check(call.name)
                record = self._recorded(call, result)
                await self._keep(record, scope.made)
            except Exception as error:
                details = WorkflowErrorDetails.from_exception(error, executor_id=call.name)
                where = f"step {call.name!r}"
                if where not in getattr(error, "__notes__", ()):
                    note(error, where)
                if not self.closing:
                    await self.tell("executor_failed", call.name, details)
                raise
            finally:
                del self._running[call.key]
                here.reset(token)
            self._done_inside(call)
            await self.tell("executor_completed", call.name)
        return copy_value(record.result)

    def _recorded(self, call: Call, result: Any) -> Record:
        path = f"executor_states.{self.port.executor_id}.steps[{call.name}]"
        return self.journal.record(call.key, call.name, result, self.port.format, self.port.depth, path)

    def _done_inside(self, call: Call) -> None:
        if call.scope.step is not None:
            call.scope.made.append(call.key)

    async def _keep(self, record: Record, inner: list[str]) -> None:
        """Wait until a snapshot holds the step; those that finish in one turn of the loop share one."""
        batch = self._open
        if batch is None:
            batch = self._open = Batch()
            self._batches.append(batch)
            self._loop.call_soon(self._close_batch)
        kept: asyncio.Future[None] = self._loop.create_future()
        batch.records.append((record, inner))
        batch.waiting.append(kept)
        await kept

    def _close_batch(self) -> None:
        self._open = None
        self._woken.set()

    async def tell(
        self, type: WorkflowEventType, step: str, details: WorkflowErrorDetails | None = None
    ) -> None:
        """Deliver what happens to a step at once."""
        path = (self.port.executor_id,)
        event: WorkflowEvent[Any] = WorkflowEvent(type, executor_id=step, details=details, path=path)
        delivery = self.port.emit(event)
        if delivery is not None:
            await delivery

    # Questions.

    def ask(self, data: Any, response_type: Any, request_id: str | None) -> Coroutine[Any, Any, Any]:
        """Take the place of a question; awaiting what is returned gives the answer."""
        kept = copy_value(data, path="the data of a request")
        identity = lambda: [request_id, kept, type_expression(response_type)]  # noqa: E731
        call = self.place("request", "request_info", identity)
        return self._answer(Question(call, kept, response_type, request_id))

    async def _answer(self, question: Question) -> Any:
        self.check("request_info")
        key = question.call.key
        if key in self.journal.answers:
            return copy_value(self.journal.answers[key])
        with self._under_way(question.call):
            self._questions.append(question)
            self._woken.set()
            try:
                await self._loop.create_future()
            finally:
                if not self.closing:
                    self._questions.remove(question)

    # The execution.

    async def run(self, code: Coroutine[Any, Any, Any]) -> tuple[bool, Any]:
        """Run the function.

        Returns:
            Whether it came to its end, and what it returned. Otherwise all it waits for are answers, and
            the questions are asked.
        """
        root = Scope()
        token = here.set(Here(self, root))
        try:
            main = self._loop.create_task(code)
        finally:
            here.reset(token)
        root.task = main
        main.add_done_callback(lambda _: self._woken.set())
        try:
            await self._drive(main)
        except BaseException:
            await self._unwind(main, note=False)
            raise
        ended = main.done()
        await self._unwind(main)
        if ended:
            return True, main.result()
        if main.done() and not main.cancelled() and (error := main.exception()) is not None:
            raise error
        for question in sorted(self._questions, key=lambda one: one.call.order):
            key = question.call.key
            if key not in self.journal.asked:
                given = question.data, question.response_type, question.request_id
                self.journal.asked[key] = self.port.request(*given)
        return False, None

    async def _drive(self, main: asyncio.Task[Any]) -> None:
        """Have finished steps kept until the function has ended, or waits for nothing but answers."""
        while True:
            self._woken.clear()  # before the looks, so that nothing is missed that comes during one
            if self._batches and self._batches[0] is not self._open:
                await self._commit(self._batches.popleft())
            elif main.done() and not self._batches:
                return
            elif not self._only_asks():
                await self._woken.wait()
            elif await self._settled(main):
                return

    async def _commit(self, batch: Batch) -> None:
        for record, inner in batch.records:
            self.journal.drop(inner)
            self.journal.records[record.key] = record
        if self.port.format is not None:
            await self.port.keep_step(self.journal.export(self.port.format, self.port.depth))
        for kept in batch.waiting:
            if not kept.done():
                kept.set_result(None)

    def _only_asks(self) -> bool:
        return bool(self._questions) and not self._batches and all(self._running.values())

    async def _settled(self, main: asyncio.Task[Any]) -> bool:
        """Let the function go on as far as it can, and say whether it did nothing."""
        moves = self._moves
        for _ in range(SETTLING):
            await asyncio.sleep(0)
            if self._moves != moves or main.done():
                return False
        return self._only_asks()

    async def _unwind(self, main: asyncio.Task[Any], *, note: bool = True) -> None:
        """End the function and everything of it that is still inside of a step or a question."""
        self.closing = True
        left = await stop([main], GRACE)
        left |= await stop([task for task in self._tasks if task is not main], GRACE)
        for task in self._tasks:
            forget(task)
        if left and note:
            raise HandlerError(
                f"The function of {self.port.executor_id!r} did not end within {GRACE:g} s of being cancelled, "
                "because it swallows CancelledError. Let it pass: it is how a function is paused."
            )
