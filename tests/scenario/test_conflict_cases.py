"""Cases of users who worked on one thing at once: C14, C15, C17, C18, C21, C22, and commits that fail: C55, C57."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Never

import pytest

from branchpoint import (
    Checkpoint,
    CheckpointConflictError,
    CheckpointInUseError,
    CheckpointNotFoundError,
    CheckpointSnapshot,
    Executor,
    FileCheckpointStorage,
    StorageError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    handler,
    response_handler,
    state,
)
from tests.journals import FailingDisk
from tests.scenario.kit import (
    Around,
    Boom,
    Outside,
    Place,
    Shuffle,
    Step,
    Talking,
    Ticks,
    boundaries,
    bytes_of,
    chain,
    every_backend,
    every_place,
    every_storage,
    fan,
    file_bytes,
    in_new_process,
    lineage,
    listen,
    only_request,
    place_of,
    say,
    shared,
    turns,
)


def is_unbroken(checkpoint: Checkpoint) -> bool:
    """Say whether the snapshots are one straight chain in commit order."""
    ids = [one.snapshot_id for one in checkpoint.snapshots]
    parents = [one.parent_snapshot_id for one in checkpoint.snapshots]
    return parents == [None, *ids[:-1]][: len(ids)]


class Gate(Outside):
    """Where a handler says that it was entered, and waits until the test lets it go on."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self) -> None:
        self.entered.set()
        await self.open.wait()


class Held(Step):
    """A step that waits at a gate, then raises or goes on."""

    def __init__(
        self, id: str, ticks: Ticks, gate: Gate, *, final: bool = False, fails: Callable[[], bool] = bool
    ) -> None:
        super().__init__(id, ticks, final=final)
        self.gate = gate
        self.fails = fails

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.ticks(self.id)
        await self.gate()
        if self.fails():
            raise Boom(text)
        await self.done(f"{text}>{self.id}", ctx)


# C14: many runs of one workflow.


class Mixer(Executor):
    """Goes round in random order, keeps what it saw in its own state and in the shared state."""

    seen: list[int] = state(factory=list)

    def __init__(self, id: str, shuffle: Shuffle | None) -> None:
        super().__init__(id=id)
        self.shuffle = shuffle

    @handler
    async def on_number(self, number: int, ctx: WorkflowContext[int]) -> None:
        for _ in range(3):
            if self.shuffle is not None:
                await self.shuffle.turn()
            self.seen.append(number)
            ctx.update_state(self.id, lambda have: [*(have or []), number])
        await ctx.send_message(number + 1)


class Mixed(Executor):
    """Yields what came together."""

    @handler
    async def on_numbers(self, numbers: list[int], ctx: WorkflowContext[Never, dict[str, Any]]) -> None:
        told = {key: ctx.get_state(key) for key in ("src", "b", "c")}
        await ctx.yield_output({"numbers": numbers, **told})


def mixing(shuffle: Shuffle | None) -> Workflow:
    return fan(
        Mixer("src", shuffle), [Mixer("b", shuffle), Mixer("c", shuffle)], Mixed(id="j"), name="mixing"
    )


def mixed(i: int) -> list[dict[str, Any]]:
    return [{"numbers": [i + 2] * 2, "src": [i] * 3, "b": [i + 1] * 3, "c": [i + 1] * 3}]


@every_place
async def test_c14_fifty_checkpoints_and_ten_one_shot_runs_share_one_workflow(place: Place) -> None:
    workflow = mixing(Shuffle(14))
    checkpoints = [place.create(workflow, f"run-{i}") for i in range(50)]
    results = await asyncio.gather(
        *(workflow.run(1000 * i, checkpoint=checkpoint) for i, checkpoint in enumerate(checkpoints)),
        *(workflow.run(1000 * i) for i in range(50, 60)),
    )
    assert [result.get_outputs() for result in results] == [mixed(1000 * i) for i in range(60)]
    assert {result.get_final_state() for result in results} == {WorkflowRunState.IDLE}
    for i in range(50):
        checkpoint = await place.reload(f"run-{i}")
        assert is_unbroken(checkpoint)
        assert boundaries(checkpoint) == ["input_accepted", *["superstep_completed"] * 2, "completed"]
        head = checkpoint.head_snapshot
        assert head is not None
        assert head.state["executor_states"] == {
            "src": {"seen": [1000 * i] * 3},
            "b": {"seen": [1000 * i + 1] * 3},
            "c": {"seen": [1000 * i + 1] * 3},
        }


