"""What an encoding remembers of a large value, so that looking at it again is quick.

A memo is only ever in memory. It holds, for every segment of a large list or dict, the marshal bytes
of its items as they were when they were encoded; a segment whose items still marshal to the same
bytes is taken as it is. That is a proof only where the first encoding met nothing but exact `None`,
bool, int, float, str, list, dict and tuple: among these, equal marshal bytes (version 2, which keeps
no identities) mean equal types, equal values and equal order, so 1, 1.0 and True, -0.0 and 0.0 all
differ. Items that were handed over already encoded are recognised by identity, and items of a
registered type by the `fingerprint=` it was registered with.
Whatever is not recognised is encoded again; then equal digests show that nothing changed.
"""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from operator import is_
from struct import pack
from typing import Any, Final, Literal

from branchpoint.codec._cut import Node
from branchpoint.codec._parts import Encoded, Part

__all__ = ["HEAVY", "LONG", "Memo", "Segment", "Shape", "item_token", "joined_tokens"]

Shape = Literal["list", "dict", "pairs"]
"""A list, a dict with plain keys, or the items of any other mapping."""

HEAVY: Final = 4096
"""From this many encoded bytes on, a value has a memo of its own."""

LONG: Final = 32
"""From this many items on, a heavy sequence is remembered segment by segment."""

_NEAR: Final = 4  # how many segments with an equal first item are tried; equal items must not cost n * n


class Segment:
    """Consecutive items and their encoding; see `_cut` for where it ends.

    Attributes:
        count: How many items.
        tokens: One token per item, or None when any item has none.
        token: What recognises the whole segment: marshal bytes, or the tuple of tokens.
        nodes: The encoded items, kept only while the segment can still grow.
        closed: Whether an item ended it, rather than the end of the sequence.
        node: The segment as a node of the tree above it.
        whole: The bytes its items take in an uncut encoding, or None if one of them is cut.
        weight: All encoded bytes under it.
    """

    __slots__ = (
        "closed", "count", "data", "first", "node", "nodes", "refs", "token", "tokens", "weight", "whole"
    )  # fmt: skip

    def __init__(
        self,
        tokens: list[Any] | None,
        nodes: list[Node],
        closed: bool,
        data: bytes,
        refs: tuple[Part, ...],
        node: Node,
        whole: int | None,
        weight: int,
    ) -> None:
        self.count = len(nodes)
        self.token = joined_tokens(tokens)
        self.first = None if self.token is None or tokens is None else tokens[0]
        # The items of a finished segment are never looked at again.
        self.tokens = None if closed else tokens
        self.nodes = None if closed else nodes
        self.closed = closed
        self.data = data
        self.refs = refs
        self.node = node
        self.whole = whole
        self.weight = weight

    def matches(self, items: Sequence[Any]) -> bool:
        """Whether these items are, unchanged, the ones that were encoded."""
        if len(items) != self.count:
            return False
        token = self.token
        if type(token) is bytes:
            try:
                return marshal.dumps(items, 2) == token
            except ValueError:
                return False
        if token is None:
            return False
        if type(token[0]) is Encoded:
            return all(map(is_, token, items))
        return all(_same_entry(known, item) for known, item in zip(token, items, strict=True))


class Memo:
    """What is remembered of one large value; opaque, and never stored.

    Attributes:
        shape: Of what the segments are.
        segments: The segments of a long sequence, or ().
        children: Key, field or index -> the memo of a heavy value there.
        weight: All encoded bytes under it.
    """

    __slots__ = ("_first", "children", "segments", "shape", "weight")

    def __init__(
        self, shape: Shape, segments: Sequence[Segment], children: dict[Any, Memo], weight: int
    ) -> None:
        self.shape = shape
        self.segments = segments
        self.children = children
        self.weight = weight
        self._first: dict[Any, list[int]] | None = None

    def find(self, items: Sequence[Any], start: int, place: int) -> int:
        """Return the number of the segment whose items stand at `start`, or -1.

        `place` is the segment expected there; others are looked up by their first item.
        """
        segments = self.segments
        if place < len(segments) and segments[place].matches(items[start : start + segments[place].count]):
            return place
        if self._first is None:
            self._first = {}
            for number, segment in enumerate(segments):
                if segment.first is not None:
                    self._first.setdefault(_key(segment.first), []).append(number)
        token = item_token(items[start])
        if token is None:
            return -1
        candidates = self._first.get(_key(token), ())
        tried = 0
        for number in candidates:
            if number == place or (len(candidates) > _NEAR and number < place):
                continue
            if segments[number].matches(items[start : start + segments[number].count]):
                return number
            tried += 1
            if tried == _NEAR:
                break
        return -1


def item_token(item: Any) -> Any:
    """What recognises one item when it is met again: marshal bytes, the item itself, or None."""
    kind = type(item)
    if kind is Encoded or (kind is tuple and len(item) == 2 and type(item[1]) is Encoded and type(item[0]) is str):
        return item
    try:
        return marshal.dumps(item, 2)
    except ValueError:
        return None


def joined_tokens(tokens: list[Any] | None) -> Any:
    """The token of a segment: of a list of items, marshal bytes are the bytes of its items in a row."""
    if not tokens:
        return None
    if all(type(token) is bytes for token in tokens):
        return b"[" + pack("<i", len(tokens)) + b"".join(tokens)
    kind = type(tokens[0])
    if kind is not bytes and all(type(token) is kind for token in tokens):
        return tuple(tokens)
    return None


def _key(token: Any) -> Any:
    if type(token) is tuple:
        return token[0], id(token[1])
    return token if type(token) is bytes else id(token)


def _same_entry(known: Any, item: Any) -> bool:
    """Whether an entry of a dict has the same key and the very same encoded value."""
    return known[1] is item[1] and type(item[0]) is str and known[0] == item[0]
