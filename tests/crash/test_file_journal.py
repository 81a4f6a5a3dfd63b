"""A file storage whose process or disk fails at the worst moment, and one whose files were damaged."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from branchpoint.checkpoint import Checkpoint, Format
from branchpoint.errors import (
    CheckpointNotFoundError,
    CorruptCheckpointError,
    DataError,
    StorageError,
)
from branchpoint.storage import FileCheckpointStorage
from branchpoint.storage._journal import PREAMBLE_SIZE, Slot, new_preamble, read_preamble
from tests.journals import FailingDisk, HesitantDisk, bodies_of, ends_of, journal_of, reseal
from tests.storages import create, grown, lineage, shared, state

ROOT = Path(__file__).resolve().parents[2]

Open = Callable[[], FileCheckpointStorage]


@pytest.fixture(params=["json", "msgpack"])
def format(request: pytest.FixtureRequest) -> Format:
    kind: Format = request.param
    return kind


@pytest.fixture
def reopen(runs: Path, format: Format) -> Open:
    return lambda: FileCheckpointStorage(runs, serialization_format=format)


# Files that were damaged.


async def test_c54_a_journal_cut_anywhere_is_reported_and_kept(runs: Path, reopen: Open) -> None:
    stale = await grown(reopen(), commits=4)
    before = lineage(stale)
    await grown(reopen(), "bystander")
    path = journal_of(runs)
    data = path.read_bytes()
    for length in {0, *range(0, len(data), 10), len(data) - 1}:
        path.write_bytes(data[:length])
        with pytest.raises(CorruptCheckpointError, match="order-17"):
            await reopen().load("order-17")
        with pytest.raises(CorruptCheckpointError, match="order-17"):
            await reopen().load_head("order-17")
        for change in (stale.commit_snapshot(state(9)), stale.prune(), stale.refresh()):
            with pytest.raises(CorruptCheckpointError, match="order-17"):
                await change
        assert path.read_bytes() == data[:length]
    assert lineage(stale) == before
    assert len((await reopen().load("bystander")).snapshots) == 3
    with pytest.warns(RuntimeWarning, match="order-17"):
        assert [line.checkpoint_id for line in await reopen().list_checkpoints()] == ["bystander"]
    path.write_bytes(data)
    assert lineage(await reopen().load("order-17")) == lineage(stale)
    await stale.commit_snapshot(state(9))


async def test_c54_a_changed_byte_is_reported_or_changes_nothing(runs: Path, reopen: Open) -> None:
    checkpoint = await grown(reopen(), commits=3)
    path = journal_of(runs)
    data = path.read_bytes()
    head = ends_of(path)[-2]
    for n in [*range(0, len(data), 7), *range(head, len(data), 3), len(data) - 1]:
        bad = bytearray(data)
        bad[n] ^= 0x01
        path.write_bytes(bad)
        if n < PREAMBLE_SIZE and (loaded := await _loaded_or_none(reopen())) is not None:
            assert lineage(loaded) == lineage(checkpoint)  # one of the two slots; the other one speaks
            assert loaded.parts == checkpoint.parts
        else:
            with pytest.raises(DataError, match="order-17"):
                await reopen().load("order-17")
        assert path.read_bytes() == bad
    path.write_bytes(data)
    assert lineage(await reopen().load("order-17")) == lineage(checkpoint)


async def _loaded_or_none(storage: FileCheckpointStorage) -> Checkpoint | None:
    try:
        return await storage.load("order-17")
    except DataError:
        return None


async def test_a_damaged_end_is_never_written_over(runs: Path, reopen: Open) -> None:
    stale = await grown(reopen(), commits=3)
    path = journal_of(runs)
    data = bytearray(path.read_bytes())
    data[-5] ^= 0x10
    path.write_bytes(data)
    other = create(FileCheckpointStorage(runs, serialization_format=stale.format))
    for one in (stale, other):
        one.restart_from(None)
    with pytest.raises(CorruptCheckpointError, match="order-17"):
        await other.commit_snapshot(state(9))
    assert path.read_bytes() == data
    await reopen().delete("order-17")
    with pytest.raises(CheckpointNotFoundError):
        await reopen().load("order-17")


@pytest.mark.parametrize("where", ["header", "first", "last", "slot"])
@pytest.mark.parametrize("known", ["seen", "fresh", "head only", "grown elsewhere"])
async def test_r33_a_commit_that_succeeds_can_be_loaded(
    runs: Path, reopen: Open, where: str, known: str
) -> None:
    """Damage is found by the commit; only damage to older commits, below what was seen, is not."""
    writer = await grown(reopen(), commits=4)
    path = journal_of(runs)
    storage = reopen()
    checkpoint = await storage.load("order-17")
    if known == "grown elsewhere":
        await writer.commit_snapshot(state(5))
        await writer.commit_snapshot(state(6))
        await checkpoint.refresh()
    elif known != "seen":
        storage = reopen()
        checkpoint = await _attached(storage, checkpoint)
        if known == "head only":
            await storage.load_head("order-17")
            await storage.list_checkpoints()
    good, ends = path.read_bytes(), ends_of(path)
    place = {"header": ends[0] - 5, "first": ends[1] - 5, "last": ends[-1] - 5, "slot": 64 + 15}[where]
    for bit in (0, 3):
        bad = bytearray(good)
        bad[place] ^= 1 << bit
        path.write_bytes(bad)
        if where == "first" and known in ("seen", "grown elsewhere"):
            continue
        try:
            snapshot = await checkpoint.commit_snapshot(state(9))
        except CorruptCheckpointError as error:
            assert "order-17" in str(error)
            assert path.read_bytes() == bad
        else:
            assert where == "slot"
            assert (await reopen().load("order-17")).head_snapshot_id == snapshot.snapshot_id
            return
    path.write_bytes(good)
    await checkpoint.commit_snapshot(state(9))
    assert lineage(await reopen().load("order-17")) == lineage(checkpoint)


async def _attached(storage: FileCheckpointStorage, loaded: Checkpoint) -> Checkpoint:
    """The loaded checkpoint, over a storage object that has not read its journal."""
    return Checkpoint.restore(
        header=loaded.header,
        manifests=[one.manifest for one in loaded.snapshots],
        head_snapshot_id=loaded.snapshots[-1].snapshot_id,
        parts=loaded.parts,
        checkpoint_storage=storage,
    )


async def test_a_record_that_another_writer_added_is_checked_before_the_next_one(
    runs: Path, reopen: Open
) -> None:
    storage = reopen()
    mine = await grown(storage, commits=2)
    theirs = await reopen().load("order-17")
    await theirs.commit_snapshot(state(3))
    middle = journal_of(runs).stat().st_size - 5
    last = await theirs.commit_snapshot(state(4))
    bad = bytearray(journal_of(runs).read_bytes())
    bad[middle] ^= 1
    journal_of(runs).write_bytes(bad)
    with pytest.raises(CorruptCheckpointError, match="order-17"):
        await storage.commit_snapshot(mine, last, expected_head_snapshot_id=last.snapshot_id)
    assert journal_of(runs).read_bytes() == bad


@pytest.mark.parametrize("loss", ["cut", "cut inside", "changed", "zeros"])
async def test_r33_a_damaged_slot_never_hides_the_commit_it_promised(
    runs: Path, reopen: Open, loss: str
) -> None:
    stale = await grown(reopen(), commits=3)
    path = journal_of(runs)
    good, ends = path.read_bytes(), ends_of(path)
    bad = bytearray(good)
    bad[_slot_in_force(good) + 15] = ord("x")
    path.write_bytes(bad)
    assert lineage(await reopen().load("order-17")) == lineage(stale)  # its record is there
    if loss.startswith("cut"):
        del bad[ends[-2] if loss == "cut" else ends[-1] - 1 :]
    elif loss == "changed":
        bad[-5] ^= 1
    else:
        bad[ends[-2] :] = bytes(len(bad) - ends[-2])
    path.write_bytes(bad)
    for call in (reopen().load, reopen().load_head):
        with pytest.raises(CorruptCheckpointError, match="order-17"):
            await call("order-17")
    with pytest.raises(CorruptCheckpointError, match="order-17"):
        await stale.commit_snapshot(state(9))
    with pytest.warns(RuntimeWarning, match="order-17"):
        assert await reopen().list_checkpoints() == []
    assert path.read_bytes() == bad


def _slot_in_force(data: bytes) -> int:
    return 64 + 62 * read_preamble(data, where="here").index


# What lies beyond the committed length.


async def test_r33_a_torn_tail_is_never_shown_and_cut_off_by_the_next_write(runs: Path, reopen: Open) -> None:
    checkpoint = await grown(reopen(), commits=3)
    path = journal_of(runs)
    data, ends = path.read_bytes(), ends_of(path)
    record = data[ends[-2] :]
    for tail in (b"\x00", b"\n", record[:1], record[: len(record) // 2], record[:-1], record, b"x" * 5000):
        size = path.stat().st_size
        with path.open("ab") as journal:
            journal.write(tail)
        loaded = await reopen().load("order-17")
        assert lineage(loaded) == lineage(checkpoint)
        assert (await reopen().load_head("order-17")).head_snapshot_id == checkpoint.head_snapshot_id
        assert path.stat().st_size == size + len(tail)  # reading mends nothing
        await checkpoint.commit_snapshot(state(9, tail=len(tail)))
        assert path.stat().st_size == ends_of(path)[-1]
        assert lineage(await reopen().load("order-17")) == lineage(checkpoint)
    assert len(bodies_of(path)[1]) == 1 + 3 + 7


async def test_r33_a_whole_record_beyond_the_committed_length_counts(
    runs: Path, reopen: Open, format: Format
) -> None:
    checkpoint = await grown(reopen(), commits=4)
    path = journal_of(runs)
    data, ends = path.read_bytes(), ends_of(path)
    for promised in (1, 2, 3):
        path.write_bytes(
            new_preamble(format, Slot(ends[promised], ends[promised - 1])) + data[PREAMBLE_SIZE:]
        )
        assert lineage(await reopen().load("order-17")) == lineage(checkpoint)
        assert (await reopen().load_head("order-17")).head_snapshot_id == checkpoint.head_snapshot_id
        for length in range(ends[promised], len(data), 11):
            path.write_bytes(path.read_bytes()[:PREAMBLE_SIZE] + data[PREAMBLE_SIZE:length])
            whole = sum(end <= length for end in ends[1:])
            assert len((await reopen().load("order-17")).snapshots) == whole
    loaded = await reopen().load("order-17")
    await loaded.commit_snapshot(state(9))
    assert lineage(await reopen().load("order-17")) == lineage(loaded)


# A process that is killed.

CHILD = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from branchpoint.storage import FileCheckpointStorage
from tests.journals import StoppingDisk
from tests.storages import create, state

async def work(folder, format, step, kind):
    disk = StoppingDisk(step)
    storage = FileCheckpointStorage(folder, serialization_format=format, disk=disk)
    if kind == "first":
        await create(storage).commit_snapshot(state(0, by="child"))
    elif kind == "next":
        await (await storage.load("order-17")).commit_snapshot(state(9, by="child"))
    else:
        await (await storage.load("order-17")).prune()

asyncio.run(work(*sys.argv[2:]))
"""


