"""The time of day, replaceable for a block of code.

Only this file asks the operating system what time it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Protocol

__all__ = ["Clock", "SteppingClock", "SystemClock", "injected", "now"]


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> datetime:
        """Return the present moment, aware, in UTC."""
        ...


class SystemClock:
    """The operating system's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)


class SteppingClock:
    """A clock that moves by a fixed step at every reading, for tests and reproducible runs."""

    def __init__(self, start: datetime | None = None, step: timedelta = timedelta(seconds=1)) -> None:
        self._next = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._step = step

    def now(self) -> datetime:
        moment, self._next = self._next, self._next + self._step
        return moment


_clock: ContextVar[Clock] = ContextVar("branchpoint_clock", default=SystemClock())  # noqa: B039


def now() -> datetime:
    """Return the present moment, aware, in UTC, from the clock in force."""
    return _clock.get().now()


@contextmanager
def injected(clock: Clock) -> Iterator[Clock]:
    """Take the time from `clock` inside the block, and in the tasks and threads it starts."""
    token = _clock.set(clock)
    try:
        yield clock
    finally:
        _clock.reset(token)
