"""What a caller who orchestrates agents, or makes an agent of a workflow, gets wrong."""

from typing import Any

from agent_framework import Agent, AgentSession, SupportsAgentRun

from branchpoint import Checkpoint, CheckpointStorage, Workflow
from branchpoint.agents import WorkflowAgent
from branchpoint.orchestrations import (
    ConcurrentBuilder,
    GroupChatBuilder,
    GroupChatState,
    HandoffBuilder,
    MagenticBuilder,
    SequentialBuilder,
    StandardMagenticManager,
)


def chooses_a_number(state: GroupChatState) -> int:
    return state.current_round


def is_over(text: str) -> bool:
    return not text


def builders(one: SupportsAgentRun, agent: Agent[Any], storage: CheckpointStorage) -> None:
    SequentialBuilder(participants=[one], checkpoint_storage=storage)  # E
    SequentialBuilder(participants=["one"])  # E
    SequentialBuilder([one])  # E
    SequentialBuilder(participants=[one]).with_checkpointing(storage)  # E
    ConcurrentBuilder(participants=[one]).with_aggregator("votes")  # E
    GroupChatBuilder(participants=[one], selection_func=chooses_a_number)  # E
    GroupChatBuilder(participants=[one], termination_condition=is_over)  # E
    HandoffBuilder(participants=[one])  # E
    HandoffBuilder(participants=[agent]).with_autonomous_mode(turn_limits={"a": "3"})  # E
    MagenticBuilder(participants=[one], manager=agent)  # E
    MagenticBuilder(participants=[one], manager_agent=StandardMagenticManager(agent))  # E
    built: SequentialBuilder = SequentialBuilder(participants=[one]).build()  # E
    print(built)


async def as_agent(workflow: Workflow, agent: WorkflowAgent, session: AgentSession) -> None:
    workflow.as_agent(storage="./runs")  # E
    await agent.run("hello", checkpoint=Checkpoint)  # E
    await agent.run("hello", session="one")  # E
    agent.set_checkpoint(session, "one")  # E
    found: Checkpoint = await agent.get_checkpoint(session)  # E
    agent.workflow = workflow  # E
    print(found)
