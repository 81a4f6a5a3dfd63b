"""Where messages go: all five kinds of edges, types, conditions, explicit targets, joins.

Nothing here needs an event loop: a condition that does not wait can be asked without one.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from branchpoint.engine._routing import Ended, Routed, find_ways, route
from branchpoint.engine._share import Sent
from branchpoint.errors import HandlerError, UndeliverableMessageError
from branchpoint.graph import EdgeGroup, Executor, Graph, SwitchBranch, WorkflowContext, handler
from tests.unit.engine.shapes import Anything, Number, Text, Texts, at_once, graph_of, share_of, state_of

Told = list[tuple[Any, tuple[str, ...], tuple[str, ...]]]


def routed(graph: Graph, *sends: tuple[str, Any] | tuple[str, Any, str | None], before: Any = None) -> Routed:
    """Route what executors sent, each in one share, in the order given."""
    state = state_of(graph)
    by_sender: dict[str, list[Sent]] = {}
    for sender, value, *target in sends:
        by_sender.setdefault(sender, []).append(Sent(value, target[0] if target else None))
    shares = [share_of(state, sender, sent=sent) for sender, sent in by_sender.items()]
    for share in shares:
        at_once(find_ways(graph, share))
    return route(graph, shares, before or {}, state.medium)


def told(routed: Routed) -> Told:
    return [(one.value, one.sources, one.targets) for one in routed.deliveries]


def waiting(routed: Routed) -> dict[str, dict[str, list[Any]]]:
    return {
        group: {source: [cell.value(None) for cell in cells] for source, cells in received.items()}
        for group, received in routed.buffers.items()
    }


def never(value: Any) -> bool:
    raise AssertionError("this condition must not be asked")


def of(*executors: Executor) -> list[Executor]:
    return [Anything(id="a"), *executors]


# One edge.


def test_a_single_edge_carries_what_its_target_accepts() -> None:
    graph = graph_of(of(Text(id="b")), [EdgeGroup.single("a", "b")])
    found = routed(graph, ("a", "x"), ("a", "y"))
    assert told(found) == [("x", ("a",), ("b",)), ("y", ("a",), ("b",))]
    assert (found.buffers, found.ended) == ({}, [])


def test_none_is_a_message_like_any_other() -> None:
    graph = graph_of(of(Anything(id="b")), [EdgeGroup.single("a", "b")])
    assert told(routed(graph, ("a", None))) == [(None, ("a",), ("b",))]


def test_an_executor_may_send_to_itself() -> None:
    graph = graph_of(of(), [EdgeGroup.single("a", "a")])
    assert told(routed(graph, ("a", 1))) == [(1, ("a",), ("a",))]


@pytest.mark.parametrize(("value", "targets"), [(1, ("b",)), ("x", ("c",)), (True, ("b",))])
def test_routing_by_type_is_a_feature(value: Any, targets: tuple[str, ...]) -> None:
    graph = graph_of(
        of(Number(id="b"), Text(id="c")), [EdgeGroup.single("a", "b"), EdgeGroup.single("a", "c")]
    )
    assert told(routed(graph, ("a", value))) == [(value, ("a",), targets)]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("verdict", [True, False, 1, 0, "yes", "", None])
def test_a_condition_sync_or_async_decides_about_its_edge(is_async: bool, verdict: Any) -> None:
    async def later(value: Any) -> Any:
        return verdict

    condition: Any = later if is_async else lambda value: verdict
    graph = graph_of(of(Text(id="b")), [EdgeGroup.single("a", "b", condition)])
    found = routed(graph, ("a", "x"))
    assert told(found) == ([("x", ("a",), ("b",))] if verdict else [])
    assert found.ended == ([] if verdict else [Ended("a", "str", "every condition turned it away")])


async def test_a_condition_may_wait() -> None:
    gate = asyncio.Event()

    async def later(value: Any) -> bool:
        await gate.wait()
        return True

    graph = graph_of(of(Text(id="b")), [EdgeGroup.single("a", "b", later)])
    state = state_of(graph)
    share = share_of(state, "a", sent=[Sent("x", None)])
    finding = asyncio.create_task(find_ways(graph, share))
    gate.set()
    await finding
    assert told(route(graph, [share], {}, state.medium)) == [("x", ("a",), ("b",))]


def test_a_condition_that_raises_is_not_caught() -> None:
    graph = graph_of(of(Text(id="b")), [EdgeGroup.single("a", "b", lambda value: 1 / 0)])
    with pytest.raises(ZeroDivisionError):
        routed(graph, ("a", "x"))


def test_a_condition_is_asked_only_about_what_its_edge_can_carry() -> None:
    graph = graph_of(
        of(Text(id="b"), Number(id="c")),
        [EdgeGroup.single("a", "b", lambda text: text.startswith("x")), EdgeGroup.single("a", "c")],
    )
    assert told(routed(graph, ("a", 7))) == [(7, ("a",), ("c",))]
    assert told(routed(graph, ("a", "xy"))) == [("xy", ("a",), ("b",))]


def test_conditions_see_one_copy_that_is_not_what_is_delivered() -> None:
    seen: list[Any] = []

    def look(value: Any) -> bool:
        seen.append(value)
        return True

    graph = graph_of(
        of(Anything(id="b"), Anything(id="c")),
        [EdgeGroup.single("a", "b", look), EdgeGroup.single("a", "c", look)],
    )
    value = {"k": [1]}
    (delivery,) = routed(graph, ("a", value)).deliveries
    assert seen[0] is seen[1] is not value
    assert seen[0]["k"] is not value["k"]
    assert delivery.value is value
    assert delivery.targets == ("b", "c")


@dataclass
class Order:
    lines: list[str]


def _touch(order: Any) -> bool:
    order.lines.append("x")
    return True


async def _touch_later(order: Any) -> bool:
    return _touch(order)


def _touch_and_pick(order: Any, targets: list[str]) -> list[str]:
    _touch(order)
    return targets


@pytest.mark.parametrize(
    "make",
    [
        lambda: EdgeGroup.single("a", "b", _touch),
        lambda: EdgeGroup.single("a", "b", _touch_later),
        lambda: switch(("c", lambda order: not _touch(order)), ("b", None)),
        lambda: selection(_touch_and_pick, "b", "c"),
    ],
    ids=["sync", "async", "switch", "selection"],
)
def test_a_condition_that_changes_its_message_is_told_by_edge_group_and_executor(
    make: Callable[[], EdgeGroup],
) -> None:
    """Its siblings would be asked about something else than is delivered, in silence."""
    first, group = EdgeGroup.single("a", "c", lambda order: order.lines == ["a"]), make()
    groups = [first, group, EdgeGroup.single("a", "d", never)]
    graph = graph_of(of(Anything(id="b"), Anything(id="c"), Anything(id="d")), groups)
    order = Order(["a"])
    with pytest.raises(HandlerError, match=rf"{re.escape(group.id)} changed the Order .* executor 'a'"):
        routed(graph, ("a", order))
    assert order == Order(["a"])


def test_a_condition_may_look_at_everything_in_a_message() -> None:
    """Also where looking fills what is derived, and where the message is of a type nobody registered."""

    class Basket:
        def __init__(self) -> None:
            self.items = {"a": [1, 2]}

        @functools.cached_property
        def total(self) -> int:
            return sum(self.items["a"])

    def look(basket: Any) -> bool:
        return bool(basket.total == 3 and sorted(basket.items) == ["a"] and repr(basket) and hash(basket))

    graph = graph_of(of(Anything(id="b")), [EdgeGroup.single("a", "b", look)])
    assert len(routed(graph, ("a", Basket())).deliveries) == 1


# Fan-out.


def test_a_fan_out_reaches_all_that_accept_the_type() -> None:
    graph = graph_of(
        of(Text(id="b"), Number(id="c"), Anything(id="d")), [EdgeGroup.fan_out("a", ["b", "c", "d"])]
    )
    assert told(routed(graph, ("a", "x"), ("a", 1))) == [
        ("x", ("a",), ("b", "d")),
        (1, ("a",), ("c", "d")),
    ]


def test_targets_are_in_declared_order_whatever_the_order_of_the_edges() -> None:
    graph = graph_of(
        of(Anything(id="b"), Anything(id="c"), Anything(id="d"), Anything(id="e")),
        [EdgeGroup.single("a", "e"), EdgeGroup.fan_out("a", ["d", "b"]), EdgeGroup.single("a", "c")],
    )
    assert told(routed(graph, ("a", 1))) == [(1, ("a",), ("b", "c", "d", "e"))]


# Switch.


def switch(*branches: tuple[str, Callable[[Any], Any] | None]) -> EdgeGroup:
    return EdgeGroup.switch_case("a", [SwitchBranch(target, condition) for target, condition in branches])


@pytest.mark.parametrize(("value", "target"), [(1, "b"), (12, "c"), (123, "d")])
def test_a_switch_takes_the_first_case_that_holds_or_the_default(value: int, target: str) -> None:
    async def below_100(number: int) -> bool:
        return number < 100

    graph = graph_of(
        of(Number(id="b"), Number(id="c"), Number(id="d")),
        [switch(("b", lambda number: number < 10), ("c", below_100), ("d", None))],
    )
    assert told(routed(graph, ("a", value))) == [(value, ("a",), (target,))]


def test_a_switch_asks_no_further_than_the_case_that_holds() -> None:
    graph = graph_of(
        of(Number(id="b"), Number(id="c"), Number(id="d")),
        [switch(("b", lambda number: True), ("c", never), ("d", None))],
    )
    assert told(routed(graph, ("a", 1))) == [(1, ("a",), ("b",))]


def test_a_switch_that_picks_who_cannot_take_it_is_an_error_and_no_other_gets_it() -> None:
    graph = graph_of(of(Text(id="b"), Number(id="c")), [switch(("b", lambda value: True), ("c", None))])
    with pytest.raises(UndeliverableMessageError) as refused:
        routed(graph, ("a", 1))
    assert "'a' sent a int" in str(refused.value)
    assert "'b' accepts str" in str(refused.value)
    assert "'c'" not in str(refused.value)


def test_a_switch_none_of_whose_targets_takes_it_is_not_asked() -> None:
    graph = graph_of(
        of(Text(id="b"), Text(id="c"), Number(id="d")),
        [switch(("b", never), ("c", None)), EdgeGroup.single("a", "d")],
    )
    assert told(routed(graph, ("a", 1))) == [(1, ("a",), ("d",))]


# Multi-selection.


def selection(pick: Any, *targets: str) -> EdgeGroup:
    return EdgeGroup.multi_selection("a", targets, pick)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_selection_picks_any_number_of_targets(is_async: bool) -> None:
    asked: list[Any] = []

    def pick(value: Any, targets: list[str]) -> list[str]:
        asked.append(list(targets))
        targets.reverse()  # its own list
        return list(value)

    async def pick_later(value: Any, targets: list[str]) -> list[str]:
        return pick(value, targets)

    graph = graph_of(
        of(Anything(id="b"), Anything(id="c"), Anything(id="d")),
        [selection(pick_later if is_async else pick, "b", "c", "d")],
    )
    found = routed(graph, ("a", ["d", "b"]), ("a", []), ("a", ("c", "c")), ("a", ["b", "c", "d"]))
    assert [one.targets for one in found.deliveries] == [("b", "d"), ("c",), ("b", "c", "d")]
    assert found.ended == [Ended("a", "list", "every condition turned it away")]
    assert asked == [["b", "c", "d"]] * 4


def test_a_selection_may_pick_only_its_own_targets() -> None:
    graph = graph_of(
        of(Anything(id="b"), Anything(id="c"), Anything(id="d")),
        [selection(lambda value, ids: ["b", "d", "nobody"], "b", "c"), EdgeGroup.single("a", "d")],
    )
    with pytest.raises(UndeliverableMessageError, match=r"picked \['d', 'nobody'\]"):
        routed(graph, ("a", 1))


def test_of_a_selection_those_get_it_that_can_take_it() -> None:
    graph = graph_of(
        of(Text(id="b"), Number(id="c"), Anything(id="d")),
        [selection(lambda value, ids: list(ids), "b", "c", "d")],
    )
    assert told(routed(graph, ("a", 1))) == [(1, ("a",), ("c", "d"))]


def test_a_selection_of_nobody_who_can_take_it_is_an_error() -> None:
    graph = graph_of(of(Text(id="b"), Number(id="c")), [selection(lambda value, ids: ["b"], "b", "c")])
    with pytest.raises(UndeliverableMessageError, match="'b' accepts str"):
        routed(graph, ("a", 1))


# Joins.


def join(*sources: str, keep: bool = False) -> EdgeGroup:
    return EdgeGroup.fan_in(sources, "j", keep=keep)


def test_a_join_waits_until_every_source_has_sent() -> None:
    group = join("b", "c")
    graph = graph_of([Anything(id="b"), Anything(id="c"), Texts(id="j")], [group])
    first = routed(graph, ("c", "late"))
    assert told(first) == []
    assert waiting(first) == {group.id: {"c": ["late"]}}
    assert first.ended == []
    second = routed(graph, ("b", "early"), before=first.buffers)
    assert told(second) == [(["early", "late"], ("b", "c"), ("j",))]
    assert second.buffers == {}
    # What was waiting before is not changed: a failed superstep is done again from it.
    assert waiting(first) == {group.id: {"c": ["late"]}}


@pytest.mark.parametrize("first", ["b", "c"])
def test_the_list_of_a_join_is_in_declared_order_of_its_sources(first: str) -> None:
    other = {"b": "c", "c": "b"}[first]
    graph = graph_of(
        [Anything(id="c"), Anything(id="b"), Texts(id="j")],
        [EdgeGroup.fan_in(["b", "c"], "j")],
    )
    found = routed(graph, (first, first + "1"), (other, other + "1"), (first, first + "2"))
    values = {"b": ["b1"], "c": ["c1"]}
    values[first].append(first + "2")
    assert told(found) == [(values["b"] + values["c"], ("b", "c"), ("j",))]


def test_a_second_lap_fills_the_join_anew() -> None:
    graph = graph_of([Anything(id="b"), Anything(id="c"), Texts(id="j")], [join("b", "c")])
    found = None
    for lap in range(3):
        found = routed(graph, ("b", f"b{lap}"), ("c", f"c{lap}"), before=found.buffers if found else None)
        assert told(found) == [([f"b{lap}", f"c{lap}"], ("b", "c"), ("j",))]
        assert found.buffers == {}


def test_full_joins_follow_all_messages_in_declared_order() -> None:
    graph = graph_of(
        [Anything(id="a"), Anything(id="b"), Texts(id="j"), Texts(id="k"), Text(id="t")],
        [
            EdgeGroup.fan_in(["a", "b"], "k"),
            EdgeGroup.fan_in(["b", "a"], "j"),
            EdgeGroup.single("b", "t"),
        ],
    )
    assert told(routed(graph, ("a", "x"), ("b", "y"))) == [
        ("y", ("b",), ("t",)),
        (["x", "y"], ("a", "b"), ("k",)),
        (["y", "x"], ("b", "a"), ("j",)),
    ]


def test_a_join_takes_only_what_fits_its_list() -> None:
    graph = graph_of(
        [Anything(id="b"), Anything(id="c"), Texts(id="j"), Number(id="n")],
        [join("b", "c"), EdgeGroup.single("b", "n")],
    )
    found = routed(graph, ("b", 1), ("c", "x"))
    assert told(found) == [(1, ("b",), ("n",))]
    assert waiting(found) == {"fan_in:b,c->j": {"c": ["x"]}}
    with pytest.raises(UndeliverableMessageError, match=r"'c' sent a float.*'j' accepts list"):
        routed(graph, ("c", 1.5))


class OneKind(Executor):
    """Takes a list of texts or a list of numbers, never a mixed one."""

    @handler
    async def on_texts(self, texts: list[str], ctx: WorkflowContext) -> None: ...

    @handler
    async def on_numbers(self, numbers: list[int], ctx: WorkflowContext) -> None: ...


def test_a_full_join_that_nobody_takes_as_a_whole_fails_in_the_superstep_that_fills_it() -> None:
    graph = graph_of([Anything(id="b"), Anything(id="c"), OneKind(id="j")], [join("b", "c")])
    assert told(routed(graph, ("b", 1), ("c", 2))) == [([1, 2], ("b", "c"), ("j",))]
    with pytest.raises(UndeliverableMessageError, match=r"\['b', 'c'\] sent a list of int, str.*'j'"):
        routed(graph, ("b", 1), ("c", "x"))


# Explicit targets.


def explicit_graph(**more: Any) -> Graph:
    return graph_of(
        of(Anything(id="b"), Number(id="c"), Anything(id="d"), Anything(id="e")),
        [
            EdgeGroup.single("a", "b"),
            EdgeGroup.fan_out("a", ["c", "d"]),
            EdgeGroup.single("e", "a", never),
        ],
        **more,
    )


@pytest.mark.parametrize("target", ["b", "c", "d"])
def test_an_explicit_target_alone_gets_it(target: str) -> None:
    assert told(routed(explicit_graph(), ("a", 1, target))) == [(1, ("a",), (target,))]


@pytest.mark.parametrize("undelivered", ["raise", "drop"])
@pytest.mark.parametrize("target", ["e", "a", "nobody"])
def test_an_explicit_target_without_an_edge_is_an_error(target: str, undelivered: str) -> None:
    graph = explicit_graph(undelivered=undelivered)
    with pytest.raises(UndeliverableMessageError) as refused:
        routed(graph, ("a", 1, target))
    assert f"'a' sent a int to '{target}'" in str(refused.value)
    assert "['b', 'c', 'd']" in str(refused.value)


def test_an_executor_without_edges_has_no_explicit_targets() -> None:
    with pytest.raises(UndeliverableMessageError, match=r"to 'a', but no edge leads there"):
        routed(graph_of(of()), ("a", 1, "a"))


def test_an_explicit_target_that_cannot_take_it_is_an_error_naming_it_alone() -> None:
    with pytest.raises(UndeliverableMessageError) as refused:
        routed(explicit_graph(), ("a", "x", "c"))
    assert "'a' sent a str" in str(refused.value)
    assert "'c' accepts int" in str(refused.value)
    assert "'b'" not in str(refused.value)


@pytest.mark.parametrize(
    "group",
    [
        EdgeGroup.single("a", "b", lambda value: False),
        switch(("c", lambda value: True), ("b", None)),
        selection(lambda value, ids: ["c"], "b", "c"),
    ],
    ids=["single", "switch", "selection"],
)
def test_a_condition_may_turn_an_explicit_target_away(group: EdgeGroup) -> None:
    graph = graph_of(of(Anything(id="b"), Anything(id="c")), [group])
    found = routed(graph, ("a", 1, "b"))
    assert told(found) == []
    assert found.ended == [Ended("a", "int", "every condition turned it away")]


def test_conditions_of_other_edges_are_not_asked_about_an_explicit_target() -> None:
    graph = graph_of(
        of(Anything(id="b"), Anything(id="c"), Anything(id="d")),
        [EdgeGroup.single("a", "b"), switch(("c", never), ("d", None))],
    )
    assert told(routed(graph, ("a", 1, "b"))) == [(1, ("a",), ("b",))]


def test_an_explicit_target_may_be_a_join() -> None:
    graph = graph_of(
        [Anything(id="b"), Anything(id="c"), Texts(id="j"), Anything(id="d")],
        [join("b", "c"), EdgeGroup.single("b", "d")],
    )
    found = routed(graph, ("b", "x", "j"), ("c", "y"))
    assert told(found) == [(["x", "y"], ("b", "c"), ("j",))]


# Messages that end.


def test_a_message_of_an_executor_without_edges_ends_there() -> None:
    found = routed(graph_of(of()), ("a", 1))
    assert (told(found), found.buffers) == ([], {})
    assert found.ended == [Ended("a", "int", "the sender has no outgoing edge")]


def test_a_type_nobody_accepts_is_an_error_naming_sender_type_and_targets() -> None:
    graph = graph_of(
        of(Text(id="b"), Texts(id="c")),
        [EdgeGroup.single("a", "b", never), EdgeGroup.single("a", "c")],
    )
    with pytest.raises(UndeliverableMessageError) as refused:
        routed(graph, ("a", 1.5))
    for word in ("'a'", "float", "'b' accepts str", "'c' accepts list[str]", "undelivered='drop'"):
        assert word in str(refused.value)


@pytest.mark.parametrize("target", [None, "b"])
def test_undelivered_drop_ends_it_with_a_word(target: str | None) -> None:
    graph = graph_of(
        of(Text(id="b"), Text(id="c")),
        [EdgeGroup.fan_out("a", ["b", "c"])],
        undelivered="drop",
    )
    found = routed(graph, ("a", 1, target), ("a", "x"))
    meant = ["b", "c"] if target is None else [target]
    assert found.ended == [Ended("a", "int", f"none of {meant} accepts it", undeliverable=True)]
    assert told(found) == [("x", ("a",), ("b", "c"))]


def test_undelivered_drop_drops_a_full_join_that_nobody_takes() -> None:
    graph = graph_of(
        [Anything(id="b"), Anything(id="c"), OneKind(id="j")], [join("b", "c")], undelivered="drop"
    )
    found = routed(graph, ("b", 1), ("c", "x"))
    assert (told(found), found.buffers) == ([], {})
    assert found.ended == [Ended("c", "list of int, str", "none of ['j'] accepts it", undeliverable=True)]


def test_who_is_turned_away_on_one_edge_and_unable_on_another_ends_without_an_error() -> None:
    graph = graph_of(
        of(Anything(id="b"), Text(id="c")),
        [EdgeGroup.single("a", "b", lambda value: False), EdgeGroup.single("a", "c")],
    )
    found = routed(graph, ("a", 1))
    assert found.ended == [Ended("a", "int", "every condition turned it away")]


# Order.


def test_deliveries_follow_the_order_of_senders_then_of_sending() -> None:
    graph = graph_of(
        of(Anything(id="b"), Anything(id="c")),
        [EdgeGroup.single("a", "c"), EdgeGroup.single("b", "c")],
    )
    found = routed(graph, ("a", 1), ("a", 2), ("b", 3))
    assert [one.value for one in found.deliveries] == [1, 2, 3]
    assert [one.sources for one in found.deliveries] == [("a",), ("a",), ("b",)]
