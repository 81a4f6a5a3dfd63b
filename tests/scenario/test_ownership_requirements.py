"""Who owns what: the requirements R01 to R08, over whole runs."""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import pkgutil
import threading
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import branchpoint
from branchpoint import (
    Checkpoint,
    CheckpointConflictError,
    CheckpointInUseError,
    CheckpointNotFoundError,
    CheckpointStorage,
    Executor,
    ExecutorStateError,
    Factory,
    FileCheckpointStorage,
    InvalidCallError,
    InvalidInputError,
    MemoryCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    WorkflowRunStream,
    executor,
    handler,
    register_state_type,
    state,
)
from branchpoint.codec import isolated_registry
from branchpoint.graph import SyncWorkflowContext
from tests.scenario.kit import (
    Boom,
    Outside,
    Place,
    Step,
    Ticks,
    boundaries,
    bytes_of,
    chain,
    every_file,
    every_place,
    every_storage,
    file_bytes,
    in_new_process,
    lineage,
    only_request,
    place_of,
    reached,
    shared,
    workflow_picture,
)


class Tally(Executor):
    """Remembers every word, in its own state and in the shared one, and yields what it remembers."""

    seen: list[str] = state(factory=list)

    @handler
    async def on_word(self, word: str, ctx: WorkflowContext[str, Any]) -> None:
        self.seen.append(word)
        ctx.set_state("seen", [*ctx.get_state("seen", []), word])
        await ctx.yield_output((list(self.seen), ctx.get_state("seen")))


def tallying() -> Workflow:
    return chain(Tally(id="tally"), name="tally")


# R01.


@every_place
async def test_r01_a_checkpoint_is_made_for_the_caller_who_owns_it(place: Place, tmp_path: Path) -> None:
    workflow = tallying()
    storage = place.open()
    before = workflow_picture(workflow)
    named = workflow.create_checkpoint("run-1", storage, metadata={"owner": "ann"})
    also_named = workflow.create_checkpoint(checkpoint_id="run-2", checkpoint_storage=storage)
    fresh = [workflow.create_checkpoint(checkpoint_storage=storage) for _ in range(100)]
    assert (named.checkpoint_id, also_named.checkpoint_id) == ("run-1", "run-2")
    assert len({one.checkpoint_id for one in fresh}) == 100
    for one in (named, also_named, *fresh):
        assert isinstance(one, Checkpoint)
        assert one.checkpoint_storage is storage
        assert (one.workflow_name, one.graph_signature_hash) == ("tally", workflow.graph_signature_hash)
        assert (one.snapshots, one.head_snapshot_id, one.head_snapshot, one.status) == ([], None, None, None)
        assert one.in_use_by is None
    assert named.metadata == {"owner": "ann"}
    # Nothing is stored before the first commit, and the workflow does not know of any of them.
    assert file_bytes(tmp_path) == {}
    if storage is not None:
        with pytest.raises(CheckpointNotFoundError, match="run-1"):
            await storage.load("run-1")
    assert workflow_picture(workflow) == before
    remembered = weakref.ref(named)
    await workflow.run("a", checkpoint=named)
    del named, one, fresh
    gc.collect()
    assert remembered() is None


@every_storage
async def test_r01_a_fresh_id_is_enough_to_find_it_again(place: Place) -> None:
    workflow = tallying()
    cp = workflow.create_checkpoint(checkpoint_storage=place.open())
    await workflow.run("a", checkpoint=cp)
    storage = place.open()
    assert storage is not None
    assert bytes_of(await storage.load(cp.checkpoint_id)) == bytes_of(cp)


async def test_r01_an_id_or_a_storage_that_could_not_work_is_refused_at_creation(runs: Path) -> None:
    workflow = tallying()
    wrong: list[Any] = ["", "a\x00b", "a\nb", "x" * 600, 7]
    for one in wrong:
        with pytest.raises(InvalidCallError):
            workflow.create_checkpoint(one)
    unnamed = WorkflowBuilder(start_executor=Tally(id="tally")).build()
    with pytest.raises(InvalidCallError, match="name"):
        unnamed.create_checkpoint("run-1", FileCheckpointStorage(runs))
    assert (await unnamed.run("a", checkpoint=unnamed.create_checkpoint())).get_outputs() == [(["a"], ["a"])]
    with pytest.raises(InvalidCallError, match="Checkpoint"):
        workflow.run("a", checkpoint="run-1")  # type: ignore[call-overload]


# R02.


@every_place
@pytest.mark.parametrize("rebuilt", [False, True])
async def test_r02_state_survives_in_the_checkpoint_and_nowhere_else(place: Place, rebuilt: bool) -> None:
    workflow = tallying()
    cp = place.create(workflow)
    words: list[str] = []
    for word in "abc":
        if rebuilt:
            workflow, cp = tallying(), (await place.reload() if words else cp)
        words.append(word)
        count = len(cp.snapshots)
        head = cp.head_snapshot_id
        assert (await workflow.run(word, checkpoint=cp)).get_outputs() == [(words, words)]
        assert cp.snapshots[count].parent_snapshot_id == head
        assert cp.head_snapshot_id == cp.snapshots[-1].snapshot_id != head
        assert (await workflow.run("beside")).get_outputs() == [(["beside"], ["beside"])]
        other = place.create(workflow, f"other-{word}")
        assert (await workflow.run("beside", checkpoint=other)).get_outputs() == [(["beside"], ["beside"])]
    assert shared(cp.head_snapshot) == {"seen": words}
    assert cp.head_snapshot.state["executor_states"] == {"tally": {"seen": words}}
    # What the checkpoint says is what a run starts from, also where it was edited.
    edited = cp.head_snapshot.state
    edited["executor_states"]["tally"]["seen"] = ["z"]
    edited["workflow_state"]["shared"] = {}
    await cp.commit_snapshot(state=edited)
    assert (await workflow.run("d", checkpoint=cp)).get_outputs() == [(["z", "d"], ["d"])]


