"""From a snapshot to the state of a run, user values still undecoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from branchpoint.checkpoint import (
    Checkpoint,
    CheckpointSnapshot,
    OpenedInput,
    Stored,
    read_state,
    stored_state,
)
from branchpoint.engine._cell import Cell, Medium
from branchpoint.engine._state import AcceptedInput, Delivery, OpenRequest, Produced, RunState
from branchpoint.errors import GraphMismatchError
from branchpoint.graph import Graph

__all__ = ["open_state"]


def open_state(graph: Graph, checkpoint: Checkpoint, head: CheckpointSnapshot | None) -> RunState:
    """Return the state that `head` holds, with user values still undecoded.

    Raises:
        CorruptCheckpointError: Something in it has another shape than the engine writes.
        GraphMismatchError: It names an executor or an edge this graph does not have.
    """
    medium = Medium(checkpoint.format, checkpoint.parts)
    if head is None:
        return RunState(graph, medium)
    found = read_state(stored_state(head))
    state = RunState(
        graph,
        medium,
        iteration=found.iteration,
        status=found.status,
        turn=found.turn,
        input_iteration=found.input_iteration,
        input=None if found.input is None else _accepted(found.input),
        earlier=[] if found.input is None else _cells(found.input.earlier, 4),
        shared=_cells_by_key(found.shared, 3),
        executors=_cells_by_key(found.executors, 2),
        buffers={
            group_id: {source: _cells(items, 5) for source, items in received.items()}
            for group_id, received in found.buffers.items()
        },
        deliveries=[Delivery.from_record(item.value()) for item in found.deliveries],
        requests={key: OpenRequest(key, cell) for key, cell in _cells_by_key(found.requests, 4).items()},
        outputs=[Produced(cell) for cell in _cells(found.outputs, 3)],
    )
    _check_names(state)
    return state


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
