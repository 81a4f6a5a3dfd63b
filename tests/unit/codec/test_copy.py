from __future__ import annotations

import collections
import sys
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from branchpoint import errors
from branchpoint.codec import copy_value, encode, fingerprint, isolated_registry, register_state_type
from tests.unit.codec import value_kinds as kinds


@pytest.fixture(autouse=True)
def registry() -> Any:
    with kinds.registered():
        yield


@pytest.mark.parametrize("value", kinds.IMMUTABLE, ids=lambda value: type(value).__name__)
def test_what_is_immutable_all_the_way_down_is_not_copied(value: Any) -> None:
    assert copy_value(value) is value


@pytest.mark.parametrize("place", range(len(kinds.mutable_values())))
def test_a_copy_is_another_object_that_shows_no_difference(place: int) -> None:
    value = kinds.mutable_values()[place]
    copied = copy_value(value)
    assert copied is not value
    assert type(copied) is type(value)
    assert fingerprint(copied) == fingerprint(value)


def test_immutable_parts_are_shared_and_mutable_ones_are_not() -> None:
    part = (1, ("a",))
    copied = copy_value([part, [part], {"k": part, "l": []}])
    assert copied[0] is part and copied[1][0] is part and copied[2]["k"] is part


def test_the_copy_shares_nothing_that_can_change() -> None:
    value = {
        "list": [1],
        "set": {1},
        "tuple": ([1],),
        "order": kinds.Order("o", ["a"]),
        ("k",): bytearray(b"x"),
    }
    before = fingerprint(value)
    copied = copy_value(value)
    copied["list"].append(2)
    copied["set"].add(2)
    copied["tuple"][0].append(2)
    copied["order"].lines.append("b")
    copied[("k",)].append(1)
    assert fingerprint(value) == before


def test_exact_kinds_of_containers_keep_their_settings() -> None:
    assert copy_value(collections.deque([[1]], maxlen=3)).maxlen == 3
    assert copy_value(collections.defaultdict(list, a=[1])).default_factory is list
    ordered = collections.OrderedDict(a=[1], b=[2])
    ordered.move_to_end("a")
    assert list(copy_value(ordered)) == ["b", "a"]


def test_a_mutable_object_as_a_key_is_copied() -> None:
    key = kinds.Plain(a=[1])
    copied = copy_value({"first": 1, key: 2, "last": 3})
    first, other, last = copied
    assert (first, last) == ("first", "last") and other is not key
    assert other.a == [1] and other.a is not key.a


def test_no_constructor_runs_and_derived_values_stay_behind() -> None:
    loud = kinds.Loud("a", 2)
    assert loud.derived == ["a"]
    made = kinds.Loud.made
    copied = copy_value(loud)
    assert kinds.Loud.made == made
    assert copied.seen == ["aa"] and copied.seen is not loud.seen
    assert "derived" not in vars(copied) and copied.derived is not loud.derived


def test_private_attributes_and_extras_of_a_model_are_copied() -> None:
    model = kinds.Model(name="m", items=[1])
    model._private.append(3)
    copied = copy_value(model)
    copied._private.append(4)
    copied.items.append(2)
    copied.model_fields_set.add("other")
    assert model._private == [3] and model.items == [1] and model.model_fields_set == {"name", "items"}


def test_attributes_beside_the_fields_are_copied() -> None:
    order = kinds.Order("o")
    order.note = ["x"]  # type: ignore[attr-defined]
    copied = copy_value(order)
    assert copied.note == ["x"] and copied.note is not order.note  # type: ignore[attr-defined]


def test_a_slot_that_was_never_set_stays_unset() -> None:
    slotted = object.__new__(kinds.Slotted)
    slotted.name = "s"
    copied = copy_value(slotted)
    assert copied.name == "s" and not hasattr(copied, "items")


def test_a_plain_subclass_of_a_frozen_dataclass_is_not_taken_for_frozen() -> None:
    class Labelled(kinds.Price):
        pass

    value = Labelled(1)
    value.label = "a"  # type: ignore[attr-defined]
    assert copy_value(value) is not value


def test_the_copy_function_of_the_registration_is_used() -> None:
    @dataclass
    class Own:
        items: list[int]

    register_state_type(Own, type_id="own", copy=lambda own: Own([*own.items, 0]))
    assert copy_value([Own([1])])[0].items == [1, 0]


def test_an_immutable_registration_is_believed() -> None:
    class Token:
        pass

    register_state_type(
        Token, type_id="token", encoder=lambda t: None, decoder=lambda p: Token(), immutable=True
    )
    token = Token()
    assert copy_value(token) is token
    value = [token]
    assert copy_value(value)[0] is token


