"""Strict conversion of an answer to the type that its request declared.

What already is an instance of the declared type passes as the very object. Beyond that only what the
declaration documents is converted:

- a dict to a dataclass, `msgspec.Struct`, NamedTuple, TypedDict or pydantic model: every required
  field there, none unknown, each field converted by its own type. Constructors and validators run.
- a text to an Enum member by value, else by name; any other JSON scalar by value.
- ISO text to datetime, date, time and timedelta; text to UUID and Decimal.
- a list to a tuple, set, frozenset or deque, and a dict to an OrderedDict or Counter (JSON has no other).
- an int to a float, where the float is exactly that number.
- plain JSON to a type registered with `json_schema=`, by its decoder.

Nothing else: `True` and `3.0` do not fit `int`, `"1"` does not fit `int`, a datetime does not fit a date.
In a union the members that take the value as it is come first, then the first that it converts to.
"""

from __future__ import annotations

import collections
import collections.abc
import enum
import typing
from collections.abc import Callable
from typing import Any, Final

import msgspec
import typing_extensions

from branchpoint import errors
from branchpoint.codec._models import ModelMismatch, is_model, load_model
from branchpoint.codec._records import Record, record_of
from branchpoint.codec._registry import entry_for_type
from branchpoint.codec._rules import (
    Misfit,
    check_limits,
    decoded,
    enum_member,
    exact_float,
    is_instance,
    literal,
    refuse,
)
from branchpoint.codec._scalars import scalar_of
from branchpoint.codec._shape import MAX_DEPTH, step
from branchpoint.codec._stack import with_room
from branchpoint.codec._typeexpr import describe_type
from branchpoint.codec._typenames import bare, is_union

__all__ = ["convert", "convert_json"]


def convert(value: Any, tp: Any, *, path: str = "") -> Any:
    """Convert `value` to the declared type `tp`, strictly.

    Guarantees:
        The result is an instance of `tp`, all the way down. A value that is one already is returned
        as the same object; copying by value is another function's job. `value` is never changed.

    Args:
        value: An answer, as Python objects or as parsed JSON.
        tp: The declared type: a class, `None`, `Any`, a union, a `Literal` or a generic over these.
        path: Where the value is, for the message of an error.

    Raises:
        UnsupportedValueError: The value does not fit. The message has the path, what was expected
            and the type that was found, never the value itself.
        DefinitionError: The declared type cannot be understood.
    """
    return _run(_Conversion(loose=False), value, tp, path)


def convert_json(value: Any, tp: Any, *, path: str = "") -> Any:
    """As `convert`, for JSON from outside: reads base64 for bytes, text for paths and for keys of dicts."""
    return _run(_Conversion(loose=True), value, tp, path)


def _run(conversion: _Conversion, value: Any, tp: Any, path: str) -> Any:
    try:
        return with_room(lambda: conversion.convert(value, tp, path, 1))
    except RecursionError:
        raise errors.UnsupportedValueError(
            f"{path or 'the value'}: nests too deeply to be read as {describe_type(tp)}."
        ) from None


