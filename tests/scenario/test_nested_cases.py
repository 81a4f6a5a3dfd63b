"""Workflows inside of workflows: waiting, answering, overlapping calls, going back, and being cancelled."""

from __future__ import annotations

import asyncio

import pytest

from branchpoint import (
    Checkpoint,
    UnknownRequestError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
    response_handler,
)
from tests.scenario.kit import (
    Ask,
    LoopTime,
    Place,
    Scripted,
    Step,
    Ticks,
    boundaries,
    chain,
    every_place,
    only_request,
)
from tests.scenario.leaving import Exit, Stuck, every_exit_somewhere, settled
from tests.scenario.nests import around, behind, beside, inside, lawful, nested

every_depth = pytest.mark.parametrize("depth", [1, 2, 3])


# C73: the parent waits as long as the child does.


@every_place
@every_depth
async def test_c73_the_parent_goes_on_only_when_the_child_has_finished(
    place: Place, ticks: Ticks, depth: int
) -> None:
    workflow = nested(chain(Ask("ask", ticks, final=True), name="child"), ticks, depth)
    checkpoint = place.create(workflow)
    result = await workflow.run("x", checkpoint=checkpoint)
    assert result.get_outputs() == []
    assert checkpoint.status == "idle_with_pending_requests"
    assert ticks.all() == {"ask": 1}
    checkpoint = await place.reload()
    (request,) = checkpoint.pending_requests
    assert (request.path, request.source_executor_id, request.data) == (around(depth), "ask", "ask?x")
    result = await workflow.run(responses={request.request_id: "yes"}, checkpoint=checkpoint)
    assert result.get_outputs() == [behind("x>ask=yes", depth)]
    assert checkpoint.status == "idle"
    assert ticks.all() == {"ask": 1, "ask.answer": 1, **{f"after{n}": 1 for n in range(depth)}}
    await lawful(place, checkpoint)


class Early(Ask):
    """Yields before it asks."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(f"early {text}")
        await ctx.request_info(f"?{text}", str)


@every_place
async def test_c73_what_the_child_yields_before_it_asks_waits_too(place: Place, ticks: Ticks) -> None:
    workflow = nested(chain(Early("ask", ticks, final=True), name="child"), ticks)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    assert ticks["after0"] == 0
    checkpoint = await place.reload()
    result = await workflow.run(responses={only_request(checkpoint): "yes"}, checkpoint=checkpoint)
    assert result.get_outputs() == [behind("early x"), behind("x>ask=yes")]
    assert ticks["after0"] == 2


# C74: an answered question is not asked again.


@every_place
@every_depth
async def test_c74_after_an_answer_only_the_new_question_is_open(
    place: Place, ticks: Ticks, depth: int
) -> None:
    child = chain(Ask("q1", ticks), Ask("q2", ticks, final=True), name="child")
    workflow = nested(child, ticks, depth)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    first = only_request(checkpoint)
    checkpoint = await place.reload()
    await workflow.run(responses={first: "one"}, checkpoint=checkpoint)
    checkpoint = await place.reload()
    (request,) = checkpoint.pending_requests
    assert request.data == "q2?x>q1=one"
    assert [*inside(checkpoint, *around(depth))["messages"]["pending"]["requests"]] == [request.request_id]
    with pytest.raises(UnknownRequestError):
        await workflow.run(responses={first: "again"}, checkpoint=checkpoint)
    result = await workflow.run(responses={request.request_id: "two"}, checkpoint=checkpoint)
    assert result.get_outputs() == [behind("x>q1=one>q2=two", depth)]
    assert (ticks["q1"], ticks["q1.answer"], ticks["q2"], ticks["q2.answer"]) == (1, 1, 1, 1)
    await lawful(place, checkpoint)


@every_place
@every_depth
@pytest.mark.parametrize("first", [0, 1])
async def test_c74_what_is_open_still_is_not_asked_again(
    place: Place, ticks: Ticks, depth: int, first: int
) -> None:
    """Two questions at once, of which one is answered."""
    asks = [Ask("q1", ticks, final=True), Ask("q2", ticks, final=True)]
    source = Step("src", ticks)
    child = WorkflowBuilder(name="child", start_executor=source).add_fan_out_edges(source, asks).build()
    workflow = nested(child, ticks, depth)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    asked = [request.request_id for request in checkpoint.pending_requests]
    checkpoint = await place.reload()
    result = await workflow.run(responses={asked[first]: "yes"}, checkpoint=checkpoint)
    assert [event for event in result if event.type == "request_info"] == []
    assert [request.request_id for request in checkpoint.pending_requests] == [asked[1 - first]]
    assert ticks["after0"] == 0
    result = await workflow.run(responses={asked[1 - first]: "too"}, checkpoint=checkpoint)
    answers = ["yes", "too"] if first == 0 else ["too", "yes"]
    results = [behind(f"x>src>q{n}={answer}", depth) for n, answer in enumerate(answers, 1)]
    assert sorted(result.get_outputs()) == sorted(results)
    assert (ticks["q1"], ticks["q2"]) == (1, 1)
    await lawful(place, checkpoint)


# C75: overlapping calls are kept apart.


class Twice(Step):
    """Asks twice, one after the other, and yields both answers."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.request_info([text], str)

    @response_handler
    async def on_answer(self, asked: list[str], answer: str, ctx: WorkflowContext[str, str]) -> None:
        if len(asked) == 1:
            await ctx.request_info([*asked, answer], str)
        else:
            await ctx.yield_output(f"{asked[0]}:{asked[1]},{answer}")


