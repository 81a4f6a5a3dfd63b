"""Registries of other packages: asked for a class or an id that this one does not know, told what it learns.

A room that works with such a package, or that registers types of its own, is *expected*, by a fixed
table in code. It is imported when it is needed: a value of the package is met, or one of its ids.
Nothing found in data says what is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from branchpoint.codec._registry import TypeEntry

__all__ = [
    "ForeignRegistry",
    "call_in",
    "expect_registry",
    "expected",
    "find_by_id",
    "find_by_type",
    "joined",
    "no_longer_expect",
]


class ForeignRegistry(Protocol):
    """A registry of another package, as this one sees it."""

    def entry_for_type(self, cls: type[Any]) -> TypeEntry | None:
        """Return how values of exactly this class are kept, if the package knows the class."""
        ...

    def entry_for_id(self, type_id: str) -> TypeEntry | None:
        """Return the entry that was stored under an id of the package's types."""
        ...

    def registered(self, entry: TypeEntry) -> None:
        """Learn that a class was registered here."""
        ...

    def forgotten(self, entry: TypeEntry) -> None:
        """Learn that a registration was undone."""
        ...


joined: list[ForeignRegistry] = []
expected: dict[str, tuple[tuple[str, ...], Callable[[], object]]] = {}


def expect_registry(package: str, prefixes: tuple[str, ...], join: Callable[[], object]) -> None:
    """Say which room brings the types of a package.

    Args:
        package: The package, or the room itself; while it is not loaded, no value can be of its types.
        prefixes: How the type ids begin that the room registers.
        join: Imports the room, by its fixed name.
    """
    expected[package] = (prefixes, join)


def no_longer_expect(package: str) -> None:
    """Take the room of a package off the table: it has joined."""
    expected.pop(package, None)


def call_in(type_id: str | None = None) -> bool:
    """Have the rooms join whose package is loaded, or whose type this id names; whether there was one.

    It imports, so it is called before the registry's lock is taken and never under it.
    """
    called = False
    for package, (prefixes, join) in tuple(expected.items()):
        if package in sys.modules if type_id is None else type_id.startswith(prefixes):
            join()
            no_longer_expect(package)
            called = True
    return called


def find_by_type(cls: type[Any]) -> TypeEntry | None:
    """Return the entry that another registry has for exactly this class."""
    for registry in joined:
        entry = registry.entry_for_type(cls)
        if entry is not None:
            return entry
    return None


def find_by_id(type_id: str) -> TypeEntry | None:
    """Return the entry that another registry has for an id."""
    for registry in joined:
        entry = registry.entry_for_id(type_id)
        if entry is not None:
            return entry
    return None
