"""The containers an executor holds as configuration: private copies of them, and whether one changed.

A run works on copies of every container that its definition reaches through containers: builtin
ones and those of `collections`. Everything else in them is shared. Methods bound to the
definition, or to one of its containers, are bound to the copy instead, wherever they sit.
"""

from __future__ import annotations

import functools
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable
from types import BuiltinMethodType, MethodType
from typing import Any, TypeAlias

__all__ = ["Copier", "unchanged"]

_Copy: TypeAlias = Callable[["Copier", Any], Any]


class Copier:
    """Copies the attributes of one executor for another one.

    One copier serves all attributes, so that two names of one container stay two names of one.
    """

    __slots__ = ("_memo", "source", "target")

    def __init__(self, source: object, target: object) -> None:
        self.source = source
        self.target = target
        self._memo: dict[int, Any] = {}

    def copy(self, value: Any) -> Any:
        """Return the value with all containers in it copied; the value itself when it has none."""
        if value is self.source:
            return self.target
        copy = _COPIES.get(type(value))
        if copy is None:
            return _copy_tuple(self, value) if isinstance(value, tuple) else value
        known = self._memo.get(id(value))
        return copy(self, value) if known is None else known

    def remember(self, original: Any, copied: Any) -> Any:
        """Note a container's copy, before it is filled: a container may hold itself."""
        self._memo[id(original)] = copied
        return copied


def _copy_sequence(copier: Copier, value: Any) -> Any:
    empty = deque(maxlen=value.maxlen) if isinstance(value, deque) else type(value)()
    copied = copier.remember(value, empty)
    copied.extend(copier.copy(item) for item in value)
    return copied


def _copy_mapping(copier: Copier, value: Any) -> Any:
    copied = type(value)()
    if type(value) is defaultdict:
        copied.default_factory = copier.copy(value.default_factory)
    copier.remember(value, copied)
    for key, item in value.items():
        copied[copier.copy(key)] = copier.copy(item)
    return copied


def _copy_chain(copier: Copier, value: ChainMap[Any, Any]) -> Any:
    copied: ChainMap[Any, Any] = copier.remember(value, ChainMap())
    copied.maps = [copier.copy(inner) for inner in value.maps]
    return copied


def _copy_set(copier: Copier, value: set[Any]) -> Any:
    return copier.remember(value, {copier.copy(item) for item in value})


def _copy_bytes(copier: Copier, value: bytearray) -> Any:
    return copier.remember(value, bytearray(value))


def _copy_tuple(copier: Copier, value: tuple[Any, ...]) -> Any:
    items = [copier.copy(item) for item in value]
    if all(new is old for new, old in zip(items, value, strict=True)):
        return value
    return tuple.__new__(type(value), items)


def _copy_frozenset(copier: Copier, value: frozenset[Any]) -> Any:
    items = [copier.copy(item) for item in value]
    return value if all(new is old for new, old in zip(items, value, strict=True)) else frozenset(items)


def _copy_method(copier: Copier, value: Any) -> Any:
    owner = copier.copy(value.__self__)
    return value if owner is value.__self__ else MethodType(value.__func__, owner)


def _copy_builtin_method(copier: Copier, value: Any) -> Any:
    # `self.push = self.items.append` would write to the definition's list.
    if type(value.__self__) not in _CONTAINERS:
        return value
    return getattr(copier.copy(value.__self__), value.__name__)


def _copy_partial(copier: Copier, value: functools.partial[Any]) -> Any:
    old = (value.func, *value.args, *value.keywords.values())
    new = [copier.copy(item) for item in old]
    if all(one is other for one, other in zip(new, old, strict=True)):
        return value
    end = 1 + len(value.args)
    return functools.partial(new[0], *new[1:end], **dict(zip(value.keywords, new[end:], strict=True)))


_CONTAINERS: dict[type, _Copy] = {
    list: _copy_sequence,
    deque: _copy_sequence,
    UserList: _copy_sequence,
    dict: _copy_mapping,
    OrderedDict: _copy_mapping,
    defaultdict: _copy_mapping,
    Counter: _copy_mapping,
    UserDict: _copy_mapping,
    ChainMap: _copy_chain,
    set: _copy_set,
    bytearray: _copy_bytes,
}
_COPIES: dict[type, _Copy] = {
    **_CONTAINERS,
    frozenset: _copy_frozenset,
    MethodType: _copy_method,
    BuiltinMethodType: _copy_builtin_method,
    functools.partial: _copy_partial,
}
_SCALARS = frozenset({bool, int, float, complex, str, bytes, type(None)})


def unchanged(original: Any, copied: Any, source: object, target: object) -> bool:
    """Say whether a container copied by a `Copier` is still as it was.

    What is not a container must be the very same object, because copying shared it. Equal plain
    scalars count as the same.
    """
    return _Comparison(source, target).same(original, copied)


class _Comparison:
    __slots__ = ("_seen", "_source", "_target")

    def __init__(self, source: object, target: object) -> None:
        self._source = source
        self._target = target
        self._seen: set[int] = set()

    def same(self, original: Any, copied: Any) -> bool:
        if original is self._source:
            return copied is self._target
        cls = type(original)
        if cls is not type(copied):
            return False
        if cls in _CONTAINERS:
            if id(original) in self._seen:  # compared already, or being compared further out
                return True
            self._seen.add(id(original))
            return self._same_contents(cls, original, copied)
        if cls in _SCALARS:
            return original is copied or bool(original == copied)
        if original is copied:
            return True
        return self._same_derived(original, copied)

    def _same_contents(self, cls: type, original: Any, copied: Any) -> bool:
        if cls is bytearray:
            return bool(original == copied)
        if cls is ChainMap:
            return self._same_items(original.maps, copied.maps)
        if len(original) != len(copied):
            return False
        if cls is set:
            return self._same_members(original, copied)
        if cls in (list, deque, UserList):
            return self._same_items(original, copied)
        if cls is defaultdict and not self.same(original.default_factory, copied.default_factory):
            return False
        return self._same_items(original.keys(), copied.keys()) and self._same_items(
            original.values(), copied.values()
        )

    def _same_items(self, originals: Any, copies: Any) -> bool:
        return len(originals) == len(copies) and all(
            self.same(one, other) for one, other in zip(originals, copies, strict=True)
        )

    def _same_members(self, original: Any, copied: Any) -> bool:
        return bool(Copier(self._source, self._target).copy(set(original)) == copied)

    def _same_derived(self, original: Any, copied: Any) -> bool:
        if isinstance(original, tuple):
            return self._same_items(original, copied)
        if type(original) is frozenset:
            return self._same_members(original, copied)
        if isinstance(original, MethodType):
            return original.__func__ is copied.__func__ and self.same(original.__self__, copied.__self__)
        if isinstance(original, BuiltinMethodType):
            return original.__name__ == copied.__name__ and type(original.__self__) is type(copied.__self__)
        if isinstance(original, functools.partial):
            return self._same_items(
                (original.func, *original.args, *original.keywords.values()),
                (copied.func, *copied.args, *copied.keywords.values()),
            )
        return False
