"""Which sessions an agent is at work on: one call at a time for each, also by its id."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from agent_framework import AgentSession

from branchpoint.errors import CheckpointInUseError

__all__ = ["Sessions", "Stay"]


class Sessions:
    """The sessions that calls of one agent are at work on; none when nothing runs."""

    def __init__(self) -> None:
        self._stays: dict[str, Stay] = {}

    def __len__(self) -> int:
        return len(self._stays)

    def stay(self, session: AgentSession | None) -> Stay:
        """Return the stay of one call at a session; a call without one stays nowhere."""
        return Stay(self._stays, None if session is None else session.session_id)

    def refuse_busy(self, session_id: str) -> None:
        """Refuse what would come in the way of a call.

        Raises:
            CheckpointInUseError: A call is at work on the session.
        """
        if session_id in self._stays:
            raise _in_use(session_id)


class Stay:
    """One call at a session; entering this takes the session.

    Attributes:
        left: Whether nobody reads what the call tells, so that the next call may end it.
        end: How to end it then; it is at an end already, or about to be, where this is None.
    """

    def __init__(self, stays: dict[str, Stay], session_id: str | None) -> None:
        self.left = False
        self.end: Callable[[], Awaitable[object]] | None = None
        self._stays = stays
        self._session_id = session_id

    async def __aenter__(self) -> Self:
        """Take the session; ends a call that was left, and waits for its clean-up.

        Raises:
            CheckpointInUseError: Another call is at work on it.
        """
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        if self._session_id is None:
            return self
        while (other := self._stays.setdefault(self._session_id, self)) is not self:
            if other._loop.is_closed():
                del self._stays[self._session_id]  # it will never go on
            elif other.left and other._loop is self._loop:
                end, other.end = other.end, None
                if end is not None:
                    await end()
                await other._ended.wait()
            else:
                raise _in_use(self._session_id)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session_id is not None and self._stays.get(self._session_id) is self:
            del self._stays[self._session_id]
        self._ended.set()


def _in_use(session_id: str) -> CheckpointInUseError:
    return CheckpointInUseError(
        f"session {session_id!r} is in use by another call of this agent: wait until that has ended, or cancel it"
    )
