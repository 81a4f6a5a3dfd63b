"""What stands where a journal, a lock or a file in the making should be: links, folders, pipes, others' files."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from branchpoint.checkpoint import Format
from branchpoint.errors import BranchpointError, CorruptCheckpointError, StorageError
from branchpoint.storage import FileCheckpointStorage
from branchpoint.storage._lock import STRIPES
from branchpoint.storage._names import stripe, temporary_name
from tests.hostile.forge import ID, check_told, refused, storage_of
from tests.journals import journal_of
from tests.scenario.test_storage_cases import tree
from tests.storages import create, grown, lineage, shared, state

BAD = (CorruptCheckpointError, StorageError)


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder beside the storage's that nothing may touch."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_bytes(b"theirs")
    (folder / "folder").mkdir()
    (folder / "folder" / "file").write_bytes(b"theirs")
    before = tree(folder)
    yield folder
    assert tree(folder) == before


def is_anything(path: Path) -> tuple[int, int, int]:
    found = os.lstat(path)
    return stat.S_IFMT(found.st_mode), found.st_ino, found.st_size


def _socket(path: Path, outside: Path) -> None:
    one = socket.socket(socket.AF_UNIX)
    inside = os.getcwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        one.bind(path.name)
    finally:
        os.chdir(inside)
        one.close()


IN_PLACE: dict[str, Callable[[Path, Path], Any]] = {
    "a link to a file outside": lambda path, outside: path.symlink_to(outside / "file"),
    "a link to a folder outside": lambda path, outside: path.symlink_to(outside / "folder"),
    "a link that leads nowhere": lambda path, outside: path.symlink_to(outside / "nothing"),
    "a link to itself": lambda path, outside: path.symlink_to(path),
    "a link to another journal": lambda path, outside: path.symlink_to(journal_of(path.parent, "bystander")),
    "a link to a device": lambda path, outside: path.symlink_to("/dev/zero"),
    "a link to the terminal": lambda path, outside: path.symlink_to("/dev/tty"),
    "a hard link to a file outside": lambda path, outside: path.hardlink_to(outside / "file"),
    "a folder": lambda path, outside: path.mkdir(),
    "a pipe": lambda path, outside: os.mkfifo(path),
    "a socket": _socket,
}


@pytest.mark.parametrize("what", IN_PLACE)
async def test_c58_what_is_in_the_place_of_a_journal_is_refused_and_left_alone(
    runs: Path, outside: Path, format: Format, what: str
) -> None:
    stale = await grown(storage_of(runs, format))
    await grown(storage_of(runs, format), "bystander")
    path = journal_of(runs)
    path.unlink()
    IN_PLACE[what](path, outside)
    before = is_anything(path), journal_of(runs, "bystander").read_bytes()
    for storage in (stale.checkpoint_storage, storage_of(runs, format)):
        assert isinstance(storage, FileCheckpointStorage)
        fresh = create(storage)
        calls: list[Callable[[], Any]] = [
            lambda: storage.load(ID),  # noqa: B023
            lambda: storage.load_head(ID),  # noqa: B023
            lambda: storage.load_parts(ID, ["A" * 22]),  # noqa: B023
            lambda: fresh.commit_snapshot(state()),  # noqa: B023
        ]
        for call in calls:
            await refused(call, BAD, ID)
    await refused(lambda: stale.commit_snapshot(state(9)), BAD, ID)
    await refused(stale.prune, BAD, ID)
    await refused(stale.refresh, BAD, ID)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        listed = [line.checkpoint_id for line in await storage_of(runs, format).list_checkpoints()]
    assert listed == ["bystander"]
    assert [ID in str(warning.message) for warning in told] == [True]
    assert (is_anything(path), journal_of(runs, "bystander").read_bytes()) == before
    # Deleting removes the name, never what it leads to; a folder is not removed.
    if what == "a folder":
        await refused(lambda: storage_of(runs, format).delete(ID), StorageError, ID)
        path.rmdir()
    else:
        await storage_of(runs, format).delete(ID)
    assert not os.path.lexists(path)
    assert journal_of(runs, "bystander").read_bytes() == before[1]
    await grown(storage_of(runs, format))


async def test_c58_a_device_in_the_place_of_a_journal_is_not_read(runs: Path) -> None:
    await grown(FileCheckpointStorage(runs))
    path = journal_of(runs)
    path.unlink()
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.stat("/dev/zero").st_rdev)
    except OSError as error:
        pytest.skip(f"only root makes devices: {error}")
    await refused(lambda: FileCheckpointStorage(runs).load(ID), BAD, ID)
    await refused(lambda: create(FileCheckpointStorage(runs)).commit_snapshot(state()), BAD, ID)


async def test_c58_a_journal_with_a_second_name_outside_is_the_same_journal_until_a_prune(
    runs: Path, tmp_path: Path
) -> None:
    """What a copy by hard links is; a prune makes a new file, and the copy keeps the old one."""
    storage = FileCheckpointStorage(runs)
    checkpoint = await grown(storage)
    copy = tmp_path / "copy"
    copy.hardlink_to(journal_of(runs))
    before = copy.read_bytes()
    await checkpoint.prune()
    await checkpoint.commit_snapshot(state(7))
    assert copy.read_bytes() == before
    copy.unlink()
    assert len((await storage.load(ID)).snapshots) == 2


LOCKS = [what for what in IN_PLACE if "journal" not in what]


@pytest.mark.parametrize("what", LOCKS)
async def test_c58_what_is_in_the_place_of_a_lock_is_refused_or_is_a_lock(
    runs: Path, outside: Path, what: str
) -> None:
    """Nothing waits for ever, nothing is written through it, and other checkpoints are not held up."""
    stale = await grown(FileCheckpointStorage(runs))
    lock = runs / f".lock-{stripe(ID, STRIPES):02x}"
    lock.unlink()
    IN_PLACE[what](lock, outside)
    before, whole = is_anything(lock), journal_of(runs).read_bytes()
    (runs / temporary_name(stripe(ID, STRIPES), "00ab")).write_bytes(b"a dead writer's")
    storage = FileCheckpointStorage(runs)
    await grown(storage, "bystander")  # which sweeps
    held = True
    for call in (lambda: storage.load(ID), lambda: storage.load_head(ID)):
        try:
            await call()
        except StorageError as error:
            check_told(error, ID)
            held = False
    assert journal_of(runs).read_bytes() == whole
    try:
        await stale.commit_snapshot(state(9))
    except StorageError as error:
        check_told(error, ID)
        assert journal_of(runs).read_bytes() == whole
    else:
        assert held
        assert lineage(await storage.load(ID)) == lineage(stale)
    assert is_anything(lock) == before


@pytest.mark.parametrize("what", IN_PLACE)
async def test_c58_what_looks_like_a_file_in_the_making_holds_nobody_up(
    runs: Path, outside: Path, what: str
) -> None:
    storage = FileCheckpointStorage(runs)
    await grown(storage, "bystander")
    whole = journal_of(runs, "bystander").read_bytes()
    for n in (0, 17, STRIPES - 1):
        IN_PLACE[what](runs / temporary_name(n, "00ab"), outside)
    fresh = FileCheckpointStorage(runs)
    checkpoint = await grown(fresh)  # the first commit of a storage sweeps
    assert lineage(await fresh.load(ID)) == lineage(checkpoint)
    assert journal_of(runs, "bystander").read_bytes() == whole
    assert [line.checkpoint_id for line in await fresh.list_checkpoints()] == ["bystander", ID]


async def test_c58_a_folder_that_is_a_file_or_leads_nowhere_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"theirs")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone" / "gone")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    before = tree(tmp_path)
    for name in ("file", "file/below", "nowhere", "loop", "loop/below", "pipe", "pipe/below"):
        storage = FileCheckpointStorage(tmp_path / name)
        await refused(lambda: create(storage).commit_snapshot(state()), StorageError, ID)  # noqa: B023
        for call in (storage.load, storage.load_head, storage.delete):
            try:
                await call(ID)
            except StorageError as error:  # or there is no such checkpoint, which is so
                check_told(error, ID)
        try:
            assert await storage.list_checkpoints() == []
        except StorageError as error:
            check_told(error)
    (tmp_path / "gone").exists()
    assert tree(tmp_path) == before


@contextmanager
def somebody_else() -> Iterator[None]:
    """Be another user inside the block; root may do anything, so root becomes nobody."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user may look into."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    (folder / "runs").mkdir()
    yield folder / "runs"
    shutil.rmtree(folder)


