"""What of a conversation other agents may be told."""

from __future__ import annotations

from agent_framework import Content, Message

from branchpoint.orchestrations import clean_conversation_for_handoff, create_completion_message

PICTURE = Content.from_uri("https://example.com/rain.png", media_type="image/png")
CALL = Content.from_function_call(call_id="c1", name="look_up", arguments={})
RESULT = Content.from_function_result(call_id="c1", result="20 euros")


def test_of_agents_the_text_stays_and_of_users_also_what_they_give() -> None:
    conversation = [
        Message("user", [Content.from_text("Look."), PICTURE], additional_properties={"from": "ada"}),
        Message("assistant", [Content.from_text("I look."), CALL, PICTURE], author_name="clerk"),
        Message("tool", [RESULT]),
        Message("assistant", [Content.from_text("")]),
    ]
    before = [list(message.contents) for message in conversation]
    cleaned = clean_conversation_for_handoff(conversation)
    assert [(message.role, message.author_name) for message in cleaned] == [
        ("user", None),
        ("assistant", "clerk"),
    ]
    assert [[one.type for one in message.contents] for message in cleaned] == [["text", "uri"], ["text"]]
    assert cleaned[0].additional_properties == {"from": "ada"}
    assert [list(message.contents) for message in conversation] == before


def test_a_completion_tells_its_reason_or_what_it_is_to_say() -> None:
    told = create_completion_message(author_name="host", reason="ended")
    assert (told.role, told.author_name, told.text) == ("assistant", "host", "Conversation ended.")
    assert create_completion_message(text="Bye.", author_name="host").text == "Bye."
