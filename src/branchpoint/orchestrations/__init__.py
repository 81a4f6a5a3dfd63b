"""Patterns of several agents, as ordinary workflows.

A builder of this room makes a `Workflow` like any other: it holds no state, and all that an
orchestration is at (conversations, turns, who speaks next, what a person is asked) is in the snapshots
of the checkpoint.
"""

from __future__ import annotations

from branchpoint.orchestrations._cleaning import clean_conversation_for_handoff, create_completion_message
from branchpoint.orchestrations._concurrent import ConcurrentBuilder
from branchpoint.orchestrations._group_chat import GroupChatBuilder
from branchpoint.orchestrations._group_chat_agent import (
    AgentBasedGroupChatOrchestrator,
    AgentOrchestrationOutput,
)
from branchpoint.orchestrations._group_chat_base import BaseGroupChatOrchestrator
from branchpoint.orchestrations._group_chat_function import GroupChatOrchestrator, GroupChatSelectionFunction
from branchpoint.orchestrations._group_chat_messages import (
    GroupChatParticipantMessage,
    GroupChatRequestMessage,
    GroupChatRequestSentEvent,
    GroupChatResponseMessage,
    GroupChatResponseReceivedEvent,
    GroupChatState,
    MagenticResetSignal,
)
from branchpoint.orchestrations._handoff import HandoffBuilder
from branchpoint.orchestrations._handoff_agent import HandoffAgentExecutor
from branchpoint.orchestrations._handoff_values import (
    HandoffAgentUserRequest,
    HandoffConfiguration,
    HandoffSentEvent,
)
from branchpoint.orchestrations._magentic import MagenticBuilder
from branchpoint.orchestrations._magentic_manager import MagenticManagerBase
from branchpoint.orchestrations._magentic_orchestrator import MagenticAgentExecutor, MagenticOrchestrator
from branchpoint.orchestrations._magentic_standard import StandardMagenticManager
from branchpoint.orchestrations._magentic_types import (
    MAGENTIC_MANAGER_NAME,
    MagenticContext,
    MagenticOrchestratorEvent,
    MagenticOrchestratorEventType,
    MagenticPlanReviewRequest,
    MagenticPlanReviewResponse,
    MagenticProgressLedger,
    MagenticProgressLedgerItem,
    MagenticTaskLedger,
)
from branchpoint.orchestrations._registry import ParticipantRegistry
from branchpoint.orchestrations._review import AgentRequestInfoResponse
from branchpoint.orchestrations._sequential import SequentialBuilder
from branchpoint.orchestrations._termination import TerminationCondition

__all__ = [
    "MAGENTIC_MANAGER_NAME",
    "AgentBasedGroupChatOrchestrator",
    "AgentOrchestrationOutput",
    "AgentRequestInfoResponse",
    "BaseGroupChatOrchestrator",
    "ConcurrentBuilder",
    "GroupChatBuilder",
    "GroupChatOrchestrator",
    "GroupChatParticipantMessage",
    "GroupChatRequestMessage",
    "GroupChatRequestSentEvent",
    "GroupChatResponseMessage",
    "GroupChatResponseReceivedEvent",
    "GroupChatSelectionFunction",
    "GroupChatState",
    "HandoffAgentExecutor",
    "HandoffAgentUserRequest",
    "HandoffBuilder",
    "HandoffConfiguration",
    "HandoffSentEvent",
    "MagenticAgentExecutor",
    "MagenticBuilder",
    "MagenticContext",
    "MagenticManagerBase",
    "MagenticOrchestrator",
    "MagenticOrchestratorEvent",
    "MagenticOrchestratorEventType",
    "MagenticPlanReviewRequest",
    "MagenticPlanReviewResponse",
    "MagenticProgressLedger",
    "MagenticProgressLedgerItem",
    "MagenticResetSignal",
    "MagenticTaskLedger",
    "ParticipantRegistry",
    "SequentialBuilder",
    "StandardMagenticManager",
    "TerminationCondition",
    "clean_conversation_for_handoff",
    "create_completion_message",
]
