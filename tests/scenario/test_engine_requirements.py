"""The requirements on what a run keeps and when: R13 to R15, R30 to R33, R35, R36, R60, and determinism."""

from __future__ import annotations

import asyncio
import inspect
import operator
import os
from pathlib import Path
from typing import Any, Never

import pytest

from branchpoint import (
    Checkpoint,
    CheckpointConflictError,
    CheckpointNotFoundError,
    CheckpointSnapshot,
    CheckpointStorage,
    Executor,
    FileCheckpointStorage,
    GraphMismatchError,
    HandlerError,
    MemoryCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    clock,
    handler,
    ids,
    merge,
    response_handler,
    state,
)
from branchpoint.clock import SteppingClock
from branchpoint.ids import SequentialIds
from tests.journals import StoppingDisk
from tests.scenario.kit import (
    Ask,
    Boom,
    BoomOnce,
    Join,
    Outside,
    Place,
    Shuffle,
    Step,
    Talking,
    Ticks,
    boundaries,
    bytes_of,
    chain,
    every_file,
    every_place,
    every_storage,
    fan,
    file_bytes,
    in_new_process,
    lineage,
    listen,
    only_request,
    pending,
    place_of,
    say,
    shared,
    turns,
)

every_kind = pytest.mark.parametrize("kind", ["file-json", "file-msgpack"])

BUCKETS = ["workflow_state", "executor_states", "edge_states", "messages"]


def head_state(checkpoint: Checkpoint) -> dict[str, Any]:
    assert checkpoint.head_snapshot is not None
    return checkpoint.head_snapshot.state


# R13, R14: what the buckets hold.


class Yields(Step):
    """A step that counts, yields on its way, and notes the text in the shared state."""

    n: int = state(0)

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.ticks(self.id)
        self.n += 1
        ctx.set_state(f"seen by {self.id}", text)
        await ctx.yield_output(f"{self.id} saw {text}")
        await ctx.send_message(f"{text}>{self.id}")


def reviewing(ticks: Ticks) -> Workflow:
    src, ask, b, b2, j = (
        Yields("src", ticks),
        Ask("ask", ticks),
        Step("b", ticks),
        Step("b2", ticks),
        Join("j", ticks),
    )
    builder = WorkflowBuilder(name="reviewing", start_executor=src).add_fan_out_edges(src, [ask, b])
    return builder.add_edge(b, b2).add_fan_in_edges([ask, b2], j).build()


@every_place
async def test_r13_messages_hold_what_entered_what_is_pending_and_what_came_out(
    place: Place, ticks: Ticks
) -> None:
    workflow = reviewing(ticks)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint, input_id="in-1")
    rid = only_request(checkpoint)
    await workflow.run(responses={rid: "yes"}, checkpoint=checkpoint, input_id="in-2")
    await workflow.run("y", checkpoint=checkpoint, input_id="in-3")
    checkpoint = await place.reload()
    told = []
    for snapshot in checkpoint.snapshots[:7]:
        messages = snapshot.state["messages"]
        assert list(messages) == ["input", "pending", "output"]
        assert list(messages["pending"]) == ["deliveries", "requests"]
        told.append(
            (
                snapshot.boundary,
                (messages["input"]["input_id"], messages["input"]["kind"], messages["input"]["value"]),
                [(one["value"], one["targets"]) for one in messages["pending"]["deliveries"]],
                list(messages["pending"]["requests"]),
                [one["value"] for one in messages["output"]],
            )
        )
    hello, answered, out = ("in-1", "message", "x"), ("in-2", "responses", {rid: "yes"}), "src saw x"
    joined = ["x>src>ask=yes", "x>src>b>b2"]
    assert told == [
        ("input_accepted", hello, [("x", ["src"])], [], []),
        ("superstep_completed", hello, [("x>src", ["ask", "b"])], [], [out]),
        ("superstep_completed", hello, [("x>src>b", ["b2"])], [rid], [out]),
        ("paused", hello, [], [rid], [out]),
        ("responses_accepted", answered, [("yes", ["ask"])], [], [out]),
        ("superstep_completed", answered, [(joined, ["j"])], [], [out]),
        ("completed", answered, [], [], [out, joined]),
    ]
    entry = checkpoint.snapshots[7].state["messages"]
    assert entry["input"]["value"] == "y"
    assert [one["input_id"] for one in entry["input"]["earlier"]] == ["in-1", "in-2"]
    assert [(one["turn"], one["superstep"]) for one in entry["output"]] == [(1, 1), (1, 5)]
    (request,) = checkpoint.snapshots[3].state["messages"]["pending"]["requests"].values()
    assert (request["data"], request["source_executor_id"], request["input_id"]) == (
        "ask?x>src",
        "ask",
        "in-1",
    )
    assert (request["response_type"], request["path"]) == ("str", [])
    assert request["response_schema"] == {"type": "string"}


