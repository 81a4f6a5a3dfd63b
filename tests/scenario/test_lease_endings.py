"""However a run ends, and whatever storage does meanwhile: its lease is given back, and nothing beats on."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from branchpoint import Checkpoint, CheckpointLeasedError, MemoryCheckpointStorage, StorageError
from branchpoint.checkpoint import CheckpointStorage, Lease
from tests.scenario.kit import (
    Around,
    Boom,
    LoopTime,
    Place,
    Scripted,
    Step,
    Ticks,
    chain,
    every_storage,
    place_of,
    reached,
    turns,
)
from tests.scenario.leaving import awaited, breaks, settled
from tests.scenario.test_endings import (
    PLAIN,
    STREAMED,
    Ending,
    Held,
    Recorder,
    Script,
    end,
    endings,
    scripted,
)


def leased(place: Place, **more: Any) -> CheckpointStorage:
    """Open another storage on the same data, with leases."""
    storage = place.open(leases=True, **more)
    assert storage is not None
    return storage


async def is_free(place: Place, checkpoint: Checkpoint) -> None:
    """Check that nobody has the lease, neither in memory nor in storage, and that no record of it stays."""
    storage = leased(place)
    assert (checkpoint.in_use_by, checkpoint.lease) == (None, None)
    with checkpoint.hold("a look") as hold:
        assert hold.left_lease is None
    path = getattr(storage, "path", None)
    assert path is None or not list(path.glob("*.lease"))
    await storage.end_lease(checkpoint.checkpoint_id, await storage.take_lease(checkpoint.checkpoint_id))


ENDINGS = [(kind, one) for one in (*endings(PLAIN), *endings(STREAMED)) for kind in ("memory", "file-json")]


@pytest.mark.parametrize(
    ("kind", "ending"), ENDINGS, ids=[f"{ending.name}-{kind}" for kind, ending in ENDINGS]
)
async def test_the_lease_is_given_back_however_a_run_ends(
    tmp_path: Path, ticks: Ticks, kind: str, ending: Ending
) -> None:
    script, begun, place = Script(ending.does, ticks), asyncio.Event(), place_of(kind, tmp_path)
    workflow = scripted(script)
    checkpoint = workflow.create_checkpoint("run-1", Held(leased(place), ending, begun))
    await end(ending, Recorder(workflow), checkpoint, script, begun)
    await is_free(place, checkpoint)
    loaded = await leased(place).load("run-1")
    assert (await workflow.run(checkpoint=loaded)).get_outputs() == ["x>t>b>c"]
    await is_free(place, loaded)


@every_storage
async def test_the_next_run_waits_until_the_lease_is_given_back(place: Place, ticks: Ticks) -> None:
    """Whoever leaves a stream goes on at once, in the same object: it is not in its own way."""
    script = Script("wait", ticks)
    workflow = scripted(script)
    checkpoint = workflow.create_checkpoint("run-1", leased(place))
    await breaks(workflow, script.entered, LoopTime(), message="x", checkpoint=checkpoint)
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == ["x>t>b>c"]
    await settled()
    await is_free(place, checkpoint)


@every_storage
def test_a_step_that_exits_the_program_gives_the_lease_back(place: Place, ticks: Ticks) -> None:
    workflow = scripted(Script("exit", ticks))
    checkpoint = workflow.create_checkpoint("run-1", leased(place))
    with pytest.raises(SystemExit, match="3"):
        asyncio.run(awaited(workflow, message="x", checkpoint=checkpoint))
    asyncio.run(is_free(place, checkpoint))
    assert asyncio.run(awaited(workflow, checkpoint=checkpoint)).get_outputs() == ["x>t>b>c"]


@every_storage
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_was_closed_over_a_run_leaves_a_lease_that_the_next_run_gives_back(
    place: Place, ticks: Ticks
) -> None:
    script = Script("wait", ticks)
    workflow = scripted(script)
    checkpoint = workflow.create_checkpoint("run-1", leased(place))
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)  # it would tell of the tasks that it lost
    task = loop.create_task(awaited(workflow, message="x", checkpoint=checkpoint))
    while not script.entered.is_set():
        loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    assert checkpoint.lease is not None
    with pytest.raises(CheckpointLeasedError):  # for another object it is still in force
        asyncio.run(awaited(workflow, checkpoint=asyncio.run(leased(place).load("run-1"))))
    assert asyncio.run(awaited(workflow, checkpoint=checkpoint)).get_outputs() == ["x>t>b>c"]
    asyncio.run(is_free(place, checkpoint))
    del task
    gc.collect()


# Storage that is slow, or fails.


class Leases(Around):
    """A storage whose calls about leases do something first: wait, or fail."""

    def __init__(self, inner: CheckpointStorage, **first: Callable[[], Any]) -> None:
        super().__init__(inner)
        self.first = first

    async def take_lease(self, checkpoint_id: str) -> Lease:
        await self._first("take")
        return await super().take_lease(checkpoint_id)

    async def renew_lease(self, checkpoint_id: str, lease: Lease) -> None:
        await self._first("renew")
        await super().renew_lease(checkpoint_id, lease)

    async def end_lease(self, checkpoint_id: str, lease: Lease) -> None:
        await self._first("end")
        await super().end_lease(checkpoint_id, lease)

    async def _first(self, name: str) -> None:
        if name in self.first:
            await self.first[name]()


def full(what: str = "no space left on device") -> Callable[[], Any]:
    async def fails() -> None:
        raise StorageError(what)

    return fails


class Wait:
    """Where a storage call says that it has begun, and waits."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.let = asyncio.Event()

    async def __call__(self) -> None:
        self.begun.set()
        await self.let.wait()