@every_storage
async def test_c14_from_several_threads_and_event_loops(place: Place) -> None:
    workflow = mixing(None)
    checkpoints = [place.create(workflow, f"run-{i}") for i in range(12)]
    results: dict[int, Any] = {}
    start = threading.Barrier(4)

    async def some(numbers: range) -> None:
        found = await asyncio.gather(*(workflow.run(1000 * i, checkpoint=checkpoints[i]) for i in numbers))
        results.update(zip(numbers, (one.get_outputs() for one in found), strict=True))

    def work(first: int) -> None:
        start.wait(60)
        asyncio.run(some(range(first, 12, 4)))

    await asyncio.gather(*(asyncio.to_thread(work, first) for first in range(4)))
    assert results == {i: mixed(1000 * i) for i in range(12)}
    for i in range(12):
        assert is_unbroken(await place.reload(f"run-{i}"))


# C15: one checkpoint, twice at once.


async def plainly(workflow: Workflow, checkpoint: Checkpoint, **call: Any) -> None:
    await workflow.run(checkpoint=checkpoint, **call)


async def streamed(workflow: Workflow, checkpoint: Checkpoint, **call: Any) -> None:
    async for _ in workflow.run(checkpoint=checkpoint, stream=True, **call):
        pass


async def finally_streamed(workflow: Workflow, checkpoint: Checkpoint, **call: Any) -> None:
    await workflow.run(checkpoint=checkpoint, stream=True, **call).get_final_response()


async def from_a_thread(workflow: Workflow, checkpoint: Checkpoint, **call: Any) -> None:
    await asyncio.to_thread(lambda: asyncio.run(asyncio.wait_for(plainly(workflow, checkpoint, **call), 30)))


async def streamed_from_a_thread(workflow: Workflow, checkpoint: Checkpoint, **call: Any) -> None:
    await asyncio.to_thread(lambda: asyncio.run(asyncio.wait_for(streamed(workflow, checkpoint, **call), 30)))


WAYS = [plainly, streamed, finally_streamed, from_a_thread, streamed_from_a_thread]
Way = Callable[..., Awaitable[None]]


async def refused_every_way(workflow: Workflow, checkpoint: Checkpoint, ticks: Ticks) -> None:
    """Use a checkpoint that is in use in every way; nothing happens."""
    before = (ticks.all(), bytes_of(checkpoint), checkpoint.head_snapshot_id)
    calls: list[dict[str, Any]] = [{}, {"message": "other"}, {"responses": {"r": "x"}}]
    for way in WAYS:
        for call in calls:
            with pytest.raises(CheckpointInUseError, match="in use by a run of workflow"):
                await asyncio.wait_for(way(workflow, checkpoint, **call), 30)
    with pytest.raises(CheckpointInUseError):
        await checkpoint.commit_snapshot()
    assert (ticks.all(), bytes_of(checkpoint), checkpoint.head_snapshot_id) == before


async def left_early(workflow: Workflow, checkpoint: Checkpoint, **call: Any) -> None:
    """Read a stream up to the handler's own event, then go away."""
    async for event in workflow.run(checkpoint=checkpoint, stream=True, **call):
        if event.type == "executor_invoked":
            break


@every_place
@pytest.mark.parametrize("way", [plainly, streamed, finally_streamed])
@pytest.mark.parametrize("ending", ["success", "exception", "cancellation"])
async def test_c15_a_second_run_is_refused_at_once_and_every_ending_frees_the_checkpoint(
    place: Place, ticks: Ticks, way: Way, ending: str
) -> None:
    gate, failing = Gate(), ending == "exception"
    held = Held("a", ticks, gate, fails=lambda: failing)
    workflow = chain(held, Step("b", ticks, final=True))
    checkpoint = place.create(workflow)
    first = asyncio.ensure_future(way(workflow, checkpoint, message="x"))
    await gate.entered.wait()
    await refused_every_way(workflow, checkpoint, ticks)
    rebuilt = chain(Held("a", ticks, gate), Step("b", ticks, final=True))
    await refused_every_way(rebuilt, checkpoint, ticks)  # the guard is the checkpoint's
    assert ticks.all() == {"a": 1}
    if ending == "cancellation":
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
    gate.open.set()
    if ending == "exception":
        with pytest.raises(Boom):
            await first
    if ending == "success":
        await first
    assert checkpoint.in_use_by is None
    # It can be used again: to go on, or for the next turn.
    failing = False
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == ["x>a>b"]
    assert (await workflow.run("y", checkpoint=checkpoint)).get_outputs() == ["y>a>b"]
    assert ticks["a"] == (2 if ending == "success" else 3)
    assert is_unbroken(await place.reload())


