"""What rows say of a checkpoint, checked where they and the bytes in them must agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from branchpoint.checkpoint import (
    CheckpointInfo,
    Format,
    Header,
    Manifest,
    StoredRecords,
    decode_header,
    decode_manifest,
)
from branchpoint.errors import CorruptCheckpointError
from branchpoint.storage._formats import FORMATS, refuse_format

__all__ = ["damaged", "info_of", "label", "labels_of", "records_of", "refuse_other_format"]


def label(value: Sequence[str] | str) -> str:
    """Return the text by which a listing filters: of a pair of metadata, or of a workflow's name.

    As JSON any text is one that PostgreSQL keeps, and a pair is never taken for a name.

    Raises:
        UnicodeEncodeError: It holds half of a surrogate pair, which no stored text does.
    """
    return msgspec.json.encode(value).decode()


def labels_of(header: Header) -> list[str]:
    """Return all labels of a checkpoint."""
    return [label(header.workflow_name), *(label(pair) for pair in header.metadata.items())]


def refuse_other_format(stored: str | None, given: Format, checkpoint_id: str) -> None:
    """Refuse what was stored in the format that this storage does not write.

    Raises:
        InvalidCallError: It is of the other format.
        CorruptCheckpointError: It is of none.
    """
    if stored not in FORMATS:
        raise damaged(checkpoint_id, "its row names no format")
    what = f"checkpoint {checkpoint_id!r}"
    refuse_format(stored, given, what=what, storage="PostgresCheckpointStorage")


def records_of(
    rows: Sequence[Any], *, format: Format, checkpoint_id: str, parts: bool = True
) -> StoredRecords:
    """Return what the rows of a checkpoint hold; the first of them is its own, with the header.

    Raises:
        CorruptCheckpointError: They do not fit together, or what they hold is damaged.
        UnknownVersionError: A newer program wrote it.
        InvalidCallError: It is of the other format.
    """
    own = next(row for row in rows if row["n"] is None)
    refuse_other_format(own["format"], format, checkpoint_id)
    header = _header(own["data"], own["generation"], format=format, checkpoint_id=checkpoint_id)
    numbered = sorted((row for row in rows if row["n"]), key=lambda row: row["n"])
    manifests = [
        _manifest(row["data"], row["name"], format=format, checkpoint_id=checkpoint_id) for row in numbered
    ]
    if not manifests or manifests[-1].snapshot_id != own["name"]:
        raise damaged(checkpoint_id, "its head is not the newest of its snapshots")
    whole = own["whole"]
    if whole and len(manifests) != own["kept"]:
        raise damaged(checkpoint_id, f"of its {own['kept']} snapshots there are {len(manifests)}")
    return StoredRecords(
        header=header,
        manifests=manifests,
        parts={row["name"]: row["data"] for row in rows if row["n"] == 0} if parts else {},
        complete=whole and parts,
    )


def info_of(row: Any) -> CheckpointInfo:
    """Return one line of a listing.

    Raises:
        CorruptCheckpointError: What the row holds is damaged.
        UnknownVersionError: A newer program wrote it.
    """
    checkpoint_id, stored = row["checkpoint_id"], row["format"]
    if stored not in ("json", "msgpack"):
        raise damaged(checkpoint_id, "its row names no format")
    header = _header(row["header"], row["generation"], format=stored, checkpoint_id=checkpoint_id)
    if row["manifest"] is None:
        raise damaged(checkpoint_id, "its newest snapshot is not there")
    return CheckpointInfo.of(
        header, _manifest(row["manifest"], row["head"], format=stored, checkpoint_id=checkpoint_id)
    )


def _header(data: bytes | None, generation: int, *, format: Format, checkpoint_id: str) -> Header:
    if data is None:
        raise damaged(checkpoint_id, "it has no header")
    header = decode_header(data, format=format, checkpoint_id=checkpoint_id)
    if header.generation != generation:
        raise damaged(checkpoint_id, "its header is of another generation than its row")
    return header


def _manifest(data: bytes, snapshot_id: str, *, format: Format, checkpoint_id: str) -> Manifest:
    manifest = decode_manifest(data, format=format, checkpoint_id=checkpoint_id)
    if manifest.snapshot_id != snapshot_id:
        raise damaged(checkpoint_id, "a snapshot is stored under the id of another one")
    return manifest


def damaged(checkpoint_id: str, why: str) -> CorruptCheckpointError:
    """Return what says that the rows of a checkpoint do not fit together."""
    return CorruptCheckpointError(
        f"checkpoint {checkpoint_id!r} is damaged in PostgreSQL: {why}. It is left as it is; restore it from a backup"
    )
