"""What an encoding remembers of a large value, so that looking at it again is quick.

A memo is only ever in memory. It holds, for every segment of a large list or dict, the tokens of its
items as they were when they were encoded, and their encoding; a segment whose items still have the
same tokens is taken as it is (see `_tokens` for why that proves that nothing changed). Whatever is
not recognised is encoded again; then equal digests show that nothing changed.

Of a value that is *owned*, nothing ever changes in place. Then the very same items are proof enough,
and tokens are made only when other items have to be compared with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_, itemgetter
from typing import Any, Final, Literal

from branchpoint.codec._cut import Cache, Node
from branchpoint.codec._parts import Encoded, Part
from branchpoint.codec._tokens import item_token, joined_tokens, lookup_key, proven_tokens, same_items

__all__ = ["HEAVY", "LONG", "Memo", "Prefix", "Segment", "Shape"]

Shape = Literal["list", "dict", "pairs"]
"""A list, a dict with plain keys, or the items of any other mapping."""

HEAVY: Final = 4096
"""From this many encoded bytes on, a value has a memo of its own."""

LONG: Final = 32
"""From this many items on, a heavy sequence is remembered segment by segment."""

_UNKNOWN: Final = object()
_KEY: Final = itemgetter(0)
_VALUE: Final = itemgetter(1)
_NEAR: Final = 4  # how many segments with an equal first item are tried; equal items must not cost n * n


class Segment:
    """Consecutive items and their encoding; see `_cut` for where it ends.

    Attributes:
        count: How many items.
        tokens: One token per item, or None when any item has none.
        owned: The items themselves and how many foreign values each held, where nothing in them changes.
        nodes: The encoded items, kept while they are likely to be used again.
        closed: Whether an item ended it, rather than the end of the sequence.
        node: The segment as a node of the tree above it.
        whole: The bytes its items take in an uncut encoding, or None if one of them is cut.
        weight: All encoded bytes under it.
    """

    __slots__ = (
        "_token", "closed", "count", "data", "node", "nodes", "owned", "refs", "tokens", "weight", "whole"
    )  # fmt: skip

    def __init__(
        self,
        tokens: list[Any] | None,
        owned: tuple[list[Any], list[int]] | None,
        nodes: list[Node],
        closed: bool,
        data: bytes,
        refs: tuple[Part, ...],
        node: Node,
        whole: int | None,
        weight: int,
    ) -> None:
        self.count = len(nodes)
        self.tokens = tokens
        self.owned = owned
        self._token: Any = _UNKNOWN
        self.nodes = None if closed else nodes
        self.closed = closed
        self.data = data
        self.refs = refs
        self.node = node
        self.whole = whole
        self.weight = weight
        if owned is None:
            self.token()  # so that a finished segment need not keep the tokens of its items

    def matches(self, items: Sequence[Any], shape: Shape) -> bool:
        """Whether these items are, unchanged, the ones that were encoded."""
        if len(items) != self.count:
            return False
        if self.owned is not None:
            known = self.owned[0]
            if _the_same(known, items, shape):
                return True
            if type(known[0][1] if shape == "dict" else known[0]) is Encoded:
                return False  # another encoding of the same value is met too seldom to be looked for
        token = self.token()
        return token is not None and same_items(token, items)

    def token(self) -> Any:
        """What recognises the whole segment: marshal bytes, or the tuple of tokens; None for nothing."""
        if self._token is _UNKNOWN:
            if self.owned is not None:
                self.tokens = proven_tokens(*self.owned)
            self._token = joined_tokens(self.tokens)
            if self.closed and type(self._token) is bytes:
                self.tokens = self.tokens and self.tokens[:1]  # the others are in the whole
        return self._token

    def first(self) -> Any:
        """The token of the first item, by which a segment that moved is found; None for nothing."""
        if self.owned is not None:
            return item_token(self.owned[0][0])
        return None if self.token() is None or not self.tokens else self.tokens[0]


def _the_same(known: Sequence[Any], items: Sequence[Any], shape: Shape) -> bool:
    """Whether items are the very same objects; an entry of a dict is its key and the object under it."""
    if shape != "dict":
        return all(map(is_, known, items))
    keys = list(map(_KEY, items))
    return (
        all(map(is_, map(_VALUE, known), map(_VALUE, items)))
        and keys == list(map(_KEY, known))
        and set(map(type, keys)) == {str}
    )


class Prefix:
    """The finished segments at the beginning of a list, told at one glance when it only grew.

    Attributes:
        items: The list, whose first `count` items they are.
        segments: How many they are.
        weight: All their encoded bytes.
        whole: The bytes their items take in an uncut encoding, or None if one of them is cut.
    """

    __slots__ = ("count", "items", "segments", "weight", "whole")

    def __init__(self) -> None:
        self.items: Sequence[Any] = ()
        self.count = self.segments = self.weight = 0
        self.whole: int | None = 0

    def stands(self, items: Sequence[Any]) -> bool:
        """Whether a list begins with the very items."""
        count = self.count
        return 0 < count <= len(items) and all(map(is_, self.items[:count], items))

    def grown(self, segments: Sequence[Segment], items: Sequence[Any]) -> Prefix:
        """Return it with the segments that follow and are finished, of these items."""
        grown = Prefix()
        grown.items = items
        if not items:
            return grown
        grown.count, grown.segments = self.count, self.segments
        grown.weight, grown.whole = self.weight, self.whole
        for segment in segments[self.segments :]:
            if not segment.closed:
                break
            grown.count += segment.count
            grown.segments += 1
            grown.weight += segment.weight
            if grown.whole is not None:
                grown.whole = None if segment.whole is None else grown.whole + segment.whole
        return grown


_NO_PREFIX: Final = Prefix()


class Memo:
    """What is remembered of one large value; opaque, and never stored.

    Attributes:
        shape: Of what the segments are.
        segments: The segments of a long sequence, or ().
        children: Key, field or index -> the memo of a heavy value there.
        weight: All encoded bytes under it.
        cache: The nodes above the segments, and inside the last one.
        prefix: Of a list in which nothing changes, the segments that need not be looked at again.
    """

    __slots__ = ("_first", "cache", "children", "prefix", "segments", "shape", "weight")

    def __init__(
        self,
        shape: Shape,
        segments: Sequence[Segment],
        children: dict[Any, Memo],
        weight: int,
        cache: Cache | None = None,
        prefix: Prefix = _NO_PREFIX,
    ) -> None:
        self.prefix = prefix
        self.shape = shape
        self.segments = segments
        self.children = children
        self.weight = weight
        self.cache = cache
        self._first: dict[Any, list[int]] | None = None

    def find(self, items: Sequence[Any], start: int, place: int) -> int:
        """Return the number of the segment whose items stand at `start`, or -1.

        Segments are looked up by their first item; the one at `place` was tried already.
        """
        segments = self.segments
        shape = self.shape
        if self._first is None:
            self._first = {}
            for number, segment in enumerate(segments):
                first = segment.first()
                if first is not None:
                    self._first.setdefault(lookup_key(first), []).append(number)
        token = item_token(items[start])
        if token is None:
            return -1
        candidates = self._first.get(lookup_key(token), ())
        tried = 0
        for number in candidates:
            if number == place or (len(candidates) > _NEAR and number < place):
                continue
            if segments[number].matches(items[start : start + segments[number].count], shape):
                return number
            tried += 1
            if tried == _NEAR:
                break
        return -1
