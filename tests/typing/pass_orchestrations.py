"""What a caller writes to orchestrate agents is typed: builders chain, and each makes a workflow."""

from typing import Any, assert_type

from agent_framework import Agent, Message, SupportsAgentRun

from branchpoint import Executor, Workflow
from branchpoint.agents import AgentExecutorResponse, WorkflowAgent
from branchpoint.orchestrations import (
    AgentRequestInfoResponse,
    ConcurrentBuilder,
    GroupChatBuilder,
    GroupChatState,
    HandoffAgentUserRequest,
    HandoffBuilder,
    MagenticBuilder,
    MagenticPlanReviewRequest,
    MagenticPlanReviewResponse,
    SequentialBuilder,
    StandardMagenticManager,
)


def votes(answers: list[AgentExecutorResponse]) -> dict[str, str]:
    return {answer.executor_id: answer.agent_response.text for answer in answers}


def in_turn(state: GroupChatState) -> str:
    return list(state.participants)[state.current_round % 2]


async def in_turn_later(state: GroupChatState) -> str:
    return in_turn(state)


def is_over(conversation: list[Message]) -> bool:
    return len(conversation) > 3


def builders(one: SupportsAgentRun, other: Executor, agent: Agent[Any], reader: WorkflowAgent) -> None:
    row = SequentialBuilder(participants=[one, other, reader], output_from="all")
    assert_type(row.with_request_info(agents=["one"]), SequentialBuilder)
    assert_type(row.build(), Workflow)

    fan = ConcurrentBuilder(participants=[one, other], intermediate_output_from=[one])
    assert_type(fan.with_aggregator(votes).with_aggregator(other).with_request_info(), ConcurrentBuilder)

    chat = GroupChatBuilder(participants=[one, other], selection_func=in_turn, max_rounds=4)
    assert_type(
        chat.with_termination_condition(is_over).with_max_rounds(None).with_request_info(), GroupChatBuilder
    )
    GroupChatBuilder(participant_factories=[lambda: one], orchestrator_agent=lambda: agent)
    GroupChatBuilder(participants=[one], selection_func=in_turn_later)

    hands = HandoffBuilder(participants=[agent]).add_handoff(agent, ["other"]).with_start_agent("other")
    assert_type(
        hands.with_autonomous_mode(turn_limits={"other": 3}).enable_return_to_previous(), HandoffBuilder
    )

    team = MagenticBuilder(
        participants=[one, other], manager=StandardMagenticManager(agent, max_round_count=3)
    )
    assert_type(team.with_plan_review(), MagenticBuilder)
    assert_type(team.build().as_agent(name="team"), WorkflowAgent)


def answers(review: MagenticPlanReviewRequest) -> None:
    assert_type(AgentRequestInfoResponse.from_strings(["shorter"]), AgentRequestInfoResponse)
    assert_type(HandoffAgentUserRequest.create_response("order 7"), list[Message])
    assert_type(review.approve(), MagenticPlanReviewResponse)
