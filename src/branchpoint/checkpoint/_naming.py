"""Whose bytes they are: what the codec finds wrong in stored bytes is told with checkpoint and snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from branchpoint.errors import DataError, UnregisteredTypeError

__all__ = ["named", "snapshot_name"]


def snapshot_name(snapshot_id: str, checkpoint_id: str) -> str:
    """Return how messages speak of a snapshot; the id may come from damaged bytes."""
    return f"snapshot {snapshot_id[:80]!a} of checkpoint {checkpoint_id!r}"


@contextmanager
def named(where: str) -> Iterator[None]:
    """Put `where` in front of what the codec says of stored bytes inside the block.

    The codec sees bytes and paths inside a value, and never an id. The block holds calls of the
    codec alone, so nothing is named twice.
    """
    try:
        yield
    except (DataError, UnregisteredTypeError) as error:
        # The same object goes on, with its traceback, its cause and its notes.
        error.args = (f"{where}: {error}",)
        raise
