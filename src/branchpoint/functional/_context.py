"""What a function and its steps work through."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

from branchpoint.codec import copy_value, digest
from branchpoint.errors import ExecutorStateError
from branchpoint.events import WorkflowEvent
from branchpoint.functional._execution import Execution, here

__all__ = ["RunContext", "get_run_context", "is_context"]

_ABSENT: Final = object()
_NAMED: Final = re.compile(r"\bRunContext\b")


async def _nothing() -> None:
    return None


class RunContext:
    """What a function and its steps work through: questions, events, state, keys.

    A function takes it as its second parameter, a step by a parameter that is annotated with it, and any
    code inside gets it from `get_run_context()`.
    """

    def __init__(self, execution: Execution) -> None:
        self._execution = execution

    @property
    def workflow_id(self) -> str:
        """The name by which the workflow's state knows the function."""
        return self._execution.port.executor_id

    @property
    def idempotency_key(self) -> str:
        """A key for calls to the outside world that must not happen twice.

        Inside a step it is the step's own. It is the same when that call of the step is executed again
        after an interruption, and differs for every other call and on every other branch.
        """
        key = self._execution.port.idempotency_key
        now = here.get()
        if now is None or now.scope.step is None:
            return key
        return digest(f"{key}/{now.scope.step.key}".encode())

    @property
    def run_metadata(self) -> Mapping[str, Any]:
        """The `metadata` given with the input that is worked on, also when another process resumes."""
        return self._execution.port.run_metadata

    @property
    def run_options(self) -> Mapping[str, Any]:
        """What the caller gave for this one call: `tools` and the like; never saved."""
        return self._execution.port.run_options

    def is_streaming(self) -> bool:
        """Say whether the caller reads this run as a stream."""
        return self._execution.port.is_streaming

    def request_info(
        self, request_data: object, response_type: Any, *, request_id: str | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Ask the outside world, and wait for the answer.

        Once nothing but answers can take the function further, it is unwound, and the run pauses with all
        questions saved. An answer runs the function again from its top, where everything that was done
        or answered before is there at once. What is under way outside of any step is not waited for.

        Unwinding is a cancellation: code that catches `CancelledError` must let it pass.

        Args:
            request_data: What the answerer gets to see.
            response_type: What the answer must be.
            request_id: An id of your own. The engine's is the same when the question is asked again.

        Returns:
            The answer, once it is awaited.
        """
        return self._execution.ask(request_data, response_type, request_id)

    def add_event(self, event: WorkflowEvent[Any]) -> Awaitable[None]:
        """Deliver an event of your own to the reader at once; it is not saved."""
        return self._execution.port.emit(event) or _nothing()

    def stream_output(self, piece: Any) -> Awaitable[None]:
        """Deliver a piece of what the function is going to return, at once; it is not saved."""
        return self._execution.port.stream_output(piece) or _nothing()

    def get_state(self, key: str, default: Any = None) -> Any:
        """Return a copy of the value that a key of the workflow's shared state has.

        That is what earlier turns left there, with what this execution of the function has set since. A
        copy that the function changes has to be set again; one that a step changes is the step's own.
        """
        port = self._execution.port
        if self._step() is None:
            return port.get_state(key, default, True)
        value = port.get_state(key, _ABSENT, False)
        return default if value is _ABSENT else copy_value(value)

    def set_state(self, key: str, value: Any) -> None:
        """Set a key to the value as it is now; it takes effect when the function returns.

        Raises:
            ExecutorStateError: A step does it. A step that is done is not run again, so what it set would
                be missing then; have it return the value, and let the function set it.
        """
        self._check("set_state", key)
        self._execution.port.set_state(key, value)

    def delete_state(self, key: str) -> None:
        """Remove a key when the function returns; not in a step, as with `set_state`."""
        self._check("delete_state", key)
        self._execution.port.delete_state(key)

    def update_state(self, key: str, fn: Callable[[Any], Any]) -> Any:
        """Set a key to what `fn` makes of its present value, and return that; not in a step."""
        self._check("update_state", key)
        return self._execution.port.update_state(key, fn)

    def _check(self, what: str, key: str) -> None:
        step = self._step()
        if step is not None:
            raise ExecutorStateError(
                f"ctx.{what}({key!r}) was called in step {step!r}. A step that is done is not run "
                "again, so what it set would be missing then: return the value, and set it in the function."
            )
        self._execution.check(what)

    @staticmethod
    def _step() -> str | None:
        now = here.get()
        return None if now is None or now.scope.step is None else now.scope.step.name


def get_run_context() -> RunContext | None:
    """Return what the function that is running works through; None outside of any."""
    now = here.get()
    return None if now is None else now.execution.context


def is_context(annotation: Any, func: Callable[..., Any]) -> bool:
    """Say whether a parameter of a function that is annotated so takes the context."""
    if isinstance(annotation, str):
        annotation = getattr(inspect.unwrap(func), "__globals__", {}).get(annotation, annotation)
    if isinstance(annotation, str):  # it need not be defined at run time
        return bool(_NAMED.search(annotation))
    return annotation is RunContext or RunContext in typing.get_args(annotation)
