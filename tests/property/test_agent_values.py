"""Every value of Agent Framework comes back as itself, in both formats, and a copy of it is its own."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from agent_framework import Content, Message
from hypothesis import given
from hypothesis import strategies as st

import branchpoint.agents  # noqa: F401 - registers the values
from branchpoint.codec import Format, copy_value, decode, encode, fingerprint, new_parts
from branchpoint.testing import strategies
from tests import agent_values
from tests.profiles import brief

FORMATS: tuple[Format, ...] = ("json", "msgpack")


@pytest.fixture(autouse=True, scope="module")
def registry() -> Iterator[None]:
    with strategies.registered_types():
        yield


@given(agent_values.values())
def test_r41_a_value_comes_back_as_itself_in_both_formats(value: Any) -> None:
    for format in FORMATS:
        encoded, memo = encode(value, format=format)
        parts = new_parts(encoded, ())
        read = decode(encoded.data, parts, format=format)
        assert agent_values.alike(read, value)
        assert getattr(read, "raw_representation", None) is None
        again, _ = encode(read, format=format)
        remembered, _ = encode(value, format=format, memo=memo)
        assert again.data == encoded.data == remembered.data


@given(agent_values.values())
@brief(40)
def test_a_copy_is_the_same_and_shares_nothing_that_changes(value: Any) -> None:
    copied = copy_value(value)
    assert agent_values.alike(copied, value)
    assert fingerprint(copied) == fingerprint(value)
    mutable = {id(part) for part in _mutable(value)}
    assert not [part for part in _mutable(copied) if id(part) in mutable]


@given(agent_values.messages(), agent_values.messages())
@brief(25)
def test_two_messages_have_one_token_exactly_if_they_are_the_same(one: Any, other: Any) -> None:
    assert (fingerprint(one) == fingerprint(other)) == agent_values.alike(one, other)
    again = copy.copy(one)
    again.contents = [*one.contents, *other.contents[:1]]
    assert (fingerprint(one) == fingerprint(again)) == (not other.contents)


_ODD = (1, 1.0, True, 0, False, 0.0, -0.0, "", "1", b"", bytearray(), b"1", bytearray(b"1"), None, [], (), {})


@given(st.sampled_from(_ODD), st.sampled_from(_ODD), st.sampled_from(["result", "output", "name", "text"]))
@brief(120)
def test_a_change_of_a_field_is_always_found(one: Any, other: Any, field: str) -> None:
    """In a conversation long enough to be remembered, whatever replaces what."""
    said = [Message("user", [Content.from_text(f"{number} " * 40)]) for number in range(60)]
    said[30].contents.append(Content("function_result"))
    setattr(said[30].contents[1], field, one)
    _, memo = encode(said, format="json")
    setattr(said[30].contents[1], field, other)
    changed, _ = encode(said, format="json", memo=memo)
    assert changed.data == encode(said, format="json")[0].data


def _mutable(value: Any) -> Iterator[Any]:
    if isinstance(value, agent_values.CLASSES):
        yield value
        for item in vars(value).values():
            yield from _mutable(item)
    elif type(value) is dict:
        yield value
        for item in value.values():
            yield from _mutable(item)
    elif type(value) is list:
        yield value
        for item in value:
            yield from _mutable(item)
