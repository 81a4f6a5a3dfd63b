"""Every value that can be kept comes back as itself, in both formats, from bytes that depend on it alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from branchpoint.codec import (
    Format,
    comparison_digest,
    decode,
    decode_state,
    encode,
    encode_state,
    new_parts,
    open_dict,
    open_list,
    plain,
    reachable,
    references,
    transcode,
)
from branchpoint.testing import strategies

FORMATS: tuple[Format, ...] = ("json", "msgpack")


@pytest.fixture(autouse=True, scope="module")
def registry() -> Iterator[None]:
    with strategies.registered_types():
        yield


@given(strategies.values())
def test_a_value_comes_back_as_itself_in_both_formats(value: Any) -> None:
    for format in FORMATS:
        encoded, _ = encode(value, format=format)
        parts = new_parts(encoded, ())
        assert strategies.same(decode(encoded.data, parts, format=format), value)


@given(strategies.values())
def test_the_bytes_of_a_decoded_value_are_the_bytes_it_came_from(value: Any) -> None:
    for format in FORMATS:
        encoded, memo = encode(value, format=format)
        again, _ = encode(decode(encoded.data, new_parts(encoded, ()), format=format), format=format)
        remembered, _ = encode(value, format=format, memo=memo)
        assert again.data == encoded.data == remembered.data


_KEYS = st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.integers(), st.none())


@given(st.dictionaries(_KEYS, strategies.values(6), max_size=6), st.data())
def test_a_comparison_does_not_see_the_order_in_which_a_dict_was_filled(
    fields: dict[Any, Any], data: st.DataObject
) -> None:
    moved = dict(data.draw(st.permutations(list(fields.items()))))
    assert comparison_digest("m", [moved]) == comparison_digest("m", [fields])
    encoded, _ = encode(moved, format="msgpack")
    loaded = decode(encoded.data, new_parts(encoded, ()), format="msgpack")
    assert comparison_digest("m", [loaded]) == comparison_digest("m", [fields])


@settings(max_examples=20)
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), strategies.values(6)))
def test_a_state_opens_level_by_level_and_crosses_formats(fields: dict[str, Any]) -> None:
    state = {"executor_states": {"a": fields, "b": {}}, "messages": {}, "list": list(fields.values())}
    roots: dict[Format, tuple[str, dict[str, bytes]]] = {}
    for format in FORMATS:
        root, _ = encode_state(state, format=format)
        parts = new_parts(root, ())
        roots[format] = root.digest, parts
        assert strategies.same(decode_state(root.digest, parts, format=format), state)
        assert reachable([root.digest], parts, format=format) == set(parts)
        assert set(references(root.data, format=format)) == {part.digest for part in root.refs}
        json.dumps(plain(root.data, parts, format=format), allow_nan=False)
        buckets = open_dict(root.data, parts, format=format)
        executors = open_dict(buckets["executor_states"].data, parts, format=format)
        opened = open_dict(executors["a"].data, parts, format=format)
        items = open_list(buckets["list"].data, parts, format=format)
        assert list(opened) == list(fields)
        for name, encoded, item in zip(fields, opened.values(), items, strict=True):
            assert strategies.same(decode(encoded.data, parts, format=format), fields[name])
            assert strategies.same(decode(item.data, parts, format=format), fields[name])
        # What was opened stands for the value it was opened from.
        rebuilt = {"executor_states": {"a": opened, "b": {}}, "messages": {}, "list": items}
        assert encode_state(rebuilt, format=format)[0].digest == root.digest
    crossings: list[tuple[Format, Format]] = [("json", "msgpack"), ("msgpack", "json")]
    for source, target in crossings:
        digest, parts = roots[source]
        (carried,) = transcode(digest, parts, source=source, target=target)
        assert carried.digest == roots[target][0]
        assert new_parts(carried, ()) == roots[target][1]


@given(strategies.values(8), strategies.values(8), st.sampled_from(FORMATS))
def test_what_is_encoded_already_counts_as_the_value_it_stands_for(
    first: Any, second: Any, format: Format
) -> None:
    ready, _ = encode(first, format=format)
    for given_, meant in (
        ([ready, second], [first, second]),
        ({"a": ready, "b": [ready]}, {"a": first, "b": [first]}),
        ([ready] * 400, [first] * 400),
        ({f"k{n}": ready for n in range(50)}, {f"k{n}": first for n in range(50)}),
        ({1: ready}, {1: first}),
    ):
        assert encode(given_, format=format)[0].data == encode(meant, format=format)[0].data


@given(st.binary(max_size=60), st.sampled_from(FORMATS))
def test_any_bytes_decode_or_are_refused_with_an_error_of_ours(data: bytes, format: Format) -> None:
    from branchpoint.errors import BranchpointError

    try:
        value = decode(data, {}, format=format)
    except BranchpointError:
        return
    encoded, _ = encode(value, format=format)
    assert encoded.data == data or encoded.refs[0].data == data