@every_place
async def test_c15_a_reader_that_leaves_early_frees_it_and_the_next_run_waits_for_the_clean_up(
    place: Place, ticks: Ticks
) -> None:
    gate = Gate()
    workflow = chain(Held("a", ticks, gate, final=True))
    checkpoint = place.create(workflow)
    await left_early(workflow, checkpoint, message="x")
    gate.open.set()
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == ["x>a"]


@every_place
async def test_c15_of_many_runs_that_start_at_once_exactly_one_runs(place: Place, ticks: Ticks) -> None:
    gate = Gate()
    workflow = chain(Held("a", ticks, gate), Step("b", ticks, final=True))
    checkpoint = place.create(workflow)
    runs = [
        asyncio.ensure_future(way(workflow, checkpoint, message=f"{n}"))
        for n, way in enumerate([plainly, streamed, finally_streamed] * 5)
    ]
    await gate.entered.wait()
    done, waiting = await asyncio.wait(runs, timeout=0)
    while len(waiting) > 1:
        more, waiting = await asyncio.wait(waiting, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        assert more
        done |= more
    assert {type(run.exception()) for run in done} == {CheckpointInUseError}
    assert len(done) == 14
    gate.open.set()
    await asyncio.gather(*waiting)
    assert ticks.all() == {"a": 1, "b": 1}
    assert boundaries(checkpoint) == ["input_accepted", "superstep_completed", "completed"]


class InAThread(Step):
    """A sync step that waits in its thread at a gate."""

    def __init__(self, id: str, ticks: Ticks, entered: threading.Event, gate: threading.Event) -> None:
        super().__init__(id, ticks, final=True)
        self.entered = entered
        self.gate = gate

    @handler
    def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:  # type: ignore[override]
        self.ticks(self.id)
        self.entered.set()
        assert self.gate.wait(60)
        ctx.yield_output(f"{text}>{self.id}")  # type: ignore[unused-coroutine]


@every_place
async def test_c15_a_run_in_another_thread_holds_it_against_this_one(place: Place, ticks: Ticks) -> None:
    entered, gate = threading.Event(), threading.Event()
    workflow = chain(InAThread("a", ticks, entered, gate))
    checkpoint = place.create(workflow)
    first = asyncio.ensure_future(from_a_thread(workflow, checkpoint, message="x"))
    await asyncio.to_thread(entered.wait, 60)
    await refused_every_way(workflow, checkpoint, ticks)
    gate.set()
    await first
    assert checkpoint.in_use_by is None
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == ["x>a"]
    assert ticks.all() == {"a": 1}


# C17: two writers of one checkpoint.


async def begun(place: Place, ticks: Ticks) -> tuple[Workflow, Checkpoint]:
    workflow = chain(Step("a", ticks, final=True))
    checkpoint = place.create(workflow)
    await workflow.run("0", checkpoint=checkpoint)
    return workflow, checkpoint


@every_backend
async def test_c17_of_two_copies_that_commit_one_wins_and_one_conflicts(place: Place, ticks: Ticks) -> None:
    _, first = await begun(place, ticks)
    assert first.head_snapshot is not None
    edited = first.head_snapshot.state
    two = [found for found in (place.open(), place.open()) if found is not None]
    for n in range(100):
        copies = [await storage.load("run-1") for storage in two]
        before = [lineage(copy) for copy in copies]
        edited["workflow_state"]["shared"] = {"round": n}
        done = await asyncio.gather(
            *(copy.commit_snapshot(edited) for copy in copies), return_exceptions=True
        )
        assert sorted(type(one).__name__ for one in done) == ["CheckpointConflictError", "CheckpointSnapshot"]
        loser = copies[isinstance(done[0], CheckpointSnapshot)]
        assert lineage(loser) == before[0]
        assert loser.head_snapshot_id == loser.stored_head_snapshot_id == before[0][-1][0]
    final = await place.reload()
    assert len(final.snapshots) == 102
    assert is_unbroken(final)
    assert [shared(one)["round"] for one in final.snapshots[2:]] == list(range(100))


@every_backend
async def test_c17_of_two_copies_that_run_one_wins_before_the_other_acts(place: Place, ticks: Ticks) -> None:
    workflow, _ = await begun(place, ticks)
    for n in range(1, 26):
        copies = [await place.reload() for _ in range(2)]
        done = await asyncio.gather(
            *(workflow.run(f"{n}.{i}", checkpoint=copy) for i, copy in enumerate(copies)),
            return_exceptions=True,
        )
        assert sorted(type(one).__name__ for one in done) == ["CheckpointConflictError", "WorkflowRunResult"]
        assert ticks["a"] == n + 1
    final = await place.reload()
    assert is_unbroken(final)
    assert len(final.snapshots) == 52
    assert len(final.outputs()) == 26


@every_place
async def test_c17_on_one_object_two_commits_are_in_line_or_one_is_refused(
    place: Place, ticks: Ticks
) -> None:
    _, checkpoint = await begun(place, ticks)
    for _ in range(100):
        done = await asyncio.gather(
            *(checkpoint.commit_snapshot(metadata={"n": n}) for n in range(2)), return_exceptions=True
        )
        for one in done:
            assert isinstance(one, CheckpointSnapshot | CheckpointInUseError)
        assert any(isinstance(one, CheckpointSnapshot) for one in done)
    for found in (checkpoint, await place.reload()):
        assert is_unbroken(found)


@every_backend
async def test_c17_who_lost_reads_again_and_goes_on(place: Place, ticks: Ticks) -> None:
    workflow, checkpoint = await begun(place, ticks)
    other = await place.reload()
    await workflow.run("other", checkpoint=other)
    with pytest.raises(CheckpointConflictError, match=r"refresh\(\)"):
        await workflow.run("mine", checkpoint=checkpoint)
    await checkpoint.refresh()
    assert bytes_of(checkpoint) == bytes_of(other)
    assert (await workflow.run("mine", checkpoint=checkpoint)).get_outputs() == ["mine>a"]
    assert ticks["a"] == 3
    assert is_unbroken(await place.reload())


# C18: two beginnings under one id.


@every_backend
async def test_c18_two_beginnings_under_one_id_run_the_body_once(place: Place, ticks: Ticks) -> None:
    gate = Gate()
    workflow = chain(Held("start", ticks, gate), Step("b", ticks, final=True))
    storage = place.open()
    first, second = (workflow.create_checkpoint("x", storage) for _ in range(2))
    runs = [asyncio.create_task(plainly(workflow, one, message="hello")) for one in (first, second)]
    await gate.entered.wait()
    (lost,), _ = await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
    assert isinstance(lost.exception(), CheckpointConflictError)
    assert "'x' is already in storage" in str(lost.exception())
    third = workflow.create_checkpoint("x", place.open())
    with pytest.raises(CheckpointConflictError, match="another id"):
        await workflow.run("hello", checkpoint=third)
    assert ticks.all() == {"start": 1}
    gate.open.set()
    await asyncio.wait(runs)
    winner = (first, second)[runs.index(lost) == 0]
    before = bytes_of(winner)
    assert ticks.all() == {"start": 1, "b": 1}
    fourth = workflow.create_checkpoint("x", place.open())
    with pytest.raises(CheckpointConflictError):
        await workflow.run("over it", checkpoint=fourth)
    with pytest.raises(CheckpointConflictError):
        await fourth.commit_snapshot(winner.snapshots[0].state)
    for loser in (third, fourth, (first, second)[runs.index(lost)]):
        assert (loser.snapshots, loser.head_snapshot_id, loser.status) == ([], None, None)
    assert bytes_of(await place.reload("x")) == before
    assert ticks.all() == {"start": 1, "b": 1}
    # Its first commit lost; after reading again it is the same execution as the winner's.
    await third.refresh()
    assert (await workflow.run(checkpoint=third)).get_outputs() == ["hello>start>b"]
    assert ticks["start"] == 1


def counted(folder: str, kind: str) -> tuple[Workflow, Place, Ticks]:
    """Rebuild everything from nothing, in whatever process this is."""
    ticks = Ticks(Path(folder) / "ticks")
    return chain(Step("a", ticks), Step("b", ticks, final=True)), place_of(kind, Path(folder)), ticks


async def begin(folder: str, kind: str, text: str) -> str:
    workflow, place, _ = counted(folder, kind)
    checkpoint = place.create(workflow, "x")
    say("ready")
    listen()
    try:
        (output,) = (await workflow.run(text, checkpoint=checkpoint)).get_outputs()
    except CheckpointConflictError:
        return "conflict"
    return str(output)


async def advance(folder: str, kind: str, text: str) -> str:
    workflow, place, _ = counted(folder, kind)
    checkpoint = await place.reload("x")
    say("ready")
    listen()
    try:
        (output,) = (await workflow.run(text, checkpoint=checkpoint)).get_outputs()
    except CheckpointConflictError:
        return "conflict"
    return str(output)


@pytest.mark.parametrize("kind", ["file-json", "file-msgpack"])
async def test_c17_c18_of_two_processes_one_begins_and_one_goes_on(tmp_path: Path, kind: str) -> None:
    for round, function in enumerate((begin, advance, advance), 1):
        with (
            Talking(function, str(tmp_path), kind, "p") as p,
            Talking(function, str(tmp_path), kind, "q") as q,
        ):
            assert [p.hear(), q.hear()] == ["ready", "ready"]
            p.tell()
            q.tell()
            assert sorted([p.result(), q.result()])[:1] == ["conflict"]
        assert Ticks(tmp_path / "ticks").all() == {"a": round, "b": round}
    _, place, _ = counted(str(tmp_path), kind)
    checkpoint = await place.reload("x")
    assert is_unbroken(checkpoint)
    assert len(checkpoint.snapshots) == 9


# C21: a write that lands after its run was cancelled.


@every_backend
@pytest.mark.parametrize("number", [1, 2, 3])
async def test_c21_a_cancelled_run_waits_for_its_commit_and_memory_agrees_with_storage(
    place: Place, ticks: Ticks, number: int
) -> None:
    workflow = chain(Step("a", ticks), Step("b", ticks, final=True))
    begun, gate = asyncio.Event(), asyncio.Event()

    async def hold(commit: int) -> None:
        if commit == number:
            begun.set()
            await gate.wait()

    inner = place.open()
    assert inner is not None
    checkpoint = workflow.create_checkpoint("run-1", Around(inner, before=hold))
    run = asyncio.create_task(plainly(workflow, checkpoint, message="x"))
    await begun.wait()
    for _ in range(3):  # as often as somebody likes
        run.cancel("because")
        await turns()
        assert not run.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError, match="because"):
        await run
    # The write had finished before the cancellation came back.
    loaded = await place.reload()
    assert bytes_of(loaded) == bytes_of(checkpoint)
    assert loaded.head_snapshot_id == checkpoint.head_snapshot_id == checkpoint.stored_head_snapshot_id
    assert len(loaded.snapshots) == number
    result = await workflow.run(checkpoint=loaded)
    assert result.get_outputs() == ["x>a>b"]
    assert ticks.all() == {"a": 1, "b": 1}
    assert is_unbroken(await place.reload())