def test_a_registration_made_later_counts() -> None:
    value = kinds.Plain(a=threading.Lock())
    with pytest.raises(errors.UnsupportedValueError):
        copy_value(value)
    with isolated_registry():
        register_state_type(
            kinds.Plain,
            type_id="plain",
            encoder=lambda p: {},
            decoder=lambda p: kinds.Plain(),
            copy=lambda p: p,
        )
        assert copy_value(value) is value
    with pytest.raises(errors.UnsupportedValueError):
        copy_value(value)


def test_a_registered_class_without_fields_is_copied_by_its_codec() -> None:
    counter = kinds.Counter({"a": 1})
    copied = copy_value([counter])[0]
    assert copied.counts == {"a": 1} and copied.counts is not counter.counts


def test_unregistered_objects_are_copied_deeply_with_their_cycles() -> None:
    plain = kinds.Plain(items=[1])
    plain.me = plain
    copied = copy_value([plain])[0]
    assert copied.me is copied and copied.items == [1] and copied.items is not plain.items


def test_what_cannot_be_copied_is_named_with_its_path() -> None:
    value = {"cache": [0, 0, 0, kinds.Plain(inner={"a b": (kinds.Plain(lock=threading.Lock()),)})]}
    with pytest.raises(errors.UnsupportedValueError, match=r"_thread\.lock cannot be copied") as caught:
        copy_value(value, path="executor_states.triage")
    assert "executor_states.triage.cache[3].inner['a b'][0].lock:" in str(caught.value)
    assert caught.value.__cause__ is not None


def test_a_generator_is_refused_with_its_path() -> None:
    with pytest.raises(errors.UnsupportedValueError, match=r"^messages\[1\]\.k: .*generator"):
        copy_value([0, {"k": (i for i in [1])}], path="messages")


def test_a_copy_function_that_fails_is_told_with_its_path() -> None:
    def fail(value: Any) -> Any:
        raise KeyError("boom")

    register_state_type(kinds.Slotted, type_id="test.slotted", copy=fail)
    with pytest.raises(errors.UnsupportedValueError, match=r"^a\[0\]: .*Slotted.*boom"):
        copy_value([kinds.Slotted("a", [])], path="a")


def test_one_object_used_twice_becomes_two_equal_copies() -> None:
    shared = [1]
    first, second = copy_value([shared, shared])
    assert first == second == [1] and first is not second


def _in_itself(kind: str) -> Any:
    if kind == "list":
        value: Any = [1, {"a": []}]
        value[1]["a"].append(value)
    elif kind == "dict":
        value = {}
        value["self"] = (value,)
    elif kind == "deque":
        value = collections.deque()
        value.append(value)
    else:
        value = kinds.Order("o")
        value.lines.append(value)
    return value


@pytest.mark.parametrize("kind", ["list", "dict", "deque", "registered"])
def test_a_cycle_is_refused_with_the_path_where_it_closes(kind: str) -> None:
    with pytest.raises(
        errors.UnsupportedValueError, match=r"^v\.x[\[.].*contains itself \(it is v\.x again\)"
    ):
        copy_value({"x": _in_itself(kind)}, path="v")


def _nested(levels: int, kind: type = list) -> Any:
    value: Any = "leaf"
    for _ in range(levels):
        value = kind([value]) if kind is not dict else {"k": value}
    return value


@pytest.mark.parametrize("kind", [list, dict, tuple, set, collections.deque])
def test_the_bound_of_depth_is_256(kind: Any) -> None:
    if kind is set:
        kind = frozenset
    copy_value([_nested(255, kind)])
    with pytest.raises(errors.UnsupportedValueError, match="deeper than 256"):
        copy_value([[_nested(255, kind)]])


def test_records_may_nest_as_deep_as_containers() -> None:
    value: Any = 0
    for _ in range(128):
        value = kinds.Order("o", [value])
    assert fingerprint(copy_value(value)) == fingerprint(value)


def _at_depth(frames: int, function: Any) -> Any:
    return function() if frames == 0 else _at_depth(frames - 1, function)


def test_the_depth_of_the_callers_stack_does_not_matter() -> None:
    value = [_nested(255)]
    left = sys.getrecursionlimit() - 250
    assert _at_depth(left, lambda: copy_value(value)) == value
    assert _at_depth(left, lambda: fingerprint(value)) == fingerprint(value)


def test_a_chain_that_is_too_deep_for_deepcopy_is_refused_not_a_crash() -> None:
    chain: Any = None
    for _ in range(5000):
        chain = kinds.Plain(next=chain)
    with pytest.raises(errors.UnsupportedValueError, match="deeper than"):
        copy_value(chain)


def test_what_is_encoded_already_is_shared() -> None:
    encoded, _ = encode([1, 2], format="json")
    assert copy_value({"a": encoded})["a"] is encoded
