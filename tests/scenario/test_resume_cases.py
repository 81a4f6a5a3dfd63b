"""Cases of users whose run went on wrongly after it had stopped: C23, C25, C26, C27, C29 to C31, C33 to C35."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Never

import pytest

from branchpoint import (
    BranchpointError,
    Case,
    Checkpoint,
    ConvergenceError,
    Default,
    Executor,
    GraphMismatchError,
    HandlerError,
    InvalidCallError,
    PendingRequestsError,
    UnfinishedWorkError,
    UnknownRequestError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    handler,
    state,
)
from tests.scenario.kit import (
    Ask,
    Boom,
    BoomOnce,
    Join,
    Outside,
    Place,
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
)

every_kind = pytest.mark.parametrize("kind", ["file-json", "file-msgpack"])


def files(folder: str, kind: str) -> tuple[Place, Ticks]:
    """What a process rebuilds from nothing: the storage, and counts that outlive processes."""
    return place_of(kind, Path(folder)), Ticks(Path(folder) / "ticks")


async def unchanged(checkpoint: Checkpoint, call: Callable[[], Awaitable[Any]]) -> Any:
    """Make a call after which the checkpoint is what it was, and so is what is stored."""
    storage = checkpoint.checkpoint_storage
    before = bytes_of(checkpoint), checkpoint.head_snapshot_id, checkpoint.status
    try:
        return await call()
    finally:
        assert (bytes_of(checkpoint), checkpoint.head_snapshot_id, checkpoint.status) == before
        if storage is not None and checkpoint.snapshots:
            assert bytes_of(await storage.load(checkpoint.checkpoint_id)) == before[0]


async def refused(checkpoint: Checkpoint, error: type[Exception], call: Callable[[], Awaitable[Any]]) -> str:
    """Make a call that is refused and changes nothing; return what the error says."""
    with pytest.raises(error) as caught:
        await unchanged(checkpoint, call)
    assert isinstance(caught.value, BranchpointError)
    return str(caught.value)


# C23: messages that wait at a join.


class Stops(Step):
    """A step that on its first entry says so and waits to be killed, or raises."""

    def __init__(self, id: str, ticks: Ticks, how: str) -> None:
        super().__init__(id, ticks)
        self.how = how

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        if self.ticks(self.id) == 1:
            if self.how == "killed":
                say(self.id)
                listen()
            if self.how == "raises":
                raise Boom(text)
        await self.done(f"{text}>{self.id}", ctx)


def uneven(ticks: Ticks, how: str = "", *, keep: bool = False) -> Workflow:
    """`src -> b -> j` and `src -> c -> c2 -> j`, where `j` joins b and c2."""
    src, b, c, c2, j = (
        Step("src", ticks),
        Step("b", ticks),
        Step("c", ticks),
        Stops("c2", ticks, how),
        Join("j", ticks),
    )
    builder = WorkflowBuilder(name="uneven", start_executor=src).add_fan_out_edges(src, [b, c])
    return builder.add_edge(c, c2).add_fan_in_edges([b, c2], j, keep=keep).build()


JOINED = ["x>src>b", "x>src>c>c2"]
BUFFERED = {"fan_in:b,c2->j": {"received": {"b": ["x>src>b"]}}}


async def run_uneven(folder: str, kind: str, how: str) -> Any:
    place, ticks = files(folder, kind)
    workflow = uneven(ticks, how)
    checkpoint = place.create(workflow)
    bound = 2 if how == "stops" else None
    try:
        await workflow.run("x", checkpoint=checkpoint, max_supersteps=bound)
    except Boom:
        pass
    return checkpoint.status


async def go_on_uneven(folder: str, kind: str) -> Any:
    place, ticks = files(folder, kind)
    checkpoint = await place.reload()
    before = checkpoint.head_snapshot
    assert before is not None
    result = await uneven(ticks).run(checkpoint=checkpoint)
    return [before.state["edge_states"], result.get_outputs(), checkpoint.status]


@every_kind
@pytest.mark.parametrize("how", ["stops", "raises", "killed"])
def test_c23_what_waits_at_a_join_is_in_the_snapshot_and_the_join_fires_in_a_new_process(
    tmp_path: Path, kind: str, how: str
) -> None:
    if how == "killed":
        with Talking(run_uneven, str(tmp_path), kind, how) as process:
            assert process.hear() == "c2"
            process.kill()
    else:
        assert in_new_process(run_uneven, str(tmp_path), kind, how) == "in_progress"
    edge_states, outputs, status = in_new_process(go_on_uneven, str(tmp_path), kind)
    assert edge_states == BUFFERED
    assert outputs == [JOINED]
    assert status == "idle"
    again = 1 if how == "stops" else 2
    assert Ticks(tmp_path / "ticks").all() == {"src": 1, "b": 1, "c": 1, "c2": again, "j": 1}


@every_place
@pytest.mark.parametrize("after", range(5))
async def test_c23_the_join_fires_once_from_every_boundary(place: Place, ticks: Ticks, after: int) -> None:
    workflow = uneven(ticks)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint, max_supersteps=after)
    checkpoint = await place.reload()
    assert (await uneven(ticks).run(checkpoint=checkpoint)).get_outputs() == [JOINED]
    assert ticks.all() == {"src": 1, "b": 1, "c": 1, "c2": 1, "j": 1}
    assert [one.state["edge_states"] for one in checkpoint.snapshots] == [{}, {}, BUFFERED, {}, {}]


@every_place
async def test_c23_each_boundary_can_be_gone_back_to_and_the_join_fires_again(
    place: Place, ticks: Ticks
) -> None:
    workflow = uneven(ticks)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    first = checkpoint.snapshots
    for fired, snapshot in enumerate(first[:-1], 2):
        before = snapshot.to_bytes()
        checkpoint.restart_from(snapshot.snapshot_id)
        assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == [JOINED]
        assert ticks["j"] == fired
        assert snapshot.to_bytes() == before
    assert bytes_of(await place.reload()) == bytes_of(checkpoint)


@every_place
async def test_c23_a_pause_keeps_what_waits_at_a_join(place: Place, ticks: Ticks) -> None:
    def build() -> Workflow:
        return fan(Step("src", ticks), [Ask("ask", ticks), Step("b", ticks)], Join("j", ticks))

    checkpoint = place.create(build())
    result = await build().run("x", checkpoint=checkpoint)
    assert "incomplete_join" not in [event.type for event in result]
    checkpoint = await place.reload()
    head = checkpoint.head_snapshot
    assert head is not None
    assert head.boundary == "paused"
    assert head.state["edge_states"] == {"fan_in:ask,b->j": {"received": {"b": ["x>src>b"]}}}
    result = await build().run(responses={only_request(checkpoint): "yes"}, checkpoint=checkpoint)
    assert result.get_outputs() == [["x>src>ask=yes", "x>src>b"]]
    assert ticks.all() == {"src": 1, "ask": 1, "ask.answer": 1, "b": 1, "j": 1}


@every_place
@pytest.mark.parametrize("keep", [False, True])
async def test_c23_a_turn_that_an_edit_ended_leaves_nothing_at_a_join_for_the_next(
    place: Place, ticks: Ticks, keep: bool
) -> None:
    """The question was edited away while the other side waited, so the turn was over without a superstep."""
    src, ask, b, j = Step("src", ticks), Ask("ask", ticks), Step("b", ticks), Join("j", ticks)
    builder = WorkflowBuilder(name="edited", start_executor=src).add_fan_out_edges(src, [ask, b])
    workflow = builder.add_fan_in_edges([ask, b], j, keep=keep).build()
    checkpoint = place.create(workflow)
    await workflow.run("one", checkpoint=checkpoint)
    assert checkpoint.head_snapshot is not None
    edited = checkpoint.head_snapshot.state
    edited["messages"]["pending"]["requests"] = {}
    await checkpoint.commit_snapshot(edited)
    checkpoint = await place.reload()
    assert checkpoint.status == "idle"

    result = await workflow.run("two", checkpoint=checkpoint)
    told = [event.data for event in result if event.type == "incomplete_join"]
    waiting, edge = {"received": {"b": ["one>src>b"]}}, "fan_in:ask,b->j"
    assert told == ([] if keep else [{"edge": edge, "received_from": ["b"]}])
    accepted = checkpoint.ancestors()[2]
    assert accepted.boundary == "input_accepted"
    assert accepted.state["edge_states"] == ({edge: waiting} if keep else {})
    checkpoint = await place.reload()
    result = await workflow.run(responses={only_request(checkpoint): "A"}, checkpoint=checkpoint)
    earlier = ["one>src>b"] if keep else []
    assert result.get_outputs() == [["two>src>ask=A", *earlier, "two>src>b"]]


class Same(Step):
    """Sends a text on as it is."""

    async def done(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.send_message(text.removesuffix(f">{self.id}"))


class Half(Step):
    """Passes on only what is its own: a text that begins with its id."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.ticks(self.id)
        if text.startswith(self.id):
            await ctx.send_message(text)


