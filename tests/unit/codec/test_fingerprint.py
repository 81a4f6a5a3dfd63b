from __future__ import annotations

import array
import collections
import copy
import datetime
import decimal
import functools
import pathlib
import threading
import types
import zoneinfo
from typing import Any

import pytest

from branchpoint.codec import copy_value, fingerprint, register_state_type
from tests.unit.codec import value_kinds as kinds


@pytest.fixture(autouse=True)
def registry() -> Any:
    with kinds.registered():
        yield


class _List(list[Any]):
    pass


class _Str(str):
    pass


class _Int(int):
    pass


class _Float(float):
    pass


class _Bytes(bytes):
    pass


class _Dict(dict[Any, Any]):
    pass


_BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
_NOON = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)

DIFFERENT: list[tuple[Any, Any]] = [
    (1, 1.0),
    (1, True),
    (0, False),
    (0.0, -0.0),
    (0.0, 0),
    (0j, complex(0.0, -0.0)),
    (b"x", bytearray(b"x")),
    (b"x", "x"),
    ([1], (1,)),
    ({1}, frozenset({1})),
    ({}, collections.OrderedDict()),
    ({"a": 1}, collections.Counter("a")),
    (collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({1: "a"}, {True: "a"}),
    ({1: "a"}, {1.0: "a"}),
    ({1, 2}, {1.0, 2}),
    (collections.deque([1]), collections.deque([1], maxlen=1)),
    (collections.defaultdict(int), collections.defaultdict(float)),
    ([], _List()),
    ("a", _Str("a")),
    (1, _Int(1)),
    (1.0, _Float(1)),
    (b"a", _Bytes(b"a")),
    ({}, _Dict()),
    (_List([1]), _List([True])),
    (_Dict(a=1, b=2), _Dict(b=2, a=1)),
    (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
    (decimal.Decimal("0"), decimal.Decimal("-0")),
    (_NOON, _NOON.astimezone(datetime.timezone(datetime.timedelta(hours=1)))),
    (_NOON, _NOON.astimezone(zoneinfo.ZoneInfo("UTC"))),
    (
        datetime.datetime(2024, 10, 27, 2, 30, tzinfo=_BERLIN),
        datetime.datetime(2024, 10, 27, 2, 30, tzinfo=_BERLIN, fold=1),
    ),
    (datetime.time(1), datetime.time(1, fold=1)),
    (datetime.timezone(datetime.timedelta(0), "a"), datetime.timezone(datetime.timedelta(0), "b")),
    (pathlib.PureWindowsPath("A"), pathlib.PureWindowsPath("a")),
    (range(0), range(1, 1)),
    (slice(1), slice(True)),
    (kinds.Color.RED, "red"),
    (kinds.Level.LOW, 1),
    (kinds.Order("a"), kinds.Order("b")),
    (kinds.Order("a", total=1), kinds.Order("a", total=True)),
    (kinds.Pair(1, 2), (1, 2)),
    (kinds.Pair(1, 2), kinds.Pair(1, 2.0)),
    (kinds.Point(1), kinds.FrozenPoint(1, [])),
    (kinds.Point(1), kinds.Point(True)),
    (kinds.Plain(a=1), kinds.Plain(a=1.0)),
    (kinds.Plain(a=1), kinds.Plain(b=1)),
    (kinds.Model(name="a"), kinds.Model(name="a", items=[])),
    (array.array("i", [1]), array.array("i", [2])),
    (array.array("i", [1]), array.array("h", [1])),
    (functools.partial(len, [1]), functools.partial(len, [2])),
    (ValueError("a"), ValueError("b")),
    (object(), object()),
    (lambda: 1, lambda: 1),
    (threading.Lock(), threading.Lock()),
    ({float("nan")}, {float("nan"), float("nan")}),
]


@pytest.mark.parametrize(("left", "right"), DIFFERENT, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    "wrap", [lambda v: v, lambda v: [v], lambda v: {"k": (v, {3})}], ids=["bare", "list", "mixed"]
)
def test_values_that_look_different_have_different_fingerprints(left: Any, right: Any, wrap: Any) -> None:
    assert fingerprint(wrap(left)) != fingerprint(wrap(right))
    assert fingerprint(wrap(left)) == fingerprint(wrap(left))


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: [v, {1}], lambda v: kinds.Plain(a=v)])
def test_nan_equals_itself(wrap: Any) -> None:
    assert fingerprint(wrap(float("nan"))) == fingerprint(wrap(float("nan")))
    assert fingerprint(wrap(decimal.Decimal("NaN"))) == fingerprint(wrap(decimal.Decimal("NaN")))
    assert fingerprint(wrap(complex("nan"))) == fingerprint(wrap(complex("nan")))


