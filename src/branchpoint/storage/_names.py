"""One safe file name for each checkpoint id.

No two ids share a name, whatever the file system does with names: folding case, normalising
Unicode, dropping trailing dots, reserving device names, limiting length. A name never leads out
of its folder, because it is made of a small set of characters that mean nothing to any system.

A plain id is its own name. An id of capitals (every id this library makes) is written in small
letters with a mark. Anything else becomes a readable beginning and a digest of the exact id.
The record inside the file repeats its id and the reader compares it, so even two ids whose
digests were equal would be refused, not mixed up.
"""

from __future__ import annotations

import base64
import hashlib
import re

from branchpoint.checkpoint import check_id

__all__ = ["SUFFIX", "file_name", "lease_name", "stripe", "stripe_of_temporary", "temporary_name"]

SUFFIX = ".journal"
_LEASE = ".lease"

# `~` and what follows it can not come from a plain id, so the three kinds of names never meet.
_CAPITALS = "~u"
_PLAIN = re.compile(r"[a-z0-9_](?:[a-z0-9_-]|\.(?=[a-z0-9_-])){0,119}")
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?")
_TEMPORARY = ".tmp-"
_TEMPORARY_NAME = re.compile(re.escape(_TEMPORARY) + "([0-9a-f]{2})-[0-9a-f]+")


def file_name(checkpoint_id: str) -> str:
    """Return the name of the file that holds this checkpoint; different for every id.

    Raises:
        InvalidCallError: No storage could keep this id; see `branchpoint.checkpoint.check_id`.
    """
    return _stem(check_id(checkpoint_id)) + SUFFIX


def lease_name(checkpoint_id: str) -> str:
    """Return the name of the file that holds this checkpoint's lease; no journal has it, whatever its id.

    Raises:
        InvalidCallError: No storage could keep this id.
    """
    return _stem(check_id(checkpoint_id)) + _LEASE


def stripe(checkpoint_id: str, stripes: int) -> int:
    """Return which of a fixed number of locks guards this checkpoint, the same in every process."""
    return int.from_bytes(_digest(checkpoint_id)[:4], "big") % stripes


def temporary_name(stripe_number: int, token: str) -> str:
    """Return a name for a file in the making, unlike every name a checkpoint can have."""
    return f"{_TEMPORARY}{stripe_number:02x}-{token}"


def stripe_of_temporary(name: str) -> int | None:
    """Return whose lock the writer of this unfinished file holds, None for any other file."""
    found = _TEMPORARY_NAME.fullmatch(name)
    return int(found[1], 16) if found else None


def _stem(checkpoint_id: str) -> str:
    if _is_plain(checkpoint_id):
        return checkpoint_id
    small = checkpoint_id.lower()
    # `upper() ==` refuses mixed case, and `small` being plain refuses every letter outside ASCII.
    if checkpoint_id.isascii() and checkpoint_id.upper() == checkpoint_id and _is_plain(small):
        return small + _CAPITALS
    readable = re.sub(r"[^a-z0-9_]+", "-", small[:40]).strip("-")
    digest = base64.b32encode(_digest(checkpoint_id)).decode("ascii").rstrip("=").lower()
    return f"{readable}~{digest}"


def _is_plain(checkpoint_id: str) -> bool:
    return bool(_PLAIN.fullmatch(checkpoint_id)) and not _DEVICES.fullmatch(checkpoint_id)


def _digest(checkpoint_id: str) -> bytes:
    return hashlib.blake2b(checkpoint_id.encode("utf-8"), digest_size=16).digest()
