"""Checkpoints in PostgreSQL: what a commit costs, what the server decides, and how connections come and go."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from branchpoint.checkpoint import Checkpoint, CheckpointSnapshot, CheckpointStorage
from branchpoint.errors import (
    CheckpointConflictError,
    CheckpointNotFoundError,
    InvalidCallError,
    StorageError,
)
from branchpoint.storage.postgres import PostgresCheckpointStorage
from branchpoint.testing import check_lineage_law
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import TcpProxy
from tests.storages import create, grown, lineage, postgres_at, shared, state


def through(place: str, proxy: TcpProxy) -> str:
    """The same place, reached through a proxy."""
    dsn, schema = place.split()
    before, _, rest = dsn.rpartition(":")
    return f"{before}:{proxy.port}/{rest.partition('/')[2]} {schema}"


@asynccontextmanager
async def connected(place: str) -> AsyncIterator[Any]:
    """A connection of somebody else."""
    connection = await asyncpg.connect(place.split(maxsplit=1)[0])
    try:
        yield connection
    finally:
        await connection.close()


async def waiters(connection: Any) -> None:
    """Return when somebody waits for a lock that this connection holds."""
    while not await connection.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"
    ):
        await asyncio.sleep(0)


def sockets() -> int:
    """How many connections this process has open to a server."""
    gc.collect()
    names = [Path(f"/proc/self/fd/{fd}") for fd in sorted(map(int, _listed()))]
    return sum(str(_target(name)).startswith("socket:") for name in names)


def _listed() -> list[str]:
    return [path.name for path in Path("/proc/self/fd").iterdir()]


def _target(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:  # the one of the listing itself
        return ""


# What a commit costs.


async def test_a_new_connection_asks_for_nothing_that_is_not_needed(
    postgres_server: PostgresServer, postgres_place: str
) -> None:
    """The driver would ask about types, and set something for the session, if a statement had any but plain ones."""
    async with postgres_at(postgres_place) as storage:
        await storage.setup()
    async with (
        TcpProxy(postgres_server.port) as proxy,
        postgres_at(through(postgres_place, proxy), leases=True) as storage,
    ):
        # Two to connect, and for each statement one to prepare and one to execute it.
        checkpoint = await grown(storage, commits=1)
        assert proxy.requests <= 2 + 2 * 3
        calls = [
            lambda: checkpoint.commit_snapshot(state(1)),
            lambda: storage.load("order-17"),
            lambda: storage.load_lineage("order-17"),
            lambda: storage.load_head("order-17"),
            lambda: storage.load_parts("order-17", ["a"]),
            lambda: storage.list_checkpoints(metadata={"a": "b"}),
            lambda: storage.take_lease("x"),
        ]
        for call in calls:
            before = proxy.requests
            await call()  # type: ignore[no-untyped-call]
            assert proxy.requests - before == 2


async def test_a_commit_is_one_round_trip(postgres_server: PostgresServer, postgres_place: str) -> None:
    async with (
        TcpProxy(postgres_server.port) as proxy,
        postgres_at(through(postgres_place, proxy)) as storage,
    ):
        checkpoint = await grown(storage, commits=2)
        before = proxy.requests
        for n in range(10):
            await checkpoint.commit_snapshot(state(n, n=n, text=f"{n} " * 3000))
        assert proxy.requests - before == 10
        await storage.load("order-17")
        before = proxy.requests
        await storage.load("order-17")
        assert proxy.requests - before == 1


async def test_commits_that_wait_go_together(postgres_server: PostgresServer, postgres_place: str) -> None:
    async with TcpProxy(postgres_server.port) as proxy:  # noqa: SIM117 - it is to be there first
        async with postgres_at(through(postgres_place, proxy), connections=6) as storage:
            many = [create(storage, f"run-{n}", metadata={"n": str(n)}) for n in range(200)]
            for turn in range(3):
                before = proxy.requests
                await asyncio.gather(*(one.commit_snapshot(state(turn, n=n)) for n, one in enumerate(many)))
            assert proxy.requests - before < 20
            for n, one in enumerate(many):
                loaded = await storage.load(f"run-{n}")
                assert loaded.header == one.header
                assert lineage(loaded) == lineage(one)
                assert shared(loaded.head_snapshot) == {"n": n}
                check_lineage_law(one, loaded)
            found = await storage.list_checkpoints(metadata={"n": "17"})
            assert [line.checkpoint_id for line in found] == ["run-17"]


async def test_those_of_a_group_that_cannot_land_hinder_nobody(postgres_place: str) -> None:
    schema = postgres_place.split()[1]
    async with (
        postgres_at(postgres_place, connections=12) as storage,
        postgres_at(postgres_place) as other,
        connected(postgres_place) as holder,
    ):
        many = [await grown(storage, f"run-{n:02}", commits=1) for n in range(40)]
        for n in range(0, 40, 4):
            await (await other.load(f"run-{n:02}")).commit_snapshot(state(1, by="other"))
        # Somebody else holds more rows than statements go at once, for as long as all others take.
        held = set(range(1, 40, 4))
        ids = ", ".join(f"'run-{n:02}'" for n in held)
        await holder.execute("BEGIN")
        await holder.execute(f"SELECT FROM {schema}.checkpoints WHERE checkpoint_id IN ({ids}) FOR UPDATE")
        ends = [asyncio.ensure_future(one.commit_snapshot(state(1, by="me"))) for one in many]
        await asyncio.wait([end for n, end in enumerate(ends) if n not in held])
        assert {n for n, end in enumerate(ends) if not end.done()} == held
        await holder.execute("COMMIT")
        outcomes = await asyncio.gather(*ends, return_exceptions=True)
        for n, outcome in enumerate(outcomes):
            head = shared((await other.load(f"run-{n:02}")).head_snapshot)
            if n % 4 == 0:
                assert isinstance(outcome, CheckpointConflictError), outcome
                assert head == {"by": "other"}
            else:
                assert not isinstance(outcome, BaseException), outcome
                assert head == {"by": "me"}


async def test_many_first_commits_under_one_id_have_one_winner(postgres_place: str) -> None:
    async with postgres_at(postgres_place) as storage, postgres_at(postgres_place) as other:
        for turn in range(5):
            rivals = [create(one, f"new-{turn}-{n}") for n in range(20) for one in (storage, other, storage)]
            outcomes = await asyncio.gather(
                *(one.commit_snapshot(state(0, k=k)) for k, one in enumerate(rivals)), return_exceptions=True
            )
            for n in range(20):
                won = [k for k in range(3 * n, 3 * n + 3) if not isinstance(outcomes[k], BaseException)]
                assert len(won) == 1
                assert shared((await other.load(f"new-{turn}-{n}")).head_snapshot) == {"k": won[0]}
            assert all(
                isinstance(outcome, CheckpointConflictError)
                for outcome in outcomes
                if isinstance(outcome, BaseException)
            )


# Who waits for a row sees what the other one has left there.


async def test_c17_a_commit_that_waits_for_another_one_conflicts(postgres_place: str) -> None:
    schema = postgres_place.split()[1]
    async with postgres_at(postgres_place) as storage, connected(postgres_place) as holder:
        mine = await grown(storage, commits=1)
        other = await storage.load("order-17")
        await holder.execute("BEGIN")
        await holder.execute(f"SELECT FROM {schema}.checkpoints FOR UPDATE")
        both = [asyncio.ensure_future(one.commit_snapshot(state(1))) for one in (mine, other)]
        await waiters(holder)
        await holder.execute("COMMIT")
        kinds = sorted(type(one).__name__ for one in await asyncio.gather(*both, return_exceptions=True))
        assert kinds == ["CheckpointConflictError", "CheckpointSnapshot"]
        assert len((await storage.load("order-17")).snapshots) == 2


async def test_c22_a_delete_that_waits_for_a_commit_leaves_nothing_of_it(postgres_place: str) -> None:
    schema = postgres_place.split()[1]
    async with postgres_at(postgres_place) as storage, connected(postgres_place) as holder:
        checkpoint = await grown(storage, commits=2)
        await holder.execute("BEGIN")
        await holder.execute(f"SELECT FROM {schema}.checkpoints FOR UPDATE")
        committing = asyncio.ensure_future(checkpoint.commit_snapshot(state(2, text="x" * 5000)))
        await waiters(holder)
        deleting = asyncio.ensure_future(storage.delete("order-17"))
        while await holder.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") < 2:
            await asyncio.sleep(0)
        await holder.execute("COMMIT")
        await asyncio.wait([committing, deleting])
        await deleting
        for table in ("checkpoints", "snapshots", "parts"):
            assert await holder.fetchval(f"SELECT count(*) FROM {schema}.{table}") == 0
        if (error := committing.exception()) is not None:
            assert isinstance(error, CheckpointConflictError)
        with pytest.raises(CheckpointNotFoundError):
            await storage.load("order-17")


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_c17_under_other_defaults_of_a_database_one_writer_wins(
    postgres_server: PostgresServer, postgres_dsn: str, isolation: str
) -> None:
    database = postgres_dsn.rpartition("/")[2]
    postgres_server.sql(f"ALTER DATABASE {database} SET default_transaction_isolation = '{isolation}'")
    async with PostgresCheckpointStorage(postgres_dsn) as storage:
        await grown(storage, commits=1)
        for n in range(10):
            rivals = [await storage.load("order-17") for _ in range(6)]
            outcomes = await asyncio.gather(
                *(one.commit_snapshot(state(n, k=k)) for k, one in enumerate(rivals)), return_exceptions=True
            )
            kinds = sorted(type(outcome).__name__ for outcome in outcomes)
            assert kinds == ["CheckpointConflictError"] * 5 + ["CheckpointSnapshot"]
        assert len(await (await storage.load("order-17")).prune()) == 10
        await storage.delete("order-17")
        assert await storage.list_checkpoints() == []


# Listings.


async def test_a_page_begins_after_any_text(postgres_place: str) -> None:
    ids = ["a", "a ", "ab", "b", "é", "\ue000", "😀"]
    async with postgres_at(postgres_place) as storage:
        for one in ids:
            await grown(storage, one, commits=1)
        for after in ["", "\0", "a\0", "a\0z", "a", "ab\ud800", "\ud800", "\udfff", "é\udc00x", "\U0010ffff"]:
            for limit in (None, 1, 2, 10**30):
                found = await storage.list_checkpoints(after=after, limit=limit)
                assert [one.checkpoint_id for one in found] == [one for one in ids if one > after][:limit]


async def test_names_and_metadata_may_hold_any_text(postgres_place: str) -> None:
    names = ["a\0b", '["a", "b"]', "", "a", "\u2028", "é"]
    async with postgres_at(postgres_place) as storage:
        for n, name in enumerate(names):
            if name:
                odd = create(storage, f"run-{n}", workflow_name=name, metadata={name: f"{name}\0", "b": name})
                await odd.commit_snapshot(state(0))
        for n, name in enumerate(names):
            expected = [f"run-{n}"] if name else []
            for filters in (
                {"workflow_name": name},
                {"metadata": {name: f"{name}\0"}},
                {"metadata": {"b": name}, "workflow_name": name},
            ):
                found = await storage.list_checkpoints(**filters)
                assert [one.checkpoint_id for one in found] == expected
        assert await storage.list_checkpoints(workflow_name="\ud800") == []
        assert await storage.list_checkpoints(metadata={"\ud800": "a"}) == []


async def test_c54_a_damaged_checkpoint_is_left_out_of_the_listing_and_no_page_is_short(
    postgres_place: str,
) -> None:
    schema = postgres_place.split()[1]
    async with postgres_at(postgres_place) as storage, connected(postgres_place) as connection:
        for n in range(6):
            await grown(storage, f"run-{n}", commits=1)
        second = f"(SELECT id FROM {schema}.checkpoints WHERE checkpoint_id = 'run-1')"
        for damage in (
            f"UPDATE {schema}.checkpoints SET header = 'x' WHERE checkpoint_id = 'run-0'",
            f"DELETE FROM {schema}.snapshots WHERE checkpoint = {second}",
            f"UPDATE {schema}.checkpoints SET format = 'xml' WHERE checkpoint_id = 'run-2'",
            f"UPDATE {schema}.checkpoints SET generation = 5 WHERE checkpoint_id = 'run-3'",
        ):
            await connection.execute(damage)
        with pytest.warns(RuntimeWarning, match="run-") as caught:
            found = await storage.list_checkpoints(limit=2)
        assert [one.checkpoint_id for one in found] == ["run-4", "run-5"]
        assert len(caught) == 4


async def test_checkpoints_of_both_formats_are_listed_and_each_is_opened_as_it_is(
    postgres_place: str,
) -> None:
    async with (
        postgres_at(postgres_place) as one,
        postgres_at(postgres_place, serialization_format="msgpack") as two,
    ):
        mine = await grown(one, "a", commits=2)
        await grown(two, "b", commits=2)
        for storage in (one, two):
            assert [line.checkpoint_id for line in await storage.list_checkpoints()] == ["a", "b"]
        with pytest.raises(InvalidCallError, match="serialization_format='msgpack'"):
            await one.load("b")
        with pytest.raises(InvalidCallError, match="kept as json"):
            await two.load_parts("a", ["x"])
        with pytest.raises(CheckpointConflictError):
            await create(two, "a").commit_snapshot(state(0))
        with pytest.raises(InvalidCallError, match="kept as json"):
            await two.commit_snapshot(
                mine, (await two.load("b")).snapshots[1], expected_head_snapshot_id=mine.head_snapshot_id
            )


# Connections.


async def test_connections_end_with_the_storage(postgres_place: str) -> None:
    before = sockets()
    storage = postgres_at(postgres_place, connections=3)
    await asyncio.gather(*(grown(storage, f"run-{n}", commits=2) for n in range(20)))
    assert before < sockets() <= before + 3
    await storage.aclose()
    await storage.aclose()
    assert sockets() == before
    await grown(storage, "later", commits=1)  # it connects anew
    await storage.aclose()
    assert sockets() == before


async def test_a_storage_that_nobody_has_any_more_closes_by_itself(postgres_place: str) -> None:
    before = sockets()
    storage = postgres_at(postgres_place)
    await storage.list_checkpoints()
    assert sockets() > before
    del storage
    for _ in range(5):
        gc.collect()
        await asyncio.sleep(0)
    assert sockets() == before


def test_connections_end_with_their_loop(postgres_place: str) -> None:
    before = sockets()
    storage = postgres_at(postgres_place)
    for n in range(3):
        asyncio.run(grown(storage, f"run-{n}", commits=1))
        assert sockets() == before
    asyncio.run(storage.aclose())
    assert len(asyncio.run(storage.list_checkpoints())) == 3


def test_a_storage_is_closed_from_another_loop(postgres_place: str) -> None:
    before = sockets()
    storage = postgres_at(postgres_place)
    ready, done = threading.Event(), threading.Event()

    async def working() -> None:
        await grown(storage, "there", commits=1)
        ready.set()
        await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=asyncio.run, args=(working(),))
    thread.start()
    ready.wait()
    standing = asyncio.new_event_loop()  # one that does not run when it is closed
    standing.run_until_complete(grown(storage, "here", commits=1))
    asyncio.run(storage.aclose())
    standing.run_until_complete(asyncio.sleep(0))
    standing.run_until_complete(asyncio.sleep(0))
    loops = sockets()
    done.set()
    thread.join()
    standing.close()
    assert sockets() == before
    assert loops - before <= 4  # the two loops' own: each has a pair


async def test_aclose_waits_for_what_is_under_way(
    postgres_server: PostgresServer, postgres_place: str
) -> None:
    async with TcpProxy(postgres_server.port) as proxy:
        storage = postgres_at(through(postgres_place, proxy))
        checkpoint = await grown(storage, commits=1)
        held = proxy.cut("held")
        committing = asyncio.ensure_future(checkpoint.commit_snapshot(state(1, n=1)))
        await held.met.wait()
        closing = asyncio.ensure_future(storage.aclose())
        await asyncio.sleep(0)
        assert not closing.done()
        held.let_go.set()
        await closing
        await committing


async def test_c21_a_cancelled_load_leaves_a_storage_that_works(postgres_place: str) -> None:
    async with postgres_at(postgres_place, connections=1) as storage:
        checkpoint = await grown(storage, commits=3)
        for turns in range(30):
            loading = asyncio.ensure_future(storage.load("order-17"))
            for _ in range(turns):
                await asyncio.sleep(0)
            loading.cancel()
            await asyncio.wait([loading])
            await checkpoint.commit_snapshot(state(turns, n=turns))
        assert len((await storage.load("order-17")).snapshots) == 33


class Impatient(CheckpointStorage):
    """Cancels every third commit after some turns of the loop."""

    def __init__(self, inner: CheckpointStorage) -> None:
        self.inner = inner
        self.commits = self.turns = self.cancelled = 0

    async def commit_snapshot(
        self, checkpoint: Checkpoint, snapshot: CheckpointSnapshot, **more: Any
    ) -> None:
        self.commits += 1
        committing = asyncio.ensure_future(self.inner.commit_snapshot(checkpoint, snapshot, **more))
        if self.commits % 3 == 0:
            for _ in range(self.turns):
                await asyncio.sleep(0)
            committing.cancel()
        await asyncio.wait([committing])
        if committing.cancelled():
            self.cancelled += 1
            raise StorageError("nobody waited for it")
        committing.result()

    async def load(self, checkpoint_id: str, **more: Any) -> Checkpoint:
        return await self.inner.load(checkpoint_id, **more)

    async def delete(self, checkpoint_id: str) -> None:
        await self.inner.delete(checkpoint_id)


async def test_c21_a_cancelled_commit_of_a_group_takes_no_other_one_with_it(postgres_place: str) -> None:
    async with postgres_at(postgres_place, connections=6) as storage:
        impatient = Impatient(storage)
        many = [create(impatient, f"run-{n}") for n in range(40)]
        for one in many:
            impatient.commits = 0
            await one.commit_snapshot(state(0, n=0))
        for turn in range(1, 13):
            impatient.commits, impatient.turns = 0, turn * 2
            commits = [one.commit_snapshot(state(turn, n=turn)) for one in many]
            outcomes = await asyncio.gather(*commits, return_exceptions=True)
            for n, outcome in enumerate(outcomes, start=1):
                assert not isinstance(outcome, BaseException) or (
                    n % 3 == 0 and isinstance(outcome, StorageError)
                )
            for one in many:
                await one.refresh()  # a commit that nobody waited for may have landed later
        assert impatient.cancelled > 20
        for one in many:
            check_lineage_law(one, await storage.load(one.checkpoint_id))


async def test_a_given_pool_is_used_and_stays_open(postgres_place: str) -> None:
    dsn, schema = postgres_place.split()
    async with asyncpg.create_pool(dsn, min_size=1, max_size=3) as pool:
        async with PostgresCheckpointStorage(pool, schema=schema) as storage:
            checkpoint = await grown(storage, commits=3)
            await checkpoint.prune()
            assert lineage(await storage.load("order-17")) == lineage(checkpoint)
        assert await pool.fetchval("SELECT 1") == 1

        def elsewhere() -> None:
            with pytest.raises(InvalidCallError, match="another one"):
                asyncio.run(storage.load("order-17"))

        await asyncio.to_thread(elsewhere)


async def test_schemas_are_apart(postgres_dsn: str) -> None:
    names = ["branchpoint", 'a "b".c', "Größe; DROP SCHEMA x", "x" * 63]
    for name in names:
        async with PostgresCheckpointStorage(postgres_dsn, schema=name) as storage:
            assert await storage.list_checkpoints() == []
            await grown(storage, name[:40], commits=2)
    for name in names:
        async with PostgresCheckpointStorage(postgres_dsn, schema=name) as storage:
            assert [line.checkpoint_id for line in await storage.list_checkpoints()] == [name[:40]]


# Lazily.


async def test_a_lazy_load_reads_the_head_alone(postgres_place: str) -> None:
    async with postgres_at(postgres_place, lazy_over=10_000) as storage:
        checkpoint = create(storage)
        for n in range(30):
            await checkpoint.commit_snapshot(state(n, n=n, text=f"{n} " * 2000))
        records = await storage.load_records("order-17")
        assert (len(records.manifests), dict(records.parts), records.complete) == (1, {}, False)
        lazy = await storage.load("order-17")
        assert shared(lazy.head_snapshot)["n"] == 29
        await lazy.commit_snapshot(state(30, n=30))
        await lazy.load_lineage()
        assert lineage(lazy) == lineage(await postgres_at_whole(postgres_place))


async def postgres_at_whole(place: str) -> Any:
    async with postgres_at(place) as storage:
        return await storage.load("order-17")


async def test_r31_a_lease_is_compared_under_the_lock_of_the_commit(postgres_place: str) -> None:
    """A commit that waits for the row while another run takes the lease is refused."""
    schema = postgres_place.split()[1]
    async with postgres_at(postgres_place, leases=True) as storage, connected(postgres_place) as holder:
        checkpoint = await grown(storage, commits=1)
        await holder.execute("BEGIN")
        await holder.execute(f"SELECT FROM {schema}.checkpoints FOR UPDATE")
        committing = asyncio.ensure_future(checkpoint.commit_snapshot(state(1)))
        await waiters(holder)
        await holder.execute(
            f"UPDATE {schema}.checkpoints SET lease = 'other', lease_expires = now() + interval '1 hour'"
        )
        await holder.execute("COMMIT")
        with pytest.raises(CheckpointConflictError, match="leased"):
            await committing
        assert len((await storage.load("order-17")).snapshots) == 1
        await storage.delete("order-17")
        lease = await storage.take_lease("order-17")
        assert await storage.list_checkpoints() == []
        with pytest.raises(CheckpointNotFoundError):
            await storage.load("order-17")
        await storage.end_lease("order-17", lease)
        assert await holder.fetchval(f"SELECT count(*) FROM {schema}.checkpoints") == 0


def test_no_server_is_asked_before_there_is_something_to_do() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        storage = PostgresCheckpointStorage(f"postgresql://127.0.0.1:{nobody.getsockname()[1]}/x")
        assert storage.serialization_format == "json"
        asyncio.run(storage.aclose())