@every_storage
async def test_a_run_that_cannot_take_the_lease_does_nothing(place: Place, ticks: Ticks) -> None:
    workflow = chain(Step("a", ticks, final=True))
    storage = Leases(leased(place), take=full())
    checkpoint = workflow.create_checkpoint("run-1", storage)
    with pytest.raises(StorageError, match="no space"):
        await workflow.run("x", checkpoint=checkpoint)
    assert (ticks.all(), checkpoint.snapshots) == ({}, [])
    del storage.first["take"]
    assert (await workflow.run("x", checkpoint=checkpoint)).get_outputs() == ["x>a"]


@every_storage
@pytest.mark.parametrize("lands", [True, False])
async def test_who_is_cancelled_while_it_takes_the_lease_gives_it_back(
    place: Place, ticks: Ticks, lands: bool
) -> None:
    wait = Wait()

    async def take() -> None:
        await wait()
        if not lands:
            raise StorageError("no space left on device")

    workflow = chain(Step("a", ticks, final=True))
    checkpoint = workflow.create_checkpoint("run-1", Leases(leased(place), take=take))
    running = asyncio.create_task(awaited(workflow, message="x", checkpoint=checkpoint))
    await reached(wait.begun, running)
    running.cancel("why")
    await turns()
    running.cancel("again")
    await turns()
    assert not running.done()  # the lease may be taken by now
    wait.let.set()
    with pytest.raises(asyncio.CancelledError, match="why"):
        await running
    assert ticks.all() == {}
    await is_free(place, checkpoint)


@every_storage
async def test_a_storage_that_cancels_itself_is_not_taken_for_the_caller(place: Place, ticks: Ticks) -> None:
    async def cancels() -> None:
        raise asyncio.CancelledError

    workflow = chain(Step("a", ticks, final=True))
    storage = Leases(leased(place), take=cancels)
    checkpoint = workflow.create_checkpoint("run-1", storage)
    with pytest.raises(StorageError, match="'run-1' was cancelled inside the storage"):
        await workflow.run("x", checkpoint=checkpoint)
    storage.first = {"end": cancels}
    assert (await workflow.run("x", checkpoint=checkpoint)).get_outputs() == ["x>a"]


