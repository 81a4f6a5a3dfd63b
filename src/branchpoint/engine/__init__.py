"""One ephemeral run: what is happening."""

from branchpoint.engine._channel import Channel
from branchpoint.engine._driver import Finished, Runner
from branchpoint.engine._notes import note
from branchpoint.engine._options import WorkflowInvocationKwargs, check_options
from branchpoint.engine._request import ABSENT, Absent, RunRequest
from branchpoint.engine._stopping import asked_to_end, ended, forget, stop
from branchpoint.engine._threads import call_in_thread

__all__ = [
    "ABSENT",
    "Absent",
    "Channel",
    "Finished",
    "RunRequest",
    "Runner",
    "WorkflowInvocationKwargs",
    "asked_to_end",
    "call_in_thread",
    "check_options",
    "ended",
    "forget",
    "note",
    "stop",
]
