"""What a caller writes to run a workflow is typed, and each way of calling has its own result."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, assert_type

from agent_framework import AgentResponse, AgentResponseUpdate, AgentSession, ResponseStream, SupportsAgentRun

from branchpoint import (
    Checkpoint,
    CheckpointSnapshot,
    CheckpointStorage,
    FileCheckpointStorage,
    Instrument,
    InstrumentKind,
    MemoryCheckpointStorage,
    Workflow,
    WorkflowEvent,
    WorkflowRunResult,
    WorkflowRunStream,
    add_instrument,
    remove_instrument,
)
from branchpoint.agents import WorkflowAgent


async def plain(workflow: Workflow, folder: Path) -> None:
    storage: CheckpointStorage = FileCheckpointStorage(folder)
    checkpoint = workflow.create_checkpoint(checkpoint_id="one", checkpoint_storage=storage)
    assert_type(checkpoint, Checkpoint)

    result = await workflow.run("hello", checkpoint=checkpoint)
    assert_type(result, WorkflowRunResult)
    await workflow.run(None)
    await workflow.run(checkpoint=checkpoint, max_supersteps=1)
    await workflow.run(responses={"id": True}, checkpoint=checkpoint, input_id="a", metadata={"user": "ann"})


async def stream(workflow: Workflow) -> None:
    running = workflow.run("hello", stream=True)
    assert_type(running, WorkflowRunStream)
    async for event in running:
        # Parameters of generic events are free; what matters is that it is an event.
        read: WorkflowEvent = event
        print(read.type)
    assert_type(await running.get_final_response(), WorkflowRunResult)
    await running.cancel()


async def history(checkpoint: Checkpoint) -> None:
    assert_type(checkpoint.checkpoint_id, str)
    assert_type(checkpoint.head_snapshot_id, str | None)
    for snapshot in checkpoint.snapshots:
        assert_type(snapshot, CheckpointSnapshot)
        assert_type(snapshot.parent_snapshot_id, str | None)
    checkpoint.restart_from(checkpoint.snapshots[0].snapshot_id)
    checkpoint.restart_from(None)
    assert_type(await checkpoint.commit_snapshot(metadata={"why": "edited"}), CheckpointSnapshot)
    assert_type(await checkpoint.fork(), Checkpoint)
    await checkpoint.refresh()
    await checkpoint.abandon("too old")

    again: CheckpointStorage = MemoryCheckpointStorage()
    assert_type(await again.load("one"), Checkpoint)
    await again.delete("one")


class Prints:
    @contextmanager
    def around(self, kind: InstrumentKind, info: dict[str, Any]) -> Iterator[None]:
        print("begins", kind, info["checkpoint_id"])
        yield


class OfCommits(Instrument):
    def around(self, kind: str, info: dict[str, Any]) -> AbstractContextManager[Any]:
        return Prints().around("commit", info) if kind == "commit" else nullcontext()


def watched() -> None:
    given: list[Instrument] = [Prints(), OfCommits()]
    for instrument in given:
        add_instrument(instrument)
        remove_instrument(instrument)


async def as_agent(workflow: Workflow) -> None:
    agent = workflow.as_agent(name="clerk", checkpoint_storage=MemoryCheckpointStorage())
    assert_type(agent, WorkflowAgent)
    taken: SupportsAgentRun = agent
    session = taken.create_session()
    assert_type(session, AgentSession)
    response = await agent.run("hello", session=session, input_id="a")
    assert_type(response, AgentResponse[Any])
    stream = agent.run(stream=True, session=session)
    assert_type(stream, ResponseStream[AgentResponseUpdate, AgentResponse[Any]])
    checkpoint = await agent.get_checkpoint(session)
    assert_type(checkpoint, Checkpoint | None)
    if checkpoint is not None:
        agent.set_checkpoint(session, checkpoint)
