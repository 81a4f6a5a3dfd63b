"""The power is cut after every system call of a storage, and every folder that could be left is loaded.

Whatever was reported as done is there, what was not is there as a whole or not at all, nothing damaged is
seen, and the next commit works.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from branchpoint import clock, ids
from branchpoint.checkpoint import Format
from branchpoint.errors import CheckpointConflictError, StorageError
from tests.crash.power import Left, Platter, found, put
from tests.crash.story import Inspection, Labels, Story
from tests.crash.system_calls import Act, Call, Died, SystemCalls, dying, failing, read_only, short

SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"


@pytest.fixture(scope="module", params=["json", "msgpack"])
def format(request: pytest.FixtureRequest) -> Format:
    kind: Format = request.param
    return kind


@pytest.fixture(autouse=True)
def same_every_time() -> Iterator[None]:
    with ids.injected(ids.SequentialIds()), clock.injected(clock.SteppingClock()):
        yield


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory, format: Format) -> Inspection:
    """One for all tests: with the same ids and times, most of what is left was left before."""
    return Inspection(tmp_path_factory.mktemp("looks"), format)


async def life(story: Story) -> None:
    await story.commit(0)
    await story.commit(1)
    await story.commit(2, "y" * 700)
    await story.prune()
    await story.commit(3)
    await story.delete()
    await story.commit(4)
    await story.commit(5)


async def test_r33_a_power_cut_at_any_moment_of_a_life(home: Path, look: Inspection, format: Format) -> None:
    home.mkdir()
    with SystemCalls(home) as calls:
        story = Story(home / "deep" / "runs", format, calls)
        await life(story)
    before = look.count
    await cut_everywhere(story, Platter(home, tears=24 if SOAK else 5), look)
    assert look.count - before > 100


async def cut_everywhere(story: Story, platter: Platter, look: Inspection, since: int = 0) -> None:
    seen = 0
    for moment, allowed in story.changes():
        for call in story.calls.calls[seen:moment]:
            platter.see(call)
        seen = moment
        if moment >= since:
            for left in platter.cuts():
                await look(left, allowed)


# One writer dies at every call, another goes on, and then the power is cut.

Deed = Callable[[Story], Awaitable[None]]


async def commits(story: Story) -> None:
    await story.commit(10)


async def prunes(story: Story) -> None:
    await story.prune()


async def deletes(story: Story) -> None:
    await story.delete()


BEFORE: dict[str, tuple[Labels | None, Deed]] = {
    "first commit": (None, commits),
    "commit": ((0, 1, 2), commits),
    "prune": ((0, 1, 2), prunes),
    "delete": ((0, 1, 2), deletes),
}
"""What is there, and what is done then."""


async def start(home: Path, format: Format, settled: Labels | None) -> Left:
    """A folder in which everything is safe."""
    home.mkdir()
    if settled:
        with SystemCalls(home) as calls:
            story = Story(home / "deep" / "runs", format, calls)
            for label in settled:
                await story.commit(label)
    left = found(home)
    shutil.rmtree(home)
    return left


async def retold(
    home: Path,
    left: Left,
    format: Format,
    settled: Labels | None,
    deed: Deed,
    act: Act | None = None,
    *then: Deed,
) -> tuple[Story, int]:
    """Do a deed whose calls are dealt with by `act`, and what comes after it; say which call was its first."""
    home.mkdir()
    put(left, home)
    with SystemCalls(home) as calls:
        story = Story(home / "deep" / "runs", format, calls, settled)
        await story.taken_up()
        since = len(calls.calls)
        if act is not None:
            calls.arm(act)
        with suppress(StorageError, Died):
            await deed(story)
        calls.arm()
        for one in then:
            await one(story)
    shutil.rmtree(home)
    return story, since


async def another_process(story: Story) -> None:
    await story.taken_up()


async def more_commits(story: Story) -> None:
    await story.commit(11)
    await story.commit(12)


@pytest.mark.parametrize("what", BEFORE)
async def test_r33_a_writer_dies_another_goes_on_and_the_power_is_cut(
    home: Path, look: Inspection, format: Format, what: str
) -> None:
    settled, deed = BEFORE[what]
    left = await start(home, format, settled)
    plain, since = await retold(home, left, format, settled, deed, None)
    then = [another_process, *([deletes] if what == "delete" else []), more_commits]
    for at, call in enumerate(plain.calls.calls[since:]):
        if call.changes:
            story, since = await retold(home, left, format, settled, deed, dying(at), *then)
            await cut_everywhere(story, Platter(home, left, tears=0), look, since + at)


TROUBLE: dict[str, tuple[Callable[[int], Act], Callable[[Call], bool]]] = {
    "a call fails": (lambda at: failing(at, errno.EIO), lambda call: True),
    "a call is done and fails": (lambda at: failing(at, errno.EIO, late=True), lambda call: call.changes),
    "a disk that can only be read from a call on": (read_only, lambda call: call.changes),
    "a short write": (short, lambda call: call.name == "pwrite"),
    "half a write": (lambda at: short(at, errno.ENOSPC), lambda call: call.name == "pwrite"),
}
"""What goes wrong at a call, and at which calls that makes a difference."""


@pytest.mark.parametrize("what", BEFORE)
@pytest.mark.parametrize("trouble", TROUBLE)
async def test_r33_a_disk_fails_is_mended_and_the_power_is_cut(
    home: Path, look: Inspection, format: Format, what: str, trouble: str
) -> None:
    settled, deed = BEFORE[what]
    act, matters = TROUBLE[trouble]
    left = await start(home, format, settled)
    plain, since = await retold(home, left, format, settled, deed, None)
    then = [*([deletes] if what == "delete" else []), more_commits]
    for at, call in enumerate(plain.calls.calls[since:]):
        if matters(call):
            story, since = await retold(home, left, format, settled, deed, act(at), *then)
            await cut_everywhere(story, Platter(home, left, tears=0), look, since + at)


@pytest.mark.parametrize("what", BEFORE)
async def test_r33_a_disk_breaks_for_one_another_goes_on_and_the_power_is_cut(
    home: Path, look: Inspection, format: Format, what: str
) -> None:
    """What the first could not make durable, and could not take away, the other one reads and adds to."""
    settled, deed = BEFORE[what]
    left = await start(home, format, settled)
    plain, since = await retold(home, left, format, settled, deed)
    then = [another_process, *([deletes] if what == "delete" else []), more_commits]
    for at, call in enumerate(plain.calls.calls[since:]):
        if call.changes:
            story, since = await retold(home, left, format, settled, deed, read_only(at), *then)
            await cut_everywhere(story, Platter(home, left, tears=0), look, since + at)


# A cut while a writer recovers from a cut.


async def test_r33_the_power_is_cut_again_while_a_writer_recovers(
    home: Path, look: Inspection, format: Format
) -> None:
    left = await start(home, format, (0, 1))
    story, since = await retold(home, left, format, (0, 1), commits)
    platter = Platter(home, left, tears=9 if SOAK else 2)
    for call in story.calls.calls[:since]:
        platter.see(call)
    torn: dict[bytes | None, tuple[Left, Labels | None]] = {}
    for call in story.calls.calls[since:]:
        platter.see(call)
        for now in platter.cuts():
            key = next(data for name, data in now.items() if name.endswith(".journal"))
            if key not in torn:
                torn[key] = now, await look(now, frozenset({(0, 1), (0, 1, 10)}))
    assert len(torn) > 8
    for now, settled in torn.values():
        story, since = await retold(home, now, format, settled, more_commits)
        await cut_everywhere(story, Platter(home, now, tears=3 if SOAK else 1), look, since)


# Long lives by chance.


@pytest.mark.parametrize("seed", range(400 if SOAK else 6))
async def test_r33_one_folder_lives_through_one_power_cut_after_another(
    home: Path, tmp_path: Path, format: Format, seed: int
) -> None:
    chance = random.Random(f"{seed} {format}")
    (tmp_path / "looks").mkdir()
    look = Inspection(tmp_path / "looks", format)
    left: Left = {}
    settled: Labels | None = None
    labels = itertools.count()
    for _ in range(8):
        home.mkdir()
        put(left, home)
        platter = Platter(home, left)
        with SystemCalls(home) as calls:
            story = Story(home / "deep" / "runs", format, calls, settled)
            await story.taken_up()
            for _ in range(chance.randint(1, 4)):
                await some_deed(story, chance, labels)
        shutil.rmtree(home)
        moment = chance.randint(0, len(calls.calls))
        for call in calls.calls[:moment]:
            platter.see(call)
        left = platter.some_cut(chance)
        settled = await look(left, story.allowed_after(moment))


async def some_deed(story: Story, chance: random.Random, labels: Iterator[int]) -> None:
    """Change something, on a disk that fails or in a process that dies, one time in two."""
    at, deed = chance.randrange(25), chance.random()
    story.calls.arm(
        chance.choice(
            [
                dying(at, half=chance.random() < 0.5),
                failing(at, errno.EIO, late=chance.random() < 0.3),
                read_only(at),
                short(at, chance.choice([0, errno.ENOSPC])),
                *[None] * 4,
            ]
        )
    )
    try:
        if deed < 0.1:
            await story.delete()
        elif deed < 0.3 and story.checkpoint is not None:
            await story.prune()
        else:
            await story.commit(next(labels), "x" * chance.randrange(400))
    except StorageError:
        story.calls.arm()
        if chance.random() < 0.5:
            await story.taken_up()
    except (CheckpointConflictError, Died):  # a delete that was refused may have happened
        story.calls.arm()
        await story.taken_up()
    story.calls.arm()
