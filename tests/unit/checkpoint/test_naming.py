"""Whatever is wrong inside stored bytes, the message says whose bytes they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from branchpoint import codec
from branchpoint.checkpoint import (
    Checkpoint,
    CheckpointSnapshot,
    Format,
    Manifest,
    decode_header,
)
from branchpoint.errors import (
    BranchpointError,
    CorruptCheckpointError,
    UnknownVersionError,
    UnregisteredTypeError,
)
from tests.states import commit_superstep, make_state, output, request
from tests.unit.checkpoint.doubles import TinyStorage, new_checkpoint

FORMATS: list[Format] = ["json", "msgpack"]


@dataclass
class Order:
    n: int


def named_once(error: BranchpointError, snapshot_id: str) -> None:
    text = str(error)
    assert text.count("run-1") == text.count(snapshot_id) == 1, text


async def stored(form: Format, count: int = 3) -> tuple[TinyStorage, list[Manifest]]:
    """A stored line of snapshots, each with parts of its own."""
    storage = TinyStorage(form)
    checkpoint = new_checkpoint(storage, "run-1")
    for n in range(count):
        await checkpoint.commit_snapshot(
            make_state(
                n,
                shared={"log": [f"{n} {k} " + "x" * 300 for k in range(20)]},
                output=[output("o", f"{n}" * 300, superstep=n)],
            )
        )
    return storage, [one.manifest for one in checkpoint.snapshots]


@pytest.mark.parametrize("form", FORMATS)
async def test_a_load_names_a_snapshot_that_needs_a_missing_part(form: Format) -> None:
    storage, manifests = await stored(form)
    record = storage.records["run-1"]
    whole = dict(record.parts)
    for digest in whole:
        record.parts = {found: data for found, data in whole.items() if found != digest}
        with pytest.raises(CorruptCheckpointError, match=digest) as caught:
            await storage.load("run-1")
        needing = [
            one.snapshot_id for one in manifests if digest in codec.reachable([one.root], whole, format=form)
        ]
        assert any(found in str(caught.value) for found in needing)
        assert str(caught.value).count("run-1") == 1


def spoiled(form: Format, tree: Callable[[dict[str, Any]], object]) -> tuple[bytes, dict[str, bytes]]:
    """The root and the parts of a state, of which something was changed by one who knows the format."""
    part, _ = codec.encode_state(make_state(1, output=[output("o", "o" * 300)]), format=form)
    parts = codec.new_parts(part, ())
    coder = msgspec.json if form == "json" else msgspec.msgpack
    data = coder.encode(tree(coder.decode(part.data)))
    return data, {**parts, codec.digest(data): data}


def restored(
    form: Format, data: bytes, parts: dict[str, bytes], header: bytes, manifest: Manifest
) -> Checkpoint:
    return Checkpoint.restore(
        header=decode_header(header, format=form, checkpoint_id="run-1"),
        manifests=[msgspec.structs.replace(manifest, root=codec.digest(data))],
        head_snapshot_id=manifest.snapshot_id,
        parts=parts,
        checkpoint_storage=TinyStorage(form),
    )


BAD: dict[str, tuple[Callable[[dict[str, Any]], object], type[BranchpointError]]] = {
    "a list": (lambda root: [], CorruptCheckpointError),
    "no such part": (
        lambda root: {**root, "workflow_state": {"$p": "A" * 22}},
        CorruptCheckpointError,
    ),
    "no messages": (lambda root: {**root, "messages": 7}, CorruptCheckpointError),
    "no such tag": (
        lambda root: {**root, "edge_states": {"$": "shop.order", "v": {}}},
        UnregisteredTypeError,
    ),
    "a newer version": (
        lambda root: {**root, "edge_states": {"$": "shop.order", "n": 7, "v": {}}},
        UnknownVersionError,
    ),
    "no such payload": (
        lambda root: {**root, "edge_states": {"$": "decimal", "v": []}},
        CorruptCheckpointError,
    ),
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("bad", BAD)
async def test_reading_a_state_names_it(form: Format, bad: str) -> None:
    storage, (manifest,) = await stored(form, 1)
    change, kind = BAD[bad]
    data, parts = spoiled(form, change)
    with codec.isolated_registry():
        if kind is UnknownVersionError:
            codec.register_state_type(Order, type_id="shop.order")
        with pytest.raises(kind) as caught:
            _ = restored(form, data, parts, storage.records["run-1"].header, manifest).snapshots[0].state
    named_once(caught.value, manifest.snapshot_id)
    assert type(caught.value) is kind


@pytest.mark.parametrize("form", FORMATS)
async def test_every_way_of_reading_names_the_snapshot(form: Format) -> None:
    storage = TinyStorage(form)
    with codec.isolated_registry():
        codec.register_state_type(Order, type_id="shop.order")
        made = make_state(1, output=[output("o", Order(1))], requests={"r": request(Order(2))})
        await commit_superstep(new_checkpoint(storage, "run-1"), made)
    loaded = await storage.load("run-1")
    (head,) = loaded.snapshots
    for read in (
        lambda: head.state,
        lambda: loaded.outputs()[0].value,
        lambda: loaded.pending_requests[0].data,
        loaded.events,
    ):
        with pytest.raises(UnregisteredTypeError, match=r"shop\.order") as caught:
            read()  # type: ignore[no-untyped-call]
        named_once(caught.value, head.snapshot_id)


@pytest.mark.parametrize("form", FORMATS)
async def test_a_snapshot_read_from_its_bytes_names_itself(form: Format) -> None:
    storage, _ = await stored(form, 1)
    (snapshot,) = (await storage.load("run-1")).snapshots
    coder = msgspec.json if form == "json" else msgspec.msgpack
    whole = coder.decode(snapshot.to_bytes(), type=dict[str, msgspec.Raw])
    parts = coder.decode(bytes(whole["p"]), type=dict[str, msgspec.Raw])
    lost = next(digest for digest in parts if digest != snapshot.root)
    del parts[lost]
    with pytest.raises(CorruptCheckpointError, match=lost) as caught:
        CheckpointSnapshot.from_bytes(coder.encode({**whole, "p": parts}))
    named_once(caught.value, snapshot.snapshot_id)


@pytest.mark.parametrize("form", FORMATS)
async def test_a_part_left_behind_that_cannot_be_read_names_its_snapshot(form: Format) -> None:
    storage, manifests = await stored(form)
    if form == "json":
        bad = b'[{"$p":"' + b"A" * 22 + b'"} ]'
    else:  # a list of one, written as if it were a long one
        bad = b"\xdc\x00\x01" + msgspec.msgpack.encode({"$p": "A" * 22})
    record, digest = storage.records["run-1"], codec.digest(bad)
    record.parts[digest] = bad
    old = msgspec.structs.replace(manifests[0], root=digest)
    lazy = Checkpoint.restore(
        header=decode_header(record.header, format=form, checkpoint_id="run-1"),
        manifests=[old, *manifests[1:]],
        head_snapshot_id=manifests[-1].snapshot_id,
        parts=record.parts,
        checkpoint_storage=storage,
        unloaded=[old.snapshot_id],
    )
    with pytest.raises(CorruptCheckpointError, match="are not the ones") as caught:
        await lazy.load_snapshot(old.snapshot_id)
    named_once(caught.value, old.snapshot_id)
    with pytest.raises(CorruptCheckpointError, match="are not the ones") as caught:
        await lazy.prune(keep=[old.snapshot_id])
    named_once(caught.value, old.snapshot_id)
