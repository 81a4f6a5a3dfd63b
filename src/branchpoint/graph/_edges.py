"""Edges of a graph, in the groups in which they are routed.

A group is a decision: one message of its source travels to some of its targets. There are five
kinds, and every way of connecting executors makes one of them. Groups hold ids, never executors,
so they can be compared, drawn and signed without looking at any object.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from branchpoint.errors import DefinitionError

__all__ = [
    "Case",
    "Default",
    "Edge",
    "EdgeCondition",
    "EdgeGroup",
    "EdgeKind",
    "Selection",
    "SwitchBranch",
    "callable_name",
    "is_name",
]

EdgeCondition: TypeAlias = Callable[[Any], bool | Awaitable[bool]]
"""Whether a message travels an edge. It sees a shared copy of the message and must not change it."""

Selection: TypeAlias = Callable[[Any, list[str]], list[str] | Awaitable[list[str]]]
"""Which of the target ids a message travels to; given the message and all ids in declared order."""

EdgeKind: TypeAlias = Literal["single", "fan_out", "fan_in", "switch_case", "multi_selection"]


def is_name(value: object) -> bool:
    """Return whether a value can name something: a text, not of a subclass, that is not empty.

    Lone surrogates are refused, since no stored text can hold them.
    """
    if type(value) is not str or value == "":
        return False
    return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)


def callable_name(function: Callable[..., Any]) -> str:
    """Return the name under which a condition or selection is known, the same in every process.

    A partial goes by the function it wraps, an object with `__call__` by its class, a lambda by
    `<lambda>`. Memory addresses, modules and enclosing functions never show.
    """
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__name__", None)
    return name if isinstance(name, str) else type(inner).__name__


@dataclass(frozen=True, slots=True)
class Edge:
    """A way from one executor to another, open to every message or only under a condition.

    Two edges are equal when they join the same ends under the same condition name.

    Attributes:
        source_id: Id of the executor that sends.
        target_id: Id of the executor that receives.
        condition: What decides for each message, or None when the edge is always open.
        condition_name: The name of the condition; by default that of the callable.
    """

    source_id: str
    target_id: str
    condition: EdgeCondition | None = field(default=None, compare=False, repr=False)
    condition_name: str | None = None

    def __post_init__(self) -> None:
        for end, value in (("source_id", self.source_id), ("target_id", self.target_id)):
            if not is_name(value):
                raise DefinitionError(f"An edge needs the id of an executor as {end}, got {value!r}.")
        if self.condition is not None:
            if not callable(self.condition):
                raise DefinitionError(
                    f"The condition of edge '{self.id}' must be a function of the message, "
                    f"got {type(self.condition).__name__}."
                )
            if self.condition_name is None:
                object.__setattr__(self, "condition_name", callable_name(self.condition))

    @property
    def id(self) -> str:
        """The readable identity: `source->target`."""
        return f"{self.source_id}->{self.target_id}"

    @property
    def has_condition(self) -> bool:
        """Whether a condition decides about this edge."""
        return self.condition is not None

    async def should_route(self, data: Any) -> bool:
        """Ask the condition; an edge without one is always open. What the condition raises is raised."""
        if self.condition is None:
            return True
        verdict = self.condition(data)
        return bool(await verdict) if inspect.isawaitable(verdict) else bool(verdict)

    def to_dict(self) -> dict[str, Any]:
        """Return the ends and the condition's name as plain JSON."""
        plain: dict[str, Any] = {"source_id": self.source_id, "target_id": self.target_id}
        if self.condition_name is not None:
            plain["condition_name"] = self.condition_name
        return plain


class Case(msgspec.Struct, frozen=True):
    """A branch of a switch: messages for which `condition` holds go to `target`."""

    condition: EdgeCondition
    target: Any


class Default(msgspec.Struct, frozen=True):
    """The last branch of a switch: messages that no case took go to `target`."""

    target: Any


@dataclass(frozen=True, slots=True)
class SwitchBranch:
    """A branch of a switch as the graph keeps it; the default has no condition."""

    target_id: str
    condition: EdgeCondition | None = field(default=None, compare=False, repr=False)
    condition_name: str | None = None

    def __post_init__(self) -> None:
        if self.condition is not None and self.condition_name is None:
            object.__setattr__(self, "condition_name", callable_name(self.condition))

    @property
    def is_default(self) -> bool:
        """Whether this branch takes what no other branch took."""
        return self.condition is None

    def to_dict(self) -> dict[str, Any]:
        """Return kind, target and condition name as plain JSON."""
        if self.is_default:
            return {"type": "Default", "target_id": self.target_id}
        return {"type": "Case", "target_id": self.target_id, "condition_name": self.condition_name}