class _Conversion:
    """The rules; `loose` adds those of the JSON boundary."""

    __slots__ = ("loose", "tried")

    def __init__(self, loose: bool) -> None:
        self.loose = loose
        self.tried: dict[tuple[int, str, Any], tuple[Any, Misfit | None]] = {}

    def convert(self, value: Any, declared: Any, path: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise Misfit(path, f"nests deeper than {MAX_DEPTH} levels")
        metadata: list[Any] = []
        tp = bare(declared, metadata)
        if metadata:
            return check_limits(self.convert(value, tp, path, depth), metadata, path)
        if tp is Any or tp is object:
            return value
        if tp is None or tp is type(None):
            return value if value is None else refuse(path, tp, value)
        if is_union(tp):
            return self.union(value, tp, path, depth)
        origin = typing.get_origin(tp)
        if origin is typing.Literal:
            return literal(value, tp, path)
        cls = origin or tp
        convert_items = _CONTAINERS.get(cls) if isinstance(cls, type) else None
        if convert_items is not None:
            return convert_items(self, value, tp, cls, path, depth)
        return self.instance(value, tp, cls, path, depth)

    def union(self, value: Any, tp: Any, path: str, depth: int) -> Any:
        """One outcome for one place: members that lead to one union again would try it twice at each level."""
        if type(value) is not dict and type(value) is not list:
            return self.member(value, tp, path, depth)
        try:
            known = self.tried.get(place := (id(value), path, tp))
        except TypeError:  # an unhashable default or limit
            return self.member(value, tp, path, depth)
        if known is None:
            try:
                known = (self.member(value, tp, path, depth), None)
            except Misfit as error:
                known = (None, error)
            self.tried[place] = known
        if known[1] is not None:
            raise known[1]
        return known[0]

    def member(self, value: Any, tp: Any, path: str, depth: int) -> Any:
        fallbacks: list[Any] = []
        reasons: list[str] = []
        for member in typing.get_args(tp):
            try:
                converted = self.convert(value, member, path, depth)
            except Misfit as error:
                if error.path != path:  # it got as far as a field or an item, so that is worth telling
                    reasons.append(str(error))
                continue
            if converted is value:
                return value
            fallbacks.append(converted)
        return fallbacks[0] if fallbacks else refuse(path, tp, value, " ".join(reasons[:5]))

    # Classes.

    def instance(self, value: Any, tp: Any, cls: Any, path: str, depth: int) -> Any:
        if cls is typing.Never or cls is typing.NoReturn:
            refuse(path, tp, value)
        if typing_extensions.is_typeddict(cls):
            return self.typed_dict(value, tp, path, depth)
        if not isinstance(cls, type):
            raise errors.DefinitionError(
                f"{path or 'the value'}: {tp!r} is not a type that a value can be checked for"
            )
        if is_instance(value, cls):
            return value
        if cls is float and type(value) is int:
            return exact_float(value, path)
        if issubclass(cls, enum.Enum):
            return enum_member(value, cls, path)
        scalar = scalar_of(cls)
        if scalar is not None:
            if type(value) is not scalar.source or (scalar.json_only and not self.loose):
                refuse(path, tp, value)
            try:
                return scalar.read(value)
            except (ValueError, ZeroDivisionError):
                refuse(path, tp, value, f"the {type(value).__name__} does not say one")
        entry = entry_for_type(cls)
        if entry is not None and entry.kind == "custom" and (self.loose or entry.json_schema is not None):
            return decoded(value, entry, tp, path)
        if is_model(cls):
            return self.model(value, cls, path)
        record = record_of(tp)
        return refuse(path, tp, value) if record is None else self.record(value, record, tp, path, depth)

    def model(self, value: Any, cls: Any, path: str) -> Any:
        if not isinstance(value, dict) and not cls.__pydantic_root_model__:
            refuse(path, cls, value)
        try:
            return load_model(value, cls, strict=not self.loose, path=path)
        except ModelMismatch as error:
            raise Misfit(error.path, f"does not fit {describe_type(cls)}: {error}") from error

    def record(self, value: Any, record: Record, tp: Any, path: str, depth: int) -> Any:
        if record.kind == "namedtuple" and type(value) is list and len(value) <= len(record.fields):
            value = {field.key: item for field, item in zip(record.fields, value, strict=False)}
        given = self.fields(value, record, tp, path, depth)
        try:
            return record.cls(**given)
        except Exception as error:  # what __post_init__ or a validator says
            raise Misfit(
                path, f"{describe_type(tp)} refuses these fields ({type(error).__name__}: {error})"
            ) from error

    def typed_dict(self, value: Any, tp: Any, path: str, depth: int) -> Any:
        record = record_of(tp)
        assert record is not None  # every TypedDict is a record
        given = self.fields(value, record, tp, path, depth)
        same = all(given[name] is item for name, item in value.items())
        return value if same else {name: given[name] for name in value}

    def fields(self, value: Any, record: Record, tp: Any, path: str, depth: int) -> dict[str, Any]:
        """The converted fields of a record, by the names its constructor takes."""
        if not isinstance(value, dict):
            refuse(path, tp, value)
        known = {field.key: field for field in record.fields}
        given: dict[str, Any] = {}
        for key, item in value.items():
            field = known.get(key) if isinstance(key, str) else None
            if field is not None:
                given[field.name] = self.convert(item, field.tp, step(path, key), depth + 1)
            elif record.tag is None or key != record.tag[0] or item != record.tag[1]:
                is_tag = record.tag is not None and key == record.tag[0]
                what = "this tag belongs to another type" if is_tag else "there is no such field"
                names = ", ".join(known) or "none"
                raise Misfit(
                    step(path, key), f"{what}; expected {describe_type(tp)}, whose fields are {names}"
                )
        for field in record.fields:
            if field.required and field.name not in given:
                raise Misfit(step(path, field.key), f"this field is missing; {describe_type(tp)} requires it")
        return given

    # Containers.

    def items(self, items: Any, tp: Any, path: str, depth: int) -> list[Any]:
        converted = []
        for place, item in enumerate(items):
            converted.append(self.convert(item, tp, f"{path}[{place}]", depth + 1))
        return converted

    def sequence(self, value: Any, tp: Any, cls: type, path: str, depth: int) -> Any:
        arguments = typing.get_args(tp)
        is_list = type(value) is list
        if isinstance(value, (str, bytes, bytearray)) or not (
            isinstance(value, cls) or (is_list and cls in _FROM_LIST)
        ):
            refuse(path, tp, value)
        if not arguments and isinstance(value, cls):
            return value
        originals = list(value)
        items = self.items(originals, arguments[0] if arguments else Any, path, depth)
        same = all(new is old for new, old in zip(items, originals, strict=True))
        if same and isinstance(value, cls):
            return value
        try:
            if isinstance(value, collections.deque):
                return collections.deque(items, value.maxlen)
            if isinstance(value, cls) and type(value) in (list, tuple, set, frozenset):
                make: Any = type(value)
                return make(items)
            return _FROM_LIST[cls](items)
        except (KeyError, TypeError):
            refuse(path, tp, value)

    def fixed(self, value: Any, tp: Any, cls: type, path: str, depth: int) -> Any:
        if not isinstance(value, tuple) and type(value) is not list:
            refuse(path, tp, value)
        arguments = typing.get_args(tp)
        if not hasattr(tp, "__args__"):
            arguments = (Any, ...)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            items = self.items(value, arguments[0], path, depth)
        else:
            if len(value) != len(arguments):
                refuse(path, tp, value, f"of {len(value)} items")
            items = [
                self.convert(item, member, f"{path}[{place}]", depth + 1)
                for place, (item, member) in enumerate(zip(value, arguments, strict=True))
            ]
        same = isinstance(value, tuple) and all(new is old for new, old in zip(items, value, strict=True))
        return value if same else tuple(items)

    def mapping(self, value: Any, tp: Any, cls: Any, path: str, depth: int) -> Any:
        make = _FROM_DICT.get(cls)
        if not isinstance(value, cls) and (type(value) is not dict or make is None):
            refuse(path, tp, value)
        arguments = typing.get_args(tp)
        key_type, item_type = (arguments[0], int) if cls is collections.Counter and arguments else (Any, Any)
        if len(arguments) == 2:
            key_type, item_type = arguments
        same = isinstance(value, cls)
        converted: dict[Any, Any] = {}
        for key, item in value.items():
            where = step(path, key)
            new_key = self.key(key, key_type, where, depth)
            new_item = self.convert(item, item_type, where, depth + 1)
            same = same and new_key is key and new_item is item
            if new_key in converted:
                raise Misfit(where, f"two keys say the same {describe_type(key_type)}")
            converted[new_key] = new_item
        if same:
            return value
        if type(value) is collections.defaultdict:
            return collections.defaultdict(value.default_factory, converted)
        keeps = _FROM_DICT.get(type(value)) if isinstance(value, cls) else make
        return (keeps or dict)(converted)

    def key(self, key: Any, tp: Any, path: str, depth: int) -> Any:
        try:
            return self.convert(key, tp, f"key of {path}", depth + 1)
        except errors.UnsupportedValueError:
            if not self.loose or type(key) is not str:
                raise
            try:  # JSON has keys of text alone, so a number is its text
                return msgspec.convert(key, tp, strict=False)
            except (ValueError, TypeError):
                pass  # a ValidationError is a ValueError, and so is what half a surrogate gives
            raise


_Items = Callable[[_Conversion, Any, Any, Any, str, int], Any]

_CONTAINERS: Final[dict[type, _Items]] = {
    tuple: _Conversion.fixed,
    list: _Conversion.sequence,
    set: _Conversion.sequence,
    frozenset: _Conversion.sequence,
    collections.deque: _Conversion.sequence,
    collections.abc.Sequence: _Conversion.sequence,
    collections.abc.MutableSequence: _Conversion.sequence,
    collections.abc.Collection: _Conversion.sequence,
    collections.abc.Iterable: _Conversion.sequence,
    collections.abc.Set: _Conversion.sequence,
    collections.abc.MutableSet: _Conversion.sequence,
    dict: _Conversion.mapping,
    collections.OrderedDict: _Conversion.mapping,
    collections.Counter: _Conversion.mapping,
    collections.defaultdict: _Conversion.mapping,
    collections.abc.Mapping: _Conversion.mapping,
    collections.abc.MutableMapping: _Conversion.mapping,
}
_FROM_LIST: Final[dict[Any, Callable[[Any], Any]]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    collections.deque: collections.deque,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Collection: list,
    collections.abc.Iterable: list,
    collections.abc.Set: frozenset,
    collections.abc.MutableSet: set,
}
_FROM_DICT: Final[dict[Any, Callable[[Any], Any]]] = {
    dict: dict,
    collections.OrderedDict: collections.OrderedDict,
    collections.Counter: collections.Counter,
    collections.abc.Mapping: dict,
    collections.abc.MutableMapping: dict,
}
