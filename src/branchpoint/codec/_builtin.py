"""The builtin kinds as wire trees: how each is written.

Exact types only. Text forms are canonical, so that reading can check them by writing again:
ISO 8601 for times, `str` for decimals, hexadecimal for large integers.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import pathlib
import uuid
import zoneinfo
from typing import Any

from branchpoint.codec._encode import Walk, handlers
from branchpoint.codec._memo import Memo
from branchpoint.codec._refusal import Refusal
from branchpoint.codec._tags import FACTORY_NAMES
from branchpoint.codec._zones import fixed_zone, zone_flaw
from branchpoint.errors import UnsupportedValueError

__all__ = ["date_time_payload", "decimal_text", "sorted_trees", "zone_payload"]


def decimal_text(value: decimal.Decimal) -> str:
    """The text of a Decimal, whatever the context in force says about letters."""
    text = str(value)
    return text.upper() if value.is_finite() else text


def zone_payload(zone: Any) -> Any:
    """The tag of a time zone that can be kept."""
    if type(zone) is zoneinfo.ZoneInfo:
        return {"$": "zoneinfo", "v": zone.key}
    offset = zone.utcoffset(None)
    micros = (offset.days * 86400 + offset.seconds) * 1_000_000 + offset.microseconds
    named = len(zone.__getinitargs__()) > 1
    return {"$": "timezone", "v": [micros, zone.tzname(None)] if named else [micros]}


def date_time_payload(value: Any) -> Any:
    """ISO text where that says it all (naive or a common offset), else [local text, zone, fold]."""
    zone = fixed_zone(value.tzinfo)
    if value.fold == 0 and (zone is None or (type(zone) is datetime.timezone and _common(zone))):
        return value.isoformat()
    if zone is not None and (flaw := zone_flaw(zone)) is not None:
        raise Refusal(UnsupportedValueError, value, flaw)
    tag = None if zone is None else zone_payload(zone)
    return [value.replace(tzinfo=None, fold=0).isoformat(), tag, value.fold]


def _common(zone: datetime.timezone) -> bool:
    """Without a name and of whole seconds; `fromisoformat` loses an offset of microseconds alone."""
    if zone is datetime.UTC:
        return True
    return len(zone.__getinitargs__()) == 1 and not zone.utcoffset(None).microseconds  # type: ignore[attr-defined]


def sorted_trees(walk: Walk, trees: list[Any]) -> list[Any]:
    """The trees of a set's items in their canonical order: by the bytes of their encodings."""
    return sorted(trees, key=lambda tree: walk.standalone(tree)[0])


def _tuple(walk: Walk, value: tuple[Any, ...], depth: int, memo: Memo | None) -> Any:
    return walk.tag_list("tuple", list(value), depth, memo)


def _set(name: str) -> Any:
    def encode(walk: Walk, value: Any, depth: int, memo: Memo | None) -> Any:
        walk.foreign += 1
        return walk.tag({"$": name}, walk.set_items(list(value), depth, sorted_trees))

    return encode


def _text(name: str, text: Any) -> Any:
    def encode(walk: Walk, value: Any, depth: int, memo: Memo | None) -> Any:
        walk.foreign += 1
        payload = text(value)
        return walk.scalar(name, payload, len(payload) if type(payload) is str else 3)

    return encode


def _binary(name: str) -> Any:
    def encode(walk: Walk, value: Any, depth: int, memo: Memo | None) -> Any:
        walk.foreign += 1
        return walk.scalar(name, bytes(value), len(value))

    return encode


def _numbers(name: str, numbers: Any) -> Any:
    def encode(walk: Walk, value: Any, depth: int, memo: Memo | None) -> Any:
        walk.foreign += 1
        return walk.tag_list(name, numbers(value), max(depth, 3), None)

    return encode


def _zone(walk: Walk, value: Any, depth: int, memo: Memo | None) -> Any:
    walk.foreign += 1
    if (flaw := zone_flaw(value)) is not None:
        raise Refusal(UnsupportedValueError, value, flaw)
    walk.size = 5
    return zone_payload(value)


def _deque(walk: Walk, value: collections.deque[Any], depth: int, memo: Memo | None) -> Any:
    walk.foreign += 1
    # The items are a list of their own inside the payload; steps and memos lead to them directly.
    items = walk.list_(list(value), max(depth, 3) + 1, memo)
    return walk.wrapped("deque", value.maxlen, items)


def _mapping(name: str) -> Any:
    def encode(walk: Walk, value: Any, depth: int, memo: Memo | None) -> Any:
        walk.foreign += 1
        _bare(value)
        # Its own items(): an OrderedDict keeps its order beside the dict, which does not see move_to_end.
        return walk.tag_pairs(name, value.items(), depth, memo)

    return encode


def _defaultdict(walk: Walk, value: collections.defaultdict[Any, Any], depth: int, memo: Memo | None) -> Any:
    walk.foreign += 1
    factory: Any = value.default_factory
    name = None
    if factory is not None:
        name = FACTORY_NAMES.get(factory) if isinstance(factory, type) else None
        if name is None:
            raise Refusal(
                UnsupportedValueError,
                value,
                f"its default factory {factory!r} is none of {', '.join(sorted(FACTORY_NAMES.values()))}",
            )
    return walk.wrapped("defaultdict", name, walk.pairs(list(value.items()), max(depth, 3) + 1, memo))


def _bare(value: Any) -> None:
    if value.__dict__:
        raise Refusal(
            UnsupportedValueError,
            value,
            f"it has attributes of its own ({', '.join(sorted(value.__dict__))})",
        )


handlers.update(
    {
        tuple: _tuple,
        set: _set("set"),
        frozenset: _set("frozenset"),
        bytes: _binary("bytes"),
        bytearray: _binary("bytearray"),
        complex: _numbers("complex", lambda value: [value.real, value.imag]),
        decimal.Decimal: _text("decimal", decimal_text),
        fractions.Fraction: _numbers("fraction", lambda value: [value.numerator, value.denominator]),
        datetime.date: _text("date", lambda value: value.isoformat()),
        datetime.datetime: _text("datetime", date_time_payload),
        datetime.time: _text("time", date_time_payload),
        datetime.timedelta: _numbers(
            "timedelta", lambda value: [value.days, value.seconds, value.microseconds]
        ),
        datetime.timezone: _zone,
        zoneinfo.ZoneInfo: _zone,
        uuid.UUID: _text("uuid", str),
        pathlib.PurePosixPath: _text("pureposixpath", str),
        pathlib.PureWindowsPath: _text("purewindowspath", str),
        pathlib.PosixPath: _text("posixpath", str),
        pathlib.WindowsPath: _text("windowspath", str),
        collections.deque: _deque,
        collections.OrderedDict: _mapping("ordereddict"),
        collections.Counter: _mapping("counter"),
        collections.defaultdict: _defaultdict,
        range: _numbers("range", lambda value: [value.start, value.stop, value.step]),
        slice: _numbers("slice", lambda value: [value.start, value.stop, value.step]),
    }
)
