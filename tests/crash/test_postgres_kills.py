"""Writers of a PostgreSQL storage that are killed, and the server itself: what was acknowledged stays."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator

import pytest

from branchpoint.checkpoint import Checkpoint
from branchpoint.errors import CheckpointConflictError, CheckpointNotFoundError, StorageError
from branchpoint.storage.postgres import PostgresCheckpointStorage
from branchpoint.testing import LineageLaw, check_lineage_law
from tests.profiles import SOAKING
from tests.scenario.kit import Talking, listen, say
from tests.servers.postgres import PostgresPrograms, PostgresServer
from tests.storages import create, grown, lineage, postgres_at, shared, state

WRITERS = 8


# Races.


def racing(place: str, k: int) -> None:
    """Load when told to, commit when told to, and say how it went."""
    asyncio.run(_race(place, k))


async def _race(place: str, k: int) -> None:
    async with postgres_at(place, connections=1) as storage:
        await storage.list_checkpoints()
        say("ready")
        n = 0
        while listen() == "load":
            checkpoint = await storage.load("order-17")
            say("loaded")
            listen()
            n += 1
            try:
                snapshot = await checkpoint.commit_snapshot(state(n, n=n, writer=k))
                say(f"won {snapshot.snapshot_id}")
            except CheckpointConflictError:
                say("conflict")


async def test_c17_of_eight_processes_exactly_one_wins_every_round(postgres_place: str) -> None:
    async with postgres_at(postgres_place) as storage:
        await grown(storage, commits=1)
        law = LineageLaw()
        children = [Talking(racing, postgres_place, k) for k in range(WRITERS)]
        try:
            for child in children:
                assert child.hear() == "ready"
            for n in range(1, (200 if SOAKING else 20) + 1):
                for word, answer in (("load", "loaded"), ("commit", "")):
                    for child in children:
                        child.tell(word)
                    said = [child.hear() for child in children]
                    assert not answer or said == [answer] * WRITERS
                assert sorted(word.split()[0] for word in said) == ["conflict"] * (WRITERS - 1) + ["won"]
                [won] = [k for k, word in enumerate(said) if word.startswith("won")]
                loaded = await storage.load("order-17")
                assert loaded.head_snapshot_id == said[won].split()[1]
                assert shared(loaded.head_snapshot) == {"n": n, "writer": won}
                assert len(loaded.snapshots) == n + 1
            law.check(loaded, await storage.load("order-17"))
        finally:
            for child in children:
                child.__exit__()


# Writers.


def plan(seed: str) -> Iterator[str]:
    """What a writer does, the same for the same seed."""
    chance = random.Random(seed)
    while True:
        yield chance.choices(["commit", "prune", "begin"], [8, 1, 1])[0]


def forking(place: str) -> None:
    """Start a process for every line that is heard, which follows a plan, and say how it ended."""
    while seed := listen():
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(_follow(place, seed))
            finally:
                os._exit(1)
        _, waited = os.waitpid(pid, 0)
        say(f"ended {os.waitstatus_to_exitcode(waited)}")


async def _follow(place: str, seed: str) -> None:
    say(str(os.getpid()))
    storage = postgres_at(place, connections=1)
    checkpoint = await storage.load("order-17")
    for number, step in enumerate(plan(seed)):
        if step == "commit":
            n = shared(checkpoint.head_snapshot)["n"] + 1
            await checkpoint.commit_snapshot(state(n, n=n, text=f"{seed} {n} " * (n * 37 % 300)))
        elif step == "prune":
            await checkpoint.prune()
        else:
            await grown(storage, f"{seed} {number}", commits=1)
        say("done")


def after(numbers: list[int], seed: str, steps: int) -> list[int]:
    """The numbers in the states of `order-17` after some steps of a plan."""
    for _, step in zip(range(steps), plan(seed), strict=False):
        if step == "commit":
            numbers = [*numbers, numbers[-1] + 1]
        elif step == "prune":
            numbers = numbers[-1:]
    return numbers


async def test_r33_no_kill_of_a_writer_loses_what_was_reported(postgres_place: str) -> None:
    chance = random.Random(33)
    law = LineageLaw()
    async with postgres_at(postgres_place) as storage:
        mine = create(storage)
        await mine.commit_snapshot(state(0, n=0))
        numbers = [0]
        with Talking(forking, postgres_place) as killer:
            for turn in range(50 if SOAKING else 12):
                seed = f"turn {turn}"
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
                # A commit that waits for the row comes after whatever the dead one has sent.
                loaded = await storage.load("order-17")
                while True:
                    try:
                        await loaded.commit_snapshot(state(1, n=shared(loaded.head_snapshot)["n"] + 1))
                        break
                    except CheckpointConflictError:
                        await loaded.refresh()
                again = await storage.load("order-17")
                found = [shared(one)["n"] for one in again.snapshots][:-1]
                assert found in (after(numbers, seed, done), after(numbers, seed, done + 1))
                law.check(loaded, again)
                numbers = [*found, found[-1] + 1]
                for number, step in zip(range(done), plan(seed), strict=False):
                    if step == "begin":
                        other = await storage.load(f"{seed} {number}")
                        assert len(other.snapshots) == 1


# The server.


class Writer:
    """Commits to one checkpoint again and again, and knows what was acknowledged."""

    def __init__(self, storage: PostgresCheckpointStorage, name: str) -> None:
        self.storage = storage
        self.checkpoint: Checkpoint = create(storage, name)
        self.acknowledged: list[str] = []
        self.law = LineageLaw()
        self.n = 0

    async def write(self, enough: int) -> None:
        """Commit until the server is gone."""
        try:
            for _ in range(enough):
                self.n += 1
                made = await self.checkpoint.commit_snapshot(
                    state(self.n, n=self.n, text=f"{self.n} " * (self.n * 37 % 400))
                )
                self.acknowledged.append(made.snapshot_id)
        except StorageError as error:
            assert error.retryable, error

    async def settle(self) -> None:
        """With the server back, find out what is there, and check it."""
        try:
            loaded = await self.storage.load(self.checkpoint.checkpoint_id)
        except CheckpointNotFoundError:
            assert not self.acknowledged
            return
        ids = [one for one, _ in lineage(loaded)]
        assert ids[: len(self.acknowledged)] == self.acknowledged
        assert len(ids) <= len(self.acknowledged) + 1
        for one in loaded.snapshots:
            assert one.state  # whole
        if self.checkpoint.head_snapshot_id is None:
            self.checkpoint = loaded  # a first commit whose reply never came
        else:
            await self.checkpoint.refresh()
        self.acknowledged = ids
        self.law.check(self.checkpoint, loaded)


async def kill_again_and_again(server: PostgresServer, rounds: int) -> None:
    chance = random.Random(rounds)
    async with PostgresCheckpointStorage(server.dsn(), connections=6) as storage:
        await storage.setup()
        writers = [Writer(storage, f"run-{n}") for n in range(12)]
        for _ in range(rounds):
            writing = [asyncio.ensure_future(one.write(10_000)) for one in writers]
            before = sum(len(one.acknowledged) for one in writers)
            while sum(len(one.acknowledged) for one in writers) < before + chance.randrange(5, 120):
                await asyncio.sleep(0)
            await asyncio.to_thread(server.kill)
            await asyncio.gather(*writing)
            await asyncio.to_thread(server.start)
            for one in writers:
                await one.settle()
        for one in writers:
            await one.write(2)
            await one.settle()
            check_lineage_law(one.checkpoint, await storage.load(one.checkpoint.checkpoint_id))


async def test_r33_no_kill_of_the_server_loses_what_was_acknowledged(
    killable_postgres: PostgresServer,
) -> None:
    await kill_again_and_again(killable_postgres, 50 if SOAKING else 4)


@pytest.mark.parametrize("grouped", [False, True])
async def test_r33_a_commit_is_durable_on_a_server_that_would_not_wait(
    postgres_programs: PostgresPrograms, grouped: bool
) -> None:
    """With `synchronous_commit = off` the log is written ten seconds later, which is too late for a kill."""
    server = PostgresServer(
        postgres_programs, settings={"synchronous_commit": "off", "wal_writer_delay": "10s"}
    )
    server.start()
    try:
        async with PostgresCheckpointStorage(server.dsn()) as storage:
            many = [create(storage, f"run-{n}") for n in range(20 if grouped else 1)]
            for n in range(4):
                await asyncio.gather(*(one.commit_snapshot(state(n, n=n)) for one in many))
                server.kill()
                server.start()
                for one in many:
                    assert lineage(await storage.load(one.checkpoint_id)) == lineage(one)
            await many[0].prune()
            server.kill()
            server.start()
            assert lineage(await storage.load("run-0")) == lineage(many[0])
            await storage.delete("run-0")
            server.kill()
            server.start()
            with pytest.raises(CheckpointNotFoundError):
                await storage.load("run-0")
    finally:
        server.remove()
