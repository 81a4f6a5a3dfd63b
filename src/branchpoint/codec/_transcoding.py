"""A stored state in the other format, without any registered type.

Tags are carried over as they are; only the payload of bytes and the order of sets depend on the
format. The result has the same digests as if the live value had been encoded in the other format.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from branchpoint.codec._builtin import sorted_trees
from branchpoint.codec._encode import Walk, handlers
from branchpoint.codec._format import Notation
from branchpoint.codec._frame import root_of
from branchpoint.codec._memo import Memo
from branchpoint.codec._parts import Part
from branchpoint.codec._source import Source
from branchpoint.codec._untied import Tagged, untied

__all__ = ["transcoded"]

_FRAMELESS: Final = frozenset(
    {"complex", "fraction", "timedelta", "range", "slice", "deque", "defaultdict"}
)  # fmt: skip


def transcoded(source: Source, target: Notation, limit: int) -> Part:
    """The root part of a state in the target format."""
    walk = Walk(target, limit=sys.maxsize)  # the wire nests deeper than the value, which was checked
    return root_of(walk, untied(source, limit), None)[0]


def _retag(walk: Walk, value: Tagged, depth: int, memo: Memo | None) -> Any:
    walk.foreign += 1
    name = value.head["$"]
    if type(value.payload) is bytes:
        return walk.scalar(name, value.payload, len(value.payload))
    if name in ("set", "frozenset"):
        return walk.tag(value.head, walk.set_items(value.payload, depth, sorted_trees))
    if name in _FRAMELESS:
        depth = max(depth, 3)
    return walk.tag(value.head, walk.payload(value.payload, depth, None))


handlers[Tagged] = _retag
