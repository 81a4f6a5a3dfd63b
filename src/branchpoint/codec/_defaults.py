"""Codecs that a class has by its nature: dataclass, msgspec.Struct, Enum, NamedTuple.

The payload of a record is a dict of its fields in declared order, so data survives a field that is
added with a default. Fields come back exactly as saved: no `__init__`, `__post_init__`, converter
or validator runs. What a program has put on an instance beside its fields is kept under
`"__dict__"`, which no field can be called; what a `cached_property` left there is derived and is not.
A field of a Struct that is `msgspec.UNSET` is left out; an absent field that declares UNSET is UNSET again.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
import typing
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from branchpoint.codec._shape import layout_of
from branchpoint.codec._typenames import bare, is_union
from branchpoint.errors import UnsupportedValueError

__all__ = ["FieldMismatch", "codec_for", "is_enum", "shallow_struct"]

Kind = Literal["dataclass", "struct", "enum", "namedtuple"]
Codec = tuple[Kind, Callable[[Any], Any], Callable[[Any], Any]]

EXTRA: Final = "__dict__"
_IGNORED: Final = frozenset({"__orig_class__", "__weakref__"})  # what `Box[int](...)` leaves on the instance
_REQUIRED: Final = object()


class FieldMismatch(Exception):
    """A stored record does not have the fields of the class; the decoder adds id and path."""


def is_enum(cls: type[Any]) -> bool:
    """Whether the class is an Enum of any kind."""
    return issubclass(cls, enum.Enum)


def codec_for(cls: type[Any]) -> Codec | None:
    """Return kind, encoder and decoder for a class that has a default codec, else None."""
    if is_enum(cls):
        return ("enum", *_flag_codec(cls)) if issubclass(cls, enum.Flag) else ("enum", *_enum_codec(cls))
    if issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple):
        return ("namedtuple", *_namedtuple_codec(cls))
    if issubclass(cls, msgspec.Struct):
        return ("struct", *_struct_codec(cls))
    if dataclasses.is_dataclass(cls) and layout_of(cls).native is object:
        return ("dataclass", *_dataclass_codec(cls))
    return None


def _enum_codec(cls: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    members: dict[str, Any] = cls._member_map_

    def encode(value: Any) -> Any:
        name = value._name_
        if members.get(name) is not value:
            raise UnsupportedValueError(
                f"{value!r} is not one of the members that {cls.__qualname__} declares"
            )
        return name

    def decode(payload: Any) -> Any:
        if type(payload) is not str:
            raise ValueError("the payload of an Enum is the name of a member")
        member = members.get(payload)
        if member is None or member._name_ != payload:
            raise FieldMismatch(f"it has no member {payload!r}")
        return member

    return encode, decode


def _flag_codec(cls: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    def encode(value: Any) -> Any:
        return value._value_

    def decode(payload: Any) -> Any:
        if type(payload) is not int:
            raise ValueError("the payload of a Flag is an int")
        try:
            member = cls(payload)
        except ValueError:
            member = None
        if type(member) is not cls or member._value_ != payload:
            raise FieldMismatch(f"it has no members for {payload:#x}")  # decimal text has a limit
        return member

    return encode, decode


def _namedtuple_codec(cls: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    names: tuple[str, ...] = cls._fields
    defaults = {name: cls._field_defaults.get(name, _REQUIRED) for name in names}
    extras = _extras_of(cls, frozenset())
    put_extras = _putter_of(cls, frozenset())

    def encode(value: Any) -> Any:
        values = tuple(value)
        if len(values) != len(names):
            raise UnsupportedValueError(
                f"this {cls.__qualname__} has {len(values)} items for {len(names)} fields"
            )
        payload = dict(zip(names, values, strict=True))
        if extras is not None and (found := extras(value)):
            payload[EXTRA] = found
        return payload

    def decode(payload: Any) -> Any:
        fields, extra = _fields(payload, names, defaults, ())
        value = tuple.__new__(cls, [fields[name] for name in names])
        if extra:
            put_extras(value, extra)
        return value

    return encode, decode


def _struct_codec(cls: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    names: tuple[str, ...] = cls.__struct_fields__
    defaults: dict[str, Any] = {}
    for field in msgspec.structs.fields(cls):
        if field.default is not msgspec.NODEFAULT:
            defaults[field.name] = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            defaults[field.name] = _Factory(field.default_factory)
        else:
            defaults[field.name] = _REQUIRED
    get = _getter(names)
    extras = _extras_of(cls, frozenset(names))
    put_extras = _putter_of(cls, frozenset(names))
    blank = _blank_struct(cls, names)
    force = msgspec.structs.force_setattr
    unset = tuple(field.name for field in msgspec.structs.fields(cls) if _may_be_unset(field))

    def encode(value: Any) -> Any:
        payload = dict(zip(names, get(value), strict=True))
        for name in unset:
            if payload[name] is msgspec.UNSET:
                del payload[name]
        if extras is not None and (found := extras(value)):
            payload[EXTRA] = found
        return payload

    def decode(payload: Any) -> Any:
        fields, extra = _fields(payload, names, defaults, unset)
        value = shallow_struct(blank)
        for name in names:
            force(value, name, fields.get(name, msgspec.UNSET))
        if extra:
            put_extras(value, extra)
        return value

    return encode, decode


# Not the `__copy__` that a class may define for itself.
shallow_struct: Final[Callable[[Any], Any]] = getattr(msgspec.Struct, "__copy__")  # noqa: B009


def _may_be_unset(field: Any) -> bool:
    """Whether UNSET is one of the values that a field declares."""
    tp = bare(field.type)
    members = typing.get_args(tp) if is_union(tp) else (tp,)
    return field.default is msgspec.UNSET or msgspec.UnsetType in members


def _blank_struct(cls: Any, names: tuple[str, ...]) -> Any:
    """An instance to copy from: a Struct cannot be made without `__init__`, which runs `__post_init__`."""
    if not hasattr(cls, "__post_init__"):
        return cls(**dict.fromkeys(names))
    quiet = msgspec.defstruct(cls.__name__, [], bases=(cls,), namespace={"__post_init__": lambda self: None})
    blank = quiet(**dict.fromkeys(names))
    msgspec.structs.force_setattr(blank, "__class__", cls)
    return blank


def _dataclass_codec(cls: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    declared = dataclasses.fields(cls)
    names = tuple(field.name for field in declared)
    defaults: dict[str, Any] = {}
    optional = []
    for field in declared:
        if field.default is not dataclasses.MISSING:
            defaults[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = _Factory(field.default_factory)
        elif field.init:
            defaults[field.name] = _REQUIRED
        else:
            optional.append(field.name)  # set by __post_init__ or later, or never
    get = _getter(names)
    extras = _extras_of(cls, frozenset(names))
    put_extras = _putter_of(cls, frozenset(names))
    unset = tuple(optional)
    new, put = object.__new__, object.__setattr__
    # Without slots and descriptors the instance's __dict__ is all there is to fill.
    direct = cls.__dictoffset__ != 0 and not any(
        hasattr(type(getattr(cls, name, None)), "__set__") or name in dict(layout_of(cls).slots)
        for name in names
    )

    def encode(value: Any) -> Any:
        try:
            payload = dict(zip(names, get(value), strict=True))
        except AttributeError:  # a field that was never set or was deleted
            payload = {name: getattr(value, name) for name in names if hasattr(value, name)}
        if extras is not None and (found := extras(value)):
            payload[EXTRA] = found
        return payload

    def decode(payload: Any) -> Any:
        fields, extra = _fields(payload, names, defaults, unset)
        value = new(cls)
        if direct:
            value.__dict__.update(fields)
        else:
            for name, item in fields.items():
                put(value, name, item)
        if extra:
            put_extras(value, extra)
        return value

    return encode, decode


class _Factory:
    """Makes the default of one field."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if not names:
        return lambda value: ()
    if len(names) == 1:
        single = operator.attrgetter(names[0])
        return lambda value: (single(value),)
    return operator.attrgetter(*names)


