"""Edges and their groups: identities, names, and what each kind asks for."""

from __future__ import annotations

import dataclasses
import functools
import operator
from typing import Any

import pytest

from branchpoint.errors import DefinitionError
from branchpoint.graph import Edge, EdgeGroup, SwitchBranch, callable_name


def is_big(message: Any) -> bool:
    return bool(message > 10)


class Threshold:
    def __call__(self, message: Any) -> bool:
        return bool(message)

    def check(self, message: Any) -> bool:
        return bool(message)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (is_big, "is_big"),
        (lambda message: True, "<lambda>"),
        (functools.partial(is_big), "is_big"),
        (functools.partial(functools.partial(is_big)), "is_big"),
        (functools.partial(Threshold()), "Threshold"),
        (Threshold(), "Threshold"),
        (Threshold().check, "check"),
        (operator.itemgetter("ready"), "itemgetter"),
        (bool, "bool"),
        (len, "len"),
    ],
)
def test_a_function_goes_by_a_name_without_address(function: Any, name: str) -> None:
    assert callable_name(function) == name


def test_an_edge_takes_the_name_of_its_condition() -> None:
    assert Edge("a", "b").condition_name is None
    assert Edge("a", "b", is_big).condition_name == "is_big"
    assert Edge("a", "b", is_big, "large").condition_name == "large"


def test_edges_compare_by_ends_and_condition_name() -> None:
    assert Edge("a", "b") == Edge("a", "b")
    assert Edge("a", "b") != Edge("b", "a")
    assert Edge("a", "b", lambda message: True) == Edge("a", "b", lambda message: False)
    assert Edge("a", "b", is_big) != Edge("a", "b")
    assert len({Edge("a", "b"), Edge("a", "b")}) == 1


@pytest.mark.parametrize("ends", [("", "b"), ("a", ""), (None, "b"), ("a", 1)])
def test_an_edge_needs_two_ids(ends: Any) -> None:
    with pytest.raises(DefinitionError, match="needs the id of an executor"):
        Edge(*ends)


def test_a_condition_must_be_a_function() -> None:
    with pytest.raises(DefinitionError, match=r"edge 'a->b' must be a function of the message, got str"):
        Edge("a", "b", "is_big")  # type: ignore[arg-type]


async def test_an_edge_asks_plain_and_async_conditions() -> None:
    async def later(message: int) -> bool:
        return message > 1

    def broken(message: int) -> bool:
        raise KeyError("kind")

    assert await Edge("a", "b").should_route(0) is True
    assert await Edge("a", "b", is_big).should_route(11) is True
    assert await Edge("a", "b", is_big).should_route(9) is False
    assert await Edge("a", "b", later).should_route(2) is True
    assert await Edge("a", "b", later).should_route(1) is False
    with pytest.raises(KeyError):
        await Edge("a", "b", broken).should_route(1)


def test_a_group_cannot_be_changed() -> None:
    group = EdgeGroup.single("a", "b")
    with pytest.raises(dataclasses.FrozenInstanceError):
        group.kind = "fan_out"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        group.edges[0].target_id = "c"  # type: ignore[misc]


def test_a_groups_id_is_its_kind_and_sorted_ends() -> None:
    branches = [SwitchBranch("z", is_big), SwitchBranch("y")]
    assert EdgeGroup.single("a", "b", is_big).id == "single:a->b"
    assert EdgeGroup.fan_out("a", ["c", "b"]).id == "fan_out:a->b,c"
    assert EdgeGroup.fan_in(["c", "b"], "j").id == "fan_in:b,c->j"
    assert EdgeGroup.switch_case("a", branches).id == "switch_case:a->y,z"
    assert EdgeGroup.multi_selection("a", ["c", "b"], lambda m, ids: ids).id == "multi_selection:a->b,c"


def test_ends_keep_their_declared_order() -> None:
    join = EdgeGroup.fan_in(["c", "a", "b"], "j")
    assert join.source_ids == ("c", "a", "b")
    assert join.target_ids == ("j",)
    assert [edge.id for edge in join.edges] == ["c->j", "a->j", "b->j"]


