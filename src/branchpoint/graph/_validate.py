"""The rules a graph must satisfy before anything runs on it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from branchpoint.errors import (
    DefinitionError,
    EdgeDuplicationError,
    GraphConnectivityError,
    TypeCompatibilityError,
    ValidationTypeEnum,
    WorkflowValidationError,
)
from branchpoint.graph._edges import Edge, EdgeGroup
from branchpoint.graph._executor import Executor
from branchpoint.graph._handlers import HandlerSpec, ResponseSpec
from branchpoint.graph._typing import compatible, readable

if TYPE_CHECKING:
    from branchpoint.graph._graph import Graph

__all__ = ["validate_graph"]


def validate_graph(graph: Graph) -> list[str]:
    """Check every rule of a graph.

    Returns:
        Remarks on what is legal and worth a second look: executors that send to themselves, ends of
        the graph, edges that cannot be checked because a context or handler declares no type.

    Raises:
        EdgeDuplicationError: Two edges join the same two executors.
        GraphConnectivityError: The start or an end of an edge is missing, or an executor cannot be
            reached from the start.
        TypeCompatibilityError: Nothing a source sends fits what the target of its edge accepts.
        WorkflowValidationError: A rule on executors, handlers or outputs is broken; its
            `validation_type` says which.
        DefinitionError: A bound or a state key is declared wrongly.
    """
    _check_settings(graph)
    _check_executors(graph)
    _check_handlers(graph)
    _check_ends(graph)
    _check_duplicate_edges(graph)
    remarks = _check_types(graph)
    _check_reachable(graph)
    _check_outputs(graph)
    return [*remarks, *_loops(graph), *_dead_ends(graph)]


def _check_settings(graph: Graph) -> None:
    bound = graph.max_iterations
    if type(bound) is not int or bound < 1:
        raise DefinitionError(f"max_iterations must be a whole number of at least 1, got {bound!r}.")
    if graph.undelivered not in ("raise", "drop"):
        raise DefinitionError(f"undelivered must be 'raise' or 'drop', got {graph.undelivered!r}.")
    for declared in graph.state_keys.values():
        declared.check_default()


def _check_executors(graph: Graph) -> None:
    for key, executor in graph.executors.items():
        if executor.id != key:
            raise WorkflowValidationError(
                f"Executor '{executor.id}' is listed in the graph as '{key}': use its own id as the key.",
                ValidationTypeEnum.EXECUTOR_DUPLICATION,
            )


def _check_handlers(graph: Graph) -> None:
    # The annotations themselves were read when each handler was declared.
    for executor in graph.executors.values():
        if not executor.handlers:
            raise WorkflowValidationError(
                f"Executor '{executor.id}' ({type(executor).__qualname__}) has no handler, so no message "
                "could reach it: decorate a method with @handler.",
                ValidationTypeEnum.HANDLER_OUTPUT_ANNOTATION,
            )


def _check_ends(graph: Graph) -> None:
    if graph.start_id not in graph.executors:
        raise GraphConnectivityError(
            f"The start executor '{graph.start_id}' is not in the graph; it has {list(graph.executors)}."
        )
    for edge in _edges(graph):
        for end in (edge.source_id, edge.target_id):
            if end not in graph.executors:
                raise GraphConnectivityError(
                    f"Edge '{edge.id}' names an executor '{end}' that is not in the graph; "
                    f"it has {list(graph.executors)}."
                )


def _check_duplicate_edges(graph: Graph) -> None:
    seen: dict[tuple[str, str], EdgeGroup] = {}
    for group in graph.groups:
        for edge in group.edges:
            ends = (edge.source_id, edge.target_id)
            if (first := seen.get(ends)) is not None:
                raise EdgeDuplicationError(
                    f"There are two edges from '{edge.source_id}' to '{edge.target_id}' (in {first.kind} and "
                    f"{group.kind}): remove one, or join their conditions into one."
                )
            seen[ends] = group


def _check_types(graph: Graph) -> list[str]:
    remarks: list[str] = []
    for group in graph.groups:
        if group.kind == "fan_in":
            remarks += _check_join(graph, group)
        else:
            for edge in group.edges:
                remarks += _check_edge(graph, edge)
    return remarks


def _check_edge(graph: Graph, edge: Edge) -> list[str]:
    source, target = graph.executors[edge.source_id], graph.executors[edge.target_id]
    sent, remark = _sent(source)
    if sent is None:
        return [f"edge '{edge.id}' is not checked: {remark}"]
    accepted = list(target.input_types)
    if any(compatible(out, into) for out in sent for into in accepted):
        return []
    raise TypeCompatibilityError(
        f"Executor '{source.id}' sends {_types(sent)} along edge '{edge.id}', but '{target.id}' accepts "
        f"{_types(accepted)}: change WorkflowContext[...] in '{source.id}' or the handlers of '{target.id}', "
        "or remove the edge."
    )


def _check_join(graph: Graph, group: EdgeGroup) -> list[str]:
    """A join delivers one list, so one type of the target must take what every source sends."""
    target = graph.executors[group.target_ids[0]]
    accepted = list(target.input_types)
    known: dict[str, list[Any]] = {}
    remarks: list[str] = []
    for source_id in group.source_ids:
        sent, remark = _sent(graph.executors[source_id])
        if sent is None:
            remarks.append(f"edge '{source_id}->{target.id}' is not checked: {remark}")
        else:
            known[source_id] = sent

    def takes(into: Any, sent: Iterable[Any]) -> bool:
        return any(compatible(list[out], into) for out in sent)  # type: ignore[valid-type]

    for source_id, sent in known.items():
        if not any(takes(into, sent) for into in accepted):
            raise TypeCompatibilityError(
                f"Executor '{source_id}' sends {_types(sent)} into the fan-in of '{target.id}', which then "
                f"gets a list of them, but '{target.id}' accepts {_types(accepted)}: give '{target.id}' a "
                f"handler for list[{' | '.join(readable(out) for out in sent)}]."
            )
    if not any(all(takes(into, sent) for sent in known.values()) for into in accepted):
        every = list(dict.fromkeys(readable(out) for sent in known.values() for out in sent))
        raise TypeCompatibilityError(
            f"The fan-in of '{target.id}' joins {list(known)} into one list, but no single type of "
            f"'{target.id}' ({_types(accepted)}) takes what all of them send: give '{target.id}' a handler "
            f"for list[{' | '.join(every)}]."
        )
    return remarks


def _sent(executor: Executor) -> tuple[list[Any] | None, str]:
    """Return the types an executor declares to send; None, and why, when they cannot be known."""
    specs: list[HandlerSpec | ResponseSpec] = [*executor.handlers, *executor.response_handlers]
    if any(spec.output_types is None for spec in specs):
        return None, f"'{executor.id}' has a handler with a bare WorkflowContext"
    sent = list(executor.output_types)
    return (sent, "") if sent else (None, f"'{executor.id}' declares no type that it sends")


def _check_reachable(graph: Graph) -> None:
    targets: dict[str, list[str]] = {}
    for edge in _edges(graph):
        targets.setdefault(edge.source_id, []).append(edge.target_id)
    reached, waiting = {graph.start_id}, [graph.start_id]
    while waiting:
        for target_id in targets.get(waiting.pop(), ()):
            if target_id not in reached:
                reached.add(target_id)
                waiting.append(target_id)
    lost = [executor_id for executor_id in graph.executors if executor_id not in reached]
    if lost:
        raise GraphConnectivityError(
            f"Executors {lost} cannot be reached from the start executor '{graph.start_id}': "
            "add an edge that leads to them, or leave them out."
        )


def _check_outputs(graph: Graph) -> None:
    outputs = graph.output_ids or frozenset()
    overlap = sorted(outputs & graph.intermediate_ids)
    if overlap:
        raise _output_error(
            f"Executors {overlap} are in output_from and in intermediate_output_from: name each in one of "
            "them."
        )
    if graph.output_ids is not None and not outputs and not graph.intermediate_ids:
        raise _output_error(
            "output_from and intermediate_output_from select no executor, so the workflow could never show a "
            "result: name at least one executor, or leave both out to show every output."
        )
    for name, ids in (("output_from", outputs), ("intermediate_output_from", graph.intermediate_ids)):
        for executor_id in sorted(ids):
            executor = graph.executors.get(executor_id)
            if executor is None:
                raise _output_error(
                    f"{name} names an executor '{executor_id}' that is not in the graph; it has "
                    f"{list(graph.executors)}."
                )
            if not executor.workflow_output_types:
                raise _output_error(
                    f"{name} names executor '{executor_id}', which declares no output: annotate its context "
                    "as WorkflowContext[<what it sends>, <what it yields>]."
                )


def _output_error(message: str) -> WorkflowValidationError:
    return WorkflowValidationError(message, ValidationTypeEnum.OUTPUT_VALIDATION)


def _loops(graph: Graph) -> list[str]:
    return [
        f"executor '{edge.source_id}' sends to itself along '{edge.id}'; it ends when it stops sending"
        for edge in _edges(graph)
        if edge.source_id == edge.target_id
    ]


def _dead_ends(graph: Graph) -> list[str]:
    ends = [executor_id for executor_id in graph.executors if not graph.groups_from(executor_id)]
    return [f"executors {ends} have no outgoing edge; what they send ends there"] if ends else []


def _edges(graph: Graph) -> Iterable[Edge]:
    return (edge for group in graph.groups for edge in group.edges)


def _types(types: Iterable[Any]) -> str:
    return ", ".join(readable(tp) for tp in types) or "nothing"
