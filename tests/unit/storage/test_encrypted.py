"""Checkpoints that are sealed before they reach a storage: nothing shows, and nothing else changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from branchpoint.checkpoint import CheckpointStorage, StoredHead
from branchpoint.errors import CheckpointConflictError, InvalidCallError, StorageError
from branchpoint.storage import FileCheckpointStorage, MemoryCheckpointStorage
from branchpoint.storage.encrypted import EncryptedCheckpointStorage
from tests.sealing import NEW, OLD, OnDemand, Stored, sealed, stored_bytes
from tests.states import commit_superstep, make_state, request
from tests.storages import create, grown, lineage, shared, state


@pytest.fixture(params=["memory", "json", "msgpack"])
def inner(request: pytest.FixtureRequest, runs: Path) -> CheckpointStorage:
    if request.param == "memory":
        return MemoryCheckpointStorage()
    return FileCheckpointStorage(runs, serialization_format=request.param)


async def tell_a_lot(storage: CheckpointStorage) -> None:
    checkpoint = create(
        storage,
        workflow_name="secret name",
        graph_signature_hash="secret hash",
        signature={"name": "secret name", "executors": ["secret executor"]},
        metadata={"secret key": "secret tenant"},
    )
    await checkpoint.commit_snapshot(state(0, n="secret text"), metadata={"secret": ["secret note"]})
    told = make_state(
        1,
        input_id="secret input",
        requests={"secret request": {**request(), "data": (b"secret bytes", {1, 2}, 2**80)}},
        executors={"secret executor": {"secret field": ("x", 2**80)}},
        shared={"long": ["secret line"] * 500, "set": {1, 2}},
    )
    await commit_superstep(checkpoint, told, "secret executor")
    await checkpoint.prune()


async def test_nothing_that_was_said_is_in_the_stored_bytes(inner: CheckpointStorage) -> None:
    # Longer than what stands in sealed bytes by chance.
    words = [b"secret", b"iteration_count", b"workflow_state", b'{"$":', b'{"$p":', b"frozenset", b"paused"]
    await tell_a_lot(inner)
    plain = stored_bytes(inner)
    assert b"secret executor" in plain and b"workflow_state" in plain  # this looks in the right place
    await inner.delete("order-17")
    await tell_a_lot(sealed(inner))
    found = stored_bytes(inner)
    assert found
    assert [word for word in words if word in found] == []


async def test_what_the_store_does_see() -> None:
    inner = MemoryCheckpointStorage()
    await tell_a_lot(sealed(inner))
    stored = Stored(inner)
    header, manifest = stored.header, stored.manifest(0)
    assert (header.checkpoint_id, header.generation) == ("order-17", 1)
    assert (header.workflow_name, header.graph_signature_hash, header.signature) == ("sealed", "sealed", {})
    assert header.pruned == {} and header.metadata.keys() == {"sealed"}
    assert manifest.snapshot_id == stored.ids[0] and manifest.parent_snapshot_id is not None
    assert manifest.status == "idle_with_pending_requests"
    assert (manifest.boundary, manifest.superstep, manifest.input_id) == ("superstep_completed", 0, None)
    assert (manifest.executors, manifest.metadata, manifest.trace) == ((), {}, None)
    await grown(sealed(inner), "edited by hand")
    assert Stored(inner, "edited by hand").manifest(0).boundary == "superstep_completed"
    (text,) = manifest.requests
    assert re.fullmatch(r"1\.k1\.[A-Za-z0-9+/]+=*", text)


async def test_what_is_loaded_is_what_was_committed(inner: CheckpointStorage) -> None:
    storage = sealed(inner)
    checkpoint = create(storage, metadata={"tenant": "a"})
    for n in range(3):
        await checkpoint.commit_snapshot(state(n, n=n, long="x" * 2000), metadata={"by": ["me", n]})
    checkpoint.restart_from(checkpoint.snapshots[0].snapshot_id)
    await checkpoint.commit_snapshot(state(9, n="branch", empty=""))
    loaded = await sealed(inner).load("order-17")
    assert loaded.header == checkpoint.header
    assert [one.manifest for one in loaded.snapshots] == [one.manifest for one in checkpoint.snapshots]
    assert [one.to_bytes() for one in loaded.snapshots] == [one.to_bytes() for one in checkpoint.snapshots]
    assert await storage.load_head("order-17") == StoredHead(loaded.snapshots[-1].snapshot_id, 0)


async def test_metadata_at_its_bound_is_sealed_and_opened(inner: CheckpointStorage) -> None:
    checkpoint = create(sealed(inner))
    metadata = {"note": "é" * 8_180}
    await checkpoint.commit_snapshot(state(0), metadata=metadata)
    found = (await sealed(inner).load("order-17")).snapshots[0].metadata
    assert found == {**metadata, "boundary": "edited"}


# Names.


async def test_equal_contents_of_two_checkpoints_do_not_look_equal() -> None:
    inner = MemoryCheckpointStorage()
    same = "the same long text in both of them " * 20
    for checkpoint_id in ("a", "b"):
        checkpoint = create(sealed(inner), checkpoint_id)
        await checkpoint.commit_snapshot(state(0, same=same))
        await checkpoint.commit_snapshot(state(1, same=same))
    a, b = inner._kept["a"].parts, inner._kept["b"].parts
    assert len(a) == len(b) == 3  # within one checkpoint, an equal part is stored once
    assert not a.keys() & b.keys()
    assert not set(a.values()) & set(b.values())


async def test_names_are_not_those_of_the_plain_parts_and_depend_on_the_key() -> None:
    names = []
    for keys in ({"k1": OLD}, {"k1": NEW}):
        inner = MemoryCheckpointStorage()
        checkpoint = await grown(sealed(inner, **keys), commits=1)
        names.append(inner._kept["order-17"].parts.keys())
        assert not names[-1] & checkpoint.parts.keys()
    assert not names[0] & names[1]


async def test_sealing_the_same_again_gives_the_same_bytes() -> None:
    """So a part that is there already has the same bytes, as the contract of storages says."""
    inner, again = MemoryCheckpointStorage(), MemoryCheckpointStorage()
    await grown(sealed(inner), commits=1)
    await create(sealed(again)).commit_snapshot(state(0, n=0))
    assert inner._kept["order-17"].parts == again._kept["order-17"].parts


# Lists.


async def test_a_list_filters_by_what_is_sealed(inner: CheckpointStorage) -> None:
    storage = sealed(inner)
    for n in range(6):
        checkpoint = create(
            storage, f"id-{n}", workflow_name=f"wf-{n % 2}", metadata={"tenant": "ab"[n % 3 == 0]}
        )
        await checkpoint.commit_snapshot(state(n, requests=("req",) * (n == 5)))
    everything = await storage.list_checkpoints()
    assert [line.checkpoint_id for line in everything] == [f"id-{n}" for n in range(6)]
    assert [line.superstep for line in everything] == list(range(6))
    assert [line.requests for line in everything] == [()] * 5 + [("req",)]
    assert {line.workflow_name for line in everything} == {"wf-0", "wf-1"}

    async def ids(**asked: object) -> list[str]:
        return [line.checkpoint_id for line in await storage.list_checkpoints(**asked)]  # type: ignore[arg-type]

    assert await ids(workflow_name="wf-1") == ["id-1", "id-3", "id-5"]
    assert await ids(metadata={"tenant": "b"}) == ["id-0", "id-3"]
    assert await ids(metadata={"tenant": "b"}, workflow_name="wf-1", limit=1) == ["id-3"]
    assert await ids(status="idle_with_pending_requests") == ["id-5"]
    assert await ids(after="id-3") == ["id-4", "id-5"]
    assert await ids(after="id-0", workflow_name="wf-0", limit=1) == ["id-2"]
    assert await ids(limit=0) == []
    with pytest.raises(InvalidCallError):
        await ids(limit=-1)


async def test_a_page_is_filled_from_as_many_pages_of_the_inner_storage_as_it_takes() -> None:
    storage = sealed(MemoryCheckpointStorage())
    for n in range(200):
        checkpoint = create(storage, f"{n:03}", workflow_name="rare" if n % 50 == 49 else "common")
        await checkpoint.commit_snapshot(state(0))
    found = await storage.list_checkpoints(workflow_name="rare", limit=3)
    assert [line.checkpoint_id for line in found] == ["049", "099", "149"]
    found = await storage.list_checkpoints(workflow_name="rare", limit=3, after="149")
    assert [line.checkpoint_id for line in found] == ["199"]


async def test_what_cannot_be_opened_is_left_out_of_a_list_and_named() -> None:
    inner = MemoryCheckpointStorage()
    await grown(sealed(inner), "mine")
    await grown(sealed(inner, k2=NEW), "theirs")
    await grown(inner, "plain")
    with pytest.warns(RuntimeWarning) as told:
        found = await sealed(inner).list_checkpoints()
    assert [line.checkpoint_id for line in found] == ["mine"]
    texts = sorted(str(one.message) for one in told)
    assert len(texts) == 2
    assert "'plain' is not sealed" in texts[0] and "'k2'" in texts[1] and "'theirs'" in texts[1]


# Prunes, forks, conflicts.


async def test_a_pruned_checkpoint_goes_on(inner: CheckpointStorage) -> None:
    checkpoint = await grown(sealed(inner), commits=6)
    ids = [one.snapshot_id for one in checkpoint.snapshots]
    await checkpoint.prune(keep=[ids[1], ids[3]])
    await checkpoint.commit_snapshot(state(7, n=7))
    await checkpoint.prune(keep=[ids[3]])
    loaded = await sealed(inner).load("order-17")
    assert loaded.header == checkpoint.header and loaded.generation == 2
    assert lineage(loaded) == lineage(checkpoint)
    assert [shared(one)["n"] for one in loaded.snapshots] == [3, 7]
    await loaded.commit_snapshot(state(8, n=8))
    again = await sealed(inner).load("order-17")
    assert [shared(one)["n"] for one in again.snapshots] == [3, 7, 8]


async def test_a_prune_whose_reply_is_lost_is_told_from_one_that_is_stale() -> None:
    class Losing(MemoryCheckpointStorage):
        async def prune(self, *args: object, **asked: object) -> None:
            await super().prune(*args, **asked)  # type: ignore[arg-type]
            raise StorageError("the reply was lost")

    inner = Losing()
    checkpoint = await grown(sealed(inner))
    await checkpoint.prune()
    await checkpoint.commit_snapshot(state(5, n=5))
    loaded = await sealed(inner).load("order-17")
    assert (loaded.generation, lineage(loaded)) == (1, lineage(checkpoint))


async def test_an_object_from_before_a_prune_conflicts(inner: CheckpointStorage) -> None:
    checkpoint = await grown(sealed(inner))
    stale = await sealed(inner).load("order-17")
    await checkpoint.prune()
    with pytest.raises(CheckpointConflictError):
        await stale.commit_snapshot(state(9))
    await stale.refresh()
    await stale.commit_snapshot(state(9, n=9))
    assert shared((await sealed(inner).load("order-17")).head_snapshot) == {"n": 9}


async def test_a_fork_leads_into_encryption_and_out_of_it(inner: CheckpointStorage) -> None:
    plain = await grown(MemoryCheckpointStorage(), "plain")
    hidden = await plain.fork(checkpoint_id="hidden", checkpoint_storage=sealed(inner))
    await hidden.commit_snapshot(state(4, n=4))
    loaded = await sealed(inner).load("hidden")
    assert [shared(one)["n"] for one in loaded.snapshots] == [2, 4]
    assert loaded.snapshots[0].forked_from is not None
    outside = MemoryCheckpointStorage()
    await loaded.fork(checkpoint_id="open", checkpoint_storage=outside)
    assert shared((await outside.load("open")).head_snapshot) == {"n": 4}
    inside = await loaded.fork(checkpoint_id="inside")
    assert shared((await sealed(inner).load("inside")).head_snapshot) == {"n": 4}
    assert inside.checkpoint_storage is loaded.checkpoint_storage


async def test_a_checkpoint_that_was_not_loaded_here_finds_its_names_in_the_store() -> None:
    """One that another storage object handed out, which kept something else in its slot."""
    inner = MemoryCheckpointStorage()
    checkpoint = await grown(sealed(inner), commits=2)
    checkpoint.storage_token = None
    await checkpoint.commit_snapshot(state(3, n=3))
    checkpoint.storage_token = None
    await checkpoint.prune()
    assert shared((await sealed(inner).load("order-17")).head_snapshot) == {"n": 3}
    await sealed(inner).delete("order-17")
    checkpoint.storage_token = None
    with pytest.raises(CheckpointConflictError, match="deleted"):
        await checkpoint.commit_snapshot(state(4))


# Laziness, and what is the inner storage's.


@pytest.mark.parametrize("format", ["json", "msgpack"])
async def test_a_lazy_load_fetches_and_opens_parts_when_they_are_needed(runs: Path, format: str) -> None:
    def opened(lazy_over: int | None = None) -> EncryptedCheckpointStorage:
        return sealed(
            FileCheckpointStorage(runs, serialization_format=format, lazy_over=lazy_over),  # type: ignore[arg-type]
            k1=OLD,
            k2=NEW,
        )

    checkpoint = create(opened())
    for n in range(4):
        await checkpoint.commit_snapshot(state(n, text=[f"{n} " * 200] * 5))
    lazily = await opened(0).load("order-17")
    oldest = lazily.snapshots[0]
    assert not oldest.is_loaded
    assert shared(await lazily.load_snapshot(oldest.snapshot_id)) == {"text": ["0 " * 200] * 5}
    await lazily.prune(keep=[lazily.snapshots[1].snapshot_id])
    await lazily.commit_snapshot(state(9, text="new"))
    assert [shared(one)["text"] for one in (await opened().load("order-17")).snapshots] == [
        ["1 " * 200] * 5,
        ["3 " * 200] * 5,
        "new",
    ]


async def test_a_storage_that_leaves_the_lineage_behind_is_opened_piece_by_piece() -> None:
    inner = OnDemand(lazy_over=0)
    checkpoint = await grown(sealed(inner), commits=5)
    await checkpoint.prune(keep=[one.snapshot_id for one in checkpoint.snapshots[2:]])
    loaded = await sealed(inner).load("order-17")
    assert shared(loaded.head_snapshot) == {"n": 4}
    await loaded.commit_snapshot(state(5, n=5))
    await loaded.load_lineage()
    assert lineage(loaded)[:-1] == lineage(checkpoint)
    first = loaded.snapshots[0]
    assert shared(await loaded.load_snapshot(first.snapshot_id)) == {"n": 2}
    await loaded.prune()
    again = await sealed(inner).load("order-17")
    await again.load_lineage()
    assert lineage(again) == lineage(loaded)


async def test_it_can_do_what_the_inner_storage_can(runs: Path) -> None:
    class Bare(MemoryCheckpointStorage):
        capabilities = frozenset()

        async def load_head(self, checkpoint_id: str) -> StoredHead:
            raise AssertionError("it cannot")

    storage = sealed(Bare())
    assert storage.capabilities == frozenset()
    checkpoint = await grown(storage)
    assert (await storage.load_head("order-17")).head_snapshot_id == checkpoint.head_snapshot_id

    inner = FileCheckpointStorage(runs, serialization_format="msgpack", lazy_over=7, commit_thread=False)
    storage = sealed(inner)
    assert storage.inner is inner
    for name in (
        "serialization_format",
        "lazy_over",
        "commit_waits",
        "leases",
        "lease_seconds",
        "capabilities",
    ):
        assert getattr(storage, name) == getattr(inner, name)


async def test_a_commit_that_never_waits_still_never_waits(runs: Path) -> None:
    storage = sealed(FileCheckpointStorage(runs, commit_thread=False))
    checkpoint = create(storage)
    commit = checkpoint.commit_snapshot(state(0, big=[f"{n} " * 200 for n in range(300)]))
    with pytest.raises(StopIteration):
        commit.send(None)
    assert len((await storage.load("order-17")).snapshots) == 1


async def test_arguments_of_another_kind_are_refused() -> None:
    storage = sealed(MemoryCheckpointStorage())
    with pytest.raises(InvalidCallError, match="CheckpointStorage, not str"):
        EncryptedCheckpointStorage("runs", storage._keys)  # type: ignore[arg-type]
    with pytest.raises(InvalidCallError, match="EncryptionKeys"):
        EncryptedCheckpointStorage(MemoryCheckpointStorage(), {"k1": OLD})  # type: ignore[arg-type]
    for call in (storage.load, storage.load_head, storage.load_lineage, storage.delete):
        with pytest.raises(InvalidCallError):
            await call("")
    with pytest.raises(InvalidCallError):
        await storage.load_parts("a\x00b", ["x"])


def test_one_around_another_is_refused() -> None:
    """The inner one could open no part, whose names the outer one makes."""
    with pytest.raises(InvalidCallError, match="sealed once is enough"):
        sealed(sealed(MemoryCheckpointStorage()))
