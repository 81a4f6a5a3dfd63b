"""What errors say: one visible line of bounded length, whatever they quote."""

from __future__ import annotations

import copy
import inspect
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchpoint import errors
from branchpoint.codec import copy_value, encode
from branchpoint.errors import BranchpointError, UnsupportedValueError, quotable
from tests.hostile.forge import check_told

CLASSES = [
    thing for thing in vars(errors).values() if inspect.isclass(thing) and issubclass(thing, BranchpointError)
]


@given(st.text(max_size=300), st.integers(0, 20))
def test_a_text_that_can_be_seen_is_quoted_as_it_is(text: str, times: int) -> None:
    quoted = quotable(text * times)
    assert quoted.isprintable()
    assert len(quoted) <= 4_000
    assert quotable(quoted) == quoted
    if text.isprintable() and len(text * times) <= 4_000:
        assert quoted == text * times


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("", ""),
        ("plain é 😀", "plain é 😀"),
        ("a\nb\tc\rd", "a b c d"),
        ("a\u2028b\u00a0c", "a b c"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\u202eb\u200bc", "a\\u202eb\\u200bc"),
        ("\ud83d", "\\ud83d"),
        ("\U000e0041", "\\U000e0041"),
        ("\x00\x7f\x9b", "\\x00\\x7f\\x9b"),
    ],
)
def test_what_cannot_be_seen_is_escaped(text: str, quoted: str) -> None:
    assert quotable(text) == quoted


def test_the_middle_of_a_long_text_is_left_out() -> None:
    quoted = quotable("a" * 100_000 + "the end")
    assert quoted.startswith("aaa") and quoted.endswith("the end")
    assert " [...] " in quoted
    assert len(quoted) == 4_000
    assert quotable("abcdefghij" * 4, 20) == "abcdefgh [...] fghij"


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_no_error_says_anything_else(cls: type[BranchpointError]) -> None:
    text = "checkpoint '\x1b[31m' " + "x" * 100_000
    more = {"validation_type": errors.ValidationTypeEnum.OUTPUT_VALIDATION}
    error = cls(text, **more) if cls is errors.WorkflowValidationError else cls(text)
    check_told(error, "checkpoint", "\\x1b")
    again = copy.copy(error) if not issubclass(cls, errors.WorkflowValidationError) else error
    assert str(again) == str(error)


def deep(levels: int, inner: Any = 1) -> list[Any]:
    value = inner
    for _ in range(levels):
        value = [value]
    return value  # type: ignore[no-any-return]


def test_a_value_that_is_far_too_deep_is_told_with_little_memory() -> None:
    """The way to its bottom is never written down."""
    value, circle = deep(30_000), deep(15_000)
    bottom = circle
    while type(bottom[0]) is list:
        bottom = bottom[0]
    bottom[0] = circle
    for one in (value, circle):
        for call in (copy_value, lambda found: encode(found, format="json")):
            tracemalloc.start()
            try:
                with pytest.raises(UnsupportedValueError) as caught:
                    call(one)
                _, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            check_told(caught.value)
            assert most < 30 << 20
    bottom[0] = 1  # or it would be freed by the collector alone


def test_a_long_key_is_cut_short_in_a_path() -> None:
    for key in ("k" * 100_000, "\x1b" * 500, b"x" * 100_000, 10**5000):
        with pytest.raises(BranchpointError) as caught:
            encode({"a": {key: [print]}}, format="json", path="state")
        check_told(caught.value, "state.a")
        assert len(str(caught.value)) < 1_200
