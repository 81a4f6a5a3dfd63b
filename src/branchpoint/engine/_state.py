"""The state of one run: the four buckets as the engine works on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from branchpoint.checkpoint import Checkpoint, CheckpointSnapshot
from branchpoint.codec import Encoded, open_dict, open_list
from branchpoint.engine._cell import Cell, Medium
from branchpoint.errors import GraphMismatchError
from branchpoint.graph import Graph

__all__ = ["AcceptedInput", "Delivery", "OpenRequest", "Produced", "RunState"]

IN_PROGRESS = "in_progress"
PAUSED = "idle_with_pending_requests"
IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Delivery:
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


@dataclass(frozen=True, slots=True)
class AcceptedInput:
    """What last entered the workflow: a message, or answers by request id."""

    input_id: str
    turn: int
    kind: str
    value: Cell


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A question to the outside that nobody has answered yet."""

    request_id: str
    record: Cell

    def read(self, medium: Medium | None) -> dict[str, Any]:
        """Return the stored record; the engine's own, to be copied before it is handed out."""
        value: dict[str, Any] = self.record.value(medium)
        return value


@dataclass(frozen=True, slots=True)
class Produced:
    """Something the workflow yielded."""

    record: Cell

    def read(self, medium: Medium | None) -> dict[str, Any]:
        """Return the stored record; the engine's own, to be copied before it is handed out."""
        value: dict[str, Any] = self.record.value(medium)
        return value


@dataclass(slots=True)
class RunState:
    """Everything a snapshot holds, in the form a run works on.

    `medium` is None for a run without a checkpoint: nothing is ever encoded then.
    """

    graph: Graph
    medium: Medium | None
    iteration: int = 0
    status: str = IDLE
    turn: int = 0
    input_iteration: int = 0
    input: AcceptedInput | None = None
    earlier: list[Cell] = field(default_factory=list)
    shared: dict[str, Cell] = field(default_factory=dict)
    executors: dict[str, Cell] = field(default_factory=dict)
    buffers: dict[str, dict[str, list[Cell]]] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    requests: dict[str, OpenRequest] = field(default_factory=dict)
    outputs: list[Produced] = field(default_factory=list)

    @property
    def input_id(self) -> str | None:
        """The id of the last accepted input."""
        return self.input.input_id if self.input is not None else None

    def export(self) -> dict[str, Any]:
        """Return the four buckets; what did not change is handed over already encoded."""
        medium = self.medium
        assert medium is not None
        return {
            "workflow_state": {
                "iteration_count": self.iteration,
                "status": self.status,
                "turn": self.turn,
                "shared": {key: cell.encoded(medium) for key, cell in self.shared.items()},
                "cursor": {"input_iteration": self.input_iteration},
            },
            "executor_states": {
                executor_id: self.executors[executor_id].encoded(medium)
                for executor_id in self.graph.executors
                if executor_id in self.executors
            },
            "edge_states": {
                group_id: {
                    "received": {
                        source: [cell.encoded(medium) for cell in cells] for source, cells in received.items()
                    }
                }
                for group_id, received in self.buffers.items()
            },
            "messages": {
                "input": self._exported_input(medium),
                "pending": {
                    "deliveries": [delivery.record() for delivery in self.deliveries],
                    "requests": {
                        key: request.record.encoded(medium) for key, request in self.requests.items()
                    },
                },
                "output": [output.record.encoded(medium) for output in self.outputs],
            },
        }

    def _exported_input(self, medium: Medium) -> dict[str, Any]:
        if self.input is None:
            return {}
        return {
            "input_id": self.input.input_id,
            "turn": self.input.turn,
            "kind": self.input.kind,
            "value": self.input.value.encoded(medium),
            "earlier": [cell.encoded(medium) for cell in self.earlier],
        }

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

    @classmethod
    def open(cls, graph: Graph, checkpoint: Checkpoint, head: CheckpointSnapshot | None) -> RunState:
        """Return the state that `head` holds, with user values still undecoded.

        Raises:
            GraphMismatchError: It names an executor or an edge this graph does not have.
        """
        medium = Medium(checkpoint.format, checkpoint.parts)
        if head is None:
            return cls(graph, medium)
        return _opened(cls(graph, medium), medium, medium.parts[head.root])


