"""What a checkpoint tells of its past is what the streams told while it was the present, whatever is pruned."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from branchpoint import Checkpoint, InvalidCallError, WorkflowEvent
from tests.profiles import brief
from tests.property.errands import errands
from tests.property.generated import Plan, generated, plans
from tests.scenario.kit import Place, place_of

Move = tuple[str, int, bool]
"""What is done, a number for it, and whether it is read as a stream."""

DEEDS = ["go", "go", "go", "stop", "stop", "back", "fork", "edit", "give up", "store", "prune", "prune"]
moves = st.lists(
    st.tuples(st.sampled_from(DEEDS), st.integers(0, 2**12 - 1), st.booleans()),
    max_size=10,
)

Told = dict[str, list[WorkflowEvent]]


class Teller:
    """One execution, and all that its readers were told, by snapshot."""

    def __init__(self, plan: Plan, seed: int, place: Place) -> None:
        self.plan = plan
        self.seed = seed
        self.place = place
        self.name = "run-1"
        self.checkpoint = place.create(generated(plan, seed))
        self.told: Told = {}
        self.gone: list[WorkflowEvent] = []
        self.count = 0

    async def do(self, move: Move) -> None:
        what, number, stream = move
        if what == "back" and self.checkpoint.snapshots:
            choices = [None, *(one.snapshot_id for one in self.checkpoint.snapshots)]
            self.checkpoint.restart_from(choices[-1 - number % len(choices)])
        elif what == "fork" and self.checkpoint.head_snapshot_id is not None:
            self.name = f"{self.name}-fork"
            self.checkpoint = await self.checkpoint.fork(checkpoint_id=self.name)
            self.told, self.gone = {}, []
        elif what == "store" and self.checkpoint.head_snapshot is not None:
            await self.checkpoint.commit_snapshot()
        elif what == "edit" and self.checkpoint.head_snapshot is not None:
            await self.checkpoint.commit_snapshot(edited(self.checkpoint.head_snapshot.state, number))
        elif what == "give up" and self.checkpoint.status not in (None, "idle"):
            with suppress(InvalidCallError):  # a prune or a fork left nothing to go back to
                await self.checkpoint.abandon()
        elif what == "prune":
            await self.prune(number)
        elif what in ("go", "stop"):
            await self.run(1 + number % 2 if what == "stop" else None, number, stream)

    async def prune(self, number: int) -> None:
        """Keep some snapshots; they announce what they did, and what the others did is gone."""
        before = by_snapshot(self.checkpoint)
        keep = [one.snapshot_id for n, one in enumerate(self.checkpoint.snapshots) if number >> n & 1]
        removed = {one.snapshot_id for one in await self.checkpoint.prune(keep)}
        self.gone += [event for key in removed for event in before.pop(key)]
        self.told = {key: events for key, events in self.told.items() if key not in removed}
        assert by_snapshot(self.checkpoint) == before

    async def run(self, bound: int | None, number: int, stream: bool) -> None:
        """Do what fits: go on, answer some of what is asked, or begin a turn."""
        call: dict[str, Any] = {"checkpoint": self.checkpoint, "max_supersteps": bound}
        asked = [request.request_id for request in self.checkpoint.pending_requests]
        if self.checkpoint.status == "idle_with_pending_requests":
            some = [key for n, key in enumerate(asked) if number >> n & 1] or asked[:1]
            call["responses"] = dict.fromkeys(some, "yes")
        elif self.checkpoint.status != "in_progress":
            self.count += 1
            call["message"] = f"turn {self.count}"
        workflow = generated(self.plan, self.seed + len(self.checkpoint.snapshots))
        before = len(self.checkpoint.snapshots)
        if stream:
            heard = [event async for event in workflow.run(**call, stream=True, include_status_events=True)]
        else:
            heard = list(await workflow.run(**call, include_status_events=True))
        made = [one.snapshot_id for one in self.checkpoint.snapshots[before:]]
        durable = [event for event in heard if event.durable and event.snapshot_id in made]
        for key in made:
            self.told[key] = [event for event in durable if event.snapshot_id == key]
        assert [event for key in made for event in self.told[key]] == durable


def edited(state: dict[str, Any], number: int) -> dict[str, Any]:
    """A state with other outputs, no question, or after more supersteps, which a person may say it is."""
    messages = state["messages"]
    if number % 3 == 0:
        messages["output"] = [{**one, "value": "edited"} for one in messages["output"][number % 2 :]]
    elif number % 3 == 1:
        messages["pending"]["requests"] = {}
    else:
        state["workflow_state"]["iteration_count"] += number % 2
    return state


def by_snapshot(checkpoint: Checkpoint) -> Told:
    """What each retained snapshot announces; the selected head is put back."""
    head, found = checkpoint.head_snapshot_id, {}
    for snapshot in checkpoint.snapshots:
        checkpoint.restart_from(snapshot.snapshot_id)
        key = snapshot.snapshot_id
        found[key] = [event for event in checkpoint.events() if event.snapshot_id == key]
    checkpoint.restart_from(head)
    return found


def way_of(checkpoint: Checkpoint) -> list[str]:
    """From the root to the selected head."""
    return [one.snapshot_id for one in checkpoint.ancestors()][::-1]


def check_told_again(checkpoint: Checkpoint, told: Told) -> None:
    """On the way to any snapshot, what is told is what was told then; a fork's root was told elsewhere."""
    for snapshot in checkpoint.snapshots:
        checkpoint.restart_from(snapshot.snapshot_id)
        live = [event for key in way_of(checkpoint) for event in told.get(key, [])]
        events = checkpoint.events()
        assert [event for event in events if event.snapshot_id in told] == live
        # A restart, an edit, a fork or giving up announces where that leaves the turn, and nothing else.
        assert {event.type for event in events if event.snapshot_id not in told} <= {"status"}


