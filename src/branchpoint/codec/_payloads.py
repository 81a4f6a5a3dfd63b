"""The builtin kinds read back: each payload in the exact shape that encoding gives it."""

from __future__ import annotations

import base64
import collections
import datetime
import decimal
import fractions
import itertools
import pathlib
import sys
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any

from branchpoint.codec._builtin import date_time_payload, decimal_text
from branchpoint.codec._decode import Reader, readers
from branchpoint.codec._flaw import Flaw
from branchpoint.codec._tags import FACTORIES
from branchpoint.codec._wiretree import INT_MAX, INT_MIN
from branchpoint.codec._zones import is_zone_key, zone_is_here
from branchpoint.errors import DataError

__all__: list[str] = []


def _same(written: Any, payload: Any) -> None:
    if written != payload or type(written) is not type(payload):
        raise Flaw(f"{payload!r} would be written in another way")


def _text(payload: Any) -> str:
    if type(payload) is not str:
        raise Flaw("a text is expected here")
    return payload


def _int(reader: Reader, payload: Any) -> int:
    value = int(_text(payload), 16)
    if INT_MIN <= value <= INT_MAX:
        raise Flaw("an int that fits is written without a tag")
    _same(hex(value), payload)
    return value


def _float(reader: Reader, payload: Any) -> float:
    if payload not in ("nan", "inf", "-inf"):
        raise Flaw("only 'nan', 'inf' and '-inf' are written with a tag")
    return float(payload)


def _dict(reader: Reader, payload: Any) -> dict[Any, Any]:
    value: dict[Any, Any] = _unique(reader.pairs(payload), {})
    if all(type(key) is str and key[:1] != "$" for key in value):
        raise Flaw("a dict with plain keys is written without a tag")
    return value


def _unique(pairs: list[tuple[Any, Any]], target: Any) -> Any:
    for key, value in pairs:
        target[key] = value
    if len(target) != len(pairs):
        raise Flaw("a key comes twice")
    return target


def _tuple(reader: Reader, payload: Any) -> tuple[Any, ...]:
    return tuple(reader.items(reader.list_tree(payload)))


def _set(kind: Any) -> Callable[[Reader, Any], Any]:
    def read(reader: Reader, payload: Any) -> Any:
        trees = reader.list_tree(payload)
        notation = reader.notation
        order = []
        for tree in trees:
            digest = tree.get("$p") if type(tree) is dict else None
            order.append(notation.encode(tree) if digest is None else reader.parts.get(digest, b""))
        if any(earlier > later for earlier, later in itertools.pairwise(order)):
            raise Flaw("the items of a set are in another order than they are written")
        value = kind(reader.items(trees))
        if len(value) != len(order):
            raise Flaw("an item of a set comes twice")
        return value

    return read


def _binary(kind: Any) -> Callable[[Reader, Any], Any]:
    def read(reader: Reader, payload: Any) -> Any:
        if reader.notation.name == "json":
            data = base64.b64decode(_text(payload), validate=True)
            _same(base64.b64encode(data).decode("ascii"), payload)
        elif type(payload) is bytes:
            data = payload
        else:
            raise Flaw("bytes are expected here")
        return data if kind is bytes else kind(data)

    return read


def _ints(payload: Any, count: int) -> list[int]:
    if type(payload) is not list or len(payload) != count or any(type(item) is not int for item in payload):
        raise Flaw(f"a list of {count} ints is expected here")
    return payload


def _complex(reader: Reader, payload: Any) -> complex:
    real, imaginary = reader.items(reader.list_tree(payload))
    if type(real) is not float or type(imaginary) is not float:
        raise Flaw("two floats are expected here")
    return complex(real, imaginary)


def _decimal(reader: Reader, payload: Any) -> decimal.Decimal:
    value = decimal.Decimal(_text(payload))
    _same(decimal_text(value), payload)
    return value


def _fraction(reader: Reader, payload: Any) -> fractions.Fraction:
    numerator, denominator = reader.items(reader.list_tree(payload))
    if type(numerator) is not int or type(denominator) is not int:
        raise Flaw("two ints are expected here")
    value = fractions.Fraction(numerator, denominator)
    if (value.numerator, value.denominator) != (numerator, denominator):
        raise Flaw("a fraction is written in lowest terms")
    return value


def _date_time(kind: Any) -> Callable[[Reader, Any], Any]:
    def read(reader: Reader, payload: Any) -> Any:
        if type(payload) is str:
            value = kind.fromisoformat(payload)
            _same(date_time_payload(value), payload)
            return value
        local, zone, fold = reader.list_tree(payload)
        if type(fold) is not int or fold not in (0, 1):
            raise Flaw("the fold is 0 or 1")
        value = kind.fromisoformat(_text(local))
        if value.tzinfo is not None:
            raise Flaw("a local time without offset is expected here")
        tzinfo = None if zone is None else reader.value(dict(zone))
        if not isinstance(tzinfo, (type(None), datetime.timezone, zoneinfo.ZoneInfo)):
            raise Flaw("a time zone is expected here")
        value = value.replace(tzinfo=tzinfo, fold=fold)
        _same(date_time_payload(value), [local, zone, fold])
        return value

    return read


