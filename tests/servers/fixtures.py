"""Fixtures that start a server when a test asks for it, at most once in a session.

A server that cannot be had here skips the tests that ask for it, with the reason.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from tests.servers.cosmos import CosmosServer, cosmos_missing
from tests.servers.pgbouncer import PgBouncer, pgbouncer_missing
from tests.servers.postgres import PostgresPrograms, PostgresServer, postgres_missing
from tests.servers.redis import RedisServer, redis_missing

_numbers = itertools.count(1)


def need(missing: str | None, *, in_ci: bool = True) -> None:
    """Skip the test if something is missing; in CI it fails, where that is to be there."""
    if missing is not None and in_ci and os.environ.get("CI"):
        pytest.fail(f"in CI this must be there: {missing}")
    if missing is not None:
        pytest.skip(missing)


@pytest.fixture(scope="session")
def postgres_programs() -> Iterator[PostgresPrograms]:
    need(postgres_missing())
    programs = PostgresPrograms()
    yield programs
    programs.close()


@pytest.fixture(scope="session")
def postgres_server(postgres_programs: PostgresPrograms) -> Iterator[PostgresServer]:
    """The PostgreSQL of the session; nobody stops, kills or changes it."""
    server = PostgresServer(postgres_programs)
    server.start()
    yield server
    server.remove()


@pytest.fixture
def postgres_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """The DSN of an empty database for one test."""
    with postgres_server.database() as dsn:
        yield dsn


@pytest.fixture(scope="module")
def postgres_module_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """The DSN of a database for the tests of one file."""
    with postgres_server.database() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def postgres_database(postgres_server: PostgresServer) -> Iterator[str]:
    """The DSN of one database for all tests that keep to a schema of their own."""
    with postgres_server.database() as dsn:
        yield dsn


@pytest.fixture
def postgres_place(postgres_server: PostgresServer, postgres_database: str) -> Iterator[str]:
    """DSN and schema, parted by a blank, for one test; a schema is made and dropped sooner than a database."""
    schema = f"place_{next(_numbers)}"
    yield f"{postgres_database} {schema}"
    postgres_server.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE", postgres_database.rpartition("/")[2])


@pytest.fixture
def killable_postgres(postgres_programs: PostgresPrograms) -> Iterator[PostgresServer]:
    """A PostgreSQL of this test alone, running, to be killed and started again."""
    server = PostgresServer(postgres_programs)
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def pgbouncer(postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    """PgBouncer in front of the session's PostgreSQL."""
    need(pgbouncer_missing())
    bouncer = PgBouncer(postgres_server)
    bouncer.start()
    yield bouncer
    bouncer.remove()


@pytest.fixture
def pgbouncer_dsn(pgbouncer: PgBouncer, postgres_dsn: str) -> str:
    """The DSN of the database of `postgres_dsn`, through PgBouncer."""
    return pgbouncer.dsn(postgres_dsn.rpartition("/")[2])


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """The Redis of the session."""
    need(redis_missing())
    server = RedisServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The address of an empty Redis database."""
    import redis

    with redis.Redis.from_url(redis_server.url()) as client:
        client.flushall()
    return redis_server.url()


@pytest.fixture(scope="session")
def _cosmos() -> Iterator[CosmosServer]:
    need(cosmos_missing())
    server = CosmosServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def cosmos_server(_cosmos: CosmosServer) -> Iterator[CosmosServer]:
    """The stand-in for Cosmos DB, with no fault set and no request seen."""
    _cosmos.reset()
    yield _cosmos
    _cosmos.reset()


@pytest.fixture(scope="session")
def _cosmos_places(_cosmos: CosmosServer) -> str:
    """One database for all tests that keep to a container of their own."""
    return _cosmos.create_database()


@pytest.fixture
def cosmos_place(cosmos_server: CosmosServer, _cosmos_places: str) -> str:
    """Endpoint, database and container, parted by blanks, for one test."""
    container = f"place-{next(_numbers)}"
    cosmos_server.create_container(_cosmos_places, container)
    cosmos_server.reset()
    return f"{cosmos_server.endpoint} {_cosmos_places} {container}"


@pytest.fixture
def cosmos_database(cosmos_server: CosmosServer) -> str:
    """The name of an empty database in the stand-in for Cosmos DB."""
    name = cosmos_server.create_database()
    cosmos_server.reset()
    return name
