"""Where what was sent goes: pure decisions of edges, types and conditions.

Nothing here knows a clock, a task or a store. A condition may be a coroutine function of the
developer, and is awaited; that is the only reason these functions are coroutines.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from branchpoint.codec import copy_value, type_expression
from branchpoint.engine._cell import Cell, Medium
from branchpoint.engine._share import Sent, Share
from branchpoint.engine._state import Delivery
from branchpoint.errors import UndeliverableMessageError
from branchpoint.graph import EdgeGroup, Executor, Graph, find_handler

__all__ = ["Ended", "Routed", "route"]

Buffers = dict[str, dict[str, list[Cell]]]


class Ended(msgspec.Struct, frozen=True):
    """A message whose way ended: nobody was asked to take it, or nobody could."""

    source_id: str
    type_name: str
    why: str


class Routed(msgspec.Struct):
    """What all messages of one superstep became."""

    deliveries: list[Delivery] = msgspec.field(default_factory=list)
    buffers: Buffers = msgspec.field(default_factory=dict)
    ended: list[Ended] = msgspec.field(default_factory=list)


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
    unable: list[str] = []
    turned_away = joined = False
    seen = copy_value(sent.value) if any(_asks(group) for group in groups) else sent.value
    for group in groups:
        meant = [target for target in group.target_ids if sent.target_id in (None, target)]
        able = [target for target in meant if _accepts(graph, group, target, sent.value)]
        if not able:
            unable += meant
        elif group.kind == "fan_in":
            joined = True
            _buffer(routed.buffers, group, source_id, sent.value)
        else:
            picked = await _picked(group, source_id, able, seen)
            if chosen := [target for target in able if target in picked]:
                targets += chosen
            elif misled := [target for target in meant if target in picked]:
                unable += misled  # a decision of the developer met a type error
            else:
                turned_away = True
    if targets:
        ordered = tuple(sorted(targets, key=graph.order))
        routed.deliveries.append(Delivery(sent.value, (source_id,), ordered))
    elif turned_away and not joined:
        routed.ended.append(Ended(source_id, kind, "every condition turned it away"))
    elif unable and not joined:
        _refuse(graph, source_id, kind, unable, routed)
    elif not joined:
        leads_to = [target for group in groups for target in group.target_ids]
        raise UndeliverableMessageError(
            f"Executor {source_id!r} sent a {kind} to {sent.target_id!r}, but no edge leads there; "
            f"its edges lead to {leads_to}. Add the edge, or send without target_id."
        )


def _asks(group: EdgeGroup) -> bool:
    return bool(group.branches) or group.selection is not None or any(edge.condition for edge in group.edges)


def _accepts(graph: Graph, group: EdgeGroup, target_id: str, value: Any) -> bool:
    delivered = [value] if group.kind == "fan_in" else value
    return find_handler(graph.executors[target_id], delivered) is not None


async def _picked(group: EdgeGroup, source_id: str, able: list[str], seen: Any) -> list[str]:
    """Return the targets that the group's conditions let through.

    A condition of an edge is asked only about what its edge can carry; a switch and a selection decide
    about the whole group.
    """
    if group.kind == "switch_case":
        return [await _first_branch(group, seen)]
    if group.selection is not None:
        return await _selected(group, source_id, seen)
    return [
        edge.target_id for edge in group.edges if edge.target_id in able and await edge.should_route(seen)
    ]


async def _first_branch(group: EdgeGroup, seen: Any) -> str:
    for branch in group.branches:
        verdict = True if branch.condition is None else branch.condition(seen)
        if await verdict if inspect.isawaitable(verdict) else verdict:
            return branch.target_id
    raise AssertionError("a switch ends with its default")


async def _selected(group: EdgeGroup, source_id: str, seen: Any) -> list[str]:
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
        target_id = group.target_ids[0]
        if find_handler(graph.executors[target_id], values) is not None:
            routed.deliveries.append(Delivery(values, group.source_ids, (target_id,)))
            continue
        # Each source alone fits some handler, and all together fit none.
        kinds = ", ".join(dict.fromkeys(type(value).__name__ for value in values))
        sender = f"The join of {list(group.source_ids)}"
        _refuse(graph, group.source_ids[-1], f"list of {kinds}", [target_id], routed, sender=sender)


def _refuse(
    graph: Graph,
    source_id: str,
    kind: str,
    unable: Sequence[str],
    routed: Routed,
    *,
    sender: str | None = None,
) -> None:
    if graph.undelivered == "drop":
        routed.ended.append(Ended(source_id, kind, f"none of {list(unable)} accepts it"))
        return
    accepted = "; ".join(
        f"{target!r} accepts {_accepted_types(graph.executors[target])}" for target in unable
    )
    raise UndeliverableMessageError(
        f"{sender or f'Executor {source_id!r}'} sent a {kind}, and none of its targets accepts that type: "
        f"{accepted}. Add a handler for it, send another type, or build with "
        "WorkflowBuilder(undelivered='drop')."
    )


def _accepted_types(executor: Executor) -> str:
    return ", ".join(type_expression(tp) for tp in executor.input_types)