def _date(reader: Reader, payload: Any) -> datetime.date:
    value = datetime.date.fromisoformat(_text(payload))
    _same(value.isoformat(), payload)
    return value


def _timedelta(reader: Reader, payload: Any) -> datetime.timedelta:
    days, seconds, micros = _ints(payload, 3)
    value = datetime.timedelta(days, seconds, micros)
    _same([value.days, value.seconds, value.microseconds], payload)
    return value


def _timezone(reader: Reader, payload: Any) -> datetime.timezone:
    if type(payload) is list and len(payload) == 2:
        micros, name = payload[0], _text(payload[1])
        _ints([micros], 1)
        return datetime.timezone(datetime.timedelta(microseconds=micros), name)
    (micros,) = _ints(payload, 1)
    return datetime.timezone(datetime.timedelta(microseconds=micros))


def _zoneinfo(reader: Reader, payload: Any) -> zoneinfo.ZoneInfo:
    key = _text(payload)
    if not is_zone_key(key):
        raise Flaw(f"{key!r} is no key of a time zone")
    try:
        if zone_is_here(key):
            return zoneinfo.ZoneInfo(key)
    except (zoneinfo.ZoneInfoNotFoundError, OSError):
        pass  # removed since, or not readable
    raise Flaw(
        f"the time zone {payload!r} is not known on this machine; install the tzdata package", DataError
    )


def _uuid(reader: Reader, payload: Any) -> uuid.UUID:
    value = uuid.UUID(_text(payload))
    _same(str(value), payload)
    return value


def _path(kind: Any) -> Callable[[Reader, Any], Any]:
    def read(reader: Reader, payload: Any) -> Any:
        foreign = pathlib.PosixPath if sys.platform == "win32" else pathlib.WindowsPath
        if kind is foreign:
            raise Flaw(f"a {kind.__name__} cannot exist on this system; keep a PurePath instead", DataError)
        value = kind(_text(payload))
        _same(str(value), payload)
        return value

    return read


def _deque(reader: Reader, payload: Any) -> collections.deque[Any]:
    maxlen, items = reader.list_tree(payload)
    if maxlen is not None and (type(maxlen) is not int or maxlen < 0):
        raise Flaw("the length of a deque is an int from 0")
    reader.depth += 1
    values = reader.items(reader.any_list(items))
    reader.depth -= 1
    if maxlen is not None and len(values) > maxlen:
        raise Flaw("a deque is longer than its bound")
    return collections.deque(values, maxlen)


def _ordered(reader: Reader, payload: Any) -> Any:
    return _unique(reader.pairs(payload), collections.OrderedDict())


def _counter(reader: Reader, payload: Any) -> Any:
    return _unique(reader.pairs(payload), collections.Counter())


def _defaultdict(reader: Reader, payload: Any) -> Any:
    name, items = reader.list_tree(payload)
    if name is not None and (type(name) is not str or name not in FACTORIES):
        raise Flaw(f"{name!r} is no factory of a defaultdict")
    factory = None if name is None else FACTORIES[name]
    reader.depth += 1
    found = reader.pairs(items)
    reader.depth -= 1
    return _unique(found, collections.defaultdict(factory))


def _range(reader: Reader, payload: Any) -> range:
    start, stop, step = reader.items(reader.list_tree(payload))
    if any(type(item) is not int for item in (start, stop, step)):
        raise Flaw("three ints are expected here")
    return range(start, stop, step)


def _slice(reader: Reader, payload: Any) -> slice:
    start, stop, step = reader.items(reader.list_tree(payload))
    return slice(start, stop, step)


readers.update(
    {
        "int": _int,
        "float": _float,
        "dict": _dict,
        "tuple": _tuple,
        "set": _set(set),
        "frozenset": _set(frozenset),
        "bytes": _binary(bytes),
        "bytearray": _binary(bytearray),
        "complex": _complex,
        "decimal": _decimal,
        "fraction": _fraction,
        "datetime": _date_time(datetime.datetime),
        "time": _date_time(datetime.time),
        "date": _date,
        "timedelta": _timedelta,
        "timezone": _timezone,
        "zoneinfo": _zoneinfo,
        "uuid": _uuid,
        "pureposixpath": _path(pathlib.PurePosixPath),
        "purewindowspath": _path(pathlib.PureWindowsPath),
        "posixpath": _path(pathlib.PosixPath),
        "windowspath": _path(pathlib.WindowsPath),
        "deque": _deque,
        "ordereddict": _ordered,
        "counter": _counter,
        "defaultdict": _defaultdict,
        "range": _range,
        "slice": _slice,
    }
)
