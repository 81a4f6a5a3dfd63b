from __future__ import annotations

from enum import IntEnum
from typing import Any

import pytest

from branchpoint.checkpoint import Checkpoint, check_id
from branchpoint.checkpoint._plain import copy_labels, copy_metadata, copy_plain, copy_signature
from branchpoint.errors import InvalidCallError
from tests.unit.checkpoint.doubles import new_checkpoint


class Level(IntEnum):
    LOW = 1


@pytest.mark.parametrize(
    "good", ["a", "a/b", "../../x", "C:\\x", "*", "é" * 512, "x' OR '1'='1", " ", "\u2028"]
)
def test_any_text_is_an_id(good: str) -> None:
    assert check_id(good) == good
    assert new_checkpoint(checkpoint_id=good).checkpoint_id == good


@pytest.mark.parametrize("bad", ["", "a" * 513, "a\x00b", "a\nb", "\x7f", "\x85", "\ud83d", 7, b"a", ("a",)])
def test_a_refused_id_is_refused_at_creation_and_not_echoed(bad: Any) -> None:
    with pytest.raises(InvalidCallError) as caught:
        new_checkpoint(checkpoint_id=bad)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "bad",
    [
        {"k": 1},
        {1: "v"},
        {"k": None},
        {"k": "\ud83d"},
        {"\ud83d": "v"},
        [("k", "v")],
    ],
)
def test_a_checkpoint_s_own_metadata_is_text_to_text(bad: Any) -> None:
    with pytest.raises(InvalidCallError, match="metadata"):
        copy_labels(bad)


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *(("workflow_name", bad) for bad in ("\ud83d", 5, None, b"w")),
        *(("graph_signature_hash", bad) for bad in ("\ud83d", 5, None)),
        *(
            ("signature", bad)
            for bad in (
                {"k": "\ud83d"},
                {"\ud83d": 1},
                {"k": [float("nan")]},
                {"k": {5: 1}},
                {"k": 2**64},
                {"k": {1, 2}},
                {"k": LOOP},
                [("k", "v")],
                None,
            )
        ),
    ],
)
def test_what_no_backend_could_keep_is_refused_at_creation(name: str, bad: Any) -> None:
    good: dict[str, Any] = {
        "workflow_name": "w",
        "graph_signature_hash": "h",
        "signature": {"k": [1, {"a": None}]},
    }
    assert Checkpoint.create(**good).header.signature == good["signature"]
    with pytest.raises(InvalidCallError, match=name) as caught:
        Checkpoint.create(**(good | {name: bad}))
    assert str(caught.value).isprintable()


def test_a_signature_is_checked_once_and_shared_from_then_on() -> None:
    given = {"k": [1]}
    kept = copy_signature(given)
    given["k"].append(2)
    assert kept == {"k": [1]}
    assert copy_signature(kept) is kept
    checkpoint = Checkpoint.create(workflow_name="w", graph_signature_hash="h", signature=kept)
    checkpoint.header.signature["k"].append(3)
    assert type(checkpoint.header.signature) is dict
    assert kept == {"k": [1]}


@pytest.mark.parametrize(
    "bad",
    [
        {"boundary": "lunch"},
        {"k": float("nan")},
        {"k": float("inf")},
        {"k": 2**64},
        {"k": (1, 2)},
        {"k": {1: 2}},
        {"k": b"x"},
        {"k": Level.LOW},
        {"k": "\ud83d"},
        {"k": LOOP},
        {"k": object()},
        {1: 2},
        {"k": "x" * 16_384},
        "text",
        7,
    ],
)
def test_a_commit_s_metadata_is_plain_json(bad: Any) -> None:
    with pytest.raises(InvalidCallError, match="metadata"):
        copy_metadata(bad)


def test_metadata_is_copied_at_every_depth() -> None:
    given = {"a": [1, {"b": None}], "c": 1.5, "d": "x" * 16_000}
    copied = copy_metadata(given)
    assert copied == given
    given["a"][1]["b"] = 2  # type: ignore[index]
    assert copied["a"] == [1, {"b": None}]
    again = copy_plain(copied)
    again["a"][1]["b"] = 3
    assert copied["a"] == [1, {"b": None}]
    assert copy_metadata(None) == {}
    assert copy_labels(None) == {}
