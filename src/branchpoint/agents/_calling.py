"""Running an agent once, whole or as a stream of updates."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from agent_framework import AgentResponse, AgentResponseUpdate, AgentSession, Message, SupportsAgentRun

from branchpoint.errors import HandlerError

__all__ = ["accepts", "run_streaming", "run_whole"]


def accepts(agent: SupportsAgentRun, name: str) -> bool:
    """Say whether an agent's `run` takes a keyword argument."""
    try:
        parameters = inspect.signature(agent.run).parameters.values()
    except (TypeError, ValueError):  # written in C, or a signature that lies
        return False
    return any(found.name == name or found.kind is inspect.Parameter.VAR_KEYWORD for found in parameters)


async def run_whole(
    agent: SupportsAgentRun, messages: Sequence[Message], session: AgentSession, options: dict[str, Any]
) -> AgentResponse[Any]:
    """Run an agent and return its response."""
    run = cast("Callable[..., Awaitable[Any]]", agent.run)
    return _checked(agent, await run(list(messages), session=session, **options))


async def run_streaming(
    agent: SupportsAgentRun,
    messages: Sequence[Message],
    session: AgentSession,
    options: dict[str, Any],
    tell: Callable[[AgentResponseUpdate], Awaitable[None]],
) -> AgentResponse[Any]:
    """Run an agent, tell each update as it comes, and return the response they make.

    Whatever ends it early, the agent's stream is closed before this raises.
    """
    run = cast("Callable[..., Any]", agent.run)
    stream: Any = run(list(messages), stream=True, session=session, **options)
    if not isinstance(stream, AsyncIterable):
        stream = await stream
    updates: list[AgentResponseUpdate] = []
    try:
        async for update in stream:
            updates.append(update)
            await tell(update)
        finish = getattr(stream, "get_final_response", None)
        response = AgentResponse.from_updates(updates) if finish is None else await finish()
    except BaseException:
        close = getattr(stream, "close", None) or getattr(stream, "aclose", None)
        if close is not None:
            with suppress(Exception):  # what ended it is what is raised
                await close()
        raise
    return _checked(agent, response)


def _checked(agent: SupportsAgentRun, response: Any) -> AgentResponse[Any]:
    if not isinstance(response, AgentResponse):
        raise HandlerError(
            f"The run method of agent {agent.name or agent.id!r} returned a {type(response).__name__}, not an "
            "AgentResponse."
        )
    return response
