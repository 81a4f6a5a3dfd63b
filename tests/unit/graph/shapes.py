"""Executors and graphs that the tests of this room share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Never

from branchpoint.graph import EdgeGroup, Executor, Graph, WorkflowContext, executor, handler


class Text(Executor):
    """Takes text, sends text, yields text."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.send_message(text)


class Count(Executor):
    """Takes a number, sends a number, yields nothing."""

    @handler
    async def on_number(self, number: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(number)


class JoinText(Executor):
    """Takes a list of texts, yields one text."""

    @handler
    async def on_texts(self, texts: list[str], ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(" ".join(texts))


class Quiet(Executor):
    """Takes anything; what it sends is not declared."""

    @handler
    async def on_anything(self, message: Any, ctx: WorkflowContext) -> None:
        await ctx.send_message(message)


@executor(id="shout")
async def shout(text: str, ctx: WorkflowContext[str, str]) -> None:
    await ctx.yield_output(text.upper())


def graph_of(executors: Sequence[Executor], groups: Sequence[EdgeGroup] = (), **more: Any) -> Graph:
    """Make a graph that starts at the first executor; nothing is validated."""
    more.setdefault("start_id", executors[0].id)
    return Graph(executors={each.id: each for each in executors}, groups=tuple(groups), **more)


class Inside(Executor):
    """Runs a child workflow, as far as a graph sees it."""

    def __init__(self, id: str, graph: Graph) -> None:
        super().__init__(id=id)
        self.workflow = _Child(graph)

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.send_message(text)


class _Child:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
