"""The values of Agent Framework that may be part of a state: messages, contents, responses, sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from agent_framework import AgentResponse, AgentResponseUpdate, AgentSession, Content, Message

from branchpoint.agents._fieldwise import RAW, Fieldwise
from branchpoint.agents._tokens import content_token, message_token, token_of
from branchpoint.codec import copy_value, register_state_type, registered_type, type_id_of

__all__ = ["KINDS", "register_values"]


def _text_of(exception: Any) -> Any:
    """An exception as text; the field holds text in this version, an exception in older ones."""
    if isinstance(exception, BaseException):
        return str(exception) or type(exception).__name__
    return exception


def _without_raw(annotations: Any) -> Any:
    """Annotations without what a provider's SDK returned."""
    if type(annotations) not in (list, tuple):
        return annotations
    return type(annotations)(
        {key: item for key, item in note.items() if key != RAW} if type(note) is dict else note
        for note in annotations
    )


def _written_format(response_format: Any) -> dict[str, Any]:
    """A response format is a JSON schema, or a class, which is kept by its type id."""
    if isinstance(response_format, type):
        return {"type": type_id_of(response_format)}
    return {"schema": response_format}


def _read_format(payload: Any) -> Any:
    if type(payload) is dict and len(payload) == 1:
        if "schema" in payload:
            return payload["schema"]
        if type(payload.get("type")) is str:
            return registered_type(payload["type"])
    raise ValueError("the response format is neither a schema nor a type id")


def _content(value: Any) -> Any:
    if not isinstance(value, Content):
        raise ValueError(f"a {type(value).__name__} stands where a Content belongs")
    return value


def _contents(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise ValueError(f"a {type(value).__name__} stands where a list of contents belongs")
    for item in value:
        _content(item)
    return value


def _messages(value: Any) -> Any:
    if type(value) is not list:
        raise ValueError(f"a {type(value).__name__} stands where a list of messages belongs")
    for item in value:
        if not isinstance(item, Message):
            raise ValueError(f"a {type(item).__name__} stands where a Message belongs")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a {type(value).__name__} stands where a text belongs")
    return value


def _dict(value: Any) -> Any:
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"a {type(value).__name__} stands where a dict belongs")
    return value


# What comes from outside as plain JSON has dicts where live values have contents and messages. They are
# read as Agent Framework writes them; what is stored never has them there.


def _read_content(value: Any) -> Any:
    return Content.from_dict(value) if type(value) is dict else _content(value)


def _read_contents(value: Any) -> Any:
    if type(value) is list and any(type(item) in (dict, str) for item in value):
        value = [Content.from_text(item) if type(item) is str else _read_content(item) for item in value]
    return _contents(value)


def _read_messages(value: Any) -> Any:
    if type(value) is list and any(type(item) is dict for item in value):
        value = [MESSAGE.decode(item) if type(item) is dict else item for item in value]
    return _messages(value)


def _copied_contents(contents: Any) -> Any:
    if type(contents) is not list:
        return copy_value(contents)
    copy = CONTENT.copy
    return [copy(item) if type(item) is Content else copy_value(item) for item in contents]


CONTENT: Final = Fieldwise(
    Content,
    Content("error"),
    required=("type",),
    converted={"exception": _text_of, "annotations": _without_raw},
    encoded={
        "type": _text,
        "function_call": _content,
        "screenshot": _content,
        "items": _contents,
        "additional_properties": _dict,
    },
    decoded={
        "type": _text,
        "function_call": _read_content,
        "screenshot": _read_content,
        "items": _read_contents,
        "additional_properties": _dict,
    },
)
MESSAGE: Final = Fieldwise(
    Message,
    Message("user"),
    required=("role", "contents"),
    encoded={"role": _text, "contents": _contents, "additional_properties": _dict},
    decoded={"role": _text, "contents": _read_contents, "additional_properties": _dict},
    copied={"contents": _copied_contents},
    constant={"type": Message("user").to_dict()["type"]},
)
RESPONSE: Final = Fieldwise(
    AgentResponse,
    AgentResponse(),
    required=("messages",),
    encoded={"messages": _messages, "response_format": _written_format, "additional_properties": _dict},
    decoded={
        "messages": _read_messages,
        "response_format": _read_format,
        "additional_properties": _dict,
    },
)
UPDATE: Final = Fieldwise(
    AgentResponseUpdate,
    AgentResponseUpdate(),
    required=("contents",),
    encoded={"contents": _contents},
    decoded={"contents": _read_contents},
)
SESSION: Final = Fieldwise(
    AgentSession,
    AgentSession(session_id="-"),
    required=("_session_id", "state"),
    encoded={"session_id": _text, "state": _dict},
    decoded={"session_id": _text, "state": _dict},
)

KINDS: Final[Mapping[str, Fieldwise[Any]]] = {
    "agent_framework.content": CONTENT,
    "agent_framework.message": MESSAGE,
    "agent_framework.agent_response": RESPONSE,
    "agent_framework.agent_response_update": UPDATE,
    "agent_framework.agent_session": SESSION,
}
"""Type id -> how its objects are kept."""

_SCHEMAS: Final[Mapping[str, dict[str, Any]]] = {
    "agent_framework.content": {
        "type": "object",
        "properties": {"type": {"type": "string"}},
        "required": ["type"],
    },
    "agent_framework.message": {
        "type": "object",
        "properties": {"role": {"type": "string"}, "contents": {"type": "array"}},
        "required": ["role", "contents"],
    },
}


def register_values() -> list[type[Any]]:
    """Register the values, and return their classes."""
    quick: dict[Any, Callable[[Any], Any]] = {
        CONTENT: content_token(CONTENT),
        MESSAGE: message_token(MESSAGE, CONTENT),
    }
    for type_id, kind in KINDS.items():
        cls: type[Any] = kind.cls
        register_state_type(
            cls,
            type_id=type_id,
            encoder=kind.encode,
            decoder=kind.decode,
            copy=kind.copy,
            fingerprint=quick.get(kind) or token_of(kind),
            json_schema=_SCHEMAS.get(type_id),
        )
    return [kind.cls for kind in KINDS.values()]
