"""Encoding: live values to wire trees.

The walk turns a value into a wire tree of plain objects and counts a lower bound of its bytes on the
way; as soon as a container is surely too large for one blob it is cut, so every byte is encoded a
bounded number of times, however values nest. A long container is cut segment by segment, and what a
memo recognises is not walked at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from branchpoint.codec._cut import (
    BLOB,
    FRAME,
    TEXT,
)  # fmt: skip
from branchpoint.codec._cutter import Cut, Cutter
from branchpoint.codec._format import Notation
from branchpoint.codec._memo import LONG, Memo
from branchpoint.codec._parts import Encoded
from branchpoint.codec._refusal import Refusal, TooDeep, refuse
from branchpoint.codec._registry import TypeEntry, by_type, entry_for_type
from branchpoint.codec._segments import Irregular, remembering
from branchpoint.codec._shape import MAX_DEPTH
from branchpoint.codec._source import mentions
from branchpoint.codec._stack import has_room
from branchpoint.codec._tokens import item_token
from branchpoint.codec._wiretree import INT_MAX, INT_MIN
from branchpoint.errors import BranchpointError, UnregisteredTypeError, UnsupportedValueError

__all__ = ["Cut", "Handler", "Walk", "handlers", "is_plain_keyed"]

_NONE: Final = type(None)
_SURELY: Final = 512  # a list of more items is over one blob in any case

Handler = Callable[["Walk", Any, int, "Memo | None"], Any]
handlers: dict[type[Any], Handler] = {}
"""Exact type -> how it becomes a wire tree; builtin kinds add themselves."""


class Walk(Cutter):
    """One encoding.

    Attributes:
        limit: The depth at which a value is refused.
        owned: Nothing in the value ever changes in place.
        foreign: How many values were met so far whose marshal bytes prove nothing.
    """

    __slots__ = ("foreign", "limit", "owned")

    def __init__(self, notation: Notation, limit: int = MAX_DEPTH, *, owned: bool = False) -> None:
        super().__init__(notation)
        self.limit = limit
        self.owned = owned
        self.foreign = 0

    # Values to wire trees.

    def child(self, value: Any, depth: int, memo: Memo | None) -> Any:
        """Return the wire tree of any value, or a `Cut`."""
        handler = handlers.get(type(value))
        if handler is not None:
            return handler(self, value, depth, memo)
        entry = by_type.get(type(value)) or entry_for_type(type(value))
        if entry is None:
            raise refuse(value)
        return self._registered(entry, value, depth, memo)

    def list_(self, value: list[Any], depth: int, memo: Memo | None) -> Any:
        """The tree of a list; also used for the payload of anything that is written as a list."""
        if depth > self.limit:
            raise TooDeep
        if len(value) >= LONG and (depth <= FRAME or memo is not None or _promising(value)):
            found = remembering(self, "list", list(value), depth, memo)
            if found is not None:
                return found
        size = len(value) * self.notation.item_cost
        items = value
        cut = False
        children: dict[Any, Memo] = {}
        place = 0
        try:
            for place, item in enumerate(value):
                kind = type(item)
                if kind is str:
                    size += len(item)
                    continue
                if kind is _NONE or kind is bool:
                    continue
                if kind is int and INT_MIN <= item <= INT_MAX:
                    continue
                if kind is float and item - item == 0.0:
                    continue
                tree = self.child(item, depth + 1, None if memo is None else memo.children.get(place))
                size += self.size
                if tree is not item:
                    if items is value:
                        items = list(value)
                    items[place] = tree
                    if type(tree) is Cut:
                        cut = True
                        if tree.memo is not None:
                            children[place] = tree.memo
        except Refusal as refusal:
            refusal.steps.append(place)
            raise
        if cut or size > BLOB or depth <= FRAME:
            return self.cut("list", items, children)
        self.size = size
        return items

    def dict_(self, value: dict[Any, Any], depth: int, memo: Memo | None) -> Any:
        """The tree of a dict; also used for the fields of a record."""
        if depth > self.limit:
            raise TooDeep
        entries = list(value.items())
        if len(entries) >= LONG and (depth <= FRAME or memo is not None or _promising(entries)):
            try:
                found = remembering(self, "dict", entries, depth, memo)
            except Irregular:
                return self.tag_pairs("dict", entries, depth, memo)
            if found is not None:
                return found
        size = len(entries) * self.notation.entry_cost
        items = value
        cut = False
        children: dict[Any, Memo] = {}
        key: Any = None
        regular = True
        try:
            for key, item in entries:
                if type(key) is not str or (key < "%" and key[:1] == "$"):
                    regular = False
                    break
                size += len(key)
                kind = type(item)
                if kind is str:
                    size += len(item)
                    continue
                if kind is _NONE or kind is bool:
                    continue
                if kind is int and INT_MIN <= item <= INT_MAX:
                    continue
                if kind is float and item - item == 0.0:
                    continue
                tree = self.child(item, depth + 1, None if memo is None else memo.children.get(key))
                size += self.size
                if tree is not item:
                    if items is value:
                        items = dict(entries)
                    items[key] = tree
                    if type(tree) is Cut:
                        cut = True
                        if tree.memo is not None:
                            children[key] = tree.memo
        except Refusal as refusal:
            refusal.steps.append(key)
            raise
        if not regular:
            return self.tag_pairs("dict", entries, depth, memo)
        if cut or size > BLOB or depth <= FRAME:
            return self.cut("dict", items, children)
        self.size = size
        return items

    def pairs(self, entries: Sequence[tuple[Any, Any]], depth: int, memo: Memo | None) -> Any:
        """The tree of a mapping with any keys: a list of lists of two."""
        if depth > self.limit:
            raise TooDeep
        if len(entries) >= LONG and (depth <= FRAME or memo is not None or _promising(entries)):
            found = remembering(self, "pairs", entries, depth, memo)
            if found is not None:
                return found
        children: dict[Any, Memo] = {}
        size = 0
        cut = False
        items = []
        for place, entry in enumerate(entries):
            tree = self.pair(entry, depth, None if memo is None else memo.children.get(place))
            size += self.size
            if type(tree[0]) is Cut or type(tree[1]) is Cut:
                cut = True
                if type(tree[1]) is Cut and tree[1].memo is not None:
                    children[place] = tree[1].memo
            items.append(tree)
        if cut or size > BLOB or depth <= FRAME:
            return self.cut("list", items, children)
        self.size = size
        return items

    def pair(self, entry: tuple[Any, Any], depth: int, memo: Memo | None) -> list[Any]:
        try:
            key = self.child(entry[0], depth + 1, None)
            size = self.size
            value = self.child(entry[1], depth + 1, memo)
        except Refusal as refusal:
            refusal.steps.append(entry[0])
            raise
        self.size += size + 1
        return [key, value]

    def tag_list(self, name: str, items: list[Any], depth: int, memo: Memo | None) -> Any:
        """A tag whose payload is a list of any values."""
        return self.tag({"$": name}, self.list_(items, depth, memo))

    def tag_pairs(self, name: str, items: Iterable[tuple[Any, Any]], depth: int, memo: Memo | None) -> Any:
        """A tag whose payload is a list of pairs of any values."""
        return self.tag({"$": name}, self.pairs(list(items), depth, memo))

    def wrapped(self, name: str, extra: Any, items: Any) -> Any:
        """A tag whose payload is a list of two: something small, and a list of items."""
        if type(items) is Cut:
            pair = self.cut("list", [extra, items], {})
            return self.tag({"$": name}, Cut(pair.data, pair.refs, items.weight, items.memo))
        return self.tag({"$": name}, [extra, items])

    def set_items(self, items: list[Any], depth: int, ordered: Callable[[Walk, list[Any]], list[Any]]) -> Any:
        """The tree of the items of a set, in an order that depends on the items alone."""
        if depth > self.limit:
            raise TooDeep
        size = 0
        trees = []
        item: Any = None
        try:
            for item in items:
                trees.append(self.child(item, depth + 1, None))
                size += self.size
            trees = ordered(self, trees)
        except Refusal as refusal:
            refusal.steps.append(item)
            raise
        if size > BLOB or depth <= FRAME or any(type(tree) is Cut for tree in trees):
            return self.cut("list", trees, {})
        self.size = size
        return trees

    def scalar(self, name: str, payload: Any, size: int) -> Any:
        """A tag whose payload is not cut: a text, bytes, or a few numbers."""
        self.size = size + 5
        return {"$": name, "v": payload}

    def _registered(self, entry: TypeEntry, value: Any, depth: int, memo: Memo | None) -> Any:
        self.foreign += 1
        if depth > self.limit:
            raise TooDeep
        try:
            payload = entry.encoder(value)
        except Refusal:
            raise
        except RecursionError as error:
            if not has_room():
                raise  # maybe the caller stands deep; it is called again on a fresh stack
            reason = f"the encoder of {entry.type_id!r} never ends (RecursionError)"
            raise Refusal(UnsupportedValueError, value, reason) from error
        except BranchpointError as error:
            unknown = isinstance(error, UnregisteredTypeError)
            kind = UnregisteredTypeError if unknown else UnsupportedValueError
            raise Refusal(kind, value, str(error)) from error
        except Exception as error:
            reason = f"the encoder of {entry.type_id!r} raised {type(error).__name__}: {error}"
            raise Refusal(UnsupportedValueError, value, reason) from error
        # A record and its fields are one level; an encoder of one's own may return itself for ever.
        tree = self.payload(payload, depth + 1 if entry.kind == "custom" else depth, memo)
        head: dict[str, Any] = {"$": entry.type_id}
        if entry.version > 1:
            head["n"] = entry.version
        return self.tag(head, tree)

    def payload(self, value: Any, depth: int, memo: Memo | None) -> Any:
        """The tree of the payload of a tag, which is cut where it has a long text, so that equal ones are shared."""
        tree = self.child(value, depth, memo)
        if type(tree) is dict and "$" not in tree:
            for item in tree.values():
                if type(item) is str and len(item) > TEXT:
                    return self.cut("dict", tree, {})
        return tree

    def held(self, value: Encoded) -> tuple[int, bool]:
        """The bytes of an encoding that was handed over, and whether it is cut."""
        if len(value.refs) == 1 and self.notation.referred(value.data) is not None:
            part = value.refs[0]
            return len(part.data), bool(part.refs) or mentions(self.notation, part.data)
        return len(value.data), value._cut

    def encoded(self, value: Encoded) -> Any:
        """An encoding that was handed over; it counts as the value it stands for."""
        self.foreign += 1
        data, refs = value.data, value.refs
        _, cut = self.held(value)
        if len(refs) == 1 and self.notation.referred(data) is not None:
            data, refs = refs[0].data, refs[0].refs
        self.size = len(data) - 1
        if cut:
            return Cut(data, refs, len(data))
        return msgspec.Raw(data)


def is_plain_keyed(value: Mapping[Any, Any]) -> bool:
    """Whether a dict is written with its keys as they are: text that does not begin with `$`."""
    for key in value:  # noqa: SIM110  (most are small, and a generator has a cost)
        if type(key) is not str or (key < "%" and key[:1] == "$"):
            return False
    return True


def _promising(items: Sequence[Any]) -> bool:
    """Whether a long sequence is likely over one blob; being wrong costs time only."""
    if len(items) > _SURELY:
        return True
    size = 0
    for item in items[:: max(1, len(items) // 16)]:
        token = item_token(item)
        size += len(token) if type(token) is bytes else 64
    return size * (len(items) / 16) > 4 * BLOB


def _plain(walk: Walk, value: Any, depth: int, memo: Memo | None) -> Any:
    walk.size = len(value) if type(value) is str else 1
    return value


def _int(walk: Walk, value: int, depth: int, memo: Memo | None) -> Any:
    if INT_MIN <= value <= INT_MAX:
        walk.size = 1
        return value
    text = hex(value)  # decimal digits of a very large int take quadratic time and are refused by Python
    return walk.scalar("int", text, len(text))


def _float(walk: Walk, value: float, depth: int, memo: Memo | None) -> Any:
    if value - value == 0.0:
        walk.size = 1
        return value
    return walk.scalar("float", "nan" if value != value else "inf" if value > 0 else "-inf", 3)


handlers.update(
    {
        str: _plain,
        bool: _plain,
        _NONE: _plain,
        int: _int,
        float: _float,
        list: Walk.list_,
        dict: Walk.dict_,
        Encoded: lambda walk, value, depth, memo: walk.encoded(value),
    }
)
