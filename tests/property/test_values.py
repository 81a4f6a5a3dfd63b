"""Copies and fingerprints over values of every kind, and type expressions over types of every kind."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import pathlib
import random
import uuid
from collections.abc import Callable
from typing import Any, Literal, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchpoint.codec import (
    convert,
    copy_value,
    fingerprint,
    from_json,
    parse_type_expression,
    to_json,
    type_expression,
)
from branchpoint.errors import BranchpointError
from tests.unit.codec import value_kinds as kinds


@pytest.fixture(autouse=True, scope="module")
def registry() -> Any:
    with kinds.registered():
        yield


ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=8),
    st.binary(max_size=8),
    st.decimals(),
    st.fractions(),
    st.datetimes(timezones=st.none() | st.timezones()),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.sampled_from([*kinds.Color, *kinds.Level, kinds.Right.READ, pathlib.PurePosixPath("a/b"), range(3)]),
)
KEYS = st.one_of(
    st.text(max_size=4),
    st.integers(),
    st.booleans(),
    st.tuples(st.integers(), st.text(max_size=2)),
    st.binary(max_size=2),
)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    items = st.lists(inner, max_size=4)
    return st.one_of(
        items,
        items.map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.sets(KEYS, max_size=4),
        st.frozensets(KEYS, max_size=4),
        st.binary(max_size=4).map(bytearray),
        items.map(lambda found: collections.deque(found, 9)),
        st.dictionaries(KEYS, inner, max_size=3).map(collections.OrderedDict),
        st.dictionaries(KEYS, inner, max_size=3).map(lambda found: collections.defaultdict(list, found)),
        st.dictionaries(KEYS, st.integers(), max_size=3).map(collections.Counter),
        st.builds(kinds.Order, id=inner, lines=inner, total=inner),
        st.builds(kinds.Price, inner, inner),
        st.builds(kinds.Slotted, inner, inner),
        st.builds(kinds.Point, inner, inner),
        st.builds(kinds.FrozenPoint, inner, inner),
        st.builds(kinds.Pair, inner, inner),
        st.builds(kinds.Model.model_construct, name=inner, items=inner),
        st.builds(kinds.Plain, a=inner, b=inner),
    )


VALUES = st.recursive(ATOMS, _containers, max_leaves=20)


def _changes(value: Any) -> list[Callable[[], Any]]:
    """Every way in which something inside `value` can be changed in place."""
    found: list[Callable[[], Any]] = []
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, list):
            found.append(lambda part=part: part.append("new"))
            found.extend(
                lambda part=part, i=i: part.__setitem__(i, _other(part[i])) for i in range(len(part))
            )
            stack.extend(part)
        elif isinstance(part, collections.deque):
            found.append(lambda part=part: part.append("new"))
            stack.extend(part)
        elif isinstance(part, dict):
            found.append(lambda part=part: part.__setitem__("a key that is new", 1))
            found.extend(lambda part=part, k=k: part.__setitem__(k, _other(part[k])) for k in part)
            found.extend(lambda part=part, k=k: part.pop(k) for k in part)
            if len(part) > 1:
                found.append(lambda part=part: _to_the_end(part, next(iter(part))))
            stack.extend(part.values())
        elif isinstance(part, set):
            found.append(lambda part=part: part.add("an element that is new"))
        elif isinstance(part, bytearray):
            found.append(lambda part=part: part.append(0))
        elif isinstance(part, (kinds.Order, kinds.Slotted, kinds.Point, kinds.Plain, kinds.Model)):
            names = list(
                getattr(part, "__struct_fields__", ()) or getattr(part, "__slots__", ()) or vars(part)
            )
            names = [name for name in names if not name.startswith("__")] or list(vars(part))
            for name in names:
                found.append(lambda part=part, name=name: setattr(part, name, _other(getattr(part, name))))
                stack.append(getattr(part, name))
        elif isinstance(part, (kinds.Price, kinds.FrozenPoint)):
            names = ("amount", "tags") if isinstance(part, kinds.Price) else ("x", "y")
            stack.extend(getattr(part, name) for name in names)
        elif isinstance(part, tuple):
            stack.extend(part)
    return found


def _to_the_end(part: dict[Any, Any], key: Any) -> None:
    part[key] = part.pop(key)


def _other(value: Any) -> Any:
    """A value that differs from this one, as little as its type allows."""
    if type(value) is bool:
        return int(value)
    if type(value) is int:
        return value + 1 if abs(value) > 2**50 else float(value)
    if type(value) is float:
        return -value if value == 0 else "another"
    if type(value) is bytes:
        return bytearray(value)
    if type(value) is list:
        return tuple(value)
    if type(value) is tuple:
        return list(value)
    return ("another", value)


@given(VALUES)
def test_a_copy_has_the_fingerprint_of_the_original(value: Any) -> None:
    before = fingerprint(value)
    copied = copy_value(value)
    assert type(copied) is type(value)
    assert fingerprint(copied) == before == fingerprint(value)


@given(VALUES, st.randoms(use_true_random=False))
def test_no_change_to_a_copy_is_visible_in_the_original(value: Any, rnd: random.Random) -> None:
    before = fingerprint(value)
    copied = copy_value(value)
    changes = _changes(copied)
    rnd.shuffle(changes)
    for change in changes:
        try:
            change()
        except (KeyError, IndexError, StopIteration):  # an earlier change has taken it away
            continue
    assert fingerprint(value) == before


@given(VALUES)
def test_every_change_in_place_changes_the_fingerprint(value: Any) -> None:
    for place in range(len(_changes(value))):
        copied = copy_value(value)
        before = fingerprint(copied)
        _changes(copied)[place]()
        assert fingerprint(copied) != before


@given(VALUES)
def test_what_is_immutable_is_shared(value: Any) -> None:
    copied = copy_value(value)
    if copied is value:
        assert not _changes(value)


_Types = st.SearchStrategy[Any]

TYPES: _Types = st.recursive(
    st.sampled_from(
        [
            *(int, str, float, bool, bytes, bytearray, complex, list, dict, tuple, set, frozenset, object),
            *(None, type(None), Any, kinds.Color, kinds.Order, kinds.Point, kinds.Box[int]),
            *(
                decimal.Decimal,
                fractions.Fraction,
                datetime.datetime,
                datetime.date,
                uuid.UUID,
                pathlib.PurePath,
            ),
        ]
    )
    | st.lists(
        st.text() | st.integers() | st.booleans() | st.binary() | st.none(), min_size=1, max_size=3
    ).map(lambda found: Literal[tuple(found)]),
    lambda inner: st.one_of(
        inner.map(lambda tp: list[tp]),
        inner.map(lambda tp: set[tp]),
        inner.map(lambda tp: tuple[tp, ...]),
        inner.map(lambda tp: collections.deque[tp]),
        st.tuples(inner, inner).map(lambda two: dict[two[0], two[1]]),
        st.lists(inner, max_size=3).map(lambda found: tuple[tuple(found)]),
        st.lists(inner, min_size=1, max_size=3).map(lambda found: Union[tuple(found)]),  # noqa: UP007
    ),
    max_leaves=6,
)


@given(TYPES)
def test_type_expressions_round_trip(tp: Any) -> None:
    text = type_expression(tp)
    again = parse_type_expression(text)
    assert type_expression(again) == text


@given(st.text(alphabet='intlis[]|,. "b\\-1L', max_size=20))
def test_no_text_crashes_the_parser(text: str) -> None:
    try:
        tp = parse_type_expression(text)
    except BranchpointError:
        pass
    else:
        assert parse_type_expression(type_expression(tp)) == tp


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(JSON, TYPES)
def test_what_converts_is_stable_and_what_does_not_is_refused(value: Any, tp: Any) -> None:
    before = fingerprint(value)
    try:
        converted = convert(value, tp)
    except BranchpointError:
        pass
    else:
        assert convert(converted, tp) is converted
    assert fingerprint(value) == before


@given(JSON)
def test_plain_json_goes_through_the_wire_unchanged(value: Any) -> None:
    assert fingerprint(to_json(value)) == fingerprint(value)
    assert from_json(value, Any) is value
