"""Adding to an exception where it happened, without ever getting in its way."""

from __future__ import annotations

__all__ = ["note"]


def note(error: BaseException, text: str) -> None:
    """Add a line to what the exception tells; one that takes no notes stays as it is."""
    try:
        error.add_note(text)
    except Exception:
        pass  # a frozen exception, say: it is still the developer's own, and is what the caller gets
