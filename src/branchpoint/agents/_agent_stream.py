"""The stream of a workflow agent's call, which knows whether somebody still reads it."""

from __future__ import annotations

import weakref
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from agent_framework import AgentResponse, AgentResponseUpdate, ResponseStream

from branchpoint.agents._sessions import Stay
from branchpoint.errors import CheckpointInUseError

__all__ = ["AgentStream"]


class AgentStream(ResponseStream[AgentResponseUpdate, AgentResponse[Any]]):
    """The updates of one call, and in the end its response.

    Nothing starts before the first read. A stream that is dropped, or closed, ends its call, and so does
    the next call on the session once no loop reads the stream any more; until then
    `get_final_response()` reads on.
    """

    def __init__(self, updates: AsyncGenerator[AgentResponseUpdate, None], stay: Stay) -> None:
        super().__init__(_Updates(updates, stay), finalizer=AgentResponse.from_updates)
        self._stay = stay

    def __aiter__(self) -> Any:
        return _Reader(self, self._stay)


class _Updates(AsyncIterator[AgentResponseUpdate]):
    """What a call tells. It is not part of a cycle, so that it is gone as soon as its stream is."""

    def __init__(self, updates: AsyncGenerator[AgentResponseUpdate, None], stay: Stay) -> None:
        self._updates = updates
        self._stay = stay
        self._taken_over = False
        stay.end = _Ending(weakref.ref(self))

    async def __anext__(self) -> AgentResponseUpdate:
        if self._taken_over:
            raise CheckpointInUseError(
                "nobody read this stream any more, so another call on its session has ended it"
            )
        return await self._updates.__anext__()

    async def aclose(self) -> None:
        """End the call, and wait until it has cleaned up."""
        self._stay.left = True
        self._stay.end = None
        await self._updates.aclose()

    async def give_way(self) -> None:
        """End the call for another one."""
        self._taken_over = True
        await self._updates.aclose()

    def __del__(self) -> None:
        # The loop closes what was being told in one of its next turns; until then the next call waits.
        self._stay.left = True


class _Ending:
    """Ends what a stream tells, if that is still there."""

    def __init__(self, updates: weakref.ref[_Updates]) -> None:
        self._updates = updates

    async def __call__(self) -> None:
        updates = self._updates()
        if updates is not None:
            await updates.give_way()


class _Reader(AsyncIterator[AgentResponseUpdate]):
    """One `async for` over a stream."""

    def __init__(self, stream: AgentStream, stay: Stay) -> None:
        self._stream = stream
        self._stay = stay
        stay.left = False

    async def __anext__(self) -> AgentResponseUpdate:
        return await self._stream.__anext__()

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.close()

    def __del__(self) -> None:
        self._stay.left = True
