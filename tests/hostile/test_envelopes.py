"""Headers, manifests and records with one thing wrong in them, sealed as well as anybody could."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from branchpoint import codec
from branchpoint.checkpoint import (
    BUCKETS,
    CheckpointSnapshot,
    Format,
    Header,
    Manifest,
    decode_header,
    decode_manifest,
)
from branchpoint.errors import (
    BranchpointError,
    CorruptCheckpointError,
    GraphMismatchError,
    InvalidCallError,
    UnknownVersionError,
    UnregisteredTypeError,
)
from branchpoint.storage._journal import PREAMBLE_SIZE, sealed
from tests.hostile.forge import (
    ID,
    Forgery,
    all_reads,
    check_told,
    forgery,
    refused,
    refused_everywhere,
    storage_of,
    wire,
)
from tests.storages import create, state

CORRUPT = CorruptCheckpointError
LONG, RED = "x" * 100_000, "\x1b[31m\u202e"
HUGE = 10**4000
COUNT: list[Any] = [None, "1", 1.0, 1.5, -1, True, [], {}, 2**63, LONG]
TEXT: list[Any] = [None, 1, True, [], {}, [LONG], -0.0]
TEXTS: list[Any] = [None, "x", 1, {}, [1], [None], ["x", []]]
PLAIN: list[Any] = [None, "x", 1, [], {"x": 2**64}, {"x": -(2**63) - 1}, [[LONG]]]
TIME: list[Any] = [
    None, 1, "", "x", LONG, RED, "2026-01-01", "2026-01-01T00:00:00", "2026-01-01T00:00:00+00:00",
    "2026-01-01T02:00:00+02:00", "2026-13-01T00:00:00Z", "0000-00-00T00:00:00Z", "9999-12-31T23:59:60Z",
    "2026-01-01T00:00:00.0000001Z", 2**40,
]  # fmt: skip
VERSION: list[Any] = [0, -1, "1", None, 1.0, True, [1], {}, -(2**63)]


def deep(levels: int, kind: type = dict) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"x": value} if kind is dict else [value]
    return value


HEADER: dict[str, list[Any]] = {
    "id": [*TEXT, "", "order-18", "ORDER-17", "order-17 ", "order-17\x00", LONG, RED],
    "wf": TEXT,
    "sig": TEXT,
    "graph": [*PLAIN, {"x": deep(65)}, deep(200), {"x": deep(300, list)}],
    "meta": [None, "x", 1, [], {"x": 1}, {"x": None}, {"x": {}}],
    "at": TIME,
    "gen": COUNT,
    "pruned": [None, "x", 1, [], {"x": 1}, {"x": []}, {"x": {"x": None}}],
}
MANIFEST: dict[str, list[Any]] = {
    "id": [*TEXT, ""],
    "up": [*TEXT[1:], "", "nothing", LONG, RED],
    "at": TIME,
    "root": [*TEXT, "", "A" * 22, LONG, RED, "../../x"],
    "b": [*TEXT, "", "x", "Completed", LONG, RED, "branched"],
    "st": [*TEXT, "", "x", "failed", LONG, RED],
    "n": COUNT,
    "in": TEXT[1:],
    "rq": TEXTS,
    "ex": TEXTS,
    "sig": TEXT,
    "meta": [*PLAIN, {"x": deep(65)}, {"boundary": 5}, deep(200), deep(600), {"x": deep(300, list)}],
    "tr": TEXT[1:],
    "from": [1, "x", [], {}, {"c": 1, "s": "x"}, {"c": "x"}, {"c": "x", "s": "x", "more": 1}],
}
REQUIRED = {
    "header": ("branchpoint", "id", "wf", "sig", "at"),
    "manifest": ("id", "at", "root", "b", "st", "sig"),
}
DEFAULTS: dict[str, Any] = {
    "up": None,
    "n": 0,
    "in": None,
    "rq": [],
    "ex": [],
    "tr": None,
    "from": None,
    "v": 1,
}


def changed(tree: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """A record with one field changed; one that was left out stands where it would be written."""
    more = {**tree, name: value}
    order = (Header if "branchpoint" in tree else Manifest).__struct_encode_fields__
    return {key: more.pop(key) for key in (*order, *more) if key in more}


def wrong_envelopes(
    tree: dict[str, Any], fields: dict[str, list[Any]], which: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every way in which one thing in an envelope can be wrong."""
    for name in REQUIRED[which]:
        yield f"without {name}", {key: value for key, value in tree.items() if key != name}
    for name, values in fields.items():
        for value in values:
            yield f"{name} is {value!r}"[:80], changed(tree, name, value)
    for name in ("x", "", "$", RED, LONG, "__class__"):
        yield f"with {name!r}"[:80], {**tree, name: 1}
        yield f"begins with {name!r}"[:80], {name: 1, **tree}
    yield "in another order", dict(reversed(tree.items()))
    yield "empty", {}
    for name, value in DEFAULTS.items():
        if which == "manifest" and name not in tree:
            yield f"says that {name} is its default", changed(tree, name, value)


