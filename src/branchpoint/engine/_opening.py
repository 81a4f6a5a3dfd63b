"""From a snapshot to the state of a run, user values still undecoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from branchpoint.checkpoint import (
    INNER_BOUNDARIES,
    Checkpoint,
    CheckpointSnapshot,
    OpenedInput,
    OpenedState,
    Source,
    Stored,
    read_state,
    stored_state,
)
from branchpoint.engine._admission import asker
from branchpoint.engine._cell import Cell, Medium
from branchpoint.engine._children import Accepted, Children
from branchpoint.engine._state import AcceptedInput, Delivery, OpenRequest, Produced, RunState
from branchpoint.errors import GraphMismatchError
from branchpoint.graph import Graph

__all__ = ["open_state"]


def open_state(graph: Graph, checkpoint: Checkpoint, head: CheckpointSnapshot | None) -> RunState:
    """Return the state that `head` holds, with user values still undecoded, and the children inside it.

    Raises:
        CorruptCheckpointError: Something in it has another shape than the engine writes.
        GraphMismatchError: It names an executor or an edge this graph does not have.
    """
    medium = Medium(checkpoint.format, checkpoint.parts)
    if head is None:
        return RunState(graph, medium)
    state = _opened(graph, medium, read_state(stored_state(head)), "", head.described)
    if head.boundary not in INNER_BOUNDARIES:
        state.began = ""  # it is a beginning itself
    return state


def _opened(graph: Graph, medium: Medium, found: OpenedState, at: str, described: str) -> RunState:
    state = RunState(
        graph,
        medium,
        at=at,
        iteration=found.iteration,
        status=found.status,
        turn=found.turn,
        input_iteration=found.input_iteration,
        input=None if found.input is None else _accepted(found.input),
        earlier=[] if found.input is None else _cells(found.input.earlier, 4),
        shared=_cells_by_key(found.shared, 3),
        executors=_cells_by_key(found.executors, 3 if at else 2),
        buffers={
            group_id: {source: _cells(items, 5) for source, items in received.items()}
            for group_id, received in found.buffers.items()
        },
        deliveries=[Delivery.from_record(item.value()) for item in found.deliveries],
        requests={key: OpenRequest(key, cell) for key, cell in _cells_by_key(found.requests, 4).items()},
        outputs=[Produced(cell) for cell in _cells(found.outputs, 3)],
        began=found.began,
    )
    _check_names(state)
    for executor_id in graph.nesting if state.executors else ():
        cell = state.executors.get(executor_id)
        if cell is not None:
            source = Source(medium.parts, medium.format, described)
            _open_children(state, executor_id, Stored(cell.encoded(medium), cell.path, source), described)
    return state


def _open_children(parent: RunState, executor_id: str, stored: Stored, described: str) -> None:
    """Open the executions of a child; each is a whole state.

    Raises:
        CorruptCheckpointError: Something in them has another shape than the engine writes.
        GraphMismatchError: They name an executor or an edge that the child does not have.
    """
    assert parent.medium is not None
    children = Children.of(parent, executor_id)
    found = stored.fields("executions", also=("accepted",))
    for name, execution in found["executions"].entries().items():
        opened = read_state(execution)
        at = f"{children.at}{name}."
        children.executions[name] = _opened(children.executor.child, parent.medium, opened, at, described)
    pending = sum(executor_id in delivery.targets for delivery in parent.deliveries)
    for n, item in enumerate(found["accepted"].items() if "accepted" in found else ()):
        pair = item.items()
        if len(pair) != 2 or pair[0].text() not in children.executions or n >= pending:
            item.refuse("is no message that an execution of the child has taken and that is still pending")
        children.accepted.append(Accepted(pair[0].text(), pair[1].number()))


def _accepted(found: OpenedInput) -> AcceptedInput:
    return AcceptedInput(found.input_id, found.turn, found.kind, _cell(found.value, 3), found.digest)


def _cell(stored: Stored, depth: int) -> Cell:
    return Cell(stored.path, depth, encoded=stored.encoded)


def _cells(items: Sequence[Stored], depth: int) -> list[Cell]:
    return [_cell(item, depth) for item in items]


def _cells_by_key(entries: Mapping[str, Stored], depth: int) -> dict[str, Cell]:
    return {key: _cell(found, depth) for key, found in entries.items()}


def _check_names(state: RunState) -> None:
    """Refuse a state that speaks of executors or edges the graph does not have."""
    graph = state.graph
    joins = {group.id: group for group in graph.groups if group.kind == "fan_in"}
    at = state.at
    ghosts = [f"{at}executor_states.{key}" for key in state.executors if key not in graph.executors]
    for key, received in state.buffers.items():
        if key not in joins:
            ghosts.append(f"{at}edge_states.{key}")
            continue
        strangers = [source for source in received if source not in joins[key].source_ids]
        ghosts += [f"{at}edge_states.{key}.received.{source}" for source in strangers]
    for n, delivery in enumerate(state.deliveries):
        here = f"{at}messages.pending.deliveries[{n}]"
        ghosts += [f"{here} to {target!r}" for target in delivery.targets if target not in graph.executors]
        ghosts += [f"{here} from {source!r}" for source in delivery.sources if source not in graph.executors]
    for key, request in state.requests.items():
        record = request.read(state.medium)
        if asker(graph, record) is None:
            source = "/".join([*record["path"], record["source_executor_id"]])
            ghosts.append(f"{at}messages.pending.requests.{key} of {source!r}")
    if ghosts:
        raise GraphMismatchError(
            f"The snapshot speaks of what workflow {graph.name!r} does not have: {', '.join(ghosts)}. "
            "Edit the state to name existing executors and edges, or run it on the workflow that made it."
        )
