"""What an encoding remembers of a large value, so that looking at it again is quick.

A memo is only ever in memory. It holds, for every segment of a large list or dict, the tokens of its
items as they were when they were encoded, and their encoding; a segment whose items still have the
same tokens is taken as it is (see `_tokens` for why that proves that nothing changed). Whatever is
not recognised is encoded again; then equal digests show that nothing changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from branchpoint.codec._cut import Cache, Node
from branchpoint.codec._parts import Part
from branchpoint.codec._tokens import item_token, joined_tokens, lookup_key, same_items

__all__ = ["HEAVY", "LONG", "Memo", "Segment", "Shape"]

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
        return self.token is not None and same_items(self.token, items)


class Memo:
    """What is remembered of one large value; opaque, and never stored.

    Attributes:
        shape: Of what the segments are.
        segments: The segments of a long sequence, or ().
        children: Key, field or index -> the memo of a heavy value there.
        weight: All encoded bytes under it.
        cache: The nodes above the segments, and inside the last one.
    """

    __slots__ = ("_first", "cache", "children", "segments", "shape", "weight")

    def __init__(
        self,
        shape: Shape,
        segments: Sequence[Segment],
        children: dict[Any, Memo],
        weight: int,
        cache: Cache | None = None,
    ) -> None:
        self.shape = shape
        self.segments = segments
        self.children = children
        self.weight = weight
        self.cache = cache
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
                    self._first.setdefault(lookup_key(segment.first), []).append(number)
        token = item_token(items[start])
        if token is None:
            return -1
        candidates = self._first.get(lookup_key(token), ())
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
