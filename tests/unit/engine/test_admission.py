"""What a call means: the whole table, decided without an event loop, a storage or a run."""

from __future__ import annotations

import enum
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from typing import Any

import pytest

from branchpoint.codec import digest, encode, register_state_type
from branchpoint.engine import ABSENT, RunRequest
from branchpoint.engine._admission import Admission, Answer, Begin, Report, Resume, admit, payload_digest
from branchpoint.engine._cell import Cell
from branchpoint.engine._routing import Routed
from branchpoint.engine._state import Delivery, RunState
from branchpoint.engine._transitions import accept_answers, accept_message, finish_superstep, settle_status
from branchpoint.errors import (
    CallError,
    InputMismatchError,
    InvalidCallError,
    InvalidInputError,
    InvalidResponseError,
    PendingRequestsError,
    UnfinishedWorkError,
    UnknownRequestError,
    UnregisteredTypeError,
)
from branchpoint.graph import EdgeGroup, Executor, Graph, WorkflowContext, handler, response_handler
from tests.unit.engine.shapes import Anything, Asker, Text, asked, graph_of, share_of, state_of

WHERE = "checkpoint 'run-1'"


@register_state_type("test_admission.verdict")
@dataclass
class Verdict:
    """An answer that a client sends as a JSON object."""

    ok: bool
    note: str = ""


@register_state_type("test_admission.parcel")
@dataclass
class Parcel:
    """A message that holds a dict."""

    items: Any


@register_state_type("test_admission.colour")
class Colour(enum.Enum):
    """An answer that a client sends as a text."""

    RED = "red"
    BLUE = "blue"


