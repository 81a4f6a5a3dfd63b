"""How the parts of a commit are packed into items and requests that the service takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from json.encoder import encode_basestring_ascii
from typing import NamedTuple

from branchpoint.storage.cosmos._items import Data, data_of, encoded_size

__all__ = ["REQUEST_BYTES", "Bundle", "packed"]

REQUEST_BYTES = 1_000_000
"""The most of one request. The service takes 2 MB; aiohttp warns of a text over 1 MiB, which the SDK gives it."""

_ITEM_BYTES = REQUEST_BYTES - 4_000  # the rest of the item
_PIECE_BYTES = 600_000  # as base64 it still fits into an item


class Bundle(NamedTuple):
    """Parts that go into one item.

    Attributes:
        piece: Which piece of how many of its one part this is.
    """

    names: list[str]
    sizes: list[int]
    data: list[Data]
    piece: tuple[int, int] | None = None


def packed(parts: Mapping[str, bytes], room: int) -> tuple[Bundle, list[Bundle]]:
    """Return what goes into an item that has room for so many bytes, and what goes ahead of it."""
    ahead: list[Bundle] = []
    bundle, used = Bundle([], [], []), 0
    for name, part in parts.items():
        if len(part) > _PIECE_BYTES:
            ahead += _pieces(name, part)
            continue
        data = data_of(part)
        size = len(name) + len(str(len(part))) + _size(data) + 5  # quotes and commas
        if used + size > _ITEM_BYTES:
            ahead.append(bundle)
            bundle, used = Bundle([], [], []), 0
        bundle.names.append(name)
        bundle.sizes.append(len(part))
        bundle.data.append(data)
        used += size
    if used > room:
        ahead.append(bundle)
        bundle = Bundle([], [], [])
    return bundle, ahead


def _pieces(name: str, part: bytes) -> Iterator[Bundle]:
    starts = range(0, len(part), _PIECE_BYTES)
    for number, start in enumerate(starts):
        piece = part[start : start + _PIECE_BYTES]
        yield Bundle([name], [len(piece)], [data_of(piece)], (number, len(starts)))


def _size(data: Data) -> int:
    return len(encode_basestring_ascii(data)) if isinstance(data, str) else encoded_size(data)
