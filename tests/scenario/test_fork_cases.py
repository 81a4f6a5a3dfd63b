"""Cases of users who went back to an earlier point: C07 to C13."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from branchpoint import (
    Checkpoint,
    CheckpointConflictError,
    CheckpointInUseError,
    Executor,
    InvalidCallError,
    SnapshotNotFoundError,
    UnknownRequestError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    executor,
    handler,
    response_handler,
)
from tests.scenario.kit import (
    Ask,
    Boom,
    BoomOnce,
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
    pending,
    place_of,
    reached,
    shared,
)


def ids(checkpoint: Checkpoint) -> list[str]:
    return [one.snapshot_id for one in checkpoint.snapshots]


def outputs(checkpoint: Checkpoint) -> list[Any]:
    return [record.value for record in checkpoint.outputs()]


# C07: the head that stops moving after a rewind.


@every_place
@pytest.mark.parametrize("reload", [False, True])
async def test_c07_after_a_rewind_every_commit_moves_the_head(
    place: Place, ticks: Ticks, reload: bool
) -> None:
    workflow = chain(Step("a", ticks), Step("b", ticks), Step("c", ticks, final=True))
    cp = place.create(workflow)
    await workflow.run("t", checkpoint=cp)
    s0, s1, s2, s3 = old = ids(cp)
    before = bytes_of(cp)
    if reload:
        cp = await place.reload()
    cp.restart_from(s1)
    assert cp.head_snapshot_id == s1
    result = await workflow.run(checkpoint=cp)
    assert result.get_outputs() == ["t>a>b>c"]
    assert ticks.all() == {"a": 1, "b": 2, "c": 2}
    assert ids(cp)[:4] == old
    restarted, r2, r3 = ids(cp)[4:]
    assert lineage(cp) == [
        (s0, None),
        (s1, s0),
        (s2, s1),
        (s3, s2),
        (restarted, s1),
        (r2, restarted),
        (r3, r2),
    ]
    assert boundaries(cp)[4:] == ["restarted", "superstep_completed", "completed"]
    assert cp.head_snapshot_id == cp.stored_head_snapshot_id == r3
    if reload:
        cp = await place.reload()
        assert cp.head_snapshot_id == r3
    result = await workflow.run("again", checkpoint=cp)
    assert result.get_outputs() == ["again>a>b>c"]
    entered = cp.snapshots[7]
    assert (entered.boundary, entered.parent_snapshot_id) == ("input_accepted", r3)
    assert [parent for _, parent in lineage(cp)[8:]] == ids(cp)[7:-1]
    assert cp.head_snapshot_id == ids(cp)[-1]
    assert len(set(ids(cp))) == len(ids(cp)) == 11
    assert {key: data for key, data in bytes_of(cp).items() if key in before} == before
    assert bytes_of(await place.reload()) == bytes_of(cp)


@every_place
async def test_c07_the_head_moves_while_the_run_goes_on(place: Place) -> None:
    workflow = chain(Step("a"), Step("b"), Step("c", final=True))
    cp = place.create(workflow)
    await workflow.run("t", checkpoint=cp)
    heads = []
    for point in (1, 0, 2):
        cp.restart_from(ids(cp)[point])
        async for event in workflow.run(checkpoint=cp, stream=True):
            if event.durable:
                heads.append(event.snapshot_id)
                assert event.snapshot_id in ids(await place.reload())
        assert cp.head_snapshot_id == ids(cp)[-1] == heads[-1]
    assert heads == sorted(heads)
    roots = {one.root for one in cp.snapshots if one.status == "idle"}
    assert len([one for one in cp.snapshots if one.status == "idle"]) == 4
    assert len(roots) > 1, "outputs of different branches have ids of their own"


@every_place
async def test_c07_a_rewind_that_runs_nothing_stores_nothing(place: Place, tmp_path: Path) -> None:
    workflow = chain(Step("a"), Ask("ask", final=True))
    cp = place.create(workflow)
    await workflow.run("t", checkpoint=cp)
    await workflow.run(responses={only_request(cp): "y"}, checkpoint=cp)
    paused, done = cp.snapshots[2], cp.snapshots[-1]
    assert (paused.boundary, done.boundary) == ("paused", "completed")
    before, kept = bytes_of(cp), file_bytes(tmp_path)
    for found in (paused, done):
        cp.restart_from(found.snapshot_id)
        result = await workflow.run(checkpoint=cp)
        assert result.get_final_state() == found.status
        assert cp.head_snapshot_id == found.snapshot_id
    cp.restart_from(cp.snapshots[1].snapshot_id)
    result = await workflow.run(checkpoint=cp, max_supersteps=0)
    assert result.get_final_state() is WorkflowRunState.IN_PROGRESS
    assert (bytes_of(cp), file_bytes(tmp_path)) == (before, kept)
    if place.is_stored:
        assert (await place.reload()).head_snapshot_id == done.snapshot_id
    # Asked for, the move alone is stored.
    cp.restart_from(paused.snapshot_id)
    moved = await cp.commit_snapshot(metadata={"why": "second thoughts"})
    assert (moved.boundary, moved.parent_snapshot_id, moved.root) == (
        "restarted",
        paused.snapshot_id,
        paused.root,
    )
    loaded = await place.reload()
    assert loaded.head_snapshot_id == moved.snapshot_id
    assert loaded.status == "idle_with_pending_requests"
    result = await workflow.run(responses={only_request(loaded): "z"}, checkpoint=loaded)
    assert result.get_outputs() == ["t>a>ask=z"]


@every_place
async def test_c07_the_empty_start_can_be_selected_and_becomes_a_second_root(
    place: Place, ticks: Ticks
) -> None:
    @executor
    async def count(text: str, ctx: WorkflowContext[str, int]) -> None:
        ticks("count")
        ctx.set_state("n", ctx.get_state("n", 0) + 1)
        await ctx.yield_output(ctx.get_state("n"))

    workflow = chain(count)
    cp = place.create(workflow)
    for expected in (1, 2):
        assert (await workflow.run("t", checkpoint=cp)).get_outputs() == [expected]
    first = cp.head_snapshot_id
    cp.restart_from(None)
    assert (cp.head_snapshot_id, cp.status, cp.pending_requests, cp.outputs()) == (None, None, [], [])
    with pytest.raises(InvalidCallError):
        await workflow.run(checkpoint=cp)
    assert (await workflow.run("t", checkpoint=cp)).get_outputs() == [1]
    assert [parent is None for _, parent in lineage(cp)] == [True, False, False, False, True, False]
    cp = await place.reload()
    assert shared(cp.head_snapshot) == {"n": 1}
    cp.restart_from(first)
    assert (await workflow.run("t", checkpoint=cp)).get_outputs() == [3]


class Keys(Executor):
    """Records its idempotency key and the id of the request it makes, outside of the workflow."""

    def __init__(self, id: str, seen: Any) -> None:
        super().__init__(id=id)
        self.seen = seen

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        request_id = await ctx.request_info(text, str)
        self.seen.keys.append((ctx.idempotency_key, request_id))
        await ctx.yield_output(text)
        await ctx.send_message(text)

    @response_handler
    async def on_answer(self, request: str, answer: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(answer)


class Seen:
    def __init__(self) -> None:
        self.keys: list[tuple[str, str]] = []


@every_place
async def test_c07_keys_and_ids_are_kept_by_a_retry_and_differ_on_a_branch(
    place: Place, ticks: Ticks
) -> None:
    seen = Seen()
    keys = Keys("keys", seen)
    boom = BoomOnce("boom", ticks)
    builder = WorkflowBuilder(name="w", start_executor=Step("a"))
    workflow = builder.add_fan_out_edges("a", [keys, boom]).add_edge(keys, Step("z", final=True)).build()
    cp = place.create(workflow)
    with pytest.raises(Boom, match="boom got t>a"):
        await workflow.run("t", checkpoint=cp)
    boundary = cp.head_snapshot_id
    cp = await place.reload()
    await workflow.run(checkpoint=cp)
    first, retry = seen.keys
    assert first == retry
    output_ids = {record.output_id for record in cp.outputs()}
    for _ in range(2):
        cp.restart_from(boundary)
        await workflow.run(checkpoint=cp)
        assert not output_ids & {record.output_id for record in cp.outputs()}
        output_ids |= {record.output_id for record in cp.outputs()}
    # A retry on the branch, after a failure right behind the move, keeps the keys of that branch.
    ticks.clear("boom")
    cp.restart_from(boundary)
    with pytest.raises(Boom):
        await workflow.run(checkpoint=cp)
    cp = await place.reload()
    await workflow.run(checkpoint=cp)
    assert seen.keys[-1] == seen.keys[-2] != seen.keys[-3]
    # So does one that selects the stored head, which is no move at all.
    cp = place.create(workflow, "other")
    ticks.clear("boom")
    with pytest.raises(Boom):
        await workflow.run("t", checkpoint=cp)
    cp.restart_from(cp.head_snapshot_id)
    await workflow.run(checkpoint=cp)
    assert "restarted" not in boundaries(cp)
    assert seen.keys[-1] == seen.keys[-2]
    assert len({key for key, _ in seen.keys}) == len({request_id for _, request_id in seen.keys}) == 5


# C09: an answer that is reused.


class AskBool(Step):
    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.ticks(self.id)
        await ctx.request_info(text, bool)

    @response_handler
    async def on_answer(self, question: str, answer: bool, ctx: WorkflowContext[str, str]) -> None:
        self.ticks(f"{self.id}.answer")
        await ctx.send_message(f"{question}={answer}")


@every_place
@pytest.mark.parametrize("reload", [False, True])
async def test_c09_a_question_that_is_gone_back_to_is_open_again(
    place: Place, ticks: Ticks, reload: bool
) -> None:
    workflow = chain(AskBool("ask", ticks), Step("fin", ticks, final=True))
    cp = place.create(workflow)
    await workflow.run("q", checkpoint=cp)
    paused = cp.head_snapshot_id
    request_id = only_request(cp)
    first = await workflow.run(responses={request_id: True}, checkpoint=cp)
    assert first.get_outputs() == ["q=True>fin"]
    done = cp.head_snapshot_id
    before = bytes_of(cp)
    if reload:
        cp = await place.reload()
    cp.restart_from(paused)
    for _ in range(2):
        result = await workflow.run(checkpoint=cp)
        assert result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
        assert [event.request_id for event in result.get_request_info_events()] == [request_id]
        assert result.get_outputs() == []
    assert ticks.all() == {"ask": 1, "ask.answer": 1, "fin": 1}
    assert bytes_of(cp) == before
    result = await workflow.run(responses={request_id: False}, checkpoint=cp)
    assert result.get_outputs() == ["q=False>fin"]
    assert ticks.all() == {"ask": 1, "ask.answer": 2, "fin": 2}
    assert outputs(cp) == ["q=False>fin"]
    assert {key: data for key, data in bytes_of(cp).items() if key in before} == before
    cp = await place.reload()
    assert outputs(cp) == ["q=False>fin"]
    cp.restart_from(done)
    assert outputs(cp) == ["q=True>fin"]
    assert (await workflow.run(checkpoint=cp)).get_outputs() == ["q=True>fin"]


@every_place
@pytest.mark.parametrize("reload", [False, True])
async def test_c09_from_before_the_question_it_is_asked_anew_and_the_old_answer_fits_nothing(
    place: Place, ticks: Ticks, reload: bool
) -> None:
    workflow = chain(Step("a", ticks), AskBool("ask", ticks), Step("fin", ticks, final=True))
    cp = place.create(workflow)
    await workflow.run("q", checkpoint=cp)
    old = only_request(cp)
    await workflow.run(responses={old: True}, checkpoint=cp)
    done = cp.head_snapshot_id
    for n, point in enumerate((1, 0), start=2):
        if reload:
            cp = await place.reload()
        cp.restart_from(cp.snapshots[point].snapshot_id)
        result = await workflow.run(checkpoint=cp)
        assert result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
        assert (ticks["ask"], ticks["fin"]) == (n, n - 1)
        new = only_request(cp)
        assert new != old
        with pytest.raises(UnknownRequestError, match=old):
            await workflow.run(responses={old: True}, checkpoint=cp)
        assert only_request(cp) == new
        result = await workflow.run(responses={new: False}, checkpoint=cp)
        assert result.get_outputs() == ["q>a=False>fin"]
    cp.restart_from(done)
    assert outputs(cp) == ["q>a=True>fin"]


# C10: the stored head after a rewind that paused.


def asking(ticks: Ticks | None = None) -> Workflow:
    return chain(Step("a", ticks), Ask("ask", ticks), Step("fin", ticks, final=True))


async def answer_where_it_paused(kind: str, folder: str, counted: str) -> dict[str, Any]:
    """In another process: look at the loaded head, then answer."""
    place = place_of(kind, Path(folder))
    workflow = asking(Ticks(counted))
    cp = await place.reload()
    told = {
        "head": cp.head_snapshot_id,
        "status": cp.status,
        "ancestors": [one.snapshot_id for one in cp.ancestors()],
        "requests": [request.request_id for request in cp.pending_requests],
    }
    result = await workflow.run(responses={only_request(cp): "no"}, checkpoint=cp)
    return {
        **told,
        "outputs": result.get_outputs(),
        "new head": cp.head_snapshot_id,
        "parents": [one.snapshot_id for one in cp.ancestors()],
    }


@every_storage
async def test_c10_the_next_process_finds_the_fork_that_paused_and_answers_it(
    place: Place, tmp_path: Path
) -> None:
    counted = tmp_path / "ticks"
    workflow = asking(Ticks(counted))
    cp = place.create(workflow)
    await workflow.run("t", checkpoint=cp)
    old_request = only_request(cp)
    await workflow.run(responses={old_request: "yes"}, checkpoint=cp)
    old = ids(cp)
    cp.restart_from(old[1])
    result = await workflow.run(checkpoint=cp)
    assert result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    forked = cp.head_snapshot_id
    assert forked not in old
    told = (
        await answer_here(place, str(counted))
        if place.kind == "memory"
        else in_new_process(answer_where_it_paused, place.kind, str(tmp_path), str(counted))
    )
    assert told["head"] == forked
    assert told["status"] == "idle_with_pending_requests"
    assert old[1] in told["ancestors"]
    assert not set(told["ancestors"]) & set(old[2:])
    assert told["requests"] == [only_request(cp)] != [old_request]
    assert told["outputs"] == ["t>a>ask=no>fin"]
    assert forked in told["parents"]
    assert Ticks(counted).all() == {"a": 1, "ask": 2, "ask.answer": 2, "fin": 2}
    loaded = await place.reload()
    assert loaded.head_snapshot_id == told["new head"]
    assert ids(loaded)[: len(old)] == old
    loaded.restart_from(old[-1])
    assert outputs(loaded) == ["t>a>ask=yes>fin"]


async def answer_here(place: Place, counted: str) -> dict[str, Any]:
    """What the other process does, for a storage that no other process can open."""
    cp = await place.reload()
    head, ancestors = cp.head_snapshot_id, [one.snapshot_id for one in cp.ancestors()]
    status, requests = cp.status, [request.request_id for request in cp.pending_requests]
    result = await asking(Ticks(counted)).run(responses={only_request(cp): "no"}, checkpoint=cp)
    parents = [one.snapshot_id for one in cp.ancestors()]
    told = {"head": head, "status": status, "ancestors": ancestors, "requests": requests}
    return {**told, "outputs": result.get_outputs(), "new head": cp.head_snapshot_id, "parents": parents}


@every_storage
async def test_c10_the_holder_that_is_left_behind_conflicts_before_it_acts(
    place: Place, ticks: Ticks
) -> None:
    workflow = asking(ticks)
    cp = place.create(workflow)
    await workflow.run("t", checkpoint=cp)
    await workflow.run(responses={only_request(cp): "yes"}, checkpoint=cp)
    cp.restart_from(ids(cp)[1])
    await workflow.run(checkpoint=cp)
    request_id = only_request(cp)
    other = await place.reload()
    await workflow.run(responses={request_id: "no"}, checkpoint=other)
    before, counted = bytes_of(other), ticks.all()
    with pytest.raises(CheckpointConflictError):
        await workflow.run(responses={request_id: "maybe"}, checkpoint=cp)
    assert ticks.all() == counted
    assert only_request(cp) == request_id
    assert bytes_of(await place.reload()) == before


# C11: one's own earlier write is not a second writer.


def five(ticks: Ticks | None = None) -> Workflow:
    return chain(*(Step(f"s{n}", ticks, final=n == 5) for n in range(1, 6)))


async def advance(kind: str, folder: str) -> str:
    """In another process: move the stored head on by one accepted input."""
    cp = await place_of(kind, Path(folder)).reload()
    await five().run("other", checkpoint=cp, max_supersteps=0)
    assert cp.head_snapshot_id is not None
    return cp.head_snapshot_id


async def advanced_by_another(place: Place, folder: Path) -> str:
    if place.kind == "memory":
        cp = await place.reload()
        await five().run("other", checkpoint=cp, max_supersteps=0)
        assert cp.head_snapshot_id is not None
        return cp.head_snapshot_id
    head: str = in_new_process(advance, place.kind, str(folder))
    return head


@every_storage
@pytest.mark.parametrize("loaded", [True, False], ids=["loaded", "the object that wrote it"])
async def test_c11_a_rewind_compares_the_head_last_seen_and_not_the_parent_chosen(
    place: Place, ticks: Ticks, loaded: bool
) -> None:
    workflow = five(ticks)
    cp = place.create(workflow)
    await workflow.run("t", checkpoint=cp)
    s = ids(cp)
    assert len(s) == 6
    if loaded:
        cp = await place.reload()
    assert cp.stored_head_snapshot_id == s[5]
    for point in (2, 4, 2, 0):  # each time the stored head is the tip of the branch before
        tip = cp.stored_head_snapshot_id
        cp.restart_from(s[point])
        assert (cp.head_snapshot_id, cp.stored_head_snapshot_id) == (s[point], tip)
        known = len(cp.snapshots)
        result = await workflow.run(checkpoint=cp)
        assert result.get_outputs() == ["t>s1>s2>s3>s4>s5"]
        assert cp.snapshots[known].parent_snapshot_id == s[point]
        stored = await place.reload()
        assert stored.head_snapshot_id == cp.head_snapshot_id == cp.stored_head_snapshot_id != tip
        assert bytes_of(stored) == bytes_of(cp)


@every_storage
@pytest.mark.parametrize("how", ["run()", "run() streamed", "commit_snapshot()", "run(message)"])
async def test_c11_a_real_second_writer_conflicts_at_the_first_commit(
    place: Place, ticks: Ticks, tmp_path: Path, how: str
) -> None:
    workflow = five(ticks)
    await workflow.run("t", checkpoint=place.create(workflow))
    cp = await place.reload()
    s = ids(cp)
    cp.restart_from(s[5] if how == "run(message)" else s[2])
    s6 = await advanced_by_another(place, tmp_path)
    stored, counted, files = bytes_of(await place.reload()), ticks.all(), file_bytes(tmp_path)
    with pytest.raises(CheckpointConflictError):
        if how == "commit_snapshot()":
            await cp.commit_snapshot()
        elif how == "run() streamed":
            async for event in workflow.run(checkpoint=cp, stream=True):
                assert not event.durable
        elif how == "run(message)":
            await workflow.run("mine", checkpoint=cp)
        else:
            await workflow.run(checkpoint=cp)
    assert ticks.all() == counted
    assert file_bytes(tmp_path) == files
    assert ids(cp) == s
    assert cp.head_snapshot_id == (s[5] if how == "run(message)" else s[2])
    assert cp.stored_head_snapshot_id == s[5]
    again = await place.reload()
    assert bytes_of(again) == stored
    assert again.head_snapshot_id == s6
    await cp.refresh()
    assert cp.head_snapshot_id == cp.stored_head_snapshot_id == s6
    cp.restart_from(s[2])
    assert (await workflow.run(checkpoint=cp)).get_outputs() == ["t>s1>s2>s3>s4>s5"]
    assert (await place.reload()).head_snapshot_id == cp.head_snapshot_id


@every_storage
async def test_c11_a_second_writer_is_also_noticed_where_nothing_would_be_committed_first(
    place: Place, ticks: Ticks
) -> None:
    workflow = five(ticks)
    cp = place.create(workflow)
    await workflow.run("t", checkpoint=cp, max_supersteps=2)
    other = await place.reload()
    await workflow.run(checkpoint=other, max_supersteps=1)
    counted = ticks.all()
    with pytest.raises(CheckpointConflictError):
        await workflow.run(checkpoint=cp)
    assert ticks.all() == counted
    assert (await workflow.run(checkpoint=other)).get_outputs() == ["t>s1>s2>s3>s4>s5"]


# C13: a fork at a step that does not exist.


class Gated(Step):
    """Tells that it was entered and waits to be let on."""

    def __init__(self, id: str, ticks: Ticks, entered: asyncio.Event, let: asyncio.Event) -> None:
        super().__init__(id, ticks, final=True)
        self.entered = entered
        self.let = let

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.ticks(self.id)
        self.entered.set()
        await self.let.wait()
        await self.done(f"{text}>{self.id}", ctx)


@every_place
async def test_c13_a_fork_at_what_is_not_there_changes_nothing(place: Place, tmp_path: Path) -> None:
    workflow = five()
    cp1, cp2 = place.create(workflow, "one"), place.create(workflow, "two")
    with pytest.raises(SnapshotNotFoundError, match=r"one.*nope"):
        cp1.restart_from("nope")
    assert (cp1.head_snapshot_id, cp1.snapshots) == (None, [])
    await workflow.run("t", checkpoint=cp1)
    await workflow.run("t", checkpoint=cp2)
    empty = place.create(workflow, "three")
    foreign: Any = cp2.head_snapshot_id
    before, files = bytes_of(cp1), file_bytes(tmp_path)
    head = cp1.head_snapshot_id
    wrong: list[Any] = ["nope", "", foreign, cp2.snapshots[0].snapshot_id, 0, -1, cp1.head_snapshot]
    for one in wrong:
        for cp in (cp1, empty):
            with pytest.raises(SnapshotNotFoundError, match=f"'{cp.checkpoint_id}'"):
                cp.restart_from(one)
    with pytest.raises(SnapshotNotFoundError):
        empty.restart_from(head)
    assert cp1.head_snapshot_id == cp1.stored_head_snapshot_id == head
    assert (bytes_of(cp1), file_bytes(tmp_path)) == (before, files)
    assert (empty.head_snapshot_id, empty.snapshots) == (None, [])
    for cp in (cp1, empty):
        assert (await workflow.run("u", checkpoint=cp)).get_outputs() == ["u>s1>s2>s3>s4>s5"]


@every_place
@pytest.mark.parametrize("stream", [False, True])
async def test_c13_a_running_checkpoint_is_not_rewound_from_anywhere(
    place: Place, ticks: Ticks, stream: bool
) -> None:
    entered, let = asyncio.Event(), asyncio.Event()
    workflow = chain(Step("a", ticks), Gated("g", ticks, entered, let))
    cp = place.create(workflow)

    async def running() -> Any:
        started = workflow.run("t", checkpoint=cp, stream=stream)
        return await (started.get_final_response() if stream else started)

    task = asyncio.create_task(running())
    await reached(entered, task)
    refused: list[BaseException] = []

    def rewind() -> None:
        for target in (cp.snapshots[0].snapshot_id, None, cp.snapshots[-1].snapshot_id):
            try:
                cp.restart_from(target)
            except CheckpointInUseError as error:
                refused.append(error)

    rewind()
    thread = threading.Thread(target=rewind)
    thread.start()
    thread.join()
    assert len(refused) == 6
    assert all("'run-1'" in str(error) for error in refused)
    with pytest.raises(CheckpointInUseError):
        await cp.commit_snapshot()
    assert cp.head_snapshot_id == ids(cp)[1]
    let.set()
    assert (await task).get_outputs() == ["t>a>g"]
    assert len(cp.snapshots) == 3
    cp.restart_from(ids(cp)[1])
    assert (await workflow.run(checkpoint=cp)).get_outputs() == ["t>a>g"]
    assert ticks.all() == {"a": 1, "g": 2}


@every_place
async def test_c13_a_handler_cannot_rewind_its_own_checkpoint(place: Place) -> None:
    held: list[Checkpoint] = []

    @executor
    async def rewinds(text: str, ctx: WorkflowContext[str, str]) -> None:
        with pytest.raises(CheckpointInUseError):
            held[0].restart_from(None)
        await ctx.yield_output(text)

    workflow = chain(rewinds)
    held.append(place.create(workflow))
    assert (await workflow.run("t", checkpoint=held[0])).get_outputs() == ["t"]
    assert boundaries(held[0]) == ["input_accepted", "completed"]


# Branches side by side.


@every_place
@pytest.mark.parametrize("target", ["none", "memory", "file-json", "file-msgpack"])
async def test_c07_branches_run_side_by_side_on_forks(
    place: Place, target: str, tmp_path: Path, ticks: Ticks
) -> None:
    workflow = asking(ticks)
    cp = place.create(workflow)
    await workflow.run("t", checkpoint=cp)
    paused = cp.head_snapshot
    elsewhere = place_of(target, tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "runs").mkdir(parents=True)
    before = bytes_of(cp)
    forks = [await cp.fork(checkpoint_id=f"fork-{n}", checkpoint_storage=elsewhere.open()) for n in range(3)]
    assert bytes_of(cp) == before
    answers = ["x", "y", "z", "w"]
    results = await asyncio.gather(
        *(
            workflow.run(responses={only_request(one): answer}, checkpoint=one)
            for one, answer in zip([cp, *forks], answers, strict=True)
        )
    )
    assert [result.get_outputs() for result in results] == [[f"t>a>ask={answer}>fin"] for answer in answers]
    assert ticks.all() == {"a": 1, "ask": 1, "ask.answer": 4, "fin": 4}
    for fork in forks:
        root = fork.snapshots[0]
        assert (root.boundary, root.parent_snapshot_id) == ("forked", None)
        assert root.forked_from is not None
        assert (root.forked_from.checkpoint_id, root.forked_from.snapshot_id) == ("run-1", paused.snapshot_id)
        assert pending(root) == pending(paused)
    assert bytes_of(await place.reload()) == bytes_of(cp)


@every_file
async def test_c07_a_branch_goes_on_in_a_process_of_its_own(place: Place, tmp_path: Path) -> None:
    workflow = asking()
    cp = place.create(workflow)
    await workflow.run("t", checkpoint=cp)
    told = in_new_process(branch_out, place.kind, str(tmp_path))
    assert told == {"output": ["t>a>ask=forked>fin"], "from": ["run-1", cp.head_snapshot_id]}
    result = await workflow.run(responses={only_request(cp): "mine"}, checkpoint=cp)
    assert result.get_outputs() == ["t>a>ask=mine>fin"]
    storage = place.open()
    assert storage is not None
    assert outputs(await storage.load("branch")) == ["t>a>ask=forked>fin"]


async def branch_out(kind: str, folder: str) -> dict[str, Any]:
    cp = await place_of(kind, Path(folder)).reload()
    fork = await cp.fork(checkpoint_id="branch")
    result = await asking().run(responses={only_request(fork): "forked"}, checkpoint=fork)
    origin = fork.snapshots[0].forked_from
    assert origin is not None
    return {"output": result.get_outputs(), "from": [origin.checkpoint_id, origin.snapshot_id]}
