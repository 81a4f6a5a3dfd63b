"""Steps of functional workflows: which result belongs to which call, and what is kept of them when."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

from branchpoint import Checkpoint, ExecutorStateError, WorkflowExecutor, clock, ids
from branchpoint.functional import FunctionalWorkflow, RunContext, get_run_context, step, workflow
from tests.scenario.kit import Boom, Place, Step, Ticks, chain, every_place
from tests.scenario.nests import lawful


class Gates:
    """Steps that wait until they are let go, one after the other, in an order of choice."""

    def __init__(self) -> None:
        self._gates: dict[Any, asyncio.Event] = {}

    async def wait(self, name: Any) -> None:
        await self._gates.setdefault(name, asyncio.Event()).wait()

    async def open(self, order: list[Any], until: Callable[[int], bool]) -> None:
        """Open gates in an order, each when `until` says of its number that what was before is done."""
        for number, name in enumerate(order):
            while not until(number) or name not in self._gates:
                await asyncio.sleep(0)
            self._gates[name].set()


def branches(gates: Gates, ticks: Ticks) -> FunctionalWorkflow:
    """Branches of two steps each; the second ones have no argument that would tell them apart."""

    @step
    async def first(n: int) -> int:
        await gates.wait(n)
        ticks("first")
        return n

    @step
    async def second() -> str:
        return f"the {ticks('second')}. that was called"

    async def branch(n: int) -> tuple[int, str]:
        return await first(n), await second()

    @workflow(name="branches")
    async def both(count: int) -> list[tuple[int, str]]:
        return await asyncio.gather(*(branch(n) for n in range(count)))

    return both


async def test_r53_results_of_alike_calls_in_branches_are_not_swapped() -> None:
    gates, ticks = Gates(), Ticks()
    fails = True

    @workflow(name="outer")
    async def outer(count: int) -> Any:
        found = await branches(gates, ticks).function(count)
        if fails:
            raise Boom
        return found

    cp = outer.create_checkpoint()
    order = [2, 0, 3, 1]
    running = asyncio.create_task(_run(outer, 4, cp))
    await gates.open(order, lambda number: ticks["second"] == number)
    with pytest.raises(Boom):
        await running
    fails = False
    result = await outer.run(checkpoint=cp)
    told = [[n, f"the {order.index(n) + 1}. that was called"] for n in range(4)]
    assert [list(one) for one in result.get_outputs()[0]] == told
    assert ticks.all() == {"first": 4, "second": 4}


async def _run(workflow: FunctionalWorkflow, message: Any, cp: Checkpoint) -> Any:
    return await workflow.run(message, checkpoint=cp, input_id="in")


async def shuffled(seed: int, count: int) -> tuple[str, list[str]]:
    """Run parallel steps that end in an order of chance; return the digest of the state they end in."""
    gates, done = Gates(), Ticks()

    @step
    async def work(n: int) -> dict[str, Any]:
        await gates.wait(n)
        done("work")
        return {"n": n, "text": "x" * (n % 7) * 20}

    @workflow
    async def many(count: int) -> int:
        return sum(one["n"] for one in await asyncio.gather(*(work(n) for n in range(count))))

    order = list(range(count))
    random.Random(seed).shuffle(order)
    with ids.injected(ids.SequentialIds()), clock.injected(clock.SteppingClock()):
        cp = many.create_checkpoint("cp")
        running = asyncio.create_task(_run(many, count, cp))
        await gates.open(order, lambda number: len(cp.snapshots) == number + 1)
        assert (await running).get_outputs() == [sum(range(count))]
    assert cp.head_snapshot is not None
    return cp.head_snapshot.root, [one.boundary for one in cp.snapshots]


async def test_r53_parallel_steps_end_in_one_state_whatever_their_timing() -> None:
    ended = [await shuffled(seed, 100) for seed in range(3)]
    assert len({root for root, _ in ended}) == 1
    assert ended[0][1] == ["input_accepted", *["step_completed"] * 100, "completed"]


async def test_r53_steps_that_finish_in_one_turn_of_the_loop_share_a_snapshot(ticks: Ticks) -> None:
    gate = asyncio.Event()

    @step
    async def work(n: int) -> int:
        ticks("begun")
        await gate.wait()
        return n

    @workflow
    async def many(count: int) -> int:
        return sum(await asyncio.gather(*(work(n) for n in range(count))))

    cp = many.create_checkpoint()
    running = asyncio.create_task(_run(many, 5, cp))
    while ticks["begun"] < 5:
        await asyncio.sleep(0)
    gate.set()
    await running
    assert [one.boundary for one in cp.snapshots] == ["input_accepted", "step_completed", "completed"]


async def test_r53_a_loop_of_alike_calls_gets_the_result_of_each(ticks: Ticks) -> None:
    fails = True

    @step
    async def throw() -> int:
        return ticks("throw")

    @workflow
    async def dice(count: int) -> list[int]:
        thrown = [await throw() for _ in range(count)]
        if fails:
            raise Boom
        return thrown

    cp = dice.create_checkpoint()
    with pytest.raises(Boom):
        await dice.run(5, checkpoint=cp)
    fails = False
    assert (await dice.run(checkpoint=cp)).get_outputs() == [[1, 2, 3, 4, 5]]


@every_place
async def test_r53_every_snapshot_of_a_step_can_be_gone_back_to(place: Place, ticks: Ticks) -> None:
    keys: dict[int, list[str]] = {}

    @step
    async def work(n: int, ctx: RunContext) -> int:
        ticks(f"{n}")
        keys.setdefault(n, []).append(ctx.idempotency_key)
        return n

    @workflow
    async def rows(count: int) -> int:
        return sum([await work(n) for n in range(count)])

    cp = place.create(rows)
    await rows.run(4, checkpoint=cp)
    cp = await place.reload()
    for number, snapshot in enumerate(cp.snapshots):
        if snapshot.boundary == "step_completed":
            cp.restart_from(snapshot.snapshot_id)
            assert (await rows.run(checkpoint=cp)).get_outputs() == [6]
            assert ticks["3"] == 1 + min(number, 3)
    assert ticks.all() == {"0": 1, "1": 2, "2": 3, "3": 4}
    assert len(set(keys[3])) == 4  # a key differs on every branch
    await lawful(place, cp)


async def test_r53_a_key_of_a_step_is_the_same_when_it_is_done_again(ticks: Ticks) -> None:
    keys: list[str] = []

    @step
    async def pay(amount: int) -> int:
        context = get_run_context()
        assert context is not None
        keys.append(context.idempotency_key)
        if len(keys) == 3:
            raise Boom
        return amount

    @workflow
    async def payments(count: int) -> int:
        return sum([await pay(7) for _ in range(count)])

    cp = payments.create_checkpoint()
    with pytest.raises(Boom):
        await payments.run(3, checkpoint=cp)
    await payments.run(checkpoint=cp)
    assert keys[2] == keys[3] and len(set(keys)) == 3
    assert get_run_context() is None


async def test_r53_steps_inside_of_steps_are_kept_until_the_outer_one_is_done(ticks: Ticks) -> None:
    fails = True

    @step
    async def inner(n: int) -> int:
        ticks("inner")
        return n

    @step
    async def outer(n: int) -> int:
        ticks("outer")
        found = sum(await asyncio.gather(*(inner(one) for one in range(n))))
        if fails:
            raise Boom
        return found

    @workflow
    async def nested(n: int) -> int:
        return await outer(n) + await outer(n)

    cp = nested.create_checkpoint()
    with pytest.raises(Boom):
        await nested.run(4, checkpoint=cp)
    fails = False
    assert (await nested.run(checkpoint=cp)).get_outputs() == [12]
    assert ticks.all() == {"inner": 8, "outer": 3}
    assert cp.head_snapshot is not None
    kept = cp.head_snapshot.state["executor_states"]["nested"]["steps"]
    assert [(one["step"], one["result"]) for one in kept] == [("outer", 6), ("outer", 6)]


async def test_r53_values_of_steps_cross_by_value(ticks: Ticks) -> None:
    kept: list[list[int]] = []
    fails = True

    @step
    async def grow(items: list[int]) -> list[int]:
        for before in kept:
            before.append(99)
        items.append(0)
        kept.append(items)
        return items

    @workflow
    async def growing(n: int) -> list[list[int]]:
        mine = [n]
        first = await grow(mine)
        first.append(1)
        second = await grow(mine)
        if fails:
            raise Boom
        return [mine, first, second]

    cp = growing.create_checkpoint()
    with pytest.raises(Boom):
        await growing.run(7, checkpoint=cp)
    fails = False
    kept[0].append(99)
    assert (await growing.run(checkpoint=cp)).get_outputs() == [[[7], [7, 0, 1], [7, 0]]]
    assert len(kept) == 2


@every_place
async def test_r53_a_functional_workflow_is_a_child_like_any_other(place: Place, ticks: Ticks) -> None:
    fails = True

    @step
    async def work(n: int) -> int:
        ticks("work")
        if fails and n == 2:
            raise Boom
        return n

    @workflow
    async def child(text: str) -> str:
        return text + str([await work(n) for n in range(4)])

    def parent() -> Any:
        return chain(WorkflowExecutor(child, "kid"), Step("after", ticks, final=True), name="parent")

    cp = place.create(parent())
    with pytest.raises(Boom):
        await parent().run("x", checkpoint=cp)
    assert [one.boundary for one in cp.snapshots] == ["input_accepted", *["child_superstep_completed"] * 2]
    fails = False
    cp = await place.reload()
    assert (await parent().run(checkpoint=cp)).get_outputs() == ["x[0, 1, 2, 3]>after"]
    assert ticks["work"] == 5
    await lawful(place, cp)


async def test_r53_a_cancelled_run_leaves_no_step_behind(ticks: Ticks) -> None:
    begun, ended = asyncio.Event(), Ticks()

    @step
    async def forever(n: int) -> None:
        ticks("begun")
        if ticks["begun"] == 3:
            begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended("ended")

    @step
    async def quick() -> str:
        return "done"

    @workflow
    async def hanging(n: int) -> None:
        await quick()
        alone = asyncio.create_task(forever(0))
        await asyncio.gather(forever(1), forever(2))
        await alone

    cp = hanging.create_checkpoint()
    running = asyncio.create_task(_run(hanging, 1, cp))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended["ended"] == 3
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert [one.boundary for one in cp.snapshots] == ["input_accepted", "step_completed"]


async def test_r53_a_failing_step_can_be_caught_and_is_not_kept(ticks: Ticks) -> None:
    @step
    async def shaky(n: int) -> int:
        if ticks("shaky") == 1:
            raise Boom
        return n

    @workflow
    async def trying(n: int) -> int:
        try:
            return await shaky(n)
        except Boom:
            return await shaky(n)

    cp = trying.create_checkpoint()
    assert (await trying.run(5, checkpoint=cp)).get_outputs() == [5]
    assert cp.head_snapshot is not None
    assert len(cp.head_snapshot.state["executor_states"]["trying"]["steps"]) == 1


async def test_r53_events_of_steps_are_told_as_they_happen() -> None:
    gate = asyncio.Event()

    @step
    async def waiting(ctx: RunContext) -> str:
        await gate.wait()
        return "done"

    @workflow
    async def slow(n: int) -> str:
        return await waiting()

    told: list[tuple[str, str | None]] = []
    async for event in slow.run(1, stream=True, checkpoint=slow.create_checkpoint()):
        if event.executor_id == "waiting":
            told.append((event.type, event.executor_id))
            gate.set()  # nothing would come if events were held back until the step is done
    assert told == [("executor_invoked", "waiting"), ("executor_completed", "waiting")]


async def test_r53_state_is_set_once_however_often_the_function_runs() -> None:
    @workflow
    async def counter(by: int, ctx: RunContext) -> int:
        ctx.set_state("n", ctx.get_state("n", 0) + by)
        await ctx.request_info("go on?", bool)
        ctx.update_state("n", lambda n: n + 100)
        assert ctx.run_metadata["who"] == "me"
        found: int = ctx.get_state("n")
        return found

    cp = counter.create_checkpoint()
    for turn in (1, 2):
        paused = await counter.run(turn, checkpoint=cp, metadata={"who": "me"})
        [asked] = paused.get_request_info_events()
        done = await counter.run(
            responses={str(asked.request_id): True}, checkpoint=cp, metadata={"who": "me"}
        )
        assert done.get_outputs() == [101 if turn == 1 else 203]
    assert cp.head_snapshot is not None
    assert cp.head_snapshot.state["workflow_state"]["shared"] == {"n": 203}


async def calls_of_a_replay(count: int) -> int:
    """How many functions are called to go on after a failure at the last of so many steps."""
    fails, ticks = {count - 1}, Ticks()

    @step
    async def work(n: int) -> int:
        ticks("work")
        if n in fails:
            raise Boom
        return n

    @workflow
    async def many(count: int) -> int:
        return sum([await work(n) for n in range(count)])

    cp = many.create_checkpoint()
    with pytest.raises(Boom):
        await many.run(count, checkpoint=cp)
    fails.clear()
    calls = 0

    def count_one(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count_one)
    try:
        result = await many.run(checkpoint=cp)
    finally:
        sys.setprofile(before)
    assert result.get_outputs() == [sum(range(count))]
    assert ticks["work"] == count + 1
    return calls


async def test_r53_a_replay_costs_as_much_for_each_step_however_many_there_are() -> None:
    few, many = await calls_of_a_replay(250), await calls_of_a_replay(1_000)
    assert many < 4.4 * few


async def test_r53_a_copy_of_state_that_is_changed_and_not_set_is_refused() -> None:
    @workflow
    async def losing(text: str, ctx: RunContext) -> int:
        texts = ctx.get_state("texts", [])
        texts.append(text)
        return len(texts)

    cp = losing.create_checkpoint()
    with pytest.raises(ExecutorStateError, match=r"'texts'.*call ctx.set_state"):
        await losing.run("one", checkpoint=cp)


async def test_r53_what_was_set_before_a_pause_is_set_anew_after_it() -> None:
    missing = object()

    @step
    async def look(ctx: RunContext) -> int:
        assert ctx.get_state("none", missing) is missing
        texts: list[str] = ctx.get_state("texts")
        texts.append("of the step's own")
        return len(texts)

    @workflow
    async def asking(text: str, ctx: RunContext) -> list[Any]:
        assert ctx.get_state("none", missing) is missing
        ctx.set_state("texts", [text])
        texts = ctx.get_state("texts")
        texts.append("more")
        seen = await look()
        assert await ctx.request_info("go on?", bool)
        ctx.set_state("texts", texts)
        ctx.set_state("gone", 1)
        ctx.delete_state("gone")
        return [seen, ctx.get_state("texts"), ctx.get_state("gone", "absent")]

    cp = asking.create_checkpoint()
    [asked] = (await asking.run("one", checkpoint=cp)).get_request_info_events()
    assert cp.head_snapshot is not None
    assert cp.head_snapshot.state["workflow_state"]["shared"] == {}
    done = await asking.run(responses={str(asked.request_id): True}, checkpoint=cp)
    assert done.get_outputs() == [[2, ["one", "more"], "absent"]]
    assert cp.head_snapshot.state["workflow_state"]["shared"] == {"texts": ["one", "more"]}
