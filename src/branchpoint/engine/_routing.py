"""Where what was sent goes: pure decisions of edges, types and conditions.

Nothing here knows a clock, a task or a store. A condition may be a coroutine function of the
developer, and is awaited; that is the only reason these functions are coroutines.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from branchpoint.codec import copy_value
from branchpoint.engine._cell import Cell, Medium
from branchpoint.engine._share import Sent, Share
from branchpoint.engine._state import Delivery
from branchpoint.errors import UndeliverableMessageError
from branchpoint.graph import EdgeGroup, Executor, Graph, find_handler

__all__ = ["Ended", "Routed", "route"]

Buffers = dict[str, dict[str, list[Cell]]]


@dataclass(frozen=True, slots=True)
class Ended:
    """A message whose way ended: nobody was asked to take it, or nobody could."""

    source_id: str
    type_name: str
    why: str


@dataclass(slots=True)
class Routed:
    """What all messages of one superstep became."""

    deliveries: list[Delivery] = field(default_factory=list)
    buffers: Buffers = field(default_factory=dict)
    ended: list[Ended] = field(default_factory=list)


async def route(
    graph: Graph,
    shares: Sequence[Share],
    buffers: Mapping[str, Mapping[str, list[Cell]]],
    medium: Medium | None,
) -> Routed:
    """Send every message of a superstep on its way.

    The order of deliveries is the declared order of the senders, then the order of sending; joins
    that became full follow in declared order. Timing plays no part.

    Raises:
        UndeliverableMessageError: No target accepts the type of a message.
        Exception: What a condition raised; the superstep then counts as failed.
    """
    routed = Routed(
        buffers={key: {source: list(cells) for source, cells in at.items()} for key, at in buffers.items()}
    )
    for share in shares:
        for sent in share.sent:
            await _route_one(graph, share.executor_id, sent, routed)
    _release_joins(graph, routed, medium)
    return routed


async def _route_one(graph: Graph, source_id: str, sent: Sent, routed: Routed) -> None:
    groups = graph.groups_from(source_id)
    kind = type(sent.value).__name__
    if not groups and sent.target_id is None:
        routed.ended.append(Ended(source_id, kind, "the sender has no outgoing edge"))
        return
    targets: list[str] = []
    accepted = joined = False
    seen = copy_value(sent.value) if any(_asks(group) for group in groups) else sent.value
    for group in groups:
        able = [target for target in group.target_ids if _accepts(graph, group, target, sent)]
        if group.kind == "fan_in":
            if able:
                joined = True
                _buffer(routed.buffers, group, source_id, sent.value)
            continue
        chosen = await _chosen(group, source_id, able, seen)
        accepted = accepted or chosen is not None
        targets += chosen or ()
    if targets:
        ordered = tuple(sorted(targets, key=graph.order))
        routed.deliveries.append(Delivery(sent.value, (source_id,), ordered))
    elif not (accepted or joined):
        _refuse(graph, groups, source_id, sent, routed)
    elif not joined:
        routed.ended.append(Ended(source_id, kind, "every condition turned it away"))


def _asks(group: EdgeGroup) -> bool:
    return bool(group.branches) or group.selection is not None or any(edge.condition for edge in group.edges)


def _accepts(graph: Graph, group: EdgeGroup, target_id: str, sent: Sent) -> bool:
    if sent.target_id not in (None, target_id):
        return False
    value = [sent.value] if group.kind == "fan_in" else sent.value
    return find_handler(graph.executors[target_id], value) is not None


async def _chosen(group: EdgeGroup, source_id: str, able: list[str], seen: Any) -> list[str] | None:
    """Return those of the `able` targets that the group's conditions let through.

    An empty list means that conditions turned the message away; None, that nobody can take it.
    """
    if group.kind == "switch_case":
        picked = [await _first_branch(group, seen)]
    elif group.selection is not None:
        picked = await _picked(group, source_id, seen)
    else:
        picked = [
            edge.target_id for edge in group.edges if edge.condition is None or await edge.should_route(seen)
        ]
    chosen = [target for target in able if target in picked]
    if chosen:
        return chosen
    # Nobody able was picked. If somebody unable was, a decision of the developer met a type error.
    deciding = group.kind == "switch_case" or group.selection is not None
    return [] if able and not (deciding and picked) else None


async def _first_branch(group: EdgeGroup, seen: Any) -> str:
    for branch in group.branches:
        verdict = True if branch.condition is None else branch.condition(seen)
        if await verdict if inspect.isawaitable(verdict) else verdict:
            return branch.target_id
    raise AssertionError("a switch ends with its default")


async def _picked(group: EdgeGroup, source_id: str, seen: Any) -> list[str]:
    assert group.selection is not None
    answer = group.selection(seen, list(group.target_ids))
    picked = list(await answer if inspect.isawaitable(answer) else answer)
    strangers = [target for target in picked if target not in group.target_ids]
    if strangers:
        raise UndeliverableMessageError(
            f"The selection {group.selection_name!r} of executor {source_id!r} picked {strangers}; "
            f"it may pick only from {list(group.target_ids)}."
        )
    return picked


def _buffer(buffers: Buffers, group: EdgeGroup, source_id: str, value: Any) -> None:
    cells = buffers.setdefault(group.id, {}).setdefault(source_id, [])
    cells.append(Cell(f"edge_states.{group.id}.received.{source_id}[{len(cells)}]", 5, live=value))


def _release_joins(graph: Graph, routed: Routed, medium: Medium | None) -> None:
    """Turn every full join into one delivery of a list, in the declared order of its sources."""
    for group in graph.groups:
        at = routed.buffers.get(group.id)
        if at is None or any(not at.get(source) for source in group.source_ids):
            continue
        del routed.buffers[group.id]
        values = [cell.value(medium) for source in group.source_ids for cell in at[source]]
        routed.deliveries.append(Delivery(values, group.source_ids, group.target_ids))


def _refuse(graph: Graph, groups: Sequence[EdgeGroup], source_id: str, sent: Sent, routed: Routed) -> None:
    kind = type(sent.value).__name__
    targets = list(dict.fromkeys(target for group in groups for target in group.target_ids))
    if sent.target_id is not None and sent.target_id not in targets:
        raise UndeliverableMessageError(
            f"Executor {source_id!r} sent a {kind} to {sent.target_id!r}, but no edge leads there; "
            f"its edges lead to {targets}. Add the edge, or send without target_id."
        )
    if graph.undelivered == "drop":
        routed.ended.append(Ended(source_id, kind, f"none of {targets} accepts it"))
        return
    asked = [sent.target_id] if sent.target_id is not None else targets
    accepted = "; ".join(f"{target!r} accepts {_accepted_types(graph.executors[target])}" for target in asked)
    raise UndeliverableMessageError(
        f"Executor {source_id!r} sent a {kind}, and none of its targets accepts that type: {accepted}. "
        "Add a handler for it, send another type, or build with WorkflowBuilder(undelivered='drop')."
    )


def _accepted_types(executor: Executor) -> str:
    return ", ".join(getattr(tp, "__name__", str(tp)) for tp in executor.input_types)