@every_place
async def test_r14_counts_status_shared_state_cursor_and_states_by_executor_and_edge(
    place: Place, ticks: Ticks
) -> None:
    workflow = reviewing(ticks)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    await workflow.run(responses={only_request(checkpoint): "yes"}, checkpoint=checkpoint)
    await workflow.run("y", checkpoint=checkpoint)
    checkpoint = await place.reload()
    seen = []
    for snapshot in checkpoint.snapshots:
        held = snapshot.state
        assert list(held) == BUCKETS
        own = held["workflow_state"]
        assert set(own) == {"iteration_count", "status", "turn", "shared", "cursor"}
        assert own["status"] == snapshot.status
        assert own["iteration_count"] == snapshot.superstep
        seen.append((own["iteration_count"], own["turn"], own["cursor"]["input_iteration"], own["status"]))
    going, paused, idle = "in_progress", "idle_with_pending_requests", "idle"
    assert seen == [
        (0, 1, 0, going),
        (1, 1, 0, going),
        (2, 1, 0, going),
        (3, 1, 0, paused),
        (3, 1, 3, going),
        (4, 1, 3, going),
        (5, 1, 3, idle),
        (5, 2, 5, going),
        (6, 2, 5, going),
        (7, 2, 5, going),
        (8, 2, 5, paused),
    ]
    assert [one.state["executor_states"] for one in checkpoint.snapshots] == [
        {},
        *[{"src": {"n": 1}}] * 7,
        *[{"src": {"n": 2}}] * 3,
    ]
    assert [shared(one) for one in checkpoint.snapshots[::4]] == [
        {},
        {"seen by src": "x"},
        {"seen by src": "y"},
    ]
    edge = "fan_in:ask,b2->j"
    assert [list(one.state["edge_states"]) for one in checkpoint.snapshots] == [
        *[[]] * 3,
        *[[edge]] * 2,
        *[[]] * 5,
        [edge],
    ]
    assert checkpoint.snapshots[3].state["edge_states"] == {edge: {"received": {"b2": ["x>src>b>b2"]}}}


async def test_r14_the_identity_of_an_edge_does_not_depend_on_how_it_was_built(ticks: Ticks) -> None:
    """A state made by one build of the graph is taken up by another that lists the ends otherwise."""

    def build(*, reverse: bool) -> Workflow:
        src, b, c, j = Step("src", ticks), Step("b", ticks), Ask("c", ticks), Join("j", ticks)
        ends = [c, b] if reverse else [b, c]
        builder = WorkflowBuilder(name="edges", start_executor=src)
        for end in ends:
            builder.add_edge(src, end)
        return builder.add_fan_in_edges(ends, j).build()

    first, other = build(reverse=False), build(reverse=True)
    assert first.graph_signature_hash == other.graph_signature_hash
    checkpoint = first.create_checkpoint()
    await first.run("x", checkpoint=checkpoint)
    result = await other.run(responses={only_request(checkpoint): "1"}, checkpoint=checkpoint)
    assert result.get_outputs() == [["x>src>c=1", "x>src>b"]]


@every_place
async def test_r14_the_users_keys_never_meet_the_engines(place: Place, ticks: Ticks) -> None:
    class Nasty(Step):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            for key in ("iteration_count", "status", "turn", "shared", "cursor", "a.b", "$", "$p"):
                ctx.set_state(key, f"the user's {key}")
            await ctx.send_message(text)

    workflow = chain(Nasty("a", ticks), Step("b", ticks, final=True))
    checkpoint = place.create(workflow)
    assert (await workflow.run("x", checkpoint=checkpoint)).get_outputs() == ["x>b"]
    own = head_state(await place.reload())["workflow_state"]
    assert (own["iteration_count"], own["status"], own["turn"]) == (2, "idle", 1)
    assert own["shared"]["status"] == "the user's status"
    assert own["shared"]["$p"] == "the user's $p"
    assert len(own["shared"]) == 8


# R15: when snapshots are committed.


class Looks(Step):
    """A step that looks, while it runs, at what is stored."""

    def __init__(self, id: str, ticks: Ticks, seen: Seen, *, final: bool = False) -> None:
        super().__init__(id, ticks, final=final)
        self.seen = seen

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        await self.seen.look(self.id)
        await self.done(f"{text}>{self.id}", ctx)


class LooksAndAsks(Ask):
    """The same for one that asks."""

    def __init__(self, id: str, ticks: Ticks, seen: Seen) -> None:
        super().__init__(id, ticks)
        self.seen = seen

    @response_handler
    async def on_answer(self, question: str, answer: str, ctx: WorkflowContext[str, str]) -> None:
        await self.seen.look(f"{self.id}.answer")
        await ctx.send_message(answer)


