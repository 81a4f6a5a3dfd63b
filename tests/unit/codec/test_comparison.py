"""When two payloads are the same: whatever the order of keys in a dict, and exactly otherwise."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pytest

from branchpoint.codec import comparison_digest, digest, encode, isolated_registry, register_state_type
from branchpoint.errors import UnregisteredTypeError, UnsupportedValueError


@dataclass
class Order:
    items: Any
    more: Any = None


class Parcel(msgspec.Struct):
    items: Any


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass(frozen=True)
class Key:
    name: str
    at: int = field(default=0)


class Custom:
    def __init__(self, held: Any) -> None:
        self.held = held


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    with isolated_registry():
        for cls in (Order, Parcel, Pair, Key):
            register_state_type(cls, type_id=f"test.{cls.__name__.lower()}")
        register_state_type(
            Custom,
            type_id="test.custom",
            encoder=lambda one: {"held": one.held},
            decoder=lambda p: Custom(**p),
        )
        yield


def told(value: Any) -> str:
    return comparison_digest("message", value)


ONE, OTHER = {"a": 1, "b": 2}, {"b": 2, "a": 1}
LONG, LONG_BACK = {f"k{n}": "x" * 50 for n in range(200)}, {f"k{n}": "x" * 50 for n in range(199, -1, -1)}
NUMBERS, NUMBERS_BACK = dict.fromkeys(range(300), "x" * 20), dict.fromkeys(range(299, -1, -1), "x" * 20)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ONE, OTHER),
        ({1: 2, 3: 4}, {3: 4, 1: 2}),
        ({9: "a", 10: "b", "x": ONE}, {"x": OTHER, 10: "b", 9: "a"}),
        ({(1, 2): ONE, Key("k"): 1, None: 2}, {None: 2, Key("k"): 1, (1, 2): OTHER}),
        ({"$a": ONE, "b": 2}, {"b": 2, "$a": OTHER}),
        (Counter(ONE), Counter(OTHER)),
        (defaultdict(int, ONE), defaultdict(int, OTHER)),
        (defaultdict(list, {1: [ONE], 2: []}), defaultdict(list, {2: [], 1: [OTHER]})),
        (Order(ONE), Order(OTHER)),
        (Order([Order(Counter(ONE))], {2: 1, 1: 2}), Order([Order(Counter(OTHER))], {1: 2, 2: 1})),
        (Parcel(ONE), Parcel(OTHER)),
        (Pair(ONE, 1), Pair(OTHER, 1)),
        (Custom(ONE), Custom(OTHER)),
        ((ONE, [ONE]), (OTHER, [OTHER])),
        (deque([ONE], 3), deque([OTHER], 3)),
        (OrderedDict(x=ONE), OrderedDict(x=OTHER)),
        (LONG, LONG_BACK),
        (NUMBERS, NUMBERS_BACK),
        ([Order(LONG)] * 100, [Order(LONG_BACK)] * 100),
        ({"a": {"b": {"c": NUMBERS}}}, {"a": {"b": {"c": NUMBERS_BACK}}}),
    ],
)
def test_the_order_in_which_a_dict_was_filled_does_not_count(one: Any, other: Any) -> None:
    assert told(one) == told(other)
    assert told({"in": [one]}) == told({"in": [other]})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (OrderedDict(ONE), OrderedDict(OTHER)),
        (Order(OrderedDict(ONE)), Order(OrderedDict(OTHER))),
        (deque([1, 2]), deque([2, 1])),
        (deque([1], 3), deque([1], 4)),
        ([1, 2], [2, 1]),
        ([1], (1,)),
        ({1: 2}, {True: 2}),
        ({1: 2}, {1: 2.0}),
        ({1: 2}, {"1": 2}),
        (Counter(a=1), Counter(a=2)),
        (Counter(ONE), ONE),
        (OrderedDict(ONE), ONE),
        (defaultdict(int, ONE), defaultdict(None, ONE)),
        (Order(1, 2), Order(2, 1)),
        (Order(ONE), Parcel(ONE)),
    ],
)
def test_everything_else_counts(one: Any, other: Any) -> None:
    assert told(one) != told(other)


def test_the_label_counts() -> None:
    assert comparison_digest("message", {"a": 1}) != comparison_digest("responses", {"a": 1})


@pytest.mark.parametrize(
    "value",
    [None, 1, "x" * 500, ONE, [ONE] * 300, (1, {"a": (2,)}), Order(ONE), Order("b" * 2000, {"c": 1}), Custom([ONE]),
     Parcel({"a": Counter(ONE)}), {1: 2, 3: 4}, deque([OrderedDict(OTHER)]), {1.5, 2.5}, {"list": [*range(3000)]}],
)  # fmt: skip
def test_a_value_whose_dicts_are_in_order_has_the_digest_of_its_encoding(value: Any) -> None:
    """So digests that are stored stay good."""
    encoded, _ = encode(["message", value], format="json")
    assert told(value) == digest(encoded.data)


def test_what_cannot_be_kept_is_refused_with_its_own_path() -> None:
    loop: list[Any] = []
    loop.append(loop)
    counted = Counter(a=1)
    counted.mine = 1  # type: ignore[attr-defined]
    for value, path, error in (
        ({"b": 1, "a": [threading.Lock()]}, "p.a[0]", UnregisteredTypeError),
        ({1: 2, 3: {4: threading.Lock()}}, "p[3][4]", UnregisteredTypeError),
        ({1: 2, threading.Lock(): 3}, "p[<_thread.lock>]", UnregisteredTypeError),
        (threading.Lock(), "p", UnregisteredTypeError),
        (Order({"x": "\ud800"}), "p.items.x", UnsupportedValueError),
        ({1: "\ud800"}, "p[1]", UnsupportedValueError),
        ([loop], "p[0][0]", UnsupportedValueError),
        ({"c": counted}, "p.c", UnsupportedValueError),
    ):
        with pytest.raises(error) as caught:
            comparison_digest("message", value, path="p")
        assert f"{path} " in str(caught.value) or f"{path}:" in str(caught.value), str(caught.value)


def test_a_value_as_deep_as_can_be_kept_can_be_compared() -> None:
    value: Any = []
    while True:
        try:
            encode([value], format="json")
        except UnsupportedValueError:
            break
        value = [value]
    told(value)
    with pytest.raises(UnsupportedValueError):
        told([value])
