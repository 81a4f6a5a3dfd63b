"""Bad databases, bad places and full disks: a clear error each, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from branchpoint.errors import (
    BranchpointError,
    CheckpointLeasedError,
    CheckpointNotFoundError,
    CorruptCheckpointError,
    InvalidCallError,
    StorageError,
    UnknownVersionError,
)
from branchpoint.storage.sqlite import SQLiteCheckpointStorage
from branchpoint.storage.sqlite._connection import use_wal
from branchpoint.storage.sqlite._failures import told
from branchpoint.storage.sqlite._schema import APPLICATION, SCRIPTS, bring_up_to_date, version_of
from tests.storages import create, grown, lineage, state

ROOT = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints.db"


def do(path: Path, *statements: str) -> list[Any]:
    """Do something to the database, past the storage; returns what the last statement gives."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        found: list[Any] = []
        for statement in statements:
            found = list(db.execute(statement))
        return found
    finally:
        db.close()


async def refused(path: Path, kind: type[BranchpointError], *words: str, reading: bool = True) -> None:
    """Every call is refused, in words that say where and what to do, and changes nothing."""
    before = path.read_bytes() if path.is_file() else None
    async with SQLiteCheckpointStorage(path) as storage:
        checkpoint = create(storage)
        calls: list[Callable[[], Any]] = [lambda: checkpoint.commit_snapshot(state(0))]
        if reading:
            calls += [lambda: storage.load("order-17"), lambda: storage.load_head("order-17"),
                      storage.list_checkpoints]  # fmt: skip
        for call in calls:
            with pytest.raises(kind) as caught:
                await call()
            for word in (str(path), *words):
                assert word in str(caught.value)
        assert (checkpoint.snapshots, checkpoint.in_use_by) == ([], None)
    assert (path.read_bytes() if path.is_file() else None) == before


# The place.


async def test_a_folder_in_the_place_of_the_file(path: Path) -> None:
    path.mkdir()
    await refused(path, StorageError, "is a folder", "give the path of a file")


async def test_a_file_in_the_place_of_the_folder(path: Path) -> None:
    path.write_text("mine")
    await refused(
        path / "x.db", StorageError, "move away the file that is in the place of a folder", reading=False
    )
    assert path.read_text() == "mine"


async def test_something_that_is_no_file(path: Path) -> None:
    os.mkfifo(path)
    await refused(path, StorageError, "not a regular file")


async def test_a_file_that_is_no_database(path: Path) -> None:
    path.write_bytes(b"a letter to somebody, which is longer than the header of a database, " * 40)
    await refused(path, CorruptCheckpointError, "is none", "restore it from a backup")


async def test_a_database_of_another_program(path: Path) -> None:
    do(path, "CREATE TABLE letters (text)", "INSERT INTO letters VALUES ('mine')")
    await refused(path, InvalidCallError, "another program", "a file of their own")
    assert do(path, "SELECT * FROM letters") == [("mine",)]
    assert do(path, "PRAGMA journal_mode") == [("delete",)]


async def test_an_empty_file_is_an_empty_database(path: Path) -> None:
    path.touch(0o600)
    async with SQLiteCheckpointStorage(path) as storage:
        assert await storage.list_checkpoints() == []
        with pytest.raises(CheckpointNotFoundError):
            await storage.load("order-17")
        await grown(storage)
        assert len((await storage.load("order-17")).snapshots) == 3


BARELY_ALLOWED = """
import asyncio, ctypes, os, struct, sys
from branchpoint.errors import StorageError
from branchpoint.storage.sqlite import SQLiteCheckpointStorage
from tests.storages import create, state

if os.geteuid() == 0:  # without its capabilities root is bound by file modes like anybody
    assert ctypes.CDLL(None).capset(struct.pack("Ii", 0x20080522, 0), bytes(24)) == 0

async def work(path, reads):
    async with SQLiteCheckpointStorage(path) as storage:
        calls = [create(storage, "new").commit_snapshot(state(0))]
        if reads == "no":
            calls += [storage.load("order-17")]
        for call in calls:
            try:
                await call
            except StorageError as error:
                assert "the right to" in str(error) and path in str(error), error
            else:
                raise AssertionError("it was done")
        if reads == "yes":
            assert len((await storage.load("order-17")).snapshots) == 3

asyncio.run(work(*sys.argv[1:]))
"""