class Seen(Outside):
    """What handlers saw in storage when they were entered."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.found: list[tuple[str, list[str]]] = []

    async def look(self, who: str) -> None:
        self.found.append((who, boundaries(await self.place.reload())))


@every_place
async def test_r15_every_boundary_is_committed_before_what_follows_it(place: Place, ticks: Ticks) -> None:
    seen = Seen(place)
    workflow = chain(
        Looks("a", ticks, seen), LooksAndAsks("ask", ticks, seen), Looks("z", ticks, seen, final=True)
    )
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint, metadata={"tenant": "t"})
    await workflow.run(responses={only_request(checkpoint): "yes"}, checkpoint=checkpoint)
    entry, step = "input_accepted", "superstep_completed"
    whole = [entry, step, "paused", "responses_accepted", step, "completed"]
    assert seen.found == [
        ("a", [entry]),
        ("ask.answer", whole[:4]),
        ("z", whole[:5]),
    ]
    for found in (checkpoint, await place.reload()):
        assert boundaries(found) == whole
        assert [one.metadata["boundary"] for one in found.snapshots] == whole
        assert [one.metadata.get("tenant") for one in found.snapshots] == ["t"] * 3 + [None] * 3
        assert [one.manifest.executors for one in found.snapshots] == [
            (),
            ("a",),
            ("ask",),
            (),
            ("ask",),
            ("z",),
        ]


@every_place
async def test_r15_boundaries_that_coincide_are_one_snapshot(place: Place, ticks: Ticks) -> None:
    done, asks = chain(Step("a", ticks, final=True)), chain(Ask("a", ticks, final=True))
    checkpoint = place.create(done, "done")
    await done.run("x", checkpoint=checkpoint)
    assert boundaries(checkpoint) == ["input_accepted", "completed"]
    checkpoint = place.create(asks, "asks")
    await asks.run("x", checkpoint=checkpoint)
    assert boundaries(checkpoint) == ["input_accepted", "paused"]
    await asks.run(responses={only_request(checkpoint): "y"}, checkpoint=checkpoint)
    assert boundaries(checkpoint)[2:] == ["responses_accepted", "completed"]


@every_place
async def test_r15_a_run_from_a_rewound_head_first_commits_that_state_as_its_child(
    place: Place, ticks: Ticks
) -> None:
    seen = Seen(place)
    workflow = chain(Step("a", ticks), Looks("b", ticks, seen), Step("c", ticks, final=True))
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint, metadata={"m": 1})
    _, after_a, after_b, _ = checkpoint.snapshots
    checkpoint.restart_from(after_a.snapshot_id)
    await workflow.run(checkpoint=checkpoint)
    checkpoint = await place.reload()
    restarted = checkpoint.snapshots[4]
    assert (restarted.boundary, restarted.parent_snapshot_id) == ("restarted", after_a.snapshot_id)
    assert restarted.state == after_a.state
    assert restarted.root == after_a.root
    assert restarted.metadata == {"m": 1, "boundary": "restarted"}
    assert seen.found[1] == ("b", boundaries(checkpoint)[:5])
    assert [one.parent_snapshot_id for one in checkpoint.snapshots[5:]] == [
        one.snapshot_id for one in checkpoint.snapshots[4:-1]
    ]
    # A plain retry from the stored head does not.
    await workflow.run("y", checkpoint=checkpoint, max_supersteps=1)
    await workflow.run(checkpoint=checkpoint)
    assert "restarted" not in boundaries(checkpoint)[5:]
    assert after_b.snapshot_id in dict(lineage(checkpoint))


class Everything(Executor):
    """Does all a handler can do, then waits, then raises if it is told to."""

    n: int = state(0)

    def __init__(self, id: str, gates: Gates) -> None:
        super().__init__(id=id)
        self.gates = gates

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.n += 1
        ctx.set_state(self.id, self.n)
        await ctx.send_message(f"{text}>{self.id}")
        await ctx.yield_output(f"{self.id} saw {text}")
        await ctx.request_info(f"{self.id}?", str)
        await self.gates.wait(self.id)

    @response_handler
    async def on_answer(self, question: str, answer: str, ctx: WorkflowContext[str, str]) -> None: ...


class Gates(Outside):
    """One gate for each executor; `fails` raises behind its gate."""

    def __init__(self, *ids: str) -> None:
        self.open = {id: asyncio.Event() for id in ids}
        self.entered = {id: asyncio.Event() for id in ids}
        self.fails: set[str] = set()

    async def wait(self, id: str) -> None:
        if id in self.open:
            self.entered[id].set()
            await self.open[id].wait()
        if id in self.fails:
            raise Boom(id)


@every_place
@pytest.mark.parametrize("ending", ["success", "failure", "cancellation"])
async def test_r15_no_snapshot_ever_holds_half_a_superstep(place: Place, ending: str) -> None:
    gates = Gates("b", "c", "d")
    src, *branches = Step("src"), *(Everything(id, gates) for id in "bcd")
    workflow = fan(src, branches, Join("j"))
    checkpoint = place.create(workflow)
    run = asyncio.ensure_future(workflow.run("x", checkpoint=checkpoint))
    for entered in gates.entered.values():
        await entered.wait()
    gates.open["c"].set()
    gates.open["b"].set()
    await turns(50)
    half = await place.reload()
    assert boundaries(half) == ["input_accepted", "superstep_completed"]
    assert half.head_snapshot is not None
    before = half.head_snapshot.to_bytes()
    if ending == "cancellation":
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    if ending == "failure":
        gates.fails.add("d")
    gates.open["d"].set()
    if ending == "failure":
        with pytest.raises(Boom):
            await run
    if ending == "success":
        await run
    after = await place.reload()
    whole = {f"{id} saw x>src" for id in "bcd"}
    if ending != "success":
        assert after.head_snapshot is not None
        assert after.head_snapshot.to_bytes() == before
    for snapshot in after.snapshots:
        held = snapshot.state
        done = snapshot.superstep >= 2
        assert set(held["executor_states"]) == (set("bcd") if done else set())
        assert set(shared(snapshot)) == (set("bcd") if done else set())
        outputs = {one["value"] for one in held["messages"]["output"] if isinstance(one["value"], str)}
        assert outputs == (whole if done else set())
        assert len(held["messages"]["pending"]["requests"]) == (3 if done else 0)
    assert len(after.snapshots) == (4 if ending == "success" else 2)


@every_place
@pytest.mark.parametrize("stream", [False, True])
async def test_r15_a_handler_that_ends_its_own_task_fails_the_superstep_at_once(
    place: Place, ticks: Ticks, stream: bool
) -> None:
    """An unexplained CancelledError is a failure like any other: siblings do not wait for ever."""

    class Awaits(Step):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            if self.ticks(self.id) == 1:
                cancelled = asyncio.get_running_loop().create_future()
                cancelled.cancel()
                await cancelled
            await self.done(text, ctx)

    gates = Gates("b")

    class Waits(Step):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            try:
                await gates.wait(self.id)
            finally:
                self.ticks("cleaned up")
            await self.done(text, ctx)

    workflow = fan(Step("src", ticks), [Waits("b", ticks), Awaits("c", ticks)], Join("j", ticks))
    checkpoint = place.create(workflow)
    run: Any = workflow.run("x", checkpoint=checkpoint, stream=stream)
    with pytest.raises(HandlerError, match=r"'c' .*raised CancelledError"):
        await asyncio.wait_for(run.get_final_response() if stream else run, 30)
    assert ticks["cleaned up"] == 1
    assert boundaries(await place.reload()) == ["input_accepted", "superstep_completed"]
    gates.open["b"].set()
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == [["x>src", "x>src"]]


@every_place
async def test_r15_accepting_an_input_alone_is_a_boundary(place: Place, ticks: Ticks) -> None:
    workflow = chain(Ask("ask", ticks), Step("z", ticks, final=True))
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint, max_supersteps=0)
    assert (boundaries(await place.reload()), ticks.all()) == (["input_accepted"], {})
    await workflow.run(checkpoint=checkpoint)
    await workflow.run(responses={only_request(checkpoint): "y"}, checkpoint=checkpoint, max_supersteps=0)
    checkpoint = await place.reload()
    assert boundaries(checkpoint)[-1] == "responses_accepted"
    assert pending(checkpoint.head_snapshot)["requests"] == {}
    assert ticks.all() == {"ask": 1}
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == ["x>ask=y>z"]


# R30 to R33: the engine and its storage.


class Three(CheckpointStorage):
    """A storage with the three methods of the contract and nothing else."""

    def __init__(self, inner: CheckpointStorage) -> None:
        self.inner = inner
        self.serialization_format = inner.serialization_format
        self.calls: list[tuple[str, str | None, str | None]] = []

    async def commit_snapshot(
        self,
        checkpoint: Checkpoint,
        snapshot: CheckpointSnapshot,
        *,
        expected_head_snapshot_id: str | None,
    ) -> None:
        self.calls.append(("commit", snapshot.snapshot_id, expected_head_snapshot_id))
        await self.inner.commit_snapshot(
            checkpoint, snapshot, expected_head_snapshot_id=expected_head_snapshot_id
        )

    async def load(self, checkpoint_id: str) -> Checkpoint:
        self.calls.append(("load", checkpoint_id, None))
        return await self.inner.load(checkpoint_id)

    async def delete(self, checkpoint_id: str) -> None:
        await self.inner.delete(checkpoint_id)


def test_r30_the_contract_is_three_methods() -> None:
    assert CheckpointStorage.__abstractmethods__ == {"commit_snapshot", "delete"}
    for name in ("commit_snapshot", "load", "delete"):  # `load` is made from `load_records`, or overridden
        assert inspect.iscoroutinefunction(getattr(CheckpointStorage, name))
    commit = inspect.signature(CheckpointStorage.commit_snapshot).parameters
    assert list(commit) == ["self", "checkpoint", "snapshot", "expected_head_snapshot_id"]
    assert commit["expected_head_snapshot_id"].kind is inspect.Parameter.KEYWORD_ONLY
    names = {name for name in dir(CheckpointStorage) if not name.startswith("_")}
    assert not names & {"save", "set_head", "get_latest", "list_checkpoint_ids", "save_snapshot"}


@every_storage
async def test_r30_one_call_for_each_snapshot_and_three_methods_are_enough(
    place: Place, ticks: Ticks
) -> None:
    inner = place.open()
    assert inner is not None
    storage = Three(inner)
    workflow = reviewing(ticks)
    checkpoint = workflow.create_checkpoint("run-1", storage)
    await workflow.run("x", checkpoint=checkpoint)
    await workflow.run(responses={only_request(checkpoint): "yes"}, checkpoint=checkpoint)
    checkpoint.restart_from(checkpoint.snapshots[1].snapshot_id)
    await workflow.run(checkpoint=checkpoint)
    made = [one.snapshot_id for one in checkpoint.snapshots]
    commits = [call for call in storage.calls if call[0] == "commit"]
    # One call a snapshot, and the head it expects is always the one before, not the parent.
    assert commits == [("commit", new, before) for before, new in zip([None, *made], made, strict=False)]
    assert bytes_of(await place.reload()) == bytes_of(checkpoint)
    # A retry that commits nothing first still compares the head, here by loading.
    failing = chain(BoomOnce("a", ticks), name="failing")
    other = failing.create_checkpoint("run-2", storage)
    with pytest.raises(Boom):
        await failing.run("x", checkpoint=other)
    storage.calls.clear()
    await failing.run(checkpoint=other)
    assert [call[0] for call in storage.calls] == ["load", "commit"]


@every_storage
async def test_r30_a_snapshot_that_cannot_be_encoded_never_reaches_storage(place: Place) -> None:
    class Unkept:
        pass

    class Sends(Executor):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext) -> None:
            await ctx.send_message(Unkept())

    class Takes(Executor):
        @handler
        async def on_unkept(self, message: Unkept, ctx: WorkflowContext) -> None: ...

    inner = place.open()
    assert inner is not None
    storage = Three(inner)
    workflow = chain(Sends(id="a"), Takes(id="b"))
    checkpoint = workflow.create_checkpoint("run-1", storage)
    with pytest.raises(Exception, match="Unkept"):
        await workflow.run("x", checkpoint=checkpoint)
    assert len(storage.calls) == len(checkpoint.snapshots) == 1
    assert bytes_of(await place.reload()) == bytes_of(checkpoint)


@every_storage
async def test_r31_a_stale_writer_conflicts_and_nothing_of_it_is_persisted(
    place: Place, ticks: Ticks, tmp_path: Path
) -> None:
    workflow = chain(Step("a", ticks), BoomOnce("b", ticks), Step("c", ticks, final=True))
    checkpoint = place.create(workflow)
    with pytest.raises(Boom):
        await workflow.run("x", checkpoint=checkpoint)
    stale = await place.reload()
    behind = await place.reload()
    behind.restart_from(behind.snapshots[0].snapshot_id)
    await workflow.run(checkpoint=checkpoint)
    before, stored, acted = bytes_of(await place.reload()), file_bytes(tmp_path), ticks.all()
    for one, selected in ((stale, 1), (behind, 0)):
        held = lineage(one)
        for use in (
            lambda one=one: workflow.run(checkpoint=one),
            lambda one=one: workflow.run(checkpoint=one, max_supersteps=1),
            lambda one=one: one.commit_snapshot(head_state(one)),
            lambda one=one: one.commit_snapshot(),
            lambda one=one: one.abandon(),
        ):
            with pytest.raises(CheckpointConflictError):
                await use()
        if one is stale:  # for the other there is nothing to remove: both snapshots are heads
            with pytest.raises(CheckpointConflictError):
                await one.prune()
        assert lineage(one) == held
        assert one.head_snapshot_id == held[selected][0]
        assert one.stored_head_snapshot_id == held[1][0]
        assert one.in_use_by is None
    assert bytes_of(await place.reload()) == before
    assert file_bytes(tmp_path) == stored
    assert ticks.all() == acted


@every_storage
async def test_r32_a_loaded_checkpoint_stays_attached(place: Place, ticks: Ticks) -> None:
    workflow = reviewing(ticks)
    await workflow.run("x", checkpoint=place.create(workflow))
    for _ in range(3):
        checkpoint = await place.reload()
        storage = checkpoint.checkpoint_storage
        assert storage is not None
        if checkpoint.status == "idle":
            await workflow.run("y", checkpoint=checkpoint)
        else:
            await workflow.run(responses={only_request(checkpoint): "yes"}, checkpoint=checkpoint)
        assert bytes_of(await place.reload()) == bytes_of(checkpoint)
        assert bytes_of(await storage.load("run-1")) == bytes_of(checkpoint)
    assert len((await place.reload()).snapshots) == 4 + 3 + 4 + 3


# R33: interrupted writes, and R35: another process.


async def run_on_a_stopping_disk(folder: str, format: Any, step: str) -> Any:
    storage = FileCheckpointStorage(folder, serialization_format=format, disk=StoppingDisk(step))
    ticks = Ticks(Path(folder).parent / "ticks")
    workflow = chain(Step("a", ticks), Step("b", ticks, final=True))
    return (await workflow.run(checkpoint=await storage.load("run-1"))).get_outputs()


@pytest.mark.parametrize("format", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("step", "landed"),
    [("write", False), ("half", False), ("written", True), ("synced", True), ("slot", True)],
)
async def test_r33_a_run_killed_inside_a_commit_goes_on_from_what_was_committed(
    runs: Path, tmp_path: Path, format: Any, step: str, landed: bool
) -> None:
    ticks = Ticks(tmp_path / "ticks")
    workflow = chain(Step("a", ticks), Step("b", ticks, final=True))

    def storage() -> FileCheckpointStorage:
        return FileCheckpointStorage(runs, serialization_format=format)

    await workflow.run(
        "x", checkpoint=workflow.create_checkpoint("run-1", storage()), max_supersteps=0, metadata={"m": "n"}
    )
    with Talking(run_on_a_stopping_disk, str(runs), format, step) as process:
        assert process.hear() == step
        process.kill()
    checkpoint = await storage().load("run-1")
    assert boundaries(checkpoint) == ["input_accepted", *["superstep_completed"] * landed]
    assert [one.metadata["m"] for one in checkpoint.snapshots] == ["n"] * (1 + landed)
    (delivery,) = pending(checkpoint.head_snapshot)["deliveries"]
    assert (delivery["value"], delivery["targets"]) == (("x>a", ["b"]) if landed else ("x", ["a"]))
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == ["x>a>b"]
    assert ticks.all() == {"a": 1 if landed else 2, "b": 1}
    assert bytes_of(await storage().load("run-1")) == bytes_of(checkpoint)


@every_place
@pytest.mark.parametrize("position", [0, 1, 2])
async def test_r33_a_cancelled_run_leaves_whole_boundaries_alone(
    place: Place, ticks: Ticks, position: int
) -> None:
    gates = Gates("abc"[position])

    class Waits(Step):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            self.ticks(self.id)
            ctx.set_state("half", True)
            await ctx.send_message("half")
            await gates.wait(self.id)

    workflow = chain(*((Waits if n == position else Step)(id, ticks) for n, id in enumerate("abc")))
    checkpoint = place.create(workflow)
    run = asyncio.ensure_future(workflow.run("x", checkpoint=checkpoint))
    await gates.entered["abc"[position]].wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    checkpoint = await place.reload()
    assert len(checkpoint.snapshots) == position + 1
    assert shared(checkpoint.head_snapshot) == {}
    assert "half" not in str(head_state(checkpoint))


def hosted(folder: str, kind: str) -> tuple[Workflow, Place, Ticks]:
    """Rebuild everything from nothing, in whatever process this is."""
    ticks = Ticks(Path(folder) / "ticks")
    return reviewing(ticks), place_of(kind, Path(folder)), ticks


async def start_here(folder: str, kind: str) -> Any:
    workflow, place, _ = hosted(folder, kind)
    result = await workflow.run("x", checkpoint=place.create(workflow), input_id="in-1", metadata={"m": 1})
    (event,) = result.get_request_info_events()
    return event.request_id


async def answer_here(folder: str, kind: str, rid: str) -> Any:
    workflow, place, _ = hosted(folder, kind)
    checkpoint = await place.reload()
    result = await workflow.run(responses={rid: "yes"}, checkpoint=checkpoint)
    return [result.get_outputs(), checkpoint.status, boundaries(checkpoint)]


async def next_turn_here(folder: str, kind: str) -> Any:
    workflow, place, _ = hosted(folder, kind)
    checkpoint = await place.reload()
    result = await workflow.run("y", checkpoint=checkpoint)
    return [result.get_outputs(), head_state(checkpoint)["executor_states"], checkpoint.status]


@every_kind
def test_r35_every_call_in_a_process_of_its_own(tmp_path: Path, kind: str) -> None:
    rid = in_new_process(start_here, str(tmp_path), kind)
    outputs, status, found = in_new_process(answer_here, str(tmp_path), kind, rid)
    assert outputs == ["src saw x", ["x>src>ask=yes", "x>src>b>b2"]]
    assert status == "idle"
    step = "superstep_completed"
    assert found == ["input_accepted", step, step, "paused", "responses_accepted", step, "completed"]
    outputs, states, status = in_new_process(next_turn_here, str(tmp_path), kind)
    assert (outputs, states, status) == (["src saw y"], {"src": {"n": 2}}, "idle_with_pending_requests")
    assert Ticks(tmp_path / "ticks").all() == {
        "src": 2,
        "ask": 2,
        "ask.answer": 1,
        "b": 2,
        "b2": 2,
        "j": 1,
    }


@every_file
async def test_r35_what_another_process_made_is_read_without_a_workflow(place: Place, tmp_path: Path) -> None:
    rid = in_new_process(start_here, str(tmp_path), place.kind)
    checkpoint = await place.reload()
    (request,) = checkpoint.pending_requests
    assert (request.request_id, request.data, request.source_executor_id) == (rid, "ask?x>src", "ask")
    assert (request.input_id, request.response_type) == ("in-1", "str")
    assert checkpoint.status == "idle_with_pending_requests"
    assert [one.value for one in checkpoint.outputs()] == ["src saw x"]


@every_file
async def test_r36_the_signature_is_checked_before_anything_is_restored(place: Place, tmp_path: Path) -> None:
    """A graph that differs is refused even where its state could not be read at all."""
    in_new_process(start_here, str(tmp_path), place.kind)
    checkpoint = await place.reload()
    before = bytes_of(checkpoint), file_bytes(tmp_path)
    touched = Ticks()

    class Restores(Step):
        def on_snapshot_save(self) -> dict[str, Any]:
            return {}

        def on_snapshot_restore(self, saved: dict[str, Any]) -> None:
            touched("restored")

    other = chain(Restores("src", touched), Step("b", touched), name="reviewing")
    for call in ({}, {"message": "y"}, {"responses": {only_request(checkpoint): "yes"}}):
        with pytest.raises(GraphMismatchError) as refused:
            await other.run(checkpoint=checkpoint, **call)
        for word in ("'run-1'", "'ask'", "'b2'", "'j'", "left as it is"):
            assert word in str(refused.value)
    assert touched.all() == {}
    assert (bytes_of(checkpoint), file_bytes(tmp_path)) == before
    assert in_new_process(answer_here, str(tmp_path), place.kind, only_request(checkpoint))[1] == "idle"


# R60: at least once, under a key that stays.


class Keys(Outside):
    """What an outside service saw: who called it, and under what key."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self.memory: list[list[str]] = []

    def call(self, who: str, key: str) -> None:
        if self.file is None:
            self.memory.append([who, key])
        else:
            with self.file.open("a", encoding="utf-8") as lines:
                lines.write(f"{who} {key}\n")
                lines.flush()
                os.fsync(lines.fileno())

    @property
    def seen(self) -> list[list[str]]:
        if self.file is None:
            return self.memory
        return [line.split(" ") for line in self.file.read_text(encoding="utf-8").splitlines()]

    def of(self, who: str) -> list[str]:
        return [key for name, key in self.seen if name == who]


