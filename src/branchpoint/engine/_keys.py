"""Keys that come out the same when the same work is done again, and differ on every branch."""

from __future__ import annotations

import base64
import hashlib

__all__ = ["derive"]


def derive(*parts: str | int) -> str:
    """Return 24 characters that depend on `parts` alone.

    Every part is written with its length, so no two lists of parts meet by running together.
    """
    told = hashlib.blake2b(digest_size=15)
    for part in parts:
        text = str(part).encode("utf-8", "surrogatepass")
        told.update(b"%d:" % len(text))
        told.update(text)
    return base64.b32encode(told.digest()).decode().lower()
