"""The contexts: a thin front that passes everything on to its port."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from branchpoint.errors import HandlerError
from branchpoint.graph import Port, SyncWorkflowContext, WorkflowContext


class RecordingPort:
    """A port that notes what it is told."""

    executor_id = "me"
    request_id = "r1"
    idempotency_key = "key"
    is_streaming = True

    def __init__(self, sources: tuple[str, ...] = ("a",), *, waits: bool = False) -> None:
        self.source_executor_ids = sources
        self.run_metadata = {"tenant": "t"}
        self.executor_state: dict[str, Any] = {}
        self.calls: list[tuple[Any, ...]] = []
        self._waits = waits

    def send(self, value: Any, target_id: str | None) -> None:
        self.calls.append(("send", value, target_id))

    def yield_output(self, value: Any) -> None:
        self.calls.append(("yield_output", value))

    def request(self, data: Any, response_type: Any, request_id: str | None) -> str:
        self.calls.append(("request", data, response_type, request_id))
        return request_id or "made"

    def emit(self, event: Any) -> Awaitable[None] | None:
        if not self._waits:
            self.calls.append(("emit", event))
            return None

        async def deliver() -> None:
            self.calls.append(("emit", event))

        return deliver()

    def get_state(self, key: str, default: Any, copy: bool) -> Any:
        self.calls.append(("get_state", key, default, copy))
        return "value"

    def set_state(self, key: str, value: Any) -> None:
        self.calls.append(("set_state", key, value))

    def delete_state(self, key: str) -> None:
        self.calls.append(("delete_state", key))

    def update_state(self, key: str, fn: Callable[[Any], Any]) -> Any:
        self.calls.append(("update_state", key))
        return fn(1)


EVENT: Any = object()


async def test_the_async_context_passes_on() -> None:
    port = RecordingPort()
    checked: Port = port
    ctx: WorkflowContext[str, int] = WorkflowContext(checked)
    await ctx.send_message("m")
    await ctx.send_message("m", "b")
    await ctx.send_message("m", target_id="b")
    await ctx.yield_output(1)
    assert await ctx.request_info("q", bool) == "made"
    assert await ctx.request_info("q", bool | None, request_id="mine") == "mine"
    await ctx.add_event(EVENT)
    assert port.calls == [
        ("send", "m", None),
        ("send", "m", "b"),
        ("send", "m", "b"),
        ("yield_output", 1),
        ("request", "q", bool, None),
        ("request", "q", bool | None, "mine"),
        ("emit", EVENT),
    ]


async def test_delivering_an_event_waits_for_a_port_that_waits() -> None:
    port = RecordingPort(waits=True)
    await WorkflowContext(port).add_event(EVENT)
    assert port.calls == [("emit", EVENT)]


def test_the_sync_context_has_plain_methods() -> None:
    port = RecordingPort()
    ctx: SyncWorkflowContext[str, int] = SyncWorkflowContext(port)
    ctx.send_message("m", target_id="b")
    ctx.yield_output(1)
    assert ctx.request_info("q", bool) == "made"
    ctx.add_event(EVENT)
    assert port.calls == [
        ("send", "m", "b"),
        ("yield_output", 1),
        ("request", "q", bool, None),
        ("emit", EVENT),
    ]


@pytest.mark.parametrize("make", [WorkflowContext, SyncWorkflowContext])
def test_both_read_and_write_state_without_waiting(make: Any) -> None:
    port = RecordingPort()
    ctx = make(port)
    assert ctx.get_state("k") == "value"
    assert ctx.get_state("k", 3, copy=False) == "value"
    ctx.set_state("k", [1])
    ctx.delete_state("k")
    assert ctx.update_state("k", lambda n: n + 1) == 2
    assert port.calls == [
        ("get_state", "k", None, True),
        ("get_state", "k", 3, False),
        ("set_state", "k", [1]),
        ("delete_state", "k"),
        ("update_state", "k"),
    ]


@pytest.mark.parametrize("make", [WorkflowContext, SyncWorkflowContext])
def test_both_say_where_a_message_came_from(make: Any) -> None:
    port = RecordingPort()
    ctx = make(port)
    assert (ctx.executor_id, ctx.request_id, ctx.idempotency_key) == ("me", "r1", "key")
    assert ctx.run_metadata == {"tenant": "t"} and ctx.is_streaming()
    assert ctx.executor_state is port.executor_state
    assert ctx.source_executor_ids == ["a"] and ctx.get_source_executor_id() == "a"


@pytest.mark.parametrize(
    ("sources", "text"),
    [((), "it came from the caller"), (("a", "b"), "it came from a, b")],
)
def test_one_sender_is_asked_for_only_where_there_is_one(sources: tuple[str, ...], text: str) -> None:
    ctx: WorkflowContext = WorkflowContext(RecordingPort(sources))
    with pytest.raises(HandlerError, match=f"Executor 'me' .*{text}"):
        ctx.get_source_executor_id()