@pytest.mark.parametrize("what", ["the folder", "the file", "nothing of it"])
async def test_a_place_that_may_not_be_written(path: Path, what: str) -> None:
    async with SQLiteCheckpointStorage(path) as storage:
        checkpoint = await grown(storage)
        # Somebody else has it open, and so the log is there.
        if what == "the file":
            path.chmod(0o400)
        elif what == "the folder":
            path.parent.chmod(0o500)
            path.with_name(path.name + "-lock").chmod(0o400)
        else:
            path.parent.chmod(0)
        try:
            reads = {"the folder": "yes", "the file": "no", "nothing of it": "no"}[what]
            code = [sys.executable, "-c", BARELY_ALLOWED, str(path), reads]
            if what == "the file":
                code[-1] = "either"
            await asyncio.to_thread(subprocess.run, code, check=True, cwd=ROOT)
        finally:
            path.parent.chmod(0o700)
            path.chmod(0o600)
        assert lineage(await storage.load("order-17")) == lineage(checkpoint)
        path.with_name(path.name + "-lock").chmod(0o600)
        await checkpoint.commit_snapshot(state(7))


FULL = """
import asyncio, os, resource, signal, sys
from branchpoint.errors import StorageError
from branchpoint.storage.sqlite import SQLiteCheckpointStorage
from tests.storages import create, state

async def work(path):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    async with SQLiteCheckpointStorage(path) as storage:
        checkpoint = await storage.load("order-17")
        for size in (200_000, 400_000, 1_000_000):
            before = checkpoint.head_snapshot_id
            limit = max(os.path.getsize(path + end) for end in ("", "-wal")) + 100_000
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            small = create(storage, f"small {size}")
            large = checkpoint.commit_snapshot(state(7, text="x" * size))
            failed, fits = await asyncio.gather(large, small.commit_snapshot(state(0)), return_exceptions=True)
            assert type(failed) is StorageError and "order-17" in str(failed), failed
            assert not isinstance(fits, BaseException), fits
            assert checkpoint.head_snapshot_id == before
            assert (await storage.load("order-17")).head_snapshot_id == before
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            await checkpoint.commit_snapshot(state(8, text="y" * 1000))

asyncio.run(work(sys.argv[1]))
"""


async def test_c55_a_disk_that_refuses_when_it_comes_to_writing(path: Path) -> None:
    """The limit is met when the transaction ends: the log cannot grow."""
    async with SQLiteCheckpointStorage(path) as storage:
        await grown(storage)
    subprocess.run([sys.executable, "-c", FULL, str(path)], check=True, cwd=ROOT)
    async with SQLiteCheckpointStorage(path) as storage:
        assert len((await storage.load("order-17")).snapshots) == 6
        assert len(await storage.list_checkpoints()) == 4
    assert do(path, "PRAGMA integrity_check") == [("ok",)]


async def test_a_database_that_somebody_else_locks_for_ever(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SQLiteCheckpointStorage(path) as storage:
        checkpoint = await grown(storage)
        connection = storage._use.database()._connection
        assert connection is not None
        connection.db.execute("PRAGMA busy_timeout = 0")
        held = sqlite3.connect(path, isolation_level=None)
        held.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="other program") as caught:
            await checkpoint.commit_snapshot(state(7))
        assert caught.value.retryable
        held.execute("ROLLBACK")
        held.close()
        await checkpoint.commit_snapshot(state(7))


def test_a_place_where_no_log_can_be_kept(path: Path) -> None:
    """Locks by a file beside it, as on some network file systems, go without shared memory."""
    db = sqlite3.connect(f"{path.as_uri()}?vfs=unix-dotfile", uri=True, isolation_level=None)
    try:
        with pytest.raises(StorageError, match=r"write-ahead log.*local disk"):
            use_wal(db, str(path))
    finally:
        db.close()


# Versions.


async def test_a_newer_database_is_told_and_left_alone(path: Path) -> None:
    async with SQLiteCheckpointStorage(path) as storage:
        await grown(storage)
    do(path, f"PRAGMA user_version = {len(SCRIPTS) + 1}", "ALTER TABLE places ADD COLUMN more")
    await refused(path, UnknownVersionError, f"version {len(SCRIPTS) + 1}", "upgrade branchpoint")


