"""What a handler gets beside its message: the way to send, to ask and to remember.

The contexts are a thin typed front. What they do is decided by the engine, behind `Port`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Never, Protocol

from typing_extensions import TypeVar

from branchpoint.errors import HandlerError

if TYPE_CHECKING:
    from branchpoint.codec import Format
    from branchpoint.events import WorkflowEvent

__all__ = ["OutT", "Port", "SyncWorkflowContext", "W_OutT", "WorkflowContext", "port_of"]

OutT = TypeVar("OutT", default=Never)
W_OutT = TypeVar("W_OutT", default=Never)
T = TypeVar("T")


class Port(Protocol):
    """What the engine does for one delivery; the contexts pass everything on to it.

    Its methods do not wait, with two exceptions: `emit` and `stream_output` may return an awaitable,
    which the asynchronous context awaits. A port given to a `SyncWorkflowContext` is called from the
    handler's thread and returns None.
    """

    @property
    def executor_id(self) -> str:
        """Id of the executor that handles the delivery."""
        ...

    @property
    def source_executor_ids(self) -> Sequence[str]:
        """Ids of the executors that sent it; empty for an input of the workflow."""
        ...

    @property
    def request_id(self) -> str | None:
        """Id of the request that is answered, when the delivery is an answer."""
        ...

    @property
    def idempotency_key(self) -> str:
        """The key of this delivery, the same when it is executed again."""
        ...

    @property
    def run_metadata(self) -> Mapping[str, Any]:
        """The metadata of the input that is worked on."""
        ...

    @property
    def is_streaming(self) -> bool:
        """Whether the caller reads the run as a stream."""
        ...

    @property
    def run_options(self) -> Mapping[str, Any]:
        """What the call gave for itself alone, as far as it is for this executor."""
        ...

    @property
    def executor_state(self) -> dict[str, Any]:
        """The persisted state of a function."""
        ...

    @property
    def turn(self) -> int:
        """The number of the turn, which every accepted message begins."""
        ...

    @property
    def is_last(self) -> bool:
        """Whether the executor has no further delivery in this superstep."""
        ...

    @property
    def format(self) -> Format | None:
        """What snapshots are encoded in; None when nothing is kept."""
        ...

    @property
    def depth(self) -> int:
        """How deep the executor's state stands, as far as encoding it goes."""
        ...

    async def keep_step(self, fields: dict[str, Any]) -> None:
        """Commit the executor's state as it is in the middle of the superstep, the rest as it was before."""
        ...

    def send(self, value: Any, target_id: str | None) -> None:
        """Take a message at its present value."""
        ...

    def yield_output(self, value: Any) -> None:
        """Take an output at its present value."""
        ...

    def stream_output(self, piece: Any) -> Awaitable[None] | None:
        """Deliver a piece of the output that is yielded next."""
        ...

    def request(self, data: Any, response_type: Any, request_id: str | None) -> str:
        """Open a request and return its id."""
        ...

    def withdraw(self, request_id: str) -> None:
        """Close a request of this executor that nobody needs answered any more."""
        ...

    def forget_state(self) -> None:
        """Drop what was written to the shared state; copies of it that were changed are no matter then."""
        ...

    def emit(self, event: WorkflowEvent[Any]) -> Awaitable[None] | None:
        """Deliver an event of the executor's own."""
        ...

    def get_state(self, key: str, default: Any, copy: bool) -> Any:
        """Read a key of the shared state."""
        ...

    def set_state(self, key: str, value: Any) -> None:
        """Write a key at the value's present state."""
        ...

    def delete_state(self, key: str) -> None:
        """Remove a key."""
        ...

    def update_state(self, key: str, fn: Callable[[Any], Any]) -> Any:
        """Write what `fn` makes of a key's value, and return it."""
        ...


