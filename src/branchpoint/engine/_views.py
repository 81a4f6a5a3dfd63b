"""Read-only views of containers, for state too long to copy at every look.

A view that a handler sends, yields, writes or asks with becomes a copy of what it shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, overload

from branchpoint.codec import copy_value
from branchpoint.errors import ExecutorStateError

__all__ = ["ListView", "MappingView", "view"]


def view(value: Any) -> Any:
    """Return `value` behind a door that only reads: exact lists, tuples and dicts become views.

    Anything else is copied, at each look anew, so nothing that comes out reaches what is stored. Such a
    copy is not watched: that would keep every item of a long history in memory, twice.
    """
    kind = type(value)
    if kind is list or kind is tuple:
        return ListView(value)
    if kind is dict:
        return MappingView(value)
    return copy_value(value)


class _ReadOnly:
    """Says, to whoever would change a view, what to do instead."""

    __slots__ = ()
    __keep_instead__ = (
        "it shows shared state, which is not the executor's own: read it without copy=False, or keep "
        "copy.deepcopy(view) instead"
    )

    def __getattr__(self, name: str) -> NoReturn:
        raise ExecutorStateError(
            f"A value read with copy=False is a read-only view, which has no {name!r}. Read it without copy=False, "
            "change that copy, and write it back with ctx.set_state(key, value)."
        )

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        self.__getattr__("__setitem__")

    def __delitem__(self, key: Any) -> NoReturn:
        self.__getattr__("__delitem__")


class ListView(_ReadOnly, Sequence[Any]):
    """A list that can be read, sliced and compared, and not changed."""

    __slots__ = ("_items",)

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> ListView: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return ListView(self._items[index])
        return view(self._items[index])

    def __iter__(self) -> Iterator[Any]:
        return map(view, self._items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ListView):
            return bool(self._items == other._items)
        return bool(self._items == other)

    __hash__ = None  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy_value(self._items)  # what crosses a boundary is a value of its own, not a view

    def __repr__(self) -> str:
        return f"ListView({list(self._items)!r})"


class MappingView(_ReadOnly, Mapping[Any, Any]):
    """A dict that can be read and compared, and not changed."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[Any, Any]) -> None:
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, key: Any) -> Any:
        return view(self._items[key])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, MappingView):
            return bool(self._items == other._items)
        return bool(self._items == other)

    __hash__ = None  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy_value(self._items)  # what crosses a boundary is a value of its own, not a view

    def __repr__(self) -> str:
        return f"MappingView({dict(self._items)!r})"