def encoded(tree: Any, format: Format) -> bytes | None:
    """The bytes of an envelope; None where the notation has no such bytes."""
    try:
        return wire(tree, format)
    except (OverflowError, RecursionError):
        return None


async def test_c62_a_header_with_one_thing_wrong_is_refused(runs: Path, format: Format) -> None:
    made = await forgery(runs, format)
    good = made.header
    made.write()
    assert len((await storage_of(runs, format).load(ID)).snapshots) == 3
    for what, tree in wrong_envelopes(good, HEADER, "header"):
        data = encoded(tree, format)
        if data is None:
            continue
        error = await refused(lambda: decode_header(data, format=format, checkpoint_id=ID), CORRUPT, ID)  # noqa: B023
        assert len(str(error)) < 500, what
        made.header = tree
        written = made.write()
        await refused(lambda: storage_of(runs, format).load(ID), CORRUPT, ID)
        await refused(lambda: create(storage_of(runs, format)).commit_snapshot(state()), CORRUPT, ID)
        assert made.path.read_bytes() == written, what
    made.header = good
    made.header["id"] = "order-18"
    made.write()
    await refused_everywhere(made, CORRUPT, "order-18")


async def test_c62_a_manifest_with_one_thing_wrong_is_refused(runs: Path, format: Format) -> None:
    made = await forgery(runs, format)
    good = made.head.manifest
    for what, tree in wrong_envelopes(good, MANIFEST, "manifest"):
        made.head.manifest = tree
        if encoded(tree, format) is None:
            continue
        written = made.write()
        error = await refused(lambda: storage_of(runs, format).load(ID), CORRUPT, ID)
        assert len(str(error)) < 500, what
        assert made.path.read_bytes() == written, what


async def test_c62_a_version_that_is_none_or_of_the_future_is_told_apart(runs: Path, format: Format) -> None:
    made = await forgery(runs, format)
    for where, name in (("header", "branchpoint"), ("manifest", "v")):
        fresh = copy.deepcopy(made.header), copy.deepcopy(made.head.manifest)
        tree = made.header if where == "header" else made.head.manifest
        for version in VERSION:
            tree[name] = version
            made.write()
            await refused_everywhere(made, CORRUPT)
        for version in (2, 999, 2**63, 2**64 - 1, *([HUGE] if format == "json" else [])):
            tree[name] = version
            data = made.write() if version != HUGE else made.write(_huge(made, where, name))
            await refused_everywhere(made, UnknownVersionError, "version")
            tree["and what it has"] = {"more": [1]}  # a later version may
            if version != HUGE:
                made.write()
                await refused_everywhere(made, UnknownVersionError, "version")
            del tree["and what it has"]
            assert data != b""
        made.header, made.head.manifest = fresh


def _huge(made: Forgery, where: str, name: str) -> list[bytes]:
    """The bodies with a version that msgspec does not write."""
    place = 0 if where == "header" else -1
    (made.header if where == "header" else made.head.manifest)[name] = 987_654
    bodies = made.bodies()
    bodies[place] = bodies[place].replace(b"987654", b"9" * 4000)
    return bodies


async def test_c62_the_title_of_a_journal_says_a_version_and_a_format(runs: Path, format: Format) -> None:
    made = await forgery(runs, format)
    data = made.write()
    other = "msgpack" if format == "json" else "json"
    for old, new, error in (
        (b'"version":1,', b'"version":2,', UnknownVersionError),
        (b'"version":1,', b'"version":0,', UnknownVersionError),
        (b'"version":1,', b'"version":-', CORRUPT),
        (b'"journal"', b'"jOurnal"', CORRUPT),
        (f'"{format}"'.encode(), b'"yaml"', CORRUPT),
        (f'"{format}"'.encode(), f'"{other}"'.encode(), CORRUPT),
        (b"}    ", b"} \t  ", CORRUPT),
    ):
        made.path.write_bytes(data[:63].replace(old, new).ljust(63)[:63] + data[63:])
        await refused_everywhere(made, error)


