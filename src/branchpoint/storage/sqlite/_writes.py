"""What is done inside a transaction that changes something: commits, prunes, deletions, leases."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from branchpoint.checkpoint import (
    Format,
    Lease,
    LeaseRecord,
    Status,
    StoredHead,
    refuse_leased,
    refuse_stale,
)
from branchpoint.errors import CorruptCheckpointError
from branchpoint.storage.sqlite._log import StoredCommit, backwards, is_stored, parts_of, put_places
from branchpoint.storage.sqlite._names import ManifestName, header_name, kept_name
from branchpoint.storage.sqlite._rows import Head, damaged, refuse_other_format

__all__ = ["Commit", "Prune", "delete", "end_lease", "renew_lease", "take_lease"]

_PLACED_AT_ONCE = 256
"""How many parts wait until they get places: enough to share the pages that are changed, few to look through."""

_FIND_KEY = "SELECT key FROM checkpoints WHERE checkpoint_id = ?"
_CREATE = """
    INSERT INTO checkpoints (
        checkpoint_id, workflow_name, format, header, snapshot_id, generation, record, status, snapshots, bytes,
        ascending, placed, waiting
    ) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, ?, 1, 0, ?)
"""
_FIND_HEADER = "SELECT 1 FROM records WHERE record = ? AND checkpoint = ? AND name LIKE '.header.%'"
_NEWEST_RECORD = "SELECT max(record) FROM records"
_STORE = "INSERT INTO records VALUES (?, ?, ?, ?)"
_COPY = "INSERT INTO records SELECT ?, checkpoint, name, data FROM records WHERE record = ?"
_MOVE_HEAD = """
    UPDATE checkpoints SET snapshot_id = ?, record = ?, status = ?, snapshots = ?, bytes = ?, ascending = ?, waiting = ?
    WHERE key = ? AND snapshot_id = ? AND generation = ?
"""
_PRUNE = """
    UPDATE checkpoints SET header = ?, generation = ?, record = ?, snapshots = ?, bytes = ?, placed = 0, waiting = ?
    WHERE key = ?
