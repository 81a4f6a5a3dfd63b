"""The one vocabulary of a run: what streams, spans and the inspector all speak of."""

from __future__ import annotations

from enum import Enum
from typing import Any, Generic, Literal

import msgspec
from typing_extensions import TypeVar

__all__ = ["WorkflowErrorDetails", "WorkflowEvent", "WorkflowEventType", "WorkflowRunState"]

DataT = TypeVar("DataT", default=Any)

WorkflowEventType = Literal[
    "started",
    "status",
    "failed",
    "output",
    "intermediate",
    "data",
    "request_info",
    "warning",
    "error",
    "superstep_started",
    "superstep_completed",
    "executor_invoked",
    "executor_completed",
    "executor_failed",
    "message_ended",
    "incomplete_join",
    "group_chat",
    "magentic_orchestrator",
    "handoff_sent",
]


class WorkflowRunState(str, Enum):
    """What state a run is in.

    Only the first three are ever stored; `FAILED` and `CANCELLED` describe one call.
    """

    IN_PROGRESS = "in_progress"
    IDLE_WITH_PENDING_REQUESTS = "idle_with_pending_requests"
    IDLE = "idle"
    STARTED = "started"
    FAILED = "failed"
    CANCELLED = "cancelled"


class WorkflowErrorDetails(msgspec.Struct, frozen=True):
    """What went wrong, in a form that can be shown or sent."""

    error_type: str
    message: str
    executor_id: str | None = None

    @classmethod
    def from_exception(cls, error: BaseException, *, executor_id: str | None = None) -> WorkflowErrorDetails:
        """Describe `error`; holds its type's name and text, never the object itself."""
        try:
            text = str(error)
        except Exception:
            text = "(its text cannot be made)"
        return cls(type(error).__name__, text, executor_id)


class WorkflowEvent(msgspec.Struct, Generic[DataT], frozen=True, repr_omit_defaults=True):
    """Something that happened in a run.

    An event that announces something as complete, as output or as a request is *durable*: it is
    delivered after the commit that made it so. Everything else is delivered at once and has
    `durable` false and no `event_id`. In a run without a checkpoint nothing is durable.

    Attributes:
        type: What happened; `data`, `executor_id` and the other fields are set as the type needs.
        data: The payload, the reader's own copy.
        executor_id: Whose event it is.
        request_id: The id to answer under, for `request_info`.
        request_type: The name of the type of a request's data.
        response_type: The declared type of the answer, as an expression over registered type ids.
        response_schema: The JSON schema of the answer, where one can be made.
        state: The run's state, for `status`.
        iteration: The number of the superstep, from 1, for `superstep_started` and `superstep_completed`.
        details: What failed, for `failed` and `executor_failed`.
        durable: Whether a commit made this so before it was delivered.
        event_id: `"<snapshot_id>/<n>"` for durable events.
        input_id: The input the run works on.
        superstep: How many supersteps of this execution were complete.
        path: Executor ids from the outermost workflow to the child this came from.
        output_id: Shared by an output and its increments; the same after re-execution.
    """

    type: WorkflowEventType
    data: DataT = None  # type: ignore[assignment]
    executor_id: str | None = None
    request_id: str | None = None
    source_executor_id: str | None = None
    request_type: str | None = None
    response_type: str | None = None
    response_schema: Any = None
    state: WorkflowRunState | None = None
    details: WorkflowErrorDetails | None = None
    iteration: int | None = None
    durable: bool = False
    event_id: str | None = None
    checkpoint_id: str | None = None
    snapshot_id: str | None = None
    input_id: str | None = None
    superstep: int | None = None
    path: tuple[str, ...] = ()
    output_id: str | None = None
