"""The keys that a program gives to an encrypting storage."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NoReturn

from branchpoint.errors import InvalidCallError

__all__ = ["EncryptionKeys"]

_KEY_BYTES = 32
_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class EncryptionKeys:
    """Secret keys by id: one that writes, and others that only read what was written with them.

    A key is 32 bytes from a source of randomness, such as `secrets.token_bytes(32)`; a password is none.
    Its id stands in clear text beside everything that is sealed with it. Neither `repr` nor an error shows a
    key, and the object is not pickled.

    Args:
        keys: Key id to key. An id is 1 to 64 letters, digits, `-` and `_`, and never means another key later.
        current: The id of the key that new records are sealed with; needed when there are several.

    Raises:
        InvalidCallError: A key is not 32 bytes, an id is of another form, one key has two ids, or `current` is
            none of the ids.
    """

    __slots__ = ("_current", "_keys")

    def __init__(self, keys: Mapping[str, bytes], *, current: str | None = None) -> None:
        if not isinstance(keys, Mapping):
            raise InvalidCallError(f"keys maps key ids to keys, and is no {type(keys).__name__}")
        for key_id, key in keys.items():
            _check(key_id, key)
        if not keys:
            raise InvalidCallError("keys has at least one key, to seal with")
        if len(set(keys.values())) < len(keys):
            raise InvalidCallError("two of the keys are the same: a key has one id, and a new id a new key")
        if current is None and len(keys) > 1:
            raise InvalidCallError("there are several keys: `current` says which of them seals what is new")
        chosen = next(iter(keys)) if current is None else current
        if chosen not in list(keys):
            # It is not quoted, nor is an id of another form: one of them may be the key, put in the wrong place.
            raise InvalidCallError(f"current is one of the ids {sorted(keys)}, not {_form(chosen)}")
        self._keys = dict(keys)
        self._current = chosen

    @property
    def current(self) -> str:
        """The id of the key that new records are sealed with."""
        return self._current

    @property
    def ids(self) -> frozenset[str]:
        """The ids of all keys."""
        return frozenset(self._keys)

    def secret(self, key_id: str) -> bytes | None:
        """Return a key; None when there is none of this id."""
        return self._keys.get(key_id)

    def __repr__(self) -> str:
        return f"EncryptionKeys(ids={sorted(self._keys)}, current={self._current!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("keys are not pickled or copied: hand them to each process as its secrets")


def _form(value: object) -> str:
    return f"text of {len(value)} characters" if isinstance(value, str) else type(value).__name__


def _check(key_id: object, key: object) -> None:
    if not isinstance(key_id, str) or _KEY_ID.fullmatch(key_id) is None:
        raise InvalidCallError(f"a key id is 1 to 64 letters, digits, - and _, not {_form(key_id)}")
    if type(key) is not bytes or len(key) != _KEY_BYTES:
        what = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise InvalidCallError(
            f"the key {key_id!r} is exactly {_KEY_BYTES} random bytes, not {what}; "
            f"secrets.token_bytes({_KEY_BYTES}) makes one"
        )
