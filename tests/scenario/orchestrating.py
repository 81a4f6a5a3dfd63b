"""What holds of every orchestration: the laws that the scenarios of each pattern are put through.

A `Play` is a pattern with scripted agents, a message, and what a person answers. However it is
interrupted, it ends as the play that ran through; `story` says what is compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agent_framework import AgentResponse, AgentSession, Content, Message

from branchpoint import (
    Checkpoint,
    CheckpointStorage,
    FileCheckpointStorage,
    MemoryCheckpointStorage,
    PendingRequest,
    RequestCancelled,
    StorageError,
    Workflow,
)
from branchpoint.agents import AgentExecutorResponse
from branchpoint.testing import check_lineage_law
from branchpoint.testing.agents import scripted_agent
from tests.scenario.kit import Around, in_new_process


@dataclass
class Play:
    """A pattern as a test plays it.

    Attributes:
        build: Makes the workflow, with new agents each time, as another process would.
        message: The input.
        answer: What a person answers to a request.
    """

    build: Callable[[], Workflow]
    message: Any = "Go."
    answer: Callable[[PendingRequest], Any] = lambda request: RequestCancelled()


def speaker(name: str) -> Any:
    """An agent that says its name, and how often it spoke."""
    return scripted_agent([f"{name}{number}" for number in range(9)], name=name)


def given(agent: Any) -> list[list[str]]:
    """What an agent's model was given, per time it was asked."""
    return [[message.text for message in call.messages] for call in agent.client.calls]


def said(value: Any) -> Any:
    """Return a value of a run in a form that can be compared and read: what was said by whom."""
    match value:
        case Message():
            return [str(value.role), value.author_name, [said(content) for content in value.contents]]
        case Content():
            return value.text if value.type == "text" else f"{value.type}:{value.name or value.call_id}"
        case AgentResponse():
            return [said(message) for message in value.messages]
        case AgentExecutorResponse():
            return [value.executor_id, said(value.agent_response), said(value.full_conversation)]
        case AgentSession():
            return said(value.state)
        case Mapping():
            return {key: said(item) for key, item in value.items()}
        case list() | tuple():
            return [said(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else f"<{type(value).__name__}>"


def story(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return all that a checkpoint keeps of what was said, without ids that differ from run to run."""
    snapshot = checkpoint.head_snapshot
    assert snapshot is not None
    state = snapshot.state
    return {
        "outputs": [said(record.value) for record in checkpoint.outputs()],
        "executors": said(state["executor_states"]),
        "shared": said(state["workflow_state"]["shared"]),
    }


async def play_on(play: Play, workflow: Workflow, checkpoint: Checkpoint) -> None:
    """Answer whatever is asked until nothing is."""
    for _ in range(50):
        if not checkpoint.pending_requests:
            return
        answers = {request.request_id: play.answer(request) for request in checkpoint.pending_requests}
        await workflow.run(responses=answers, checkpoint=checkpoint)
    raise AssertionError("it asks without end")


async def play_through(play: Play, storage: CheckpointStorage | None = None) -> Checkpoint:
    """Play without any interruption."""
    workflow = play.build()
    checkpoint = workflow.create_checkpoint("play", checkpoint_storage=storage)
    await workflow.run(play.message, checkpoint=checkpoint)
    await play_on(play, workflow, checkpoint)
    assert checkpoint.head_snapshot is not None
    return checkpoint


async def check_pauses(play: Play, folder: Path) -> None:
    """At each pause, everything is thrown away but the files; the end is the same."""
    whole = story(await play_through(play))
    storage = FileCheckpointStorage(folder)
    workflow = play.build()
    await workflow.run(
        play.message, checkpoint=workflow.create_checkpoint("play", checkpoint_storage=storage)
    )
    pauses = 0
    while (checkpoint := await FileCheckpointStorage(folder).load("play")).pending_requests:
        pauses += 1
        answers = {request.request_id: play.answer(request) for request in checkpoint.pending_requests}
        await play.build().run(responses=answers, checkpoint=checkpoint)
    assert pauses, "the play has no pause"
    assert story(checkpoint) == whole
    check_lineage_law(checkpoint)


def finish_here(play: str, folder: str) -> dict[str, Any]:
    """Load a play and answer what is asked; run in a new process, by `module:function` of the play."""
    import importlib

    module, _, name = play.partition(":")
    made: Play = getattr(importlib.import_module(module), name)()

    async def finish() -> dict[str, Any]:
        workflow = made.build()
        checkpoint = await FileCheckpointStorage(folder).load("play")
        await play_on(made, workflow, checkpoint)
        return story(checkpoint)

    return asyncio.run(finish())


async def check_second_process(make: Callable[[], Play], folder: Path) -> None:
    """The first pause is answered in a process of its own; the end is the same."""
    play = make()
    whole = story(await play_through(play))
    workflow = play.build()
    checkpoint = workflow.create_checkpoint("play", checkpoint_storage=FileCheckpointStorage(folder))
    await workflow.run(play.message, checkpoint=checkpoint)
    assert checkpoint.pending_requests
    ended = in_new_process(finish_here, f"{make.__module__}:{make.__name__}", str(folder))
    assert ended == whole
    assert story(await FileCheckpointStorage(folder).load("play")) == whole


async def check_crashes(play: Play) -> int:
    """The storage fails at each commit in turn; the end is the same.

    Returns:
        How many commits there are.
    """
    whole, counting = story(await play_through(play)), Around(MemoryCheckpointStorage())
    await play_through(play, counting)
    for number in range(1, counting.commits + 1):

        def fail(at: int, number: int = number) -> None:
            if at == number:
                raise StorageError("the disk is gone")

        inner = MemoryCheckpointStorage()
        with pytest.raises(StorageError, match="the disk is gone"):
            await play_through(play, Around(inner, before=fail))
        workflow, checkpoint = play.build(), await _load(inner, play)
        if checkpoint.head_snapshot is None:
            await workflow.run(play.message, checkpoint=checkpoint)
        elif checkpoint.status == "in_progress":
            await workflow.run(checkpoint=checkpoint)
        await play_on(play, workflow, checkpoint)
        assert story(checkpoint) == whole, f"failed at commit {number}"
        check_lineage_law(checkpoint)
    return counting.commits


async def _load(storage: CheckpointStorage, play: Play) -> Checkpoint:
    try:
        return await storage.load("play")
    except LookupError:
        return play.build().create_checkpoint("play", checkpoint_storage=storage)


async def check_two_at_once(play: Play) -> None:
    """Two checkpoints of one workflow object, at the same time, never see each other."""
    whole = story(await play_through(play))
    workflow = play.build()
    both = [workflow.create_checkpoint(name) for name in ("one", "other")]

    async def perform(checkpoint: Checkpoint) -> None:
        await workflow.run(play.message, checkpoint=checkpoint)
        await play_on(play, workflow, checkpoint)

    await asyncio.gather(*map(perform, both))
    assert [story(checkpoint) for checkpoint in both] == [whole, whole]


async def check_branches(play: Play) -> None:
    """From every snapshot of a finished play another branch comes to the same end."""
    checkpoint = await play_through(play)
    whole, workflow = story(checkpoint), play.build()
    trunk = [snapshot.snapshot_id for snapshot in checkpoint.snapshots]
    for snapshot_id in trunk:
        checkpoint.restart_from(snapshot_id)
        if checkpoint.status == "in_progress":
            await workflow.run(checkpoint=checkpoint)
        await play_on(play, workflow, checkpoint)
        assert story(checkpoint) == whole
    check_lineage_law(checkpoint)
