"""Where what was sent goes: pure decisions of edges, types and conditions.

Nothing here knows a clock, a task or a store. Each executor's messages find their ways in its own
part of the superstep, because a condition is code of the developer and may be a coroutine; what the
ways of all executors add up to is decided afterwards, without waiting for anything.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from branchpoint.codec import copy_value, fingerprint, type_expression
from branchpoint.engine._cell import Cell, Medium
from branchpoint.engine._notes import note
from branchpoint.engine._share import Sent, Share, Way
from branchpoint.engine._state import Delivery
from branchpoint.errors import HandlerError, UndeliverableMessageError
from branchpoint.graph import EdgeGroup, Executor, Graph, find_handler

__all__ = ["Ended", "Routed", "find_ways", "route"]

Buffers = dict[str, dict[str, list[Cell]]]


class Ended(msgspec.Struct, frozen=True):
    """A message whose way ended.

    Attributes:
        undeliverable: Nobody accepts its type, and the graph says to drop such messages; otherwise
            nobody was to receive it.
    """

    source_id: str
    type_name: str
    why: str
    undeliverable: bool = False


class Routed(msgspec.Struct):
    """What all messages of one superstep became."""

    deliveries: list[Delivery] = msgspec.field(default_factory=list)
    buffers: Buffers = msgspec.field(default_factory=dict)
    ended: list[Ended] = msgspec.field(default_factory=list)


async def find_ways(graph: Graph, share: Share) -> None:
    """Decide for every message an executor sent where it goes; the answers stand in the share.

    Raises:
        UndeliverableMessageError: No target accepts the type of a message.
        HandlerError: A condition or selection changed the message it was asked about.
        Exception: What a condition raised; the superstep then counts as failed.
    """
    for sent in share.sent:
        targets = graph.targets_for(share.executor_id, type(sent.value), sent.target_id)
        if targets is not None:
            share.ways.append(Way(targets))
            continue
        groups = graph.groups_from(share.executor_id)
        asking = [group for group in groups if group.asks]
        picked = await _asked(graph, asking, share.executor_id, sent) if asking else {}
        share.ways.append(_way(graph, groups, share.executor_id, sent, picked))


def route(
    graph: Graph,
    shares: Sequence[Share],
    buffers: Mapping[str, Mapping[str, list[Cell]]],
    medium: Medium | None,
) -> Routed:
    """Add up the ways of all messages of a superstep.

    The order of deliveries is the declared order of the senders, then the order of sending; joins
    that became full follow in declared order. Timing plays no part.
    """
    routed = Routed()
    for key, at in buffers.items():
        routed.buffers[key] = {source: list(cells) for source, cells in at.items()}
    for share in shares:
        for sent, way in zip(share.sent, share.ways, strict=True):
            for group_id in way.joins:
                _buffer(routed.buffers, group_id, share.executor_id, sent.value)
            if way.targets:
                routed.deliveries.append(Delivery(sent.value, (share.executor_id,), way.targets))
            elif way.ended:
                kind = type(sent.value).__name__
                routed.ended.append(Ended(share.executor_id, kind, way.ended, way.undeliverable))
    if routed.buffers:
        _release_joins(graph, routed, medium)
    return routed


async def _asked(
    graph: Graph, asking: Sequence[EdgeGroup], source_id: str, sent: Sent
) -> dict[str, list[str]]:
    """Ask the conditions and selections of groups; return what each group picked, by its identity.

    Raises:
        HandlerError: One of them changed the message.
        Exception: What one of them raised.
    """
    seen = copy_value(sent.value)  # the one copy that all of them look at
    before = None if seen is sent.value else fingerprint(seen)  # what cannot change is not copied
    picked: dict[str, list[str]] = {}
    for group in asking:
        able = [target for target in _meant(group, sent) if _accepts(graph, group, target, sent.value)]
        if able:
            try:
                picked[group.id] = await _picked(group, source_id, able, seen)
            except Exception as error:
                note(error, f"raised by a condition or selection of {group.id}")
                raise
            if before is not None and fingerprint(seen) != before:
                raise HandlerError(
                    f"A condition or selection of {group.id} changed the {type(seen).__name__} that executor "
                    f"{source_id!r} sent. All conditions look at one copy of a message and must not change it, or "
                    "the next one is asked about something else: change a copy, or change it before it is sent."
                )
    return picked


def _meant(group: EdgeGroup, sent: Sent) -> tuple[str, ...]:
    if sent.target_id is None:
        return group.target_ids
    return (sent.target_id,) if sent.target_id in group.target_ids else ()


def _way(
    graph: Graph,
    groups: Sequence[EdgeGroup],
    source_id: str,
    sent: Sent,
    picked: Mapping[str, Sequence[str]],
) -> Way:
    if not groups and sent.target_id is None:
        return Way(ended="the sender has no outgoing edge")
    targets: list[str] = []
    unable: list[str] = []
    joins: list[str] = []
    turned_away = False
    for group in groups:
        meant = _meant(group, sent)
        able = [target for target in meant if _accepts(graph, group, target, sent.value)]
        if not able:
            unable += meant
        elif group.kind == "fan_in":
            joins.append(group.id)
        elif not group.asks:
            targets += able
        elif chosen := [target for target in able if target in picked[group.id]]:
            targets += chosen
        elif misled := [target for target in meant if target in picked[group.id]]:
            unable += misled  # a decision of the developer met a type error
        else:
            turned_away = True
    if targets or joins:
        if len(targets) > 1:
            targets.sort(key=graph.order)
        return Way(tuple(targets), tuple(joins))
    if turned_away:
        return Way(ended="every condition turned it away")
    if unable:
        return _refused(graph, f"Executor {source_id!r}", type(sent.value).__name__, unable)
    leads_to = [target for group in groups for target in group.target_ids]
    raise UndeliverableMessageError(
        f"Executor {source_id!r} sent a {type(sent.value).__name__} to {sent.target_id!r}, but no edge leads "
        f"there; its edges lead to {leads_to}. Add the edge, or send without target_id."
    )


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
    answer: Any = group.selection(seen, list(group.target_ids))
    answer = await answer if inspect.isawaitable(answer) else answer
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        raise UndeliverableMessageError(
            f"The selection {group.selection_name!r} of executor {source_id!r} returned {answer!r}; "
            f"it returns a list of ids out of {list(group.target_ids)}, empty for none."
        )
    picked = list(answer)
    strangers = [target for target in picked if target not in group.target_ids]
    if strangers:
        raise UndeliverableMessageError(
            f"The selection {group.selection_name!r} of executor {source_id!r} picked {strangers}; "
            f"it may pick only from {list(group.target_ids)}."
        )
    return picked


def _buffer(buffers: Buffers, group_id: str, source_id: str, value: Any) -> None:
    cells = buffers.setdefault(group_id, {}).setdefault(source_id, [])
    cells.append(Cell(f"edge_states.{group_id}.received.{source_id}[{len(cells)}]", 5, live=value))


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
        kind = f"list of {', '.join(dict.fromkeys(type(value).__name__ for value in values))}"
        sources = list(group.source_ids)
        refused = _refused(graph, f"The join of {sources}", kind, [target_id])
        routed.ended.append(Ended(sources[-1], kind, refused.ended, refused.undeliverable))


def _refused(graph: Graph, sender: str, kind: str, unable: Sequence[str]) -> Way:
    """Return where a message goes that nobody accepts: nowhere, if the graph drops it.

    Raises:
        UndeliverableMessageError: The graph does not drop such messages.
    """
    if graph.undelivered == "drop":
        return Way(ended=f"none of {list(unable)} accepts it", undeliverable=True)
    accepted = "; ".join(
        f"{target!r} accepts {_accepted_types(graph.executors[target])}" for target in unable
    )
    raise UndeliverableMessageError(
        f"{sender} sent a {kind}, and none of its targets accepts that type: {accepted}. "
        "Add a handler for it, send another type, or build with WorkflowBuilder(undelivered='drop')."
    )


def _accepted_types(executor: Executor) -> str:
    return ", ".join(type_expression(tp) for tp in executor.input_types)