class Calls(Step):
    """Calls an outside service under its key, then says so and waits to be killed, or raises."""

    def __init__(self, id: str, ticks: Ticks, keys: Keys, how: str = "") -> None:
        super().__init__(id, ticks)
        self.keys = keys
        self.how = how

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        assert ctx.idempotency_key == ctx.idempotency_key
        self.keys.call(self.id, ctx.idempotency_key)
        if self.how and self.ticks(f"{self.id}.entered") == 1:
            if self.how == "killed":
                say(self.id)
                listen()
            raise Boom(self.id)
        await self.done(f"{text}>{self.id}", ctx)


class CallsInAThread(Calls):
    """The same from a sync handler."""

    @handler
    def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:  # type: ignore[override]
        self.keys.call(self.id, ctx.idempotency_key)
        ctx.send_message(f"{text}>{self.id}")  # type: ignore[unused-coroutine]


class CallsWhenAnswered(Ask):
    """The same for an answer."""

    def __init__(self, id: str, ticks: Ticks, keys: Keys) -> None:
        super().__init__(id, ticks)
        self.keys = keys

    @response_handler
    async def on_answer(self, question: str, answer: str, ctx: WorkflowContext[str, str]) -> None:
        self.keys.call(self.id, ctx.idempotency_key)
        if self.ticks(f"{self.id}.entered") == 1:
            raise Boom(self.id)
        await ctx.send_message(answer)