# Records.


async def test_c62_a_record_of_another_shape_is_refused(runs: Path, format: Format) -> None:
    made = await forgery(runs, format)
    header, *commits = made.bodies()
    manifest = made.head.manifest
    parts = {name: msgspec.Raw(part) for name, part in made.head.parts.items()}
    shapes: dict[str, Any] = {
        "no parts": {"manifest": manifest},
        "no manifest": {"parts": parts},
        "another order": {"parts": parts, "manifest": manifest},
        "more": {"manifest": manifest, "parts": parts, "x": 1},
        "more, unseen": {"manifest": manifest, "parts": parts, RED: LONG},
        "parts is null": {"manifest": manifest, "parts": None},
        "parts is a list": {"manifest": manifest, "parts": list(parts.values())},
        "parts is text": {"manifest": manifest, "parts": LONG},
        "manifest is null": {"manifest": None, "parts": parts},
        "manifest is a list": {"manifest": [manifest], "parts": parts},
        "manifest is text": {"manifest": LONG, "parts": parts},
        "empty": {},
        "a second header": {"header": made.header},
        "a kind that is no text": {"kind": 1, "must": False},
        "a must that is none": {"kind": "x", "must": 1},
        "a kind without must": {"kind": "x"},
    }
    for what, shape in shapes.items():
        made.write([header, *commits[:-1], wire(shape, format)])
        await refused_everywhere(made, CORRUPT)
        made.write([header, wire(shape, format), *commits])
        await refused_everywhere(made, CORRUPT)
        assert what
    for kind in ("names", RED, LONG):
        made.write([header, *commits, wire({"kind": kind, "must": True}, format)])
        await refused_everywhere(made, UnknownVersionError)
    for body in (b"{}", b"\x80", b"\x90", b"[]", b"{", b"null", b"\xc0", b"{\xff}", b"\xc1", b"{}{}"):
        if format == "msgpack" or body.startswith(b"{"):
            made.write([header, *commits[:-1], body])
            await refused_everywhere(made, CORRUPT)
            made.write([body, *commits])
            await refused_everywhere(made, CORRUPT)


ODD_NAMES = [
    "",
    "x" * 65,
    "x" * 100_000,
    "a b",
    "a/b",
    "../../x",
    "a.b",
    "é" * 22,
    "\x00",
    RED,
    LONG,
    '"',
    "\\u0041",
]


@pytest.mark.parametrize("name", ODD_NAMES, ids=range(len(ODD_NAMES)))
async def test_c62_a_part_with_a_name_that_is_none_is_refused(runs: Path, format: Format, name: str) -> None:
    made = await forgery(runs, format)
    made.head.parts[name] = wire(1, format)
    made.write()
    await refused_everywhere(made, CORRUPT, "name")
    # With nothing else wrong either: the state is there under that name.
    made.head.parts = {name: wire(state(1), format)}
    made.head.manifest["root"] = name
    made.write()
    await refused_everywhere(made, CORRUPT, "name")


async def test_c62_a_record_that_names_a_part_twice_is_refused(runs: Path, format: Format) -> None:
    made = await forgery(runs, format)
    good = made.bodies()
    part = {"json": b'"x":1', "msgpack": b"\xa1x\x01"}[format]
    other = {"json": b'"x":2', "msgpack": b"\xa1x\x02"}[format]
    made.head.parts = {"x": wire(1, format), "y": wire(1, format), **made.head.parts}
    body = made.bodies()[-1]
    for again in (part, other):  # the same part, and another one
        twice = body.replace({"json": b'"y":1', "msgpack": b"\xa1y\x01"}[format], again)
        assert twice != body
        made.write([*good[:-1], twice])
        await refused_everywhere(made, CORRUPT, "names a part twice")


async def test_c62_a_name_that_stands_for_two_parts_is_refused(runs: Path, format: Format) -> None:
    made = await forgery(runs, format)
    made.records[0].parts["x"] = made.records[1].parts["x"] = wire(["x" * 100], format)
    made.write()
    assert len((await storage_of(runs, format).load(ID)).snapshots) == 3  # it says the same twice
    made.records[1].parts["x"] = wire(["y" * 100], format)
    made.write()
    with pytest.raises(CORRUPT, match="name x to different parts"):
        await storage_of(runs, format).load(ID)
    with pytest.raises(CORRUPT, match="name x to different parts"):
        await create(storage_of(runs, format), ID).commit_snapshot(state())


