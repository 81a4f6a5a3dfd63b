"""One page of a listing, cut the same way by every backend that lists in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from branchpoint.checkpoint import CheckpointInfo, Status
from branchpoint.errors import InvalidCallError

__all__ = ["page"]


def page(
    lines: Iterable[CheckpointInfo],
    *,
    workflow_name: str | None,
    status: Status | None,
    metadata: Mapping[str, str] | None,
    after: str | None,
    limit: int | None,
) -> list[CheckpointInfo]:
    """Return the lines that pass the filters and sort after `after`, by id, at most `limit` of them.

    Raises:
        InvalidCallError: `limit` is below zero.
    """
    if limit is not None and limit < 0:
        raise InvalidCallError(f"limit is a number of lines, not {limit}.")
    found = [
        line
        for line in lines
        if (after is None or line.checkpoint_id > after)
        and line.matches(workflow_name=workflow_name, status=status, metadata=metadata)
    ]
    return sorted(found, key=lambda line: line.checkpoint_id)[:limit]
