"""The names in the table of records: those of parts, kept as bytes where they are digests, and those of manifests."""

from __future__ import annotations

import binascii
import zlib
from typing import NamedTuple

__all__ = ["ManifestName", "beginning_of", "header_name", "kept_name", "shown_name"]

_TO_PLAIN = bytes.maketrans(b"-_+/", b"+/!!")  # what is no urlsafe letter is none afterwards
_TO_URLSAFE = bytes.maketrans(b"+/", b"-_")
_LAST = "AQgw"  # what can stand last where 16 bytes are written in 22 letters


def kept_name(name: str) -> str | bytes:
    """Return what a part's name is stored as: 16 bytes for the urlsafe base64 of 16 bytes, or itself."""
    if len(name) == 22 and name[21] in _LAST:
        try:
            return binascii.a2b_base64(name.encode().translate(_TO_PLAIN) + b"==", strict_mode=True)
        except ValueError:
            pass  # it only looks like one
    return name


def shown_name(kept: str | bytes) -> str:
    """Return the name that was given."""
    if isinstance(kept, str):
        return kept
    return binascii.b2a_base64(kept, newline=False).rstrip(b"=").translate(_TO_URLSAFE).decode("ascii")


def beginning_of(kept: str | bytes) -> int:
    """Return under which number a part's place is found; few have the same."""
    number = int.from_bytes(kept[:3]) if isinstance(kept, bytes) else zlib.crc32(kept.encode()) & 0xFFFFFF
    return number - 2**23  # which takes three bytes


def header_name(header: bytes, checkpoint_id: str) -> str:
    """Return the name of a header's record, with a checksum that is another one for another checkpoint."""
    return f".header.{zlib.crc32(header, zlib.crc32(checkpoint_id.encode()))}"


class ManifestName(NamedTuple):
    """What the name of a manifest's record says.

    Attributes:
        back: How many records before it the manifest is that was committed before it; 0 for the first one.
        parts: How many parts stand right behind it.
        check: The checksum of all this.
    """

    back: int
    parts: int
    check: int

    @classmethod
    def of(cls, manifest: bytes, checkpoint_id: str, back: int, parts: int) -> ManifestName:
        """Return the name of a manifest."""
        seed = zlib.crc32(f"{back}.{parts}.{checkpoint_id}".encode())
        return cls(back, parts, zlib.crc32(manifest, seed))

    @classmethod
    def read(cls, name: object) -> ManifestName | None:
        """Return what a stored name says; None when it is not that of a manifest."""
        if not isinstance(name, str) or not name.startswith("."):
            return None
        try:
            back, parts, check = map(int, name[1:].split("."))
        except ValueError:
            return None
        return cls(back, parts, check)

    def __str__(self) -> str:
        return f".{self.back}.{self.parts}.{self.check}"
