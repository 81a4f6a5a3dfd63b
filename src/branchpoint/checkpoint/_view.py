"""What can be read of a checkpoint, at any time, from any thread, without a workflow."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

import msgspec

from branchpoint.checkpoint import _reading
from branchpoint.checkpoint._contract import CheckpointStorage
from branchpoint.checkpoint._history import History
from branchpoint.checkpoint._manifest import Format, Header, Status
from branchpoint.checkpoint._plain import copy_plain
from branchpoint.checkpoint._records import OutputRecord, PendingRequest
from branchpoint.checkpoint._snapshot import CheckpointSnapshot
from branchpoint.checkpoint._telling import told
from branchpoint.errors import quotable
from branchpoint.events import WorkflowEvent

__all__ = ["CheckpointView"]


class CheckpointView:
    """The half of `Checkpoint` that changes nothing. Every value it gives is the reader's own."""

    def __init__(self, history: History) -> None:
        self._history = history

    def __repr__(self) -> str:
        kept = type(self._history.storage).__name__ if self._history.storage is not None else "memory only"
        return (
            f"<Checkpoint {self.checkpoint_id!r} of workflow {quotable(self.workflow_name, 80)!r}: "
            f"{self.status or 'new'}, {self._history.known()} snapshots, "
            f"head {quotable(str(self._history.selected), 80)}, {kept}>"
        )

    # What it is.

    @property
    def checkpoint_id(self) -> str:
        """The id it is stored under. It is a name, not a right: adapters check ownership themselves."""
        return self._history.header.checkpoint_id

    @property
    def workflow_name(self) -> str:
        """Name of the workflow it belongs to."""
        return self._history.header.workflow_name

    @property
    def graph_signature_hash(self) -> str:
        """Hash of the signature of the graph it was created for."""
        return self._history.header.graph_signature_hash

    @property
    def checkpoint_storage(self) -> CheckpointStorage | None:
        """Where commits go; fixed at creation, never serialized. None: this process's memory alone."""
        return self._history.storage

    @property
    def metadata(self) -> dict[str, str]:
        """Text to text, fixed at creation; a fresh copy."""
        return dict(self._history.header.metadata)

    @property
    def created_at(self) -> datetime:
        """When it was created; aware, in UTC."""
        return self._history.header.created_at

    @property
    def header(self) -> Header:
        """The envelope that storage keeps, as a value of its own; copied at each read."""
        found = self._history.header
        return msgspec.structs.replace(
            found,
            signature=copy_plain(found.signature),
            metadata=dict(found.metadata),
            pruned=dict(found.pruned),
        )

    @property
    def generation(self) -> int:
        """How often it was pruned; storage compares it beside the head."""
        return self._history.header.generation

    @property
    def format(self) -> Format:
        """The format of its parts: that of its storage, or JSON."""
        return self._history.format

    @property
    def parts(self) -> Mapping[str, bytes]:
        """Digest to bytes, for all retained snapshots that are loaded; read-only."""
        return MappingProxyType(self._history.table.parts)

    # Its snapshots.

    @property
    def snapshots(self) -> list[CheckpointSnapshot]:
        """Every retained snapshot of every branch, in commit order; a fresh list.

        Raises:
            SnapshotNotLoadedError: A lazy storage left older ones behind; `load_lineage()` fetches them.
        """
        return self._history.snapshots()

    @property
    def head_snapshot_id(self) -> str | None:
        """The selected head: what the next run restores from; None at the empty start."""
        return self._history.selected

    @property
    def stored_head_snapshot_id(self) -> str | None:
        """The head this object last saw in storage; without storage, the last one committed."""
        return self._history.stored

    @property
    def head_snapshot(self) -> CheckpointSnapshot | None:
        """The snapshot at the selected head; None at the empty start."""
        return self._history.head()

    def get_snapshot(self, snapshot_id: str) -> CheckpointSnapshot:
        """Return a retained snapshot.

        Raises:
            SnapshotNotFoundError: This checkpoint holds none of that id.
            SnapshotNotLoadedError: It may be one that a lazy storage left behind; `load_lineage()` fetches them.
        """
        return self._history.get(snapshot_id)

    def ancestors(self, snapshot_id: str | None = None) -> list[CheckpointSnapshot]:
        """Return a snapshot and its retained ancestors, nearest first; by default the selected head's.

        Raises:
            SnapshotNotFoundError: This checkpoint holds no snapshot of that id.
            SnapshotNotLoadedError: A lazy storage left older ones behind; `load_lineage()` fetches them.
        """
        start = self._history.selected if snapshot_id is None else self.get_snapshot(snapshot_id).snapshot_id
        return [] if start is None else self._history.ancestors(start)

    # Reading without a workflow.

    @property
    def status(self) -> Status | None:
        """Status at the selected head; None at the empty start."""
        return _reading.status(self.head_snapshot)

    @property
    def pending_requests(self) -> list[PendingRequest]:
        """The requests for outside input that are open at the selected head, in the order they were made.

        Raises:
            SnapshotNotLoadedError: A lazy storage left the head's state behind.
        """
        return _reading.pending_requests(self.head_snapshot)

    def outputs(self, input_id: str | None = None) -> list[OutputRecord]:
        """Return what the workflow produced up to the selected head, in the order it was produced.

        Args:
            input_id: Only what was produced in the turn of this input.

        Raises:
            SnapshotNotLoadedError: A lazy storage left the head's state behind.
        """
        return _reading.outputs(self.head_snapshot, input_id)

    def events(self, after: str | None = None, input_id: str | None = None) -> list[WorkflowEvent]:
        """Return the durable events on the way from the root to the selected head, oldest first.

        They are the same as the live stream gave, since one function of a snapshot makes both. It asks
        for nothing but that snapshot, so an event has the same `event_id` for as long as its snapshot is
        there, whatever else is pruned; those of a pruned snapshot are gone with it.

        Args:
            after: Only what came after the event of this `event_id`. A reader whose last event was pruned
                is refused, and reads from the start instead: what it has seen already it knows by its id.
            input_id: Only what happened in the course of this input.

        Raises:
            InvalidCallError: `after` is not the id of an event on this way; the snapshot of that event
                was pruned, or the selected head is on another branch.
            SnapshotNotLoadedError: A lazy storage left a snapshot behind, or its state.
            UnregisteredTypeError: An output's or request's type is not registered in this process.
        """
        return told(self._history, after=after, input_id=input_id)
