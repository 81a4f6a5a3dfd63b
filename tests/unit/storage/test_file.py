"""What a file storage remembers of a journal is used only while it is true."""

from __future__ import annotations

from pathlib import Path

import pytest

from branchpoint import clock
from branchpoint.checkpoint import Format, encode_manifest
from branchpoint.errors import CheckpointConflictError, InvalidCallError
from branchpoint.storage import FileCheckpointStorage
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


@pytest.mark.parametrize("format", ["json", "msgpack"])
async def test_a_record_is_hardly_more_than_its_manifest_and_its_parts(runs: Path, format: Format) -> None:
    checkpoint = await grown(FileCheckpointStorage(runs, serialization_format=format), commits=1)
    size, held = journal_of(runs).stat().st_size, sum(map(len, checkpoint.parts.values()))
    for n in range(200):
        await checkpoint.commit_snapshot(state(n, n=n))
    grew = journal_of(runs).stat().st_size - size
    parts = sum(map(len, checkpoint.parts.values())) - held
    manifests = sum(len(encode_manifest(one.manifest, format=format)) for one in checkpoint.snapshots[1:])
    assert grew - parts - manifests < 200 * 50
    assert manifests < 200 * 330


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


def test_the_format_is_checked_and_the_path_stays(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidCallError, match="yaml"):
        FileCheckpointStorage(runs, serialization_format="yaml")  # type: ignore[arg-type]
    monkeypatch.chdir(runs)
    storage = FileCheckpointStorage("here")
    monkeypatch.chdir(runs.parent)
    assert storage.path == runs / "here"
    assert not storage.path.exists()
    assert repr(storage) == f"FileCheckpointStorage({str(runs / 'here')!r}, serialization_format='json')"
