"""Files whose bytes are no journal, or one that says what no program would write."""

from __future__ import annotations

import gzip
import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from branchpoint import codec
from branchpoint.checkpoint import CheckpointSnapshot, Format
from branchpoint.errors import (
    BranchpointError,
    CorruptCheckpointError,
    DataError,
    UnknownVersionError,
)
from branchpoint.storage._journal import PREAMBLE_SIZE, Slot, framed, new_preamble, seal_record, sealed
from tests.hostile.forge import (
    ID,
    Forgery,
    all_reads,
    forgery,
    refused,
    refused_everywhere,
    state_with,
    storage_of,
    wire,
)
from tests.storages import create, lineage, state

CORRUPT = CorruptCheckpointError
DEEP = 100_000
GIB = 1 << 30


@contextmanager
def little_memory(more: int = 300) -> Iterator[None]:
    """Fail when the block makes the process take over so many MiB more than it ever had."""
    unit = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    yield
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit - before
    assert grown < more << 20, f"{grown >> 20} MiB"


# Whole files.

FILES: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda data: b"",
    "a byte": lambda data: b"{",
    "zeros": lambda data: bytes(1000),
    "a title": lambda data: data[:64],
    "a preamble": lambda data: data[:PREAMBLE_SIZE],
    "a byte order mark first": lambda data: b"\xef\xbb\xbf" + data,
    "a line break first": lambda data: b"\n" + data,
    "UTF-16": lambda data: data.decode("latin-1").encode("utf-16"),
    "line ends of another system": lambda data: data.replace(b"\n", b"\r\n"),
    "line ends of an older system": lambda data: data.replace(b"\n", b"\r"),
    "compressed": gzip.compress,
    "twice": lambda data: data * 2,
    "text": lambda data: b"hello\n" * 100,
    "another kind of JSON": lambda data: b'{"a": 1}\n',
    "100,000 brackets": lambda data: b"[" * DEEP + b"]" * DEEP,
    "100,000 braces": lambda data: b'{"checkpoint_id":' * DEEP + b"1" + b"}" * DEEP,
    "a script": lambda data: b"#!/bin/sh\nid\n",
    "SQLite": lambda data: b"SQLite format 3\x00" + bytes(100),
    "a pickle": lambda data: (
        b"\x80\x04\x95\x1f\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93\x8c\x02id\x85R."
    ),
    "bytes backwards": lambda data: data[::-1],
}


@pytest.mark.parametrize("what", FILES)
async def test_c62_a_file_that_is_no_journal_is_refused_and_left_as_it_is(
    runs: Path, format: Format, what: str
) -> None:
    made = await forgery(runs, format)
    made.path.write_bytes(FILES[what](made.write()))
    if what == "twice":  # what goes on like no record was never promised
        loaded = await storage_of(runs, format).load(ID)
        assert len(loaded.snapshots) == 3
    else:
        await refused_everywhere(made, CORRUPT)


async def _sparse(made: Forgery, data: bytes, size: int) -> None:
    made.path.write_bytes(data)
    os.truncate(made.path, size)
    assert made.path.stat().st_size == size


