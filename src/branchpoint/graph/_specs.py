"""What is known of a handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

__all__ = ["HandlerSpec", "ResponseSpec"]


class HandlerSpec(msgspec.Struct, frozen=True):
    """One handler of an executor.

    Attributes:
        name: The method's or function's name.
        message_type: The type of message it takes.
        output_types: What it may send; empty for nothing, None when it does not say and is not checked.
        workflow_output_types: What it may yield, in the same way.
        is_async: Whether calling it gives something to await. Otherwise it belongs in a thread, with
            a `SyncWorkflowContext`.
        func: The plain function; `call` knows what to pass it.
        wants_context: Whether it takes a context.
        is_method: Whether it takes the executor first.
        sends_result: Whether what it returns, unless None, is sent as a message.
    """

    name: str
    message_type: Any
    output_types: tuple[Any, ...] | None
    workflow_output_types: tuple[Any, ...] | None
    is_async: bool
    func: Callable[..., Any]
    wants_context: bool = True
    is_method: bool = True
    sends_result: bool = False

    def call(self, executor: Any, message: Any, context: Any) -> Any:
        """Call it on a run-scoped executor; the result is an awaitable when `is_async`."""
        if self.is_method:
            return (
                self.func(executor, message, context) if self.wants_context else self.func(executor, message)
            )
        return self.func(message, context) if self.wants_context else self.func(message)


class ResponseSpec(msgspec.Struct, frozen=True):
    """One response handler of an executor; the attributes are those of `HandlerSpec`.

    Attributes:
        request_type: The type of the request's data.
        response_type: The type an answer must have.
    """

    name: str
    request_type: Any
    response_type: Any
    output_types: tuple[Any, ...] | None
    workflow_output_types: tuple[Any, ...] | None
    is_async: bool
    func: Callable[..., Any]

    def call(self, executor: Any, request: Any, response: Any, context: Any) -> Any:
        """Call it on a run-scoped executor; the result is an awaitable when `is_async`."""
        return self.func(executor, request, response, context)
