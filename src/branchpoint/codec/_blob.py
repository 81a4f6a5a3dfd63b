"""Small plain values, encoded without a walk: what is JSON all through, to the last type, is msgspec's work."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from branchpoint.codec._cut import BLOB
from branchpoint.codec._format import Notation
from branchpoint.codec._wiretree import INT_MAX, INT_MIN

__all__ = ["plain_blob"]

_LEVELS: Final = 16  # whatever nests deeper is walked
_REFUSED = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)


def plain_blob(notation: Notation, value: list[Any] | dict[Any, Any]) -> bytes | None:
    """The encoding of a list or dict that is one blob without any tag; None where that is not sure."""
    try:
        data = notation.encode(value)  # first, so that of a long value not every item is looked at
        return data if len(data) <= BLOB and _is_plain(value, b"$" in data, _LEVELS) else None
    except _REFUSED:
        return None


def _is_plain(value: Any, dollar: bool, levels: int) -> bool:
    """Whether there is nothing but JSON in it; `dollar` says that there is a `$`, so that a key may begin so."""
    if type(value) is dict:
        for key in value:
            if type(key) is not str or (dollar and key[:1] == "$"):
                return False
        value = value.values()
    for item in value:
        kind = type(item)
        if kind is str or item is None or kind is bool:
            continue
        if kind is int:
            if not INT_MIN <= item <= INT_MAX:
                return False
        elif kind is float:
            if item - item != 0.0:
                return False
        elif (kind is not dict and kind is not list) or not levels or not _is_plain(item, dollar, levels - 1):
            return False
    return True
