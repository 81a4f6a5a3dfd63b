"""The tools with which a model hands over, and what an answer says about it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from agent_framework import (
    Agent,
    AgentSession,
    Content,
    ContextProvider,
    FunctionInvocationContext,
    FunctionMiddleware,
    FunctionTool,
    Message,
    MiddlewareTermination,
    SessionContext,
)

from branchpoint.errors import DefinitionError
from branchpoint.orchestrations._handoff_values import HandoffConfiguration

__all__ = ["HANDOFFS_MADE", "Handoff", "handoff_in", "handoff_tool_name", "tool_names", "with_handoffs"]

_PREFIX: Final = "handoff_to_"
_RESULT_KEY: Final = "handoff_to"
_LONGEST_NAME: Final = 64
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")


HANDOFFS_MADE: ContextVar[dict[str, str]] = ContextVar("branchpoint_handoffs_made")
"""Where a run of an agent collects the handoffs it makes: the target by the id of the call."""


class Handoff(NamedTuple):
    """What an answer says about handing over.

    Attributes:
        target: Who is next; None when the answer hands over to nobody.
        result: The message with the result of the call, which no service has seen.
        ignored: To whom it hands over besides, which nobody can.
        unknown: Tools by which the model tried to hand over, and which it does not have.
    """

    target: str | None = None
    result: Message | None = None
    ignored: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def handoff_tool_name(target_id: str) -> str:
    """Return the name of the tool that hands over to an agent, in characters that services accept."""
    return f"{_PREFIX}{_NOT_IN_NAMES.sub('_', target_id)}"[:_LONGEST_NAME]


def tool_names(agent: Agent[Any]) -> set[str]:
    """Return the names of an agent's own tools."""
    return {str(getattr(tool, "name", "")) for tool in agent.default_options.get("tools") or ()}


def with_handoffs(agent: Agent[Any], handoffs: Sequence[HandoffConfiguration]) -> Agent[Any]:
    """Return a copy of an agent that has a tool for each handoff; the agent itself is not changed.

    A handoff ends the turn of the copy before its model sees the result.

    Raises:
        DefinitionError: Two tools would have one name.
    """
    names = tool_names(agent)
    tools: list[Any] = list(agent.default_options.get("tools") or ())
    for handoff in handoffs:
        name = handoff_tool_name(handoff.target_id)
        if name in names:
            raise DefinitionError(
                f"Agent {agent.name or agent.id!r} would have two tools named {name!r}: the one that hands over to "
                f"{handoff.target_id!r}, and another. Rename the other, or that agent."
            )
        names.add(name)
        tools.append(_tool(name, handoff))
    copied = copy.copy(agent)
    copied.default_options = {**agent.default_options, "tools": tools, "allow_multiple_tool_calls": False}
    ending = _EndTurn({handoff_tool_name(handoff.target_id): handoff.target_id for handoff in handoffs})
    providers = list(agent.context_providers)
    if providers:
        copied.context_providers = [*providers, _EndTurnLast(ending)]
    else:
        copied.context_providers = []
        copied.middleware = [*(agent.middleware or ()), ending]
    # Per turn and not per call of the model: a turn is kept whole or not at all, with the result of its handoff.
    copied.require_per_service_call_history_persistence = False
    return copied


def handoff_in(
    messages: Sequence[Message],
    made: Mapping[str, str],
    targets: Collection[str],
    tools: Collection[str],
) -> Handoff:
    """Return what an answer says about handing over.

    Args:
        messages: The answer.
        made: The agents to which calls handed over, by id of the call, as `HANDOFFS_MADE` has them. A call
            may be older than the answer, when another call beside it had to be approved.
        targets: The names of the tools that hand over.
        tools: The names of the agent's other tools.
    """
    last = messages[-1] if messages else None
    results = [one for one in (last.contents if last else ()) if one.type == "function_result"]
    given = [target for one in results if (target := made.get(str(one.call_id))) and _says(one, target)]
    if given:
        return Handoff(given[0], last, ignored=tuple(given[1:]))
    contents = [content for message in messages for content in message.contents]
    calls = {str(one.call_id): str(one.name) for one in contents if one.type == "function_call"}
    failed = [
        calls[str(one.call_id)]
        for one in contents
        if one.type == "function_result" and one.exception is not None and str(one.call_id) in calls
    ]
    return Handoff(
        unknown=tuple(
            name for name in failed if name.startswith(_PREFIX) and name not in targets and name not in tools
        )
    )


def _says(result: Content, target: str) -> bool:
    said: Any = result.result
    if isinstance(said, str):
        try:
            said = json.loads(said)
        except ValueError:
            return False
    return isinstance(said, Mapping) and said.get(_RESULT_KEY) == target


def _tool(name: str, handoff: HandoffConfiguration) -> FunctionTool:
    def hand_over() -> None:
        """End the turn before this is ever called."""

    description = handoff.description or f"Hand the conversation over to the agent {handoff.target_id}."
    return FunctionTool(name=name, description=description, func=hand_over, approval_mode="never_require")


class _EndTurn(FunctionMiddleware):
    """Ends the turn in place of calling a tool that hands over.

    It is the last of the agent's middleware: others see the call first, and may refuse it.
    """

    def __init__(self, targets: Mapping[str, str]) -> None:
        self._targets = targets

    async def process(
        self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]
    ) -> None:
        """End the turn, or go on."""
        target = self._targets.get(context.function.name)
        if target is None:
            await call_next()
            return
        made = HANDOFFS_MADE.get(None)
        if made is not None:
            made[str(context.metadata.get("call_id"))] = target
        context.result = json.dumps({_RESULT_KEY: target})
        raise MiddlewareTermination(result=context.result)


class _EndTurnLast(ContextProvider):
    """Adds what ends the turn after the middleware that other providers add."""

    def __init__(self, ending: _EndTurn) -> None:
        super().__init__("branchpoint.handoffs")
        self._ending = ending

    async def before_run(
        self, *, agent: Any, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Add it."""
        context.extend_middleware(self.source_id, self._ending)
