"""How many bytes an agent's conversation takes, measured on the real file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from agent_framework import Message

from branchpoint import Checkpoint, FileCheckpointStorage, Workflow, WorkflowBuilder, clock, ids
from branchpoint.checkpoint import whole_of
from branchpoint.codec import encode, new_parts
from branchpoint.testing.agents import scripted_agent
from tests.journals import journal_of


def text(who: str, number: int, size: int) -> str:
    """A text unlike any other."""
    return (f"{who}{number:05d} " * size)[:size]


def talk(size: int) -> Workflow:
    def reply(messages: Sequence[Message]) -> str:
        return text("a", len(messages) // 2, size)

    return WorkflowBuilder(name="talk", start_executor=scripted_agent(reply)).build()


async def _turns(workflow: Workflow, checkpoint: Checkpoint, turns: range, size: int) -> None:
    for number in turns:
        await workflow.run(text("u", number, size), checkpoint=checkpoint)


@pytest.mark.parametrize("said", [1000, 1900, 900, 500, 300, 20])
async def test_a_turn_of_2_kb_stores_its_texts_once_or_twice_and_little_else(
    said: int, tmp_path: Path
) -> None:
    storage = FileCheckpointStorage(tmp_path)
    workflow, turns = talk(2000 - said), 60
    with ids.injected(ids.SequentialIds()), clock.injected(clock.SteppingClock()):
        checkpoint = workflow.create_checkpoint("talk", storage)
        await _turns(workflow, checkpoint, range(turns), said)
    stored = journal_of(tmp_path, "talk").read_bytes()
    last = turns - 1
    # Of the user's text there may be one more, in the message that waits for the agent; a short one
    # is no part of its own anywhere.
    assert stored.count(text("u", last, said).encode()) <= (1 if said >= 1000 else 2 if said > 256 else 4)
    assert stored.count(text("a", last, 2000 - said).encode()) == (1 if said < 1700 else 2)
    assert len(stored) <= turns * (4_100 + 2_000 + (said if said < 1_000 else 0))


async def test_a_checkpoint_that_is_carried_whole_grows_with_its_turns() -> None:
    workflow = talk(500)
    checkpoint = workflow.create_checkpoint("talk")
    sizes = []
    for turns in (range(50), range(50, 100), range(100, 200)):
        await _turns(workflow, checkpoint, turns, 500)
        sizes.append(_size(checkpoint))
    first, second, third = sizes[0] / 50, (sizes[1] - sizes[0]) / 50, (sizes[2] - sizes[1]) / 100
    assert second < 1.2 * first
    assert third < 1.2 * second
    assert sizes[2] < 200 * 10_000


def _size(checkpoint: Checkpoint) -> int:
    encoded, _ = encode(whole_of(checkpoint), format="json")
    return sum(map(len, new_parts(encoded, ()).values()))