def killed(runs: Path, format: Format, step: str, kind: str) -> None:
    """Let a process do one thing and kill it when it has come to `step`."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(ROOT), str(runs), format, step, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == step
        os.kill(child.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("step", "landed"),
    [("write", False), ("half", False), ("written", True), ("synced", True), ("slot", True)],
)
async def test_r33_killed_inside_a_commit(
    runs: Path, reopen: Open, format: Format, step: str, landed: bool
) -> None:
    checkpoint = await grown(reopen(), commits=2)
    killed(runs, format, step, "next")
    loaded = await reopen().load("order-17")
    assert len(loaded.snapshots) == (3 if landed else 2)
    assert shared(loaded.head_snapshot) == ({"by": "child"} if landed else {"n": 1})
    await loaded.commit_snapshot(state(10, by="next"))
    assert lineage(await reopen().load("order-17")) == lineage(loaded)
    assert lineage(loaded)[:2] == lineage(checkpoint)


@pytest.mark.parametrize(
    ("step", "landed"),
    [("half", False), ("written", False), ("new", False), ("named", True), ("folder", True)],
)
async def test_r33_killed_inside_a_first_commit(
    runs: Path, reopen: Open, format: Format, step: str, landed: bool
) -> None:
    killed(runs, format, step, "first")
    left = [name for name in os.listdir(runs) if name.startswith(".tmp-")]
    assert len(left) == 1
    listed = [line.checkpoint_id for line in await reopen().list_checkpoints()]
    if landed:
        assert listed == ["order-17"]
        assert shared((await reopen().load("order-17")).head_snapshot) == {"by": "child"}
    else:
        assert listed == []
        with pytest.raises(CheckpointNotFoundError):
            await reopen().load("order-17")
        await grown(reopen())
    await grown(reopen(), "another")
    assert not [name for name in os.listdir(runs) if name.startswith(".tmp-")]


@pytest.mark.parametrize(
    ("step", "landed"), [("half", False), ("new", False), ("named", True), ("folder", True)]
)
async def test_r33_killed_inside_a_prune(
    runs: Path, reopen: Open, format: Format, step: str, landed: bool
) -> None:
    checkpoint = await grown(reopen(), commits=4)
    killed(runs, format, step, "prune")
    loaded = await reopen().load("order-17")
    assert len(loaded.snapshots) == (1 if landed else 4)
    assert loaded.head_snapshot_id == checkpoint.head_snapshot_id
    assert shared(loaded.head_snapshot) == {"n": 3}
    await loaded.prune()
    await loaded.commit_snapshot(state(9))
    assert len((await reopen().load("order-17")).snapshots) == 2


COMMITTER = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from branchpoint.storage import FileCheckpointStorage
from tests.storages import create, state

async def work(folder, format):
    checkpoint = create(FileCheckpointStorage(folder, serialization_format=format))
    for n in range(100_000):
        print((await checkpoint.commit_snapshot(state(n, n=n, text="x" * 2000))).snapshot_id, flush=True)

asyncio.run(work(*sys.argv[2:]))
"""


