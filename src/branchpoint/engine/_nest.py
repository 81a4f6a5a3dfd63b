"""Running the executions of a child workflow inside a superstep of its parent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from branchpoint.checkpoint import BoundaryName, BoundaryView, durable_events
from branchpoint.engine._children import Children, question
from branchpoint.engine._keys import derive
from branchpoint.engine._port import Origin
from branchpoint.engine._routing import find_ways
from branchpoint.engine._share import Asked, Sent, Share
from branchpoint.engine._state import IN_PROGRESS, Delivery, RunState
from branchpoint.engine._transitions import Done
from branchpoint.graph import interceptors

if TYPE_CHECKING:
    from branchpoint.engine._stepping import Stepper

__all__ = ["Nest"]


class Nest:
    """Runs the child of one executor.

    Attributes:
        owner: Steps the parent.
        executor_id: The executor.
    """

    def __init__(self, owner: Stepper, executor_id: str) -> None:
        self.owner = owner
        self.executor_id = executor_id
        self._steppers: dict[str, Stepper] = {}
        self._keepers: dict[str, Execution] = {}

    async def serve(
        self, share: Share, deliveries: Sequence[Delivery], origin: Origin, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Give the executions what is for them, run each until nothing is left to do, and hand over.

        Args:
            share: Takes what they made.
            deliveries: The messages of the superstep.
            origin: Of the parent's superstep.
            loop: The event loop of the run.

        Raises:
            Exception: What a handler inside raised, with where it stands in its notes.
        """
        parent, graph = self.owner.state, self.owner.state.graph
        children = Children.of(parent, self.executor_id)
        dropped = children.accept(parent, deliveries)
        served = children.served
        for name in served:
            stepper = self._stepper(name, children.executions[name], origin)
            stepper.tell_dropped(dropped.get(name, ()))
            while stepper.state.deliveries:
                stepper.check_bound()
                await stepper.superstep(loop)
        children.hand_over(share, parent, origin.superstep)
        for name in served:
            if name not in children.executions:
                del self._steppers[name], self._keepers[name]
        await find_ways(graph, share)
        if behind := interceptors(graph, self.executor_id):
            await self._offer(share, behind)
        if parent.medium is not None:
            share.saved = children.export()

    def _stepper(self, name: str, state: RunState, origin: Origin) -> Stepper:
        stepper = self._steppers.get(name)
        if stepper is None:
            keeper = self._keepers[name] = Execution(self, name, origin)
            stepper = self._steppers[name] = self.owner.inner(self.executor_id, state, keeper)
        self._keepers[name].outer = origin
        return stepper

    async def _offer(self, share: Share, behind: Sequence[str]) -> None:
        """Send requests to the executors that take them; one that no edge lets through stays with the caller."""
        left: list[Asked] = []
        for asked in share.asked:
            probe = Share(share.executor_id, share.graph, share.shared, share.medium)
            message = question(self.executor_id, asked)
            probe.sent = [Sent(message, target) for target in behind]
            await find_ways(share.graph, probe)
            taken = [(sent, way) for sent, way in zip(probe.sent, probe.ways, strict=True) if way.targets]
            share.sent += [sent for sent, _ in taken]
            share.ways += [way for _, way in taken]
            if not taken:
                left.append(asked)
        share.asked = left

    def put(self) -> None:
        """Put where the executions are now into the parent's last boundary."""
        children = Children.of(self.owner.state, self.executor_id)
        self.owner.keep_executor(self.executor_id, children.export())

    def tell_completed(self, name: str, executors: Sequence[str]) -> None:
        """Say who ran in a superstep of an execution that was just kept."""
        stepper = self._steppers[name]
        channel = stepper.channel
        view = BoundaryView(status=IN_PROGRESS, superstep=stepper.state.iteration, executors=executors)
        for event in durable_events(view):
            channel.put(channel.stamp(event))

    def is_alone(self, name: str) -> bool:
        """Say whether an execution is all that the present superstep of the parent does."""
        parent = self.owner.state
        targets = {target for delivery in parent.deliveries for target in delivery.targets}
        return len(targets) == 1 and Children.of(parent, self.executor_id).served == [name]


class Execution(msgspec.Struct):
    """Has the boundaries of one execution committed.

    Attributes:
        nest: What runs it.
        name: Its name.
        outer: The origin of the parent's superstep.
    """

    nest: Nest
    name: str
    outer: Origin

    def origin(self, state: RunState) -> Origin:
        """Return where the next superstep starts from: the parent's superstep, and how far it is in there."""
        outer, number = self.outer, state.iteration + 1
        path = derive(outer.path, self.nest.executor_id, self.name, number)
        return msgspec.structs.replace(outer, superstep=number, turn=state.turn, path=path)

    async def commit(self, state: RunState, boundary: BoundaryName, done: Done | None = None) -> None:
        """Commit the boundary as part of the parent, then tell who ran.

        The last boundary of an execution that is all its parent does is not committed by itself: that of
        the parent follows at once.
        """
        if state.medium is not None:
            self.nest.put()
            if state.status == IN_PROGRESS or not self.nest.is_alone(self.name):
                await self.nest.owner.keeper.commit_inner()
        self.nest.tell_completed(self.name, () if done is None else done.executors)

    async def commit_inner(self, boundary: BoundaryName = "child_superstep_completed") -> None:
        """Commit the run's last boundary with where this execution is now."""
        self.nest.put()
        await self.nest.owner.keeper.commit_inner()
