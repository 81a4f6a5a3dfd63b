"""Functional workflows of any shape end the same, however often and wherever they are interrupted."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from branchpoint import Checkpoint, clock, codec, ids
from branchpoint.functional import FunctionalWorkflow, RunContext, step, workflow
from branchpoint.testing import check_lineage_law
from tests.profiles import brief

# A program is steps, questions, and programs in a row ("seq"), side by side ("par"), or inside of a step ("in").
programs: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.tuples(st.just("step"), st.integers(0, 2)), st.tuples(st.just("ask"), st.integers(0, 2))),
    lambda inner: st.tuples(st.sampled_from(["seq", "par", "in"]), st.lists(inner, min_size=1, max_size=4)),
    max_leaves=12,
)


class Crash(Exception):
    """The power went off."""


class World:
    """Timing and crashes, by chance; and how often each step was done."""

    def __init__(self, seed: int, crashes: int) -> None:
        self.chance = random.Random(seed)
        self.crashes = crashes
        self.done: Counter[int] = Counter()

    async def wait(self) -> None:
        for _ in range(self.chance.randrange(6)):
            await asyncio.sleep(0)
        if self.crashes and self.chance.random() < 0.2:
            self.crashes -= 1
            raise Crash


def written(program: Any, world: World) -> FunctionalWorkflow:
    @step
    async def leaf(n: int) -> str:
        await world.wait()
        world.done[n] += 1
        return f"step {n}"

    @step
    async def inside(parts: list[Any]) -> list[Any]:
        return [await perform(part) for part in parts]

    async def perform(part: Any) -> Any:
        kind, what = part
        if kind == "step":
            return await leaf(what)
        if kind == "ask":
            return await ctx_of().request_info(what, str)
        if kind == "seq":
            return [await perform(one) for one in what]
        if kind == "in":
            return await inside(list(what))
        return list(await asyncio.gather(*(perform(one) for one in what)))

    def ctx_of() -> RunContext:
        from branchpoint.functional import get_run_context

        context = get_run_context()
        assert context is not None
        return context

    @workflow(name="program")
    async def whole(n: int) -> list[Any]:
        return [await perform(program)]

    return whole


async def ended(program: Any, world: World, *, together: bool) -> tuple[Any, Any]:
    """Run a program to its end, through crashes and questions; return its output and the state it leaves."""
    with ids.injected(ids.SequentialIds()), clock.injected(clock.SteppingClock()):
        flow = written(program, world)
        cp = flow.create_checkpoint("cp")
        call: dict[str, Any] = {"message": 1}
        while True:
            try:
                result = await flow.run(checkpoint=cp, **call)
            except Crash:
                flow, call = written(program, world), {}
                continue
            asked = cp.pending_requests
            if not asked:
                break
            some = asked if together else asked[: 1 + world.chance.randrange(len(asked))]
            call = {"responses": {one.request_id: f"answer {one.data}" for one in some}}
        _assert_lawful(cp)
        assert cp.head_snapshot is not None
        return result.get_outputs(), cp.head_snapshot.state["executor_states"]


def _assert_lawful(cp: Checkpoint) -> None:
    check_lineage_law(cp)
    for snapshot in cp.snapshots:
        part, _ = codec.encode_state(snapshot.state, format=cp.format)
        assert part.digest == snapshot.root


def leaves(program: Any) -> Counter[int]:
    kind, what = program
    if kind in ("step", "ask"):
        return Counter([what] if kind == "step" else [])
    return sum((leaves(one) for one in what), Counter())


@brief(150)
@given(programs, st.integers(0, 2**32), st.integers(0, 4), st.booleans())
async def test_r53_interruptions_change_nothing_but_the_repetitions(
    program: Any, seed: int, crashes: int, together: bool
) -> None:
    calm, rough = World(0, 0), World(seed, crashes)
    expected = await ended(program, calm, together=True)
    assert await ended(program, rough, together=together) == expected
    assert calm.done == leaves(program)
    # A step that was done in the very turn of a crash, or by a branch that a crash stopped, is done again.
    assert not any(count < calm.done[n] for n, count in rough.done.items())
