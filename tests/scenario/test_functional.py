"""Functional workflows: steps that are done are not run again, whatever happens in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from branchpoint.functional import FunctionalWorkflow, RunContext, step, workflow
from tests.scenario.kit import Boom, Place, Ticks, every_place
from tests.scenario.nests import lawful


def boundaries(checkpoint: Any) -> list[str]:
    return [snapshot.boundary for snapshot in checkpoint.snapshots]


def counting(ticks: Ticks, fails: set[int] | None = None) -> FunctionalWorkflow:
    """Doubles in a loop; a step of a number in `fails` raises as long as it is in there."""

    @step
    async def double(n: int) -> int:
        ticks(f"double-{n}")
        if fails and n in fails:
            raise Boom(f"{n}")
        return 2 * n

    @workflow(name="counting")
    async def total(count: int) -> int:
        found = 0
        for n in range(count):
            found += await double(n)
        return found

    return total


@every_place
async def test_r53_finished_steps_are_replayed_after_a_failure(place: Place, ticks: Ticks) -> None:
    fails = {3}
    cp = place.create(counting(ticks, fails))
    with pytest.raises(Boom) as caught:
        await counting(ticks, fails).run(5, checkpoint=cp)
    assert "step 'double'" in caught.value.__notes__
    assert boundaries(cp) == ["input_accepted", *["step_completed"] * 3]
    cp = await place.reload()
    fails.clear()
    result = await counting(ticks).run(checkpoint=cp)
    assert result.get_outputs() == [20]
    assert boundaries(cp) == ["input_accepted", *["step_completed"] * 5, "completed"]
    assert ticks.all() == {"double-0": 1, "double-1": 1, "double-2": 1, "double-3": 2, "double-4": 1}
    await lawful(place, cp)


async def test_r53_a_turn_does_not_see_the_steps_of_the_one_before(ticks: Ticks) -> None:
    total = counting(ticks)
    cp = total.create_checkpoint()
    await total.run(2, checkpoint=cp)
    result = await total.run(3, checkpoint=cp)
    assert result.get_outputs() == [6]
    assert ticks.all() == {"double-0": 2, "double-1": 2, "double-2": 1}


async def test_r53_a_run_without_a_checkpoint_keeps_nothing(ticks: Ticks) -> None:
    class Opaque:
        def __deepcopy__(self, memo: Any) -> Opaque:
            return self

    @step
    async def take(it: Opaque) -> Opaque:
        return it

    @workflow
    async def opaque(n: int) -> str:
        return type(await take(Opaque())).__name__

    assert (await opaque.run(1)).get_outputs() == ["Opaque"]
    assert (await counting(ticks).run(3)).get_outputs() == [6]


@every_place
async def test_r53_a_function_pauses_at_a_question_and_goes_on_with_the_answer(
    place: Place, ticks: Ticks
) -> None:
    @step
    async def draft(topic: str) -> str:
        ticks("draft")
        return f"about {topic}"

    @step
    def publish(text: str) -> str:
        ticks("publish")
        return f"{text}, published"

    @workflow
    async def article(topic: str, ctx: RunContext) -> str:
        ticks("article")
        text = await draft(topic)
        if not await ctx.request_info({"text": text}, bool):
            return "given up"
        return await publish(text)

    cp = place.create(article)
    paused = await article.run("tea", checkpoint=cp)
    [question] = paused.get_request_info_events()
    assert (question.data, question.response_type) == ({"text": "about tea"}, "bool")
    assert boundaries(cp) == ["input_accepted", "step_completed", "paused"]
    again = await article.run(checkpoint=cp)
    assert [one.request_id for one in again.get_request_info_events()] == [question.request_id]
    cp = await place.reload()
    fork = cp.head_snapshot_id
    done = await article.run(responses={question.request_id: True}, checkpoint=cp)
    assert done.get_outputs() == ["about tea, published"]
    assert ticks.all() == {"article": 2, "draft": 1, "publish": 1}
    assert fork is not None
    cp.restart_from(fork)
    other = await article.run(responses={question.request_id: False}, checkpoint=cp)
    assert other.get_outputs() == ["given up"]
    await lawful(place, cp)


@pytest.mark.parametrize("together", [True, False])
async def test_r53_questions_that_are_asked_at_once_may_be_answered_in_any_order(together: bool) -> None:
    @workflow
    async def votes(n: int, ctx: RunContext) -> list[str]:
        return list(await asyncio.gather(*(ctx.request_info(place, str) for place in range(n))))

    cp = votes.create_checkpoint()
    asked = (await votes.run(3, checkpoint=cp)).get_request_info_events()
    assert [one.data for one in asked] == [0, 1, 2]
    answers = {one.request_id: f"answer {one.data}" for one in reversed(asked)}
    if together:
        result = await votes.run(responses=answers, checkpoint=cp)
    else:
        for request_id, answer in answers.items():
            result = await votes.run(responses={request_id: answer}, checkpoint=cp)
    assert result.get_outputs() == [["answer 0", "answer 1", "answer 2"]]
    assert boundaries(cp)[-1] == "completed"


async def test_r53_two_turns_of_one_function_at_once_never_see_each_other(ticks: Ticks) -> None:
    both = asyncio.Barrier(2)

    @step
    async def meet(name: str) -> str:
        ticks(name)
        await both.wait()  # each is in its step while the other is in the same one
        return f"{name} met"

    @workflow
    async def meeting(name: str, ctx: RunContext) -> list[str]:
        ctx.set_state("who", name)
        return [await meet(name), await ctx.request_info(name, str), str(ctx.get_state("who"))]

    cps = {name: meeting.create_checkpoint(name) for name in ("ada", "bob")}
    await asyncio.gather(*(meeting.run(name, checkpoint=cp) for name, cp in cps.items()))
    for name, cp in cps.items():
        [request] = cp.pending_requests
        assert request.data == name
        result = await meeting.run(responses={request.request_id: f"for {name}"}, checkpoint=cp)
        assert result.get_outputs() == [[f"{name} met", f"for {name}", name]]
    assert ticks.all() == {"ada": 1, "bob": 1}