@every_backend
@pytest.mark.parametrize("number", [2, 3])
async def test_c21_a_write_that_was_given_up_on_and_lands_late_is_refused(
    place: Place, ticks: Ticks, number: int
) -> None:
    """The storage's client gives up and reports it, while the write is still under way."""
    workflow = chain(Step("a", ticks), Step("b", ticks, final=True))
    gate = asyncio.Event()
    late: list[asyncio.Task[None]] = []
    inner = place.open()
    assert inner is not None

    class GivesUp(Around):
        async def commit_snapshot(
            self,
            checkpoint: Checkpoint,
            snapshot: CheckpointSnapshot,
            *,
            expected_head_snapshot_id: str | None,
        ) -> None:
            self.commits += 1
            if self.commits != number:
                return await self.inner.commit_snapshot(
                    checkpoint, snapshot, expected_head_snapshot_id=expected_head_snapshot_id
                )

            async def write() -> None:
                await gate.wait()
                await self.inner.commit_snapshot(
                    checkpoint, snapshot, expected_head_snapshot_id=expected_head_snapshot_id
                )

            late.append(asyncio.create_task(write()))
            raise StorageError("no answer in time")

    checkpoint = workflow.create_checkpoint("run-1", GivesUp(inner))
    with pytest.raises(StorageError, match="no answer in time"):
        await workflow.run("x", checkpoint=checkpoint)
    other = await place.reload()
    assert len(other.snapshots) == number - 1
    assert (await workflow.run(checkpoint=other)).get_outputs() == ["x>a>b"]
    before = bytes_of(await place.reload())
    gate.set()
    with pytest.raises(CheckpointConflictError):
        await late[0]
    after = await place.reload()
    assert bytes_of(after) == before
    assert after.head_snapshot_id == other.head_snapshot_id
    assert is_unbroken(after)
    # And whoever gave up conflicts before it acts.
    acted = ticks.all()
    with pytest.raises(CheckpointConflictError):
        await workflow.run(checkpoint=checkpoint)
    assert ticks.all() == acted


