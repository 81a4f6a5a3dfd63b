"""A stored state in the other format, without any registered type.

Tags are carried over as they are; only the payload of bytes and the order of sets depend on the
format. The result has the same digests as if the live value had been encoded in the other format.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping
from typing import Any

from branchpoint.codec._builtin import sorted_trees
from branchpoint.codec._encode import Walk, handlers
from branchpoint.codec._flaw import Flaw
from branchpoint.codec._format import Notation
from branchpoint.codec._memo import Memo
from branchpoint.codec._parts import Part, part_of
from branchpoint.codec._wiretree import nodes_of, reference_in, resolve

__all__ = ["transcoded"]


class _Tagged:
    """A tag of the source, between the two formats."""

    __slots__ = ("head", "payload")

    def __init__(self, head: dict[str, Any], payload: Any) -> None:
        self.head = head
        self.payload = payload


def transcoded(source: Notation, target: Notation, root: str, parts: Mapping[str, bytes]) -> Part:
    """The root part of a state in the target format."""
    value = _untied(source, resolve(source, root, parts), parts)
    walk = Walk(target, limit=sys.maxsize)  # the wire nests deeper than the value, which was checked
    return part_of(*walk.standalone(walk.child(value, 0, None)))


def _untied(source: Notation, tree: Any, parts: Mapping[str, bytes]) -> Any:
    kind = type(tree)
    if kind is list:
        return [_untied(source, item, parts) for item in tree]
    if kind is not dict:
        return tree
    digest = reference_in(tree)
    if digest is not None:
        return _untied(source, resolve(source, digest, parts), parts)
    if "$l" in tree:
        return [
            _untied(source, item, parts) for leaf in nodes_of(source, tree, False, parts) for item in leaf
        ]
    if "$d" in tree:
        leaves = nodes_of(source, tree, True, parts)
        return {key: _untied(source, item, parts) for leaf in leaves for key, item in leaf.items()}
    if "$" in tree:
        if "v" not in tree:
            raise Flaw("a tag has no payload")
        head = {key: item for key, item in tree.items() if key != "v"}
        if head["$"] in ("bytes", "bytearray") and source.name == "json":
            return _Tagged(head, base64.b64decode(tree["v"], validate=True))
        return _Tagged(head, _untied(source, tree["v"], parts))
    return {key: _untied(source, item, parts) for key, item in tree.items()}


def _retag(walk: Walk, value: _Tagged, depth: int, memo: Memo | None) -> Any:
    walk.foreign += 1
    name = value.head["$"]
    if name in ("bytes", "bytearray"):
        return walk.scalar(name, value.payload, len(value.payload))
    if name in ("set", "frozenset"):
        return walk.tag(value.head, walk.set_items(value.payload, depth, sorted_trees))
    if name in _FRAMELESS:
        depth = max(depth, 3)
    return walk.tag(value.head, walk.child(value.payload, depth, None))


_FRAMELESS = frozenset({"complex", "fraction", "timedelta", "range", "slice", "deque", "defaultdict"})

handlers[_Tagged] = _retag
