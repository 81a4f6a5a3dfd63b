"""The one vocabulary for streams, spans and the inspector."""

from branchpoint.events._event import (
    WorkflowErrorDetails,
    WorkflowEvent,
    WorkflowEventType,
    WorkflowRunState,
)
from branchpoint.events._instrument import (
    Instrument,
    InstrumentKind,
    add_instrument,
    instrumented,
    instruments,
    remove_instrument,
)

__all__ = [
    "Instrument",
    "InstrumentKind",
    "WorkflowErrorDetails",
    "WorkflowEvent",
    "WorkflowEventType",
    "WorkflowRunState",
    "add_instrument",
    "instrumented",
    "instruments",
    "remove_instrument",
]
