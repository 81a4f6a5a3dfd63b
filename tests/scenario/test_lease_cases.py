"""Leases: a second run is refused before it acts, a dead holder's lease passes on, a stopped one is fenced."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from branchpoint import (
    Checkpoint,
    CheckpointConflictError,
    CheckpointLeasedError,
    Workflow,
    WorkflowRunState,
    clock,
)
from branchpoint.checkpoint import CheckpointStorage, Lease
from branchpoint.testing._place import MovableClock
from tests.journals import journal_of
from tests.scenario.kit import (
    Around,
    Ask,
    LoopTime,
    Outside,
    Place,
    Scripted,
    Step,
    Talking,
    Ticks,
    boundaries,
    bytes_of,
    chain,
    every_storage,
    in_new_process,
    lineage,
    listen,
    only_request,
    place_of,
    reached,
    say,
)
from tests.scenario.leaving import Way, awaited, every_way

FILES = pytest.mark.parametrize("kind", ["file-json", "file-msgpack"])


class Gate(Outside):
    """What a step does: it says that it was entered, and waits until the test lets it go on."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self, text: str, ctx: Any) -> None:
        self.entered.set()
        await self.open.wait()


@pytest.fixture
def time() -> Iterator[MovableClock]:
    """The time of day, which the test puts forward for whoever it lets look."""
    with clock.injected(MovableClock()) as moved:
        assert isinstance(moved, MovableClock)
        yield moved


def leased(place: Place, **more: Any) -> CheckpointStorage:
    """Open another storage on the same data, with leases."""
    storage = place.open(leases=True, **more)
    assert storage is not None
    return storage


def gated(ticks: Ticks, does: Any) -> Workflow:
    return chain(Step("a", ticks), Scripted("b", ticks, does), Step("c", ticks, final=True))


def quick(ticks: Ticks) -> Workflow:
    """The same workflow, which does not wait."""

    async def nothing(text: str, ctx: Any) -> None: ...

    return gated(ticks, nothing)


@asynccontextmanager
async def under_way(
    workflow: Workflow, checkpoint: Checkpoint, gate: Gate, message: str = "x"
) -> AsyncIterator[asyncio.Task[Any]]:
    """Have a run wait inside of its second step; let it go on at the end of the block, and end."""
    running = asyncio.create_task(awaited(workflow, message=message, checkpoint=checkpoint))
    await reached(gate.entered, running)
    try:
        yield running
    finally:
        gate.open.set()
        await asyncio.wait({running})


# Refused before it acts.


@every_storage
@every_way
async def test_r60_a_second_run_is_refused_before_it_repeats_a_side_effect(
    place: Place, ticks: Ticks, way: Way
) -> None:
    gate = Gate()
    workflow = gated(ticks, gate)
    checkpoint = workflow.create_checkpoint("run-1", leased(place))
    assert checkpoint.lease is None
    async with under_way(workflow, checkpoint, gate) as running:
        assert checkpoint.lease is not None
        other = await leased(place).load("run-1")
        before, entered = bytes_of(other), ticks.all()
        with pytest.raises(CheckpointLeasedError, match="'run-1' is leased by another run") as caught:
            await way(workflow, checkpoint=other)
        assert caught.value.retryable
        assert caught.value.retry_after is not None
        assert 0 < caught.value.retry_after <= 30
        assert ticks.all() == entered
        assert bytes_of(await leased(place).load("run-1")) == before
        assert (other.in_use_by, other.lease) == (None, None)
    assert running.result().get_outputs() == ["x>a>b>c"]
    assert checkpoint.lease is None
    await other.refresh()
    assert (await workflow.run(checkpoint=other)).get_outputs() == ["x>a>b>c"]
    assert ticks.all() == {"a": 1, "b": 1, "c": 1}


