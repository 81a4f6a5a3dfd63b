"""Events of a workflow as the updates of an agent's response. Pure."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from agent_framework import AgentResponse, AgentResponseUpdate, Content, Message

from branchpoint.agents._messages import AgentExecutorResponse
from branchpoint.agents._questions import question
from branchpoint.codec import to_json
from branchpoint.errors import EncodingError
from branchpoint.events import WorkflowEvent
from branchpoint.workflow import Workflow, WorkflowExecutor

__all__ = ["Teller", "is_heard"]


class Teller:
    """Tells what one call comes to, in order and each thing once.

    Outputs and requests are told. Pieces of an output are told to a reader of a stream as they come, where they
    are updates of an agent or texts, and of the whole then only what they did not say. Everything else stays
    with the workflow.

    Args:
        is_heard: Says whether outputs of a child, by the path to it, are outputs of the whole.
        is_live: Whether somebody reads a stream.

    Attributes:
        told: The updates so far.
    """

    def __init__(self, is_heard: Callable[[tuple[str, ...]], bool], is_live: bool) -> None:
        self._is_heard = is_heard
        self._is_live = is_live
        self.told: list[AgentResponseUpdate] = []
        self._said: dict[str | None, list[str]] = {}  # what pieces said, by the output that they are of
        self._updated: set[str | None] = set()  # outputs of which pieces were updates
        self._wholes: set[str | None] = set()
        self._through: set[tuple[tuple[str, ...], str | None]] = set()  # whose superstep is complete

    def hear(self, events: Iterable[WorkflowEvent[Any]]) -> list[AgentResponseUpdate]:
        """Return the updates that events come to, apart from what was told before."""
        updates = [update for event in events for update in self._updates(event)]
        self.told += updates
        return updates

    def response(self, first: int | None = None) -> AgentResponse[Any]:
        """Return what the updates so far come to, or so many of them."""
        return AgentResponse.from_updates(self.told[:first])

    def _updates(self, event: WorkflowEvent[Any]) -> Iterator[AgentResponseUpdate]:
        if event.type == "request_info":
            if event.request_id not in self._wholes:
                self._wholes.add(event.request_id)
                yield _update(event, [question(event)], event.request_id)
        elif event.type == "executor_invoked":
            self._through.discard((event.path, event.executor_id))
        elif event.type == "executor_completed":
            self._through.add((event.path, event.executor_id))
        elif event.type == "output" and self._is_heard(event.path):
            # An output is told after its superstep, a piece of it before.
            if event.durable or (event.path, event.executor_id) in self._through:
                if event.output_id not in self._wholes:
                    self._wholes.add(event.output_id)
                    yield from self._rest(event)
            elif self._is_live:
                yield from self._piece(event)

    def _piece(self, event: WorkflowEvent[Any]) -> Iterator[AgentResponseUpdate]:
        """Tell a piece; one that is neither an update nor a text waits for the whole."""
        piece = event.data
        if isinstance(piece, AgentResponseUpdate):
            self._updated.add(event.output_id)
            self._say(event, piece.text)
            yield _piece(event)
        elif isinstance(piece, str) and piece:
            self._say(event, piece)
            yield _update(event, [Content.from_text(piece)], event.output_id, raw=piece)

    def _say(self, event: WorkflowEvent[Any], text: str) -> None:
        self._said.setdefault(event.output_id, []).append(text)

    def _rest(self, event: WorkflowEvent[Any]) -> Iterator[AgentResponseUpdate]:
        """Tell of an output what its pieces did not say: all of it, where they said something else."""
        said, data = "".join(self._said.get(event.output_id, ())), event.data
        if said and isinstance(data, str) and data.startswith(said):
            if len(data) > len(said):
                yield _update(event, [Content.from_text(data[len(said) :])], event.output_id, raw=data)
            return
        whole = list(_whole(event))
        if event.output_id in self._said:
            # Updates and their response may differ in white space, and updates of others may come before.
            before, text = ("".join(one.split()) for one in (said, "".join(update.text for update in whole)))
            if before.endswith(text) if event.output_id in self._updated else before == text:
                return
        yield from whole


def is_heard(workflow: Any, path: tuple[str, ...]) -> bool:
    """Say whether outputs of a child of a workflow are outputs of the workflow."""
    for executor_id in path:
        if not isinstance(workflow, Workflow) or not workflow.is_terminal_executor(executor_id):
            return False
        (nesting,) = (one for one in workflow.get_executors_list() if one.id == executor_id)
        if not isinstance(nesting, WorkflowExecutor) or not nesting.allow_direct_output:
            return False
        workflow = nesting.workflow
    return True


def _piece(event: WorkflowEvent[Any]) -> AgentResponseUpdate:
    update: AgentResponseUpdate = copy.copy(event.data)
    update.author_name = update.author_name or event.executor_id
    update.message_id = update.message_id or event.output_id
    update.response_id = event.input_id
    return update


def _whole(event: WorkflowEvent[Any]) -> Iterator[AgentResponseUpdate]:
    data = event.data
    if isinstance(data, AgentExecutorResponse):
        data = data.agent_response
    if isinstance(data, AgentResponse):
        yield from _response(event, data)
        return
    messages = [data] if isinstance(data, Message) else data
    if isinstance(messages, list) and messages and all(isinstance(one, Message) for one in messages):
        for number, message in enumerate(messages):
            yield _message(event, message, number)
        return
    contents = _contents(data)
    if contents:
        yield _update(event, contents, event.output_id, raw=data)


def _response(event: WorkflowEvent[Any], response: AgentResponse[Any]) -> Iterator[AgentResponseUpdate]:
    updates = [_message(event, message, number) for number, message in enumerate(response.messages)]
    if not updates:
        return
    last = updates[-1]
    last.agent_id, last.finish_reason = response.agent_id, response.finish_reason
    last.created_at = response.created_at
    last.additional_properties = dict(response.additional_properties)
    if response.usage_details is not None:
        last.contents.append(Content.from_usage(response.usage_details))
    yield from updates


def _message(event: WorkflowEvent[Any], message: Message, number: int) -> AgentResponseUpdate:
    update = _update(
        event, list(message.contents), message.message_id or f"{event.output_id}/{number}", raw=message
    )
    update.role = message.role
    update.author_name = message.author_name or event.executor_id
    return update


def _update(
    event: WorkflowEvent[Any], contents: list[Content], message_id: str | None, raw: Any = None
) -> AgentResponseUpdate:
    return AgentResponseUpdate(
        contents=contents,
        role="assistant",
        author_name=event.executor_id,
        response_id=event.input_id,
        message_id=message_id,
        raw_representation=raw,
    )


def _contents(data: Any) -> list[Content]:
    """Return an output as contents: texts as they are, other values as JSON."""
    if isinstance(data, list) and data and all(isinstance(one, str | Content) for one in data):
        return [content for one in data for content in _contents(one)]
    if isinstance(data, Content):
        return [data]
    if isinstance(data, str):
        return [Content.from_text(data)]
    try:
        return [Content.from_text(json.dumps(to_json(data), ensure_ascii=False))]
    except EncodingError:
        return [Content.from_text(str(data))]  # an output of a run that keeps nothing may be anything
