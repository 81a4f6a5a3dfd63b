"""Which answer fits which question, and what an agent is told of all of them."""

from __future__ import annotations

from typing import Any

import pytest
from agent_framework import Content, Message

from branchpoint import RequestCancelled
from branchpoint.agents._answers import as_content, check_answer, is_cancelled_call, said_besides, told
from branchpoint.agents._replay import forget_results, slots


def call(name: str = "refund", call_id: str = "c1", **arguments: Any) -> Content:
    return Content.from_function_call(call_id=call_id, name=name, arguments=arguments, id=call_id)


def asked(function_call: Content) -> Content:
    assert function_call.id is not None
    return Content.from_function_approval_request(id=function_call.id, function_call=function_call)


def computer(call_id: str = "c9", **more: Any) -> Content:
    return Content(
        "computer_tool_call",
        id=f"item-{call_id}",
        call_id=call_id,
        actions=[{"type": "click"}],
        user_input_request=True,
        **more,
    )


APPROVAL = asked(call(order=7))
TOOL = call()
CHECKED = computer(pending_safety_checks=[{"id": "s1"}])
WRONG = [
    (APPROVAL, asked(call("refund", "c2", order=7)).to_function_approval_response(True), "'c2'"),
    (APPROVAL, asked(call(order=8)).to_function_approval_response(True), "arguments"),
    (APPROVAL, asked(call("transfer", order=7)).to_function_approval_response(True), "'transfer'"),
    (APPROVAL, Content("function_approval_response", id="c1", approved=True), "names no function call"),
    (APPROVAL, Content.from_function_result(call_id="c1", result="x"), "answered by a"),
    (APPROVAL, Content.from_text("yes"), "answered by a"),
    (TOOL, Content.from_function_result(call_id="c2", result="x"), "'c2'"),
    (TOOL, APPROVAL.to_function_approval_response(True), "answered by a"),
    (CHECKED, Content("computer_tool_result", call_id="c9"), "safety checks"),
    (CHECKED, Content("computer_tool_result", call_id="c8"), "'c8'"),
]


@pytest.mark.parametrize(("request_", "answer", "said"), WRONG)
def test_an_answer_to_another_question_is_refused(request_: Content, answer: Content, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_answer(request_, answer)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (APPROVAL, APPROVAL.to_function_approval_response(False)),
        (asked(call(order=7)), Content.from_dict(APPROVAL.to_function_approval_response(True).to_dict())),
        (TOOL, Content.from_function_result(call_id="c1", result="x")),
        (
            CHECKED,
            Content("computer_tool_result", call_id="c9", acknowledged_safety_checks=[{"id": "s1"}]),  # type: ignore[list-item]
        ),
        (Content.from_oauth_consent_request("https://example.com"), Content.from_text("done")),
        (APPROVAL, RequestCancelled()),
    ],
)
def test_a_fitting_answer_is_taken(request_: Content, answer: Content) -> None:
    check_answer(request_, answer)


def test_a_cancelled_question_is_told_to_the_agent_as_what_it_can_go_on_with() -> None:
    gone = RequestCancelled()
    refusal = as_content(APPROVAL, gone)
    assert (refusal.type, refusal.approved, refusal.id) == ("function_approval_response", False, "c1")
    result = as_content(TOOL, gone)
    assert (result.type, result.call_id) == ("function_result", "c1")
    assert is_cancelled_call(as_content(computer(), gone)) and not is_cancelled_call(result)
    assert as_content(Content.from_oauth_consent_request("https://example.com"), gone).type == "text"


def test_answers_of_one_role_in_a_row_are_one_message() -> None:
    result = Content.from_function_result(call_id="c1", result="x")
    approval = APPROVAL.to_function_approval_response(True)
    messages = told([approval, result, result, approval])
    assert [(one.role, len(one.contents)) for one in messages] == [("user", 1), ("tool", 2), ("user", 1)]


def test_approvals_are_no_part_of_the_conversation_that_others_see() -> None:
    messages = [
        Message("user", ["hi"]),
        Message("assistant", ["let me see", call(), asked(call())], author_name="a"),
        Message("user", [APPROVAL.to_function_approval_response(True)]),
    ]
    kept = said_besides(messages)
    assert [(one.role, one.author_name) for one in kept] == [("user", None), ("assistant", "a")]
    assert kept[0] is messages[0] and [one.type for one in kept[1].contents] == ["text", "function_call"]


def test_local_calls_of_a_turn_with_a_computer_call_keep_their_place() -> None:
    first, second, screen = call(call_id="c1"), call(call_id="c2"), computer()
    results = [Content.from_function_result(call_id=one, result=one, id=one) for one in ("c1", "c2")]
    turn = [Message("assistant", [first, screen, second]), Message("tool", results)]
    # `first` came before the screen in the same message, so all three are told in this order.
    assert slots(turn) == [(first, results[0]), (screen, None), (second, results[1])]
    assert slots([Message("assistant", [APPROVAL]), *turn[:0]]) == [(APPROVAL, None)]


def test_results_that_are_told_again_are_taken_out_of_the_history() -> None:
    from agent_framework import AgentSession

    screen = computer()
    results = [Content.from_function_result(call_id=one, result=one, id=one) for one in ("c1", "c2")]
    session = AgentSession()
    session.state = {
        "in_memory": {"messages": [Message("assistant", [screen]), Message("tool", list(results))]}
    }
    forget_results(session, (), results[:1], {screen.id})
    history = session.state["in_memory"]["messages"]
    assert [one.contents for one in history] == [[screen], [results[1]]]
    forget_results(session, (), results, set())
    assert len(history) == 2, "without a computer call nothing is told again"
    forget_results(session, (), results, {screen.id})
    assert [one.contents for one in session.state["in_memory"]["messages"]] == [[screen]]
