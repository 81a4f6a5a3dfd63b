"""What stands in front of a server: a proxy that cuts where it is told to, and PgBouncer."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import TcpProxy, When

LOST = (OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError)


@pytest.fixture
async def proxy(postgres_server: PostgresServer) -> AsyncIterator[TcpProxy]:
    async with TcpProxy(postgres_server.port) as proxy:
        yield proxy


@pytest.fixture
async def connection(
    proxy: TcpProxy, postgres_server: PostgresServer, postgres_dsn: str
) -> AsyncIterator[asyncpg.Connection]:
    """A connection through the proxy, with the statement below prepared."""
    database = postgres_dsn.rpartition("/")[2]
    connection = await asyncpg.connect(postgres_server.dsn(database, port=proxy.port))
    await connection.execute("CREATE TABLE words (word text)")
    await add(connection, "first")
    yield connection
    connection.terminate()


async def add(connection: asyncpg.Connection, word: str) -> None:
    await connection.execute("INSERT INTO words VALUES ($1)", word)


def words(server: PostgresServer, dsn: str) -> list[str]:
    return server.sql("SELECT word FROM words ORDER BY word", dsn.rpartition("/")[2]).split()


@pytest.mark.parametrize(
    ("when", "done"), [("before", {False}), ("sent", {False, True}), ("after", {True}), ("within", {True})]
)
async def test_the_connection_is_cut_at_the_request(
    when: When,
    done: set[bool],
    proxy: TcpProxy,
    connection: asyncpg.Connection,
    postgres_server: PostgresServer,
    postgres_dsn: str,
) -> None:
    cut = proxy.cut(when, request=2, matching=b"word-")
    await add(connection, "word-1")
    assert not cut.met.is_set()
    with pytest.raises(LOST):
        await add(connection, "word-2")
    assert cut.met.is_set()
    found = words(postgres_server, postgres_dsn)
    assert found[:2] == ["first", "word-1"]
    assert ("word-2" in found) in done


async def test_a_reply_is_held_until_it_is_let_go(
    proxy: TcpProxy, connection: asyncpg.Connection, postgres_server: PostgresServer, postgres_dsn: str
) -> None:
    cut = proxy.cut("held")
    adding = asyncio.ensure_future(add(connection, "held"))
    await cut.met.wait()
    assert not adding.done()
    assert words(postgres_server, postgres_dsn) == ["first", "held"]
    cut.let_go.set()
    await adding


async def test_new_connections_are_refused(proxy: TcpProxy, postgres_server: PostgresServer) -> None:
    proxy.refusing = True
    with pytest.raises(LOST):
        await asyncpg.connect(postgres_server.dsn(port=proxy.port))


# PgBouncer.


async def test_transactions_move_between_connections(pgbouncer_dsn: str) -> None:
    connections = [await asyncpg.connect(pgbouncer_dsn, statement_cache_size=0) for _ in range(8)]
    try:
        places = await asyncio.gather(*(one.fetchval("SELECT pg_backend_pid()") for one in connections))
        assert 1 <= len(set(places)) <= 4, "eight clients share four connections"
        async with connections[0].transaction(), connections[1].transaction():
            here, there = [await one.fetchval("SELECT pg_backend_pid()") for one in connections[:2]]
            assert here != there
            assert here == await connections[0].fetchval("SELECT pg_backend_pid()")
    finally:
        for one in connections:
            await one.close()


async def test_tls_by_dsn(pgbouncer: PgBouncer, postgres_dsn: str) -> None:
    database = postgres_dsn.rpartition("/")[2]
    connection = await asyncpg.connect(pgbouncer.dsn(database, tls=True), statement_cache_size=0)
    try:
        assert await connection.fetchval("SELECT 1") == 1
        assert connection._transport.get_extra_info("cipher") is not None
    finally:
        await connection.close()
    strict = ssl.create_default_context()
    with pytest.raises(ssl.SSLCertVerificationError):
        await asyncpg.connect(pgbouncer.dsn(database).partition("?")[0], ssl=strict)