class _Context(Generic[OutT, W_OutT]):
    """What both contexts have in common."""

    __slots__ = ("_port",)

    def __init__(self, port: Port) -> None:
        self._port = port

    @property
    def executor_id(self) -> str:
        """Id of this executor."""
        return self._port.executor_id

    @property
    def source_executor_ids(self) -> list[str]:
        """Ids of the executors that sent this message, in declared order; empty for a workflow's input."""
        return list(self._port.source_executor_ids)

    @property
    def request_id(self) -> str | None:
        """Id of the request that is answered; None unless this is a response handler."""
        return self._port.request_id

    @property
    def idempotency_key(self) -> str:
        """A key for calls to the outside world that must not happen twice.

        It is the same when this delivery is executed again after an interruption and differs for
        every other delivery and on every other branch. Recovery is at least once, so give it to
        every service that can tell a repetition by a key.
        """
        return self._port.idempotency_key

    @property
    def run_metadata(self) -> Mapping[str, Any]:
        """The `metadata` given with the input that is worked on, also when another process resumes."""
        return self._port.run_metadata

    @property
    def run_options(self) -> Mapping[str, Any]:
        """What the caller gave for this one call: `tools`, `function_invocation_kwargs`, `client_kwargs`.

        Keyword arguments that were given per executor are this executor's own. They are never saved: a
        call that resumes has those it is given itself.
        """
        return self._port.run_options

    @property
    def executor_state(self) -> dict[str, Any]:
        """The state of a function: a dict of its own, saved at every boundary.

        Raises:
            ExecutorStateError: The executor is not a function; declare `state()` fields in its class.
        """
        return self._port.executor_state

    def get_source_executor_id(self) -> str:
        """Return the id of the one executor that sent this message.

        Raises:
            HandlerError: There are several, or none because the message is the workflow's input.
        """
        sources = self._port.source_executor_ids
        if len(sources) != 1:
            came_from = ", ".join(sources) if sources else "the caller, as the workflow's input"
            raise HandlerError(
                f"Executor '{self.executor_id}' asked for the one executor that sent its message, but it "
                f"came from {came_from}. Read source_executor_ids instead."
            )
        return sources[0]

    def is_streaming(self) -> bool:
        """Say whether the caller reads this run as a stream."""
        return self._port.is_streaming

    def get_state(self, key: str, default: Any = None, *, copy: bool = True) -> Any:
        """Read a key of the workflow's shared state.

        What is seen is the state of the last boundary with this executor's own writes of this
        superstep, never a sibling's.

        Args:
            key: A key of the user's own.
            default: What to return when the key is not set and declares no default.
            copy: True gives a copy of the executor's own; changing it without writing it back is
                an error when the handler returns. False gives a read-only view, for long values: its
                lists, tuples and dicts refuse every change, at any depth. Anything else in it (a set,
                a dataclass, any object of yours) comes out as a copy, made at each look and not watched:
                a change of such a copy is seen by nobody, so write what you change with `set_state`.
                A view is no value to keep in a field; `copy.deepcopy(view)` makes one of it.
        """
        return self._port.get_state(key, default, copy)

    def set_state(self, key: str, value: Any) -> None:
        """Write a key, with the value as it is now; it takes effect when the superstep completes.

        A key that was declared with a reducer is not replaced: the value is folded into the present
        one, so write what is to be added and not the whole.
        """
        self._port.set_state(key, value)

    def delete_state(self, key: str) -> None:
        """Remove a key when the superstep completes."""
        self._port.delete_state(key)

    def update_state(self, key: str, fn: Callable[[Any], Any]) -> Any:
        """Write what `fn` makes of a key's present value, and return it.

        The result takes the present value's place, with or without a reducer.
        """
        return self._port.update_state(key, fn)


def port_of(context: _Context[Any, Any]) -> Port:
    """Return what a context is connected to, for a front of another kind."""
    return context._port


class _Done(Generic[T]):
    """The awaitable of something that was done at the call: awaiting it gives the result, at once."""

    __slots__ = ("_result",)

    def __init__(self, result: T) -> None:
        self._result = result

    def __await__(self) -> Generator[Any, None, T]:
        yield from ()  # a generator is what an await wants
        return self._result


_DONE: Final[_Done[None]] = _Done(None)