def test_an_older_database_is_brought_up_to_date_in_one_step_each(path: Path) -> None:
    later = [
        *SCRIPTS,
        "ALTER TABLE leases ADD COLUMN note;\n-- A comment; with a semicolon.\nCREATE TABLE more (a);\n",
    ]
    db = sqlite3.connect(path, isolation_level=None)
    try:
        bring_up_to_date(db, "here")
        assert (version_of(db, "here"), version_of(db, "here", newest=9)) == (len(SCRIPTS), len(SCRIPTS))
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION,)
        db.execute("INSERT INTO leases VALUES ('a', 't', 0, 1.0)")
        with pytest.raises(sqlite3.OperationalError):
            bring_up_to_date(db, "here", scripts=[*later, "CREATE TABLE half (a);\nnonsense;\n"])
        assert version_of(db, "here") == len(SCRIPTS)  # all of it or nothing
        bring_up_to_date(db, "here", scripts=later)
        bring_up_to_date(db, "here", scripts=later)
        assert db.execute("SELECT *, (SELECT count(*) FROM more) FROM leases").fetchall() == [
            ("a", "t", 0, 1.0, None, 0)
        ]
        with pytest.raises(UnknownVersionError, match="upgrade"):
            bring_up_to_date(db, "here")
        assert not db.in_transaction
    finally:
        db.close()


def test_the_first_script_is_what_was_released() -> None:
    """A script is never changed: what is to be another way comes with the next one."""
    import hashlib

    assert hashlib.sha256(SCRIPTS[0].encode()).hexdigest()[:16] == "be6f57aff113c83a"


# Damage.

OF_ROW = {
    "name of the workflow": "workflow_name = 'others'",
    "format": "format = 'pickle'",
    "header, another record": "header = record",
    "header, no record": "header = 999",
    "head, another snapshot": "snapshot_id = '{first}'",
    "head, nothing known": "snapshot_id = 'nonsense'",
    "head, bytes": "snapshot_id = x'00'",
    "head, an older record": "record = header + 1",
    "head, a part": "record = record + 1",
    "head, no record": "record = 999",
    "generation": "generation = 7",
    "status": "status = 'in_progress'",
    "number of snapshots": "snapshots = snapshots - 1",
    "bytes": "bytes = 'many'",
    "what has places": "placed = 999",
}
OF_RECORD = {
    "header": ("header", "data = x'7b7d'"),
    "header, empty": ("header", "data = x''"),
    "header, text": ("header", "data = CAST(data AS TEXT)"),
    "checksum of the header": ("header", "name = name || '1'"),
    "manifest, cut": ("record", "data = substr(data, 1, 20)"),
    "manifest, one byte": (
        "record",
        "data = CAST(replace(CAST(data AS TEXT), '\"n\":2', '\"n\":1') AS BLOB)",
    ),
    "manifest, of another": ("record", "(name, data) = (SELECT name, data FROM records WHERE record = 2)"),
    "manifest, no checksum": ("record", "name = '.3.2'"),
    "manifest, no name": ("record", "name = 5"),
    "manifest, shorter way back": ("record", "name = '.3' || substr(name, 3)"),
    "manifest, of another checkpoint": ("record", "checkpoint = 2"),
    "older manifest": ("header + 1", "data = x'7b7d'"),
    "part": ("record + 1", "data = data || x'20'"),
    "part, a number": ("record + 1", "data = 5"),
    "part, no name": ("record + 1", "name = 5"),
    "part, of another checkpoint": ("record + 1", "checkpoint = 2"),
}
LOST = {
    "header": "header",
    "newest manifest": "record",
    "older manifest": "header + 1",
    "a part": "record + 1",
}
_MINE = "(SELECT {0} FROM checkpoints WHERE key = 1)"
DAMAGE = {
    **{name: f"UPDATE checkpoints SET {change} WHERE key = 1" for name, change in OF_ROW.items()},
    **{
        name: f"UPDATE records SET {change} WHERE record = {_MINE.format(which)}"
        for name, (which, change) in OF_RECORD.items()
    },
    **{
        f"{name} lost": f"DELETE FROM records WHERE record = {_MINE.format(which)}"
        for name, which in LOST.items()
    },
    "all records lost": "DELETE FROM records WHERE checkpoint = 1",
    "row lost": "DELETE FROM checkpoints WHERE key = 1",
}