# C22: a write that arrives after the delete.


@every_backend
@pytest.mark.parametrize("by", ["the same storage", "another storage object"])
async def test_c22_a_late_commit_brings_nothing_back(
    place: Place, ticks: Ticks, tmp_path: Path, by: str
) -> None:
    gate = Gate()
    workflow = chain(Step("a", ticks), Held("b", ticks, gate), Step("c", ticks, final=True))
    checkpoint = place.create(workflow)
    run = asyncio.create_task(plainly(workflow, checkpoint, message="x"))
    await gate.entered.wait()
    storage = checkpoint.checkpoint_storage if by == "the same storage" else place.open()
    assert storage is not None
    await storage.delete("run-1")
    gate.open.set()
    with pytest.raises(CheckpointConflictError, match="deleted"):
        await run
    with pytest.raises(CheckpointNotFoundError):
        await place.reload()
    # What is there without any checkpoint: locks, and where the server is found.
    assert {
        name for name in file_bytes(tmp_path) if not re.search(r"/(\.lock-[^/]*|address)$", name)
    } == set()
    assert ticks.all() == {"a": 1, "b": 1}
    # A new checkpoint of that id is another one.
    fresh = place.create(workflow)
    await workflow.run("new", checkpoint=fresh)
    before = bytes_of(await place.reload())
    for use in (
        lambda: workflow.run(checkpoint=checkpoint),
        lambda: checkpoint.commit_snapshot(),
        lambda: checkpoint.abandon(),
        lambda: checkpoint.prune(),
    ):
        with pytest.raises(CheckpointConflictError):
            await use()
    assert ticks.all() == {"a": 2, "b": 2, "c": 1}
    assert bytes_of(await place.reload()) == before
    assert (await workflow.run("more", checkpoint=fresh)).get_outputs() == ["more>a>b>c"]


