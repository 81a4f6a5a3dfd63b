"""The state of one run: the four buckets as the engine works on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from branchpoint.engine._cell import Cell, Medium
from branchpoint.engine._exporting import Exporter
from branchpoint.graph import Graph

if TYPE_CHECKING:
    from branchpoint.engine._children import Children

__all__ = ["AcceptedInput", "Delivery", "OpenRequest", "Produced", "RunState"]

IN_PROGRESS = "in_progress"
PAUSED = "idle_with_pending_requests"
IDLE = "idle"


class Delivery(msgspec.Struct, frozen=True):
    """A message on its way: one value, and every executor that is to receive it.

    Attributes:
        value: What was sent, or the answer to a request.
        sources: Who sent it; empty for the workflow's own input, several for a fan-in.
        targets: Who receives it, in declared order.
        request_id: Set when this is the answer to a request.
        request: The original data of that request.
    """

    value: Any
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    request_id: str | None = None
    request: Any = None

    def record(self) -> dict[str, Any]:
        """Return the form in which a snapshot holds it."""
        if self.request_id is None:
            return {"value": self.value, "sources": list(self.sources), "targets": list(self.targets)}
        return {
            "kind": "response",
            "request_id": self.request_id,
            "request": self.request,
            "value": self.value,
            "sources": list(self.sources),
            "targets": list(self.targets),
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Delivery:
        """Return the delivery that `record` describes."""
        return cls(
            record["value"],
            tuple(record["sources"]),
            tuple(record["targets"]),
            record.get("request_id"),
            record.get("request"),
        )


class AcceptedInput(msgspec.Struct, frozen=True):
    """What last entered the workflow: a message, or answers by request id.

    `digest` is that of the payload as it was given, when `value` was converted from it.
    """

    input_id: str
    turn: int
    kind: str
    value: Cell
    digest: str | None = None


class OpenRequest(msgspec.Struct, frozen=True):
    """A question to the outside that nobody has answered yet."""

    request_id: str
    record: Cell

    def read(self, medium: Medium | None) -> dict[str, Any]:
        """Return the stored record; the engine's own, to be copied before it is handed out."""
        value: dict[str, Any] = self.record.value(medium)
        return value


class Produced(msgspec.Struct, frozen=True):
    """Something the workflow yielded."""

    record: Cell

    def read(self, medium: Medium | None) -> dict[str, Any]:
        """Return the stored record; the engine's own, to be copied before it is handed out."""
        value: dict[str, Any] = self.record.value(medium)
        return value


class RunState(msgspec.Struct):
    """Everything a snapshot holds, in the form a run works on.

    `medium` is None for a run without a checkpoint: nothing is ever encoded then. `changed` has the ids of
    the executors whose state changed since the last export, `written` the keys that were written; None
    stands for all.

    Attributes:
        at: Where it stands inside the state of the run, ending with a dot; empty for the run's own.
        began: The snapshot that the present superstep began from, once a child inside had a boundary of its
            own committed since.
        children: The child workflows inside, by the executors that run them.
    """

    graph: Graph
    medium: Medium | None
    at: str = ""
    iteration: int = 0
    status: str = IDLE
    turn: int = 0
    input_iteration: int = 0
    input: AcceptedInput | None = None
    earlier: list[Cell] = msgspec.field(default_factory=list)
    shared: dict[str, Cell] = msgspec.field(default_factory=dict)
    executors: dict[str, Cell] = msgspec.field(default_factory=dict)
    buffers: dict[str, dict[str, list[Cell]]] = msgspec.field(default_factory=dict)
    deliveries: list[Delivery] = msgspec.field(default_factory=list)
    requests: dict[str, OpenRequest] = msgspec.field(default_factory=dict)
    outputs: list[Produced] = msgspec.field(default_factory=list)
    changed: set[str] | None = None
    written: set[str] | None = None
    began: str = ""
    children: dict[str, Children] = msgspec.field(default_factory=dict)
    exporter: Exporter = msgspec.field(default_factory=Exporter)

    @property
    def depth(self) -> int:
        """How deep a value two levels below this state stands, as far as encoding it goes."""
        return 3 if self.at else 2

    @property
    def input_id(self) -> str | None:
        """The id of the last accepted input."""
        return self.input.input_id if self.input is not None else None

    def rest(self) -> None:
        """Let go of what a run held beside what it committed, so that another run can go on from here.

        Nothing stays that code of the developer has seen, but what it looked like; and of what is not
        worth keeping only the encoding.
        """
        medium = self.medium
        assert medium is not None
        for cell in self.executors.values():
            cell.rest(medium)
        for cell in self.shared.values():
            cell.rest(medium, owned=False)
        for request in self.requests.values():
            request.record.rest(medium)
        if self.input is not None:
            self.input.value.rest(medium)
        for tail in (self.earlier, [made.record for made in self.outputs]):
            for cell in reversed(tail):
                if not cell.rest(medium):
                    break
        for children in self.children.values():
            for inner in children.executions.values():
                inner.rest()

    def export(self) -> dict[str, Any]:
        """Return the four buckets; what did not change is handed over already encoded."""
        assert self.medium is not None
        return self.exporter.export(self, self.medium)

    def turn_outputs(self) -> list[dict[str, Any]]:
        """Return the records this turn produced so far, oldest first."""
        found: list[dict[str, Any]] = []
        for output in reversed(self.outputs):
            record = output.read(self.medium)
            if record["turn"] != self.turn:
                break
            found.append(record)
        found.reverse()
        return found
