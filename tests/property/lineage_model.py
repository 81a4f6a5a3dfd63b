"""What storage holds and what each holder of a checkpoint has seen of it, as a few dicts and names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from branchpoint import (
    Checkpoint,
    InputMismatchError,
    InvalidCallError,
    PendingRequestsError,
    SnapshotNotFoundError,
    UnfinishedWorkError,
    UnknownRequestError,
)
from tests.property.errand_model import (
    GOING,
    IDLE,
    PAUSED,
    State,
    abandoned,
    end_of_turn,
    last_input,
    nothing,
    superstep,
    with_answers,
    with_message,
)


@dataclass(frozen=True)
class Node:
    """One snapshot: its parent, why it was committed, and what is in it."""

    parent: str | None
    boundary: str
    state: State
    metadata: dict[str, Any] = field(default_factory=dict)
    executors: tuple[str, ...] = ()


@dataclass
class Book:
    """What storage has under one id, in commit order; the last one is the head."""

    nodes: dict[str, Node] = field(default_factory=dict)
    generation: int = 0
    pruned: dict[str, str | None] = field(default_factory=dict)

    @property
    def head(self) -> str | None:
        return next(reversed(self.nodes), None)


@dataclass(frozen=True)
class Commit:
    """A commit that a call is expected to make."""

    boundary: str
    state: State
    metadata: dict[str, Any] = field(default_factory=dict)
    executors: tuple[str, ...] = ()
    entries: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Call:
    """The arguments of one run."""

    text: str | None = None
    answers: dict[str, str] | None = None
    input_id: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    bound: int | None = None

    @property
    def payload(self) -> tuple[str, Any]:
        return ("message", self.text) if self.answers is None else ("responses", self.answers)


@dataclass(frozen=True)
class Report:
    """Nothing runs: the result of this state is told again."""

    state: State


@dataclass(frozen=True)
class Work:
    """What a call that is not refused commits, one after the other, and whether it looks at the stored head."""

    commits: list[Commit]
    looks: bool = True


@dataclass
class Holder:
    """One object in somebody's hands, and what it has seen; `shelf` is what storage has, by id."""

    name: str
    cp: Checkpoint
    shelf: dict[str, Book]
    nodes: dict[str, Node] = field(default_factory=dict)
    selected: str | None = None
    head: str | None = None
    generation: int = 0
    pruned: dict[str, str | None] = field(default_factory=dict)

    @property
    def node(self) -> Node | None:
        return None if self.selected is None else self.nodes[self.selected]

    @property
    def state(self) -> State:
        return nothing() if self.node is None else self.node.state

    @property
    def metadata(self) -> dict[str, Any]:
        return {} if self.node is None else self.node.metadata

    @property
    def is_stale(self) -> bool:
        stored = self.shelf.get(self.name, Book())
        if stored.head is None and self.head is None:
            return False
        return (stored.head, stored.generation) != (self.head, self.generation)

    def adopt(self) -> None:
        """See what storage has, and select its head."""
        stored = self.shelf[self.name]
        self.nodes, self.pruned = dict(stored.nodes), dict(stored.pruned)
        self.selected, self.head, self.generation = stored.head, stored.head, stored.generation

    def land(self, snapshot_id: str, node: Node, *, unseen: bool = False) -> None:
        """A snapshot is stored, and this holder saw it; or did not, since the reply was lost."""
        self.shelf.setdefault(self.name, Book()).nodes[snapshot_id] = node
        if not unseen:
            self.nodes[snapshot_id] = node
            self.selected = self.head = snapshot_id

    def gone(self, keep: Collection[str]) -> set[str]:
        """What a prune would remove."""
        return set() if self.head is None else set(self.nodes) - {*keep, self.selected, self.head}

    def is_pruned_already(self, gone: Collection[str]) -> bool:
        """Whether this very prune has landed: its reply was lost, or another holder made the same one."""
        stored = self.shelf.get(self.name, Book())
        kept = [key for key in self.nodes if key not in gone]
        return bool(gone) and stored.generation == self.generation + 1 and list(stored.nodes) == kept

    def prune(self, gone: Collection[str], *, unseen: bool = False) -> None:
        """They are removed from storage, and this holder saw it; or did not, since the reply was lost."""
        pruned: dict[str, str | None] = {}
        for one in self.nodes.values():
            if one.parent is not None and (one.parent in self.pruned or one.parent in gone):
                nearest: str | None = one.parent
                while nearest is not None and (nearest in self.pruned or nearest in gone):
                    nearest = self.pruned[nearest] if nearest in self.pruned else self.nodes[nearest].parent
                pruned[one.parent] = nearest
        kept = {key: node for key, node in self.nodes.items() if key not in gone}
        named = {node.parent for node in kept.values()}
        pruned = {key: nearest for key, nearest in pruned.items() if key in named}
        self.shelf[self.name] = Book(kept, self.generation + 1, pruned)
        if not unseen:
            self.nodes, self.pruned, self.generation = dict(kept), dict(pruned), self.generation + 1

    def way(self) -> Iterator[tuple[str, Node]]:
        """The selected snapshot and its retained ancestors, nearest first."""
        found = self.selected
        while found is not None:
            if found in self.nodes:
                yield found, self.nodes[found]
                found = self.nodes[found].parent
            else:
                found = self.pruned[found]

    # What calls mean.

    def meaning(self, call: Call, payloads: dict[str, tuple[str, Any]]) -> type[Exception] | Report | Work:
        """What a run does here; which error refuses it."""
        state = self.state
        given = call.text is not None or call.answers is not None
        if given and call.input_id in state["inputs"]:
            if payloads[call.input_id] != call.payload:
                return InputMismatchError
            if last_input(state) != call.input_id:
                return self._recorded(call.input_id)
            given = False
        if call.text is not None and given:
            if state["todo"] or state["asked"]:
                return UnfinishedWorkError if state["todo"] else PendingRequestsError
            first = Commit("input_accepted", with_message(state, call.text, call.input_id), call.metadata)
            return Work([first, *_supersteps(first, call.bound)])
        if call.answers is not None and given:
            if not call.answers.keys() <= state["asked"].keys():
                return UnknownRequestError
            first = Commit(
                "responses_accepted", with_answers(state, call.answers, call.input_id), call.metadata
            )
            return Work([first, *_supersteps(first, call.bound)])
        if self.selected is None:
            return InvalidCallError
        if state["status"] != GOING:
            return Report(state)
        if call.bound == 0:
            return Work([], looks=False)
        first = Commit("restarted", state, self.metadata)
        moved = [first] if self.selected != self.head else []
        return Work([*moved, *_supersteps(first, call.bound)])

    def _recorded(self, input_id: str) -> type[Exception] | Report:
        """The state in which an earlier input was left; of a turn that is over, later states know as much."""
        accepted = list(self.state["inputs"].items())
        place = [one for one, _ in accepted].index(input_id)
        (_, (turn, _)), (_, (next_turn, until)) = accepted[place : place + 2]
        left = next((node.state for _, node in self.way() if last_input(node.state) == input_id), None)
        over = next_turn > turn
        if left is not None and left["n"] == until and (left["status"] == IDLE or not over):
            return Report(left)
        return Report(end_of_turn(self.state, turn, until)) if over else SnapshotNotFoundError

    def giving_up(self) -> type[Exception] | Commit:
        """What abandoning commits; which error refuses it."""
        node = self.node
        if node is None or node.state["status"] == IDLE:
            return InvalidCallError
        completed: State | None = None
        child = node
        while child.parent is not None:
            if child.parent not in self.nodes:
                return InvalidCallError  # a prune took the way back
            child = self.nodes[child.parent]
            if child.state["status"] == IDLE:
                completed = child.state
                break
        if completed is None and child.boundary == "forked":
            return InvalidCallError  # the way back is in another checkpoint
        return Commit("abandoned", abandoned(node.state, completed), node.metadata)


def _supersteps(first: Commit, bound: int | None) -> Iterator[Commit]:
    state, done = first.state, 0
    while state["todo"] and done != bound:
        state, ran, entries = superstep(state)
        boundary = {IDLE: "completed", PAUSED: "paused"}.get(state["status"], "superstep_completed")
        yield Commit(boundary, state, first.metadata, ran, entries)
        done += 1
