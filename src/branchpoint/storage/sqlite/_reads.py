"""What is read as of one moment, checked as far as a backend can: its own rows, never what is in a part."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator

from branchpoint.checkpoint import CheckpointInfo, Format, Header, Manifest, StoredRecords, decode_header
from branchpoint.errors import BranchpointError
from branchpoint.storage.sqlite._log import StoredCommit, backwards, commit_at, names_of, parts_of
from branchpoint.storage.sqlite._names import beginning_of, header_name, kept_name, shown_name
from branchpoint.storage.sqlite._rows import Head, damaged, refuse_other_format

__all__ = ["listing", "load_lineage", "load_parts", "load_records"]

_RECORD = "SELECT name, data FROM records WHERE record = ?"
_PLACED = """
    SELECT name, data FROM places JOIN records ON records.record = places.record
    WHERE places.checkpoint = ? AND beginning = ? AND records.checkpoint = places.checkpoint
"""
_PART = "SELECT data FROM records WHERE record = ?"
_LIST = """
    SELECT checkpoint_id, key, workflow_name, format, header, snapshot_id, generation, record, status, snapshots,
        bytes, ascending, placed, waiting, (SELECT max(record) FROM records)
    FROM checkpoints
    WHERE checkpoint_id > ?1 AND (?2 IS NULL OR workflow_name = ?2) AND (?3 IS NULL OR status = ?3)
    ORDER BY checkpoint_id
"""


def load_records(
    db: sqlite3.Connection, head: Head, format: Format, *, lazy_over: int | None
) -> StoredRecords:
    """Read all of a checkpoint; of one with more bytes than `lazy_over`, header and head manifest alone."""
    header = _header(db, head, format)
    if lazy_over is not None and head.bytes > lazy_over:
        newest = _newest(db, head, format)
        return StoredRecords(header=header, manifests=[newest], parts={}, complete=False)
    commits = list(backwards(db, head))
    parts: dict[str, bytes] = {}
    for commit in reversed(commits):
        for _, name, data in parts_of(db, head, commit):
            parts[_shown(head, name)] = _bytes(head, data, "a part")
    return StoredRecords(header=header, manifests=_lineage(head, commits, format), parts=parts)


def load_lineage(db: sqlite3.Connection, head: Head, format: Format) -> StoredRecords:
    """Read header and manifests."""
    header = _header(db, head, format)
    manifests = _lineage(head, list(backwards(db, head)), format)
    return StoredRecords(header=header, manifests=manifests, parts={}, complete=False)


def load_parts(db: sqlite3.Connection, head: Head, names: Collection[str]) -> dict[str, bytes]:
    """Read the named parts, as far as they are there."""
    found: dict[str, bytes] = {}
    waiting: dict[object, str] = {}
    for name in names:
        kept = kept_name(name)
        for stored, data in db.execute(_PLACED, (head.key, beginning_of(kept))):
            if stored == kept:
                found[name] = _bytes(head, data, "a part")
                break
        else:
            waiting[kept] = name
    if not waiting or not head.waiting:
        return found
    for commit in backwards(db, head, until=head.placed):
        for record, stored in names_of(db, head, commit):
            if stored in waiting:
                [data] = db.execute(_PART, (record,)).fetchone()
                found[waiting.pop(stored)] = _bytes(head, data, "a part")
        if not waiting:
            break
    return found


def listing(
    db: sqlite3.Connection, *, after: str, workflow_name: str | None, status: str | None
) -> Iterator[CheckpointInfo | BranchpointError]:
    """Yield a line for each checkpoint, by id; for one that cannot be read, the error."""
    for checkpoint_id, *row in db.execute(_LIST, (after, workflow_name, status)):
        try:
            head = Head(str(checkpoint_id), tuple(row))
            if head.format == "json" or head.format == "msgpack":
                yield CheckpointInfo.of(_header(db, head, head.format), _newest(db, head, head.format))
            else:
                yield damaged(head.checkpoint_id, "its format is no format")
        except BranchpointError as error:
            yield error


def _header(db: sqlite3.Connection, head: Head, format: Format) -> Header:
    refuse_other_format(head.format, format, head.checkpoint_id)
    name, data = db.execute(_RECORD, (head.header,)).fetchone() or (None, None)
    if type(data) is not bytes:
        raise damaged(head.checkpoint_id, "its header is missing")
    # An unknown version is told before damage, which it may look like.
    header = decode_header(data, format=format, checkpoint_id=head.checkpoint_id)
    if name != header_name(data, head.checkpoint_id):
        raise damaged(head.checkpoint_id, "its header is not what was written")
    if header.generation != head.generation or header.workflow_name != head.workflow_name:
        raise damaged(head.checkpoint_id, "its header does not agree with its row")
    return header


def _lineage(head: Head, commits: list[StoredCommit], format: Format) -> list[Manifest]:
    """Return the manifests in commit order."""
    if len(commits) != head.snapshots:
        raise damaged(head.checkpoint_id, f"it has {len(commits)} snapshots in place of {head.snapshots}")
    found = [commit.manifest(head, format) for commit in reversed(commits)]
    _check_newest(head, found[-1])
    return found


def _newest(db: sqlite3.Connection, head: Head, format: Format) -> Manifest:
    newest = commit_at(db, head, head.record).manifest(head, format)
    _check_newest(head, newest)
    return newest


def _check_newest(head: Head, newest: Manifest) -> None:
    if newest.snapshot_id != head.snapshot_id or newest.status != head.status:
        raise damaged(head.checkpoint_id, "its head is not its newest snapshot")


def _shown(head: Head, kept: object) -> str:
    if isinstance(kept, str | bytes):
        return shown_name(kept)
    raise damaged(head.checkpoint_id, "a part has no name")


def _bytes(head: Head, data: object, what: str) -> bytes:
    if type(data) is bytes:
        return data
    raise damaged(head.checkpoint_id, f"{what} is missing or not bytes")
