"""Cosmos DB: replies that are lost around commits, writers that race, processes that are killed while they write."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from branchpoint.checkpoint import Checkpoint, CheckpointSnapshot
from branchpoint.errors import CheckpointConflictError, CheckpointNotFoundError
from branchpoint.testing import check_lineage_law
from branchpoint.testing.samples import create, grown, lineage, shared, small_state
from tests.profiles import SOAKING
from tests.scenario.kit import Talking, listen, say

pytest.importorskip("azure.cosmos")

from tests.servers.cosmos import CosmosServer
from tests.unit.storage.cosmos_places import Here, big

_CUTS = 50 if SOAKING else 10
_ROUNDS = 200 if SOAKING else 5
_KILLS = 50 if SOAKING else 4
_QUICK = {"client_options": {"retry_total": 2, "retry_backoff_factor": 0.001}}
_FINAL = {"client_options": {"retry_total": 0}}


@pytest.mark.parametrize("resends", [True, False])
async def test_c52_every_cut_around_a_commit_is_settled_right(
    resends: bool, cosmos_place: str, cosmos_server: CosmosServer
) -> None:
    """Before the request, after it, once or for good: the checkpoint knows what is stored."""
    here, chance = Here(cosmos_place), random.Random(17)
    async with here.storage(**(_QUICK if resends else _FINAL)) as storage, here.storage() as other:
        checkpoint = create(storage)
        landed = 0
        for n in range(_CUTS):
            cosmos_server.reset()
            lose = chance.choice([cosmos_server.cut_before, cosmos_server.cut_after])
            lose("batch", count=1 if chance.random() < 0.7 else 9)
            state = small_state(n, n=n, **(big(1.5, "x") if n % 5 == 2 else {}))
            try:
                await checkpoint.commit_snapshot(state)
                landed += 1
            except CheckpointConflictError:
                raise
            except Exception as error:
                assert getattr(error, "retryable", False), error
            cosmos_server.reset()
            try:
                stored = await other.load("order-17")
            except CheckpointNotFoundError:
                assert not checkpoint.snapshots
                continue
            assert lineage(stored) == lineage(checkpoint)
            check_lineage_law(checkpoint, stored)
        assert 0 < landed <= _CUTS
        assert len(checkpoint.snapshots) == landed


async def test_c17_of_eight_writers_exactly_one_wins_every_round(cosmos_place: str) -> None:
    here = Here(cosmos_place)
    storages = [here.storage() for _ in range(8)]
    try:
        await grown(storages[0], commits=1)
        for n in range(_ROUNDS):
            eight = [await storage.load("order-17") for storage in storages]
            large = big(1.2, "r") if n == 2 else {}
            outcomes = await asyncio.gather(
                *(one.commit_snapshot(small_state(n, by=k, **large)) for k, one in enumerate(eight)),
                return_exceptions=True,
            )
            won = [k for k, one in enumerate(outcomes) if isinstance(one, CheckpointSnapshot)]
            assert len(won) == 1, outcomes
            assert sum(isinstance(one, CheckpointConflictError) for one in outcomes) == 7
            stored = await storages[0].load("order-17")
            assert lineage(stored) == lineage(eight[won[0]])
            assert shared(stored.head_snapshot)["by"] == won[0]
            assert here.kinds().get("parts", 0) <= 2, "the losers left their parts"
    finally:
        for storage in storages:
            await storage.aclose()


async def race_in_a_process(place: str, rounds: int) -> int:
    """A child: commit on the head of each round when told to."""
    won = 0
    async with Here(place).storage() as storage:
        for n in range(rounds):
            checkpoint = await storage.load("order-17")
            say("ready")
            listen()
            try:
                await checkpoint.commit_snapshot(small_state(n))
                won += 1
            except CheckpointConflictError:
                pass
            say("done")
            listen()
    return won


async def test_c17_of_several_processes_exactly_one_wins_every_round(cosmos_place: str) -> None:
    here, rounds = Here(cosmos_place), _ROUNDS
    async with here.storage() as storage:
        await grown(storage, commits=1)
        children = [Talking(race_in_a_process, cosmos_place, rounds) for _ in range(8 if SOAKING else 3)]
        try:
            for _ in range(rounds):
                for word in ("ready", "done"):
                    for child in children:
                        assert child.hear() == word
                    for child in children:
                        child.tell()
            assert sum(child.result() for child in children) == rounds
        finally:
            for child in children:
                child.__exit__()
        stored = await storage.load("order-17")
        assert len({parent for _, parent in lineage(stored)}) == len(stored.snapshots) == rounds + 1


async def write_for_ever(place: str) -> None:
    """A child: commit, large and small, prune now and then, and say what was acknowledged."""
    async with Here(place).storage() as storage:
        try:
            checkpoint: Checkpoint = await storage.load("order-17")
        except CheckpointNotFoundError:
            checkpoint = create(storage)
        for n in range(10_000):
            snapshot = await checkpoint.commit_snapshot(
                small_state(n, n=n, **(big(1.2, "k") if n % 3 else {}))
            )
            if n % 4 == 3:
                await checkpoint.prune([one.snapshot_id for one in checkpoint.snapshots[-2:]])
            say(snapshot.snapshot_id)


async def test_c21_a_killed_writer_loses_nothing_and_shows_nothing_half(cosmos_place: str) -> None:
    here, chance = Here(cosmos_place), random.Random(4)
    async with here.storage() as storage:
        for _ in range(_KILLS):
            with Talking(write_for_ever, cosmos_place) as child:
                for _ in range(chance.randrange(1, 6)):
                    acknowledged = child.hear()
                await asyncio.sleep(0)
                child.kill()
            stored = await storage.load("order-17")
            ids: list[Any] = [one.snapshot_id for one in stored.snapshots]
            assert acknowledged in ids[-3:]
            check_lineage_law(stored, await storage.load("order-17"))
        await storage.delete("order-17")
        assert here.kinds() == {}
