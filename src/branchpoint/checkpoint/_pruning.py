"""Removing snapshots for good, because the caller said so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from branchpoint.checkpoint._contract import CheckpointStorage
from branchpoint.checkpoint._history import History
from branchpoint.checkpoint._landing import landed
from branchpoint.checkpoint._lineage import gaps_after_prune
from branchpoint.checkpoint._manifest import Header
from branchpoint.checkpoint._plain import copy_plain
from branchpoint.checkpoint._restoring import needed_parts, stored_parts
from branchpoint.checkpoint._snapshot import CheckpointSnapshot
from branchpoint.errors import CheckpointConflictError, InvalidCallError

if TYPE_CHECKING:
    from branchpoint.checkpoint._checkpoint import Checkpoint
    from branchpoint.checkpoint._hold import Hold

__all__ = ["Keep", "prune"]

Keep = Iterable[str] | Callable[[CheckpointSnapshot], bool]


async def prune(checkpoint: Checkpoint, history: History, hold: Hold, keep: Keep) -> list[CheckpointSnapshot]:
    """Remove what is neither kept nor a head, and return it; memory follows storage."""
    kept = _kept(history, keep)
    removed = [snapshot for snapshot in history.snapshots() if snapshot.snapshot_id not in kept]
    if not removed or history.stored is None:  # nothing is there unless something is stored
        return []
    header = msgspec.structs.replace(
        history.header,
        generation=history.header.generation + 1,
        pruned=gaps_after_prune(history.parents(), kept, history.header.pruned),
    )
    staying = [history.get(snapshot_id) for snapshot_id in kept]
    # What a lazy storage left behind is read for its references alone, and let go again.
    found = await stored_parts(history, [snapshot for snapshot in staying if not snapshot.is_loaded])
    parts = needed_parts(
        [snapshot.manifest for snapshot in staying],
        {**history.table.parts, **found},
        format=history.format,
        checkpoint_id=checkpoint.checkpoint_id,
    )
    if history.storage is None:
        with hold.committing():
            history.drop(header, kept, parts)
    else:
        persist = _persist(history.storage, checkpoint, history, header, kept, parts, history.stored)
        await landed(hold, persist, f"the prune of {checkpoint.checkpoint_id!r}")
    return removed


def _kept(history: History, keep: Keep) -> list[str]:
    if isinstance(keep, str) or not (callable(keep) or isinstance(keep, Iterable)):
        raise InvalidCallError(
            f"keep is a collection of snapshot ids or a function of a snapshot, not one {type(keep).__name__}"
        )
    if callable(keep):
        chosen = {snapshot.snapshot_id for snapshot in history.snapshots() if keep(snapshot)}
    else:
        chosen = {history.get(snapshot_id).snapshot_id for snapshot_id in keep}
    chosen.update(head for head in (history.selected, history.stored) if head is not None)
    return [found for found in history.parents() if found in chosen]


async def _persist(
    storage: CheckpointStorage,
    checkpoint: Checkpoint,
    history: History,
    header: Header,
    kept: list[str],
    parts: dict[str, bytes],
    head: str,
) -> None:
    try:
        await storage.prune(
            checkpoint,
            header=msgspec.structs.replace(header, signature=copy_plain(header.signature)),
            keep=list(kept),
            parts=frozenset(parts),
            expected_head_snapshot_id=head,
        )
    except CheckpointConflictError:
        raise  # the backend has looked for a lost reply already
    except Exception:
        if not await _is_pruned(storage, header, kept):
            raise
    history.drop(header, kept, parts)


async def _is_pruned(storage: CheckpointStorage, header: Header, kept: list[str]) -> bool:
    """Say whether a prune that raised has landed all the same; another writer may have gone on from there.

    Storage that cannot be read now says no, and the next prune or `refresh()` settles it later.
    """
    try:
        stored = await storage.load(header.checkpoint_id)
        await stored.load_lineage()
    except Exception:
        return False
    lineage = [snapshot.snapshot_id for snapshot in stored.snapshots]
    return stored.header == header and lineage[: len(kept)] == kept
