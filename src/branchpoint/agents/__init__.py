"""Agents of Agent Framework in workflows: this is the lowest room that imports `agent_framework`.

Importing it registers messages, contents, responses and sessions with the codec, and joins the two
registries of types; a value of Agent Framework that is met, or one that is loaded, imports it by itself.
"""

from __future__ import annotations

from branchpoint.agents._carried import CarriedCheckpoint
from branchpoint.agents._executor import AgentExecutor
from branchpoint.agents._messages import AgentExecutorRequest, AgentExecutorResponse
from branchpoint.agents._sharing import AgentFrameworkRegistry
from branchpoint.agents._values import register_values
from branchpoint.agents._workflow_agent import WorkflowAgent
from branchpoint.checkpoint import Checkpoint, checkpoint_of, copied_checkpoint, mark_of, whole_of
from branchpoint.codec import join_registry, register_state_type

__all__ = ["AgentExecutor", "AgentExecutorRequest", "AgentExecutorResponse", "WorkflowAgent"]

_values = register_values()
register_state_type(
    Checkpoint,
    type_id="branchpoint.checkpoint",
    encoder=whole_of,
    decoder=checkpoint_of,
    copy=copied_checkpoint,
    fingerprint=mark_of,
)
register_state_type(
    CarriedCheckpoint,
    type_id="branchpoint.agent_checkpoint",
    encoder=CarriedCheckpoint.encode,
    decoder=CarriedCheckpoint.decode,
    copy=CarriedCheckpoint.__copy__,
    fingerprint=CarriedCheckpoint.mark,
)
join_registry(
    "agent_framework",
    AgentFrameworkRegistry(),
    [*_values, Checkpoint, CarriedCheckpoint, AgentExecutorRequest, AgentExecutorResponse],
)
