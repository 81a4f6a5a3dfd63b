"""The graph: what could happen in a workflow, frozen when it is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from branchpoint.errors import DefinitionError
from branchpoint.graph._choice import exact_classes
from branchpoint.graph._edges import EdgeGroup
from branchpoint.graph._executor import Executor
from branchpoint.graph._factory import Factory
from branchpoint.graph._nesting import NestingExecutor
from branchpoint.graph._runscope import spawn
from branchpoint.graph._signature import signature, signature_hash
from branchpoint.graph._statekey import StateKey

__all__ = ["DEFAULT_MAX_ITERATIONS", "Graph", "OutputClass", "Undelivered"]

DEFAULT_MAX_ITERATIONS = 100
"""Supersteps since the last accepted input after which a run is taken not to converge."""

Undelivered = Literal["raise", "drop"]
OutputClass = Literal["output", "intermediate"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """Everything a run needs to know of a definition, with its routing computed beforehand.

    A graph never changes: every mapping of it is read-only, and a run works on its own executors,
    which `spawn` makes. Any number of runs, threads and event loops may share one graph.

    Attributes:
        name: The workflow's name, part of the signature; None for an unnamed workflow.
        description: What the workflow is for.
        start_id: Id of the executor that gets the input.
        executors: The definitions by id, in declared order, the order of first mention.
        factories: For executors made by a `Factory`, what makes them anew for each run.
        groups: The edge groups in declared order.
        state_keys: The declared keys of the shared state.
        output_ids: Executors whose yields are outputs; None means every executor.
        intermediate_ids: Executors whose yields are intermediate outputs.
        max_iterations: Bound of supersteps since the last accepted input.
        undelivered: Whether a message that no target accepts is an error or is dropped with a warning.
        nesting: Those of the executors that run a workflow inside.
        signature: The readable signature; plain JSON, not to be changed.
        signature_hash: Its hash, the same in every process.
    """

    name: str | None = None
    description: str | None = None
    start_id: str
    executors: Mapping[str, Executor]
    factories: Mapping[str, Factory] = field(default_factory=dict)
    groups: tuple[EdgeGroup, ...] = ()
    state_keys: Mapping[str, StateKey] = field(default_factory=dict)
    output_ids: frozenset[str] | None = None
    intermediate_ids: frozenset[str] = frozenset()
    max_iterations: int = DEFAULT_MAX_ITERATIONS
    undelivered: Undelivered = "raise"
    nesting: Mapping[str, NestingExecutor] = field(init=False, repr=False)
    signature: Mapping[str, Any] = field(init=False, repr=False)
    signature_hash: str = field(init=False)
    _outgoing: Mapping[str, tuple[EdgeGroup, ...]] = field(init=False, repr=False)
    _by_id: Mapping[str, EdgeGroup] = field(init=False, repr=False)
    _order: Mapping[str, int] = field(init=False, repr=False)
    _fixed: Mapping[tuple[str, type, str | None], tuple[str, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("executors", "factories", "state_keys"):
            self._fix(name, MappingProxyType(dict(getattr(self, name))))
        nesting = {key: one for key, one in self.executors.items() if isinstance(one, NestingExecutor)}
        self._fix("nesting", MappingProxyType(nesting))
        outgoing: dict[str, list[EdgeGroup]] = {}
        for group in self.groups:
            for source_id in group.source_ids:
                outgoing.setdefault(source_id, []).append(group)
        self._fix("_outgoing", {source: tuple(groups) for source, groups in outgoing.items()})
        self._fix("_by_id", {group.id: group for group in self.groups})
        self._fix("_order", {executor_id: place for place, executor_id in enumerate(self.executors)})
        self._fix("_fixed", MappingProxyType(_fixed_targets(self)))
        self._fix("signature", signature(self))
        self._fix("signature_hash", signature_hash(self.signature))

    def _fix(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def groups_from(self, executor_id: str) -> tuple[EdgeGroup, ...]:
        """Return the groups this executor sends into, in declared order."""
        return self._outgoing.get(executor_id, ())

    def targets_for(self, source_id: str, cls: type, target_id: str | None) -> tuple[str, ...] | None:
        """Return who receives every message of exactly this class, in declared order; None where it depends.

        It depends on the message where a condition decides, where a join waits, and where a target has no
        handler for that very class.
        """
        return self._fixed.get((source_id, cls, target_id))

    def group(self, group_id: str) -> EdgeGroup | None:
        """Return the edge group of that identity, or None."""
        return self._by_id.get(group_id)

    def order(self, executor_id: str) -> int:
        """Return the place of an executor in declared order, counted from 0.

        Raises:
            KeyError: The graph has no such executor.
        """
        return self._order[executor_id]

    def classify_output(self, executor_id: str) -> OutputClass | None:
        """Return what a yield of this executor is to the caller; None when it is hidden."""
        if self.output_ids is None or executor_id in self.output_ids:
            return "output"
        return "intermediate" if executor_id in self.intermediate_ids else None

    def spawn(self, executor_id: str) -> Executor:
        """Make the run-scoped executor of that id: from its factory, or from its definition.

        Raises:
            DefinitionError: The graph has no such executor, or its factory made another id or type.
        """
        definition = self.executors.get(executor_id)
        if definition is None:
            raise DefinitionError(
                f"There is no executor '{executor_id}' in this workflow; it has {list(self.executors)}."
            )
        factory = self.factories.get(executor_id)
        return spawn(definition if factory is None else factory.create(definition))


def _fixed_targets(graph: Graph) -> dict[tuple[str, type, str | None], tuple[str, ...]]:
    """Work out where messages go about which nothing is left to decide."""
    fixed: dict[tuple[str, type, str | None], tuple[str, ...]] = {}
    for source_id in graph.executors:
        groups = graph.groups_from(source_id)
        if not groups or any(group.asks or group.kind == "fan_in" for group in groups):
            continue
        targets = [one for group in groups for one in group.target_ids]
        if not all(one in graph.executors for one in targets):
            continue  # the graph is yet to be refused
        targets.sort(key=graph.order)
        classes = [exact_classes(graph.executors[one]) for one in targets]
        for cls in frozenset.intersection(*classes):
            fixed[source_id, cls, None] = tuple(targets)
        for target_id, taken in zip(targets, classes, strict=True):
            for cls in taken:
                fixed[source_id, cls, target_id] = (target_id,)
    return fixed
