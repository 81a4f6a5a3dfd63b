"""What the play says is true, each with whether it is: decided from the log and the checkpoint alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from counting import counted
from ticks import Tick, calls_of, documents_of

from branchpoint import Checkpoint, CheckpointSnapshot

__all__ = ["Claim", "Kill", "Row", "after_the_kill", "after_the_resume", "rows", "saved_reviews"]


@dataclass(frozen=True)
class Claim:
    """A sentence, and whether it was found to be true."""

    text: str
    holds: bool


@dataclass(frozen=True)
class Kill:
    """How things stood when the first process had been killed.

    Attributes:
        exit_code: How it ended; -9 is SIGKILL.
        process: Its id.
        batch: The documents that were being reviewed.
        snapshots: What was in storage, in the order of the commits.
        saved: The documents whose reviews were in storage.
    """

    exit_code: int
    process: int
    batch: tuple[str, ...]
    snapshots: tuple[CheckpointSnapshot, ...]
    saved: tuple[str, ...]

    @property
    def head(self) -> CheckpointSnapshot:
        """The last snapshot it had committed."""
        return self.snapshots[-1]


@dataclass(frozen=True)
class Row:
    """One superstep, with the handlers that the first and the second process entered for it."""

    superstep: int
    executors: tuple[str, ...]
    first: tuple[Tick, ...]
    second: tuple[Tick, ...]

    @property
    def is_as_saved(self) -> bool:
        """Whether the process that completed it entered just those executors that the snapshot names."""
        calls = self.second or self.first
        return sorted(call.executor for call in calls) == sorted(self.executors)


def rows(kill: Kill, after: Checkpoint, first: Sequence[Tick], second: Sequence[Tick]) -> list[Row]:
    """Match the calls of two processes with the supersteps in storage; the log is in order of time."""
    left_first, left_second = list(first), list(second)
    found = []
    for snapshot in reversed(after.ancestors()):
        executors = snapshot.manifest.executors
        if not executors:
            continue
        count = len(executors)
        before, again = [], []
        if snapshot.superstep <= kill.head.superstep:
            before, left_first = left_first[:count], left_first[count:]
        else:
            # Whatever else the first process began was the superstep in flight.
            before, left_first = left_first, []
            again, left_second = left_second[:count], left_second[count:]
        found.append(Row(snapshot.superstep, executors, tuple(before), tuple(again)))
    return found


def saved_reviews(snapshot: CheckpointSnapshot) -> list[str]:
    """Return the documents whose reviews a snapshot holds; read without any of the workflow's types."""
    shared = snapshot.plain_state()["workflow_state"]["shared"]
    return [review["v"]["document"] for review in shared.get("reviews", [])]


def after_the_kill(kill: Kill, ticks: Sequence[Tick]) -> list[Claim]:
    """Say what a kill in the middle of a superstep left behind."""
    calls = calls_of(ticks, kill.process)
    completed = sum(len(snapshot.manifest.executors) for snapshot in kill.snapshots)
    lost = [name for name in documents_of(ticks, kill.process) if name not in kill.saved]
    return [
        Claim(f"process {kill.process} was ended by SIGKILL", kill.exit_code == -9),
        Claim(
            f"a superstep was in flight: {counted(len(calls) - completed, 'handler')} had been entered, "
            f"of {counted(len(kill.batch), 'document')} {_were(len(lost))} done",
            len(calls) > completed and set(lost) < set(kill.batch),
        ),
        Claim(
            f"in storage: {counted(len(kill.snapshots), 'whole snapshot')} up to superstep {kill.head.superstep}, "
            f"{counted(len(kill.saved), 'review')}, and nothing of the superstep in flight",
            not set(kill.saved) & set(kill.batch) and kill.head.status == "in_progress",
        ),
    ]


def after_the_resume(
    kill: Kill, after: Checkpoint, found: Sequence[Row], ticks: Sequence[Tick], documents: Sequence[str]
) -> list[Claim]:
    """Say what the second process did again, and what it did not."""
    snapshots = after.snapshots
    old = [row for row in found if row.superstep <= kill.head.superstep]
    flight = next(row for row in found if row.superstep == kill.head.superstep + 1)
    new = [row for row in found if row.superstep > flight.superstep]
    repeated = _keys(one for row in found for one in row.first) & _keys(
        one for row in found for one in row.second
    )
    examined = Counter(documents_of(ticks))
    twice = [name for name in documents if examined[name] > 1]
    total: int = sum(fields.get("reviewed", 0) for fields in _executor_states(after).values())
    return [
        Claim(
            "what was in storage is as it was, and the next snapshot continues its head",
            _identities(snapshots[: len(kill.snapshots)]) == _identities(kill.snapshots)
            and snapshots[len(kill.snapshots)].parent_snapshot_id == kill.head.snapshot_id,
        ),
        Claim(
            f"of {counted(len(old), 'completed superstep')} none was done again",
            len(old) == kill.head.superstep
            and all(row.is_as_saved and row.first and not row.second for row in old),
        ),
        Claim(
            f"superstep {flight.superstep}, the one in flight, was done again as a whole: "
            f"{counted(len(flight.second), 'call')}, {len(repeated)} of them under the key of the first time",
            bool(repeated) and flight.is_as_saved and _keys(flight.first) == repeated <= _keys(flight.second),
        ),
        Claim(
            f"{counted(len(new), 'superstep')} after it: done once, by the second process",
            all(row.is_as_saved and row.second and not row.first for row in new),
        ),
        Claim(
            f"{counted(len(documents), 'document')} examined, {_how_many_twice(len(twice))}",
            set(examined) == set(documents)
            and set(twice) <= set(kill.batch)
            and all(examined[name] == 1 for name in documents if name not in kill.batch),
        ),
        Claim(
            f"yet each counts once: {counted(len(documents), 'review')} saved, "
            f"and the reviewers' own counters add up to {total}",
            sorted(saved_reviews(snapshots[-1])) == sorted(documents) and total == len(documents),
        ),
    ]


def _were(number: int) -> str:
    return "none was" if number == 0 else f"{number} {'was' if number == 1 else 'were'}"


def _how_many_twice(number: int) -> str:
    return f"{number} of them twice, those of the superstep in flight" if number else "none of them twice"


def _keys(calls: Iterable[Tick]) -> set[str]:
    return {call.call for call in calls}


def _identities(snapshots: Sequence[CheckpointSnapshot]) -> list[tuple[str, str | None, str]]:
    return [(one.snapshot_id, one.parent_snapshot_id, one.root) for one in snapshots]


def _executor_states(checkpoint: Checkpoint) -> dict[str, Any]:
    head = checkpoint.head_snapshot
    assert head is not None
    states: dict[str, Any] = head.plain_state()["executor_states"]
    return states
