"""The records inside the bucket `messages`, as readers get them. Making one checks its shape.

No type needs to be registered until somebody reads a value that is of one.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from branchpoint.checkpoint._stored import Stored
from branchpoint.errors import quotable

__all__ = ["EarlierInput", "OutputRecord", "PendingRequest"]


class PendingRequest:
    """One open request for outside input, as a snapshot holds it.

    Attributes:
        request_id: What an answer is given under; stable across save, load and re-execution.
        source_executor_id: Who asks.
        path: For a request from inside nested workflows: the executors that lead to it, outermost first.
        input_id: The input in whose course it was asked.
        superstep: Number of the superstep that asked.
        snapshot_id: The snapshot it was read from; empty for one that is not committed yet.
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
        "superstep",
    )

    def __init__(self, request_id: str, stored: Stored, snapshot_id: str = "") -> None:
        found = stored.fields(
            "data",
            "source_executor_id",
            "path",
            "input_id",
            "superstep",
            "request_type",
            "response_type",
            "response_schema",
        )
        self.request_id = request_id
        self.snapshot_id = snapshot_id
        self.source_executor_id = found["source_executor_id"].text()
        self.path = found["path"].texts()
        asked_in = found["input_id"]
        self.input_id = None if asked_in.value() is None else asked_in.text()
        self.superstep = found["superstep"].number()
        self.request_type = found["request_type"].text()
        self.response_type = found["response_type"].text()
        self.response_schema: Any = found["response_schema"].value()
        self._data = found["data"]

    @property
    def data(self) -> Any:
        """What is asked; a fresh value at each read.

        Raises:
            UnregisteredTypeError: Its type is not registered in this process; `plain_data` needs none.
        """
        return self._data.value()

    @property
    def plain_data(self) -> Any:
        """What is asked, as a JSON-ready value; needs no registered type."""
        return self._data.plain()

    def __repr__(self) -> str:
        return (
            f"<PendingRequest {quotable(self.request_id, 80)!r} from {quotable(self.source_executor_id, 80)!r} "
            f"for {quotable(self.response_type, 80)}>"
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

    def __init__(self, stored: Stored) -> None:
        found = stored.fields("turn", "superstep", "executor_id", "output_id", "value", also=("kind",))
        self.turn = found["turn"].number()
        self.superstep = found["superstep"].number()
        self.executor_id = found["executor_id"].text()
        self.output_id = found["output_id"].text()
        self.kind: Literal["output", "intermediate"] = "output"
        if "kind" in found:
            found["kind"].choice("intermediate")
            self.kind = "intermediate"
        self._value = found["value"]

    @property
    def value(self) -> Any:
        """The value; a fresh one at each read.

        Raises:
            UnregisteredTypeError: Its type is not registered in this process; `plain_value` needs none.
        """
        return self._value.value()

    @property
    def plain_value(self) -> Any:
        """The value, JSON-ready; needs no registered type."""
        return self._value.plain()

    def __repr__(self) -> str:
        return (
            f"<OutputRecord {quotable(self.output_id, 80)!r} of {quotable(self.executor_id, 80)!r}, "
            f"turn {self.turn}>"
        )


class EarlierInput(msgspec.Struct, frozen=True):
    """What is remembered of an input that was followed by another."""

    input_id: str
    turn: int
    digest: str
    superstep: int

    @classmethod
    def read(cls, stored: Stored) -> EarlierInput:
        """Return the record that is stored here, checked."""
        found = stored.fields("input_id", "turn", "digest", "superstep")
        return cls(
            found["input_id"].text(),
            found["turn"].number(),
            found["digest"].text(),
            found["superstep"].number(),
        )