@pytest.mark.parametrize("lines", [1, 2, 20, 60])
async def test_r33_whatever_was_reported_before_a_kill_is_there(
    runs: Path, reopen: Open, format: Format, lines: int
) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", COMMITTER, str(ROOT), str(runs), format], stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        reported = [child.stdout.readline().strip() for _ in range(lines)]
        os.kill(child.pid, signal.SIGKILL)
        reported += [line.strip() for line in child.stdout if line.endswith("\n")]
    loaded = await reopen().load("order-17")
    stored = [one.snapshot_id for one in loaded.snapshots]
    assert stored[: len(reported)] == reported
    assert len(stored) <= len(reported) + 1  # the last one may not have lived to report
    await loaded.commit_snapshot(state(0))
    assert lineage(await reopen().load("order-17")) == lineage(loaded)


# A disk that fails.


@pytest.mark.parametrize("room", [0, 1, 50, 400])
async def test_c55_a_full_disk_changes_nothing_and_the_next_commit_works(
    runs: Path, reopen: Open, format: Format, room: int
) -> None:
    disk = FailingDisk()
    checkpoint = await grown(FileCheckpointStorage(runs, serialization_format=format, disk=disk), commits=2)
    path = journal_of(runs)
    before, known = path.read_bytes(), lineage(checkpoint)
    disk.room = room
    with pytest.raises(StorageError, match=r"order-17.*No space") as caught:
        await checkpoint.commit_snapshot(state(3, text="x" * 500))
    assert isinstance(caught.value.__cause__, OSError)
    assert path.read_bytes() == before
    assert lineage(checkpoint) == known
    assert checkpoint.in_use_by is None
    disk.mend()
    await checkpoint.commit_snapshot(state(3, text="x" * 500))
    assert lineage(await reopen().load("order-17")) == lineage(checkpoint)
    assert len(checkpoint.snapshots) == 3


