"""What only the SQLite storage has: one file, its modes, its neighbours, who shares it and who reads beside."""

from __future__ import annotations

import asyncio
import base64
import os
import random
import sqlite3
import stat
import subprocess
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from branchpoint.checkpoint import encode_manifest
from branchpoint.errors import CheckpointConflictError, CheckpointNotFoundError, InvalidCallError
from branchpoint.storage.sqlite import SQLiteCheckpointStorage
from branchpoint.storage.sqlite._names import kept_name, shown_name
from tests.storages import create, grown, lineage, shared, state


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "er" / "checkpoints.db"


def rows(path: Path, statement: str, *values: Any) -> list[Any]:
    """Ask the database, past the storage."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        return list(db.execute(statement, values))
    finally:
        db.close()


# The file.


async def test_only_this_user_may_read_it(path: Path) -> None:
    before = os.umask(0)
    try:
        async with SQLiteCheckpointStorage(path) as storage:
            await grown(storage)
            modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
    finally:
        os.umask(before)
    names = [path.name + ending for ending in ("", "-lock", "-next", "-shm", "-wal")]
    assert modes == dict.fromkeys(names, 0o600)
    for folder in (path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_what_sqlite_has_beside_it_is_gone_when_it_is_closed(path: Path) -> None:
    async with SQLiteCheckpointStorage(path) as storage:
        await grown(storage)
        await storage.load("order-17")
    assert sorted(one.name for one in path.parent.iterdir()) == [
        path.name + ending for ending in ("", "-lock", "-next")
    ]
    assert rows(path, "PRAGMA journal_mode") == [("wal",)]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


async def test_nothing_is_made_by_looking(path: Path) -> None:
    async with SQLiteCheckpointStorage(path, lazy_over=0) as storage:
        for look in (storage.load, storage.load_head, storage.load_lineage):
            with pytest.raises(CheckpointNotFoundError, match="order-17"):
                await look("order-17")
        with pytest.raises(CheckpointNotFoundError):
            await storage.load_parts("order-17", ["x"])
        assert await storage.list_checkpoints() == []
        await storage.delete("order-17")
    assert not path.parent.parent.exists()


@pytest.mark.parametrize("name", ["a b?mode=memory#x%41.db", "é\u2028.db", "~", "-x", "a'b\".db"])
async def test_a_path_is_taken_as_it_is(tmp_path: Path, name: str) -> None:
    async with SQLiteCheckpointStorage(tmp_path / name) as storage:
        await grown(storage)
    assert (tmp_path / name).is_file()
    assert {one.name.removeprefix(name) for one in tmp_path.iterdir()} == {"", "-lock", "-next"}


async def test_a_later_change_of_the_working_folder_moves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    async with SQLiteCheckpointStorage("here.db") as storage:
        monkeypatch.chdir(tmp_path / "elsewhere")
        await grown(storage)
    assert (tmp_path / "here.db").is_file()
    assert storage.path == tmp_path / "here.db"
    assert repr(storage) == f"SQLiteCheckpointStorage({str(storage.path)!r}, serialization_format='json')"


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": ""}, {"path": ":memory:"}, {"path": None}, {"path": 5}, {"path": "a\0b"}, {"path": b"a"},
        {"serialization_format": "pickle"}, {"lazy_over": -1}, {"lease_seconds": 0}, {"lease_seconds": "1"},
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(
        InvalidCallError, match=next(iter(wrong)) if ":memory:" not in wrong.values() else "Memory"
    ):
        SQLiteCheckpointStorage(**{"path": tmp_path / "x.db", **wrong})
    assert not list(tmp_path.iterdir())


def test_it_is_not_brought_in_with_the_package() -> None:
    code = (
        "import sys, branchpoint, branchpoint.storage; assert 'sqlite3' not in sys.modules;"
        "from branchpoint.storage.sqlite import SQLiteCheckpointStorage; assert 'sqlite3' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# What is kept in it.


async def test_both_formats_are_listed_and_each_is_opened_with_its_own(path: Path) -> None:
    async with (
        SQLiteCheckpointStorage(path) as readable,
        SQLiteCheckpointStorage(path, serialization_format="msgpack") as small,
    ):
        await grown(readable, "a")
        checkpoint = await grown(small, "b")
        for storage in (readable, small):
            assert [line.checkpoint_id for line in await storage.list_checkpoints()] == ["a", "b"]
        for wrong in (readable.load("b"), small.load("a"), readable.load_lineage("b")):
            with pytest.raises(InvalidCallError, match="serialization_format='"):
                await wrong
        [snapshot] = checkpoint.snapshots[-1:]
        with pytest.raises(InvalidCallError, match="msgpack"):
            await readable.commit_snapshot(
                checkpoint, snapshot, expected_head_snapshot_id=snapshot.snapshot_id
            )
        await small.delete("a")  # readable or not
    assert rows(path, "SELECT checkpoint_id, format FROM checkpoints") == [("b", "msgpack")]


async def test_a_database_of_readable_states_can_be_read_with_its_own_shell(path: Path) -> None:
    async with SQLiteCheckpointStorage(path) as storage:
        await create(storage).commit_snapshot(state(0, text="plain to see"))
    [(found,)] = rows(
        path, "SELECT CAST(data AS TEXT) FROM records WHERE CAST(data AS TEXT) LIKE '%plain to see%'"
    )
    assert '"text":"plain to see"' in found


@pytest.mark.parametrize(
    ("name", "size"),
    [("A" * 22, 16), ("-_09azAZ-_09azAZ-_09ag", 16), ("+" * 21 + "A", 0), ("é" * 21 + "A", 0), ("A" * 21 + "B", 0),
     ("A" * 21, 0), ("A" * 64, 0), ("x", 0)],
)  # fmt: skip
def test_a_name_comes_back_as_it_was_given(name: str, size: int) -> None:
    kept = kept_name(name)
    assert shown_name(kept) == name
    assert isinstance(kept, bytes) is bool(size)
    assert not size or len(kept) == size


async def test_parts_of_any_name_are_kept(path: Path) -> None:
    async with SQLiteCheckpointStorage(path) as storage:
        checkpoint = await grown(storage)
        [snapshot] = checkpoint.snapshots[-1:]
        parts = {"k" * 64: b"1", "A" * 22: b"2", "A" * 21 + "B": b"3", "-": b"4", "5": b""}
        made = _copied(snapshot, snapshot_id="S" * 26, new_parts=parts)
        await storage.commit_snapshot(checkpoint, made, expected_head_snapshot_id=snapshot.snapshot_id)
        assert await storage.load_parts("order-17", [*parts, "missing"]) == parts
        # What is there already may come again, and is the same.
        again = _copied(snapshot, snapshot_id="T" * 26, new_parts={**parts, "new": b"6" * 10})
        await storage.commit_snapshot(checkpoint, again, expected_head_snapshot_id="S" * 26)
        assert await storage.load_parts("order-17", [*parts, "new"]) == {**parts, "new": b"6" * 10}
        records = await storage.load_records("order-17")
        assert {name: records.parts[name] for name in parts} == parts


async def test_parts_are_found_where_they_have_places_and_where_they_wait_for_them(path: Path) -> None:
    async with SQLiteCheckpointStorage(path) as storage, SQLiteCheckpointStorage(path) as bystander:
        checkpoint = await grown(storage, commits=1)
        [snapshot] = checkpoint.snapshots
        head, stored = snapshot.snapshot_id, dict(snapshot.parts())
        chance = random.Random(7)
        for n in range(40):
            # Many of them begin alike, and so share a place.
            names = [base64.urlsafe_b64encode(chance.randbytes(16)).decode()[:22] for _ in range(n)]
            names += [f"AAAA{name[4:]}" for name in names[::2]]
            parts = {name: chance.randbytes(20) for name in names}
            made = _copied(snapshot, snapshot_id=f"9{n:025}", new_parts=parts)
            await storage.commit_snapshot(checkpoint, made, expected_head_snapshot_id=head)
            await grown(bystander, f"run-{n}", commits=1)  # in between
            head = made.snapshot_id
            stored |= parts
            [(waiting,)] = rows(path, "SELECT waiting FROM checkpoints WHERE checkpoint_id = 'order-17'")
            assert waiting < 256
            assert await storage.load_parts("order-17", [*stored, "missing"]) == stored
        assert rows(path, "SELECT count(*) FROM places") == [(len(stored) - waiting,)]
        assert (await storage.load_records("order-17")).parts == stored


async def test_a_lost_reply_is_known_whatever_the_order_of_ids(path: Path) -> None:
    """Ids mostly ascend; those of a machine whose clock is behind do not."""
    async with SQLiteCheckpointStorage(path) as storage:
        checkpoint = await grown(storage, commits=1)
        [snapshot] = checkpoint.snapshots
        head, made = snapshot.snapshot_id, []
        for n, first in enumerate("9990005559"):
            made.append(_copied(snapshot, snapshot_id=f"{first}{n:025}", new_parts={}))
            await storage.commit_snapshot(checkpoint, made[-1], expected_head_snapshot_id=head)
            head = made[-1].snapshot_id
            assert rows(path, "SELECT ascending FROM checkpoints") == [(int(n < 3),)]
            for one in (snapshot, *made):
                for expected in (None, head, snapshot.snapshot_id, "nonsense"):
                    await storage.commit_snapshot(checkpoint, one, expected_head_snapshot_id=expected)
            for other in ("0", "5", "A"):
                late = _copied(snapshot, snapshot_id=other, new_parts={})
                with pytest.raises(CheckpointConflictError):
                    await storage.commit_snapshot(
                        checkpoint, late, expected_head_snapshot_id=snapshot.snapshot_id + "x"
                    )
        lineage = (await storage.load_lineage("order-17")).manifests
        assert [one.snapshot_id for one in lineage] == [one.snapshot_id for one in (snapshot, *made)]


def _copied(snapshot: Any, *, snapshot_id: str, new_parts: dict[str, bytes]) -> Any:
    """As much of another snapshot as a backend looks at."""
    manifest = msgspec.structs.replace(snapshot.manifest, snapshot_id=snapshot_id)
    return SimpleNamespace(manifest=manifest, snapshot_id=snapshot_id, new_parts=new_parts)


async def test_c22_r34_a_delete_leaves_no_row(path: Path) -> None:
    async with SQLiteCheckpointStorage(path, leases=True) as storage:
        await grown(storage)
        await grown(storage, "bystander")
        tables = ("checkpoints", "records", "places", "leases")
        counted = " + ".join(f"(SELECT count(*) FROM {table})" for table in tables)
        before = rows(path, f"SELECT {counted}")
        await (await storage.load("order-17")).prune()
        await storage.take_lease("order-17")
        await storage.delete("order-17")
        await storage.delete("bystander")
        assert rows(path, f"SELECT {counted}") == [(0,)]
        await grown(storage)
        await grown(storage, "bystander")
        assert rows(path, f"SELECT {counted}") == before


async def test_a_page_is_read_from_where_it_begins_until_it_is_full(path: Path) -> None:
    async with SQLiteCheckpointStorage(path) as storage:
        for n in range(12):
            await create(storage, f"run-{n:02}", workflow_name=f"w{n % 2}").commit_snapshot(state(n))
        # What lies before a page or behind it is not even looked at: damage there is not met.
        which = "SELECT header FROM checkpoints WHERE checkpoint_id IN ('run-02', 'run-09')"
        rows(path, f"UPDATE records SET data = x'' WHERE record IN ({which})")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = await storage.list_checkpoints(after="run-02", limit=5)
            assert [line.checkpoint_id for line in found] == [f"run-{n:02}" for n in range(3, 8)]
            assert len(await storage.list_checkpoints(workflow_name="w1", after="run-09")) == 1
        with pytest.warns(RuntimeWarning, match="run-09"):
            assert len(await storage.list_checkpoints(after="run-02")) == 8
        for nothing in ({"after": "\ud800"}, {"workflow_name": "\ud800"}):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert await storage.list_checkpoints(**nothing) == []


async def test_a_lazy_load_reads_header_and_head_alone(path: Path) -> None:
    async with SQLiteCheckpointStorage(path) as whole, SQLiteCheckpointStorage(path, lazy_over=2000) as lazy:
        await grown(whole, commits=8)
        [size] = rows(path, "SELECT bytes FROM checkpoints")
        assert size[0] == sum(map(len, (await whole.load_records("order-17")).parts.values())) > 2000
        records = await lazy.load_records("order-17")
        assert (len(records.manifests), records.parts, records.complete) == (1, {}, False)
        lineage = await lazy.load_lineage("order-17")
        assert (len(lineage.manifests), lineage.parts, lineage.complete) == (8, {}, False)
        lazy.lazy_over = size[0]
        assert (await lazy.load_records("order-17")).complete


# Who shares it.


async def test_storages_of_one_file_share_one_thread(path: Path) -> None:
    before = threading.active_count()
    one, other = SQLiteCheckpointStorage(path), SQLiteCheckpointStorage(path.parent / ".." / "er" / path.name)
    link = path.parent.parent / "link.db"
    path.parent.mkdir(parents=True)
    link.symlink_to(path)
    third = SQLiteCheckpointStorage(link)
    for n, storage in enumerate((one, other, third)):
        await grown(storage, f"run-{n}")
    writers = [thread for thread in threading.enumerate() if thread.name == f"writer of {path.name}"]
    assert len(writers) == 1
    await one.aclose()
    await other.aclose()
    assert writers[0].is_alive()
    await grown(third, "run-3")
    await third.aclose()
    assert not writers[0].is_alive()
    assert threading.active_count() <= before + 6  # those of the loop's own executor
    assert not path.with_name(path.name + "-wal").exists()


async def test_a_storage_that_is_used_after_it_was_closed_opens_again(path: Path) -> None:
    storage = SQLiteCheckpointStorage(path)
    await storage.aclose()
    checkpoint = await grown(storage)
    await storage.aclose()
    await checkpoint.commit_snapshot(state(7))
    await storage.aclose()
    assert len((await storage.load("order-17")).snapshots) == 4
    await storage.aclose()
    await storage.aclose()


async def test_a_storage_that_is_dropped_closes_by_itself(path: Path) -> None:
    for commit_thread in (True, False):
        storage = SQLiteCheckpointStorage(path, commit_thread=commit_thread)
        await grown(storage, f"run {commit_thread}")
        del storage
        while any(path.name in name for name in _held()):
            await asyncio.sleep(0)
        assert not path.with_name(path.name + "-wal").exists()


async def test_what_was_handed_over_when_the_interpreter_ends_is_done(path: Path) -> None:
    code = f"""
