"""Where a value is cut depends on its own encoding, to the byte, by whatever way it is reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from branchpoint.codec import Format, encode, encode_state, new_parts, open_dict, plain
from branchpoint.testing import strategies

BOTH = pytest.mark.parametrize("format", ["json", "msgpack"])
BLOB = 1024


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    with strategies.registered_types():
        yield


ITEMS: list[Any] = [
    1, 300, 2.5, None, "", "a", "é", "\x01", [], [1], [[]], {}, {"a": 1}, {"": ""}, {"é": ["é"]}, (1,), {1}, {1: 1},
    {"$": 1}, float("nan"), 2**70, b"ab", strategies.Level.LOW, strategies.Right.READ, strategies.Item("a", 1),
    strategies.Point(x=1), {"k": (1, {2: "x" * 50})}, "x" * 120, [["x" * 200, 1]],
]  # fmt: skip

SHAPES: dict[str, Callable[[Any, int], Any]] = {
    "list": lambda item, count: [item] * count,
    "dict": lambda item, count: {f"k{number}": item for number in range(count)},
    "pairs": lambda item, count: [dict.fromkeys(range(count), item)],
    "nested": lambda item, count: [[item] * (count // 2), {"a": [item] * (count - count // 2)}],
}


def whole(value: Any, format: Format) -> bytes:
    """The uncut encoding, joined by msgspec from the plain tree."""
    encoded, _ = encode(value, format=format)
    tree = plain(encoded.data, new_parts(encoded, ()), format="json" if format == "json" else "msgpack")
    return msgspec.json.encode(tree) if format == "json" else msgspec.msgpack.encode(tree)


def is_reference(data: bytes) -> bool:
    return data.startswith((b'{"$p"', b"\x81\xa2$p"))


@BOTH
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("item", ITEMS, ids=lambda item: repr(item)[:20])
def test_up_to_1024_bytes_is_one_blob_and_more_is_cut(item: Any, shape: str, format: Format) -> None:
    if format == "msgpack" and "b'" in repr(item):
        return  # `plain` shows bytes as text, whose size is another
    make = SHAPES[shape]
    low, high = 1, 2000
    while low < high:  # the largest count that still fits
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(whole(make(item, middle), format)) <= BLOB else (low, middle - 1)
    _, memo = encode(make(item, 3 * low + 40), format=format)
    for count in (low - 1, low, low + 1, low + 2):
        value = make(item, count)
        expected = whole(value, format)
        fresh, _ = encode(value, format=format)
        part = fresh.refs[0] if fresh.refs else None
        data = part.data if part is not None and is_reference(fresh.data) else fresh.data
        assert (data == expected) == (len(expected) <= BLOB)
        again, _ = encode(value, format=format, memo=memo)
        assert again.data == fresh.data


@BOTH
def test_the_frame_is_cut_whatever_its_size(format: Format) -> None:
    value = {"text": "x" * 120, "n": 1}
    root, _ = encode_state(
        {"executor_states": {"a": {"field": value}}, "messages": {"k": value}}, format=format
    )
    parts = new_parts(root, ())
    ready, _ = encode(value, format=format)
    assert ready.refs[0].digest in parts
    buckets = open_dict(root.data, parts, format=format)
    assert set(buckets) == {"executor_states", "messages"}
    assert len(parts) == 3  # the root, the field, and the value that stands a level higher


@BOTH
def test_a_state_of_encoded_leaves_writes_only_what_moved(format: Format) -> None:
    executors = {
        f"e{number}": {"history": encode(["x" * 300, number], format=format)[0]} for number in range(200)
    }
    state = {"executor_states": executors, "messages": {"pending": {}}}
    root, memo = encode_state(state, format=format)
    known = new_parts(root, ())
    executors = {**executors, "e77": {"history": encode(["y" * 300], format=format)[0]}}
    state = {"executor_states": executors, "messages": {"pending": {}}}
    changed, memo = encode_state(state, format=format, memo=memo)
    assert changed.digest == encode_state(state, format=format)[0].digest
    assert sum(map(len, new_parts(changed, known).values())) < 1500
    assert encode_state(state, format=format, memo=memo)[0].digest == changed.digest
