"""Where the storage under test keeps its checkpoints."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from branchpoint.checkpoint import CheckpointStorage

__all__ = ["MovableClock", "Place", "Process"]


class MovableClock:
    """The time of day, and what a clause adds to it."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@dataclass(frozen=True)
class Process:
    """How another process opens the same place.

    Attributes:
        factory: `"module:name"` of a function that returns a storage; the module can be imported there.
        arguments: Its keyword arguments, as plain JSON.
    """

    factory: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Place:
    """One empty place, that storages are opened on, again and again: subclass it and say how.

    Only `open` is needed. The others are hooks that go past the storage; a clause that needs one that is
    not overridden is skipped and says so.

    Attributes:
        process: How a child process opens this place. Without it no processes race, and none is killed.
        rounds: How often a race is run.
        writers: How many processes race.

    Example:
        >>> from branchpoint.storage import FileCheckpointStorage
        >>> from branchpoint.testing import Place
        >>> class FilePlace(Place):
        ...     def __init__(self, folder):
        ...         super().__init__()
        ...         self.folder = folder
        ...
        ...     def open(self, *, lazy_over=None):
        ...         return FileCheckpointStorage(self.folder, lazy_over=lazy_over)
    """

    process: Process | None = None
    rounds: int = 10
    writers: int = 3

    def __init__(self) -> None:
        self.clock = MovableClock()
        self._opened = AsyncExitStack()

    def open(self, *args: Any, **options: Any) -> CheckpointStorage | Awaitable[CheckpointStorage]:
        """Return another storage object on what is stored here; it is closed for you.

        Override it with the keyword options that your storage takes, of `lazy_over` (bytes or None),
        `leases` (bool) and `lease_seconds` (float): a clause gives those it needs, and one that your
        `open` does not take is never given. It may be a coroutine function.
        """
        raise NotImplementedError(f"{type(self).__name__} says by open() how its storage is opened")

    async def peek(self) -> Mapping[str, bytes]:
        """Return everything that is stored here, past the storage: a name for each thing, and its bytes.

        Nothing is there while no checkpoint is; leave out what is there without any, a schema for instance.
        """
        raise NotImplementedError

    async def poke(self, name: str, data: bytes | None) -> None:
        """Replace the bytes that `peek` showed under that name, past the storage; None removes them for good."""
        raise NotImplementedError

    async def pass_time(self, seconds: float) -> None:
        """Let so much time pass for leases.

        By default the clock of `branchpoint.clock` goes forward, which is enough for a storage that takes
        its time from there. Override it where a server's clock decides, for instance by moving what
        is stored of leases back by so many seconds.
        """
        self.clock.ahead += timedelta(seconds=seconds)

    async def discard(self) -> None:
        """Remove the place, once a clause is done with it."""

    # What clauses use.

    async def storage(self, **options: Any) -> CheckpointStorage:
        """Return another storage object on this place, to be closed with the others when the clause ends."""
        made = self.open(**options)
        storage = await made if isinstance(made, Awaitable) else made
        self._opened.push_async_callback(storage.aclose)
        return storage

    async def close_storages(self) -> None:
        """Close every storage that was opened so far."""
        opened, self._opened = self._opened, AsyncExitStack()
        await opened.aclose()

    def takes(self, option: str) -> bool:
        """Say whether `open` takes this option."""
        parameters = inspect.signature(self.open).parameters.values()
        return any(
            one.name == option or one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters
        ) and not _is_untouched(self, "open")

    def has(self, hook: str) -> bool:
        """Say whether a hook was given: `peek`, `poke` or `process`."""
        return self.process is not None if hook == "process" else not _is_untouched(self, hook)


def _is_untouched(place: Place, name: str) -> bool:
    return getattr(type(place), name) is getattr(Place, name)
