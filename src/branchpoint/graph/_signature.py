"""The signature of a graph: what must be the same for a stored checkpoint to fit.

It covers the workflow's name, the start, the ids and types of the executors, and the edges with
their kind, ends and the names of their conditions. Types go by qualified name without module, so
that a script run as `__main__` and imported agree. Bodies of functions, handler types, bounds and
output designation may change between deployments and are not covered. The code of a functional workflow
is: what it has done so far is known by where in that code it stands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from branchpoint.codec import digest
from branchpoint.graph._coded import CodedExecutor
from branchpoint.graph._edges import EdgeGroup, callable_name
from branchpoint.graph._executor import Executor
from branchpoint.graph._function import FunctionExecutor

if TYPE_CHECKING:
    from branchpoint.graph._graph import Graph

__all__ = ["child_graph", "signature", "signature_hash"]


def signature(graph: Graph) -> dict[str, Any]:
    """Return the readable signature: plain JSON, the same in every process.

    The order in which executors and edges were declared does not show; the order of a switch's
    cases does, because it decides where a message goes.
    """
    groups = [_edge_entry(group) for group in graph.groups]
    return {
        "name": graph.name,
        "start": graph.start_id,
        "executors": {key: _executor_entry(graph.executors[key]) for key in sorted(graph.executors)},
        "edges": sorted(groups, key=canonical),
    }


def signature_hash(plain: Mapping[str, Any]) -> str:
    """Return the hash of a signature: 22 characters, whatever the order of its keys."""
    return digest(canonical(plain).encode())


def canonical(plain: Any) -> str:
    """Return the one JSON text of a plain value."""
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def child_graph(executor: object) -> Graph | None:
    """Return the graph of the workflow an executor runs inside, or None."""
    from branchpoint.graph._graph import Graph

    graph = getattr(getattr(executor, "workflow", None), "graph", None)
    return graph if isinstance(graph, Graph) else None


def _executor_entry(executor: Executor) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": type_name(executor)}
    child = child_graph(executor)
    if child is not None:
        entry["workflow"] = dict(child.signature)
    if isinstance(executor, CodedExecutor):
        entry["code"] = list(executor.shape)
    return entry


def type_name(executor: Executor) -> str:
    """Return the qualified name of an executor's class, or of the function it runs."""
    if not isinstance(executor, FunctionExecutor | CodedExecutor):
        return type(executor).__qualname__
    name = getattr(executor.function, "__qualname__", None)
    return name if isinstance(name, str) else callable_name(executor.function)


def _edge_entry(group: EdgeGroup) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "kind": group.kind,
        "sources": sorted(group.source_ids),
        "targets": sorted(group.target_ids),
    }
    if group.kind == "single" and group.edges[0].condition_name is not None:
        entry["condition"] = group.edges[0].condition_name
    if group.branches:
        entry["cases"] = [[case.condition_name, case.target_id] for case in group.branches]
    if group.selection_name is not None:
        entry["selection"] = group.selection_name
    return entry
