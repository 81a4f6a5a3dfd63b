"""Starting a run, and ending it however its caller leaves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from branchpoint.checkpoint import Checkpoint, Hold
from branchpoint.engine import Channel, Finished, Runner, RunRequest, ended
from branchpoint.errors import CheckpointInUseError
from branchpoint.workflow._leased import leased
from branchpoint.workflow._underway import UNDER_WAY

if TYPE_CHECKING:
    from branchpoint.graph import Graph

__all__ = ["Call", "Started"]


class Call:
    """One call, before and after it has started."""

    def __init__(
        self, graph: Graph, request: RunRequest, checkpoint: Checkpoint | None, limit: int | None
    ) -> None:
        self.graph = graph
        self.request = request
        self.checkpoint = checkpoint
        self.limit = limit

    async def start(self) -> Started:
        """Take the checkpoint and start the run in a task of its own; the task takes the lease first.

        Raises:
            CheckpointInUseError: Another run holds the checkpoint; no handler was entered.
        """
        checkpoint = self.checkpoint
        hold: Hold | None = None
        UNDER_WAY.end_those_of_closed_loops()
        if checkpoint is None:
            channel = Channel(f"a run of workflow {self.graph.name!r} without a checkpoint", None, self.limit)
        else:
            owner = f"a run of workflow {self.graph.name!r}"
            hold = await self._taken(checkpoint, owner)
            channel = Channel(
                f"checkpoint {checkpoint.checkpoint_id!r}", checkpoint.checkpoint_id, self.limit
            )
        runner = Runner(self.graph, self.request, channel, checkpoint, hold)
        storage = None if checkpoint is None else checkpoint.checkpoint_storage
        if storage is None or not storage.leases:
            run = runner.run()
        else:
            assert checkpoint is not None and hold is not None
            run = leased(storage, checkpoint.checkpoint_id, hold, runner.run)
        task = asyncio.get_running_loop().create_task(run, name=channel.where)
        return Started(channel, task, hold)

    async def _taken(self, checkpoint: Checkpoint, owner: str) -> Hold:
        loop, grace = asyncio.get_running_loop(), self.request.grace_seconds
        end = loop.time() + grace
        try:
            return await checkpoint.take_hold(owner, grace=grace)
        except CheckpointInUseError:
            # Its caller may have been cancelled just now, and learns of it in the next turn of the loop.
            await asyncio.sleep(0)
            return await checkpoint.take_hold(owner, grace=end - loop.time())


class Started:
    """A run that is under way; the checkpoint is free as soon as its task has ended, however."""

    def __init__(self, channel: Channel, task: asyncio.Task[Finished], hold: Hold | None) -> None:
        self.channel = channel
        self.task = task
        self._hold = hold
        UNDER_WAY.keep(task, lambda: _end(channel, hold))

    def cancel(self) -> None:
        """Ask the run to end; its handlers are cancelled and may clean up."""
        if self.task.done():
            return
        self._mark_closing()
        self.task.cancel()

    def leave(self) -> None:
        """Ask the run to end, from whatever thread dropped its reader."""
        if self.task.done():
            return
        self._mark_closing()  # now, not in a turn of the loop: the next run may already be about to start
        try:
            self.task.get_loop().call_soon_threadsafe(self.cancel)
        except RuntimeError:
            pass  # the loop is closed, and the run with it

    def _mark_closing(self) -> None:
        if self._hold is not None:
            self._hold.mark_closing()

    async def stop(self) -> None:
        """Cancel the run and wait until it has cleaned up; the grace period bounds this.

        Raises:
            asyncio.CancelledError: The waiter's own cancellation; what the run raised is for its reader.
        """
        self.cancel()
        await ended(self.task)


def _end(channel: Channel, hold: Hold | None) -> None:
    if hold is not None:
        hold.release()
    channel.close()
