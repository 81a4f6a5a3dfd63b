"""Executors that run a workflow inside, and the messages by which a parent answers for the outside world.

Such an executor is a definition and nothing else: the engine runs the child, and what a child is at is
part of the parent's state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from branchpoint.codec import convert, copy_value, parse_type_expression, register_state_type
from branchpoint.errors import DefinitionError, EncodingError, InvalidResponseError, UnregisteredTypeError
from branchpoint.events import WorkflowErrorDetails, WorkflowEvent, WorkflowRunState
from branchpoint.graph._blueprint import blueprint
from branchpoint.graph._executor import Executor
from branchpoint.graph._specs import HandlerSpec, ResponseSpec
from branchpoint.graph._typing import alternatives

if TYPE_CHECKING:
    from branchpoint.graph._graph import Graph

__all__ = ["NestingExecutor", "SubWorkflowRequestMessage", "SubWorkflowResponseMessage", "interceptors"]


@dataclass
class SubWorkflowResponseMessage:
    """The answer of a parent's executor to a question from inside a child workflow.

    Send it to the executor that runs the child.

    Attributes:
        data: The answer, of the type that the question declares.
        source_event: The question, as it stands in `SubWorkflowRequestMessage`.
    """

    data: Any
    source_event: WorkflowEvent


@dataclass
class SubWorkflowRequestMessage:
    """A question from inside a child workflow, for an executor of the parent that takes this type.

    Attributes:
        source_event: The question: `data`, `request_id`, `source_executor_id`, `response_type` and more.
        executor_id: The executor that runs the child; send the answer there.
    """

    source_event: WorkflowEvent
    executor_id: str

    def create_response(self, data: Any) -> SubWorkflowResponseMessage:
        """Return the message that answers with `data`.

        Raises:
            InvalidResponseError: It is not of the type that the question declares. Of a type that is not
                registered, the child finds this out itself.
        """
        event = self.source_event
        try:
            declared = parse_type_expression(str(event.response_type))
        except UnregisteredTypeError:
            return SubWorkflowResponseMessage(data, event)
        try:
            answer = convert(data, declared, path=f"responses.{event.request_id}")
        except EncodingError as error:
            raise InvalidResponseError(
                f"The answer to request {event.request_id!r} of executor {event.source_executor_id!r} must be "
                f"{event.response_type}, got {type(data).__name__}: {error}"
            ) from error
        return SubWorkflowResponseMessage(answer, event)


class NestingExecutor(Executor):
    """An executor that runs the graph of a workflow inside, as far as a graph and a run look at it.

    Attributes:
        workflow: What has the child's `graph`.
        allow_direct_output: Outputs of the child are outputs of the parent, not messages.
        propagate_request: Requests of the child are never offered to executors of the parent.
    """

    def __init__(
        self,
        workflow: Any,
        id: str,
        allow_direct_output: bool = False,
        propagate_request: bool = False,
        **more: Any,
    ) -> None:
        plan = blueprint(self.__class__)
        if plan.handlers or plan.responses or plan.fields:
            raise DefinitionError(
                f"{self.__class__.__qualname__} declares handlers or state of its own, which a run would never "
                "reach: an executor that runs a workflow passes everything on to it. Put them into an executor "
                "of their own, before or behind this one."
            )
        super().__init__(id, defer_discovery=True, **more)
        self.workflow = workflow
        self.allow_direct_output = allow_direct_output
        self.propagate_request = propagate_request
        self._add_handlers(_handlers(self))

    @property
    def child(self) -> Graph:
        """The graph of the child."""
        graph: Graph = self.workflow.graph
        return graph


def _handlers(executor: NestingExecutor) -> Iterable[HandlerSpec]:
    """Take what the child takes, and answers; send what the child yields, and questions."""
    child = executor.child
    yielded = _yielded(child)
    sent: tuple[Any, ...] | None = () if executor.allow_direct_output else yielded
    if sent is not None and not executor.propagate_request and _may_ask(child):
        sent = (*sent, SubWorkflowRequestMessage)
    taken = dict.fromkeys(child.executors[child.start_id].input_types)
    for tp in (*taken, *([] if SubWorkflowResponseMessage in taken else [SubWorkflowResponseMessage])):
        yield HandlerSpec(
            "the child workflow", tp, sent, yielded if executor.allow_direct_output else (), True, _no_handler
        )


def _no_handler(*args: Any) -> NoReturn:
    raise AssertionError("a run enters the child workflow, not a handler")


def _yielded(graph: Graph) -> tuple[Any, ...] | None:
    """Return the types a workflow yields; None where a handler does not say."""
    found: dict[Any, None] = {}
    for executor in graph.executors.values():
        if graph.classify_output(executor.id) == "output":
            specs: list[HandlerSpec | ResponseSpec] = [*executor.handlers, *executor.response_handlers]
            for spec in specs:
                if spec.workflow_output_types is None:
                    return None
                found.update(dict.fromkeys(spec.workflow_output_types))
    return tuple(found)


def _may_ask(graph: Graph) -> bool:
    return any(
        executor.response_handlers or (isinstance(executor, NestingExecutor) and _may_ask(executor.child))
        for executor in graph.executors.values()
    )


def interceptors(graph: Graph, executor_id: str) -> tuple[str, ...]:
    """Return the executors behind this one that declare to take the questions of its child.

    One that takes anything does not count: it would get a question where it expects a result.
    """
    executor = graph.executors[executor_id]
    if not isinstance(executor, NestingExecutor) or executor.propagate_request:
        return ()
    behind = (
        target
        for group in graph.groups_from(executor_id)
        if group.kind != "fan_in"
        for target in group.target_ids
    )
    return tuple(
        target
        for target in dict.fromkeys(behind)
        if any(SubWorkflowRequestMessage in alternatives(tp) for tp in graph.executors[target].input_types)
    )


# An event is part of a state when it is part of such a message, or somebody keeps it.

_DEFAULTS = {
    field.name: field.default for field in msgspec.structs.fields(WorkflowEvent) if not field.required
}


def _fields_of(event: WorkflowEvent) -> dict[str, Any]:
    fields: dict[str, Any] = {"type": event.type}
    for name, default in _DEFAULTS.items():
        value = getattr(event, name)
        if value is not default and not (type(value) is type(default) and value == default):
            fields[name] = value
    if event.state is not None:
        fields["state"] = event.state.value
    if event.details is not None:
        fields["details"] = msgspec.structs.asdict(event.details)
    return fields


def _event_of(fields: Any) -> WorkflowEvent:
    given = dict(fields)
    if "state" in given:
        given["state"] = WorkflowRunState(given["state"])
    if "details" in given:
        given["details"] = WorkflowErrorDetails(**given["details"])
    event: WorkflowEvent = WorkflowEvent(**given)
    if _fields_of(event).keys() != fields.keys():
        raise ValueError("a field of the event has the value that it has by default")
    return event


def _copied(event: WorkflowEvent) -> WorkflowEvent:
    return msgspec.structs.replace(
        event, data=copy_value(event.data), response_schema=copy_value(event.response_schema)
    )


register_state_type(
    WorkflowEvent, type_id="branchpoint.event", encoder=_fields_of, decoder=_event_of, copy=_copied
)
register_state_type(SubWorkflowRequestMessage, type_id="branchpoint.child_request")
register_state_type(SubWorkflowResponseMessage, type_id="branchpoint.child_response")
