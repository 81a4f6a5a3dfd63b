"""The rules of the storage machine, and the model that foretells what each of them does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from branchpoint.checkpoint import Checkpoint, CheckpointStorage
from branchpoint.errors import CheckpointConflictError, CheckpointNotFoundError
from branchpoint.testing._findings import holds, same
from branchpoint.testing._lineage_law import LineageLaw
from branchpoint.testing._place import Place
from branchpoint.testing.samples import create, shared, small_state

__all__ = ["machine_of"]

_IDS = ("one", "One", "two/..")
_PICKS = st.integers(0, 30)
_TEXTS = st.text(max_size=6) | st.sampled_from(["x" * 200, "y" * 3000])
# How far back each commit goes first, and its text.
_STEPS = st.lists(st.tuples(st.just(0) | _PICKS, _TEXTS), min_size=1, max_size=4)

_KEPT = st.sets(st.integers(0, 8))


@dataclass
class _Stored:
    """What storage is to have of one checkpoint: snapshots in commit order with parent and text."""

    snapshots: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    generation: int = 0

    @property
    def sight(self) -> tuple[str | None, int]:
        return next(reversed(self.snapshots), None), self.generation


_NOTHING = _Stored().sight


@dataclass
class _Holder:
    """A checkpoint in somebody's hands, and what storage had when they last saw it."""

    checkpoint: Checkpoint
    seen: tuple[str | None, int]
    law: LineageLaw = field(default_factory=LineageLaw)


