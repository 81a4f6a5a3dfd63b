"""Stopping tasks: cancel, wait for their clean-up, and abandon what does not end."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

__all__ = ["asked_to_end", "ended", "forget", "stop"]


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
            cancelled = cancelled or error
            running = {task for task in running if not task.done()}
    for task in running:
        task.add_done_callback(forget)
    if cancelled is not None:
        raise cancelled
    return running


async def ended(task: asyncio.Task[Any]) -> None:
    """Wait until `task` has ended, however it ends and whatever happens to the waiter meanwhile.

    Raises:
        asyncio.CancelledError: The waiter's own cancellation, the very one, once the task has ended.
    """
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    forget(task)
    if cancelled is not None:
        raise cancelled


def forget(task: asyncio.Task[Any]) -> None:
    """Look at the outcome of a task that has ended, so that it is not reported as never retrieved."""
    if task.done() and not task.cancelled():
        task.exception()


def asked_to_end() -> bool:
    """Say whether somebody has cancelled the current task; otherwise its `CancelledError` is the code's own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
