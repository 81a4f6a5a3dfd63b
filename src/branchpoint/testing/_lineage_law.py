"""The law that a checkpoint obeys at every moment, whatever was done to it and whatever went wrong.

It reads public names alone and asks nothing about what the workflow computes: it compares snapshots
with their parents, and the checkpoint in memory with the one that storage gives.

`check_lineage_law(checkpoint, loaded)` looks at one moment. A `LineageLaw` looks at one execution again
and again, so that it also sees whether something that was committed ever changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from branchpoint.checkpoint import (
    BOUNDARIES,
    BUCKETS,
    FORMAT_VERSION,
    INNER_BOUNDARIES,
    MESSAGES,
    Checkpoint,
    CheckpointSnapshot,
    Manifest,
    status_of,
)
from branchpoint.codec import fingerprint
from branchpoint.events import WorkflowEvent

__all__ = ["LineageLaw", "Sight", "check_lineage_law"]

_STATUS_OF_A_SUPERSTEP = {
    "superstep_completed": "in_progress",
    "paused": "idle_with_pending_requests",
    "completed": "idle",
}


def check_lineage_law(
    checkpoint: Checkpoint, loaded: Checkpoint | None = None, *, one_clock: bool = True
) -> None:
    """Check one moment of a checkpoint: its lineage, its snapshots and what storage has of it.

    It needs Python's assertions, and refuses to run without them.

    Args:
        checkpoint: As its holder has it. It is only read.
        loaded: The same one as storage gives it just now; left out while another writer is ahead of the
            holder. Its selected head is moved and put back.
        one_clock: All commits were made by processes whose clocks agree, so ids sort in commit order.

    Raises:
        AssertionError: The law is broken; the message, or the line that raised it, says where.

    Example:
        >>> import asyncio
        >>> from branchpoint.testing import check_lineage_law
        >>> from branchpoint import WorkflowBuilder, executor
        >>> @executor(id="echo")
        ... async def echo(text: str) -> None: ...
        >>> workflow = WorkflowBuilder(name="echo", start_executor=echo).build()
        >>> checkpoint = workflow.create_checkpoint()
        >>> _ = asyncio.run(workflow.run("hello", checkpoint=checkpoint))
        >>> check_lineage_law(checkpoint)
    """
    LineageLaw(one_clock=one_clock).check(checkpoint, loaded)


@dataclass(frozen=True)
class Sight:
    """What a holder had in its hands at one moment."""

    ids: tuple[str, ...]
    selected: str | None
    generation: int


class LineageLaw:
    """The law for one execution, by what was seen of it so far.

    Args:
        one_clock: All commits were made by processes whose clocks agree, so ids sort in commit order.
    """

    def __init__(self, *, one_clock: bool = True) -> None:
        if not __debug__:
            raise RuntimeError("the lineage law is checked by assertions; run Python without -O")
        self._one_clock = one_clock
        self._committed: dict[str, tuple[Manifest, bytes]] = {}
        self._judged: set[str] = set()
        self._told: tuple[str | None, int] = (None, 0)
        self._announced: dict[str, list[tuple[str | None, ...]]] = {}

    def check(self, checkpoint: Checkpoint, loaded: Checkpoint | None = None) -> None:
        """Check the checkpoint as it is now, and that nothing it showed before has changed."""
        _assert_lineage(checkpoint, one_clock=self._one_clock)
        retained = {one.snapshot_id: one for one in checkpoint.snapshots}
        for snapshot in retained.values():
            self._assert_unchanged(snapshot, thorough=False)
            if snapshot.snapshot_id not in self._judged and snapshot.is_loaded:
                self._judged.add(snapshot.snapshot_id)
                parent = retained.get(snapshot.parent_snapshot_id or "")
                _assert_sound(checkpoint, snapshot)
                _assert_step(snapshot, parent if parent is not None and parent.is_loaded else None)
        if loaded is not None:
            _assert_lineage(loaded, one_clock=self._one_clock)
            _assert_agree(checkpoint, loaded)
            for snapshot in loaded.snapshots:
                self._assert_unchanged(snapshot, thorough=True)
            here = (loaded.head_snapshot_id, loaded.generation)
            if here != self._told and all(snapshot.is_loaded for snapshot in loaded.snapshots):
                self._told = here
                _assert_events(loaded)
                self._assert_announced_as_before(loaded)

    def _assert_unchanged(self, snapshot: CheckpointSnapshot, *, thorough: bool) -> None:
        known = self._committed.get(snapshot.snapshot_id)
        if known is None:
            if snapshot.is_loaded:
                self._committed[snapshot.snapshot_id] = (snapshot.manifest, snapshot.to_bytes())
            return
        assert snapshot.manifest == known[0], f"{snapshot} is not what was committed"
        if thorough and snapshot.is_loaded:
            assert snapshot.to_bytes() == known[1], f"the bytes of {snapshot} are not what was committed"

    def _assert_announced_as_before(self, loaded: Checkpoint) -> None:
        """What a snapshot announces never changes, whatever else was pruned."""
        told = loaded.events()
        for snapshot in loaded.ancestors():
            found: list[tuple[str | None, ...]] = [
                (event.event_id, event.type, event.executor_id, event.output_id, event.request_id)
                for event in told
                if event.snapshot_id == snapshot.snapshot_id
            ]
            before = self._announced.setdefault(snapshot.snapshot_id, found)
            assert found == before, f"{snapshot} announces something else than before"

    @staticmethod
    def sight(checkpoint: Checkpoint) -> Sight:
        """Return what the holder has now, to be given to `followed` after one call."""
        ids = tuple(one.snapshot_id for one in checkpoint.snapshots)
        return Sight(ids, checkpoint.head_snapshot_id, checkpoint.generation)

    @staticmethod
    def followed(before: Sight, checkpoint: Checkpoint) -> list[CheckpointSnapshot]:
        """Check what one call added, and return it in commit order.

        The call is one that commits, or one that fails to: not a `refresh`, a `restart_from` or a `prune`.
        What was there is still there; each commit made exactly one snapshot, the first one as child of
        the head that was selected, each other one as child of the one before; both heads are at the last.
        """
        snapshots = checkpoint.snapshots
        assert tuple(one.snapshot_id for one in snapshots[: len(before.ids)]) == before.ids
        assert checkpoint.generation == before.generation
        added = snapshots[len(before.ids) :]
        parent = before.selected
        for snapshot in added:
            assert snapshot.parent_snapshot_id == parent, f"{snapshot} is no child of {parent}"
            parent = snapshot.snapshot_id
        assert checkpoint.head_snapshot_id == parent
        if added:
            assert checkpoint.stored_head_snapshot_id == parent
        return added


# One moment of a lineage.


def _assert_lineage(checkpoint: Checkpoint, *, one_clock: bool) -> None:
    snapshots, pruned = checkpoint.snapshots, checkpoint.header.pruned
    ids = [one.snapshot_id for one in snapshots]
    assert len(set(ids)) == len(ids), "two snapshots have one id"
    assert not one_clock or ids == sorted(ids), "the ids do not sort by the time of their commits"
    assert not pruned.keys() & set(ids), "a snapshot is told as pruned and is there"
    earlier: set[str] = set()
    for snapshot in snapshots:
        assert snapshot.checkpoint_id == checkpoint.checkpoint_id
        parent = snapshot.parent_snapshot_id
        if parent is not None and parent not in earlier:
            assert parent in pruned, f"the parent of {snapshot} is neither there nor told as pruned"
            assert pruned[parent] is None or pruned[parent] in earlier, "a gap leads to nobody"
        earlier.add(snapshot.snapshot_id)
    named = {one.parent_snapshot_id for one in snapshots}
    assert pruned.keys() <= named, "a gap is told that no snapshot stands at"
    for snapshot in snapshots:
        _assert_way_to_root(checkpoint, snapshot, pruned)
    selected, stored = checkpoint.head_snapshot_id, checkpoint.stored_head_snapshot_id
    assert stored == (ids[-1] if ids else None), "the stored head is not the last commit that was seen"
    assert selected is None or selected in earlier, "the selected head is not here"
    head = checkpoint.head_snapshot
    assert (None if head is None else head.snapshot_id) == selected
    assert checkpoint.status == (None if head is None else head.status)


def _assert_way_to_root(
    checkpoint: Checkpoint, snapshot: CheckpointSnapshot, pruned: Mapping[str, str | None]
) -> None:
    way = [one.snapshot_id for one in checkpoint.ancestors(snapshot.snapshot_id)]
    assert len(set(way)) == len(way), f"the way from {snapshot} to its root is a cycle"
    expected: str | None = snapshot.snapshot_id
    for found in way:
        assert found == expected
        parent = checkpoint.get_snapshot(found).parent_snapshot_id
        expected = None if parent is None else pruned.get(parent, parent)
    assert expected is None, f"the way from {snapshot} ends before its root"


def _assert_agree(checkpoint: Checkpoint, loaded: Checkpoint) -> None:
    """What the holder has in memory is what storage has."""
    assert loaded.header == checkpoint.header
    assert loaded.format == checkpoint.format
    assert [one.manifest for one in loaded.snapshots] == [one.manifest for one in checkpoint.snapshots]
    assert loaded.stored_head_snapshot_id == checkpoint.stored_head_snapshot_id
    assert loaded.head_snapshot_id == loaded.stored_head_snapshot_id, "a load selects the stored head"
    if all(one.is_loaded for one in [*checkpoint.snapshots, *loaded.snapshots]):
        assert loaded.parts == checkpoint.parts, "memory holds other bytes than storage"


# One snapshot, and one step of a lineage.


def _assert_sound(checkpoint: Checkpoint, snapshot: CheckpointSnapshot) -> None:
    """The envelope says what the state says, and both have the shape that they are to have."""
    manifest, metadata, state = snapshot.manifest, snapshot.metadata, snapshot.state
    assert snapshot.boundary in BOUNDARIES
    assert metadata == {**manifest.metadata, "boundary": snapshot.boundary}
    assert json.loads(json.dumps(metadata)) == metadata
    assert snapshot.timestamp.utcoffset() == timedelta(0)
    assert snapshot.format_version == FORMAT_VERSION
    assert snapshot.graph_signature_hash == checkpoint.graph_signature_hash
    assert CheckpointSnapshot.from_bytes(snapshot.to_bytes()).to_bytes() == snapshot.to_bytes()
    assert tuple(state) == BUCKETS
    assert tuple(state["messages"]) == MESSAGES
    own, messages = state["workflow_state"], state["messages"]
    pending, output, accepted = messages["pending"], messages["output"], messages["input"]
    assert own["status"] == snapshot.status == status_of(pending["deliveries"], pending["requests"])
    assert own["iteration_count"] == snapshot.superstep >= own["cursor"]["input_iteration"]
    assert tuple(pending["requests"]) == manifest.requests
    assert accepted.get("input_id") == snapshot.input_id
    inputs = _inputs(state)
    assert len(set(inputs)) == len(inputs), "an input was accepted twice"
    assert accepted.get("turn", own["turn"]) == own["turn"]
    for record in output:
        assert 1 <= record["turn"] <= own["turn"]
        assert record["superstep"] <= own["iteration_count"]
    made = [record["output_id"] for record in output]
    assert len(set(made)) == len(made), "two outputs have one id"
    for request in pending["requests"].values():
        assert request["input_id"] in inputs


def _inputs(state: Mapping[str, Any]) -> list[str]:
    accepted = state["messages"]["input"]
    return [one["input_id"] for one in accepted["earlier"]] + [accepted["input_id"]] if accepted else []


def _assert_step(snapshot: CheckpointSnapshot, parent: CheckpointSnapshot | None) -> None:
    """What a snapshot says is what its parent said and what its boundary did; unless the parent is pruned."""
    boundary = snapshot.boundary
    assert (boundary == "forked") == (snapshot.forked_from is not None)
    assert bool(snapshot.manifest.executors) == (boundary in _STATUS_OF_A_SUPERSTEP)
    if snapshot.parent_snapshot_id is None:
        assert boundary in ("input_accepted", "forked", "edited")
        if boundary == "input_accepted":
            _assert_input(snapshot, None)
        return
    assert boundary != "forked"
    if parent is None or boundary == "edited":
        return
    if boundary == "restarted":
        assert (snapshot.root, snapshot.status) == (parent.root, parent.status)
    elif boundary == "input_accepted":
        _assert_input(snapshot, parent)
    elif boundary == "responses_accepted":
        _assert_answers(snapshot, parent)
    elif boundary == "abandoned":
        _assert_abandoned(snapshot, parent)
    elif boundary in INNER_BOUNDARIES:
        _assert_inner(snapshot, parent)
    else:
        _assert_superstep(snapshot, parent)


def _assert_input(snapshot: CheckpointSnapshot, parent: CheckpointSnapshot | None) -> None:
    state, before = snapshot.state, None if parent is None else parent.state
    assert parent is None or parent.status == "idle", "a message was accepted into unfinished work"
    assert snapshot.status == "in_progress"
    assert snapshot.superstep == (0 if parent is None else parent.superstep)
    assert state["workflow_state"]["cursor"]["input_iteration"] == snapshot.superstep
    assert _turn(state) == (0 if before is None else _turn(before)) + 1
    assert _inputs(state)[:-1] == ([] if before is None else _inputs(before))
    assert _outputs(state) == ([] if before is None else _outputs(before))


def _assert_answers(snapshot: CheckpointSnapshot, parent: CheckpointSnapshot) -> None:
    state, before = snapshot.state, parent.state
    asked, open_still = parent.manifest.requests, snapshot.manifest.requests
    answered = [one for one in asked if one not in open_still]
    assert answered, "answers were accepted and no request was open for them"
    assert [one for one in asked if one in open_still] == list(open_still)
    assert snapshot.superstep == parent.superstep
    assert _turn(state) == _turn(before)
    assert _inputs(state)[:-1] == _inputs(before)
    assert _outputs(state) == _outputs(before)
    waiting, added = _deliveries(parent), _deliveries(snapshot)
    assert added[: len(waiting)] == waiting
    assert [one.get("request_id") for one in added[len(waiting) :]] == answered


def _assert_abandoned(snapshot: CheckpointSnapshot, parent: CheckpointSnapshot) -> None:
    state, before = snapshot.state, parent.state
    assert parent.status != "idle", "there was nothing to abandon"
    assert snapshot.status == "idle"
    assert snapshot.superstep == parent.superstep
    assert (_turn(state), _inputs(state)) == (_turn(before), _inputs(before))
    assert _outputs(before)[: len(_outputs(state))] == _outputs(state)


def _assert_superstep(snapshot: CheckpointSnapshot, parent: CheckpointSnapshot) -> None:
    state, before = snapshot.state, parent.state
    assert snapshot.status == _STATUS_OF_A_SUPERSTEP[snapshot.boundary]
    assert parent.status == "in_progress", "a superstep ran although nothing was pending"
    assert snapshot.superstep == parent.superstep + 1
    assert (_turn(state), _inputs(state)) == (_turn(before), _inputs(before))
    asked, asked_now = parent.manifest.requests, snapshot.manifest.requests
    still = [one for one in asked if one in asked_now]  # a functional workflow may withdraw one
    assert list(asked_now[: len(still)]) == still, "a superstep reordered what is asked"
    known, made = _outputs(before), _outputs(state)
    assert made[: len(known)] == known
    number = before["workflow_state"]["iteration_count"] + 1
    assert all(one["superstep"] == number for one in state["messages"]["output"][len(known) :])
    received = {name for one in before["messages"]["pending"]["deliveries"] for name in one["targets"]}
    assert set(snapshot.manifest.executors) == received
    assert len(snapshot.manifest.executors) == len(received), "an executor ran twice in one superstep"


def _assert_inner(snapshot: CheckpointSnapshot, parent: CheckpointSnapshot) -> None:
    """What happened inside of a child or an executor is all that happened; the superstep is not over."""
    state, before = snapshot.plain_state(), parent.plain_state()  # values need not be equal to their copies
    assert parent.status == snapshot.status == "in_progress"
    was_inner = parent.boundary in INNER_BOUNDARIES
    cursor, cursor_before = state["workflow_state"].pop("cursor"), before["workflow_state"].pop("cursor")
    assert cursor["began"] == (cursor_before["began"] if was_inner else parent.snapshot_id)
    assert cursor["input_iteration"] == cursor_before["input_iteration"]
    inside, inside_before = state.pop("executor_states"), before.pop("executor_states")
    assert state == before, "a boundary inside of a child changed the parent"
    serving = {name for one in before["messages"]["pending"]["deliveries"] for name in one["targets"]}
    changed = {
        name for name in inside.keys() | inside_before.keys() if inside.get(name) != inside_before.get(name)
    }
    assert changed <= serving, "an executor changed that had no message"
    if snapshot.boundary == "step_completed":
        assert len(changed) == 1, "a step was kept and none was new, or more than one executor had some"
        return
    for name in changed:
        assert inside[name].keys() == {"executions", "accepted"}
        for execution in inside[name]["executions"].values():
            assert tuple(execution) == BUCKETS
            _assert_status(execution)


def _assert_status(state: Mapping[str, Any]) -> None:
    pending = state["messages"]["pending"]
    assert state["workflow_state"]["status"] == status_of(pending["deliveries"], pending["requests"])


def _deliveries(snapshot: CheckpointSnapshot) -> list[Any]:
    found: list[Any] = snapshot.plain_state()["messages"]["pending"]["deliveries"]
    return found


def _turn(state: Mapping[str, Any]) -> int:
    turn: int = state["workflow_state"]["turn"]
    return turn


def _outputs(state: Mapping[str, Any]) -> list[str]:
    return [record["output_id"] for record in state["messages"]["output"]]


# Events.


def _assert_events(loaded: Checkpoint) -> None:
    """What is told up to a head is what was told up to its parent, and then the rest."""
    head = loaded.head_snapshot_id
    if head is None:
        return
    told, way = loaded.events(), [one.snapshot_id for one in loaded.ancestors()][::-1]
    _assert_numbers(told, way)
    before: list[WorkflowEvent] = []
    if len(way) > 1:
        loaded.restart_from(way[-2])
        before = loaded.events()
        loaded.restart_from(head)
    assert _comparable(told[: len(before)]) == _comparable(before)
    assert all(event.snapshot_id == head for event in told[len(before) :])
    if before:
        rest = loaded.events(after=before[-1].event_id)
        assert _comparable(rest) == _comparable(told[len(before) :])
    last = told[-1].event_id if told else None
    assert loaded.events(after=last) == []


def _comparable(events: list[WorkflowEvent]) -> list[tuple[WorkflowEvent, object]]:
    """Return events so that equal ones are equal, whether or not their data can be compared."""
    return [(msgspec.structs.replace(event, data=None), fingerprint(event.data)) for event in events]


def _assert_numbers(told: list[WorkflowEvent], way: list[str]) -> None:
    numbers: dict[str, int] = {}
    for event in told:
        assert event.durable
        assert event.snapshot_id is not None
        number = numbers.setdefault(event.snapshot_id, 0)
        assert event.event_id == f"{event.snapshot_id}/{number}"
        numbers[event.snapshot_id] += 1
    assert list(numbers) == [one for one in way if one in numbers], "events are told in another order"
