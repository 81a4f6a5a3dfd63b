"""Where workflows meet agents: the one place of this room that imports rooms above it, by their fixed names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from branchpoint.codec import expect_registry

if TYPE_CHECKING:
    from types import ModuleType

    from branchpoint.agents import WorkflowAgent as WorkflowAgent  # noqa: PLC0414 - the rest of this room names it, too

__all__ = ["agents_room"]


def agents_room() -> ModuleType:
    """Import the room of agents, and with it Agent Framework.

    Raises:
        ModuleNotFoundError: Agent Framework is not installed.
    """
    import branchpoint.agents

    return branchpoint.agents


def _orchestrations_room() -> ModuleType:
    import branchpoint.orchestrations

    return branchpoint.orchestrations


# A message that is met, or one that is loaded, has the room imported that can keep it.
expect_registry(
    "agent_framework", ("agent_framework.", "branchpoint.agent", "branchpoint.checkpoint"), agents_room
)
# Who reads what an orchestration asks need not have built one.
expect_registry(
    "branchpoint.orchestrations",
    (
        "branchpoint.agent_request_info",
        "branchpoint.group_chat",
        "branchpoint.handoff",
        "branchpoint.magentic",
    ),
    _orchestrations_room,
)
