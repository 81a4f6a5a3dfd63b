"""The order of commits, as the seals tell it: nothing between two commits can be taken out or turned round."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from branchpoint import codec
from branchpoint.checkpoint import Header
from branchpoint.errors import CorruptCheckpointError
from branchpoint.storage.encrypted._sealer import Kept, OpenedManifest

__all__ = ["kept_now", "refuse_other_order"]


def kept_now(ids: Sequence[str]) -> Kept:
    """Return what a header says of the lineage that a prune leaves."""
    return Kept(ids[-1], _digest(ids))


def refuse_other_order(
    header: Header, found: Sequence[OpenedManifest], kept: Kept | None, *, complete: bool
) -> None:
    """Check that snapshots stand in the order in which they were committed, and that none is missing.

    Each seal names the snapshot that was committed before, and how many prunes there had been; across what a
    prune removed, the header tells what stayed. So no header fits what was committed after a later one. That
    the newest were dropped, or all of the checkpoint set back, cannot be seen from inside.

    Args:
        header: As it was in its seal.
        found: In stored order: all of them, or with `complete=False` the newest ones.
        kept: What the header says that the last prune left.

    Raises:
        CorruptCheckpointError: They are not as they were committed.
    """
    checkpoint_id = header.checkpoint_id
    ids = [opened.manifest.snapshot_id for opened in found]
    start = since = 0  # the first whose predecessor is here, and the first after the last prune
    if kept is not None:
        pruned = kept.head in ids
        if pruned:
            start = since = ids.index(kept.head) + 1
        if complete and not (pruned and _digest(ids[:start]) == kept.lineage):
            raise CorruptCheckpointError(
                f"the snapshots of checkpoint {checkpoint_id!r} are not those that its last prune left: some were "
                "removed, added or moved; restore it from a backup"
            )
    for opened in found[since:]:
        if opened.generation != header.generation:
            raise CorruptCheckpointError(
                f"snapshot {opened.manifest.snapshot_id!r} of checkpoint {checkpoint_id!r} was committed in "
                f"generation {opened.generation}, and its header is of generation {header.generation}: one of "
                "them was set back; restore the checkpoint from a backup"
            )
    if not complete:
        start = max(start, 1)
    for place in range(start, len(ids)):
        before = ids[place - 1] if place else None
        if found[place].after != before:
            raise CorruptCheckpointError(
                f"snapshot {ids[place]!r} of checkpoint {checkpoint_id!r} was committed after "
                f"{found[place].after!r} and stands after {before!r}: snapshots were removed or moved; restore "
                "the checkpoint from a backup"
            )


def _digest(ids: Sequence[str]) -> str:
    return codec.digest(msgspec.json.encode(list(ids)))