def test_ids_that_hold_separators_do_not_collide() -> None:
    groups = [
        EdgeGroup.fan_in(["a,b", "c"], "j"),
        EdgeGroup.fan_in(["a", "b,c"], "j"),
        EdgeGroup.fan_in(["a", "b", "c"], "j"),
        EdgeGroup.fan_in(["a%2Cb", "c"], "j"),
        EdgeGroup.single("a->b", "c"),
        EdgeGroup.single("a", "b->c"),
    ]
    assert len({group.id for group in groups}) == len(groups)


def test_a_switch_has_one_edge_per_target_and_keeps_its_branches() -> None:
    group = EdgeGroup.switch_case(
        "a", [SwitchBranch("b", is_big), SwitchBranch("c", any), SwitchBranch("b", bool), SwitchBranch("c")]
    )
    assert [edge.id for edge in group.edges] == ["a->b", "a->c"]
    assert [(branch.condition_name, branch.target_id) for branch in group.branches] == [
        ("is_big", "b"),
        ("any", "c"),
        ("bool", "b"),
        (None, "c"),
    ]
    assert group.branches[-1].is_default
    assert not group.branches[0].is_default


@pytest.mark.parametrize(
    ("branches", "message"),
    [
        ([], "at least two branches"),
        ([SwitchBranch("b")], "at least two branches"),
        ([SwitchBranch("b", bool), SwitchBranch("c", any)], "exactly one Default, got 0"),
        ([SwitchBranch("b"), SwitchBranch("c")], "exactly one Default, got 2"),
        ([SwitchBranch("b"), SwitchBranch("c", any)], r"before the cases to \['c'\]"),
    ],
)
def test_a_switch_ends_with_its_only_default(branches: list[SwitchBranch], message: str) -> None:
    with pytest.raises(DefinitionError, match=message) as caught:
        EdgeGroup.switch_case("a", branches)
    assert "from 'a'" in str(caught.value)


@pytest.mark.parametrize("ends", [[], ["b"]])
def test_groups_need_two_ends(ends: list[str]) -> None:
    with pytest.raises(DefinitionError, match=r"fan-out from 'a' needs at least two targets"):
        EdgeGroup.fan_out("a", ends)
    with pytest.raises(DefinitionError, match=r"fan-in to 'a' needs at least two sources"):
        EdgeGroup.fan_in(ends, "a")
    with pytest.raises(DefinitionError, match=r"multi-selection from 'a' needs at least two targets"):
        EdgeGroup.multi_selection("a", ends, lambda message, ids: ids)


def test_a_selection_must_be_a_function() -> None:
    with pytest.raises(DefinitionError, match="as selection_func, got NoneType"):
        EdgeGroup.multi_selection("a", ["b", "c"], None)  # type: ignore[arg-type]


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(DefinitionError, match="no edge group of kind 'ring'"):
        EdgeGroup("ring", (Edge("a", "b"),))  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="at least one edge"):
        EdgeGroup("single", ())


def test_groups_are_shown_as_plain_json() -> None:
    assert EdgeGroup.single("a", "b", is_big).to_dict() == {
        "id": "single:a->b",
        "kind": "single",
        "edges": [{"source_id": "a", "target_id": "b", "condition_name": "is_big"}],
    }
    assert EdgeGroup.fan_in(["a", "b"], "j", keep=True).to_dict()["keep"] is True
    switch = EdgeGroup.switch_case("a", [SwitchBranch("b", is_big), SwitchBranch("c")])
    assert switch.to_dict()["cases"] == [
        {"type": "Case", "target_id": "b", "condition_name": "is_big"},
        {"type": "Default", "target_id": "c"},
    ]
    picked = EdgeGroup.multi_selection("a", ["b", "c"], lambda message, ids: ids)
    assert picked.to_dict()["selection_func_name"] == "<lambda>"
    assert switch.edge_to("c") == Edge("a", "c")
    assert switch.edge_to("nobody") is None