def _beside(cls: type[Any], names: frozenset[str]) -> dict[str, Any]:
    """The slots that an instance has beside its fields."""
    if issubclass(cls, msgspec.Struct):
        return {}  # the slots of a Struct are its fields
    slots = layout_of(cls).slots
    return {name: member for name, member in slots if name not in names and name not in _IGNORED}


def _extras_of(cls: type[Any], names: frozenset[str]) -> Callable[[Any], dict[str, Any]] | None:
    """A function that finds what an instance holds beside its fields, or None if it cannot hold any."""
    layout = layout_of(cls)
    slots = tuple(_beside(cls, names).items())
    ignored = names | _IGNORED | layout.derived
    if not layout.has_dict and not slots:
        return None

    def extras(value: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, member in slots:
            try:
                found[name] = member.__get__(value)
            except AttributeError:
                continue
        if layout.has_dict:
            attributes = value.__dict__
            # Every field in its place and nothing else is the usual case, and it is told by counting.
            if attributes.keys() != names:
                more = {name: item for name, item in tuple(attributes.items()) if name not in ignored}
                found.update(sorted(more.items()))
        return found

    return extras


def _putter_of(cls: type[Any], names: frozenset[str]) -> Callable[[Any, dict[Any, Any]], None]:
    """A function that puts back what was kept beside the fields, and calls nothing of the class for it.

    A name that an instance cannot hold beside its fields is refused.
    """
    layout = layout_of(cls)
    slots = _beside(cls, names)
    ignored = names | _IGNORED | layout.derived

    def put(value: Any, extra: dict[Any, Any]) -> None:
        for name, item in extra.items():
            if name in slots:
                slots[name].__set__(value, item)
            elif type(name) is str and layout.has_dict and name not in ignored:
                value.__dict__[name] = item  # past a property's setter
            else:
                raise FieldMismatch(f"it has no attribute {name!r} beside its fields any more")

    return put


def _fields(
    payload: Any, names: tuple[str, ...], defaults: dict[str, Any], unset: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a stored record, complete with defaults, and what was kept beside them."""
    if type(payload) is not dict:
        raise ValueError("the payload of a record is a dict of its fields")
    extra = payload.pop(EXTRA, None) if EXTRA in payload else {}
    if type(extra) is not dict:
        raise ValueError(f"{EXTRA!r} of a record is a dict")
    if tuple(payload) == names:
        return payload, extra
    known = set(names)
    for name in payload:
        if name not in known:
            raise FieldMismatch(f"it has no field {name!r} any more")
    fields = {}
    for name in names:
        if name in payload:
            fields[name] = payload[name]
        elif name in unset:
            continue
        else:
            default = defaults[name]
            if default is _REQUIRED:
                raise FieldMismatch(f"its field {name!r} is required and was not saved")
            fields[name] = default.make() if type(default) is _Factory else default
    return fields, extra
