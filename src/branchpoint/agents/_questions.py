"""Requests of a workflow as contents an agent's caller understands, and what comes back as answers. Pure."""

from __future__ import annotations

import ast
import copy
import json
from collections.abc import Sequence
from typing import Any, Final

from agent_framework import Content, Message

from branchpoint.agents._answers import ANSWERED_BY, APPROVAL
from branchpoint.checkpoint import PendingRequest
from branchpoint.codec import convert, parse_type_expression, to_json
from branchpoint.errors import BranchpointError, InvalidCallError, UnknownRequestError
from branchpoint.events import WorkflowEvent

__all__ = ["REQUEST_INFO", "answers_in", "question"]

REQUEST_INFO: Final = "request_info"
"""The name of the function whose call is a question of the workflow."""

_ANSWERS: Final = frozenset(ANSWERED_BY.values())


def question(event: WorkflowEvent[Any]) -> Content:
    """Return the content that asks what a request asks.

    What an agent inside asks passes through as what it is; an approval goes under the id of the request,
    since two agents may ask under one id, and one agent may do so twice. Everything else is the call of a function.
    """
    request_id, data = event.request_id or "", event.data
    if _passes_through(data):
        return _under(data, request_id) if data.type == APPROVAL else data
    asked = Content.from_function_call(
        request_id,
        REQUEST_INFO,
        arguments={
            "request_id": request_id,
            "data": to_json(data),
            "response_schema": event.response_schema,
        },
        id=request_id,
    )
    asked.user_input_request = True
    return asked


def answers_in(messages: Sequence[Message], pending: Sequence[PendingRequest], where: str) -> dict[str, Any]:
    """Return the answers that messages hold, by request id; none, where they hold no answer at all.

    Results of calls whose calls stand beside them are a conversation, not answers. A question that stands
    beside its answer, as some callers repeat it, is no matter, unless an assistant went on after both: then
    they are a conversation, too.

    Args:
        messages: What an agent was given.
        pending: The requests that are open.
        where: Whose they are, for messages.

    Raises:
        UnknownRequestError: There is an answer to no open request; it names the id.
        InvalidCallError: A request is answered twice, an id means two requests, or something else came
            along with answers.
    """
    contents = [content for message in messages for content in message.contents]
    went_on = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=0)
    over = {one.call_id for message in messages[:went_on] for one in message.contents if one.type in _ANSWERS}
    told = {
        one.call_id for one in contents if _is_call(one) and (not _is_question(one) or one.call_id in over)
    }
    answers: dict[str, Any] = {}
    besides: list[str] = []
    for content in contents:
        if content.type not in _ANSWERS:
            if not _is_question(content):
                besides.append(content.type)
            continue
        request = _asked_by(content, pending, where)
        if request is None:
            if content.type != ANSWERED_BY[APPROVAL] and content.call_id in told:
                besides.append(content.type)
                continue
            raise _unknown(content, pending, where)
        if request.request_id in answers:
            raise InvalidCallError(
                f"{where} got two answers to {request.request_id!r} in one call. Nothing was accepted."
            )
        answers[request.request_id] = _answer(content, request)
    if answers and besides:
        raise InvalidCallError(
            f"{where} got answers to {list(answers)}, and {', '.join(sorted(set(besides)))} beside them, which would "
            "reach nobody. Nothing was accepted: give the answers alone, and the rest when the turn is over."
        )
    return answers


def _passes_through(data: Any) -> bool:
    return isinstance(data, Content) and data.type in ANSWERED_BY and bool(data.user_input_request)


def _is_call(content: Content) -> bool:
    return content.type in ANSWERED_BY and content.type != APPROVAL


def _is_question(content: Content) -> bool:
    return content.type in ANSWERED_BY and (
        bool(content.user_input_request) or content.type == APPROVAL or content.name == REQUEST_INFO
    )


def _under(approval: Content, request_id: str) -> Content:
    """An approval with another id; its call has the same one, which is how Agent Framework tells that it is its own."""
    renamed = copy.copy(approval)
    renamed.id = request_id
    if approval.function_call is not None:
        renamed.function_call = copy.copy(approval.function_call)
        renamed.function_call.id = request_id
    return renamed


def _key(content: Content) -> str | None:
    return content.id if content.type == ANSWERED_BY[APPROVAL] else content.call_id


def _asked_by(answer: Content, pending: Sequence[PendingRequest], where: str) -> PendingRequest | None:
    key = _key(answer)
    found = [request for request in pending if request.request_id == key]
    if not found and answer.type != ANSWERED_BY[APPROVAL]:
        found = [
            request
            for request in pending
            if _passes_through(asked := request.data)
            and ANSWERED_BY[asked.type] == answer.type
            and asked.call_id == key
        ]
    if len(found) > 1:
        raise InvalidCallError(
            f"{where} has several open requests about the call {key!r}: "
            f"{[request.request_id for request in found]}. Answer under one of these ids. Nothing was accepted."
        )
    return found[0] if found else None


def _unknown(answer: Content, pending: Sequence[PendingRequest], where: str) -> UnknownRequestError:
    known = [request.request_id for request in pending]
    return UnknownRequestError(
        f"{where} has no open request {_key(answer)!r}: {f'open are {known}' if known else 'nothing is pending'}. It "
        "was answered already, belongs to another session or branch, or never existed. Nothing of this call was "
        "accepted."
    )


def _answer(content: Content, request: PendingRequest) -> Any:
    """Return what the workflow is told."""
    asked = request.data
    if _passes_through(asked):
        return _as_asked(content, asked)
    if content.type == ANSWERED_BY[APPROVAL]:
        return content.approved
    result = content.result
    if not isinstance(result, str) or _fits(result, request.response_type):
        return result
    read = _read(result, is_empty=content.items == [])
    return (
        content if _fits(content, request.response_type) and not _fits(read, request.response_type) else read
    )


def _read(text: str, *, is_empty: bool) -> Any:
    """Return what Agent Framework wrote as text: a list as Python does, an empty one as nothing, the rest as JSON."""
    if is_empty:
        return []
    try:
        return json.loads(text)
    except ValueError:
        if not text.startswith("["):
            return text
    try:
        return ast.literal_eval(text)  # constants and containers alone
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text


def _as_asked(content: Content, asked: Content) -> Content:
    """Return an answer under the ids that the agent inside knows."""
    answer = copy.copy(content)
    if asked.type != APPROVAL:
        answer.call_id = asked.call_id
        return answer
    answer.id = asked.id
    if answer.function_call is not None and asked.function_call is not None:
        answer.function_call = copy.copy(answer.function_call)
        answer.function_call.id = asked.function_call.id
    return answer


def _fits(value: Any, expression: str) -> bool:
    try:
        convert(value, parse_type_expression(expression))
    except BranchpointError:
        return False  # also where its type is not registered: then it is no text
    return True
