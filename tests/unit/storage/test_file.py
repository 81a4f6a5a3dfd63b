"""What a file storage remembers of a journal is used only while it is true."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from branchpoint import clock, codec
from branchpoint.checkpoint import Checkpoint, CheckpointSnapshot, Format, Manifest, encode_manifest
from branchpoint.checkpoint._snapshot import PartTable
from branchpoint.errors import CheckpointConflictError, InvalidCallError, StorageError
from branchpoint.storage import FileCheckpointStorage
from branchpoint.storage._disk import reported
from tests.journals import journal_of
from tests.storages import create, grown, lineage, state


async def test_another_journal_of_the_same_length_is_not_taken_for_the_one_seen(runs: Path) -> None:
    mine, other = FileCheckpointStorage(runs), FileCheckpointStorage(runs)
    with clock.injected(clock.SteppingClock()):
        stale = await grown(mine)
        size = journal_of(runs).stat().st_size
    await other.delete("order-17")
    with clock.injected(clock.SteppingClock()):
        fresh = await grown(other)
    assert journal_of(runs).stat().st_size == size
    with pytest.raises(CheckpointConflictError):
        await stale.commit_snapshot(state(4))
    assert (await mine.load_head("order-17")).head_snapshot_id == fresh.head_snapshot_id
    assert lineage(await mine.load("order-17")) == lineage(fresh)


async def test_another_last_commit_of_the_same_length_is_not_taken_for_the_one_seen(runs: Path) -> None:
    mine, other = FileCheckpointStorage(runs), FileCheckpointStorage(runs)
    with clock.injected(clock.SteppingClock()):
        stale = await grown(mine, commits=2)
        backup = journal_of(runs).read_bytes()
        await stale.commit_snapshot(state(3, by="mine"))
        size = journal_of(runs).stat().st_size
        journal_of(runs).write_bytes(backup)
        fresh = await other.load("order-17")
        await fresh.commit_snapshot(state(3, by="they"))
    assert journal_of(runs).stat().st_size == size
    with pytest.raises(CheckpointConflictError):
        await stale.commit_snapshot(state(4))
    assert lineage(await mine.load("order-17")) == lineage(fresh)


def named_bytes(checkpoint: Checkpoint) -> int:
    """How long a checkpoint's parts are, with their names and the quotes, colon and comma of each."""
    return sum(len(name) + 4 + len(part) for name, part in checkpoint.parts.items())


@pytest.mark.parametrize("format", ["json", "msgpack"])
async def test_a_record_is_hardly_more_than_its_manifest_and_its_parts(runs: Path, format: Format) -> None:
    checkpoint = await grown(FileCheckpointStorage(runs, serialization_format=format), commits=1)
    size, held = journal_of(runs).stat().st_size, named_bytes(checkpoint)
    for n in range(200):
        await checkpoint.commit_snapshot(state(n, n=n))
    grew = journal_of(runs).stat().st_size - size
    parts = named_bytes(checkpoint) - held
    manifests = sum(len(encode_manifest(one.manifest, format=format)) for one in checkpoint.snapshots[1:])
    assert grew - parts - manifests < 200 * 50
    assert manifests < 200 * 330


def renamed(names: Callable[[int], str], checkpoint_id: str, format: Format) -> CheckpointSnapshot:
    """A snapshot whose parts have other names than their digests, as one that encrypts them would give."""
    part, _ = codec.encode_state(state(1, text="x" * 300, more="y" * 300), format=format)
    parts = {names(n): data for n, data in enumerate(codec.new_parts(part, ()).values())}
    assert len(parts) > 2
    manifest = Manifest(
        snapshot_id="s1",
        timestamp=clock.now(),
        root=names(0),
        boundary="edited",
        status="idle",
        graph_signature_hash="sig",
    )
    return CheckpointSnapshot(
        checkpoint_id=checkpoint_id, manifest=manifest, table=PartTable(), format=format, new_parts=parts
    )


@pytest.mark.parametrize("format", ["json", "msgpack"])
async def test_parts_keep_the_names_they_are_given(runs: Path, format: Format) -> None:
    for n, names in enumerate((lambda n: "x" * n + "A-_0", lambda n: f"{n:064x}")):
        storage = FileCheckpointStorage(runs, serialization_format=format)
        snapshot = renamed(names, f"order-{n}", format)
        await storage.commit_snapshot(create(storage, f"order-{n}"), snapshot, expected_head_snapshot_id=None)
        for seen in (storage, FileCheckpointStorage(runs, serialization_format=format)):
            records = await seen.load_records(f"order-{n}")
            assert records.parts == snapshot.new_parts
            assert records.manifests[0].root == names(0)


@pytest.mark.parametrize("name", ["", "x" * 65, "a b", "a.b", "é", "a\n", '"'])
async def test_a_name_that_no_journal_could_give_back_is_refused(runs: Path, name: str) -> None:
    storage = FileCheckpointStorage(runs)
    snapshot = renamed(lambda n: f"{n}" if n else name, "order-17", "json")
    with pytest.raises(InvalidCallError, match="is named by"):
        await storage.commit_snapshot(create(storage), snapshot, expected_head_snapshot_id=None)
    assert not runs.exists() or not list(runs.iterdir())


