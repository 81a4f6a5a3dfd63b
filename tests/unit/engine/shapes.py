"""Executors, graphs and states that the tests of this room share."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from branchpoint.engine._cell import Medium
from branchpoint.engine._share import Asked, Sent, Share, Yielded
from branchpoint.engine._state import RunState
from branchpoint.graph import EdgeGroup, Executor, Graph, WorkflowContext, Write, handler, response_handler

Result = TypeVar("Result")


class Text(Executor):
    """Takes text."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext) -> None: ...


class Number(Executor):
    """Takes a whole number."""

    @handler
    async def on_number(self, number: int, ctx: WorkflowContext) -> None: ...


class Anything(Executor):
    """Takes everything."""

    @handler
    async def on_anything(self, message: Any, ctx: WorkflowContext) -> None: ...


class Texts(Executor):
    """Takes a list of texts, as a join gives it."""

    @handler
    async def on_texts(self, texts: list[str], ctx: WorkflowContext) -> None: ...


class Asker(Executor):
    """Takes text, and answers to questions in text: a text, or a number."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext) -> None: ...

    @response_handler
    async def on_answer(self, question: str, answer: str, ctx: WorkflowContext) -> None: ...

    @response_handler
    async def on_number(self, question: str, answer: int, ctx: WorkflowContext) -> None: ...


def graph_of(executors: Sequence[Executor], groups: Sequence[EdgeGroup] = (), **more: Any) -> Graph:
    """Make a graph that starts at the first executor; nothing is validated."""
    more.setdefault("start_id", executors[0].id)
    more.setdefault("name", "graph")
    return Graph(executors={each.id: each for each in executors}, groups=tuple(groups), **more)


def state_of(graph: Graph, **fields: Any) -> RunState:
    """Make the state of a run that keeps what it does, in JSON."""
    return RunState(graph, Medium("json", {}), **fields)


def share_of(
    state: RunState,
    executor_id: str,
    *,
    sent: Sequence[Sent] = (),
    yielded: Sequence[Any] = (),
    asked: Sequence[Asked] = (),
    writes: Sequence[tuple[str, Any]] = (),
) -> Share:
    """Make what one executor did in a superstep."""
    share = Share(executor_id, state.graph, state.shared, state.medium)
    share.sent += sent
    share.yielded += [Yielded(f"{executor_id}-output-{n}", value) for n, value in enumerate(yielded)]
    share.asked += asked
    for key, value in writes:
        share.writes[key] = [*share.writes.get(key, []), Write(executor_id, value)]
    return share


def asked(request_id: str, executor_id: str, data: Any = "really?", response_type: str = "str") -> Asked:
    """Make a request as a handler makes it."""
    record = {
        "data": data,
        "source_executor_id": executor_id,
        "path": [],
        "input_id": "in-1",
        "superstep": 1,
        "request_type": "str",
        "response_type": response_type,
        "response_schema": None,
    }
    return Asked(request_id, record)


def at_once(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that never waits, without an event loop."""
    try:
        work.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    work.close()
    raise AssertionError("it waited for something")
