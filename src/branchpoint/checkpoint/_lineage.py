"""The law of a lineage, and questions about it. Pure functions over ids and parents."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from branchpoint.errors import CorruptCheckpointError

__all__ = [
    "check_lineage",
    "children",
    "common_ancestor",
    "gaps_after_prune",
    "is_ancestor",
    "path_to_root",
]

Parents = Mapping[str, str | None]
"""Snapshot id to parent id, in commit order."""


def check_lineage(
    entries: Sequence[tuple[str, str | None]],
    *,
    head: str | None,
    pruned: Mapping[str, str | None],
    checkpoint_id: str,
) -> None:
    """Check that stored snapshots form one lineage in commit order.

    Each id occurs once; each parent was committed before its child, or was pruned and is recorded
    as such, with a nearest retained ancestor that was committed before the child too; the head is
    one of the snapshots. Since parents come first, there is no cycle.

    Raises:
        CorruptCheckpointError: The law is broken; the message names the snapshot.
    """

    def damaged(what: str) -> CorruptCheckpointError:
        return CorruptCheckpointError(
            f"the lineage of checkpoint {checkpoint_id!r} is damaged: {what}; restore it from a backup"
        )

    everything = {snapshot_id for snapshot_id, _ in entries}
    seen: set[str] = set()
    for snapshot_id, parent in entries:
        if not snapshot_id:
            raise damaged("a snapshot has no id")
        if snapshot_id in seen:
            raise damaged(f"there are two snapshots {snapshot_id[:80]!a}")
        if parent is not None and parent not in seen:
            if parent == snapshot_id or parent in everything:
                raise damaged(
                    f"snapshot {snapshot_id[:80]!a} comes before its parent {parent[:80]!a}, "
                    "so their order is wrong or they form a cycle"
                )
            if parent not in pruned:
                raise damaged(f"the parent {parent[:80]!a} of snapshot {snapshot_id[:80]!a} is missing")
            beyond = pruned[parent]
            if beyond is not None and beyond not in seen:
                raise damaged(f"the ancestor {beyond[:80]!a} of snapshot {snapshot_id[:80]!a} is missing")
        seen.add(snapshot_id)
    for gap in pruned:
        if gap in everything:
            raise damaged(f"snapshot {gap[:80]!a} is recorded as pruned and is there")
    if head is None and entries:
        raise damaged("it has snapshots and no head")
    if head is not None and head not in seen:
        raise damaged(f"its head {head[:80]!a} is not one of its snapshots")


def path_to_root(parents: Parents, snapshot_id: str, pruned: Parents | None = None) -> Iterator[str]:
    """Yield a snapshot and its retained ancestors, nearest first; pruned ones are stepped over."""
    found: str | None = snapshot_id
    while found is not None:
        if found in parents:
            yield found
            found = parents[found]
        else:
            found = (pruned or {})[found]


def is_ancestor(parents: Parents, ancestor: str, of: str, pruned: Parents | None = None) -> bool:
    """Say whether `ancestor` lies on the path from `of` to its root; a snapshot is its own ancestor."""
    return any(found == ancestor for found in path_to_root(parents, of, pruned))


def common_ancestor(parents: Parents, one: str, other: str, pruned: Parents | None = None) -> str | None:
    """Return the nearest retained snapshot that both continue; None when they have different roots."""
    mine = set(path_to_root(parents, one, pruned))
    return next((found for found in path_to_root(parents, other, pruned) if found in mine), None)


def children(parents: Parents, snapshot_id: str | None, pruned: Parents | None = None) -> list[str]:
    """Return the snapshots whose nearest retained ancestor is `snapshot_id`, in commit order.

    With None these are the roots.
    """
    found = []
    for child, parent in parents.items():
        while parent is not None and parent not in parents:
            parent = (pruned or {})[parent]
        if parent == snapshot_id:
            found.append(child)
    return found


def gaps_after_prune(parents: Parents, keep: Collection[str], pruned: Parents) -> dict[str, str | None]:
    """Return, for each parent that retained snapshots name and that is gone, its nearest retained ancestor.

    Args:
        parents: The lineage before the prune.
        keep: The snapshots that stay.
        pruned: The gaps that earlier prunes left.
    """
    gaps: dict[str, str | None] = {}
    for child in _in_order(parents, keep):
        parent = parents[child]
        if parent is None or parent in keep:
            continue
        if parent not in gaps:
            nearest = pruned[parent] if parent not in parents else parent
            while nearest is not None and nearest not in keep:
                nearest = parents[nearest] if nearest in parents else pruned[nearest]
            gaps[parent] = nearest
    return gaps


def _in_order(parents: Parents, keep: Collection[str]) -> Iterable[str]:
    return (snapshot_id for snapshot_id in parents if snapshot_id in keep)
