"""The executors that take the input of an orchestration."""

from __future__ import annotations

from agent_framework import Message

from branchpoint.agents import AgentExecutorRequest, AgentExecutorResponse, as_messages
from branchpoint.graph import Executor, WorkflowContext, handler

__all__ = ["InputToConversation", "InputToRequest", "ResponseToConversation"]


class InputToConversation(Executor):
    """Passes an input on as the messages of a conversation."""

    @handler
    async def from_str(self, text: str, ctx: WorkflowContext[list[Message]]) -> None:
        """Take what a user says."""
        await ctx.send_message(as_messages(text))

    @handler
    async def from_message(self, message: Message, ctx: WorkflowContext[list[Message]]) -> None:
        """Take a message."""
        await ctx.send_message([message])

    @handler
    async def from_messages(self, messages: list[str | Message], ctx: WorkflowContext[list[Message]]) -> None:
        """Take messages and texts."""
        await ctx.send_message(as_messages(messages))


class InputToRequest(Executor):
    """Passes an input on as a request to agents."""

    @handler
    async def from_request(
        self, request: AgentExecutorRequest, ctx: WorkflowContext[AgentExecutorRequest]
    ) -> None:
        """Take a request as it is."""
        await ctx.send_message(request)

    @handler
    async def from_str(self, text: str, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        """Take what a user says."""
        await ctx.send_message(AgentExecutorRequest(as_messages(text)))

    @handler
    async def from_message(self, message: Message, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        """Take a message."""
        await ctx.send_message(AgentExecutorRequest([message]))

    @handler
    async def from_messages(
        self, messages: list[str | Message], ctx: WorkflowContext[AgentExecutorRequest]
    ) -> None:
        """Take messages and texts."""
        await ctx.send_message(AgentExecutorRequest(as_messages(messages)))


class ResponseToConversation(Executor):
    """Passes an agent's answer on as messages, to an executor that takes no answers.

    Args:
        id: The executor's id.
        only_answer: Whether it passes on the answer alone, and not what led to it.
    """

    def __init__(self, id: str, *, only_answer: bool) -> None:
        super().__init__(id=id)
        self._only_answer = only_answer

    @handler
    async def from_response(
        self, response: AgentExecutorResponse, ctx: WorkflowContext[list[Message]]
    ) -> None:
        """Take an answer."""
        messages = response.agent_response.messages if self._only_answer else response.full_conversation
        await ctx.send_message(list(messages))
