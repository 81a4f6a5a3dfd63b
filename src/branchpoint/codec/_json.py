"""Plain JSON of any value, for the outside world; storage has its own encoding, which loses nothing.

Dataclasses and `msgspec.Struct`s become objects, NamedTuples and sets arrays, Enums their values, dates,
UUIDs, Decimals and paths text, bytes base64. pydantic dumps its models. Every other class is written
by its registered encoder.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from branchpoint import errors
from branchpoint.codec._models import dump_model, is_model
from branchpoint.codec._registry import TypeEntry, entry_for_type
from branchpoint.codec._scalars import scalar_of
from branchpoint.codec._shape import MAX_DEPTH, step, type_name
from branchpoint.codec._stack import with_room

__all__ = ["to_json"]


def to_json(value: Any) -> Any:
    """The plain JSON of `value`: only `None`, bool, int, float, str, list and dict with text as keys.

    Guarantees:
        Nothing is dropped or merged in silence: NaN, infinities, lone surrogates and keys that would
        meet as text are errors. Elements of a set are sorted, so equal values give equal JSON.

    Raises:
        UnregisteredTypeError: A part is of a class that is neither a record nor registered.
        UnsupportedValueError: A part has no JSON form, contains itself or nests deeper than 256.
    """
    try:
        return with_room(lambda: _plain(value, "", 1))
    except RecursionError:
        raise errors.UnsupportedValueError(
            f"A value of type {type_name(type(value))} nests too deeply."
        ) from None


def _refusal(path: str, what: str) -> errors.UnsupportedValueError:
    return errors.UnsupportedValueError(f"{path or 'the value'}: {what}, which JSON cannot say.")


def _plain(value: Any, path: str, depth: int) -> Any:
    if value is None or type(value) is bool:
        return value
    if depth > MAX_DEPTH:
        raise errors.UnsupportedValueError(
            f"{path}: the value nests deeper than {MAX_DEPTH} levels, or contains itself."
        )
    cls = type(value)
    entry = entry_for_type(cls)
    if entry is not None and entry.kind == "custom" and entry.json_schema is not None:
        return _encoded(value, entry, path, depth)
    if isinstance(value, enum.Enum):
        return _plain(value.value, path, depth)
    scalar = scalar_of(cls)
    if scalar is not None:
        return _plain(scalar.write(value), path, depth)
    if is_model(cls):
        return _model(value, path, depth)
    if isinstance(value, msgspec.Struct):
        return _struct(value, path, depth)
    if dataclasses.is_dataclass(cls):
        names = [field.name for field in dataclasses.fields(cls) if hasattr(value, field.name)]
        return {name: _plain(getattr(value, name), step(path, name), depth + 1) for name in names}
    if entry is not None and entry.kind == "custom":
        return _encoded(value, entry, path, depth)
    if isinstance(value, str):
        return _text(str.__str__(value), path)
    if isinstance(value, int):
        return int.__add__(value, 0)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _refusal(path, f"the float {value!r}")
        return value if cls is float else float.fromhex(float.hex(value))
    if isinstance(value, (list, tuple, deque)):
        return [_plain(item, f"{path}[{place}]", depth + 1) for place, item in enumerate(value)]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(item, step(path, item), depth + 1) for item in value), key=json.dumps)
    if isinstance(value, Mapping):
        return _object(value, path, depth)
    raise errors.UnregisteredTypeError(
        f"{path or 'the value'}: {type_name(cls)} has no plain JSON form. Make it a dataclass, a "
        "msgspec.Struct or a pydantic model, or register it: `register_state_type(cls, encoder=, decoder=)`."
    )


def _text(text: str, path: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise _refusal(path, "a text with a lone surrogate") from None
    return text


def _object(value: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, item in value.items():
        where = step(path, key)
        name = _key(key, where, depth)
        if name in plain:
            raise _refusal(where, f"two keys that are both {name!r} as text")
        plain[name] = _plain(item, where, depth + 1)
    return plain


def _key(key: Any, path: str, depth: int) -> str:
    plain = _plain(key, f"key of {path}", depth + 1)
    if isinstance(plain, str):
        return plain
    if isinstance(plain, (list, dict)):
        raise _refusal(path, f"a key of type {type_name(type(key))}")
    return json.dumps(plain)


def _struct(value: msgspec.Struct, path: str, depth: int) -> dict[str, Any]:
    config = value.__struct_config__
    plain: dict[str, Any] = {} if config.tag is None else {str(config.tag_field): config.tag}
    for name, key in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        item = getattr(value, name)
        if item is not msgspec.UNSET:
            plain[key] = _plain(item, step(path, key), depth + 1)
    return plain


def _model(value: Any, path: str, depth: int) -> Any:
    try:
        dumped = dump_model(value)
    except Exception as error:  # pydantic's own kinds of error, and what a serializer raises
        raise errors.UnsupportedValueError(
            f"{path or 'the value'}: pydantic cannot dump this {type_name(type(value))} as JSON ({error})."
        ) from error
    return _plain(dumped, path, depth + 1)


def _encoded(value: Any, entry: TypeEntry, path: str, depth: int) -> Any:
    try:
        payload = entry.encoder(value)
    except Exception as error:
        raise errors.UnsupportedValueError(
            f"{path or 'the value'}: the encoder of {entry.type_id} raised {error!r}."
        ) from error
    return _plain(payload, path, depth + 1)
