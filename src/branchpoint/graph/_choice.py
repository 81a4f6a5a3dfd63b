"""Which handler gets a message: a pure rule over the handlers of one executor.

A handler for the very type of the message comes first, then one for its nearest base class, then
unions, `Any` and everything else in declaration order. Of handlers for one class, one that says
more about it (`list[int]`, `Literal["go"]`) comes before the bare class. A `bool` goes to an `int`
handler only when nothing else takes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Literal, Union, get_origin

import typing_extensions

from branchpoint.graph._typing import bare, compatible, is_type_form, matches

if TYPE_CHECKING:
    from branchpoint.graph._executor import Executor
    from branchpoint.graph._specs import HandlerSpec, ResponseSpec

__all__ = ["HandlerTable", "exact_classes", "find_handler", "find_response_handler"]

_LAST: Final = (1 << 30, 0)


class HandlerTable:
    """The handlers of an executor, as its class and its instance declare them."""

    __slots__ = ("exact", "handlers", "responses")

    def __init__(self, handlers: Sequence[HandlerSpec], responses: Sequence[ResponseSpec]) -> None:
        self.handlers = tuple(handlers)
        self.responses = tuple(responses)
        # An exact hit needs no look at the other handlers, unless one says more about a class.
        refined = any(_is_refined(spec.message_type) for spec in self.handlers)
        self.exact: dict[Any, HandlerSpec] = {
            spec.message_type: spec for spec in self.handlers if not refined and _is_plain(spec.message_type)
        }

    def find(self, message: Any) -> HandlerSpec | None:
        """Return the handler for a message, or None when there is none."""
        exact = self.exact.get(type(message))
        if exact is not None:
            return exact
        for strict in (True, False):
            ranked = [
                (_rank(message, spec.message_type), place)
                for place, spec in enumerate(self.handlers)
                if matches(message, spec.message_type, strict=strict)
            ]
            if ranked:
                return self.handlers[min(ranked)[1]]
        return None

    def find_response(self, request: Any, response: Any) -> ResponseSpec | None:
        """Return the handler for an answer to a request, given as values or as types, or None."""
        for strict in (True, False):
            ranked = [
                (_rank(request, spec.request_type), _rank(response, spec.response_type), place)
                for place, spec in enumerate(self.responses)
                if _fits(request, spec.request_type, strict) and _fits(response, spec.response_type, strict)
            ]
            if ranked:
                return self.responses[min(ranked)[2]]
        return None


def find_handler(executor: Executor, message: Any) -> HandlerSpec | None:
    """Return the handler that takes a message, or None when the executor does not accept it.

    `None` is a message like any other.
    """
    return executor._table.find(message)


def exact_classes(executor: Executor) -> frozenset[type]:
    """Return the classes of which every value goes to the handler for that class, whatever it holds."""
    return frozenset(executor._table.exact)


def find_response_handler(executor: Executor, request: Any, response: Any) -> ResponseSpec | None:
    """Return the response handler for an answer, or None.

    Args:
        executor: The executor that asked.
        request: The request's data, or its type.
        response: The answer, or the type an answer was declared to have.
    """
    return executor._table.find_response(request, response)


def _is_plain(tp: Any) -> bool:
    return isinstance(tp, type) and get_origin(tp) is None and not typing_extensions.is_typeddict(tp)


def _is_refined(tp: Any) -> bool:
    return not _is_plain(tp) and tp is not Any and get_origin(tp) not in (Union, UnionType)


def _fits(subject: Any, tp: Any, strict: bool) -> bool:
    if not is_type_form(subject):
        return matches(subject, tp, strict=strict)
    return not (strict and bare(subject) is bool and bare(tp) is int) and compatible(subject, tp)


def _rank(subject: Any, tp: Any) -> tuple[int, int]:
    """Return how far a type is from a value, or from a type, that fits it; less is nearer."""
    plain = bare(tp)
    of_type = is_type_form(subject)
    if of_type:
        subject = bare(subject)
        if subject == plain:
            return (0, 0)
    origin = get_origin(plain)
    if origin is Literal:
        return (0, 0)
    typed_dict = typing_extensions.is_typeddict(plain)
    declared: Any = dict if typed_dict else origin or plain
    cls = (get_origin(subject) or subject) if of_type else type(subject)
    bases: tuple[Any, ...] = cls.__mro__ if isinstance(cls, type) else ()
    if declared not in bases:
        return _LAST
    refined = origin is not None or typed_dict
    return (bases.index(declared), 0 if refined else 1)