async def go_on(kind: str, folder: str, word: str) -> Any:
    return (await tallying().run(word, checkpoint=await place_of(kind, Path(folder)).reload())).get_outputs()


@every_file
async def test_r02_it_survives_into_another_process(place: Place, tmp_path: Path) -> None:
    await tallying().run("a", checkpoint=place.create(tallying()))
    for word, words in (("b", ["a", "b"]), ("c", ["a", "b", "c"])):
        assert in_new_process(go_on, place.kind, str(tmp_path), word) == [[words, words]]


# R03.


class Thing:
    """A message that nobody registered and that can be watched."""

    def __init__(self, text: str) -> None:
        self.text = text


class Encoded:
    """A value of a registered type."""

    def __init__(self, n: int) -> None:
        self.n = n


@pytest.mark.parametrize("stream", [False, True])
async def test_r03_a_one_shot_run_encodes_nothing(stream: bool) -> None:
    encoded: list[int] = []

    def encode(value: Encoded) -> int:
        encoded.append(value.n)
        return value.n

    @executor
    async def passes(value: Encoded, ctx: WorkflowContext[Encoded, Encoded]) -> None:
        ctx.set_state("key", value)
        ctx.executor_state["mine"] = ctx.get_state("key")
        await ctx.yield_output(value)
        if value.n < 3:
            await ctx.send_message(Encoded(value.n + 1))

    with isolated_registry():
        register_state_type(
            Encoded, type_id="scenario.encoded", encoder=encode, decoder=Encoded, copy=lambda value: Encoded(value.n),
            fingerprint=lambda value: value.n,
        )  # fmt: skip
        workflow = WorkflowBuilder(name="w", start_executor=passes).add_edge(passes, passes).build()
        running: Any = workflow.run(Encoded(1), stream=stream)
        result = await (running.get_final_response() if stream else running)
        assert [value.n for value in result.get_outputs()] == [1, 2, 3]
        assert encoded == []
        cp = workflow.create_checkpoint()
        await workflow.run(Encoded(1), checkpoint=cp)
        assert set(encoded) == {1, 2, 3}, "the same run with a checkpoint does encode"


async def test_r03_a_one_shot_run_keeps_nothing(tmp_path: Path) -> None:
    alive: list[weakref.ref[Any]] = []

    class Keeps(Executor):
        mine: Any = state(None)

        @handler
        async def on_thing(self, thing: Thing, ctx: WorkflowContext[Thing, Thing]) -> None:
            alive.extend([weakref.ref(self), weakref.ref(thing)])
            self.mine = thing
            ctx.set_state("key", thing)
            await ctx.yield_output(thing)
            if thing.text == "boom":
                raise Boom
            await ctx.send_message(Thing("boom" if thing.text == "then boom" else "end"), "end")

    @executor
    async def end(thing: Thing, ctx: WorkflowContext[Any, Any]) -> None:
        alive.append(weakref.ref(thing))
        if thing.text == "boom":
            raise Boom

    workflow = chain(Keeps(id="keeps"), end)
    before = workflow_picture(workflow)
    result = await workflow.run(Thing("a"))
    assert [thing.text for thing in result.get_outputs()] == ["a"]
    assert not any(event.durable or event.event_id or event.checkpoint_id for event in result)
    for text in ("boom", "then boom"):
        with pytest.raises(Boom):
            await workflow.run(Thing(text))
    async for event in workflow.run(Thing("a"), stream=True):
        if event.type == "executor_invoked":
            break
    await quiet()
    del result, event
    gc.collect()
    assert len(alive) >= 7
    assert [one() for one in alive if one() is not None] == []
    assert workflow_picture(workflow) == before
    assert file_bytes(tmp_path) == {}


async def test_r03_one_shot_runs_know_nothing_of_each_other_or_of_any_checkpoint(runs: Path) -> None:
    workflow = tallying()
    cp = workflow.create_checkpoint("run-1", FileCheckpointStorage(runs))
    await workflow.run("a", checkpoint=cp)
    before, files = bytes_of(cp), file_bytes(runs)
    results = await asyncio.gather(*(workflow.run(word) for word in "pqr"))
    assert [result.get_outputs() for result in results] == [[([word], [word])] for word in "pqr"]
    with pytest.raises(InvalidCallError):
        await workflow.run()
    with pytest.raises(InvalidCallError):
        await workflow.run(responses={"id": 1})
    assert (bytes_of(cp), file_bytes(runs)) == (before, files)


# R04.


