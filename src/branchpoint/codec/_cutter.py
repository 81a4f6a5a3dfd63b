"""Wire trees to bytes: what is small becomes one blob, what is large is cut.

A wire tree holds plain objects, and in the place of what is cut already a `Cut`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from branchpoint.codec._cut import BLOB, LEVELS, SEGMENT_MASK, SEGMENT_MAX, Node, fold, inlined
from branchpoint.codec._format import Notation
from branchpoint.codec._memo import Memo, Shape
from branchpoint.codec._parts import Part
from branchpoint.codec._refusal import NoText, Refusal, surrogate_in

__all__ = ["Cut", "Cutter"]


class Cut:
    """An encoding that is cut, as the walk hands it up in the place of a wire tree."""

    __slots__ = ("data", "memo", "refs", "weight")

    def __init__(self, data: bytes, refs: tuple[Part, ...], weight: int, memo: Memo | None = None) -> None:
        self.data = data
        self.refs = refs
        self.weight = weight
        self.memo = memo


class Cutter:
    """Turns trees into bytes in one notation.

    Attributes:
        notation: Of the bytes that are made.
        size: A lower bound of the bytes of the tree or `Cut` that was made last.
    """

    __slots__ = ("notation", "size")

    def __init__(self, notation: Notation) -> None:
        self.notation = notation
        self.size = 0

    def tag(self, head: dict[str, Any], payload: Any) -> Any:
        """A tag around the tree of a payload; a cut payload makes a cut tag."""
        if type(payload) is Cut:
            return Cut(self.notation.tag(head, payload.data), payload.refs, payload.weight, payload.memo)
        self.size += 5
        return {**head, "v": payload}

    def standalone(self, tree: Any) -> tuple[bytes, tuple[Part, ...]]:
        """The encoding of a tree as a part would hold it."""
        if type(tree) is Cut:
            return tree.data, tree.refs
        try:
            data = self.notation.encode(tree)
        except UnicodeEncodeError:
            raise self.surrogate(tree) from None
        except TypeError:  # a pair that holds a cut value
            return self._tree(tree)
        if len(data) > BLOB:
            kind = type(tree)
            if kind is list or kind is dict:
                return self._tree(tree)
        return data, ()

    def _tree(self, tree: Any) -> tuple[bytes, tuple[Part, ...]]:
        """Cut a tree that is over one blob."""
        if type(tree) is list:
            cut = self.cut("list", tree, {})
        elif "$" in tree:
            payload = tree["v"]
            if type(payload) is list or type(payload) is dict:
                data, refs = self.standalone(payload)
                head = {key: item for key, item in tree.items() if key != "v"}
                return self.notation.tag(head, data), refs
            return self.notation.encode(tree), ()
        else:
            cut = self.cut("dict", tree, {})
        return cut.data, cut.refs

    def surrogate(self, tree: Any) -> Refusal:
        refusal = NoText()
        refusal.steps = surrogate_in(tree) or []
        return refusal

    def item(self, tree: Any, key: str | None) -> tuple[Node, int]:
        """One item or entry of a cut container, and the bytes of its own encoding."""
        notation = self.notation
        data, refs = self.standalone(tree)
        size = len(data)
        data, refs = inlined(notation, data, refs)
        if key is not None:
            head = len(data)
            data = notation.entry(key, data)
            size += len(data) - head
        return Node(data, refs, crc32(data)), size

    def gathered(self, nodes: Sequence[Node], *, mapping: bool) -> tuple[bytes, tuple[Part, ...]]:
        """The container of these items: segment by segment, then the segments."""
        notation = self.notation
        if len(nodes) < SEGMENT_MAX:
            for node in nodes[:-1]:
                if not node.hash & SEGMENT_MASK:
                    break
            else:
                return fold(notation, nodes, mapping, True, 0)
        segments: list[Node] = []
        start = 0
        data: bytes = b""
        refs: tuple[Part, ...] = ()
        for place, node in enumerate(nodes, 1):
            if not node.hash & SEGMENT_MASK or place - start == SEGMENT_MAX or place == len(nodes):
                data, refs = fold(notation, nodes[start:place], mapping, True, 0)
                segments.append(Node(*inlined(notation, data, refs), node.hash))
                start = place
        return fold(notation, segments, mapping, False, LEVELS) if len(segments) > 1 else (data, refs)

    def cut(self, shape: Shape, trees: Any, children: dict[Any, Memo]) -> Cut:
        """Cut a container whose items are trees already."""
        mapping = shape == "dict"
        nodes: list[Node] = []
        place: Any = None
        total = 0
        try:
            for place, tree in trees.items() if mapping else enumerate(trees):
                node, size = self.item(tree, place if mapping else None)
                total += tree.weight if type(tree) is Cut else size
                nodes.append(node)
        except Refusal as refusal:
            refusal.steps.append(place)
            raise
        except UnicodeEncodeError:  # a key
            raise self.surrogate({place: None}) from None
        data, refs = self.gathered(nodes, mapping=mapping)
        self.size = max(total, BLOB + 1)
        memo = Memo(shape, (), children, total) if children else None
        return Cut(data, refs, total, memo)
