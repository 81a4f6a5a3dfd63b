"""Executors whose code is part of the signature, because a stored state makes sense for that code alone."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from branchpoint.errors import DefinitionError
from branchpoint.graph._annotations import checked, declared_types, enclosing_names, parameters, resolved
from branchpoint.graph._declaration import is_async, refuse_generator, unresolved
from branchpoint.graph._executor import Executor
from branchpoint.graph._shape import code_shape
from branchpoint.graph._specs import HandlerSpec, ResponseSpec

__all__ = ["CodedExecutor"]


class CodedExecutor(Executor):
    """An executor that runs one async function, whose code is part of the signature.

    A subclass says what is done with a message and with an answer.

    Attributes:
        form: What the function's parameters must be, for messages.
        function: The function.
        shape: The shape of its code, a line for each statement.
        wants_context: Whether it takes a context.
    """

    form: ClassVar[str] = "(message: T) or (message: T, ctx)"

    def __init__(self, func: Callable[..., Any], id: str, **more: Any) -> None:
        super().__init__(id, defer_discovery=True, **more)
        subject = f"Function '{getattr(func, '__qualname__', id).rpartition('<locals>.')[2]}'"
        if not is_async(func):
            raise DefinitionError(f"{subject} must be a function declared with async def.")
        refuse_generator(func, subject)
        found = parameters(func, subject, (1, 2), self.form)
        names = enclosing_names(func, sys._getframe(1))
        try:
            taken = found[0].annotation
            message_type = Any
            if taken is not inspect.Parameter.empty:
                message_type = checked(resolved(taken, func, names, subject), subject, f"'{found[0].name}'")
            returned = inspect.signature(func).return_annotation
            yielded: tuple[Any, ...] | None = None
            if returned is not inspect.Signature.empty:
                told = declared_types(resolved(returned, func, names, subject), subject, "what it returns")
                yielded = tuple(tp for tp in told if tp is not type(None))
        except (NameError, AttributeError) as error:
            raise unresolved(subject, error) from error
        self.function = func
        self.shape = code_shape(func)
        self.wants_context = len(found) == 2
        spec = HandlerSpec(getattr(func, "__name__", id), message_type, (), yielded, True, type(self).start)
        answers = ResponseSpec("an answer", Any, Any, (), yielded, True, type(self).on_answer)
        self._add_handlers([spec], [answers])

    async def start(self, message: Any, ctx: Any) -> None:
        """Begin with a message."""
        raise NotImplementedError

    async def on_answer(self, request: Any, answer: Any, ctx: Any) -> None:
        """Go on with an answer."""
        raise NotImplementedError