@every_place
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("stream", [False, True])
async def test_c23_a_half_filled_join_at_the_end_of_a_turn_is_told_and_dropped_unless_kept(
    place: Place, ticks: Ticks, keep: bool, stream: bool
) -> None:
    def build() -> Workflow:
        src, b, c, j = Same("src", ticks), Half("b", ticks), Half("c", ticks), Join("j", ticks)
        builder = WorkflowBuilder(name="half", start_executor=src).add_fan_out_edges(src, [b, c])
        return builder.add_fan_in_edges([b, c], j, keep=keep).build()

    async def turn(text: str) -> tuple[list[Any], list[Any]]:
        checkpoint = await place.reload()
        if stream:
            events = [e async for e in build().run(text, checkpoint=checkpoint, stream=True)]
        else:
            events = list(await build().run(text, checkpoint=checkpoint))
        told = [event.data for event in events if event.type == "incomplete_join"]
        return told, [event.data for event in events if event.type == "output"]

    await build().run("nobody", checkpoint=place.create(build()))
    edge = "fan_in:b,c->j"
    told, outputs = await turn("b1")
    assert outputs == []
    assert told == ([] if keep else [{"edge": edge, "received_from": ["b"]}])
    checkpoint = await place.reload()
    head = checkpoint.head_snapshot
    assert head is not None
    assert head.state["edge_states"] == ({edge: {"received": {"b": ["b1"]}}} if keep else {})
    told, outputs = await turn("c2")
    assert outputs == ([["b1", "c2"]] if keep else [])
    assert told == ([] if keep else [{"edge": edge, "received_from": ["c"]}])
    assert ticks["j"] == int(keep)


# C25: a join inside a cycle.


class Hub(Executor):
    """Begins three laps, then yields what came of them."""

    laps: int = state(0)

    def __init__(self, id: str, ticks: Ticks) -> None:
        super().__init__(id=id)
        self.ticks = ticks

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, list[Any]]) -> None:
        self.ticks(self.id)
        if self.laps == 3:
            await ctx.yield_output([self.laps, text])
            return
        self.laps += 1
        await ctx.send_message(f"{text}.{self.laps}")


class Meet(Join):
    """Joins two texts into one and sends it on."""

    @handler
    async def on_texts(self, texts: list[str], ctx: WorkflowContext[str, list[str]]) -> None:
        self.ticks(self.id)
        assert len(texts) == 2
        await ctx.send_message("(" + "|".join(texts) + ")")


def laps(ticks: Ticks, left: Executor | None = None) -> Workflow:
    left = left or Step("l", ticks)
    hub, right, meet = Hub("hub", ticks), Step("r", ticks), Meet("meet", ticks)
    builder = WorkflowBuilder(name="laps", start_executor=hub).add_fan_out_edges(hub, [left, right])
    return builder.add_fan_in_edges([left, right], meet).add_edge(meet, hub).build()


LAP_TICKS = {"hub": 4, "l": 3, "r": 3, "meet": 3}


async def uninterrupted_laps() -> list[Any]:
    return (await laps(Ticks()).run("x")).get_outputs()


async def run_laps(folder: str, kind: str, bound: int | None) -> Any:
    place, ticks = files(folder, kind)
    workflow = laps(ticks)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint, max_supersteps=bound)
    return boundaries(checkpoint)


async def go_on_laps(folder: str, kind: str, restart: int | None) -> Any:
    place, ticks = files(folder, kind)
    checkpoint = await place.reload()
    if restart is not None:
        checkpoint.restart_from(checkpoint.snapshots[restart].snapshot_id)
    return (await laps(ticks).run(checkpoint=checkpoint)).get_outputs()


@every_kind
def test_c25_a_join_in_a_cycle_goes_on_in_a_new_process_after_lap_one(tmp_path: Path, kind: str) -> None:
    expected = asyncio.run(uninterrupted_laps())
    assert expected[0][0] == 3
    assert in_new_process(run_laps, str(tmp_path), kind, 3) == [
        "input_accepted",
        *["superstep_completed"] * 3,
    ]
    assert in_new_process(go_on_laps, str(tmp_path), kind, None) == expected
    assert Ticks(tmp_path / "ticks").all() == LAP_TICKS
    # And once more from the snapshot of lap 1: two laps and the end happen again.
    assert in_new_process(go_on_laps, str(tmp_path), kind, 3) == expected
    assert Ticks(tmp_path / "ticks").all() == {"hub": 7, "l": 5, "r": 5, "meet": 5}


