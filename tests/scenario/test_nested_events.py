"""What is told of the inside of a child, live and afterwards; and how a child is ended."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import Any, Never

import pytest

from branchpoint import (
    Checkpoint,
    Instrument,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    add_instrument,
    executor,
    remove_instrument,
)
from tests.scenario.kit import (
    Ask,
    Boom,
    LoopTime,
    Place,
    Scripted,
    Step,
    Ticks,
    chain,
    every_place,
    only_request,
    reached,
    turns,
)
from tests.scenario.leaving import settled
from tests.scenario.nests import around, behind, nested

every_depth = pytest.mark.parametrize("depth", [1, 2, 3])


async def heard(workflow: Workflow, stream: bool, **call: Any) -> list[WorkflowEvent]:
    if stream:
        return [event async for event in workflow.run(**call, stream=True, include_status_events=True)]
    return list(await workflow.run(**call, include_status_events=True))


def speaking(ticks: Ticks) -> Workflow:
    @executor(id="speak")
    async def speak(text: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.add_event(WorkflowEvent("data", "progress"))
        await ctx.stream_output("pi")
        await ctx.stream_output("ece")
        await ctx.yield_output("piece")
        await ctx.send_message(text)

    ask = Ask("ask", ticks, final=True)
    return WorkflowBuilder(name="child", start_executor=speak).add_edge(speak, ask).build()


def direct(child: Workflow, depth: int) -> Workflow:
    for level in range(depth):
        kid = WorkflowExecutor(child, f"kid{level}", allow_direct_output=True)
        child = WorkflowBuilder(name=f"parent{level}", start_executor=kid).build()
    return child


# Told again, it is what was told.


@every_place
@every_depth
@pytest.mark.parametrize("stream", [True, False])
async def test_r51_what_is_durable_is_told_again_as_it_was(
    place: Place, ticks: Ticks, depth: int, stream: bool
) -> None:
    workflow = direct(speaking(ticks), depth)
    checkpoint = place.create(workflow)
    told = await heard(workflow, stream, message="x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    given = {only_request(checkpoint): "yes"}
    told += await heard(workflow, stream, responses=given, checkpoint=checkpoint)
    durable = [event for event in told if event.durable]
    assert durable == (await place.reload()).events()
    path = tuple(f"kid{level}" for level in reversed(range(depth)))
    assert [
        (event.type, event.path, event.data) for event in durable if event.type in ("output", "request_info")
    ] == [("output", (), "piece"), ("request_info", path, "ask?x"), ("output", (), "x>ask=yes")]
    again = await heard(workflow, stream, checkpoint=checkpoint)
    assert [event for event in again if event.durable] == [
        event
        for event in durable
        if event.type in ("output", "status") and event.state != "idle_with_pending_requests"
    ]


@every_depth
@pytest.mark.parametrize("stored", [True, False])
async def test_r51_what_happens_inside_is_told_live_with_its_path(
    ticks: Ticks, depth: int, stored: bool
) -> None:
    workflow = nested(chain(Step("a", ticks), Step("b", ticks, final=True), name="child"), ticks, depth)
    checkpoint = workflow.create_checkpoint("run-1") if stored else None
    told = await heard(workflow, True, message="x", checkpoint=checkpoint)
    inmost = [event for event in told if event.path == around(depth)]
    assert [(event.type, event.executor_id, event.iteration) for event in inmost] == [
        ("superstep_started", None, 1),
        ("executor_invoked", "a", None),
        ("executor_completed", "a", None),
        ("superstep_completed", None, 1),
        ("superstep_started", None, 2),
        ("executor_invoked", "b", None),
        ("executor_completed", "b", None),
        ("superstep_completed", None, 2),
    ]
    assert not any(event.durable or event.event_id for event in inmost)
    assert {(event.checkpoint_id, event.input_id, event.superstep) for event in inmost} == {
        ("run-1" if stored else None, told[-1].input_id, 0)
    }
    paths = [event.path for event in told]
    assert set(paths) == {around(depth)[:n] for n in range(depth + 1)}


async def test_r51_pieces_of_an_output_have_its_id(ticks: Ticks) -> None:
    told = await heard(direct(speaking(ticks), 2), True, message="x")
    pieces = [event for event in told if event.type == "output"]
    assert [(event.data, event.path) for event in pieces] == [
        ("pi", ("kid1", "kid0")),
        ("ece", ("kid1", "kid0")),
        ("piece", ()),
    ]
    assert len({event.output_id for event in pieces}) == 1
    (progress,) = [event for event in told if event.type == "data"]
    assert (progress.executor_id, progress.path) == ("speak", ("kid1", "kid0"))


@every_place
async def test_r51_what_is_told_as_complete_inside_is_kept(place: Place, ticks: Ticks) -> None:
    """But for the last superstep of a child, which the parent's keeps; nothing of it is called durable."""
    steps = [Step(id, ticks, final=id == "d") for id in "abcd"]
    workflow = nested(chain(*steps, name="child"), ticks)
    for complete in (1, 2, 3):
        checkpoint: Checkpoint = place.create(workflow, f"run-{complete}")
        async for event in workflow.run("x", checkpoint=checkpoint, stream=True):
            if event.type == "superstep_completed" and event.path and event.iteration == complete:
                break
        checkpoint = await place.reload(f"run-{complete}")
        assert checkpoint.head_snapshot is not None
        kid = checkpoint.head_snapshot.state["executor_states"]["kid"]["executions"]["0"]
        assert kid["workflow_state"]["iteration_count"] >= complete
    await settled()