def calling(ticks: Ticks, keys: Keys, how: str) -> Workflow:
    return fan(
        Calls("src", ticks, keys),
        [Calls("b", ticks, keys, how), CallsInAThread("c", ticks, keys), Calls("d", ticks, keys)],
        Join("j", ticks),
        name="calling",
    )


async def call_outside(folder: str, kind: str) -> Any:
    place, ticks = place_of(kind, Path(folder)), Ticks(Path(folder) / "ticks")
    workflow = calling(ticks, Keys(Path(folder) / "keys"), "killed")
    if ticks["b.entered"]:
        return (await workflow.run(checkpoint=await place.reload())).get_outputs()
    return (await workflow.run("x", checkpoint=place.create(workflow))).get_outputs()


@every_kind
def test_r60_after_a_kill_side_effects_happen_again_under_the_same_keys(tmp_path: Path, kind: str) -> None:
    keys = Keys(tmp_path / "keys")
    with Talking(call_outside, str(tmp_path), kind) as process:
        assert process.hear() == "b"
        process.kill()
    first = keys.seen
    assert ["src", first[0][1]] == first[0]
    assert {who for who, _ in first[1:]} >= {"b"}
    assert in_new_process(call_outside, str(tmp_path), kind) == [["x>src>b", "x>src>c", "x>src>d"]]
    assert len(keys.of("src")) == 1
    assert len(keys.of("b")) == 2
    for who in "bcd":
        assert len(set(keys.of(who))) == 1
    assert len({key for _, key in keys.seen}) == 4