@every_place
@pytest.mark.parametrize("after", range(11))
async def test_c25_a_cycle_goes_on_from_every_boundary(place: Place, ticks: Ticks, after: int) -> None:
    expected = await uninterrupted_laps()
    workflow = laps(ticks)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint, max_supersteps=after)
    checkpoint = await place.reload()
    assert (await laps(ticks).run(checkpoint=checkpoint)).get_outputs() == expected
    assert ticks.all() == LAP_TICKS
    for place_in_run in range(after):
        checkpoint.restart_from(checkpoint.snapshots[place_in_run].snapshot_id)
        assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == expected


# C26: a run that is finished.


def finished_chain(ticks: Ticks) -> Workflow:
    return chain(Step("a", ticks), Step("b", ticks, final=True))


async def finish_chain(folder: str, kind: str) -> Any:
    place, ticks = files(folder, kind)
    workflow = finished_chain(ticks)
    return (await workflow.run("x", checkpoint=place.create(workflow))).get_outputs()


async def run_finished(folder: str, kind: str, stream: bool) -> Any:
    place, ticks = files(folder, kind)
    workflow, checkpoint = finished_chain(ticks), await place.reload()
    told = []
    for _ in range(2):
        if stream:
            result = await workflow.run(checkpoint=checkpoint, stream=True).get_final_response()
        else:
            result = await workflow.run(checkpoint=checkpoint)
        told.append([result.get_outputs(), result.get_final_state().value, result.get_request_info_events()])
    return [told, checkpoint.status, [one.value for one in checkpoint.outputs()], lineage(checkpoint)]


@every_kind
@pytest.mark.parametrize("stream", [False, True])
def test_c26_a_finished_run_returns_its_result_in_a_new_process_and_runs_nothing(
    tmp_path: Path, kind: str, stream: bool
) -> None:
    assert in_new_process(finish_chain, str(tmp_path), kind) == ["x>a>b"]
    before = file_bytes(tmp_path / "runs")
    told, status, outputs, snapshots = in_new_process(run_finished, str(tmp_path), kind, stream)
    assert told == [[["x>a>b"], "idle", []]] * 2
    assert (status, outputs) == ("idle", ["x>a>b"])
    assert len(snapshots) == 3
    assert file_bytes(tmp_path / "runs") == before
    assert Ticks(tmp_path / "ticks").all() == {"a": 1, "b": 1}


@every_place
async def test_c26_a_finished_run_is_not_restarted_by_any_call_without_a_message(
    place: Place, ticks: Ticks
) -> None:
    workflow = finished_chain(ticks)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    for bound in (None, 0, 1):
        result = await unchanged(
            checkpoint, lambda bound=bound: workflow.run(checkpoint=checkpoint, max_supersteps=bound)
        )
        assert result.get_outputs() == ["x>a>b"]
        assert [(event.type, event.data, event.durable) for event in result] == [("output", "x>a>b", True)]
    await refused(
        checkpoint, UnknownRequestError, lambda: workflow.run(responses={"r": 1}, checkpoint=checkpoint)
    )
    assert ticks.all() == {"a": 1, "b": 1}


@every_place
@pytest.mark.parametrize("paused", [False, True])
async def test_c26_going_back_to_an_end_and_running_nothing_stores_nothing(
    place: Place, ticks: Ticks, tmp_path: Path, paused: bool
) -> None:
    workflow = chain(Ask("a", ticks, final=True)) if paused else finished_chain(ticks)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    end = checkpoint.snapshots[-1]
    assert end.boundary == ("paused" if paused else "completed")
    if paused:
        await workflow.run(responses={only_request(checkpoint): "y"}, checkpoint=checkpoint)
    else:
        await workflow.run("y", checkpoint=checkpoint)
    checkpoint.restart_from(end.snapshot_id)
    acted, stored = ticks.all(), file_bytes(tmp_path)
    for stream in (False, True):
        for bound in (None, 0):

            def call(stream: bool = stream, bound: int | None = bound) -> Any:
                run: Any = workflow.run(checkpoint=checkpoint, stream=stream, max_supersteps=bound)
                return run.get_final_response() if stream else run

            result = await unchanged(checkpoint, call)
            assert result.get_outputs() == ([] if paused else ["x>a>b"])
            assert len(result.get_request_info_events()) == int(paused)
    assert (ticks.all(), file_bytes(tmp_path)) == (acted, stored)
    assert checkpoint.head_snapshot_id == end.snapshot_id != checkpoint.stored_head_snapshot_id


# C27: the step that failed.


@every_place
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("position", [0, 1, 2])
async def test_c27_the_step_that_failed_runs_again_with_the_same_message(
    place: Place, ticks: Ticks, stream: bool, position: int
) -> None:
    def build() -> Workflow:
        steps = [(BoomOnce if n == position else Step)(id, ticks, final=n == 2) for n, id in enumerate("abz")]
        return chain(*steps)

    checkpoint = place.create(build())
    failing = "abz"[position]
    got = "x" + "".join(f">{id}" for id in "abz"[:position])
    with pytest.raises(Boom) as caught:
        if stream:
            await build().run("x", checkpoint=checkpoint, stream=True).get_final_response()
        else:
            await build().run("x", checkpoint=checkpoint)
    assert str(caught.value) == f"{failing} got {got}"
    note = "\n".join(caught.value.__notes__)
    for word in (f"'{failing}'", f"superstep {position + 1}", "'run-1'"):
        assert word in note
    checkpoint = await place.reload()
    assert checkpoint.status == "in_progress"
    assert len(checkpoint.snapshots) == position + 1
    (delivery,) = pending(checkpoint.head_snapshot)["deliveries"]
    assert (delivery["value"], delivery["targets"]) == (got, [failing])
    result = await build().run(checkpoint=checkpoint)
    assert result.get_outputs() == ["x>a>b>z"]
    assert ticks.all() == {"a": 1, "b": 1, "z": 1} | {failing: 2}


class Writes(Step):
    """A step that counts in its own state and in the shared state."""

    n: int = state(0)

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.ticks(self.id)
        self.n += 1
        ctx.set_state(f"n.{self.id}", (ctx.get_state(f"n.{self.id}") or 0) + 1)
        await self.done(f"{text}>{self.id}", ctx)


