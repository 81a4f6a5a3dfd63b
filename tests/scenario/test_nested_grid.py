"""Rewinds, pauses, depths and storages, crossed: from every boundary of a nested run there is a way to its end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from branchpoint import Checkpoint, Workflow, WorkflowBuilder, WorkflowExecutor
from tests.scenario.kit import Ask, Join, Place, Step, Ticks, boundaries, chain, every_place
from tests.scenario.nests import behind, lawful, nested

every_depth = pytest.mark.parametrize("depth", [1, 2, 3])


def pausing(ticks: Ticks, pauses: int) -> Workflow:
    """A child of steps with so many questions between them."""
    asks = [Ask(f"q{n}", ticks) for n in range(pauses)]
    return chain(Step("a", ticks), *asks, Step("z", ticks, final=True), name="child")


def expected(answers: list[str], depth: int) -> list[str]:
    text = "x>a" + "".join(f">q{n}={answer}" for n, answer in enumerate(answers))
    return [behind(f"{text}>z", depth)]


async def finish(workflow: Workflow, checkpoint: Checkpoint, answers: Iterator[str]) -> list[str]:
    """Go on to the end, and answer each question as it comes."""
    result = None
    while result is None or checkpoint.status != "idle":
        given = {request.request_id: next(answers) for request in checkpoint.pending_requests}
        if checkpoint.status == "in_progress" or not given:
            result = await workflow.run(checkpoint=checkpoint)
        else:
            result = await workflow.run(responses=given, checkpoint=checkpoint)
    outputs: list[str] = result.get_outputs()
    return outputs


@every_place
@every_depth
@pytest.mark.parametrize("pauses", [0, 1, 2])
@pytest.mark.parametrize("reload", [True, False])
async def test_r51_from_every_boundary_there_is_a_way_to_the_end(
    place: Place, ticks: Ticks, depth: int, pauses: int, reload: bool
) -> None:
    workflow = nested(pausing(ticks, pauses), ticks, depth)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    first = (f"one{n}" for n in itertools.count())
    assert await finish(workflow, checkpoint, first) == expected([f"one{n}" for n in range(pauses)], depth)
    for place_of_rewind, snapshot in enumerate(checkpoint.snapshots):
        way = checkpoint.ancestors(snapshot.snapshot_id)
        answered = sum(one.boundary == "responses_accepted" for one in way)
        if reload:
            checkpoint = await place.reload()
        checkpoint.restart_from(snapshot.snapshot_id)
        new = (f"two{place_of_rewind}" for _ in itertools.count())
        answers = [f"one{n}" for n in range(answered)] + [f"two{place_of_rewind}"] * (pauses - answered)
        assert await finish(workflow, checkpoint, new) == expected(answers, depth)
    await lawful(place, checkpoint)


@every_place
@every_depth
@pytest.mark.parametrize("stop", [1, 2])
async def test_r51_a_run_may_stop_at_every_boundary_of_the_parent(
    place: Place, ticks: Ticks, depth: int, stop: int
) -> None:
    workflow = nested(pausing(ticks, 2), ticks, depth)
    checkpoint = place.create(workflow)
    result = await workflow.run("x", checkpoint=checkpoint, max_supersteps=0)
    number = itertools.count()
    while checkpoint.status != "idle":
        checkpoint = await place.reload()
        given = {request.request_id: f"one{next(number)}" for request in checkpoint.pending_requests} or None
        result = await workflow.run(responses=given, checkpoint=checkpoint, max_supersteps=stop)
    assert result.get_outputs() == expected(["one0", "one1"], depth)
    await lawful(place, checkpoint)


@every_place
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_r51_children_that_wait_are_answered_in_any_order(
    place: Place, ticks: Ticks, order: tuple[int, ...]
) -> None:
    """Three children wait at different depths; each answer comes alone, and each boundary is gone back to."""
    kids = [
        WorkflowExecutor(
            nested(pausing(ticks, 1), ticks, depth) if depth else pausing(ticks, 1), f"in{depth}"
        )
        for depth in range(3)
    ]
    source, join = Step("x", ticks), Join("join", ticks)
    builder = WorkflowBuilder(name="parent", start_executor=source).add_fan_out_edges(source, kids)
    workflow = builder.add_fan_in_edges(kids, join).build()
    checkpoint = place.create(workflow)
    await workflow.run("t", checkpoint=checkpoint)

    def results(answers: list[str]) -> list[list[str]]:
        return [[behind(f"t>x>a>q0={answers[n]}>z", n) for n in range(3)]]

    asked = [request.request_id for request in checkpoint.pending_requests]
    assert [len(request.path) for request in checkpoint.pending_requests] == [1, 2, 3]
    result = None
    for number in order:
        checkpoint = await place.reload()
        result = await workflow.run(responses={asked[number]: f"old{number}"}, checkpoint=checkpoint)
    assert result is not None
    assert result.get_outputs() == results(["old0", "old1", "old2"])
    for snapshot in checkpoint.snapshots:
        if snapshot.boundary != "responses_accepted":
            continue
        way = checkpoint.ancestors(snapshot.snapshot_id)
        known = order[: sum(one.boundary == "responses_accepted" for one in way)]
        checkpoint.restart_from(snapshot.snapshot_id)
        open_now = [number for number in range(3) if number not in known]
        given = {asked[number]: f"new{number}" for number in open_now} or None
        result = await workflow.run(responses=given, checkpoint=checkpoint)
        answers = [f"{'old' if number in known else 'new'}{number}" for number in range(3)]
        assert result.get_outputs() == results(answers)
    assert "child_superstep_completed" in boundaries(checkpoint)
    await lawful(place, checkpoint)