async def test_c62_records_in_another_place_do_not_fit_their_seals(runs: Path, format: Format) -> None:
    """A record cannot be moved, repeated or taken from another journal without sealing it again."""
    made = await forgery(runs, format)
    other = await forgery(runs, format, "order-18")
    data = made.write()
    made_records = sealed(made.bodies(), format=format)
    others = (other.path.read_bytes(), sealed(other.bodies(), format=format))
    pieces = [data[record.start : record.end] for record in made_records]
    foreign = [others[0][record.start : record.end] for record in others[1]]
    first, head = data[:PREAMBLE_SIZE], pieces[-1]
    for order in (
        [pieces[0], pieces[2], pieces[1], head],
        [pieces[0], pieces[1], pieces[1], pieces[2], head],
        [pieces[0], pieces[1], head, pieces[2]],
        [*pieces[:-1], foreign[-1]],
        [foreign[0], *pieces[1:]],
        pieces[1:],
        [pieces[0], pieces[0], *pieces[1:]],
    ):
        made.path.write_bytes(first + b"".join(order))
        await refused_everywhere(made, CORRUPT)
    other.path.unlink()


# States.


async def test_c62_a_state_of_other_buckets_is_refused_at_load(runs: Path, format: Format) -> None:
    good = state(1, n=1)
    messages = good["messages"]
    states: list[Any] = [
        {**good, "extra": {}},
        {**good, RED: {}},
        {**good, LONG: {}},
        {**good, "messages": {**messages, "more": 1}},
        {},
        [],
        "x",
        1,
        None,
        {"$": "dict", "v": [[name, bucket] for name, bucket in good.items()]},
        {"$": "ordereddict", "v": [[name, bucket] for name, bucket in good.items()]},
        {"$d": [good, {"extra": 1}]},
        {"$d": [{"messages": messages}]},
        {"$p": "A" * 22},
        {"$": "os.system", "v": "id"},
    ]
    states += [{key: value for key, value in good.items() if key != name} for name in BUCKETS]
    states += [
        {**good, "messages": {key: value for key, value in messages.items() if key != name}}
        for name in messages
    ]
    states += [{**good, "messages": wrong} for wrong in (None, [], "x", 1, {"$": "dict", "v": []}, LONG)]
    made = await forgery(runs, format)
    for tree in states:
        made.give_state(wire(tree, format))
        made.write()
        await refused_everywhere(made, (CORRUPT, UnregisteredTypeError))
    made.give_state(wire(good, format))
    made.write()
    assert (await storage_of(runs, format).load(ID)).head_snapshot.state == good  # type: ignore[union-attr]


# Snapshots in one piece.


async def test_c62_the_bytes_of_a_snapshot_with_one_thing_wrong_are_refused(
    runs: Path, format: Format
) -> None:
    await forgery(runs, format)
    head = (await storage_of(runs, format).load(ID)).head_snapshot
    assert head is not None
    good = head.to_bytes()
    assert CheckpointSnapshot.from_bytes(good).state == head.state
    decode = msgspec.json.decode if format == "json" else msgspec.msgpack.decode
    whole = decode(good, type=dict[str, msgspec.Raw])
    manifest = decode(bytes(whole["m"]))
    parts = decode(bytes(whole["p"]), type=dict[str, msgspec.Raw])
    tree = {"branchpoint": ID, "m": manifest, "p": parts}
    some = next(iter(parts))
    root = wire({**state(1), "extra": {}}, format)
    five = {"root": codec.digest(root)}
    wrong: list[Any] = [
        *[changed(tree, "branchpoint", value) for value in [*TEXT, "", "a\x00b", "a" * 513, RED]],
        *[changed(tree, "m", value) for value in (None, 1, "x", [], {})],
        *[changed(tree, "p", value) for value in (None, 1, "x", [], {}, {"x": 1})],
        {**tree, "p": {name: part for name, part in parts.items() if name != some}},
        {**tree, "p": {**parts, "A" * 22: msgspec.Raw(wire(1, format))}},
        {**tree, "p": {**parts, some: msgspec.Raw(wire("other", format))}},
        {**tree, "p": {**parts, codec.digest(root): msgspec.Raw(root)}},
        {**tree, "m": {**manifest, **five}, "p": {codec.digest(root): msgspec.Raw(root)}},
        {**tree, "p": dict(reversed(parts.items()))},
        {**tree, "more": 1},
        {"m": manifest, "branchpoint": ID, "p": parts},
        {},
    ]
    wrong += [
        {**tree, "m": one}
        for _, one in wrong_envelopes(manifest, MANIFEST, "manifest")
        if not {"up", "id", "sig"} & {key for key in one if one.get(key) != manifest.get(key)}
    ]
    for one in wrong:
        data = encoded(one, format)
        if data is not None:
            await refused(lambda: CheckpointSnapshot.from_bytes(data), CORRUPT)  # noqa: B023
    future = wire({**tree, "m": {**manifest, "v": 2}}, format)
    await refused(lambda: CheckpointSnapshot.from_bytes(future), UnknownVersionError, ID)
    for n in range(0, len(good), 7):
        await refused(lambda: CheckpointSnapshot.from_bytes(good[:n]), CORRUPT)  # noqa: B023