@every_place
@pytest.mark.parametrize("times", [1, 3])
async def test_c27_of_a_failed_superstep_nothing_is_kept_and_all_of_it_runs_again(
    place: Place, ticks: Ticks, times: int
) -> None:
    class Booms(Step):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            await ctx.send_message("a first word that must not be heard")
            ctx.set_state("left behind", True)
            if self.ticks(self.id) <= times:
                raise Boom(text)
            ctx.delete_state("left behind")

    class Heard(Join):
        @handler
        async def on_texts(self, texts: list[str], ctx: WorkflowContext[str, list[str]]) -> None:
            await ctx.yield_output(texts)

    workflow = fan(Step("src", ticks), [Writes("good", ticks), Booms("bad", ticks)], Heard("j"))
    checkpoint = place.create(workflow)
    with pytest.raises(Boom):
        await workflow.run("x", checkpoint=checkpoint)
    for _ in range(times - 1):
        checkpoint = await place.reload()
        with pytest.raises(Boom):
            await workflow.run(checkpoint=checkpoint)
        assert len(checkpoint.snapshots) == 2
    checkpoint = await place.reload()
    head = checkpoint.head_snapshot
    assert head is not None
    assert (shared(head), head.state["executor_states"], head.state["edge_states"]) == ({}, {}, {})
    result = await workflow.run(checkpoint=checkpoint)
    assert result.get_outputs() == [["x>src>good", "a first word that must not be heard"]]
    head = checkpoint.head_snapshot
    assert head is not None
    assert shared(head) == {"n.good": 1}
    assert head.state["executor_states"] == {"good": {"n": 1}}
    assert ticks.all() == {"src": 1, "good": times + 1, "bad": times + 1}


async def run_to_the_boom(folder: str, kind: str) -> Any:
    place, ticks = files(folder, kind)
    workflow = chain(Step("a", ticks), BoomOnce("b", ticks), Step("z", ticks, final=True))
    result = None
    try:
        checkpoint = place.create(workflow) if ticks["a"] == 0 else await place.reload()
        message = {"message": "x"} if ticks["a"] == 0 else {}
        result = await workflow.run(checkpoint=checkpoint, **message)
    except Boom as error:
        return str(error)
    return result.get_outputs()


@every_kind
def test_c27_the_step_that_failed_runs_again_in_a_new_process(tmp_path: Path, kind: str) -> None:
    assert in_new_process(run_to_the_boom, str(tmp_path), kind) == "b got x>a"
    assert in_new_process(run_to_the_boom, str(tmp_path), kind) == ["x>a>b>z"]
    assert Ticks(tmp_path / "ticks").all() == {"a": 1, "b": 2, "z": 1}


# C29: the routing that failed.


class Decider(Outside):
    """A decision that raises at its first call."""

    def __init__(self, ticks: Ticks) -> None:
        self.ticks = ticks

    def decide(self) -> bool:
        if self.ticks("cond") == 1:
            raise Boom("cond")
        return True


def deciding(kind: str, is_async: bool, ticks: Ticks) -> Workflow:
    decider = Decider(ticks)

    def cond(text: str) -> bool:
        return decider.decide()

    async def cond_later(text: str) -> bool:
        return decider.decide()

    def pick(text: str, ids: list[str]) -> list[str]:
        decider.decide()
        return ["sink"]

    async def pick_later(text: str, ids: list[str]) -> list[str]:
        return pick(text, ids)

    a, sink, other = Writes("a", ticks), Step("sink", ticks, final=True), Step("other", ticks, final=True)
    builder = WorkflowBuilder(name="deciding", start_executor=a)
    condition: Any = cond_later if is_async else cond
    if kind == "edge":
        builder.add_edge(a, sink, condition)
    elif kind == "switch":
        builder.add_switch_case_edge_group(a, [Case(condition, sink), Default(other)])
    else:
        selection: Any = pick_later if is_async else pick
        builder.add_multi_selection_edge_group(a, [sink, other], selection)
    return builder.build()


@every_place
@pytest.mark.parametrize("kind", ["edge", "switch", "selection"])
@pytest.mark.parametrize("is_async", [False, True])
async def test_c29_a_condition_that_raised_is_asked_again_on_resume(
    place: Place, ticks: Ticks, kind: str, is_async: bool
) -> None:
    workflow = deciding(kind, is_async, ticks)
    checkpoint = place.create(workflow)
    with pytest.raises(Boom, match="cond"):
        await workflow.run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    assert boundaries(checkpoint) == ["input_accepted"]
    assert checkpoint.status == "in_progress"
    result = await deciding(kind, is_async, ticks).run(checkpoint=checkpoint)
    assert result.get_outputs() == ["x>a>sink"]
    # The superstep of the sender was not complete without its routing, and what it wrote counts once.
    assert ticks.all() == {"a": 2, "cond": 2, "sink": 1}
    head = checkpoint.head_snapshot
    assert head is not None
    assert shared(head) == {"n.a": 1}
    assert head.state["executor_states"] == {"a": {"n": 1}}


@every_place
@pytest.mark.parametrize("ends", ["raises", "is cancelled"])
async def test_c29_a_condition_that_fails_stops_the_siblings_and_nothing_of_the_superstep_is_kept(
    place: Place, ticks: Ticks, ends: str
) -> None:
    entered = asyncio.Event()

    async def cond(text: str) -> bool:
        await entered.wait()
        if ticks("cond") > 1:
            return True
        if ends == "is cancelled":  # by what it awaits, while nobody cancelled the run
            cancelled = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            await cancelled
        raise Boom("cond")

    class Waits(Writes):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            self.ticks(self.id)
            self.n += 1
            ctx.set_state("left behind", self.n)
            entered.set()
            if self.ticks["cond"] < 1 or self.ticks[self.id] == 1:
                try:
                    await asyncio.Event().wait()
                finally:
                    self.ticks("cleaned up")

    src, a, waits, sink = (
        Step("src", ticks),
        Writes("a", ticks),
        Waits("w", ticks),
        Step("sink", ticks, final=True),
    )
    builder = WorkflowBuilder(name="failing", start_executor=src).add_fan_out_edges(src, [a, waits])
    workflow = builder.add_edge(a, sink, cond).build()
    checkpoint = place.create(workflow)
    with pytest.raises(Boom if ends == "raises" else HandlerError) as caught:
        await asyncio.wait_for(workflow.run("x", checkpoint=checkpoint), 30)
    assert any("'a'" in note for note in [str(caught.value), *caught.value.__notes__])
    checkpoint = await place.reload()
    assert boundaries(checkpoint) == ["input_accepted", "superstep_completed"]
    assert shared(checkpoint.head_snapshot) == {}
    assert ticks["cleaned up"] == 1
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == ["x>src>a>sink"]
    assert shared(checkpoint.head_snapshot) == {"n.a": 1, "left behind": 1}
    assert ticks.all() == {"src": 1, "a": 2, "w": 2, "cond": 2, "sink": 1, "cleaned up": 1}


