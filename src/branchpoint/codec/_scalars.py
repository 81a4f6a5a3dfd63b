"""Standard types that JSON has no form of its own for, and the text that stands for them.

The text of the first group means one thing only and is what every JSON library writes, so an answer may
give it wherever such a type is declared. The second group is read at the JSON boundary alone: any text
is a path, and much of ordinary text is valid base64.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import fractions
import pathlib
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

__all__ = ["PLAIN_SCHEMAS", "SCALARS", "Scalar", "scalar_of"]


@dataclass(frozen=True, slots=True)
class Scalar:
    """One such type.

    Attributes:
        schema: Its JSON schema.
        read: Its plain JSON -> value; raises ValueError.
        write: Value -> its plain JSON.
        json_only: Whether only JSON from outside may give it so, not an answer in Python.
        source: The exact type of its plain JSON.
    """

    schema: dict[str, Any]
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]
    json_only: bool = False
    source: type = str


def _reader(cls: type) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        return msgspec.convert(text, cls, strict=True)  # msgspec.ValidationError is a ValueError

    return read


def _text(format_: str | None = None) -> dict[str, Any]:
    return {"type": "string"} if format_ is None else {"type": "string", "format": format_}


def _standard(cls: type, format_: str) -> Scalar:
    return Scalar(_text(format_), _reader(cls), msgspec.to_builtins)


def _path(cls: Callable[[str], Any]) -> Scalar:
    return Scalar(_text("path"), cls, str, json_only=True)


def _base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _fraction(text: str) -> fractions.Fraction:
    if _FRACTION.fullmatch(text) is None:  # an exponent of a few digits would make a number of gigabytes
        raise ValueError("a fraction is two whole numbers, or a number without an exponent")
    return fractions.Fraction(text)


def _complex(pair: list[Any]) -> complex:
    if len(pair) != 2 or not all(type(part) in (int, float) for part in pair):
        raise ValueError("a complex number is a list of two numbers")
    return complex(*pair)


_FRACTION: Final = re.compile(r"[+-]?\d{1,4000}(?:/\d{1,4000}|\.\d{1,4000})?", re.ASCII)
_BASE64: Final = {"type": "string", "contentEncoding": "base64"}
_NUMBERS: Final = {
    "type": "array",
    "prefixItems": [{"type": "number"}, {"type": "number"}],
    "minItems": 2,
    "maxItems": 2,
}

SCALARS: Final[dict[Any, Scalar]] = {
    datetime.datetime: _standard(datetime.datetime, "date-time"),
    datetime.date: _standard(datetime.date, "date"),
    datetime.time: _standard(datetime.time, "time"),
    datetime.timedelta: _standard(datetime.timedelta, "duration"),
    uuid.UUID: _standard(uuid.UUID, "uuid"),
    decimal.Decimal: Scalar(_text("decimal"), _reader(decimal.Decimal), str),
    bytes: Scalar(_BASE64, _base64, lambda value: base64.b64encode(value).decode(), json_only=True),
    bytearray: Scalar(
        _BASE64,
        lambda text: bytearray(_base64(text)),
        lambda value: base64.b64encode(value).decode(),
        json_only=True,
    ),
    fractions.Fraction: Scalar(_text(), _fraction, str, json_only=True),
    pathlib.PurePath: _path(pathlib.PurePath),
    pathlib.PurePosixPath: _path(pathlib.PurePosixPath),
    pathlib.PureWindowsPath: _path(pathlib.PureWindowsPath),
    pathlib.Path: _path(pathlib.Path),
    pathlib.PosixPath: _path(pathlib.PosixPath),
    pathlib.WindowsPath: _path(pathlib.WindowsPath),
    complex: Scalar(_NUMBERS, _complex, lambda value: [value.real, value.imag], json_only=True, source=list),
}

PLAIN_SCHEMAS: Final[dict[Any, dict[str, Any]]] = {
    Any: {},
    object: {},
    None: {"type": "null"},
    type(None): {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
}
"""The schemas of what JSON has forms for."""


def scalar_of(cls: Any) -> Scalar | None:
    """The scalar of a class, or None."""
    return SCALARS.get(cls) if isinstance(cls, type) else None
