"""Every system call of a commit, a prune and a delete fails in turn, where the library makes it."""

from __future__ import annotations

import ast
import errno
import itertools
import os
import warnings
from pathlib import Path

import pytest

import branchpoint.storage
from branchpoint.checkpoint import Format
from branchpoint.errors import StorageError
from branchpoint.storage import FileCheckpointStorage
from tests.crash.deeds import DEEDS, Attempt, prepared
from tests.crash.story import labels
from tests.crash.system_calls import WATCHED, Act, Call, SystemCalls, failing, read_only, short
from tests.journals import journal_of
from tests.storages import grown

SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
NUMBERS = (errno.EIO, errno.ENOSPC, errno.EINTR, errno.EDQUOT)

# What these names stand for asks the system for nothing that could fail a commit.
HARMLESS = {
    *("path", "PathLike", "fspath", "strerror", "getpid", "geteuid", "register_at_fork", "sep"),
    "fcntl",  # F_FULLFSYNC of another system
}


def test_no_call_passes_the_watch_by() -> None:
    """Each function of `os` and `fcntl` that the room uses is watched, or cannot fail a commit."""
    used = set()
    for file in Path(branchpoint.storage.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id in ("os", "fcntl") and not node.attr.isupper():
                    used.add(node.attr)
            elif isinstance(node, ast.ImportFrom):
                assert node.module not in ("os", "fcntl", "shutil")
    assert used <= {name for names in WATCHED.values() for name in names} | HARMLESS


@pytest.fixture(params=["json", "msgpack"])
def format(request: pytest.FixtureRequest) -> Format:
    kind: Format = request.param
    return kind


@pytest.mark.parametrize("what", DEEDS)
@pytest.mark.parametrize("number", NUMBERS, ids=errno.errorcode.get)
async def test_c55_each_call_fails_in_turn(tmp_path: Path, format: Format, what: str, number: int) -> None:
    pattern = tmp_path / "pattern"
    await prepared(pattern, format, what)
    plain = Attempt(pattern, tmp_path / "plain", format, what)
    await plain.make(None)
    told = 0
    for at, call in enumerate(plain.calls):
        # All four reasons at every call in a soak; otherwise they take turns, and every call has two.
        if not SOAK and (at + NUMBERS.index(number)) % 2:
            continue
        for late in (False, True) if call.changes else (False,):
            attempt = Attempt(pattern, tmp_path / f"{at} {late}", format, what)
            await attempt.make(failing(at, number, late=late))
            assert attempt.calls[at].failed in (number, call.failed)  # what is missing is missing first
            await attempt.settle(single=True)
            await attempt.tidy()
            if attempt.error is not None:
                told += 1
                assert isinstance(attempt.error.__cause__, OSError)
                assert attempt.error.__cause__.errno == number
    assert told > len(plain.calls) / 4


@pytest.mark.parametrize("what", DEEDS)
async def test_c55_each_write_is_short_and_may_fail_then(tmp_path: Path, format: Format, what: str) -> None:
    pattern = tmp_path / "pattern"
    await prepared(pattern, format, what)
    plain = Attempt(pattern, tmp_path / "plain", format, what)
    await plain.make(None)
    writes = [at for at, call in enumerate(plain.calls) if call.name == "pwrite"]
    assert writes or what == "a delete"
    for at, number in itertools.product(writes, (0, *NUMBERS)):
        attempt = Attempt(pattern, tmp_path / f"{at} {number}", format, what)
        await attempt.make(short(at, number))
        assert number or attempt.error is None
        await attempt.settle(single=True)
        await attempt.tidy()


async def test_c55_a_disk_that_writes_nothing_and_gives_no_reason(tmp_path: Path, format: Format) -> None:
    pattern = tmp_path / "pattern"
    await prepared(pattern, format, "a later commit")
    attempt = Attempt(pattern, tmp_path / "runs", format, "a later commit")
    await attempt.make(lambda place, call, make: 0 if call.name == "pwrite" else make())
    assert attempt.error is not None
    await attempt.settle(single=True)


@pytest.mark.parametrize("what", DEEDS)
async def test_c55_a_disk_breaks_at_each_call_and_can_only_be_read(
    tmp_path: Path, format: Format, what: str
) -> None:
    """As a file system that is mounted again read-only: what failed cannot be cleared away either."""
    pattern = tmp_path / "pattern"
    await prepared(pattern, format, what)
    plain = Attempt(pattern, tmp_path / "plain", format, what)
    await plain.make(None)
    for at, call in enumerate(plain.calls):
        if call.changes:
            attempt = Attempt(pattern, tmp_path / str(at), format, what)
            await attempt.make(read_only(at))
            await attempt.settle(single=False)
            await attempt.tidy()


@pytest.mark.parametrize("what", ["load", "load_head", "list_checkpoints"])
async def test_c55_each_call_of_a_reader_fails_in_turn(tmp_path: Path, format: Format, what: str) -> None:
    runs = tmp_path / "runs"
    await grown(FileCheckpointStorage(runs, serialization_format=format))
    data = journal_of(runs).read_bytes()

    async def read(act: Act | None) -> tuple[list[Call], object]:
        storage = FileCheckpointStorage(runs, serialization_format=format)
        with SystemCalls(runs) as calls:
            calls.arm(act)
            found: object
            if what == "load":
                found = labels(await storage.load("order-17"))
            elif what == "load_head":
                found = await storage.load_head("order-17")
            else:
                found = await storage.list_checkpoints()
        return calls.calls, found

    plain, expected = await read(None)
    for at in range(len(plain)):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                found = (await read(failing(at, errno.EIO)))[1]
            except StorageError as error:
                assert isinstance(error.__cause__, OSError)
                continue
        if what == "list_checkpoints" and found == []:
            assert ["order-17" in str(one.message) for one in warned] == [True]
        else:  # whether it is a link is asked only for the sake of a better message
            assert (found, plain[at].name, warned) == (expected, "lstat", [])
    assert journal_of(runs).read_bytes() == data
    assert (await read(None))[1] == expected
