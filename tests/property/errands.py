"""A small workflow that does what its message says, letter by letter, and what goes wrong in it.

    l  go on in the next superstep             o  yield two outputs and go on
    f  send a leg to both sides and join them  h  send one to the left side alone and go on
    a  ask, and go on with the answer          q  ask and go on, whatever is answered

Nothing left to do yields the last output. So one text makes loops, a fan-out and fan-in, half-filled
joins, requests and several outputs, in any order; see `errand_model` for the same as plain dicts.
"""

from __future__ import annotations

import asyncio
import operator
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from branchpoint import (
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    register_state_type,
    response_handler,
    state,
)
from tests.scenario.kit import Boom

EXECUTORS = ("hub", "left", "right", "join")
LETTERS = "lofhaq"


@register_state_type("errands.leg")
@dataclass(frozen=True)
class Leg:
    """What a side carries; `by` says which one carried it last."""

    by: str
    rest: str


@dataclass
class Trouble:
    """What happens when an executor is entered for the n-th time in one call.

    Attributes:
        act: `boom` raises; `cancel` cancels the caller and waits, as a handler does that is busy.
        cancel: Cancels the caller.
    """

    executor_id: str
    entry: int
    act: str
    cancel: Callable[[], object] = lambda: None
    entries: Counter[str] = field(default_factory=Counter)

    def met_by(self, executor_id: str) -> bool:
        self.entries[executor_id] += 1
        return (executor_id, self.entries[executor_id]) == (self.executor_id, self.entry)


# In the context of one call, so that a thread which outlives its call meets the trouble of no other one.
_trouble: ContextVar[Trouble | None] = ContextVar("trouble", default=None)


@contextmanager
def ahead(trouble: Trouble | None) -> Iterator[None]:
    """Let a trouble lie ahead of the calls that are made in the block."""
    token = _trouble.set(trouble)
    try:
        yield
    finally:
        _trouble.reset(token)


async def _enter(executor_id: str) -> None:
    trouble = _trouble.get()
    if trouble is not None and trouble.met_by(executor_id):
        if trouble.act == "cancel":
            trouble.cancel()
            await asyncio.Event().wait()
        raise Boom(f"{executor_id} on its entry {trouble.entry}")


class Hub(Executor):
    """Reads the text and does what its first letter says."""

    seen: list[str] = state(factory=list)
    answers: list[str] = state(factory=list)

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str | Leg, str]) -> None:
        await _enter(self.id)
        self.seen.append(text)
        ctx.set_state("tally", 1)
        letter, rest = text[:1], text[1:]
        if letter == "":
            await ctx.yield_output(f"end {len(self.seen)}")
        if letter == "o":
            await ctx.yield_output(f"first {text}")
            await ctx.yield_output(f"second {text}")
        if letter in ("a", "q"):
            await ctx.request_info({"text": text}, str)
        if letter == "f":
            await ctx.send_message(Leg("hub", rest))
        if letter == "h":
            await ctx.send_message(Leg("hub", rest), target_id="left")
        if letter in ("l", "o", "h", "q"):
            await ctx.send_message(rest)

    @response_handler
    async def on_answer(self, asked: dict[str, Any], answer: str, ctx: WorkflowContext[str, str]) -> None:
        await _enter(self.id)
        self.answers.append(answer)
        ctx.set_state("tally", 1000)
        if asked["text"][0] == "a":
            await ctx.send_message(asked["text"][1:])


class Left(Executor):
    """Carries a leg to the join."""

    n: int = state(0)

    @handler
    async def on_leg(self, leg: Leg, ctx: WorkflowContext[Leg, str]) -> None:
        await _enter(self.id)
        self.n += 1
        ctx.set_state("tally", 10)
        await ctx.send_message(Leg("left", leg.rest))


class Right(Executor):
    """Does the same in a thread."""

    n: int = state(0)

    @handler
    def on_leg(self, leg: Leg, ctx: WorkflowContext[Leg, str]) -> None:
        trouble = _trouble.get()
        if trouble is not None and trouble.met_by(self.id):
            raise Boom(f"{self.id} on its entry {trouble.entry}")
        self.n += 1
        ctx.set_state("tally", 10)  # type: ignore[unused-coroutine, unused-ignore]
        ctx.send_message(Leg("right", leg.rest))  # type: ignore[unused-coroutine, unused-ignore]


class Join(Executor):
    """Says who came, in which order, and lets the hub go on."""

    n: int = state(0)

    @handler
    async def on_legs(self, legs: list[Leg], ctx: WorkflowContext[str, str]) -> None:
        await _enter(self.id)
        self.n += 1
        ctx.set_state("tally", 100)
        await ctx.yield_output(" ".join(leg.by for leg in legs))
        await ctx.send_message(legs[-1].rest)


def errands() -> Workflow:
    """Build the workflow from nothing."""
    hub, left, right, join = Hub(id="hub"), Left(id="left"), Right(id="right"), Join(id="join")
    builder = WorkflowBuilder(name="errands", start_executor=hub).add_edge(hub, hub)
    builder.add_fan_out_edges(hub, [left, right]).add_fan_in_edges([left, right], join).add_edge(join, hub)
    return builder.add_state("tally", int, default=0, reducer=operator.add).build()
