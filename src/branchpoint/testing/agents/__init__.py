"""A chat client that says what a script tells it to, and an agent on it: no model, no network, no time.

The client keeps no place in its script. Which reply comes next is read off the conversation it is given,
so a run that is resumed, executed again or taken back gets the reply that belongs there, in any process,
and one client serves any number of conversations at once.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    ResponseStream,
)

from branchpoint.codec import copy_value

__all__ = ["Call", "Reply", "ScriptedChatClient", "scripted_agent", "tool_call"]

Reply: TypeAlias = (
    str | Content | BaseException | Sequence[str | Content] | Callable[[Sequence[Message]], Any]
)
"""A text, a content, several of either, an exception to raise, or a function of the conversation."""


@dataclass
class Call:
    """What a client was asked.

    Attributes:
        number: Which reply it gave, from 0.
        messages: The conversation, copied.
        options: The chat options, such as the tools.
        kwargs: What else came with the call, such as the session and the client's keyword arguments.
        stream: Whether pieces were wanted.
    """

    number: int
    messages: list[Message]
    options: dict[str, Any] = field(default_factory=dict)
    kwargs: dict[str, Any] = field(default_factory=dict)
    stream: bool = False


def tool_call(name: str, /, **arguments: Any) -> Content:
    """Return a call of a tool for a reply; the client gives it an id when it replies."""
    return Content.from_function_call(call_id="", name=name, arguments=arguments)


class ScriptedChatClient(FunctionInvocationLayer[Any], BaseChatClient[Any]):
    """A chat client with a script, for Agent Framework's agents.

    Tools are called as with any other client. In a stream a text comes word by word.

    Example:
        ```python
        client = ScriptedChatClient([tool_call("refund", order="7"), "It is refunded."])
        agent = Agent(client, name="clerk", tools=[refund])
        ```

    Attributes:
        calls: What it was asked, oldest first.
    """

    def __init__(
        self,
        replies: Sequence[Reply] | Callable[[Sequence[Message]], Any],
        *,
        author: str | None = None,
        gate: Callable[[int, int], Awaitable[object]] | None = None,
        **kwargs: Any,
    ) -> None:
        """Take a script.

        Args:
            replies: One reply per time that the model is asked in a conversation, or a function that makes
                every one.
            author: The name of the agent; what other agents said then does not count.
            gate: Awaited before each piece of each reply, with the numbers of both: wait there for
                whatever a test is to do first. A reply that is not streamed is one piece.
            **kwargs: For Agent Framework's own base.
        """
        super().__init__(**kwargs)
        self.calls: list[Call] = []
        self._replies = replies
        self._author = author
        self._gate = gate

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **kwargs: Any
    ) -> Any:
        call = Call(self._number(messages), copy_value(list(messages)), dict(options), kwargs, stream)
        self.calls.append(call)
        return self._streamed(call) if stream else self._whole(call)

    async def _whole(self, call: Call) -> ChatResponse[Any]:
        if self._gate is not None:
            await self._gate(call.number, 0)
        return ChatResponse(messages=[Message("assistant", self._contents(call))])

    def _streamed(self, call: Call) -> ResponseStream[ChatResponseUpdate, ChatResponse[Any]]:
        async def pieces() -> AsyncIterator[ChatResponseUpdate]:
            for number, content in enumerate(_in_pieces(self._contents(call))):
                if self._gate is not None:
                    await self._gate(call.number, number)
                yield ChatResponseUpdate(role="assistant", contents=[content])

        return self._build_response_stream(pieces())

    def _number(self, messages: Sequence[Message]) -> int:
        own = {None, self._author} if self._author is not None else None
        return sum(
            message.role == "assistant" and (own is None or message.author_name in own)
            for message in messages
        )

    def _contents(self, call: Call) -> list[Content]:
        said = self._said(call)
        contents = [
            Content.from_text(one) if isinstance(one, str) else copy.deepcopy(one)
            for one in ([said] if isinstance(said, str | Content) else said)
        ]
        for place, content in enumerate(contents):
            if content.type == "function_call" and not content.call_id:
                content.call_id = f"{content.name}-{call.number}-{place}"
        return contents

    def _said(self, call: Call) -> Any:
        reply: Any = self._replies
        if not callable(reply):
            if call.number >= len(reply):
                raise AssertionError(
                    f"the script has {len(reply)} replies, and the conversation asks for number {call.number}"
                )
            reply = reply[call.number]
        said: Any = reply(call.messages) if callable(reply) else reply
        if isinstance(said, BaseException):
            raise said
        return said


def scripted_agent(
    replies: Sequence[Reply] | Callable[[Sequence[Message]], Any],
    *,
    name: str = "agent",
    gate: Callable[[int, int], Awaitable[object]] | None = None,
    **kwargs: Any,
) -> Agent[Any]:
    """Return an agent on a scripted client of its own.

    Args:
        replies: The script; see `ScriptedChatClient`.
        name: The agent's name.
        gate: The client's.
        **kwargs: For the agent, such as `tools`.
    """
    return Agent(ScriptedChatClient(replies, author=name, gate=gate), name=name, **kwargs)


def _in_pieces(contents: Sequence[Content]) -> list[Content]:
    pieces: list[Content] = []
    for content in contents:
        if content.type == "text" and content.text:
            words = content.text.split(" ")
            pieces += [Content.from_text(f" {word}" if at else word) for at, word in enumerate(words)]
        else:
            pieces.append(content)
    return pieces
