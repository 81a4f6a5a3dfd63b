"""Numbers with their nouns, as people read them."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, noun: str) -> str:
    """Return `1 document`, or `2,000 documents`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