@every_storage
async def test_whoever_takes_the_lease_first_looks_at_the_head_after_it(place: Place, ticks: Ticks) -> None:
    """The head moved between load and run: the lease is free again, and nobody acts on the old head."""
    workflow = chain(Step("a", ticks), Step("b", ticks, final=True))
    checkpoint = workflow.create_checkpoint("run-1", leased(place))
    await workflow.run("x", checkpoint=checkpoint, max_supersteps=1)
    stale = await leased(place).load("run-1")
    await workflow.run(checkpoint=checkpoint)
    with pytest.raises(CheckpointConflictError) as caught:
        await workflow.run(checkpoint=stale)
    assert not isinstance(caught.value, CheckpointLeasedError)
    assert ticks.all() == {"a": 1, "b": 1}
    await leased(place).take_lease("run-1")  # the refused one gave it back


@every_storage
async def test_what_is_committed_outside_of_a_run_is_refused_inside_the_commit(
    place: Place, ticks: Ticks
) -> None:
    gate = Gate()
    workflow = gated(ticks, gate)
    checkpoint = workflow.create_checkpoint("run-1", leased(place))
    async with under_way(workflow, checkpoint, gate):
        other = await leased(place).load("run-1")
        before = bytes_of(other)
        with pytest.raises(CheckpointLeasedError):
            await other.commit_snapshot(metadata={"by": "another"})
        with pytest.raises(CheckpointLeasedError):
            await other.abandon()
        with pytest.raises(CheckpointLeasedError):
            await other.prune()
        assert bytes_of(other) == before
        fork = await other.fork(checkpoint_id="run-2")
        assert (await leased(place).load("run-2")).head_snapshot_id == fork.head_snapshot_id
    await other.refresh()
    await other.commit_snapshot(metadata={"by": "another"})
    await other.prune()
    assert boundaries(await leased(place).load("run-1")) == ["restarted"]


@every_storage
async def test_a_new_checkpoint_is_leased_before_anything_of_it_is_stored(place: Place, ticks: Ticks) -> None:
    workflow = chain(Step("a", ticks, final=True))
    lease = await leased(place).take_lease("run-1")
    checkpoint = workflow.create_checkpoint("run-1", leased(place))
    with pytest.raises(CheckpointLeasedError):
        await workflow.run("x", checkpoint=checkpoint)
    assert (checkpoint.snapshots, ticks.all()) == ([], {})
    await leased(place).end_lease("run-1", lease)
    assert (await workflow.run("x", checkpoint=checkpoint)).get_outputs() == ["x>a"]


@every_storage
async def test_a_paused_run_has_no_lease_so_whoever_has_the_answer_goes_on(
    place: Place, ticks: Ticks
) -> None:
    workflow = chain(Ask("ask", ticks), Step("b", ticks, final=True))
    checkpoint = workflow.create_checkpoint("run-1", leased(place))
    result = await workflow.run("x", checkpoint=checkpoint)
    assert result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    assert checkpoint.lease is None
    other = await leased(place).load("run-1")
    result = await workflow.run(checkpoint=other, responses={only_request(other): "yes"})
    assert result.get_outputs() == ["x>ask=yes>b"]


@every_storage
async def test_r31_without_leases_the_head_still_protects_the_data(place: Place, ticks: Ticks) -> None:
    """The second one acts, and nothing of it is persisted; also where only the first one takes a lease."""
    for n, options in enumerate(({}, {"leases": True})):
        gate, ticks = Gate(), Ticks()
        workflow = gated(ticks, gate)
        first = workflow.create_checkpoint(f"run-{n}", place.open(**options))
        async with under_way(workflow, first, gate) as running:
            second = await place.reload(f"run-{n}")
            assert (await quick(ticks).run(checkpoint=second)).get_outputs() == ["x>a>b>c"]
            stored = bytes_of(second)
        assert isinstance(running.exception(), CheckpointConflictError)
        assert ticks.all() == {"a": 1, "b": 2, "c": 1}
        assert bytes_of(await place.reload(f"run-{n}")) == stored


# Renewed while the run goes on.


