"""The guard that lets one run at a time use a checkpoint.

It belongs to the checkpoint, knows nothing of event loops, and is safe from every thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from branchpoint.checkpoint._history import Rested
from branchpoint.errors import CheckpointInUseError

if TYPE_CHECKING:
    from branchpoint.checkpoint._checkpoint import Checkpoint
    from branchpoint.checkpoint._contract import Lease
    from branchpoint.checkpoint._snapshot import CheckpointSnapshot
    from branchpoint.checkpoint._state import Summary
    from branchpoint.codec import Level

__all__ = ["Guard", "Hold"]


class Guard:
    """Who holds one checkpoint. Taking it never waits."""

    def __init__(self, checkpoint_id: str) -> None:
        self._checkpoint_id = checkpoint_id
        # Reentrant: the collector may drop a forgotten hold of this guard while the lock is taken.
        self._lock = threading.RLock()
        self._token: object | None = None
        self._owner = ""
        self._closing = False
        self._ticket: object | None = None
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        #: The lease under which whoever has it commits.
        self.lease: Lease | None = None
        #: One that was not given back when the guard was.
        self.left: Lease | None = None

    @property
    def owner(self) -> str | None:
        """What holds the checkpoint, in words; None when it is free."""
        with self._lock:
            return self._owner if self._token is not None else None

    def take(self, owner: str) -> object:
        """Take the guard and return the token that gives it back.

        Raises:
            CheckpointInUseError: Somebody has it.
        """
        with self._lock:
            if self._token is not None:
                raise self._in_use()
            self._token = token = object()
            self._owner = owner
            self._closing = False
            return token

    def give_back(self, token: object) -> None:
        """Free the guard; a token that is not in force changes nothing. A commit in flight is waited out."""
        with self._lock:
            if token is not self._token:
                return
            if self._ticket is not None:
                self._token = _LEFT  # freed by end_commit: nobody commits beside a commit in flight
                self._owner = f"{self._owner} (its last commit is still in flight)"
                return
            self._free()

    def begin_commit(self, token: object) -> object:
        """Let the holder commit, one commit at a time, and return the ticket that ends it.

        Raises:
            CheckpointInUseError: The token was given back, or another commit of it is in flight.
        """
        with self._lock:
            if token is not self._token:
                raise CheckpointInUseError(
                    f"checkpoint {self._checkpoint_id!r} is no longer held by this run: it gave its hold "
                    "back, so nothing of it is committed any more"
                )
            if self._ticket is not None:
                raise self._in_use()
            self._ticket = ticket = object()
            return ticket

    def end_commit(self, ticket: object) -> None:
        """Say that the commit of this ticket has landed or failed; an old ticket changes nothing."""
        with self._lock:
            if ticket is not self._ticket:
                return
            self._ticket = None
            if self._token is _LEFT:
                self._free()

    def put_lease(self, token: object, lease: Lease | None) -> None:
        """Say under which lease the holder commits; a token that is not in force changes nothing."""
        with self._lock:
            if token is self._token:
                self.lease = lease

    def mark_closing(self, token: object) -> None:
        """Say that the holder is only cleaning up, so that the next one may wait for it."""
        with self._lock:
            if token is self._token:
                self._closing = True

    async def take_when_closed(self, owner: str, grace: float) -> object:
        """Take the guard; wait up to `grace` seconds for a holder that is only cleaning up.

        Raises:
            CheckpointInUseError: Somebody has it and is not cleaning up, or does so for too long.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + grace
        while (left := end - loop.time()) > 0:
            freed = self._wait_for_closing(loop)
            if freed is None:
                break
            try:
                await asyncio.wait([freed], timeout=left)
            finally:
                with self._lock:
                    self._waiting = [entry for entry in self._waiting if entry[1] is not freed]
        return self.take(owner)

    def _wait_for_closing(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None] | None:
        with self._lock:
            if self._token is None or not (self._closing or self._token is _LEFT):
                return None
            freed: asyncio.Future[None] = loop.create_future()
            self._waiting.append((loop, freed))
            return freed

    def _free(self) -> None:
        self._token = None
        self._owner = ""
        if self.lease is not None:
            self.lease, self.left = None, self.lease
        waiting, self._waiting = self._waiting, []
        for loop, freed in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake, freed)

    def _in_use(self) -> CheckpointInUseError:
        return CheckpointInUseError(
            f"checkpoint {self._checkpoint_id!r} is in use by {self._owner}: "
            "wait until that has ended, or cancel it"
        )


