"""The commits of one checkpoint, as they stand among those of all others: each names the one before it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

from branchpoint.checkpoint import Format, Manifest, decode_manifest
from branchpoint.storage.sqlite._names import ManifestName, beginning_of
from branchpoint.storage.sqlite._rows import Head, damaged

__all__ = ["StoredCommit", "backwards", "commit_at", "is_stored", "names_of", "parts_of", "put_places"]

_RECORD = "SELECT checkpoint, name, data FROM records WHERE record = ?"
_PARTS = "SELECT record, checkpoint, name, data FROM records WHERE record > ? AND record <= ?"
_NAMES = "SELECT record, name FROM records WHERE record > ? AND record <= ? AND checkpoint = ?"
_PLACE = "INSERT OR IGNORE INTO places VALUES (?, ?, ?)"


class StoredCommit(NamedTuple):
    """Where a commit is and what its manifest is.

    Attributes:
        record: The manifest's; its parts are behind it.
        last: The last of its records.
        previous: The manifest of the commit before, or 0.
    """

    record: int
    last: int
    previous: int
    data: bytes

    def manifest(self, head: Head, format: Format) -> Manifest:
        """Return the manifest, decoded and checked."""
        return decode_manifest(self.data, format=format, checkpoint_id=head.checkpoint_id)


def commit_at(db: sqlite3.Connection, head: Head, record: int) -> StoredCommit:
    """Read the manifest of a commit.

    Raises:
        CorruptCheckpointError: There is none, or it is not what was written.
    """
    row = db.execute(_RECORD, (record,)).fetchone()
    checkpoint, kept, data = row or (None, None, None)
    name = ManifestName.read(kept)
    if name is None or name.back < 0 or checkpoint != head.key or type(data) is not bytes:
        raise damaged(head.checkpoint_id, "the manifest of a snapshot is missing")
    if name != ManifestName.of(data, head.checkpoint_id, name.back, name.parts):
        raise damaged(head.checkpoint_id, "the manifest of a snapshot is not what was written")
    return StoredCommit(record, record + name.parts, record - name.back if name.back else 0, data)


def backwards(
    db: sqlite3.Connection, head: Head, *, record: int | None = None, until: int = 0
) -> Iterator[StoredCommit]:
    """Yield the commits from the newest one, or another one, back to the one behind the record `until`.

    Raises:
        CorruptCheckpointError: One of them is missing, or not what was written.
    """
    record = head.record if record is None else record
    while record > until:
        commit = commit_at(db, head, record)
        yield commit
        record = commit.previous


def parts_of(db: sqlite3.Connection, head: Head, commit: StoredCommit) -> Iterator[tuple[int, Any, Any]]:
    """Yield record, stored name and bytes of the parts of a commit, as far as they are there."""
    for record, checkpoint, name, data in db.execute(_PARTS, (commit.record, commit.last)):
        if checkpoint != head.key:
            raise damaged(head.checkpoint_id, "a part of another checkpoint is among its own")
        yield record, name, data


def names_of(db: sqlite3.Connection, head: Head, commit: StoredCommit) -> list[tuple[int, Any]]:
    """Return record and stored name of each part of a commit, without reading the parts."""
    return db.execute(_NAMES, (commit.record, commit.last, head.key)).fetchall()


def is_stored(db: sqlite3.Connection, head: Head, snapshot_id: str, format: Format) -> bool:
    """Say whether a snapshot is in the lineage.

    Ids sort by the time they were made, so mostly the answer is near; unless clocks of several machines
    disagreed, all of it has to be looked through.
    """
    if head.ascending and snapshot_id > head.snapshot_id:
        return False
    for commit in backwards(db, head):
        found = commit.manifest(head, format).snapshot_id
        if found == snapshot_id:
            return True
        if head.ascending and found < snapshot_id:
            return False
    return False


def put_places(db: sqlite3.Connection, head: Head, record: int) -> None:
    """Put the parts that have no place yet where they are found by their names, up to the commit at a record."""
    found: list[tuple[int, Any]] = []
    for commit in backwards(db, head, record=record, until=head.placed):
        found += names_of(db, head, commit)
    db.executemany(_PLACE, sorted((head.key, beginning_of(name), number) for number, name in found))
