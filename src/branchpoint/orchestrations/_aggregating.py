"""What becomes of the answers of agents that worked side by side."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Never, TypeAlias

from agent_framework import AgentResponse, Message

from branchpoint.agents import AgentExecutorResponse
from branchpoint.errors import DefinitionError, HandlerError
from branchpoint.events import WorkflowEvent
from branchpoint.graph import Executor, SyncWorkflowContext, WorkflowContext, callable_name, handler

__all__ = ["Aggregate", "Answers", "aggregator_of"]

Aggregate: TypeAlias = (
    Callable[[list[AgentExecutorResponse]], Any] | Callable[[list[AgentExecutorResponse], Any], Any]
)
"""A function of the answers, plain or async, that returns the output; or of the answers and the context,
that may yield it."""


class Answers(Executor):
    """Yields one response with the last thing each participant said, in the order of the participants."""

    @handler
    async def aggregate(
        self, results: list[AgentExecutorResponse], ctx: WorkflowContext[Never, AgentResponse]
    ) -> None:
        """Take the answers."""
        said: list[Message] = []
        for result in results:
            heard = last_answer(result)
            if heard is not None:
                said.append(heard)
            else:
                text = f"participant {result.executor_id!r} answered without saying anything"
                await ctx.add_event(WorkflowEvent("warning", text))
        if not said:
            raise HandlerError(
                f"None of the participants {[result.executor_id for result in results]} said anything, so there "
                "is no output. Give an aggregator of your own if that is no mistake."
            )
        await ctx.yield_output(AgentResponse(messages=said))


class AsyncAggregate(Executor):
    """Yields what an async function makes of the answers."""

    def __init__(self, function: Callable[..., Any], id: str) -> None:
        super().__init__(id=id)
        self._function = function
        self._wants_context = _wants_context(function)

    @handler
    async def aggregate(self, results: list[AgentExecutorResponse], ctx: WorkflowContext[Never, Any]) -> None:
        """Take the answers."""
        output = await self._function(*((results, ctx) if self._wants_context else (results,)))
        if output is not None:
            await ctx.yield_output(output)


class SyncAggregate(Executor):
    """Yields what a plain function, called in a thread of its own, makes of the answers."""

    def __init__(self, function: Callable[..., Any], id: str) -> None:
        super().__init__(id=id)
        self._function = function
        self._wants_context = _wants_context(function)

    @handler
    def aggregate(self, results: list[AgentExecutorResponse], ctx: SyncWorkflowContext[Never, Any]) -> None:
        """Take the answers."""
        output = self._function(*((results, ctx) if self._wants_context else (results,)))
        if inspect.isawaitable(output):
            if inspect.iscoroutine(output):
                output.close()
            raise HandlerError(
                f"The aggregator {self.id!r} returned something to await, and is not an async function. Write "
                "`async def` and await it there."
            )
        if output is not None:
            ctx.yield_output(output)


def aggregator_of(given: Executor | Aggregate) -> Executor:
    """Return the executor that puts answers together.

    Raises:
        DefinitionError: It is neither an executor nor a function.
    """
    if isinstance(given, Executor):
        return given
    if isinstance(given, type) or not callable(given):
        raise DefinitionError(f"An aggregator is an executor or a function of the answers, got {given!r}.")
    called = getattr(given, "__call__", None)  # noqa: B004 - what an object with this method would run
    is_async = inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(called)
    name = callable_name(given)
    return (AsyncAggregate if is_async else SyncAggregate)(
        given, name if name.isidentifier() else "aggregator"
    )


def last_answer(result: AgentExecutorResponse) -> Message | None:
    """Return the last thing an agent said: in its answer, or else in the conversation that it gave."""
    for messages in (result.agent_response.messages, result.full_conversation):
        for message in reversed(messages):
            if str(message.role).lower() == "assistant":
                return message
    return None


def _wants_context(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C
        return False
    places = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return sum(one.default is one.empty for one in places) > 1
