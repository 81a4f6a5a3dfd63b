"""The frame of a state: the dicts above its values, of which a commit changes very few.

A small frame is one part. Of a large one, which is cut, an entry is made again only when what stands
in it is new: text, numbers and encodings are compared, dicts of the frame are looked into, everything
else is encoded each time. The bytes are always those of an encoding that remembers nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final
from zlib import crc32

from msgspec import Raw

from branchpoint.codec._cut import (
    FRAME,
    INLINE,
    LEVELS,
    SEGMENT_MASK,
    SEGMENT_MAX,
    WHOLE,
    Cache,
    Node,
    fold,
    inlined,
)
from branchpoint.codec._cutter import Cut
from branchpoint.codec._encode import Walk, handlers, is_plain_keyed
from branchpoint.codec._format import Notation
from branchpoint.codec._memo import LONG, Memo
from branchpoint.codec._parts import Encoded, Part, part_of
from branchpoint.codec._refusal import Refusal

__all__ = ["Frame", "Level", "Settled", "quick_root", "root_of"]

_FIXED: Final = frozenset({str, int, bool, type(None)})
"""Exact types of which two equal values have one encoding."""

_SHORT: Final = INLINE // 6  # of so many characters at most, a text is never over `INLINE` bytes
_COUNT: Final = 1 << 60

_OF_VALUES: Final = frozenset({"executor_states", "edge_states"})
"""The buckets whose entries are values, each handed over encoded; so they never count as frame."""

_OPEN: Final = object()  # stands for an item that is looked into


class Settled(dict[str, Any]):
    """A dict of the frame that is not changed any more, nor anything in it: met again, it is not looked at.

    Of one that was made `with_` other values, only these are.
    """

    __slots__ = ("_before", "_changed")

    def __init__(self, *given: Any, **entries: Any) -> None:
        super().__init__(*given, **entries)
        self._before: Settled | None = None
        self._changed: tuple[str, ...] = ()

    def with_(self, changes: Mapping[str, Any]) -> Settled:
        """Return it with other values under some of its keys."""
        made = Settled(self)
        made.update(changes)
        made._before, made._changed = self, tuple(changes)
        self._before = None  # so that only one is kept
        return made

    def changed_since(self, other: object) -> tuple[str, ...] | None:
        """Return the keys under which it differs from another of the same keys; None if that is not known."""
        if other is None:
            return None
        return () if other is self else self._changed if other is self._before else None


class Frame(dict[str, Any]):
    """A whole state of which everything but the encodings in it is plain: a few short texts, counts and keys.

    Whoever makes one vouches for that: exact types, no key that begins with `$`, and nothing but encodings
    that takes over 96 bytes.
    """

    __slots__ = ()


def root_of(walk: Walk, state: Any, before: Level | None) -> tuple[Part, Level | None]:
    """Encode a state; return the part at its root, and what to remember of it.

    A `Frame` is given to `quick_root` first.

    Raises:
        Refusal: Something in it cannot be encoded.
    """
    if type(state) is dict and len(state) < LONG and is_plain_keyed(state):
        part = _whole(walk, state)
        if part is not None:
            return part, None
    level = _level(walk, state, 0, before) if type(state) in _DICTS else None
    if level is None:
        return part_of(*walk.standalone(walk.child(state, 0, None))), None
    return part_of(level.data, level.refs), level


class _Large(Exception):
    """There is more in a frame than one part may hold."""


def quick_root(notation: Notation, state: Frame) -> Part | None:
    """Encode a plain frame that is one part, or return None where it is too large for that."""
    refs: list[Part] = []
    left = WHOLE

    def held(value: Encoded) -> Raw:
        nonlocal left
        data = value.data
        left -= len(data)
        if left < 0 or len(data) > INLINE:
            raise _Large
        if value.refs:
            refs.extend(value.refs)
        return Raw(data)

    try:
        data = notation.encode_with(state, held)
    except (_Large, RecursionError):
        return None
    return part_of(data, tuple(refs)) if len(data) <= WHOLE else None


def _whole(walk: Walk, state: dict[Any, Any]) -> Part | None:
    """Encode any frame that is one part, or return None where it is too large for that."""
    opened = _Opened(walk.notation)
    tree = opened.add(walk, state, 0, FRAME)
    if opened.left < 0:
        return None
    try:
        data = walk.notation.encode(tree)
    except UnicodeEncodeError:
        raise walk.surrogate(tree) from None
    return part_of(data, tuple(opened.refs)) if len(data) <= WHOLE else None


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
        if 2 * len(value) > WHOLE:  # an entry takes so much at least
            self.left = -1
            return tree
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

    __slots__ = ("item", "node", "under")

    def __init__(self, item: Any, node: Node, under: Level | Memo | None = None) -> None:
        self.item = item
        self.node = node
        self.under = under


class _Run:
    """Consecutive entries that are one segment (see `_cut`), and what they became.

    Attributes:
        closed: Whether an entry ended it, rather than the end of the dict.
        cache: The nodes inside.
        node: The segment as it stands in the tree above, where there is one.
    """

    __slots__ = ("cache", "closed", "data", "entries", "node", "refs")

    def __init__(self, notation: Notation, entries: list[_Entry], closed: bool, cache: Cache) -> None:
        self.entries = entries
        self.closed = closed
        self.cache = cache
        self.data, self.refs = fold(notation, [entry.node for entry in entries], True, True, 0, cache)
        self.node: Node | None = None

    def stands(self, entries: list[_Entry], start: int) -> bool:
        """Whether it is the segment that begins there."""
        end = start + len(self.entries)
        return self.entries == entries[start:end] and (self.closed or end == len(entries))

    def patched(self, notation: Notation, place: int, entry: _Entry) -> _Run | None:
        """Return it with another entry at one place; None where it would end elsewhere."""
        if _ends(entry) != _ends(self.entries[place]):
            return None
        entries = self.entries.copy()
        entries[place] = entry
        return _Run(notation, entries, self.closed, Cache(self.cache))

    def above(self, notation: Notation) -> Node:
        """Make the node of the tree above."""
        self.node = Node(*inlined(notation, self.data, self.refs), self.entries[-1].node.hash)
        return self.node


class Level:
    """A dict of the frame as it was encoded last.

    Attributes:
        value: The dict itself, if nothing in it changes.
        entries: Its entries by key.
        runs: Its segments.
        cache: The nodes above them.
        data: Its encoding.
        refs: The parts that mentions.
    """

    __slots__ = ("_places", "_starts", "cache", "data", "entries", "refs", "runs", "value")

    def __init__(self, value: Settled | None = None, entries: dict[str, _Entry] | None = None) -> None:
        self.value = value
        self.entries = {} if entries is None else entries
        self.runs: list[_Run] = []
        self.cache: Cache | None = None
        self.data = b""
        self.refs: tuple[Part, ...] = ()
        # Where each entry and each segment stands; made when it is asked for.
        self._places: dict[str, int] = {}
        self._starts: list[int] = []

    def take(self, before: Level) -> None:
        """Be encoded as an earlier one, whose entries have the same encodings."""
        self.runs, self.cache, self.data, self.refs = before.runs, before.cache, before.data, before.refs

    def patch(self, notation: Notation, before: Level, changed: Sequence[str]) -> bool:
        """Take over the segments of an earlier one of the same keys, but for the few that changed.

        False where that cannot be, because a segment ends elsewhere.
        """
        if not before._places:
            before._places = {key: place for place, key in enumerate(before.entries)}
            before._starts = list(accumulate([len(run.entries) for run in before.runs], initial=0))[:-1]
        places, starts = self._places, self._starts = before._places, before._starts
        self.runs = before.runs.copy()
        for key in changed:
            number = bisect_right(starts, places[key]) - 1
            run = self.runs[number].patched(notation, places[key] - starts[number], self.entries[key])
            if run is None:
                return False
            self.runs[number] = run
        self._join(notation, before)
        return True

    def gather(self, notation: Notation, before: Level) -> None:
        """Cut it into segments; those that have the very entries of earlier ones are taken over."""
        entries = list(self.entries.values())
        known = {run.entries[0]: run for run in before.runs}
        self.runs, self._places, self._starts = [], {}, []
        start = 0
        while start < len(entries):
            run = known.get(entries[start])
            if run is None or not run.stands(entries, start):
                run = _run(notation, entries, start, Cache(None if run is None else run.cache))
            self.runs.append(run)
            start += len(run.entries)
        self._join(notation, before)

    def _join(self, notation: Notation, before: Level) -> None:
        if len(self.runs) == 1:
            self.data, self.refs = self.runs[0].data, self.runs[0].refs
        else:
            self.cache = Cache(before.cache)
            nodes = [run.node or run.above(notation) for run in self.runs]
            self.data, self.refs = fold(notation, nodes, True, not nodes, LEVELS, self.cache)


_FEW: Final = 4


def _run(notation: Notation, entries: list[_Entry], start: int, cache: Cache) -> _Run:
    """The segment that begins there."""
    most = entries[start : start + SEGMENT_MAX]
    for place, entry in enumerate(most, 1):
        if _ends(entry):
            return _Run(notation, most[:place], True, cache)
    return _Run(notation, most, len(most) == SEGMENT_MAX, cache)


def _ends(entry: _Entry) -> bool:
    """Whether a segment ends with an entry."""
    return not entry.node.hash & SEGMENT_MASK


def _level(walk: Walk, value: dict[Any, Any], depth: int, before: Level | None) -> Level | None:
    """Encode a dict of a frame that is cut, or return None where it has keys that are not plain."""
    before = before or _NOTHING
    known = before.entries
    settled = value if type(value) is Settled else None
    changed = None if settled is None else settled.changed_since(before.value)
    entries: dict[str, _Entry] = {}
    if changed is not None:
        entries, value = known.copy(), {key: value[key] for key in changed}
    elif not is_plain_keyed(value):
        return None
    same = changed is not None or len(known) == len(value)
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
    level = Level(settled, entries)
    if same and known and (changed is not None or list(entries) == list(known)):
        level.take(before)
    elif not changed or len(changed) > _FEW or not level.patch(walk.notation, before, changed):
        level.gather(walk.notation, before)
    return level


_NOTHING: Final = Level()


def _equal(item: Any, known: Any) -> bool:
    return type(item) is type(known) and bool(item == known)


def _entry(walk: Walk, key: str, item: Any, depth: int, known: _Entry | None) -> _Entry:
    kind = type(item)
    under = None if known is None else known.under
    if kind is Encoded and len(item.data) <= INLINE:
        return _Entry(item, _node(walk, key, item.data, item.refs))
    if kind in _DICTS and depth < FRAME:
        earlier = under if type(under) is Level else None
        level = _level(walk, item, depth + 1, earlier)
        if level is not None:
            if known is not None and earlier is not None and level.data is earlier.data:
                node = known.node
            else:
                node = _node(walk, key, *inlined(walk.notation, level.data, level.refs))
            return _Entry(item if kind is Settled else _OPEN, node, level)
    tree = walk.child(item, depth + 1, under if type(under) is Memo else None)
    if kind in _FIXED and tree is item:
        data = walk.notation.encode(item)
        if len(data) <= INLINE:
            return _Entry(item, _node(walk, key, data, ()))
    node, _ = walk.item(tree, key)
    return _Entry(item, node, tree.memo if type(tree) is Cut else None)


def _node(walk: Walk, key: str, data: bytes, refs: tuple[Part, ...]) -> Node:
    entry = walk.notation.entry(key, data)
    return Node(entry, refs, crc32(entry))


handlers[Settled] = Walk.dict_
handlers[Frame] = Walk.dict_