async def test_c62_a_file_of_two_gigabytes_of_nothing_is_told_at_once(runs: Path, format: Format) -> None:
    """Told without reading it, which memory shows."""
    made = await forgery(runs, format)
    data = made.write()
    records = sealed(made.bodies(), format=format)
    first = framed(records[0], format=format)
    size = 2 * GIB
    far = Slot(size, records[-1].start)
    promised = new_preamble(format, far)
    begun = {"json": b'{"c":"', "msgpack": b"\x7f\x00\x00\x00"}[format]
    with little_memory():
        for beginning in (
            b"",
            b"{",
            b"[",
            data[:63],
            data[:PREAMBLE_SIZE],  # and no header
            promised,
            promised + first,
            promised + data[PREAMBLE_SIZE:],
            new_preamble(format, Slot(size, size - 100)) + data[PREAMBLE_SIZE:],
            new_preamble(format, Slot(PREAMBLE_SIZE + 10, PREAMBLE_SIZE)),
            *([promised + begun, promised + first + begun] if format == "json" else []),
        ):
            await _sparse(made, beginning, size)
            for call in (
                lambda: storage_of(runs, format).load(ID),
                lambda: storage_of(runs, format).load_head(ID),
                lambda: create(storage_of(runs, format)).commit_snapshot(state()),
            ):
                await refused(call, CORRUPT, ID)
            with pytest.warns(RuntimeWarning, match=ID):
                assert await storage_of(runs, format).list_checkpoints() == []
            assert made.path.stat().st_size == size
        # What lies beyond what was promised was promised to nobody.
        for more in (b"", b"{", begun if format == "json" else b"\xff\xff\xff\xff", bytes(100)):
            await _sparse(made, data + more, size)
            loaded = await storage_of(runs, format).load(ID)
            assert len(loaded.snapshots) == 3
            assert (await storage_of(runs, format).load_head(ID)).head_snapshot_id == loaded.head_snapshot_id
        await loaded.commit_snapshot(state(9))
    assert made.path.stat().st_size < size
    assert lineage(await storage_of(runs, format).load(ID)) == lineage(loaded)


@pytest.mark.parametrize("known", [False, True], ids=["unseen", "seen"])
async def test_c62_slots_that_lead_anywhere_never_give_an_older_head(
    runs: Path, format: Format, known: bool
) -> None:
    made = await forgery(runs, format, commits=4)
    good = made.write()
    storage = storage_of(runs, format)
    true_head = (await storage.load(ID)).head_snapshot_id
    records = sealed(made.bodies(), format=format)
    size = len(good)
    ends = [record.end for record in records]
    starts = [record.start for record in records]
    numbers = {
        0,
        1,
        PREAMBLE_SIZE,
        *starts,
        *ends,
        *(n + 1 for n in ends),
        *(n - 1 for n in ends),
        size,
        10**12 - 1,
    }
    for committed in sorted(numbers):
        for last in sorted(numbers):
            data = made.write_with_slot(Slot(committed, last))
            one = storage if known else storage_of(runs, format)
            for what in ("load", "load_head"):
                try:
                    found = await getattr(one, what)(ID)
                except CORRUPT as error:
                    assert ID in str(error)
                    continue
                assert found.head_snapshot_id == true_head, (what, committed, last)
            assert made.path.read_bytes() == data


# What the records hold.