class Everything(Executor):
    """Has configuration of every kind, and does one thing or another with a message."""

    limits: list[int] = [1, 2]
    seen: list[str] = state(factory=list)

    def __init__(self, id: str, entered: Any) -> None:
        super().__init__(id=id)
        self.words = ["w", ["deep"]]
        self.table = {"k": {1, 2}}
        self.seen = ["default"]
        self.bound = self.on_text
        self.entered = entered

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, Any]) -> None:
        self.seen.append(text)
        ctx.set_state("key", {"text": text})
        await ctx.yield_output(self.seen)
        if text == "fail":
            raise Boom
        if text == "config":
            self.words.append("edited")
        if text == "assign":
            self.other = 1
        if text == "wait":
            self.entered.set()
            await asyncio.Event().wait()
        if text == "ask":
            await ctx.request_info(text, str)

    @branchpoint.response_handler
    async def on_answer(self, request: str, answer: str, ctx: WorkflowContext[str, Any]) -> None:
        self.seen.append(answer)


class Opened(Outside):
    """Tells the test that a handler was entered."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def set(self) -> None:
        self.event.set()


def everything(entered: Any) -> Workflow:
    @executor
    async def function(text: str, ctx: WorkflowContext[str, Any]) -> None:
        ctx.executor_state["n"] = 1

    builder = WorkflowBuilder(name="everything", start_executor=Everything("x", entered))
    builder.add_state("declared", list, factory=list, reducer=branchpoint.append)
    builder.add_edge("x", function, condition=lambda text: text != "no")
    return builder.add_edge("x", Factory(lambda: Step("made", final=True), id="made")).build()


async def succeed(workflow: Workflow, cp: Checkpoint | None, entered: asyncio.Event) -> None:
    await workflow.run("fine", checkpoint=cp)


async def fail(workflow: Workflow, cp: Checkpoint | None, entered: asyncio.Event) -> None:
    with pytest.raises(Boom):
        await workflow.run("fail", checkpoint=cp)


async def edit_configuration(workflow: Workflow, cp: Checkpoint | None, entered: asyncio.Event) -> None:
    with pytest.raises(ExecutorStateError):
        await workflow.run("config", checkpoint=cp)


async def assign(workflow: Workflow, cp: Checkpoint | None, entered: asyncio.Event) -> None:
    with pytest.raises(ExecutorStateError):
        await workflow.run("assign", checkpoint=cp)


async def refused(workflow: Workflow, cp: Checkpoint | None, entered: asyncio.Event) -> None:
    with pytest.raises(InvalidInputError):
        await workflow.run(3.5, checkpoint=cp)


async def pause(workflow: Workflow, cp: Checkpoint | None, entered: asyncio.Event) -> None:
    await workflow.run("ask", checkpoint=cp)
    if cp is not None:
        await workflow.run(responses={only_request(cp): "y"}, checkpoint=cp)


async def cancelled(workflow: Workflow, cp: Checkpoint | None, entered: asyncio.Event) -> None:
    task = asyncio.ensure_future(as_coroutine(workflow.run("wait", checkpoint=cp)))
    await reached(entered, task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def cancelled_at_once(workflow: Workflow, cp: Checkpoint | None, entered: asyncio.Event) -> None:
    task = asyncio.create_task(workflow.run("wait", checkpoint=cp))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def cancelled_in_its_first_steps(
    workflow: Workflow, cp: Checkpoint | None, entered: asyncio.Event
) -> None:
    for turns in range(1, 12):
        if cp is not None and cp.status == "in_progress":
            cp.restart_from(None)
        task = asyncio.ensure_future(as_coroutine(workflow.run("wait", checkpoint=cp)))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def cancelled_stream(workflow: Workflow, cp: Checkpoint | None, entered: asyncio.Event) -> None:
    stream = workflow.run("wait", checkpoint=cp, stream=True)
    task = asyncio.ensure_future(stream.get_final_response())
    await reached(entered, task)
    await stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def cancelled_reader(workflow: Workflow, cp: Checkpoint | None, entered: asyncio.Event) -> None:
    task = asyncio.ensure_future(workflow.run("wait", checkpoint=cp, stream=True).get_final_response())
    await reached(entered, task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def abandoned_stream(workflow: Workflow, cp: Checkpoint | None, entered: asyncio.Event) -> None:
    async for _ in workflow.run("wait", checkpoint=cp, stream=True):
        if entered.is_set():
            break
        await asyncio.sleep(0)
        if entered.is_set():
            break
    await quiet()


async def dropped_stream(workflow: Workflow, cp: Checkpoint | None, entered: asyncio.Event) -> None:
    stream: Any = workflow.run("wait", checkpoint=cp, stream=True)
    await anext(aiter(stream))
    del stream
    gc.collect()
    await quiet()


async def raising_reader(workflow: Workflow, cp: Checkpoint | None, entered: asyncio.Event) -> None:
    with pytest.raises(ZeroDivisionError):
        async for _ in workflow.run("wait", checkpoint=cp, stream=True):
            raise ZeroDivisionError
    await quiet()


async def never_started(workflow: Workflow, cp: Checkpoint | None, entered: asyncio.Event) -> None:
    dropped = [workflow.run("wait", checkpoint=cp)]
    with pytest.warns(RuntimeWarning, match="was never awaited, so nothing ran"):
        dropped.clear()
    stream = workflow.run("wait", checkpoint=cp, stream=True)
    await stream.cancel()
    assert not entered.is_set()


async def as_coroutine(running: Awaitable[Any]) -> Any:
    return await running


async def quiet() -> None:
    """Wait until every other task has ended."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:  # type: ignore[arg-type]
        await asyncio.wait(others)


