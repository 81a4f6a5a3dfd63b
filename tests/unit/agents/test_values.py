"""The rules by which values of Agent Framework are kept, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import dataclass
from typing import Any

import pytest
from agent_framework import AgentResponse, AgentResponseUpdate, AgentSession, Content, Message
from pydantic import BaseModel

import branchpoint.agents  # noqa: F401 - registers the values
from branchpoint import (
    CorruptCheckpointError,
    UnknownVersionError,
    UnregisteredTypeError,
    UnsupportedValueError,
    register_state_type,
)
from branchpoint.codec import copy_value, decode, encode, from_json, isolated_registry, new_parts, to_json


def again(value: Any) -> Any:
    encoded, _ = encode(value, format="json")
    return decode(encoded.data, new_parts(encoded, ()), format="json")


def test_what_a_provider_returned_is_left_out_and_nothing_else() -> None:
    content = Content.from_text(
        "hi", annotations=[{"type": "citation", "title": "t", "raw_representation": object()}]
    )
    content.raw_representation = object()
    message = Message("user", [content], raw_representation=object())
    for kept in (again(message), copy_value(message)):
        assert kept.raw_representation is kept.contents[0].raw_representation is None
        assert kept.contents[0].annotations == [{"type": "citation", "title": "t"}]
        assert kept.text == "hi"


def test_an_exception_is_kept_as_its_text_which_to_dict_would_drop() -> None:
    result = Content.from_function_result(call_id="1", result="failed")
    result.exception = ValueError("no such order")  # type: ignore[assignment]  # so in older versions
    for kept in (again(result), copy_value(result)):
        assert kept.exception == "no such order"
    assert again(copy_value(result)) == again(result)
    result.exception = KeyError()  # type: ignore[assignment]
    assert again(result).exception == "KeyError"


def test_attributes_that_somebody_added_are_kept() -> None:
    message = Message("user", ["hi"])
    message.trace = ("a", 1)  # type: ignore[attr-defined]
    assert again(message).trace == ("a", 1)


def test_what_is_set_to_none_comes_back_as_none() -> None:
    content = Content.from_text("hi")
    content.additional_properties = None  # type: ignore[assignment]
    assert again(content).additional_properties is None
    assert again(Content.from_text("hi")).additional_properties == {}


class Verdict(BaseModel):
    good: bool


def test_a_response_keeps_its_value_and_by_what_it_is_parsed() -> None:
    said = AgentResponse(messages=[Message("assistant", ['{"good": true}'])], response_format=Verdict)
    with pytest.raises(UnregisteredTypeError, match="Verdict"):
        encode(said, format="json")
    with isolated_registry():
        register_state_type(Verdict, type_id="test.verdict")
        assert again(said).value == Verdict(good=True)  # parsed after it came back
        assert said.value == Verdict(good=True)  # parsed before
        assert again(said).value == Verdict(good=True)
    schema = AgentResponse(messages=said.messages, response_format={"type": "object"})
    assert again(schema).value == {"good": True}


@dataclass
class Unknown:
    number: int


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (Message("user", [Content("function_result", result=Unknown(1))]), "contents[0].result"),
        (AgentResponse(messages=[Message("user", additional_properties={"a": Unknown(1)})]), "messages[0]"),
    ],
)
def test_an_unregistered_value_in_it_is_refused_by_its_path(value: Any, where: str) -> None:
    with pytest.raises(UnregisteredTypeError, match="Unknown") as refused:
        encode(value, format="json", path="state")
    assert where in str(refused.value)


def test_a_subclass_is_refused_and_never_cut_down() -> None:
    class Loud(Message):
        pass

    with pytest.raises(UnregisteredTypeError, match="Loud"):
        encode(Loud("user", ["hi"]), format="json")


@pytest.mark.parametrize(
    "value",
    [
        Message(5, ["hi"]),  # type: ignore[arg-type]
        AgentResponseUpdate(contents=["hi"]),  # type: ignore[list-item]
        Content("function_approval_request", function_call={"a": 1}),  # type: ignore[arg-type]
    ],
    ids=["role", "contents", "call"],
)
def test_what_a_load_would_refuse_a_commit_refuses(value: Any) -> None:
    with pytest.raises(UnsupportedValueError, match="stands where"):
        encode(value, format="json")


@pytest.mark.parametrize(
    "payload",
    [
        b"[]",
        b'{"role":"user"}',
        b'{"role":1,"contents":[]}',
        b'{"role":"user","contents":{}}',
        b'{"role":"user","contents":[1]}',
        b'{"role":"user","contents":[],"__dict__":{"to_dict":"x"}}',
        b'{"role":"user","contents":[],"__dict__":{"raw_representation":"x"}}',
        b'{"role":"user","contents":[],"__dict__":[]}',
    ],
)
def test_other_shapes_are_damage(payload: bytes) -> None:
    data = b'{"$":"agent_framework.message","v":' + payload + b"}"
    with pytest.raises(CorruptCheckpointError):
        decode(data, {}, format="json")


def test_a_field_of_another_version_is_said_to_be_one() -> None:
    data = b'{"$":"agent_framework.message","v":{"role":"user","contents":[],"mood":"good"}}'
    with pytest.raises(UnknownVersionError, match="another version of agent-framework-core"):
        decode(data, {}, format="json")


def test_plain_json_from_outside_is_read_as_agent_framework_writes_it() -> None:
    call = Content.from_function_call(call_id="c", name="refund", arguments={"order": 7})
    answer = Content.from_function_approval_response(approved=True, id="c", function_call=call)
    assert from_json(answer.to_dict(), Content) == answer
    message = Message("user", ["hi", answer])
    read = from_json(message.to_dict(), Message)
    assert read.contents == message.contents and read.role == "user"
    assert from_json({"role": "user", "contents": ["hi"]}, Message).text == "hi"
    assert to_json(message)["role"] == "user"


def test_a_session_comes_back_with_its_state() -> None:
    session = AgentSession(session_id="s", service_session_id="svc")
    session.state = {"in_memory": {"messages": [Message("user", ["hi"])]}, "pair": (1, {2, 3})}
    read = again(session)
    assert (read.session_id, read.service_session_id) == ("s", "svc")
    assert read.state["in_memory"]["messages"][0].text == "hi" and read.state["pair"] == (1, {2, 3})


def _alone(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_values_are_known_where_nobody_imported_the_room() -> None:
    data = encode(Content.from_text("hi"), format="json")[0].data
    read = f"""
        import sys, threading, branchpoint
        from branchpoint.codec import decode, encode
        assert "agent_framework" not in sys.modules
        found = []
        work = lambda: found.append(decode({data!r}, {{}}, format="json"))
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert [content.text for content in found] == ["hi"] * 4
        print(encode(found[0], format="json")[0].data == {data!r})
    """
    assert _alone(read) == "True"
    written = f"""
        from agent_framework import Content
        import branchpoint
        from branchpoint.codec import encode
        print(encode(Content.from_text("hi"), format="json")[0].data == {data!r})
    """
    assert _alone(written) == "True"


def test_values_stay_known_where_the_room_was_first_met_in_an_isolated_registry() -> None:
    code = """
        from agent_framework import Content
        from branchpoint.codec import encode, isolated_registry
        with isolated_registry():
            before = encode(Content.from_text("hi"), format="json")[0].data
        print(encode(Content.from_text("hi"), format="json")[0].data == before)
    """
    assert _alone(code) == "True"
