"""The copies of shared state that a handler holds: which of them it changed and never wrote back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from branchpoint.codec import fingerprint

__all__ = ["Lent"]


class _Copy(msgspec.Struct):
    """One copy, with what it looked like when it was lent or, once `written`, when it was written."""

    key: str
    value: Any
    token: Callable[[], object]
    written: bool


class Lent:
    """What one handler holds of the shared state.

    A copy counts as written back when it is itself written, or when it is equal to a value that is. A
    value that the handler made may have been built from a copy without being equal to it; each such
    write accounts for one changed copy. Any other copy that was changed is lost.
    """

    __slots__ = ("_copies", "_left", "_notes")

    def __init__(self) -> None:
        self._copies: list[_Copy] = []
        # Copies that a later write passed over, by their keys and the identity of their values.
        self._left: dict[tuple[str, int], _Copy] = {}
        # Of each write that passed some over: the key, what was written, and whether the handler made it.
        self._notes: list[tuple[str, object, bool]] = []

    def watch(
        self, key: str, value: Any, token: Callable[[], object] | None = None, *, written: bool = False
    ) -> None:
        """Watch a value the handler holds; `token` gives its fingerprint as it is now, if that is known."""
        if token is None:
            seen = fingerprint(value)
            token = lambda: seen  # noqa: E731
        self._copies.append(_Copy(key, value, token, written))

    def wrote(self, key: str, value: Any) -> bool:
        """Account for a write of `value`, and say whether it is a copy that was lent.

        While one copy alone is out nothing needs to be looked at: it is the one that is written, or the
        one that the written value was built from.
        """
        held = self._left.pop((key, id(value)), None) is not None
        others: list[_Copy] = []
        rest: list[_Copy] = []
        for copy in self._copies:
            if copy.key != key:
                rest.append(copy)
            elif copy.value is value:
                held = True
            else:
                others.append(copy)
        self._copies = rest
        accounted = 0 if held else 1
        if len(others) > accounted:
            # One that was written and is as it was is done with, so a loop does not pile them up.
            others = [copy for copy in others if not (copy.written and _is_unchanged(copy))]
        if len(others) > accounted:
            self._left.update(((key, id(copy.value)), copy) for copy in others)
            self._notes.append((key, fingerprint(value), not held))
        return held

    def gave_up(self, key: str) -> None:
        """Account for the removal of a key: nothing of it is to be kept."""
        self._copies = [copy for copy in self._copies if copy.key != key]
        self._left = {place: copy for place, copy in self._left.items() if copy.key != key}

    def lost(self) -> str | None:
        """Return the key of a copy that was changed and not written back; None if there is none."""
        for copy in self._copies:
            if not _is_unchanged(copy):
                return copy.key
        made = [key for key, _, by_handler in self._notes if by_handler]
        for copy in self._left.values():
            now = fingerprint(copy.value)
            if now == copy.token() or any(key == copy.key and now == token for key, token, _ in self._notes):
                continue
            if copy.key not in made:
                return copy.key
            made.remove(copy.key)
        return None


def _is_unchanged(copy: _Copy) -> bool:
    return fingerprint(copy.value) == copy.token()
