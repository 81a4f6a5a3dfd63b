"""What a memory storage holds, looked at from inside."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from branchpoint.storage import InMemoryCheckpointStorage, MemoryCheckpointStorage
from tests.storages import create, grown, state


async def test_r61_a_prune_and_a_delete_give_the_memory_back() -> None:
    storage = MemoryCheckpointStorage()
    checkpoint = create(storage)
    for n in range(4):
        await checkpoint.commit_snapshot(state(n, text=f"{n}" * 1000))
    kept = storage._kept["order-17"]
    assert kept.parts == checkpoint.parts
    await checkpoint.prune()
    assert storage._kept["order-17"].parts == checkpoint.parts
    assert len(storage._kept["order-17"].parts) < len(kept.parts)
    await storage.delete("order-17")
    assert storage._kept == {}


async def test_it_holds_bytes_and_nothing_else() -> None:
    storage = MemoryCheckpointStorage()
    await grown(storage)
    kept = storage._kept["order-17"]
    assert {type(one) for one in (kept.header, *kept.manifests.values(), *kept.parts.values())} == {bytes}


async def test_two_names_for_one_class_and_two_storages_for_two_places() -> None:
    assert InMemoryCheckpointStorage is MemoryCheckpointStorage
    one, other = MemoryCheckpointStorage(), MemoryCheckpointStorage()
    await grown(one)
    assert await other.list_checkpoints() == []
    assert repr(one) == "<MemoryCheckpointStorage of 1 checkpoints>"


async def test_a_commit_is_through_in_one_step_and_makes_no_task() -> None:
    checkpoint = create(MemoryCheckpointStorage())
    with pytest.raises(StopIteration):
        checkpoint.commit_snapshot(state(1)).send(None)
    assert len(checkpoint.snapshots) == 1


async def test_a_commit_of_a_subclass_may_wait_and_is_seen_through() -> None:
    class Slow(MemoryCheckpointStorage):
        async def commit_snapshot(self, *args: Any, **options: Any) -> None:
            entered.set()
            await gate.wait()
            await super().commit_snapshot(*args, **options)

    entered, gate = asyncio.Event(), asyncio.Event()
    checkpoint = create(Slow())
    commit = asyncio.ensure_future(checkpoint.commit_snapshot(state(1)))
    await entered.wait()
    commit.cancel()
    await asyncio.sleep(0)
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await commit
    assert len(checkpoint.snapshots) == 1
