"""One executor's share of one superstep: everything its handlers did, held back until all succeed."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from branchpoint.codec import copy_value
from branchpoint.engine._cell import Cell, Medium
from branchpoint.engine._lent import Lent
from branchpoint.errors import (
    ExecutorStateError,
)
from branchpoint.graph import (
    ABSENT,
    Graph,
    StateKey,
    Write,
    append,
    fold,
    last_write,
    merge,
)

__all__ = ["Asked", "Sent", "Share", "Way", "Yielded", "folded", "is_known"]


class Sent(msgspec.Struct, frozen=True):
    """A message a handler sent."""

    value: Any
    target_id: str | None


class Yielded(msgspec.Struct, frozen=True):
    """An output a handler yielded; `intermediate` when it was that inside a child workflow."""

    output_id: str
    value: Any
    intermediate: bool = False


class Asked(msgspec.Struct, frozen=True):
    """A request a handler made, as a snapshot will hold it."""

    request_id: str
    record: dict[str, Any]


class Way(msgspec.Struct, frozen=True):
    """Where one message goes.

    Attributes:
        targets: Who receives it, in declared order.
        joins: The fan-ins it is held in.
        ended: Why it goes nowhere; empty when it goes somewhere.
        undeliverable: It goes nowhere because nobody accepts its type.
    """

    targets: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()
    ended: str = ""
    undeliverable: bool = False


class Share(msgspec.Struct):
    """What one executor does in one superstep.

    Nothing here touches the run's state; the engine applies all shares once all have succeeded.

    Attributes:
        lent: The copies of shared state that the running handler holds; None as long as it read none.
        withdrawn: Ids of requests of before that nobody needs answered any more.
        ways: Where each of `sent` goes.
        saved: The executor's declared state afterwards; None when it equals its defaults.
        closed: The superstep is over: what a handler does now is refused.
    """

    executor_id: str
    graph: Graph
    shared: Mapping[str, Cell]
    medium: Medium | None
    sent: list[Sent] = msgspec.field(default_factory=list)
    yielded: list[Yielded] = msgspec.field(default_factory=list)
    asked: list[Asked] = msgspec.field(default_factory=list)
    withdrawn: list[str] = msgspec.field(default_factory=list)
    writes: dict[str, list[Write]] = msgspec.field(default_factory=dict)
    lent: Lent | None = None
    ways: list[Way] = msgspec.field(default_factory=list)
    saved: dict[str, Any] | None = None
    closed: bool = False

    def current(self, key: str) -> Any:
        """Return the committed value with this executor's own writes on top, or `ABSENT`; not a copy."""
        declared = self.graph.state_keys.get(key)
        cell = self.shared.get(key)
        committed = cell.value(self.medium) if cell is not None else ABSENT
        writes = self.writes.get(key)
        if writes:
            committed = folded(key, declared, committed, [_private(write) for write in writes])
        if committed is ABSENT and declared is not None:
            return declared.initial()
        return committed

    def lend(self, key: str, default: Any) -> Any:
        """Return a copy of the current value that is watched until the handler returns."""
        value = self.current(key)
        if value is ABSENT:
            self.watch(key, default)  # an edit of it would be lost just as one of the copy
            return default
        own = copy_value(value, path=f"workflow_state.shared.{key}")
        if own is not value:
            cell = self.shared.get(key)
            if cell is not None and key not in self.writes:
                medium = self.medium
                self.watch(key, own, lambda: cell.token(medium))
            else:
                self.watch(key, own)
        return own

    def watch(
        self, key: str, value: Any, token: Callable[[], object] | None = None, *, written: bool = False
    ) -> None:
        """Watch a value the handler holds, as it is now."""
        if self.lent is None:
            self.lent = Lent()
        self.lent.watch(key, value, token, written=written)

    def write(self, key: str, value: Any, *, replaces: bool = False) -> None:
        """Record a write of `value`, as it is now.

        The very value that was lent is watched on; one that the handler made is its own affair from here
        on. `Lent` says which other copies count as written back.
        """
        kept = copy_value(value, path=f"workflow_state.shared.{key}") if value is not ABSENT else value
        declared = self.graph.state_keys.get(key)
        folds = declared is not None and declared.reducer is not None and not replaces and value is not ABSENT
        earlier = self.writes.get(key, []) if folds else []
        self.writes[key] = [*earlier, Write(self.executor_id, kept, replaces)]
        held = replaces
        if self.lent is not None and value is ABSENT:
            self.lent.gave_up(key)
        elif self.lent is not None:
            held = self.lent.wrote(key, value) or replaces
        if held and kept is not value:
            self.watch(key, value, written=True)

    def forget(self) -> None:
        """Drop what was written, and watch none of the copies that were lent."""
        self.writes = {}
        self.lent = None

    def check_lent(self) -> None:
        """Refuse a copy of shared state that was changed and not written back.

        Raises:
            ExecutorStateError: It names the key and the executor.
        """
        lent, self.lent = self.lent, None
        key = None if lent is None else lent.lost()
        if key is None:
            return
        declared = self.graph.state_keys.get(key)
        folds = declared is not None and declared.reducer is not None
        remedy = (
            f"the key has a reducer, so write what is to be added, ctx.set_state({key!r}, addition), "
            f"or the whole with ctx.update_state({key!r}, fn)"
            if folds
            else f"call ctx.set_state({key!r}, value) after the change"
        )
        if key in self.writes:
            remedy += "; every get_state gives a copy of its own, so change the one that is written"
        raise ExecutorStateError(
            f"Executor {self.executor_id!r} changed its copy of shared state {key!r} and did not "
            f"write it back, so the change would be lost: {remedy}."
        )

    def holds_what_cannot_be_kept(self) -> bool:
        """Say whether something this executor sent, yielded, asked with or wrote cannot be encoded."""
        made: list[Any] = [sent.value for sent in self.sent]
        made += [yielded.value for yielded in self.yielded]
        made += [asked.record for asked in self.asked]
        made += [write.value for writes in self.writes.values() for write in writes]
        medium = self.medium
        return medium is not None and not all(value is ABSENT or medium.keeps(value) for value in made)


_PURE: tuple[Any, ...] = (append, merge, last_write, operator.add, operator.or_, operator.and_, min, max)


def is_known(reducer: Any) -> bool:
    """Say whether a reducer is one that surely changes nothing in place and keeps nothing."""
    return any(reducer is pure for pure in _PURE)


def folded(key: str, declared: StateKey | None, committed: Any, writes: Sequence[Write]) -> Any:
    """Fold writes onto the committed value, which a reducer of the developer gets as a copy.

    So one that works in place, which it should not, changes nothing that others see.
    """
    reducer = declared.reducer if declared is not None else None
    if reducer is not None and committed is not ABSENT and not is_known(reducer):
        committed = copy_value(committed, path=f"workflow_state.shared.{key}")
    return fold(key, declared, committed, writes)


def _private(write: Write) -> Write:
    if write.value is ABSENT:
        return write
    return Write(write.executor_id, copy_value(write.value), write.replaces)