class _Rules(RuleBasedStateMachine):
    make_place: Callable[[], Place]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.place = type(self).make_place()
        self.stored: dict[str, _Stored] = {}
        self.holders: list[_Holder] = []
        self.storages: list[CheckpointStorage] = []
        self.count = self.turn = 0

    def teardown(self) -> None:
        async def end() -> None:
            await self.place.close_storages()
            await self.place.discard()

        with self.runner:
            self.runner.run(end())

    def opened(self) -> CheckpointStorage:
        """One of a few storage objects, another one each time."""
        self.turn += 1
        while len(self.storages) < 3:
            self.storages.append(self.run(self.place.storage()))
        return self.storages[self.turn % 3]

    def run(self, doing: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(doing)

    def pick(self, at: int) -> _Holder:
        """One of the holders: half the time one that has seen the last change, else one that has not."""
        in_time = at % 2 == 0
        fitting = [one for one in self.holders if (one.seen == self.sight_of(one)) == in_time]
        holders = fitting or self.holders
        return holders[at // 2 % len(holders)]

    def sight_of(self, holder: _Holder) -> tuple[str | None, int]:
        return self.stored.get(holder.checkpoint.checkpoint_id, _Stored()).sight

    def text_of(self, checkpoint: Checkpoint, snapshot_id: str) -> str:
        text: str = shared(self.run(checkpoint.load_snapshot(snapshot_id)))["text"]
        return text

    def attempt(self, holder: _Holder, doing: Coroutine[Any, Any, Any]) -> Any:
        """Do what fails exactly when the holder has not seen the last change; None when it did."""
        now = self.sight_of(holder)
        try:
            made = self.run(doing)
        except CheckpointConflictError:
            holds(holder.seen != now, f"a conflict, although {now} was seen")
            return None
        except CheckpointNotFoundError:  # what a lazy holder needed first is gone with the checkpoint
            holds(now == _NOTHING and holder.seen != now, "a stored checkpoint was not found")
            return None
        same(holder.seen, now, "what the writer had seen")
        return made

    def after(self, holder: _Holder) -> None:
        holder.seen = self.stored[holder.checkpoint.checkpoint_id].sight

    @initialize(steps=_STEPS)
    def start(self, steps: list[tuple[int, str]]) -> None:
        """Two holders of what one of them committed."""
        self.begin(_IDS[0])
        self.commit(0, steps)
        self.reload(0)

    @rule(name=st.sampled_from(_IDS))
    def begin(self, name: str) -> None:
        """A new checkpoint, also under an id that is stored: then its first commit conflicts."""
        storage = self.opened()
        self.holders.append(_Holder(create(storage, name), (None, 0)))

    @precondition(lambda self: self.holders)
    @rule(at=_PICKS, steps=_STEPS)
    def commit(self, at: int, steps: list[tuple[int, str]]) -> None:
        self.commits(self.pick(at), steps)

    def commits(self, holder: _Holder, steps: list[tuple[int, str]]) -> None:
        """Commit again and again, each time from the head or from another snapshot."""
        for back, text in steps:
            self.select(holder.checkpoint, back)
            parent = holder.checkpoint.head_snapshot_id
            self.count += 1
            made = self.attempt(holder, holder.checkpoint.commit_snapshot(small_state(self.count, text=text)))
            if made is None:
                return
            kept = self.stored.setdefault(holder.checkpoint.checkpoint_id, _Stored())
            kept.snapshots[made.snapshot_id] = (parent, text)
            self.after(holder)

    @precondition(lambda self: self.holders)
    @rule(at=_PICKS, back=_PICKS)
    def branch(self, at: int, back: int) -> None:
        """Select another snapshot, or the empty start; nothing is stored."""
        self.select(self.pick(at).checkpoint, back)

    def select(self, checkpoint: Checkpoint, back: int) -> None:
        choices = [None, *(one.snapshot_id for one in checkpoint.snapshots)]
        checkpoint.restart_from(choices[-1 - back % len(choices)])

    @precondition(lambda self: any(one.seen[0] for one in self.holders))
    @rule(at=_PICKS, kept=_KEPT)
    def prune(self, at: int, kept: set[int]) -> None:
        self.prunes(self.pick(at), kept)

    def prunes(self, holder: _Holder, kept: set[int]) -> None:
        checkpoint, there = holder.checkpoint, [one.snapshot_id for one in holder.checkpoint.snapshots]
        heads = {checkpoint.head_snapshot_id, checkpoint.stored_head_snapshot_id}
        keep = [one for n, one in enumerate(there) if n in kept or one in heads]
        if "prune" not in self.opened().capabilities or len(keep) == len(there):
            return  # nothing would go, so nothing is asked of storage
        stored = self.stored.get(checkpoint.checkpoint_id, _Stored())
        if (list(stored.snapshots), stored.generation) == (keep, checkpoint.generation + 1):
            self.run(checkpoint.prune(keep))  # somebody did exactly this: it looks like a reply that was lost
        elif self.attempt(holder, checkpoint.prune(keep)) is None:
            return
        else:
            stored.snapshots = {one: found for one, found in stored.snapshots.items() if one in keep}
            stored.generation += 1
        self.after(holder)

    @precondition(lambda self: self.stored)
    @rule(at=_PICKS)
    def reload(self, at: int) -> None:
        """Another holder of what is stored."""
        name = list(self.stored)[at % len(self.stored)]
        storage = self.opened()
        loaded = self.run(storage.load(name))
        self.run(loaded.load_lineage())
        self.holders.append(_Holder(loaded, self.stored[name].sight))

    @precondition(lambda self: self.holders)
    @rule(at=_PICKS)
    def refresh(self, at: int) -> None:
        holder = self.pick(at)
        kept = self.stored.get(holder.checkpoint.checkpoint_id)
        try:
            self.run(holder.checkpoint.refresh())
        except CheckpointNotFoundError:
            holds(kept is None, "a stored checkpoint was not found")
            return
        if kept is not None:
            holder.seen, holder.law = kept.sight, LineageLaw()

    @precondition(lambda self: any(one.checkpoint.head_snapshot_id for one in self.holders))
    @rule(at=_PICKS)
    def fork(self, at: int) -> None:
        source = self.pick(at).checkpoint
        if source.head_snapshot is None:
            return
        self.count += 1
        storage = self.opened()
        text = self.text_of(source, source.head_snapshot.snapshot_id)
        forked = self.run(source.fork(None, f"fork {self.count}", storage))
        (root,) = forked.snapshots
        self.stored[forked.checkpoint_id] = _Stored({root.snapshot_id: (None, text)})
        self.holders.append(_Holder(forked, (root.snapshot_id, 0)))

    @precondition(lambda self: self.holders)
    @rule(at=_PICKS, steps=_STEPS, kept=st.none() | _KEPT)
    def overtake(self, at: int, steps: list[tuple[int, str]], kept: set[int] | None) -> None:
        """Somebody loads what is stored and commits or prunes, and a holder that has not seen it commits too."""
        holder = self.pick(at)
        if holder.checkpoint.checkpoint_id not in self.stored:
            return
        self.reload(list(self.stored).index(holder.checkpoint.checkpoint_id))
        if kept is None:
            self.commits(self.holders[-1], steps)
        else:
            self.prunes(self.holders[-1], kept)
        self.commits(holder, steps)

    @precondition(lambda self: self.stored)
    @rule(at=_PICKS, deletes=st.booleans())
    def go_away(self, at: int, deletes: bool) -> None:
        """A checkpoint is deleted, and no holder brings it back; or all storage objects are closed."""
        if not deletes:
            self.run(self.place.close_storages())
            self.storages.clear()
            self.holders.clear()
            for n in range(len(self.stored)):
                self.reload(n)
            return
        name = list(self.stored)[at % len(self.stored)]
        storage = self.opened()
        self.run(storage.delete(name))
        del self.stored[name]

    @invariant()
    def storage_has_what_the_model_says(self) -> None:
        storage = self.opened()
        for name in {*_IDS, *self.stored}:
            kept = self.stored.get(name)
            try:
                loaded = self.run(storage.load(name))
            except CheckpointNotFoundError:
                holds(kept is None, f"checkpoint {name!r} is not found")
                continue
            if kept is None:
                raise AssertionError(f"checkpoint {name!r} is there and should not be")
            self.run(loaded.load_lineage())
            found = {
                one.snapshot_id: (one.parent_snapshot_id, self.text_of(loaded, one.snapshot_id))
                for one in loaded.snapshots
            }
            same(list(found.items()), list(kept.snapshots.items()))
            same(loaded.generation, kept.generation)
            for holder in self.holders:
                if holder.checkpoint.checkpoint_id == name and holder.seen == kept.sight:
                    holder.law.check(holder.checkpoint, loaded)
        if "list_checkpoints" in storage.capabilities:
            listed = self.run(storage.list_checkpoints())
            same([one.checkpoint_id for one in listed], sorted(self.stored))


def machine_of(make_place: Callable[[], Place]) -> type[RuleBasedStateMachine]:
    """Return the machine for storages on such places."""
    return type("StorageMachine", (_Rules,), {"make_place": staticmethod(make_place)})
