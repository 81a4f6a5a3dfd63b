"""From stored bytes back to a history, checked before anything of it is shown."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from branchpoint import codec
from branchpoint.checkpoint._aside import aside
from branchpoint.checkpoint._contract import CheckpointStorage, StoredHead, StoredRecords, refuse_stale
from branchpoint.checkpoint._digests import Digests
from branchpoint.checkpoint._history import History, format_of
from branchpoint.checkpoint._lineage import check_lineage
from branchpoint.checkpoint._manifest import Format, Header, Manifest
from branchpoint.checkpoint._naming import named, snapshot_name
from branchpoint.checkpoint._shape import is_small_root, open_messages
from branchpoint.checkpoint._snapshot import CheckpointSnapshot, PartTable, check_part
from branchpoint.checkpoint._stored import Source, stored_root
from branchpoint.errors import (
    CheckpointConflictError,
    CheckpointNotFoundError,
    CorruptCheckpointError,
    DataError,
    StorageError,
)

if TYPE_CHECKING:
    from branchpoint.checkpoint._checkpoint import Checkpoint

__all__ = ["fetch", "fetch_lineage", "needed_parts", "parts_below", "rebuild", "restored", "stored_parts"]


async def restored(
    storage: CheckpointStorage, checkpoint_id: str, expected_head: str | None = None
) -> Checkpoint:
    """Return the checkpoint that a storage's records make; this is how `load` works.

    Raises:
        CheckpointNotFoundError: Nothing is stored under this id.
        CheckpointConflictError: The stored head comes after the expected one.
        CorruptCheckpointError: What was stored is damaged, or the expected head is not there.
    """
    checkpoint = await _restored(storage, checkpoint_id)
    if expected_head is not None and checkpoint.stored_head_snapshot_id != expected_head:
        await checkpoint.load_lineage()
        raise _other_head(checkpoint, expected_head)
    return checkpoint


def _other_head(checkpoint: Checkpoint, expected: str) -> CheckpointConflictError | CorruptCheckpointError:
    stored = checkpoint.stored_head_snapshot_id
    found = (
        f"checkpoint {checkpoint.checkpoint_id!r} was expected with head {expected!r} and is stored with head "
        f"{stored!r}"
    )
    if any(snapshot.snapshot_id == expected for snapshot in checkpoint.snapshots):
        return CheckpointConflictError(
            f"{found}: somebody committed since. Load it without an expected head to see what, and decide again"
        )
    return CorruptCheckpointError(
        f"{found}, and does not hold the expected one: the store was set back to an older state, or somebody "
        "pruned that snapshot. Find out which before you go on from here"
    )


async def _restored(storage: CheckpointStorage, checkpoint_id: str) -> Checkpoint:
    from branchpoint.checkpoint._checkpoint import Checkpoint  # it is built on this file

    records = await storage.load_records(checkpoint_id)
    if not records.complete:
        history = _beginning(records, storage)
        await fetch(history, history.get(history.stored))
        return Checkpoint(history, storage_token=records.storage_token)
    rebuild_all = partial(
        Checkpoint.restore,
        header=records.header,
        manifests=records.manifests,
        head_snapshot_id=records.manifests[-1].snapshot_id if records.manifests else "",
        parts=records.parts,
        checkpoint_storage=storage,
        storage_token=records.storage_token,
        lazy_over=storage.lazy_over,
        sealed=records.sealed,
    )
    return await aside(rebuild_all, len(records.parts) + len(records.manifests))


def _beginning(records: StoredRecords, storage: CheckpointStorage) -> History:
    """Return a history that knows its newest snapshots by name, and has no part of any."""
    if not records.manifests:
        raise _without_snapshots(records.header.checkpoint_id)
    return History(
        header=records.header,
        storage=storage,
        manifests=records.manifests,
        head=records.manifests[-1].snapshot_id,
        table=PartTable({}, {manifest.snapshot_id for manifest in records.manifests}),
        complete=False,
    )


def _without_snapshots(checkpoint_id: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"checkpoint {checkpoint_id!r} is stored without any snapshot; restore it from a backup"
    )


async def fetch_lineage(history: History) -> None:
    """Bring the manifests into memory that a lazy storage left behind; those of later commits stay there.

    Raises:
        CheckpointConflictError: Another writer pruned or replaced the checkpoint meanwhile.
        CheckpointNotFoundError: It was deleted from storage.
        CorruptCheckpointError: The stored lineage is damaged.
    """
    while not history.complete:
        storage, header, head = history.storage, history.header, history.stored
        assert storage is not None and head is not None  # it came from there
        records = await storage.load_lineage(header.checkpoint_id)
        if history.header is header:  # else a refresh or a prune came between, and this is of before it
            history.complete_with(_up_to(head, records, header))


def _up_to(head: str, records: StoredRecords, header: Header) -> list[Manifest]:
    manifests, checkpoint_id = list(records.manifests), header.checkpoint_id
    if not manifests:
        raise _without_snapshots(checkpoint_id)
    while manifests and manifests[-1].snapshot_id != head:
        manifests.pop()
    refuse_stale(
        checkpoint_id,
        expected_head_snapshot_id=head,
        generation=header.generation,
        stored=StoredHead((manifests or records.manifests)[-1].snapshot_id, records.header.generation),
    )
    check_lineage(
        [(manifest.snapshot_id, manifest.parent_snapshot_id) for manifest in manifests],
        head=head,
        pruned=header.pruned,
        checkpoint_id=checkpoint_id,
    )
    return manifests


def rebuild(
    *,
    header: Header,
    manifests: Sequence[Manifest],
    head_snapshot_id: str,
    parts: Mapping[str, bytes],
    storage: CheckpointStorage | None,
    unloaded: Collection[str],
    left: Collection[str],
    lazy_over: int | None,
    sealed: bool = False,
) -> History:
    """Check bucket names, lineage and digests, in this order, and return the history they make.

    Raises:
        CorruptCheckpointError: What was stored is damaged.
    """
    checkpoint_id, form = header.checkpoint_id, format_of(storage)
    if not manifests:
        raise _without_snapshots(checkpoint_id)
    behind = set(unloaded) - {head_snapshot_id}
    here = [manifest for manifest in manifests if manifest.snapshot_id not in behind]
    for root, snapshot_id in {manifest.root: manifest.snapshot_id for manifest in here}.items():
        _check_buckets(root, parts, form, snapshot_id, checkpoint_id)
    check_lineage(
        [(manifest.snapshot_id, manifest.parent_snapshot_id) for manifest in manifests],
        head=head_snapshot_id,
        pruned=header.pruned,
        checkpoint_id=checkpoint_id,
    )
    if sealed:
        head = [manifest for manifest in here if manifest.snapshot_id == head_snapshot_id]
        _reached(head, parts, format=form, checkpoint_id=checkpoint_id)
        needed = dict(parts)
    else:
        for digest, part in parts.items():
            check_part(digest, part, checkpoint_id=checkpoint_id)
        # Left-overs of interrupted writes go: a later commit must not take them for stored ones.
        needed = needed_parts(here, parts, format=form, checkpoint_id=checkpoint_id)
    table = PartTable(needed, behind, Digests(left))
    if lazy_over is not None:
        table = _thinned(table, here, head_snapshot_id, format=form, lazy_over=lazy_over)
    return History(header=header, storage=storage, manifests=manifests, head=head_snapshot_id, table=table)


def _thinned(
    table: PartTable, manifests: Sequence[Manifest], head: str, *, format: Format, lazy_over: int
) -> PartTable:
    """Keep the head's parts, and those of the newest other snapshots that fit in with them."""
    if sum(map(len, table.parts.values())) <= lazy_over:
        return table
    roots = {manifest.snapshot_id: manifest.root for manifest in manifests}
    kept: dict[str, bytes] = {}
    held = 0
    for snapshot_id in (head, *reversed(roots)):
        more = parts_below([roots[snapshot_id]], table.parts, known=kept, format=format)
        held += sum(map(len, more.values()))
        if kept and held > lazy_over:
            break
        kept.update(more)
    # Below a kept part everything is kept, so a root tells of its whole state.
    behind = {snapshot_id for snapshot_id, root in roots.items() if root not in kept}
    left = Digests([*table.left, *(table.parts.keys() - kept.keys())])
    return PartTable(kept, table.unloaded | behind, left)


