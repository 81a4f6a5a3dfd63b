"""Executors that run a workflow inside: what they take and send, and the messages they send for questions."""

from __future__ import annotations

from typing import Any

import pytest

from branchpoint import (
    CorruptCheckpointError,
    InvalidResponseError,
    SubWorkflowRequestMessage,
    SubWorkflowResponseMessage,
    WorkflowContext,
    WorkflowErrorDetails,
    WorkflowEvent,
    WorkflowRunState,
    handler,
    response_handler,
)
from branchpoint.codec import copy_value, decode, encode, new_parts
from branchpoint.graph import EdgeGroup, Executor, Graph, NestingExecutor, interceptors
from tests.unit.graph.shapes import Count, Quiet, Text, graph_of


class Asker(Text):
    """May ask."""

    @response_handler
    async def on_answer(self, question: str, answer: str, ctx: WorkflowContext[str, int]) -> None: ...


class Taker(Executor):
    """Takes questions, or numbers."""

    @handler
    async def on_question(
        self, message: SubWorkflowRequestMessage | int, ctx: WorkflowContext[SubWorkflowResponseMessage]
    ) -> None: ...


class _Built:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph


def nesting(child: Graph, **more: Any) -> NestingExecutor:
    return NestingExecutor(_Built(child), "kid", **more)


def test_it_takes_what_its_child_takes_and_answers() -> None:
    kid = nesting(graph_of([Text(id="a")]))
    assert kid.input_types == [str, SubWorkflowResponseMessage]
    # An answer goes in once, however deep.
    assert nesting(graph_of([kid])).input_types == [str, SubWorkflowResponseMessage]


@pytest.mark.parametrize(
    ("child", "more", "sent", "yielded"),
    [
        (Text(id="a"), {}, [str], []),
        (Text(id="a"), {"allow_direct_output": True}, [], [str]),
        (Asker(id="a"), {}, [str, int, SubWorkflowRequestMessage], []),
        (Asker(id="a"), {"propagate_request": True}, [str, int], []),
        (Asker(id="a"), {"allow_direct_output": True}, [SubWorkflowRequestMessage], [str, int]),
        (nesting(graph_of([Asker(id="a")])), {}, [SubWorkflowRequestMessage], []),
        (Quiet(id="a"), {}, [], []),
    ],
)
def test_it_sends_what_its_child_yields_and_questions(
    child: Executor, more: Any, sent: list[Any], yielded: list[Any]
) -> None:
    kid = nesting(graph_of([child]), **more)
    assert (kid.output_types, kid.workflow_output_types) == (sent, yielded)


def test_a_graph_knows_which_executors_have_a_child() -> None:
    kid = nesting(graph_of([Text(id="a")]))
    graph = graph_of([Text(id="src"), kid], [EdgeGroup.single("src", "kid", None)])
    assert dict(graph.nesting) == {"kid": kid}
    assert graph.nesting["kid"].child.start_id == "a"


@pytest.mark.parametrize(
    ("targets", "more", "found"),
    [
        ([Taker(id="t")], {}, ("t",)),
        ([Taker(id="t")], {"propagate_request": True}, ()),
        ([Quiet(id="q")], {}, ()),
        ([Count(id="n"), Taker(id="t"), Taker(id="u")], {}, ("t", "u")),
    ],
)
def test_only_who_declares_it_gets_questions(
    targets: list[Executor], more: Any, found: tuple[str, ...]
) -> None:
    kid = nesting(graph_of([Asker(id="a")]), **more)
    groups = [EdgeGroup.single("kid", one.id, None) for one in targets]
    graph = graph_of([kid, *targets], groups)
    assert interceptors(graph, "kid") == found
    assert interceptors(graph, targets[0].id) == ()


# Events as values of a state.


QUESTION = WorkflowEvent(
    "request_info",
    {"what": ["now"]},
    executor_id="ask",
    source_executor_id="ask",
    request_id="r-1",
    request_type="dict",
    response_type="int",
    response_schema={"type": "integer"},
    path=("kid",),
)
OTHER: WorkflowEvent = WorkflowEvent(
    "failed", state=WorkflowRunState.FAILED, details=WorkflowErrorDetails("Boom", "why", "a"), durable=True
)


@pytest.mark.parametrize("format", ["json", "msgpack"])
@pytest.mark.parametrize("event", [QUESTION, OTHER, WorkflowEvent("data")])
@pytest.mark.parametrize("kind", [SubWorkflowRequestMessage, SubWorkflowResponseMessage, None])
def test_a_message_comes_back_as_it_was(event: WorkflowEvent, format: Any, kind: Any) -> None:
    value: Any = event
    if kind is SubWorkflowRequestMessage:
        value = SubWorkflowRequestMessage(event, "kid")
    elif kind is SubWorkflowResponseMessage:
        value = SubWorkflowResponseMessage(3, event)
    made, _ = encode(value, format=format)
    parts = {part.digest: part.data for part in made.refs}
    for part in made.refs:
        parts.update(new_parts(part, {}))
    assert decode(made.data, parts, format=format) == value


def test_only_what_is_said_is_stored() -> None:
    made, _ = encode(WorkflowEvent("data"), format="json")
    assert made.data == b'{"$":"branchpoint.event","v":{"type":"data"}}'


@pytest.mark.parametrize(
    "payload", [b"3", b'{"type":"data","more":1}', b'{"type":"data","durable":false}', b'{"data":1}']
)
def test_what_no_event_is_stored_as_is_refused(payload: bytes) -> None:
    with pytest.raises(CorruptCheckpointError):
        decode(b'{"$":"branchpoint.event","v":' + payload + b"}", {}, format="json")


def test_a_copy_shares_nothing_that_can_change() -> None:
    copied = copy_value(QUESTION)
    assert copied == QUESTION
    assert copied.data is not QUESTION.data
    assert copied.data["what"] is not QUESTION.data["what"]
    assert copied.response_schema is not QUESTION.response_schema


def test_an_answer_is_of_the_type_that_was_asked_for() -> None:
    question = SubWorkflowRequestMessage(QUESTION, "kid")
    assert question.create_response(3) == SubWorkflowResponseMessage(3, QUESTION)
    with pytest.raises(InvalidResponseError, match="'r-1' of executor 'ask' must be int, got str"):
        question.create_response("three")
    # Of a type that is not known here the child finds out itself.
    unknown = WorkflowEvent("request_info", response_type="shop.unknown")
    assert SubWorkflowRequestMessage(unknown, "kid").create_response("x").data == "x"