ENDINGS = [
    succeed,
    fail,
    edit_configuration,
    assign,
    refused,
    pause,
    cancelled,
    cancelled_at_once,
    cancelled_in_its_first_steps,
    cancelled_stream,
    cancelled_reader,
    abandoned_stream,
    dropped_stream,
    raising_reader,
    never_started,
]

Ending = Callable[[Workflow, Checkpoint | None, asyncio.Event], Awaitable[None]]


@every_place
@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.__name__)
async def test_r04_a_workflow_is_the_same_after_every_ending(place: Place, ending: Ending) -> None:
    await ends_and_is_the_same(ending, place)


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.__name__)
async def test_r04_so_it_is_after_every_ending_of_a_one_shot_run(ending: Ending) -> None:
    await ends_and_is_the_same(ending, None)


async def ends_and_is_the_same(ending: Ending, place: Place | None) -> None:
    opened = Opened()
    workflow = everything(opened)
    definitions = workflow.get_executors_list()
    before = workflow_picture(workflow)
    await ending(workflow, None if place is None else place.create(workflow), opened.event)
    assert workflow_picture(workflow) == before
    assert all(one is other for one, other in zip(workflow.get_executors_list(), definitions, strict=True))
    assert (await workflow.run("fine")).get_outputs() == [["default", "fine"]]
    assert workflow_picture(workflow) == before


async def test_r04_what_a_workflow_gives_to_read_cannot_change_it() -> None:
    workflow = everything(Opened())
    before = workflow_picture(workflow)
    workflow.signature.clear()
    workflow.to_dict().clear()
    workflow.get_executors_list().clear()
    workflow.input_types.clear()
    workflow.output_types.clear()
    workflow.input_schema.clear()
    for name in ("executors", "factories", "state_keys"):
        with pytest.raises((TypeError, AttributeError)):
            getattr(workflow.graph, name)["new"] = 1
    with pytest.raises(AttributeError):
        workflow.graph.start_id = "other"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        workflow.state = 1  # type: ignore[attr-defined]
    for touch in (lambda one: one.seen, lambda one: setattr(one, "seen", [])):
        with pytest.raises(ExecutorStateError, match="'x'"):
            touch(workflow.get_start_executor())
    assert workflow_picture(workflow) == before


# R05.


@every_place
async def test_r05_each_run_works_on_executors_of_its_own_hydrated_from_the_head(place: Place) -> None:
    alive: list[weakref.ref[Any]] = []
    held: list[tuple[Any, list[str]]] = []

    class Own(Executor):
        seen: list[str] = state(factory=list)

        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, Any]) -> None:
            held.append((self, self.seen))
            self.seen.append(text)
            if text == "fail":
                raise Boom
            if len(self.seen) % 2:
                await ctx.send_message(text)
            else:
                await ctx.yield_output(self.seen)

    mine = Own(id="own")
    workflow = WorkflowBuilder(name="w", start_executor=mine).add_edge(mine, mine).build()
    cp = place.create(workflow)
    await workflow.run("a", checkpoint=cp)
    # One object for the whole run, and never the definition.
    assert held[0][0] is held[1][0]
    assert held[0][0] not in (mine, workflow.get_start_executor())
    assert held[0][1] is held[1][1]
    await workflow.run("b", checkpoint=cp)
    assert held[2][0] is not held[0][0]
    assert held[2][1] == ["a", "a", "b", "b"]
    assert held[0][1] == ["a", "a"], "the run before keeps no hand on what the next one works on"
    # A superstep that failed leaves nothing behind in the next run.
    with pytest.raises(Boom):
        await workflow.run("fail", checkpoint=cp)
    failed = held[-1]
    assert failed[1][-1] == "fail"
    with pytest.raises(Boom):
        await workflow.run(checkpoint=cp)
    assert held[-1][0] is not failed[0]
    assert held[-1][1] == ["a", "a", "b", "b", "fail"]
    assert cp.head_snapshot.state["executor_states"]["own"]["seen"] == ["a", "a", "b", "b"]
    alive.extend(weakref.ref(one) for one, _ in held)
    held.clear()
    del failed
    gc.collect()
    assert [one() for one in alive if one() is not None] == []


@every_place
async def test_r05_a_factory_makes_one_executor_for_each_run_that_reaches_it(place: Place) -> None:
    made: list[Executor] = []

    def make() -> Executor:
        made.append(Step("made", final=True))
        return made[-1]

    def reached(text: str) -> bool:
        return "yes" in text

    builder = WorkflowBuilder(name="w", start_executor=Step("a"))
    workflow = builder.add_edge("a", Factory(make, id="made"), condition=reached).build()
    assert len(made) == 1
    cp = place.create(workflow)
    for text, count in (("no", 1), ("yes", 2), ("no", 2), ("yes", 3)):
        await workflow.run(text, checkpoint=cp)
        assert len(made) == count
    await asyncio.gather(*(workflow.run("yes") for _ in range(5)))
    assert len(made) == 8