def _opened(state: RunState, medium: Medium, root: bytes) -> RunState:
    def opened(encoded: Encoded | bytes) -> dict[str, Encoded]:
        data = encoded if isinstance(encoded, bytes) else encoded.data
        return open_dict(data, medium.parts, format=medium.format)

    def listed(encoded: Encoded) -> list[Encoded]:
        return open_list(encoded.data, medium.parts, format=medium.format)

    buckets = opened(root)
    own = opened(buckets["workflow_state"])
    state.iteration = medium.decode(own["iteration_count"], "workflow_state.iteration_count")
    state.status = medium.decode(own["status"], "workflow_state.status")
    state.turn = medium.decode(own["turn"], "workflow_state.turn")
    state.input_iteration = medium.decode(own["cursor"], "workflow_state.cursor")["input_iteration"]
    state.shared = {
        key: Cell(f"workflow_state.shared.{key}", 3, encoded=value)
        for key, value in opened(own["shared"]).items()
    }
    state.executors = {
        key: Cell(f"executor_states.{key}", 2, encoded=value)
        for key, value in opened(buckets["executor_states"]).items()
    }
    for group_id, value in opened(buckets["edge_states"]).items():
        path = f"edge_states.{group_id}.received"
        state.buffers[group_id] = {
            source: [Cell(f"{path}.{source}[{n}]", 5, encoded=item) for n, item in enumerate(listed(items))]
            for source, items in opened(opened(value)["received"]).items()
        }
    messages = opened(buckets["messages"])
    entered = opened(messages["input"])
    if entered:
        state.input = AcceptedInput(
            medium.decode(entered["input_id"], "messages.input.input_id"),
            medium.decode(entered["turn"], "messages.input.turn"),
            medium.decode(entered["kind"], "messages.input.kind"),
            Cell("messages.input.value", 3, encoded=entered["value"]),
        )
        state.earlier = [
            Cell(f"messages.input.earlier[{n}]", 4, encoded=item)
            for n, item in enumerate(listed(entered["earlier"]))
        ]
    pending = opened(messages["pending"])
    state.deliveries = [
        Delivery.from_record(medium.decode(item, f"messages.pending.deliveries[{n}]"))
        for n, item in enumerate(listed(pending["deliveries"]))
    ]
    state.requests = {
        key: OpenRequest(key, Cell(f"messages.pending.requests.{key}", 4, encoded=item))
        for key, item in opened(pending["requests"]).items()
    }
    state.outputs = [
        Produced(Cell(f"messages.output[{n}]", 3, encoded=item))
        for n, item in enumerate(listed(messages["output"]))
    ]
    _check_names(state)
    return state


def _check_names(state: RunState) -> None:
    """Refuse a state that speaks of executors or edges the graph does not have."""
    graph = state.graph
    joins = {group.id for group in graph.groups if group.kind == "fan_in"}
    ghosts = [f"executor_states.{key}" for key in state.executors if key not in graph.executors]
    ghosts += [f"edge_states.{key}" for key in state.buffers if key not in joins]
    for n, delivery in enumerate(state.deliveries):
        ghosts += [
            f"messages.pending.deliveries[{n}] to {target!r}"
            for target in delivery.targets
            if target not in graph.executors
        ]
    for key, request in state.requests.items():
        source = request.read(state.medium)["source_executor_id"]
        if source not in graph.executors:
            ghosts.append(f"messages.pending.requests.{key} of {source!r}")
    if ghosts:
        raise GraphMismatchError(
            f"The snapshot speaks of what workflow {graph.name!r} does not have: {', '.join(ghosts)}. "
            "Edit the state to name existing executors and edges, or run it on the workflow that made it."
        )
