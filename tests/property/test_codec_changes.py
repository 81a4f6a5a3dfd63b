"""A change is always found, and a digest depends on the value alone, whatever came before."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from branchpoint.codec import Format, Memo, decode, encode, new_parts
from branchpoint.testing import strategies

FORMATS: tuple[Format, ...] = ("json", "msgpack")


@pytest.fixture(autouse=True, scope="module")
def registry() -> Iterator[None]:
    with strategies.registered_types():
        yield


def message(number: int, size: int = 300) -> dict[str, Any]:
    return {"role": "user" if number % 2 else "assistant", "text": f"{number} " + "abcde " * (size // 6)}


def moved(*keys: str, to_end: str) -> collections.OrderedDict[str, int]:
    value = collections.OrderedDict(zip(keys, range(len(keys)), strict=True))
    value.move_to_end(to_end)
    return value


# Equal to Python, different to a reader; each must be told from its neighbours.
LOOKALIKES: list[Any] = [
    1, 1.0, True, 0, 0.0, -0.0, False, float("nan"), "1", b"1", bytearray(b"1"), None, (1,), [1], (1.0,), [True],
    {"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1.0, "b": 2}, {1: 2}, {1.0: 2}, {True: 2}, {"1": 2}, {1}, frozenset([1]),
    strategies.Level.LOW, strategies.Mode.FAST, strategies.Name.LEFT, "left", strategies.Pair(1, 2), (1, 2),
    strategies.Point(x=1), strategies.Point(x=1.0), strategies.Item("1", 1), strategies.Item("1", True),
    moved("a", "b", "c", to_end="c"), moved("a", "b", "c", to_end="a"), moved("a", "b", "c", to_end="b"),
]  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("place", [0, 30, 299])
@pytest.mark.parametrize("shape", ["list", "dict", "pairs", "nested", "record", "records", "deep list"])
def test_every_lookalike_is_told_from_every_other_in_place(format: Format, place: int, shape: str) -> None:
    items: list[Any] = [message(number, 40) for number in range(300)]
    holder, target, key = _holder(shape, items, place)
    memo: Memo | None = None
    for value in [*LOOKALIKES, *reversed(LOOKALIKES)]:
        target[key] = value
        encoded, memo = encode(holder, format=format, memo=memo)
        assert encoded.data == encode(holder, format=format)[0].data
        found = decode(encoded.data, new_parts(encoded, ()), format=format)
        assert strategies.same(found, holder)


class _Field:
    """A field of a record, set like an item."""

    def __init__(self, record: Any) -> None:
        self.record = record

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self.record, name, value)


def _holder(shape: str, items: list[Any], place: int) -> tuple[Any, Any, Any]:
    if shape == "list":
        return items, items, place
    if shape == "dict":
        named = {f"k{number}": item for number, item in enumerate(items)}
        return named, named, f"k{place}"
    if shape == "pairs":
        numbered = dict(enumerate(items))
        return numbered, numbered, place
    if shape == "nested":
        return {"history": items, "n": 1}, items, place
    if shape == "record":
        return strategies.Order(1, items), items, place
    if shape == "records":
        records = [strategies.Item(f"s{number}", number) for number in range(300)]
        return records, _Field(records[place]), "data"
    items[place] = [1, {"x": [2]}]
    return items, items[place][1]["x"], 0


class _Sub(list[Any]):
    """Not its base."""


@pytest.mark.parametrize("format", FORMATS)
def test_a_subclass_put_in_the_place_of_its_base_is_refused_although_it_is_equal(format: Format) -> None:
    items: list[Any] = [[number] for number in range(2000)]
    _, memo = encode(items, format=format)
    items[1000] = _Sub([1000])
    with pytest.raises(Exception, match=r"\[1000\].*not registered"):
        encode(items, format=format, memo=memo)


class Edits(RuleBasedStateMachine):
    """One structure is changed anywhere, and each encoding with a memo is compared with a fresh one."""

    def __init__(self) -> None:
        super().__init__()
        self.memos: dict[Format, Memo | None] = {"json": None, "msgpack": None}
        self.count = 0
        self.items: list[Any] = []
        self.named: dict[Any, Any] = {}
        self.ordered: collections.OrderedDict[Any, Any] = collections.OrderedDict()
        self.value: Any = None

    @initialize(size=st.sampled_from([0, 5, 40, 200, 700]), wrap=st.sampled_from(["list", "dict", "record"]))
    def start(self, size: int, wrap: str) -> None:
        self.items = [self._fresh() for _ in range(size)]
        self.named = {f"k{number}": number for number in range(size)}
        self.ordered = collections.OrderedDict(self.named)
        both: dict[str, Any] = {"history": self.items, "named": self.named, "ordered": self.ordered, "n": 0}
        all_three = [self.items, self.named, self.ordered]
        self.value = {"list": all_three, "dict": both, "record": strategies.Order(1, [both])}[wrap]

    def _fresh(self) -> Any:
        self.count += 1
        if self.count % 11 == 0:
            return strategies.Item(f"s{self.count}", self.count)
        return message(self.count, 40) if self.count % 3 else self.count

    @rule(count=st.sampled_from([1, 1, 2, 70]))
    def append(self, count: int) -> None:
        self.items.extend(self._fresh() for _ in range(count))

    @rule(data=st.data())
    def insert(self, data: st.DataObject) -> None:
        self.items.insert(data.draw(st.integers(0, len(self.items))), self._fresh())

    @rule(data=st.data(), count=st.sampled_from([1, 3, 100]))
    def delete(self, data: st.DataObject, count: int) -> None:
        place = data.draw(st.integers(0, len(self.items)))
        del self.items[place : place + count]

    @rule(data=st.data(), value=strategies.values(3))
    def replace(self, data: st.DataObject, value: Any) -> None:
        if self.items:
            self.items[data.draw(st.integers(0, len(self.items) - 1))] = value

    @rule(data=st.data(), value=st.sampled_from([1, 1.0, True, "1", -0.0, 0.0]))
    def change_inside(self, data: st.DataObject, value: Any) -> None:
        inside = [item for item in self.items if type(item) in (dict, list, strategies.Item)]
        if inside:
            item = inside[data.draw(st.integers(0, len(inside) - 1))]
            if type(item) is dict:
                item["extra"] = value
            elif type(item) is list:
                item.append(value)
            else:
                item.data = value

    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        if len(self.items) > 1:
            item = self.items.pop(data.draw(st.integers(0, len(self.items) - 1)))
            self.items.insert(data.draw(st.integers(0, len(self.items))), item)

    @rule(key=st.integers(0, 800), value=strategies.PLAIN_ATOMS)
    def set_key(self, key: int, value: Any) -> None:
        self.named[f"k{key}"] = value

    @rule(key=st.integers(0, 800))
    def drop_key(self, key: int) -> None:
        self.named.pop(f"k{key}", None)

    @rule(key=st.sampled_from(["$p", 7, (1, 2)]))
    def irregular_key(self, key: Any) -> None:
        if key in self.named:
            del self.named[key]
        else:
            self.named[key] = 1

    @rule()
    def reorder_keys(self) -> None:
        if self.named:
            first = next(iter(self.named))
            self.named[first] = self.named.pop(first)

    @rule(data=st.data(), last=st.booleans())
    def move_a_key_to_the_end(self, data: st.DataObject, last: bool) -> None:
        if self.ordered:
            self.ordered.move_to_end(data.draw(st.sampled_from(list(self.ordered))), last=last)

    @rule()
    def forget(self) -> None:
        self.memos = {"json": None, "msgpack": None}

    @invariant()
    def bytes_depend_on_the_value_alone(self) -> None:
        for format in FORMATS:
            encoded, self.memos[format] = encode(self.value, format=format, memo=self.memos[format])
            fresh, _ = encode(self.value, format=format)
            assert encoded.data == fresh.data
            assert new_parts(encoded, ()) == new_parts(fresh, ())
            found = decode(encoded.data, new_parts(encoded, ()), format=format)
            assert strategies.same(found, self.value)


Edits.TestCase.settings = settings(max_examples=25, stateful_step_count=12)
TestEdits = Edits.TestCase


@given(st.lists(strategies.plain_values(6), max_size=30), st.randoms(use_true_random=False))
def test_two_histories_of_one_value_give_one_digest(target: list[Any], random: Any) -> None:
    padded = [message(number, 100) for number in range(100)] + target
    for format in FORMATS:
        expected = encode(padded, format=format)[0].data
        grown: list[Any] = []
        memo: Memo | None = None
        for item in padded:  # appended one by one, encoded now and then
            grown.append(item)
            if random.random() < 0.2:
                _, memo = encode(grown, format=format, memo=memo)
        assert encode(grown, format=format, memo=memo)[0].data == expected
        shuffled = list(padded)
        extra = [message(1000 + number) for number in range(20)]
        for item in extra:  # inserted and taken out again
            shuffled.insert(random.randrange(len(shuffled) + 1), item)
        _, memo = encode(shuffled, format=format, memo=memo)
        for item in extra:
            shuffled = [one for one in shuffled if one is not item]
            _, memo = encode(shuffled, format=format, memo=memo)
        assert encode(shuffled, format=format, memo=memo)[0].data == expected
