"""One page of a listing, cut the same way by every backend."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from branchpoint.checkpoint import CheckpointInfo, Status
from branchpoint.errors import InvalidCallError

__all__ = ["Page"]

_STATUSES = get_args(Status)


class Page:
    """Which lines a caller asked for; the arguments are those of `list_checkpoints`.

    Raises:
        InvalidCallError: An argument is of the wrong form.
    """

    def __init__(
        self,
        *,
        workflow_name: str | None,
        status: Status | None,
        metadata: Mapping[str, str] | None,
        after: str | None,
        limit: int | None,
    ) -> None:
        for name, value in (("workflow_name", workflow_name), ("after", after)):
            _require(value is None or isinstance(value, str), f"{name} is text or None", value)
        _require(status is None or status in _STATUSES, f"status is one of {', '.join(_STATUSES)}", status)
        _require(metadata is None or _is_labels(metadata), "metadata is a mapping of text to text", metadata)
        whole = limit is None or (type(limit) is int and limit >= 0)
        _require(whole, "limit is a number of lines, from 0", limit)
        self._filters: dict[str, Any] = {
            "workflow_name": workflow_name,
            "status": status,
            "metadata": None if metadata is None else dict(metadata),
        }
        self._after = after
        self._limit = limit

    def of(self, lines: Iterable[CheckpointInfo]) -> list[CheckpointInfo]:
        """Return the lines that pass the filters and sort after `after`, by id, at most `limit` of them."""
        return sorted(self._passing(lines), key=lambda line: line.checkpoint_id)[: self._limit]

    def first_of(self, lines: Iterable[CheckpointInfo]) -> list[CheckpointInfo]:
        """Do the same with lines that come by id, and ask for no more of them than it takes."""
        return list(itertools.islice(self._passing(lines), self._limit))

    def _passing(self, lines: Iterable[CheckpointInfo]) -> Iterator[CheckpointInfo]:
        return (
            line
            for line in lines
            if (self._after is None or line.checkpoint_id > self._after) and line.matches(**self._filters)
        )


def _is_labels(metadata: object) -> bool:
    return isinstance(metadata, Mapping) and all(
        isinstance(key, str) and isinstance(value, str) for key, value in metadata.items()
    )


def _require(fits: bool, rule: str, value: object) -> None:
    if not fits:
        raise InvalidCallError(f"{rule}, not {ascii(value)[:80]}.")
