"""What an edit of a large value writes: about the element and one short path."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from typing import Any

import pytest

from branchpoint.codec import Format, encode, new_parts

FORMATS: tuple[Format, ...] = ("json", "msgpack")
_random = random.Random(7)
MESSAGES = [
    {"role": "user", "text": f"{number}:" + "".join(_random.choices("abcdefgh ijklm", k=460))}
    for number in range(2300)
]


def written(before: Any, after: Any, format: Format) -> int:
    """How many bytes of new parts a change makes; the same with and without a memo."""
    first, memo = encode(before, format=format)
    known = new_parts(first, ())
    second, _ = encode(after, format=format, memo=memo)
    return sum(map(len, new_parts(second, known).values()))


Edit = Callable[[list[Any], Any], list[Any]]
EDITS: dict[str, tuple[Edit, int, int]] = {
    # What the mean over several lists stays under, and what none exceeds.
    "append": (lambda items, new: [*items, new], 1200, 1600),
    "insert at the front": (lambda items, new: [new, *items], 2000, 3000),
    "drop 300 from the front": (lambda items, new: items[300:], 1000, 1800),
    "replace in the middle": (lambda items, new: [*items[:900], new, *items[901:]], 2000, 3000),
    "delete in the middle": (lambda items, new: [*items[:900], *items[901:]], 1500, 3000),
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_of_2000_messages_of_500_bytes_writes_little(edit: str, format: Format) -> None:
    change, mean, worst = EDITS[edit]
    costs = []
    for start in range(0, 280, 23):
        items = MESSAGES[start : start + 2000 + start % 7]
        costs.append(written(items, change(items, MESSAGES[-1]), format))
    assert statistics.mean(costs) < mean
    assert max(costs) < worst


@pytest.mark.parametrize("format", FORMATS)
def test_equal_elements_do_not_degenerate(format: Format) -> None:
    equal = [{"role": "user", "text": "again"}] * 2000
    parts = new_parts(encode(equal, format=format)[0], ())
    assert len(parts) < 20
    assert max(map(len, parts.values())) < 700
    for edit, _, _ in EDITS.values():
        assert written(equal, edit(equal, {"role": "user", "text": "new"}), format) < 2500


@pytest.mark.parametrize("format", FORMATS)
def test_2000_ints_are_stored_in_about_their_size(format: Format) -> None:
    numbers = list(range(2000))
    parts = new_parts(encode(numbers, format=format)[0], ())
    assert sum(map(len, parts.values())) < 2 * len(repr(numbers))
    assert written(numbers, [*numbers, 1], format) < 900
    assert written(numbers, [1, *numbers], format) < 1200


@pytest.mark.parametrize("format", FORMATS)
def test_one_key_of_a_large_dict_writes_one_path(format: Format) -> None:
    table = {f"key{number}": message for number, message in enumerate(MESSAGES[:2000])}
    changed = {**table, "key1000": "new"}
    assert written(table, changed, format) < 1500
    more = {**table, "more": "new"}
    assert written(table, more, format) < 1500


@pytest.mark.parametrize("format", FORMATS)
def test_a_small_value_is_one_blob(format: Format) -> None:
    assert encode({"role": "user", "text": "hi"}, format=format)[0].refs == ()
    encoded, memo = encode(MESSAGES[0], format=format)
    (part,) = encoded.refs
    assert part.refs == ()
    assert memo is None
