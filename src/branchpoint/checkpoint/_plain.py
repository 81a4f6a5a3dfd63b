"""What callers hand in beside the state: ids, metadata, signatures, limits. Checked, and never shared."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from typing import Any

import msgspec

from branchpoint.codec import Settled
from branchpoint.errors import InvalidCallError

__all__ = [
    "MAX_ID_LENGTH",
    "MAX_METADATA_BYTES",
    "check_id",
    "check_lazy_over",
    "copy_labels",
    "copy_metadata",
    "copy_plain",
    "copy_signature",
    "plain_flaw",
    "require_text",
]

MAX_ID_LENGTH = 512
MAX_METADATA_BYTES = 16 * 1024
_MAX_DEPTH = 64


def check_id(given: str, what: str = "a checkpoint id") -> str:
    """Return an id that every backend can keep; `what` says in messages what it names.

    Raises:
        InvalidCallError: It is not text, empty, over 512 characters, or holds a control character
            or half a surrogate pair.
    """
    if type(given) is not str:
        raise InvalidCallError(f"{what} is text, not {type(given).__name__}")
    if not given:
        raise InvalidCallError(f"{what} is not empty text; leave it out to get a fresh one")
    if len(given) > MAX_ID_LENGTH:
        raise InvalidCallError(
            f"{what} has at most {MAX_ID_LENGTH} characters and this one has {len(given)}: {given[:40]!a}..."
        )
    if not given.isprintable():  # the quick way to know that there is neither
        _refuse_unwritable(given, what)
    return given


def _refuse_unwritable(given: str, what: str) -> None:
    for place, character in enumerate(given):
        if unicodedata.category(character) in ("Cc", "Cs"):
            raise InvalidCallError(
                f"{what} holds no control character and no half of a surrogate pair; this one has "
                f"U+{ord(character):04X} at position {place}"
            )


def check_lazy_over(lazy_over: int | None) -> int | None:
    """Return how many bytes of parts a load may keep in memory; None for all of them.

    Raises:
        InvalidCallError: It is neither None nor a number of bytes.
    """
    if lazy_over is not None and (type(lazy_over) is not int or lazy_over < 0):
        raise InvalidCallError(f"lazy_over is a number of bytes from 0, or None, not {lazy_over!r}")
    return lazy_over


def copy_labels(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Return a copy of a checkpoint's own metadata, text to text.

    Raises:
        InvalidCallError: A key or a value is not text.
    """
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidCallError(f"a checkpoint's metadata is a mapping, not {type(metadata).__name__}")
    for key, value in metadata.items():
        if type(key) is not str or type(value) is not str:
            raise InvalidCallError(
                f"a checkpoint's metadata maps text to text; {key!r} is {type(key).__name__} to "
                f"{type(value).__name__}"
            )
        _check_text(key, "metadata")
        _check_text(value, f"metadata.{key}")
    return dict(metadata)


def copy_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy of a commit's metadata: plain JSON of at most 16 KiB, without the key `boundary`.

    Raises:
        InvalidCallError: It is not plain JSON, too large, or holds the engine's key.
    """
    if metadata is None or (type(metadata) is dict and not metadata):
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidCallError(f"metadata is a mapping of plain JSON, not {type(metadata).__name__}")
    if "boundary" in metadata:
        raise InvalidCallError(
            'the metadata key "boundary" is the engine\'s: leave it out, every snapshot gets its own'
        )
    copied: dict[str, Any] = _checked(dict(metadata), "metadata", 0)
    size = len(msgspec.json.encode(copied))
    if size > MAX_METADATA_BYTES:
        raise InvalidCallError(
            f"metadata is at most {MAX_METADATA_BYTES} bytes of JSON and this is {size}: keep larger values "
            "in shared state"
        )
    return copied


def copy_signature(signature: Mapping[str, Any]) -> Settled:
    """Return a copy of a graph's readable signature, which nobody changes; such a copy itself as it is.

    Raises:
        InvalidCallError: It is not a mapping of plain JSON.
    """
    if type(signature) is Settled:
        return signature
    if not isinstance(signature, Mapping):
        raise InvalidCallError(f"a signature is a mapping of plain JSON, not {type(signature).__name__}")
    return Settled(_checked(dict(signature), "signature", 0))


def require_text(value: str, name: str) -> str:
    """Return a text that every backend can keep; `name` is the argument's, for the message.

    Raises:
        InvalidCallError: It is not text, or holds half of a surrogate pair.
    """
    if type(value) is not str:
        raise InvalidCallError(f"{name} is text, not {type(value).__name__}")
    return _check_text(value, name)


def copy_plain(value: Any) -> Any:
    """Return a copy of a plain JSON value that shares nothing mutable with it."""
    return msgspec.to_builtins(value)


def plain_flaw(value: Any) -> str | None:
    """Say what makes a decoded value no plain JSON that `copy_metadata` would let through; None if nothing."""
    level, depth = [value], 0
    while level:
        if depth > _MAX_DEPTH + 1:
            return f"it is nested over {_MAX_DEPTH} deep"
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str or item is None or kind is bool:
                continue
            if kind is list:
                below += item
            elif kind is dict:
                if any(type(key) is not str for key in item):
                    return "a key is not text"
                below += item.values()
            elif not (kind is int and -(2**63) <= item < 2**64) and not (
                kind is float and math.isfinite(item)
            ):
                return f"it holds a {kind.__name__} that JSON cannot say"
        level, depth = below, depth + 1
    return None


def _checked(value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        return _check_text(value, path)
    if kind is int and -(2**63) <= value < 2**64:
        return value
    if kind is float and math.isfinite(value):
        return value
    if depth > _MAX_DEPTH:
        raise InvalidCallError(f"{path[:200]} is nested over {_MAX_DEPTH} deep, or contains itself")
    if kind is list:
        return [_checked(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise InvalidCallError(f"{path} is plain JSON, whose keys are text, not {type(key).__name__}")
            _check_text(key, path)
        return {key: _checked(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
    if kind in (int, float):
        raise InvalidCallError(f"{path} is plain JSON, which has no number {value!r}"[:300])
    raise InvalidCallError(
        f"{path} is plain JSON, and a {kind.__module__}.{kind.__qualname__} is not: keep such a value in "
        "shared state"
    )


def _check_text(text: str, path: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidCallError(f"{path!a} holds half of a surrogate pair, which is not text") from None
    return text
