"""Waiting for a storage call to land or fail, whatever happens to the one who waits."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from branchpoint.errors import StorageError

if TYPE_CHECKING:
    from branchpoint.checkpoint._hold import Hold

__all__ = ["landed"]


async def landed(hold: Hold, call: Coroutine[Any, Any, None], what: str) -> None:
    """Make a storage call as the only one of its hold, and wait until it has returned.

    The call runs in a task of its own. A cancellation that arrives meanwhile is kept, and the very
    same object is raised afterwards, when memory and storage agree. A failure of the call is then
    its cause, so it is not lost.

    Raises:
        asyncio.CancelledError: The waiting task was cancelled; the call has landed or failed.
        CheckpointInUseError: Another call of this hold is in flight, or the hold was released.
        StorageError: The call was cancelled by somebody else, so its outcome is unknown.
    """
    try:
        commit = hold.committing()
        commit.begin()
    except BaseException:
        call.close()
        raise

    waiter: asyncio.Future[None] | None = None

    def over() -> None:
        commit.end()
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def in_flight() -> None:
        try:
            await call
        finally:
            over()  # whoever waits wakes after this step, which is the last one

    # Also when the loop ends before the task has begun.
    def after(_: asyncio.Task[None]) -> None:
        call.close()
        over()

    loop = asyncio.get_running_loop()
    task = loop.create_task(in_flight(), name=what)
    task.add_done_callback(after)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        # Not `shield`, which wakes before the call is over. Who is cancelled again and again, as
        # anyio's cancel scopes do it, goes round once more each time.
        waiter = loop.create_future()
        try:
            await waiter
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    failure = None if task.cancelled() else task.exception()
    try:
        if cancelled is not None:
            if failure is not None:
                raise cancelled from failure
            raise cancelled
        if task.cancelled():
            raise StorageError(
                f"{what} was cancelled inside the storage: `refresh()` shows whether it landed"
            )
        if failure is not None:
            raise failure
    finally:
        del failure, cancelled  # they hold this frame, and it would hold them
