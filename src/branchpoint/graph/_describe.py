"""A graph as plain JSON, for people and tools that look at a definition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from branchpoint.graph._signature import child_graph

if TYPE_CHECKING:
    from branchpoint.graph._graph import Graph

__all__ = ["describe"]


def describe(graph: Graph) -> dict[str, Any]:
    """Return the whole definition as plain JSON; functions and types appear by name.

    A description is for reading: no graph can be made from it. The child workflow of an executor is
    described under `workflow` of that executor. The value is the caller's own.
    """
    executors: dict[str, Any] = {}
    for executor_id, executor in graph.executors.items():
        plain = dict(executor.to_dict())
        child = child_graph(executor)
        if child is not None:
            plain["workflow"] = describe(child)
        executors[executor_id] = plain
    return {
        "name": graph.name,
        "description": graph.description,
        "start_executor_id": graph.start_id,
        "max_iterations": graph.max_iterations,
        "undelivered": graph.undelivered,
        "executors": executors,
        "edge_groups": [group.to_dict() for group in graph.groups],
        "state_keys": [declared.to_dict() for declared in graph.state_keys.values()],
        "output_executors": None if graph.output_ids is None else sorted(graph.output_ids),
        "intermediate_executors": None if graph.output_ids is None else sorted(graph.intermediate_ids),
        "graph_signature_hash": graph.signature_hash,
    }
