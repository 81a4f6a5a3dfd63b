"""Tokens of single values: equal if and only if type and value are the same to every reader.

Python's own equality is too generous here: it takes `1` for `1.0`, two moments in different zones for
one, `Decimal("1.0")` for `Decimal("1.00")`, and NaN for different from itself.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import pathlib
import struct
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any, Final

from branchpoint.codec._zones import fixed_zone

__all__ = ["ATOM_TOKENS", "Foreign", "Given", "Same", "base_token"]


class Same:
    """Equal only to a token of the very same object; holds it, so that its id is not reused."""

    __slots__ = ("_value",)

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other._value is self._value

    def __hash__(self) -> int:
        return id(self._value)


class Given:
    """A token that a registered `fingerprint=` returned; may be anything that has an equality."""

    __slots__ = ("_token",)

    def __init__(self, token: object) -> None:
        self._token = token

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Given) and bool(other._token == self._token)

    def __hash__(self) -> int:
        try:
            return hash(self._token)
        except TypeError:  # a list or a dict, say
            return 0


class Foreign:
    """A time zone that some other package wrote: whoever makes the token has to look into it."""

    __slots__ = ("zone",)

    def __init__(self, zone: datetime.tzinfo) -> None:
        self.zone = zone


def _itself(value: Any) -> Any:
    return (type(value), value)


def _zone(zone: Any) -> Any:
    if zone is None:
        return None
    zone = fixed_zone(zone)  # what is kept is what counts
    if type(zone) is datetime.timezone:
        return repr(zone)  # equality ignores the name
    if type(zone) is zoneinfo.ZoneInfo:
        key: str | None = zone.key  # None for a zone read from a file
        return Same(zone) if key is None else (zoneinfo.ZoneInfo, key)
    return Foreign(zone)


def _datetime(value: datetime.datetime) -> Any:
    return (type(value), datetime.datetime.isoformat(value), value.fold, _zone(value.tzinfo))


def _time(value: datetime.time) -> Any:
    return (type(value), datetime.time.isoformat(value), value.fold, _zone(value.tzinfo))


def _float(value: float) -> Any:
    return (type(value), struct.pack("<d", value))


def _complex(value: complex) -> Any:
    return (type(value), struct.pack("<dd", value.real, value.imag))


def _text(value: object) -> Any:
    return (type(value), str(value))


ATOM_TOKENS: Final[dict[type, Callable[[Any], Any]]] = {
    bool: _itself,
    int: _itself,
    bytes: _itself,
    float: _float,
    complex: _complex,
    bytearray: lambda value: (bytearray, bytes(value)),
    decimal.Decimal: _text,
    fractions.Fraction: lambda value: (fractions.Fraction, value.numerator, value.denominator),
    datetime.datetime: _datetime,
    datetime.date: _itself,
    datetime.time: _time,
    datetime.timedelta: _itself,
    datetime.timezone: lambda value: (datetime.timezone, repr(value)),
    zoneinfo.ZoneInfo: lambda value: (zoneinfo.ZoneInfo, _zone(value)),
    uuid.UUID: _itself,
    pathlib.PurePosixPath: _text,
    pathlib.PureWindowsPath: _text,
    pathlib.PosixPath: _text,
    pathlib.WindowsPath: _text,
    range: lambda value: (range, value.start, value.stop, value.step),
}
"""Exact types whose values are compared as one piece."""

_BASES: Final[tuple[tuple[type, Callable[[Any], Any]], ...]] = (
    (str, str.__str__),
    (int, lambda value: int.__add__(value, 0)),
    (float, lambda value: struct.pack("<d", value)),
    (complex, lambda value: struct.pack("<dd", value.real, value.imag)),
    (bytes, lambda value: bytes.__getitem__(value, slice(None))),
    (bytearray, lambda value: bytes(memoryview(value))),
    (datetime.datetime, _datetime),
    (datetime.date, datetime.date.toordinal),
    (datetime.time, _time),
    (datetime.timedelta, lambda value: (value.days, value.seconds, value.microseconds)),
    (decimal.Decimal, decimal.Decimal.__str__),
)


def base_token(value: Any) -> Any:
    """What an instance of a subclass of a builtin scalar holds beside its attributes; None for others."""
    for base, token in _BASES:
        if isinstance(value, base):
            return (base, token(value))
    return None
