"""The decorator that makes a workflow of an async function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from branchpoint.errors import DefinitionError
from branchpoint.functional._executor import FunctionalExecutor
from branchpoint.functional._step import Step
from branchpoint.workflow import Workflow, WorkflowBuilder

__all__ = ["FunctionalWorkflow", "workflow"]


class FunctionalWorkflow(Workflow):
    """A workflow that is one async function; everything else is that of any `Workflow`."""

    __slots__ = ()

    @property
    def function(self) -> Callable[..., Any]:
        """The function."""
        executor = self.get_start_executor()
        assert isinstance(executor, FunctionalExecutor)
        return executor.function


@overload
def workflow(func: Callable[..., Any]) -> FunctionalWorkflow: ...


@overload
def workflow(
    *, name: str | None = None, description: str | None = None
) -> Callable[[Callable[..., Any]], FunctionalWorkflow]: ...


def workflow(
    func: Callable[..., Any] | None = None,
    *,
    name: str | None = None,
    description: str | None = None,
) -> FunctionalWorkflow | Callable[[Callable[..., Any]], FunctionalWorkflow]:
    """Make a workflow of an async function.

    Its first parameter is the input, a second one the `RunContext`. What it returns, unless None, is the
    output. It is run from its top after an interruption and at every answer, and steps that are done
    give their results at once: so let steps do what costs or changes something, and let the function do
    the same again when it gets the same results.

    The shape of its code is part of the signature: a checkpoint of other code is refused, with what
    differs. Layout, comments, docstrings and annotations do not count, and neither does code of steps.

    Args:
        func: The function, when the decorator is used without parentheses.
        name: The workflow's name; by default the function's.
        description: What it is for.

    Raises:
        DefinitionError: The function is not async, or has another form.

    Example:
        >>> @workflow
        ... async def shout(text: str) -> str:
        ...     return text.upper()
    """

    def wrap(function: Callable[..., Any]) -> FunctionalWorkflow:
        if isinstance(function, type | Step | Workflow) or not callable(function):
            raise DefinitionError(f"@workflow is for async functions, got {function!r}.")
        called = str(name or getattr(function, "__name__", ""))
        executor = FunctionalExecutor(function, called)
        builder = WorkflowBuilder(name=called, description=description, start_executor=executor)
        return FunctionalWorkflow(builder.build_graph())

    return wrap if func is None else wrap(func)