NUMBERS = [
    b"1e400", b"-1e400", b"1E5", b"1e5", b"1e0", b"-0", b"00", b"01", b"-01", b"1.", b".5", b"1.0e2", b"0x10", b"NaN",
    b"nan", b"Infinity", b"-Infinity", b"+1", b"1_000", b"1.50", b"18446744073709551616",
    b"-9223372036854775809", b"9" * 400, b"9" * 4300, b"9" * 4301, b"9" * 1_000_000, b"1." + b"0" * 1_000_000,
    b"-", b"--1", b"1e", b"1e+", b"\xd9\xa1",
]  # fmt: skip
TOKENS = [
    b"", b" ", b"nul", b"NULL", b"True", b"undefined", b"'a'", b'"', b'"\\x41"', b'"\\u0041"', b'"\\ud800"',
    b'"\\udc00x"', b'"\\u00e9"', b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"\x00"',
    b'"\x1f"', b'"\t"', b'"\\/"', b"[1,]", b"[,]", b"{,}", b'{"a":1,}', b'{"a":1,"a":1}', b'{"a":1,"b":2,"a":1}',
    b"{1:2}", b"{a:1}", b"/**/1", b"1//", b"[1 ]", b"[1]]", b"1 2", b"[1}", b'{"a"}', b"\xef\xbb\xbf1", b"\x00",
    b"\xff", b'"' + b"\\u0000" * 10 + b"x",
]  # fmt: skip
PACKED = {
    "an array of 2**32-1": b"\xdd\xff\xff\xff\xff",
    "an array of 2**28 with one": b"\xdd\x10\x00\x00\x00\x01",
    "arrays of 2**26 in each other": b"\xdd\x04\x00\x00\x00" * 500,
    "a map of 2**32-1": b"\xdf\xff\xff\xff\xff",
    "a map of 2**28 with one": b"\xdf\x10\x00\x00\x00\xa1a\x01",
    "text of 4 GiB": b"\xdb\xff\xff\xff\xffabc",
    "bytes of 4 GiB": b"\xc6\xff\xff\xff\xffabc",
    "an ext of 4 GiB": b"\xc9\xff\xff\xff\xff\x01abc",
    "an ext": b"\xd4\x05a",
    "an ext of 8": b"\xd7\x01aaaaaaaa",
    "an ext of any size": b"\xc7\x03\x01abc",
    "a timestamp": b"\xd6\xff\x00\x00\x00\x00",
    "a timestamp that is none": b"\xd7\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    "a byte that is none": b"\xc1",
    "a long form of an int": b"\xcd\x00\x01",
    "a signed form of an int": b"\xd0\x01",
    "a float of 32 bits": b"\xca\x3f\x80\x00\x00",
    "a NaN": b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
    "an infinity": b"\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00",
    "a long form of a text": b"\xd9\x01a",
    "a long form of an array": b"\xdc\x00\x01\x01",
    "text that is no UTF-8": b"\xa2\xff\xfe",
    "half of a surrogate pair": b"\xa3\xed\xa0\x80",
    "a key that is a number": b"\x81\x01\x02",
    "a key that is nothing": b"\x81\xc0\x02",
    "a key that is an array": b"\x81\x91\x01\x02",
    "a key that is a map": b"\x81\x80\x02",
    "a key that is an ext": b"\x81\xd4\x05a\x02",
    "a key twice": b"\x82\xa1a\x01\xa1a\x01",
    "a key twice, further on": b"\x83\xa1a\x01\xa1b\x02\xa1a\x01",
    "more than a value": b"\x01\x01",
    "bytes without a tag": b"\xc4\x01a",
    "100,000 arrays": b"\x91" * DEEP + b"\x01",
    "100,000 maps": b"\x81\xa1a" * DEEP + b"\x01",
    "100,000 maps in keys": b"\x81" * DEEP,
}
WRITTEN = {
    "100,000 lists": b"[" * DEEP + b"]" * DEEP,
    "100,000 lists, open": b"[" * DEEP,
    "100,000 dicts": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "100,000 tags": b'{"$":"tuple","v":[' * DEEP + b"]}" * DEEP,
    "100,000 nodes": b'{"$l":[' * DEEP + b"[1]" + b"]}" * DEEP,
    "3,000 lists": b"[" * 3000 + b"]" * 3000,
    **{f"the number {one[:30]!r}": one for one in NUMBERS},
    **{f"the token {one[:30]!r}": one for one in TOKENS},
}


def _bad(format: Format) -> dict[str, bytes]:
    return WRITTEN if format == "json" else PACKED


def readings(data: bytes, format: Format) -> dict[str, Callable[[], Any]]:
    """Every way into the codec that takes stored bytes."""
    root = codec.digest(data)
    parts = {root: data}
    other: Format = "msgpack" if format == "json" else "json"
    return {
        "decode": lambda: codec.decode(data, {}, format=format),
        "decode_state": lambda: codec.decode_state(root, parts, format=format),
        "plain": lambda: codec.plain(data, {}, format=format),
        "open_dict": lambda: codec.open_dict(data, {}, format=format),
        "open_list": lambda: codec.open_list(data, {}, format=format),
        "references": lambda: codec.references(data, format=format),
        "reachable": lambda: codec.reachable([root], parts, format=format),
        "transcode": lambda: codec.transcode(root, parts, source=format, target=other),
    }


