"""What one checkpoint object remembers: its header, its snapshots, their parts, and two heads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from branchpoint import codec
from branchpoint.checkpoint import _lineage
from branchpoint.checkpoint._contract import CheckpointStorage
from branchpoint.checkpoint._digests import Digests
from branchpoint.checkpoint._manifest import Format, Header, Manifest
from branchpoint.checkpoint._snapshot import CheckpointSnapshot, PartTable, settle
from branchpoint.errors import InvalidCallError, SnapshotNotFoundError, SnapshotNotLoadedError, quotable

__all__ = ["History", "Rested", "format_of"]


class Rested(NamedTuple):
    """What a run left at its end, so that the next one need not read and encode everything again.

    It speaks of one snapshot, and of the parts as they were; it is never stored, and never needed.

    Attributes:
        snapshot_id: The snapshot the run ended at.
        table: Where its parts are. A prune and a `refresh()` make another one.
        state: The run's own, opaque here.
        memo: What the codec remembers of the state.
    """

    snapshot_id: str
    table: PartTable
    state: object
    memo: codec.Level | None


class History:
    """The memory of one checkpoint. It changes only after storage has answered, and all at once.

    Attributes:
        selected: The parent of the next snapshot.
        stored: The head last seen in storage; without storage, the last one committed.
        complete: Whether every retained snapshot is known here; a lazy storage may have left older ones.
        rested: What the last run left for the next one.
    """

    def __init__(
        self,
        *,
        header: Header,
        storage: CheckpointStorage | None,
        manifests: Iterable[Manifest] = (),
        head: str | None = None,
        table: PartTable | None = None,
        complete: bool = True,
    ) -> None:
        self.header = header
        self.storage = storage
        self.format: Format = format_of(storage)
        self.table = PartTable() if table is None else table
        self.selected = self.stored = head
        self.complete = complete
        self.rested: Rested | None = None
        self._snapshots = self._seen(manifests)

    def _seen(self, manifests: Iterable[Manifest]) -> dict[str, CheckpointSnapshot]:
        return {
            manifest.snapshot_id: CheckpointSnapshot(
                checkpoint_id=self.header.checkpoint_id,
                manifest=manifest,
                table=self.table,
                format=self.format,
            )
            for manifest in manifests
        }

    def snapshots(self) -> list[CheckpointSnapshot]:
        """Return every retained snapshot, in commit order.

        Raises:
            SnapshotNotLoadedError: A lazy storage left older ones behind.
        """
        if not self.complete:
            raise self._incomplete("its older snapshots are")
        return list(self._snapshots.values())

    def __contains__(self, snapshot_id: object) -> bool:
        return isinstance(snapshot_id, str) and snapshot_id in self._snapshots

    def known(self) -> int:
        """Return how many snapshots are known here."""
        return len(self._snapshots)

    def _incomplete(self, what: str) -> SnapshotNotLoadedError:
        return SnapshotNotLoadedError(
            f"checkpoint {self.header.checkpoint_id!r} was loaded lazily and knows its newest "
            f"{len(self._snapshots)} snapshots; {what} still in storage: "
            "`await checkpoint.load_lineage()` fetches the rest"
        )

    def complete_with(self, manifests: Iterable[Manifest]) -> None:
        """Learn of all snapshots, of which the newest are known already; their states stay in storage."""
        seen = self._seen(manifests)
        self.table.unloaded.update(seen.keys() - self._snapshots.keys())
        self._snapshots = {**seen, **self._snapshots}
        self.complete = True

    def head(self) -> CheckpointSnapshot | None:
        """Return the snapshot at the selected head."""
        selected = self.selected
        return None if selected is None else self._snapshots[selected]

    def get(self, snapshot_id: object) -> CheckpointSnapshot:
        """Return a retained snapshot.

        Raises:
            SnapshotNotFoundError: There is none of that id.
            SnapshotNotLoadedError: It may be one of those that a lazy storage left behind.
        """
        found = self._snapshots.get(snapshot_id) if isinstance(snapshot_id, str) else None
        if found is None:
            if not self.complete and isinstance(snapshot_id, str):
                raise self._incomplete(f"snapshot {quotable(snapshot_id, 80)}, if it is one of its own, is")
            pruned = isinstance(snapshot_id, str) and snapshot_id in self.header.pruned
            named = ascii(snapshot_id)[:80] + (", it was pruned" if pruned else "")
            raise SnapshotNotFoundError(
                f"checkpoint {self.header.checkpoint_id!r} holds no snapshot {named}; it holds "
                f"{len(self._snapshots)}, see `checkpoint.snapshots`"
            )
        return found

    def parents(self) -> dict[str, str | None]:
        """Return the lineage: snapshot id to parent id, in commit order."""
        return {snapshot.snapshot_id: snapshot.parent_snapshot_id for snapshot in self.snapshots()}

    def ancestors(self, snapshot_id: str) -> list[CheckpointSnapshot]:
        """Return a snapshot and its retained ancestors, nearest first.

        Raises:
            SnapshotNotLoadedError: A lazy storage left some of them behind.
        """
        path = _lineage.path_to_root(self.parents(), snapshot_id, self.header.pruned)
        return [self._snapshots[found] for found in path]

    def advance(self, snapshot: CheckpointSnapshot) -> None:
        """Show a snapshot that is durable now, and move both heads to it."""
        settle(snapshot)
        self._snapshots[snapshot.snapshot_id] = snapshot
        self.selected = self.stored = snapshot.snapshot_id

    def drop(self, header: Header, keep: Iterable[str], parts: Mapping[str, bytes]) -> None:
        """Forget every snapshot but `keep` and every part but `parts`; what is not in memory stays out of it.

        The kept snapshots are made anew over a table of their own, so that a removed one which
        somebody still holds keeps its parts.
        """
        manifests = {snapshot_id: self._snapshots[snapshot_id].manifest for snapshot_id in keep}
        old = self.table
        here = {digest: data for digest, data in parts.items() if digest in old.parts}
        left = Digests(parts.keys() - here.keys())
        self.header, self.table = header, PartTable(here, old.unloaded & manifests.keys(), left)
        self._snapshots = self._seen(manifests.values())

    def adopt(self, other: History) -> None:
        """Become what was read from storage, both heads at the stored one."""
        self.header, self.table, self._snapshots = other.header, other.table, other._snapshots
        self.complete = other.complete
        self.selected = self.stored = other.stored


def format_of(storage: Any) -> Format:
    """Return the format of what a storage keeps; without one it is JSON.

    Raises:
        InvalidCallError: The storage is not a `CheckpointStorage`, or names another format.
    """
    if storage is None:
        return "json"
    if not isinstance(storage, CheckpointStorage):
        raise InvalidCallError(f"checkpoint_storage is a CheckpointStorage, not {type(storage).__name__}")
    if storage.serialization_format not in ("json", "msgpack"):
        raise InvalidCallError(
            f"{type(storage).__name__}.serialization_format is {storage.serialization_format!r}; "
            'it is "json" or "msgpack"'
        )
    return storage.serialization_format
