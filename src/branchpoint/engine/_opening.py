"""From the bytes of a snapshot to the state of a run, user values still undecoded.

A state may have been edited by a person or written by another program. Whatever is not in the
shape that the engine itself writes is refused here by its path, before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from branchpoint.checkpoint import Checkpoint, CheckpointSnapshot
from branchpoint.codec import Encoded, open_dict, open_list
from branchpoint.engine._cell import Cell, Medium
from branchpoint.engine._state import (
    STATUSES,
    AcceptedInput,
    Delivery,
    OpenRequest,
    Produced,
    RunState,
)
from branchpoint.errors import CorruptCheckpointError, GraphMismatchError
from branchpoint.graph import Graph

__all__ = ["open_state", "read_earlier"]

_Result = TypeVar("_Result")


class Stored:
    """One stored value with its place in the state; every look into it is checked."""

    __slots__ = ("_medium", "_where", "encoded", "path")

    def __init__(self, encoded: Encoded, path: str, medium: Medium, where: str) -> None:
        self.encoded = encoded
        self.path = path
        self._medium = medium
        self._where = where

    def refuse(self, problem: str) -> NoReturn:
        """Say what is wrong here.

        Raises:
            CorruptCheckpointError: Always.
        """
        raise CorruptCheckpointError(
            f"{self._where} holds a state that cannot be run: {self.path or 'the state'} {problem}. "
            "Commit an edited state with this mended, or go on from another snapshot with "
            "checkpoint.restart_from(...)."
        )

    def entries(self) -> dict[str, Stored]:
        """Return what a dict holds, whatever its keys."""
        found = self._opened(open_dict, "a dict with text keys")
        return {key: self._below(item, f".{key}") for key, item in found.items()}

    def fields(self, *names: str, also: tuple[str, ...] = ()) -> dict[str, Stored]:
        """Return the entries of a record, which has all of `names` and beside them at most `also`."""
        found = self.entries()
        for name in names:
            if name not in found:
                self._below(self.encoded, f".{name}").refuse("is missing")
        for name, stored in found.items():
            if name not in names and name not in also:
                stored.refuse("is not known here, and running would drop it")
        return found

    def items(self) -> list[Stored]:
        """Return what a list holds."""
        found = self._opened(open_list, "a list")
        return [self._below(item, f"[{place}]") for place, item in enumerate(found)]

    def value(self) -> Any:
        """Return the value, decoded."""
        return self._medium.decode(self.encoded, self.path)

    def number(self) -> int:
        """Return a count, from 0."""
        value = self.value()
        if type(value) is not int or value < 0:
            self._mismatch("a whole number from 0", value)
        return value

    def text(self) -> str:
        """Return a text."""
        value = self.value()
        if type(value) is not str:
            self._mismatch("a text", value)
        return value

    def choice(self, *allowed: str) -> str:
        """Return a text that is one of some."""
        value = self.value()
        if type(value) is not str or value not in allowed:
            self._mismatch(f"one of {', '.join(allowed)}", value)
        return value

    def texts(self) -> tuple[str, ...]:
        """Return the texts of a list."""
        return tuple(item.text() for item in self.items())

    def _mismatch(self, expected: str, value: object) -> NoReturn:
        shown = f" {value!r}" if type(value) in (int, bool, float) else ""
        self.refuse(f"must be {expected}, and is {type(value).__name__}{shown}")

    def _below(self, encoded: Encoded, step: str) -> Stored:
        return Stored(encoded, (self.path + step).lstrip("."), self._medium, self._where)

    def _opened(self, opener: Callable[..., _Result], expected: str) -> _Result:
        try:
            return opener(self.encoded.data, self._medium.parts, format=self._medium.format)
        except CorruptCheckpointError as error:
            self._explain(expected, error)

    def _explain(self, expected: str, error: CorruptCheckpointError) -> NoReturn:
        value = self.value()  # damage raises here, by its own path
        if type(value) in (dict, list):
            raise CorruptCheckpointError(f"{self._where}: {self.path} cannot be read: {error}") from error
        self._mismatch(expected, value)


def open_state(graph: Graph, checkpoint: Checkpoint, head: CheckpointSnapshot | None) -> RunState:
    """Return the state that `head` holds, with user values still undecoded.

    Raises:
        CorruptCheckpointError: Something in it has another shape than the engine writes.
        GraphMismatchError: It names an executor or an edge this graph does not have.
    """
    medium = Medium(checkpoint.format, checkpoint.parts)
    state = RunState(graph, medium)
    if head is not None:
        where = f"snapshot {head.snapshot_id!r} of checkpoint {checkpoint.checkpoint_id!r}"
        root = Stored(Encoded(medium.parts[head.root]), "", medium, where)
        buckets = root.fields("workflow_state", "executor_states", "edge_states", "messages")
        _open_workflow_state(state, buckets["workflow_state"])
        _open_executors(state, buckets["executor_states"])
        _open_buffers(state, buckets["edge_states"])
        _open_messages(state, buckets["messages"])
        _check_names(state)
    return state


def read_earlier(state: RunState, place: int, where: str) -> dict[str, Any]:
    """Return the record of an earlier input, checked.

    Raises:
        CorruptCheckpointError: It has another shape than the engine writes.
    """
    medium, cell = state.medium, state.earlier[place]
    assert medium is not None
    fields = Stored(cell.encoded(medium), cell.path, medium, where).fields(
        "input_id", "turn", "digest", "superstep"
    )
    return {
        "input_id": fields["input_id"].text(),
        "turn": fields["turn"].number(),
        "digest": fields["digest"].text(),
        "superstep": fields["superstep"].number(),
    }


def _open_workflow_state(state: RunState, stored: Stored) -> None:
    own = stored.fields("iteration_count", "status", "turn", "shared", "cursor")
    state.iteration = own["iteration_count"].number()
    state.status = own["status"].choice(*STATUSES)
    state.turn = own["turn"].number()
    state.shared = {key: _cell(found, 3) for key, found in own["shared"].entries().items()}
    began = own["cursor"].fields("input_iteration")["input_iteration"]
    state.input_iteration = began.number()
    if state.input_iteration > state.iteration:
        began.refuse(f"is {state.input_iteration}, beyond the iteration count of {state.iteration}")


def _open_executors(state: RunState, stored: Stored) -> None:
    for executor_id, found in stored.entries().items():
        found.entries()
        state.executors[executor_id] = _cell(found, 2)


def _open_buffers(state: RunState, stored: Stored) -> None:
    for group_id, found in stored.entries().items():
        received = found.fields("received")["received"].entries()
        state.buffers[group_id] = {
            source: [_cell(item, 5) for item in items.items()] for source, items in received.items()
        }


def _open_messages(state: RunState, stored: Stored) -> None:
    messages = stored.fields("input", "pending", "output")
    if messages["input"].entries():
        entered = messages["input"].fields("input_id", "turn", "kind", "value", "earlier", also=("digest",))
        state.input = AcceptedInput(
            entered["input_id"].text(),
            entered["turn"].number(),
            entered["kind"].choice("message", "responses"),
            _cell(entered["value"], 3),
            entered["digest"].text() if "digest" in entered else None,
        )
        state.earlier = [_cell(item, 4) for item in entered["earlier"].items()]
    pending = messages["pending"].fields("deliveries", "requests")
    state.deliveries = [_delivery(item) for item in pending["deliveries"].items()]
    for request_id, found in pending["requests"].entries().items():
        _check_request(found)
        state.requests[request_id] = OpenRequest(request_id, _cell(found, 4))
    outputs = messages["output"].items()
    _check_outputs(outputs, state.turn)
    state.outputs = [Produced(_cell(item, 3)) for item in outputs]


def _delivery(stored: Stored) -> Delivery:
    found = stored.fields("value", "sources", "targets", also=("kind", "request_id", "request"))
    if "kind" in found or "request_id" in found or "request" in found:
        found = stored.fields("value", "sources", "targets", "kind", "request_id", "request")
        found["kind"].choice("response")
        found["request_id"].text()
    found["sources"].texts()
    if not found["targets"].texts():
        found["targets"].refuse("names nobody, so the message would be lost")
    return Delivery.from_record(stored.value())


def _check_request(stored: Stored) -> None:
    found = stored.fields(
        "data", "source_executor_id", "path", "input_id", "request_type", "response_type", "response_schema"
    )
    for name in ("source_executor_id", "request_type", "response_type"):
        found[name].text()
    if found["input_id"].value() is not None:
        found["input_id"].text()
    found["path"].texts()


def _check_outputs(outputs: list[Stored], turn: int) -> None:
    """Check the records that this turn will tell at its end; those of earlier turns rest."""
    for stored in reversed(outputs):
        found = stored.fields("turn", "superstep", "executor_id", "output_id", "value", also=("kind",))
        made_in = found["turn"].number()
        if made_in < turn:
            return
        if made_in > turn:
            found["turn"].refuse(f"is {made_in}, but only {turn} turns began")
        found["superstep"].number()
        found["executor_id"].text()
        found["output_id"].text()
        if "kind" in found:
            found["kind"].choice("intermediate")


def _cell(stored: Stored, depth: int) -> Cell:
    return Cell(stored.path, depth, encoded=stored.encoded)


def _check_names(state: RunState) -> None:
    """Refuse a state that speaks of executors or edges the graph does not have."""
    graph = state.graph
    joins = {group.id: group for group in graph.groups if group.kind == "fan_in"}
    ghosts = [f"executor_states.{key}" for key in state.executors if key not in graph.executors]
    for key, received in state.buffers.items():
        if key not in joins:
            ghosts.append(f"edge_states.{key}")
            continue
        strangers = [source for source in received if source not in joins[key].source_ids]
        ghosts += [f"edge_states.{key}.received.{source}" for source in strangers]
    for n, delivery in enumerate(state.deliveries):
        at = f"messages.pending.deliveries[{n}]"
        ghosts += [f"{at} to {target!r}" for target in delivery.targets if target not in graph.executors]
        ghosts += [f"{at} from {source!r}" for source in delivery.sources if source not in graph.executors]
    for key, request in state.requests.items():
        source = request.read(state.medium)["source_executor_id"]
        if source not in graph.executors:
            ghosts.append(f"messages.pending.requests.{key} of {source!r}")
    if ghosts:
        raise GraphMismatchError(
            f"The snapshot speaks of what workflow {graph.name!r} does not have: {', '.join(ghosts)}. "
            "Edit the state to name existing executors and edges, or run it on the workflow that made it."
        )
