"""Copies of containers: any shape, any one change."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from branchpoint.graph._containers import Copier, unchanged

SERVICE = object()
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.just(SERVICE), st.just(())
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.text(max_size=2), inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(deque),
        st.dictionaries(st.integers(), inner, max_size=3).map(OrderedDict),
        st.sets(st.integers(), max_size=3),
        st.text(max_size=4).map(Counter),
        st.binary(max_size=3).map(bytearray),
    ),
    max_leaves=12,
)


def _mutable(value: Any) -> list[Any]:
    """Every container in a value that can be changed, itself included."""
    found = [value] if isinstance(value, list | dict | set | deque | bytearray) else []
    items = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list | tuple | deque)
        else ()
    )
    return [*found, *(inner for item in items for inner in _mutable(item))]


def _grow(container: Any) -> None:
    if isinstance(container, dict):
        container["grown beyond two"] = 1
    elif isinstance(container, set):
        container.add("grown")
    else:
        container.append(1)


@given(VALUES)
def test_a_copy_is_equal_shares_no_container_and_counts_as_unchanged(value: Any) -> None:
    copied = Copier(None, None).copy([value])
    assert unchanged([value], copied, SERVICE, SERVICE)
    assert repr(copied) == repr([value])
    assert not {id(one) for one in _mutable(copied)} & {id(one) for one in _mutable([value])}


@given(VALUES, st.data())
def test_any_container_that_grew_is_found(value: Any, data: st.DataObject) -> None:
    original = [value]
    copied = Copier(None, None).copy(original)
    _grow(data.draw(st.sampled_from(_mutable(copied))))
    assert not unchanged(original, copied, SERVICE, SERVICE)