@every_place
@pytest.mark.parametrize("how", ["raises", "cancelled"])
async def test_r60_a_retry_keeps_every_key_and_a_branch_has_others(
    place: Place, ticks: Ticks, how: str
) -> None:
    keys, gates = Keys(), Gates("d")

    class Held(Calls):
        async def done(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            await gates.wait(self.id)
            await ctx.send_message(text)

    b = Calls("b", ticks, keys, how if how == "raises" else "")
    d = (Held if how == "cancelled" else Calls)("d", ticks, keys)
    c = CallsInAThread("c", ticks, keys)
    workflow = fan(Calls("src", ticks, keys), [b, c, d], Join("j", ticks))
    checkpoint = place.create(workflow)
    run = asyncio.ensure_future(workflow.run("x", checkpoint=checkpoint))
    if how == "cancelled":
        await gates.entered["d"].wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    else:
        with pytest.raises(Boom):
            await run
    gates.open["d"].set()
    checkpoint = await place.reload()
    await workflow.run(checkpoint=checkpoint)
    for who in "bd":
        assert len(keys.of(who)) == 2
    for who in ("src", *"bcd"):
        assert len(set(keys.of(who))) == 1
    assert len({key for _, key in keys.seen}) == 4
    # On a branch every key is another one, also for what came before the fork the first time.
    before = {key for _, key in keys.seen}
    checkpoint.restart_from(checkpoint.snapshots[1].snapshot_id)
    count = len(keys.seen)
    await workflow.run(checkpoint=checkpoint)
    branch = keys.seen[count:]
    assert sorted(who for who, _ in branch) == ["b", "c", "d"]
    assert not before & {key for _, key in branch}
    assert len({key for _, key in branch}) == 3


@every_place
async def test_r60_every_delivery_has_a_key_of_its_own(place: Place, ticks: Ticks) -> None:
    keys = Keys()

    class Twice(Step):
        async def done(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            await ctx.send_message(text)
            await ctx.send_message(text)

    workflow = chain(Twice("a", ticks), Calls("b", ticks, keys), Calls("c", ticks, keys))
    checkpoints = [place.create(workflow, f"run-{n}") for n in range(2)]
    for checkpoint in checkpoints:
        await workflow.run("x", checkpoint=checkpoint)
        await workflow.run("x", checkpoint=checkpoint)
    for _ in range(2):
        await workflow.run("x")
    found = [key for _, key in keys.seen]
    assert len(found) == len(set(found)) == 6 * 4


@every_place
async def test_r60_an_answer_has_a_key_and_questions_and_outputs_keep_their_ids(
    place: Place, ticks: Ticks
) -> None:
    keys = Keys()

    class AsksAndBooms(CallsWhenAnswered):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            made = [await ctx.request_info(f"{self.id}?{n}", str) for n in range(2)]
            await ctx.yield_output("asked")
            self.keys.call("request", ",".join(made))
            if self.ticks("asked") == 1:
                raise Boom("asked")

    ask = AsksAndBooms("ask", ticks, keys)
    workflow = chain(ask, Step("z", ticks, final=True))
    checkpoint = place.create(workflow)
    with pytest.raises(Boom):
        await workflow.run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    result = await workflow.run(checkpoint=checkpoint)
    assert keys.of("request")[0] == keys.of("request")[1]
    asked = [request.request_id for request in checkpoint.pending_requests]
    assert ",".join(asked) == keys.of("request")[0]
    assert len(set(asked)) == 2
    (output,) = [event for event in result if event.type == "output"]
    assert output.output_id == checkpoint.outputs()[0].output_id
    with pytest.raises(Boom):
        await workflow.run(responses=dict.fromkeys(asked, "y"), checkpoint=checkpoint)
    await workflow.run(checkpoint=checkpoint)
    first, *again = keys.of("ask")
    assert again[0] == first
    assert len(set(again)) == 2


def test_r60_it_is_documented_where_it_is_needed() -> None:
    assert "at least once" in (Workflow.run.__doc__ or "")
    assert "at least once" in (WorkflowContext.idempotency_key.__doc__ or "")
    pages = Path(__file__).resolve().parents[2] / "docs"
    assert "idempotency_key" in (pages / "explanation" / "at-least-once.md").read_text(encoding="utf-8")
    assert "idempotency_key" in (pages / "how-to" / "idempotent-side-effects.md").read_text(encoding="utf-8")


# Determinism: timing shows nowhere.


class Busy(Executor):
    """Does everything a handler can do, in small steps that others come between."""

    tags: set[str] = state(factory=set)
    counts: dict[str, int] = state(factory=dict)

    def __init__(self, id: str, shuffle: Shuffle) -> None:
        super().__init__(id=id)
        self.shuffle = shuffle

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        for word in ("one", "two", "three"):
            await self.shuffle.turn()
            self.tags.add(f"{self.id}-{word}-{text[-8:]}")
            self.counts[word] = self.counts.get(word, 0) + 1
            ctx.set_state("log", [f"{self.id} {word}"])
            ctx.set_state("seen", {self.id: text})
            ctx.set_state(f"own {self.id}", {word, self.id})
            await self.shuffle.turn()
            await ctx.send_message(f"{text}>{self.id}.{word}")
            await ctx.yield_output(f"{self.id}.{word}")
        await ctx.request_info(f"{self.id}?{text}", str)

    @response_handler
    async def on_answer(self, question: str, answer: str, ctx: WorkflowContext[str, str]) -> None:
        await self.shuffle.turn()
        await ctx.send_message(f"{self.id}:{answer}")


class InAThread(Executor):
    """A sync handler, whose thread takes as long as it takes."""

    n: int = state(0)

    @handler
    def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.n += 1
        ctx.set_state("log", ["thread"])  # type: ignore[unused-coroutine, unused-ignore]
        ctx.send_message(f"{text}>thread")  # type: ignore[unused-coroutine]


class Sums(Executor):
    """Joins and yields."""

    @handler
    async def on_texts(self, texts: list[str], ctx: WorkflowContext[Never, list[str]]) -> None:
        await ctx.yield_output(texts)


def shuffled(seed: int) -> Workflow:
    shuffle = Shuffle(seed)
    src, others = Step("src"), [*(Busy(f"w{n}", shuffle) for n in range(5)), InAThread(id="thread")]
    builder = WorkflowBuilder(name="shuffled", start_executor=src).add_fan_out_edges(src, others)
    builder.add_fan_in_edges(others, Sums(id="sums"), keep=True)
    builder.add_state("log", list[str], factory=list, reducer=operator.add)
    return builder.add_state("seen", reducer=merge).build()


async def run_shuffled(place: Place, seed: int) -> list[str]:
    """Run two turns with answers in between, and return every snapshot as bytes."""
    with ids.injected(SequentialIds()), clock.injected(SteppingClock()):
        workflow = shuffled(seed)
        checkpoint = place.create(workflow, f"run-{place.kind}")
        for text in ("x", "y"):
            await workflow.run(text, checkpoint=checkpoint)
            asked = [request.request_id for request in checkpoint.pending_requests]
            await workflow.run(responses={asked[1]: "first"}, checkpoint=checkpoint)
            await workflow.run(
                responses={key: "then" for key in asked if key != asked[1]}, checkpoint=checkpoint
            )
        checkpoint.restart_from(checkpoint.snapshots[1].snapshot_id)
        await workflow.run(checkpoint=checkpoint, max_supersteps=1)
    loaded = await place.reload(f"run-{place.kind}")
    assert bytes_of(loaded) == bytes_of(checkpoint)
    return [one.to_bytes().hex() for one in loaded.snapshots]


@every_place
async def test_r15_two_runs_make_the_same_snapshots_byte_for_byte_whatever_the_timing(
    place: Place, tmp_path: Path
) -> None:
    first = await run_shuffled(place, 0)
    assert len(first) > 12
    for seed in range(1, 8):
        folder = tmp_path / str(seed)
        folder.mkdir()
        assert await run_shuffled(place_of(place.kind, folder), seed) == first


async def run_shuffled_there(folder: str, kind: str, seed: int) -> list[str]:
    return await run_shuffled(place_of(kind, Path(folder)), seed)


@every_kind
async def test_r15_and_so_does_another_process_with_another_hash_seed(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("a", "b", "c")]
    for folder in folders:
        folder.mkdir()
    here = await run_shuffled(place_of(kind, folders[0]), 3)
    for hash_seed, folder in zip(("1", "2"), folders[1:], strict=True):
        monkeypatch.setenv("PYTHONHASHSEED", hash_seed)
        assert in_new_process(run_shuffled_there, str(folder), kind, int(hash_seed)) == here


async def test_r15_the_same_calls_in_pieces_make_the_same_states(tmp_path: Path) -> None:
    """Where a run stops and goes on shows in no state: only ids and times tell."""
    roots = []
    for bound in (None, 1, 2):
        workflow = shuffled(5)
        checkpoint = workflow.create_checkpoint("run-1", MemoryCheckpointStorage())
        with ids.injected(SequentialIds()), clock.injected(SteppingClock()):
            await workflow.run("x", checkpoint=checkpoint, input_id="in-1", max_supersteps=bound)
            while checkpoint.status == "in_progress":
                await workflow.run(checkpoint=checkpoint, max_supersteps=bound)
        roots.append([(one.snapshot_id, one.root) for one in checkpoint.snapshots])
    assert roots[0] == roots[1] == roots[2]


async def test_r33_what_was_never_committed_is_not_found(tmp_path: Path, ticks: Ticks) -> None:
    """A run that is refused leaves nothing, not even a file."""
    workflow = chain(Step("a", ticks))
    storage = FileCheckpointStorage(tmp_path / "runs")
    checkpoint = workflow.create_checkpoint("run-1", storage)
    for call in ({"message": 7}, {}, {"responses": {"r": 1}}):
        with pytest.raises(Exception, match=r"."):
            await workflow.run(checkpoint=checkpoint, **call)
    with pytest.raises(CheckpointNotFoundError):
        await storage.load("run-1")
    assert file_bytes(tmp_path) == {}
