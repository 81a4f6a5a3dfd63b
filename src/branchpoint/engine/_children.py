"""What a run knows of the child workflows inside: their executions, and what passes between them and the parent.

Pure, without await or clock. A call of a child is one message to the executor that runs it. The first
call has the *main* execution, which stays and takes the next message as its next turn. A call that comes
while another is not over has an execution of its own, which is gone when it is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from branchpoint.engine._admission import converted
from branchpoint.engine._share import Asked, Sent, Share, Yielded
from branchpoint.engine._state import IDLE, Delivery, RunState
from branchpoint.engine._transitions import accept_answers, accept_message
from branchpoint.errors import UnknownRequestError
from branchpoint.events import WorkflowEvent
from branchpoint.graph import NestingExecutor, SubWorkflowRequestMessage, SubWorkflowResponseMessage

__all__ = ["Accepted", "Children", "question"]

MAIN: Final = "0"


class Accepted(msgspec.Struct, frozen=True):
    """A message of the parent that an execution has taken, until its superstep is over.

    Attributes:
        execution: Which one.
        superstep: How many supersteps that had behind it.
    """

    execution: str
    superstep: int


class Children(msgspec.Struct):
    """The executions of the child of one executor.

    Attributes:
        executor: The executor, a definition.
        at: Where they stand inside the state of the run, ending with a dot.
        executions: Their states, by name.
        accepted: The messages taken in the superstep that the parent is in the middle of, in their order.
    """

    executor: NestingExecutor
    at: str
    executions: dict[str, RunState] = msgspec.field(default_factory=dict)
    accepted: list[Accepted] = msgspec.field(default_factory=list)

    @classmethod
    def of(cls, parent: RunState, executor_id: str) -> Children:
        """Return those of one executor of a parent, which may have none yet."""
        found = parent.children.get(executor_id)
        if found is None:
            at = f"{parent.at}executor_states.{executor_id}.executions."
            found = parent.children[executor_id] = cls(parent.graph.nesting[executor_id], at)
        return found

    @property
    def served(self) -> list[str]:
        """The executions that took a message in this superstep, the first one first."""
        return list(dict.fromkeys(one.execution for one in self.accepted))

    def export(self) -> dict[str, Any]:
        """Return what `executor_states` holds of them."""
        made: dict[str, Any] = {
            "executions": {name: state.export() for name, state in self.executions.items()}
        }
        if self.accepted:
            made["accepted"] = [[one.execution, one.superstep] for one in self.accepted]
        return made

    # From the parent to the executions.

    def accept(
        self, parent: RunState, deliveries: Sequence[Delivery]
    ) -> dict[str, list[tuple[str, list[str]]]]:
        """Take the messages of a superstep; those that were taken before it was interrupted are skipped.

        Returns:
            By execution, the joins that were dropped half filled, as `accept_message` says them.

        Raises:
            UnknownRequestError: An executor of the parent answers what no execution has asked.
            InvalidResponseError: Its answer is not of the declared type.
        """
        input_id = parent.input_id or ""
        dropped: dict[str, list[tuple[str, list[str]]]] = {}
        answered: dict[str, dict[str, Any]] = {}
        for delivery in deliveries[len(self.accepted) :]:
            reply = self._reply(delivery)
            if reply is None:
                name = self._free(parent)
                state = self.executions[name]
                self.accepted.append(Accepted(name, state.iteration))
                dropped[name] = accept_message(state, delivery.value, input_id)
            else:
                name, request_id, answer = reply
                self.accepted.append(Accepted(name, self.executions[name].iteration))
                answered.setdefault(name, {})[request_id] = answer
        for name, answers in answered.items():
            accept_answers(self.executions[name], answers, input_id)
        return dropped

    def _free(self, parent: RunState) -> str:
        main = self.executions.get(MAIN)
        if main is not None and main.status == IDLE:
            return MAIN
        number = 0
        while (name := str(number)) in self.executions:
            number += 1
        self.executions[name] = RunState(self.executor.child, parent.medium, at=f"{self.at}{name}.")
        return name

    def _reply(self, delivery: Delivery) -> tuple[str, str, Any] | None:
        """Return which execution a message answers, under which id and what; None for one that is a call."""
        if delivery.request_id is not None:
            return self._asking(delivery.request_id), delivery.request_id, delivery.value
        if type(delivery.value) is not SubWorkflowResponseMessage:
            return None
        request_id = str(delivery.value.source_event.request_id)
        child = self.executor.child
        start = child.executors[child.start_id]
        takes = SubWorkflowResponseMessage in start.input_types and start.id not in child.nesting
        if takes and not any(request_id in state.requests for state in self.executions.values()):
            return None
        name = self._asking(request_id)
        state = self.executions[name]
        record = state.requests[request_id].read(state.medium)
        return name, request_id, converted(child, request_id, record, delivery.value.data)

    def _asking(self, request_id: str) -> str:
        for name, state in self.executions.items():
            if request_id in state.requests:
                return name
        known = [key for state in self.executions.values() for key in state.requests]
        raise UnknownRequestError(
            f"Executor {self.executor.id!r} got an answer to request {request_id!r}, which no execution of its child "
            f"workflow has open: {f'open are {known}' if known else 'nothing is pending'}. It was answered already, "
            "or belongs to another child."
        )

    # From the executions to the parent.

    def hand_over(self, share: Share, parent: RunState, superstep: int) -> None:
        """Put into the share what the executions made in this superstep, and forget those that are over.

        Outputs that become messages wait until the call they belong to is over; what the caller gets, and
        requests, do not.
        """
        began: dict[str, int] = {}
        for one in self.accepted:
            began.setdefault(one.execution, one.superstep)
        for name, first in began.items():
            state = self.executions[name]
            over = state.status == IDLE
            for record in state.turn_outputs():
                intermediate = record.get("kind") == "intermediate"
                if intermediate or self.executor.allow_direct_output:
                    if record["superstep"] > first:
                        share.yielded.append(Yielded(record["output_id"], record["value"], intermediate))
                elif over:
                    share.sent.append(Sent(record["value"], None))
            for request_id, asked in self._asked_since(state, first):
                path = [self.executor.id, *asked["path"]]
                own = {"path": path, "superstep": superstep, "input_id": parent.input_id}
                share.asked.append(Asked(request_id, {**asked, **own}))
            if over and name != MAIN:
                del self.executions[name]
        still = {key for state in self.executions.values() for key in state.requests}
        for request_id, request in parent.requests.items():
            if request.read(parent.medium)["path"][:1] == [self.executor.id] and request_id not in still:
                share.withdrawn.append(request_id)
        self.accepted = []

    @staticmethod
    def _asked_since(state: RunState, superstep: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for request_id, request in state.requests.items():
            record = request.read(state.medium)
            if record["superstep"] > superstep:
                yield request_id, record


def question(executor_id: str, asked: Asked) -> SubWorkflowRequestMessage:
    """Return the message by which a request of a child is offered to executors of its parent."""
    record = asked.record
    event: WorkflowEvent = WorkflowEvent(
        "request_info",
        record["data"],
        executor_id=record["source_executor_id"],
        source_executor_id=record["source_executor_id"],
        request_id=asked.request_id,
        request_type=record["request_type"],
        response_type=record["response_type"],
        response_schema=record["response_schema"],
        path=tuple(record["path"]),
    )
    return SubWorkflowRequestMessage(event, executor_id)
