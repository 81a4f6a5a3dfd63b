"""One value of a run, live or encoded or both.

A value that was read from a snapshot stays bytes until somebody asks for it, and a value that did
not change is never encoded again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from branchpoint.codec import Encoded, Format, Memo, copy_value, decode, encode, fingerprint, open_list
from branchpoint.errors import CorruptCheckpointError, EncodingError

__all__ = ["Cell", "Medium"]

_NOTHING: Final = object()


class Medium:
    """The format a run's values are encoded in, with the stored parts they are read from."""

    __slots__ = ("format", "parts")

    def __init__(self, format: Format, parts: Mapping[str, bytes]) -> None:
        self.format: Format = format
        self.parts = parts

    def decode(self, encoded: Encoded, path: str) -> Any:
        """Return a fresh value."""
        return decode(encoded.data, self.parts, format=self.format, path=path)

    def open_list(self, encoded: Encoded, path: str) -> list[Any]:
        """Return the items of a list, encoded; the value itself if it is none."""
        try:
            return open_list(encoded.data, self.parts, format=self.format)
        except CorruptCheckpointError:
            value: list[Any] = self.decode(encoded, path)
            return value

    def keeps(self, value: Any) -> bool:
        """Say whether a value can be encoded at all."""
        try:
            encode(value, format=self.format)
        except EncodingError:
            return False
        return True


class Cell:
    """A value at one place of the state.

    The live value belongs to the engine: whoever reads it for a handler or a caller copies it. Unless
    it is `shared` with an executor that goes on changing it, nothing in it is ever changed in place.
    """

    __slots__ = ("_encoded", "_live", "_memo", "_shared", "_spare", "_token", "depth", "path")

    def __init__(
        self,
        path: str,
        depth: int,
        *,
        live: Any = _NOTHING,
        encoded: Encoded | None = None,
        shared: bool = False,
    ) -> None:
        self._shared = shared
        self._spare = False
        self.path = path
        self.depth = depth
        self._live = live
        self._encoded = encoded
        self._memo: Memo | None = None
        self._token: Any = _NOTHING

    def value(self, medium: Medium | None) -> Any:
        """Return the live value, decoding it at the first call."""
        if self._live is _NOTHING:
            assert medium is not None and self._encoded is not None
            self._live = medium.decode(self._encoded, self.path)
        elif type(self._live) is list and self._live and type(self._live[0]) is Encoded:
            assert medium is not None
            self._live = [
                medium.decode(item, f"{self.path}[{n}]") if type(item) is Encoded else item
                for n, item in enumerate(self._live)
            ]
        return self._live

    def items(self, medium: Medium | None) -> list[Any]:
        """Return the items of a list that is only to be added to; those read from a snapshot stay encoded."""
        if self._live is _NOTHING:
            assert medium is not None and self._encoded is not None
            self._live = medium.open_list(self._encoded, self.path)
        items: list[Any] = self._live
        return items

    def take(self, medium: Medium | None) -> Any:
        """Return the value to a new owner; the engine keeps only its encoding."""
        value = self.value(medium)
        if self._encoded is not None:
            self._live = _NOTHING
            self._spare = False
        return value

    def set(self, value: Any, *, shared: bool = False) -> None:
        """Replace the value; what was learned about the old one helps to encode the new one."""
        self._shared = shared
        self._spare = False
        self._live = value
        self._encoded = None
        self._token = _NOTHING

    def spare(self) -> None:
        """Take a copy of a large value that is shared, before it is encoded, to be given to the next owner.

        A copy is made sooner than a value is read again from its bytes, and it is the copy that is
        encoded; so whatever somebody else makes of the value after this reaches neither.
        """
        if self._memo is None or self._encoded is not None:
            return
        try:
            self._live = copy_value(self._live, path=self.path)
        except EncodingError:
            return  # encoding it says so, or keeps it all the same
        self._spare = True

    def rest(self, medium: Medium, *, owned: bool = True) -> bool:
        """Let go of the live value, which is read again when it is needed; False when that was done before.

        What is remembered for encoding it again stays: of a value that is shared that is only what it
        looked like. So does a spare copy.

        Args:
            medium: Where it was committed.
            owned: Also of a value that nobody else has.
        """
        encoded = self._encoded
        if self._live is _NOTHING or encoded is None or self._spare or not (owned or self._shared):
            return False
        if encoded.refs and encoded.refs[0].digest not in medium.parts:
            # It is small, and stands inside of what holds it; so it has no part of its own.
            self._encoded = Encoded(encoded.refs[0].data)
        self._live = self._token = _NOTHING
        return True

    def token(self, medium: Medium | None) -> Any:
        """Return the fingerprint of the value, by which a changed copy is told."""
        if self._token is _NOTHING:
            self._token = fingerprint(self.value(medium))
        return self._token

    def encoded(self, medium: Medium) -> Encoded:
        """Return the value's encoding, made only if the value is new."""
        if self._encoded is None:
            self._encoded, self._memo = encode(
                self._live,
                format=medium.format,
                memo=self._memo,
                depth=self.depth,
                path=self.path,
                owned=not self._shared,
            )
        return self._encoded
