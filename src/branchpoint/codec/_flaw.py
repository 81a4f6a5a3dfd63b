"""How unreadable bytes are reported: what is wrong, and where in the state."""

from __future__ import annotations

from typing import Any, Final

from branchpoint.codec._shape import step
from branchpoint.errors import BranchpointError, CorruptCheckpointError, quotable

__all__ = ["Flaw", "flaw_error"]


_LONGEST: Final = 64
_LONGEST_REASON: Final = 600
_LONGEST_PATH: Final = 1_000


class Flaw(Exception):
    """Something cannot be read; on its way up it collects the steps of the path, innermost first.

    Attributes:
        reason: What is wrong, a sentence without a full stop.
        error: Which error the caller will see.
        steps: Keys and indexes on the way to it.
    """

    def __init__(self, reason: str, error: type[BranchpointError] = CorruptCheckpointError) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error
        self.steps: list[Any] = []


def flaw_error(flaw: Flaw, path: str) -> BranchpointError:
    """The error the caller sees, with the full path."""
    for one in flaw.steps[: -_LONGEST - 1 : -1]:
        path = step(path, one)
    if len(flaw.steps) > _LONGEST:
        path += "..."
    at = f"at {quotable(path, _LONGEST_PATH)}" if path else "of a value"
    return flaw.error(f"stored data {at} cannot be read: {quotable(flaw.reason, _LONGEST_REASON)}")
