"""Commits that wait at the same time go into one transaction, and stay each other's neighbours only."""

from __future__ import annotations

import asyncio
import sqlite3
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from branchpoint.checkpoint import CheckpointSnapshot
from branchpoint.errors import CheckpointConflictError, CorruptCheckpointError, StorageError
from branchpoint.storage.sqlite import SQLiteCheckpointStorage
from branchpoint.storage.sqlite._jobs import Job
from branchpoint.storage.sqlite._writer import Writer, deliver_to
from tests.scenario.kit import turns
from tests.storages import create, grown, lineage, shared, state


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints.db"


@pytest.fixture
async def storage(path: Path) -> AsyncIterator[SQLiteCheckpointStorage]:
    async with SQLiteCheckpointStorage(path) as storage:
        await grown(storage, "first", commits=1)
        yield storage


@contextmanager
def held(path: Path) -> Iterator[sqlite3.Connection]:
    """Keep every writer waiting for the length of the block."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        db.execute("BEGIN IMMEDIATE")
        yield db
        if db.in_transaction:
            db.execute("ROLLBACK")
    finally:
        db.close()


def transactions(path: Path) -> int:
    """How many transactions the log holds since it was begun: the frames that end one."""
    log = path.with_name(path.name + "-wal").read_bytes()
    page, salts = struct.unpack(">8xI4x8s", log[:24])
    count, at = 0, 32
    while log[at + 8 : at + 16] == salts:
        count += struct.unpack(">I", log[at + 4 : at + 8])[0] > 0
        at += 24 + page
    return count


async def begun(commits: list[Any]) -> list[asyncio.Future[Any]]:
    """Hand them over in this order, one behind the other."""
    tasks = []
    for commit in commits:
        tasks.append(asyncio.ensure_future(commit))
        await turns(5)
    return tasks


async def outcomes_of(tasks: list[asyncio.Future[Any]]) -> list[Any]:
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_waits_shares_one_transaction(path: Path, storage: SQLiteCheckpointStorage) -> None:
    before = transactions(path)
    with held(path):
        made = [create(storage, f"run-{n}") for n in range(100)]
        tasks = await begun([one.commit_snapshot(state(0, n=n)) for n, one in enumerate(made)])
    outcomes = await outcomes_of(tasks)
    assert all(isinstance(one, CheckpointSnapshot) for one in outcomes)
    # The first one was under way already when the others came.
    assert transactions(path) - before <= 2
    for n, one in enumerate(made):
        loaded = await storage.load(f"run-{n}")
        assert lineage(loaded) == lineage(one)
        assert shared(loaded.head_snapshot) == {"n": n}


async def test_a_conflict_of_one_is_none_of_the_others(path: Path, storage: SQLiteCheckpointStorage) -> None:
    await grown(storage)
    rivals = [await storage.load("order-17") for _ in range(6)]
    before = transactions(path)
    with held(path):
        commits: list[Any] = [create(storage, "a").commit_snapshot(state(0))]
        commits += [one.commit_snapshot(state(7, by=n)) for n, one in enumerate(rivals)]
        commits += [
            create(storage, "first").commit_snapshot(state(0)),
            create(storage, "b").commit_snapshot(state(0)),
        ]
        tasks = await begun(commits)
    a, *raced, taken, b = await outcomes_of(tasks)
    assert isinstance(a, CheckpointSnapshot)
    assert isinstance(b, CheckpointSnapshot)
    assert isinstance(taken, CheckpointConflictError)
    assert isinstance(raced[0], CheckpointSnapshot)  # who comes first
    assert all(isinstance(one, CheckpointConflictError) for one in raced[1:])
    assert transactions(path) - before <= 2
    assert shared((await storage.load("order-17")).head_snapshot) == {"by": 0}


async def test_a_fault_of_one_is_none_of_the_others(path: Path, storage: SQLiteCheckpointStorage) -> None:
    with held(path) as db:
        # SQLite itself refuses one of them, after some of it was written.
        db.execute(
            "CREATE TRIGGER refuse AFTER INSERT ON records WHEN NEW.checkpoint IN "
            "(SELECT key FROM checkpoints WHERE checkpoint_id = 'bad') BEGIN SELECT RAISE(ABORT, 'not this'); END"
        )
        db.execute("COMMIT")
        db.execute("BEGIN IMMEDIATE")
        made = [create(storage, name) for name in ("a", "b", "bad", "c", "d")]
        tasks = await begun([one.commit_snapshot(state(0)) for one in made])
        rivals = [create(storage, "c"), create(storage, "bad")]
        tasks += await begun([one.commit_snapshot(state(0)) for one in rivals])
    a, b, bad, c, d, late, worse = await outcomes_of(tasks)
    assert all(isinstance(one, CheckpointSnapshot) for one in (a, b, c, d))
    assert isinstance(late, CheckpointConflictError)
    for failed in (bad, worse):
        assert type(failed) is StorageError
        assert isinstance(failed.__cause__, sqlite3.IntegrityError)
        for word in ("'bad'", str(path), "not this", "unchanged"):
            assert word in str(failed)
    with held(path) as db:
        db.execute("DROP TRIGGER refuse")
        db.execute("COMMIT")
    assert [line.checkpoint_id for line in await storage.list_checkpoints()] == ["a", "b", "c", "d", "first"]
    await made[2].commit_snapshot(state(0))
    assert lineage(await storage.load("bad")) == lineage(made[2])


async def test_what_turns_out_to_be_damaged_half_way_is_rolled_back(
    path: Path, storage: SQLiteCheckpointStorage
) -> None:
    checkpoint = await grown(storage)
    with held(path) as db:
        # A prune meets it after it has begun to write.
        db.execute(
            "UPDATE records SET checkpoint = 9 WHERE record = (SELECT record + 1 FROM checkpoints WHERE key = 2)"
        )
        db.execute("COMMIT")
        before = db.execute("SELECT * FROM records").fetchall()
        db.execute("BEGIN IMMEDIATE")
        tasks = await begun([create(storage, "a").commit_snapshot(state(0)), checkpoint.prune(),
                             create(storage, "b").commit_snapshot(state(0))])  # fmt: skip
    a, damaged, b = await outcomes_of(tasks)
    assert isinstance(a, CheckpointSnapshot)
    assert isinstance(b, CheckpointSnapshot)
    assert isinstance(damaged, CorruptCheckpointError)
    with held(path) as db:
        assert db.execute("SELECT * FROM records").fetchall()[: len(before)] == before
        assert db.execute("SELECT count(*) FROM records WHERE checkpoint = 2").fetchone()[0] == len(
            [row for row in before if row[1] == 2]
        )
    assert len(checkpoint.snapshots) == 3


async def test_c55_a_disk_that_is_full_fails_only_what_does_not_fit(
    path: Path, storage: SQLiteCheckpointStorage
) -> None:
    small, large = await grown(storage, "small"), await grown(storage, "large")
    before = lineage(large)
    connection = storage._use.database()._connection
    assert connection is not None
    (pages,) = connection.db.execute("PRAGMA page_count").fetchone()
    connection.db.execute(f"PRAGMA max_page_count = {pages + 8}")
    with held(path):
        tasks = await begun([small.commit_snapshot(state(7)), large.commit_snapshot(state(7, text="x" * 200_000)),
                             create(storage, "new").commit_snapshot(state(0))])  # fmt: skip
    fits, full, new = await outcomes_of(tasks)
    assert isinstance(fits, CheckpointSnapshot)
    assert isinstance(new, CheckpointSnapshot)
    assert type(full) is StorageError
    assert full.retryable
    for word in ("'large'", "SQLITE_FULL", "make room", "unchanged"):
        assert word in str(full)
    assert (lineage(large), large.in_use_by) == (before, None)
    connection.db.execute("PRAGMA max_page_count = 1000000")
    await large.commit_snapshot(state(8, text="x" * 200_000))
    assert lineage(await storage.load("large")) == lineage(large)
    assert lineage(await storage.load("small")) == lineage(small)


@pytest.mark.parametrize("losing", ["before", "under way"])
async def test_c21_a_commit_that_was_handed_over_lands_though_its_caller_is_gone(
    path: Path, storage: SQLiteCheckpointStorage, losing: str
) -> None:
    checkpoint = await grown(storage)
    other = create(storage, "other")
    with held(path):
        tasks = await begun([checkpoint.commit_snapshot(state(7)), other.commit_snapshot(state(0))])
        for task in tasks[losing == "under way" :]:
            task.cancel()
        await turns()
        assert not any(task.done() for task in tasks)  # they wait until memory and storage agree
    await outcomes_of(tasks)
    assert tasks[1].cancelled()
    assert len(checkpoint.snapshots) == 4
    assert lineage(await storage.load("order-17")) == lineage(checkpoint)
    assert lineage(await storage.load("other")) == lineage(other)


async def test_closing_waits_for_what_was_handed_over(path: Path, storage: SQLiteCheckpointStorage) -> None:
    async with SQLiteCheckpointStorage(path) as another:
        assert len(await another.list_checkpoints()) == 1  # so the file stays in use
        with held(path):
            made = [create(storage, f"run-{n}") for n in range(20)]
            tasks = await begun([one.commit_snapshot(state(0)) for one in made])
            closing = asyncio.ensure_future(storage.aclose())
            for _ in range(20):  # time enough for a thread that waits for nothing
                await asyncio.to_thread(sum, range(50_000))
            assert not closing.done()
        await closing
        assert len(await another.list_checkpoints()) == 21
        await outcomes_of(tasks)


def test_a_commit_lands_though_its_loop_is_closed(path: Path) -> None:
    storage = SQLiteCheckpointStorage(path)

    async def begin_and_leave() -> None:
        [snapshot] = (await grown(None, "order-17", commits=1)).snapshots
        made = SimpleNamespace(
            manifest=snapshot.manifest, snapshot_id=snapshot.snapshot_id, new_parts=snapshot.parts()
        )
        committing: Any = storage.commit_snapshot(
            create(storage), cast("Any", made), expected_head_snapshot_id=None
        )
        committing.send(None)  # it is handed over
        committing.close()  # and nobody waits

    asyncio.run(grown(storage, "first"))
    with held(path):
        asyncio.run(begin_and_leave())
    asyncio.run(storage.aclose())
    found = asyncio.run(storage.load("order-17"))
    assert len(found.snapshots) == 1
    asyncio.run(storage.aclose())


async def test_100_commits_at_once_and_the_loop_goes_on(path: Path, storage: SQLiteCheckpointStorage) -> None:
    """C19 in one loop: no lock is ever told of, and every chain is whole."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.ensure_future(tick())
    made = await asyncio.gather(*(grown(storage, f"run-{n}", commits=5) for n in range(100)))
    ticking.cancel()
    await asyncio.wait([ticking])
    assert ticks > 50
    for one in made:
        assert lineage(await storage.load(one.checkpoint_id)) == lineage(one)


# The writer alone.


async def test_a_writer_tells_every_loop_and_survives_a_fault_of_its_own() -> None:
    def do(jobs: Any) -> Any:
        raise ZeroDivisionError("a fault of the library")

    writer = Writer(do, lambda: None, name="writer of nothing")
    deliver = deliver_to(asyncio.get_running_loop())
    writer.put(Job(lambda db: None, "nothing"), deliver)
    with pytest.raises(ZeroDivisionError):
        await deliver[1]
    closed = asyncio.new_event_loop()
    lost = deliver_to(closed)
    closed.close()
    writer.put(Job(lambda db: None, "nothing"), lost)
    given_up = deliver_to(asyncio.get_running_loop())
    writer.put(Job(lambda db: None, "nothing"), given_up)
    given_up[1].cancel()
    await asyncio.to_thread(writer.flush().wait)
    writer.stop(wait=True)
    assert not lost[1].done()