async def test_c62_bytes_that_no_value_is_written_with_are_refused_by_every_reader(format: Format) -> None:
    with little_memory():
        for what, data in _bad(format).items():
            for name, call in readings(data, format).items():
                if name in ("references", "reachable"):  # these look for references alone
                    try:
                        call()
                    except BranchpointError:
                        pass
                elif (name, what) in ACCEPTED:
                    call()
                else:
                    await refused(call, CORRUPT)
            await refused(lambda: CheckpointSnapshot.from_bytes(data), CORRUPT)  # noqa: B023


# One level is opened, and what is inside is not looked at.
ACCEPTED = {("open_list", "3,000 lists")}


async def test_c62_such_bytes_in_a_part_are_refused_at_load_or_when_they_are_read(
    runs: Path, format: Format
) -> None:
    made = await forgery(runs, format)
    mark = {"json": b'"FITS"', "msgpack": b"\xa4FITS"}[format]
    whole = wire(state_with("FITS"), format)
    assert whole.count(mark) == 1
    with little_memory():
        for what, data in _bad(format).items():
            if b"\n" in data:
                continue
            made.give_state(whole.replace(mark, data))
            bodies = made.bodies() if len(data) < 50_000 else _raw_bodies(made)
            written = made.write(bodies)
            try:
                loaded = await storage_of(runs, format).load(ID)
            except DataError as error:
                assert ID in str(error), what
            else:
                head = loaded.head_snapshot
                assert head is not None
                for call in (lambda: head.state, head.plain_state):  # noqa: B023
                    await refused(call, CORRUPT, ID, head.snapshot_id)
                await all_reads(loaded)
            assert made.path.read_bytes() == written
            # And the same in the place of the whole state, of a part and of a record.
            made.give_state(data)
            made.write(_raw_bodies(made))
            await refused(lambda: storage_of(runs, format).load(ID), CORRUPT, ID)


def _raw_bodies(made: Forgery) -> list[bytes]:
    """The bodies, made without msgspec, which looks at what it is given."""
    *others, head = made.bodies()[:-1], made.head
    manifest = wire(head.manifest, made.format)
    if made.format == "json":
        parts = (b'"' + name.encode() + b'":' + part for name, part in head.parts.items())
        body = b'{"manifest":' + manifest + b',"parts":{' + b",".join(parts) + b"}}"
    else:
        body = (
            b"\x82\xa8manifest"
            + manifest
            + b"\xa5parts"
            + bytes([0x80 | len(head.parts)])
            + b"".join(wire(name, made.format) + part for name, part in head.parts.items())
        )
    return [*others[0], body]


async def test_c62_such_bytes_in_an_envelope_are_refused_at_load(runs: Path, format: Format) -> None:
    made = await forgery(runs, format)
    header, *commits = made.bodies()
    mark = {"json": b'"FITS"', "msgpack": b"\xa4FITS"}[format]
    made.head.manifest["meta"] = {"n": "FITS"}
    metadata = made.bodies()[-1]
    made.header["graph"] = {"name": "FITS"}
    signature = made.bodies()[0]
    assert metadata.count(mark) == signature.count(mark) == 1
    with little_memory():
        for data in _bad(format).values():
            if b"\n" in data:
                continue
            made.write([header, *commits[:-1], metadata.replace(mark, data)])
            await refused_everywhere(made, CORRUPT)
            made.write([signature.replace(mark, data), *commits])
            await refused_everywhere(made, CORRUPT)
            body = {
                "json": b'{"kind":"x","must":false,"v":' + data + b"}",
                "msgpack": b"\x83\xa4kind\xa1x\xa4must\xc2\xa1v" + data,
            }
            made.write([header, *commits, body[format]])
            try:
                assert len((await storage_of(runs, format).load(ID)).snapshots) == 3
            except CORRUPT as error:
                assert ID in str(error)


