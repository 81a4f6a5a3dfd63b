"""A checkpoint and its storage against a model that is two dicts and two names."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from branchpoint.checkpoint import Checkpoint, check_lineage
from branchpoint.errors import CheckpointConflictError, StorageError
from tests.states import make_state
from tests.unit.checkpoint.doubles import Faults, TinyStorage, new_checkpoint


class CheckpointMachine(RuleBasedStateMachine):
    """One holder, a second writer now and then, and failures of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.count = 0

    def teardown(self) -> None:
        self.loop.close()

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(call)

    @initialize(form=st.sampled_from(["json", "msgpack"]), lazy=st.booleans())
    def create(self, form: Any, lazy: bool) -> None:
        self.storage = TinyStorage(form, lazy=lazy)
        self.faults = Faults(self.storage)
        self.cp = new_checkpoint(self.faults, "run-1")
        # What storage holds, and what the holder last saw of it.
        self.stored: dict[str, tuple[str | None, int]] = {}
        self.stored_head: str | None = None
        self.known: dict[str, tuple[str | None, int]] = {}
        self.selected: str | None = None
        self.known_head: str | None = None
        self.stale = False

    def state(self) -> dict[str, Any]:
        self.count += 1
        return make_state(self.count, shared={"log": ["x" * 200] * self.count})

    def landed(self, snapshot_id: str, parent: str | None) -> None:
        self.stored[snapshot_id] = (parent, self.count)
        self.stored_head = snapshot_id

    def see(self) -> None:
        self.known, self.known_head, self.stale = dict(self.stored), self.stored_head, False
        self.selected = self.known_head

    @rule()
    def commit(self) -> None:
        if self.stale:
            with pytest.raises(CheckpointConflictError):
                self.run(self.cp.commit_snapshot(self.state()))
            return
        snapshot = self.run(self.cp.commit_snapshot(self.state()))
        assert snapshot.parent_snapshot_id == self.selected
        self.landed(snapshot.snapshot_id, self.selected)
        self.see()

    @precondition(lambda self: self.known and not self.stale)
    @rule(back=st.integers(0, 5))
    def commit_what_was_there_before(self, back: int) -> None:
        self.count, count = list(self.known.values())[-1 - back % len(self.known)][1] - 1, self.count
        snapshot = self.run(self.cp.commit_snapshot(self.state()))
        self.landed(snapshot.snapshot_id, self.selected)
        self.count = count
        self.see()

    @precondition(lambda self: self.known and not self.stale)
    @rule(back=st.integers(0, 5))
    def fetch(self, back: int) -> None:
        snapshot_id = list(self.known)[-1 - back % len(self.known)]
        assert self.run(self.cp.load_snapshot(snapshot_id)).is_loaded

    @rule()
    def commit_fails(self) -> None:
        self.faults.before = StorageError("down")
        with pytest.raises(StorageError, match="down"):
            self.run(self.cp.commit_snapshot(self.state()))

    @precondition(lambda self: not self.stale)
    @rule()
    def reply_is_lost(self) -> None:
        self.faults.after = StorageError("lost")
        snapshot = self.run(self.cp.commit_snapshot(self.state()))
        self.landed(snapshot.snapshot_id, self.selected)
        self.see()

    @precondition(lambda self: self.stored)
    @rule(back=st.integers(0, 5))
    def another_writer(self, back: int) -> None:
        other = self.run(self.storage.load("run-1"))
        other.restart_from(list(self.stored)[-1 - back % len(self.stored)])
        parent = other.head_snapshot_id
        snapshot = self.run(other.commit_snapshot(self.state()))
        self.landed(snapshot.snapshot_id, parent)
        self.stale = True

    @rule(back=st.integers(0, 6))
    def rewind(self, back: int) -> None:
        choices = [None, *self.known]
        self.selected = choices[-1 - back % len(choices)]
        self.cp.restart_from(self.selected)

    @rule(kept=st.sets(st.integers(0, 8)))
    def prune(self, kept: set[int]) -> None:
        keep = [found for n, found in enumerate(self.known) if n in kept]
        gone = set(self.known) - {*keep, self.selected, self.known_head}
        if gone and self.stale:
            with pytest.raises(CheckpointConflictError):
                self.run(self.cp.prune(keep))
            return
        removed = self.run(self.cp.prune(keep))
        assert {found.snapshot_id for found in removed} == gone
        for found in gone:
            del self.known[found]
            del self.stored[found]

    @rule()
    def refresh(self) -> None:
        self.run(self.cp.refresh())
        self.see()

    @precondition(lambda self: self.stored)
    @rule()
    def reload(self) -> None:
        loaded = self.run(self.storage.load("run-1"))
        self.cp = Checkpoint.restore(
            header=loaded.header,
            manifests=[found.manifest for found in loaded.snapshots],
            head_snapshot_id=loaded.head_snapshot_id,
            parts=loaded.parts,
            checkpoint_storage=self.faults,
            unloaded=[found.snapshot_id for found in loaded.snapshots if not found.is_loaded],
            left=self.storage.records["run-1"].parts.keys() - loaded.parts.keys(),
        )
        self.see()

    @invariant()
    def memory_is_what_the_holder_saw(self) -> None:
        assert {found.snapshot_id: found.parent_snapshot_id for found in self.cp.snapshots} == {
            found: parent for found, (parent, _) in self.known.items()
        }
        assert self.cp.head_snapshot_id == self.selected
        assert self.cp.stored_head_snapshot_id == self.known_head
        assert self.cp.in_use_by is None
        for found in self.cp.snapshots:
            if found.is_loaded:
                _, count = self.known[found.snapshot_id]
                assert found.state["workflow_state"]["shared"] == {"log": ["x" * 200] * count}

    @invariant()
    def storage_is_what_was_committed(self) -> None:
        if not self.stored:
            assert self.storage.records == {}
            return
        assert not self.storage.written_again
        record = self.storage.records["run-1"]
        assert record.ids == list(self.stored)
        assert record.head == self.stored_head
        loaded = self.run(self.storage.load("run-1"))
        check_lineage(
            [(found, parent) for found, (parent, _) in self.stored.items()],
            head=self.stored_head,
            pruned=loaded.header.pruned,
            checkpoint_id="run-1",
        )


CheckpointMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestCheckpoint = CheckpointMachine.TestCase
