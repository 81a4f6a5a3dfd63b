"""What a storage around another one hands to it: the same commit with other bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from branchpoint.checkpoint._checkpoint import Checkpoint
from branchpoint.checkpoint._contract import CheckpointStorage
from branchpoint.checkpoint._history import History
from branchpoint.checkpoint._manifest import Header, Manifest
from branchpoint.checkpoint._snapshot import CheckpointSnapshot, PartTable

__all__ = ["checkpoint_standin", "snapshot_standin"]


def checkpoint_standin(
    checkpoint: Checkpoint, *, header: Header, storage: CheckpointStorage, storage_token: Any
) -> Checkpoint:
    """Return a checkpoint with another header and the lease of `checkpoint`, for one call of `storage`.

    What that call keeps in its `storage_token` is for the caller to hand on.
    """
    standin = Checkpoint(History(header=header, storage=storage), storage_token=storage_token)
    standin._guard.lease = checkpoint.lease
    return standin


def snapshot_standin(
    snapshot: CheckpointSnapshot, *, manifest: Manifest, new_parts: Mapping[str, bytes]
) -> CheckpointSnapshot:
    """Return a snapshot with another manifest and other new parts, for one call of a storage."""
    return CheckpointSnapshot(
        checkpoint_id=snapshot.checkpoint_id,
        manifest=manifest,
        table=PartTable(),
        format=snapshot.format,
        new_parts=new_parts,
    )
