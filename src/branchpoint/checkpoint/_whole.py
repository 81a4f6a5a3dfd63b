"""A checkpoint without a storage as one value, so that it can be part of another state."""

from __future__ import annotations

from typing import Any

from branchpoint.checkpoint._checkpoint import Checkpoint
from branchpoint.checkpoint._history import History
from branchpoint.checkpoint._manifest import decode_header, decode_manifest, encode_header, encode_manifest
from branchpoint.checkpoint._plain import check_id
from branchpoint.errors import CorruptCheckpointError, InvalidCallError, UnsupportedValueError

__all__ = ["checkpoint_of", "copied_checkpoint", "mark_of", "whole_of"]

_FIELDS = ("checkpoint_id", "header", "head", "selected", "manifests", "parts")


def whole_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return everything a checkpoint holds, as plain text that can be read; grows only at its ends.

    Raises:
        UnsupportedValueError: It has a storage, which is where it lives.
    """
    _refuse_stored(checkpoint)
    history = checkpoint._history
    snapshots = history.snapshots()
    return {
        "checkpoint_id": history.header.checkpoint_id,
        "header": encode_header(history.header, format="json").decode(),
        "head": history.stored,
        "selected": history.selected,
        "manifests": [encode_manifest(found.manifest, format="json").decode() for found in snapshots],
        "parts": {digest: data.decode() for digest, data in history.table.parts.items()},
    }


def checkpoint_of(whole: Any) -> Checkpoint:
    """Return the checkpoint that `whole_of` told, as checked as one that was loaded.

    Raises:
        CorruptCheckpointError: It is damaged.
    """
    if type(whole) is not dict or tuple(whole) != _FIELDS:
        raise CorruptCheckpointError("what was kept of a whole checkpoint has another shape")
    try:
        name = check_id(whole["checkpoint_id"])
        header = decode_header(whole["header"].encode(), format="json", checkpoint_id=name)
        manifests = [
            decode_manifest(told.encode(), format="json", checkpoint_id=name) for told in whole["manifests"]
        ]
        parts = {digest: data.encode() for digest, data in whole["parts"].items()}
    except (AttributeError, TypeError, InvalidCallError) as error:
        raise CorruptCheckpointError(
            f"what was kept of a whole checkpoint has another shape ({error})"
        ) from error
    if not manifests:
        if whole["head"] is not None or parts:
            raise CorruptCheckpointError(f"checkpoint {name!r} was kept whole, but its snapshots are missing")
        return Checkpoint(History(header=header, storage=None))
    checkpoint = Checkpoint.restore(
        header=header,
        manifests=manifests,
        head_snapshot_id=whole["head"],
        parts=parts,
        checkpoint_storage=None,
    )
    return _selecting(checkpoint, whole["selected"])


def copied_checkpoint(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint of its own with the same id, snapshots and heads; bytes are shared, they never change.

    Raises:
        UnsupportedValueError: It has a storage.
    """
    _refuse_stored(checkpoint)
    history = checkpoint._history
    if history.stored is None:
        return Checkpoint(History(header=history.header, storage=None))
    copied = Checkpoint.restore(
        header=history.header,
        manifests=[found.manifest for found in history.snapshots()],
        head_snapshot_id=history.stored,
        parts=history.table.parts,
        checkpoint_storage=None,
        sealed=True,  # they are those of this process, and were proven when they came
    )
    return _selecting(copied, history.selected)


def mark_of(checkpoint: Checkpoint) -> tuple[Any, ...]:
    """Return what changes whenever anything of a checkpoint does: ids of snapshots are never used again."""
    history = checkpoint._history
    header = history.header
    return (header.checkpoint_id, header.generation, history.stored, history.selected, history.known())


def _selecting(checkpoint: Checkpoint, selected: Any) -> Checkpoint:
    if selected != checkpoint.head_snapshot_id:
        checkpoint.restart_from(selected)
    return checkpoint


def _refuse_stored(checkpoint: Checkpoint) -> None:
    if checkpoint.checkpoint_storage is not None:
        raise UnsupportedValueError(
            f"checkpoint {checkpoint.checkpoint_id!r} has a storage, so it is no part of another state: keep its "
            "checkpoint_id and head_snapshot_id there, and load it from its storage"
        )
