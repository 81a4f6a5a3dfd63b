"""Cases of users whose files were raced for, damaged, forged or named by an attacker."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from branchpoint import codec
from branchpoint.checkpoint import Manifest, decode_manifest
from branchpoint.errors import (
    BranchpointError,
    CheckpointConflictError,
    CheckpointNotFoundError,
    CorruptCheckpointError,
    DataError,
    InvalidCallError,
    UnknownVersionError,
)
from branchpoint.storage import FileCheckpointStorage
from branchpoint.storage._names import temporary_name
from branchpoint.storage._records import commit_body
from tests.journals import bodies_of, journal_of, reseal
from tests.storages import create, grown, lineage, shared, state

ROOT = Path(__file__).resolve().parents[2]


def child(code: str, *arguments: object) -> subprocess.Popen[str]:
    prelude = (
        f"import asyncio, sys, threading; sys.path.insert(0, {str(ROOT)!r})\n"
        "from branchpoint.errors import *\n"
        "from branchpoint.storage import FileCheckpointStorage\n"
        "from tests.storages import *\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", prelude + code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def tree(folder: Path) -> dict[str, bytes | str]:
    """Everything below a folder: files with their bytes, links with their targets."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = path.read_bytes()
        else:
            found[name] = "folder"
    return found


# Races.

RACER = """
async def work(folder, name):
    storage = FileCheckpointStorage(folder)
    for n, _ in enumerate(sys.stdin):  # a line: load
        checkpoint = await storage.load("order-17") if n else create(storage)
        print("ready", flush=True)
        sys.stdin.readline()  # a line: commit
        try:
            print((await checkpoint.commit_snapshot(state(n, by=name))).snapshot_id, flush=True)
        except CheckpointConflictError:
            print("conflict", flush=True)

asyncio.run(work(*sys.argv[1:]))
"""


async def test_c17_c18_of_several_processes_exactly_one_wins_every_round(runs: Path) -> None:
    winners: list[str] = []
    with ExitStack() as stack:
        racers = [stack.enter_context(child(RACER, runs, n)) for n in range(4)]

        def tell() -> list[str]:
            for one in racers:
                assert one.stdin is not None
                one.stdin.write("go\n")
                one.stdin.flush()
            return [one.stdout.readline().strip() for one in racers if one.stdout is not None]

        for _ in range(25):
            assert tell() == ["ready"] * 4
            outcomes = tell()
            assert outcomes.count("conflict") == 3
            winners += [outcome for outcome in outcomes if outcome != "conflict"]
        for one in racers:
            assert one.stdin is not None
            one.stdin.close()
    loaded = await FileCheckpointStorage(runs).load("order-17")
    assert [one.snapshot_id for one in loaded.snapshots] == winners
    assert [parent for _, parent in lineage(loaded)] == [None, *winners[:-1]]


CROWD = """
async def one(storage, name):
    for n in range(5):
        checkpoint = await storage.load(name) if n else create(storage, name)
        await checkpoint.commit_snapshot(state(n, name=name, text=name * 100))

async def several(folder, names):
    storage = FileCheckpointStorage(folder)
    await asyncio.gather(*(one(storage, name) for name in names))

def run(folder, names):
    asyncio.run(several(folder, names))

def main(folder, number):
    names = [[f"{number}-{thread}-{task}" for task in range(5)] for thread in range(2)]
    threads = [threading.Thread(target=run, args=(folder, some)) for some in names]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print("done")

main(*sys.argv[1:])
"""


