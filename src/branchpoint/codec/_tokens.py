"""What recognises an item of a sequence when it is met again.

- Marshal bytes, for an item whose first encoding met nothing but exact `None`, bool, int, float,
  str, list, dict and tuple. Among these, equal marshal bytes (version 2, which keeps no identities)
  mean equal types, values and order, so 1, 1.0 and True, -0.0 and 0.0 all differ.
- The object itself, for an item that was handed over already encoded, which never changes.
- For an item of a registered type, its `fingerprint=` or, without one, the marshal bytes of the
  payload that its encoder makes, if that is plain in the same sense.
- A text key and one of these, for an entry of a dict.

Any other item has no token and is encoded each time. Tokens are never stored and never loaded.
"""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from operator import is_
from struct import pack
from typing import Any

from branchpoint.codec._parts import Encoded
from branchpoint.codec._registry import TypeEntry, by_type

__all__ = ["item_token", "joined_tokens", "lookup_key", "proven_tokens", "proves", "same_items"]


class _Seen:
    """The token of an item of a registered type."""

    __slots__ = ("entry", "plain", "token")

    def __init__(self, entry: TypeEntry, token: Any, plain: bool) -> None:
        self.entry = entry
        self.token = token
        self.plain = plain


def item_token(item: Any) -> Any:
    """The token of one item, or None; `proves` tells afterwards whether it can be relied on."""
    kind = type(item)
    if kind is Encoded:
        return item
    entry = by_type.get(kind)
    if entry is None or entry.fingerprint is None:
        try:
            return marshal.dumps(item, 2)
        except ValueError:
            pass
    if kind is tuple:
        if len(item) == 2 and type(item[0]) is str:
            token = item_token(item[1])
            return None if token is None else (item[0], token)
        return None
    if entry is None:
        return None
    try:
        if entry.fingerprint is not None:
            return _Seen(entry, entry.fingerprint(item), False)
        return _Seen(entry, marshal.dumps(entry.encoder(item), 2), True)
    except Exception:  # encoding the item will say what is wrong with it, and where
        return None


def proves(token: Any, foreign: int) -> bool:
    """Whether a token can be relied on, after the encoding of its item met so many foreign values."""
    kind = type(token)
    if kind is bytes:
        return foreign == 0
    if kind is tuple:
        return proves(token[1], foreign)
    if kind is _Seen:
        return not token.plain or foreign == 1  # the item itself is the one
    return token is not None


def proven_tokens(items: list[Any], foreign: list[int]) -> list[Any] | None:
    """The tokens of items that have not changed since they were encoded; None when one proves nothing."""
    tokens = [item_token(item) for item in items]
    return tokens if all(map(proves, tokens, foreign)) else None


def joined_tokens(tokens: list[Any] | None) -> Any:
    """The token of a segment: marshal bytes of a list are those of its items in a row."""
    if not tokens:
        return None
    if all(type(token) is bytes for token in tokens):
        return b"[" + pack("<i", len(tokens)) + b"".join(tokens)
    return tuple(tokens)


def same_items(token: Any, items: Sequence[Any]) -> bool:
    """Whether items have the token of a segment."""
    if type(token) is bytes:
        try:
            return marshal.dumps(list(items), 2) == token
        except ValueError:
            return False
    if type(token[0]) is Encoded and all(map(is_, token, items)):
        return True
    return all(_same(known, item) for known, item in zip(token, items, strict=True))


def lookup_key(token: Any) -> Any:
    """Something hashable, the same for equal tokens."""
    kind = type(token)
    if kind is bytes:
        return token
    if kind is tuple:
        return token[0], lookup_key(token[1])
    if kind is _Seen:
        return token.token if type(token.token) is bytes else id(token.entry)
    return id(token)


def _same(known: Any, item: Any) -> bool:
    kind = type(known)
    if kind is Encoded:
        return known is item
    if kind is tuple and type(known[1]) is Encoded:
        return type(item) is tuple and len(item) == 2 and item[1] is known[1] and _text(item[0]) == known[0]
    return _equal(known, item_token(item))


def _text(key: Any) -> str | None:
    return key if type(key) is str else None


def _equal(known: Any, token: Any) -> bool:
    kind = type(known)
    if kind is not type(token):
        return False
    if kind is bytes:
        return bool(known == token)
    if kind is tuple:
        return bool(known[0] == token[0]) and _equal(known[1], token[1])
    if kind is _Seen:
        return (
            known.entry is token.entry
            and type(known.token) is type(token.token)
            and bool(known.token == token.token)
        )
    return known is token
