"""Questions of functional workflows: where a function pauses, and how it goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from branchpoint import (
    CheckpointConflictError,
    ExecutorStateError,
    HandlerError,
    InvalidResponseError,
    RequestCancelled,
    WorkflowExecutor,
)
from branchpoint.functional import RunContext, get_run_context, step, workflow
from tests.scenario.kit import Boom, Place, Step, Ticks, chain, every_place, every_storage
from tests.scenario.nests import lawful


def ids_of(result: Any) -> list[str]:
    return [str(one.request_id) for one in result.get_request_info_events()]


async def test_r53_steps_that_are_under_way_are_waited_for_before_the_pause(ticks: Ticks) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    @step
    async def slow() -> str:
        ticks("slow")
        begun.set()
        await gate.wait()
        return "slow"

    @step
    async def after(text: str) -> str:
        ticks("after")
        return f"{text} and after"

    async def branch() -> str:
        return await after(await slow())

    @workflow
    async def both(n: int, ctx: RunContext) -> list[Any]:
        return list(await asyncio.gather(ctx.request_info("?", int), branch()))

    async def call() -> Any:
        return await both.run(1, checkpoint=cp)

    cp = both.create_checkpoint()
    running = asyncio.create_task(call())
    await begun.wait()
    for _ in range(100):
        await asyncio.sleep(0)
    assert not running.done()
    gate.set()
    [asked] = ids_of(await running)
    assert [one.boundary for one in cp.snapshots][1:] == ["step_completed", "step_completed", "paused"]
    assert (await both.run(responses={asked: 4}, checkpoint=cp)).get_outputs() == [[4, "slow and after"]]
    assert ticks.all() == {"slow": 1, "after": 1}


@pytest.mark.parametrize("swallows", ["Exception", "BaseException", "finally"])
async def test_r53_a_function_cannot_swallow_its_pause(swallows: str, ticks: Ticks) -> None:
    @step
    async def work(n: int) -> int:
        ticks("work")
        return n

    @workflow
    async def stubborn(n: int, ctx: RunContext) -> Any:
        try:
            return await ctx.request_info("?", int)
        except Exception:
            return "swallowed an exception"
        except BaseException:
            if swallows == "Exception":
                raise
            if swallows == "finally":
                await work(1)  # refused while the function is being unwound
            return "swallowed all"

    cp = stubborn.create_checkpoint()
    paused = await stubborn.run(1, checkpoint=cp)
    assert paused.get_outputs() == []
    [asked] = ids_of(paused)
    assert (await stubborn.run(responses={asked: 5}, checkpoint=cp)).get_outputs() == [5]
    assert ticks["work"] == 0


async def test_r53_an_error_while_the_function_is_unwound_is_raised() -> None:
    fails = True

    @workflow
    async def cleaning(n: int, ctx: RunContext) -> int:
        try:
            found: int = await ctx.request_info("?", int)
            return found
        finally:
            if fails:
                raise Boom

    cp = cleaning.create_checkpoint()
    with pytest.raises(Boom):
        await cleaning.run(1, checkpoint=cp)
    assert cp.pending_requests == []
    fails = False
    [asked] = ids_of(await cleaning.run(checkpoint=cp))
    assert (await cleaning.run(responses={asked: 5}, checkpoint=cp)).get_outputs() == [5]


@pytest.mark.parametrize("how", ["gather", "group", "tasks", "wait_for", "timeout"])
async def test_r53_a_question_may_be_awaited_in_any_way(how: str) -> None:
    @workflow
    async def asking(n: int, ctx: RunContext) -> list[int]:
        if how == "gather":
            return list(await asyncio.gather(*(ctx.request_info(k, int) for k in range(n))))
        if how == "group":
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ctx.request_info(k, int)) for k in range(n)]
            return [task.result() for task in tasks]
        if how == "tasks":
            tasks = [asyncio.create_task(ctx.request_info(k, int)) for k in range(n)]
            return [await task for task in tasks]
        if how == "wait_for":
            return [await asyncio.wait_for(ctx.request_info(k, int), 60) for k in range(n)]
        async with asyncio.timeout(60):
            return [await ctx.request_info(k, int) for k in range(n)]

    cp = asking.create_checkpoint()
    result = await asking.run(3, checkpoint=cp)
    rounds = 0
    while asked := result.get_request_info_events():
        rounds += 1
        result = await asking.run(responses={one.request_id: one.data * 10 for one in asked}, checkpoint=cp)
    assert result.get_outputs() == [[0, 10, 20]]
    assert rounds == (1 if how in ("gather", "group", "tasks") else 3)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@every_place
async def test_r53_questions_nobody_needs_any_more_are_withdrawn(place: Place, ticks: Ticks) -> None:
    @workflow
    async def first_wins(n: int, ctx: RunContext) -> str:
        tasks = [asyncio.create_task(ctx.request_info(f"person {k}", str)) for k in range(n)]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return "+".join(sorted(task.result() for task in done))

    def parent() -> Any:
        return chain(WorkflowExecutor(first_wins, "kid"), Step("after", ticks, final=True), name="parent")

    for case, make in enumerate((lambda: first_wins, parent)):
        cp = place.create(make(), f"cp-{case}") if case else place.create(make())
        asked = ids_of(await make().run(3, checkpoint=cp))
        assert len(asked) == 3
        done = await make().run(responses={asked[1]: "yes"}, checkpoint=cp)
        assert done.get_outputs() == ["yes>after" if case else "yes"]
        assert (cp.status, cp.pending_requests) == ("idle", [])
        await lawful(place, cp)


async def test_r53_a_step_may_ask_and_is_done_again_after_the_answer(ticks: Ticks) -> None:
    @step
    async def review(text: str, ctx: RunContext) -> str:
        ticks("review")
        verdict = await ctx.request_info(text, str)
        return f"{text}: {verdict}"

    @step
    async def outer(text: str) -> str:
        ticks("outer")
        return await review(text)

    @workflow
    async def reviews(n: int) -> list[str]:
        return [await outer("one"), *await asyncio.gather(review("two"), review("three"))]

    cp = reviews.create_checkpoint()
    result = await reviews.run(1, checkpoint=cp)
    while asked := result.get_request_info_events():
        result = await reviews.run(responses={one.request_id: f"{one.data}!" for one in asked}, checkpoint=cp)
    assert result.get_outputs() == [["one: one!", "two: two!", "three: three!"]]
    assert ticks.all() == {"outer": 2, "review": 6}


async def test_r53_work_outside_of_steps_is_not_waited_for(ticks: Ticks) -> None:
    async def plain() -> str:
        ticks("plain")
        if ticks["plain"] == 1:
            await asyncio.Event().wait()
        return "plain"

    @workflow
    async def mixed(n: int, ctx: RunContext) -> list[Any]:
        return list(await asyncio.gather(ctx.request_info("?", int), plain()))

    cp = mixed.create_checkpoint()
    [asked] = ids_of(await mixed.run(1, checkpoint=cp))
    assert (await mixed.run(responses={asked: 4}, checkpoint=cp)).get_outputs() == [[4, "plain"]]


async def test_r53_an_answer_is_checked_and_may_be_a_refusal_to_answer() -> None:
    @workflow
    async def asking(n: int) -> str:
        ctx = get_run_context()
        assert ctx is not None
        answer = await ctx.request_info("?", int | RequestCancelled, request_id="mine")
        return "cancelled" if isinstance(answer, RequestCancelled) else f"{answer}"

    cp = asking.create_checkpoint()
    assert ids_of(await asking.run(1, checkpoint=cp)) == ["mine"]
    with pytest.raises(InvalidResponseError):
        await asking.run(responses={"mine": "text"}, checkpoint=cp)
    done = await asking.run(responses={"mine": RequestCancelled("no time")}, checkpoint=cp)
    assert done.get_outputs() == ["cancelled"]


@every_storage
async def test_r53_two_answers_at_once_do_not_both_win(place: Place, ticks: Ticks) -> None:
    @step
    async def act(answer: str) -> str:
        ticks(f"act-{answer}")
        return answer

    @workflow
    async def approval(n: int, ctx: RunContext) -> str:
        return await act(await ctx.request_info("?", str))

    cp = place.create(approval)
    [asked] = ids_of(await approval.run(1, checkpoint=cp))
    one, two = await place.reload(), await place.reload()
    assert (await approval.run(responses={asked: "yes"}, checkpoint=one)).get_outputs() == ["yes"]
    with pytest.raises(CheckpointConflictError):
        await approval.run(responses={asked: "no"}, checkpoint=two)
    assert ticks.all() == {"act-yes": 1}


async def test_r53_a_failure_after_some_answers_loses_none(ticks: Ticks) -> None:
    fails = True

    @step
    async def act(answer: str) -> str:
        ticks(answer)
        if fails and answer == "b":
            raise Boom
        return answer

    async def branch(place: int, ctx: RunContext) -> str:
        return await act(await ctx.request_info(place, str))

    @workflow
    async def several(n: int, ctx: RunContext) -> list[str]:
        return [await one for one in [asyncio.create_task(branch(k, ctx)) for k in range(n)]]

    cp = several.create_checkpoint()
    asked = ids_of(await several.run(3, checkpoint=cp))
    with pytest.raises(Boom):
        await several.run(responses={asked[0]: "a", asked[1]: "b"}, checkpoint=cp)
    fails = False
    result = await several.run(responses={asked[2]: "c"}, checkpoint=cp)
    assert result.get_outputs() == [["a", "b", "c"]]
    assert ticks.all() == {"a": 1, "b": 2, "c": 1}


async def test_r53_a_sync_step_cannot_ask() -> None:
    @step
    def sync(ctx: RunContext) -> int:
        ctx.request_info("?", int)
        return 1

    @workflow
    async def asking(n: int) -> int:
        return await sync()

    with pytest.raises(HandlerError, match="thread of a sync step"):
        await asking.run(1, checkpoint=asking.create_checkpoint())


async def test_r53_abandoned_work_leaves_nothing_for_the_next_turn(ticks: Ticks) -> None:
    @step
    async def work(n: int) -> int:
        ticks("work")
        return n

    @workflow
    async def asking(n: int, ctx: RunContext) -> int:
        await work(1)
        answer: int = await ctx.request_info("?", int)
        return answer

    cp = asking.create_checkpoint()
    await asking.run(1, checkpoint=cp)
    await cp.abandon("no need")
    await asking.run(1, checkpoint=cp)
    assert ticks["work"] == 2


async def test_r53_a_function_that_still_moves_is_not_unwound() -> None:
    @step
    async def quick(n: int) -> int:
        return n

    async def turns(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def late(ctx: RunContext) -> int:
        for n in range(4):
            await turns(15)
            await quick(n)
        await turns(15)
        answer: int = await ctx.request_info("late", int)
        return answer

    @workflow
    async def both(n: int, ctx: RunContext) -> int:
        return sum(await asyncio.gather(ctx.request_info("early", int), late(ctx)))

    cp = both.create_checkpoint()
    asked = (await both.run(1, checkpoint=cp)).get_request_info_events()
    assert [one.data for one in asked] == ["early", "late"]


async def test_r53_the_context_of_another_run_is_refused() -> None:
    kept: list[RunContext] = []

    @workflow
    async def keeping(n: int, ctx: RunContext) -> None:
        kept.append(ctx)
        await kept[0].request_info("?", int)

    await keeping.run(1, checkpoint=keeping.create_checkpoint())
    with pytest.raises(ExecutorStateError, match="does not run in it"):
        await keeping.run(1, checkpoint=keeping.create_checkpoint())