@every_place
async def test_r05_declared_state_is_hydrated_only_for_the_executor_that_is_reached(place: Place) -> None:
    restored: list[str] = []

    class Own(Executor):
        def on_snapshot_save(self) -> dict[str, Any]:
            return {"id": self.id}

        def on_snapshot_restore(self, saved: dict[str, Any]) -> None:
            restored.append(saved["id"])

        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, Any]) -> None:
            if text != "short" and self.id == "a":
                await ctx.send_message(text)

    workflow = chain(Own(id="a"), Own(id="b"))
    cp = place.create(workflow)
    await workflow.run("t", checkpoint=cp)
    assert restored == []
    cp = await place.reload()
    await workflow.run("short", checkpoint=cp)
    assert restored == ["a"]
    await workflow.run("t", checkpoint=cp)
    assert restored == ["a", "a", "b"]
    assert cp.head_snapshot.state["executor_states"] == {"a": {"id": "a"}, "b": {"id": "b"}}


# R06.


class Meets(Executor):
    """Writes to every kind of state and then waits until every run has got as far."""

    seen: list[Any] = state(factory=list)

    def __init__(self, id: str, meet: Callable[[], Awaitable[None]]) -> None:
        super().__init__(id=id)
        self.meet = meet

    @handler
    async def on_number(self, n: int, ctx: WorkflowContext[int, Any]) -> None:
        self.seen.append(n)
        ctx.set_state("sum", ctx.get_state("sum", 0) + n)
        await self.meet()
        self.seen.append(n)
        if len(self.seen) < 6:
            await ctx.send_message(n)
        else:
            await ctx.yield_output((self.seen, ctx.get_state("sum")))


def expected(n: int) -> list[Any]:
    return [([n] * 6, 3 * n)]


class Meeting(Outside):
    """Where a number of tasks wait for each other, again and again."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.waiting = 0
        self.gate = asyncio.Event()

    async def __call__(self) -> None:
        gate = self.gate
        self.waiting += 1
        if self.waiting == self.count:
            self.waiting, self.gate = 0, asyncio.Event()
            gate.set()
        await gate.wait()


@every_place
async def test_r06_many_checkpoints_and_one_shot_runs_go_on_at_once_in_tasks(place: Place) -> None:
    meeting = Meeting(60)
    start = Meets("x", meeting)
    workflow = WorkflowBuilder(name="w", start_executor=start).add_edge(start, start).build()
    before = workflow_picture(workflow)
    checkpoints = [place.create(workflow, f"run-{n}") for n in range(50)]
    results = await asyncio.gather(
        *(workflow.run(n, checkpoint=cp) for n, cp in enumerate(checkpoints)),
        *(workflow.run(n) for n in range(50, 60)),
    )
    assert [result.get_outputs() for result in results] == [expected(n) for n in range(60)]
    for n, cp in enumerate(checkpoints):
        loaded = await place.reload(f"run-{n}")
        assert bytes_of(loaded) == bytes_of(cp)
        ids = [one.snapshot_id for one in cp.snapshots]
        assert lineage(cp) == list(zip(ids, [None, *ids[:-1]], strict=True))
        assert len(ids) == 4
        assert shared(cp.head_snapshot) == {"sum": 3 * n}
    assert len({key for cp in checkpoints for key in bytes_of(cp)}) == 200
    assert workflow_picture(workflow) == before


@every_place
async def test_r06_so_they_do_in_threads_with_event_loops_of_their_own(place: Place) -> None:
    barrier = threading.Barrier(8)

    async def meet() -> None:
        await asyncio.to_thread(barrier.wait, 60)

    start = Meets("x", meet)
    workflow = WorkflowBuilder(name="w", start_executor=start).add_edge(start, start).build()
    before = workflow_picture(workflow)
    checkpoints = [place.create(workflow, f"run-{n}") for n in range(4)]
    outputs: dict[int, Any] = {}

    async def one(n: int) -> None:
        cp = checkpoints[n // 2] if n % 2 == 0 else None
        outputs[n] = (await workflow.run(n, checkpoint=cp)).get_outputs()

    threads = [threading.Thread(target=lambda n=n: asyncio.run(one(n))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == {n: expected(n) for n in range(8)}
    for n, cp in enumerate(checkpoints):
        assert bytes_of(await place.reload(f"run-{n}")) == bytes_of(cp)
        assert shared(cp.head_snapshot) == {"sum": 6 * n}
    assert workflow_picture(workflow) == before


@every_place
async def test_r06_one_checkpoint_goes_from_thread_to_thread_and_loop_to_loop(place: Place) -> None:
    workflow = tallying()
    cp = place.create(workflow)
    failures: list[BaseException] = []

    def turn(word: str) -> None:
        try:
            asyncio.run(as_coroutine(workflow.run(word, checkpoint=cp)))
        except BaseException as error:
            failures.append(error)

    for word in "abc":
        thread = threading.Thread(target=turn, args=(word,))
        thread.start()
        thread.join()
    assert failures == []
    assert (await workflow.run("d", checkpoint=cp)).get_outputs() == [(list("abcd"), list("abcd"))]


async def test_r06_a_failure_or_cancellation_of_one_run_does_not_touch_the_others() -> None:
    entered, let = asyncio.Event(), asyncio.Event()

    class Waits(Executor):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            if text == "fail":
                raise Boom
            entered.set()
            await let.wait()
            await ctx.yield_output(text)

    workflow = chain(Waits(id="x"))
    checkpoints = {text: workflow.create_checkpoint() for text in ("good", "fail", "cancel")}
    good = asyncio.ensure_future(as_coroutine(workflow.run("good", checkpoint=checkpoints["good"])))
    await reached(entered, good)
    with pytest.raises(Boom):
        await workflow.run("fail", checkpoint=checkpoints["fail"])
    stopped = asyncio.ensure_future(as_coroutine(workflow.run("cancel", checkpoint=checkpoints["cancel"])))
    await asyncio.sleep(0)
    stopped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopped
    let.set()
    assert (await good).get_outputs() == ["good"]


# R07.


class Gate(Outside):
    """Lets a test wait for a handler and the handler for the test."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.let = asyncio.Event()


