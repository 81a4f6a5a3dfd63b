"""Copying by value, so that two sides of a boundary never share a mutable object.

Builtin and `collections` containers of their exact types are copied structurally; what is
immutable all the way down is returned as it is, at any level. A registered type is copied by its
`copy=`, else field by field without running `__init__` or `__post_init__`, else by its encoder
and decoder. Anything else goes through `copy.deepcopy`.
"""

from __future__ import annotations

import copy
import enum
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, Final

import msgspec

from branchpoint import errors
from branchpoint.codec._blame import blame, describe_depth
from branchpoint.codec._defaults import shallow_struct
from branchpoint.codec._immutable import ATOMS, is_dataclass, is_frozen, is_immutable
from branchpoint.codec._registry import TypeEntry, entry_for_type
from branchpoint.codec._shape import MAX_DEPTH, layout_of, type_name
from branchpoint.codec._stack import with_room

__all__ = ["copy_value"]

_Plan = Callable[[Any, int], Any]
_MAX_PLANS: Final = 4096


class _Refused(Exception):
    """Something inside the value cannot be copied; its place is looked up only when this is caught."""

    def __init__(self, value: object, reason: str) -> None:
        super().__init__(reason)
        self.value = value


class _TooDeep(Exception):
    """The value nests deeper than MAX_DEPTH, or contains itself."""


def copy_value(value: Any, *, path: str = "") -> Any:
    """Copy `value` so that no later change to one side is visible on the other.

    Guarantees:
        The copy is equal, of the exact same types, with the same order of dict keys. A value that
        is immutable all the way down is returned as it is; so is every such part of a larger
        value. An object used twice inside the value becomes two equal copies. No `__init__` or
        `__post_init__` runs, except what `copy.deepcopy` runs for an unregistered type.

    Args:
        value: Any value; unregistered types are allowed.
        path: Where the value is, for the message of an error.

    Raises:
        UnsupportedValueError: A part cannot be copied (a lock, a generator, a client), contains
            itself, or nests deeper than 256. The message has the type and the full path.
    """
    if type(value) in ATOMS:
        return value
    try:
        try:
            return _copy(value, 1)
        except RecursionError:
            return with_room(lambda: _copy(value, 1))
    except _Refused as refused:
        where, culprit = blame(value, refused.value, path)
        raise errors.UnsupportedValueError(
            f"{where or 'the value'}: an object of type {type_name(type(culprit))} cannot be copied by value "
            f"({refused}). Keep such objects out of messages and state: hold them on the executor, or "
            "register the type with `register_state_type(cls, copy=...)`."
        ) from refused.__cause__
    except (_TooDeep, RecursionError):
        raise errors.UnsupportedValueError(describe_depth(value, path)) from None


def _copy(value: Any, depth: int) -> Any:
    """Copy at `depth` levels below the root of the value (the root has 1)."""
    cls = type(value)
    if cls in ATOMS:
        return value
    if depth > MAX_DEPTH:
        raise _TooDeep
    if cls is dict or cls is OrderedDict or cls is defaultdict or cls is Counter:
        new = value.copy()
        foreign_key = False
        for key, item in new.items():
            if type(item) not in ATOMS:
                new[key] = _copy(item, depth + 1)  # replacing a value keeps the order
            if type(key) is not str and type(key) not in ATOMS:
                foreign_key = True
        return _copy_keys(new, depth) if foreign_key else new
    if cls is list:
        if ATOMS.issuperset(map(type, value)):
            return value[:]
        depth += 1
        return [item if type(item) in ATOMS else _copy(item, depth) for item in value]
    if cls is tuple:
        if ATOMS.issuperset(map(type, value)):
            return value
        items = _copy_items(value, depth)
        return value if _same(items, value) else tuple(items)
    plan = _PLAIN_PLANS.get(cls)
    return plan(value, depth) if plan is not None else _plan_for(cls)(value, depth)


def _copy_items(items: Any, depth: int) -> list[Any]:
    depth += 1
    copies = []  # no comprehension: it would take one more frame per level
    for item in items:
        copies.append(item if type(item) in ATOMS else _copy(item, depth))  # noqa: PERF401
    return copies


def _same(items: list[Any], originals: Any) -> bool:
    return all(new is old for new, old in zip(items, originals, strict=True))


def _copy_keys(new: Any, depth: int) -> Any:
    """Copy the keys of an already copied dict; they are hashable, yet may hold what is mutable."""
    keys = _copy_items(new, depth)
    if _same(keys, new):
        return new
    pairs = list(zip(keys, new.values(), strict=True))
    new.clear()
    for key, item in pairs:
        new[key] = item
    return new


def _copy_deque(value: deque[Any], depth: int) -> deque[Any]:
    if ATOMS.issuperset(map(type, value)):
        return value.copy()
    return deque(_copy_items(value, depth), value.maxlen)


def _copy_set(value: set[Any], depth: int) -> set[Any]:
    if ATOMS.issuperset(map(type, value)):
        return value.copy()
    return set(_copy_items(value, depth))


def _copy_frozenset(value: frozenset[Any], depth: int) -> frozenset[Any]:
    if ATOMS.issuperset(map(type, value)):
        return value
    originals = list(value)
    items = _copy_items(originals, depth)
    return value if _same(items, originals) else frozenset(items)