@pytest.mark.parametrize("lazy_over", [None, 0])
@pytest.mark.parametrize("what", DAMAGE)
async def test_c54_a_damaged_row_is_told_and_never_an_older_head(
    path: Path, what: str, lazy_over: int | None
) -> None:
    async with SQLiteCheckpointStorage(path) as storage:
        checkpoint = await grown(storage)
        other = await grown(storage, "bystander")
    do(path, DAMAGE[what].replace("{first}", checkpoint.snapshots[0].snapshot_id))
    before = path.read_bytes()
    async with SQLiteCheckpointStorage(path, lazy_over=lazy_over) as storage:
        with pytest.raises((CorruptCheckpointError, CheckpointNotFoundError), match="order-17") as caught:
            loaded = await storage.load("order-17")
            await loaded.load_lineage()
            for one in loaded.snapshots:
                await loaded.load_snapshot(one.snapshot_id)
        assert isinstance(caught.value, CorruptCheckpointError) or what == "row lost"
        whole = await storage.load("bystander")
        await whole.load_lineage()
        assert lineage(whole) == lineage(other)
    assert path.read_bytes() == before


@pytest.mark.parametrize("what", DAMAGE)
async def test_c22_what_is_damaged_is_deleted_all_the_same(path: Path, what: str) -> None:
    async with SQLiteCheckpointStorage(path) as storage:
        checkpoint = await grown(storage)
        other = await grown(storage, "bystander")
        do(path, DAMAGE[what].replace("{first}", checkpoint.snapshots[0].snapshot_id))
        await storage.delete("order-17")
        left = do(path, "SELECT count(*) FROM records WHERE checkpoint = 1 UNION ALL "
                  "SELECT count(*) FROM checkpoints WHERE key = 1")  # fmt: skip
        assert left[1] == (0,)
        assert left[0] == (0,) or what == "row lost"  # then nobody knows that it is there
        assert lineage(await storage.load("bystander")) == lineage(other)
        if what != "row lost":
            assert lineage(await grown(storage)) == lineage(await storage.load("order-17"))


@pytest.mark.parametrize("what", [*OF_ROW, "newest manifest lost", "manifest, cut", "all records lost"])
async def test_c54_nothing_is_built_on_a_damaged_head(path: Path, what: str) -> None:
    async with SQLiteCheckpointStorage(path) as storage:
        checkpoint = await grown(storage)
        await grown(storage, "bystander")
        do(path, DAMAGE[what].replace("{first}", checkpoint.snapshots[0].snapshot_id))
        before = do(path, "SELECT * FROM records"), do(path, "SELECT * FROM checkpoints")
        # What a commit looks at is the row; a load looks at the rest.
        outcomes = await asyncio.gather(
            checkpoint.commit_snapshot(state(7)),
            create(storage).commit_snapshot(state(7)),
            return_exceptions=True,
        )
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert all(isinstance(outcome, BranchpointError) for outcome in failed)
        if what == "status":  # which every commit writes anew
            assert len(failed) == 1
            return
        with pytest.raises(CorruptCheckpointError, match="order-17"):
            await storage.load("order-17")
        if len(failed) == 2:
            assert (do(path, "SELECT * FROM records"), do(path, "SELECT * FROM checkpoints")) == before


async def test_a_listing_leaves_out_what_is_damaged(path: Path) -> None:
    async with SQLiteCheckpointStorage(path) as storage:
        for name in "abcd":
            await grown(storage, name)
        do(path, "UPDATE checkpoints SET header = 0 WHERE checkpoint_id = 'b'",
           "UPDATE checkpoints SET format = 'x' WHERE checkpoint_id = 'c'")  # fmt: skip
        with pytest.warns(RuntimeWarning) as told_of:
            assert [line.checkpoint_id for line in await storage.list_checkpoints()] == ["a", "d"]
        assert ["'b'" in str(told_of[0].message), "'c'" in str(told_of[1].message)] == [True, True]