class Waits(Executor):
    def __init__(self, id: str, ticks: Ticks, gate: Gate) -> None:
        super().__init__(id=id)
        self.ticks = ticks
        self.gate = gate

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.ticks(self.id)
        if text == "wait":
            self.gate.entered.set()
            await self.gate.let.wait()
        if text == "fail":
            raise Boom
        await ctx.yield_output(text)


def gated(ticks: Ticks, gate: Gate) -> Workflow:
    return chain(Waits("x", ticks, gate), name="gated")


async def refused_everywhere(workflow: Workflow, cp: Checkpoint) -> None:
    """Use the checkpoint in every way while something holds it."""
    before, head = bytes_of(cp), cp.head_snapshot_id
    with pytest.raises(CheckpointInUseError, match="'run-1'"):
        await workflow.run("second", checkpoint=cp)
    with pytest.raises(CheckpointInUseError, match="'run-1'"):
        await workflow.run(checkpoint=cp)
    with pytest.raises(CheckpointInUseError, match="'run-1'"):
        await workflow.run(responses={"id": 1}, checkpoint=cp)
    with pytest.raises(CheckpointInUseError, match="'run-1'"):
        async for _ in workflow.run("second", checkpoint=cp, stream=True):
            pytest.fail("an event before the refusal")
    with pytest.raises(CheckpointInUseError, match="'run-1'"):
        await workflow.run("second", checkpoint=cp, stream=True).get_final_response()
    found: list[BaseException] = []

    def in_a_thread() -> None:
        async def second(stream: bool) -> None:
            try:
                running: Any = workflow.run("second", checkpoint=cp, stream=stream)
                await (running.get_final_response() if stream else running)
            except CheckpointInUseError as error:
                found.append(error)

        for stream in (False, True):
            asyncio.run(second(stream))

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert len(found) == 2
    for refused_too in (cp.commit_snapshot, cp.abandon, cp.prune, cp.refresh):
        with pytest.raises(CheckpointInUseError):
            await refused_too()
    with pytest.raises(CheckpointInUseError):
        cp.restart_from(head)
    assert (bytes_of(cp), cp.head_snapshot_id) == (before, head)


@every_place
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("another", [False, True], ids=["the same workflow", "another object"])
async def test_r07_a_second_use_is_refused_at_once_before_any_handler(
    place: Place, ticks: Ticks, stream: bool, another: bool
) -> None:
    gate = Gate()
    workflow = gated(ticks, gate)
    cp = place.create(workflow)
    running: Any = workflow.run("wait", checkpoint=cp, stream=stream)
    task = asyncio.ensure_future(running.get_final_response() if stream else as_coroutine(running))
    await reached(gate.entered, task)
    assert cp.in_use_by is not None
    await refused_everywhere(gated(ticks, gate) if another else workflow, cp)
    assert ticks["x"] == 1
    # The guard is the checkpoint's, so the workflow is free.
    other = place.create(workflow, "run-2")
    assert (await workflow.run("t", checkpoint=other)).get_outputs() == ["t"]
    assert (await workflow.run("t")).get_outputs() == ["t"]
    gate.let.set()
    assert (await task).get_outputs() == ["wait"]
    assert cp.in_use_by is None
    assert boundaries(cp) == ["input_accepted", "completed"]
    assert (await workflow.run("t", checkpoint=cp)).get_outputs() == ["t"]


@every_place
@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.__name__)
async def test_r07_every_ending_frees_the_checkpoint(place: Place, ending: Ending) -> None:
    opened = Opened()
    workflow = everything(opened)
    cp = place.create(workflow)
    await ending(workflow, cp, opened.event)
    assert cp.in_use_by is None
    cp.restart_from(None)
    assert (await workflow.run("fine", checkpoint=cp)).get_outputs() == [["default", "fine"]]
    assert cp.in_use_by is None
    loaded = await place.reload()
    assert bytes_of(loaded) == bytes_of(cp)
    assert loaded.stored_head_snapshot_id == cp.head_snapshot_id


@every_place
async def test_r07_a_refused_or_failed_second_use_does_not_free_the_first(place: Place, ticks: Ticks) -> None:
    gate = Gate()
    workflow = gated(ticks, gate)
    cp = place.create(workflow)
    task = asyncio.ensure_future(as_coroutine(workflow.run("wait", checkpoint=cp)))
    await reached(gate.entered, task)
    for _ in range(3):
        await refused_everywhere(workflow, cp)
    second = asyncio.ensure_future(as_coroutine(workflow.run("second", checkpoint=cp)))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises((CheckpointInUseError, asyncio.CancelledError)):
        await second
    await workflow.run("second", checkpoint=cp, stream=True).cancel()
    gc.collect()
    assert cp.in_use_by is not None
    gate.let.set()
    await task
    assert ticks["x"] == 1


