"""Forged rows and items: what somebody who can write a database would put there is told by every backend.

The envelopes are written past the backend, with the checksums that it keeps beside them; the states come
through its own commit, as a program that lies about its snapshot would store them.
"""

from __future__ import annotations

import re
import sqlite3
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest

from branchpoint import codec
from branchpoint.checkpoint import Checkpoint, CheckpointStorage
from branchpoint.errors import (
    BranchpointError,
    CorruptCheckpointError,
    UnknownVersionError,
    UnregisteredTypeError,
)
from branchpoint.storage.sqlite._names import ManifestName, header_name
from tests.hostile.forge import ID, all_reads, check_told, laughing, refused, state_with, wire
from tests.hostile.test_type_tags import PICKLED
from tests.raw import RAW
from tests.storages import create, lineage, opener, state

every_database = pytest.mark.parametrize("name", ["sqlite-json", "postgres-json", "cosmos-json"])

DEEP = b"[" * 100_000 + b"]" * 100_000


class Envelope(NamedTuple):
    """How one envelope is forged.

    Attributes:
        error: What a load raises.
        which: The word in front of its stored name.
        old: What stands in it, as an expression.
        new: What is put there; `FIRST` and `LAST` stand for the ids of snapshots.
        place: Which of several, oldest first.
    """

    error: type[BranchpointError]
    which: str
    old: bytes
    new: bytes
    place: int = -1


VERSION, CORRUPT = UnknownVersionError, CorruptCheckpointError
ENVELOPES = {
    "a header of version 999": Envelope(VERSION, "header", rb'"branchpoint":1', b'"branchpoint":999'),
    "a header of version 0": Envelope(CORRUPT, "header", rb'"branchpoint":1', b'"branchpoint":0'),
    "another checkpoint's id": Envelope(CORRUPT, "header", rb'"id":"order-17"', b'"id":"order-18"'),
    "an id that leads elsewhere": Envelope(CORRUPT, "header", rb'"id":"order-17"', b'"id":"../../x"'),
    "an unknown field in the header": Envelope(CORRUPT, "header", rb'"wf":', b'"x":1,"wf":'),
    "a key of the header twice": Envelope(CORRUPT, "header", rb'"wf":', b'"id":"order-17","wf":'),
    "brackets in the header": Envelope(CORRUPT, "header", rb'"wf":', b'"graph":{"x":' + DEEP + b'},"wf":'),
    "a manifest of version 999": Envelope(VERSION, "manifest", rb"\}$", b',"v":999}'),
    "an unknown field in a manifest": Envelope(CORRUPT, "manifest", rb'"root":', b'"x":1,"root":'),
    "a key of a manifest twice": Envelope(CORRUPT, "manifest", rb'"root":', b'"id":"x","root":'),
    "other spacing": Envelope(CORRUPT, "manifest", rb"^\{", b"{ "),
    "a state that is missing": Envelope(
        CORRUPT, "manifest", rb'"root":"[^"]*"', b'"root":"' + b"A" * 22 + b'"'
    ),
    "no parent": Envelope(CORRUPT, "manifest", rb'"up":"[^"]*"', b'"up":"nothing"'),
    "its own parent": Envelope(CORRUPT, "manifest", rb'"up":"[^"]*"', b'"up":"LAST"'),
    "parents in a circle": Envelope(CORRUPT, "manifest", rb'"id":"[^"]*"', b'"id":"FIRST","up":"LAST"', 0),
    "a snapshot twice": Envelope(CORRUPT, "manifest", rb'"id":"[^"]*"', b'"id":"FIRST"', 1),
    "a head that is no snapshot": Envelope(CORRUPT, "manifest", rb'"id":"[^"]*"', b'"id":"nobody"'),
    "a boundary that is none": Envelope(CORRUPT, "manifest", rb'"b":"[^"]*"', b'"b":"os.system"'),
    "a status that is none": Envelope(CORRUPT, "manifest", rb'"st":"[^"]*"', b'"st":"failed"'),
    "brackets in a manifest": Envelope(
        CORRUPT, "manifest", rb'"root":', b'"meta":{"x":' + DEEP + b'},"root":'
    ),
    "no manifest": Envelope(CORRUPT, "manifest", rb"(?s)^.*$", b"[]"),
    "bytes that are no text": Envelope(CORRUPT, "manifest", rb"(?s)^.*$", b"\xff\xfe{}"),
}


async def whole(storage: CheckpointStorage) -> Checkpoint:
    """A checkpoint with all that is left behind by a lazy load."""
    checkpoint = await storage.load(ID)
    await checkpoint.load_lineage()
    return checkpoint


async def resealed(name: str, folder: Path) -> None:
    """Put the checksums right that SQLite's records have in their names."""
    if not name.startswith("sqlite"):
        return
    db = sqlite3.connect(folder / "runs" / "checkpoints.db", isolation_level=None)
    try:
        for record, kept, data in db.execute(
            "SELECT * FROM (SELECT record, name, data FROM records)"
        ).fetchall():
            read = ManifestName.read(kept)
            if read is not None:
                kept = str(ManifestName.of(data, ID, read.back, read.parts))
            elif isinstance(kept, str) and kept.startswith(".header"):
                kept = header_name(data, ID)
            db.execute("UPDATE records SET name = ? WHERE record = ?", (kept, record))
    finally:
        db.close()


