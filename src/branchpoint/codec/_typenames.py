"""The names of builtin and standard types in type expressions, and what typing wraps around a type."""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import datetime
import decimal
import fractions
import pathlib
import types
import typing
import uuid
import zoneinfo
from typing import Any, Final

import typing_extensions

__all__ = ["ARITY", "EXACT", "NAMES", "SPELLINGS", "TYPES", "bare", "is_union"]

TYPES: Final[dict[str, Any]] = {
    "Any": Any,
    "Never": typing.Never,
    "object": object,
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "str": str,
    "bytes": bytes,
    "bytearray": bytearray,
    "list": list,
    "dict": dict,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "range": range,
    "slice": slice,
    "decimal.Decimal": decimal.Decimal,
    "fractions.Fraction": fractions.Fraction,
    "datetime.datetime": datetime.datetime,
    "datetime.date": datetime.date,
    "datetime.time": datetime.time,
    "datetime.timedelta": datetime.timedelta,
    "datetime.timezone": datetime.timezone,
    "zoneinfo.ZoneInfo": zoneinfo.ZoneInfo,
    "uuid.UUID": uuid.UUID,
    "pathlib.PurePath": pathlib.PurePath,
    "pathlib.PurePosixPath": pathlib.PurePosixPath,
    "pathlib.PureWindowsPath": pathlib.PureWindowsPath,
    "pathlib.Path": pathlib.Path,
    "pathlib.PosixPath": pathlib.PosixPath,
    "pathlib.WindowsPath": pathlib.WindowsPath,
    "collections.deque": collections.deque,
    "collections.OrderedDict": collections.OrderedDict,
    "collections.Counter": collections.Counter,
    "collections.defaultdict": collections.defaultdict,
    "collections.abc.Collection": collections.abc.Collection,
    "collections.abc.Iterable": collections.abc.Iterable,
    "collections.abc.Mapping": collections.abc.Mapping,
    "collections.abc.MutableMapping": collections.abc.MutableMapping,
    "collections.abc.MutableSequence": collections.abc.MutableSequence,
    "collections.abc.MutableSet": collections.abc.MutableSet,
    "collections.abc.Sequence": collections.abc.Sequence,
    "collections.abc.Set": collections.abc.Set,
}
"""Name -> type; written by hand, since modules and qualified names differ between Python versions."""

NAMES: Final[dict[Any, str]] = {tp: name for name, tp in TYPES.items()} | {typing.NoReturn: "Never"}

_ONE: Final = (
    *("list", "set", "frozenset", "collections.deque", "collections.Counter"),
    *("collections.abc.Collection", "collections.abc.Iterable", "collections.abc.Sequence"),
    *("collections.abc.MutableSequence", "collections.abc.MutableSet", "collections.abc.Set"),
)
_TWO: Final = (
    *("dict", "collections.OrderedDict", "collections.defaultdict"),
    *("collections.abc.Mapping", "collections.abc.MutableMapping"),
)
ARITY: Final[dict[str, int]] = dict.fromkeys(_ONE, 1) | dict.fromkeys(_TWO, 2)
"""How many arguments a generic takes; `tuple` takes any number."""

_ALIASED: Final = (
    *("List", "Dict", "Tuple", "Set", "FrozenSet", "Deque", "DefaultDict", "OrderedDict", "Counter"),
    *("Collection", "Iterable", "Mapping", "MutableMapping", "MutableSequence", "MutableSet", "Sequence"),
    "AbstractSet",
)
EXACT: Final[dict[str, Any]] = {
    "NoneType": type(None),
    "typing.Union": typing.Union,
    **{f"typing.{name}": getattr(typing, name) for name in _ALIASED},
}
"""Further names where the spelling counts, because `List[int]` and `list[int]` are not equal."""

SPELLINGS: Final[dict[Any, str]] = {
    typing.get_origin(alias): name for name, alias in EXACT.items() if typing.get_origin(alias) is not None
}
"""Origin -> the name of its alias in typing."""

_WRAPPERS: Final[tuple[Any, ...]] = (
    typing.Annotated,
    typing.ClassVar,
    typing.Final,
    typing.Required,
    typing.NotRequired,
    typing_extensions.ReadOnly,
)
_ALIASES: Final = tuple(
    {typing_extensions.TypeAliasType, getattr(typing, "TypeAliasType", typing_extensions.TypeAliasType)}
)


def is_union(tp: Any) -> bool:
    """Whether `tp` is `A | B` or `Union[A, B]`."""
    return typing.get_origin(tp) in (typing.Union, types.UnionType)


def bare(tp: Any, metadata: list[Any] | None = None) -> Any:
    """`tp` without `Annotated`, `Final` and the like.

    A `NewType` is what it wraps and a type variable is its bound. What `Annotated` said goes
    into `metadata`.
    """
    while True:
        if isinstance(tp, typing.TypeVar):
            if tp.__constraints__:
                return typing.Union[tp.__constraints__]  # noqa: UP007
            tp = Any if tp.__bound__ is None else tp.__bound__
        elif isinstance(tp, typing.NewType):
            tp = tp.__supertype__
        elif isinstance(tp, _ALIASES):
            tp = tp.__value__
        elif isinstance(tp, dataclasses.InitVar):
            tp = tp.type
        elif typing.get_origin(tp) in _WRAPPERS:
            if metadata is not None:
                metadata.extend(getattr(tp, "__metadata__", ()))
            tp = typing.get_args(tp)[0]
        else:
            return tp
