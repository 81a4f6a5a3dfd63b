"""Processes that race for one SQLite database, crowd it, and are killed in it: what was reported stays."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from branchpoint.checkpoint import Checkpoint, Format
from branchpoint.errors import CheckpointConflictError, CheckpointNotFoundError
from branchpoint.storage.sqlite import SQLiteCheckpointStorage
from branchpoint.testing import LineageLaw
from tests.profiles import SOAKING
from tests.scenario.kit import Talking, listen, say
from tests.storages import create, grown, lineage, shared, state

WRITERS = 8


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints.db"


def is_whole(path: Path) -> bool:
    """Ask SQLite whether its file is."""
    db = sqlite3.connect(path)
    try:
        return bool(db.execute("PRAGMA integrity_check").fetchall() == [("ok",)])
    finally:
        db.close()


# Races.


def racing(path: str, k: int) -> None:
    """Load when told to, commit when told to, and say how it went."""
    asyncio.run(_race(path, k))


async def _race(path: str, k: int) -> None:
    # Every other one commits on its loop's own thread.
    async with SQLiteCheckpointStorage(path, commit_thread=bool(k % 2)) as storage:
        n = 0
        while listen() == "load":
            try:
                checkpoint = await storage.load("order-17")
            except CheckpointNotFoundError:
                checkpoint = create(storage)
            say("loaded")
            listen()
            try:
                snapshot = await checkpoint.commit_snapshot(state(n, n=n, writer=k))
                say(f"won {snapshot.snapshot_id}")
            except CheckpointConflictError:
                say("conflict")
            n += 1


async def test_c17_c18_of_eight_processes_exactly_one_wins_every_round(path: Path) -> None:
    law = LineageLaw(one_clock=False)  # several processes
    with ExitStack() as stack:
        children = [stack.enter_context(Talking(racing, str(path), k)) for k in range(WRITERS)]
        async with SQLiteCheckpointStorage(path) as storage:
            for n in range(200 if SOAKING else 20):
                for word in ("load", "commit"):
                    for child in children:
                        child.tell(word)
                    said = [child.hear() for child in children]
                assert sorted(word.split()[0] for word in said) == ["conflict"] * (WRITERS - 1) + ["won"]
                [won] = [k for k, word in enumerate(said) if word.startswith("won")]
                loaded = await storage.load("order-17")
                assert loaded.head_snapshot_id == said[won].split()[1]
                assert shared(loaded.head_snapshot) == {"n": n, "writer": won}
                assert len(loaded.snapshots) == n + 1
                law.check(loaded)
    assert is_whole(path)


def crowding(path: str, k: int) -> int:
    """Commit to many checkpoints at once, while the loop ticks."""
    return asyncio.run(_crowd(path, k))


async def _crowd(path: str, k: int) -> int:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async with SQLiteCheckpointStorage(path) as storage:
        say("ready")
        listen()
        ticking = asyncio.ensure_future(tick())
        made = await asyncio.gather(*(grown(storage, f"{k} {n}", commits=5) for n in range(25)))
        ticking.cancel()
        await asyncio.wait([ticking])
        for one in made:
            assert lineage(await storage.load(one.checkpoint_id)) == lineage(one)
    return ticks


async def test_c19_four_processes_commit_at_once_and_no_lock_is_told_of(path: Path) -> None:
    with ExitStack() as stack:
        children = [stack.enter_context(Talking(crowding, str(path), k)) for k in range(4)]
        for child in children:
            assert child.hear() == "ready"
        for child in children:
            child.tell()
        assert all(child.result() > 10 for child in children)
    async with SQLiteCheckpointStorage(path) as storage:
        assert len(await storage.list_checkpoints()) == 100
        for k in range(4):
            for n in range(25):
                loaded = await storage.load(f"{k} {n}")
                assert [shared(one)["n"] for one in loaded.snapshots] == list(range(5))
                assert [parent for _, parent in lineage(loaded)] == [
                    None,
                    *(one for one, _ in lineage(loaded)[:-1]),
                ]
    assert is_whole(path)


def hogging(path: str) -> None:
    """Commit without a pause, so that the writer's thread always has something to do."""
    asyncio.run(_hog(path))


async def _hog(path: str) -> None:
    async with SQLiteCheckpointStorage(path) as storage:

        async def one(name: str) -> None:
            checkpoint = await grown(storage, name, commits=1)
            while True:
                await checkpoint.commit_snapshot(state(1, n=os.urandom(8).hex()))

        say("ready")
        await asyncio.gather(*(one(f"hog {os.getpid()} {n}") for n in range(4)))


async def test_c19_who_never_pauses_does_not_keep_others_out(path: Path) -> None:
    with ExitStack() as stack:
        hogs = [stack.enter_context(Talking(hogging, str(path))) for _ in range(2)]
        for hog in hogs:
            assert hog.hear() == "ready"
        async with SQLiteCheckpointStorage(path) as storage:
            checkpoint = await grown(storage, commits=30)
            for hog in hogs:
                hog.kill()
            assert lineage(await storage.load("order-17")) == lineage(checkpoint)
            assert len(await storage.list_checkpoints()) == 1 + 2 * 4
    assert is_whole(path)


