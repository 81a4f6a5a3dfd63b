"""What a caller is told when PostgreSQL cannot do it: what happened, to what, and what to do."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from branchpoint.errors import (
    BranchpointError,
    CheckpointConflictError,
    CheckpointNotFoundError,
    CorruptCheckpointError,
    InvalidCallError,
    StorageError,
)
from branchpoint.storage.postgres import PostgresCheckpointStorage
from tests.servers.pgbouncer import PgBouncer, write_certificate
from tests.servers.postgres import PASSWORD_USER, PostgresPrograms, PostgresServer
from tests.servers.process import free_port
from tests.storages import create, grown, lineage, postgres_at, shared, state


async def every_call(storage: PostgresCheckpointStorage, kind: type[BranchpointError]) -> list[str]:
    """What each call on a storage that cannot work says."""
    said = []
    for call in (
        lambda: create(storage).commit_snapshot(state(0)),
        lambda: storage.load("order-17"),
        lambda: storage.load_head("order-17"),
        lambda: storage.load_lineage("order-17"),
        lambda: storage.load_parts("order-17", ["a"]),
        lambda: storage.list_checkpoints(),
        lambda: storage.delete("order-17"),
        lambda: storage.take_lease("order-17"),
        lambda: storage.setup(),
    ):
        with pytest.raises(BranchpointError) as caught:
            await call()  # type: ignore[no-untyped-call]
        assert type(caught.value) is kind, caught.value
        said.append(str(caught.value))
    return said


@contextmanager
def role(server: PostgresServer, name: str, password: str | None = None) -> Iterator[str]:
    """A role that may log in and do nothing else."""
    server.sql(f"CREATE ROLE {name} LOGIN" + (f" PASSWORD '{password}'" if password else ""))
    try:
        yield name
    finally:
        server.sql(f"DROP ROLE {name}")


def database_of(dsn: str) -> str:
    return dsn.rpartition("/")[2]


# Arguments.


@pytest.mark.parametrize(
    "wrong",
    [
        "", "x", "mysql://a:secret@b/c", "host=a password=secret", None, 5, b"postgresql://a", object(),
    ],
    ids=lambda value: ascii(value)[:20],
)  # fmt: skip
def test_a_source_is_a_dsn_or_a_pool(wrong: Any) -> None:
    with pytest.raises(InvalidCallError, match="postgresql://user:password@host") as caught:
        PostgresCheckpointStorage(wrong)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("serialization_format", "xml"), ("lazy_over", -1), ("lease_seconds", 0), ("connections", 0),
        ("connections", True), ("schema", ""), ("schema", "x" * 64), ("schema", "a\0b"), ("schema", "pg_x"),
        ("schema", 5), ("schema", "é" * 32),
    ],
)  # fmt: skip
def test_arguments_are_checked(name: str, wrong: Any) -> None:
    with pytest.raises(InvalidCallError, match=name):
        PostgresCheckpointStorage("postgresql://localhost/x", **{name: wrong})


@pytest.mark.parametrize(
    "faulty", ["postgresql://u:se/cret@127.0.0.1/x", "postgresql://u:se#cret@h/x", "postgresql://u@h:1x/x"]
)
async def test_a_faulty_dsn_is_refused_without_quoting_it(faulty: str) -> None:
    async with PostgresCheckpointStorage(faulty) as storage:
        with pytest.raises(InvalidCallError, match="%XX") as caught:
            await storage.load("order-17")
        assert caught.value.__cause__ is None
        for text in (str(caught.value), repr(storage)):
            assert "cret" not in text


def test_without_the_driver_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "from branchpoint.storage.postgres import PostgresCheckpointStorage\n"
        "try: PostgresCheckpointStorage('postgresql://localhost/x')\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'branchpoint[postgres]'" in done.stdout


def test_a_storage_shows_where_it_leads_and_no_secret() -> None:
    storage = PostgresCheckpointStorage("postgresql://me:secret@db.example:5433/runs?sslmode=require")
    assert "db.example:5433/runs" in repr(storage)
    assert "secret" not in repr(storage) and "me" not in repr(storage).split("PostgreSQL at")[1]


# The server.


async def test_a_server_that_is_not_there(unused_port: int) -> None:
    async with PostgresCheckpointStorage(f"postgresql://me:secret@127.0.0.1:{unused_port}/runs") as storage:
        for said in await every_call(storage, StorageError):
            assert f"127.0.0.1:{unused_port}/runs" in said and "Start the server" in said
            assert "secret" not in said


@pytest.fixture
def unused_port() -> int:
    return free_port()


async def test_a_host_that_is_not_there() -> None:
    async with PostgresCheckpointStorage("postgresql://no-such-host.invalid/runs") as storage:
        with pytest.raises(StorageError, match="correct host and port"):
            await storage.load("order-17")


async def test_a_wrong_password(postgres_server: PostgresServer) -> None:
    with role(postgres_server, PASSWORD_USER, "right"):
        for password in ("wrong-one", None):
            dsn = postgres_server.dsn(user=PASSWORD_USER, password=password)
            async with PostgresCheckpointStorage(dsn) as storage:
                with pytest.raises(StorageError) as caught:
                    await storage.load("order-17")
                assert "wrong-one" not in str(caught.value)


async def test_a_wrong_database(postgres_server: PostgresServer) -> None:
    async with PostgresCheckpointStorage(postgres_server.dsn("no_such_database")) as storage:
        for said in await every_call(storage, StorageError):
            assert "Create that database" in said


async def test_a_database_that_cannot_hold_every_text(postgres_server: PostgresServer) -> None:
    postgres_server.sql("CREATE DATABASE narrow ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        async with PostgresCheckpointStorage(postgres_server.dsn("narrow")) as storage:
            for said in await every_call(storage, StorageError):
                assert "LATIN1" in said and "ENCODING 'UTF8'" in said
    finally:
        postgres_server.drop_database("narrow")


async def test_a_standby_or_a_default_that_lets_nobody_write(
    postgres_server: PostgresServer, postgres_dsn: str
) -> None:
    database = database_of(postgres_dsn)
    async with PostgresCheckpointStorage(postgres_dsn) as storage:
        checkpoint = await grown(storage, commits=2)
    postgres_server.sql(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    async with PostgresCheckpointStorage(postgres_dsn) as storage:
        loaded = await storage.load("order-17")  # what is there is read all the same
        assert lineage(loaded) == lineage(checkpoint)
        for call in (
            lambda: loaded.commit_snapshot(state(2)),
            lambda: create(storage, "new").commit_snapshot(state(0)),
            lambda: loaded.prune(),
            lambda: storage.delete("order-17"),
            lambda: storage.take_lease("order-17"),
        ):
            with pytest.raises(StorageError, match="default_transaction_read_only"):
                await call()
        assert loaded.head_snapshot_id == checkpoint.head_snapshot_id
        postgres_server.sql(f"ALTER DATABASE {database} RESET default_transaction_read_only")
    async with PostgresCheckpointStorage(postgres_dsn) as storage:
        await (await storage.load("order-17")).commit_snapshot(state(2))


async def test_no_more_connections(postgres_programs: PostgresPrograms) -> None:
    server = PostgresServer(
        postgres_programs, settings={"max_connections": "4", "superuser_reserved_connections": "0"}
    )
    server.start()
    others = []
    try:
        async with PostgresCheckpointStorage(server.dsn()) as storage:
            checkpoint = await grown(storage, commits=1)
        with pytest.raises(asyncpg.TooManyConnectionsError):
            while True:
                others.append(await asyncpg.connect(server.dsn()))
        async with PostgresCheckpointStorage(server.dsn()) as storage:
            with pytest.raises(StorageError, match="connections="):
                await storage.load("order-17")
            await others.pop().close()
            while True:  # until the server has noticed
                try:
                    loaded = await storage.load("order-17")
                    break
                except StorageError:
                    await asyncio.sleep(0)
            assert lineage(loaded) == lineage(checkpoint)
    finally:
        for other in others:
            await other.close()
        server.remove()


async def test_a_statement_that_takes_too_long(postgres_server: PostgresServer, postgres_dsn: str) -> None:
    database = database_of(postgres_dsn)
    async with PostgresCheckpointStorage(postgres_dsn) as storage:
        await grown(storage, commits=1)
    postgres_server.sql(f"ALTER DATABASE {database} SET statement_timeout = 50")
    holder = await asyncpg.connect(postgres_dsn)
    async with PostgresCheckpointStorage(postgres_dsn) as storage:
        checkpoint = await storage.load("order-17")
        async with holder.transaction():
            await holder.execute("SELECT FROM branchpoint.checkpoints FOR UPDATE")
            with pytest.raises(StorageError, match="statement_timeout"):
                await checkpoint.commit_snapshot(state(1))
        await checkpoint.commit_snapshot(state(1, n=1))
        assert [shared(one) for one in checkpoint.snapshots][1:] == [{"n": 1}]
    await holder.close()


# Rights.


async def test_a_role_that_may_not_create(postgres_server: PostgresServer, postgres_dsn: str) -> None:
    database = database_of(postgres_dsn)
    with role(postgres_server, "modest") as name:
        modest = postgres_server.dsn(database, user=name)
        async with PostgresCheckpointStorage(modest) as storage:
            for said in await every_call(storage, StorageError):
                assert "await storage.setup()" in said and "GRANT USAGE ON SCHEMA branchpoint" in said
        async with PostgresCheckpointStorage(postgres_dsn) as owner:
            await owner.setup()
        async with PostgresCheckpointStorage(modest) as storage:
            with pytest.raises(StorageError, match="GRANT USAGE ON SCHEMA branchpoint"):
                await storage.load("order-17")
            postgres_server.sql(f"GRANT USAGE ON SCHEMA branchpoint TO {name}", database)
            postgres_server.sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA branchpoint TO {name}", database)
            with pytest.raises(CheckpointNotFoundError):
                await storage.load("order-17")
            with pytest.raises(StorageError, match="GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES"):
                await create(storage).commit_snapshot(state(0))
            postgres_server.sql(
                f"GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA branchpoint TO {name}", database
            )
            # That is all it needs.
            checkpoint = await grown(storage, commits=3)
            await checkpoint.prune()
            lease = await storage.take_lease("order-17")
            await storage.renew_lease("order-17", lease)
            await storage.end_lease("order-17", lease)
            await storage.setup()  # there is nothing to do
            assert len(await storage.list_checkpoints()) == 1
            await storage.delete("order-17")
        postgres_server.sql(f"DROP OWNED BY {name}", database)


# What is stored.


async def test_tables_that_somebody_dropped(postgres_server: PostgresServer, postgres_dsn: str) -> None:
    database = database_of(postgres_dsn)
    async with PostgresCheckpointStorage(postgres_dsn) as storage:
        checkpoint = await grown(storage, commits=1)
        postgres_server.sql("DROP TABLE branchpoint.parts", database)
        with pytest.raises(StorageError, match=r"await storage\.setup\(\)"):
            await storage.load("order-17")
        with pytest.raises(StorageError):
            await checkpoint.commit_snapshot(state(1))
        assert len(checkpoint.snapshots) == 1
        postgres_server.sql("DROP SCHEMA branchpoint CASCADE", database)
        with pytest.raises(StorageError):
            await storage.load("order-17")
        # By then it has seen that there is nothing, and begins anew.
        with pytest.raises(CheckpointConflictError, match="deleted"):
            await checkpoint.commit_snapshot(state(1))
        await grown(storage, commits=1)


DAMAGE = {
    "a header that is changed": "UPDATE {0}.checkpoints SET header = header || ' '",
    "a header that is gone": "UPDATE {0}.checkpoints SET header = NULL",
    "the header of another one": "UPDATE {0}.checkpoints c SET header = o.header FROM {0}.checkpoints o "
    "WHERE o.id <> c.id",
    "another generation": "UPDATE {0}.checkpoints SET generation = generation + 1",
    "an older head": "UPDATE {0}.checkpoints SET head = (SELECT snapshot_id FROM {0}.snapshots s WHERE n = 2 "
    "AND s.checkpoint = id)",
    "no format": "UPDATE {0}.checkpoints SET format = NULL",
    "a lost head": "DELETE FROM {0}.snapshots WHERE n = 3",
    "a lost snapshot": "DELETE FROM {0}.snapshots WHERE n = 2",
    "no snapshots": "DELETE FROM {0}.snapshots",
    "a snapshot of another name": "UPDATE {0}.snapshots SET snapshot_id = snapshot_id || 'x' WHERE n = 2",
    "a manifest that is cut": "UPDATE {0}.snapshots SET manifest = substr(manifest, 1, 20) WHERE n = 1",
    "another order": "UPDATE {0}.snapshots SET n = n + 10 WHERE n = 1",
    "a lost part": "DELETE FROM {0}.parts p WHERE name = (SELECT min(name) FROM {0}.parts q "
    "WHERE q.checkpoint = p.checkpoint)",
    "a changed part": "UPDATE {0}.parts SET data = set_byte(data, 5, 0)",
    "parts that are exchanged": "UPDATE {0}.parts SET name = translate(name, 'abcdefAB', 'bcdefaBA')",
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_c54_damage_is_reported_and_what_is_there_stays(
    postgres_server: PostgresServer, postgres_place: str, damage: str
) -> None:
    dsn, schema = postgres_place.split()
    async with postgres_at(postgres_place) as storage:
        for name in ("order-17", "order-18"):
            checkpoint = create(storage, name)
            for n in range(3):
                await checkpoint.commit_snapshot(state(n, n=n, text=f"{n} {name}" * 200))
        tables = f"{schema}.checkpoints c, {schema}.snapshots s, {schema}.parts p"
        rows = f"SELECT c.*, s.*, p.* FROM {tables} ORDER BY 1, s.n, p.name"
        postgres_server.sql(DAMAGE[damage].format(schema), database_of(dsn))
        before = postgres_server.sql(rows, database_of(dsn))
        for name in ("order-17", "order-18"):
            with pytest.raises(CorruptCheckpointError, match=name):
                await storage.load(name)
        assert postgres_server.sql(rows, database_of(dsn)) == before
        await storage.delete("order-17")
        await grown(storage, "order-17")
        assert len((await storage.load("order-17")).snapshots) == 3


async def test_c54_the_end_of_a_branch_that_is_gone_is_missed(
    postgres_server: PostgresServer, postgres_place: str
) -> None:
    """Nothing refers to it, so only the count of snapshots tells."""
    dsn, schema = postgres_place.split()
    async with postgres_at(postgres_place) as storage:
        checkpoint = await grown(storage, commits=3)
        checkpoint.restart_from(checkpoint.snapshots[0].snapshot_id)
        await checkpoint.commit_snapshot(state(1, by="branch"))
        await checkpoint.prune([one.snapshot_id for one in checkpoint.snapshots if shared(one).get("n") != 1])
        await checkpoint.commit_snapshot(state(2, by="branch"))
        assert lineage(await storage.load("order-17")) == lineage(checkpoint)
        postgres_server.sql(f"DELETE FROM {schema}.snapshots WHERE n = 3", database_of(dsn))
        with pytest.raises(CorruptCheckpointError, match="of its 4 snapshots there are 3"):
            await storage.load("order-17")


async def test_c54_a_commit_on_a_row_that_counts_wrong_ends(
    postgres_server: PostgresServer, postgres_place: str
) -> None:
    dsn, schema = postgres_place.split()
    async with postgres_at(postgres_place) as storage:
        checkpoint = await grown(storage, commits=3)
        postgres_server.sql(f"UPDATE {schema}.checkpoints SET newest = 1", database_of(dsn))
        with pytest.raises(CorruptCheckpointError, match="how many"):
            await checkpoint.commit_snapshot(state(3))
        assert len(checkpoint.snapshots) == 3


# A pooler.


async def test_behind_pgbouncer_everything_works(pgbouncer_dsn: str) -> None:
    async with (
        PostgresCheckpointStorage(pgbouncer_dsn) as one,
        PostgresCheckpointStorage(pgbouncer_dsn) as two,
    ):
        await asyncio.gather(*(grown(one, f"run-{n}", commits=3) for n in range(30)))
        for n in range(15):
            rivals = [await storage.load("run-0") for storage in (one, two, one, two)]
            outcomes = await asyncio.gather(
                *(rival.commit_snapshot(state(n, n=n)) for rival in rivals), return_exceptions=True
            )
            kinds = sorted(type(outcome).__name__ for outcome in outcomes)
            assert kinds == ["CheckpointConflictError"] * 3 + ["CheckpointSnapshot"]
        checkpoint = await two.load("run-0")
        assert len(await checkpoint.prune()) == 17
        assert lineage(await one.load("run-0")) == lineage(checkpoint)
        lease = await one.take_lease("run-1")
        await two.renew_lease("run-1", lease)
        assert len(await two.list_checkpoints(limit=10)) == 10
        for n in range(30):
            await two.delete(f"run-{n}")
        assert await one.list_checkpoints() == []


async def test_with_tls_by_the_dsn(pgbouncer: PgBouncer, postgres_dsn: str, tmp_path: Path) -> None:
    dsn = pgbouncer.dsn(database_of(postgres_dsn), tls=True)
    async with PostgresCheckpointStorage(dsn) as storage:
        checkpoint = await grown(storage, commits=2)
        assert lineage(await storage.load("order-17")) == lineage(checkpoint)
    # Whoever shows another certificate is not spoken to.
    write_certificate(tmp_path / "other.pem", tmp_path / "key.pem")
    before = dsn.partition("&sslrootcert")[0]
    for certificate, said in (("other.pem", "certificate"), ("none.pem", "files that the DSN names")):
        async with PostgresCheckpointStorage(f"{before}&sslrootcert={tmp_path / certificate}") as storage:
            with pytest.raises(StorageError, match=said):
                await storage.load("order-17")


async def test_a_given_pool_that_is_wrong_for_a_pooler_or_closed_says_so(
    pgbouncer_dsn: str, postgres_dsn: str
) -> None:
    async with asyncpg.create_pool(pgbouncer_dsn, statement_cache_size=0) as pool:
        storage = PostgresCheckpointStorage(pool)
        checkpoint = await grown(storage, commits=3)
        assert lineage(await storage.load("order-17")) == lineage(checkpoint)
    with pytest.raises(StorageError, match="a pool that was given is open"):
        await storage.load("order-17")
