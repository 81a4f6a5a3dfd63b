"""Patterns of several agents, as ordinary workflows.

A builder of this room makes a `Workflow` like any other: it holds no state, and all that an
orchestration is at (conversations, turns, who speaks next, what a person is asked) is in the snapshots
of the checkpoint.
"""

from __future__ import annotations

from branchpoint.orchestrations._cleaning import clean_conversation_for_handoff, create_completion_message
from branchpoint.orchestrations._concurrent import ConcurrentBuilder
from branchpoint.orchestrations._handoff import HandoffBuilder
from branchpoint.orchestrations._handoff_agent import HandoffAgentExecutor
from branchpoint.orchestrations._handoff_values import (
    HandoffAgentUserRequest,
    HandoffConfiguration,
    HandoffSentEvent,
)
from branchpoint.orchestrations._review import AgentRequestInfoResponse
from branchpoint.orchestrations._sequential import SequentialBuilder
from branchpoint.orchestrations._termination import TerminationCondition

__all__ = [
    "AgentRequestInfoResponse",
    "ConcurrentBuilder",
    "HandoffAgentExecutor",
    "HandoffAgentUserRequest",
    "HandoffBuilder",
    "HandoffConfiguration",
    "HandoffSentEvent",
    "SequentialBuilder",
    "TerminationCondition",
    "clean_conversation_for_handoff",
    "create_completion_message",
]
