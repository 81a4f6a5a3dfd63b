"""Stored values without their references and cuts, and without any registered type.

What reading a value would refuse is refused here as well, as far as that can be told without its types: shapes,
tags, plain numbers, keys, depth. What a value is shown for may have payloads that no writer writes, so that
a person can look at them; what is carried over may not.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from typing import Any, Final

from branchpoint.codec._decode import Reader, readers
from branchpoint.codec._flaw import Flaw
from branchpoint.codec._source import Source, load, reference_in
from branchpoint.codec._wiretree import any_list, joined_dict, joined_list, number, tag_in
from branchpoint.errors import CorruptCheckpointError

__all__ = ["Tagged", "plain_tree", "untied"]

_NONE: Final = type(None)
_WHOLE: Final = frozenset(
    {
        "int", "float", "bytes", "bytearray", "complex", "decimal", "fraction", "datetime", "date", "time",
        "timedelta", "timezone", "zoneinfo", "uuid", "pureposixpath", "purewindowspath", "posixpath",
        "windowspath", "range",
    }
)  # fmt: skip
"""Tags whose payload holds no other values."""
_PAIRS: Final = frozenset({"dict", "ordereddict", "counter", "defaultdict"})


class Tagged:
    """A tag whose payload is untied; that of bytes is the bytes themselves, in either notation."""

    __slots__ = ("head", "payload")

    def __init__(self, head: dict[str, Any], payload: Any) -> None:
        self.head = head
        self.payload = payload


def untied(source: Source, limit: int) -> Any:
    """The value of a source as lists, dicts, plain scalars and `Tagged`."""
    return _Untying(source, limit).value(load(source.notation, source.data))


def plain_tree(source: Source, limit: int) -> Any:
    """The value of a source as JSON has it; tags stay, bytes are base64 text."""
    return _shown(_Untying(source, limit, showing=True).value(load(source.notation, source.data)))


def _shown(value: Any) -> Any:
    kind = type(value)
    if kind is list:
        return [_shown(item) for item in value]
    if kind is dict:
        return {key: _shown(item) for key, item in value.items()}
    if kind is bytes:
        return base64.b64encode(value).decode("ascii")
    if kind is Tagged:
        return {**value.head, "v": _shown(value.payload)}
    return value


class _Untying:
    """One walk; a reader counts the depth and looks at payloads that stand for one builtin value."""

    __slots__ = ("reader", "showing", "source")

    def __init__(self, source: Source, limit: int, showing: bool = False) -> None:
        self.source = source
        self.showing = showing
        self.reader = Reader(source, limit)

    def value(self, tree: Any) -> Any:
        kind = type(tree)
        if kind is str or kind is bool or kind is _NONE:
            return tree
        if kind is list:
            return self.items(tree)
        if kind is not dict:
            return number(tree, kind)
        digest = reference_in(tree)
        if digest is not None:
            return self.value(self.source.tree(digest))
        if "$l" in tree:
            return self.items(joined_list(self.source, tree))
        if "$d" in tree:
            return self.entries(joined_dict(self.source, tree))
        if "$" in tree:
            return self.tag(tree)
        return self.entries(tree)

    def items(self, trees: list[Any]) -> list[Any]:
        self.reader.enter()
        found = []
        place = 0
        try:
            for place, tree in enumerate(trees):  # noqa: B007
                found.append(self.value(tree))
        except Flaw as flaw:
            flaw.steps.append(place)
            raise
        self.reader.depth -= 1
        return found

    def entries(self, trees: dict[str, Any]) -> dict[str, Any]:
        self.reader.enter()
        found = {}
        key: Any = None
        try:
            for key, tree in trees.items():
                if type(key) is not str or key[:1] == "$":
                    raise Flaw("a plain dict has text keys that do not begin with '$'")
                found[key] = self.value(tree)
        except Flaw as flaw:
            flaw.steps.append(key)
            raise
        self.reader.depth -= 1
        return found

    def pairs(self, tree: Any) -> list[Any]:
        self.reader.enter()
        found = []
        for place, item in enumerate(any_list(self.source, tree)):
            pair = any_list(self.source, item)
            if len(pair) != 2:
                raise Flaw("a pair has not two items")
            try:
                found.append([self.value(pair[0]), self.value(pair[1])])
            except Flaw as flaw:
                flaw.steps.append(place)
                raise
        self.reader.depth -= 1
        return found

    def tag(self, tree: dict[str, Any]) -> Tagged:
        type_id, version = tag_in(tree)
        payload = tree["v"]
        if type_id not in readers:
            head: dict[str, Any] = {"$": type_id} if version is None else {"$": type_id, "n": version}
            return Tagged(head, self.value(payload))
        if version is not None:
            raise Flaw(f"the tag {type_id!r} has no version")
        head = {"$": type_id}
        if self.showing:
            return Tagged(head, self.shown(type_id, payload))
        if type_id in _WHOLE:
            return Tagged(head, self.whole(type_id, payload))
        shape = _SHAPES.get(type_id)
        return Tagged(
            head, self.items(joined_list(self.source, payload)) if shape is None else shape(self, payload)
        )

    def shown(self, type_id: str, payload: Any) -> Any:
        if type(payload) is bytes and type_id in ("bytes", "bytearray"):
            return payload
        pairs = 1 if type_id in _PAIRS else 0  # a pair is no level
        self.reader.depth -= pairs
        found = self.value(payload)
        self.reader.depth += pairs
        return found

    def whole(self, type_id: str, payload: Any) -> Any:
        found: Any = None
        try:
            found = self.reader.builtin(type_id, copy.deepcopy(payload))
        except Flaw as flaw:
            if flaw.error is CorruptCheckpointError:
                raise
            # Only this machine does not have it: a time zone, the paths of another system.
        if type_id in ("bytes", "bytearray"):
            return bytes(found)
        return payload if type(payload) is str else self._inside(payload)

    def _inside(self, payload: Any) -> Any:
        return [
            self.value(item) if type(item) is dict else item for item in joined_list(self.source, payload)
        ]

    def wrapped(self, payload: Any, inner: Callable[[Any], Any]) -> list[Any]:
        pair = joined_list(self.source, payload)
        if len(pair) != 2 or type(pair[0]) not in (int, str, _NONE):
            raise Flaw("a small value and a list are expected here")
        self.reader.depth += 1
        found = inner(pair[1])
        self.reader.depth -= 1
        return [pair[0], found]

    def deque(self, payload: Any) -> list[Any]:
        return self.wrapped(payload, lambda tree: self.items(any_list(self.source, tree)))

    def defaultdict(self, payload: Any) -> list[Any]:
        return self.wrapped(payload, self.pairs)

    def slice(self, payload: Any) -> list[Any]:
        items = self.items(joined_list(self.source, payload))
        if len(items) != 3:
            raise Flaw("three values are expected here")
        return items


_SHAPES: Final[dict[str, Callable[[_Untying, Any], Any]]] = {
    "dict": _Untying.pairs,
    "ordereddict": _Untying.pairs,
    "counter": _Untying.pairs,
    "deque": _Untying.deque,
    "defaultdict": _Untying.defaultdict,
    "slice": _Untying.slice,
}
