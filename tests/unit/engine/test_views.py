"""Read-only views of containers: they read like the container and reach nothing that is stored."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from branchpoint.codec import encode, fingerprint
from branchpoint.engine._views import ListView, MappingView, view
from branchpoint.errors import UnsupportedValueError


@pytest.mark.parametrize("value", [None, 1, 1.5, "text", b"bytes", True])
def test_what_cannot_change_is_given_as_it_is(value: Any) -> None:
    assert view(value) is value


@pytest.mark.parametrize("made", [list, tuple])
def test_a_list_view_reads_like_a_sequence(made: Callable[[Any], Any]) -> None:
    stored = made([1, "two", [3], {"four": 4}])
    seen = view(stored)
    assert isinstance(seen, Sequence)
    assert len(seen) == 4
    assert seen[0] == 1
    assert seen[-3] == "two"
    assert list(seen)[:2] == [1, "two"]
    assert "two" in seen
    assert [3] in seen
    assert "three" not in seen
    assert seen.index("two") == 1
    assert seen.count(1) == 1
    assert list(reversed(seen))[3] == 1
    assert seen == stored
    assert seen == view(stored)
    assert stored == seen
    assert seen != made([1])
    assert repr(seen) == "ListView([1, 'two', [3], {'four': 4}])"
    with pytest.raises(IndexError):
        seen[4]


def test_a_slice_of_a_view_is_a_view() -> None:
    stored = [[n] for n in range(5)]
    part = view(stored)[1:4:2]
    assert isinstance(part, ListView)
    assert part == [[1], [3]]
    assert isinstance(part[0], ListView)


def test_a_mapping_view_reads_like_a_mapping() -> None:
    stored = {"b": 1, "a": [2], 3: {"c": 4}}
    seen = view(stored)
    assert isinstance(seen, Mapping)
    assert len(seen) == 3
    assert list(seen) == ["b", "a", 3]
    assert seen["b"] == 1
    assert seen.get("nope", 5) == 5
    assert 3 in seen
    assert dict(seen.items())["a"] == [2]
    assert seen == stored
    assert seen == view(stored)
    assert seen != {"b": 1}
    assert repr(seen) == "MappingView({'b': 1, 'a': [2], 3: {'c': 4}})"
    with pytest.raises(KeyError):
        seen["nope"]


CHANGES: list[Callable[[Any], Any]] = [
    lambda seen: seen["list"].append(9),
    lambda seen: seen["list"].sort(),
    lambda seen: seen["list"].__setitem__(0, 9),
    lambda seen: seen["list"].__delitem__(0),
    lambda seen: seen["list"].__iadd__([9]),
    lambda seen: seen["dict"].update(x=9),
    lambda seen: seen["dict"].pop("k"),
    lambda seen: seen["dict"].__setitem__("k", 9),
    lambda seen: seen["dict"]["k"].append(9),
    lambda seen: seen["pair"][0].append(9),
    lambda seen: seen.clear(),
    lambda seen: next(iter(seen.values())).append(9),
    lambda seen: seen["list"][0:1].append(9),
    lambda seen: setattr(seen, "extra", 9),
    lambda seen: setattr(seen["list"], "extra", 9),
    lambda seen: hash(seen),
    lambda seen: hash(seen["list"]),
]


@pytest.mark.parametrize("change", CHANGES)
def test_no_change_is_possible_at_any_depth(change: Callable[[Any], Any]) -> None:
    stored = {"list": [3, 1, 2], "dict": {"k": [1]}, "pair": ([1], 2)}
    before = fingerprint(stored)
    with pytest.raises((AttributeError, TypeError)):
        change(view(stored))
    assert fingerprint(stored) == before


@pytest.mark.parametrize(
    "value", [{1, 2}, bytearray(b"ab"), OrderedDict(a=[1]), type("L", (list,), {})([1])], ids=repr
)
def test_what_has_no_view_is_copied(value: Any) -> None:
    stored = [value]
    seen = view(stored)[0]
    assert seen == value
    assert seen is not value
    assert type(seen) is type(value)


@dataclass
class Item:
    name: str
    tags: list[str]


def test_a_record_in_a_view_is_a_copy_at_each_look() -> None:
    """It is no container, so it cannot be a view; what is stored stays out of reach all the same."""
    stored = [Item("a", ["x"]), {"deep": Item("b", [])}]
    before = fingerprint(stored)
    seen = view(stored)
    seen[0].name = "changed"
    seen[0].tags.append("changed")
    seen[1]["deep"].tags.append("changed")
    for item in seen[:1]:
        item.tags.append("changed")
    assert fingerprint(stored) == before
    assert seen[0] == Item("a", ["x"])


@pytest.mark.parametrize("value", [[1], (1,), {"k": [1]}], ids=repr)
def test_a_view_cannot_be_kept_and_says_what_can(value: Any) -> None:
    for kept in (view(value), [{"in": view(value)}]):
        with pytest.raises(
            UnsupportedValueError, match=r"without copy=False, or keep copy\.deepcopy"
        ) as caught:
            encode(kept, format="json", path="executor_states.a.kept")
        assert "executor_states.a.kept" in str(caught.value)
        assert "register" not in str(caught.value)
        encode(copy.deepcopy(kept), format="json")


def test_a_view_follows_nothing_but_what_is_stored() -> None:
    assert view([]) == []
    assert view(()) == ()
    assert view({}) == {}
    assert not view([])
    assert view([1]) != view({0: 1})
    assert isinstance(view({}), MappingView)
