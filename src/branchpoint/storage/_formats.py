"""The format in which a storage keeps its records: what may be chosen, and what is in the other one."""

from __future__ import annotations

from branchpoint.checkpoint import Format
from branchpoint.errors import InvalidCallError

__all__ = ["FORMATS", "check_format", "refuse_format"]

FORMATS = ("json", "msgpack")


def check_format(serialization_format: Format) -> Format:
    """Return the format that a storage writes.

    Raises:
        InvalidCallError: It is another.
    """
    if serialization_format not in FORMATS:
        raise InvalidCallError(f'serialization_format is "json" or "msgpack", not {serialization_format!r}.')
    return serialization_format


def refuse_format(stored: str, given: Format, *, what: str, storage: str) -> None:
    """Refuse what is stored in the format that this storage does not write.

    Args:
        stored: The format of what is stored.
        given: The one that this storage writes.
        what: What is stored, in words.
        storage: The name of the storage's class, for the advice.

    Raises:
        InvalidCallError: They differ.
    """
    if stored != given:
        raise InvalidCallError(
            f"{what} is kept as {stored}, and this storage writes {given}. Open it with "
            f"{storage}(..., serialization_format={stored!r}), or fork it into this storage."
        )
