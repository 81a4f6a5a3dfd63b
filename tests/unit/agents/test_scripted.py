"""The scripted chat client says what belongs at this place of the conversation, and keeps no place itself."""

from __future__ import annotations

import subprocess
import sys

import pytest
from agent_framework import Content, Message, tool

from branchpoint.testing.agents import ScriptedChatClient, scripted_agent, tool_call


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_the_next_reply_is_read_off_the_conversation() -> None:
    agent = scripted_agent(["one", ["two", " halves"], "three"], name="speaker")
    first, second = agent.create_session(), agent.create_session()
    assert (await agent.run("hi", session=first)).text == "one"
    assert (await agent.run("hi", session=second)).text == "one"
    assert (await agent.run("hi", session=first)).messages[0].contents[1].text == " halves"
    others = [Message("user", ["hi"]), Message("assistant", ["I said this"], author_name="other")]
    assert (await agent.run(others)).text == "one", "what another agent said does not count"


async def test_a_tool_is_called_and_its_call_has_an_id_of_its_place() -> None:
    agent = scripted_agent([[tool_call("add", a=1, b=2), tool_call("add", a=3, b=4)], "done"], tools=[add])
    for _ in range(2):
        response = await agent.run("add")
        assert response.text == "done"
        calls = [one for message in response.messages for one in message.contents if one.call_id]
        assert [one.call_id for one in calls] == ["add-0-0", "add-0-1", "add-0-0", "add-0-1"]
        assert [one.result for one in calls[2:]] == ["3", "7"]


async def test_a_stream_comes_word_by_word_through_the_gate() -> None:
    passed: list[tuple[int, int]] = []

    async def gate(reply: int, piece: int) -> None:
        passed.append((reply, piece))

    agent = scripted_agent(["one two  three", Content.from_text("")], gate=gate)
    stream = agent.run("hi", stream=True)
    assert [update.text async for update in stream] == ["one", " two", " ", " three"]
    assert (await stream.get_final_response()).text == "one two  three"
    assert passed == [(0, 0), (0, 1), (0, 2), (0, 3)]
    await agent.run("hi")
    assert passed[4:] == [(0, 0)]


async def test_it_records_what_it_was_asked_raises_and_says_when_its_script_is_over() -> None:
    client = ScriptedChatClient([lambda messages: f"{len(messages)} messages", ValueError("no service")])
    said = [Message("user", ["hi"])]
    response = await client.get_response(said)
    assert response.text == "1 messages"
    said[0].contents.append(Content.from_text("later"))
    assert len(client.calls[0].messages[0].contents) == 1 and not client.calls[0].stream
    said += response.messages
    with pytest.raises(ValueError, match="no service"):
        await client.get_response(said)
    with pytest.raises(AssertionError, match="2 replies, and the conversation asks for number 2"):
        await client.get_response([*said, Message("assistant", ["more"])])


def test_the_kit_does_not_need_agent_framework() -> None:
    code = "import sys, branchpoint.testing; print('agent_framework' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"