async def test_c55_a_disk_that_cannot_sync_changes_nothing(runs: Path, reopen: Open, format: Format) -> None:
    disk = FailingDisk()
    checkpoint = await grown(FileCheckpointStorage(runs, serialization_format=format, disk=disk), commits=2)
    before = journal_of(runs).read_bytes()
    disk.broken = {"sync"}
    with pytest.raises(StorageError, match="order-17"):
        await checkpoint.commit_snapshot(state(3))
    assert journal_of(runs).read_bytes() == before
    disk.mend()
    await checkpoint.commit_snapshot(state(3))
    assert lineage(await reopen().load("order-17")) == lineage(checkpoint)


async def test_a_slot_that_cannot_be_written_does_not_undo_a_durable_commit(
    runs: Path, reopen: Open, format: Format
) -> None:
    disk = FailingDisk()
    checkpoint = await grown(FileCheckpointStorage(runs, serialization_format=format, disk=disk), commits=2)
    probe = await grown(reopen(), "probe", commits=2)
    size = journal_of(runs, "probe").stat().st_size
    await probe.commit_snapshot(state(3, n=3))
    disk.room = journal_of(runs, "probe").stat().st_size - size  # the record, and nothing of the slot
    await checkpoint.commit_snapshot(state(3, n=3))
    assert disk.room == 0
    assert lineage(await reopen().load("order-17")) == lineage(checkpoint)
    disk.mend()
    await checkpoint.commit_snapshot(state(4))
    assert lineage(await reopen().load("order-17")) == lineage(checkpoint)


