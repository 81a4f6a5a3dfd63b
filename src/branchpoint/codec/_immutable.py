"""What is immutable all the way down, so that both sides of a boundary may hold the same object."""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import pathlib
import types
import uuid
import weakref
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any, Final

import msgspec

from branchpoint.codec._parts import Encoded, Part
from branchpoint.codec._registry import entry_for_type
from branchpoint.codec._shape import MAX_DEPTH, attributes, layout_of

__all__ = ["ATOMS", "is_dataclass", "is_frozen", "is_immutable"]

ATOMS: Final[frozenset[type]] = frozenset(
    {
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        decimal.Decimal,
        fractions.Fraction,
        datetime.datetime,
        datetime.date,
        datetime.time,
        datetime.timedelta,
        datetime.timezone,
        zoneinfo.ZoneInfo,
        uuid.UUID,
        pathlib.PurePosixPath,
        pathlib.PureWindowsPath,
        pathlib.PosixPath,
        pathlib.WindowsPath,
        range,
        msgspec.UnsetType,
        # What is encoded never changes, and is recognised by identity.
        Encoded,
        Part,
        # What copy.deepcopy shares as well.
        type,
        # An exact `object` is a mark: all it has is its identity.
        object,
        types.FunctionType,
        types.BuiltinFunctionType,
        types.EllipsisType,
        types.NotImplementedType,
        types.CodeType,
        weakref.ref,
    }
)
"""Exact types that hold nothing that can change."""

_MUTABLE: Final[frozenset[type]] = frozenset(
    {list, dict, set, deque, OrderedDict, Counter, defaultdict, bytearray}
)


def is_dataclass(cls: type) -> bool:
    return "__dataclass_fields__" in vars(cls)


def is_frozen(cls: type) -> bool:
    """Whether instances refuse assignment: frozen dataclasses, frozen Structs, NamedTuples.

    Asked of the class itself: a plain subclass of a frozen dataclass takes new attributes.
    """
    layout = layout_of(cls)
    if issubclass(cls, msgspec.Struct):
        return bool(cls.__struct_config__.frozen)
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return not layout.has_dict
    params = vars(cls).get("__dataclass_params__")
    return params is not None and bool(params.frozen) and layout.pure


def is_immutable(value: Any, depth: int = 1) -> bool:
    """Whether nothing in `value` can change, so that both sides of a boundary may hold it."""
    cls = type(value)
    if cls in ATOMS:
        return True
    if depth > MAX_DEPTH:
        return False
    if cls is tuple or cls is frozenset:
        return all(is_immutable(item, depth + 1) for item in value)
    if cls in _MUTABLE:
        return False
    if issubclass(cls, (enum.Enum, type)):
        return True
    if cls is slice:
        return all(is_immutable(item, depth + 1) for item in (value.start, value.stop, value.step))
    entry = entry_for_type(cls)
    if entry is not None and entry.immutable:
        return True
    if not is_frozen(cls) or (entry is not None and entry.copy is not None):
        return False
    if issubclass(cls, tuple) and not all(is_immutable(item, depth + 1) for item in value):
        return False
    return all(is_immutable(item, depth + 1) for _, item in attributes(value))