async def test_c62_a_key_that_comes_twice_is_refused_at_every_level(runs: Path, format: Format) -> None:
    """The later one would win in silence."""
    made = await forgery(runs, format)
    header, *commits = made.bodies()
    made.give_value({"a": {"b": 1}})
    places = [(0, header), (-1, made.bodies()[-1])]
    count = 0
    for place, body in places:
        for start, key in _keys(body, format):
            data = _twice(body, start, key, format)
            bodies = [header, *commits]
            bodies[place] = data
            if place == 0:
                bodies[-1] = commits[-1]
            made.write(bodies)
            count += 1
            try:
                loaded = await storage_of(runs, format).load(ID)
            except DataError as error:
                assert ID in str(error), (key, data[start : start + 60])
            else:
                assert loaded.head_snapshot is not None
                await refused(lambda: loaded.head_snapshot.state, CORRUPT, ID)  # type: ignore[union-attr] # noqa: B023
                await refused(loaded.head_snapshot.plain_state, CORRUPT, ID)
    assert count > 25


def _keys(body: bytes, format: Format) -> Iterator[tuple[int, str]]:
    """Where a key of an object begins, and the key."""
    names = [
        "manifest",
        "parts",
        "header",
        "branchpoint",
        "id",
        "up",
        "at",
        "root",
        "b",
        "st",
        "n",
        "sig",
        "meta",
        "wf",
    ]
    names += [
        "graph",
        "name",
        "workflow_state",
        "executor_states",
        "edge_states",
        "messages",
        "input",
        "pending",
    ]
    names += [
        "output",
        "iteration_count",
        "status",
        "turn",
        "shared",
        "cursor",
        "x",
        "a",
        "input_iteration",
        "input_id",
    ]
    names += ["kind", "value", "earlier", "deliveries", "requests"]
    for name in names:
        mark = b'"' + name.encode() + b'":' if format == "json" else bytes([0xA0 | len(name)]) + name.encode()
        at = body.find(mark)
        if at >= 0:
            yield at, name


def _twice(body: bytes, start: int, key: str, format: Format) -> bytes:
    if format == "json":
        return body[:start] + b'"' + key.encode() + b'":null,' + body[start:]
    # One entry more in the map that is open there; where its size stands is found by trying.
    entry = bytes([0xA0 | len(key)]) + key.encode() + b"\xc0"
    for at in range(start - 1, -1, -1):
        if 0x80 <= body[at] <= 0x8E:
            longer = body[:at] + bytes([body[at] + 1]) + body[at + 1 : start] + entry + body[start:]
            try:
                if msgspec.msgpack.encode(msgspec.msgpack.decode(longer)) != longer:
                    return longer  # one of the two is gone
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
    raise AssertionError(key)


# Version 1 of another engine.

PICKLED = "gASVHwAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjARleGl0lIWUUpQu"
V1: dict[str, Any] = {
    "workflow_name": "orders",
    "graph_signature_hash": "sig",
    "checkpoint_id": ID,
    "messages": {"a": [{"__af_pickled__": True, "value": PICKLED}]},
    "state": {"x": {"__pickled__": PICKLED}},
    "iteration_count": 3,
    "version": "1.0",
}


async def test_c61_r43_a_v1_file_is_told_by_name_however_it_is_written(runs: Path, format: Format) -> None:
    made = await forgery(runs, format)
    plain = msgspec.json.encode(V1)
    for data in (
        plain,
        msgspec.json.format(plain, indent=2),
        b"\n\t " + plain,
        plain + b"\n",
        plain + bytes(0),
    ):
        made.path.write_bytes(data)
        await refused_everywhere(made, UnknownVersionError, "version 1")
    for data in (
        plain[:-1],
        plain + plain,
        plain.replace(b"{", b"{" * DEEP, 1),
        b'{"checkpoint_id":' + b"[" * DEEP,
    ):
        made.path.write_bytes(data)
        await refused_everywhere(made, CORRUPT)
    body = {"json": plain, "msgpack": msgspec.msgpack.encode(V1)}[format]
    made.write([body])
    await refused(lambda: storage_of(runs, format).load(ID), (CORRUPT, UnknownVersionError), ID)


def test_a_body_of_two_lines_is_no_record() -> None:
    with pytest.raises(ValueError, match="one line"):
        seal_record(b'{"a":\n1}', start=0, key=b"", format="json")
