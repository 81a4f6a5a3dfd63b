"""Values and metadata come back with the type and value that they had."""

from __future__ import annotations

from typing import Any

from branchpoint.testing._clause import clause
from branchpoint.testing._findings import same
from branchpoint.testing._place import Place
from branchpoint.testing.samples import create, shared, small_state

_VALUES: dict[str, Any] = {
    "nothing": None,
    "truth and numbers": [True, 1, 1.0, 0, False, 0.0, -0.0, 1e22, 1.5, 5e-324],
    "long numbers": [-(2**63), 2**53 + 1, 2**63, 2**64 - 1, 10**40],
    "not numbers": [float("nan"), float("inf"), float("-inf")],
    "texts": ["", " ", "a\x00b", "\u2028", "é", "e\u0301", "😀", "'; DROP TABLE x; --", "\\u0041", "%s"],
    "keys": {"a\x00b": 1, "": 2, "c\nd": 3, "$": 4, "E\u0301": 5, "É": 6},
    "order of keys": {"b": 1, "a": 2},
    "other kinds": [(1, (2,)), {3, 4}, frozenset({5}), b"\x00\xff", bytearray(b"x"), {1: "one", None: 2}],
    "deep": [[[[[[[[[[[1]]]]]]]]]]],
    "empty": [[], {}, (), set(), b""],
    "many": list(range(3000)),
    "long": "x" * 1_000_000,
}


@clause("fidelity", shows="C50")
async def values_come_back_as_they_were(place: Place) -> None:
    """Every kind of value that a commit takes comes back with its exact type, value and order."""
    checkpoint = create(await place.storage())
    for name, value in _VALUES.items():
        await checkpoint.commit_snapshot(small_state(1, value=value, name=name))
    loaded = await (await place.storage()).load("order-17")
    await loaded.load_lineage()
    for (name, value), stored in zip(_VALUES.items(), loaded.snapshots, strict=True):
        await loaded.load_snapshot(stored.snapshot_id)
        same(repr(shared(stored)), repr({"value": value, "name": name}), name)


@clause("fidelity")
async def metadata_comes_back_as_it_was(place: Place) -> None:
    """Metadata of a checkpoint and of a snapshot comes back with the exact types of plain JSON."""
    labels = {"tenant": "é e\u0301", "": "empty", "a.b": "'\"\\", "null": "null"}
    notes = {"n": [1, 1.0, True, None, -0.0, 2**53 + 1], "text": "\u2028😀", "d": {"b": {}, "a": []}, "": ""}
    checkpoint = create(await place.storage(), metadata=labels)
    await checkpoint.commit_snapshot(small_state(1), notes)
    loaded = await (await place.storage()).load("order-17")
    same(loaded.metadata, labels)
    same(repr(loaded.snapshots[0].metadata), repr({**notes, "boundary": "edited"}))
    same(loaded.created_at, checkpoint.created_at)
    same(loaded.snapshots[0].timestamp, checkpoint.snapshots[0].timestamp)


@clause("fidelity")
async def large_states_and_long_lineages_come_back(place: Place) -> None:
    """A state of megabytes and of hundreds of parts comes back, and so does a lineage of a hundred commits."""
    checkpoint = create(await place.storage())
    big = {f"k{n}": f"{n:06} " * 700 for n in range(600)}
    await checkpoint.commit_snapshot(small_state(0, **big))
    for n in range(100):
        await checkpoint.commit_snapshot(small_state(n + 1, n=n))
    loaded = await (await place.storage()).load("order-17")
    await loaded.load_lineage()
    same([one.superstep for one in loaded.snapshots], list(range(101)))
    first = await loaded.load_snapshot(loaded.snapshots[0].snapshot_id)
    same(shared(first) == big, True, "the large state is as it was")
