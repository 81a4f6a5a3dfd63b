"""Fresh identifiers, sortable by the time they were made.

An id is 26 characters of Crockford's base 32, laid out as a ULID: 48 bits of milliseconds, then
80 random bits. Within one process two ids made in the same millisecond still sort in the order
they were made, because the second one is the first one plus a random step.
The source can be replaced for a block of code, which tests use to get the same ids every time.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from branchpoint import clock

__all__ = ["IdSource", "RandomIds", "SequentialIds", "injected", "new_id"]

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_FORTY = (1 << 40) - 1
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]


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
        with self._lock:
            if millis > self._last >> 80:
                fresh = (millis << 80) | int.from_bytes(os.urandom(10))
            else:
                fresh = self._last + 1 + int.from_bytes(os.urandom(4))
            self._last = fresh
        return _text(fresh)


class SequentialIds:
    """Ids counted from one, for tests and for reproducible runs."""

    def __init__(self, start: int = 1) -> None:
        self._numbers = itertools.count(start)

    def new_id(self) -> str:
        return _text(next(self._numbers))


def _text(number: int) -> str:
    return _eighteen(number >> 40) + _eight(number & _FORTY)


@functools.lru_cache(4)  # of one millisecond many ids have the same
def _eighteen(number: int) -> str:
    return f"{_PAIRS[number >> 80 & 1023]}{_eight(number >> 40 & _FORTY)}{_eight(number & _FORTY)}"


def _eight(number: int) -> str:
    high, low = number >> 20, number & 0xFFFFF
    return f"{_PAIRS[high >> 10]}{_PAIRS[high & 1023]}{_PAIRS[low >> 10]}{_PAIRS[low & 1023]}"


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
