"""Calls on checkpoints, each compared with what the model foretells of it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, ClassVar

from hypothesis.stateful import RuleBasedStateMachine

from branchpoint import (
    Checkpoint,
    CheckpointConflictError,
    CheckpointNotFoundError,
    CheckpointSnapshot,
    StorageError,
    WorkflowEvent,
)
from branchpoint.testing import Fault, FaultyStorage, LineageLaw
from tests.property.errand_model import State, named, observed, turn_outputs
from tests.property.errands import Trouble, ahead, errands
from tests.property.lineage_model import Book, Call, Commit, Holder, Node, Report, Work
from tests.scenario.kit import Boom, Place, place_of, turns

HOLDERS = 4

Mishap = tuple[str, Any, int]
"""What goes wrong, in which executor, and at the how-manieth time; for a storage the executor is empty."""


class Foretelling(RuleBasedStateMachine):
    """Holders of checkpoints on one storage, and a model of what they have seen."""

    kind: ClassVar[str] = "none"

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.place: Place = place_of(self.kind, Path(self.folder.name))
        self.workflow = errands()
        self.shelf: dict[str, Book] = {}
        self.holders: list[Holder] = []
        self.laws: dict[str, LineageLaw] = {}
        self.touched: set[int] = set()
        self.read: set[tuple[object, ...]] = set()
        self.payloads: dict[str, tuple[str, Any]] = {}
        self.live: dict[str, list[WorkflowEvent]] = {}
        self.count = 0

    def teardown(self) -> None:
        self.runner.close()
        self.folder.cleanup()

    @property
    def is_stored(self) -> bool:
        return self.kind != "none"

    def open(self) -> FaultyStorage | None:
        storage = self.place.open()
        return None if storage is None else FaultyStorage(storage)

    def hold(self, holder: Holder, place: int | None = None) -> None:
        """Put a holder among the others; when there are enough, the one at `place` drops what it has."""
        if len(self.holders) < HOLDERS:
            self.holders.append(holder)
        else:
            self.holders[(place or 0) % HOLDERS] = holder

    def pick(self, n: int, fitting: Callable[[Holder], object] = lambda holder: True) -> Holder:
        """One of the holders; most often one that is fitting, so that more happens than refusals."""
        fit = [place for place, one in enumerate(self.holders) if fitting(one)] if n < 8 else []
        place = fit[n % len(fit)] if fit else n % len(self.holders)
        self.touched.add(place)
        return self.holders[place]

    def fresh(self, name: str) -> str:
        self.count += 1
        return f"{name}-{self.count}"

    # One call, and what came of it.

    async def outcome(
        self, holder: Holder, call: Callable[[], Coroutine[Any, Any, Any]], mishap: Mishap | None
    ) -> Any:
        """Make a call with a mishap ahead; return its result, or what it raised."""
        what, where, number = mishap or ("", "", 0)
        storage = holder.cp.checkpoint_storage
        trouble = Trouble(where, number, what) if what in ("boom", "cancel") else None
        with ahead(trouble):
            task = asyncio.ensure_future(call())
            if isinstance(storage, FaultyStorage):
                faults: dict[str, Fault] = {
                    "before": "fail",
                    "lost": "lose",
                    "unknown": "silence",
                    "cancelled": lambda _: task.cancel() and None,
                }
                storage.arm({number: faults[what]} if what in faults else {})
            if trouble is not None:
                trouble.cancel = task.cancel
            await asyncio.wait({task})
        if isinstance(storage, FaultyStorage):
            storage.arm({})
        assert holder.cp.in_use_by is None
        if task.cancelled():
            return asyncio.CancelledError()
        return task.exception() or task.result()

    def foretold(
        self, holder: Holder, commits: Sequence[Commit], mishap: Mishap | None
    ) -> tuple[int, type[BaseException] | None, bool]:
        """How many commits land, what is raised, and whether the holder does not see the last of them."""
        what, where, number = mishap or ("", "", 0)
        if what in ("boom", "cancel"):
            entered = 0
            for place, commit in enumerate(commits):
                entered += commit.entries[where]
                if entered >= number:
                    return place, Boom if what == "boom" else asyncio.CancelledError, False
        elif self.is_stored and number <= len(commits):
            if what == "before":
                return number - 1, StorageError, False
            if what == "unknown":
                return number, StorageError, True
            if what == "cancelled":
                return number, asyncio.CancelledError, False
        return len(commits), None, False

    def settle(
        self, holder: Holder, added: list[CheckpointSnapshot], commits: Sequence[Commit], *, unseen: bool
    ) -> State | None:
        """Compare what landed with what was foretold, and take it into the model."""
        names: dict[str, str] = {}
        state: State | None = None
        if unseen:  # the last one is in storage, and nobody here knows of it
            loaded = self.runner.run(self.loaded(holder.name))
            assert loaded is not None
            added = [*added, loaded.snapshots[-1]]
        assert len(added) == len(commits)
        parent = holder.selected
        for place, (snapshot, commit) in enumerate(zip(added, commits, strict=True)):
            asked = named(commit.state, names)["asked"]
            names |= {
                key: chosen
                for key, chosen in zip(asked, snapshot.manifest.requests, strict=True)
                if key.startswith("?")
            }
            state = named(commit.state, names)
            found = observed(snapshot)
            wrong = {key: (found[key], state[key]) for key in state if found[key] != state[key]}
            assert not wrong, f"found and foretold: {wrong}"
            assert snapshot.boundary == commit.boundary
            assert snapshot.parent_snapshot_id == parent
            assert snapshot.manifest.metadata == commit.metadata
            assert snapshot.manifest.executors == commit.executors
            node = Node(parent, commit.boundary, state, commit.metadata, commit.executors)
            holder.land(snapshot.snapshot_id, node, unseen=unseen and place == len(added) - 1)
            parent = snapshot.snapshot_id
        return state

    def run(self, holder: Holder, call: Call, mishap: Mishap | None = None, stream: bool = False) -> None:
        """Run the workflow, and compare all that is seen of it with what the model foretells."""
        meaning = holder.meaning(call, self.payloads)
        if isinstance(meaning, Work) and meaning.looks and holder.is_stale:
            meaning = CheckpointConflictError
        if not isinstance(meaning, Work):
            mishap = None
        leaving = mishap is not None and mishap[0] == "leave"
        events: list[WorkflowEvent] = []
        sight = LineageLaw.sight(holder.cp)
        arguments: dict[str, Any] = {"checkpoint": holder.cp, "max_supersteps": call.bound}
        if call.text is not None:
            arguments["message"] = call.text
        if call.answers is not None:
            arguments["responses"] = call.answers
        if call.input_id:
            arguments |= {"input_id": call.input_id, "metadata": call.metadata}

        async def once() -> Any:
            if not stream and not leaving:
                result = await self.workflow.run(**arguments, include_status_events=True)
                events.extend(result)
                return result
            reading = self.workflow.run(**arguments, include_status_events=True, stream=True)
            async for event in reading:
                events.append(event)
                if leaving and mishap is not None and sum(one.durable for one in events) == mishap[2]:
                    break
            else:
                return await reading.get_final_response()
            del reading
            await turns(2)
            (await holder.cp.take_hold("the next reader", grace=60)).release()
            return None

        result = self.runner.run(self.outcome(holder, once, mishap))
        added = LineageLaw.followed(sight, holder.cp)
        if isinstance(meaning, type):
            assert type(result) is meaning, f"{result!r} in place of {meaning.__name__}"
            assert added == []
            return
        if isinstance(meaning, Report):
            assert added == []
            self.hear(holder, events, added)
            self.compare_result(result, meaning.state)
            return
        if isinstance(result, BaseException) and mishap is None:
            raise result
        if result is None:  # how far it came is told by what it announced, and by itself
            self.settle(holder, added, meaning.commits[: len(added)], unseen=False)
            self.hear(holder, events, [])
            return
        landed, error, unseen = self.foretold(holder, meaning.commits, mishap)
        if call.input_id and landed:
            self.payloads.setdefault(call.input_id, call.payload)
        state = self.settle(holder, added, meaning.commits[:landed], unseen=unseen)
        self.hear(holder, events, added if error in (None, Boom) and (stream or error is None) else [])
        if error is not None:
            assert type(result) is error, repr(result)
        else:
            self.compare_result(result, holder.state if state is None else state)

    def hear(
        self, holder: Holder, events: Sequence[WorkflowEvent], added: Sequence[CheckpointSnapshot]
    ) -> None:
        """Keep what a reader was told of each new snapshot; what it was told again, it is told as it is."""
        durable = [event for event in events if event.durable]
        told = {event.event_id: event for event in holder.cp.events()} if durable else {}
        assert all(told[event.event_id] == event for event in durable)
        for one in added:
            self.live[one.snapshot_id] = [event for event in durable if event.snapshot_id == one.snapshot_id]
        new = [event for one in added for event in self.live[one.snapshot_id]]
        assert durable[len(durable) - len(new) :] == new

    def compare_result(self, result: Any, state: State) -> None:
        if isinstance(result, BaseException):
            raise result
        assert result.get_final_state().value == state["status"]
        assert result.get_outputs() == turn_outputs(state)
        asked = {event.request_id: event.data["text"] for event in result.get_request_info_events()}
        assert asked == state["asked"]

    def commit(
        self,
        holder: Holder,
        call: Callable[[], Coroutine[Any, Any, Any]],
        commit: Commit,
        mishap: Mishap | None,
    ) -> None:
        """Make a call that commits once."""
        sight = LineageLaw.sight(holder.cp)
        if holder.is_stale:
            result = self.runner.run(self.outcome(holder, call, None))
            assert type(result) is CheckpointConflictError, repr(result)
            assert LineageLaw.followed(sight, holder.cp) == []
            return
        landed, error, unseen = self.foretold(holder, [commit], mishap)
        result = self.runner.run(self.outcome(holder, call, mishap))
        added = LineageLaw.followed(sight, holder.cp)
        if error is not None:
            assert type(result) is error, repr(result)
        else:
            assert added == [result]
        self.settle(holder, added, [commit][:landed], unseen=unseen)

    def refused(
        self, holder: Holder, call: Callable[[], Coroutine[Any, Any, Any]], error: type[Exception]
    ) -> None:
        sight = LineageLaw.sight(holder.cp)
        assert type(self.runner.run(self.outcome(holder, call, None))) is error
        assert LineageLaw.followed(sight, holder.cp) == []

    def compare_events(self, holder: Holder, cp: Checkpoint) -> None:
        """What is told again of each snapshot is what its run told, whatever else was pruned."""
        here = (holder.name, holder.selected, holder.generation)
        if here in self.read:
            return
        self.read.add(here)
        told = cp.events()
        for key, _ in holder.way():
            if key in self.live:
                assert [event for event in told if event.snapshot_id == key] == self.live[key]

    async def loaded(self, name: str) -> Checkpoint | None:
        """The checkpoint as a storage object made from nothing gives it."""
        storage = self.place.open()
        try:
            return None if storage is None else await storage.load(name)
        except CheckpointNotFoundError:
            return None