_LEFT = object()


def _wake(freed: asyncio.Future[None]) -> None:
    if not freed.done():
        freed.set_result(None)


class Committing:
    """One commit in flight. Use it as a block, or call `begin` and `end`; ending it twice is fine."""

    def __init__(self, guard: Guard, token: object) -> None:
        self._guard = guard
        self._token = token
        self._ticket: object | None = None

    def begin(self) -> None:
        """Begin the commit.

        Raises:
            CheckpointInUseError: Another commit of the hold is in flight, or the hold was released.
        """
        self._ticket = self._guard.begin_commit(self._token)

    def end(self) -> None:
        """Say that it has landed or failed."""
        if self._ticket is not None:
            self._guard.end_commit(self._ticket)

    __enter__ = begin

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


class Hold:
    """The right to use a checkpoint, from `checkpoint.hold(...)` until `release()` or the end of the block.

    While it is held only the holder commits; everybody may read and fork. Release it from any
    thread, as often as you like. A hold that is dropped frees the checkpoint too.
    """

    def __init__(self, checkpoint: Checkpoint, guard: Guard, token: object) -> None:
        self._checkpoint = checkpoint
        self._guard = guard
        self._token = token
        #: What the codec remembers of the state committed last, so that it looks at changes only.
        self.memo: Level | None = None
        #: Set when its lease passed on: what to say, and `retry_after`. Nothing is committed any more.
        self.lost: tuple[str, float | None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()

    def release(self) -> None:
        """Free the checkpoint; a commit in flight frees it when it has landed or failed."""
        self._guard.give_back(self._token)

    def mark_closing(self) -> None:
        """Say that this run is only cleaning up: `take_hold` waits for it instead of being refused."""
        self._guard.mark_closing(self._token)

    @property
    def lease(self) -> Lease | None:
        """The lease under which it commits; None without one."""
        return self._guard.lease

    @lease.setter
    def lease(self, lease: Lease | None) -> None:
        self._guard.put_lease(self._token, lease)

    @property
    def left_lease(self) -> Lease | None:
        """A lease that an earlier holder of this object took and could not give back."""
        return self._guard.left

    async def end_left_lease(self) -> None:
        """Give back the lease that was left: it would stand in the way of this object itself.

        Where that fails again it expires by itself, and is tried once more by the next holder.
        """
        left, storage = self._guard.left, self._checkpoint.checkpoint_storage
        if left is not None and storage is not None:
            with suppress(Exception):
                await storage.end_lease(self._checkpoint.checkpoint_id, left)
                self._guard.left = None

    def rested(self) -> object:
        """Take back what the run before this one left with `rest`; None when the selected head is another since."""
        history = self._checkpoint._history
        rested = history.rested
        if rested is None or rested.snapshot_id != history.selected or rested.table is not history.table:
            return None
        self.memo = rested.memo
        return rested.state

    def rest(self, state: object) -> None:
        """Leave something for the next run that continues from the selected head; None leaves nothing.

        A run takes back what was left before it changes any of it, and leaves it again only when what it
        last committed is the selected head and `state` says exactly that.
        """
        history = self._checkpoint._history
        selected = history.selected
        if state is None or selected is None:
            history.rested = None
        else:
            history.rested = Rested(selected, history.table, state, self.memo)

    def committing(self) -> Committing:
        """Return the one commit of this hold that is about to be made; for the commit path alone."""
        return Committing(self._guard, self._token)

    async def commit_snapshot(
        self,
        state: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        summary: Summary | None = None,
        trace: str | None = None,
    ) -> CheckpointSnapshot:
        """Commit as the holder; the same single path as `Checkpoint.commit_snapshot`.

        Args:
            state: The four buckets, whose leaves may be encoded already; None commits the state of
                the selected head again.
            metadata: Exactly the metadata of the new snapshot. Plain JSON.
            summary: What the manifest says of this state; with it, only the names of the buckets are
                checked. None makes it an edit: its whole shape is checked, boundary `edited`.
            trace: The `traceparent` to record.

        Raises:
            InvalidCallError: The state has another shape than a run takes; nothing was persisted.
            CheckpointInUseError: The hold was released, or another commit of it is in flight.
            CheckpointConflictError: The stored head moved; nothing was persisted.
        """
        return await self._checkpoint._commit(
            self, state=state, metadata=metadata, summary=summary, trace=trace
        )
