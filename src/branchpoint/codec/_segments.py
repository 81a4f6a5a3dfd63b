"""Cutting a long container segment by segment, taking from a memo what has not changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

from branchpoint.codec._cut import (
    BLOB,
    FRAME,
    INLINE,
    LEVELS,
    SEGMENT_MASK,
    SEGMENT_MAX,
    Cache,
    Node,
    fold,
    inlined,
)
from branchpoint.codec._cutter import Cut
from branchpoint.codec._memo import HEAVY, Memo, Prefix, Segment, Shape
from branchpoint.codec._parts import Encoded
from branchpoint.codec._refusal import Refusal
from branchpoint.codec._tokens import item_token, proves

if TYPE_CHECKING:
    from branchpoint.codec._encode import Walk

__all__ = ["Irregular", "remembering"]


class Irregular(Exception):
    """A dict that was taken for one with plain keys has another key."""


def remembering(walk: Walk, shape: Shape, items: Sequence[Any], depth: int, memo: Memo | None) -> Cut | None:
    """Cut a long container segment by segment, taking from the memo what has not changed.

    None when the whole turns out to fit into one blob.
    """
    if memo is None or memo.shape != shape:
        memo = Memo(shape, (), {}, 0)
    old, known = memo.segments, memo.children
    children: dict[Any, Memo] = {}
    cache = Cache(memo.cache)
    segments: list[Segment] = []
    count = len(items)
    start = place = 0
    prefix = Prefix()
    if walk.owned and memo.prefix.stands(items):
        prefix = memo.prefix
        start, place = prefix.count, prefix.segments
        segments = list(old[:place])
        children = {where: under for where, under in known.items() if where < start}
    while start < count:
        segment: Segment | None = None
        expected = old[place] if place < len(old) else None
        if expected is not None:
            if expected.matches(items[start : start + expected.count], shape):
                segment = expected
            place += 1
        if segment is None and old:
            number = memo.find(items, start, place - 1)
            if number >= 0:
                segment, place = old[number], number + 1
        if segment is None or (not segment.closed and start + segment.count < count):
            segment = _segment(walk, shape, items, start, segment, depth, known, children, cache)
        segments.append(segment)
        start += segment.count
    prefix = prefix.grown(segments, items if walk.owned and shape == "list" else ())
    whole, weight = prefix.whole, prefix.weight
    for segment in segments[prefix.segments :]:
        weight += segment.weight
        whole = None if whole is None or segment.whole is None else whole + segment.whole
    if whole is not None:
        whole += 2 if walk.notation.name == "json" else 3 if count >= 16 else 1
    if depth > FRAME and whole is not None and whole - (walk.notation.name == "json") <= BLOB:
        return None
    if len(segments) == 1:
        data, refs = segments[0].data, segments[0].refs
    else:
        nodes = [segment.node for segment in segments]
        data, refs = fold(walk.notation, nodes, shape == "dict", False, LEVELS, cache)
    walk.size = max(weight, BLOB + 1)
    return Cut(data, refs, weight, Memo(shape, segments, children, weight, cache, prefix))


def _segment(
    walk: Walk,
    shape: Shape,
    items: Sequence[Any],
    start: int,
    base: Segment | None,
    depth: int,
    known: Mapping[Any, Memo],
    children: dict[Any, Memo],
    cache: Cache,
) -> Segment:
    """Encode items from `start` on until a segment ends; `base` is its beginning, done before."""
    nodes: list[Node] = []
    owned: tuple[list[Any], list[int]] | None = ([], []) if walk.owned else None
    tokens: list[Any] | None = None if walk.owned else []
    whole: int | None = 0
    weight = 0
    if base is not None and base.nodes is not None:
        nodes = list(base.nodes)
        if walk.owned:
            owned = None if base.owned is None else (list(base.owned[0]), list(base.owned[1]))
        else:
            tokens = None if base.tokens is None else list(base.tokens)
        whole, weight = base.whole, base.weight
    separator = 1 if walk.notation.name == "json" else 0
    closed = False
    place = start + len(nodes)
    while place < len(items):
        item = items[place]
        # Taken before the item is looked at: if another thread changes it in between, the change
        # is seen next time.
        token = item_token(item) if tokens is not None else None
        foreign = walk.foreign
        if shape == "list" and type(item) is Encoded and len(item.data) <= INLINE:
            walk.foreign += 1
            node = Node(item.data, item.refs, crc32(item.data))
            tree = key = child = None
            size, is_cut = walk.held(item)
        else:
            tree, key, child = _element(walk, shape, item, place, depth, known)
            try:
                node, size = walk.item(tree, key)
            except Refusal as refusal:
                refusal.steps.append(place if shape == "list" else item[0])
                raise
            except UnicodeEncodeError:
                raise walk.surrogate({key: None}) from None
            is_cut = type(tree) is Cut or (bool(node.refs) and bool(node.refs[0].refs))
        nodes.append(node)
        if child is not None and child.weight >= HEAVY:
            children[place if shape != "dict" else key] = child
            token = owned = None  # it has a memo of its own
        if owned is not None:
            owned[0].append(item)
            owned[1].append(walk.foreign - foreign)
        if token is None or not proves(token, walk.foreign - foreign):
            tokens = None
        elif tokens is not None:
            tokens.append(token)
        if whole is not None:  # more than one blob is more than one blob, however much it is
            whole = None if is_cut or whole > BLOB else whole + size + separator
        weight += tree.weight if type(tree) is Cut else size
        place += 1
        if not node.hash & SEGMENT_MASK or len(nodes) == SEGMENT_MAX:
            closed = True
            break
    # Of a list only the last segment grows, so only its inner nodes are worth remembering.
    remembered = cache if not closed or shape == "dict" else None
    data, refs = fold(walk.notation, nodes, shape == "dict", True, 0, remembered)
    node = Node(*inlined(walk.notation, data, refs), nodes[-1].hash)
    return Segment(tokens, owned, nodes, closed, data, refs, node, whole, weight)


def _element(
    walk: Walk, shape: Shape, item: Any, place: int, depth: int, known: Mapping[Any, Memo]
) -> tuple[Any, str | None, Memo | None]:
    """The tree of one item, its key in a dict, and the memo of what it holds."""
    if shape == "pairs":
        pair = walk.pair(item, depth, known.get(place))
        memo = pair[1].memo if type(pair[1]) is Cut else None
        if type(pair[0]) is Cut or type(pair[1]) is Cut:
            return walk.cut("list", pair, {}), None, memo
        return pair, None, memo
    key: str | None = None
    where: Any = place
    if shape == "dict":
        key, item = item
        if type(key) is not str or key[:1] == "$":
            raise Irregular
        where = key
    try:
        tree = walk.child(item, depth + 1, known.get(where))
    except Refusal as refusal:
        refusal.steps.append(where)
        raise
    return tree, key, tree.memo if type(tree) is Cut else None
