"""Answers to what agents ask: whether one fits, and what the agent is told of all of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from agent_framework import Content, Message

from branchpoint.graph import RequestCancelled

__all__ = [
    "ANSWERED_BY",
    "APPROVAL",
    "CANCELLED_CALL",
    "as_content",
    "calls_of_results",
    "check_answer",
    "is_cancelled_call",
    "said_besides",
    "told",
]

CANCELLED_CALL = "cancelled_computer_call"
APPROVAL = "function_approval_request"
ANSWERED_BY = {
    APPROVAL: "function_approval_response",
    "function_call": "function_result",
    "computer_tool_call": "computer_tool_result",
}
"""What an agent asks, and the type of content that answers it."""


def check_answer(request: Content, answer: Content | RequestCancelled) -> None:
    """Refuse an answer that is for another question, or that is none.

    Raises:
        ValueError: It does not fit.
    """
    if isinstance(answer, RequestCancelled):
        return
    wanted = ANSWERED_BY.get(request.type)
    if wanted is None:
        return
    if answer.type != wanted:
        raise ValueError(f"a {request.type} is answered by a {wanted}, not by a {answer.type}")
    if request.type == APPROVAL:
        _check_approval(request, answer)
    elif answer.call_id != request.call_id:
        raise ValueError(
            f"it answers the call {answer.call_id!r}, and the question is of call {request.call_id!r}"
        )
    if request.type == "computer_tool_call":
        pending = {check["id"] for check in request.pending_safety_checks or ()}
        acknowledged = {check["id"] for check in answer.acknowledged_safety_checks or ()}
        if pending != acknowledged:
            raise ValueError(
                f"it acknowledges the safety checks {sorted(acknowledged)}, and pending are {sorted(pending)}"
            )


def _check_approval(request: Content, answer: Content) -> None:
    """Refuse an approval of anything but the very call that was asked about."""
    if answer.id != request.id:
        raise ValueError(f"it answers the approval request {answer.id!r}, and the question is {request.id!r}")
    asked, approved = request.function_call, answer.function_call
    if asked is None or approved is None:
        if asked is not approved:
            raise ValueError("it names no function call, or one that was not asked about")
        return
    if (asked.name, asked.call_id) != (approved.name, approved.call_id) or (
        asked.parse_arguments() != approved.parse_arguments()
    ):
        raise ValueError(
            f"it is about the call {approved.call_id!r} of {approved.name!r}, and the question is about the call "
            f"{asked.call_id!r} of {asked.name!r}, with its arguments as they were"
        )


def as_content(request: Content, answer: Content | RequestCancelled) -> Content:
    """Return what the agent is told: the answer, or that there will be none."""
    if not isinstance(answer, RequestCancelled):
        return answer
    if request.type == APPROVAL:
        return request.to_function_approval_response(approved=False)
    if request.type == "function_call" and request.call_id is not None:
        return Content.from_function_result(
            call_id=request.call_id,
            id=request.id,
            result="Error: Tool call was cancelled.",
            additional_properties={"cancelled": True},
        )
    if request.type == "computer_tool_call":
        return Content.from_error(
            message=f"Computer call {request.call_id} was cancelled without a result.",
            additional_properties={CANCELLED_CALL: True},
        )
    return Content.from_text("The request was cancelled.")


def is_cancelled_call(answer: Content) -> bool:
    """Say whether an answer means that a computer call has no result, after which no agent can go on."""
    return answer.type == "error" and bool(answer.additional_properties.get(CANCELLED_CALL))


def told(answers: Sequence[Content]) -> list[Message]:
    """Return answers as messages, in their order; what one role says in a row is one message."""
    messages: list[Message] = []
    for answer in answers:
        role = _role(answer)
        if messages and messages[-1].role == role:
            messages[-1].contents.append(answer)
        else:
            messages.append(Message(role, [answer]))
    return messages


def _role(answer: Content) -> str:
    if answer.type in ("function_result", "computer_tool_result"):
        return "tool"
    return "assistant" if answer.type == "error" else "user"


def calls_of_results(answers: Sequence[Message], conversation: Sequence[Message]) -> list[Message]:
    """Return the approved calls whose results are in a conversation without them, as said by who has the result.

    An agent that is a workflow asks for approval without the call beside it, and no model takes a
    result whose call it has not seen.

    Args:
        answers: What an agent was given, approvals among it.
        conversation: What was said before and after.
    """
    approved = [
        content.function_call
        for message in answers
        for content in message.contents
        if content.type == "function_approval_response" and content.function_call is not None
    ]
    if not approved:
        return []
    calls: list[str | None] = []
    lonely: dict[str | None, str | None] = {}
    for message in conversation:
        for content in message.contents:
            if content.type == "function_call":
                calls.append(content.call_id)
            elif content.type == "function_result" and content.call_id in calls:
                calls.remove(content.call_id)  # two agents may call under one id
            elif content.type == "function_result":
                lonely[content.call_id] = message.author_name
    return [
        Message("assistant", [call], author_name=lonely[call.call_id])
        for call in approved
        if call.call_id in lonely
    ]


def said_besides(messages: Sequence[Message]) -> list[Message]:
    """Return messages without approvals, which are between one agent and a person: a conversation for others."""
    kept: list[Message] = []
    for message in messages:
        contents = [
            content for content in message.contents if content.type not in (APPROVAL, ANSWERED_BY[APPROVAL])
        ]
        if len(contents) == len(message.contents):
            kept.append(message)
        elif contents:
            kept.append(
                Message(
                    message.role,
                    contents,
                    author_name=message.author_name,
                    message_id=message.message_id,
                    additional_properties=message.additional_properties,
                )
            )
    return kept