@every_storage
@pytest.mark.parametrize("fails", [True, False])
async def test_a_lease_that_is_not_given_back_hides_nothing_and_is_in_nobody_elses_way_for_long(
    place: Place, ticks: Ticks, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    async def does(text: str, ctx: Any) -> None:
        if fails and ticks["a"] == 1:
            raise Boom

    workflow = chain(Scripted("a", ticks, does, final=True))
    storage = Leases(leased(place), end=full())
    checkpoint = workflow.create_checkpoint("run-1", storage)
    if fails:
        with pytest.raises(Boom):
            await workflow.run("x", checkpoint=checkpoint)
    else:
        assert (await workflow.run("x", checkpoint=checkpoint)).get_outputs() == ["x>a"]
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(
        "The lease of checkpoint 'run-1' was not given back; it expires in 30.0 seconds: Stor"
    )
    assert (checkpoint.in_use_by, checkpoint.lease) == (None, None)
    with pytest.raises(CheckpointLeasedError):  # until then
        await workflow.run(checkpoint=await leased(place).load("run-1"))
    with pytest.raises(CheckpointLeasedError):  # it still cannot be given back
        await workflow.run(checkpoint=checkpoint)
    del storage.first["end"]
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == ["x>a"]
    await is_free(place, checkpoint)


@every_storage
async def test_giving_back_is_waited_for_no_longer_than_the_lease_lasts(place: Place, ticks: Ticks) -> None:
    wait, time = Wait(), LoopTime()
    workflow = chain(Step("a", ticks, final=True))
    checkpoint = workflow.create_checkpoint("run-1", Leases(leased(place), end=wait))
    running = asyncio.create_task(awaited(workflow, message="x", checkpoint=checkpoint))
    await reached(wait.begun, running)
    time.forward(29)
    await turns()
    assert not running.done()
    time.forward(2)
    assert (await running).get_outputs() == ["x>a"]


@every_storage
@pytest.mark.parametrize("error", [None, Boom])
async def test_who_is_cancelled_while_it_gives_the_lease_back_has_given_it_back(
    place: Place, ticks: Ticks, error: Any
) -> None:
    async def does(text: str, ctx: Any) -> None:
        if error is not None:
            raise error

    wait = Wait()
    workflow = chain(Scripted("a", ticks, does, final=True))
    checkpoint = workflow.create_checkpoint("run-1", Leases(leased(place), end=wait))
    running = asyncio.create_task(awaited(workflow, message="x", checkpoint=checkpoint))
    await reached(wait.begun, running)
    running.cancel("why")
    await turns()
    assert not running.done()
    wait.let.set()
    with pytest.raises(asyncio.CancelledError, match="why"):
        await running
    await is_free(place, checkpoint)


@every_storage
async def test_a_renewal_that_hangs_does_not_hold_up_the_end(place: Place, ticks: Ticks) -> None:
    wait, time, gate = Wait(), LoopTime(), Wait()

    async def does(text: str, ctx: Any) -> None:
        await gate()

    workflow = chain(Scripted("a", ticks, does, final=True))
    checkpoint = workflow.create_checkpoint("run-1", Leases(leased(place), renew=wait))
    running = asyncio.create_task(awaited(workflow, message="x", checkpoint=checkpoint))
    await reached(gate.begun, running)
    time.forward(11)
    await reached(wait.begun, running)
    gate.let.set()
    assert (await running).get_outputs() == ["x>a"]
    await is_free(place, checkpoint)


@every_storage
async def test_a_renewal_that_swallows_its_cancellation_is_the_last_one(place: Place, ticks: Ticks) -> None:
    begun, time, gate, renewals = asyncio.Event(), LoopTime(), Wait(), Ticks()

    async def swallows() -> None:
        renewals("renewed")
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

    async def does(text: str, ctx: Any) -> None:
        await gate()

    workflow = chain(Scripted("a", ticks, does, final=True))
    checkpoint = workflow.create_checkpoint("run-1", Leases(leased(place), renew=swallows))
    running = asyncio.create_task(awaited(workflow, message="x", checkpoint=checkpoint))
    await reached(gate.begun, running)
    time.forward(11)
    await reached(begun, running)
    gate.let.set()
    assert (await running).get_outputs() == ["x>a"]
    assert renewals["renewed"] == 1
    await is_free(place, checkpoint)


async def test_runs_under_a_lease_leave_nothing_for_the_collector(tmp_path: Path, ticks: Ticks) -> None:
    place = place_of("memory", tmp_path)
    workflow = chain(Step("a", ticks, final=True))
    storage = leased(place)
    await leased(place).take_lease("taken")

    async def once() -> None:
        await workflow.run("x", checkpoint=workflow.create_checkpoint(None, storage))
        try:
            await workflow.run("x", checkpoint=workflow.create_checkpoint("taken", storage))
        except CheckpointLeasedError:
            return
        raise AssertionError("not refused")

    for _ in range(5):
        await once()
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            await once()
        assert gc.collect() < 50
    finally:
        gc.enable()


@every_storage
async def test_a_lease_that_was_left_does_not_stand_in_the_way_of_the_same_checkpoint(
    place: Place, ticks: Ticks
) -> None:
    workflow = chain(Step("a", ticks, final=True))
    storage = Leases(leased(place), end=full())
    checkpoint = workflow.create_checkpoint("run-1", storage)
    for _ in range(2):
        await workflow.run("x", checkpoint=checkpoint)
        del storage.first["end"]
        await checkpoint.commit_snapshot(metadata={"by": "a person"})
        storage.first["end"] = full()
    del storage.first["end"]
    await checkpoint.commit_snapshot()
    await is_free(place, checkpoint)


async def test_nor_in_the_way_of_a_prune(ticks: Ticks) -> None:
    class Once(MemoryCheckpointStorage):
        failed = False

        async def end_lease(self, checkpoint_id: str, lease: Lease) -> None:
            if not self.failed:
                self.failed = True
                raise StorageError("no space left on device")
            await super().end_lease(checkpoint_id, lease)

    checkpoint = chain(Step("a", ticks, final=True)).create_checkpoint("run-1", Once(leases=True))
    await chain(Step("a", ticks, final=True)).run("x", checkpoint=checkpoint)
    assert await checkpoint.prune()


async def test_a_lease_that_is_never_given_does_not_hold_a_caller_for_ever(ticks: Ticks) -> None:
    wait = Wait()
    workflow = chain(Step("a", ticks, final=True))
    storage = Leases(MemoryCheckpointStorage(leases=True, lease_seconds=0.05), take=wait)
    checkpoint = workflow.create_checkpoint("run-1", storage)
    with pytest.raises(StorageError, match=r"run-1.*0\.05 seconds"):
        await workflow.run("x", checkpoint=checkpoint)
    assert (ticks.all(), checkpoint.in_use_by) == ({}, None)
