"""Where a sequence is cut into parts: pure functions of the encoded items.

The rules, all in one place:

- An encoding of up to `INLINE` bytes stands inline in its parent, whatever it is.
- A value whose whole encoding has up to `BLOB` bytes is not cut inside; as a child of a cut parent
  it becomes a part of its own when it is over `INLINE`. Text and bytes are never cut.
- The payload of a tag that has a text of over `TEXT` characters among its entries is cut in any case, so
  that the text is a part of its own, which is stored once wherever it stands.
- The frame (depth up to `FRAME`: root, bucket, key) is one part when it has up to `WHOLE` bytes with
  every value over `INLINE` bytes as a part; otherwise all of it is cut.
- A cut list or dict is a tree of nodes. Its items are first divided into *segments*, which end after
  an item whose hash has its six lowest bits zero, or after `SEGMENT_MAX` items. Inside a segment,
  items are grouped into nodes, nodes into nodes, until what is left has up to `ROOT` bytes: that is
  the segment's own node. The segments are grouped by the same rule into the root.
- A node ends after a child once it holds `NODE_MIN` bytes and one bit of the hash says so, or when
  it holds `NODE_MAX` bytes. The hash of a node is that of its last item, and every level looks at
  another bit of it. So a change inside a node moves no boundary above it, which is better than
  hashing nodes by their content: an edit then never regroups its neighbours.
- A group of one node is that node itself.

Everything counts from the start of a segment and segments end by content, so the same items give
the same bytes, however they came about, and a change is forgotten at the next segment at the latest.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from branchpoint.codec._format import Notation
from branchpoint.codec._parts import Part, part_of

__all__ = [
    "BLOB", "FRAME", "INLINE", "LEVELS", "NODE_MAX", "NODE_MIN", "ROOT", "SEGMENT_MASK", "SEGMENT_MAX",
    "TEXT", "WHOLE", "Cache", "Node", "fold", "inlined",
]  # fmt: skip

INLINE: Final = 96
TEXT: Final = 256
BLOB: Final = 1024
FRAME: Final = 2
WHOLE: Final = 768
ROOT: Final = 256
NODE_MIN: Final = 96
NODE_MAX: Final = 512
SEGMENT_MASK: Final = 63
SEGMENT_MAX: Final = 256
LEVELS: Final = 8
"""How many levels of grouping inside a segment have a bit of their own; more is not reached."""

_FIRST_BIT: Final = 6  # the bits below say where segments end
_BITS: Final = 26


class Node(NamedTuple):
    """An item, an entry or a node, as it stands in its parent."""

    data: bytes
    refs: tuple[Part, ...]
    hash: int

    def __eq__(self, other: object) -> bool:
        """What it mentions and its hash follow from its data."""
        return isinstance(other, Node) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)


def inlined(notation: Notation, data: bytes, refs: tuple[Part, ...]) -> tuple[bytes, tuple[Part, ...]]:
    """An encoding as it stands in a cut parent: itself, or a reference to its part."""
    if len(data) <= INLINE:
        return data, refs
    part = part_of(data, refs)
    return notation.reference(part.digest), (part,)


class Cache:
    """The groups that were made the last time, each found by the first of its children.

    Attributes:
        made: By level and data of the first child: the children, their node, and whether the group was full.
        used: Those of them that were met again, and new ones.
        levels: By level what stood there, so that what only grew is told at one glance.
    """

    __slots__ = ("levels", "made", "used")

    def __init__(self, earlier: Cache | None = None) -> None:
        self.made: dict[tuple[int, bytes], _Group] = {} if earlier is None else earlier.used
        self.used: dict[tuple[int, bytes], _Group] = {}
        self.levels: dict[int, _Grouped] = {} if earlier is None else earlier.levels


_Group = tuple[Sequence[Node], Node, bool]


class _Grouped(NamedTuple):
    """The children at one level, their groups, and where each group ends."""

    children: Sequence[Node]
    groups: list[Node]
    ends: list[int]

    def standing(self, children: Sequence[Node]) -> int:
        """How many of the groups are surely the same for children of which only the last is another, or more."""
        # The last child may have ended its group only because it was the last one.
        same = len(self.children) - 1
        if same >= len(children) or self.children[:same] != children[:same]:
            return 0
        return bisect_right(self.ends, same)


def fold(
    notation: Notation,
    children: Sequence[Node],
    mapping: bool,
    leaf: bool,
    level: int,
    cache: Cache | None = None,
) -> tuple[bytes, tuple[Part, ...]]:
    """Group items (`leaf`) or nodes until they fit into one node; return its data and its references."""
    while not _fit(children):
        groups = _group(notation, children, mapping, leaf, level, cache)
        if groups is None:
            break
        children, leaf, level = groups, False, level + 1
    return _join(notation, children, mapping, leaf)


def _fit(children: Sequence[Node]) -> bool:
    left = ROOT - len(children)
    for child in children:
        left -= len(child.data)
        if left < 0:
            return False
    return True


def _join(
    notation: Notation, children: Sequence[Node], mapping: bool, leaf: bool
) -> tuple[bytes, tuple[Part, ...]]:
    items = []
    refs: list[Part] = []
    for child in children:
        items.append(child.data)
        if child.refs:
            refs += child.refs
    if not leaf:
        return notation.single("$d" if mapping else "$l", notation.join_list(items)), tuple(refs)
    return (notation.join_dict(items) if mapping else notation.join_list(items)), tuple(refs)


def _group(
    notation: Notation,
    children: Sequence[Node],
    mapping: bool,
    leaf: bool,
    level: int,
    cache: Cache | None,
) -> list[Node] | None:
    """The nodes of the level above, or None where all children belong into one node."""
    bit = 1 << (_FIRST_BIT + level % _BITS)
    groups: list[Node] = []
    ends: list[int] = []
    count = len(children)
    start = 0
    if cache is not None and (was := cache.levels.get(level)) is not None:
        standing = was.standing(children)
        groups, ends = was.groups[:standing], was.ends[:standing]
        start = ends[-1] if ends else 0
    while start < count:
        key = level, children[start].data
        if cache is not None:
            known = cache.made.get(key)
            if known is not None:
                end = start + len(known[0])
                if (known[2] or end == count) and children[start:end] == known[0]:
                    if start == 0 and end == count:
                        return None
                    cache.used[key] = known
                    groups.append(known[1])
                    ends.append(end)
                    start = end
                    continue
        size = 0
        full = False
        for end in range(start + 1, count + 1):
            child = children[end - 1]
            size += len(child.data) + 1
            # A node of one node would make no progress, however the hashes fall.
            if size >= NODE_MIN and (leaf or end - start > 1) and (child.hash & bit or size >= NODE_MAX):
                full = True
                break
        if start == 0 and end == count:
            return None
        if leaf or end - start > 1:
            grouped = children[start:end]
            node = Node(*inlined(notation, *_join(notation, grouped, mapping, leaf)), grouped[-1].hash)
            groups.append(node)
            if cache is not None:
                cache.used[key] = grouped, node, full
        else:
            groups.append(children[start])
        ends.append(end)
        start = end
    if cache is not None:
        cache.levels[level] = _Grouped(children, groups, ends)
    return groups
