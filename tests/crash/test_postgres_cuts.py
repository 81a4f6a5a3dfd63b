"""Connections to PostgreSQL that are cut around a request: what happened is found out, and nothing happens twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from branchpoint.checkpoint import Checkpoint
from branchpoint.errors import CheckpointConflictError, CheckpointNotFoundError, StorageError
from branchpoint.storage.postgres import PostgresCheckpointStorage
from branchpoint.testing import check_lineage_law
from tests.profiles import SOAKING
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import TcpProxy, When
from tests.storages import create, grown, lineage, postgres_at, shared, state

CUTS: tuple[When, ...] = ("before", "sent", "after", "within")
ROUNDS = 50 if SOAKING else 10


def through(place: str, proxy: TcpProxy) -> PostgresCheckpointStorage:
    """The storage at a place, reached through a proxy."""
    dsn, schema = place.split()
    before, _, rest = dsn.rpartition(":")
    storage: PostgresCheckpointStorage = postgres_at(
        f"{before}:{proxy.port}/{rest.partition('/')[2]} {schema}"
    )
    return storage


@asynccontextmanager
async def cuttable(
    server: PostgresServer, place: str
) -> AsyncIterator[tuple[TcpProxy, PostgresCheckpointStorage, PostgresCheckpointStorage]]:
    """A proxy that cuts, a storage that works through it, and one beside it."""
    async with (
        TcpProxy(server.port) as proxy,
        through(place, proxy) as storage,
        postgres_at(place) as direct,
    ):
        yield proxy, storage, direct


async def same(mine: Checkpoint, storage: PostgresCheckpointStorage) -> None:
    """What memory holds is what is stored, and it obeys the law."""
    loaded = await storage.load(mine.checkpoint_id)
    assert lineage(loaded) == lineage(mine)
    check_lineage_law(mine, loaded)


@pytest.mark.parametrize("when", CUTS)
async def test_c20_a_commit_whose_connection_is_cut_is_settled(
    postgres_server: PostgresServer, postgres_place: str, when: When
) -> None:
    async with cuttable(postgres_server, postgres_place) as (proxy, storage, direct):
        checkpoint = await grown(storage, commits=2)
        for n in range(ROUNDS):
            cut = proxy.cut(when)
            await checkpoint.commit_snapshot(state(n, n=n, text="x" * (n * 997 % 9000)))
            assert cut.met.is_set()
            assert len(checkpoint.snapshots) == n + 3
            await same(checkpoint, direct)


@pytest.mark.parametrize("when", CUTS)
async def test_c20_a_first_commit_whose_connection_is_cut_is_settled(
    postgres_server: PostgresServer, postgres_place: str, when: When
) -> None:
    async with cuttable(postgres_server, postgres_place) as (proxy, storage, direct):
        await grown(storage, "warm", commits=2)
        for n in range(ROUNDS):
            cut = proxy.cut(when)
            checkpoint = await grown(storage, f"run-{n}", commits=1)
            assert cut.met.is_set()
            await same(checkpoint, direct)


@pytest.mark.parametrize("when", CUTS)
async def test_c20_a_commit_that_another_one_follows_is_settled(
    postgres_server: PostgresServer, postgres_place: str, when: When
) -> None:
    """Between the cut and the second try another writer goes on from whatever is there."""
    async with cuttable(postgres_server, postgres_place) as (proxy, storage, direct):
        checkpoint = await grown(storage, commits=2)
        landed: set[str] = set()
        for n in range(ROUNDS):
            proxy.cut(when)
            committing = asyncio.ensure_future(checkpoint.commit_snapshot(state(n, by="me")))
            other = await direct.load("order-17")
            with suppress(CheckpointConflictError):  # mine was first
                await other.commit_snapshot(state(n, by="other"))
            with suppress(CheckpointConflictError):
                landed.add((await committing).snapshot_id)
            stored = (await direct.load("order-17")).snapshots
            assert {one.snapshot_id for one in stored if shared(one).get("by") == "me"} == landed
            await checkpoint.refresh()
            await same(checkpoint, direct)


@pytest.mark.parametrize("when", CUTS)
async def test_a_group_whose_connection_is_cut_is_settled(
    postgres_server: PostgresServer, postgres_place: str, when: When
) -> None:
    async with cuttable(postgres_server, postgres_place) as (proxy, storage, direct):
        many = [await grown(storage, f"run-{n}", commits=1) for n in range(30)]
        await asyncio.gather(*(one.commit_snapshot(state(1)) for one in many))
        for n in range(6):
            cut = proxy.cut(when, request=n % 4 + 1)  # the first ones go alone, and then a group
            await asyncio.gather(*(one.commit_snapshot(state(n, n=n)) for one in many))
            assert cut.met.is_set()
        for one in many:
            assert len(one.snapshots) == 8
            await same(one, direct)


@pytest.mark.parametrize("when", CUTS)
async def test_c20_who_cannot_look_says_so_and_finds_out_later(
    postgres_server: PostgresServer, postgres_place: str, when: When
) -> None:
    """The server stays out of reach, so that nobody can say what happened; `refresh` can, afterwards."""
    async with cuttable(postgres_server, postgres_place) as (proxy, storage, direct):
        checkpoint = await grown(storage, commits=2)
        landed = 0
        for n in range(ROUNDS):
            before = lineage(checkpoint)
            cut = proxy.cut(when)
            committing = asyncio.ensure_future(checkpoint.commit_snapshot(state(n, n=n)))
            await cut.met.wait()
            proxy.refusing = True
            try:
                await committing
            except StorageError as error:
                assert error.retryable
                assert lineage(checkpoint) == before
            proxy.refusing = False
            await checkpoint.refresh()
            landed += len(checkpoint.snapshots) - len(before)
            await same(checkpoint, direct)
            await checkpoint.commit_snapshot(state(n, n=n))
        assert landed == 0 if when == "before" else landed > 0


@pytest.mark.parametrize("when", CUTS)
async def test_every_other_call_goes_on_over_a_cut(
    postgres_server: PostgresServer, postgres_place: str, when: When
) -> None:
    chance = random.Random(when)
    async with cuttable(postgres_server, postgres_place) as (proxy, storage, direct):
        for n in range(ROUNDS // 5):
            await grown(storage, commits=5)
            lease = await storage.take_lease("order-17")
            for request in range(1, 5):
                loaded = await storage.load("order-17")
                calls = [
                    lambda: storage.load_head("order-17"),
                    lambda: storage.load_lineage("order-17"),
                    lambda: storage.load_parts("order-17", ["a", "b"]),
                    lambda: storage.list_checkpoints(),
                    lambda: storage.load("order-17"),
                    lambda lease=lease: storage.renew_lease("order-17", lease),
                    lambda another=f"{n} {request}": storage.take_lease(another),
                ]
                proxy.cut(when)
                await chance.choice(calls)()  # type: ignore[no-untyped-call]
                # A prune and a delete are of several requests.
                proxy.cut(when, request=request)
                await loaded.prune([loaded.snapshots[len(loaded.snapshots) // 2].snapshot_id])
                await loaded.commit_snapshot(state(n, n=request))
                await same(loaded, direct)
            for request in range(1, 5):
                proxy.cut(when, request=request)
                await storage.delete("order-17")
                with pytest.raises(CheckpointNotFoundError):
                    await direct.load("order-17")
                assert await direct.list_checkpoints() == []
                if request < 4:
                    await grown(storage)


async def test_a_server_that_was_started_again_costs_no_call(killable_postgres: PostgresServer) -> None:
    async with PostgresCheckpointStorage(killable_postgres.dsn(), connections=5) as storage:
        many = [await grown(storage, f"run-{n}", commits=1) for n in range(10)]
        await asyncio.gather(*(storage.load(f"run-{n}") for n in range(10)))
        for n in range(4):
            killable_postgres.restart()
            if n % 2:
                await storage.load("run-3")
            await asyncio.gather(*(one.commit_snapshot(state(n, n=n)) for one in many))
        for one in many:
            await same(one, storage)


async def test_a_session_that_is_ended_costs_no_call(
    postgres_server: PostgresServer, postgres_dsn: str
) -> None:
    """An administrator, or a time limit, ends idle sessions."""
    database = postgres_dsn.rpartition("/")[2]
    ending = f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{database}'"
    async with PostgresCheckpointStorage(postgres_dsn) as storage:
        checkpoint = create(storage)
        for n in range(5):
            await checkpoint.commit_snapshot(state(n, n=n))
            assert postgres_server.sql(ending) != "0"
            assert len((await storage.load("order-17")).snapshots) == n + 1
            assert postgres_server.sql(ending) != "0"