class Judge(Executor):
    """Asks for a `Verdict`, for a `Colour`, and for either a number or nothing."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext) -> None: ...

    @response_handler
    async def on_verdict(self, question: str, verdict: Verdict, ctx: WorkflowContext) -> None: ...

    @response_handler
    async def on_colour(self, question: str, colour: Colour, ctx: WorkflowContext) -> None: ...

    @response_handler
    async def on_number(self, question: str, number: int | None, ctx: WorkflowContext) -> None: ...


def graph() -> Graph:
    return graph_of([Asker(id="ask"), Text(id="b")], [EdgeGroup.single("ask", "b")])


def step(state: RunState, **did: Any) -> None:
    """Complete one superstep in which `ask` did something."""
    deliveries = did.pop("deliveries", [])
    finish_superstep(state, [share_of(state, "ask", **did)], Routed(deliveries=deliveries))
    settle_status(state)


def new() -> RunState:
    return state_of(graph())


def unfinished(message: Any = "m1", input_id: str = "in-1") -> RunState:
    state = new()
    accept_message(state, message, input_id)
    return state


def paused(*request_ids: str) -> RunState:
    state = unfinished()
    step(state, asked=[asked(key, "ask") for key in request_ids or ("r1", "r2")], yielded=["so far"])
    assert state.status == "idle_with_pending_requests"
    return state


def completed() -> RunState:
    state = unfinished()
    step(state, yielded=["out-1"])
    assert state.status == "idle"
    return state


def unfinished_with_request() -> RunState:
    state = unfinished()
    step(state, asked=[asked("r1", "ask")], deliveries=[Delivery("on", ("ask",), ("b",))])
    assert state.status == "in_progress"
    return state


HEADS = {
    "new": new,
    "completed": completed,
    "paused": paused,
    "unfinished": unfinished,
    "unfinished with request": unfinished_with_request,
}
MESSAGE = {"message": "m2"}
RESPONSES = {"responses": {"r1": "yes"}}
NOTHING: dict[str, Any] = {}

TABLE: list[tuple[str, dict[str, Any], Admission | type[CallError]]] = [
    ("new", MESSAGE, Begin("m2")),
    ("new", RESPONSES, UnknownRequestError),
    ("new", NOTHING, InvalidCallError),
    ("completed", MESSAGE, Begin("m2")),
    ("completed", RESPONSES, UnknownRequestError),
    ("completed", NOTHING, Report()),
    ("paused", MESSAGE, PendingRequestsError),
    ("paused", RESPONSES, Answer({"r1": "yes"})),
    ("paused", NOTHING, Report()),
    ("unfinished", MESSAGE, UnfinishedWorkError),
    ("unfinished", RESPONSES, UnknownRequestError),
    ("unfinished", NOTHING, Resume()),
    ("unfinished with request", MESSAGE, UnfinishedWorkError),
    ("unfinished with request", RESPONSES, Answer({"r1": "yes"})),
    ("unfinished with request", NOTHING, Resume()),
]


@pytest.mark.parametrize(("head", "call", "meaning"), TABLE, ids=lambda value: str(value)[:40])
def test_what_a_call_means(head: str, call: dict[str, Any], meaning: Admission | type[CallError]) -> None:
    state = HEADS[head]()
    before = state.export()
    if isinstance(meaning, type):
        with pytest.raises(meaning, match="run-1"):
            admit(state, RunRequest(**call), WHERE)
    else:
        assert admit(state, RunRequest(**call), WHERE) == meaning
    assert _told(state.export()) == _told(before)


@pytest.mark.parametrize("bound", [0, 1, None])
@pytest.mark.parametrize(("head", "call", "meaning"), TABLE, ids=lambda value: str(value)[:40])
def test_max_supersteps_and_metadata_change_nothing_of_what_a_call_means(
    head: str, call: dict[str, Any], meaning: Admission | type[CallError], bound: int | None
) -> None:
    about = {"metadata": {"tenant": "a"}} if call else {}  # metadata belongs to an input
    request = RunRequest(**call, **about, max_supersteps=bound, streaming=True)
    if isinstance(meaning, type):
        with pytest.raises(meaning):
            admit(HEADS[head](), request, WHERE)
    else:
        assert admit(HEADS[head](), request, WHERE) == meaning


def _told(exported: dict[str, Any]) -> str:
    """Show an exported state; what is encoded shows as its bytes."""
    if isinstance(exported, dict):
        return repr({key: _told(value) for key, value in exported.items()})
    return repr(getattr(exported, "data", exported))


# What the errors say.


def test_refusals_say_what_is_in_the_way_and_what_to_do() -> None:
    for make, call, words in [
        (new, NOTHING, ["is new", "give a message"]),
        (paused, MESSAGE, ["['r1', 'r2']", "responses=", "abandon()"]),
        (unfinished, MESSAGE, ["'in-1'", "run(checkpoint=...)", "abandon()", "restart_from"]),
        (completed, RESPONSES, ["'r1'", "nothing is pending", "Nothing of this call was accepted"]),
        (paused, {"responses": {"nope": 1, "r1": "y"}}, ["'nope'", "open are ['r1', 'r2']"]),
    ]:
        with pytest.raises(CallError) as refused:
            admit(make(), RunRequest(**call), WHERE)
        for word in [WHERE, *words]:
            assert word in str(refused.value)


# Messages.


@pytest.mark.parametrize("message", [None, "", 0, False])
def test_a_message_that_is_false_is_a_message(message: Any) -> None:
    state = state_of(graph_of([Anything(id="a")]))
    assert admit(state, RunRequest(message=message), WHERE) == Begin(message)


@pytest.mark.parametrize("message", [None, 1, ["x"], b"x"])
def test_an_input_of_a_type_the_start_does_not_accept_is_refused(message: Any) -> None:
    with pytest.raises(InvalidInputError) as refused:
        admit(new(), RunRequest(message=message), WHERE)
    for word in (type(message).__name__, "'ask'", "accepts str"):
        assert word in str(refused.value)


def test_the_message_is_taken_by_value() -> None:
    message = {"k": ["a"]}
    plan = admit(state_of(graph_of([Anything(id="a")])), RunRequest(message=message), WHERE)
    assert isinstance(plan, Begin)
    message["k"].append("b")
    assert plan.message == {"k": ["a"]}


# Responses.


def judged(**types: str) -> RunState:
    """A paused state with open requests for answers of the given types."""
    state = state_of(graph_of([Judge(id="judge")]))
    accept_message(state, "m1", "in-1")
    made = [asked(key, "judge", response_type=tp) for key, tp in types.items()]
    finish_superstep(state, [share_of(state, "judge", asked=made)], Routed())
    settle_status(state)
    return state


VERDICT, COLOUR = "test_admission.verdict", "test_admission.colour"


def test_answers_are_converted_and_stand_in_the_order_of_the_requests() -> None:
    state = judged(r1=VERDICT, r2=COLOUR, r3="int | None")
    given = {"r3": None, "r2": "blue", "r1": {"ok": True}}
    plan = admit(state, RunRequest(responses=given), WHERE)
    assert isinstance(plan, Answer)
    assert list(plan.responses.items()) == [("r1", Verdict(True)), ("r2", Colour.BLUE), ("r3", None)]
    assert plan.digest == payload_digest("responses", given)


def test_a_subset_may_be_answered() -> None:
    assert admit(paused(), RunRequest(responses={"r2": "b"}), WHERE) == Answer({"r2": "b"})


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("v", {"ok": "perhaps"}),
        ("v", {"ok": True, "more": 1}),
        ("v", "yes"),
        ("v", None),
        ("c", "green"),
        ("c", 1),
        ("n", True),
        ("n", 3.0),
        ("n", "3"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused_by_name_and_the_good_one_is_not_consumed(
    key: str, wrong: Any
) -> None:
    state = judged(v=VERDICT, c=COLOUR, n="int | None", good="int | None")
    with pytest.raises(InvalidResponseError) as refused:
        admit(state, RunRequest(responses={"good": 7, key: wrong}), WHERE)
    assert f"'{key}'" in str(refused.value)
    assert "'judge'" in str(refused.value)
    assert list(state.requests) == ["v", "c", "n", "good"]
    assert state.deliveries == []


def test_answers_are_taken_by_value() -> None:
    given = Verdict(True, "as it was")
    plan = admit(judged(r1=VERDICT), RunRequest(responses={"r1": given}), WHERE)
    assert isinstance(plan, Answer)
    given.note = "changed"
    assert plan.responses == {"r1": Verdict(True, "as it was")}


def test_a_request_whose_type_no_handler_names_any_more_is_refused() -> None:
    state = judged(r1="gone.type")
    with pytest.raises(InvalidResponseError, match=r"'r1'.*'gone\.type'"):
        admit(state, RunRequest(responses={"r1": 1}), WHERE)


# A repeated input id.


def test_a_repetition_of_the_latest_input_does_what_run_does() -> None:
    repeated = RunRequest(message="m1", input_id="in-1")
    assert admit(unfinished(), repeated, WHERE) == Resume()
    assert admit(unfinished_with_request(), repeated, WHERE) == Resume()
    assert admit(paused(), repeated, WHERE) == Report()
    assert admit(completed(), repeated, WHERE) == Report()


@pytest.mark.parametrize("make", [unfinished, paused, completed])
@pytest.mark.parametrize("other", ["m2", "", None, 1])
def test_another_payload_under_a_known_id_is_refused_whatever_the_head(make: Any, other: Any) -> None:
    with pytest.raises(InputMismatchError, match="'in-1'"):
        admit(make(), RunRequest(message=other, input_id="in-1"), WHERE)


def test_a_message_is_not_the_answer_of_the_same_text() -> None:
    state = paused("r1")
    accept_answers(state, {"r1": "yes"}, "in-2")
    with pytest.raises(InputMismatchError):
        admit(state, RunRequest(message={"r1": "yes"}, input_id="in-2"), WHERE)
    assert admit(state, RunRequest(responses={"r1": "yes"}, input_id="in-2"), WHERE) == Resume()


@pytest.mark.parametrize(
    ("first", "other"), [(1, True), (1, 1.0), (0.0, -0.0), ([1], (1,)), ({"a": 1}, {"a": 2}), (b"a", "a")]
)
def test_payloads_are_compared_exactly(first: Any, other: Any) -> None:
    state = state_of(graph_of([Anything(id="a")]))
    accept_message(state, first, "in-1")
    assert admit(state, RunRequest(message=first, input_id="in-1"), WHERE) == Resume()
    with pytest.raises(InputMismatchError):
        admit(state, RunRequest(message=other, input_id="in-1"), WHERE)


def answered(given: dict[str, Any], *, later: bool) -> RunState:
    """A state that accepted answers as `in-2`; with `later` another input has followed."""
    state = judged(r1=VERDICT, r2="int | None")
    plan = admit(state, RunRequest(responses=given, input_id="in-2"), WHERE)
    assert isinstance(plan, Answer)
    accept_answers(state, plan.responses, "in-2", plan.digest)
    finish_superstep(state, [share_of(state, "judge", yielded=["judged"])], Routed())
    settle_status(state)
    if later:
        accept_message(state, "m3", "in-3")
        finish_superstep(state, [share_of(state, "judge", yielded=["more"])], Routed())
        settle_status(state)
    return state


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    "again",
    [{"r1": {"ok": True}, "r2": 2}, {"r2": 2, "r1": {"ok": True}}],
    ids=["same order", "other order"],
)
def test_answers_that_were_converted_are_known_again_as_they_were_given(
    again: dict[str, Any], later: bool
) -> None:
    state = answered({"r1": {"ok": True}, "r2": 2}, later=later)
    assert admit(state, RunRequest(responses=again, input_id="in-2"), WHERE) == Report(
        "in-2" if later else None
    )


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("other", [{"r1": {"ok": False}, "r2": 2}, {"r1": {"ok": True}}, {"r2": 2}])
def test_other_answers_under_a_known_id_are_refused(other: dict[str, Any], later: bool) -> None:
    state = answered({"r1": {"ok": True}, "r2": 2}, later=later)
    with pytest.raises(InputMismatchError, match="'in-2'"):
        admit(state, RunRequest(responses=other, input_id="in-2"), WHERE)


def test_an_earlier_input_gets_its_recorded_result_while_anything_goes_on() -> None:
    state = completed()
    accept_message(state, "m2", "in-2")
    repeated = RunRequest(message="m1", input_id="in-1")
    assert admit(state, repeated, WHERE) == Report("in-1")
    step(state, asked=[asked("r1", "ask")])
    accept_answers(state, {"r1": "yes"}, "in-3")
    step(state, yielded=["out"])
    assert admit(state, repeated, WHERE) == Report("in-1")
    assert admit(state, RunRequest(message="m2", input_id="in-2"), WHERE) == Report("in-2")
    assert admit(state, RunRequest(responses={"r1": "yes"}, input_id="in-3"), WHERE) == Report()
    with pytest.raises(InputMismatchError):
        admit(state, RunRequest(message="other", input_id="in-1"), WHERE)


def test_an_unknown_id_is_a_new_input() -> None:
    assert admit(completed(), RunRequest(message="m1", input_id="in-9"), WHERE) == Begin("m1")
    with pytest.raises(UnfinishedWorkError):
        admit(unfinished(), RunRequest(message="m1", input_id="in-9"), WHERE)


@pytest.mark.parametrize("given", [{"input_id": "in-1"}, {"metadata": {"a": 1}}])
def test_what_belongs_to_an_input_is_refused_without_one(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidCallError, match=f"{next(iter(given))}= belongs to an input"):
        RunRequest(**given)


def test_an_equal_payload_is_the_same_whatever_the_order_of_its_keys() -> None:
    assert payload_digest("message", {"a": [{"b": 1, "c": 2}], "d": 3}) == payload_digest(
        "message", {"d": 3, "a": [{"c": 2, "b": 1}]}
    )
    assert payload_digest("message", {"a": 1}) != payload_digest("message", {"a": 2})
    assert payload_digest("message", {"a": 1}) != payload_digest("message", {"a": 1.0})


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(
    ("first", "again", "other"),
    [
        ({1: 2, 3: 4}, {3: 4, 1: 2}, {1: 2, 3: 5}),
        (Counter(a=1, b=2), Counter(b=2, a=1), Counter(a=2, b=1)),
        (defaultdict(int, a=1, b=2), defaultdict(int, b=2, a=1), defaultdict(int, a=1)),
        (Parcel({"b": 1, "a": 2}), Parcel({"a": 2, "b": 1}), Parcel(OrderedDict(a=2, b=1))),
        (OrderedDict(a=1, b=2), OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)),
        (deque([{"b": 1, "a": 2}]), deque([{"a": 2, "b": 1}]), deque([{"a": 2}, {"b": 1}])),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_delivery_with_an_equal_payload_is_the_same_one(
    first: Any, again: Any, other: Any, later: bool
) -> None:
    state = state_of(graph_of([Anything(id="a")]))
    accept_message(state, first, "in-1")
    if later:
        accept_message(state, "next", "in-2")
    assert first == again
    meant = Report("in-1") if later else Resume()
    assert admit(state, RunRequest(message=again, input_id="in-1"), WHERE) == meant
    with pytest.raises(InputMismatchError):
        admit(state, RunRequest(message=other, input_id="in-1"), WHERE)


@pytest.mark.parametrize(
    "payload", [{3: 4, 1: 2}, Parcel({"b": 1, "a": 2}), {"k": [Counter(b=1, a=2)]}, {"b": 1, "a": (2,)}]
)
def test_a_digest_stored_when_the_order_still_counted_is_known_again(payload: Any) -> None:
    """Then dicts in plain containers had no order, and all others that of the delivery."""
    plain = {"a": (2,), "b": 1} if payload == {"b": 1, "a": (2,)} else payload
    stored = digest(encode(["message", plain], format="json")[0].data)
    state = state_of(graph_of([Anything(id="a")]))
    accept_message(state, payload, "in-1")
    accept_message(state, "next", "in-2")
    record = {"input_id": "in-1", "turn": 1, "digest": stored, "superstep": 0}
    state.earlier = [Cell("messages.input.earlier[0]", 4, live=record)]
    assert admit(state, RunRequest(message=payload, input_id="in-1"), WHERE) == Report("in-1")
    with pytest.raises(InputMismatchError):
        admit(state, RunRequest(message=[payload], input_id="in-1"), WHERE)


def test_r42_a_payload_that_cannot_be_kept_is_told_by_its_path_in_the_state() -> None:
    state = paused("r1")
    accept_answers(state, {"r1": "yes"}, "in-2")
    with pytest.raises(UnregisteredTypeError, match=r"at messages\.input\.value\.r1 cannot be kept"):
        admit(state, RunRequest(responses={"r1": threading.Lock()}, input_id="in-2"), WHERE)
    with pytest.raises(UnregisteredTypeError, match=r"at messages\.input\.value\[1\] cannot be kept"):
        payload_digest("message", ["a", threading.Lock()])


# What the arguments alone say.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"message": "m", "responses": {"r1": 1}}, "both a message and responses"),
        ({"message": None, "responses": {"r1": 1}}, "both a message and responses"),
        ({"message": "m", "responses": {}}, "both a message and responses"),
        ({"responses": {}}, "empty responses"),
        (
            {"message": "m", "max_supersteps": -1},
            "max_supersteps is a number of supersteps, 0 or more, got -1",
        ),
        ({"message": "m", "max_supersteps": True}, "got True"),
        ({"message": "m", "max_supersteps": 1.0}, "got 1.0"),
        ({"responses": [("r1", 1)]}, "responses is a mapping"),
        ({"message": "m", "input_id": 7}, "input_id is text, not int"),
        ({"message": "m", "input_id": ""}, "input_id is not empty text"),
        (
            {"message": "m", "input_id": "a\ud83d"},
            r"no half of a surrogate pair; this one has U\+D83D at .* 1",
        ),
        ({"message": "m", "input_id": "a\nb"}, "input_id holds no control character"),
        ({"message": "m", "input_id": "x" * 513}, "input_id has at most 512 characters and this one has 513"),
        ({"message": "m", "metadata": {"boundary": "x"}}, '"boundary"'),
        ({"message": "m", "metadata": {"a": object()}}, "plain JSON"),
        ({"message": "m", "metadata": {"a": (1, 2)}}, "plain JSON"),
        ({"message": "m", "metadata": {1: "a"}}, "plain JSON"),
        ({"message": "m", "metadata": {"a": float("nan")}}, "plain JSON"),
        ({"message": "m", "metadata": {"a": "x" * 16_384}}, "at most 16384"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidCallError, match=words):
        RunRequest(**arguments)


def test_arguments_at_their_bounds_are_accepted() -> None:
    request = RunRequest(message="m", max_supersteps=0, metadata={"a": "x" * (16_384 - 8)})
    assert request.max_supersteps == 0
    assert RunRequest().message is ABSENT
    for input_id in ("x" * 512, " ", "a/b\u2028"):
        assert RunRequest(message="m", input_id=input_id).input_id == input_id
    plain = {"a": [1, None, {"b": 1.5}]}
    assert RunRequest(message=None, metadata=plain).metadata == plain


def test_absent_is_one_value() -> None:
    assert type(ABSENT)() is ABSENT
    assert repr(ABSENT) == "ABSENT"
