"""Functions as executors."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, overload

from branchpoint.errors import DefinitionError
from branchpoint.graph._annotations import (
    checked,
    context_types,
    declared_types,
    enclosing_names,
    parameters,
    resolved,
)
from branchpoint.graph._declaration import (
    TypeArgument,
    is_async,
    refuse_generator,
    refuse_sync_context,
    unresolved,
)
from branchpoint.graph._executor import Executor
from branchpoint.graph._specs import HandlerSpec
from branchpoint.graph._state import state as state_field

__all__ = ["FunctionExecutor", "executor"]

_FORM = "(message: T) or (message: T, ctx: WorkflowContext[OutT, WorkflowOutT])"


class FunctionExecutor(Executor):
    """An executor whose one handler is a function.

    What the function returns, unless None, is sent as a message. A function that is not `async` runs
    in a thread. What it must remember is in `ctx.executor_state`.

    Attributes:
        function: The function as it was given.
        state: What `ctx.executor_state` shows.
    """

    state: dict[str, Any] = state_field(factory=dict)

    def __init__(
        self,
        func: Callable[..., Any],
        id: str | None = None,
        *,
        input: TypeArgument = None,
        output: TypeArgument = None,
        workflow_output: TypeArgument = None,
    ) -> None:
        """Wrap a function.

        Args:
            func: Takes a message, and a context if it wants one.
            id: The executor's id; by default the function's name.
            input: The type of message it takes, instead of the annotation.
            output: What it may send or return, instead of the annotations.
            workflow_output: What it may yield, instead of the annotation.

        Raises:
            DefinitionError: The function has another form, or a type is missing, cannot be resolved,
                or cannot be used at run time.
        """
        if isinstance(func, staticmethod | classmethod):
            raise DefinitionError(
                f"@executor is for functions, not for a @{type(func).__name__}; in a class, subclass "
                "Executor and decorate its methods with @handler."
            )
        if isinstance(func, type) or not _is_callable(func):
            raise DefinitionError(f"An executor is made of a function, got {func!r}.")
        given = {"input": input, "output": output, "workflow_output": workflow_output}
        spec = _spec(func, given, sys._getframe(1))
        name = id or getattr(func, "__name__", "")
        if not name or name == "<lambda>":
            raise DefinitionError(f"{func!r} has no name to serve as id; give one: executor(func, id='...').")
        super().__init__(name, type="FunctionExecutor", defer_discovery=True)
        self.function = func
        self._add_handlers([spec])


def _is_callable(value: object) -> bool:
    return callable(value)


def _spec(func: Callable[..., Any], given: dict[str, TypeArgument], frame: FrameType) -> HandlerSpec:
    name = getattr(func, "__name__", type(func).__name__)
    subject = f"Function '{getattr(func, '__qualname__', name).rpartition('<locals>.')[2]}'"
    found = parameters(func, subject, (1, 2), _FORM)
    refuse_generator(func, subject)
    names = enclosing_names(func, frame)
    try:
        explicit = {key: resolved(tp, func, names, subject) for key, tp in given.items() if tp is not None}
        sent, yielded = _outputs(func, found, explicit, names, subject)
        if "input" in explicit:
            message_type = checked(explicit["input"], subject, "'input'")
        else:
            message_type = _message_type(func, found[0], names, subject)
    except (NameError, AttributeError) as error:
        raise unresolved(subject, error) from error
    return HandlerSpec(
        name,
        message_type,
        sent,
        yielded,
        is_async(func),
        func,
        wants_context=len(found) == 2,
        is_method=False,
        sends_result=True,
    )


def _message_type(func: Any, parameter: inspect.Parameter, names: dict[str, Any], subject: str) -> Any:
    if parameter.annotation is inspect.Parameter.empty:
        raise DefinitionError(
            f"{subject} needs a type on its parameter '{parameter.name}': annotate it, or use "
            "@executor(input=...)."
        )
    return checked(resolved(parameter.annotation, func, names, subject), subject, f"'{parameter.name}'")


def _outputs(
    func: Any,
    found: tuple[inspect.Parameter, ...],
    explicit: dict[str, Any],
    names: dict[str, Any],
    subject: str,
) -> tuple[tuple[Any, ...] | None, tuple[Any, ...] | None]:
    sent: tuple[Any, ...] | None = ()
    yielded: tuple[Any, ...] | None = ()
    if len(found) == 2:
        sent, yielded = None, None
        annotation = found[1].annotation
        if annotation is not inspect.Parameter.empty or not explicit:
            if annotation is not inspect.Parameter.empty:
                annotation = resolved(annotation, func, names, subject)
            sent, yielded = context_types(annotation, subject, found[1].name)
            refuse_sync_context(annotation, func, subject)
    if "output" in explicit:
        sent = declared_types(explicit["output"], subject, "'output'")
    elif sent is not None:
        sent = _with_result(func, sent, has_context=len(found) == 2, names=names, subject=subject)
    if "workflow_output" in explicit:
        yielded = declared_types(explicit["workflow_output"], subject, "'workflow_output'")
    return sent, yielded


def _with_result(
    func: Any, sent: tuple[Any, ...], *, has_context: bool, names: dict[str, Any], subject: str
) -> tuple[Any, ...] | None:
    """Add what a function says it returns to what its context says it sends."""
    annotation = inspect.signature(func).return_annotation
    if annotation is inspect.Signature.empty:
        # Without any word about what it sends, nothing is checked.
        return sent if has_context else None
    result = declared_types(resolved(annotation, func, names, subject), subject, "what it returns")
    return (*sent, *(tp for tp in result if tp is not type(None) and tp not in sent))


@overload
def executor(func: Callable[..., Any]) -> FunctionExecutor: ...


@overload
def executor(
    *,
    id: str | None = None,
    input: TypeArgument = None,
    output: TypeArgument = None,
    workflow_output: TypeArgument = None,
) -> Callable[[Callable[..., Any]], FunctionExecutor]: ...


def executor(
    func: Callable[..., Any] | None = None,
    *,
    id: str | None = None,
    input: TypeArgument = None,
    output: TypeArgument = None,
    workflow_output: TypeArgument = None,
) -> FunctionExecutor | Callable[[Callable[..., Any]], FunctionExecutor]:
    """Make an executor of a function, `async` or not, with or without a context.

    What it returns, unless None, is sent as a message.

    Args:
        func: The function, when the decorator is used without parentheses.
        id: The executor's id; by default the function's name.
        input: The type of message it takes, instead of the annotation.
        output: What it may send or return, instead of the annotations.
        workflow_output: What it may yield, instead of the annotation.

    Raises:
        DefinitionError: See `FunctionExecutor`.

    Example:
        >>> @executor
        ... async def shout(word: str, ctx: WorkflowContext[str]) -> None:
        ...     await ctx.send_message(word.upper())
        >>> @executor(id="length")
        ... def measure(word: str) -> int:
        ...     return len(word)
        >>> shout.id, measure.output_types
        ('shout', [<class 'int'>])
    """

    def wrap(function: Callable[..., Any]) -> FunctionExecutor:
        return FunctionExecutor(function, id, input=input, output=output, workflow_output=workflow_output)

    return wrap if func is None else wrap(func)
