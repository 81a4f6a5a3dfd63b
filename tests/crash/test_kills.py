"""Processes that are killed: at every system call of what they do, and at any moment."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from branchpoint.checkpoint import Format
from branchpoint.errors import CheckpointNotFoundError
from branchpoint.storage import FileCheckpointStorage
from tests.crash.deeds import DEEDS, Attempt, deletes, prepared
from tests.crash.story import Labels, labels
from tests.crash.system_calls import SystemCalls, killing
from tests.scenario.kit import Talking, listen, say
from tests.storages import create, state

SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"


@pytest.fixture(params=["json", "msgpack"])
def format(request: pytest.FixtureRequest) -> Format:
    kind: Format = request.param
    return kind


def opened(folder: Path, format: Format) -> FileCheckpointStorage:
    return FileCheckpointStorage(folder, serialization_format=format)


async def found(folder: Path, format: Format) -> Labels:
    """What is there; nothing for no checkpoint."""
    try:
        return labels(await opened(folder, format).load("order-17"))
    except CheckpointNotFoundError:
        return ()


def forking(format: Format) -> None:
    """Start a process for every line that is heard, let it do that, and say how it ended.

    A fork of a process that has everything imported is much faster than a new interpreter.
    """
    while line := listen():
        work, *arguments = line.split("|")
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                asyncio.run({"do": do, "loop": loop}[work](format, *arguments))
                status = 0
            finally:
                os._exit(status)
        _, waited = os.waitpid(pid, 0)
        say(f"ended {os.waitstatus_to_exitcode(waited)}")


# At every system call.


async def do(format: Format, folder: str, what: str, at: str, half: str) -> None:
    """Do something, and be killed when it comes to a call, or in the middle of that write."""
    before, _, deed = DEEDS[what]
    storage = opened(Path(folder), format)
    checkpoint = await storage.load("order-17") if before else create(storage)
    with SystemCalls(Path(folder)) as calls:
        calls.arm(killing(int(at), half=half == "half"))
        await deed(checkpoint)


@pytest.mark.parametrize("what", DEEDS)
async def test_r33_killed_at_every_call(tmp_path: Path, format: Format, what: str) -> None:
    pattern = tmp_path / "pattern"
    await prepared(pattern, format, what)
    before, _, deed = DEEDS[what]
    done: Labels = () if deed is deletes else (2,) if what == "a prune" else (*before, 10)
    plain = Attempt(pattern, tmp_path / "plain", format, what)
    await plain.make(None)
    seen: list[Labels] = []
    with Talking(forking, format) as killer:
        for at, call in enumerate(plain.calls):
            for half in ("", "half") if call.name == "pwrite" else ("",):
                folder = tmp_path / f"{at}{half}"
                shutil.copytree(pattern, folder)
                killer.tell(f"do|{folder}|{what}|{at}|{half}")
                assert killer.hear() == f"ended {-signal.SIGKILL}"
                seen.append(await found(folder, format))
                await goes_on(folder, format, seen[-1])
    # First it is as it was, and from one moment on it is done.
    turn = seen.index(done)
    assert set(seen[:turn]) == {before}
    assert set(seen[turn:]) == {done}


async def goes_on(folder: Path, format: Format, now: Labels) -> None:
    """Another process commits, and clears away what the dead one left."""
    storage = opened(folder, format)
    checkpoint = await storage.load("order-17") if now else create(storage)
    await checkpoint.commit_snapshot(state(99, n=99))
    assert await found(folder, format) == (*now, 99)
    assert labels(await storage.load("bystander")) == (0, 1)
    names = {line.checkpoint_id for line in await storage.list_checkpoints()}
    assert names == {"bystander", "order-17"}
    assert not list(folder.glob(".tmp-*"))


# At any moment.


def plan(seed: str) -> Iterator[str]:
    chance = random.Random(seed)
    while True:
        yield "prune" if chance.random() < 0.2 else "commit"


def after(now: Labels, seed: str, steps: int) -> Labels:
    """What is there after some steps of a plan."""
    for _, step in zip(range(steps), plan(seed), strict=False):
        now = now[-1:] if step == "prune" else (*now, now[-1] + 1)
    return now


async def loop(format: Format, folder: str, seed: str) -> None:
    """Follow a plan until the kill, and say when a step is done."""
    say(str(os.getpid()))
    checkpoint = await opened(Path(folder), format).load("order-17")
    now = labels(checkpoint)
    for step in plan(seed):
        if step == "prune":
            await checkpoint.prune()
        else:
            label = now[-1] + 1
            await checkpoint.commit_snapshot(state(label, n=label, text="x" * (label * 37 % 3000)))
        now = labels(checkpoint)
        say("done")


async def test_r33_no_kill_at_any_moment_loses_what_was_reported(runs: Path, format: Format) -> None:
    await create(opened(runs, format)).commit_snapshot(state(0, n=0))
    chance = random.Random(format)
    now: Labels = (0,)
    with Talking(forking, format) as killer:
        for turn in range(200 if SOAK else 15):
            seed = f"{format} {turn}"
            killer.tell(f"loop|{runs}|{seed}")
            child = int(killer.hear())
            done = chance.randrange(12)
            for _ in range(done):
                assert killer.hear() == "done"
            sum(range(chance.randrange(60_000)))  # some moment of the next step
            os.kill(child, signal.SIGKILL)
            while (said := killer.hear()) == "done":
                done += 1
            assert said == f"ended {-signal.SIGKILL}"
            reported, begun = after(now, seed, done), after(now, seed, done + 1)
            now = await found(runs, format)
            assert now in (reported, begun)
            checkpoint = await opened(runs, format).load("order-17")
            await checkpoint.commit_snapshot(state(now[-1] + 1, n=now[-1] + 1))
            now = (*now, now[-1] + 1)
            assert await found(runs, format) == now
            assert not list(runs.glob(".tmp-*"))