def check_parts(checkpoint: Checkpoint, gone: list[WorkflowEvent]) -> None:
    """After any event come exactly those behind it; those of an input are those that carry its id."""
    events, way = checkpoint.events(), way_of(checkpoint)
    inputs = dict.fromkeys(checkpoint.get_snapshot(key).input_id for key in way)
    assert {event.input_id for event in events} <= inputs.keys()
    for input_id in inputs:
        assert checkpoint.events(input_id=input_id) == [one for one in events if one.input_id == input_id]
    assert checkpoint.events(input_id="no-such-input") == []
    for n, event in enumerate(events):
        rest = events[n + 1 :]
        assert checkpoint.events(after=event.event_id) == rest
        assert checkpoint.events(after=event.event_id, input_id=event.input_id) == [
            one for one in rest if one.input_id == event.input_id
        ]
    for snapshot in checkpoint.snapshots:
        if snapshot.snapshot_id not in way:
            with pytest.raises(InvalidCallError, match="not the id of an event"):
                checkpoint.events(after=f"{snapshot.snapshot_id}/0")
    for event in gone:
        with pytest.raises(InvalidCallError, match="was pruned"):
            checkpoint.events(after=event.event_id)


async def tell(kind: str, plan: Plan, seed: int, done: list[Move]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = place_of(kind, Path(folder))
        teller = Teller(plan, seed, place)
        await teller.run(None, 1, stream=True)
        for move in done:
            await teller.do(move)
        check_parts(teller.checkpoint, teller.gone)
        check_told_again(teller.checkpoint, teller.told)
        if place.is_stored:
            storage = place.open()
            assert storage is not None
            loaded = await storage.load(teller.name)
            check_parts(loaded, teller.gone)
            check_told_again(loaded, teller.told)


@brief(12)
@given(plan=plans(), seed=st.integers(0, 2**32), done=moves)
def test_durable_events_of_the_stream_are_those_of_the_checkpoint(
    plan: Plan, seed: int, done: list[Move]
) -> None:
    asyncio.run(tell("memory", plan, seed, done))


@brief(12)
@given(plan=plans(), seed=st.integers(0, 2**32), done=moves)
def test_and_those_of_the_file(plan: Plan, seed: int, done: list[Move]) -> None:
    asyncio.run(tell("file-msgpack" if seed % 2 else "file-json", plan, seed, done))


@brief(12)
@given(plan=plans(), seed=st.integers(0, 2**32), done=moves)
def test_and_those_of_memory_alone(plan: Plan, seed: int, done: list[Move]) -> None:
    asyncio.run(tell("none", plan, seed, [move for move in done if move[0] != "fork"]))


# Texts for the errands, and which snapshots are kept after them.
@brief(12)
@example(texts=["lolol"], kept=0b1111000)
@given(
    texts=st.lists(st.text("lofhaq", max_size=6), min_size=1, max_size=3),
    kept=st.integers(0, 2**24 - 1),
)
def test_an_event_keeps_its_id_whatever_is_pruned(texts: list[str], kept: int) -> None:
    async def once() -> None:
        workflow = errands()
        checkpoint = workflow.create_checkpoint()
        heard: list[WorkflowEvent] = []
        for text in texts:
            result = await workflow.run(text, checkpoint=checkpoint, include_status_events=True)
            heard += result
            while asked := checkpoint.pending_requests:
                answers = dict.fromkeys([one.request_id for one in asked[:2]], "yes")
                result = await workflow.run(
                    checkpoint=checkpoint, responses=answers, include_status_events=True
                )
                heard += result
        before = checkpoint.events()
        assert before == [event for event in heard if event.durable]
        removed = {
            one.snapshot_id
            for one in await checkpoint.prune(
                [one.snapshot_id for n, one in enumerate(checkpoint.snapshots) if kept >> n & 1]
            )
        }
        left = [event for event in before if event.snapshot_id not in removed]
        assert checkpoint.events() == left
        for n, event in enumerate(left):
            assert checkpoint.events(after=event.event_id) == left[n + 1 :]

    asyncio.run(once())