import asyncio
from branchpoint.storage.sqlite import SQLiteCheckpointStorage
from tests.storages import create, state
storage = SQLiteCheckpointStorage({str(path)!r})
async def main():
    made = [create(storage, f"run-{{n}}") for n in range(20)]
    for one in made:
        asyncio.ensure_future(one.commit_snapshot(state(0)))
    for _ in range(6):
        await asyncio.sleep(0)
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])
    async with SQLiteCheckpointStorage(path) as storage:
        assert len(await storage.list_checkpoints()) == 20
    assert not path.with_name(path.name + "-wal").exists()


@pytest.mark.parametrize("commit_thread", [True, False])
async def test_the_loops_thread_commits_only_when_it_was_asked_to(path: Path, commit_thread: bool) -> None:
    async with SQLiteCheckpointStorage(path, commit_thread=commit_thread) as storage:
        checkpoint = await grown(storage)
        writers = [thread for thread in threading.enumerate() if thread.name == f"writer of {path.name}"]
        assert bool(writers) is commit_thread
        assert storage.commit_waits is commit_thread
        [snapshot] = checkpoint.snapshots[-1:]
        again = storage.commit_snapshot(
            checkpoint, snapshot, expected_head_snapshot_id=checkpoint.head_snapshot_id
        )
        if commit_thread:
            await again
        else:
            with pytest.raises(StopIteration):  # through when its coroutine is first stepped
                again.send(None)
        await checkpoint.prune()
        assert lineage(await storage.load("order-17")) == lineage(checkpoint)
    mixed = SQLiteCheckpointStorage(path), SQLiteCheckpointStorage(path, commit_thread=False)
    loaded = [await storage.load("order-17") for storage in mixed]
    outcomes = await asyncio.gather(
        *(one.commit_snapshot(state(8)) for one in loaded), return_exceptions=True
    )
    assert sum(isinstance(outcome, CheckpointConflictError) for outcome in outcomes) == 1
    for storage in mixed:
        await storage.aclose()


