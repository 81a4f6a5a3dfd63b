"""The disk loses at a power cut what no fsync made safe, and nothing else; SQLite works in it."""

from __future__ import annotations

import mmap
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.scenario.kit import Talking, listen, say
from tests.servers.fixtures import need
from tests.servers.fuse import Disk, fuse_missing


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    need(fuse_missing(), in_ci=False)
    with Disk(tmp_path) as disk:
        yield disk


def write(path: Path, text: str, *, sync: bool, flags: int = os.O_CREAT | os.O_TRUNC) -> None:
    descriptor = os.open(path, os.O_WRONLY | flags)
    os.write(descriptor, text.encode())
    if sync:
        os.fsync(descriptor)
    os.close(descriptor)


def sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    os.close(descriptor)


def found(disk: Disk) -> dict[str, str]:
    files = (path for path in disk.folder.rglob("*") if path.is_file())
    return {str(path.relative_to(disk.folder)): path.read_text() for path in sorted(files)}


def test_what_is_not_synced_is_lost(disk: Disk) -> None:
    inside = disk.folder / "inside"
    inside.mkdir()
    write(inside / "safe", "one", sync=True)
    write(inside / "old", "two", sync=True)
    write(inside / "empty", "three", sync=False)
    sync(inside)
    sync(disk.folder)
    write(inside / "unnamed", "four", sync=True)
    write(inside / "safe", " and more", sync=False, flags=os.O_APPEND)
    (inside / "old").rename(inside / "new")
    assert found(disk) == {
        "inside/empty": "three",
        "inside/new": "two",
        "inside/safe": "one and more",
        "inside/unnamed": "four",
    }
    disk.cut()
    assert not list(disk.folder.iterdir())
    disk.mount()
    assert found(disk) == {"inside/empty": "", "inside/old": "two", "inside/safe": "one"}


def test_an_orderly_end_loses_nothing(disk: Disk) -> None:
    write(disk.folder / "a", "one", sync=False)
    disk.cut("everything")
    disk.mount()
    assert found(disk) == {"a": "one"}


def test_a_chance_keeps_some(disk: Disk) -> None:
    seen = set()
    for number in range(3):
        for name in "abcd":
            write(disk.folder / name, name * 8, sync=False)
        disk.cut(number)
        disk.mount()
        seen.add(tuple(sorted(found(disk).items())))
    assert len(seen) > 1


@pytest.mark.parametrize("number", [0, 4])
def test_a_file_is_replaced_whole_or_not_at_all(disk: Disk, number: int) -> None:
    write(disk.folder / "a", "old", sync=True)
    sync(disk.folder)
    with (disk.folder / "a").open() as reader:
        write(disk.folder / "new", "new", sync=True)
        (disk.folder / "new").rename(disk.folder / "a")
        assert reader.read() == "old"
    disk.cut(number)
    disk.mount()
    assert found(disk)["a"] in ("old", "new")


def test_it_is_dead_after_the_cut(disk: Disk) -> None:
    descriptor = os.open(disk.folder / "a", os.O_WRONLY | os.O_CREAT)
    disk.cut()
    with pytest.raises(OSError):
        os.write(descriptor, b"late")
    with suppress(OSError):
        os.close(descriptor)


def test_files_live_on_without_a_name_and_as_memory(disk: Disk) -> None:
    path = disk.folder / "a"
    path.write_bytes(bytes(4096))
    descriptor = os.open(path, os.O_RDWR)
    other = os.open(path, os.O_RDWR)
    with mmap.mmap(descriptor, 4096) as here, mmap.mmap(other, 4096) as there:
        here[:5] = b"hello"
        assert there[:5] == b"hello"
        path.unlink()
        assert not list(disk.folder.iterdir())
        assert (os.fstat(descriptor).st_size, os.fstat(descriptor).st_nlink) == (4096, 0)
        assert os.pwrite(other, b"later", 0) == 5
        assert os.pread(descriptor, 5, 0) == b"later"
    os.close(descriptor)
    os.close(other)
    assert not list(disk.folder.iterdir())


def writing(path: str, synchronous: str) -> None:
    """Commit words to a database until the end, and say each when it is committed."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL").fetchall()
    database.execute(f"PRAGMA synchronous={synchronous}")
    database.execute("CREATE TABLE IF NOT EXISTS words (word INTEGER)")
    say("ready")
    while word := listen():
        database.execute("INSERT INTO words VALUES (?)", (int(word),))
        say(word)


def stored(disk: Disk) -> list[int]:
    with closing(sqlite3.connect(disk.folder / "db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return [word for (word,) in database.execute("SELECT word FROM words ORDER BY word")]


@pytest.mark.parametrize("kept", ["nothing", 1])
def test_sqlite_keeps_its_commits(disk: Disk, kept: int) -> None:
    with (
        Talking(writing, str(disk.folder / "db"), "FULL") as one,
        Talking(writing, str(disk.folder / "db"), "FULL") as other,
    ):
        assert one.hear() == other.hear() == "ready"
        for word in range(0, 10, 2):
            one.tell(str(word))
            assert one.hear() == str(word)
            other.tell(str(word + 1))
            assert other.hear() == str(word + 1)
        disk.cut(kept)
    disk.mount()
    assert stored(disk) == list(range(10))


def test_sqlite_loses_commits_that_it_does_not_sync(disk: Disk) -> None:
    """Shows that the test above can fail."""
    with Talking(writing, str(disk.folder / "db"), "NORMAL") as one:
        assert one.hear() == "ready"
        for word in range(5):
            one.tell(str(word))
            assert one.hear() == str(word)
        disk.cut()
    disk.mount()
    with closing(sqlite3.connect(disk.folder / "db")) as database:
        try:
            left = [word for (word,) in database.execute("SELECT word FROM words")]
        except sqlite3.OperationalError:  # not even the table
            left = []
    assert left == []