@dataclass(frozen=True, slots=True)
class EdgeGroup:
    """Edges that are decided together.

    Build one with the constructor of its kind: `single`, `fan_out`, `fan_in`, `switch_case` or
    `multi_selection`.

    Attributes:
        kind: How a message is routed through the group.
        edges: The edges in declared order, one per pair of ends.
        branches: The branches of a switch in the order in which they are asked, the default last.
        selection: What picks the targets of a multi-selection.
        selection_name: The name of the selection.
        keep: Whether a half-filled join outlives the turn.
        source_ids: The sources in declared order, each once.
        target_ids: The targets in declared order, each once.
        id: The stable identity: the kind and the sorted ends, the same whatever the declared order.
        asks: Whether a condition or a selection decides about anything in it.
    """

    kind: EdgeKind
    edges: tuple[Edge, ...]
    branches: tuple[SwitchBranch, ...] = ()
    selection: Selection | None = field(default=None, compare=False, repr=False)
    selection_name: str | None = None
    keep: bool = False
    source_ids: tuple[str, ...] = field(init=False, compare=False, repr=False)
    target_ids: tuple[str, ...] = field(init=False, compare=False, repr=False)
    id: str = field(init=False, compare=False)
    asks: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.kind not in get_args(EdgeKind):
            kinds = ", ".join(get_args(EdgeKind))
            raise DefinitionError(f"There is no edge group of kind {self.kind!r}; use one of {kinds}.")
        if not self.edges:
            raise DefinitionError(f"An edge group of kind '{self.kind}' needs at least one edge.")
        if self.selection is not None and self.selection_name is None:
            object.__setattr__(self, "selection_name", callable_name(self.selection))
        object.__setattr__(self, "source_ids", tuple(dict.fromkeys(edge.source_id for edge in self.edges)))
        object.__setattr__(self, "target_ids", tuple(dict.fromkeys(edge.target_id for edge in self.edges)))
        object.__setattr__(self, "id", _identity(self.kind, self.source_ids, self.target_ids))
        asked = bool(self.branches) or self.selection is not None
        object.__setattr__(self, "asks", asked or any(edge.has_condition for edge in self.edges))

    def edge_to(self, target_id: str) -> Edge | None:
        """Return the first edge that ends at `target_id`, or None."""
        return next((edge for edge in self.edges if edge.target_id == target_id), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the group as plain JSON; functions appear by name."""
        plain: dict[str, Any] = {
            "id": self.id,
            "kind": self.kind,
            "edges": [edge.to_dict() for edge in self.edges],
        }
        if self.branches:
            plain["cases"] = [branch.to_dict() for branch in self.branches]
        if self.selection_name is not None:
            plain["selection_func_name"] = self.selection_name
        if self.kind == "fan_in":
            plain["keep"] = self.keep
        return plain

    @classmethod
    def single(cls, source_id: str, target_id: str, condition: EdgeCondition | None = None) -> EdgeGroup:
        """One edge, with or without a condition."""
        return cls("single", (Edge(source_id, target_id, condition),))

    @classmethod
    def fan_out(cls, source_id: str, target_ids: Sequence[str]) -> EdgeGroup:
        """Every message of the source goes to all targets.

        Raises:
            DefinitionError: There are fewer than two targets.
        """
        _at_least_two(target_ids, f"A fan-out from '{source_id}'", "targets", "add_edge joins one pair")
        return cls("fan_out", tuple(Edge(source_id, target_id) for target_id in target_ids))

    @classmethod
    def fan_in(cls, source_ids: Sequence[str], target_id: str, *, keep: bool = False) -> EdgeGroup:
        """The target gets one list when every source has sent: a join.

        Raises:
            DefinitionError: There are fewer than two sources.
        """
        _at_least_two(source_ids, f"A fan-in to '{target_id}'", "sources", "add_edge joins one pair")
        return cls("fan_in", tuple(Edge(source_id, target_id) for source_id in source_ids), keep=keep)

    @classmethod
    def switch_case(cls, source_id: str, branches: Sequence[SwitchBranch]) -> EdgeGroup:
        """A message goes to the first branch whose condition holds, otherwise to the default.

        Several branches may lead to one target; there is one edge per target.

        Raises:
            DefinitionError: There are fewer than two branches, or not exactly one default at the end.
        """
        where = f"A switch from '{source_id}'"
        _at_least_two(branches, where, "branches, one of them a Default", "add_edge takes one condition")
        defaults = [branch for branch in branches if branch.is_default]
        if len(defaults) != 1:
            raise DefinitionError(
                f"{where} needs exactly one Default, got {len(defaults)}: "
                "add Default(target=...) as its last branch, so that every message has somewhere to go."
            )
        if not branches[-1].is_default:
            lost = [branch.target_id for branch in branches[list(branches).index(defaults[0]) + 1 :]]
            raise DefinitionError(
                f"{where} has its Default before the cases to {lost}, which could never be reached: "
                "make Default(target=...) the last branch."
            )
        targets = dict.fromkeys(branch.target_id for branch in branches)
        edges = tuple(Edge(source_id, target_id) for target_id in targets)
        return cls("switch_case", edges, branches=tuple(branches))

    @classmethod
    def multi_selection(cls, source_id: str, target_ids: Sequence[str], selection: Selection) -> EdgeGroup:
        """The selection picks for every message the targets it goes to.

        Raises:
            DefinitionError: There are fewer than two targets, or the selection is not a function.
        """
        where = f"A multi-selection from '{source_id}'"
        _at_least_two(target_ids, where, "targets", "add_edge takes one condition")
        if not callable(selection):
            raise DefinitionError(
                f"{where} needs a function of the message and the target ids as selection_func, "
                f"got {type(selection).__name__}."
            )
        edges = tuple(Edge(source_id, target_id) for target_id in target_ids)
        return cls("multi_selection", edges, selection=selection)


def _at_least_two(items: Sequence[object], where: str, what: str, instead: str) -> None:
    if len(items) < 2:
        raise DefinitionError(f"{where} needs at least two {what}, got {len(items)}; {instead}.")


def _identity(kind: str, source_ids: Sequence[str], target_ids: Sequence[str]) -> str:
    sources = ",".join(_escaped(source) for source in sorted(source_ids))
    targets = ",".join(_escaped(target) for target in sorted(target_ids))
    return f"{kind}:{sources}->{targets}"


def _escaped(executor_id: str) -> str:
    # Separators inside an id are escaped, so that two groups never share one identity.
    return executor_id.replace("%", "%25").replace(",", "%2C").replace("->", "-%3E")