@pytest.mark.parametrize("place", range(len(kinds.mutable_values())))
def test_equal_values_made_separately_have_equal_fingerprints(place: int) -> None:
    left, right = kinds.mutable_values()[place], kinds.mutable_values()[place]
    assert fingerprint(left) == fingerprint(right)


def _change_slots(value: kinds.PlainSlots) -> None:
    value.b = 1


CHANGES: list[tuple[Any, Any]] = [
    (lambda: [1], lambda v: v.append(2)),
    (lambda: [1], lambda v: v.__setitem__(0, True)),
    (lambda: {"a": 1}, lambda v: v.update(b=2)),
    (lambda: {"a": 1, "b": 2}, lambda v: v.update(a=v.pop("a"))),
    (lambda: {1}, lambda v: v.add(2)),
    (lambda: bytearray(b"a"), lambda v: v.append(1)),
    (lambda: collections.deque([1]), lambda v: v.rotate(1) or v.append(1)),
    (lambda: collections.Counter("a"), lambda v: v.update("a")),
    (lambda: collections.OrderedDict(a=1, b=2), lambda v: v.move_to_end("a")),
    (lambda: collections.defaultdict(list), lambda v: v["a"]),
    (lambda: _List([1]), lambda v: setattr(v, "note", 1)),
    (lambda: _Dict(a=[1]), lambda v: v["a"].append(2)),
    (lambda: kinds.Order("o"), lambda v: v.lines.append("a")),
    (lambda: kinds.Order("o"), lambda v: setattr(v, "total", 1)),
    (lambda: kinds.Order("o"), lambda v: setattr(v, "undeclared", 1)),
    (lambda: kinds.Slotted("s", []), lambda v: delattr(v, "items")),
    (lambda: kinds.Price(1, []), lambda v: v.tags.append(1)),
    (lambda: kinds.Point(1), lambda v: v.y.append(1)),
    (lambda: kinds.Pair([], 1), lambda v: v.left.append(1)),
    (lambda: kinds.Model(name="a"), lambda v: setattr(v, "name", "b")),
    (lambda: kinds.Model(name="a"), lambda v: v._private.append(1)),
    (lambda: kinds.Box[int](content=1), lambda v: setattr(v, "content", 2)),
    (lambda: kinds.Counter({}), lambda v: v.counts.update(a=1)),
    (lambda: kinds.Plain(a=kinds.Plain(b=[])), lambda v: v.a.b.append(1)),
    (lambda: kinds.Plain(a=1), lambda v: setattr(v, "__class__", kinds.Order)),
    (kinds.PlainSlots, _change_slots),
    (lambda: array.array("i", [1]), lambda v: v.append(2)),
    (lambda: types.SimpleNamespace(a=1), lambda v: setattr(v, "a", 2)),
    (lambda: functools.partial(len, [1]), lambda v: v.args[0].append(2)),
    (lambda: ValueError("a"), lambda v: setattr(v, "code", 1)),
]