class WorkflowContext(_Context[OutT, W_OutT]):
    """What a handler works through; its parameters declare what it sends and what it yields.

    Its methods are awaited, as in `await ctx.send_message(...)`. What they do is done at the call, so
    nothing is lost in silence where an `await` was forgotten.

    `WorkflowContext[int, str]` sends `int` to other executors and yields `str` to the caller.
    `WorkflowContext[int]` yields nothing, `WorkflowContext[Never, str]` sends nothing. What is
    sent and yielded is checked against this. A bare `WorkflowContext` declares nothing and is not
    checked.

    Sync handlers write the same annotation, or `SyncWorkflowContext` to please a type checker,
    and get a `SyncWorkflowContext`.
    """

    __slots__ = ()

    def send_message(self, message: OutT, target_id: str | None = None) -> Awaitable[None]:
        """Send a message, by value, along the edges of this executor.

        It is delivered in the next superstep.

        Args:
            message: Of a type this context declares.
            target_id: Send to this executor alone, which must be at the end of one of the edges.

        Raises:
            UndeliverableMessageError: No target accepts a message of this type.
        """
        self._port.send(message, target_id)
        return _DONE

    def yield_output(self, output: W_OutT) -> Awaitable[None]:
        """Give an output to the caller of the run, by value; announced once it is committed."""
        self._port.yield_output(output)
        return _DONE

    def stream_output(self, piece: Any) -> Awaitable[None]:
        """Deliver a piece of the output that this handler yields next, to a reader of the stream, at once.

        The event is of the kind of that output and has its `output_id`, but is not durable and not
        saved. Call `yield_output` with the whole when it is complete. Awaiting this waits for a
        reader that is far behind.
        """
        return self._port.stream_output(piece) or _DONE

    def request_info(
        self, request_data: object, response_type: Any, *, request_id: str | None = None
    ) -> Awaitable[str]:
        """Ask the outside world; the answer comes to a `@response_handler` of this executor.

        The run pauses once nothing else is left to do, and the request is saved with it.

        Args:
            request_data: What the answerer gets to see; it is given back with the answer.
            response_type: What the answer must be.
            request_id: An id of your own. The engine's is the same when this superstep is
                executed again, so that a question is asked once.

        Returns:
            The id to answer under.
        """
        return _Done(self._port.request(request_data, response_type, request_id))

    def add_event(self, event: WorkflowEvent[Any]) -> Awaitable[None]:
        """Deliver an event of your own to the reader at once; it is not saved.

        Awaiting it waits for a reader that is far behind.
        """
        return self._port.emit(event) or _DONE


class SyncWorkflowContext(_Context[OutT, W_OutT]):
    """What a sync handler works through, in its thread: a `WorkflowContext` with plain methods."""

    __slots__ = ()

    def send_message(self, message: OutT, target_id: str | None = None) -> None:
        """Send a message; see `WorkflowContext.send_message`."""
        self._port.send(message, target_id)

    def yield_output(self, output: W_OutT) -> None:
        """Give an output to the caller; see `WorkflowContext.yield_output`."""
        self._port.yield_output(output)

    def stream_output(self, piece: Any) -> None:
        """Deliver a piece of the output that is yielded next; see `WorkflowContext.stream_output`."""
        delivery = self._port.stream_output(piece)
        if inspect.isawaitable(delivery):
            raise HandlerError(
                f"A piece of an output of executor '{self.executor_id}' cannot be awaited from a sync handler; "
                "the port of a sync context must deliver it itself."
            )

    def request_info(self, request_data: object, response_type: Any, *, request_id: str | None = None) -> str:
        """Ask the outside world; see `WorkflowContext.request_info`."""
        return self._port.request(request_data, response_type, request_id)

    def add_event(self, event: WorkflowEvent[Any]) -> None:
        """Deliver an event of your own; see `WorkflowContext.add_event`."""
        delivery = self._port.emit(event)
        if inspect.isawaitable(delivery):
            raise HandlerError(
                f"An event of executor '{self.executor_id}' cannot be awaited from a sync handler; "
                "the port of a sync context must deliver it itself."
            )