@every_place
async def test_r07_nothing_is_taken_before_the_first_await_or_iteration(place: Place, ticks: Ticks) -> None:
    workflow = gated(ticks, Gate())
    cp = place.create(workflow)
    pending = workflow.run("one", checkpoint=cp)
    stream = workflow.run("two", checkpoint=cp, stream=True)
    iterator = aiter(stream)
    assert (cp.in_use_by, ticks["x"]) == (None, 0)
    assert (await pending).get_outputs() == ["one"]
    first = await anext(iterator)
    assert first.type == "started"
    assert (await stream.get_final_response()).get_outputs() == ["two"]
    with pytest.raises(InvalidCallError):
        await pending
    assert ticks["x"] == 2


@every_place
async def test_r07_of_many_at_once_one_runs(place: Place, ticks: Ticks) -> None:
    gate = Gate()
    workflow = gated(ticks, gate)
    cp = place.create(workflow)
    tasks = [asyncio.ensure_future(as_coroutine(workflow.run("wait", checkpoint=cp))) for _ in range(20)]
    await reached(gate.entered, asyncio.gather(*tasks, return_exceptions=True))
    done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    while len(left) > 1:
        more, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    assert all(isinstance(task.exception(), CheckpointInUseError) for task in done)
    gate.let.set()
    assert (await left.pop()).get_outputs() == ["wait"]
    assert (len(done), ticks["x"]) == (19, 1)


@every_place
async def test_r07_of_many_threads_one_runs(place: Place) -> None:
    @executor
    def waits(n: int, ctx: SyncWorkflowContext[str, int]) -> None:
        entered.append(n)
        assert let.wait(60)
        ctx.yield_output(n)

    entered: list[int] = []
    refused: list[int] = []
    outputs: list[Any] = []
    let, all_tried = threading.Event(), threading.Barrier(9)
    workflow = chain(waits)
    cp = place.create(workflow)

    async def contend(n: int) -> None:
        task = asyncio.ensure_future(as_coroutine(workflow.run(n, checkpoint=cp)))
        while not task.done() and n not in entered:
            await asyncio.sleep(0)
        await asyncio.to_thread(all_tried.wait, 60)
        try:
            outputs.append((await task).get_outputs())
        except CheckpointInUseError:
            refused.append(n)

    threads = [threading.Thread(target=lambda n=n: asyncio.run(contend(n))) for n in range(8)]
    for thread in threads:
        thread.start()
    await asyncio.to_thread(all_tried.wait, 60)
    let.set()
    for thread in threads:
        thread.join()
    (winner,) = entered
    assert outputs == [[winner]]
    assert sorted(refused) == [n for n in range(8) if n != winner]
    assert cp.in_use_by is None
    assert boundaries(cp) == ["input_accepted", "completed"]


@every_place
async def test_r07_a_handler_that_uses_its_own_checkpoint_is_refused_and_does_not_hang(place: Place) -> None:
    held: list[Any] = []

    @executor
    async def again(text: str, ctx: WorkflowContext[str, str]) -> None:
        with pytest.raises(CheckpointInUseError):
            await held[0].run("inner", checkpoint=held[1])
        await ctx.yield_output(text)

    workflow = chain(again)
    held += [workflow, place.create(workflow)]
    assert (await workflow.run("outer", checkpoint=held[1])).get_outputs() == ["outer"]


