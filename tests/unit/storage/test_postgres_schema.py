"""The tables of a storage in PostgreSQL: made once, led forward, and never used when they are too new."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from branchpoint.errors import BranchpointError, StorageError, UnknownVersionError
from branchpoint.storage import postgres
from branchpoint.storage.postgres import PostgresCheckpointStorage
from tests.scenario.kit import Talking, listen, say
from tests.servers.postgres import PostgresServer
from tests.storages import grown, lineage

TABLES = "SELECT string_agg(tablename, ' ' ORDER BY tablename) FROM pg_tables WHERE schemaname = '{0}'"


def database_of(dsn: str) -> str:
    return dsn.rpartition("/")[2]


async def version(dsn: str, schema: str = "branchpoint") -> Any:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(f"SELECT version FROM {schema}.branchpoint_version")
    finally:
        await connection.close()


async def test_setup_makes_the_tables_and_may_be_called_again(
    postgres_server: PostgresServer, postgres_dsn: str
) -> None:
    async with PostgresCheckpointStorage(postgres_dsn) as storage:
        await storage.setup()
        made = postgres_server.sql(TABLES.format("branchpoint"), database_of(postgres_dsn))
        assert made == "branchpoint_version checkpoints parts snapshots"
        checkpoint = await grown(storage)
        await storage.setup()
        assert lineage(await storage.load("order-17")) == lineage(checkpoint)
        assert await version(postgres_dsn) == 1


async def test_the_file_makes_the_same_tables_by_hand(
    postgres_server: PostgresServer, postgres_dsn: str
) -> None:
    """An administrator may hand the file to psql."""
    files = sorted(Path(postgres.__file__).parent.glob("schema_*.sql"))
    columns = (
        "SELECT string_agg(table_name || column_name || data_type || is_nullable, ' ' "
        "ORDER BY table_name, column_name) FROM information_schema.columns WHERE table_schema = '{0}'"
    )
    for file in files:
        postgres_server.sql(file.read_text(encoding="utf-8"), database_of(postgres_dsn))
    async with (
        PostgresCheckpointStorage(postgres_dsn) as storage,
        PostgresCheckpointStorage(postgres_dsn, schema="other") as other,
    ):
        await grown(storage)
        await other.setup()
    by_hand, by_setup = (
        postgres_server.sql(columns.format(schema), database_of(postgres_dsn))
        for schema in ("branchpoint", "other")
    )
    assert by_hand == by_setup


def setting_up(dsn: str) -> None:
    """Make the tables when told to."""
    say("ready")
    while listen():
        asyncio.run(_set_up(dsn))
        say("done")


async def _set_up(dsn: str) -> None:
    async with PostgresCheckpointStorage(dsn) as storage:
        await grown(storage, None, commits=1)


async def test_several_processes_may_make_the_tables_at_once(
    postgres_server: PostgresServer, postgres_dsn: str
) -> None:
    children = [Talking(setting_up, postgres_dsn) for _ in range(4)]
    try:
        for child in children:
            assert child.hear() == "ready"
        for n in range(1, 6):
            for child in children:
                child.tell()
            for child in children:
                assert child.hear() == "done"
            async with PostgresCheckpointStorage(postgres_dsn) as storage:
                assert len(await storage.list_checkpoints()) == 4
            if n < 5:
                postgres_server.sql("DROP SCHEMA branchpoint CASCADE", database_of(postgres_dsn))
    finally:
        for child in children:
            child.__exit__()


async def test_many_first_uses_at_once_make_the_tables_once(postgres_dsn: str) -> None:
    storages = [PostgresCheckpointStorage(postgres_dsn, connections=2) for _ in range(5)]
    await asyncio.gather(
        *(grown(storage, f"{k}-{n}") for k, storage in enumerate(storages) for n in range(10))
    )
    assert len(await storages[0].list_checkpoints()) == 50
    for storage in storages:
        await storage.aclose()


@pytest.mark.parametrize("found", [2, 1000])
async def test_tables_of_a_newer_version_are_left_alone(
    postgres_server: PostgresServer, postgres_dsn: str, found: int
) -> None:
    async with PostgresCheckpointStorage(postgres_dsn) as storage:
        checkpoint = await grown(storage)
    postgres_server.sql(
        f"UPDATE branchpoint.branchpoint_version SET version = {found}", database_of(postgres_dsn)
    )
    async with PostgresCheckpointStorage(postgres_dsn) as storage:
        for call in (
            lambda: storage.setup(),
            lambda: storage.load("order-17"),
            lambda: storage.delete("order-17"),
            lambda: grown(storage, "new", commits=1),
            lambda: storage.list_checkpoints(),
        ):
            with pytest.raises(UnknownVersionError, match=rf"version {found} .*upgrade branchpoint"):
                await call()
    postgres_server.sql("UPDATE branchpoint.branchpoint_version SET version = 1", database_of(postgres_dsn))
    async with PostgresCheckpointStorage(postgres_dsn) as storage:
        assert lineage(await storage.load("order-17")) == lineage(checkpoint)


def step(to: int, what: str) -> str:
    """The script that leads to a version."""
    return f"{what} UPDATE branchpoint.branchpoint_version SET version = {to};"


async def test_older_tables_are_led_forward_by_setup_alone(postgres_dsn: str) -> None:
    async with PostgresCheckpointStorage(postgres_dsn) as storage:
        checkpoint = await grown(storage)

    def newer() -> PostgresCheckpointStorage:
        """As a version of this library that knows two versions more."""
        storage = PostgresCheckpointStorage(postgres_dsn)
        storage._server._steps = [
            *storage._server._steps,
            step(2, "ALTER TABLE branchpoint.checkpoints ADD COLUMN note text;"),
            step(3, "UPDATE branchpoint.checkpoints SET note = 'led forward';"),
        ]
        return storage

    async with newer() as storage, newer() as other:
        with pytest.raises(StorageError, match=r"of version 1 .* needs 3: call `await storage\.setup\(\)`"):
            await storage.load("order-17")
        assert await version(postgres_dsn) == 1
        await asyncio.gather(storage.setup(), other.setup())
        assert await version(postgres_dsn) == 3
        assert lineage(await storage.load("order-17")) == lineage(checkpoint)
        await grown(storage, "new", commits=1)
    async with PostgresCheckpointStorage(postgres_dsn) as older:
        with pytest.raises(UnknownVersionError):
            await older.load("order-17")


async def test_a_step_that_fails_changes_nothing(postgres_dsn: str) -> None:
    async with PostgresCheckpointStorage(postgres_dsn) as storage:
        checkpoint = await grown(storage)
    async with PostgresCheckpointStorage(postgres_dsn) as newer:
        faulty = step(2, "DROP TABLE branchpoint.parts; SELECT 1 / 0;")
        newer._server._steps = [*newer._server._steps, faulty]
        with pytest.raises(StorageError, match=r"setting up failed.*division by zero"):
            await newer.setup()
    async with PostgresCheckpointStorage(postgres_dsn) as storage:
        assert lineage(await storage.load("order-17")) == lineage(checkpoint)


@pytest.mark.parametrize(
    "other", ["CREATE TABLE parts (x int)", "CREATE TABLE branchpoint_version (number int)"]
)
async def test_tables_of_somebody_else_are_left_alone(
    postgres_server: PostgresServer, postgres_dsn: str, other: str
) -> None:
    """The schema `public` may hold tables of the same names."""
    database = database_of(postgres_dsn)
    postgres_server.sql(other, database)
    before = postgres_server.sql(TABLES.format("public"), database)
    async with PostgresCheckpointStorage(postgres_dsn, schema="public") as storage:
        for call in (storage.setup, storage.list_checkpoints):
            with pytest.raises(BranchpointError, match=r"not this storage's.*schema="):
                await call()
    assert postgres_server.sql(TABLES.format("public"), database) == before