"""
_MOVE_PLACED = "UPDATE checkpoints SET placed = record, waiting = 0 WHERE key = ?"
_REMOVE_RECORDS = "DELETE FROM records WHERE record BETWEEN ? AND ?"
_REMOVE_PLACES = "DELETE FROM places WHERE checkpoint = ?"


class Commit:
    """One snapshot to be stored, as bytes. Called inside a transaction.

    Args:
        header: The name of the workflow and the header's bytes, for the first commit alone.
        held: The lease under which it is committed.
        leases: Whether leases are compared.
    """

    __slots__ = (
        "checkpoint_id", "expected", "format", "generation", "header", "held", "leases", "manifest",
        "names", "part_bytes", "parts", "snapshot_id", "status",
    )  # fmt: skip

    def __init__(
        self,
        *,
        checkpoint_id: str,
        format: Format,
        snapshot_id: str,
        status: Status,
        manifest: bytes,
        parts: Mapping[str, bytes],
        expected: str | None,
        generation: int,
        header: tuple[str, bytes] | None,
        held: Lease | None,
        leases: bool,
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.format = format
        self.snapshot_id = snapshot_id
        self.status = status
        self.manifest = manifest
        self.parts = parts
        self.expected = expected
        self.generation = generation
        self.header = header
        self.held = held
        self.leases = leases
        self.names = [kept_name(name) for name in parts]
        self.part_bytes = sum(map(len, parts.values()))

    def __call__(self, db: sqlite3.Connection) -> None:
        head = Head.find(db, self.checkpoint_id)
        if head is None:
            self._refuse(db, None)
            self._create(db)
            return
        refuse_other_format(head.format, self.format, self.checkpoint_id)
        if is_stored(db, head, self.snapshot_id, self.format):
            return  # an earlier reply was lost
        self._refuse(db, head.stored)
        record, waiting = head.newest + 1, head.waiting + len(self.parts)
        self._store(db, head.key, record, head.record)
        moved = db.execute(
            _MOVE_HEAD,
            (
                self.snapshot_id, record, self.status, head.snapshots + 1, head.bytes + self.part_bytes,
                head.ascending if self.snapshot_id > head.snapshot_id else 0, waiting,
                head.key, self.expected, head.generation,
            ),
        )  # fmt: skip
        if moved.rowcount != 1:
            raise damaged(self.checkpoint_id, "its row cannot be found again")
        if waiting >= _PLACED_AT_ONCE:
            put_places(db, head, record)
            db.execute(_MOVE_PLACED, (head.key,))

    def _refuse(self, db: sqlite3.Connection, stored: StoredHead | None) -> None:
        _refuse(db, self, stored, generation=self.generation)

    def _create(self, db: sqlite3.Connection) -> None:
        assert self.header is not None  # nothing is stored and nothing was expected
        workflow_name, header = self.header
        place = (db.execute(_NEWEST_RECORD).fetchone()[0] or 0) + 1
        key = db.execute(
            _CREATE,
            (
                self.checkpoint_id, workflow_name, self.format, place, self.snapshot_id, self.generation, place + 1,
                self.status, self.part_bytes, len(self.parts),
            ),
        ).lastrowid  # fmt: skip
        assert key is not None
        db.execute(_STORE, (place, key, header_name(header, self.checkpoint_id), header))
        self._store(db, key, place + 1, 0)

    def _store(self, db: sqlite3.Connection, key: int, record: int, previous: int) -> None:
        back = record - previous if previous else 0
        name = str(ManifestName.of(self.manifest, self.checkpoint_id, back, len(self.parts)))
        # As `bytearray`: of `bytes` the driver asks each time whether they are to be adapted.
        rows: list[tuple[int, int, str | bytearray, bytearray]] = [
            (record, key, name, bytearray(self.manifest))
        ]
        for kept, data in zip(self.names, self.parts.values(), strict=True):
            record += 1
            rows.append((record, key, kept if isinstance(kept, str) else bytearray(kept), bytearray(data)))
        db.executemany(_STORE, rows)


class Prune:
    """What is kept of a checkpoint, and its new header. Called inside a transaction."""

    def __init__(
        self,
        *,
        checkpoint_id: str,
        format: Format,
        header: bytes,
        generation: int,
        keep: Sequence[str],
        parts: frozenset[str],
        expected: str,
        held: Lease | None,
        leases: bool,
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.format = format
        self.header = header
        self.generation = generation
        self.keep = list(keep)
        self.parts = {kept_name(name) for name in parts}
        self.expected = expected
        self.held = held
        self.leases = leases

    def __call__(self, db: sqlite3.Connection) -> None:
        head = Head.find(db, self.checkpoint_id)
        if head is None:
            self._refuse(db, None)
            return  # it has refused: a head was expected
        refuse_other_format(head.format, self.format, self.checkpoint_id)
        if head.generation == self.generation and self._is_done(db, head):
            return  # an earlier reply was lost
        self._refuse(db, head.stored)
        commits = list(backwards(db, head))
        self._keep_behind(db, head, commits[::-1])
        db.executemany(_REMOVE_RECORDS, [(head.header, head.header), *_ranges(commits)])

    def _keep_behind(self, db: sqlite3.Connection, head: Head, commits: list[StoredCommit]) -> None:
        """Write what is kept behind all records there are; a part of a dropped commit moves to the next kept one."""
        staying, left = set(self.keep), set(self.parts)
        place = head.newest + 1
        db.execute(_STORE, (place, head.key, header_name(self.header, self.checkpoint_id), self.header))
        record, previous, size, count = place + 1, 0, 0, 0
        moved: list[int] = []
        for commit in commits:
            for stored, name, data in parts_of(db, head, commit):
                if name in left:
                    left.discard(name)
                    moved.append(stored)
                    size += len(data)
            if commit.manifest(head, self.format).snapshot_id not in staying:
                continue
            back = record - previous if previous else 0
            manifest_name = str(ManifestName.of(commit.data, self.checkpoint_id, back, len(moved)))
            db.execute(_STORE, (record, head.key, manifest_name, commit.data))
            db.executemany(_COPY, list(enumerate(moved, record + 1)))
            count += len(moved)
            previous, record, moved = record, record + 1 + len(moved), []
        db.execute(_REMOVE_PLACES, (head.key,))
        db.execute(_PRUNE, (place, self.generation, previous, len(self.keep), size, count, head.key))
        if count >= _PLACED_AT_ONCE:
            head.placed = 0
            put_places(db, head, previous)
            db.execute(_MOVE_PLACED, (head.key,))

    def _refuse(self, db: sqlite3.Connection, stored: StoredHead | None) -> None:
        _refuse(db, self, stored, generation=self.generation - 1)

    def _is_done(self, db: sqlite3.Connection, head: Head) -> bool:
        header = db.execute("SELECT data FROM records WHERE record = ?", (head.header,)).fetchone()
        if header != (self.header,) or head.snapshots != len(self.keep):
            return False
        lineage = [commit.manifest(head, self.format).snapshot_id for commit in backwards(db, head)]
        return lineage[::-1] == self.keep


def _ranges(commits: list[StoredCommit]) -> list[tuple[int, int]]:
    return [(commit.record, commit.last) for commit in commits]


def delete(db: sqlite3.Connection, checkpoint_id: str) -> None:
    """Remove everything of a checkpoint, readable or not; an unknown one is no error."""
    found = db.execute(_FIND_KEY, (checkpoint_id,)).fetchone()
    if found is not None:
        ranges = _all_of(db, checkpoint_id)
        if ranges is not None:
            db.executemany(_REMOVE_RECORDS, ranges)
        else:  # what no commit leads to any more is looked for among all records
            db.execute("DELETE FROM records WHERE checkpoint = ?", found)
        db.execute(_REMOVE_PLACES, found)
        db.execute("DELETE FROM checkpoints WHERE key = ?", found)
    db.execute("DELETE FROM leases WHERE checkpoint_id = ?", (checkpoint_id,))


def _all_of(db: sqlite3.Connection, checkpoint_id: str) -> list[tuple[int, int]] | None:
    """Return where all records of a checkpoint are; None when that cannot be told, because it is damaged."""
    try:
        head = Head.find(db, checkpoint_id)
        commits = [] if head is None else list(backwards(db, head))
    except CorruptCheckpointError:
        return None
    if head is None or len(commits) != head.snapshots:
        return None
    header = db.execute(_FIND_HEADER, (head.header, head.key)).fetchone()
    return None if header is None else [(head.header, head.header), *_ranges(commits)]


# Leases.


def take_lease(db: sqlite3.Connection, checkpoint_id: str, seconds: float) -> Lease:
    """Store a new lease.

    Raises:
        CheckpointLeasedError: Another's is in force.
    """
    record = LeaseRecord.taken(checkpoint_id, _stored_lease(db, checkpoint_id), seconds=seconds)
    _put_lease(db, checkpoint_id, record)
    return record.lease


def renew_lease(db: sqlite3.Connection, checkpoint_id: str, lease: Lease) -> None:
    """Let a lease last from now.

    Raises:
        CheckpointLeasedError: It passed on to another, or was removed.
    """
    record = LeaseRecord.renewed(checkpoint_id, _stored_lease(db, checkpoint_id), lease)
    _put_lease(db, checkpoint_id, record)


def end_lease(db: sqlite3.Connection, checkpoint_id: str, lease: Lease) -> None:
    """Remove a lease; one that passed on stays."""
    db.execute("DELETE FROM leases WHERE checkpoint_id = ? AND token = ?", (checkpoint_id, lease.token))


def _refuse(
    db: sqlite3.Connection, job: Commit | Prune, stored: StoredHead | None, *, generation: int
) -> None:
    """Compare lease, head and generation with what a commit or prune expects."""
    if job.leases:
        lease = _stored_lease(db, job.checkpoint_id)
        refuse_leased(job.checkpoint_id, held=job.held, stored=None if lease is None else lease.as_of_now())
    refuse_stale(
        job.checkpoint_id, expected_head_snapshot_id=job.expected, generation=generation, stored=stored
    )


_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)


def _stored_lease(db: sqlite3.Connection, checkpoint_id: str) -> LeaseRecord | None:
    asked = "SELECT token, expires, seconds FROM leases WHERE checkpoint_id = ?"
    found = db.execute(asked, (checkpoint_id,)).fetchone()
    if found is None:
        return None
    token, expires, seconds = found
    try:
        return LeaseRecord(token, _BEGINNING + expires * _TICK, seconds)
    except (OverflowError, TypeError):
        raise damaged(checkpoint_id, "its lease is none") from None


def _put_lease(db: sqlite3.Connection, checkpoint_id: str, record: LeaseRecord) -> None:
    db.execute(
        "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?)",
        (checkpoint_id, record.token, (record.expires - _BEGINNING) // _TICK, record.seconds),
    )