class Both(Step):
    """Calls the child twice in one superstep."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.send_message("A")
        await ctx.send_message("B")


def sending_both(child: Workflow, ticks: Ticks) -> Workflow:
    kid = WorkflowExecutor(child, "kid")
    return chain(Both("both", ticks), kid, Step("after", ticks, final=True), name="parent")


def asking(checkpoint: Checkpoint) -> dict[str, str]:
    """The open requests: who is asked for, and under which id."""
    return {request.data[0]: request.request_id for request in checkpoint.pending_requests}


@every_place
@pytest.mark.parametrize("reload", [True, False])
async def test_c75_answers_of_overlapping_calls_are_not_mixed(
    place: Place, ticks: Ticks, reload: bool
) -> None:
    workflow = sending_both(chain(Twice("twice", ticks), name="child"), ticks)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    results: list[str] = []
    for who, answer in [("A", "A1"), ("B", "B1"), ("B", "B2"), ("A", "A2")]:
        result = await workflow.run(responses={asking(checkpoint)[who]: answer}, checkpoint=checkpoint)
        results += result.get_outputs()
        if reload:
            checkpoint = await place.reload()
    assert sorted(set(results)) == ["A:A1,A2>after", "B:B1,B2>after"]
    assert checkpoint.status == "idle"
    assert [*inside_names(checkpoint)] == ["0"]  # a call that overlapped leaves nothing
    await lawful(place, checkpoint)


@every_place
async def test_c75_answers_given_together_are_not_mixed_either(place: Place, ticks: Ticks) -> None:
    workflow = sending_both(chain(Twice("twice", ticks), name="child"), ticks)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    for turn in ("1", "2"):
        answers = {key: f"{who}{turn}" for who, key in asking(checkpoint).items()}
        result = await workflow.run(responses=dict(reversed(answers.items())), checkpoint=checkpoint)
    assert result.get_outputs() == ["A:A1,A2>after", "B:B1,B2>after"]
    await lawful(place, checkpoint)


def inside_names(checkpoint: Checkpoint) -> list[str]:
    assert checkpoint.head_snapshot is not None
    return list(checkpoint.head_snapshot.state["executor_states"]["kid"]["executions"])


# C77: children of one workflow do not share what they save.


@every_place
async def test_c77_children_of_one_workflow_do_not_share_what_they_save(place: Place, ticks: Ticks) -> None:
    child = chain(Step("a", ticks), Ask("ask", ticks, final=True), name="child")
    kids = [WorkflowExecutor(child, f"kid{n}", allow_direct_output=True) for n in (1, 2)]
    workflow = beside(kids, ticks)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    first, second = checkpoint.pending_requests
    assert (first.path, second.path) == (("kid1",), ("kid2",))
    assert first.request_id != second.request_id
    result = await workflow.run(responses={second.request_id: "2"}, checkpoint=checkpoint)
    assert [event.executor_id for event in result if event.type == "output"] == ["kid2"]
    assert [request.path for request in checkpoint.pending_requests] == [("kid1",)]
    result = await workflow.run(responses={first.request_id: "1"}, checkpoint=checkpoint)
    assert sorted(result.get_outputs()) == ["x>src>a>ask=1", "x>src>a>ask=2"]
    await lawful(place, checkpoint)


async def test_c77_copies_of_one_checkpoint_end_with_their_own_answers(ticks: Ticks) -> None:
    workflow = nested(chain(Ask("ask", ticks, final=True), name="child"), ticks)
    checkpoint = workflow.create_checkpoint("run-1")
    await workflow.run("x", checkpoint=checkpoint)
    copies = [await checkpoint.fork(checkpoint_id=f"copy-{n}") for n in range(2)]
    runs = [
        workflow.run(responses={only_request(copy): str(n)}, checkpoint=copy) for n, copy in enumerate(copies)
    ]
    results = await asyncio.gather(*runs)
    assert [one.get_outputs() for one in results] == [[behind("x>ask=0")], [behind("x>ask=1")]]


# C78: going back into a child does not run it from its start.


@every_place
@every_depth
@pytest.mark.parametrize("rewind", [True, False])
async def test_c78_going_back_to_a_waiting_child_runs_only_what_is_behind(
    place: Place, ticks: Ticks, depth: int, rewind: bool
) -> None:
    steps = [Step("a", ticks), Step("b", ticks), Ask("ask", ticks), Step("d", ticks, final=True)]
    workflow = nested(chain(*steps, name="child"), ticks, depth)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    waiting, request = checkpoint.head_snapshot_id, only_request(checkpoint)
    if rewind:
        await workflow.run(responses={request: "first"}, checkpoint=checkpoint)
        checkpoint.restart_from(waiting)
    else:
        checkpoint = await place.reload()
    before = ticks.all()
    result = await workflow.run(responses={request: "second"}, checkpoint=checkpoint)
    assert result.get_outputs() == [behind("x>a>b>ask=second>d", depth)]
    assert ticks.all() - before == {"ask.answer": 1, "d": 1, **{f"after{n}": 1 for n in range(depth)}}
    await lawful(place, checkpoint)


@every_place
@every_depth
async def test_c78_every_boundary_inside_can_be_gone_back_to(place: Place, ticks: Ticks, depth: int) -> None:
    steps = [Step("a", ticks), Step("b", ticks), Step("c", ticks), Step("d", ticks, final=True)]
    workflow = nested(chain(*steps, name="child"), ticks, depth)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    inner = [one for one in checkpoint.snapshots if one.boundary == "child_superstep_completed"]
    assert len(inner) >= 3
    for done, snapshot in enumerate(inner[:3], 1):
        checkpoint.restart_from(snapshot.snapshot_id)
        before = ticks.all()
        result = await workflow.run(checkpoint=checkpoint)
        assert result.get_outputs() == [behind("x>a>b>c>d", depth)]
        again = dict.fromkeys("abcd"[done:], 1)
        assert ticks.all() - before == {**again, **{f"after{n}": 1 for n in range(depth)}}
    await lawful(place, checkpoint)


# C82: whoever cancels the parent cancels the child.


@every_exit_somewhere
@pytest.mark.parametrize("depth", [1, 2])
async def test_c82_whoever_leaves_ends_the_child(place: Place, ticks: Ticks, leave: Exit, depth: int) -> None:
    stuck = Stuck(ticks)
    child = chain(Step("a", ticks), Scripted("b", ticks, stuck), Step("c", ticks, final=True), name="child")
    workflow = nested(child, ticks, depth)
    await leave(workflow, stuck.entered, LoopTime(), message="x", checkpoint=place.create(workflow))
    await settled()
    assert ticks.all() == {"a": 1, "b": 1, "cleaned up": 1}
    checkpoint = await place.reload()
    assert checkpoint.in_use_by is None
    assert boundaries(checkpoint) == ["input_accepted", "child_superstep_completed"]
    result = await workflow.run(checkpoint=checkpoint)
    assert result.get_outputs() == [behind("x>a>b>c", depth)]
    assert ticks["a"] == 1
    await lawful(place, checkpoint)