def parts_below(
    digests: Iterable[str], parts: Mapping[str, bytes], *, format: Format, known: Container[str] = ()
) -> dict[str, bytes]:
    """Return the named parts and all below them; what is known or missing is left out, and what is below it."""
    found: dict[str, bytes] = {}
    waiting = list(digests)
    while waiting:
        digest = waiting.pop()
        data = parts.get(digest)
        if data is not None and digest not in found and digest not in known:
            found[digest] = data
            # One that cannot be read is reported by whoever needs it, with the snapshot's name.
            with suppress(DataError):
                waiting.extend(codec.references(data, format=format))
    return found


def needed_parts(
    manifests: Iterable[Manifest], parts: Mapping[str, bytes], *, format: Format, checkpoint_id: str
) -> dict[str, bytes]:
    """Return the parts that snapshots' states are made of, in the order they are held.

    Raises:
        CorruptCheckpointError: One of them is missing or cannot be read; the message names a snapshot
            that needs it.
    """
    needed = _reached(manifests, parts, format=format, checkpoint_id=checkpoint_id)
    return {digest: data for digest, data in parts.items() if digest in needed}


def _reached(
    manifests: Iterable[Manifest], parts: Mapping[str, bytes], *, format: Format, checkpoint_id: str
) -> set[str]:
    roots = {manifest.root: manifest.snapshot_id for manifest in manifests}
    try:
        return codec.reachable(roots, parts, format=format)
    except DataError:
        for root, snapshot_id in roots.items():  # only now is it worth asking which of them it was
            with named(snapshot_name(snapshot_id, checkpoint_id)):
                codec.reachable([root], parts, format=format)
        raise