@every_backend
async def test_c22_a_stale_object_does_not_begin_anew_after_the_delete(place: Place, ticks: Ticks) -> None:
    workflow = chain(Step("a", ticks, final=True))
    finished = place.create(workflow)
    await workflow.run("x", checkpoint=finished)
    storage = place.open()
    assert storage is not None
    await storage.delete("run-1")
    finished.restart_from(None)  # a second root is still a commit of the deleted execution
    with pytest.raises(CheckpointConflictError, match="deleted"):
        await workflow.run("y", checkpoint=finished)
    with pytest.raises(CheckpointNotFoundError):
        await place.reload()
    assert ticks["a"] == 1


# C55: commits that fail.


class Custom(Exception):
    """What a storage of somebody's own raises."""


FAILURES: list[Callable[[], Exception]] = [
    lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    lambda: Custom("no"),
    lambda: StorageError("no"),
]


@every_backend
@pytest.mark.parametrize("number", range(1, 6))
@pytest.mark.parametrize("failure", FAILURES, ids=["disk full", "custom", "storage error"])
@pytest.mark.parametrize("stream", [False, True])
async def test_c55_a_commit_that_fails_is_told_and_leaves_the_last_boundary(
    place: Place, ticks: Ticks, number: int, failure: Callable[[], Exception], stream: bool
) -> None:
    workflow = chain(*(Step(id, ticks) for id in "abc"), Step("d", ticks, final=True))
    error, broken = failure(), True

    def fail(commit: int) -> None:
        if broken and commit == number:
            raise error

    inner = place.open()
    assert inner is not None
    checkpoint = workflow.create_checkpoint("run-1", Around(inner, before=fail))
    way = streamed if stream else plainly
    with pytest.raises(type(error)) as caught:
        await way(workflow, checkpoint, message="x")
    assert error in (caught.value, caught.value.__cause__)
    assert checkpoint.in_use_by is None
    done = number - 1
    assert len(checkpoint.snapshots) == done
    assert checkpoint.head_snapshot_id == checkpoint.stored_head_snapshot_id
    acted = "abcd"[:done] if done else ""
    assert ticks.all() == dict.fromkeys(acted, 1)
    broken = False
    if done == 0:
        with pytest.raises(CheckpointNotFoundError):
            await place.reload()
        assert checkpoint.head_snapshot_id is None
        result = await workflow.run("x", checkpoint=checkpoint)
    else:
        assert bytes_of(await place.reload()) == bytes_of(checkpoint)
        result = await workflow.run(checkpoint=checkpoint)
    assert result.get_outputs() == ["x>a>b>c>d"]
    # What the failed commit would have kept was done again, and nothing else.
    again = acted[-1:]
    assert ticks.all() == {id: 2 if id == again else 1 for id in "abcd"}
    final = await place.reload()
    assert boundaries(final) == ["input_accepted", *["superstep_completed"] * 3, "completed"]
    assert is_unbroken(final)