# C30: another graph.


def reviewing(ticks: Ticks, change: str = "") -> Workflow:
    """`start -> ask -> fin`, with a branch `ask -> log` under a condition; or changed in one place."""

    class Renamed(Step):
        pass

    def long(text: str) -> bool:
        return len(text) > 100

    def short(text: str) -> bool:
        return len(text) > 100

    start = Step("begin" if change == "executor renamed" else "start", ticks)
    kind = Renamed if change == "executor type" else Step
    ask, fin, log = Ask("ask", ticks), kind("fin", ticks, final=True), Step("log", ticks, final=True)
    name = "other" if change == "workflow name" else "reviewing"
    builder = WorkflowBuilder(
        name=name,
        start_executor=start,
        max_iterations=7 if change == "max_iterations" else 100,
        output_from=[fin] if change == "outputs" else None,
        description="new" if change == "description" else None,
    )
    builder.add_edge(start, ask)
    if change == "edge kind":
        builder.add_fan_out_edges(ask, [fin, log])
    else:
        builder.add_edge(ask, fin)
        if change != "edge removed":
            builder.add_edge(ask, log, short if change == "condition" else long)
    if change == "executor added":
        builder.add_edge(fin, Step("late", ticks, final=True))
    if change == "edge added":
        builder.add_edge(log, fin)
    return builder.build()


DIFFERENCES = {
    "executor renamed": ["'start'", "'begin'"],
    "executor type": ["'fin'", "Renamed"],
    "executor added": ["'late'"],
    "edge removed": ["'ask' -> 'log'"],
    "edge added": ["'log' -> 'fin'"],
    "edge kind": ["fan_out"],
    "condition": ["long", "short"],
    "workflow name": ["'reviewing'", "'other'"],
}


@every_place
@pytest.mark.parametrize("change", DIFFERENCES)
async def test_c30_r36_another_graph_is_refused_before_any_handler_and_the_old_one_resumes(
    place: Place, ticks: Ticks, tmp_path: Path, change: str
) -> None:
    original = reviewing(ticks)
    checkpoint = place.create(original)
    await original.run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    rid = only_request(checkpoint)
    changed = reviewing(ticks, change)
    before, stored = ticks.all(), file_bytes(tmp_path)
    for call in ({}, {"message": "y"}, {"responses": {rid: "yes"}}, {"max_supersteps": 0}):
        for stream in (False, True):

            def use(call: dict[str, Any] = call, stream: bool = stream) -> Any:
                run: Any = changed.run(checkpoint=checkpoint, stream=stream, **call)
                return run.get_final_response() if stream else run

            words = await refused(checkpoint, GraphMismatchError, use)
            for word in ["'run-1'", *DIFFERENCES[change]]:
                assert word in words
    assert (ticks.all(), file_bytes(tmp_path)) == (before, stored)
    assert only_request(checkpoint) == rid
    result = await reviewing(ticks).run(responses={rid: "yes"}, checkpoint=checkpoint)
    assert result.get_outputs() == ["x>start>ask=yes>fin"]


@every_place
@pytest.mark.parametrize("change", ["max_iterations", "outputs", "description"])
async def test_c30_what_the_signature_does_not_cover_may_change(
    place: Place, ticks: Ticks, change: str
) -> None:
    checkpoint = place.create(reviewing(ticks))
    await reviewing(ticks).run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    changed = reviewing(ticks, change)
    result = await changed.run(responses={only_request(checkpoint): "yes"}, checkpoint=checkpoint)
    assert result.get_outputs() == ["x>start>ask=yes>fin"]


async def test_c30_a_graph_that_lost_a_handler_says_so_and_the_message_stays_pending(ticks: Ticks) -> None:
    """Handlers are not part of the signature: what is pending for one that is gone is not lost."""

    class Wide(Step):
        @handler
        async def on_number(self, number: int, ctx: WorkflowContext[int, int]) -> None:
            await ctx.yield_output(number)

    class Src(Executor):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext) -> None:
            await ctx.send_message(7)

    def build(**methods: Any) -> Workflow:
        target = type("Wide", (Step,), {"__qualname__": Wide.__qualname__, "__module__": __name__, **methods})
        return chain(Src(id="src"), target("t", ticks))

    checkpoint = build(on_number=Wide.on_number).create_checkpoint()
    await build(on_number=Wide.on_number).run("x", checkpoint=checkpoint, max_supersteps=1)
    with pytest.raises(BranchpointError, match=r"'t' has no handler for int"):
        await unchanged(checkpoint, lambda: build().run(checkpoint=checkpoint))
    assert (await build(on_number=Wide.on_number).run(checkpoint=checkpoint)).get_outputs() == [7]


# C31: the next question.


class Talks(Step):
    """Answers with everything it was asked so far, in its own and in the shared state."""

    asked: list[str] = state(factory=list)

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.ticks(self.id)
        self.asked.append(text)
        told = ctx.update_state("told", lambda have: [*(have or []), text])
        assert told[-len(self.asked) :] == self.asked
        await self.done(",".join(self.asked), ctx)


def talking(ticks: Ticks) -> Workflow:
    return chain(Talks("a", ticks), Step("b", ticks), Step("c", ticks, final=True), max_iterations=3)


@every_place
@pytest.mark.parametrize("reload", [False, True])
async def test_c31_the_next_turn_goes_on_with_all_state_and_a_bound_of_its_own(
    place: Place, ticks: Ticks, reload: bool
) -> None:
    workflow = talking(ticks)
    checkpoint = place.create(workflow)
    outputs = []
    for turn, question in enumerate(("q1", "q2", "q3"), 1):
        before = checkpoint.head_snapshot_id
        result = await workflow.run(question, checkpoint=checkpoint)
        assert result.get_final_state() is WorkflowRunState.IDLE
        outputs.append(",".join(f"q{n + 1}" for n in range(turn)) + ">b>c")
        assert result.get_outputs() == outputs[-1:]
        assert [one.value for one in checkpoint.outputs()] == outputs
        entry = checkpoint.snapshots[-4]
        assert (entry.boundary, entry.parent_snapshot_id) == ("input_accepted", before)
        assert entry.state["messages"]["pending"]["deliveries"] == [
            {"value": question, "sources": [], "targets": ["a"]}
        ]
        assert entry.state["workflow_state"]["turn"] == turn
        assert [one.superstep for one in checkpoint.snapshots[-4:]] == list(range(3 * turn - 3, 3 * turn + 1))
        if reload:
            checkpoint, workflow = await place.reload(), talking(ticks)
        assert [one.value for one in checkpoint.outputs(input_id=result.input_id)] == outputs[-1:]
    assert ticks.all() == dict.fromkeys("abc", 3)
    head = checkpoint.head_snapshot
    assert head is not None
    assert head.state["executor_states"]["a"] == {"asked": ["q1", "q2", "q3"]}
    assert shared(head) == {"told": ["q1", "q2", "q3"]}


