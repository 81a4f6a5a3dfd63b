"""A program that only reads checkpoints of orchestrations, and imports nothing of theirs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from branchpoint import FileCheckpointStorage
from tests.scenario.kit import in_new_process


def read(folder: str) -> dict[str, Any]:
    """Read what is asked and what is kept; run in a new process, which has not imported the room."""
    assert "branchpoint.orchestrations" not in sys.modules

    async def load() -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in ("handoff", "magentic", "reviewed"):
            checkpoint = await FileCheckpointStorage(folder).load(name)
            (request,) = checkpoint.pending_requests
            assert checkpoint.head_snapshot is not None
            found[name] = [
                type(request.data).__name__,
                sorted(checkpoint.head_snapshot.state["executor_states"]),
                [event.type for event in checkpoint.events() if event.type == "request_info"],
            ]
        return found

    return asyncio.run(load())


async def test_questions_and_states_are_read_without_importing_the_room(tmp_path: Path) -> None:
    from branchpoint.orchestrations import HandoffBuilder, MagenticBuilder, SequentialBuilder
    from branchpoint.testing.agents import scripted_agent

    def agent(name: str) -> Any:
        return scripted_agent(lambda messages: f"{name} speaks", name=name)

    workflows = {
        "handoff": HandoffBuilder(participants=[agent("a"), agent("b")]).build(),
        "magentic": MagenticBuilder(
            participants=[agent("a")], manager_agent=agent("m"), enable_plan_review=True
        ).build(),
        "reviewed": SequentialBuilder(participants=[agent("a")]).with_request_info().build(),
    }
    storage = FileCheckpointStorage(tmp_path)
    for name, workflow in workflows.items():
        await workflow.run("Go.", checkpoint=workflow.create_checkpoint(name, storage))

    assert in_new_process(read, str(tmp_path)) == {
        "handoff": ["HandoffAgentUserRequest", ["a"], ["request_info"]],
        "magentic": ["MagenticPlanReviewRequest", ["magentic_orchestrator"], ["request_info"]],
        "reviewed": ["AgentExecutorResponse", ["a"], ["request_info"]],
    }