@pytest.mark.parametrize("failure", ["room", "sync", "sync_folder"])
async def test_c55_a_first_commit_that_fails_leaves_nothing(
    runs: Path, reopen: Open, format: Format, failure: str
) -> None:
    disk = FailingDisk()
    checkpoint = create(FileCheckpointStorage(runs, serialization_format=format, disk=disk))
    if failure == "room":
        disk.room = 300
    else:
        disk.broken = {failure}
    with pytest.raises(StorageError, match="order-17"):
        await checkpoint.commit_snapshot(state(0))
    assert [name for name in os.listdir(runs) if not name.startswith(".lock-")] == []
    with pytest.raises(CheckpointNotFoundError):
        await reopen().load("order-17")
    disk.mend()
    await checkpoint.commit_snapshot(state(0))
    assert lineage(await reopen().load("order-17")) == lineage(checkpoint)


@pytest.mark.parametrize("failure", ["room", "sync"])
async def test_a_prune_that_fails_leaves_the_old_journal(
    runs: Path, reopen: Open, format: Format, failure: str
) -> None:
    disk = FailingDisk()
    checkpoint = await grown(FileCheckpointStorage(runs, serialization_format=format, disk=disk), commits=4)
    before = journal_of(runs).read_bytes()
    if failure == "room":
        disk.room = 300
    else:
        disk.broken = {failure}
    with pytest.raises(StorageError, match="order-17"):
        await checkpoint.prune()
    assert journal_of(runs).read_bytes() == before
    assert len(checkpoint.snapshots) == 4
    assert not [name for name in os.listdir(runs) if name.startswith(".tmp-")]
    disk.mend()
    await checkpoint.prune()
    assert len((await reopen().load("order-17")).snapshots) == 1


async def test_a_prune_whose_last_sync_failed_is_settled_and_made_durable_by_the_next_commit(
    runs: Path, reopen: Open, format: Format
) -> None:
    disk = FailingDisk()
    checkpoint = await grown(FileCheckpointStorage(runs, serialization_format=format, disk=disk), commits=4)
    disk.broken = {"sync_folder"}
    assert len(await checkpoint.prune()) == 3
    assert lineage(await reopen().load("order-17")) == lineage(checkpoint)
    size = journal_of(runs).stat().st_size
    with pytest.raises(StorageError, match="order-17"):  # the new file's name is not durable yet
        await checkpoint.commit_snapshot(state(5))
    assert journal_of(runs).stat().st_size == size
    disk.mend()
    await checkpoint.commit_snapshot(state(5))
    assert lineage(await reopen().load("order-17")) == lineage(checkpoint)
    assert len(checkpoint.snapshots) == 2


async def test_a_delete_is_only_done_when_it_is_durable(runs: Path, format: Format) -> None:
    disk = FailingDisk()
    storage = FileCheckpointStorage(runs, serialization_format=format, disk=disk)
    await grown(storage)
    disk.broken = {"sync_folder"}
    for _ in range(2):
        with pytest.raises(StorageError, match=r"order-17.*check the disk"):
            await storage.delete("order-17")
    disk.mend()
    await storage.delete("order-17")
    # Whoever deletes what is not there cannot know whether somebody else's delete was made durable.
    await FileCheckpointStorage(runs, serialization_format=format).delete("order-17")
    disk.broken = {"sync_folder"}
    with pytest.raises(StorageError, match="order-17"):
        await storage.delete("order-17")


