"""The rows that say what there is of a checkpoint, and what they must agree with."""

from __future__ import annotations

import sqlite3
from typing import Any

from branchpoint.checkpoint import Format, StoredHead
from branchpoint.errors import CorruptCheckpointError
from branchpoint.storage._formats import FORMATS, refuse_format

__all__ = ["Head", "damaged", "refuse_other_format"]

_HEAD = """
    SELECT key, workflow_name, format, header, snapshot_id, generation, record, status, snapshots, bytes,
        ascending, placed, waiting, (SELECT max(record) FROM records)
    FROM checkpoints WHERE checkpoint_id = ?
"""


class Head:
    """The row of a checkpoint, whose values are of the types that they are to be.

    Args:
        row: Its columns, and the number of the newest record there is.

    Raises:
        CorruptCheckpointError: They are not.
    """

    __slots__ = (
        "ascending", "bytes", "checkpoint_id", "format", "generation", "header", "key", "newest", "placed",
        "record", "snapshot_id", "snapshots", "status", "waiting", "workflow_name",
    )  # fmt: skip

    def __init__(self, checkpoint_id: str, row: tuple[Any, ...]) -> None:
        self.checkpoint_id = checkpoint_id
        (
            self.key, self.workflow_name, self.format, self.header, self.snapshot_id, self.generation, self.record,
            self.status, self.snapshots, self.bytes, self.ascending, self.placed, self.waiting, self.newest,
        ) = row  # fmt: skip
        if not (
            type(self.format) is type(self.snapshot_id) is type(self.status) is str
            and type(self.generation) is type(self.record) is type(self.snapshots) is type(self.bytes) is int
            and type(self.ascending) is type(self.placed) is type(self.waiting) is type(self.newest) is int
            and self.placed <= self.record <= self.newest
        ):
            raise damaged(checkpoint_id, "its row is not what was written")

    @classmethod
    def find(cls, db: sqlite3.Connection, checkpoint_id: str) -> Head | None:
        """Read it; None where there is no such checkpoint."""
        row = db.execute(_HEAD, (checkpoint_id,)).fetchone()
        return None if row is None else cls(checkpoint_id, row)

    @property
    def stored(self) -> StoredHead:
        """What a commit is compared with."""
        return StoredHead(self.snapshot_id, self.generation)


def refuse_other_format(stored: str, given: Format, checkpoint_id: str) -> None:
    """Refuse a checkpoint that is kept in the other format.

    Raises:
        InvalidCallError: It is.
        CorruptCheckpointError: It is kept in neither.
    """
    if stored not in FORMATS:
        raise damaged(checkpoint_id, "its format is no format")
    what = f"checkpoint {checkpoint_id!r}"
    refuse_format(stored, given, what=what, storage="SQLiteCheckpointStorage")


def damaged(checkpoint_id: str, why: str) -> CorruptCheckpointError:
    """Return the error of a checkpoint whose rows are not as they were written."""
    return CorruptCheckpointError(
        f"checkpoint {checkpoint_id!r} is damaged: {why}; restore the database from a backup"
    )
