"""The names that the format itself gives to builtin kinds of values."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import pathlib
import uuid
import zoneinfo
from typing import Any

__all__ = ["BUILTIN_TAGS", "BUILTIN_TYPES", "FACTORIES", "FACTORY_NAMES", "TAG_TYPES"]

TAG_TYPES: dict[str, type[Any]] = {
    "dict": dict,
    "int": int,
    "float": float,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "bytes": bytes,
    "bytearray": bytearray,
    "complex": complex,
    "decimal": decimal.Decimal,
    "fraction": fractions.Fraction,
    "datetime": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "timedelta": datetime.timedelta,
    "timezone": datetime.timezone,
    "zoneinfo": zoneinfo.ZoneInfo,
    "uuid": uuid.UUID,
    "pureposixpath": pathlib.PurePosixPath,
    "purewindowspath": pathlib.PureWindowsPath,
    "posixpath": pathlib.PosixPath,
    "windowspath": pathlib.WindowsPath,
    "deque": collections.deque,
    "ordereddict": collections.OrderedDict,
    "counter": collections.Counter,
    "defaultdict": collections.defaultdict,
    "range": range,
    "slice": slice,
}
"""Tag -> the exact type that carries it."""

BUILTIN_TAGS = frozenset(TAG_TYPES) | {"list", "str", "bool", "none", "None", "Any", "Literal"}
BUILTIN_TYPES = frozenset(TAG_TYPES.values()) | {list, str, bool, type(None), object}

FACTORIES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (int, float, complex, str, bool, bytes, bytearray, list, tuple, dict, set, frozenset)
}
"""The factories with which a defaultdict can be kept."""
FACTORY_NAMES = {kind: name for name, kind in FACTORIES.items()}