async def test_a_prune_that_would_lose_something_removes_nothing(runs: Path, reopen: Open) -> None:
    storage = reopen()
    checkpoint = await grown(storage, commits=3)
    before = journal_of(runs).read_bytes()
    header = msgspec.structs.replace(checkpoint.header, generation=1)
    head = checkpoint.head_snapshot_id
    assert head is not None
    for keep, parts in (([head], frozenset({"A" * 22})), (["nobody", head], frozenset(checkpoint.parts))):
        with pytest.raises(CorruptCheckpointError, match="order-17"):
            await storage.prune(
                checkpoint, header=header, keep=keep, parts=parts, expected_head_snapshot_id=head
            )
        assert journal_of(runs).read_bytes() == before


async def test_a_prune_keeps_the_head_findable_before_a_record_of_a_later_version(
    runs: Path, reopen: Open, format: Format
) -> None:
    checkpoint = await grown(reopen(), commits=3)
    _, bodies = bodies_of(journal_of(runs))
    encode = msgspec.json.encode if format == "json" else msgspec.msgpack.encode
    reseal(journal_of(runs), [*bodies, encode({"kind": "names", "must": False, "names": {}})])
    await checkpoint.prune()
    assert len(bodies_of(journal_of(runs))[1]) == 3
    assert (await reopen().load_head("order-17")).head_snapshot_id == checkpoint.head_snapshot_id
    assert [line.head_snapshot_id for line in await reopen().list_checkpoints()] == [
        checkpoint.head_snapshot_id
    ]
    await checkpoint.commit_snapshot(state(9))
    assert lineage(await reopen().load("order-17")) == lineage(checkpoint)


async def test_a_folder_that_vanishes_is_an_error_of_the_storage(tmp_path: Path, format: Format) -> None:
    storage = FileCheckpointStorage(tmp_path / "deep" / "runs", serialization_format=format)
    checkpoint = await grown(storage, commits=1)
    assert (tmp_path / "deep").stat().st_mode & 0o777 == 0o700
    for path in storage.path.iterdir():
        path.unlink()
    storage.path.rmdir()
    with pytest.raises(CheckpointNotFoundError):
        await storage.load("order-17")
    with pytest.raises(StorageError):
        await checkpoint.commit_snapshot(state(1))
    (tmp_path / "file").touch()
    blocked = FileCheckpointStorage(tmp_path / "file" / "runs")
    with pytest.raises(StorageError, match="order-17"):
        await create(blocked).commit_snapshot(state(0))
    with pytest.raises(StorageError):
        await blocked.load("order-17")


async def test_r33_a_reader_never_sees_what_is_not_yet_durable(
    runs: Path, reopen: Open, format: Format
) -> None:
    disk = HesitantDisk()
    checkpoint = await grown(FileCheckpointStorage(runs, serialization_format=format, disk=disk), commits=2)
    disk.armed = True
    committing = asyncio.create_task(checkpoint.commit_snapshot(state(3)))
    await asyncio.to_thread(disk.reached.wait)
    assert len(bodies_of(journal_of(runs))[1]) == 1 + 3  # written, not durable, and soon to be taken back
    reading = [
        asyncio.create_task(reopen().load("order-17")),
        asyncio.create_task(reopen().load_head("order-17")),
        asyncio.create_task(reopen().list_checkpoints()),
    ]
    # A reader that waits is right however long this takes; one that does not has answered by then.
    early, _ = await asyncio.wait(reading, timeout=0.1)
    disk.go.set()
    with pytest.raises(StorageError):
        await committing
    loaded, head, listed = await asyncio.gather(*reading)
    assert not early
    assert lineage(loaded) == lineage(checkpoint)
    assert head.head_snapshot_id == listed[0].head_snapshot_id == checkpoint.head_snapshot_id


def test_many_readers_never_see_half_a_commit(runs: Path, format: Format) -> None:
    storage = FileCheckpointStorage(runs, serialization_format=format)

    async def read(done: asyncio.Event) -> int:
        count = 0
        while not done.is_set():
            loaded = await storage.load("order-17")
            assert shared(loaded.head_snapshot)["n"] == len(loaded.snapshots) - 1
            count += 1
        return count

    async def work() -> None:
        done = asyncio.Event()
        checkpoint = await grown(storage, commits=1)
        reading = [asyncio.create_task(read(done)) for _ in range(3)]
        for n in range(1, 60):
            await checkpoint.commit_snapshot(state(n, n=n, text="x" * 5000))
        done.set()
        assert all(await asyncio.gather(*reading))

    asyncio.run(work())
