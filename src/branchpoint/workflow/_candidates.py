"""What a builder accepts in place of an executor, turned into one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, cast

from branchpoint.errors import DefinitionError
from branchpoint.graph import Executor, Factory, FunctionExecutor, Graph
from branchpoint.workflow._agents import agents_room

__all__ = ["AgentLike", "ExecutorLike", "as_executor", "id_of", "is_agent"]


class AgentLike(Protocol):
    """An agent, as far as a builder looks at it: something with an id, a name and a `run` method."""

    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str | None: ...

    def run(self, *args: Any, **kwargs: Any) -> Any: ...


ExecutorLike: TypeAlias = Executor | Factory | AgentLike | Callable[..., Any] | str
"""An executor, a factory of one, a function, an agent, or the id of an executor already added."""


def as_executor(candidate: object) -> Executor | Factory:
    """Return what the graph keeps for a candidate that is not an id.

    Raises:
        DefinitionError: It is a class, a workflow, or nothing that could handle a message.
    """
    if isinstance(candidate, (Executor, Factory)):
        return candidate
    if isinstance(candidate, type):
        raise DefinitionError(
            f"A builder takes executors, not classes: write {candidate.__qualname__}(id=...), or "
            f"Factory({candidate.__qualname__}, id=...) for one that is made anew for every run."
        )
    if isinstance(getattr(candidate, "graph", None), Graph):
        raise DefinitionError(
            f"{type(candidate).__qualname__} is a workflow, not an executor: "
            "wrap it, WorkflowExecutor(workflow, id=...), and give that to this builder."
        )
    if is_agent(candidate):
        return _wrap_agent(candidate)
    if _is_function(candidate):
        return FunctionExecutor(candidate)  # type: ignore[arg-type]
    raise DefinitionError(
        f"A builder takes an Executor, a Factory, a function, an agent, or the id of an executor already "
        f"added; got {type(candidate).__qualname__}."
    )


def is_agent(candidate: object) -> bool:
    """Return whether a candidate looks like an agent."""
    return (
        not isinstance(candidate, (Executor, Factory, type))
        and callable(getattr(candidate, "run", None))
        and (hasattr(candidate, "id") or hasattr(candidate, "name"))
    )


def id_of(candidate: object) -> str:
    """Return the id under which a candidate stands in a graph, without adding it to one."""
    if isinstance(candidate, str):
        return candidate
    if is_agent(candidate):
        return str(getattr(candidate, "name", None) or getattr(candidate, "id", ""))
    return as_executor(candidate).id


def _is_function(candidate: object) -> bool:
    return inspect.isroutine(candidate) or isinstance(candidate, functools.partial)


def _wrap_agent(candidate: object) -> Executor:
    """Return the executor that runs an agent."""
    return cast(Executor, agents_room().AgentExecutor(candidate))
