"""Factories: executors made anew for every run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from branchpoint.errors import DefinitionError
from branchpoint.graph._edges import is_name
from branchpoint.graph._executor import Executor

__all__ = ["Factory"]


@dataclass(frozen=True, slots=True)
class Factory:
    """Makes an executor for each run, where its parts must not be shared between runs.

    The function is called once when the workflow is built, to learn what it makes, and once per run.

    Attributes:
        fn: Makes the executor; takes no arguments.
        id: The id that every product must have.
    """

    fn: Callable[[], Executor] = field(repr=False)
    id: str

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise DefinitionError(
                f"Factory(id={self.id!r}) needs a function without arguments, got {self.fn!r}."
            )
        if not is_name(self.id):
            raise DefinitionError(
                f"A Factory needs a non-empty text as id, without lone surrogates, got {self.id!r}."
            )

    def create(self, definition: Executor | None = None) -> Executor:
        """Call the function and check its product.

        Args:
            definition: The product of an earlier call, which this one must match in type.

        Raises:
            DefinitionError: The product is not an executor, or of another id or type; names both.
        """
        product: Any = self.fn()
        if inspect.iscoroutine(product):
            product.close()
            raise DefinitionError(f"The function of Factory(id='{self.id}') must not be async.")
        if not isinstance(product, Executor):
            raise DefinitionError(
                f"Factory(id='{self.id}') must make an Executor, it made a {type(product).__qualname__}."
            )
        if product.id != self.id:
            raise DefinitionError(
                f"Factory(id='{self.id}') made an executor with id '{product.id}'; both must be the same, "
                "because edges and saved state know the executor by its id."
            )
        if definition is not None and _kind(product) != _kind(definition):
            raise DefinitionError(
                f"Factory(id='{self.id}') made a {_kind(product)} when the workflow was built with a "
                f"{_kind(definition)}; it must make the same type every time."
            )
        return product


def _kind(executor: Executor) -> str:
    name = type(executor).__qualname__
    function = getattr(executor, "function", None)
    return name if function is None else f"{name} of {getattr(function, '__qualname__', function)}"
