"""What passes between a parent and the executions of its child: which takes what, and what comes back."""

from __future__ import annotations

from typing import Any

import pytest

from branchpoint import (
    InvalidResponseError,
    SubWorkflowResponseMessage,
    UnknownRequestError,
    WorkflowContext,
    WorkflowEvent,
    handler,
    response_handler,
)
from branchpoint.engine._cell import Cell
from branchpoint.engine._children import Accepted, Children, question
from branchpoint.engine._share import Asked, Share
from branchpoint.engine._state import AcceptedInput, Delivery, OpenRequest, Produced, RunState
from branchpoint.engine._transitions import settle_status
from branchpoint.graph import Executor, NestingExecutor
from tests.unit.engine.shapes import Asker, asked, graph_of, state_of


class _Built:
    def __init__(self, graph: Any) -> None:
        self.graph = graph


def parent_of(child: Executor | None = None, **more: Any) -> tuple[RunState, Children]:
    graph = graph_of([child or Asker(id="a")], name="child")
    state = state_of(graph_of([NestingExecutor(_Built(graph), "kid", **more)]))
    state.input = AcceptedInput("in-1", 1, "message", Cell("messages.input.value", 3, live="x"))
    return state, Children.of(state, "kid")


def call(value: Any) -> Delivery:
    return Delivery(value, (), ("kid",))


def answer(request_id: str, value: Any = "yes") -> Delivery:
    return Delivery(value, ("kid",), ("kid",), request_id, "?")


def reply(request_id: str, value: Any) -> Delivery:
    return call(SubWorkflowResponseMessage(value, WorkflowEvent("request_info", request_id=request_id)))


def ask(state: RunState, request_id: str, superstep: int, path: list[str] | None = None) -> None:
    """Have an execution ask, and wait."""
    record = {**asked(request_id, "a").record, "superstep": superstep, "path": path or []}
    state.requests[request_id] = OpenRequest(request_id, Cell("r", 4, live=record))
    rest(state)


def rest(state: RunState) -> None:
    """Have an execution do all that was pending."""
    if state.deliveries:
        state.iteration += 1
    state.deliveries = []
    settle_status(state)


def produce(state: RunState, value: str, kind: str | None = None) -> None:
    record = {"turn": state.turn, "superstep": state.iteration, "executor_id": "a", "output_id": f"o-{value}"}
    more = {} if kind is None else {"kind": kind}
    state.outputs.append(Produced(Cell("o", 3, live={**record, "value": value, **more})))


def handed(children: Children, parent: RunState) -> Share:
    share = Share("kid", parent.graph, parent.shared, parent.medium)
    children.hand_over(share, parent, parent.iteration + 1)
    return share


# Which execution takes a message.


def test_calls_of_one_superstep_have_executions_of_their_own() -> None:
    parent, children = parent_of()
    children.accept(parent, [call("A"), call("B"), call("C")])
    assert [one.execution for one in children.accepted] == ["0", "1", "2"]
    values = [state.deliveries[0].value for state in children.executions.values()]
    assert values == ["A", "B", "C"]
    assert children.executions["1"].at == "executor_states.kid.executions.1."
    assert children.executions["0"].input_id == "in-1"


def test_the_main_one_takes_the_next_call_and_others_go() -> None:
    parent, children = parent_of()
    children.accept(parent, [call("A"), call("B")])
    for state in children.executions.values():
        rest(state)
    handed(children, parent)
    assert [*children.executions] == ["0"]
    children.accept(parent, [call("C")])
    assert children.accepted == [Accepted("0", 1)]
    assert children.executions["0"].turn == 2


def test_a_call_while_the_main_one_waits_has_its_own() -> None:
    parent, children = parent_of()
    children.accept(parent, [call("A")])
    ask(children.executions["0"], "r-1", 1)
    handed(children, parent)
    children.accept(parent, [call("B"), answer("r-1")])
    assert [one.execution for one in children.accepted] == ["1", "0"]


def test_the_lowest_free_name_is_taken() -> None:
    parent, children = parent_of()
    children.accept(parent, [call("A"), call("B"), call("C")])
    for name, state in children.executions.items():
        rest(state) if name == "1" else ask(state, f"r-{name}", 1)
    handed(children, parent)
    assert [*children.executions] == ["0", "2"]
    children.accept(parent, [call("D")])
    assert [one.execution for one in children.accepted] == ["1"]


def test_answers_find_who_asked_and_are_taken_together() -> None:
    parent, children = parent_of()
    children.accept(parent, [call("A"), call("B")])
    ask(children.executions["0"], "r-1", 1)
    ask(children.executions["0"], "r-2", 1)
    ask(children.executions["1"], "r-3", 1)
    handed(children, parent)
    children.accept(parent, [answer("r-3"), answer("r-2", "two"), answer("r-1", "one")])
    assert [one.execution for one in children.accepted] == ["1", "0", "0"]
    assert [one.value for one in children.executions["0"].deliveries] == ["two", "one"]
    assert children.executions["0"].requests == {}