async def test_a_large_header_and_a_large_last_record_are_read(runs: Path) -> None:
    signature = {"name": "orders", "nodes": {f"node-{n}": "x" * 100 for n in range(2000)}}
    checkpoint = create(FileCheckpointStorage(runs), signature=signature)
    for n in range(3):
        await checkpoint.commit_snapshot(state(n, text=f"{n}" * 300_000))
    fresh = FileCheckpointStorage(runs)
    assert (await fresh.load_head("order-17")).head_snapshot_id == checkpoint.head_snapshot_id
    assert [line.superstep for line in await fresh.list_checkpoints()] == [2]
    loaded = await fresh.load("order-17")
    assert loaded.header.signature == signature
    await loaded.commit_snapshot(state(4))
    assert lineage(await fresh.load("order-17")) == lineage(loaded)


async def test_one_odd_file_does_not_spoil_the_listing(runs: Path) -> None:
    storage = FileCheckpointStorage(runs)
    await grown(storage)
    with socket.socket(socket.AF_UNIX) as odd:
        odd.bind(str(runs / "socket.journal"))
        os.mkfifo(runs / "pipe.journal")
        (runs / "folder.journal").mkdir()
        (runs / "link.journal").symlink_to(journal_of(runs))
        with pytest.warns(RuntimeWarning) as warned:
            assert [line.checkpoint_id for line in await storage.list_checkpoints()] == ["order-17"]
    named = " ".join(str(one.message) for one in warned)
    assert all(f"{name}.journal" in named for name in ("socket", "pipe", "folder", "link"))


READER = """
import asyncio, ctypes, os, struct, sys
from branchpoint.checkpoint import Checkpoint
from branchpoint.errors import StorageError
from branchpoint.storage import FileCheckpointStorage

if os.geteuid() == 0:  # without its capabilities root is bound by file modes like anybody
    assert ctypes.CDLL(None).capset(struct.pack("Ii", 0x20080522, 0), bytes(24)) == 0

async def work(folder):
    storage = FileCheckpointStorage(folder)
    checkpoint = await storage.load("order-17")
    head = await storage.load_head("order-17")
    lines = await storage.list_checkpoints()
    assert [line.head_snapshot_id for line in lines] == [head.head_snapshot_id] == [checkpoint.head_snapshot_id]
    for change in (checkpoint.prune(), checkpoint.commit_snapshot(), storage.delete("order-17")):
        try:
            await change
        except StorageError as error:
            assert "the right to" in str(error), error
        else:
            raise AssertionError("it was changed")

asyncio.run(work(sys.argv[1]))
"""


@pytest.mark.parametrize("locks", [True, False])
async def test_a_folder_that_may_only_be_read_is_read(runs: Path, locks: bool) -> None:
    checkpoint = await grown(FileCheckpointStorage(runs))
    for lock in runs.glob(".lock-*"):
        if locks:
            lock.chmod(0o400)
        else:
            lock.unlink()
    journal_of(runs).chmod(0o400)
    runs.chmod(0o500)
    try:
        reader = subprocess.run(
            [sys.executable, "-c", READER, str(runs)], capture_output=True, text=True, check=False
        )
    finally:
        runs.chmod(0o700)
    assert reader.returncode == 0, reader.stderr
    assert lineage(await FileCheckpointStorage(runs).load("order-17")) == lineage(checkpoint)


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EACCES, "the right to"),
        (errno.EROFS, "the right to"),
        (errno.ENOSPC, "make room"),
        (errno.ELOOP, "symbolic link"),
        (errno.EISDIR, "folder"),
        (errno.EIO, "check the disk"),
        (errno.ENOLCK, "operating system"),
    ],
)
def test_an_error_of_the_system_is_reported_with_what_helps_against_it(number: int, advice: str) -> None:
    with pytest.raises(StorageError, match=f"here.*{os.strerror(number)}.*{advice}"), reported("it", "here"):
        raise OSError(number, os.strerror(number))


async def test_a_lock_that_is_something_else_is_named(runs: Path) -> None:
    storage = FileCheckpointStorage(runs)
    checkpoint = await grown(storage)
    (lock,) = runs.glob(".lock-*")
    lock.unlink()
    lock.mkdir()
    with pytest.raises(StorageError, match=f"move away the folder.*{lock.name}"):
        await checkpoint.commit_snapshot(state(4))
    lock.rmdir()
    lock.symlink_to(journal_of(runs))
    for call in (checkpoint.commit_snapshot(state(4)), storage.load("order-17")):
        with pytest.raises(StorageError, match=f"symbolic link.*{lock.name}"):
            await call


def test_the_format_is_checked_and_the_path_stays(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidCallError, match="yaml"):
        FileCheckpointStorage(runs, serialization_format="yaml")  # type: ignore[arg-type]
    monkeypatch.chdir(runs)
    storage = FileCheckpointStorage("here")
    monkeypatch.chdir(runs.parent)
    assert storage.path == runs / "here"
    assert not storage.path.exists()
    assert repr(storage) == f"FileCheckpointStorage({str(runs / 'here')!r}, serialization_format='json')"
