"""From stored bytes back to a history, checked before anything of it is shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from branchpoint import codec
from branchpoint.checkpoint._contract import CheckpointStorage
from branchpoint.checkpoint._history import History, format_of
from branchpoint.checkpoint._lineage import check_lineage
from branchpoint.checkpoint._manifest import Format, Header, Manifest
from branchpoint.checkpoint._snapshot import CheckpointSnapshot, PartTable, check_part
from branchpoint.checkpoint._state import check_stored_buckets
from branchpoint.errors import CorruptCheckpointError, StorageError

__all__ = ["fetch", "needed_parts", "rebuild"]


def rebuild(
    *,
    header: Header,
    manifests: Sequence[Manifest],
    head_snapshot_id: str,
    parts: Mapping[str, bytes],
    storage: CheckpointStorage | None,
    unloaded: Collection[str],
) -> History:
    """Check bucket names, lineage and digests, in this order, and return the history they make.

    Raises:
        CorruptCheckpointError: What was stored is damaged.
    """
    checkpoint_id, form = header.checkpoint_id, format_of(storage)
    if not manifests:
        raise CorruptCheckpointError(
            f"checkpoint {checkpoint_id!r} is stored without any snapshot; restore it from a backup"
        )
    left = set(unloaded) - {head_snapshot_id}
    here = [manifest for manifest in manifests if manifest.snapshot_id not in left]
    for manifest in {manifest.root: manifest for manifest in here}.values():
        where = f"snapshot {manifest.snapshot_id[:80]!a} of checkpoint {checkpoint_id!r}"
        check_stored_buckets(manifest.root, parts, format=form, where=where)
    check_lineage(
        [(manifest.snapshot_id, manifest.parent_snapshot_id) for manifest in manifests],
        head=head_snapshot_id,
        pruned=header.pruned,
        checkpoint_id=checkpoint_id,
    )
    for digest, part in parts.items():
        check_part(digest, part, checkpoint_id=checkpoint_id)
    # Left-overs of interrupted writes go: a later commit must not take them for stored ones.
    needed = needed_parts(
        [manifest.root for manifest in here], parts, format=form, checkpoint_id=checkpoint_id
    )
    return History(
        header=header,
        storage=storage,
        manifests=manifests,
        head=head_snapshot_id,
        table=PartTable(needed, left),
    )


def needed_parts(
    roots: Iterable[str], parts: Mapping[str, bytes], *, format: Format, checkpoint_id: str
) -> dict[str, bytes]:
    """Return the parts that states are made of, in the order they are held.

    Raises:
        CorruptCheckpointError: One of them is missing.
    """
    needed = codec.reachable(roots, parts, format=format)
    missing = [digest for digest in needed if digest not in parts]
    if missing:
        raise CorruptCheckpointError(
            f"checkpoint {checkpoint_id!r} is damaged: its part {min(missing)[:40]!a} is missing; "
            "restore it from a backup"
        )
    return {digest: data for digest, data in parts.items() if digest in needed}


async def fetch(history: History, snapshot: CheckpointSnapshot) -> None:
    """Bring the parts of a snapshot into memory that a lazy storage left behind.

    Raises:
        CorruptCheckpointError: Storage no longer has all of them, or one is damaged.
    """
    storage, table, form = history.storage, history.table, history.format
    checkpoint_id = history.header.checkpoint_id
    if storage is None:
        raise StorageError(f"checkpoint {checkpoint_id!r} has no storage to fetch a snapshot from")
    where = f"snapshot {snapshot.snapshot_id!r} of checkpoint {checkpoint_id!r}"
    found: dict[str, bytes] = {}
    wanted = {snapshot.root} - table.parts.keys()
    while wanted:
        fetched = await storage.load_parts(checkpoint_id, sorted(wanted))
        missing = wanted - fetched.keys()
        if missing:
            raise CorruptCheckpointError(
                f"{where} is damaged: part {min(missing)[:40]!a} is not in storage; restore it from a backup"
            )
        below: set[str] = set()
        for digest in wanted:
            check_part(digest, fetched[digest], checkpoint_id=checkpoint_id)
            found[digest] = fetched[digest]
            below.update(codec.references(fetched[digest], format=form))
        wanted = below - found.keys() - table.parts.keys()
    check_stored_buckets(snapshot.root, {**table.parts, **found}, format=form, where=where)
    # Only now, so that a part in the table always has everything below it there as well.
    table.parts.update(found)
    table.unloaded.discard(snapshot.snapshot_id)
