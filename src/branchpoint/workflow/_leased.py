"""A run under a lease: taken before anything else, renewed while the run goes on, given back however it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from branchpoint.checkpoint import CheckpointStorage, Hold, Lease, renewed_every
from branchpoint.engine import Finished, asked_to_end, ended
from branchpoint.errors import CheckpointLeasedError, StorageError

__all__ = ["leased"]

_logger = logging.getLogger("branchpoint")


async def leased(
    storage: CheckpointStorage,
    checkpoint_id: str,
    hold: Hold,
    run: Callable[[], Coroutine[Any, Any, Finished]],
) -> Finished:
    """Make a run under a lease of its checkpoint; `run` is called once the lease is taken.

    Raises:
        CheckpointLeasedError: Another holds it; the run was not begun.
        StorageError: It could not be taken; the run was not begun.
        Exception: What the run raised.
    """
    holder = _Holder(storage, checkpoint_id, hold)
    await holder.take()
    try:
        finished = await run()
    except GeneratorExit:
        raise  # its loop will not go on, so nothing can be awaited any more
    except BaseException:
        with suppress(asyncio.CancelledError):  # the run's own error is the one that is raised
            await holder.give_back()
        raise
    await holder.give_back()
    return finished


class _Holder:
    """Holds one lease for one run. All storage calls are seen through, whatever happens to who waits."""

    def __init__(self, storage: CheckpointStorage, checkpoint_id: str, hold: Hold) -> None:
        self._storage = storage
        self._checkpoint_id = checkpoint_id
        self._hold = hold
        self._beating: asyncio.Task[None] | None = None
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def take(self) -> None:
        """Take the lease and begin to renew it; who is cancelled meanwhile gives it back at once."""
        taking = asyncio.create_task(self._take(), name=f"taking the lease of {self._checkpoint_id!r}")
        try:
            await ended(taking)
            if taking.cancelled():
                raise StorageError(
                    f"taking the lease of checkpoint {self._checkpoint_id!r} was cancelled inside the storage"
                )
            taking.result()
        except asyncio.CancelledError:
            with suppress(asyncio.CancelledError):
                await self.give_back()
            raise
        finally:
            del taking  # it holds the error, which holds this frame

    async def give_back(self) -> None:
        """Stop renewing and give the lease back; where that fails it expires, which is no error of the run.

        Raises:
            asyncio.CancelledError: The waiter's own cancellation, once this is over all the same.
        """
        beating, self._beating = self._beating, None  # a task that was cancelled holds its frames
        if beating is not None and not beating.get_loop().is_closed():
            what = f"giving back the lease of {self._checkpoint_id!r}"
            await ended(asyncio.create_task(self._give_back(beating), name=what))

    async def _take(self) -> None:
        seconds = self._storage.lease_seconds
        try:
            async with asyncio.timeout(seconds):  # one that hangs must not hold up a caller who was cancelled
                await self._hold.end_left_lease()
                lease = await self._storage.take_lease(self._checkpoint_id)
        except TimeoutError as error:
            raise StorageError(
                f"the lease of checkpoint {self._checkpoint_id!r} was not taken within {seconds:g} seconds. Nothing "
                "was run; see whether the storage answers, and try again"
            ) from error
        self._hold.lease = lease
        self._beating = asyncio.create_task(
            self._renew(lease), name=f"renewing the lease of {self._checkpoint_id!r}"
        )

    async def _renew(self, lease: Lease) -> None:
        wait = renewed_every(lease)
        while True:
            await asyncio.wait({self._over}, timeout=wait)
            if self._over.done():
                return
            try:
                await self._storage.renew_lease(self._checkpoint_id, lease)
            except CheckpointLeasedError as error:
                self._hold.lost = (str(error), error.retry_after)
                return
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and asked_to_end():
                    raise
                _logger.warning(
                    "The lease of checkpoint %r was not renewed; tried again in %.1f seconds: %r",
                    self._checkpoint_id, wait, error,
                )  # fmt: skip

    async def _give_back(self, beating: asyncio.Task[None]) -> None:
        lease = self._hold.lease
        self._over.set_result(None)
        beating.cancel()  # it may be in the middle of a renewal that hangs
        if lease is None:
            return
        try:
            async with asyncio.timeout(lease.seconds):  # by then it has expired
                await asyncio.wait({beating})
                await self._storage.end_lease(self._checkpoint_id, lease)
            self._hold.lease = None
        except Exception as error:
            _logger.warning(
                "The lease of checkpoint %r was not given back; it expires in %.1f seconds: %r",
                self._checkpoint_id, lease.seconds, error,
            )  # fmt: skip
