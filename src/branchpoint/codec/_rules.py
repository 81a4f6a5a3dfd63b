"""What fits a single class, Enum or literal, and how a misfit is told."""

from __future__ import annotations

import datetime
import enum
import typing
from typing import Any, Final, NoReturn

import msgspec

from branchpoint import errors
from branchpoint.codec._registry import TypeEntry
from branchpoint.codec._shape import type_name
from branchpoint.codec._typeexpr import describe_type

__all__ = [
    "Misfit",
    "check_limits",
    "decoded",
    "enum_member",
    "exact_float",
    "is_instance",
    "literal",
    "refuse",
]


class Misfit(errors.UnsupportedValueError):
    """A value does not fit; `path` is where."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path or 'the value'}: {message}.")
        self.path = path


def refuse(path: str, tp: Any, value: Any, why: str = "") -> NoReturn:
    raise Misfit(path, f"expected {describe_type(tp)}, got {type_name(type(value))}{why and f' ({why})'}")


_JSON: Final = frozenset({type(None), bool, int, float, str, list, dict})


def is_instance(value: Any, cls: type) -> bool:
    """As isinstance, but a bool is no int and a datetime no date: they say something else."""
    if cls is int and type(value) is bool:
        return False
    if cls is datetime.date and isinstance(value, datetime.datetime):
        return False
    try:
        return isinstance(value, cls)
    except TypeError:  # a Protocol that is not runtime_checkable
        return False


def exact_float(value: int, path: str) -> float:
    try:
        converted = float(value)
    except OverflowError:
        converted = float("inf")
    return converted if converted == value else refuse(path, float, value, "no float is exactly this number")


def enum_member(value: Any, cls: type[enum.Enum], path: str) -> enum.Enum:
    for member in cls.__members__.values():
        if type(member.value) is type(value) and member.value == value:
            return member
    if type(value) is str and value in cls.__members__:
        return cls.__members__[value]
    if issubclass(cls, enum.Flag) and type(value) is int:
        try:
            return cls(value)
        except ValueError:
            pass
    if isinstance(value, (str, int)):
        refuse(path, cls, value, f"one of {', '.join(cls.__members__)}")
    refuse(path, cls, value)


def literal(value: Any, tp: Any, path: str) -> Any:
    choices = typing.get_args(tp)
    for choice in choices:
        if type(choice) is type(value) and choice == value:
            return value
    for choice in choices:
        if isinstance(choice, enum.Enum) and type(value) is type(choice.value) and value == choice.value:
            return choice
    for choice in choices:
        if isinstance(choice, enum.Enum) and value == choice.name and type(value) is str:
            return choice
    refuse(path, tp, value)


def decoded(value: Any, entry: TypeEntry, tp: Any, path: str) -> Any:
    if type(value) not in _JSON:
        refuse(path, tp, value)
    try:
        made = entry.decoder(value)
    except Exception as error:
        raise Misfit(
            path,
            f"the decoder of {describe_type(tp)} refuses this {type_name(type(value))} "
            f"({type(error).__name__}: {error})",
        ) from error
    return made if isinstance(made, entry.cls) else refuse(path, tp, value)


def check_limits(value: Any, metadata: list[Any], path: str) -> Any:
    """Check what `msgspec.Meta` says of an annotated type; other metadata means nothing here."""
    limits = tuple(meta for meta in metadata if isinstance(meta, msgspec.Meta))
    if not limits or value is None:
        return value
    try:
        msgspec.convert(value, typing.Annotated[(type(value), *limits)])
    except msgspec.ValidationError as error:
        raise Misfit(path, str(error)) from error
    except TypeError:  # a limit that is not for this kind of value, in a union
        pass
    return value
