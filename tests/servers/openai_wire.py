"""How the two APIs of OpenAI put a conversation, an answer and the pieces of a stream. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Api", "Call", "ChatCompletions", "Reply", "Responses"]


@dataclass(frozen=True)
class Call:
    """A call of a tool that a model makes."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


Reply = str | Call | Sequence[str | Call]
"""What a model says: a text, calls, or several of either."""


class Api(Protocol):
    """One of the two."""

    def items(self, body: dict[str, Any]) -> list[Any]:
        """What a request says, item by item."""

    def said(self, item: Any) -> tuple[str, str]:
        """The role and the text of an item."""

    def whole(self, name: str, model: str, reply: Reply) -> dict[str, Any]:
        """An answer that is not streamed."""

    def pieces(self, name: str, model: str, reply: Reply) -> list[str]:
        """The events of one that is."""


def _parts(reply: Reply) -> list[str | Call]:
    return [reply] if isinstance(reply, str | Call) else list(reply)


def _words(text: str) -> list[str]:
    return [word if at == 0 else f" {word}" for at, word in enumerate(text.split(" "))]


class ChatCompletions:
    """`/v1/chat/completions`."""

    def items(self, body: dict[str, Any]) -> list[Any]:
        return list(body["messages"])

    def said(self, item: Any) -> tuple[str, str]:
        content = item.get("content") or ""
        text = content if isinstance(content, str) else "".join(part["text"] for part in content)
        calls = [
            f"{one['function']['name']}{one['function']['arguments']}" for one in item.get("tool_calls", ())
        ]
        return item["role"], " ".join(filter(None, [text, *calls]))

    def whole(self, name: str, model: str, reply: Reply) -> dict[str, Any]:
        texts = [part for part in _parts(reply) if isinstance(part, str)]
        message = {"role": "assistant", "content": " ".join(texts) or None}
        calls = self._calls(name, reply)
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        return self._about(name, model, "chat.completion") | {"choices": [choice]}

    def pieces(self, name: str, model: str, reply: Reply) -> list[str]:
        about = self._about(name, model, "chat.completion.chunk")
        calls = self._calls(name, reply)
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [
            {"content": word} for part in _parts(reply) if isinstance(part, str) for word in _words(part)
        ]
        for call in calls:  # the arguments come in two halves, as they may
            text = call["function"]["arguments"]
            first = call | {"function": call["function"] | {"arguments": text[:3]}}
            deltas += [{"tool_calls": [first]}]
            deltas += [{"tool_calls": [{"index": call["index"], "function": {"arguments": text[3:]}}]}]
        ends = [(delta, None) for delta in deltas] + [({}, "tool_calls" if calls else "stop")]
        chunks = [
            about | {"choices": [{"index": 0, "delta": delta, "finish_reason": end}]} for delta, end in ends
        ]
        return [*(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks), "data: [DONE]\n\n"]

    def _about(self, name: str, model: str, kind: str) -> dict[str, Any]:
        return {"id": name, "object": kind, "created": 1, "model": model}

    def _calls(self, name: str, reply: Reply) -> list[dict[str, Any]]:
        calls = [part for part in _parts(reply) if isinstance(part, Call)]
        return [
            {
                "index": at,
                "id": f"call_{name}_{at}",
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for at, call in enumerate(calls)
        ]


class Responses:
    """`/v1/responses`."""

    def items(self, body: dict[str, Any]) -> list[Any]:
        given = body["input"]
        return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)

    def said(self, item: Any) -> tuple[str, str]:
        match item.get("type", "message"):
            case "function_call":
                return "assistant", f"{item['name']}{item['arguments']}"
            case "function_call_output":
                return "tool", str(item["output"])
            case _:
                content = item["content"]
                text = content if isinstance(content, str) else "".join(part["text"] for part in content)
                return item["role"], text

    def output(self, name: str, reply: Reply) -> list[dict[str, Any]]:
        """What a response holds."""
        return [self._item(f"{name}_{at}", part, "completed") for at, part in enumerate(_parts(reply))]

    def whole(self, name: str, model: str, reply: Reply) -> dict[str, Any]:
        return self._about(name, model, "completed") | {"output": self.output(name, reply)}

    def pieces(self, name: str, model: str, reply: Reply) -> list[str]:
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": self._about(name, model, "in_progress")}
        ]
        for at, part in enumerate(_parts(reply)):
            item = self._item(f"{name}_{at}", part, "in_progress")
            where = {"output_index": at, "item_id": item["id"]}
            if isinstance(part, str):
                begun: dict[str, Any] = item | {"content": []}
                pieces, kind = _words(part), "response.output_text.delta"
                where |= {"content_index": 0, "logprobs": []}
            else:
                begun = item | {"arguments": ""}
                pieces, kind = (
                    [item["arguments"][:3], item["arguments"][3:]],
                    "response.function_call_arguments.delta",
                )
            events.append({"type": "response.output_item.added", "output_index": at, "item": begun})
            events += [{"type": kind, "delta": piece} | where for piece in pieces]
            done = item | {"status": "completed"}
            events.append({"type": "response.output_item.done", "output_index": at, "item": done})
        events.append({"type": "response.completed", "response": self.whole(name, model, reply)})
        return [
            f"event: {event['type']}\ndata: {json.dumps(event | {'sequence_number': number})}\n\n"
            for number, event in enumerate(events)
        ]

    def _about(self, name: str, model: str, status: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "response",
            "created_at": 1,
            "model": model,
            "status": status,
            "output": [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }

    def _item(self, name: str, part: str | Call, status: str) -> dict[str, Any]:
        if isinstance(part, str):
            content = [{"type": "output_text", "text": part, "annotations": []}]
            return {
                "type": "message",
                "id": f"msg_{name}",
                "role": "assistant",
                "status": status,
                "content": content,
            }
        return {
            "type": "function_call",
            "id": f"fc_{name}",
            "call_id": f"call_{name}",
            "name": part.name,
            "arguments": json.dumps(part.arguments),
            "status": status,
        }
