"""Cases of users whose run went on wrongly after it had stopped, once more inside a child: C23 to C35."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from branchpoint import (
    Checkpoint,
    ConvergenceError,
    GraphMismatchError,
    InvalidCallError,
    PendingRequestsError,
    UnfinishedWorkError,
    UnknownRequestError,
    Workflow,
    WorkflowBuilder,
    WorkflowExecutor,
)
from tests.scenario.kit import (
    Ask,
    Boom,
    BoomOnce,
    Join,
    Place,
    Scripted,
    Shuffle,
    Step,
    Ticks,
    bytes_of,
    chain,
    every_place,
    fan,
    lineage,
    only_request,
)
from tests.scenario.nests import around, behind, inside, lawful, nested
from tests.scenario.test_resume_cases import (
    BUFFERED,
    JOINED,
    LAP_TICKS,
    counting,
    deciding,
    laps,
    refused,
    unchanged,
    uneven,
    uninterrupted_laps,
)

every_depth = pytest.mark.parametrize("depth", [1, 2])


def direct(child: Workflow, depth: int) -> Workflow:
    """`depth` workflows around a child, and what it yields is what they yield."""
    return nested(child, Ticks(), depth, allow_direct_output=True)


async def to_the_end_from_each(
    place: Place, workflow: Workflow, checkpoint: Checkpoint, outputs: list[Any]
) -> None:
    """From every boundary there has been, the run ends in the same outputs."""
    for snapshot in checkpoint.snapshots[:-1]:
        checkpoint.restart_from(snapshot.snapshot_id)
        assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == outputs
    await lawful(place, checkpoint)


@every_place
@every_depth
async def test_c23_what_waits_at_a_join_inside_is_kept_and_the_join_fires_once(
    place: Place, ticks: Ticks, depth: int
) -> None:
    def build() -> Workflow:
        return direct(uneven(ticks, "raises"), depth)

    checkpoint = place.create(build())
    with pytest.raises(Boom):
        await build().run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    assert inside(checkpoint, *around(depth))["edge_states"] == BUFFERED
    assert (await build().run(checkpoint=checkpoint)).get_outputs() == [JOINED]
    assert ticks.all() == {"src": 1, "b": 1, "c": 1, "c2": 2, "j": 1}
    await to_the_end_from_each(place, build(), checkpoint, [JOINED])


@every_place
@every_depth
async def test_c23_a_join_of_children_waits_for_the_one_that_asks(
    place: Place, ticks: Ticks, depth: int
) -> None:
    """One side of the join ends at once; the other waits for a person inside its child."""

    def build() -> Workflow:
        asks = nested(chain(Ask("ask", ticks, final=True), name="asks"), ticks, depth - 1)
        quick = chain(Step("q", ticks, final=True), name="quick")
        sides = [WorkflowExecutor(asks, "slow"), WorkflowExecutor(quick, "quick")]
        return fan(Step("src", ticks), sides, Join("j", ticks))

    checkpoint = place.create(build())
    await build().run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    assert checkpoint.head_snapshot is not None
    waiting = checkpoint.head_snapshot.state["edge_states"]["fan_in:quick,slow->j"]
    assert waiting == {"received": {"quick": ["x>src>q"]}}
    result = await build().run(responses={only_request(checkpoint): "y"}, checkpoint=checkpoint)
    assert result.get_outputs() == [[behind("x>src>ask=y", depth - 1), "x>src>q"]]
    assert ticks["j"] == ticks["q"] == ticks["ask"] == 1


@every_place
@every_depth
@pytest.mark.parametrize("lap", [1, 2, 3])
async def test_c25_a_cycle_inside_goes_on_after_a_failure_in_any_lap(
    place: Place, ticks: Ticks, depth: int, lap: int
) -> None:
    expected = await uninterrupted_laps()
    failing = Ticks()

    def build() -> Workflow:
        async def boom(text: str, ctx: Any) -> None:
            if failing("l") == lap:
                raise Boom(text)

        return direct(laps(ticks, left=Scripted("l", ticks, boom)), depth)

    checkpoint = place.create(build())
    with pytest.raises(Boom):
        await build().run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    assert (await build().run(checkpoint=checkpoint)).get_outputs() == expected
    # Nothing but the superstep that failed ran twice.
    assert ticks.all() == LAP_TICKS | {"l": 4, "r": ticks["r"]}
    assert ticks["r"] in (3, 4)
    await to_the_end_from_each(place, build(), checkpoint, expected)


@every_place
@every_depth
async def test_c26_a_finished_run_with_children_is_not_begun_again(
    place: Place, ticks: Ticks, depth: int
) -> None:
    workflow = nested(chain(Step("a", ticks), Step("z", ticks, final=True)), ticks, depth)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    acted = ticks.all()
    checkpoint = await place.reload()
    for bound in (None, 0):
        result = await unchanged(
            checkpoint, lambda bound=bound: workflow.run(checkpoint=checkpoint, max_supersteps=bound)
        )
        assert result.get_outputs() == [behind("x>a>z", depth)]
    assert ticks.all() == acted


@every_place
@every_depth
@pytest.mark.parametrize("position", [0, 1, 2])
async def test_c27_the_step_inside_that_failed_runs_again_with_the_same_message(
    place: Place, ticks: Ticks, depth: int, position: int
) -> None:
    def build() -> Workflow:
        steps = [(BoomOnce if n == position else Step)(id, ticks, final=n == 2) for n, id in enumerate("abz")]
        return nested(chain(*steps), ticks, depth)

    checkpoint = place.create(build())
    failing, got = "abz"[position], "x" + "".join(f">{id}" for id in "abz"[:position])
    with pytest.raises(Boom) as caught:
        await build().run("x", checkpoint=checkpoint)
    assert str(caught.value) == f"{failing} got {got}"
    checkpoint = await place.reload()
    assert checkpoint.status == "in_progress"
    assert (await build().run(checkpoint=checkpoint)).get_outputs() == [behind("x>a>b>z", depth)]
    steps = {"a": 1, "b": 1, "z": 1} | {failing: 2}
    assert ticks.all() == steps | {f"after{level}": 1 for level in range(depth)}


@every_place
@every_depth
@pytest.mark.parametrize("kind", ["edge", "switch", "selection"])
async def test_c29_a_condition_inside_that_raised_is_asked_again_on_resume(
    place: Place, ticks: Ticks, depth: int, kind: str
) -> None:
    workflow = nested(deciding(kind, True, ticks), ticks, depth)
    checkpoint = place.create(workflow)
    with pytest.raises(Boom, match="cond"):
        await workflow.run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == [behind("x>a>sink", depth)]
    assert (ticks["a"], ticks["cond"], ticks["sink"]) == (2, 2, 1)
    assert inside(checkpoint, *around(depth))["workflow_state"]["shared"] == {"n.a": 1}


@every_place
@every_depth
@pytest.mark.parametrize("change", ["step renamed", "step added", "child renamed"])
async def test_c30_another_child_is_refused_before_anything_runs_and_the_old_one_resumes(
    place: Place, ticks: Ticks, depth: int, change: str
) -> None:
    def build(change: str = "") -> Workflow:
        steps: list[Step] = [Step("start" if change != "step renamed" else "begin", ticks), Ask("ask", ticks)]
        steps += [Step("more", ticks)] * (change == "step added")
        name = "other" if change == "child renamed" else "child"
        return nested(chain(*steps, Step("fin", ticks, final=True), name=name), ticks, depth)

    checkpoint = place.create(build())
    await build().run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    rid, acted = only_request(checkpoint), ticks.all()
    changed = build(change)
    for call in ({}, {"message": "y"}, {"responses": {rid: "yes"}}, {"max_supersteps": 0}):
        words = await refused(
            checkpoint, GraphMismatchError, lambda call=call: changed.run(checkpoint=checkpoint, **call)
        )
        assert {"step renamed": "begin", "step added": "more", "child renamed": "other"}[change] in words
    assert ticks.all() == acted
    result = await build().run(responses={rid: "yes"}, checkpoint=checkpoint)
    assert result.get_outputs() == [behind("x>start>ask=yes>fin", depth)]


@every_place
@every_depth
async def test_c31_a_turn_of_a_parent_is_a_turn_of_its_children_with_a_bound_of_its_own(
    place: Place, ticks: Ticks, depth: int
) -> None:
    def build() -> Workflow:
        child = chain(Step("a", ticks), Step("b", ticks), Step("c", ticks, final=True), max_iterations=3)
        return nested(child, ticks, depth)

    checkpoint = place.create(build())
    for turn, question in enumerate(["q1", "q2", "q3"], 1):
        result = await build().run(question, checkpoint=checkpoint)
        assert result.get_outputs() == [behind(f"{question}>a>b>c", depth)]
        assert len(checkpoint.outputs()) == turn
        checkpoint = await place.reload()
    assert ticks["a"] == ticks["b"] == ticks["c"] == 3


@every_place
@every_depth
async def test_c33_while_a_child_waits_every_mix_does_one_thing_or_is_refused(
    place: Place, ticks: Ticks, depth: int
) -> None:
    workflow = nested(chain(Ask("ask", ticks), BoomOnce("fin", ticks, final=True)), ticks, depth)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    rid = only_request(checkpoint)

    def call(*args: Any, **more: Any) -> Callable[[], Any]:
        return lambda: workflow.run(*args, checkpoint=checkpoint, **more)

    assert rid in await refused(checkpoint, PendingRequestsError, call("new"))
    await refused(checkpoint, InvalidCallError, call("new", responses={rid: "1"}))
    await refused(checkpoint, InvalidCallError, call(responses={}))
    await refused(checkpoint, UnknownRequestError, call(responses={rid: "1", "other": "2"}))
    result = await unchanged(checkpoint, call())
    assert [event.request_id for event in result.get_request_info_events()] == [rid]
    assert ticks.all() == {"ask": 1}
    with pytest.raises(Boom):
        await call(responses={rid: "1"})()
    checkpoint = await place.reload()
    await refused(checkpoint, UnfinishedWorkError, call("new"))
    await refused(checkpoint, UnknownRequestError, call(responses={rid: "1"}))
    assert (await call()()).get_outputs() == [behind("x>ask=1>fin", depth)]
    assert ticks["ask"] == ticks["ask.answer"] == 1


@every_place
@every_depth
async def test_c34_the_ceiling_of_a_child_is_an_error_and_a_larger_one_resumes(
    place: Place, ticks: Ticks, depth: int
) -> None:
    def build(bound: int) -> Workflow:
        return direct(counting(ticks, bound), depth)

    checkpoint = place.create(build(4))
    for message in ({"message": "x"}, {}):
        with pytest.raises(ConvergenceError):
            await build(4).run(checkpoint=checkpoint, **message)
        checkpoint = await place.reload()
        assert checkpoint.status == "in_progress"
        assert inside(checkpoint, *around(depth))["workflow_state"]["iteration_count"] == 4
    assert (await build(20).run(checkpoint=checkpoint)).get_outputs() == [10]
    assert inside(checkpoint, *around(depth))["workflow_state"]["iteration_count"] == 10


@every_depth
@pytest.mark.parametrize("crash", [False, True])
async def test_c35_values_of_parallel_children_stay_with_their_ids_whatever_the_timing(
    depth: int, crash: bool
) -> None:
    found = set()
    for seed in range(8):
        shuffle, ticks = Shuffle(seed), Ticks()

        async def slowly(text: str, ctx: Any, shuffle: Shuffle = shuffle) -> None:
            await shuffle.turn()

        async def boom(text: str, ctx: Any, ticks: Ticks = ticks) -> None:
            if crash and ticks("boom") == 1:
                raise Boom(text)

        def side(id: str, slowly: Callable[..., Any] = slowly, ticks: Ticks = ticks) -> WorkflowExecutor:
            child = chain(Scripted("s", ticks, slowly), Scripted("t", ticks, slowly, final=True), name="side")
            return WorkflowExecutor(nested(child, ticks, depth - 1), id)

        src, tail = Step("src", ticks), Scripted("tail", ticks, boom, final=True)
        join = Join("j", ticks)
        builder = WorkflowBuilder(name="parallel", start_executor=src)
        sides = [side(id) for id in ("b2", "b1", "b3")]
        for one in sides:
            builder.add_edge(src, one)
        builder.add_edge(src, tail).add_fan_in_edges([*sides, tail], join)
        workflow = builder.build()
        checkpoint = workflow.create_checkpoint()
        try:
            result = await workflow.run("x", checkpoint=checkpoint)
        except Boom:
            result = await workflow.run(checkpoint=checkpoint)
        found.add(repr(result.get_outputs()))
    assert len(found) == 1, found


@every_place
async def test_c26_reading_a_finished_run_with_children_changes_nothing(place: Place, ticks: Ticks) -> None:
    workflow = nested(chain(Ask("ask", ticks, final=True)), ticks, 2)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    await workflow.run(responses={only_request(checkpoint): "y"}, checkpoint=checkpoint)
    checkpoint = await place.reload()
    before = lineage(checkpoint), bytes_of(checkpoint)
    for _ in range(2):
        assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == [behind("x>ask=y", 2)]
    assert (lineage(checkpoint), bytes_of(checkpoint)) == before
