"""Encoded values, and the parts they share: bytes named by their digest."""

from __future__ import annotations

import hashlib
from binascii import b2a_base64
from collections.abc import Container
from typing import Final

__all__ = ["Encoded", "Part", "digest", "new_parts", "part_of"]

_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def digest(data: bytes) -> str:
    """Return the name of some bytes: BLAKE2b of 128 bits, 22 characters of URL-safe base 64."""
    raw = hashlib.blake2b(data, digest_size=16).digest()
    return b2a_base64(raw, newline=False)[:22].translate(_URL_SAFE).decode("ascii")


class Part:
    """Bytes that are stored once under their digest; never changed after it is made.

    Attributes:
        digest: The name, computed from `data`.
        data: A canonical encoding in one format.
        refs: The parts that `data` mentions; empty for a part opened from stored bytes, whose
            references are durable already.
    """

    __slots__ = ("data", "digest", "refs")

    def __init__(self, digest: str, data: bytes, refs: tuple[Part, ...] = ()) -> None:
        self.digest = digest
        self.data = data
        self.refs = refs

    def __repr__(self) -> str:
        return f"Part({self.digest!r}, {len(self.data)} bytes, {len(self.refs)} refs)"


class Encoded:
    """A value that is already encoded; opaque, equal only to itself, never changed.

    Attributes:
        data: What stands in the place of the value: its encoding, or a reference to its part.
        refs: The parts that `data` mentions.
    """

    __slots__ = ("_cut", "data", "refs")

    def __init__(self, data: bytes, refs: tuple[Part, ...] = (), _cut: bool | None = None) -> None:
        self.data = data
        self.refs = refs
        # Whether `data` mentions parts, which `refs` alone cannot tell for stored bytes.
        self._cut = bool(refs) if _cut is None else _cut

    def __repr__(self) -> str:
        return f"Encoded({self.data!r})" if len(self.data) <= 96 else f"Encoded({len(self.data)} bytes)"


def part_of(data: bytes, refs: tuple[Part, ...]) -> Part:
    """Make the part of some bytes."""
    return Part(digest(data), data, refs)


def new_parts(root: Part | Encoded, known: Container[str]) -> dict[str, bytes]:
    """Return the parts under `root` that are not known yet, as digest -> data.

    A known part is not looked into: whoever holds a part also holds what it mentions.
    """
    found: dict[str, bytes] = {}
    waiting = [root] if isinstance(root, Part) else list(root.refs)
    while waiting:
        part = waiting.pop()
        if part.digest in found or part.digest in known:
            continue
        found[part.digest] = part.data
        waiting.extend(part.refs)
    return found