@every_database
async def test_c62_a_forged_envelope_is_told_by_every_backend_and_left_as_it_is(
    name: str, backend_folder: Path
) -> None:
    open, raw = opener(name, backend_folder), RAW[name](backend_folder)
    checkpoint = create(open(), ID)
    for n in range(3):
        await checkpoint.commit_snapshot(state(n, n=n, text="t" * 150 + str(n)))
    ids = [one.snapshot_id for one in checkpoint.snapshots]
    good = dict(await raw.peek())
    for what, forged in ENVELOPES.items():
        # The stored names of manifests sort as the snapshots were committed.
        names = [one for one in good if one.partition(" ")[0] == forged.which]
        by_age = {snapshot_id: n for n, snapshot_id in enumerate(ids)}
        names.sort(
            key=lambda one: by_age[msgspec.json.decode(good[one])["id"]] if forged.which == "manifest" else 0
        )
        at = names[forged.place]
        new = forged.new.replace(b"FIRST", ids[0].encode()).replace(b"LAST", ids[-1].encode())
        data, count = re.subn(forged.old, lambda _: new, good[at], count=1)  # noqa: B023
        assert count == 1, (what, good[at])
        if forged.which == "manifest" and forged.place == -1:
            # A head's manifest may be kept a second time, beside the head.
            copies = [one for one in names if good[one] == good[at]]
        else:
            copies = [at]
        for one in copies:
            await raw.poke(one, data)
        await resealed(name, backend_folder)
        before = await raw.peek()
        for lazy_over in (None, 0):
            storage = open(lazy_over=lazy_over)
            error = await refused(lambda: whole(storage), (CORRUPT, VERSION), ID)  # noqa: B023
            assert type(error) is forged.error, (what, lazy_over, error)
        for call in (lambda: create(open(), ID).commit_snapshot(state()), lambda: open().load_head(ID)):
            try:
                await call()
            except BranchpointError as said:
                check_told(said)
        assert await raw.peek() == before, what
        for one in copies:
            await raw.poke(one, good[one])
        await resealed(name, backend_folder)
        assert lineage(await open().load(ID)) == lineage(checkpoint), what


# States, through the backend's own commit.


class Lying(SimpleNamespace):
    """A snapshot whose manifest and parts are whatever somebody says; the rest is that of a real one."""


async def lie(storage: CheckpointStorage, root: bytes, parts: tuple[bytes, ...] = ()) -> None:
    """Store a checkpoint whose head's state is these bytes, over these parts."""
    checkpoint = create(storage, ID)
    for n in range(2):
        await checkpoint.commit_snapshot(state(n, n=n))
    head = checkpoint.head_snapshot
    assert head is not None
    manifest = msgspec.structs.replace(
        head.manifest, snapshot_id="forged", parent_snapshot_id=head.snapshot_id, root=codec.digest(root)
    )
    new_parts = {codec.digest(part): part for part in (root, *parts)}
    lying: Any = Lying(snapshot_id="forged", manifest=manifest, new_parts=new_parts)
    await storage.commit_snapshot(checkpoint, lying, expected_head_snapshot_id=head.snapshot_id)


def twice(tree: dict[str, Any]) -> bytes:
    data = wire(tree, "json")
    return data[:-1] + b',"messages":{}}'


BOMB, BOMB_PARTS = laughing("json", "list", 40, 1)
STATES: dict[str, tuple[type[BranchpointError], bytes, tuple[bytes, ...]]] = {
    "five buckets": (CORRUPT, wire({**state(), "extra": {}}, "json"), ()),
    "three buckets": (CORRUPT, wire({k: v for k, v in state().items() if k != "edge_states"}, "json"), ()),
    "a bucket twice": (CORRUPT, twice(state()), ()),
    "brackets": (CORRUPT, b'{"x":' + DEEP + b"}", ()),
    "a list": (CORRUPT, b"[]", ()),
    "no JSON": (CORRUPT, b"os.system('id')", ()),
    "a pickle": (CORRUPT, b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93.", ()),
    "a name of the machine": (UnregisteredTypeError, wire(state_with({"$": "os.system", "v": "id"}), "json"), ()),
    "a class that exists": (
        UnregisteredTypeError, wire(state_with({"$": "branchpoint.checkpoint.Checkpoint", "v": {}}), "json"), (),
    ),
    "a tag by the name of pickle": (
        UnregisteredTypeError, wire(state_with({"$": "pickle", "v": PICKLED}), "json"), (),
    ),
    "a part that is not there": (CORRUPT, wire(state_with({"$p": "A" * 22}), "json"), ()),
    "few parts that stand for many": (CORRUPT, wire(state_with(BOMB), "json"), tuple(BOMB_PARTS)),
}  # fmt: skip


@every_database
@pytest.mark.parametrize("what", STATES)
async def test_c61_c62_a_state_that_is_none_is_told_by_every_backend(
    name: str, what: str, backend_folder: Path
) -> None:
    error, root, parts = STATES[what]
    open, raw = opener(name, backend_folder), RAW[name](backend_folder)
    await lie(open(), root, parts)
    before, modules = await raw.peek(), set(sys.modules)
    for lazy_over in (None, 0):
        try:
            loaded = await whole(open(lazy_over=lazy_over))
        except BranchpointError as told:
            said = [told]
            check_told(told, ID)
        else:
            said = await all_reads(loaded)
            assert loaded.head_snapshot_id == "forged", "nothing older is taken for the head"
        assert error in map(type, said), (lazy_over, said)
    assert await raw.peek() == before
    assert not {name for name in set(sys.modules) - modules if "pickle" in name or "subprocess" in name}