class Leases(Around):
    """A storage that tells of every renewal, and may be told what to do before one."""

    def __init__(self, inner: CheckpointStorage) -> None:
        super().__init__(inner)
        self.renewals: asyncio.Queue[str] = asyncio.Queue()
        self.fails: list[Exception] = []

    async def renew_lease(self, checkpoint_id: str, lease: Lease) -> None:
        try:
            if self.fails:
                raise self.fails.pop(0)
            await super().renew_lease(checkpoint_id, lease)
        except Exception as error:
            self.renewals.put_nowait(type(error).__name__)
            raise
        self.renewals.put_nowait("renewed")


@every_storage
async def test_a_run_that_takes_long_keeps_its_lease(place: Place, ticks: Ticks, time: MovableClock) -> None:
    gate, loop_time, storage = Gate(), LoopTime(), Leases(leased(place, lease_seconds=60))
    workflow = gated(ticks, gate)
    checkpoint = workflow.create_checkpoint("run-1", storage)
    async with under_way(workflow, checkpoint, gate) as running:
        other = await leased(place).load("run-1")
        for _ in range(10):
            time.ahead += timedelta(seconds=21)
            loop_time.forward(21)
            assert await storage.renewals.get() == "renewed"
            with pytest.raises(CheckpointLeasedError) as caught:
                await workflow.run(checkpoint=other)
            assert caught.value.retry_after is not None
            assert caught.value.retry_after > 55
    assert running.result().get_outputs() == ["x>a>b>c"]
    assert storage.renewals.empty()


