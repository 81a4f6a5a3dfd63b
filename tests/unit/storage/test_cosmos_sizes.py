"""States that do not fit into one batch of Cosmos DB: what goes ahead of it, and what is left of it when it fails."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec
import pytest

from branchpoint.checkpoint import Checkpoint
from branchpoint.errors import CheckpointConflictError, CheckpointNotFoundError, StorageError
from branchpoint.testing.samples import create, lineage, shared, small_state

pytest.importorskip("azure.cosmos")

from branchpoint.storage.cosmos import CosmosCheckpointStorage
from tests.servers.cosmos import CosmosServer
from tests.unit.storage.cosmos_places import Gate, Here, big, filled

_FORMATS: tuple[Literal["json", "msgpack"], ...] = ("json", "msgpack")


async def _shown(here: Here) -> Checkpoint:
    async with here.storage() as storage:
        return await storage.load("order-17")


async def _check_deleted(here: Here, storage: CosmosCheckpointStorage) -> None:
    await storage.delete("order-17")
    assert here.kinds() == {}


@pytest.mark.parametrize("format", _FORMATS)
async def test_a_state_of_5_mb_comes_back(
    format: Any, cosmos_place: str, cosmos_server: CosmosServer
) -> None:
    here = Here(cosmos_place)
    state = small_state(0, **big(4.5), one=bytes(range(256)) * 4000, text="Grüße " * 300_000)
    async with here.storage(serialization_format=format) as storage:
        checkpoint = create(storage)
        await checkpoint.commit_snapshot(state)
        await checkpoint.commit_snapshot(small_state(1, **shared(checkpoint.snapshots[0]), more=1))
        assert here.kinds()["parts"] > 5
        assert {status for _, status in cosmos_server.seen("batch", "upsert")} == {200, 201}
        stored = await storage.load("order-17")
        assert [one.state for one in stored.snapshots] == [one.state for one in checkpoint.snapshots]
        assert stored.parts == checkpoint.parts
    async with here.storage(serialization_format=format, lazy_over=100_000) as lazy:
        cosmos_server.reset()
        loaded = await lazy.load("order-17")
        assert loaded.head_snapshot.state == checkpoint.snapshots[1].state
        assert len(cosmos_server.seen("query", "read")) < 40
        await loaded.load_lineage()
        assert (await loaded.load_snapshot(loaded.snapshots[0].snapshot_id)).state == state
        await _check_deleted(here, lazy)


async def test_many_parts_take_few_operations(cosmos_place: str, cosmos_server: CosmosServer) -> None:
    async with Here(cosmos_place).storage() as storage:
        checkpoint = create(storage)
        await checkpoint.commit_snapshot(small_state(0, **{f"k{n}": f"{n:03}" * 100 for n in range(500)}))
        assert len(checkpoint.parts) > 500
        assert cosmos_server.seen("batch", "upsert", "create") == [("batch", 200)]
        assert (await storage.load("order-17")).parts == checkpoint.parts


async def test_json_can_be_read_in_the_items(cosmos_place: str) -> None:
    here = Here(cosmos_place)
    async with here.storage() as storage:
        await create(storage).commit_snapshot(small_state(0, note="Bitte lesen: " + "so steht es da. " * 30))
        (snapshot,) = (item for item in here.items.all() if item["kind"] == "snapshot")
        assert any("Bitte lesen: so steht es da." in text for text in snapshot["data"])


@pytest.mark.parametrize("commits", [0, 2])
async def test_what_a_failed_commit_left_is_never_shown_and_goes(
    commits: int, cosmos_place: str, cosmos_server: CosmosServer
) -> None:
    here = Here(cosmos_place)
    async with here.storage() as storage:
        checkpoint = await filled(storage, commits)
        before, parts = lineage(checkpoint), here.kinds().get("parts", 0)
        cosmos_server.refuse(403, 1, "batch")
        with pytest.raises(StorageError):
            await checkpoint.commit_snapshot(small_state(5, **big(2, "x")))
        assert here.kinds()["parts"] > parts, "the test has no leftovers"
        cosmos_server.reset()
        if commits:
            found = await _shown(here)
            assert lineage(found) == before and found.parts == checkpoint.parts
            records = await storage.load_records("order-17")
            assert records.parts.keys() == checkpoint.parts.keys()
            lost = [name for one in here.items.all() for name in one.get("names", ())]
            await storage.load_parts("order-17", lost)
            assert (await storage.load_parts("order-17", lost)).keys() == checkpoint.parts.keys()
        else:
            with pytest.raises(CheckpointNotFoundError):
                await _shown(here)
            assert await storage.list_checkpoints() == []
        await checkpoint.commit_snapshot(small_state(5, **big(2, "x")))  # the same parts again
        assert (await _shown(here)).parts == checkpoint.parts
        left = here.kinds()["parts"]
        for n in (6, 7):
            await checkpoint.commit_snapshot(small_state(n))
        await checkpoint.prune([checkpoint.snapshots[-3].snapshot_id])
        assert here.kinds()["parts"] < left
        assert (await _shown(here)).snapshots[0].state == small_state(5, **big(2, "x"))
        await _check_deleted(here, storage)


async def test_a_refused_commit_takes_back_what_it_put_ahead(cosmos_place: str) -> None:
    here = Here(cosmos_place)
    async with here.storage() as storage, here.storage() as other:
        mine = await filled(storage, 1)
        theirs = await other.load("order-17")
        before = here.kinds()
        with Gate(storage).standing() as gate:
            committing = asyncio.ensure_future(mine.commit_snapshot(small_state(1, **big(2, "m"))))
            await gate.reached.wait()
            assert here.kinds()["parts"] > before["parts"]
            await theirs.commit_snapshot(small_state(1))
            gate.open.set()
            with pytest.raises(CheckpointConflictError):
                await committing
        assert here.kinds() == {**before, "snapshot": 2}
        assert lineage(await _shown(here)) == lineage(theirs)


@pytest.mark.parametrize("commits", [0, 1])
@pytest.mark.parametrize("again", [False, True])
async def test_a_delete_ends_a_commit_whose_parts_went_ahead(
    commits: int, again: bool, cosmos_place: str
) -> None:
    here = Here(cosmos_place)
    async with here.storage() as storage, here.storage() as other:
        mine = await filled(storage, commits)
        with Gate(storage).standing() as gate:
            committing = asyncio.ensure_future(mine.commit_snapshot(small_state(1, **big(2, "m"))))
            await gate.reached.wait()
            await other.delete("order-17")
            assert here.kinds() == {}
            fresh = create(other)
            if again:
                await fresh.commit_snapshot(small_state(0, **big(2, "n")))
            gate.open.set()
            if commits or again:
                with pytest.raises(CheckpointConflictError):
                    await committing
            else:  # nothing is stored under this id, as it expected: it puts all of it there once more
                await committing
                fresh = mine
        if commits and not again:
            assert here.kinds() == {}
        else:
            found = await _shown(here)
            assert lineage(found) == lineage(fresh) and found.parts == fresh.parts
        await _check_deleted(here, storage)


async def test_a_delete_takes_nothing_of_what_begins_meanwhile(cosmos_place: str) -> None:
    here = Here(cosmos_place)
    async with here.storage() as storage, here.storage() as other:
        await filled(storage, 2)
        with Gate(other, "query").standing() as gate:
            deleting = asyncio.ensure_future(other.delete("order-17"))
            await gate.reached.wait()
            fresh = await filled(storage, 1)
            gate.open.set()
            await deleting
        found = await _shown(here)
        assert lineage(found) == lineage(fresh) and found.parts == fresh.parts
        assert here.kinds()["snapshot"] == 1
        await _check_deleted(here, storage)


async def test_a_prune_that_is_repeated_takes_nothing_of_what_came_since(
    cosmos_place: str, cosmos_server: CosmosServer
) -> None:
    here = Here(cosmos_place)
    async with here.storage() as storage, here.storage() as other:
        pruner = await filled(storage, 3)
        with Gate(other, "query").standing() as gate:
            cosmos_server.cut_after("replace", count=9)
            with pytest.raises(StorageError):
                await _prune(here, pruner)
            cosmos_server.reset()
            # The reply was lost: it looks at the head item, and then for what is there.
            again = asyncio.ensure_future(_prune(here, pruner, other))
            await gate.reached.wait()
            found = await storage.load("order-17")
            assert found.generation == 1
            await found.commit_snapshot(small_state(4, **big(2, "c")))
            gate.open.set()
            await again
        stored = await _shown(here)
        assert lineage(stored) == lineage(found) and stored.parts == found.parts
        assert here.kinds()["snapshot"] == 2
        await _check_deleted(here, storage)


async def _prune(here: Here, checkpoint: Checkpoint, storage: CosmosCheckpointStorage | None = None) -> None:
    """Prune to the head as a checkpoint does, without looking afterwards whether it has landed."""
    if storage is None:
        async with here.storage(client_options={"retry_total": 0}) as storage:
            await _prune(here, checkpoint, storage)
        return
    head = checkpoint.head_snapshot
    assert head is not None
    await storage.prune(
        checkpoint,
        header=msgspec.structs.replace(
            checkpoint.header, generation=1, pruned={str(head.manifest.parent_snapshot_id): None}
        ),
        keep=[head.snapshot_id],
        parts=frozenset(head.parts()),
        expected_head_snapshot_id=head.snapshot_id,
    )


async def test_a_prune_ends_a_commit_whose_parts_went_ahead_and_not_one_that_came_later(
    cosmos_place: str,
) -> None:
    here = Here(cosmos_place)
    async with here.storage() as storage, here.storage() as other, here.storage() as third:
        mine = await filled(storage, 3)
        pruner = await other.load("order-17")
        with Gate(storage).standing() as gate, Gate(third).standing() as later:
            committing = asyncio.ensure_future(mine.commit_snapshot(small_state(1, **big(2, "m"))))
            await gate.reached.wait()
            # The head item is replaced, and what is to be removed is not removed yet.
            swept = Gate(other)
            with swept.standing():
                pruning = asyncio.ensure_future(pruner.prune())
                await swept.reached.wait()
                found = await third.load("order-17")
                assert (len(found.snapshots), found.generation) == (1, 1)
                coming = asyncio.ensure_future(found.commit_snapshot(small_state(1, **big(2, "l"))))
                await later.reached.wait()
                swept.open.set()
                await pruning
            gate.open.set()
            with pytest.raises(CheckpointConflictError, match="pruned"):
                await committing
            later.open.set()
            await coming
        stored = await _shown(here)
        assert lineage(stored) == lineage(found) and stored.parts == found.parts
        assert here.kinds()["snapshot"] == 2
        await _check_deleted(here, storage)


async def test_an_unfinished_prune_shows_nothing_and_is_finished_by_the_next(
    cosmos_place: str, cosmos_server: CosmosServer, caplog: pytest.LogCaptureFixture
) -> None:
    here = Here(cosmos_place)
    async with here.storage() as storage:
        checkpoint = await filled(storage, 4)
        await checkpoint.commit_snapshot(small_state(4, **big(2, "b")))
        cosmos_server.refuse(403, 100, "batch", "delete")
        await checkpoint.prune([checkpoint.snapshots[0].snapshot_id])
        assert "left something behind" in caplog.text
        cosmos_server.reset()
        assert here.kinds()["snapshot"] > 2, "the test left nothing behind"
        found = await _shown(here)
        assert lineage(found) == lineage(checkpoint) and found.parts == checkpoint.parts
        await found.commit_snapshot(small_state(5))
        assert lineage(await _shown(here)) == lineage(found)
        await found.prune([found.snapshots[1].snapshot_id])
        assert here.kinds()["snapshot"] == 2 and "runs" not in next(
            item for item in here.items.all() if item["kind"] == "head"
        )
        assert (await _shown(here)).snapshots[0].state == small_state(4, **big(2, "b"))
        await _check_deleted(here, storage)


async def test_a_delete_that_was_cut_off_leaves_nothing_that_a_new_life_shows(
    cosmos_place: str, cosmos_server: CosmosServer
) -> None:
    here = Here(cosmos_place)
    async with here.storage() as storage:
        await filled(storage, 2)
        cosmos_server.refuse(403, 100, "batch")
        with pytest.raises(StorageError):
            await storage.delete("order-17")
        cosmos_server.reset()
        assert here.kinds().keys() == {"snapshot", "parts"}
        with pytest.raises(CheckpointNotFoundError):
            await storage.load("order-17")
        fresh = await filled(storage, 1)
        found = await _shown(here)
        assert lineage(found) == lineage(fresh) and found.parts == fresh.parts
        await fresh.commit_snapshot(small_state(1))
        await fresh.prune()
        assert here.kinds() == {"head": 1, "snapshot": 1}
        await _check_deleted(here, storage)


async def test_parts_that_are_still_shared_stay_when_their_snapshot_goes(cosmos_place: str) -> None:
    here = Here(cosmos_place)
    async with here.storage() as storage:
        checkpoint = create(storage)
        own, both = big(2, "o"), big(2, "s")
        await checkpoint.commit_snapshot(small_state(0, **own, **both))
        await checkpoint.commit_snapshot(small_state(1, **both))
        size = sum(len(str(item)) for item in here.items.all())
        for n in range(2, 4):
            await checkpoint.prune()
            found = await _shown(here)
            assert lineage(found) == lineage(checkpoint) and found.parts == checkpoint.parts
            assert sum(len(str(item)) for item in here.items.all()) < size * 0.6
            (head,) = (item for item in here.items.all() if item["kind"] == "head")
            assert head["size"] == sum(map(len, checkpoint.parts.values()))
            assert head.get("loose", 0) == here.kinds().get("parts", 0)
            await checkpoint.commit_snapshot(small_state(n, **both, n=n))
        await _check_deleted(here, storage)
