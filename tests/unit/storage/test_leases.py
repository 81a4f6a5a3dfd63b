"""The lease of a file storage: a small readable file beside the journal, which nothing else takes for its own."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchpoint import clock
from branchpoint.checkpoint import Lease
from branchpoint.errors import (
    CheckpointLeasedError,
    CheckpointNotFoundError,
    CorruptCheckpointError,
    InvalidCallError,
    StorageError,
    UnknownVersionError,
)
from branchpoint.storage import FileCheckpointStorage, MemoryCheckpointStorage
from branchpoint.storage._names import file_name, lease_name, stripe, temporary_name
from branchpoint.testing._place import MovableClock
from tests.journals import FailingDisk
from tests.storages import create, grown, state
from tests.unit.storage.test_names import HOSTILE, folded

ID = "order-17"


@pytest.fixture
def time() -> Iterator[MovableClock]:
    with clock.injected(MovableClock()) as moved:
        assert isinstance(moved, MovableClock)
        yield moved


def opened(folder: Path, **more: Any) -> FileCheckpointStorage:
    return FileCheckpointStorage(folder, leases=True, **more)


def lease_of(folder: Path, checkpoint_id: str = ID) -> Path:
    return folder / lease_name(checkpoint_id)


def names(folder: Path) -> list[str]:
    """What is in a folder besides its locks."""
    return sorted(name for name in os.listdir(folder) if not name.startswith(".lock-"))


# The record.


async def test_the_record_can_be_read_and_belongs_to_this_user_alone(runs: Path) -> None:
    lease = await opened(runs, lease_seconds=60).take_lease(ID)
    found = json.loads(lease_of(runs).read_text(encoding="utf-8"))
    expires = datetime.fromisoformat(found.pop("expires"))
    assert found == {"version": 1, "checkpoint_id": ID, "token": lease.token, "seconds": 60.0}
    assert timedelta(seconds=55) < expires - clock.now() <= timedelta(seconds=60)
    assert stat.S_IMODE(lease_of(runs).stat().st_mode) == 0o600
    assert lease == Lease(lease.token, 60.0)


async def test_what_was_taken_is_renewed_and_given_back(runs: Path, time: MovableClock) -> None:
    storage = opened(runs)
    lease = await storage.take_lease(ID)
    before = lease_of(runs).read_bytes()
    time.ahead += timedelta(seconds=20)
    await storage.renew_lease(ID, lease)
    assert lease_of(runs).read_bytes() != before
    await storage.end_lease(ID, lease)
    assert names(runs) == []
    await storage.end_lease(ID, lease)  # twice is fine
    with pytest.raises(CheckpointLeasedError, match="no longer leased by this run"):
        await storage.renew_lease(ID, lease)
    assert names(runs) == []


async def test_a_lease_that_passed_on_is_neither_renewed_nor_removed(runs: Path, time: MovableClock) -> None:
    storage = opened(runs)
    mine = await storage.take_lease(ID)
    time.ahead += timedelta(seconds=31)
    await opened(runs).take_lease(ID)
    theirs = lease_of(runs).read_bytes()
    with pytest.raises(CheckpointLeasedError, match="passed on"):
        await storage.renew_lease(ID, mine)
    await storage.end_lease(ID, mine)
    assert lease_of(runs).read_bytes() == theirs


async def test_giving_back_where_nothing_ever_was_makes_nothing(tmp_path: Path) -> None:
    await opened(tmp_path / "none").end_lease(ID, Lease("one", 30.0))
    assert not (tmp_path / "none").exists()


async def test_the_folder_is_made_when_a_lease_is_the_first_thing_in_it(tmp_path: Path) -> None:
    storage = opened(tmp_path / "new" / "runs")
    await storage.take_lease(ID)
    assert names(storage.path) == [lease_of(storage.path).name]


@pytest.mark.parametrize("seconds", [0, -1, "30", None])
@pytest.mark.parametrize("cls", [FileCheckpointStorage, MemoryCheckpointStorage])
def test_a_lease_lasts_a_number_of_seconds(tmp_path: Path, cls: Any, seconds: Any) -> None:
    place = (tmp_path,) if cls is FileCheckpointStorage else ()
    with pytest.raises(InvalidCallError, match="lease_seconds"):
        cls(*place, leases=True, lease_seconds=seconds)


# Damage.

NO_LEASE = {
    "empty, as a power cut leaves it": b"",
    "half a record": b'{"version":1,"checkpoint_id":"order-17","tok',
    "zeros, as a power cut leaves them": bytes(200),
    "not text": b"\xff\xfe\x00\x80",
    "another value": b"[]",
    "a lone surrogate": b'{"version":1,"checkpoint_id":"\\ud800","token":"t","expires":1,"seconds":1}',
    "no version": b"{}",
    "a version that is none": b'{"version":"1"}',
    "nothing but a version": b'{"version":1}',
    "a naive time": (
        b'{"version":1,"checkpoint_id":"order-17","token":"t","expires":"2999-01-01T00:00:00","seconds":30}'
    ),
    "seconds that are none": (
        b'{"version":1,"checkpoint_id":"order-17","token":"t","expires":"2999-01-01T00:00:00Z","seconds":-1}'
    ),
    "that of another checkpoint": (
        b'{"version":1,"checkpoint_id":"order-18","token":"t","expires":"2999-01-01T00:00:00Z","seconds":30}'
    ),
}


@pytest.mark.parametrize("data", NO_LEASE.values(), ids=list(NO_LEASE))
async def test_what_is_no_lease_of_this_checkpoint_leases_nothing(runs: Path, data: bytes) -> None:
    storage = opened(runs)
    checkpoint = await grown(storage, commits=1)
    lease_of(runs).write_bytes(data)
    await checkpoint.commit_snapshot(state(2))
    with pytest.raises(CheckpointLeasedError, match="no longer leased"):
        await storage.renew_lease(ID, Lease("t", 30.0))
    await storage.end_lease(ID, Lease("t", 30.0))
    assert lease_of(runs).read_bytes() == data
    lease = await storage.take_lease(ID)
    with pytest.raises(CheckpointLeasedError):
        await checkpoint.commit_snapshot(state(3))
    await storage.end_lease(ID, lease)
    await checkpoint.commit_snapshot(state(3))


async def test_a_lease_of_a_newer_version_is_not_taken_for_none(runs: Path) -> None:
    storage = opened(runs)
    checkpoint = await grown(storage, commits=1)
    lease_of(runs).write_bytes(b'{"version":2,"who":"knows"}')
    with pytest.raises(UnknownVersionError, match="of version 2"):
        await storage.take_lease(ID)
    with pytest.raises(UnknownVersionError, match=f"'{ID}'"):
        await checkpoint.commit_snapshot(state(2))
    assert len((await storage.load(ID)).snapshots) == 1


@pytest.mark.parametrize("there", ["folder", "link"])
async def test_what_is_no_file_is_named_and_left(runs: Path, tmp_path: Path, there: str) -> None:
    storage = opened(runs)
    checkpoint = await grown(storage, commits=1)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"precious")
    if there == "folder":
        lease_of(runs).mkdir()
    else:
        lease_of(runs).symlink_to(elsewhere)
    for call in (storage.take_lease(ID), checkpoint.commit_snapshot(state(2))):
        with pytest.raises(CorruptCheckpointError, match=rf"{lease_name(ID)}: this is .*; remove it"):
            await call
    assert elsewhere.read_bytes() == b"precious"
    assert len((await storage.load(ID)).snapshots) == 1


# Disks that fail.


async def test_a_full_disk_leaves_the_lease_as_it_was_and_no_half_of_another(
    runs: Path, time: MovableClock
) -> None:
    disk = FailingDisk()
    storage = opened(runs, disk=disk)
    lease = await storage.take_lease(ID)
    before = lease_of(runs).read_bytes()
    for room in (0, 1, len(before) - 1):
        disk.room = room
        with pytest.raises(StorageError, match=r"renewing the lease failed.*make room") as caught:
            await storage.renew_lease(ID, lease)
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == errno.ENOSPC
        assert names(runs) == [lease_of(runs).name]
        assert lease_of(runs).read_bytes() == before
    disk.mend()
    await storage.renew_lease(ID, lease)


async def test_nothing_is_synced_since_no_holder_outlives_a_power_cut(runs: Path) -> None:
    disk = FailingDisk()
    storage = opened(runs, disk=disk)
    await storage.take_lease("another")
    disk.broken = {"sync", "sync_folder"}
    lease = await storage.take_lease(ID)
    await storage.renew_lease(ID, lease)
    await storage.end_lease(ID, lease)


async def test_a_record_that_was_half_written_when_its_writer_died_is_swept(runs: Path) -> None:
    torn = runs / temporary_name(stripe(ID, 64), "dead")
    torn.write_bytes(b'{"version":1,')
    await opened(runs).take_lease(ID)
    assert names(runs) == [lease_of(runs).name]


# Beside the journal.


async def test_a_lease_is_no_checkpoint(runs: Path) -> None:
    storage = opened(runs)
    await storage.take_lease(ID)
    await storage.take_lease("another")
    await grown(FileCheckpointStorage(runs), commits=1)
    assert [line.checkpoint_id for line in await storage.list_checkpoints()] == [ID]
    with pytest.raises(CheckpointNotFoundError):
        await storage.load("another")


@pytest.mark.parametrize("leases", [True, False])
@pytest.mark.parametrize("commits", [0, 2])
async def test_delete_leaves_nothing(runs: Path, leases: bool, commits: int) -> None:
    await opened(runs).take_lease(ID)
    kept = await opened(runs).take_lease("another")
    await grown(FileCheckpointStorage(runs), commits=commits)
    await FileCheckpointStorage(runs, leases=leases).delete(ID)
    assert names(runs) == [lease_of(runs, "another").name]
    await opened(runs).renew_lease("another", kept)


async def test_the_lease_of_a_journal_that_somebody_made_meanwhile_is_left(runs: Path) -> None:
    """Between the look for a journal and the lock, a first commit lands: its lease is in use."""
    storage = opened(runs)
    await storage.take_lease(ID)
    place = storage._folder._place(ID)
    await grown(FileCheckpointStorage(runs), commits=1)
    storage._folder._lease_files.remove_alone(place)
    assert lease_of(runs).exists()


@pytest.mark.parametrize("checkpoint_id", HOSTILE)
async def test_every_id_has_a_lease_of_its_own(runs: Path, checkpoint_id: str) -> None:
    storage = opened(runs)
    others = [other for other in HOSTILE if other != checkpoint_id]
    lease = await storage.take_lease(checkpoint_id)
    for other in others[:5]:
        await storage.take_lease(other)
    with pytest.raises(CheckpointLeasedError):
        await storage.take_lease(checkpoint_id)
    await storage.end_lease(checkpoint_id, lease)
    await storage.take_lease(checkpoint_id)
    assert {path.parent for path in runs.rglob("*")} == {runs}


@given(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20), min_size=2))
def test_no_lease_has_the_name_of_a_journal_or_of_another_lease(some: list[str]) -> None:
    ids = {*some, *(f"{one}.journal" for one in some), *(f"{one}.lease" for one in some)}
    made = {folded(lease_name(one)) for one in ids}
    assert len(made) == len(ids)
    assert made.isdisjoint({folded(file_name(one)) for one in ids})


# Commits.


async def test_a_first_commit_a_later_one_and_a_prune_are_refused_inside(runs: Path) -> None:
    storage, other = opened(runs), opened(runs)
    lease = await other.take_lease(ID)
    checkpoint = create(storage)
    with pytest.raises(CheckpointLeasedError):
        await checkpoint.commit_snapshot(state(0))
    assert names(runs) == [lease_of(runs).name]
    await other.end_lease(ID, lease)
    for n in range(3):
        await checkpoint.commit_snapshot(state(n))
    await other.take_lease(ID)
    before = (runs / file_name(ID)).read_bytes()
    with pytest.raises(CheckpointLeasedError):
        await checkpoint.commit_snapshot(state(3))
    with pytest.raises(CheckpointLeasedError):
        await checkpoint.prune()
    assert (runs / file_name(ID)).read_bytes() == before


async def test_a_storage_without_leases_looks_at_none(runs: Path) -> None:
    await opened(runs).take_lease(ID)
    checkpoint = await grown(FileCheckpointStorage(runs))
    await checkpoint.prune()


async def test_a_lost_reply_is_settled_before_the_lease_is_asked(runs: Path) -> None:
    storage = opened(runs)
    checkpoint = await grown(storage, commits=2)
    snapshot, parent = checkpoint.snapshots[-1], checkpoint.snapshots[-2]
    await storage.take_lease(ID)
    await storage.commit_snapshot(checkpoint, snapshot, expected_head_snapshot_id=parent.snapshot_id)
