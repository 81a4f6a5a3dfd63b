"""What fields a declared record has: dataclasses, `msgspec.Struct`s, NamedTuples and TypedDicts.

Conversion, JSON schemas and JSON output read declarations here, so they agree on names, types and
on which fields are required.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
import typing_extensions

from branchpoint import errors
from branchpoint.codec._shape import type_name

__all__ = ["NO_DEFAULT", "Record", "RecordField", "own_doc", "record_of"]

Kind = Literal["dataclass", "struct", "namedtuple", "typeddict"]

NO_DEFAULT: Final = msgspec.NODEFAULT


@dataclasses.dataclass(frozen=True, slots=True)
class RecordField:
    """One field that may be given when a record is made.

    Attributes:
        name: The attribute and the argument of the constructor.
        key: The name in JSON; differs from `name` for a Struct with `rename=`.
        tp: The declared type, with type variables of the record replaced.
        required: Whether a dict without it is refused.
        default: What it is when absent, or NO_DEFAULT where that is unknown or made anew each time.
    """

    name: str
    key: str
    tp: Any
    required: bool
    default: Any = NO_DEFAULT


@dataclasses.dataclass(frozen=True, slots=True)
class Record:
    """A declared record.

    Attributes:
        cls: The class to call with the fields as keyword arguments.
        kind: What kind of declaration it is.
        fields: The fields that may be given, in declared order.
        tag: For a tagged Struct, its tag field and value.
    """

    cls: Any
    kind: Kind
    fields: tuple[RecordField, ...]
    tag: tuple[str, str | int] | None = None


def record_of(tp: Any) -> Record | None:
    """The record that `tp` declares, or None if it is no record.

    Raises:
        DefinitionError: An annotation of a field names something that is not at module level.
    """
    origin = typing.get_origin(tp) or tp
    if not isinstance(origin, type) and not typing_extensions.is_typeddict(origin):
        return None
    if not (
        dataclasses.is_dataclass(origin)
        or typing_extensions.is_typeddict(origin)
        or issubclass(origin, msgspec.Struct)
        or (issubclass(origin, tuple) and hasattr(origin, "_fields"))
    ):
        return None
    try:
        return _describe(tp)
    except TypeError as error:
        if isinstance(error, errors.BranchpointError) or "unhashable" not in str(error):
            raise
        return _describe.__wrapped__(tp)


@functools.lru_cache(maxsize=1024)
def _describe(tp: Any) -> Record:
    cls: Any = typing.get_origin(tp) or tp
    hints = _hints(cls)
    variables = dict(zip(getattr(cls, "__parameters__", ()), typing.get_args(tp), strict=False))
    if variables:
        hints = {name: _substitute(hint, variables) for name, hint in hints.items()}
    if typing_extensions.is_typeddict(cls):
        return Record(cls, "typeddict", _typeddict_fields(cls, hints))
    if issubclass(cls, msgspec.Struct):
        return _struct(cls, hints)
    if dataclasses.is_dataclass(cls):
        return Record(cls, "dataclass", _dataclass_fields(cls, hints))
    defaults: Mapping[str, Any] = cls._field_defaults
    fields = tuple(
        RecordField(name, name, hints.get(name, Any), name not in defaults, defaults.get(name, NO_DEFAULT))
        for name in cls._fields
    )
    return Record(cls, "namedtuple", fields)


def _hints(cls: Any) -> dict[str, Any]:
    try:
        return typing_extensions.get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise errors.DefinitionError(
            f"{type_name(cls)}: the annotation of a field cannot be resolved ({error}). Define the classes "
            "that it names at module level."
        ) from error


def _substitute(hint: Any, variables: dict[Any, Any]) -> Any:
    if isinstance(hint, typing.TypeVar):
        return variables.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    if not parameters or isinstance(hint, type):
        return hint
    return hint[tuple(variables.get(parameter, parameter) for parameter in parameters)]


def _dataclass_fields(cls: Any, hints: dict[str, Any]) -> tuple[RecordField, ...]:
    declared: dict[str, dataclasses.Field[Any]] = cls.__dataclass_fields__
    fields = []
    for name, field in declared.items():
        kind = field._field_type.name  # type: ignore[attr-defined]  # the only way to see an InitVar
        if kind == "_FIELD_CLASSVAR" or not field.init:
            continue
        has_default = field.default is not dataclasses.MISSING
        fields.append(
            RecordField(
                name,
                name,
                hints.get(name, Any),
                not has_default and field.default_factory is dataclasses.MISSING,
                field.default if has_default else NO_DEFAULT,
            )
        )
    return tuple(fields)


def _struct(cls: Any, hints: dict[str, Any]) -> Record:
    fields = tuple(
        RecordField(
            field.name, field.encode_name, hints.get(field.name, field.type), field.required, field.default
        )
        for field in msgspec.structs.fields(cls)
    )
    config = cls.__struct_config__
    tag = None if config.tag is None else (config.tag_field, config.tag)
    return Record(cls, "struct", fields, tag)


_MARKS: Final = {typing.Required: True, typing.NotRequired: False}


def _typeddict_fields(cls: Any, hints: dict[str, Any]) -> tuple[RecordField, ...]:
    fields = []
    for name, hint in hints.items():
        required = name in cls.__required_keys__
        inner = hint
        # Under `from __future__ import annotations` only the resolved hint shows Required and NotRequired.
        while (origin := typing.get_origin(inner)) is not None:
            if origin in _MARKS:
                required = _MARKS[origin]
            elif origin not in (typing.Annotated, typing_extensions.ReadOnly):
                break
            inner = typing.get_args(inner)[0]
        fields.append(RecordField(name, name, hint, required))
    return tuple(fields)


def own_doc(cls: Any) -> str | None:
    """The docstring that a person wrote for the class; dataclasses and NamedTuples make one up."""
    doc = vars(cls).get("__doc__")
    if not doc or doc.startswith(f"{cls.__name__}("):
        return None
    return inspect.cleandoc(doc)
