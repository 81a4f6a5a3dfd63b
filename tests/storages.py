"""States, checkpoints and storages for the tests of storages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from branchpoint.checkpoint import Checkpoint, CheckpointSnapshot, CheckpointStorage
from branchpoint.storage import FileCheckpointStorage, MemoryCheckpointStorage
from tests.states import make_state, request

Opener = Callable[[], CheckpointStorage]
"""Opens the place a test was given: another storage object each time, on the same stored data."""


def _memory(folder: Path) -> Opener:
    kept = MemoryCheckpointStorage()
    return lambda: kept


def _file_json(folder: Path) -> Opener:
    return lambda: FileCheckpointStorage(folder / "runs")


def _file_msgpack(folder: Path) -> Opener:
    return lambda: FileCheckpointStorage(folder / "runs", serialization_format="msgpack")


BACKENDS: dict[str, Callable[[Path], Opener]] = {
    "memory": _memory,
    "file-json": _file_json,
    "file-msgpack": _file_msgpack,
}
"""One line makes the whole contract run against another backend."""


Lazily = Callable[[int | None], CheckpointStorage]
"""Opens one place with a given `lazy_over`: another storage object each time, on the same stored data."""


def _memory_lazily(folder: Path) -> Lazily:
    kept = MemoryCheckpointStorage()

    def opened(lazy_over: int | None) -> MemoryCheckpointStorage:
        storage = MemoryCheckpointStorage(lazy_over=lazy_over)
        storage._kept, storage._lock = kept._kept, kept._lock
        return storage

    return opened


def _file_json_lazily(folder: Path) -> Lazily:
    return lambda lazy_over: FileCheckpointStorage(folder / "runs", lazy_over=lazy_over)


def _file_msgpack_lazily(folder: Path) -> Lazily:
    return lambda lazy_over: FileCheckpointStorage(
        folder / "runs", serialization_format="msgpack", lazy_over=lazy_over
    )


LAZY: dict[str, Callable[[Path], Lazily]] = {
    "memory": _memory_lazily,
    "file-json": _file_json_lazily,
    "file-msgpack": _file_msgpack_lazily,
}
"""The backends that can leave older snapshots behind when they load."""


def state(superstep: int = 0, /, *, requests: tuple[str, ...] = (), **shared: Any) -> dict[str, Any]:
    """A complete state after that many supersteps."""
    return make_state(
        superstep,
        requests={found: request() for found in requests},
        status="idle_with_pending_requests" if requests else "idle",
        shared=shared,
    )


def shared(snapshot: CheckpointSnapshot | None) -> dict[str, Any]:
    """The user's part of a snapshot's state."""
    assert snapshot is not None
    found: dict[str, Any] = snapshot.state["workflow_state"]["shared"]
    return found


def create(
    storage: CheckpointStorage | None, checkpoint_id: str | None = "order-17", **more: Any
) -> Checkpoint:
    """A new checkpoint of a small workflow."""
    return Checkpoint.create(
        **{
            "checkpoint_id": checkpoint_id,
            "workflow_name": "orders",
            "graph_signature_hash": "sig",
            "signature": {"name": "orders"},
            "checkpoint_storage": storage,
            **more,
        }
    )


async def grown(
    storage: CheckpointStorage | None, checkpoint_id: str | None = "order-17", commits: int = 3
) -> Checkpoint:
    """A checkpoint with a straight line of commits."""
    checkpoint = create(storage, checkpoint_id)
    for n in range(commits):
        await checkpoint.commit_snapshot(state(n, n=n))
    return checkpoint


def lineage(checkpoint: Checkpoint) -> list[tuple[str, str | None]]:
    """Ids and parents, in commit order."""
    return [(one.snapshot_id, one.parent_snapshot_id) for one in checkpoint.snapshots]
