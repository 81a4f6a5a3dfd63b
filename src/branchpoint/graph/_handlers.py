"""The decorators that declare handlers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Literal, TypeVar, overload

from branchpoint.graph._declaration import DECLARATION, Declaration, TypeArgument
from branchpoint.graph._specs import HandlerSpec, ResponseSpec

__all__ = ["HandlerSpec", "ResponseSpec", "handler", "response_handler"]

F = TypeVar("F", bound=Callable[..., Any])


@overload
def handler(func: F) -> F: ...


@overload
def handler(
    *, input: TypeArgument = None, output: TypeArgument = None, workflow_output: TypeArgument = None
) -> Callable[[F], F]: ...


def handler(
    func: Any = None,
    *,
    input: TypeArgument = None,
    output: TypeArgument = None,
    workflow_output: TypeArgument = None,
) -> Any:
    """Declare a method of an `Executor` as the handler of one type of message.

    The types come from the annotations, or all of them from the arguments. A method that is not
    `async` runs in a thread and gets a `SyncWorkflowContext`.

    Args:
        func: The method, when the decorator is used without parentheses.
        input: The type of message it takes; a type, a union, or the text of one.
        output: What it may send. Not given, it is not checked.
        workflow_output: What it may yield to the caller. Not given, it is not checked.

    Raises:
        DefinitionError: The method does not have the form of a handler, or a type is missing or
            cannot be used at run time. Types that cannot be resolved yet are reported when the
            first executor of the class is made.

    Example:
        >>> class Shout(Executor):
        ...     @handler
        ...     async def on_word(self, word: str, ctx: WorkflowContext[str]) -> None:
        ...         await ctx.send_message(word.upper())
        ...
        ...     @handler(input=int, output=str)
        ...     async def on_number(self, number, ctx):
        ...         await ctx.send_message(f"{number}!")
    """
    frame = sys._getframe(1)
    explicit = {"input": input, "output": output, "workflow_output": workflow_output}
    return _decorated(func, "handler", explicit, frame)


@overload
def response_handler(func: F) -> F: ...


@overload
def response_handler(
    *,
    request: TypeArgument = None,
    response: TypeArgument = None,
    output: TypeArgument = None,
    workflow_output: TypeArgument = None,
) -> Callable[[F], F]: ...


def response_handler(
    func: Any = None,
    *,
    request: TypeArgument = None,
    response: TypeArgument = None,
    output: TypeArgument = None,
    workflow_output: TypeArgument = None,
) -> Any:
    """Declare a method of an `Executor` as the handler of the answers to its requests.

    Args:
        func: The method, when the decorator is used without parentheses.
        request: The type of the request's data.
        response: The type an answer must have; answers are checked against it.
        output: What it may send. Not given, it is not checked.
        workflow_output: What it may yield to the caller. Not given, it is not checked.

    Raises:
        DefinitionError: As for `handler`.

    Example:
        >>> class Approval(Executor):
        ...     @handler
        ...     async def on_order(self, order: str, ctx: WorkflowContext) -> None:
        ...         await ctx.request_info(order, bool)
        ...
        ...     @response_handler
        ...     async def on_answer(self, order: str, yes: bool, ctx: WorkflowContext[str]) -> None:
        ...         await ctx.send_message(order if yes else "refused")
    """
    frame = sys._getframe(1)
    explicit = {
        "request": request,
        "response": response,
        "output": output,
        "workflow_output": workflow_output,
    }
    return _decorated(func, "response_handler", explicit, frame)


def _decorated(
    func: Any,
    kind: Literal["handler", "response_handler"],
    explicit: Mapping[str, TypeArgument],
    frame: FrameType,
) -> Any:
    def decorate(method: Any) -> Any:
        setattr(method, DECLARATION, Declaration(method, kind, explicit, frame))
        return method

    return decorate if func is None else decorate(func)