async def test_the_disk_is_waited_for_unless_the_argument_says_what_it_risks(path: Path) -> None:
    safe, quick = SQLiteCheckpointStorage(path), SQLiteCheckpointStorage(path, lose_newest_on_power_cut=True)
    for storage, level in ((safe, 2), (quick, 1), (safe, 2)):
        await grown(storage, f"run {level}", commits=1)
        connection = storage._use.database()._connection
        assert connection is not None
        assert connection.db.execute("PRAGMA synchronous").fetchone() == (level,)
        await storage.delete(f"run {level}")
    for storage in (safe, quick):
        await storage.aclose()


async def test_reading_goes_on_beside_a_writer(path: Path) -> None:
    async with SQLiteCheckpointStorage(path, lazy_over=0) as storage:
        checkpoint = await grown(storage)
        held = sqlite3.connect(path, isolation_level=None)
        held.execute("BEGIN IMMEDIATE")
        held.execute("DELETE FROM checkpoints")
        committing = asyncio.ensure_future(checkpoint.commit_snapshot(state(7)))
        loaded = await storage.load("order-17")
        await loaded.load_lineage()
        assert len(loaded.snapshots) == 3
        assert (await storage.load_head("order-17")).head_snapshot_id == loaded.head_snapshot_id
        assert len(await storage.list_checkpoints()) == 1
        assert not committing.done()
        held.execute("ROLLBACK")
        held.close()
        await committing
        assert (await storage.load("order-17")).head_snapshot_id == checkpoint.head_snapshot_id


