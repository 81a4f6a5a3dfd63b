"""Runs in a row on one checkpoint object: what one leaves for the next makes it quick, and changes nothing."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Never

import pytest
from hypothesis import given
from hypothesis import strategies as st

from branchpoint import (
    Checkpoint,
    Executor,
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    register_state_type,
    state,
)
from branchpoint.codec import isolated_registry
from branchpoint.errors import CheckpointConflictError, InvalidInputError, StorageError
from branchpoint.testing import FaultyStorage
from tests.profiles import brief

LONG = "x" * 120


@dataclass
class Note:
    text: str


CALLS: dict[str, int] = {}
LEAKED: list[list[Note]] = []


def _counted(kind: str, made: Any) -> Any:
    CALLS[kind] = CALLS.get(kind, 0) + 1
    return made


@pytest.fixture(autouse=True)
def notes() -> Iterator[None]:
    CALLS.clear()
    LEAKED.clear()
    with isolated_registry():
        register_state_type(
            Note,
            type_id="row.note",
            encoder=lambda note: _counted("encoded", {"text": note.text}),
            decoder=lambda payload: _counted("decoded", Note(**payload)),
            copy=lambda note: _counted("copied", replace(note)),
            fingerprint=lambda note: _counted("looked at", note.text),
        )
        yield
    LEAKED.clear()


class Book(Executor):
    """Keeps every text, and hands what it keeps to whoever wants to spoil it."""

    kept: list[Note] = state(factory=list)

    @handler
    async def add(self, text: str, ctx: WorkflowContext[Never, list[str]]) -> None:
        for earlier in LEAKED:  # also while the next run is at work
            spoil(earlier)
        self.kept.append(Note(text))
        LEAKED[:] = [self.kept]
        await ctx.yield_output([note.text for note in self.kept])


def spoil(kept: list[Note]) -> None:
    for note in kept[-2:]:
        note.text = "spoiled"
    kept.insert(0, Note("spoiled"))


def book() -> Workflow:
    return WorkflowBuilder(name="book", start_executor=Book(id="book")).build()


async def filled(workflow: Workflow, checkpoint: Checkpoint, count: int) -> list[str]:
    texts = [f"{number}{LONG}" for number in range(count)]
    for text in texts:
        assert (await workflow.run(text, checkpoint=checkpoint)).get_outputs()[-1][-1] == text
    return texts


async def test_a_turn_of_its_own_looks_at_all_and_encodes_what_is_new() -> None:
    workflow = book()
    counts = []
    for length in (100, 300):
        LEAKED.clear()
        checkpoint = workflow.create_checkpoint(checkpoint_storage=InMemoryCheckpointStorage())
        texts = await filled(workflow, checkpoint, length)
        LEAKED.clear()
        taken = []
        for number in range(5):
            CALLS.clear()
            texts.append(f"more {number}{LONG}")
            result = await workflow.run(texts[-1], checkpoint=checkpoint)
            LEAKED.clear()
            assert result.get_outputs() == [texts]
            assert "decoded" not in CALLS
            assert CALLS["copied"] == len(texts)
            assert CALLS["looked at"] <= 2 * len(texts) + 10
            taken.append(CALLS["encoded"])
        counts.append(taken)
    assert counts[0] == counts[1] == [1] * 5


async def test_what_was_spoiled_after_a_run_or_during_the_next_is_not_in_it(tmp_path: Path) -> None:
    workflow = book()
    storage = FileCheckpointStorage(tmp_path)
    checkpoint = workflow.create_checkpoint(checkpoint_id="c", checkpoint_storage=storage)
    texts = await filled(workflow, checkpoint, 80)
    for number in range(3):
        given = f"more {number}{LONG}"
        result = await workflow.run(given, checkpoint=checkpoint)
        texts.append(given)
        (said,) = result.get_outputs()
        assert said == texts
        said.clear()
        spoil(LEAKED[-1])
    stored = (await storage.load("c")).snapshots[-1].state["executor_states"]["book"]["kept"]
    assert [note.text for note in stored] == texts


async def test_a_branch_begins_from_its_own_snapshot() -> None:
    workflow = book()
    checkpoint = workflow.create_checkpoint()
    texts = await filled(workflow, checkpoint, 60)
    ends = [found.snapshot_id for found in checkpoint.snapshots if found.status == "idle"]
    head = checkpoint.head_snapshot_id
    for back in (50, 59, 40):
        checkpoint.restart_from(ends[back])
        assert (await workflow.run("other", checkpoint=checkpoint)).get_outputs() == [
            [*texts[: back + 1], "other"]
        ]
    checkpoint.restart_from(head)
    forked = await checkpoint.fork()
    for one in (checkpoint, forked, forked, checkpoint):
        said = (await workflow.run("both", checkpoint=one)).get_outputs()[0]
        assert said[:60] == texts and set(said[60:]) == {"both"}


async def test_after_a_conflict_and_a_refresh_the_other_writers_state_goes_on(tmp_path: Path) -> None:
    workflow = book()
    storage = FileCheckpointStorage(tmp_path)
    mine = workflow.create_checkpoint(checkpoint_id="c", checkpoint_storage=storage)
    texts = await filled(workflow, mine, 60)
    theirs = await storage.load("c")
    await workflow.run("theirs", checkpoint=theirs)
    with pytest.raises(CheckpointConflictError):
        await workflow.run("mine", checkpoint=mine)
    await mine.refresh()
    assert (await workflow.run("mine", checkpoint=mine)).get_outputs() == [[*texts, "theirs", "mine"]]


@pytest.mark.parametrize("number", [1, 2])
async def test_after_a_commit_that_failed_the_run_goes_on_from_what_is_stored(number: int) -> None:
    workflow = book()
    storage = FaultyStorage(InMemoryCheckpointStorage())
    checkpoint = workflow.create_checkpoint(checkpoint_storage=storage)
    texts = await filled(workflow, checkpoint, 60)
    storage.arm({number: "fail"})
    with pytest.raises(StorageError):
        await workflow.run("lost", checkpoint=checkpoint)
    if number == 1:
        texts.append("again")
        assert (await workflow.run("again", checkpoint=checkpoint)).get_outputs() == [texts]
    else:  # it was accepted
        assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == [[*texts, "lost"]]


async def test_a_refused_call_and_an_edit_leave_what_is_there() -> None:
    workflow = book()
    checkpoint = workflow.create_checkpoint()
    texts = await filled(workflow, checkpoint, 60)
    with pytest.raises(InvalidInputError):
        await workflow.run(5, checkpoint=checkpoint)
    assert (await workflow.run("a", checkpoint=checkpoint)).get_outputs() == [[*texts, "a"]]
    edited = checkpoint.snapshots[-1].state
    edited["executor_states"]["book"]["kept"] = [Note("new")]
    await checkpoint.commit_snapshot(edited)
    assert (await workflow.run("b", checkpoint=checkpoint)).get_outputs() == [["new", "b"]]


async def test_two_checkpoints_and_two_workflows_share_nothing() -> None:
    one, other = book(), book()
    first, second = one.create_checkpoint(), one.create_checkpoint()
    texts = [f"{number}{LONG}" for number in range(50)]
    for text in texts:
        for checkpoint in (first, second):
            await one.run(text, checkpoint=checkpoint)
    for workflow, checkpoint in ((other, first), (one, second), (one, first)):
        said = (await workflow.run("end", checkpoint=checkpoint)).get_outputs()[0]
        assert said[:50] == texts and set(said[50:]) == {"end"}


async def test_what_is_left_goes_with_its_checkpoint() -> None:
    workflow = book()
    seen: list[weakref.ref[Note]] = []
    for _ in range(3):
        checkpoint = workflow.create_checkpoint()
        await filled(workflow, checkpoint, 50)
        LEAKED.clear()
        await workflow.run("end", checkpoint=checkpoint)
        seen += [weakref.ref(note) for note in LEAKED[-1]]
        LEAKED.clear()
        gc.collect()
        assert not any(found() for found in seen), "what a handler held is kept after its run"
        found = weakref.ref(checkpoint)
        del checkpoint
        gc.collect()
        assert found() is None


@brief(20)
@given(
    st.lists(
        st.sampled_from(["turn", "turn", "spoil", "back", "fork", "load", "edit", "report"]), max_size=25
    )
)
def test_any_row_of_calls_says_what_fresh_loads_would_say(deeds: list[str]) -> None:
    LEAKED.clear()
    asyncio.run(_row(deeds))


async def _row(deeds: list[str]) -> None:
    workflow, storage = book(), InMemoryCheckpointStorage()
    checkpoint = workflow.create_checkpoint(checkpoint_storage=storage)
    held = {checkpoint.head_snapshot_id: [f"{number}{LONG}" for number in range(40)]}
    await workflow.run("first", checkpoint=checkpoint)
    state = checkpoint.snapshots[-1].state
    state["executor_states"]["book"]["kept"] = [Note(text) for text in held.pop(None)]
    await checkpoint.commit_snapshot(state)
    held[checkpoint.head_snapshot_id] = [f"{number}{LONG}" for number in range(40)]
    for number, deed in enumerate(deeds):
        head = checkpoint.head_snapshot_id
        if deed == "turn":
            expected = [*held[head], f"{number}"]
            assert (await workflow.run(f"{number}", checkpoint=checkpoint)).get_outputs() == [expected]
            held[checkpoint.head_snapshot_id] = expected
        elif deed == "spoil":
            for kept in LEAKED:
                spoil(kept)
        elif deed == "back":
            checkpoint.restart_from(list(held)[number % len(held)])
        elif deed == "fork":
            checkpoint = await checkpoint.fork()
            held = {checkpoint.head_snapshot_id: held[head]}
        elif deed == "load":
            await checkpoint.refresh()
        elif deed == "edit":
            state = checkpoint.head_snapshot.state
            state["executor_states"]["book"]["kept"].append(Note("edited"))
            await checkpoint.commit_snapshot(state)
            held[checkpoint.head_snapshot_id] = [*held[head], "edited"]
        else:
            await workflow.run(checkpoint=checkpoint)
