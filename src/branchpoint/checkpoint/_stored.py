"""A place in a stored state: looked into one level at a time, every look checked, values decoded on demand.

All that reads a stored state reads it through here: loading, the readers of a checkpoint, giving up,
the check of an edit, and the opening of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import msgspec

from branchpoint.checkpoint._manifest import Format
from branchpoint.checkpoint._naming import named
from branchpoint.checkpoint._snapshot import CheckpointSnapshot
from branchpoint.codec import Encoded, decode, open_dict, open_list, plain
from branchpoint.errors import BranchpointError, CorruptCheckpointError

__all__ = ["Source", "Stored", "stored_root", "stored_state"]

_Result = TypeVar("_Result")


class Source(msgspec.Struct, frozen=True):
    """Where stored values come from, and what is said when one of them has another shape.

    Attributes:
        parts: Digest to bytes.
        format: The format of the bytes.
        described: Whose bytes they are, in words.
        error: What a refusal raises.
        advice: What to do about one.
    """

    parts: Mapping[str, bytes]
    format: Format
    described: str
    error: type[BranchpointError] = CorruptCheckpointError
    advice: str = (
        "Commit an edited state with this mended, or go on from another snapshot with "
        "checkpoint.restart_from(...)."
    )


class Stored:
    """One stored value with its path in the state. It stays as bytes until somebody asks for the value."""

    __slots__ = ("_source", "encoded", "path")

    def __init__(self, encoded: Encoded, path: str, source: Source) -> None:
        self.encoded = encoded
        self.path = path
        self._source = source

    def refuse(self, problem: str) -> NoReturn:
        """Say what is wrong here.

        Raises:
            BranchpointError: Always, of the class that the source names.
        """
        source = self._source
        raise source.error(f"{source.described}: {self.path or 'the state'} {problem}. {source.advice}")

    def value(self) -> Any:
        """Return the value, decoded; a fresh one each time."""
        source = self._source
        with named(source.described):
            return decode(self.encoded.data, source.parts, format=source.format, path=self.path)

    def plain(self) -> Any:
        """Return the value, JSON-ready; needs no registered type."""
        source = self._source
        with named(source.described):
            return plain(self.encoded.data, source.parts, format=source.format)

    def entries(self) -> dict[str, Stored]:
        """Return what a dict holds, whatever its keys."""
        found = self._opened(open_dict, "a dict whose keys are all text")
        return {key: self._below(item, f".{key}") for key, item in found.items()}

    def fields(self, *names: str, also: tuple[str, ...] = ()) -> dict[str, Stored]:
        """Return the entries of a record, which has all of `names` and beside them at most `also`."""
        found = self.entries()
        for name in names:
            if name not in found:
                self._below(self.encoded, f".{name}").refuse("is missing")
        for name, stored in found.items():
            if name not in names and name not in also:
                stored.refuse("is not known here, and running would drop it")
        return found

    def items(self) -> list[Stored]:
        """Return what a list holds."""
        found = self._opened(open_list, "a list")
        return [self._below(item, f"[{place}]") for place, item in enumerate(found)]

    def number(self) -> int:
        """Return a count, from 0."""
        value = self.value()
        if type(value) is not int or not 0 <= value < 2**63:
            self._mismatch("a whole number from 0", value)
        return value

    def text(self) -> str:
        """Return a text."""
        value = self.value()
        if type(value) is not str:
            self._mismatch("a text", value)
        return value

    def choice(self, *allowed: str) -> str:
        """Return a text that is one of some."""
        value = self.value()
        if type(value) is not str or value not in allowed:
            self._mismatch(f"one of {', '.join(allowed)}", value)
        return value

    def texts(self) -> tuple[str, ...]:
        """Return the texts of a list."""
        return tuple(item.text() for item in self.items())

    def _mismatch(self, expected: str, value: object) -> NoReturn:
        shown = f" {value!r}"[:41] if type(value) in (int, bool, float) else ""
        self.refuse(f"must be {expected}, and is {type(value).__name__}{shown}")

    def _below(self, encoded: Encoded, step: str) -> Stored:
        return Stored(encoded, (self.path + step).lstrip("."), self._source)

    def _opened(self, opener: Callable[..., _Result], expected: str) -> _Result:
        try:
            return opener(self.encoded.data, self._source.parts, format=self._source.format)
        except CorruptCheckpointError:
            self._mismatch(expected, self.value())  # damage raises in value(), by its own path


def stored_root(digest: str, source: Source) -> Stored:
    """Return the root of a state.

    Raises:
        CorruptCheckpointError: It is missing.
    """
    data = source.parts.get(digest)
    if data is None:
        raise CorruptCheckpointError(
            f"the state of {source.described} is missing: there is no part {digest[:40]!a}; "
            "restore it from a backup"
        )
    return Stored(Encoded(data), "", source)


def stored_state(snapshot: CheckpointSnapshot) -> Stored:
    """Return the root of the state that a snapshot holds.

    Raises:
        SnapshotNotLoadedError: A lazy storage left the parts behind.
    """
    return stored_root(snapshot.root, Source(snapshot.loaded_parts(), snapshot.format, snapshot.described))