async def test_a_file_that_was_replaced_is_not_written_to_any_more(path: Path) -> None:
    async with SQLiteCheckpointStorage(path) as storage, SQLiteCheckpointStorage(path) as reader:
        gone = await grown(storage)
        await reader.load("order-17")
        for ending in ("", "-wal", "-shm"):
            path.with_name(path.name + ending).unlink()
        with pytest.raises(CheckpointNotFoundError):
            await reader.load("order-17")
        with pytest.raises(CheckpointConflictError, match="deleted"):
            await gone.commit_snapshot(state(7))
        fresh = await grown(storage, commits=1)
        assert lineage(await reader.load("order-17")) == lineage(fresh)
    assert rows(path, "SELECT snapshots FROM checkpoints") == [(1,)]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


async def test_a_folder_that_was_removed_is_made_again(path: Path) -> None:
    async with SQLiteCheckpointStorage(path) as storage:
        await grown(storage)
        for one in path.parent.iterdir():
            one.unlink()
        path.parent.rmdir()
        await grown(storage, commits=1)
        assert len((await storage.load("order-17")).snapshots) == 1


# Forks.


async def test_a_fork_uses_no_connection_of_its_parent(path: Path) -> None:
    """Parent and child go on with storage objects that both have, and neither harms the other."""
    storage = SQLiteCheckpointStorage(path)
    checkpoint = await grown(storage)
    await storage.load("order-17")
    ready, told = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, which this is about
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            assert not [name for name in _held() if path.name in name]
            child = threading.Thread(target=lambda: asyncio.run(_in_child(storage, told)))
            child.start()
            child.join()
            status = 0
        finally:
            os._exit(status)
    os.close(told)
    try:
        await checkpoint.commit_snapshot(state(7))
        assert await asyncio.to_thread(os.read, ready, 4) == b"done"
    finally:
        os.close(ready)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len((await storage.load("order-17")).snapshots) == 4
    assert shared((await storage.load("of the child")).head_snapshot) == {"n": 29}
    await storage.aclose()
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


def _held() -> list[str]:
    """What this process has open, by name."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            names.append(os.readlink(f"/proc/self/fd/{number}"))
    return names


async def _in_child(storage: SQLiteCheckpointStorage, told: int) -> None:
    assert len((await storage.load("order-17")).snapshots) >= 3
    checkpoint = await grown(storage, "of the child", commits=30)
    assert lineage(await storage.load("of the child")) == lineage(checkpoint)
    await storage.aclose()
    os.write(told, b"done")


async def test_lineages_are_stored_in_the_bytes_that_the_format_says(path: Path) -> None:
    async with SQLiteCheckpointStorage(path) as storage:
        checkpoint = await grown(storage)
    found = [
        data for (data,) in rows(path, "SELECT data FROM records WHERE name GLOB '.[0-9]*' ORDER BY record")
    ]
    assert found == [encode_manifest(one.manifest, format="json") for one in checkpoint.snapshots]
