"""What an object is made of: its slots, its attributes, its place inside a larger value.

Copying, fingerprinting and their error messages look into values by these functions alone, so
they agree on what belongs to a value: the attributes in `__dict__` and in every `__slots__` of
the class. What a `functools.cached_property` has left in `__dict__` is derived, not part of it.
"""

from __future__ import annotations

import functools
import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from types import MemberDescriptorType
from typing import Any, Final

__all__ = ["MAX_DEPTH", "Layout", "attributes", "children", "layout_of", "step", "type_name"]

MAX_DEPTH: Final = 256
"""How deep a value may nest; the same bound for copying, converting and encoding."""

_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: set for every class made by a class statement
_POINTER: Final = struct.calcsize("P")
_MAX_LAYOUTS: Final = 4096
_LONGEST_KEY: Final = 100
_LONGEST_INT: Final = 300


class Layout:
    """How instances of one class keep their attributes.

    Attributes:
        pure: Whether slots and `__dict__` are all there is; not so for what C code keeps fields in.
        native: `object` for pure classes, else the builtin or C class that instances build on.
        slots: The member descriptors of all `__slots__`, bases first; not the hash that a Struct caches.
        derived: Names that a `cached_property` may leave in `__dict__`.
        has_dict: Whether instances have a `__dict__`.
    """

    __slots__ = ("derived", "has_dict", "native", "pure", "slots")

    def __init__(self, cls: type) -> None:
        found: dict[str, MemberDescriptorType] = {}
        derived: set[str] = set()
        for base in reversed(cls.__mro__):
            for name, member in vars(base).items():
                if isinstance(member, MemberDescriptorType):
                    found[f"{base.__qualname__}.{name}" if name in found else name] = member
                elif isinstance(member, functools.cached_property):
                    derived.add(member.attrname or name)
        self.slots: tuple[tuple[str, MemberDescriptorType], ...] = tuple(
            (name, member) for name, member in found.items() if name != "__msgspec_cached_hash__"
        )
        self.derived: frozenset[str] = frozenset(derived)
        self.has_dict: bool = cls.__dictoffset__ != 0
        # The test that object.__reduce_ex__ makes before it takes an object for its attributes alone.
        pointers = len(found) + (cls.__dictoffset__ > 0) + (cls.__weakrefoffset__ > 0)
        size = object.__basicsize__ + pointers * _POINTER
        self.pure: bool = cls.__itemsize__ == 0 and cls.__basicsize__ <= size
        self.native: type = object
        if not self.pure:
            bases = (base for base in cls.__mro__ if base is not object and not base.__flags__ & _HEAP_TYPE)
            self.native = next(bases, cls)


_layouts: dict[type, Layout] = {}


def layout_of(cls: type) -> Layout:
    """The layout of `cls`, remembered for a bounded number of classes."""
    known = _layouts.get(cls)
    if known is None:
        if len(_layouts) >= _MAX_LAYOUTS:  # classes made on the fly must not pile up for ever
            _layouts.clear()
        known = _layouts[cls] = Layout(cls)
    return known


def attributes(value: object) -> Iterator[tuple[str, Any]]:
    """The attributes that belong to `value`: slots in declared order, then `__dict__`."""
    layout = layout_of(type(value))
    for name, member in layout.slots:
        try:
            yield name, member.__get__(value)
        except AttributeError:  # a slot that was never set
            continue
    if layout.has_dict:
        for name, item in tuple(value.__dict__.items()):
            if name not in layout.derived:
                yield name, item


_DICTS: Final = (dict, OrderedDict, Counter, defaultdict)


def children(value: object) -> Iterator[tuple[object, Any]]:
    """The parts directly inside `value` as (key or attribute name, part); dict keys come as parts too."""
    if isinstance(value, _DICTS):
        # The base's items(), whatever a subclass overrides; only that of OrderedDict sees move_to_end.
        pairs = OrderedDict.items(value) if isinstance(value, OrderedDict) else dict.items(value)
        for key, item in tuple(pairs):
            yield key, item
            yield key, key
    elif isinstance(value, (list, tuple, deque)):
        yield from enumerate(tuple(value))
    elif isinstance(value, (set, frozenset)):
        for item in tuple(value):
            yield item, item
    elif isinstance(value, (str, bytes, int, float)):
        return
    yield from attributes(value)


def step(path: str, key: object) -> str:
    """`path` one level deeper: `.name` for a name, `[3]` for a place, `['a b']` for any other key.

    A long key is cut short; paths are read by people.
    """
    if isinstance(key, (str, bytes)) and len(key) > _LONGEST_KEY:
        return f"{path}[{key[:_LONGEST_KEY]!r}...]"
    if type(key) is int and key.bit_length() > _LONGEST_INT:
        return f"{path}[<int>]"  # Python refuses to write one of over some thousand digits
    if isinstance(key, str):
        if key.isidentifier():
            return f"{path}.{key}" if path else str(key)
        return f"{path}[{key!r}]"
    if key is None or type(key) in (int, bool, float, bytes):
        return f"{path}[{key!r}]"
    return f"{path}[<{type_name(type(key))}>]"


def type_name(cls: type) -> str:
    """The name of a class as messages show it: bare for builtins, else with its module."""
    if cls.__module__ == "builtins":
        return cls.__qualname__
    return f"{cls.__module__}.{cls.__qualname__}"