async def test_a_signature_of_another_shape_is_told_as_another_graph(runs: Path, format: Format) -> None:
    """It is read only to say what differs; whoever wrote something else there learns no more than that."""
    made = await forgery(runs, format)
    for graph in (
        {"executors": 5}, {"executors": [1]}, {"executors": {"a": 5}}, {"edges": 5}, {"edges": [5]}, {"edges": [{}]},
    {"edges": [{"sources": 5, "targets": [[]]}]}, {"name": [1], "start": {}},
    {"executors": {"a": {"workflow": 5}}}, {"edges": [{"sources": ["a"], "targets": ["b"], "cases": [1]}]},
    {"x": deep(60)}, {RED: LONG}, ):  # fmt: skip
        made.header["graph"] = graph
        made.header["wf"] = RED + LONG
        made.write()
        checkpoint = await storage_of(runs, format).load(ID)
        from branchpoint.graph import explain_difference

        with pytest.raises(GraphMismatchError) as caught:
            checkpoint.verify_graph(
                workflow_name="orders",
                graph_signature_hash="sig",
                signature={"name": "orders", "executors": {"a": {"type": "x"}}, "edges": []},
                explain=explain_difference,
            )
        check_told(caught.value, ID)
        assert [
            error for error in await all_reads(checkpoint) if not isinstance(error, GraphMismatchError)
        ] == []


async def test_what_no_reader_looks_at_twice_is_shown_as_it_is(runs: Path, format: Format) -> None:
    """Texts of a user's own may be anything; nothing that shows them is confused."""
    made = await forgery(runs, format)
    odd = [RED, LONG, "", "\u2028", "a\nb"]
    odd_ones = {"in": RED, "rq": odd, "ex": odd, "tr": LONG, "sig": RED, "meta": {RED: LONG[:9000]}}
    for name, value in odd_ones.items():
        made.head.manifest = changed(made.head.manifest, name, value)
    made.head.manifest["id"] = "\x1b[2J" + made.head.manifest["id"]
    made.header = changed(made.header, "meta", {RED: LONG})
    made.write()
    checkpoint = await storage_of(runs, format).load(ID)
    head = checkpoint.head_snapshot
    assert head is not None
    assert head.boundary == head.metadata["boundary"] == "edited"
    await all_reads(checkpoint)
    for call in (lambda: checkpoint.get_snapshot(RED), lambda: checkpoint.restart_from(LONG)):
        with pytest.raises(BranchpointError) as caught:
            call()
        check_told(caught.value, ID)
    lazy = await storage_of(runs, format, lazy_over=0).load(ID)
    await all_reads(lazy)
    await lazy.commit_snapshot(state(5))
    assert len((await storage_of(runs, format).load(ID)).snapshots) == 4


def test_a_time_is_written_in_utc_only() -> None:
    """So that what is read is what would be written."""
    for offset in (1, -1, 14 * 60, 0):
        moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(minutes=offset)))
        tree = {"id": "s", "at": moment, "root": "A" * 22, "b": "edited", "st": "idle", "sig": "x"}
        data = msgspec.json.encode(tree)
        if offset:
            with pytest.raises(CorruptCheckpointError, match="UTC"):
                decode_manifest(data, format="json", checkpoint_id=ID)
        else:
            assert decode_manifest(data, format="json", checkpoint_id=ID).timestamp == moment


async def test_a_journal_of_the_other_format_is_no_damage(runs: Path, format: Format) -> None:
    await forgery(runs, format)
    other = storage_of(runs, "msgpack" if format == "json" else "json")
    await refused(lambda: other.load(ID), InvalidCallError, ID, format)