def _copy_bytearray(value: bytearray, depth: int) -> bytearray:
    return value[:]


def _copy_slice(value: slice, depth: int) -> slice:
    items = _copy_items((value.start, value.stop, value.step), depth)
    return value if _same(items, (value.start, value.stop, value.step)) else slice(*items)


_PLAIN_PLANS: Final[dict[type, _Plan]] = {
    deque: _copy_deque,
    set: _copy_set,
    frozenset: _copy_frozenset,
    bytearray: _copy_bytearray,
    slice: _copy_slice,
}


# How instances of a class are copied; decided once per class and registration.

_plans: dict[type, tuple[TypeEntry | None, _Plan]] = {}


def _plan_for(cls: type) -> _Plan:
    entry = entry_for_type(cls)
    known = _plans.get(cls)
    if known is None or known[0] is not entry:  # registered, or registered anew, since then
        if len(_plans) >= _MAX_PLANS:  # classes made on the fly must not pile up for ever
            _plans.clear()
        known = _plans[cls] = (entry, _choose_plan(cls, entry))
    return known[1]


def _choose_plan(cls: type, entry: TypeEntry | None) -> _Plan:
    if issubclass(cls, (enum.Enum, type)):
        return _share
    if entry is None:
        return _copy_frozen_or_deep if is_frozen(cls) else _deepcopy
    if entry.immutable:
        return _share
    if entry.copy is not None:
        return _by_function(entry.copy)
    if issubclass(cls, msgspec.Struct):
        return _copy_struct
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return _copy_named_tuple
    if layout_of(cls).pure and (is_dataclass(cls) or hasattr(cls, "__pydantic_fields__")):
        return _copy_object
    return _by_codec(entry) if entry.kind == "custom" else _deepcopy


def _share(value: Any, depth: int) -> Any:
    return value


def _by_function(function: Callable[[Any], Any]) -> _Plan:
    def plan(value: Any, depth: int) -> Any:
        try:
            return function(value)
        except RecursionError:
            raise
        except Exception as error:
            raise _Refused(value, f"its registered copy function raised {error!r}") from error

    return plan


def _by_codec(entry: TypeEntry) -> _Plan:
    """What is saved of a value is what crosses a boundary, with storage and without."""

    def plan(value: Any, depth: int) -> Any:
        try:
            payload = entry.encoder(value)
        except RecursionError:
            raise
        except Exception as error:
            raise _Refused(value, f"its registered encoder raised {error!r}") from error
        payload = _copy(payload, depth + 1)
        try:
            return entry.decoder(payload)
        except RecursionError:
            raise
        except Exception as error:
            raise _Refused(value, f"its registered decoder raised {error!r}") from error

    return plan


def _deepcopy(value: Any, depth: int) -> Any:
    try:
        return copy.deepcopy(value)
    except RecursionError:
        raise
    except Exception as error:
        raise _Refused(value, str(error) or repr(error)) from error


def _copy_frozen_or_deep(value: Any, depth: int) -> Any:
    return value if is_immutable(value) else _deepcopy(value, depth)


def _copy_attributes(source: Any, target: Any, depth: int) -> bool:
    """Copy what `source` keeps into the empty `target`; whether any of it had to be copied."""
    changed = False
    layout = layout_of(type(source))
    for _, member in layout.slots:
        try:
            item = member.__get__(source)
        except AttributeError:  # never set, so it stays unset
            continue
        new = item if type(item) in ATOMS else _copy(item, depth + 1)
        changed = changed or new is not item
        member.__set__(target, new)
    if layout.has_dict:
        state = source.__dict__.copy()
        for name in layout.derived:
            state.pop(name, None)
        for name, item in state.items():
            if type(item) not in ATOMS:
                state[name] = new = _copy(item, depth + 1)
                changed = changed or new is not item
        target.__dict__.update(state)
    return changed


def _copy_object(value: Any, depth: int) -> Any:
    cls = type(value)
    new = object.__new__(cls)
    changed = _copy_attributes(value, new, depth)
    return new if changed or not is_frozen(cls) else value


def _copy_struct(value: Any, depth: int) -> Any:
    cls = type(value)
    new = shallow_struct(value)
    changed = False
    for name in cls.__struct_fields__:
        item = getattr(value, name)
        if type(item) not in ATOMS:
            copied = _copy(item, depth + 1)
            if copied is not item:
                changed = True
                msgspec.structs.force_setattr(new, name, copied)
    if layout_of(cls).has_dict and value.__dict__:
        new.__dict__.clear()
        changed = _copy_extra(value, new, depth) or changed
    return new if changed or not is_frozen(cls) else value


def _copy_named_tuple(value: Any, depth: int) -> Any:
    cls = type(value)
    items = _copy_items(value, depth)
    changed = not _same(items, tuple(value))
    if not changed and not layout_of(cls).has_dict:
        return value
    new = tuple.__new__(cls, items)
    if layout_of(cls).has_dict:
        _copy_extra(value, new, depth)
    return new


def _copy_extra(source: Any, target: Any, depth: int) -> bool:
    """Copy attributes beside the declared fields; whether there were any that had to be copied."""
    changed = False
    derived = layout_of(type(source)).derived
    for name, item in source.__dict__.items():
        if name not in derived:
            copied = _copy(item, depth + 1)
            changed = changed or copied is not item
            target.__dict__[name] = copied
    return changed
