"""Encoding for comparison: equal values give equal bytes, whatever the order in which their dicts were filled.

What is kept has the order of its keys, which a reader sees. Whether two payloads are the same is
another question: there, only an `OrderedDict` and the fields of a registered type have an order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from branchpoint.codec._encode import Walk
from branchpoint.codec._format import Notation
from branchpoint.codec._memo import Memo
from branchpoint.codec._refusal import Refusal, TooDeep
from branchpoint.codec._registry import TypeEntry

__all__ = ["Comparison"]


class Comparison(Walk):
    """One encoding in which every dict has its keys in one order, by their text or else their bytes."""

    __slots__ = ("_fields_next",)

    def __init__(self, notation: Notation, limit: int) -> None:
        super().__init__(notation, limit)
        self._fields_next = False

    def child(self, value: Any, depth: int, memo: Memo | None) -> Any:
        """Return the wire tree of any value, or a `Cut`."""
        fields, self._fields_next = self._fields_next, False
        kind = type(value)
        if kind is dict:
            if not fields:
                value = self._in_order(value, depth)
        elif kind is Counter:
            if not value.__dict__:  # with attributes of its own it is refused as it is
                value = Counter(self._in_order(value, depth))
        elif kind is defaultdict:
            value = defaultdict(value.default_factory, self._in_order(value, depth))
        return super().child(value, depth, memo)

    def _registered(self, entry: TypeEntry, value: Any, depth: int, memo: Memo | None) -> Any:
        self._fields_next = True
        return super()._registered(entry, value, depth, memo)

    def _in_order(self, value: dict[Any, Any], depth: int) -> dict[Any, Any]:
        if all(type(key) is str for key in value):
            return {key: value[key] for key in sorted(value)}
        try:
            keys = sorted(value, key=lambda key: self.standalone(self.child(key, depth + 1, None))[0])
        except (Refusal, TooDeep):
            return value  # the walk meets it again, and says where
        return {key: value[key] for key in keys}
