"""What a finished call gives back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from branchpoint.checkpoint import request_event
from branchpoint.codec import copy_value
from branchpoint.engine import Finished
from branchpoint.events import WorkflowEvent, WorkflowRunState

__all__ = ["WorkflowRunResult"]


class WorkflowRunResult(list[WorkflowEvent[Any]]):
    """The events of one call, with the outputs of its turn and the requests that are open.

    As a list it holds the events of this call in the order a stream would have given them; status
    events are left out unless `include_status_events` was given. The outputs are those of the whole
    turn: a turn that was interrupted or paused, and then went on in another call or another process,
    is told whole.
    """

    def __init__(
        self, events: Iterable[WorkflowEvent[Any]], finished: Finished, *, include_status_events: bool = False
    ) -> None:
        self._told = list(events)
        super().__init__(
            self._told if include_status_events else [event for event in self._told if event.type != "status"]
        )
        self._finished = finished

    def __repr__(self) -> str:
        asked = [request.request_id for request in self._finished.requests]
        waits = f", waits for {asked}" if asked else ""
        return (
            f"<WorkflowRunResult {self._finished.status.value}, outputs={self.get_outputs()!r}{waits}, "
            f"{len(self)} events>"
        )

    @property
    def input_id(self) -> str | None:
        """Id of the last accepted input."""
        return self._finished.input_id

    def get_outputs(self) -> list[Any]:
        """Return what the turn yielded as output, in order; fresh values at each call."""
        return self._values(None)

    def get_intermediate_outputs(self) -> list[Any]:
        """Return what the turn yielded as intermediate output, in order; fresh values at each call."""
        return self._values("intermediate")

    def _values(self, kind: str | None) -> list[Any]:
        return [
            copy_value(record["value"]) for record in self._finished.outputs if record.get("kind") == kind
        ]

    def get_request_info_events(self) -> list[WorkflowEvent[Any]]:
        """Return one event per open request, with the id to answer under.

        Answer with `run(responses={event.request_id: value}, checkpoint=...)`, here or in any process.
        """
        told = {event.request_id: event for event in self if event.type == "request_info"}
        return [
            told.get(request.request_id)
            or msgspec.structs.replace(
                request_event(request), data=copy_value(request.data), input_id=self._finished.input_id
            )
            for request in self._finished.requests
        ]

    def get_final_state(self) -> WorkflowRunState:
        """Return the status the call ended in: idle, paused on requests, or in progress."""
        return self._finished.status

    def status_timeline(self) -> list[WorkflowEvent[Any]]:
        """Return the status events of this call."""
        return [event for event in self._told if event.type == "status"]
