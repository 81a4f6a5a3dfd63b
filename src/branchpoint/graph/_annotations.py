"""Reading the annotations of a handler, whether they are types or the text of types.

A name is looked up where the handler was written: in its module, and in the functions around it
while these are running. What is not defined yet may be looked up again later.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, SimpleNamespace
from typing import Any, get_args, get_origin

from branchpoint.errors import DefinitionError
from branchpoint.graph._context import SyncWorkflowContext, WorkflowContext
from branchpoint.graph._typing import alternatives, unusable

__all__ = ["checked", "context_types", "declared_types", "enclosing_names", "parameters", "resolved"]

_CONTEXTS = (WorkflowContext, SyncWorkflowContext)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def parameters(
    func: Callable[..., Any], subject: str, counts: Sequence[int], form: str
) -> tuple[inspect.Parameter, ...]:
    """Return the parameters of a handler.

    Raises:
        DefinitionError: They are not of the form that a handler has.
    """
    found = tuple(inspect.signature(func).parameters.values())
    if len(found) not in counts or any(parameter.kind not in _POSITIONAL for parameter in found):
        given = ", ".join(str(parameter).partition(":")[0].partition("=")[0].strip() for parameter in found)
        raise DefinitionError(f"{subject} must have the parameters {form}, it has ({given}).")
    return found


def enclosing_names(func: Callable[..., Any], frame: FrameType | None) -> dict[str, Any]:
    """Return the local names of the functions and classes around `func` that are running now."""
    source = _source(func)
    qualname, module = getattr(source, "__qualname__", ""), getattr(source, "__globals__", None)
    names: dict[str, Any] = {}
    while frame is not None:
        if frame.f_globals is module and qualname.startswith(f"{frame.f_code.co_qualname}."):
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


def resolved(annotation: Any, func: Callable[..., Any], names: Mapping[str, Any], subject: str) -> Any:
    """Return the type that an annotation says, with every text in it evaluated.

    Raises:
        DefinitionError: It is not the annotation of a type.
        NameError: A name is not defined, perhaps not yet.
        AttributeError: A module has no such name, perhaps not yet.
    """
    # `get_type_hints` takes anything with annotations; one at a time, so that one unresolved
    # annotation, such as that of the result, does not spoil the others.
    holder = SimpleNamespace(__annotations__={"it": annotation})
    module = dict(getattr(_source(func), "__globals__", {}))
    try:
        return typing.get_type_hints(holder, module, dict(names), include_extras=True)["it"]
    except (TypeError, SyntaxError) as error:
        raise DefinitionError(f"{subject} is annotated {annotation!r}, which is no type: {error}.") from error


def _source(func: Any) -> Any:
    """Return the plain function behind wrappers, partials, bound methods and callable objects."""
    func = inspect.unwrap(func)
    while isinstance(func, functools.partial):
        func = inspect.unwrap(func.func)
    if inspect.ismethod(func):
        return inspect.unwrap(func.__func__)
    return func if inspect.isfunction(func) else getattr(type(func), "__call__", func)  # noqa: B004


def checked(tp: Any, subject: str, what: str) -> Any:
    """Return the type if values can be checked against it.

    Raises:
        DefinitionError: They cannot; the message says why.
    """
    reason = unusable(tp)
    if reason is not None:
        raise DefinitionError(f"{subject} cannot declare {what} this way: {reason}.")
    return tp


def declared_types(tp: Any, subject: str, what: str) -> tuple[Any, ...]:
    """Return what an output declaration allows: the members of a union; nothing for `Never`.

    Raises:
        DefinitionError: Values cannot be checked against one of them.
    """
    return tuple(checked(member, subject, what) for member in alternatives(tp))


def context_types(
    annotation: Any, subject: str, name: str
) -> tuple[tuple[Any, ...] | None, tuple[Any, ...] | None]:
    """Return what a context annotation lets a handler send and yield; None for what is not checked.

    Raises:
        DefinitionError: It is not a context annotation.
    """
    if annotation in _CONTEXTS:
        return None, None
    if get_origin(annotation) not in _CONTEXTS:
        missing = annotation is inspect.Parameter.empty
        raise DefinitionError(
            f"{subject} has {'no annotation' if missing else repr(annotation)} on its context parameter "
            f"'{name}'; annotate it WorkflowContext, WorkflowContext[OutT] or "
            "WorkflowContext[OutT, WorkflowOutT]."
        )
    sent, yielded = get_args(annotation)
    return (
        declared_types(sent, subject, "the messages it sends"),
        declared_types(yielded, subject, "the outputs it yields"),
    )
