"""Keeping objects of Agent Framework field by field, as they are, where their own `to_dict` drops things.

The payload holds every attribute that is not at its default, under its name without leading
underscores and in one order, so equal values have equal bytes. Two rules say what is not kept as it
is: `raw_representation`, what a provider's SDK returned, is left out, here and in annotations, and an
exception is kept as its text. A copy at a boundary follows the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

from branchpoint.codec import copy_value
from branchpoint.errors import UnknownVersionError

__all__ = ["ATOMS", "RAW", "Fieldwise"]

T = TypeVar("T")

RAW: Final = "raw_representation"
EXTRA: Final = "__dict__"
"""Where attributes are kept that the class itself does not set; as for dataclasses."""

ATOMS: Final = frozenset({type(None), bool, int, float, str, bytes})


class Fieldwise(Generic[T]):
    """How objects of one class are encoded, decoded and copied.

    Attributes:
        cls: The class.
        names: Its attributes in one order, without what is never kept.
        get: The values of all of them at once, from an instance's `__dict__`.
        count: How many attributes an instance has that was not given others.
    """

    __slots__ = (
        "_blank",
        "_constant",
        "_converted",
        "_copied",
        "_decoded",
        "_encoded",
        "_fresh",
        "_keys",
        "_plain",
        "_required",
        "_unlike_none",
        "cls",
        "count",
        "get",
        "names",
    )

    def __init__(
        self,
        cls: type[T],
        sample: T,
        *,
        required: tuple[str, ...],
        converted: Mapping[str, Callable[[Any], Any]] | None = None,
        encoded: Mapping[str, Callable[[Any], Any]] | None = None,
        decoded: Mapping[str, Callable[[Any], Any]] | None = None,
        copied: Mapping[str, Callable[[Any], Any]] | None = None,
        constant: Mapping[str, str] | None = None,
    ) -> None:
        """Learn the fields of a class.

        Args:
            cls: The class, whose instances keep everything in their `__dict__`.
            sample: An instance whose attributes are at their defaults, but for the required ones.
            required: Attributes that are always written.
            converted: What some attributes become when they cross a boundary, saved or copied.
            encoded: What some become in the payload.
            decoded: What those of the payload become again.
            copied: A quicker way to copy some.
            constant: What the package's own JSON says beside the fields, to be read from outside.
        """
        self.cls = cls
        self._blank = dict(vars(sample))
        self._fresh = tuple(name for name, item in self._blank.items() if type(item) is dict)
        self.count = len(self._blank)
        self.names = tuple(name for name in self._blank if name != RAW)
        self.get: Callable[[Mapping[str, Any]], tuple[Any, ...]] = itemgetter(*self.names)
        self._keys = tuple(name.lstrip("_") for name in self.names)
        self._plain = dict(zip(self._keys, self.names, strict=True))
        self._required = required
        self._unlike_none = tuple(
            (name.lstrip("_"), item)
            for name, item in self._blank.items()
            if item is not None and name not in required
        )
        self._converted = dict(converted or {})
        self._encoded = dict(encoded or {})
        self._decoded = dict(decoded or {})
        self._copied = dict(copied or {})
        self._constant = dict(constant or {})

    def encode(self, value: T) -> dict[str, Any]:
        """Return the payload of an object."""
        attributes = value.__dict__
        try:
            held = self.get(attributes)
        except KeyError:  # one was deleted, or an older version of the package made the object
            held = tuple(attributes.get(name) for name in self.names)
        payload = {key: item for key, item in zip(self._keys, held, strict=True) if item is not None}
        for key, default in self._unlike_none:
            item = payload.setdefault(key, None)
            if item == default and type(item) is type(default):
                del payload[key]
        for functions in (self._converted, self._encoded):
            for key, function in functions.items():
                if key in payload:
                    payload[key] = function(payload[key])
        if len(attributes) != self.count and (extra := self._extra(attributes)):
            payload[EXTRA] = extra
        return payload

    def decode(self, payload: Any) -> T:
        """Return the object that a payload says.

        Raises:
            ValueError: It is not what `encode` writes.
            UnknownVersionError: It has a field that this version of the package does not know.
        """
        if type(payload) is not dict:
            raise ValueError(f"the payload of a {self.cls.__name__} is a dict of its fields")
        payload = dict(payload)
        extra = payload.pop(EXTRA, None)
        value = object.__new__(self.cls)
        attributes = value.__dict__
        attributes.update(self._blank)
        for name in self._fresh:
            attributes[name] = {}
        for key, item in payload.items():
            known = self._plain.get(key)
            if known is None:
                if key in self._constant and item == self._constant[key]:
                    continue
                raise UnknownVersionError(
                    f"a {self.cls.__name__} has no field {key!r} here: another version of agent-framework-core "
                    "saved it; install that one"
                )
            function = self._decoded.get(key)
            attributes[known] = item if function is None else function(item)
        for name in self._required:
            if name.lstrip("_") not in payload:
                raise ValueError(f"the field {name.lstrip('_')!r} of a {self.cls.__name__} is missing")
        if extra is not None:
            self._put_extra(attributes, extra)
        return value

    def copy(self, value: T) -> T:
        """Return a copy that shares nothing that can change."""
        new = object.__new__(self.cls)
        attributes = new.__dict__
        attributes.update(value.__dict__)
        for name, item in value.__dict__.items():
            kind = type(item)
            if kind in ATOMS:
                continue
            if kind is dict and not item:
                attributes[name] = {}
            elif name == RAW:
                attributes[name] = None
            elif name in self._copied:
                attributes[name] = self._copied[name](item)
            else:
                convert = self._converted.get(name)
                attributes[name] = copy_value(item if convert is None else convert(item))
        return new

    def _extra(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        own = {*self.names, RAW}
        return {name: attributes[name] for name in sorted(attributes.keys() - own)}

    def _put_extra(self, attributes: dict[str, Any], extra: Any) -> None:
        if type(extra) is not dict or not extra:
            raise ValueError(f"{EXTRA!r} is a dict with attributes")
        for name, item in extra.items():
            # A name of the class would hide one of its methods.
            if type(name) is not str or name in attributes or hasattr(self.cls, name):
                raise ValueError(f"a {self.cls.__name__} has no attribute {name!r} beside its fields")
            attributes[name] = item
