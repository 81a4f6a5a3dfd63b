"""The pure parts of the storage in Cosmos DB: names, text of bytes, numbers that stay, packing, plans."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchpoint.errors import CorruptCheckpointError, UnknownVersionError

pytest.importorskip("azure.cosmos")

from branchpoint.storage.cosmos._heads import as_document, new_head
from branchpoint.storage.cosmos._items import (
    HeadItem,
    Listed,
    Numbers,
    PartsItem,
    SnapshotItem,
    base64_size,
    bytes_of,
    data_of,
    encoded_size,
    parts_in,
    read_item,
)
from branchpoint.storage.cosmos._names import partition_name, snapshot_name, sort_key
from branchpoint.storage.cosmos._packing import REQUEST_BYTES, packed
from branchpoint.storage.cosmos._sweeps import planned
from branchpoint.storage.cosmos._troubles import driver, moment_of, seconds_to_wait, told

_IDS = st.text(st.characters(exclude_categories=("C",)), min_size=1, max_size=512)


@given(_IDS, _IDS)
def test_c58_names_never_meet_and_are_legal(one: str, other: str) -> None:
    assert (partition_name(one) == partition_name(other)) == (one == other)
    for name in (partition_name(one), snapshot_name("life", one)):
        assert re.fullmatch(r"[\w.~-]{1,200}", name, re.ASCII)
    assert (sort_key(one) < sort_key(other)) == (one < other)


@given(st.one_of(st.binary(), st.text().map(str.encode)))
def test_bytes_come_back_and_take_no_more_than_base64(data: bytes) -> None:
    written = json.dumps(data_of(data))
    assert bytes_of(json.loads(written), "c") == data
    assert len(written) <= max(base64_size(len(data)), 2) + 1


def test_what_can_be_read_is_stored_so() -> None:
    assert (
        data_of(b'{"a":["Gr\xc3\xbc\xc3\x9fe an alle, die hier lesen",1.50]}')
        == '{"a":["Grüße an alle, die hier lesen",1.50]}'
    )
    assert isinstance(data_of("日本語のテキスト".encode()), dict)


@given(st.sets(st.integers(1, 60)), st.integers(60, 80), st.integers(0, 5))
def test_the_numbers_that_stay_are_those_that_were_kept(kept: set[int], cut: int, later: int) -> None:
    runs = Numbers.runs(kept, cut)
    head = _head(n=cut + later, cut=cut, runs=runs)
    assert {n for n in range(1, cut + 10) if n in Numbers(head)} == kept | set(
        range(cut + 1, cut + later + 1)
    )


def test_c54_a_head_that_does_not_say_what_stays_is_damaged() -> None:
    for wrong in ({"n": 3, "cut": 2, "runs": (1,)}, {"n": 3, "cut": 4, "runs": (4,)}, {"n": 3, "cut": 1}):
        with pytest.raises(CorruptCheckpointError):
            Numbers(_head(**wrong))


def _head(**fields: Any) -> HeadItem:
    return read_item(
        {**as_document(new_head("c", "l")), "kind": "head", "head": "s", **fields}, HeadItem, "c"
    )


def test_c54_items_are_read_strictly() -> None:
    document = as_document(_head(n=1))
    for field, wrong in (
        ("n", -1), ("n", "1"), ("kind", "other"), ("format", "xml"), ("life", None), ("header", {"base": "x"}),
        ("checkpoint_id", "another"), ("v", 0), ("v", None), ("head", None), ("runs", [1.5]), ("lease", "x"),
    ):  # fmt: skip
        with pytest.raises(CorruptCheckpointError, match="'c'"):
            read_item({**document, field: wrong}, HeadItem, "c")
    with pytest.raises(UnknownVersionError, match="upgrade"):
        read_item({**document, "v": 2, "n": "of another kind"}, HeadItem, "c")
    with pytest.raises(CorruptCheckpointError):
        bytes_of({"base64": "%%%"}, "c")


@given(st.lists(st.integers(0, 1_500_000), max_size=6), st.integers(0, 900_000))
def test_what_is_packed_fits_and_comes_back(sizes: list[int], room: int) -> None:
    parts = {f"part-{k}": bytes([k]) * size for k, size in enumerate(sizes)}
    bundle, ahead = packed(parts, room)
    assert encoded_size([bundle.names, bundle.sizes, bundle.data]) <= room + 20
    items: list[Any] = [
        SnapshotItem(
            id="s", partition="c", life="l", snapshot_id="s", n=1, manifest="", names=bundle.names,
            sizes=bundle.sizes, data=bundle.data,
        )
    ]  # fmt: skip
    for k, one in enumerate(ahead):
        names, pieces, data, piece = one
        item = PartsItem(
            id=f"p{k}",
            partition="c",
            life="l",
            attempt="a",
            names=names,
            sizes=pieces,
            data=data,
            piece=piece,
        )
        assert encoded_size(as_document(item)) <= REQUEST_BYTES
        items.append(item)
    assert parts_in(items, "c") == parts
    assert len(items) == 1 or parts_in(items[1:], "c").keys() | set(bundle.names) == parts.keys()


def _listed(id: str, **fields: Any) -> Listed:
    kind = "snapshot" if id.startswith("s") else "parts"
    document = {"id": id, "kind": kind, "life": "l", "_etag": f"e-{id}", "snapshot_id": id, **fields}
    return read_item(document, Listed, "c")


def test_r61_a_prune_leaves_alone_what_may_still_land() -> None:
    listed = [
        _listed("s1", n=1, attempt="a1", names=["x"]),
        _listed("s2", n=2, names=["y"]),
        _listed("s3", n=3),
        _listed("s4", n=4, generation=1, attempt="a4", names=["z"]),
        _listed("p-a1", attempt="a1", names=["k", "gone"]),
        _listed("p-left", attempt="failed", names=["k"]),
        _listed("p-a4", attempt="a4", generation=1, names=["q"]),
        _listed("p-coming", attempt="soon", generation=1, names=["q"]),
        _listed("p-old", attempt="long ago", landed=True, names=["k"]),
        _listed("p-old-gone", attempt="long ago", landed=True, names=["gone"]),
        _listed("p-dead", life="before", generation=7, names=["k"]),
    ]
    plan = planned(listed, life="l", generation=1, keep={"s3"}, parts={"k", "y"})
    assert [one.id for one in plan.rewritten] == ["p-a1"]
    assert [one.id for one in plan.turned] == ["s2"]
    assert dict(plan.removed) == {
        "s1": None, "p-left": "e-p-left", "p-old-gone": "e-p-old-gone", "p-dead": None
    }  # fmt: skip
    assert plan.loose == 3


def test_the_service_is_waited_for_as_it_says() -> None:
    from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosHttpResponseError

    inside = CosmosBatchOperationError(
        error_index=0,
        headers={},
        status_code=449,
        operation_responses=[{"statusCode": 449, "retryAfterMilliseconds": 70}, {"statusCode": 424}],
    )
    assert seconds_to_wait(inside, 0) == 0.07
    assert [seconds_to_wait(CosmosHttpResponseError(429), n) for n in (0, 3, 20)] == [0.01, 0.08, 1.0]
    assert driver().HttpError == (CosmosHttpResponseError, CosmosBatchOperationError)
    assert moment_of({"Date": "Thu, 01 Jan 1970 00:01:40 GMT"}) == 100
    assert moment_of({}) is moment_of({"Date": "soon"}) is None
    assert "throughput" in str(told(CosmosHttpResponseError(429, "slow"), "committing", where="x"))