@pytest.mark.parametrize("page", ["first", "records", "checkpoints"])
async def test_c54_a_damaged_page_is_told_and_the_file_is_left(path: Path, page: str) -> None:
    async with SQLiteCheckpointStorage(path) as storage:
        await grown(storage, commits=20)
    whole = path.read_bytes()
    size = int.from_bytes(whole[16:18])
    at = 100
    if page != "first":
        [(root,)] = do(path, f"SELECT rootpage FROM sqlite_master WHERE name = '{page}'")
        at = (root - 1) * size
    broken = whole[:at] + bytes(range(256)) * 8 + whole[at + 2048 :]
    path.write_bytes(broken)
    async with SQLiteCheckpointStorage(path) as storage:
        with pytest.raises(CorruptCheckpointError, match=r"restore"):
            await storage.load("order-17")
        with pytest.raises(CorruptCheckpointError, match=r"restore"):
            await create(storage, "x").commit_snapshot(state(0))
    assert path.read_bytes() == broken
    path.write_bytes(whole)
    async with SQLiteCheckpointStorage(path) as storage:
        assert len((await storage.load("order-17")).snapshots) == 20


async def test_c54_a_database_cut_at_every_tenth(path: Path) -> None:
    async with SQLiteCheckpointStorage(path) as storage:
        checkpoint = await grown(storage, commits=12)
    whole = path.read_bytes()
    for cut in range(1, 10):
        path.write_bytes(whole[: len(whole) * cut // 10])
        async with SQLiteCheckpointStorage(path) as storage:
            with suppress(CorruptCheckpointError):
                # The end may be a table that is still empty; then all of the checkpoint is there.
                assert lineage(await storage.load("order-17")) == lineage(checkpoint)
                assert cut > 5
        assert path.read_bytes() == whole[: len(whole) * cut // 10]
    path.write_bytes(whole)
    async with SQLiteCheckpointStorage(path) as storage:
        assert lineage(await storage.load("order-17")) == lineage(checkpoint)


@pytest.mark.parametrize(
    "planted",
    [
        "CREATE TRIGGER t AFTER UPDATE ON checkpoints BEGIN DELETE FROM records; END",
        "CREATE VIEW v AS SELECT * FROM records",
        "DROP TABLE leases",
        "ALTER TABLE places ADD COLUMN more",
    ],
)
async def test_c61_a_database_that_does_more_than_keep_is_refused(path: Path, planted: str) -> None:
    async with SQLiteCheckpointStorage(path) as storage:
        await grown(storage)
    do(path, planted)
    await refused(path, CorruptCheckpointError, "other tables", "edited")


async def test_a_damaged_lease_is_told(path: Path) -> None:
    async with SQLiteCheckpointStorage(path, leases=True) as storage:
        lease = await storage.take_lease("order-17")
        with pytest.raises(CheckpointLeasedError):
            await storage.take_lease("order-17")
        do(path, "UPDATE leases SET expires = 'soon'")
        for call in (storage.take_lease("order-17"), storage.renew_lease("order-17", lease)):
            with pytest.raises(CorruptCheckpointError, match="lease"):
                await call
        await storage.delete("order-17")
        await storage.take_lease("order-17")


# Words.


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (OSError(28, "No space left on device"), StorageError, ["make room"]),
        (PermissionError(13, "Permission denied", "x-lock"), StorageError, ["the right to", "x-lock"]),
        (sqlite3.OperationalError("Could not decode to UTF-8 column"), CorruptCheckpointError, ["damaged"]),
    ],
)
def test_an_error_says_where_and_what_to_do(
    error: Exception, kind: type[Exception], words: list[str]
) -> None:
    with pytest.raises(kind) as caught, told("the place"):
        raise error
    assert caught.value.__cause__ is error
    for word in ("the place", *words):
        assert word in str(caught.value)


def test_a_database_that_is_being_made_is_not_taken_for_another_programs(tmp_path: Path) -> None:
    """Whoever opens it sees it before it was made, or after, and nothing between."""
    path = str(tmp_path / "runs.db")
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as maker,
        closing(sqlite3.connect(path, isolation_level=None)) as reader,
    ):
        maker.execute("PRAGMA journal_mode = WAL").fetchall()
        begun: list[str] = []

        def meanwhile(statement: str) -> None:
            if "user_version" in statement and not begun:
                begun.append(statement)
                bring_up_to_date(maker, path)

        reader.set_trace_callback(meanwhile)
        assert version_of(reader, path) == 0
        assert begun
        assert version_of(reader, path) == len(SCRIPTS)
