"""Steps: functions whose results a functional workflow keeps."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from branchpoint.codec import copy_value
from branchpoint.engine import call_in_thread
from branchpoint.errors import DefinitionError, EncodingError
from branchpoint.functional._context import RunContext, is_context
from branchpoint.functional._execution import here

__all__ = ["Step", "step"]

P = ParamSpec("P")
R = TypeVar("R")


class Step(Generic[P, R]):
    """A function that a functional workflow runs once for each of its calls.

    Called in a workflow, it gives something to await: the result, which was kept before the caller gets
    it. When the workflow is run again after an interruption or an answer, a call that is done gives that
    result at once. Called anywhere else, it just runs the function.

    A call is known by the step's name, its arguments, and its place: which one it is of those that are
    alike in the code of its task. The place is taken when the step is called, not when it is awaited.

    Attributes:
        function: The function.
        name: The name of the step.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        name: str | None = None,
        replay_key: Callable[..., Any] | None = None,
    ) -> None:
        if isinstance(func, Step | type) or not callable(func):
            raise DefinitionError(f"@step is for functions, got {func!r}.")
        found = name or getattr(func, "__name__", "")
        if not isinstance(found, str) or not found or found == "<lambda>":
            raise DefinitionError(f"{func!r} has no name to be known by; give one: @step(name='...').")
        if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
            raise DefinitionError(f"Step {found!r} must not be a generator; return what it makes.")
        self.function = func
        self.name = found
        self._replay_key = replay_key
        self._signature = inspect.signature(func)
        if next(iter(self._signature.parameters), "") in ("self", "cls"):
            raise DefinitionError(
                f"Step {found!r} is a method; a step is a function. Make one that takes what it needs as arguments."
            )
        self._is_async = inspect.iscoroutinefunction(func)
        functools.update_wrapper(self, func)

    def __repr__(self) -> str:
        return f"<Step {self.name!r}>"

    @functools.cached_property
    def _context(self) -> str | None:
        """The parameter that takes the context."""
        for name, parameter in self._signature.parameters.items():
            if is_context(parameter.annotation, self.function):
                return name
        return None

    @functools.cached_property
    def _without_context(self) -> inspect.Signature:
        parameters = self._signature.parameters.values()
        return self._signature.replace(parameters=[one for one in parameters if one.name != self._context])

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Take the place of this call; awaiting what is returned gives the result.

        Raises:
            EncodingError: An argument cannot be encoded, so this call could not be told from others.
            TypeError: The function does not take these arguments.
        """
        now = here.get()
        if now is None:
            return self._plainly(args, kwargs)
        execution = now.execution
        execution.know(self.name, self.function)
        plain = tuple(one for one in args if not isinstance(one, RunContext))
        named = {
            name: value
            for name, value in kwargs.items()
            if name != self._context and not isinstance(value, RunContext)
        }
        if self._context is None and len(plain) + len(named) < len(args) + len(kwargs):
            raise TypeError(
                f"step {self.name!r} is given the context and has no parameter for it: annotate that with RunContext"
            )
        try:
            taken = self._without_context.bind(*plain, **named).arguments
        except TypeError as error:
            raise TypeError(f"step {self.name!r}: {error}") from None
        if self._replay_key is None:  # by value, as a step that is replayed changes nothing of its caller's
            taken = {
                name: copy_value(value, path=f"{name} of step {self.name!r}") for name, value in taken.items()
            }
        key = self._replay_key

        def identity() -> Any:
            return [[name, value] for name, value in taken.items()] if key is None else key(*plain, **named)

        try:
            call = execution.place("step", self.name, identity)
        except EncodingError as error:
            error.add_note(
                f"an argument of step {self.name!r}: calls of a step are told apart by their arguments. Register its "
                "type, or give @step(replay_key=...)."
            )
            raise
        every = {**taken, self._context or "": execution.context}
        ordered = {name: every[name] for name in self._signature.parameters if name in every}
        bound = inspect.BoundArguments(self._signature, ordered)
        return execution.perform(call, lambda: self._plainly(bound.args, bound.kwargs))

    def _plainly(self, args: Any, kwargs: Any) -> Coroutine[Any, Any, R]:
        if self._is_async:
            called: Coroutine[Any, Any, R] = self.function(*args, **kwargs)
            return called
        return call_in_thread(functools.partial(self.function, *args, **kwargs))


class _MakesStep(Protocol):
    """What `@step(...)` gives: the decorator that `@step` is itself, as type checkers see it."""

    @overload
    def __call__(self, func: Callable[Concatenate[RunContext, P], Awaitable[R]], /) -> Step[P, R]: ...

    @overload
    def __call__(self, func: Callable[Concatenate[RunContext, P], R], /) -> Step[P, R]: ...

    @overload
    def __call__(self, func: Callable[P, Awaitable[R]], /) -> Step[P, R]: ...

    @overload
    def __call__(self, func: Callable[P, R], /) -> Step[P, R]: ...


@overload
def step(func: Callable[Concatenate[RunContext, P], Awaitable[R]]) -> Step[P, R]: ...


@overload
def step(func: Callable[Concatenate[RunContext, P], R]) -> Step[P, R]: ...


@overload
def step(func: Callable[P, Awaitable[R]]) -> Step[P, R]: ...


@overload
def step(func: Callable[P, R]) -> Step[P, R]: ...


@overload
def step(*, name: str | None = None, replay_key: Callable[..., Any] | None = None) -> _MakesStep: ...


def step(
    func: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    replay_key: Callable[..., Any] | None = None,
) -> Any:
    """Make a step of a function, `async` or not; one that is not runs in a thread, as sync handlers do.

    A parameter that is annotated with `RunContext` gets the context. As the first one it is left out of
    the calls for a type checker, too; at any other place, give it a default to please one.

    Args:
        func: The function, when the decorator is used without parentheses.
        name: The step's name; by default the function's.
        replay_key: Makes of the arguments what calls are told apart by, instead of the arguments. For
            arguments that cannot be encoded, such as a connection.

    Raises:
        DefinitionError: What is given is no function, or has no name.

    Example:
        >>> @step
        ... async def fetch(url: str) -> str:
        ...     return f"what is at {url}"
    """

    def wrap(function: Callable[..., Any]) -> Step[Any, Any]:
        return Step(function, name, replay_key)

    return wrap if func is None else wrap(func)