async def test_c58_a_journal_that_may_not_be_read_is_told_and_others_are(open_folder: Path) -> None:
    await grown(FileCheckpointStorage(open_folder))
    await grown(FileCheckpointStorage(open_folder), "bystander")
    path = journal_of(open_folder)
    open_folder.chmod(0o777)
    for one in open_folder.iterdir():
        one.chmod(0o666)
    path.chmod(0o000 if os.geteuid() else 0o600)
    before = path.stat()
    with somebody_else():
        storage = FileCheckpointStorage(open_folder)
        for call in (storage.load, storage.load_head):
            await refused(lambda: call(ID), StorageError, ID, "right")  # noqa: B023
        await refused(lambda: create(storage).commit_snapshot(state()), StorageError, ID, "right")
        with pytest.warns(RuntimeWarning, match=ID):
            assert [line.checkpoint_id for line in await storage.list_checkpoints()] == ["bystander"]
        assert len((await storage.load("bystander")).snapshots) == 3
    path.chmod(0o600)
    assert (path.stat().st_size, path.stat().st_mtime) == (before.st_size, before.st_mtime)
    assert len((await FileCheckpointStorage(open_folder).load(ID)).snapshots) == 3


async def test_c58_a_journal_that_may_only_be_read_is_read(open_folder: Path) -> None:
    checkpoint = await grown(FileCheckpointStorage(open_folder))
    path = journal_of(open_folder)
    open_folder.chmod(0o777)
    for one in open_folder.iterdir():
        one.chmod(0o666)
    path.chmod(0o444)
    whole = path.read_bytes()
    with somebody_else():
        loaded = await FileCheckpointStorage(open_folder).load(ID)
        assert lineage(loaded) == lineage(checkpoint)
        assert shared(loaded.head_snapshot) == {"n": 2}
        with pytest.raises(BranchpointError) as caught:
            await loaded.commit_snapshot(state(9))
        check_told(caught.value, ID)
    assert path.read_bytes() == whole
