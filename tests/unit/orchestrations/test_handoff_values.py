"""What the user is asked with, and answers with."""

from __future__ import annotations

from typing import Any

import pytest
from agent_framework import AgentResponse, Message

from branchpoint.codec import decode, encode, new_parts
from branchpoint.orchestrations import (
    AgentRequestInfoResponse,
    HandoffAgentUserRequest,
    HandoffSentEvent,
)


@pytest.mark.parametrize("response", ["Hi.", Message("user", ["Hi."]), ["Hi."], [Message("user", ["Hi."])]])
def test_an_answer_is_made_of_texts_and_messages(response: Any) -> None:
    made = HandoffAgentUserRequest.create_response(response)
    assert [(message.role, message.text) for message in made] == [("user", "Hi.")]
    assert HandoffAgentUserRequest.terminate() == []


def test_a_review_approves_or_says_what_to_do() -> None:
    assert AgentRequestInfoResponse.approve().messages == []
    texts = AgentRequestInfoResponse.from_strings(["One.", "Two."]).messages
    assert [(message.role, message.text) for message in texts] == [("user", "One."), ("user", "Two.")]
    assert AgentRequestInfoResponse.from_messages(texts).messages == texts


@pytest.mark.parametrize(
    "value",
    [
        HandoffSentEvent("a", "b"),
        HandoffAgentUserRequest(AgentResponse(messages=[Message("assistant", ["Hi."])])),
        AgentRequestInfoResponse.from_strings(["More."]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_they_are_kept(value: Any) -> None:
    encoded, _ = encode(value, format="json")
    again = decode(encoded.data, new_parts(encoded, ()), format="json")
    assert type(again) is type(value)
    if isinstance(value, HandoffSentEvent):
        assert again == value
    elif isinstance(value, HandoffAgentUserRequest):
        assert again.agent_response.text == "Hi."
    else:
        assert [message.text for message in again.messages] == ["More."]