@every_place
@pytest.mark.parametrize("leave", ["break", "cancel the task"])
async def test_r07_the_next_run_waits_for_the_clean_up_of_one_that_was_left(
    place: Place, ticks: Ticks, leave: str
) -> None:
    entered, cleaning, clean = asyncio.Event(), asyncio.Event(), asyncio.Event()
    order: list[str] = []

    class CleansUp(Executor):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            order.append(f"{text} begins")
            if text == "first":
                try:
                    entered.set()
                    await asyncio.Event().wait()
                finally:
                    cleaning.set()
                    await clean.wait()
                    order.append("first is clean")
            await ctx.yield_output(text)

    workflow = chain(CleansUp(id="x"))
    cp = place.create(workflow)
    if leave == "break":
        async for _ in workflow.run("first", checkpoint=cp, stream=True):
            if entered.is_set():
                break
            await asyncio.sleep(0)
            if entered.is_set():
                break
        left = None
    else:
        left = asyncio.ensure_future(as_coroutine(workflow.run("first", checkpoint=cp)))
        await reached(entered, left)
        left.cancel()
    await cleaning.wait()
    following = asyncio.ensure_future(as_coroutine(workflow.run(checkpoint=cp, max_supersteps=0)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not following.done(), "it waits for the clean-up in place of being refused"
    assert order == ["first begins"]
    clean.set()
    result = await following
    assert order == ["first begins", "first is clean"]
    assert result.get_final_state() is WorkflowRunState.IN_PROGRESS
    if left is not None:
        with pytest.raises(asyncio.CancelledError):
            await left
    assert boundaries(cp) == ["input_accepted"]


@every_storage
async def test_r07_the_guard_of_one_object_is_not_that_of_another_copy(place: Place, ticks: Ticks) -> None:
    gate = Gate()
    workflow = gated(ticks, gate)
    cp = place.create(workflow)
    await workflow.run("t", checkpoint=cp)
    copy = await place.reload()
    task = asyncio.ensure_future(as_coroutine(workflow.run("wait", checkpoint=cp)))
    await reached(gate.entered, task)
    # No guard between copies: storage settles it, before the second one's handlers.
    with pytest.raises(CheckpointConflictError):
        await workflow.run("t", checkpoint=copy)
    assert ticks["x"] == 2
    gate.let.set()
    assert (await task).get_outputs() == ["wait"]


class FullDisk(MemoryCheckpointStorage):
    """A storage whose commits fail from one on, until there is room."""

    fails_from: int | None = None
    error: BaseException = OSError(28, "no space left on device")

    async def commit_snapshot(self, checkpoint: Any, snapshot: Any, **more: Any) -> None:
        if self.fails_from is not None and len(checkpoint.snapshots) >= self.fails_from:
            raise self.error
        await super().commit_snapshot(checkpoint, snapshot, **more)


@pytest.mark.parametrize(
    "error", [OSError(28, "no space left on device"), Boom("custom")], ids=["disk", "custom"]
)
@pytest.mark.parametrize("fails_from", [0, 1, 2, 3])
async def test_r07_a_commit_that_fails_frees_it_too(fails_from: int, error: Exception, ticks: Ticks) -> None:
    workflow = chain(Step("a", ticks), Step("b", ticks), Step("c", ticks, final=True))
    storage = FullDisk()
    storage.fails_from, storage.error = fails_from, error
    cp = workflow.create_checkpoint("run-1", storage)
    with pytest.raises(type(error)):
        await workflow.run("t", checkpoint=cp)
    assert cp.in_use_by is None
    assert len(cp.snapshots) == fails_from
    storage.fails_from = None
    if fails_from:
        assert bytes_of(await storage.load("run-1")) == bytes_of(cp)
        result = await workflow.run(checkpoint=cp)
    else:
        result = await workflow.run("t", checkpoint=cp)
    assert result.get_outputs() == ["t>a>b>c"]


def test_r07_a_loop_that_is_closed_under_a_run_frees_it_once_the_run_is_gone(ticks: Ticks) -> None:
    let = asyncio.Event()

    @executor
    async def waits(text: str, ctx: WorkflowContext[str, str]) -> None:
        if ticks("x") == 1:
            await let.wait()
        await ctx.yield_output(text)

    workflow = chain(waits)
    cp = workflow.create_checkpoint()

    async def start() -> None:
        task = asyncio.ensure_future(as_coroutine(workflow.run("t", checkpoint=cp)))
        while not ticks["x"]:
            await asyncio.sleep(0)
        assert cp.in_use_by is not None
        task.cancel()

    asyncio.run(start())
    assert cp.in_use_by is None
    assert asyncio.run(as_coroutine(workflow.run(checkpoint=cp))).get_outputs() == ["t"]


# R08.


def test_r08_storage_and_checkpoint_ids_are_nowhere_but_at_the_checkpoint() -> None:
    def names(function: Any) -> set[str]:
        return set(inspect.signature(function).parameters)

    builder = names(WorkflowBuilder.__init__)
    builder.update(*(names(method) for _, method in inspect.getmembers(WorkflowBuilder, inspect.isfunction)))
    assert not {name for name in builder if "checkpoint" in name or "storage" in name}
    run = names(Workflow.run)
    assert "checkpoint" in run
    assert not {name for name in run if "storage" in name or "session" in name or name == "checkpoint_id"}
    for method in (Workflow.__init__, WorkflowRunStream.__init__):
        assert not {name for name in names(method) if "storage" in name or "checkpoint" in name}
    assert {name for name in names(Workflow.create_checkpoint) if "checkpoint" in name} == {
        "checkpoint_id",
        "checkpoint_storage",
    }


async def test_r08_the_old_ways_of_calling_are_refused() -> None:
    workflow = tallying()
    storage = MemoryCheckpointStorage()
    for argument in ("checkpoint_id", "checkpoint_storage", "session", "session_id"):
        with pytest.raises(TypeError, match=argument):
            workflow.run("a", **{argument: storage})  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="checkpoint_storage"):
        WorkflowBuilder(start_executor=Tally(id="t"), checkpoint_storage=storage)  # type: ignore[call-arg]
    assert not hasattr(WorkflowBuilder, "with_checkpointing")


def test_r08_what_is_said_to_be_absent_is_absent_from_the_whole_package() -> None:
    absent = {
        "register_checkpoint_type",
        "allowed_checkpoint_types",
        "WorkflowCheckpoint",
        "WorkflowSession",
        "get_latest",
        "list_checkpoint_ids",
        "save_checkpoint",
        "load_checkpoint",
    }
    modules = [branchpoint] + [
        importlib.import_module(info.name)
        for info in pkgutil.walk_packages(branchpoint.__path__, "branchpoint.")
        if not info.name.endswith("__main__")
    ]
    for module in modules:
        assert not absent & set(vars(module)), module.__name__
        for _, cls in inspect.getmembers(module, inspect.isclass):
            if cls.__module__.startswith("branchpoint"):
                assert not absent & set(dir(cls)), cls
    sessions = [name for name in vars(branchpoint) if "session" in name.lower()]
    assert sessions == []
    for cls in (CheckpointStorage, MemoryCheckpointStorage, FileCheckpointStorage):
        assert not {"save", "set_head", "get_latest", "list_checkpoint_ids"} & set(dir(cls))
        assert {"commit_snapshot", "load", "delete"} <= set(dir(cls))
