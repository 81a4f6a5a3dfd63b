"""Stopping tasks: cancel, wait for their clean-up, and abandon what does not end."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

__all__ = ["settle", "stop"]


async def stop(tasks: Collection[asyncio.Task[Any]], grace_seconds: float) -> set[asyncio.Task[Any]]:
    """Cancel `tasks` and wait until they have ended, at most the grace period.

    Returns:
        The tasks that had not ended by then; they are left to themselves.
    """
    running = {task for task in tasks if not task.done()}
    for task in running:
        task.cancel()
    if not running:
        return set()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace_seconds
    cancelled: asyncio.CancelledError | None = None
    while running and (left := deadline - loop.time()) > 0:
        try:
            _, running = await asyncio.wait(running, timeout=left)
        except asyncio.CancelledError as error:  # a second cancellation does not shorten the clean-up
            cancelled = error
            running = {task for task in running if not task.done()}
    for task in running:
        task.add_done_callback(_forget)
    if cancelled is not None:
        raise cancelled
    return running


async def settle(task: asyncio.Task[Any]) -> Any:
    """Wait for `task` to end whatever happens to the waiter, then pass on a cancellation it met.

    Returns:
        What the task returned.

    Raises:
        asyncio.CancelledError: The very one that reached the waiter, once the task has ended.
        Exception: What the task raised.
    """
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        _forget(task)
        raise cancelled
    return task.result()


def _forget(task: asyncio.Task[Any]) -> None:
    """Look at the outcome, so that nothing is reported as never retrieved."""
    if not task.cancelled():
        task.exception()
