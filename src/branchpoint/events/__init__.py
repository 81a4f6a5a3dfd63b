"""The one vocabulary for streams, spans and the inspector."""

from branchpoint.events._event import (
    WorkflowErrorDetails,
    WorkflowEvent,
    WorkflowEventType,
    WorkflowRunState,
)

__all__ = ["WorkflowErrorDetails", "WorkflowEvent", "WorkflowEventType", "WorkflowRunState"]
