"""Whatever is done to checkpoints, in whatever order and whatever goes wrong: a dict foretells it.

Several holders use a few checkpoints on one storage. After every step each holder has what the model says
it has seen, storage has what the model says was committed, and the lineage law holds.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import initialize, invariant, precondition, rule

from branchpoint import (
    CheckpointConflictError,
    CheckpointNotFoundError,
    InvalidCallError,
    SnapshotNotFoundError,
    StorageError,
)
from branchpoint.checkpoint import Origin
from branchpoint.testing import LineageLaw
from tests.profiles import brief_machine
from tests.property.errand_model import IDLE, observed, status_of
from tests.property.errands import EXECUTORS, LETTERS, errands
from tests.property.foretelling import Foretelling, Mishap
from tests.property.lineage_model import Call, Commit, Holder, Node

IDS = ("run-1", "run-2")

texts = st.text(LETTERS + "aq", max_size=4)
picks = st.integers(0, 9)
bounds = st.none() | st.none() | st.integers(0, 3)
storage_mishaps = st.tuples(
    st.sampled_from(["before", "lost", "unknown", "cancelled"]), st.just(""), st.integers(1, 4)
)
mishaps: st.SearchStrategy[Mishap | None] = st.one_of(
    st.none(),
    st.none(),
    st.tuples(st.just("boom"), st.sampled_from(EXECUTORS), st.integers(1, 3)),
    st.tuples(st.just("cancel"), st.sampled_from(["hub", "left", "join"]), st.integers(1, 3)),
    st.tuples(st.just("leave"), st.just(""), st.integers(1, 5)),
    storage_mishaps,
)
one_mishap = st.none() | storage_mishaps.map(lambda found: (found[0], "", 1))


@dataclass(frozen=True)
class Attempt:
    """What a run is given: a text, which questions it answers, a bound, and what goes wrong."""

    text: str
    some: int
    bound: int | None
    mishap: Mishap | None
    stream: bool


attempts = st.builds(Attempt, texts, st.integers(0, 15), bounds, mishaps, st.booleans())


class CheckpointMachine(Foretelling):
    """Holders of checkpoints, and all that they do."""

    # What can be done.

    @initialize()
    def begin(self) -> None:
        self.create(0, 0)

    @rule(name=picks, place=picks)
    def create(self, name: int, place: int) -> None:
        """A new one, also under an id that is stored already: then its first commit conflicts."""
        chosen = IDS[name % len(IDS)]
        cp = self.workflow.create_checkpoint(chosen, self.open())
        self.hold(Holder(chosen, cp, self.shelf if self.is_stored else {}), place)

    @rule(at=picks, attempt=attempts)
    def go(self, at: int, attempt: Attempt) -> None:
        """Do what fits: begin a turn, answer, or go on."""
        self.do_what_fits(self.pick(at, is_in_time), attempt)

    @rule(at=picks, back=picks, attempt=attempts)
    def branch(self, at: int, back: int, attempt: Attempt) -> None:
        """Go back, and do what fits there."""
        holder = self.pick(at, is_in_time)
        self.go_back(holder, back)
        self.do_what_fits(holder, attempt)

    @rule(at=picks, attempt=attempts)
    def crash(self, at: int, attempt: Attempt) -> None:
        """Something befalls a run, and nothing but what was stored is left of it."""
        self.do_what_fits(self.pick(at, is_in_time), attempt)
        self.reload()

    @rule(at=picks, what=st.sampled_from(["message", "answer", "nothing"]), attempt=attempts)
    def call(self, at: int, what: str, attempt: Attempt) -> None:
        """Whether it fits or not."""
        getattr(self, f"with_{what}")(self.pick(at), attempt)

    def do_what_fits(self, holder: Holder, attempt: Attempt) -> None:
        state = holder.state
        if state["asked"] and (attempt.some % 2 or not state["todo"]):
            self.with_answer(holder, attempt)
        elif state["todo"]:
            self.with_nothing(holder, attempt)
        else:
            self.with_message(holder, attempt)

    def with_message(self, holder: Holder, attempt: Attempt) -> None:
        input_id = self.fresh("in")
        call = Call(attempt.text, None, input_id, {"for": input_id}, attempt.bound)
        self.payloads[input_id] = call.payload
        self.run(holder, call, attempt.mishap, attempt.stream)

    def with_answer(self, holder: Holder, attempt: Attempt) -> None:
        """Answer some of what is asked; when nothing is, a question that nobody asked."""
        input_id, asked = self.fresh("in"), list(holder.state["asked"])
        chosen = (
            [one for n, one in enumerate(asked) if attempt.some >> n & 1] or asked[:1] or ["nobody-asked"]
        )
        answers = {one: f"yes to {one}" for one in reversed(chosen)}
        call = Call(None, answers, input_id, {"for": input_id}, attempt.bound)
        self.payloads[input_id] = call.payload
        self.run(holder, call, attempt.mishap, attempt.stream)

    def with_nothing(self, holder: Holder, attempt: Attempt) -> None:
        self.run(holder, Call(bound=attempt.bound), attempt.mishap, attempt.stream)

    @rule(at=picks, which=picks, other=st.booleans(), mishap=mishaps)
    def deliver_again(self, at: int, which: int, other: bool, mishap: Mishap | None) -> None:
        """An input that was accepted before comes again, or another one under its id."""
        holder = self.pick(at)
        if not holder.state["inputs"]:
            return
        input_id = list(holder.state["inputs"])[-1 - which % len(holder.state["inputs"])]
        kind, payload = self.payloads[input_id]
        call = Call(payload, None, input_id) if kind == "message" else Call(None, payload, input_id)
        if other:
            call = replace(call, text=f"{payload}l", answers=None)
        self.run(holder, call, mishap)

    @rule(at=picks, back=picks)
    def rewind(self, at: int, back: int) -> None:
        holder = self.pick(at)
        self.go_back(holder, back)
        with pytest.raises(SnapshotNotFoundError):
            holder.cp.restart_from("nowhere")

    def go_back(self, holder: Holder, back: int) -> None:
        choices = [None, *holder.nodes]
        holder.selected = choices[-1 - back % len(choices)]
        holder.cp.restart_from(holder.selected)

    @precondition(lambda self: any(one.nodes for one in self.holders))
    @rule(at=picks, mishap=one_mishap)
    def store_the_move(self, at: int, mishap: Mishap | None) -> None:
        holder = self.pick(at)
        if holder.node is None:
            self.refused(holder, holder.cp.commit_snapshot, InvalidCallError)
            return
        commit = Commit("restarted", holder.state, holder.metadata)
        self.commit(holder, holder.cp.commit_snapshot, commit, mishap)

    @rule(at=picks, how=st.sampled_from(["tally", "text", "questions"]), mishap=one_mishap)
    def edit(self, at: int, how: str, mishap: Mishap | None) -> None:
        """Another tally, another text to go on with, or no more questions."""
        holder = self.pick(at)
        if holder.node is None:
            return
        state, metadata = holder.cp.head_snapshot.state, {"edit": self.fresh(how)}  # type: ignore[union-attr]
        after = dict(holder.state)
        if how == "tally":
            state["workflow_state"]["shared"]["tally"] = after["tally"] = 5_000
        elif how == "text":
            sent = [{"value": "lo", "sources": [], "targets": ["hub"]}]
            state["messages"]["pending"]["deliveries"] = after["todo"] = sent
        else:
            state["messages"]["pending"]["requests"] = after["asked"] = {}
        after["status"] = status_of(after)
        commit = Commit("edited", after, {**holder.metadata, **metadata})
        self.commit(holder, lambda: holder.cp.commit_snapshot(state, metadata), commit, mishap)

    @precondition(lambda self: any(one.state["status"] != IDLE for one in self.holders))
    @rule(at=picks, mishap=one_mishap)
    def abandon(self, at: int, mishap: Mishap | None) -> None:
        holder = self.pick(at, lambda one: one.state["status"] != IDLE and not one.is_stale)
        found = holder.giving_up()
        if isinstance(found, type):
            self.refused(holder, holder.cp.abandon, found)
            return
        commit = replace(found, metadata={**found.metadata, "reason": "enough"})
        self.commit(holder, lambda: holder.cp.abandon("enough"), commit, mishap)

    @rule(at=picks, kept=st.sets(st.integers(0, 12)), mishap=one_mishap)
    def prune(self, at: int, kept: set[int], mishap: Mishap | None) -> None:
        holder = self.pick(at, is_in_time)
        keep = [one for n, one in enumerate(holder.nodes) if n in kept]
        gone = holder.gone(keep)
        too_late = bool(gone) and holder.is_stale and not holder.is_pruned_already(gone)
        if not gone or holder.is_stale:
            mishap = None
        result = self.runner.run(self.outcome(holder, lambda: holder.cp.prune(keep), mishap))
        if too_late:
            assert type(result) is CheckpointConflictError, repr(result)
            return
        what = mishap[0] if mishap is not None and self.is_stored else ""
        if what in ("before", "unknown"):
            assert type(result) is StorageError, repr(result)
        elif what == "cancelled":
            assert type(result) is asyncio.CancelledError
        else:
            assert {one.snapshot_id for one in result} == gone
        if gone and what != "before":
            holder.prune(gone, unseen=what == "unknown")

    @rule(at=picks, which=picks, place=picks)
    def fork(self, at: int, which: int, place: int) -> None:
        """An execution of its own, that begins with any snapshot."""
        holder = self.pick(at)
        if not holder.nodes:
            return
        chosen = list(holder.nodes)[-1 - which % len(holder.nodes)]
        name = self.fresh("fork")
        cp = self.runner.run(holder.cp.fork(chosen, name, self.open()))
        forked = Holder(name, cp, self.shelf if self.is_stored else {})
        commit = replace(_again(holder.nodes[chosen]), boundary="forked")
        self.settle(forked, cp.snapshots, [commit], unseen=False)
        (root,) = cp.snapshots
        assert root.forked_from == Origin(holder.name, chosen)
        self.hold(forked, place)

    @rule(name=picks, place=picks)
    def copy(self, name: int, place: int) -> None:
        """A second holder of what is stored: one of them will be too late."""
        storage = self.open()
        if storage is None or not self.shelf:
            return
        chosen = list(self.shelf)[name % len(self.shelf)]
        holder = Holder(chosen, self.runner.run(storage.load(chosen)), self.shelf)
        holder.adopt()
        self.hold(holder, place)

    @rule(at=picks)
    def refresh(self, at: int) -> None:
        holder = self.pick(at)
        if not self.is_stored:
            self.runner.run(holder.cp.refresh())
            holder.selected = holder.head
        elif holder.name in self.shelf:
            self.runner.run(holder.cp.refresh())
            holder.adopt()
        elif holder.head is None:
            self.runner.run(holder.cp.refresh())
            holder.selected = None
        else:
            self.refused(holder, holder.cp.refresh, CheckpointNotFoundError)

    @rule()
    def reload(self) -> None:
        """All objects are dropped; workflow, storage and checkpoints are made anew."""
        self.workflow = errands()
        if not self.is_stored:
            return
        for place, holder in enumerate(self.holders):
            self.touched.add(place)
            storage = self.open()
            assert storage is not None
            if holder.name in self.shelf:
                holder.cp = self.runner.run(storage.load(holder.name))
                holder.adopt()
            else:
                holder.cp = self.workflow.create_checkpoint(holder.name, storage)
                self.holders[place] = Holder(holder.name, holder.cp, self.shelf)

    @rule(name=picks)
    def delete(self, name: int) -> None:
        """It is gone from storage, and no holder brings it back."""
        storage = self.open()
        if storage is None or not self.shelf:
            return
        chosen = list(self.shelf)[name % len(self.shelf)]
        self.runner.run(storage.inner.delete(chosen))
        del self.shelf[chosen]

    # What holds after every step.

    @invariant()
    def each_holder_has_what_it_has_seen(self) -> None:
        for holder in self.holders:
            cp = holder.cp
            assert [(one.snapshot_id, one.parent_snapshot_id) for one in cp.snapshots] == [
                (key, node.parent) for key, node in holder.nodes.items()
            ]
            assert (cp.head_snapshot_id, cp.stored_head_snapshot_id) == (holder.selected, holder.head)
            assert (cp.generation, cp.header.pruned) == (holder.generation, holder.pruned)
            assert cp.status == (None if holder.node is None else holder.state["status"])
            assert [one.request_id for one in cp.pending_requests] == list(holder.state["asked"])

    @invariant()
    def storage_has_what_was_committed_and_the_law_holds(self) -> None:
        touched, self.touched = self.touched, set()
        for place in sorted(touched):
            holder = self.holders[place]
            loaded = self.runner.run(self.loaded(holder.name))
            key = holder.cp.created_at.isoformat() + holder.name
            law = self.laws.setdefault(key, LineageLaw())
            law.check(holder.cp, None if holder.is_stale else loaded)
            if not self.is_stored:
                self.compare_events(holder, holder.cp)
                continue
            book = self.shelf.get(holder.name)
            if book is None:
                assert loaded is None
                continue
            assert loaded is not None
            assert {one.snapshot_id: one.parent_snapshot_id for one in loaded.snapshots} == {
                key: node.parent for key, node in book.nodes.items()
            }
            assert (loaded.head_snapshot_id, loaded.generation) == (book.head, book.generation)
            for one in loaded.snapshots:
                if (holder.name, one.snapshot_id) not in self.read:  # the law sees that no byte changes
                    self.read.add((holder.name, one.snapshot_id))
                    assert observed(one) == book.nodes[one.snapshot_id].state
            self.compare_events(
                replace(holder, selected=book.head, nodes=book.nodes, pruned=book.pruned), loaded
            )


def is_in_time(holder: Holder) -> bool:
    return not holder.is_stale


def _again(node: Node) -> Commit:
    return Commit(node.boundary, node.state, node.metadata)


def _machine(kind: str) -> Any:
    name = f"{kind.title().replace('-', '')}Machine"
    made: Any = type(name, (CheckpointMachine,), {"kind": kind})
    made.TestCase.settings = brief_machine(15 if kind.startswith("file") else 30, 50)
    return made.TestCase


TestWithoutStorage = _machine("none")
TestMemory = _machine("memory")
TestFileJson = _machine("file-json")
TestFileMsgpack = _machine("file-msgpack")
