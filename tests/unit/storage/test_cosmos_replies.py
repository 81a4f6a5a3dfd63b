"""What the service says late, not at all, or says is too much: 429, 449, lost replies, and its clock."""

from __future__ import annotations

import asyncio

import pytest

from branchpoint.checkpoint import Lease
from branchpoint.errors import CheckpointLeasedError, StorageError
from branchpoint.testing.samples import create, grown, lineage, small_state

pytest.importorskip("azure.cosmos")

from tests.servers.cosmos import CosmosServer
from tests.unit.storage.cosmos_places import Here

_QUICK = {"client_options": {"retry_total": 3, "retry_backoff_factor": 0.001}}


async def test_who_is_throttled_waits_as_long_as_the_service_says(
    cosmos_place: str, cosmos_server: CosmosServer
) -> None:
    async with Here(cosmos_place).storage() as storage:
        checkpoint = await grown(storage, commits=1)
        cosmos_server.reset()
        cosmos_server.throttle(2, "batch", "read", "query", retry_after_ms=3)
        await checkpoint.commit_snapshot(small_state(1))
        assert cosmos_server.seen("batch") == [("batch", 429), ("batch", 429), ("batch", 200)]
        cosmos_server.throttle(2, "read", "query", retry_after_ms=3)
        assert lineage(await storage.load("order-17")) == lineage(checkpoint)


async def test_who_is_throttled_for_too_long_is_told_and_may_try_again(
    cosmos_place: str, cosmos_server: CosmosServer
) -> None:
    async with Here(cosmos_place).storage(**_QUICK) as storage:
        checkpoint = await grown(storage, commits=1)
        cosmos_server.throttle(100, "batch", retry_after_ms=1)
        with pytest.raises(StorageError, match=r"order-17.*throttled.*0\.0 seconds.*throughput") as refused:
            await checkpoint.commit_snapshot(small_state(1))
        assert refused.value.retryable and type(refused.value) is StorageError
        cosmos_server.reset()
        await checkpoint.commit_snapshot(small_state(1))
        assert lineage(await storage.load("order-17")) == lineage(checkpoint)


@pytest.mark.parametrize("status", [429, 449])
async def test_patience_is_had_inside_of_a_batch_too(
    status: int, cosmos_place: str, cosmos_server: CosmosServer
) -> None:
    async with Here(cosmos_place).storage() as storage:
        checkpoint = await grown(storage, commits=1)
        cosmos_server.reset()
        cosmos_server.refuse(status, 3, "batch", inside=True)
        await checkpoint.commit_snapshot(small_state(1))
        assert len(cosmos_server.seen("batch")) == 4
        cosmos_server.refuse(status, 100, "batch", inside=True)
        with pytest.raises(StorageError, match=f"status {status}|status 449"):
            await checkpoint.commit_snapshot(small_state(2))
        cosmos_server.reset()
        await checkpoint.commit_snapshot(small_state(2))
        assert lineage(await storage.load("order-17")) == lineage(checkpoint)


async def test_who_closes_the_storage_waits_for_no_better_times(
    cosmos_place: str, cosmos_server: CosmosServer
) -> None:
    async with Here(cosmos_place).storage() as storage:
        checkpoint = await grown(storage, commits=1)
        cosmos_server.refuse(449, 100, "batch", inside=True, retry_after_ms=29_000)
        committing = asyncio.ensure_future(checkpoint.commit_snapshot(small_state(1)))
        while cosmos_server.seen("batch")[-1:] != [("batch", 207)]:
            await asyncio.sleep(0)
        await storage.aclose()
        with pytest.raises(StorageError, match="status 449"):
            await committing
        cosmos_server.reset()
        cosmos_server.refuse(429, 100, "batch", inside=True, retry_after_ms=3_600_000)
        with pytest.raises(StorageError, match="throttled"):
            await checkpoint.commit_snapshot(small_state(1))
        assert len(cosmos_server.seen("batch")) == 1


async def test_c52_an_answer_that_leaves_it_open_is_asked_for_again(
    cosmos_place: str, cosmos_server: CosmosServer
) -> None:
    async with Here(cosmos_place).storage() as storage:
        checkpoint = await grown(storage, commits=1)
        cosmos_server.refuse(503, 1, "batch", inside=True)
        await checkpoint.commit_snapshot(small_state(1))
        assert lineage(await storage.load("order-17")) == lineage(checkpoint)


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_every_call_settles_a_lost_reply(
    cut: str, cosmos_place: str, cosmos_server: CosmosServer
) -> None:
    here = Here(cosmos_place)
    async with here.storage(leases=True, **_QUICK) as storage:
        lose = cosmos_server.cut_before if cut == "before" else cosmos_server.cut_after
        for kind in ("read", "create"):
            lose(kind)
            lease = await storage.take_lease("order-17")
            await storage.end_lease("order-17", lease)
        lease = await storage.take_lease("order-17")
        lose("replace")
        await storage.renew_lease("order-17", lease)
        checkpoint = create(storage)
        with checkpoint.hold("a run") as hold:
            hold.lease = lease
            for n in range(3):
                lose("batch")
                await hold.commit_snapshot(small_state(n, n=n))
        lose("replace")
        await storage.end_lease("order-17", lease)
        await checkpoint.refresh()
        lose("replace")
        lose("batch")
        await checkpoint.prune()
        lose("query")
        assert lineage(await storage.load("order-17")) == lineage(checkpoint)
        lose("query")
        assert len(await storage.list_checkpoints()) == 1
        lose("delete")
        lose("batch")
        await storage.delete("order-17")
        assert here.kinds() == {}


async def test_a_lease_lasts_by_the_clock_of_the_service(cosmos_place: str) -> None:
    here = Here(cosmos_place)
    async with here.storage(leases=True, lease_seconds=30.0) as storage:
        lease = await storage.take_lease("order-17")
        (head,) = here.items.all()
        assert (head["kind"], head["lease"]["token"]) == ("unborn", lease.token)
        with pytest.raises(CheckpointLeasedError):
            await storage.take_lease("order-17")
        here.change("head", lease={**head["lease"], "expires": head["lease"]["expires"] - 31})
        with pytest.raises(CheckpointLeasedError):
            await storage.renew_lease("order-17", Lease("another", 30.0))
        await storage.take_lease("order-17")
        with pytest.raises(CheckpointLeasedError):
            await storage.renew_lease("order-17", lease)
        await storage.delete("order-17")
        assert here.kinds() == {}
        lease = await storage.take_lease("order-17")
        await storage.end_lease("order-17", lease)
        assert here.kinds() == {}
