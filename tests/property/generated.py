"""Workflows made up by hypothesis: a fan-out to workers that do what a script says, and a fan-in, in rounds.

A worker's script is a text, and its letters are done in every round, each with a wait before it:

    s  write shared state         y  yield          m  send a message of its own
    o  write a key of its own     q  ask            e  emit an event that is not durable

Half of the workers' outputs are intermediate. Workers wait in a `Shuffle`, so the seed alone says who goes
on when; those that run in a thread wait in the same one.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Never

import hypothesis.strategies as st

from branchpoint import (
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    append,
    executor,
    handler,
    response_handler,
    state,
)
from tests.scenario.kit import Outside, Shuffle

KINDS = ("task", "thread", "function")


@dataclass(frozen=True)
class Plan:
    """What is built: per worker its kind and its script, and how many rounds a turn has."""

    workers: tuple[tuple[str, str], ...]
    rounds: int
    tail: bool


def plans(letters: str = "soyqme") -> st.SearchStrategy[Plan]:
    worker = st.tuples(st.sampled_from(KINDS), st.text(letters, max_size=3))
    workers = st.lists(worker, min_size=2, max_size=4).map(tuple)
    return st.builds(Plan, workers, st.integers(1, 2), st.booleans())


class Gates(Outside):
    """The shuffle of one run, for tasks and for threads."""

    def __init__(self, seed: int) -> None:
        self._shuffle = Shuffle(seed)
        self._loop = asyncio.get_running_loop()

    async def turn(self) -> None:
        await self._shuffle.turn()

    def turn_in_thread(self) -> None:
        asyncio.run_coroutine_threadsafe(self._shuffle.turn(), self._loop).result()


class Source(Executor):
    """Begins a round."""

    rounds: int = state(0)

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str]) -> None:
        self.rounds += 1
        await ctx.send_message(text)


class Worker(Executor):
    """Does what its script says, in a task."""

    tags: set[str] = state(factory=set)
    counts: dict[str, int] = state(factory=dict)

    def __init__(self, id: str, script: str, gates: Gates) -> None:
        super().__init__(id=id)
        self.script = script
        self.gates = gates

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, Any]) -> None:
        for n, letter in enumerate(self.script):
            await self.gates.turn()
            self.tags.add(f"{self.id}{letter}{n}{text}")
            self.counts[letter] = self.counts.get(letter, 0) + 1
            if letter == "q":
                await ctx.request_info([self.id, n, text], str)
            elif inspect.isawaitable(done := _deed(ctx, letter, f"{text}.{self.id}.{n}", self.id)):
                await done
        await self.gates.turn()
        await ctx.send_message(f"{text}>{self.id}")

    @response_handler
    async def on_answer(self, asked: list[Any], answer: str, ctx: WorkflowContext[str, Any]) -> None:
        await self.gates.turn()
        ctx.set_state("log", f"{self.id}:{answer}")
        await ctx.yield_output({"asked": asked, "answer": answer})


class Threaded(Worker):
    """Does the same in a thread."""

    @handler
    def on_text(self, text: str, ctx: WorkflowContext[str, Any]) -> None:  # type: ignore[override]
        sync: Any = ctx
        for n, letter in enumerate(self.script):
            self.gates.turn_in_thread()
            self.tags.add(f"{self.id}{letter}{n}{text}")
            if letter == "q":
                sync.request_info([self.id, n, text], str)
            else:
                _deed(sync, letter, f"{text}.{self.id}.{n}", self.id)
        self.gates.turn_in_thread()
        sync.send_message(f"{text}>{self.id}")


def _function(id: str, script: str, gates: Gates) -> Executor:
    """A function that does the same, as far as it cannot ask."""

    @executor(id=id)
    def work(text: str, ctx: WorkflowContext[str, Any]) -> str:
        sync: Any = ctx
        for n, letter in enumerate(script.replace("q", "y")):
            gates.turn_in_thread()
            sync.executor_state[f"{letter}{n}"] = {text, id}
            _deed(sync, letter, f"{text}.{id}.{n}", id)
        gates.turn_in_thread()
        return f"{text}>{id}"

    return work


def _deed(ctx: Any, letter: str, word: str, id: str) -> Any:
    """Do one letter, and return what the context gives back."""
    if letter == "s":
        return ctx.set_state("log", word)
    if letter == "o":
        return ctx.set_state(f"of {id}", {word, id})
    if letter == "y":
        return ctx.yield_output((word, {word, id}))
    if letter == "m":
        return ctx.send_message(word)
    return ctx.add_event(WorkflowEvent("data", word))


class Join(Executor):
    """Yields what came together, and begins the next round."""

    n: int = state(0)

    def __init__(self, rounds: int) -> None:
        super().__init__(id="join")
        self.rounds = rounds

    @handler
    async def on_texts(self, texts: list[str], ctx: WorkflowContext[str, list[str]]) -> None:
        self.n += 1
        await ctx.yield_output(texts)
        if self.n % self.rounds:
            await ctx.send_message(f"again {self.n}")


class Tail(Executor):
    """Yields what came, twice."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(text)
        await ctx.yield_output(f"{text}!")


def comes_from_a_worker(text: str) -> bool:
    return ">" in text


_MAKERS: dict[str, Callable[[str, str, Gates], Executor]] = {
    "task": Worker,
    "thread": Threaded,
    "function": _function,
}


def generated(plan: Plan, seed: int) -> Workflow:
    """Build a plan, with the timing of a seed; inside a running loop."""
    gates = Gates(seed)
    source, join, tail = Source(id="source"), Join(plan.rounds), Tail(id="tail")
    workers = [_MAKERS[kind](f"w{n}", script, gates) for n, (kind, script) in enumerate(plan.workers)]
    ids = [worker.id for worker in workers]
    builder = WorkflowBuilder(
        name="generated",
        start_executor=source,
        output_from=[*ids[::2], "join"],
        intermediate_output_from=[*ids[1::2], *(["tail"] if plan.tail else [])],
    )
    builder.add_fan_out_edges(source, workers).add_fan_in_edges(workers, join).add_edge(join, source)
    if plan.tail:
        builder.add_edge(workers[0], tail, condition=comes_from_a_worker)
    return builder.add_state("log", list, factory=list, reducer=append).build()
