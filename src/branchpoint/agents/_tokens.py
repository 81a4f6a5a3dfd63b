"""What tells quickly that a message has not changed: tokens in memory, equal exactly as long as nothing did.

A content of plain fields, which nearly all are, has the marshal bytes of its fields. Marshal writes bytes
and bytearray alike, and sets in any order, so contents with anything but plain values are taken apart.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from typing import Any, Final

from agent_framework import Content, Message

from branchpoint.agents._fieldwise import Fieldwise
from branchpoint.codec import fingerprint

__all__ = ["content_token", "message_token", "token_of"]

_PLAIN: Final = frozenset({bool, int, float, str})
_NO_BYTES: Final = b"s\0\0\0\0"  # how marshal writes an empty bytes, or bytearray: neither is plain
_NONE: Final = type(None)
_NOT_PLAIN: Final = (KeyError, ValueError, RecursionError, AttributeError)


def token_of(kind: Fieldwise[Any]) -> Callable[[Any], Any]:
    """Return what makes the token of any object of a kind: that of what is kept of it."""

    def token(value: Any) -> Any:
        return fingerprint(kind.encode(value))

    return token


def content_token(kind: Fieldwise[Content]) -> Callable[[Content], Any]:
    """Return what makes the token of a content: bytes, if it is plain."""
    fields_of, slow = _plain_fields(kind), token_of(kind)

    def token(content: Content) -> Any:
        try:
            data = marshal.dumps(fields_of(content), 2)
            if _NO_BYTES not in data:
                return data
        except _NOT_PLAIN:
            pass
        return slow(content)

    return token


def message_token(kind: Fieldwise[Message], contents: Fieldwise[Content]) -> Callable[[Message], Any]:
    """Return what makes the token of a message: bytes, if it and all of its contents are plain."""
    get, count, slow = kind.get, kind.count, token_of(kind)
    of_content = _plain_fields(contents)
    place = kind.names.index("contents")

    def token(message: Message) -> Any:
        attributes = message.__dict__
        try:
            fields = list(get(attributes))
            inside = fields[place]
            if len(attributes) == count and type(inside) is list:
                fields[place] = None
                for field in filter(None, fields):
                    if type(field) is not str and not _is_plain(field):
                        raise ValueError
                fields[place] = [of_content(content) for content in inside]
                data = marshal.dumps(fields, 2)
                if _NO_BYTES not in data:
                    return data
        except _NOT_PLAIN:
            pass
        return slow(message)

    return token


def _plain_fields(kind: Fieldwise[Content]) -> Callable[[Content], tuple[Any, ...]]:
    """Return what takes the fields of a content, and raises where one of them is not plain."""
    get, count = kind.get, kind.count

    def fields_of(content: Content) -> tuple[Any, ...]:
        attributes = content.__dict__
        if type(content) is not Content or len(attributes) != count:
            raise ValueError
        fields = get(attributes)
        # What is left out is None, or empty: no place for anything but an empty bytes.
        for field in filter(None, fields):
            if type(field) not in _PLAIN and not _is_plain(field):
                raise ValueError
        return fields

    return fields_of


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind in _PLAIN or kind is _NONE:
        return True
    if kind is dict:
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return kind is list and all(map(_is_plain, value))
