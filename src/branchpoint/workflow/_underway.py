"""What keeps a run alive while it goes on, even when nobody is left who waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

__all__ = ["UNDER_WAY", "UnderWay"]

_Ends = dict[asyncio.Task[Any], Callable[[], None]]


class UnderWay:
    """Holds tasks until they end.

    A loop holds its tasks weakly. A run that waits for its reader, and whose reader has become garbage
    in a reference cycle, would be garbage with it: it would vanish in place of being cancelled, and its
    handlers could not clean up.
    """

    def __init__(self) -> None:
        self._by_loop: dict[asyncio.AbstractEventLoop, _Ends] = {}

    def keep(self, task: asyncio.Task[Any], end: Callable[[], None]) -> None:
        """Hold a task of the running loop, and call `end` once it has ended, however."""
        loop = task.get_loop()
        ends = self._by_loop.get(loop)
        if ends is None:
            ends = self._by_loop[loop] = {}
        ends[task] = end
        task.add_done_callback(self._ended)

    def end_those_of_closed_loops(self) -> None:
        """Let go of what was under way in a loop that was closed: it will never go on."""
        for loop in tuple(self._by_loop):
            if loop.is_closed():
                for end in (self._by_loop.pop(loop, None) or {}).values():
                    with suppress(RuntimeError):  # who waits in that loop cannot be woken
                        end()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        loop = task.get_loop()
        ends = self._by_loop.get(loop)
        end = ends.pop(task, None) if ends is not None else None
        if not ends:
            self._by_loop.pop(loop, None)  # a loop that was closed is not held
        if end is not None:
            end()


UNDER_WAY: Final = UnderWay()
"""Of this process. It is empty when nothing runs."""