def _check_buckets(
    root: str, parts: Mapping[str, bytes], format: Format, snapshot_id: str, checkpoint_id: str
) -> None:
    """Check the names of the buckets of a stored state, decoding no value inside them."""
    data = parts.get(root)
    if data is not None and is_small_root(data, format=format):
        return
    where = snapshot_name(snapshot_id, checkpoint_id)
    open_messages(stored_root(root, Source(parts, format, where, advice="Restore it from a backup.")))


async def fetch(history: History, snapshot: CheckpointSnapshot) -> None:
    """Bring the parts of a snapshot into memory that a lazy storage left behind.

    Raises:
        CheckpointConflictError: Another writer pruned or replaced the checkpoint meanwhile.
        SnapshotNotFoundError: This object pruned the snapshot meanwhile.
        CorruptCheckpointError: Storage no longer has all of them, or one is damaged.
    """
    table = history.table
    found = await stored_parts(history, [snapshot])
    here, checkpoint_id = {**table.parts, **found}, history.header.checkpoint_id
    _check_buckets(snapshot.root, here, history.format, snapshot.snapshot_id, checkpoint_id)
    # Only now, so that a part in the table always has everything below it there as well.
    table.parts.update(found)
    table.unloaded.discard(snapshot.snapshot_id)


async def stored_parts(history: History, snapshots: Sequence[CheckpointSnapshot]) -> dict[str, bytes]:
    """Read from storage what snapshots need and memory does not hold; changes nothing in memory.

    Raises:
        CheckpointConflictError: Another writer pruned or replaced the checkpoint meanwhile.
        SnapshotNotFoundError: This object pruned one of the snapshots meanwhile.
        CorruptCheckpointError: Storage no longer has all of them, or one is damaged.
    """
    storage, here, checkpoint_id = history.storage, history.table.parts, history.header.checkpoint_id
    found: dict[str, bytes] = {}
    wanted = {snapshot.root for snapshot in snapshots} - here.keys()
    if not wanted:
        return found
    if storage is None:
        raise StorageError(f"checkpoint {checkpoint_id!r} has no storage to fetch a snapshot from")
    where = snapshots[0].described if len(snapshots) == 1 else f"checkpoint {checkpoint_id!r}"
    while wanted:
        fetched = await storage.load_parts(checkpoint_id, sorted(wanted))
        missing = wanted - fetched.keys()
        if missing:
            await _refuse_other_writer(history, storage)
            for snapshot in snapshots:
                history.get(snapshot.snapshot_id)  # this object may have pruned it meanwhile
            raise CorruptCheckpointError(
                f"{where} is damaged: part {min(missing)[:40]!a} is not in storage; restore it from a backup"
            )
        # A storage may answer with what is below as well; then there is less to ask for, or nothing.
        waiting, wanted = wanted, set()
        while waiting:
            digest = waiting.pop()
            if digest in found or digest in here:
                continue
            data = fetched.get(digest)
            if data is None:
                wanted.add(digest)
                continue
            check_part(digest, data, checkpoint_id=checkpoint_id)
            found[digest] = data
            with named(where):
                waiting.update(codec.references(data, format=history.format))
    return found


async def _refuse_other_writer(history: History, storage: CheckpointStorage) -> None:
    """Tell parts that another writer removed from damage."""
    checkpoint_id = history.header.checkpoint_id
    try:
        stored = await storage.load_head(checkpoint_id)
    except CheckpointNotFoundError:
        stored = None
    refuse_stale(
        checkpoint_id,
        expected_head_snapshot_id=history.stored,
        generation=history.header.generation,
        stored=stored,
    )
