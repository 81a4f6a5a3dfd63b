"""Parts that refer to each other as no writer would let them, and trees that are cut in odd places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from branchpoint import codec
from branchpoint.checkpoint import Checkpoint, Format
from branchpoint.errors import BranchpointError, CorruptCheckpointError
from branchpoint.storage import MemoryCheckpointStorage
from tests.hostile.forge import (
    ID,
    Forgery,
    all_reads,
    forgery,
    laughing,
    refused,
    refused_everywhere,
    state_with,
    storage_of,
    wire,
)
from tests.hostile.test_bytes import little_memory
from tests.states import output, request
from tests.storages import state

CORRUPT = CorruptCheckpointError
SHAPES = ["list", "dict", "$l", "$d"]


async def read_fully(made: Forgery) -> tuple[Checkpoint | None, list[BranchpointError]]:
    """Load a journal and read all of it; the checkpoint, if it loads, and the errors."""
    written = made.write()
    try:
        loaded = await storage_of(made.path.parent, made.format).load(ID)
    except CORRUPT as error:
        return None, [error]
    errors = await all_reads(loaded)
    lazy = await storage_of(made.path.parent, made.format, lazy_over=0).load(ID)
    await all_reads(lazy)
    assert made.path.read_bytes() == written
    return loaded, errors


# Few bytes that stand for many.


@pytest.mark.parametrize("shape", SHAPES)
async def test_c62_forty_parts_that_stand_for_a_million_million_values_are_refused_when_read(
    runs: Path, format: Format, shape: str
) -> None:
    """Loading looks at each part once, so it is quick; reading a value counts what it would come to."""
    leaf: Any = {"a": 1} if shape in ("$d", "dict") else [1]
    node, parts = laughing(format, shape, 40, leaf)
    made = await forgery(runs, format)
    with little_memory():
        made.give_value(node, parts)
        loaded, errors = await read_fully(made)
        assert loaded is not None
        assert loaded.head_snapshot is not None
        for call in (lambda: loaded.head_snapshot.state, loaded.head_snapshot.plain_state):  # type: ignore[union-attr]
            await refused(call, CORRUPT, ID, loaded.head_snapshot.snapshot_id, "references")
        assert errors
        assert loaded.status == "idle"


PLACES: dict[str, Callable[[dict[str, Any], Any], None]] = {
    "an output": lambda whole, node: whole["messages"].update(output=[output("o", node)]),
    "the outputs": lambda whole, node: whole["messages"].update(output=node),
    "a request": lambda whole, node: whole["messages"]["pending"].update(requests={"ask": request(node)}),
    "the requests": lambda whole, node: whole["messages"]["pending"].update(requests=node),
    "the schema of a request": lambda whole, node: whole["messages"]["pending"].update(
        requests={"ask": request("?", response_schema=node)}
    ),
    "the path of a request": lambda whole, node: whole["messages"]["pending"].update(
        requests={"ask": request("?", path=node)}
    ),
    "the input": lambda whole, node: whole["messages"]["input"].update(value=node),
    "earlier inputs": lambda whole, node: whole["messages"]["input"].update(earlier=node),
    "a delivery": lambda whole, node: whole["messages"]["pending"].update(
        deliveries=[{"value": node, "sources": [], "targets": ["a"]}]
    ),
    "the targets of a delivery": lambda whole, node: whole["messages"]["pending"].update(
        deliveries=[{"value": 1, "sources": [], "targets": node}]
    ),
    "the state of an executor": lambda whole, node: whole["executor_states"].update(a={"field": node}),
    "the executors": lambda whole, node: whole.update(executor_states=node),
    "the buffers": lambda whole, node: whole.update(edge_states=node),
    "the shared state": lambda whole, node: whole["workflow_state"].update(shared=node),
}


@pytest.mark.parametrize("where", PLACES)
async def test_c62_wherever_they_stand_every_reader_ends(runs: Path, format: Format, where: str) -> None:
    made = await forgery(runs, format)
    with little_memory():
        for shape in ("list", "$d") if format == "json" else ("dict", "$l"):
            leaf: Any = {"a": 1} if shape in ("$d", "dict") else ["a"]
            node, parts = laughing(format, shape, 40, leaf)
            whole = state(1)
            PLACES[where](whole, node)
            made.give_state(wire(whole, format), parts)
            made.head.manifest = {
                **{
                    key: value
                    for key, value in made.head.manifest.items()
                    if key not in ("rq", "sig", "meta")
                },
                "rq": ["ask"],
                "sig": "sig",
            }
            loaded, errors = await read_fully(made)
            assert loaded is not None
            assert errors, (where, shape)
            for call in (
                lambda: loaded.abandon(),  # noqa: B023
                lambda: loaded.prune(),  # noqa: B023
                lambda: loaded.fork(checkpoint_storage=MemoryCheckpointStorage()),  # noqa: B023
                lambda: loaded.commit_snapshot(),  # noqa: B023
            ):
                try:
                    await call()
                except BranchpointError as error:
                    assert ID in str(error) or "edited state" in str(error)


async def test_c62_one_large_part_that_is_mentioned_often_is_refused_as_well(format: Format) -> None:
    with little_memory():
        for leaf, often in (([[]] * 100_000, 2_000), ({f"{n}": [] for n in range(50_000)}, 1_000)):
            node, parts = laughing(format, "list", 1, leaf, often)
            table = {codec.digest(part): part for part in parts}
            data = wire(node, format)
            for read in (codec.decode, codec.plain):
                await refused(lambda: read(data, table, format=format), CORRUPT, "references")  # noqa: B023


async def test_a_text_that_stands_in_many_places_is_no_such_case(format: Format) -> None:
    """What is committed can be loaded: a text cannot change, so there need only be one of it."""
    value = {
        "rows": [{"text": "x" * 1_000_000}] * 2 + ["x" * 1_000_000] * 100,
        "few": [["y" * 500] * 50] * 50,
    }
    encoded, _ = codec.encode(value, format=format)
    parts = codec.new_parts(encoded, ())
    with little_memory():
        assert codec.decode(encoded.data, parts, format=format) == value
        assert codec.plain(encoded.data, parts, format=format) == value


async def test_a_large_state_of_many_alike_values_is_no_such_case(format: Format) -> None:
    value = [{"name": "n" * 100, "list": [n % 7, "i" * 120]} for n in range(7)] * 3_000
    encoded, _ = codec.encode(value, format=format)
    parts = codec.new_parts(encoded, ())
    assert len(parts) < 3_000
    assert codec.decode(encoded.data, parts, format=format) == value


# Parts that lead nowhere, or back.

NAME, OTHER = "A" * 22, "B" * 22


def circles() -> dict[str, Callable[[str], Any]]:
    """Trees that mention a part, by what they do with it."""
    return {
        "a reference": lambda name: {"$p": name},
        "a list": lambda name: [{"$p": name}],
        "a dict": lambda name: {"x": {"$p": name}},
        "a node of a list": lambda name: {"$l": [{"$p": name}]},
        "two nodes of a list": lambda name: {"$l": [[1], {"$p": name}]},
        "a node of a dict": lambda name: {"$d": [{"$p": name}]},
        "two nodes of a dict": lambda name: {"$d": [{"a": 1}, {"$p": name}]},
        "a tuple": lambda name: {"$": "tuple", "v": [{"$p": name}]},
        "a tag": lambda name: {"$": "deque", "v": [None, {"$p": name}]},
        "a pair": lambda name: {"$": "dict", "v": [[{"$p": name}, {"$p": name}]]},
        "a set": lambda name: {"$": "set", "v": [{"$p": name}]},
        "a nested node": lambda name: {"$l": [{"$l": [{"$l": [{"$p": name}]}]}]},
    }


@pytest.mark.parametrize("what", circles())
async def test_c62_parts_in_a_circle_are_refused_by_every_reader(format: Format, what: str) -> None:
    """No digest can be found for such a part; a faulty backend may give one all the same."""
    made = circles()[what]
    for length in (1, 7):
        names = [f"{n:022d}" for n in range(length)]
        table = {name: wire(made(names[(n + 1) % length]), format) for n, name in enumerate(names)}
        table |= {f"other{n:017d}": wire(["x" * 100, n], format) for n in range(500)}
        await _refuse_reading(table, names[0], format)
        with pytest.raises(CORRUPT):
            Checkpoint.restore(
                **_restorable(table, names[0], format),
            )


@pytest.mark.parametrize("what", circles())
async def test_c62_parts_in_a_circle_in_a_journal_are_refused_when_they_are_read(
    runs: Path, format: Format, what: str
) -> None:
    """Whoever seals a journal by hand names its parts at will; a load ends, and so does every reading."""
    made = await forgery(runs, format)
    trees = circles()[what]
    for length in (1, 7):
        names = [f"{n:022d}" for n in range(length)]
        made.give_value(trees(names[0]))
        for n, name in enumerate(names):
            made.head.parts[name] = wire(trees(names[(n + 1) % length]), format)
        with little_memory():
            loaded, errors = await read_fully(made)
            assert any(isinstance(error, CORRUPT) for error in errors)
            if loaded is not None:
                assert loaded.head_snapshot is not None
                await refused(lambda: loaded.head_snapshot.state, CORRUPT, ID)  # type: ignore[union-attr] # noqa: B023


def _restorable(table: Mapping[str, bytes], root: str, format: Format) -> dict[str, Any]:
    from branchpoint.checkpoint import decode_header, decode_manifest

    header = {"branchpoint": 1, "id": ID, "wf": "w", "sig": "s", "at": "2026-01-01T00:00:00Z"}
    manifest = {
        "id": "s1",
        "at": "2026-01-01T00:00:00Z",
        "root": root,
        "b": "edited",
        "st": "idle",
        "sig": "s",
    }
    return {
        "header": decode_header(wire(header, "json"), format="json", checkpoint_id=ID),
        "manifests": [decode_manifest(wire(manifest, "json"), format="json", checkpoint_id=ID)],
        "head_snapshot_id": "s1",
        "parts": table,
        "checkpoint_storage": storage_of(Path("unused"), format),
    }


async def _refuse_reading(table: Mapping[str, bytes], root: str, format: Format) -> None:
    data = table[root]
    other: Format = "msgpack" if format == "json" else "json"
    with little_memory():
        for call in (
            lambda: codec.decode(data, table, format=format),
            lambda: codec.decode_state(root, table, format=format),
            lambda: codec.plain(data, table, format=format),
            lambda: codec.transcode(root, table, source=format, target=other),
        ):
            await refused(call, CORRUPT)
        for look in (
            lambda: codec.open_list(data, table, format=format),
            lambda: codec.open_dict(data, table, format=format),
            lambda: codec.reachable([root], table, format=format),
        ):
            try:
                look()
            except CORRUPT:
                pass


async def test_c62_a_part_that_is_missing_is_told_at_load(runs: Path, format: Format) -> None:
    forged = await forgery(runs, format)
    for name in (NAME, "", "x" * 100_000, "\x1b[31m\u202e", "../../x", "é" * 22):
        for what, made in circles().items():
            if format == "msgpack" and len(name.encode()) != 22:
                continue  # not what a reference looks like there, so it is told when it is read
            forged.give_value(made(name))
            assert what
            forged.write()
            await refused_everywhere(forged, CORRUPT)


async def test_c62_bytes_that_do_not_match_their_digest_are_told(format: Format) -> None:
    """A journal proves by its seals what it holds, so only another backend can come up with one."""
    good = wire(state(1), format)
    for bad in (good + b" ", good[:-1], b"", wire(state(2), format)):
        await refused(
            lambda: Checkpoint.restore(**_restorable({codec.digest(good): bad}, codec.digest(good), format)),  # noqa: B023
            CORRUPT,
            ID,
        )
        table = {codec.digest(good): good, codec.digest(bad + b"x"): bad}
        await refused(
            lambda: Checkpoint.restore(**_restorable(table, codec.digest(good), format)),  # noqa: B023
            CORRUPT,
            ID,
            "digest",
        )


# Trees.

TREES: list[Any] = [
    {"$l": []}, {"$l": [[], {"$l": []}]}, {"$d": []}, {"$d": [{}, {"$d": []}]}, {"$l": [[1]], "x": 1}, {"x": 1,
    "$l": [[1]]}, {"$l": {}}, {"$l": None}, {"$l": "x"}, {"$l": [1]}, {"$l": [None]}, {"$l": [{}]},
    {"$l": [{"a": 1}]}, {"$l": [{"$d": [{}]}]}, {"$d": [[1]]}, {"$d": [{"$l": [[1]]}]}, {"$d": [1]},
    {"$d": {"a": 1}}, {"$d": [{"a": 1}, {"a": 1}]}, {"$d": [{"$x": 1}]}, {"$d": [{"a": 1}, {"$": "tuple",
    "v": []}]}, {"$p": None}, {"$p": 1}, {"$p": []}, {"$p": {}}, {"$p": NAME, "x": 1}, {"x": 1, "$p": NAME},
    {"$p": {"$p": NAME}}, {"$l": [[1]], "$d": [{}]}, {"$l": [{"$": "tuple", "v": []}]}, {"$q": 1}, {"$": 1},
    {"$": None}, {"$": [], "v": 1}, {"$": {}, "v": 1}, {"$": "tuple"}, {"$": "tuple", "v": [], "n": 2},
    {"$": "dict", "v": []}, {"$": "dict", "v": [["a", 1]]}, {"$": "dict", "v": [[1, 1], [1.0, 2]]}, {"$": "dict",
    "v": [[[], 1]]},
]  # fmt: skip


async def test_c62_a_tree_that_no_writer_cuts_so_is_refused_when_it_is_read(
    runs: Path, format: Format
) -> None:
    made = await forgery(runs, format)
    for n, tree in enumerate(TREES):
        for value in (tree, [tree], {"a": tree}, {"$": "tuple", "v": [tree]}):
            made.give_value(value)
            loaded, errors = await read_fully(made)
            assert errors, tree
            if loaded is not None:
                assert loaded.head_snapshot is not None
                await refused(lambda: loaded.head_snapshot.state, (CORRUPT,), ID)  # type: ignore[union-attr] # noqa: B023
        if n % 3 == 0:
            part = wire(tree, format)
            made.give_value({"$p": codec.digest(part)}, [part])
            assert (await read_fully(made))[1], tree


async def test_a_tree_that_is_cut_anywhere_is_read(runs: Path, format: Format) -> None:
    """Empty leaves and deep single nodes are no value's own form, but they say what they say."""
    made = await forgery(runs, format)
    for tree, value in (
        ({"$l": [[]]}, []),
        ({"$l": [[], [1], []]}, [1]),
        ({"$l": [{"$l": [{"$l": [[1, 2]]}]}, [3]]}, [1, 2, 3]),
        ({"$d": [{}]}, {}),
        ({"$d": [{}, {"a": 1}, {"$d": [{"b": 2}]}]}, {"a": 1, "b": 2}),
    ):
        made.give_value(tree)
        loaded, errors = await read_fully(made)
        assert loaded is not None
        assert not [error for error in errors if isinstance(error, CORRUPT)]
        assert loaded.head_snapshot is not None
        assert loaded.head_snapshot.state == state_with(value)
        assert loaded.head_snapshot.plain_state() == state_with(value)