@every_backend
@pytest.mark.parametrize("number", range(1, 6))
async def test_c55_a_commit_whose_reply_is_lost_is_settled_by_reading_again(
    place: Place, ticks: Ticks, number: int
) -> None:
    workflow = chain(*(Step(id, ticks) for id in "abc"), Step("d", ticks, final=True))

    def lose(commit: int) -> None:
        if commit == number:
            raise StorageError("the reply was lost")

    inner = place.open()
    assert inner is not None
    checkpoint = workflow.create_checkpoint("run-1", Around(inner, after=lose))
    assert (await workflow.run("x", checkpoint=checkpoint)).get_outputs() == ["x>a>b>c>d"]
    assert ticks.all() == dict.fromkeys("abcd", 1)
    assert len(checkpoint.snapshots) == 5
    assert is_unbroken(await place.reload())


class FillsTheDisk(Step):
    """A step after which the disk is full, or cannot sync; once."""

    def __init__(self, id: str, ticks: Ticks, disk: FailingDisk, trouble: str) -> None:
        super().__init__(id, ticks)
        self.disk = disk
        self.trouble = trouble

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        if self.ticks(self.id) == 1:
            if self.trouble == "full":
                self.disk.room = 40
            else:
                self.disk.broken.add("sync")
        await self.done(f"{text}>{self.id}", ctx)


@pytest.mark.parametrize("kind", ["json", "msgpack"])
@pytest.mark.parametrize("trouble", ["full", "no sync"])
async def test_c55_a_real_disk_that_fails_under_a_run(
    runs: Path, ticks: Ticks, kind: Any, trouble: str
) -> None:
    disk = FailingDisk()
    storage = FileCheckpointStorage(runs, serialization_format=kind, disk=disk)
    workflow = chain(Step("a", ticks), FillsTheDisk("b", ticks, disk, trouble), Step("c", ticks, final=True))
    checkpoint = workflow.create_checkpoint("run-1", storage)
    with pytest.raises(StorageError) as caught:
        await workflow.run("x", checkpoint=checkpoint)
    assert isinstance(caught.value.__cause__, OSError)
    reader = FileCheckpointStorage(runs, serialization_format=kind)
    assert bytes_of(await reader.load("run-1")) == bytes_of(checkpoint)
    assert boundaries(checkpoint) == ["input_accepted", "superstep_completed"]
    disk.mend()
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == ["x>a>b>c"]
    assert ticks.all() == {"a": 1, "b": 2, "c": 1}
    assert is_unbroken(await reader.load("run-1"))


# C57: what goes on changing while it is stored.


