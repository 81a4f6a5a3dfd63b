"""Under which names a checkpoint and its items are stored, where the service forbids some characters.

No two ids share a name: a plain one is its own, any other becomes a readable beginning and a digest of the exact
id, parted by a character that no plain one has. The head item repeats the id, and every reader compares it.
"""

from __future__ import annotations

import base64
import hashlib
import re

from branchpoint.checkpoint import check_id

__all__ = ["HEAD", "ahead_name", "partition_name", "snapshot_name", "sort_key"]

HEAD = "head"
"""The id of the one item of a partition that commits compare."""

_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,80}")
_OTHER = re.compile(r"[^A-Za-z0-9_]+")


def partition_name(checkpoint_id: str) -> str:
    """Return the partition key of a checkpoint's items: at most 80 characters, which every container takes.

    Raises:
        InvalidCallError: No storage could keep this id.
    """
    return _encoded(check_id(checkpoint_id))


def snapshot_name(life: str, snapshot_id: str) -> str:
    """Return the id of a snapshot's item."""
    return f"snapshot.{life}.{_encoded(snapshot_id)}"


def ahead_name(life: str, attempt: str, number: int) -> str:
    """Return the id of an item of parts that goes ahead of a commit; every attempt has its own."""
    return f"parts.{life}.{attempt}.{number}"


def sort_key(checkpoint_id: str) -> str:
    """Return a text that sorts as the id does by code points, whatever compares it."""
    return checkpoint_id.encode("utf-8", "surrogatepass").hex()


def _encoded(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    readable = _OTHER.sub("-", name[:40]).strip("-")
    digest = hashlib.blake2b(name.encode("utf-8"), digest_size=16).digest()
    return f"{readable}~{base64.b32encode(digest).decode('ascii').rstrip('=').lower()}"