@every_storage
async def test_a_renewal_that_fails_is_tried_again_and_the_run_goes_on(
    place: Place, ticks: Ticks, time: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    gate, loop_time, storage = Gate(), LoopTime(), Leases(leased(place))
    workflow = gated(ticks, gate)
    checkpoint = workflow.create_checkpoint("run-1", storage)
    storage.fails = [OSError(28, "no space left on device"), RuntimeError()]
    async with under_way(workflow, checkpoint, gate) as running:
        told = []
        for _ in range(4):
            time.ahead += timedelta(seconds=10)
            loop_time.forward(11)
            told.append(await storage.renewals.get())
        assert told == ["OSError", "RuntimeError", "renewed", "renewed"]
    assert running.result().get_outputs() == ["x>a>b>c"]
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "'run-1' was not renewed; tried again in 10.0 seconds: OSError(28" in told[0]


@every_storage
async def test_a_holder_that_learns_that_its_lease_passed_on_commits_nothing_more(
    place: Place, ticks: Ticks, time: MovableClock
) -> None:
    """Also where storage would let it: whoever had the lease gave it back, and committed nothing."""
    gate, loop_time, storage = Gate(), LoopTime(), Leases(leased(place))
    workflow = gated(ticks, gate)
    checkpoint = workflow.create_checkpoint("run-1", storage)
    async with under_way(workflow, checkpoint, gate) as running:
        time.ahead += timedelta(seconds=31)
        other = leased(place)
        await other.end_lease("run-1", await other.take_lease("run-1"))
        before = bytes_of(await other.load("run-1"))
        loop_time.forward(11)
        assert await storage.renewals.get() == "CheckpointLeasedError"
    assert isinstance(running.exception(), CheckpointLeasedError)
    assert bytes_of(await other.load("run-1")) == before == bytes_of(checkpoint)
    assert ticks.all() == {"a": 1, "b": 1}
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == ["x>a>b>c"]


@every_storage
async def test_a_holder_that_has_not_learned_of_it_is_fenced_inside_its_commit(
    place: Place, ticks: Ticks, time: MovableClock
) -> None:
    gate, late = Gate(), Gate()
    workflow, theirs = gated(ticks, gate), gated(ticks, late)
    checkpoint = workflow.create_checkpoint("run-1", leased(place))
    async with under_way(workflow, checkpoint, gate) as running:
        time.ahead += timedelta(seconds=31)
        other = await leased(place).load("run-1")
        going = asyncio.create_task(awaited(theirs, checkpoint=other))
        await reached(late.entered, going)
        before = bytes_of(other)
    assert isinstance(running.exception(), CheckpointLeasedError)
    assert bytes_of(await leased(place).load("run-1")) == before
    late.open.set()
    assert (await going).get_outputs() == ["x>a>b>c"]
    assert ticks.all() == {"a": 1, "b": 2, "c": 1}


# Clocks that disagree.


@every_storage
async def test_a_clock_that_is_ahead_lets_a_second_run_in_and_the_first_one_is_fenced(
    place: Place, ticks: Ticks
) -> None:
    gate, late, ahead = Gate(), Gate(), MovableClock()
    ahead.ahead = timedelta(hours=1)
    workflow, theirs = gated(ticks, gate), gated(ticks, late)
    checkpoint = workflow.create_checkpoint("run-1", leased(place))
    async with under_way(workflow, checkpoint, gate) as running:
        with clock.injected(ahead):
            other = await leased(place).load("run-1")
            going = asyncio.create_task(awaited(theirs, checkpoint=other))
        await reached(late.entered, going)
    assert isinstance(running.exception(), CheckpointLeasedError)
    late.open.set()
    assert (await going).get_outputs() == ["x>a>b>c"]
    assert lineage(await leased(place).load("run-1")) == lineage(other)


@every_storage
async def test_a_clock_that_is_behind_waits_no_longer_than_a_lease_lasts(place: Place, ticks: Ticks) -> None:
    gate, behind = Gate(), MovableClock()
    behind.ahead = -timedelta(hours=1)
    workflow = gated(ticks, gate)
    checkpoint = workflow.create_checkpoint("run-1", leased(place))
    async with under_way(workflow, checkpoint, gate):
        other = await leased(place).load("run-1")
        with clock.injected(behind), pytest.raises(CheckpointLeasedError) as caught:
            await workflow.run(checkpoint=other)
        assert caught.value.retry_after == 30
    await other.refresh()
    with clock.injected(behind):
        assert (await workflow.run(checkpoint=other)).get_outputs() == ["x>a>b>c"]


# Other processes.


def in_folder(folder: str, kind: str) -> tuple[Place, Ticks, Workflow]:
    """What a process of these scenarios has: the second step says that it is entered, and listens."""
    ticks = Ticks(Path(folder) / "ticks")

    async def waits(text: str, ctx: Any) -> None:
        say("entered")
        await asyncio.to_thread(listen)

    return place_of(kind, Path(folder)), ticks, gated(ticks, waits)


async def works(folder: str, kind: str) -> list[Any]:
    place, _, workflow = in_folder(folder, kind)
    checkpoint = workflow.create_checkpoint("run-1", leased(place))
    try:
        result = await workflow.run("x", checkpoint=checkpoint)
    except CheckpointConflictError as error:
        return [type(error).__name__, len(checkpoint.snapshots), checkpoint.lease, checkpoint.in_use_by]
    return result.get_outputs()


async def goes_on(folder: str, kind: str) -> list[str]:
    place, _, workflow = in_folder(folder, kind)
    checkpoint = await leased(place).load("run-1")
    say("ready")
    listen()
    try:
        return (await workflow.run(checkpoint=checkpoint)).get_outputs()
    except CheckpointConflictError as error:
        say(type(error).__name__)
        return []


async def tries(folder: str, kind: str) -> list[Any]:
    place, _, workflow = in_folder(folder, kind)
    try:
        await workflow.run(checkpoint=await leased(place).load("run-1"))
    except CheckpointLeasedError as error:
        return [error.retryable, error.retry_after]
    return []


@FILES
async def test_r60_another_process_is_refused_before_it_repeats_a_side_effect(
    tmp_path: Path, kind: str
) -> None:
    with Talking(works, str(tmp_path), kind) as child:
        assert child.hear() == "entered"
        retryable, retry_after = in_new_process(tries, str(tmp_path), kind)
        assert retryable
        assert 0 < retry_after <= 30
        child.tell()
        assert child.result() == ["x>a>b>c"]
    assert Ticks(tmp_path / "ticks").all() == {"a": 1, "b": 1, "c": 1}


@FILES
async def test_of_three_processes_that_go_on_one_acts(tmp_path: Path, kind: str) -> None:
    place, ticks, _ = in_folder(str(tmp_path), kind)
    checkpoint = quick(ticks).create_checkpoint("run-1", leased(place))
    await quick(ticks).run("x", checkpoint=checkpoint, max_supersteps=1)
    children = [Talking(goes_on, str(tmp_path), kind) for _ in range(3)]
    try:
        assert [child.hear() for child in children] == ["ready"] * 3
        for child in children:
            child.tell()
        said = [child.hear() for child in children]
        assert sorted(said) == ["CheckpointLeasedError"] * 2 + ["entered"]
        winner = children[said.index("entered")]
        winner.tell()
        assert winner.result() == ["x>a>b>c"]
    finally:
        for child in children:
            child.__exit__()
    assert ticks.all() == {"a": 1, "b": 1, "c": 1}
    assert not list((tmp_path / "runs").glob("*.lease"))


@FILES
async def test_the_lease_of_a_killed_holder_passes_on_once_it_has_expired(
    tmp_path: Path, kind: str, time: MovableClock
) -> None:
    with Talking(works, str(tmp_path), kind) as child:
        assert child.hear() == "entered"
        child.kill()
    place, ticks, _ = in_folder(str(tmp_path), kind)
    checkpoint = await leased(place).load("run-1")
    with pytest.raises(CheckpointLeasedError) as caught:
        await quick(ticks).run(checkpoint=checkpoint)
    assert ticks.all() == {"a": 1, "b": 1}
    assert caught.value.retry_after is not None
    time.ahead += timedelta(seconds=caught.value.retry_after)
    assert (await quick(ticks).run(checkpoint=checkpoint)).get_outputs() == ["x>a>b>c"]
    assert ticks.all() == {"a": 1, "b": 2, "c": 1}
    assert not list((tmp_path / "runs").glob("*.lease"))


def stopped(process: Any) -> None:
    """Stop a process, and wait until it has stopped."""
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


@FILES
@pytest.mark.parametrize("ended", [False, True], ids=["while the other works", "when the other is done"])
async def test_a_stopped_holder_that_wakes_is_fenced_and_persists_nothing(
    tmp_path: Path, kind: str, time: MovableClock, ended: bool
) -> None:
    with Talking(works, str(tmp_path), kind) as child:
        assert child.hear() == "entered"
        stopped(child.process)
        place, ticks, _ = in_folder(str(tmp_path), kind)
        checkpoint, gate = await leased(place).load("run-1"), Gate()
        workflow = gated(ticks, gate)
        with pytest.raises(CheckpointLeasedError):
            await workflow.run(checkpoint=checkpoint)
        time.ahead += timedelta(seconds=31)
        running = asyncio.create_task(awaited(workflow, checkpoint=checkpoint))
        await reached(gate.entered, running)
        if ended:
            gate.open.set()
            assert (await running).get_outputs() == ["x>a>b>c"]
        journal = journal_of(tmp_path / "runs", "run-1")
        before = journal.read_bytes()
        child.tell()  # what its handler waits for comes now
        os.kill(child.process.pid, signal.SIGCONT)
        refused = "CheckpointConflictError" if ended else "CheckpointLeasedError"
        assert await asyncio.to_thread(child.result) == [refused, 2, None, None]
        assert journal.read_bytes() == before
        gate.open.set()
        assert (await running).get_outputs() == ["x>a>b>c"]
    assert ticks.all() == {"a": 1, "b": 2, "c": 1}
    loaded = await leased(place).load("run-1")
    assert lineage(loaded) == lineage(checkpoint)
    assert not list((tmp_path / "runs").glob("*.lease"))