async def test_c53_writers_never_share_a_file_in_the_making(runs: Path) -> None:
    victim = await grown(FileCheckpointStorage(runs), "victim")
    whole = journal_of(runs, "victim").read_bytes()
    for n, dead in enumerate((whole, whole[: len(whole) // 2], b"")):
        (runs / temporary_name(n, f"00{n}")).write_bytes(dead)
    with ExitStack() as stack:
        crowd = [stack.enter_context(child(CROWD, runs, n)) for n in range(4)]
        assert [one.stdout.read() for one in crowd if one.stdout is not None] == ["done\n"] * 4
    names = [f"{a}-{b}-{c}" for a in range(4) for b in range(2) for c in range(5)]
    storage = FileCheckpointStorage(runs)
    assert [line.checkpoint_id for line in await storage.list_checkpoints()] == [*names, "victim"]
    for name in names:
        loaded = await storage.load(name)
        assert len(loaded.snapshots) == 5
        assert shared(loaded.head_snapshot) == {"name": name, "text": name * 100}
    assert lineage(await storage.load("victim")) == lineage(victim)
    left = {name for name in os.listdir(runs) if not name.startswith(".lock-")}
    assert left == {journal_of(runs, name).name for name in [*names, "victim"]}


async def test_c22_a_late_commit_finds_nothing_and_leaves_nothing(runs: Path) -> None:
    storage = FileCheckpointStorage(runs)
    stale = await grown(storage)
    await storage.delete("order-17")
    with pytest.raises(CheckpointConflictError, match="deleted"):
        await stale.commit_snapshot(state(9))
    with pytest.raises(CheckpointNotFoundError):
        await storage.load("order-17")
    assert [name for name in os.listdir(runs) if not name.startswith(".lock-")] == []
    fresh = await grown(storage)
    before = journal_of(runs).read_bytes()
    with pytest.raises(CheckpointConflictError):
        await stale.commit_snapshot(state(9))
    assert journal_of(runs).read_bytes() == before
    await fresh.commit_snapshot(state(3))


# Damage.


@pytest.mark.parametrize("kind", ["json", "msgpack"])
async def test_c54_the_newest_save_cannot_be_read(runs: Path, kind: Any) -> None:
    def storage() -> FileCheckpointStorage:
        return FileCheckpointStorage(runs, serialization_format=kind)

    await grown(storage())
    await grown(storage(), "bystander")
    path = journal_of(runs)
    data = path.read_bytes()
    flipped = bytearray(data)
    flipped[-20] ^= 0x20
    for bad in (b"", data[:-10], data[: len(data) // 2], bytes(flipped)):
        path.write_bytes(bad)
        with pytest.raises(CorruptCheckpointError, match="order-17"):
            await storage().load("order-17")
        assert path.read_bytes() == bad
        assert len((await storage().load("bystander")).snapshots) == 3


# Names.

HOSTILE = ["../../x", "/etc/x", "a/b", "..", ".", "C:\\x", "~root", "$HOME", "\\\\host\\share", "x/../../y"]
REFUSED = ["", "a\x00b", "a\nb", "a" * 5000, "\x1b[2J"]
PATTERNS = ["*", "[ab]", "?", "x' OR '1'='1", "%", "_", "**", "{a,b}", "ordinary-*"]


@pytest.fixture
def fenced(tmp_path: Path) -> Iterator[Path]:
    """A folder for a storage, deep inside one that must stay as it is."""
    runs = tmp_path / "a" / "b" / "runs"
    runs.mkdir(parents=True)
    for outside in (tmp_path / "x", tmp_path / "a" / "x", tmp_path / "a" / "b" / "y", tmp_path / "outside"):
        outside.write_text("theirs")

    def others() -> dict[str, bytes | str]:
        return {name: data for name, data in tree(tmp_path).items() if not name.startswith("a/b/runs/")}

    before = others()
    yield runs
    assert others() == before


async def test_c58_an_id_never_leads_out_of_the_folder(fenced: Path) -> None:
    storage = FileCheckpointStorage(fenced)
    for name in HOSTILE:
        with pytest.raises(CheckpointNotFoundError):
            await storage.load(name)
        await storage.delete(name)
        await grown(storage, name)
        assert len((await storage.load(name)).snapshots) == 3
    assert all(path.is_file() for path in fenced.iterdir())
    assert len(list(fenced.glob("*.journal"))) == len(HOSTILE)
    for name in HOSTILE:
        await storage.delete(name)
    assert not list(fenced.glob("*.journal"))


async def test_c58_a_journal_that_is_a_link_or_no_file_is_refused(fenced: Path) -> None:
    storage = FileCheckpointStorage(fenced)
    stale = await grown(storage)
    outside = fenced.parent / "y"
    path = journal_of(fenced)
    moved = path.rename(fenced / "elsewhere")
    for target in (outside, moved, fenced / "nowhere"):
        path.symlink_to(target)
        for call in (
            storage.load("order-17"),
            storage.load_head("order-17"),
            stale.commit_snapshot(state(9)),
        ):
            with pytest.raises(CorruptCheckpointError, match=r"order-17.*link"):
                await call
        with pytest.raises(BranchpointError):
            await create(storage).commit_snapshot(state(0))
        with pytest.warns(RuntimeWarning, match="link"):
            assert await storage.list_checkpoints() == []
        await storage.delete("order-17")  # the link, not what it leads to
        assert not path.is_symlink()
    assert moved.exists()
    os.mkfifo(path)
    with pytest.raises(CorruptCheckpointError, match="order-17"):
        await storage.load("order-17")
    path.unlink()
    path.mkdir()
    with pytest.raises(BranchpointError, match="order-17"):
        await storage.load("order-17")


async def test_c59_patterns_touch_only_what_they_name(fenced: Path) -> None:
    storage = FileCheckpointStorage(fenced)
    ordinary = [f"ordinary-{n}" for n in range(5)]
    for name in ordinary:
        await grown(storage, name)
    before = {name: data for name, data in tree(fenced).items() if name.endswith(".journal")}
    for name in PATTERNS:
        await storage.delete(name)
        await grown(storage, name)
        assert len(await storage.list_checkpoints()) == 6
        await storage.delete(name)
    assert {name: data for name, data in tree(fenced).items() if name.endswith(".journal")} == before


@pytest.mark.parametrize("name", REFUSED)
async def test_c58_c59_other_ids_are_refused_at_creation(fenced: Path, name: str) -> None:
    storage = FileCheckpointStorage(fenced)
    for call in (storage.load, storage.delete, storage.load_head):
        with pytest.raises(InvalidCallError) as caught:
            await call(name)
        assert not any(unicodedata.category(one) == "Cc" for one in str(caught.value))
    with pytest.raises(InvalidCallError) as caught:
        create(storage, name)
    assert not any(unicodedata.category(one) == "Cc" for one in str(caught.value))
    assert tree(fenced) == {}


async def test_files_and_folders_are_private(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        await grown(FileCheckpointStorage(tmp_path / "x" / "runs"))
    finally:
        os.umask(old)
    for path in (tmp_path / "x").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)


async def test_a_journal_of_the_other_format_is_refused_by_name(runs: Path) -> None:
    one, other = FileCheckpointStorage(runs), FileCheckpointStorage(runs, serialization_format="msgpack")
    checkpoint = await grown(one)
    before = journal_of(runs).read_bytes()
    with pytest.raises(InvalidCallError, match="'json'"):
        await other.load("order-17")
    with pytest.raises(CheckpointConflictError):
        await create(other).commit_snapshot(state(0))
    assert [line.checkpoint_id for line in await other.list_checkpoints()] == ["order-17"]
    forked = await checkpoint.fork(checkpoint_id="forked", checkpoint_storage=other)
    assert shared((await other.load("forked")).head_snapshot) == shared(forked.head_snapshot) == {"n": 2}
    assert journal_of(runs).read_bytes() == before


# Forgeries, sealed as well as anybody could who knows the format.

Forge = Callable[[list[bytes]], list[bytes]]


def manifest_of(body: bytes) -> Manifest:
    raw = msgspec.json.decode(body, type=dict[str, msgspec.Raw])["manifest"]
    return decode_manifest(bytes(raw), format="json", checkpoint_id="order-17")


def edited(n: int, **fields: Any) -> Forge:
    def forge(bodies: list[bytes]) -> list[bytes]:
        manifest = msgspec.structs.replace(manifest_of(bodies[n]), **fields)
        parts = msgspec.json.decode(bodies[n], type=dict[str, msgspec.Raw])["parts"]
        bodies[n] = b'{"manifest":' + msgspec.json.encode(manifest) + b',"parts":' + bytes(parts) + b"}"
        return bodies

    return forge


def replaced(n: int, old: bytes, new: bytes) -> Forge:
    def forge(bodies: list[bytes]) -> list[bytes]:
        assert old in bodies[n]
        bodies[n] = bodies[n].replace(old, new, 1)
        return bodies

    return forge


def state_of(buckets: dict[str, Any]) -> Forge:
    def forge(bodies: list[bytes]) -> list[bytes]:
        part, _ = codec.encode_state(buckets, format="json")
        manifest = msgspec.structs.replace(manifest_of(bodies[-1]), root=part.digest)
        bodies[-1] = commit_body(manifest, codec.new_parts(part, ()), format="json")
        return bodies

    return forge


def swapped(bodies: list[bytes]) -> list[bytes]:
    return [bodies[0], bodies[2], bodies[1], *bodies[3:]]


def circular(bodies: list[bytes]) -> list[bytes]:
    return edited(1, parent_snapshot_id=manifest_of(bodies[3]).snapshot_id)(bodies)


def orphaned(bodies: list[bytes]) -> list[bytes]:
    return [bodies[0], *bodies[2:]]


def without_parts(bodies: list[bytes]) -> list[bytes]:
    bodies[-1] = commit_body(manifest_of(bodies[-1]), {}, format="json")
    return bodies


FORGERIES: dict[str, tuple[type[DataError], Forge]] = {
    "a header of version 999": (UnknownVersionError, replaced(0, b'"branchpoint":1', b'"branchpoint":999')),
    "a header of version 0": (CorruptCheckpointError, replaced(0, b'"branchpoint":1', b'"branchpoint":0')),
    "a manifest of version 999": (UnknownVersionError, edited(-1, format_version=999)),
    "a kind of record that must be known": (
        UnknownVersionError,
        lambda bodies: [*bodies, b'{"kind":"names","must":true,"names":{}}'],
    ),
    "a kind of record that is none": (CorruptCheckpointError, lambda bodies: [*bodies, b'{"kind":7}']),
    "another checkpoint's id": (CorruptCheckpointError, replaced(0, b'"id":"order-17"', b'"id":"order-18"')),
    "an unknown field in the header": (CorruptCheckpointError, replaced(0, b'"wf":', b'"x":1,"wf":')),
    "an unknown field in a manifest": (CorruptCheckpointError, replaced(-1, b'"root":', b'"x":1,"root":')),
    "an unknown field in a record": (CorruptCheckpointError, replaced(-1, b',"parts":', b',"x":1,"parts":')),
    "a key that occurs twice": (CorruptCheckpointError, replaced(-1, b'"root":', b'"id":"x","root":')),
    "a record's key that occurs twice": (
        CorruptCheckpointError,
        replaced(-1, b',"parts":', b',"parts":{},"parts":'),
    ),
    "other spacing": (CorruptCheckpointError, replaced(-1, b'"manifest":{', b'"manifest":{ ')),
    "other spacing in a record": (CorruptCheckpointError, replaced(-1, b',"parts":', b', "parts":')),
    "no header": (CorruptCheckpointError, lambda bodies: bodies[1:]),
    "two headers": (CorruptCheckpointError, lambda bodies: [bodies[0], *bodies]),
    "no commit": (CorruptCheckpointError, lambda bodies: bodies[:1]),
    "a snapshot twice": (CorruptCheckpointError, lambda bodies: [*bodies, bodies[-1]]),
    "a parent after its child": (CorruptCheckpointError, swapped),
    "parents in a circle": (CorruptCheckpointError, circular),
    "a parent that is missing": (CorruptCheckpointError, orphaned),
    "a state that is missing": (CorruptCheckpointError, edited(-1, root="A" * 22)),
    "parts that are missing": (CorruptCheckpointError, without_parts),
    "five buckets": (CorruptCheckpointError, state_of({**state(), "extra": {}})),
    "three buckets": (
        CorruptCheckpointError,
        state_of({name: bucket for name, bucket in state().items() if name != "edge_states"}),
    ),
    "100,000 brackets in a record": (
        CorruptCheckpointError,
        lambda bodies: [*bodies, b'{"manifest":' + b"[" * 100_000 + b"]" * 100_000 + b',"parts":{}}'],
    ),
    "100,000 brackets in a part": (
        CorruptCheckpointError,
        replaced(-1, b'"parts":{', b'"parts":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b","),
    ),
    "100,000 brackets in a kind": (
        CorruptCheckpointError,
        lambda bodies: [*bodies, b'{"kind":"x","must":false,"v":' + b"[" * 100_000 + b"]" * 100_000 + b"}"],
    ),
}


@pytest.mark.parametrize("what", FORGERIES)
async def test_c62_a_forgery_is_refused_at_load_and_left_as_it_is(runs: Path, what: str) -> None:
    expected, forge = FORGERIES[what]
    await grown(FileCheckpointStorage(runs), commits=4)
    path = journal_of(runs)
    _, bodies = bodies_of(path)
    reseal(path, bodies)
    assert len((await FileCheckpointStorage(runs).load("order-17")).snapshots) == 4
    reseal(path, forge(bodies))
    forged = path.read_bytes()
    with pytest.raises(expected, match="order-17"):
        await FileCheckpointStorage(runs).load("order-17")
    assert path.read_bytes() == forged


async def test_c62_a_journal_under_another_name_is_refused(runs: Path) -> None:
    storage = FileCheckpointStorage(runs)
    await grown(storage)
    journal_of(runs, "copied").write_bytes(journal_of(runs).read_bytes())
    with pytest.raises(CorruptCheckpointError, match="copied"):
        await storage.load("copied")
    with pytest.warns(RuntimeWarning, match="moved or copied"):
        assert [line.checkpoint_id for line in await storage.list_checkpoints()] == ["order-17"]


async def test_a_kind_of_record_that_may_be_skipped_is_skipped_and_survives_a_prune(runs: Path) -> None:
    storage = FileCheckpointStorage(runs)
    await grown(storage)
    path = journal_of(runs)
    _, bodies = bodies_of(path)
    later = b'{"kind":"names","must":false,"names":{"x":"y"}}'
    reseal(path, [*bodies[:2], later, *bodies[2:]])
    loaded = await storage.load("order-17")
    await loaded.prune()
    await loaded.commit_snapshot(state(5))
    assert bodies_of(path)[1].count(later) == 1
    assert len((await storage.load("order-17")).snapshots) == 2


# Whoever can write the store.

V1 = {
    "workflow_name": "orders",
    "graph_signature_hash": "sig",
    "checkpoint_id": "order-17",
    "previous_checkpoint_id": None,
    "timestamp": "2026-01-01T00:00:00+00:00",
    "messages": {
        "a": [{"__af_pickled__": True, "value": "gASVHwAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjARleGl0lIWUUpQu"}]
    },
    "state": {"x": {"__pickled__": "gASVHwAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjARleGl0lIWUUpQu"}},
    "pending_request_info_events": {},
    "iteration_count": 3,
    "metadata": {},
    "version": "1.0",
}

WATCHER = """
seen = []
watching = False
sys.addaudithook(lambda event, args: seen.append((event, args)) if watching and event.split(".")[0] in
    {"import", "pickle", "subprocess", "os.system", "exec", "compile"} else None)

async def work(folder):
    global watching
    storage = FileCheckpointStorage(folder)
    try:
        await storage.load("warm-up")
    except BranchpointError:
        pass
    watching = True
    for _ in range(2):
        try:
            await storage.load("order-17")
        except BranchpointError as error:
            name = type(error).__name__
    watching = False
    print(name, [event for event in seen], "pickle" in sys.modules)

asyncio.run(work(*sys.argv[1:]))
"""


@pytest.mark.parametrize("spaces", [None, 2])
async def test_c61_r43_a_v1_file_is_refused_by_name_and_nothing_in_it_is_touched(
    runs: Path, spaces: int | None
) -> None:
    path = journal_of(runs)
    path.write_text(json.dumps(V1, indent=spaces))
    before = path.read_bytes()
    storage = FileCheckpointStorage(runs)
    for call in (
        storage.load("order-17"),
        storage.load_head("order-17"),
        create(storage).commit_snapshot(state()),
    ):
        with pytest.raises(UnknownVersionError, match=r"order-17.*version 1"):
            await call
    with child(WATCHER, runs) as watcher:
        assert watcher.stdout is not None
        assert watcher.stdout.read().split(maxsplit=1) == ["UnknownVersionError", "[] False\n"]
    assert path.read_bytes() == before


async def test_c61_the_library_room_never_imports_pickle(runs: Path) -> None:
    with child("print(sorted({'pickle', 'shelve', 'dill'} & set(sys.modules)))") as fresh:
        assert fresh.stdout is not None
        assert fresh.stdout.read() == "[]\n"


def test_loads_need_no_event_loop_of_their_own(runs: Path) -> None:
    storage = FileCheckpointStorage(runs)
    asyncio.run(grown(storage))
    assert len(asyncio.run(storage.load("order-17")).snapshots) == 3
