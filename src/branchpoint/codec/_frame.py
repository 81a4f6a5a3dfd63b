"""The frame of a state: the dicts above its values, of which a commit changes very few.

A small frame is one part. Of a large one, which is cut, an entry is made again only when what stands
in it is new: text, numbers and encodings are compared, dicts of the frame are looked into, everything
else is encoded each time. The bytes are always those of an encoding that remembers nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from zlib import crc32

from msgspec import Raw

from branchpoint.codec._cut import FRAME, INLINE, WHOLE, Node, inlined
from branchpoint.codec._cutter import Cut
from branchpoint.codec._encode import Walk, handlers, is_plain_keyed
from branchpoint.codec._format import Notation
from branchpoint.codec._memo import LONG, Memo
from branchpoint.codec._parts import Encoded, Part, part_of
from branchpoint.codec._refusal import Refusal

__all__ = ["Frame", "Level", "Settled", "root_of"]

_FIXED: Final = frozenset({str, int, bool, type(None)})
"""Exact types of which two equal values have one encoding."""

_SHORT: Final = INLINE // 6  # of so many characters at most, a text is never over `INLINE` bytes
_COUNT: Final = 1 << 60

_OF_VALUES: Final = frozenset({"executor_states", "edge_states"})
"""The buckets whose entries are values, each handed over encoded; so they never count as frame."""

_OPEN: Final = object()  # stands for an item that is looked into


class Settled(dict[str, Any]):
    """A dict of the frame that is not changed any more, nor anything in it: met again, it is not looked at."""

    __slots__ = ()

    def with_(self, changes: Mapping[str, Any]) -> Settled:
        """Return it with other values under some of its keys."""
        made = Settled(self)
        made.update(changes)
        return made


class Frame(dict[str, Any]):
    """A whole state of which everything but the encodings in it is plain: a few short texts, counts and keys.

    Whoever makes one vouches for that: exact types, no key that begins with `$`, and nothing but encodings
    that takes over 96 bytes.
    """

    __slots__ = ()


def root_of(walk: Walk, state: Any, before: Level | None) -> tuple[Part, Level | None]:
    """Encode a state; return the part at its root, and what to remember of it.

    Raises:
        Refusal: Something in it cannot be encoded.
    """
    level = None
    if type(state) is Frame:
        cut = _quick(walk, state)
    elif type(state) is not dict or not is_plain_keyed(state) or len(state) >= LONG:
        cut = Cut(*walk.standalone(walk.child(state, 0, None)), 0)
    else:
        cut = _whole(walk, state)
    if cut is None:
        level = _level(walk, state, 0, before)
        cut = level.cut
    return part_of(cut.data, cut.refs), level


class _Large(Exception):
    """There is more in a frame than one part may hold."""


def _quick(walk: Walk, state: Frame) -> Cut | None:
    """Encode a plain frame that is one part, or return None where it is too large for that."""
    refs: list[Part] = []
    left = WHOLE

    def held(value: Encoded) -> Raw:
        nonlocal left
        data = value.data
        left -= len(data)
        if left < 0 or len(data) > INLINE:
            raise _Large
        refs.extend(value.refs)
        return Raw(data)

    try:
        data = walk.notation.encode_with(state, held)
    except _Large:
        return None
    return Cut(data, tuple(refs), len(data)) if len(data) <= WHOLE else None


def _whole(walk: Walk, state: dict[Any, Any]) -> Cut | None:
    """Encode any frame that is one part, or return None where it is too large for that."""
    opened = _Opened(walk.notation)
    tree = opened.add(walk, state, 0, FRAME)
    if opened.left < 0:
        return None
    try:
        data = walk.notation.encode(tree)
    except UnicodeEncodeError:
        raise walk.surrogate(tree) from None
    return Cut(data, tuple(opened.refs), len(data)) if len(data) <= WHOLE else None


class _Opened:
    """A frame with the encodings of its values in it.

    Attributes:
        refs: The parts it mentions.
        left: How many bytes it leaves of those a frame may have, at most; below 0 the rest is missing.
    """

    __slots__ = ("left", "notation", "refs")

    def __init__(self, notation: Notation) -> None:
        self.notation = notation
        self.refs: list[Part] = []
        self.left = WHOLE

    def add(self, walk: Walk, value: dict[Any, Any], depth: int, deepest: int) -> dict[str, Any]:
        """Open a dict, and the dicts in it down to the deepest; return what msgspec encodes in its place."""
        tree: dict[str, Any] = {}
        key = ""
        try:
            for key, item in value.items():
                self.left -= len(key)
                if self.left < 0:
                    break
                kind = type(item)
                if kind in _DICTS and depth < deepest and is_plain_keyed(item):
                    below = 1 if depth == 0 and key in _OF_VALUES else deepest
                    tree[key] = self.add(walk, item, depth + 1, below)
                elif kind in _FIXED and _is_short(item, kind):
                    tree[key] = item
                else:
                    made = walk.standalone(walk.child(item, depth + 1, None))
                    data, refs = inlined(walk.notation, *made)
                    self.left -= len(data)
                    self.refs += refs
                    tree[key] = Raw(data)
        except Refusal as refusal:
            refusal.steps.append(key)
            raise
        return tree


_DICTS: Final[tuple[type[Any], ...]] = (dict, Settled, Frame)


def _is_short(item: Any, kind: type[Any]) -> bool:
    """Whether an item of a fixed type is surely written as it is, in few bytes."""
    if kind is str:
        return len(item) <= _SHORT
    return kind is not int or 0 <= item <= _COUNT


class _Entry:
    """One entry of a level: what stood in it, and its encoding."""

    __slots__ = ("item", "node", "under", "weight")

    def __init__(self, item: Any, node: Node, weight: int, under: Level | Memo | None) -> None:
        self.item = item
        self.node = node
        self.weight = weight
        self.under = under


class Level:
    """A dict of the frame as it was encoded last."""

    __slots__ = ("cut", "entries")

    def __init__(self, cut: Cut, entries: dict[str, _Entry]) -> None:
        self.cut = cut
        self.entries = entries


def _level(walk: Walk, value: dict[Any, Any], depth: int, before: Level | None) -> Level:
    """Encode a dict of a frame that is cut, of fewer than `LONG` entries with plain keys."""
    known = {} if before is None else before.entries
    entries: dict[str, _Entry] = {}
    same = before is not None and len(known) == len(value)
    for key, item in value.items():
        entry = known.get(key)
        if entry is not None:
            kind = type(item)
            if (
                item is entry.item
                if kind is Encoded or kind is Settled
                else kind in _FIXED and _equal(item, entry.item)
            ):
                entries[key] = entry
                continue
        try:
            made = _entry(walk, key, item, depth, entry)
        except Refusal as refusal:
            refusal.steps.append(key)
            raise
        except UnicodeEncodeError:
            raise walk.surrogate({key: None}) from None
        same = same and entry is not None and made.node.data == entry.node.data
        entries[key] = made
    if before is not None and same and list(entries) == list(known):
        before.entries = entries
        return before
    return Level(_gathered(walk, entries), entries)


def _equal(item: Any, known: Any) -> bool:
    return type(item) is type(known) and bool(item == known)


def _gathered(walk: Walk, entries: dict[str, _Entry]) -> Cut:
    nodes = []
    weight = 0
    for entry in entries.values():
        nodes.append(entry.node)
        weight += entry.weight
    data, refs = walk.gathered(nodes, mapping=True)
    return Cut(data, refs, weight)


def _entry(walk: Walk, key: str, item: Any, depth: int, known: _Entry | None) -> _Entry:
    kind = type(item)
    under = None if known is None else known.under
    if kind is Encoded and len(item.data) <= INLINE:
        return _Entry(item, _node(walk, key, item.data, item.refs), len(item.data), None)
    if kind in _DICTS and depth < FRAME and len(item) < LONG and is_plain_keyed(item):
        level = _level(walk, item, depth + 1, under if type(under) is Level else None)
        if known is not None and level is under:
            return known
        data, refs = inlined(walk.notation, level.cut.data, level.cut.refs)
        return _Entry(
            item if kind is Settled else _OPEN, _node(walk, key, data, refs), level.cut.weight, level
        )
    tree = walk.child(item, depth + 1, under if type(under) is Memo else None)
    if kind in _FIXED and tree is item:
        data = walk.notation.encode(item)
        if len(data) <= INLINE:
            return _Entry(item, _node(walk, key, data, ()), len(data), None)
    node, size = walk.item(tree, key)
    if type(tree) is Cut:
        return _Entry(item, node, tree.weight, tree.memo)
    return _Entry(item, node, size, None)


def _node(walk: Walk, key: str, data: bytes, refs: tuple[Part, ...]) -> Node:
    entry = walk.notation.entry(key, data)
    return Node(entry, refs, crc32(entry))


handlers[Settled] = Walk.dict_
handlers[Frame] = Walk.dict_
