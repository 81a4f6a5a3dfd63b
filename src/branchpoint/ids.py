"""Fresh identifiers, sortable by the time they were made.

An id is 26 characters of Crockford's base 32, laid out as a ULID: 48 bits of milliseconds, then
80 random bits. Within one process two ids made in the same millisecond still sort in the order
they were made, because the second one is the first one plus a random step.
The source can be replaced for a block of code, which tests use to get the same ids every time.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from branchpoint import clock

__all__ = ["IdSource", "RandomIds", "SequentialIds", "injected", "new_id"]

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class IdSource(Protocol):
    """Where new ids come from."""

    def new_id(self) -> str:
        """Return an id that was never returned before and sorts after all earlier ones."""
        ...


class RandomIds:
    """Ids from the clock and the operating system's randomness; safe from every thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def new_id(self) -> str:
        millis = int(clock.now().timestamp() * 1000)
        fresh = (millis << 80) | secrets.randbits(80)
        with self._lock:
            if fresh <= self._last:
                fresh = self._last + 1 + secrets.randbits(32)
            self._last = fresh
        return _text(fresh)


class SequentialIds:
    """Ids counted from one, for tests and for reproducible runs."""

    def __init__(self, start: int = 1) -> None:
        self._numbers = itertools.count(start)

    def new_id(self) -> str:
        return _text(next(self._numbers))


def _text(number: int) -> str:
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))


_source: ContextVar[IdSource] = ContextVar("branchpoint_id_source", default=RandomIds())  # noqa: B039


def new_id() -> str:
    """Return a fresh id of 26 characters from the source in force."""
    return _source.get().new_id()


@contextmanager
def injected(source: IdSource) -> Iterator[IdSource]:
    """Take ids from `source` inside the block, and in the tasks and threads it starts."""
    token = _source.set(source)
    try:
        yield source
    finally:
        _source.reset(token)