@pytest.mark.parametrize("place", range(len(CHANGES)))
def test_a_change_in_place_is_found_at_any_depth(place: int) -> None:
    make, change = CHANGES[place]
    for wrap in (lambda v: v, lambda v: [{"k": (v,)}], lambda v: kinds.Order("o", [v])):
        value = make()
        wrapped = wrap(value)
        before = fingerprint(wrapped)
        assert fingerprint(wrapped) == before
        change(value)
        assert fingerprint(wrapped) != before


def test_a_change_through_a_mapping_proxy_is_found() -> None:
    below = {"a": [1]}
    view = types.MappingProxyType(below)
    before = fingerprint(view)
    below["a"].append(2)
    assert fingerprint(view) != before


def test_of_a_class_with_its_own_encoder_what_is_saved_counts() -> None:
    counter = kinds.Counter({"a": 1})
    before = fingerprint([counter])
    counter.lock = threading.Lock()
    assert fingerprint([counter]) == before
    counter.counts["a"] = 2
    assert fingerprint([counter]) != before


def test_a_value_that_its_encoder_refuses_is_compared_by_its_attributes() -> None:
    def refuse(value: Any) -> Any:
        raise KeyError("half made")

    class Half:
        parts: list[int]

    register_state_type(Half, type_id="half", encoder=refuse, decoder=lambda payload: Half())
    half = Half()
    half.parts = [1]
    before = fingerprint(half)
    half.parts.append(2)
    assert fingerprint(half) != before


class _Zone(datetime.tzinfo):
    def __init__(self, hours: int = 0) -> None:
        self.hours = hours

    def utcoffset(self, moment: datetime.datetime | None) -> datetime.timedelta:
        return datetime.timedelta(hours=self.hours)


class _Moment(datetime.datetime):
    pass


@pytest.mark.parametrize("kind", [datetime.datetime, _Moment])
def test_time_zones_of_other_packages_are_looked_into(kind: Any) -> None:
    moments = [kind(2024, 1, 1, tzinfo=_Zone(hours)) for hours in (1, 1, 2)]
    assert fingerprint(moments[0]) == fingerprint(moments[1]) != fingerprint(moments[2])
    assert fingerprint(copy.deepcopy(moments[0])) == fingerprint(moments[0])
    assert fingerprint(datetime.time(1, tzinfo=_Zone(1))) == fingerprint(datetime.time(1, tzinfo=_Zone(1)))


def test_reading_a_cached_property_is_no_change() -> None:
    loud = kinds.Loud("a", 2)
    before = fingerprint(loud)
    assert loud.derived
    assert fingerprint(loud) == before


def test_the_order_in_which_attributes_were_set_is_no_change() -> None:
    assert fingerprint(kinds.Plain(a=1, b=2)) == fingerprint(kinds.Plain(b=2, a=1))


def test_hashing_a_path_that_is_a_subclass_is_no_change() -> None:
    class Own(pathlib.PurePosixPath):
        pass

    path = Own("a/b")
    before = fingerprint(path)
    hash(path)
    assert path.parts and fingerprint(path) == before


def test_opaque_objects_count_by_identity_and_are_kept_alive() -> None:
    lock = threading.Lock()
    assert fingerprint([lock]) == fingerprint([lock])
    before = fingerprint([threading.Lock()])
    assert all(fingerprint([threading.Lock()]) != before for _ in range(50))


def test_the_fingerprint_of_the_registration_is_used() -> None:
    register_state_type(kinds.Slotted, type_id="test.slotted", fingerprint=lambda s: [s.name])
    value = kinds.Slotted("a", [])
    before = fingerprint({"k": {1: value}})
    value.items.append(1)
    assert fingerprint({"k": {1: value}}) == before
    value.name = "b"
    assert fingerprint({"k": {1: value}}) != before


def test_sharing_is_not_visible() -> None:
    for make in (lambda: [1, 2], lambda: {1: {2}}, lambda: kinds.Order("o", ["a"])):
        shared = make()
        assert fingerprint([shared, shared, {"k": shared}]) == fingerprint([make(), make(), {"k": make()}])
        assert fingerprint(copy_value([shared, shared])) == fingerprint([shared, shared])