# Kills.


def plan(seed: str) -> Iterator[str]:
    """What a writer does, the same for the same seed."""
    chance = random.Random(seed)
    while True:
        yield chance.choices(["commit", "prune", "begin", "several"], [8, 1, 1, 2])[0]


def forking(path: str, format: Format) -> None:
    """Start a process for every line that is heard, which follows a plan, and say how it ended."""
    while seed := listen():
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(_follow(path, format, seed))
            finally:
                os._exit(1)
        _, waited = os.waitpid(pid, 0)
        say(f"ended {os.waitstatus_to_exitcode(waited)}")


async def _follow(path: str, format: Format, seed: str) -> None:
    say(str(os.getpid()))
    storage = SQLiteCheckpointStorage(path, serialization_format=format)
    checkpoint = await storage.load("order-17")
    for number, step in enumerate(plan(seed)):
        if step == "commit":
            await _commit(checkpoint, seed)
        elif step == "prune":
            await checkpoint.prune()
        elif step == "begin":
            await grown(storage, f"{seed} {number}", commits=1)
        else:  # in one transaction, or two
            others = (grown(storage, f"{seed} {number} {k}", commits=1) for k in range(4))
            await asyncio.gather(_commit(checkpoint, seed), *others)
        say("done")


async def _commit(checkpoint: Checkpoint, seed: str) -> None:
    n = shared(checkpoint.head_snapshot)["n"] + 1
    await checkpoint.commit_snapshot(state(n, n=n, text=f"{seed} {n} " * (n * 37 % 300)))


def after(numbers: list[int], seed: str, steps: int) -> list[int]:
    """The numbers in the states of `order-17` after some steps of a plan."""
    for _, step in zip(range(steps), plan(seed), strict=False):
        if step in ("commit", "several"):
            numbers = [*numbers, numbers[-1] + 1]
        elif step == "prune":
            numbers = numbers[-1:]
    return numbers


@pytest.mark.parametrize("format", ["json", "msgpack"])
async def test_r33_no_kill_at_any_moment_loses_what_was_reported(path: Path, format: Format) -> None:
    chance = random.Random(format)
    law = LineageLaw(one_clock=False)  # several processes
    async with SQLiteCheckpointStorage(path, serialization_format=format) as storage:
        await create(storage).commit_snapshot(state(0, n=0))
    numbers = [0]
    with Talking(forking, str(path), format) as killer:
        for turn in range(50 if SOAKING else 10):
            seed = f"{format} {turn}"
            killer.tell(seed)
            child = int(killer.hear())
            done = chance.randrange(10)
            for _ in range(done):
                assert killer.hear() == "done"
            sum(range(chance.randrange(80_000)))  # some moment of the next step
            os.kill(child, signal.SIGKILL)
            while (said := killer.hear()) == "done":
                done += 1
            assert said == f"ended {-signal.SIGKILL}"
            # Opened anew each time, so that the log of the dead one is taken up again.
            async with SQLiteCheckpointStorage(path, serialization_format=format) as storage:
                loaded = await storage.load("order-17")
                found = [shared(one)["n"] for one in loaded.snapshots]
                assert found in (after(numbers, seed, done), after(numbers, seed, done + 1))
                law.check(loaded, await storage.load("order-17"))
                for number, step in zip(range(done), plan(seed), strict=False):
                    names = [f"{seed} {number}"] if step == "begin" else []
                    names += [f"{seed} {number} {k}" for k in range(4) if step == "several"]
                    for name in names:
                        assert len((await storage.load(name)).snapshots) == 1
                await _commit(loaded, "again")
                numbers = [*found, found[-1] + 1]
            assert is_whole(path)


def stopping(path: str) -> None:
    """Commit until it is stopped."""
    asyncio.run(_stop(path))


async def _stop(path: str) -> None:
    async with SQLiteCheckpointStorage(path, leases=True, lease_seconds=0.01) as storage:
        checkpoint = await storage.load("order-17")
        say("loaded")
        listen()
        try:
            await checkpoint.commit_snapshot(state(7, n="late"))
        except CheckpointConflictError as error:
            say(type(error).__name__)


async def test_r36_a_process_that_slept_while_others_went_on_changes_nothing(path: Path) -> None:
    async with SQLiteCheckpointStorage(path) as storage:
        await grown(storage)
        with Talking(stopping, str(path)) as sleeper:
            assert sleeper.hear() == "loaded"
            sleeper.process.send_signal(signal.SIGSTOP)
            sleeper.tell("commit")
            mine = await storage.load("order-17")
            await mine.commit_snapshot(state(3, n="mine"))
            sleeper.process.send_signal(signal.SIGCONT)
            assert sleeper.hear() == "CheckpointConflictError"
        assert lineage(await storage.load("order-17")) == lineage(mine)
