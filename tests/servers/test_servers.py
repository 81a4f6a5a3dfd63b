"""Each server of the tests is a real one: it starts, does its work, and leaves no process behind."""

from __future__ import annotations

import os
from pathlib import Path

import asyncpg
import pytest
import redis.asyncio

from tests.servers.fixtures import need
from tests.servers.postgres import PASSWORD_USER, PostgresPrograms, PostgresServer
from tests.servers.process import ServerError, ServerProcess, children_of
from tests.servers.redis import RedisServer, redis_missing


def alive(pids: list[int]) -> list[int]:
    """Which of these processes still run; one that is dead but not yet waited for by its parent does not."""
    return [
        pid
        for pid in pids
        if Path(f"/proc/{pid}").exists()
        and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    ]


# Any process.


def test_a_server_that_ends_at_once_says_why(tmp_path: Path) -> None:
    server = ServerProcess(["sh", "-c", "echo no such folder; exit 3"], log=tmp_path / "log", ready="ready")
    with pytest.raises(ServerError, match="no such folder"):
        server.start()
    assert not server.running


def test_a_kill_takes_the_children_too(tmp_path: Path) -> None:
    server = ServerProcess(
        ["sh", "-c", "sleep 600 & sleep 601 & echo ready; wait"], log=tmp_path / "log", ready="ready"
    )
    server.start()
    everyone = [server.pid, *children_of(server.pid)]
    assert len(everyone) == 3 and alive(everyone) == everyone
    server.kill()
    assert not alive(everyone)


# PostgreSQL.


async def test_postgres_works(postgres_server: PostgresServer, postgres_dsn: str) -> None:
    for dsn in (postgres_dsn, postgres_server.socket_dsn(postgres_dsn.rpartition("/")[2])):
        connection = await asyncpg.connect(dsn)
        try:
            assert await connection.fetchval("SHOW fsync") == "on"
            assert await connection.fetchval("SHOW synchronous_commit") == "on"
            await connection.execute("CREATE TABLE IF NOT EXISTS words (word text)")
            await connection.execute("INSERT INTO words VALUES ('hello')")
        finally:
            await connection.close()
    assert postgres_server.sql("SELECT count(*) FROM words", postgres_dsn.rpartition("/")[2]) == "2"


async def test_postgres_asks_one_role_for_its_password(postgres_server: PostgresServer) -> None:
    postgres_server.sql(f"CREATE ROLE {PASSWORD_USER} LOGIN PASSWORD 'right'")
    try:
        connection = await asyncpg.connect(postgres_server.dsn(user=PASSWORD_USER, password="right"))
        await connection.close()
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(postgres_server.dsn(user=PASSWORD_USER, password="wrong"))
    finally:
        postgres_server.sql(f"DROP ROLE {PASSWORD_USER}")


async def test_postgres_survives_a_kill(killable_postgres: PostgresServer) -> None:
    connection = await asyncpg.connect(killable_postgres.dsn())
    await connection.execute("CREATE TABLE words (word text)")
    await connection.execute("INSERT INTO words VALUES ('hello')")
    everyone = [killable_postgres.process.pid, *children_of(killable_postgres.process.pid)]
    killable_postgres.kill()
    assert not alive(everyone)
    with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
        await connection.execute("INSERT INTO words VALUES ('lost')")
    connection.terminate()
    killable_postgres.start()
    assert killable_postgres.sql("SELECT word FROM words") == "hello"


def test_a_stopped_postgres_leaves_nothing(postgres_programs: PostgresPrograms) -> None:
    server = PostgresServer(postgres_programs)
    try:
        server.start()
        assert server.sql("SELECT 1") == "1"
        everyone = [server.process.pid, *children_of(server.process.pid)]
        assert len(everyone) > 3
        assert Path(f"/proc/{everyone[0]}").stat().st_uid == (postgres_programs.user or os.geteuid())
    finally:
        server.remove()
    assert not alive(everyone)
    assert not server.folder.exists()


# Redis.


async def test_redis_works(redis_url: str) -> None:
    async with redis.asyncio.Redis.from_url(redis_url) as client:
        assert await client.dbsize() == 0
        await client.set("word", "hello")
        assert await client.eval("return redis.call('GET', KEYS[1])", 1, "word") == b"hello"


def test_redis_survives_a_kill() -> None:
    need(redis_missing())
    server = RedisServer()
    try:
        server.start()
        with redis.Redis.from_url(server.url()) as client:
            client.set("word", "hello")
            server.kill()
            server.start()
            assert client.get("word") == b"hello"
        everyone = [server.process.pid]
    finally:
        server.remove()
    assert not alive(everyone)
