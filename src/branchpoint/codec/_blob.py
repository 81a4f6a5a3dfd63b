"""Small plain values, encoded without a walk.

What is JSON all through comes back from JSON as it was, to the last type, order and bit. That is
quicker to try, and to compare by marshal bytes (see `_tokens`), than to look at every item.
"""

from __future__ import annotations

import marshal
from typing import Any, Final

import msgspec

from branchpoint.codec._cut import BLOB
from branchpoint.codec._format import JSON, MSGPACK, Notation

__all__ = ["plain_blob"]

_LEVELS: Final = 200  # so many brackets are surely no deeper than a value may be
_REFUSED = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)


def plain_blob(notation: Notation, value: Any) -> bytes | None:
    """The encoding of a value that is one blob without any tag; None where that is not sure."""
    try:
        data = JSON.encode(value)
        # A key that begins so would need a tag. So does a text nothing, but it is seldom met.
        if len(data) > BLOB or b'"$' in data or data.count(b"[") + data.count(b"{") > _LEVELS:
            return None
        if marshal.dumps(JSON.decode(data), 2) != marshal.dumps(value, 2):
            return None
        packed = MSGPACK.encode(value)  # refuses an int that is too large for either
        if notation is not JSON:
            data = packed
        return data if len(data) <= BLOB else None
    except _REFUSED:
        return None