async def test_r51_a_failure_inside_is_told_at_every_level(ticks: Ticks) -> None:
    async def fail(text: str, ctx: Any) -> None:
        raise Boom("inside")

    workflow = nested(chain(Scripted("a", ticks, fail, final=True), name="child"), ticks, 2)
    told: list[WorkflowEvent] = []
    with pytest.raises(Boom):
        async for event in workflow.run("x", stream=True):
            told += [event]
    failed = [(one.executor_id, one.path) for one in told if one.type == "executor_failed"]
    assert failed == [("a", ("mid", "kid")), ("kid", ("mid",)), ("mid", ())]


@pytest.mark.parametrize("stored", [True, False])
async def test_r51_a_slow_reader_holds_a_child_back(ticks: Ticks, stored: bool) -> None:
    @executor(id="many")
    async def many(text: str, ctx: WorkflowContext[Never, str]) -> None:
        for n in range(5000):
            ticks("told")
            await ctx.add_event(WorkflowEvent("data", n))

    workflow = nested(WorkflowBuilder(name="child", start_executor=many).build(), ticks, 2)
    stream = workflow.run("x", checkpoint=workflow.create_checkpoint() if stored else None, stream=True)
    reader = aiter(stream)
    await anext(reader)
    await turns(50)
    assert ticks["told"] < 1000
    assert [event.data async for event in reader if event.type == "data"] == list(range(5000))


async def test_r51_a_half_filled_join_inside_is_told_with_its_path(ticks: Ticks) -> None:
    b, c, source = Step("b", ticks), Step("c", ticks), Step("src", ticks)

    @executor(id="end")
    async def end(texts: list[str], ctx: WorkflowContext) -> None: ...

    builder = WorkflowBuilder(name="child", start_executor=source).add_edge(source, b)
    child = builder.add_edge(source, c, lambda text: False).add_fan_in_edges([b, c], end).build()
    told = await heard(nested(child, ticks), True, message="x")
    (event,) = [one for one in told if one.type == "incomplete_join"]
    assert (event.path, event.data["received_from"]) == (("kid",), ["b"])


async def test_r51_instruments_are_entered_inside_too(ticks: Ticks) -> None:
    entered: list[Any] = []

    class Watch(Instrument):
        @contextmanager
        def around(self, kind: Any, info: dict[str, Any]) -> Any:
            entered.append((kind, info.get("executor_id"), info.get("superstep")))
            yield
            entered.append(("left", kind))

    workflow = nested(chain(Step("a", ticks, final=True), name="child"), ticks)
    add_instrument(watch := Watch())
    try:
        await workflow.run("x")
    finally:
        remove_instrument(watch)
    assert entered[:8] == [
        ("run", None, None),
        ("superstep", None, 1),
        ("executor", "kid", 1),
        ("superstep", None, 1),
        ("executor", "a", 1),
        ("left", "executor"),
        ("left", "superstep"),
        ("left", "executor"),
    ]


# Ended, with handlers that do not want to.


class Stubborn:
    """Swallows its cancellation, until it is let go."""

    def __init__(self) -> None:
        self.entered, self.go, self.left = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __call__(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.entered.set()
        while not self.go.is_set():
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                pass
        self.left.set()


@every_place
@every_depth
async def test_c82_a_handler_inside_that_does_not_end_is_abandoned(
    place: Place, ticks: Ticks, depth: int, caplog: pytest.LogCaptureFixture
) -> None:
    stubborn, time = Stubborn(), LoopTime()
    steps = [Step("a", ticks), Scripted("b", ticks, stubborn), Step("c", ticks, final=True)]
    workflow = nested(chain(*steps, name="child"), ticks, depth)
    checkpoint = place.create(workflow)
    stream = asyncio.ensure_future(workflow.run("x", checkpoint=checkpoint))
    await reached(stubborn.entered, stream)
    stream.cancel("why")
    await turns(10)
    assert not stream.done()  # it has its grace period
    time.forward(6)
    with pytest.raises(asyncio.CancelledError, match="why"):
        await stream
    # Of all the levels only the handler is left, and named.
    assert ["executor 'b' did not end" in record.message for record in caplog.records] == [True]
    here = asyncio.current_task()
    assert len([task for task in asyncio.all_tasks() if task is not here]) == 1
    checkpoint = await place.reload()
    head = checkpoint.head_snapshot_id
    assert checkpoint.in_use_by is None
    stubborn.go.set()
    await stubborn.left.wait()
    await settled()
    assert (await place.reload()).head_snapshot_id == head
    result = await workflow.run(checkpoint=checkpoint)
    assert result.get_outputs() == [behind("x>a>b>c", depth)]
    assert ticks["a"] == 1


@every_depth
async def test_c82_a_sibling_that_fails_ends_a_child(ticks: Ticks, depth: int) -> None:
    entered = asyncio.Event()

    async def wait(text: str, ctx: Any) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ticks("cleaned up")

    async def fail(text: str, ctx: Any) -> None:
        await entered.wait()
        raise Boom("sibling")

    child = chain(Step("a", ticks), Scripted("b", ticks, wait, final=True), name="child")
    kid = WorkflowExecutor(nested(child, ticks, depth - 1) if depth > 1 else child, "outer")
    source, sibling = Step("src", ticks), Scripted("sib", ticks, fail)
    builder = WorkflowBuilder(name="parent", start_executor=source)
    workflow = builder.add_fan_out_edges(source, [kid, sibling]).build()
    with pytest.raises(Boom, match="sibling"):
        await workflow.run("x", checkpoint=workflow.create_checkpoint())
    assert ticks["cleaned up"] == 1
    assert len(asyncio.all_tasks()) == 1
