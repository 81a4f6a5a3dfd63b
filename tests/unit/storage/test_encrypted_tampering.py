"""What somebody can do who writes into the store and has no key: nothing that is not refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import pytest

from branchpoint.checkpoint import (
    Checkpoint,
    Header,
    Manifest,
    decode_header,
    decode_manifest,
    encode_header,
    encode_manifest,
)
from branchpoint.errors import (
    CheckpointConflictError,
    CorruptCheckpointError,
    DataError,
    UnknownVersionError,
)
from branchpoint.storage import MemoryCheckpointStorage
from branchpoint.storage.encrypted import EncryptionKeys
from branchpoint.storage.encrypted._sealer import Birth, Sealer
from tests.sealing import NEW, OLD, OnDemand, Stored, sealed
from tests.storages import create, grown, shared, state

replace = msgspec.structs.replace
FORMATS: tuple[Literal["json", "msgpack"], ...] = ("json", "msgpack")
BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
LONG = "a long text that is a part of its own " * 10


@pytest.fixture
async def inner() -> MemoryCheckpointStorage:
    """Two checkpoints of one shape, three commits each, and a branch."""
    storage = MemoryCheckpointStorage()
    for checkpoint_id in ("order-17", "order-18"):
        checkpoint = create(sealed(storage), checkpoint_id)
        for n in range(2):
            await checkpoint.commit_snapshot(state(n, n=n, text=f"{n} {LONG}"), {"by": n})
        checkpoint.restart_from(checkpoint.snapshots[0].snapshot_id)
        await checkpoint.commit_snapshot(state(2, n="branch"))
    return storage


async def refused(inner: MemoryCheckpointStorage, match: str | None = None) -> None:
    """Nothing loads this."""
    with pytest.raises(CorruptCheckpointError, match=match) as told:
        await sealed(inner).load("order-17")
    assert "'order-17'" in str(told.value)


# Bytes.


def records(format: Literal["json", "msgpack"]) -> tuple[Sealer, Header, Manifest, dict[str, bytes], Birth]:
    checkpoint = create(None)
    sealer = Sealer(EncryptionKeys({"k1": OLD}), "order-17", format)
    birth = Birth("k1", "mark")
    header = sealer.seal_header(checkpoint.header, birth=birth, kept=None)
    plain = Manifest(
        snapshot_id="one",
        parent_snapshot_id="zero",
        timestamp=checkpoint.created_at,
        root="r" * 22,
        boundary="completed",
        status="idle",
        graph_signature_hash="sig",
    )
    manifest = sealer.seal_manifest(plain, after="zero", generation=0, birth=birth)
    return sealer, header, manifest, sealer.seal_parts({"d" * 22: b'["text"]'}, birth=birth), birth


@pytest.mark.parametrize("format", FORMATS)
def test_no_byte_of_a_record_can_be_another(format: Literal["json", "msgpack"]) -> None:
    sealer, header, manifest, parts, birth = records(format)
    ((name, part),) = parts.items()

    def open_header(data: bytes) -> object:
        stored = decode_header(data, format=format, checkpoint_id="order-17")
        return sealer.open_header(stored)

    def open_manifest(data: bytes) -> object:
        stored = decode_manifest(data, format=format, checkpoint_id="order-17")
        return sealer.open_manifest(stored, birth=birth)

    def open_part(data: bytes) -> object:
        return sealer.open_parts({name: data})

    whole: list[tuple[bytes, Callable[[bytes], object]]] = [
        (encode_header(header, format=format), open_header),
        (encode_manifest(manifest, format=format), open_manifest),
        (part, open_part),
    ]
    for data, opened in whole:
        assert opened(data)
        for place in range(len(data)):
            for bit in (0x01, 0x04, 0x20, 0x80):
                changed = bytearray(data)
                changed[place] ^= bit
                with pytest.raises(DataError):
                    opened(bytes(changed))
        for place in range(len(data)):
            for cut in (data[:place], data[:place] + data[place + 1 :]):
                with pytest.raises(DataError):
                    opened(cut)


@pytest.mark.parametrize("size", range(1, 4))
def test_a_seal_has_one_spelling(size: int) -> None:
    """What decodes to the same bytes and is spelled otherwise was written by somebody else."""
    sealer, *_, birth = records("json")
    sealed_part = sealer.seal_parts({"d" * 22: b"1" * size}, birth=birth)
    ((name, part),) = sealed_part.items()
    assert sealer.open_parts(sealed_part) == {name: b"1" * size}
    text = part[1:-1]
    others = [
        text[:place] + more + text[place:]
        for place in range(5, len(text) + 1)
        for more in (b"\n", b"=", b"!")
    ]
    others += [text.rstrip(b"="), text + b"==", text.replace(b"1", b"01", 1), text.replace(b"1.", b"1..", 1)]
    body = text.rstrip(b"=")
    others += [body[:-1] + bytes([last]) + text[len(body) :] for last in BASE64 if last != body[-1]]
    for other in others:
        if other != text:
            with pytest.raises(DataError):
                sealer.open_parts({name: b'"%b"' % other})
    with pytest.raises(CorruptCheckpointError):
        sealer.open_parts({name: part + b" "})


def test_a_seal_in_messagepack_has_one_spelling() -> None:
    sealer, _, _, parts, _ = records("msgpack")
    ((name, part),) = parts.items()
    assert part[:1] == b"\xc4"
    inside = part[2:]
    assert sealer.open_parts({name: b"\xc4" + bytes([len(inside)]) + inside})
    for head in (b"\xc5\x00", b"\xc6\x00\x00\x00", b"\xd9"):
        with pytest.raises(CorruptCheckpointError):
            sealer.open_parts({name: head + bytes([len(inside)]) + inside})


async def test_a_changed_byte_in_the_store_is_found_by_a_load(inner: MemoryCheckpointStorage) -> None:
    kept = inner._kept["order-17"]
    for name in list(kept.parts):
        good = kept.parts[name]
        kept.parts[name] = good[:-9] + bytes([good[-9] ^ 1]) + good[-8:]
        await refused(inner, f"part '{name}'")
        kept.parts[name] = good
    for name in list(kept.manifests):
        good = kept.manifests[name]
        place = good.index(b"1.k1.") + 40
        kept.manifests[name] = good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]
        await refused(inner, f"'{name}'")
        kept.manifests[name] = good
    assert shared((await sealed(inner).load("order-17")).head_snapshot) == {"n": "branch"}


# Records in another place.

OUTSIDE: dict[str, Callable[[Manifest], dict[str, Any]]] = {
    "no parent": lambda manifest: {"parent_snapshot_id": None},
    "another parent": lambda manifest: {"parent_snapshot_id": "01ARZ3NDEKTSV4RRFFQ69G5FAV"},
    "another time": lambda manifest: {"timestamp": manifest.timestamp.replace(year=2001)},
    "another root": lambda manifest: {"root": manifest.root[::-1]},
    "another status": lambda manifest: {"status": "in_progress"},
    "another boundary": lambda manifest: {"boundary": "completed"},
    "a superstep": lambda manifest: {"superstep": 7},
    "an input": lambda manifest: {"input_id": "x"},
    "executors": lambda manifest: {"executors": ("x",)},
    "metadata": lambda manifest: {"metadata": {"by": "me"}},
    "another graph": lambda manifest: {"graph_signature_hash": "sig"},
    "a second text": lambda manifest: {"requests": manifest.requests * 2},
    "no text": lambda manifest: {"requests": ()},
}


@pytest.mark.parametrize("what", OUTSIDE)
async def test_what_stands_outside_of_a_manifests_seal_is_bound_to_it(
    inner: MemoryCheckpointStorage, what: str
) -> None:
    stored = Stored(inner)
    manifest = stored.manifest(-1)
    stored.put(2, replace(manifest, **OUTSIDE[what](manifest)))
    await refused(inner, manifest.snapshot_id)


@pytest.mark.parametrize(
    "changed",
    [
        {"workflow_name": "orders"},
        {"graph_signature_hash": "sig"},
        {"generation": 1},
        {"signature": {"name": "orders"}},
        {"pruned": {"x": None}},
        {"metadata": {}},
    ],
    ids=lambda changed: next(iter(changed)),
)
async def test_what_stands_outside_of_a_headers_seal_is_bound_to_it(
    inner: MemoryCheckpointStorage, changed: dict[str, Any]
) -> None:
    stored = Stored(inner)
    stored.header = replace(stored.header, **changed)
    await refused(inner, "header")


async def test_a_record_of_another_checkpoint_is_refused(inner: MemoryCheckpointStorage) -> None:
    mine, theirs = Stored(inner), Stored(inner, "order-18")
    good = copy.deepcopy(inner._kept["order-17"])
    mine.header = replace(theirs.header, checkpoint_id="order-17")
    await refused(inner, "header")

    inner._kept["order-17"] = copy.deepcopy(good)
    mine = Stored(inner)
    mine.put(2, replace(mine.manifest(2), requests=theirs.manifest(2).requests))
    await refused(inner, mine.ids[2])

    inner._kept["order-17"] = copy.deepcopy(good)
    mine = Stored(inner)
    mine.put(2, theirs.manifest(2))
    await refused(inner, theirs.ids[2])

    inner._kept["order-17"] = copy.deepcopy(theirs.kept)
    Stored(inner).header = replace(theirs.header, checkpoint_id="order-17")
    await refused(inner)

    part = next(iter(theirs.kept.parts.values()))
    for name in good.parts:
        inner._kept["order-17"] = copy.deepcopy(good)
        inner._kept["order-17"].parts[name] = part
        await refused(inner, name)


async def test_a_record_of_another_snapshot_or_kind_is_refused(inner: MemoryCheckpointStorage) -> None:
    stored = Stored(inner)
    manifests = [stored.manifest(place) for place in range(3)]
    header, (name, part) = stored.header, next(iter(stored.kept.parts.items()))
    for requests in (manifests[0].requests, (header.metadata["sealed"],), (part[1:-1].decode(),)):
        stored.put(1, replace(manifests[1], requests=requests))
        await refused(inner, stored.ids[1])
    stored.put(1, replace(manifests[0], snapshot_id=stored.ids[1]))
    await refused(inner, stored.ids[1])
    stored.put(1, manifests[1])

    for text in (manifests[0].requests[0], part[1:-1].decode()):
        stored.header = replace(header, metadata={"sealed": text})
        await refused(inner, "header")
    stored.header = header

    for text in (manifests[0].requests[0], header.metadata["sealed"]):
        stored.kept.parts[name] = b'"%b"' % text.encode()
        await refused(inner, name)


async def test_parts_that_change_places_are_refused(inner: MemoryCheckpointStorage) -> None:
    parts = inner._kept["order-17"].parts
    one, two, *_ = parts
    parts[one], parts[two] = parts[two], parts[one]
    await refused(inner, "part")


async def test_a_part_under_another_name_is_refused(inner: MemoryCheckpointStorage) -> None:
    parts = inner._kept["order-17"].parts
    parts["x" * 22] = next(iter(parts.values()))
    await refused(inner, "x" * 22)


async def test_a_part_that_is_missing_is_missed(inner: MemoryCheckpointStorage) -> None:
    inner._kept["order-17"].parts.popitem()
    await refused(inner)


async def test_records_in_the_other_format_are_refused() -> None:
    sealer, header, manifest, parts, birth = records("json")
    other, *_ = records("msgpack")
    with pytest.raises(CorruptCheckpointError):
        other.open_header(header)
    with pytest.raises(CorruptCheckpointError):
        other.open_manifest(manifest, birth=birth)
    ((name, part),) = parts.items()
    assert sealer.open_parts(parts)
    with pytest.raises(CorruptCheckpointError):
        other.open_parts({name: msgspec.msgpack.encode(part[1:-1])})


# Plain text.


async def test_plain_records_among_sealed_ones_are_refused(inner: MemoryCheckpointStorage) -> None:
    plain = MemoryCheckpointStorage()
    checkpoint = await sealed(inner).load("order-17")
    await copied(checkpoint, plain)
    sealed_ones, plain_ones = inner._kept["order-17"], plain._kept["order-17"]
    good = copy.deepcopy(sealed_ones)

    sealed_ones.header = plain_ones.header
    await refused(inner, "header.*is not sealed")
    sealed_ones.header = good.header

    for snapshot_id, manifest in plain_ones.manifests.items():
        sealed_ones.manifests[snapshot_id] = manifest
        await refused(inner, f"{snapshot_id}.*is not sealed")
        sealed_ones.manifests[snapshot_id] = good.manifests[snapshot_id]

    some_name = next(iter(good.parts))
    for name, data in [
        *plain_ones.parts.items(),
        (some_name, b'"text"'),
        (some_name, b'"1.k1."'),
        (some_name, b""),
    ]:
        sealed_ones.parts = {**good.parts, name: data}
        await refused(inner, "part")

    inner._kept["order-17"] = plain_ones
    await refused(inner, "is not sealed")


async def copied(checkpoint: Checkpoint, to: MemoryCheckpointStorage) -> None:
    """Commit the same snapshots in plain text, under the same ids."""
    before = None
    for snapshot in checkpoint.snapshots:
        await to.commit_snapshot(checkpoint, snapshot, expected_head_snapshot_id=before)
        before = snapshot.snapshot_id


async def test_a_seal_of_a_later_version_is_named(inner: MemoryCheckpointStorage) -> None:
    stored = Stored(inner)
    stored.header = replace(stored.header, metadata={"sealed": "2" + stored.header.metadata["sealed"][1:]})
    with pytest.raises(UnknownVersionError, match="sealed in version 2"):
        await sealed(inner).load("order-17")


# Lineage.


async def test_a_snapshot_that_is_taken_out_is_missed(inner: MemoryCheckpointStorage) -> None:
    """Also one that nothing names as its parent."""
    stored = Stored(inner)
    stored.change(lambda manifests: manifests.pop(1))
    await refused(inner, "removed or moved")


async def test_the_first_snapshot_is_missed() -> None:
    inner = MemoryCheckpointStorage()
    checkpoint = await grown(sealed(inner), commits=1)
    checkpoint.restart_from(None)
    await checkpoint.commit_snapshot(state(1, n="another root"))
    Stored(inner).change(lambda manifests: manifests.pop(0))
    await refused(inner, "removed or moved")


async def test_snapshots_in_another_order_are_refused(inner: MemoryCheckpointStorage) -> None:
    """Else an older branch could be made the head."""
    Stored(inner).change(lambda manifests: manifests.insert(1, manifests.pop(2)))
    await refused(inner, "removed or moved")


@pytest.mark.parametrize("take", [0, 1, 2])
async def test_what_a_prune_kept_is_missed(take: int) -> None:
    inner = MemoryCheckpointStorage()
    checkpoint = create(sealed(inner))
    for n in range(6):
        checkpoint.restart_from(None)
        await checkpoint.commit_snapshot(state(n, n=n))
    await checkpoint.prune(keep=[checkpoint.snapshots[place].snapshot_id for place in (1, 3)])
    checkpoint.restart_from(None)
    await checkpoint.commit_snapshot(state(9))
    assert len((await sealed(inner).load("order-17")).snapshots) == 4
    Stored(inner).change(lambda manifests: manifests.pop(take))
    await refused(inner, "prune left|removed or moved")


async def test_an_older_header_does_not_fit_what_a_prune_left() -> None:
    inner = MemoryCheckpointStorage()
    checkpoint = create(sealed(inner))
    for n in range(4):
        checkpoint.restart_from(None)
        await checkpoint.commit_snapshot(state(n, n=n))
    headers, before = [Stored(inner).header], copy.deepcopy(inner._kept["order-17"])
    for place in (2, 1):
        await checkpoint.prune(keep=[one.snapshot_id for one in checkpoint.snapshots[-place:]])
        headers.append(Stored(inner).header)
    newest = headers.pop()
    for header in headers:
        Stored(inner).header = header
        await refused(inner, "prune left|removed or moved")
    Stored(inner).header = newest
    await sealed(inner).load("order-17")
    before.header, before.generation = inner._kept["order-17"].header, 2
    inner._kept["order-17"] = before
    await refused(inner, "prune left")


@pytest.mark.parametrize("lazy", [False, True])
async def test_a_prune_cannot_be_undone_below_what_was_committed_after_it(lazy: bool) -> None:
    """With the older header, what was removed would fit in again, under the newest head."""
    inner = OnDemand(lazy_over=0) if lazy else MemoryCheckpointStorage()
    checkpoint = await grown(sealed(inner), commits=4)
    before = copy.deepcopy(inner._kept["order-17"])
    await checkpoint.prune(keep=[checkpoint.snapshots[0].snapshot_id])
    pruned = copy.deepcopy(inner._kept["order-17"])
    await checkpoint.commit_snapshot(state(5))
    after = inner._kept["order-17"]
    before.manifests |= after.manifests
    before.parts |= after.parts
    inner._kept["order-17"] = before
    await refused(inner, "generation 1.*header is of generation 0")
    # Nor can a prune be put under what was committed before another one.
    inner._kept["order-17"] = pruned
    older = await sealed(inner).load("order-17")
    await older.prune()
    pruned, inner._kept["order-17"] = inner._kept["order-17"], copy.deepcopy(after)
    inner._kept["order-17"].header = pruned.header
    await refused(inner, "generation 1.*header is of generation 2|prune left")


async def test_a_lineage_on_demand_is_checked_when_it_comes() -> None:
    inner = OnDemand(lazy_over=0)
    checkpoint = create(sealed(inner))
    for n in range(4):
        checkpoint.restart_from(None)
        await checkpoint.commit_snapshot(state(n, n=n))
    loaded = await sealed(inner).load("order-17")
    Stored(inner).change(lambda manifests: manifests.pop(1))
    with pytest.raises(CorruptCheckpointError, match="removed or moved"):
        await loaded.load_lineage()


async def test_records_of_an_earlier_checkpoint_of_the_same_id_do_not_fit() -> None:
    inner = MemoryCheckpointStorage()
    await create(sealed(inner), metadata={"tenant": "earlier"}).commit_snapshot(state(0, n="earlier"))
    earlier = inner._kept["order-17"]
    await sealed(inner).delete("order-17")
    await create(sealed(inner), metadata={"tenant": "later"}).commit_snapshot(state(0, n="later"))
    later = inner._kept["order-17"]
    later.header, earlier.header = earlier.header, later.header
    for kept in (later, earlier):
        inner._kept["order-17"] = kept
        await refused(inner, "earlier or later checkpoint")
        with pytest.warns(RuntimeWarning, match="earlier or later checkpoint"):
            assert await sealed(inner).list_checkpoints() == []


async def test_a_part_of_an_earlier_checkpoint_that_another_key_named_is_refused() -> None:
    inner = MemoryCheckpointStorage()
    await grown(sealed(inner), commits=1)
    earlier = inner._kept["order-17"].parts
    await sealed(inner).delete("order-17")
    both = sealed(inner, k1=OLD, k2=NEW)
    await grown(both, commits=1)
    assert await both.load("order-17")
    inner._kept["order-17"].parts |= earlier
    with pytest.raises(CorruptCheckpointError, match="does not match its seal"):
        await both.load("order-17")


async def test_a_list_shows_nothing_that_was_changed(inner: MemoryCheckpointStorage) -> None:
    stored = Stored(inner)
    for changed in ({"status": "in_progress"}, {"requests": stored.manifest(0).requests}):
        good = stored.manifest(2)
        stored.put(2, replace(good, **changed))
        with pytest.warns(RuntimeWarning, match=good.snapshot_id):
            found = await sealed(inner).list_checkpoints()
        assert [line.checkpoint_id for line in found] == ["order-18"]
        stored.put(2, good)


# All of it set back.


async def test_newest_commits_that_were_cut_off_are_seen_by_who_remembers_the_head(
    inner: MemoryCheckpointStorage,
) -> None:
    checkpoint = await sealed(inner).load("order-17")
    head = checkpoint.stored_head_snapshot_id
    assert head is not None
    assert (await sealed(inner).load("order-17", expected_head_snapshot_id=head)).head_snapshot_id == head
    stored = Stored(inner)
    stored.change(lambda manifests: manifests.pop())
    older = await sealed(inner).load("order-17")  # from inside, this is what was stored once
    assert older.head_snapshot_id == stored.ids[-1]
    with pytest.raises(CorruptCheckpointError, match=rf"{head}.*{stored.ids[-1]}.*set back"):
        await sealed(inner).load("order-17", expected_head_snapshot_id=head)
    await older.commit_snapshot(state(7))
    with pytest.raises(CorruptCheckpointError, match="set back"):
        await sealed(inner).load("order-17", expected_head_snapshot_id=head)
    with pytest.raises(CheckpointConflictError, match="committed since"):
        await sealed(inner).load("order-17", expected_head_snapshot_id=stored.ids[0])
