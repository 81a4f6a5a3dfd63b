"""What a decorator said about a method, turned into the description of a handler."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Final, Literal, TypeAlias

import msgspec

from branchpoint.errors import DefinitionError
from branchpoint.graph._annotations import (
    checked,
    context_types,
    declared_types,
    enclosing_names,
    parameters,
    resolved,
)
from branchpoint.graph._context import SyncWorkflowContext
from branchpoint.graph._specs import HandlerSpec, ResponseSpec

__all__ = [
    "DECLARATION",
    "Declaration",
    "TypeArgument",
    "is_async",
    "refuse_generator",
    "refuse_sync_context",
    "unresolved",
]

TypeArgument: TypeAlias = type | types.UnionType | str | Any | None
"""A type, or its text, or None when the decorator does not say."""

DECLARATION: Final = "_branchpoint_handler"
"""The attribute under which a decorated function carries its declaration."""

_FORMS: Final = {
    "handler": (3, "(self, message: T, ctx: WorkflowContext[OutT, WorkflowOutT])"),
    "response_handler": (
        4,
        "(self, original_request: T, response: R, ctx: WorkflowContext[OutT, WorkflowOutT])",
    ),
}


class _Types(msgspec.Struct, frozen=True):
    accepted: tuple[Any, ...]
    output: tuple[Any, ...] | None
    workflow_output: tuple[Any, ...] | None


class Declaration:
    """What a decorator said about a method, before and after its types are known.

    Types are read when the method is decorated. Where a name is not defined yet, they are read
    again when the first executor of the class is made.
    """

    __slots__ = ("_explicit", "_names", "_parameters", "_types", "func", "kind", "subject")

    def __init__(
        self,
        func: Callable[..., Any],
        kind: Literal["handler", "response_handler"],
        explicit: Mapping[str, TypeArgument],
        frame: FrameType | None,
    ) -> None:
        if not inspect.isfunction(func):
            raise DefinitionError(
                f"@{kind} decorates a method of an Executor class, got {type(func).__name__}; "
                f"put @{kind} next to the function, below other decorators."
            )
        self.func = func
        self.kind = kind
        name = func.__qualname__.rpartition("<locals>.")[2]
        self.subject = f"{'Handler' if kind == 'handler' else 'Response handler'} '{name}'"
        count, form = _FORMS[kind]
        self._parameters = parameters(func, self.subject, (count,), form)
        refuse_generator(func, self.subject)
        self._explicit = dict(explicit) if any(tp is not None for tp in explicit.values()) else None
        self._check_presence()
        self._names = enclosing_names(func, frame)
        self._types: _Types | None = None
        try:
            self._types = self._read(self._names)
        except (NameError, AttributeError):
            return
        self._names = {}

    def _check_presence(self) -> None:
        accepted = self._parameters[1:-1]
        if self._explicit is not None:
            wanted = ("input",) if self.kind == "handler" else ("request", "response")
            for name in wanted:
                if self._explicit.get(name) is None:
                    raise DefinitionError(
                        f"{self.subject} gives types to @{self.kind} but not '{name}'. Either all types are "
                        f"given there, '{name}' at least, or all of them are annotations."
                    )
            return
        for parameter in accepted:
            if parameter.annotation is inspect.Parameter.empty:
                raise DefinitionError(
                    f"{self.subject} needs a type on its parameter '{parameter.name}': annotate it, or give "
                    f"the types to @{self.kind}."
                )
        context = self._parameters[-1]
        if context.annotation is inspect.Parameter.empty:
            context_types(context.annotation, self.subject, context.name)

    def _read(self, names: Mapping[str, Any]) -> _Types:
        if self._explicit is not None:
            return self._read_explicit(self._explicit, names)
        *accepted, annotation = (
            resolved(parameter.annotation, self.func, names, self.subject)
            for parameter in self._parameters[1:]
        )
        for parameter, tp in zip(self._parameters[1:], accepted, strict=False):
            checked(tp, self.subject, f"'{parameter.name}'")
        context = self._parameters[-1]
        sent, yielded = context_types(annotation, self.subject, context.name)
        refuse_sync_context(annotation, self.func, self.subject)
        return _Types(tuple(accepted), sent, yielded)

    def _read_explicit(self, explicit: Mapping[str, TypeArgument], names: Mapping[str, Any]) -> _Types:
        found = {
            name: resolved(tp, self.func, names, self.subject)
            for name, tp in explicit.items()
            if tp is not None
        }
        accepted = [name for name in ("input", "request", "response") if name in found]
        sent, yielded = (
            declared_types(found[name], self.subject, f"'{name}'") if name in found else None
            for name in ("output", "workflow_output")
        )
        return _Types(
            tuple(checked(found[name], self.subject, f"'{name}'") for name in accepted),
            sent,
            yielded,
        )

    def _settled(self, frame: FrameType | None) -> _Types:
        if self._types is None:
            names = {**enclosing_names(self.func, frame), **self._names}
            try:
                self._types = self._read(names)
            except (NameError, AttributeError) as error:
                raise unresolved(self.subject, error) from error
            self._names = {}
        return self._types

    def handler_spec(self, name: str, func: Callable[..., Any], frame: FrameType | None) -> HandlerSpec:
        """Describe the method `func`, which is the decorated one or overrides it.

        Raises:
            DefinitionError: A type cannot be resolved.
        """
        types = self._settled(frame)
        return HandlerSpec(name, types.accepted[0], types.output, types.workflow_output, is_async(func), func)

    def response_spec(self, name: str, func: Callable[..., Any], frame: FrameType | None) -> ResponseSpec:
        """Describe the method `func`, which is the decorated one or overrides it.

        Raises:
            DefinitionError: A type cannot be resolved.
        """
        types = self._settled(frame)
        request, response = types.accepted
        return ResponseSpec(
            name, request, response, types.output, types.workflow_output, is_async(func), func
        )


def unresolved(subject: str, error: Exception) -> DefinitionError:
    """Return the error for an annotation that names something unknown."""
    return DefinitionError(
        f"{subject} has a type that cannot be resolved: {error}. Types are needed at run time: define or "
        "import it in the module of the handler (an import under TYPE_CHECKING is not there), or give the "
        "types to the decorator."
    )


def is_async(func: Any) -> bool:
    """Say whether calling `func` gives a coroutine."""
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(getattr(func, "__call__", None))  # noqa: B004


def refuse_generator(func: Any, subject: str) -> None:
    """Refuse a generator function.

    Raises:
        DefinitionError: `func` yields.
    """
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        raise DefinitionError(
            f"{subject} must not be a generator; send with ctx.send_message(...) and give outputs with "
            "ctx.yield_output(...)."
        )


def refuse_sync_context(annotation: Any, func: Any, subject: str) -> None:
    """Refuse the context of sync handlers on an async one.

    Raises:
        DefinitionError: An async `func` is annotated with it.
    """
    if is_async(func) and SyncWorkflowContext in (annotation, getattr(annotation, "__origin__", None)):
        raise DefinitionError(f"{subject} is async and gets a WorkflowContext; annotate it so.")
