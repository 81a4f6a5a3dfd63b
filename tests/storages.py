"""The storages of the tests: how each backend is opened in a folder, and closed when the test ends."""

from __future__ import annotations

import asyncio
import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from branchpoint.checkpoint import CheckpointStorage
from branchpoint.storage import FileCheckpointStorage, MemoryCheckpointStorage
from branchpoint.testing.samples import create, grown, lineage, shared
from branchpoint.testing.samples import small_state as state

__all__ = [
    "BACKENDS",
    "SCENARIOS",
    "SERVERS",
    "Opener",
    "address",
    "close_opened",
    "close_opened_now",
    "create",
    "grown",
    "lineage",
    "memory_in",
    "opened_in",
    "opener",
    "postgres_at",
    "shared",
    "state",
]


class Opener(Protocol):
    """Opens the place a test was given: another storage object each time, on the same stored data."""

    def __call__(self, **options: Any) -> CheckpointStorage:
        """Take what the backend's class takes besides its place: `lazy_over`, `leases`, `lease_seconds`."""
        ...


@functools.lru_cache(8)  # a test has a folder of its own
def memory_in(folder: Path) -> MemoryCheckpointStorage:
    """What stands for a folder where nothing is written into it."""
    return MemoryCheckpointStorage()


def _memory(folder: Path) -> Opener:
    kept = memory_in(folder)

    def opened(**options: Any) -> CheckpointStorage:
        storage, other = MemoryCheckpointStorage(**options), copy.copy(kept)
        other.__dict__.update({name: vars(storage)[name] for name in options})
        return other

    return opened


def _file(format: Any) -> Callable[[Path], Opener]:
    return lambda folder: (
        lambda **options: FileCheckpointStorage(folder / "runs", serialization_format=format, **options)
    )


def postgres_at(place: str, **options: Any) -> Any:
    """A storage at a place of the fixture `postgres_place`: DSN and schema, parted by a blank."""
    from branchpoint.storage.postgres import PostgresCheckpointStorage

    dsn, schema = place.split()
    return PostgresCheckpointStorage(dsn, schema=schema, **options)


def _postgres(format: Any) -> Callable[[Path], Opener]:
    return lambda folder: (
        lambda **options: postgres_at(address(folder), serialization_format=format, **options)
    )


def _cosmos(format: Any) -> Callable[[Path], Opener]:
    def on(folder: Path) -> Opener:
        from branchpoint.storage.cosmos import CosmosCheckpointStorage
        from tests.servers.cosmos import KEY

        endpoint, database, container = address(folder).split()
        return lambda **options: CosmosCheckpointStorage(
            endpoint, KEY, database=database, container=container, serialization_format=format, **options
        )

    return on


def _encrypted(name: str) -> Callable[[Path], Opener]:
    """The same place, sealed; children of a test open it with the same key."""

    def on(folder: Path) -> Opener:
        from branchpoint.storage.encrypted import EncryptedCheckpointStorage, EncryptionKeys

        inner, keys = BACKENDS[name](folder), EncryptionKeys({"test": b"k" * 32})
        return lambda **options: EncryptedCheckpointStorage(inner(**options), keys)

    return on


def _sqlite(format: Any) -> Callable[[Path], Opener]:
    from branchpoint.storage.sqlite import SQLiteCheckpointStorage

    return lambda folder: (
        lambda **options: SQLiteCheckpointStorage(
            folder / "runs" / "checkpoints.db", serialization_format=format, **options
        )
    )


BACKENDS: dict[str, Callable[[Path], Opener]] = {
    "memory": _memory,
    "file-json": _file("json"),
    "file-msgpack": _file("msgpack"),
    "sqlite-json": _sqlite("json"),
    "sqlite-msgpack": _sqlite("msgpack"),
    "postgres-json": _postgres("json"),
    "postgres-msgpack": _postgres("msgpack"),
    "cosmos-json": _cosmos("json"),
    "cosmos-msgpack": _cosmos("msgpack"),
}
"""One line makes the whole contract run against another backend: the place in that folder, to be opened."""

SERVERS: dict[str, tuple[str, str]] = {
    "postgres-json": ("postgres_server", "postgres_place"),
    "postgres-msgpack": ("postgres_server", "postgres_place"),
    "cosmos-json": ("_cosmos", "cosmos_place"),
    "cosmos-msgpack": ("_cosmos", "cosmos_place"),
}
"""For a backend on a server: the session fixture that starts it, and the one that gives an empty place.

The second one's value is the address, which is written into the folder: see `address`.
"""

SCENARIOS = ("memory", "file-json", "file-msgpack", "sqlite-json")
"""The backends that every scenario runs on; those of the storage cases run on all."""

# Around each of them but memory, which the unit tests of sealing take.
BACKENDS |= {f"encrypted-{name}": _encrypted(name) for name in BACKENDS if name != "memory"}
SERVERS |= {f"encrypted-{name}": fixtures for name, fixtures in SERVERS.items()}


def address(folder: Path) -> str:
    """The address of the server that a test was given, for whoever opens that folder in whatever process."""
    return (folder / "address").read_text(encoding="utf-8")


_opened: list[CheckpointStorage] = []


def opener(name: str, folder: Path) -> Opener:
    """Return what opens a backend's place in a folder; what it opened is closed when the test ends."""
    make = BACKENDS[name](folder)

    def opened(**options: Any) -> CheckpointStorage:
        storage = make(**options)
        _opened.append(storage)
        return storage

    return opened


def opened_in(name: str, folder: str) -> CheckpointStorage:
    """Open a backend's place in another process; whoever asks closes it."""
    return BACKENDS[name](Path(folder))()


async def close_opened() -> None:
    """Close what was opened since the last time: at the end of every test, in its own loop if it has one."""
    while _opened:
        await _opened.pop().aclose()


def close_opened_now() -> None:
    """Do so after a test that has no loop."""
    if _opened:
        asyncio.run(close_opened())