class Busy(Executor):
    """Leaves a task behind that goes on changing everything it gave away."""

    kept: list[int] = state(factory=list)

    def __init__(self, id: str, leave: Callable[[asyncio.Task[None]], None]) -> None:
        super().__init__(id=id)
        self.leave = leave

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[Any, Any]) -> None:
        stored: list[int] = [0]
        table: dict[str, Any] = {"n": 0, "deep": {"list": [0]}}
        message, output = {"items": [0]}, {"items": [0]}
        self.kept.append(0)
        ctx.set_state("stored", stored)
        ctx.set_state("table", table)
        await ctx.yield_output(output)
        await ctx.request_info({"items": table["deep"]["list"]}, str)
        await ctx.send_message(message)
        kept = self.kept

        async def go_on() -> None:
            n = 0
            while True:
                n += 1
                stored.append(n)
                table[f"key{n}"] = n
                table["deep"]["list"].append(n)
                message["items"].append(n)
                output["items"].append(n)
                kept.append(n)
                await asyncio.sleep(0)

        self.leave(asyncio.create_task(go_on()))

    @response_handler
    async def on_answer(self, question: dict[str, Any], answer: str, ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.yield_output(question)


class Last(Executor):
    """Yields its message and what the shared state holds."""

    @handler
    async def on_dict(self, message: dict[str, Any], ctx: WorkflowContext[Never, Any]) -> None:
        await turns()
        await ctx.yield_output({"message": message, "stored": ctx.get_state("stored")})


@every_backend
async def test_c57_a_snapshot_is_the_value_at_its_boundary_whatever_goes_on(place: Place) -> None:
    tasks: set[asyncio.Task[None]] = set()
    busy = Busy("busy", lambda task: tasks.add(task))
    workflow = WorkflowBuilder(name="busy", start_executor=busy).add_edge(busy, Last(id="last")).build()
    inner = place.open()
    assert inner is not None

    async def slowly(commit: int) -> None:
        await turns(50)

    checkpoint = workflow.create_checkpoint("run-1", Around(inner, before=slowly, after=slowly))
    try:
        result = await workflow.run("x", checkpoint=checkpoint)
        assert result.get_outputs() == [{"items": [0]}, {"message": {"items": [0]}, "stored": [0]}]
        result = await workflow.run(responses={only_request(checkpoint): "y"}, checkpoint=checkpoint)
        assert result.get_outputs()[-1] == {"items": [0]}
        assert len(tasks) == 1
        assert not next(iter(tasks)).done()
        seen = bytes_of(checkpoint)
        await turns()
        assert bytes_of(checkpoint) == seen
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    loaded = await place.reload()
    assert bytes_of(loaded) == seen
    for snapshot in loaded.snapshots[1:]:
        held = snapshot.state
        assert held["workflow_state"]["shared"] == {
            "stored": [0],
            "table": {"n": 0, "deep": {"list": [0]}},
        }
        assert held["messages"]["output"][0]["value"] == {"items": [0]}
    first = loaded.snapshots[1].state
    assert [one["value"] for one in first["messages"]["pending"]["deliveries"]] == [{"items": [0]}]
    (request,) = first["messages"]["pending"]["requests"].values()
    assert request["data"] == {"items": [0]}
    # A field of the executor itself is what it was when its superstep ended, and stays so.
    kept = first["executor_states"]["busy"]["kept"]
    assert kept == list(range(len(kept)))
    assert [one.state["executor_states"]["busy"]["kept"] for one in loaded.snapshots[2:]] == [kept] * 3


async def reload_and_read(folder: str, kind: str) -> Any:
    checkpoint = await place_of(kind, Path(folder)).reload("x")
    return [checkpoint.status, [one.value for one in checkpoint.outputs()], len(checkpoint.snapshots)]


@pytest.mark.parametrize("kind", ["file-json", "file-msgpack"])
async def test_c55_what_was_durable_before_the_failure_is_there_in_a_new_process(
    tmp_path: Path, ticks: Ticks, kind: str
) -> None:
    workflow = chain(Step("a", ticks), Step("b", ticks, final=True))
    inner = place_of(kind, tmp_path).open()
    assert inner is not None

    def fail(commit: int) -> None:
        if commit == 3:
            raise OSError(errno.ENOSPC, "full")

    checkpoint = workflow.create_checkpoint("x", Around(inner, before=fail))
    with pytest.raises(OSError, match="full"):
        await workflow.run("x", checkpoint=checkpoint)
    assert in_new_process(reload_and_read, str(tmp_path), kind) == ["in_progress", [], 2]
