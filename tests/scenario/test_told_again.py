"""What a call tells that runs nothing: the very events of before, on a paused, completed, edited or forked head."""

from __future__ import annotations

from typing import Any

import pytest

from branchpoint import (
    Checkpoint,
    FileCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    handler,
)
from tests.scenario.kit import (
    Ask,
    Boom,
    Place,
    Scripted,
    Step,
    Ticks,
    chain,
    every_place,
    only_request,
)


def asking(ticks: Ticks) -> Workflow:
    builder = WorkflowBuilder(name="asking", start_executor=Step("src", ticks), output_from=["s", "ask"])
    builder.add_fan_out_edges("src", [Saying("s", ticks), Ask("ask", ticks, final=True), Ask("also", ticks)])
    return builder.add_edge("s", Saying("t", ticks, final=True)).build()


class Saying(Step):
    """Yields, then goes on."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.ticks(self.id)
        await ctx.yield_output(f"{self.id} saw {text}")
        await self.done(f"{text}>{self.id}", ctx)


async def told_by(workflow: Workflow, checkpoint: Checkpoint, way: str, **call: Any) -> list[WorkflowEvent]:
    if way == "run":
        return list(await workflow.run(checkpoint=checkpoint, include_status_events=True, **call))
    return [event async for event in workflow.run(checkpoint=checkpoint, stream=True, **call)]


@every_place
@pytest.mark.parametrize("way", ["run", "stream"])
async def test_what_is_told_again_is_told_by_the_events_of_before(
    place: Place, ticks: Ticks, way: str
) -> None:
    """On a paused head, on a completed one, and for an input that is delivered again later."""
    workflow = asking(ticks)
    checkpoint = place.create(workflow)
    first = await told_by(workflow, checkpoint, way, message="x", input_id="in-1")
    kinds = ("output", "request_info", "status")
    announced = [event for event in first if event.durable and event.type in kinds]
    assert [event.type for event in announced] == ["output", "request_info", "request_info", "status"]
    for again in (checkpoint, await place.reload()):
        told = await told_by(workflow, again, way)
        assert told == announced
        assert all(event in again.events() for event in told)
        assert await told_by(workflow, again, way, message="x", input_id="in-1") == announced
    asked = {request.source_executor_id: request.request_id for request in checkpoint.pending_requests}
    await told_by(workflow, checkpoint, way, responses={asked["ask"]: "1"}, input_id="in-2")
    told = await told_by(workflow, checkpoint, way)
    assert [(event.type, event.input_id) for event in told] == [
        ("output", "in-1"),
        ("output", "in-2"),
        ("request_info", "in-1"),
        ("status", "in-2"),
    ]
    await told_by(workflow, checkpoint, way, responses={asked["also"]: "2"}, input_id="in-3")
    done = await told_by(workflow, checkpoint, way)
    assert [event.type for event in done] == ["output", "output", "status"]
    await told_by(workflow, checkpoint, way, message="y", input_id="in-4")
    checkpoint = await place.reload()
    events = {event.event_id: event for event in checkpoint.events()}
    # The result of an earlier input, by the events of then.
    assert await told_by(workflow, checkpoint, way, message="x", input_id="in-1") == announced
    late = await told_by(workflow, checkpoint, way, responses={asked["also"]: "2"}, input_id="in-3")
    assert late == done
    assert all(events[event.event_id] == event for event in [*announced, *late, *told[:2]])
    assert ticks["src"] == 2


@every_place
async def test_unfinished_work_announces_its_open_questions_by_the_events_of_before(
    place: Place, ticks: Ticks
) -> None:
    failing = True

    async def does(text: str, ctx: Any) -> None:
        if failing:
            raise Boom

    builder = WorkflowBuilder(name="w", start_executor=Step("src", ticks))
    builder.add_fan_out_edges("src", [Ask("ask", ticks, final=True), Step("b", ticks)])
    workflow = builder.add_edge("b", Scripted("c", ticks, does, final=True)).build()
    checkpoint = place.create(workflow)
    seen: list[WorkflowEvent] = []
    with pytest.raises(Boom):
        async for event in workflow.run("x", checkpoint=checkpoint, stream=True):
            seen.append(event)  # noqa: PERF401
    (asked,) = (event for event in seen if event.type == "request_info")
    assert asked.durable
    checkpoint = await place.reload()
    told = []
    with pytest.raises(Boom):
        async for event in workflow.run(checkpoint=checkpoint, stream=True):
            told.append(event)  # noqa: PERF401
    assert [event for event in told if event.type == "request_info"] == [asked]
    # Also from a head that was gone back to, and is committed again first.
    checkpoint.restart_from(checkpoint.snapshots[-1].snapshot_id)
    checkpoint.restart_from(checkpoint.snapshots[2].snapshot_id)
    failing = False
    told = await told_by(workflow, checkpoint, "stream")
    assert [event for event in told if event.type == "request_info"] == [asked]
    assert asked in checkpoint.events()
    assert (only_request(checkpoint), checkpoint.status) == (asked.request_id, "idle_with_pending_requests")


@every_place
async def test_what_an_edit_wrote_a_prune_left_and_a_fork_took_over_is_told_without_an_event_of_its_own(
    place: Place, ticks: Ticks
) -> None:
    workflow = chain(Saying("a", ticks), Saying("b", ticks, final=True))
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    assert checkpoint.head_snapshot is not None
    edited = checkpoint.head_snapshot.state
    edited["messages"]["output"][0]["value"] = "edited"
    await checkpoint.commit_snapshot(state=edited)
    told = await told_by(workflow, checkpoint, "run")
    assert [event.data for event in told] == ["edited", "b saw x>a", "x>a>b", None]
    assert [event.snapshot_id for event in told] == [
        None,
        *[checkpoint.snapshots[2].snapshot_id] * 2,
        checkpoint.head_snapshot_id,
    ]
    assert all(event in checkpoint.events() for event in told if event.durable)
    # The edit produced nothing, so all that it announces is where the turn stands.
    assert [event.type for event in checkpoint.events() if event in told[3:]] == ["status"]
    assert [event.data for event in checkpoint.events() if event.type == "output"] == [
        "a saw x",
        "b saw x>a",
        "x>a>b",
    ]
    # What was pruned takes its events with it.
    removed = await checkpoint.prune()
    assert len(removed) == 3
    told = await told_by(workflow, checkpoint, "run")
    assert [event.data for event in told] == ["edited", "b saw x>a", "x>a>b", None]
    assert [event.snapshot_id for event in told] == [None, None, None, checkpoint.head_snapshot_id]
    assert told[3:] == checkpoint.events()
    fork = await checkpoint.fork()
    told = await told_by(workflow, fork, "run")
    assert [(event.data, event.durable) for event in told] == [
        ("edited", False),
        ("b saw x>a", False),
        ("x>a>b", False),
        (None, True),
    ]
    assert [event for event in told if event.durable] == fork.events()


@every_place
async def test_of_a_turn_whose_end_was_pruned_the_rest_is_told_by_the_events_of_before(
    place: Place, ticks: Ticks
) -> None:
    workflow = chain(Saying("a", ticks), Saying("b", ticks, final=True))
    checkpoint = place.create(workflow)
    first = await told_by(workflow, checkpoint, "run", message="x", input_id="in-1")
    end = checkpoint.head_snapshot_id
    await told_by(workflow, checkpoint, "run", message="y", input_id="in-2")
    await checkpoint.prune(lambda one: one.snapshot_id != end)
    for again in (checkpoint, await place.reload()):
        told = await told_by(workflow, again, "run", message="x", input_id="in-1")
        assert [(event.data, event.durable) for event in told] == [
            ("a saw x", True),
            ("b saw x>a", False),
            ("x>a>b", False),
            (None, False),
        ]
        assert told[0] in first
        assert told[0] in again.events()
    assert ticks["a"] == 2


@pytest.mark.parametrize("lazy_over", [0, 200])
async def test_what_a_lazy_storage_left_behind_is_fetched_to_tell_it(
    runs: Any, ticks: Ticks, lazy_over: int
) -> None:
    workflow = chain(Saying("a", ticks), Saying("b", ticks, final=True))
    checkpoint = workflow.create_checkpoint("run-1", FileCheckpointStorage(runs))
    await workflow.run("x" * 500, checkpoint=checkpoint)
    told = await told_by(workflow, checkpoint, "run")
    lazy = await FileCheckpointStorage(runs, lazy_over=lazy_over).load("run-1")
    assert not all(one.is_loaded for one in lazy.snapshots)
    assert await told_by(workflow, lazy, "run") == told
    assert all(event.durable for event in told)
