"""What a checkpoint says without a workflow: status, open requests, outputs.

Nothing here needs a registered type, until a caller reads a value that is of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from branchpoint import codec
from branchpoint.checkpoint._manifest import BoundaryName, Format, Status
from branchpoint.checkpoint._naming import named
from branchpoint.checkpoint._snapshot import CheckpointSnapshot
from branchpoint.checkpoint._state import Summary

__all__ = [
    "OutputRecord",
    "PendingRequest",
    "new_outputs",
    "outputs",
    "pending_requests",
    "status",
    "summary_again",
]


class _Stored:
    """A value that stays as bytes until somebody reads it."""

    __slots__ = ("_format", "_parts", "_path", "_where", "data")

    def __init__(
        self, data: bytes, parts: Mapping[str, bytes], format: Format, path: str, where: str
    ) -> None:
        self.data = data
        self._parts = parts
        self._format: Format = format
        self._path = path
        self._where = where

    def value(self) -> Any:
        with named(self._where):
            return codec.decode(self.data, self._parts, format=self._format, path=self._path)

    def plain(self) -> Any:
        with named(self._where):
            return codec.plain(self.data, self._parts, format=self._format)

    def entries(self) -> dict[str, _Stored]:
        with named(self._where):
            opened = codec.open_dict(self.data, self._parts, format=self._format)
        return {key: self._below(item.data, f".{key}") for key, item in opened.items()}

    def items(self) -> list[_Stored]:
        with named(self._where):
            opened = codec.open_list(self.data, self._parts, format=self._format)
        return [self._below(item.data, f"[{index}]") for index, item in enumerate(opened)]

    def _below(self, data: bytes, step: str) -> _Stored:
        return _Stored(data, self._parts, self._format, (self._path + step).lstrip("."), self._where)


class PendingRequest:
    """One open request for outside input, as a snapshot holds it.

    Attributes:
        request_id: What an answer is given under; stable across save, load and re-execution.
        source_executor_id: Who asks.
        path: For a request from inside nested workflows: the executors that lead to it, outermost first.
        input_id: The input in whose course it was asked.
        snapshot_id: The snapshot it was read from.
        request_type: Type of `data`, as an expression over registered ids.
        response_type: Type of the answer, as an expression over registered ids.
        response_schema: JSON schema of the answer.
    """

    __slots__ = (
        "_data",
        "input_id",
        "path",
        "request_id",
        "request_type",
        "response_schema",
        "response_type",
        "snapshot_id",
        "source_executor_id",
    )

    def __init__(self, request_id: str, snapshot_id: str, stored: _Stored) -> None:
        fields = stored.entries()
        self.request_id = request_id
        self.snapshot_id = snapshot_id
        self.source_executor_id: str | None = _plain(fields, "source_executor_id")
        path = fields.get("path")
        self.path: tuple[str, ...] = () if path is None else tuple(item.plain() for item in path.items())
        self.input_id: str | None = _plain(fields, "input_id")
        self.request_type: str | None = _plain(fields, "request_type")
        self.response_type: str | None = _plain(fields, "response_type")
        self.response_schema: dict[str, Any] | None = _plain(fields, "response_schema")
        self._data = fields.get("data")

    @property
    def data(self) -> Any:
        """What is asked; a fresh value at each read.

        Raises:
            UnregisteredTypeError: Its type is not registered in this process; `plain_data` needs none.
        """
        return None if self._data is None else self._data.value()

    @property
    def plain_data(self) -> Any:
        """What is asked, as a JSON-ready value; needs no registered type."""
        return None if self._data is None else self._data.plain()

    def __repr__(self) -> str:
        return (
            f"<PendingRequest {self.request_id!r} from {self.source_executor_id!r} for {self.response_type}>"
        )


class OutputRecord:
    """One value that the workflow produced.

    Attributes:
        turn: Number of the turn it was produced in.
        superstep: Number of the superstep it was produced in.
        executor_id: Who produced it.
        output_id: A stable id; live increments of this output carry it too.
        kind: `output`, or `intermediate` for one that is not part of the turn's result.
    """

    __slots__ = ("_value", "executor_id", "kind", "output_id", "superstep", "turn")

    def __init__(self, stored: _Stored) -> None:
        fields = stored.entries()
        self.turn: int | None = _plain(fields, "turn")
        self.superstep: int | None = _plain(fields, "superstep")
        self.executor_id: str | None = _plain(fields, "executor_id")
        self.output_id: str | None = _plain(fields, "output_id")
        self.kind: Literal["output", "intermediate"] = _plain(fields, "kind") or "output"
        self._value = fields.get("value")

    @property
    def value(self) -> Any:
        """The value; a fresh one at each read.

        Raises:
            UnregisteredTypeError: Its type is not registered in this process; `plain_value` needs none.
        """
        return None if self._value is None else self._value.value()

    @property
    def plain_value(self) -> Any:
        """The value, JSON-ready; needs no registered type."""
        return None if self._value is None else self._value.plain()

    def __repr__(self) -> str:
        return f"<OutputRecord {self.output_id!r} of {self.executor_id!r}, turn {self.turn}>"


def _plain(fields: Mapping[str, _Stored], name: str) -> Any:
    found = fields.get(name)
    return None if found is None else found.plain()


def status(head: CheckpointSnapshot | None) -> Status | None:
    """Return the status at a head; None at the empty start."""
    return None if head is None else head.status


def pending_requests(head: CheckpointSnapshot | None) -> list[PendingRequest]:
    """Return the requests that are open at a head, in the order they were made."""
    if head is None or not head.manifest.requests:
        return []
    requests = _messages(head)["pending"].entries()["requests"].entries()
    return [PendingRequest(request_id, head.snapshot_id, stored) for request_id, stored in requests.items()]


def outputs(head: CheckpointSnapshot | None, input_id: str | None = None) -> list[OutputRecord]:
    """Return what was produced up to a head; with an input id, in the turn of that input alone."""
    if head is None:
        return []
    messages = _messages(head)
    records = [OutputRecord(stored) for stored in messages["output"].items()]
    if input_id is None:
        return records
    turn = _turn_of(messages["input"], input_id)
    return [] if turn is None else [record for record in records if record.turn == turn]


def new_outputs(snapshot: CheckpointSnapshot, earlier: CheckpointSnapshot | None) -> list[OutputRecord]:
    """Return what a snapshot holds as output and an earlier one does not.

    Compares the bytes of the records, so that a long history is not opened once more per snapshot.
    """
    known = {stored.data for stored in _messages(earlier)["output"].items()} if earlier is not None else set()
    return [
        OutputRecord(stored) for stored in _messages(snapshot)["output"].items() if stored.data not in known
    ]


def _messages(snapshot: CheckpointSnapshot) -> dict[str, _Stored]:
    parts = snapshot.loaded_parts()
    root = _Stored(parts[snapshot.root], parts, snapshot.format, "", snapshot.described)
    return root.entries()["messages"].entries()


def _turn_of(accepted: _Stored, input_id: str) -> int | None:
    fields = accepted.entries()
    if _plain(fields, "input_id") == input_id:
        latest: int | None = _plain(fields, "turn")
        return latest
    earlier = fields.get("earlier")
    for record in () if earlier is None else earlier.items():
        found = record.entries()
        if _plain(found, "input_id") == input_id:
            turn: int | None = _plain(found, "turn")
            return turn
    return None


def summary_again(snapshot: CheckpointSnapshot, boundary: BoundaryName) -> Summary:
    """Return the summary of a snapshot's state committed once more under another boundary's name."""
    found = snapshot.manifest
    return Summary(boundary, found.status, found.superstep, found.input_id, found.requests)
