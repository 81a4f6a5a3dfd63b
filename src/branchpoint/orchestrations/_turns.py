"""Whose turn it is, and whether there is another one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from branchpoint.errors import DefinitionError, HandlerError

__all__ = ["checked_limit", "checked_speaker", "is_spent"]


def checked_limit(what: str, limit: int | None, *, least: int) -> int | None:
    """Return a limit that a caller set.

    Raises:
        DefinitionError: It is no number, or below the least one that makes sense.
    """
    if limit is not None and (type(limit) is not int or limit < least):
        raise DefinitionError(f"{what} is a number from {least} on, or None for no limit, got {limit!r}.")
    return limit


def is_spent(count: int, limit: int | None) -> bool:
    """Say whether a budget is used up."""
    return limit is not None and count >= limit


def checked_speaker(chosen: Any, participants: Iterable[str], who: str) -> str:
    """Return the participant that was chosen to speak.

    Args:
        chosen: What was chosen.
        participants: Who takes part.
        who: Who chose, for errors.

    Raises:
        HandlerError: It is nobody who takes part.
    """
    names = list(participants)
    if not isinstance(chosen, str) or chosen not in names:
        raise HandlerError(
            f"{who} chose {chosen!r} to speak next, who does not take part; it is one of {names}. Nothing of this "
            "superstep was kept; mend the choice and run the checkpoint again."
        )
    return chosen
