"""An input that a queue delivers again much later, after snapshots were pruned or left behind by a fork."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from branchpoint import (
    Checkpoint,
    CheckpointSnapshot,
    Executor,
    Workflow,
    WorkflowContext,
    WorkflowRunResult,
    WorkflowRunState,
    handler,
    response_handler,
)
from branchpoint.errors import SnapshotNotFoundError
from tests.scenario.kit import Place, Step, Ticks, chain, every_file, every_place, lineage

IDLE, PAUSED = WorkflowRunState.IDLE, WorkflowRunState.IDLE_WITH_PENDING_REQUESTS


class Errand(Executor):
    """Yields at once; then asks twice about `ask ...`, and sends anything else on."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(f"began {text}")
        if not text.startswith("ask"):
            await ctx.send_message(text)
            return
        for request_id in ("p", "q"):
            await ctx.request_info(f"{request_id}?", str, request_id=request_id)

    @response_handler
    async def on_answer(self, question: str, answer: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.send_message(f"{question}{answer}")


def errands(ticks: Ticks) -> Workflow:
    return chain(Errand(id="errand"), Step("end", ticks, final=True))


INPUTS: dict[str, dict[str, Any]] = {
    "plain": {"message": "one"},
    "asks": {"message": "ask two"},
    "first answer": {"responses": {"p": "1"}},
    "second answer": {"responses": {"q": "2"}},
    "abandoned": {"message": "three", "max_supersteps": 1},
    "last": {"message": "four"},
}
EARLIER = list(INPUTS)[:-1]
# What each of them was answered with; a turn that was given up left nothing.
RECORDED: dict[str, tuple[WorkflowRunState, list[str], list[str]]] = {
    "plain": (IDLE, ["began one", "one>end"], []),
    "asks": (PAUSED, ["began ask two"], ["p?", "q?"]),
    "first answer": (PAUSED, ["began ask two", "p?1>end"], ["q?"]),
    "second answer": (IDLE, ["began ask two", "p?1>end", "q?2>end"], []),
    "abandoned": (IDLE, [], []),
}
# What is asked is in the snapshots alone; that a turn ended, and with what, is in every later one.
TURN_ENDED = {"plain", "second answer", "abandoned"}
IN_ONE_TURN = {"asks", "first answer", "second answer"}


async def history(place: Place, ticks: Ticks) -> Checkpoint:
    workflow = errands(ticks)
    checkpoint = place.create(workflow)
    for input_id, call in INPUTS.items():
        await workflow.run(checkpoint=checkpoint, input_id=input_id, **call)
        if input_id == "abandoned":
            await checkpoint.abandon()
    return checkpoint


async def delivered_again(checkpoint: Checkpoint, ticks: Ticks, input_id: str) -> WorkflowRunResult:
    before, entered = (lineage(checkpoint), checkpoint.head_snapshot_id), ticks.all()
    try:
        return await errands(ticks).run(checkpoint=checkpoint, input_id=input_id, **INPUTS[input_id])
    finally:
        assert ((lineage(checkpoint), checkpoint.head_snapshot_id), ticks.all()) == (before, entered)


def answer_of(result: WorkflowRunResult) -> tuple[WorkflowRunState, list[Any], list[Any]]:
    asked = [event.data for event in result.get_request_info_events()]
    outputs = result.get_outputs()
    assert outputs == [event.data for event in result if event.type == "output"]
    return result.get_final_state(), outputs, asked


@every_place
@pytest.mark.parametrize("input_id", EARLIER)
async def test_c31_an_earlier_input_is_answered_with_its_recorded_result(
    place: Place, ticks: Ticks, input_id: str
) -> None:
    await history(place, ticks)
    result = await delivered_again(await place.reload(), ticks, input_id)
    assert answer_of(result) == RECORDED[input_id]
    assert result.input_id == input_id


KEEPS: dict[str, Callable[[CheckpointSnapshot], bool]] = {
    "nothing": lambda one: False,
    "input_accepted": lambda one: one.boundary == "input_accepted",
    "responses_accepted": lambda one: one.boundary == "responses_accepted",
    "superstep_completed": lambda one: one.boundary == "superstep_completed",
    "what ends a call": lambda one: one.boundary in ("paused", "completed", "abandoned"),
}


@pytest.mark.parametrize("place", ["none", "memory"], indirect=True)
@pytest.mark.parametrize("keep", [*KEEPS, *range(16)])
async def test_c31_after_any_prune_the_result_is_right_or_said_to_be_lost(
    place: Place, ticks: Ticks, keep: str | int
) -> None:
    checkpoint = await history(place, ticks)
    snapshots = [one.snapshot_id for one in checkpoint.snapshots]
    assert len(snapshots) == 17
    await checkpoint.prune([snapshots[keep]] if isinstance(keep, int) else KEEPS[keep])
    checkpoint = await place.reload()
    for input_id in EARLIER:
        try:
            result = await delivered_again(checkpoint, ticks, input_id)
        except SnapshotNotFoundError as error:
            assert input_id not in TURN_ENDED
            assert f"{input_id!r}" in str(error)
        else:
            assert answer_of(result) == RECORDED[input_id]
            assert result.input_id == input_id
            assert {event.input_id for event in result} <= {input_id, *IN_ONE_TURN}
    if keep == "what ends a call":  # then nothing is lost
        for input_id in EARLIER:
            assert answer_of(await delivered_again(checkpoint, ticks, input_id)) == RECORDED[input_id]


@every_file
async def test_c31_a_fork_knows_how_the_turns_before_it_ended(place: Place, ticks: Ticks) -> None:
    forked = await (await history(place, ticks)).fork(checkpoint_id="forked")
    for checkpoint in (forked, await place.reload("forked")):
        for input_id in EARLIER:
            if input_id in TURN_ENDED:
                assert answer_of(await delivered_again(checkpoint, ticks, input_id)) == RECORDED[input_id]
            else:
                with pytest.raises(SnapshotNotFoundError, match="left behind by a fork"):
                    await delivered_again(checkpoint, ticks, input_id)