def _ring(*names: str) -> Any:
    nodes = [kinds.Plain(name=name) for name in names]
    for node, following in zip(nodes, [*nodes[1:], nodes[0]], strict=True):
        node.next = following
    return nodes[0]


def test_cycles_are_walked_and_changes_in_them_found() -> None:
    assert fingerprint(_ring("a", "b")) == fingerprint(_ring("a", "b"))
    assert fingerprint(_ring("a", "b")) != fingerprint(_ring("a", "c"))
    ring = _ring("a", "b")
    before = fingerprint([ring, ring.next, 1])
    assert fingerprint([ring, ring.next, 1]) == before
    ring.next.next.next.extra = 1
    assert fingerprint([ring, ring.next, 1]) != before


def test_a_cycle_looks_the_same_wherever_it_is_met() -> None:
    ring = _ring("a", "b", "c")
    assert fingerprint([ring, ring]) == fingerprint([ring, _ring("a", "b", "c")])
    plain: list[Any] = [1]
    plain.append(plain)
    other: list[Any] = [1]
    other.append(other)
    assert fingerprint([plain]) == fingerprint([other])
    other[0] = 2
    assert fingerprint([plain]) != fingerprint([other])


def test_a_cycle_entered_at_another_place_is_told_up_to_where_it_was_entered_first() -> None:
    ring = _ring("a", "b", "c")
    again = kinds.Plain(name="b", next=kinds.Plain(name="c", next=_ring("a", "b", "c")))
    assert fingerprint([ring, ring.next]) == fingerprint([_ring("a", "b", "c"), again])
    assert fingerprint([ring, ring.next]) != fingerprint([ring, ring])


def test_a_list_of_the_nodes_of_a_ring_takes_linear_time() -> None:
    nodes = [kinds.Plain(number=number) for number in range(100)]
    for node, following in zip(nodes, [*nodes[1:], nodes[0]], strict=True):
        node.next = following
    before = fingerprint(nodes * 50)
    nodes[50].number = -1
    assert fingerprint(nodes * 50) != before


def _knot(left: Any, right: Any) -> Any:
    knot = kinds.Plain()
    inner = kinds.Plain(up=knot)
    knot.__dict__.update(first=inner, left=left, right=right, second=inner)
    return knot


def test_sharing_inside_a_cycle_is_not_visible_where_the_shared_part_has_no_cycle() -> None:
    shared = {1: {2}}
    assert fingerprint(_knot(shared, shared)) == fingerprint(_knot({1: {2}}, {1: {2}}))
    assert fingerprint(_knot(shared, shared)) != fingerprint(_knot({1: {2}}, {1: {3}}))


def test_what_objects_say_of_themselves_is_not_mixed_up() -> None:
    ones = [array.array("i", [1]) for _ in range(20)]
    others = [array.array("i", [number]) for number in range(1, 21)]
    assert fingerprint(ones) != fingerprint(others)


def test_a_densely_connected_graph_takes_no_exponential_time() -> None:
    nodes = [kinds.Plain(number=number) for number in range(40)]
    for node in nodes:
        node.others = nodes
    before = fingerprint(nodes[0])
    assert fingerprint(nodes[0]) == before
    nodes[-1].number = -1
    assert fingerprint(nodes[0]) != before


def test_containers_only_leaves_services_alone() -> None:
    client = kinds.Plain(calls=0)
    value = {"client": client, "limits": [1, {"a": {2}}]}
    before = fingerprint(value, containers_only=True)
    client.calls += 1
    assert fingerprint(value, containers_only=True) == before
    value["limits"][1]["a"].add(3)  # type: ignore[index]
    assert fingerprint(value, containers_only=True) != before


def test_a_chain_deeper_than_any_stack_is_refused_not_a_crash() -> None:
    chain: Any = None
    for _ in range(5000):
        chain = kinds.Plain(next=chain)
    with pytest.raises(ValueError, match="nests too deeply"):
        fingerprint(chain)