def test_an_answer_from_deeper_goes_on_to_the_executor_that_leads_there() -> None:
    inner = NestingExecutor(_Built(graph_of([Asker(id="a")])), "inner")
    parent, children = parent_of(inner)
    children.accept(parent, [call("A")])
    ask(children.executions["0"], "r-1", 1, ["inner"])
    share = handed(children, parent)
    assert share.asked[0].record["path"] == ["kid", "inner"]
    children.accept(parent, [answer("r-1")])
    (delivery,) = children.executions["0"].deliveries
    assert (delivery.targets, delivery.request_id) == (("inner",), "r-1")


def test_what_was_taken_before_is_not_taken_again() -> None:
    parent, children = parent_of()
    children.accept(parent, [call("A")])
    ask(children.executions["0"], "r-1", 1)
    handed(children, parent)
    children.accept(parent, [call("B")])
    before = list(children.accepted)
    children.accept(parent, [call("B")])
    assert children.accepted == before
    children.accept(parent, [call("B"), answer("r-1")])  # one that came while it was interrupted
    assert [one.execution for one in children.accepted] == ["1", "0"]


# Answers of executors of the parent.


def test_an_answer_of_the_parent_is_of_the_declared_type() -> None:
    parent, children = parent_of()
    children.accept(parent, [call("A")])
    ask(children.executions["0"], "r-1", 1)
    handed(children, parent)
    with pytest.raises(InvalidResponseError, match="must be str, got int"):
        children.accept(parent, [reply("r-1", 3)])
    with pytest.raises(UnknownRequestError, match=r"request 'r-2'.*open are \['r-1'\]"):
        children.accept(parent, [reply("r-2", "yes")])
    children.accept(parent, [reply("r-1", "yes")])
    (delivery,) = children.executions["0"].deliveries
    assert (delivery.value, delivery.request_id) == ("yes", "r-1")


class Replies(Executor):
    """Takes answers as messages, and may ask."""

    @handler
    async def on_reply(self, reply: SubWorkflowResponseMessage, ctx: WorkflowContext) -> None: ...

    @response_handler
    async def on_answer(self, question: str, answer: str, ctx: WorkflowContext) -> None: ...


def test_a_child_may_take_answers_as_messages() -> None:
    parent, children = parent_of(Replies(id="a"))
    children.accept(parent, [reply("r-1", "hello")])
    assert children.executions["0"].deliveries[0].value.data == "hello"
    ask(children.executions["0"], "r-1", 1)
    handed(children, parent)
    children.accept(parent, [reply("r-1", "yes")])  # unless it answers a question of its own
    assert children.executions["0"].deliveries[0].value == "yes"


# What comes back.


def test_messages_wait_until_the_call_is_over() -> None:
    parent, children = parent_of()
    children.accept(parent, [call("A")])
    state = children.executions["0"]
    ask(state, "r-1", 1)
    produce(state, "early")
    share = handed(children, parent)
    assert (share.sent, [one.request_id for one in share.asked]) == ([], ["r-1"])
    children.accept(parent, [answer("r-1")])
    rest(state)
    produce(state, "late")
    share = handed(children, parent)
    assert ([one.value for one in share.sent], share.asked) == (["early", "late"], [])


def test_what_is_the_callers_does_not_wait_and_comes_once() -> None:
    parent, children = parent_of(allow_direct_output=True)
    children.accept(parent, [call("A")])
    state = children.executions["0"]
    ask(state, "r-1", 1)
    produce(state, "early")
    produce(state, "hint", "intermediate")
    share = handed(children, parent)
    assert [(one.value, one.intermediate) for one in share.yielded] == [("early", False), ("hint", True)]
    children.accept(parent, [answer("r-1")])
    rest(state)
    produce(state, "late")
    assert [one.value for one in handed(children, parent).yielded] == ["late"]


def test_a_question_comes_once_and_says_the_way() -> None:
    parent, children = parent_of()
    parent.iteration = 6
    children.accept(parent, [call("A")])
    state = children.executions["0"]
    ask(state, "r-1", 1)
    (made,) = handed(children, parent).asked
    assert made.record == {**asked("r-1", "a").record, "path": ["kid"], "superstep": 7}
    children.accept(parent, [call("B")])
    rest(children.executions["1"])
    assert handed(children, parent).asked == []


def test_a_question_as_a_message() -> None:
    made = question("kid", Asked("r-1", {**asked("r-1", "a").record, "path": ["kid"]}))
    assert made.executor_id == "kid"
    event = made.source_event
    assert (event.request_id, event.data, event.response_type) == ("r-1", "really?", "str")
    assert (event.source_executor_id, event.path, event.durable) == ("a", ("kid",), False)


# What is kept.


def test_what_is_kept_says_what_was_taken_until_it_is_handed_over() -> None:
    parent, children = parent_of()
    children.accept(parent, [call("A"), call("B")])
    kept = children.export()
    assert [*kept["executions"]] == ["0", "1"]
    assert kept["accepted"] == [["0", 0], ["1", 0]]
    for state in children.executions.values():
        rest(state)
    handed(children, parent)
    assert [*children.export()] == ["executions"]
