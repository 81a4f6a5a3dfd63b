"""The context providers of an agent, around one call of it."""

from __future__ import annotations

from typing import Any, Final

from agent_framework import AgentResponse, AgentSession, HistoryProvider, Message, SessionContext

__all__ = ["Providers"]

UNRECORDED: Final = "branchpoint.unrecorded"
"""Where a session keeps messages that the workflow has accepted and no provider was told of yet."""


class Providers:
    """The providers of an agent for one call.

    Args:
        agent: Whose providers.
        session: Whose call; one without a session gets one for itself.
    """

    def __init__(self, agent: Any, session: AgentSession | None) -> None:
        self._agent = agent
        self._session = session or AgentSession()
        self._context: SessionContext | None = None

    async def before(self, messages: list[Message], *, is_new: bool) -> list[Message]:
        """Ask the providers, and return what the workflow is given.

        A history is given to a workflow that begins; one that goes on remembers by itself.
        """
        providers = self._agent.context_providers
        if not providers:
            return messages
        session = self._session
        self._context = context = self._new_context(messages)
        histories: set[str] = set()
        for provider in providers:
            if isinstance(provider, HistoryProvider):
                histories.add(provider.source_id)
                if not provider.load_messages:
                    continue
            state = session.state.setdefault(provider.source_id, {})
            await provider.before_run(agent=self._agent, session=session, context=context, state=state)
        return context.get_messages(exclude_sources=set() if is_new else histories, include_input=True)

    @property
    def missed_some(self) -> bool:
        """Whether there are providers, and messages that none was told of."""
        return bool(self._agent.context_providers and self._session.state.get(UNRECORDED))

    async def catch_up(self, response: AgentResponse[Any]) -> None:
        """Tell the providers of messages that none was told of, and what came of them."""
        self._context = self._new_context([])
        await self.after(response, moved=True)

    def accepted(self, messages: list[Message]) -> None:
        """Remember messages that the workflow has taken, until providers are told of them."""
        if self._context is not None and messages:
            self._session.state[UNRECORDED] = [*self._session.state.get(UNRECORDED, ()), *messages]

    def forget(self) -> None:
        """Forget messages of a turn that was given up."""
        self._session.state.pop(UNRECORDED, None)

    async def after(self, response: AgentResponse[Any], *, moved: bool) -> None:
        """Tell the providers what was said since they were last told, if anything was."""
        context = self._context
        if context is None:
            return
        said: list[Message] = self._session.state.get(UNRECORDED, [])
        if not moved and not said:
            return
        context.input_messages = said
        context._response = response
        self._session.state.pop(UNRECORDED, None)
        await self._agent._run_after_providers(session=self._session, context=context)

    def _new_context(self, messages: list[Message]) -> SessionContext:
        return SessionContext(
            session_id=self._session.session_id,
            service_session_id=self._session.service_session_id,
            input_messages=messages,
        )