async def ask_next(folder: str, kind: str, question: str) -> Any:
    place, ticks = files(folder, kind)
    workflow = talking(ticks)
    checkpoint = place.create(workflow) if question == "q1" else await place.reload()
    result = await workflow.run(question, checkpoint=checkpoint)
    return [result.get_outputs(), [one.value for one in checkpoint.outputs()]]


@every_kind
def test_c31_every_turn_in_a_process_of_its_own(tmp_path: Path, kind: str) -> None:
    assert in_new_process(ask_next, str(tmp_path), kind, "q1") == [["q1>b>c"], ["q1>b>c"]]
    assert in_new_process(ask_next, str(tmp_path), kind, "q2") == [["q1,q2>b>c"], ["q1>b>c", "q1,q2>b>c"]]


# C33: messages, answers and resuming, together.


class YieldsAndAsks(Ask):
    """Yields a word before it asks."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.ticks(self.id)
        await ctx.yield_output(f"asking about {text}")
        await ctx.request_info(f"{self.id}?{text}", str)


def asking(ticks: Ticks) -> Workflow:
    return chain(YieldsAndAsks("ask", ticks), Step("fin", ticks, final=True))


@every_place
@pytest.mark.parametrize("stream", [False, True])
async def test_c33_on_a_paused_checkpoint_every_mix_does_one_thing_or_is_refused(
    place: Place, ticks: Ticks, stream: bool
) -> None:
    workflow = asking(ticks)
    checkpoint = place.create(workflow)
    first = await workflow.run("x", checkpoint=checkpoint)
    rid = only_request(checkpoint)
    checkpoint = await place.reload()

    async def run(*args: Any, **call: Any) -> Any:
        made: Any = workflow.run(*args, checkpoint=checkpoint, stream=stream, **call)
        return await (made.get_final_response() if stream else made)

    words = await refused(checkpoint, PendingRequestsError, lambda: run("new"))
    assert rid in words
    await refused(checkpoint, PendingRequestsError, lambda: run("new", input_id="in-2"))
    await refused(checkpoint, InvalidCallError, lambda: run("new", responses={rid: "1"}))
    await refused(checkpoint, InvalidCallError, lambda: run(None, responses={rid: "1"}))
    await refused(checkpoint, InvalidCallError, lambda: run(responses={}))
    await refused(checkpoint, UnknownRequestError, lambda: run(responses={rid: "1", "other": "2"}))
    for bound in (None, 0):
        result = await unchanged(checkpoint, lambda bound=bound: run(max_supersteps=bound))
        assert [event.request_id for event in result.get_request_info_events()] == [rid]
        assert result.get_outputs() == first.get_outputs() == ["asking about x"]
        assert result.get_final_state() is WorkflowRunState.IDLE_WITH_PENDING_REQUESTS
    assert ticks.all() == {"ask": 1}
    assert only_request(checkpoint) == rid
    assert [one.value for one in checkpoint.outputs()] == ["asking about x"]
    result = await run(responses={rid: "1"})
    assert result.get_outputs() == ["asking about x", "x>ask=1>fin"]
    assert checkpoint.pending_requests == []


@every_place
async def test_c33_on_a_new_checkpoint_there_is_nothing_to_run(place: Place, ticks: Ticks) -> None:
    workflow = asking(ticks)
    checkpoint = place.create(workflow)
    await refused(checkpoint, InvalidCallError, lambda: workflow.run(checkpoint=checkpoint))
    await refused(checkpoint, InvalidCallError, lambda: workflow.run(checkpoint=checkpoint, input_id="in-1"))
    await refused(
        checkpoint, UnknownRequestError, lambda: workflow.run(responses={"r": "1"}, checkpoint=checkpoint)
    )
    await refused(checkpoint, BranchpointError, lambda: workflow.run(7, checkpoint=checkpoint))
    assert checkpoint.snapshots == []
    assert ticks.all() == {}
    if place.is_stored:
        with pytest.raises(BranchpointError):
            await place.reload()
    await workflow.run("x", checkpoint=checkpoint)
    assert ticks.all() == {"ask": 1}


@every_place
async def test_c33_on_unfinished_work_a_new_message_is_refused_and_nothing_is_lost(
    place: Place, ticks: Ticks
) -> None:
    workflow = chain(Ask("ask", ticks), BoomOnce("b", ticks), Step("fin", ticks, final=True))
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint, input_id="in-1")
    answers = {only_request(checkpoint): "1"}
    with pytest.raises(Boom):
        await workflow.run(responses=answers, checkpoint=checkpoint, input_id="in-2")
    checkpoint = await place.reload()
    words = await refused(checkpoint, UnfinishedWorkError, lambda: workflow.run("y", checkpoint=checkpoint))
    assert "in-2" in words
    await refused(
        checkpoint, UnknownRequestError, lambda: workflow.run(responses=answers, checkpoint=checkpoint)
    )
    # The same answers delivered again are known by the id, and resume.
    result = await workflow.run(responses=answers, checkpoint=checkpoint, input_id="in-2")
    assert result.get_outputs() == ["x>ask=1>b>fin"]
    assert ticks.all() == {"ask": 1, "ask.answer": 1, "b": 2, "fin": 1}


async def test_c33_without_a_checkpoint_there_is_nothing_to_answer_or_to_resume(ticks: Ticks) -> None:
    workflow = asking(ticks)
    for call in ({}, {"responses": {"r": "1"}}, {"responses": {}}):
        with pytest.raises(InvalidCallError):
            await workflow.run(**call)
    result = await workflow.run("x")
    assert result.get_outputs() == ["asking about x"]
    assert len(result.get_request_info_events()) == 1
    assert any(event.type == "warning" and "checkpoint" in event.data for event in result)


# C34: the ceiling.


class Counter(Executor):
    """Sends to itself until it has counted to ten."""

    n: int = state(0)

    def __init__(self, id: str, ticks: Ticks) -> None:
        super().__init__(id=id)
        self.ticks = ticks

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, int]) -> None:
        self.ticks(self.id)
        self.n += 1
        if self.n % 10:
            await ctx.send_message(text)
        else:
            await ctx.yield_output(self.n)


def counting(ticks: Ticks, bound: int) -> Workflow:
    counter = Counter("counter", ticks)
    builder = WorkflowBuilder(name="counting", start_executor=counter, max_iterations=bound)
    return builder.add_edge(counter, counter).build()


def supersteps(checkpoint: Checkpoint) -> list[int]:
    return [one.superstep for one in checkpoint.snapshots]


@every_place
@pytest.mark.parametrize("stream", [False, True])
async def test_c34_the_ceiling_is_an_error_and_a_larger_one_resumes(
    place: Place, ticks: Ticks, stream: bool
) -> None:
    checkpoint = place.create(counting(ticks, 4))

    async def run(workflow: Workflow, **call: Any) -> Any:
        made: Any = workflow.run(checkpoint=checkpoint, stream=stream, **call)
        return await (made.get_final_response() if stream else made)

    with pytest.raises(ConvergenceError, match="max_iterations=4"):
        await run(counting(ticks, 4), message="x")
    assert supersteps(checkpoint) == [0, 1, 2, 3, 4]
    checkpoint = await place.reload()
    assert checkpoint.status == "in_progress"
    for bound in (4, 1):
        await refused(checkpoint, ConvergenceError, lambda bound=bound: run(counting(ticks, bound)))
    assert ticks["counter"] == 4
    result = await run(counting(ticks, 20))
    assert result.get_outputs() == [10]
    assert ticks["counter"] == 10
    assert supersteps(checkpoint) == list(range(11))
    head = checkpoint.head_snapshot
    assert head is not None
    assert head.state["workflow_state"]["iteration_count"] == 10
    assert (head.boundary, head.status) == ("completed", "idle")


@every_place
async def test_c34_a_bound_just_large_enough_is_no_error(place: Place, ticks: Ticks) -> None:
    workflow = counting(ticks, 10)
    checkpoint = place.create(workflow)
    assert (await workflow.run("x", checkpoint=checkpoint)).get_outputs() == [10]
    # And each turn has it anew, while the count goes on.
    assert (await workflow.run("y", checkpoint=checkpoint)).get_outputs() == [20]
    assert checkpoint.head_snapshot is not None
    assert checkpoint.head_snapshot.superstep == 20


@every_place
async def test_c34_going_back_does_not_get_round_the_ceiling_and_stores_nothing(
    place: Place, ticks: Ticks
) -> None:
    workflow = counting(ticks, 4)
    checkpoint = place.create(workflow)
    with pytest.raises(ConvergenceError):
        await workflow.run("x", checkpoint=checkpoint)
    checkpoint.restart_from(checkpoint.snapshots[2].snapshot_id)
    with pytest.raises(ConvergenceError):
        await workflow.run(checkpoint=checkpoint)
    assert supersteps(checkpoint) == [0, 1, 2, 3, 4, 2, 3, 4]
    checkpoint.restart_from(checkpoint.snapshots[4].snapshot_id)
    await refused(checkpoint, ConvergenceError, lambda: workflow.run(checkpoint=checkpoint))
    assert ticks["counter"] == 6


@every_place
async def test_c34_calls_that_are_bounded_each_do_not_get_round_the_ceiling_either(
    place: Place, ticks: Ticks
) -> None:
    workflow = counting(ticks, 4)
    checkpoint = place.create(workflow)
    result = await workflow.run("x", checkpoint=checkpoint, max_supersteps=0)
    assert result.get_final_state() is WorkflowRunState.IN_PROGRESS
    assert ticks["counter"] == 0
    for done in range(1, 5):
        checkpoint = await place.reload()
        result = await workflow.run(checkpoint=checkpoint, max_supersteps=1)
        assert result.get_final_state() is WorkflowRunState.IN_PROGRESS
        assert ticks["counter"] == done
    await refused(checkpoint, ConvergenceError, lambda: workflow.run(checkpoint=checkpoint, max_supersteps=1))
    assert ticks["counter"] == 4


@every_place
async def test_c34_answers_are_an_input_and_have_the_bound_anew(place: Place, ticks: Ticks) -> None:
    workflow = chain(Ask("p", ticks), Ask("q", ticks), Step("z", ticks, final=True), max_iterations=2)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    for _ in range(2):
        checkpoint = await place.reload()
        result = await workflow.run(responses={only_request(checkpoint): "y"}, checkpoint=checkpoint)
    assert result.get_outputs() == ["x>p=y>q=y>z"]
    assert supersteps(checkpoint) == [0, 1, 1, 2, 3, 3, 4, 5]


async def test_c34_a_one_shot_run_has_the_ceiling_too(ticks: Ticks) -> None:
    with pytest.raises(ConvergenceError):
        await counting(ticks, 9).run("x")
    assert ticks["counter"] == 9
    assert (await counting(Ticks(), 10).run("x")).get_outputs() == [10]


async def count_to(folder: str, kind: str, bound: int) -> Any:
    place, ticks = files(folder, kind)
    workflow = counting(ticks, bound)
    checkpoint = place.create(workflow) if ticks["counter"] == 0 else await place.reload()
    try:
        result = await workflow.run(
            checkpoint=checkpoint, **({"message": "x"} if ticks["counter"] == 0 else {})
        )
    except ConvergenceError:
        return supersteps(checkpoint)
    return [result.get_outputs(), supersteps(checkpoint)]


@every_kind
def test_c34_a_larger_ceiling_resumes_in_a_new_process(tmp_path: Path, kind: str) -> None:
    assert in_new_process(count_to, str(tmp_path), kind, 4) == [0, 1, 2, 3, 4]
    assert in_new_process(count_to, str(tmp_path), kind, 4) == [0, 1, 2, 3, 4]
    assert in_new_process(count_to, str(tmp_path), kind, 20) == [[10], list(range(11))]
    assert Ticks(tmp_path / "ticks")["counter"] == 10


# C35: results of parallel calls.


class Order(Outside):
    """Lets executors go on in a given order, whatever order they came in."""

    def __init__(self, *ids: str) -> None:
        self.gates = {id: asyncio.Event() for id in ids}
        self.ids = ids
        self.came: set[str] = set()

    async def turn(self, id: str) -> None:
        self.came.add(id)
        if self.came == set(self.ids):
            self.gates[self.ids[0]].set()
        await self.gates[id].wait()

    def done(self, id: str) -> None:
        later = self.ids[self.ids.index(id) + 1 :][:1]
        for other in later:
            self.gates[other].set()


class Measured(Step):
    """Sends its id and a value of its own, once it is its turn."""

    def __init__(self, id: str, ticks: Ticks, order: Order | None) -> None:
        super().__init__(id, ticks)
        self.order = order

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.ticks(self.id)
        if self.order is not None:
            await self.order.turn(self.id)
        await ctx.send_message(f"{self.id}={text}")
        await ctx.send_message(f"{self.id}:again")
        if self.order is not None:
            self.order.done(self.id)


class Records(Executor):
    """Records what it sees, in the order it sees it; may be killed before or raise once."""

    def __init__(self, id: str, ticks: Ticks, how: str) -> None:
        super().__init__(id=id)
        self.ticks = ticks
        self.how = how

    @handler
    async def on_texts(self, texts: list[str], ctx: WorkflowContext[Never, list[str]]) -> None:
        if self.ticks(self.id) == 1 and self.how:
            if self.how == "killed":
                say(self.id)
                listen()
            raise Boom("before j")
        await ctx.yield_output(texts)


def measuring(ticks: Ticks, order: tuple[str, ...], how: str, *, join: bool = True) -> Workflow:
    made = Order(*order) if order else None
    src, b1, b2 = Step("src", ticks), Measured("b1", ticks, made), Measured("b2", ticks, made)
    return fan(src, [b1, b2], Records("j", ticks, how), name="measuring")


MEASURED = [["b1=x>src", "b1:again", "b2=x>src", "b2:again"]]


@every_place
@pytest.mark.parametrize("order", [("b1", "b2"), ("b2", "b1")])
@pytest.mark.parametrize("how", ["", "raises"])
async def test_c35_values_stay_with_their_ids_and_the_order_is_the_declared_one(
    place: Place, ticks: Ticks, order: tuple[str, ...], how: str
) -> None:
    workflow = measuring(ticks, order, how)
    checkpoint = place.create(workflow)
    if how:
        with pytest.raises(Boom):
            await workflow.run("x", checkpoint=checkpoint)
        checkpoint = await place.reload()
        result = await measuring(ticks, order[::-1], how).run(checkpoint=checkpoint)
    else:
        result = await workflow.run("x", checkpoint=checkpoint)
    assert result.get_outputs() == MEASURED
    assert ticks.all() == {"src": 1, "b1": 1, "b2": 1, "j": 2 if how else 1}


async def measure(folder: str, kind: str, order: list[str], how: str) -> Any:
    place, ticks = files(folder, kind)
    workflow = measuring(ticks, tuple(order), how)
    if ticks["src"] == 0:
        return (await workflow.run("x", checkpoint=place.create(workflow))).get_outputs()
    return (await workflow.run(checkpoint=await place.reload())).get_outputs()


@every_kind
@pytest.mark.parametrize("order", [("b1", "b2"), ("b2", "b1")])
def test_c35_the_same_after_a_kill_before_the_join(tmp_path: Path, kind: str, order: tuple[str, ...]) -> None:
    with Talking(measure, str(tmp_path), kind, order, "killed") as process:
        assert process.hear() == "j"
        process.kill()
    assert in_new_process(measure, str(tmp_path), kind, order, "killed") == MEASURED
    assert Ticks(tmp_path / "ticks").all() == {"src": 1, "b1": 1, "b2": 1, "j": 2}


class Logs(Executor):
    """Logs single messages of several senders in the order in which it sees them."""

    seen: list[str] = state(factory=list)

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[Never, str]) -> None:
        self.seen.append(f"{ctx.get_source_executor_id()}:{text}")
        await ctx.yield_output(text)


@every_place
@pytest.mark.parametrize("order", [("b1", "b2", "b3"), ("b3", "b1", "b2"), ("b3", "b2", "b1")])
async def test_c35_without_a_join_messages_too_are_seen_in_declared_order(
    place: Place, ticks: Ticks, order: tuple[str, ...]
) -> None:
    made = Order(*order)
    src, sink = Step("src", ticks), Logs(id="sink")
    several = [Measured(id, ticks, made) for id in ("b1", "b2", "b3")]
    builder = WorkflowBuilder(name="logging", start_executor=src).add_fan_out_edges(src, several)
    for one in reversed(several):  # the order of the edges does not matter, that of first mention does
        builder.add_edge(one, sink)
    workflow = builder.build()
    checkpoint = place.create(workflow)
    result = await workflow.run("x", checkpoint=checkpoint)
    told = [f"{id}{what}" for id in ("b1", "b2", "b3") for what in ("=x>src", ":again")]
    assert result.get_outputs() == told
    head = (await place.reload()).head_snapshot
    assert head is not None
    assert head.state["executor_states"]["sink"]["seen"] == [f"{one[:2]}:{one}" for one in told]


@every_file
async def test_c31_what_a_turn_made_is_told_when_its_input_is_delivered_again(
    place: Place, ticks: Ticks
) -> None:
    """A queue that delivers an input again, at once or much later, gets the result and nothing acts twice."""
    workflow = talking(ticks)
    checkpoint = place.create(workflow)
    results = [
        (await workflow.run(f"q{n}", checkpoint=checkpoint, input_id=f"in-{n}")).get_outputs()
        for n in range(1, 4)
    ]
    checkpoint = await place.reload()
    for n in (3, 1, 2, 1):
        again = await unchanged(
            checkpoint, lambda n=n: workflow.run(f"q{n}", checkpoint=checkpoint, input_id=f"in-{n}")
        )
        assert again.get_outputs() == results[n - 1]
    assert ticks.all() == dict.fromkeys("abc", 3)


@every_storage
async def test_c33_answers_delivered_again_are_known_in_any_order_and_form(
    place: Place, ticks: Ticks
) -> None:
    workflow = fan(
        Step("src", ticks), [YieldsAndAsks("p", ticks), YieldsAndAsks("q", ticks)], Join("j", ticks)
    )
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint, input_id="in-1")
    p, q = (request.request_id for request in checkpoint.pending_requests)
    first = await workflow.run(responses={q: "2", p: "1"}, checkpoint=checkpoint, input_id="in-2")
    assert first.get_outputs() == ["asking about x>src", "asking about x>src", ["x>src>p=1", "x>src>q=2"]]
    for later in (False, True):
        if later:
            await workflow.run("y", checkpoint=checkpoint, input_id="in-3")
        checkpoint = await place.reload()
        before = ticks.all()
        for answers in ({p: "1", q: "2"}, {q: "2", p: "1"}):

            def deliver(checkpoint: Checkpoint = checkpoint, answers: dict[str, str] = answers) -> Any:
                return workflow.run(responses=answers, checkpoint=checkpoint, input_id="in-2")

            again = await unchanged(checkpoint, deliver)
            assert again.get_outputs() == first.get_outputs()
        assert ticks.all() == before
