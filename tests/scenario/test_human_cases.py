"""Cases of users whose workflows wait for a person: C63 to C71."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import msgspec
import pydantic
import pytest

import branchpoint
from branchpoint import (
    BranchpointError,
    Checkpoint,
    CheckpointConflictError,
    Executor,
    HandlerError,
    InputMismatchError,
    InvalidCallError,
    InvalidResponseError,
    PendingRequestsError,
    UndeliverableMessageError,
    UnknownRequestError,
    UnregisteredTypeError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowRunState,
    executor,
    handler,
    register_state_type,
    response_handler,
    state,
)
from branchpoint.codec import isolated_registry
from branchpoint.graph import SyncWorkflowContext
from tests.scenario.kit import (
    Ask,
    Boom,
    BoomOnce,
    Join,
    Place,
    Step,
    Ticks,
    boundaries,
    bytes_of,
    chain,
    every_file,
    every_place,
    every_storage,
    fan,
    file_bytes,
    in_new_process,
    only_request,
    pending,
    place_of,
)

PAUSED = WorkflowRunState.IDLE_WITH_PENDING_REQUESTS


def open_ids(checkpoint: Checkpoint) -> list[str]:
    return [request.request_id for request in checkpoint.pending_requests]


def by_question(checkpoint: Checkpoint) -> dict[Any, str]:
    """Ids of the open requests by what they ask."""
    return {request.data: request.request_id for request in checkpoint.pending_requests}


# C63: answers of the wrong type.


@register_state_type("scenario.human.address")
@dataclass
class Address:
    street: str
    number: int


@register_state_type("scenario.human.color")
class Color(Enum):
    RED = "red"
    BLUE = "blue"


@register_state_type("scenario.human.point")
class Point(msgspec.Struct):
    x: int
    y: int = 0


@register_state_type("scenario.human.order")
class Order(pydantic.BaseModel):
    item: str
    to: Address | None = None


HOME = Address("High St", 7)
HOME_DICT = {"street": "High St", "number": 7}
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)

Cases = tuple[Any, list[tuple[Any, Any]], list[Any]]

# Declared type; answers with what arrives; answers that are refused.
DECLARED: dict[str, Cases] = {
    "int": (int, [(5, 5), (-(2**60), -(2**60))], ["x", True, 3.0, None, "5", [5], {"n": 5}, Color.RED]),
    "bool": (bool, [(True, True), (False, False)], [1, 0, "true", None, 1.0]),
    "float": (float, [(3.5, 3.5), (3, 3.0)], ["3.5", True, None]),
    "str": (str, [("x", "x"), ("", "")], [1, None, b"x", ["x"], Color.RED]),
    "dataclass": (
        Address,
        [(HOME, HOME), (HOME_DICT, HOME)],
        [
            {"street": "High St", "nmber": 7},
            {"street": "High St"},
            {**HOME_DICT, "more": 1},
            {"street": 7, "number": 7},
            {"street": "High St", "number": True},
            {"street": "High St", "number": "7"},
            {},
            ["High St", 7],
            "High St",
            None,
            Point(1),
        ],
    ),
    "struct": (Point, [({"x": 1}, Point(1)), (Point(1, 2), Point(1, 2))], [{"y": 1}, {"x": 1.0}, [1, 2], HOME]),
    "pydantic": (
        Order,
        [({"item": "pen"}, Order(item="pen")), ({"item": "pen", "to": HOME_DICT}, Order(item="pen", to=HOME))],
        [{"item": 1}, {"itm": "pen"}, {"item": "pen", "to": {"street": "x"}}, "pen"],
    ),
    "enum": (Color, [("red", Color.RED), (Color.BLUE, Color.BLUE)], ["purple", 1, None, True]),
    "optional": (int | None, [(None, None), (5, 5)], ["x", True, 3.0]),
    "union": (
        Address | Color | int,
        [(HOME_DICT, HOME), ("blue", Color.BLUE), (5, 5)],
        [True, 3.0, "x", None, {"street": "x"}],
    ),
    "list": (list[Address], [([HOME_DICT, HOME], [HOME, HOME]), ([], [])], [[1], HOME_DICT, [HOME_DICT, None]]),
    "dict": (dict[str, int], [({"a": 1}, {"a": 1})], [{"a": True}, {"a": "1"}, {1: 1}, []]),
    "literal": (Literal["yes", "no"], [("yes", "yes")], ["maybe", True, None]),
    "datetime": (datetime, [(NOON, NOON), ("2026-01-02T12:00:00Z", NOON)], ["soon", 5, None]),
}  # fmt: skip


def asking_for(name: str) -> Workflow:
    """A workflow that asks for an answer of a declared type and yields what arrives, with its type."""
    declared = DECLARED[name][0]

    class AskFor(Executor):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[Any, Any]) -> None:
            await ctx.request_info(text, declared)

        @response_handler(request=str, response=declared)
        async def on_answer(self, request: str, answer: Any, ctx: WorkflowContext[Any, Any]) -> None:
            await ctx.yield_output([type(answer).__qualname__, answer])

    return WorkflowBuilder(name=f"ask-{name}", start_executor=AskFor(id="ask")).build()


async def refuses_and_converts(cp: Checkpoint, name: str) -> None:
    """Answer with everything that does not fit, then with everything that does."""
    workflow = asking_for(name)
    request_id, paused = only_request(cp), cp.head_snapshot_id
    before = bytes_of(cp)
    _, fitting, wrong = DECLARED[name]
    for given in wrong:
        with pytest.raises(InvalidResponseError, match=request_id):
            await workflow.run(responses={request_id: given}, checkpoint=cp)
        assert cp.head_snapshot_id == paused
        assert bytes_of(cp) == before
        assert open_ids(cp) == [request_id]
    for given, expected in fitting:
        cp.restart_from(paused)
        result = await workflow.run(responses={request_id: given}, checkpoint=cp)
        ((kind, answer),) = result.get_outputs()
        assert (kind, answer) == (type(expected).__qualname__, expected)
        assert type(answer) is type(expected)
        assert cp.pending_requests == []
        accepted = cp.ancestors()[1]
        assert accepted.boundary == "responses_accepted"
        assert accepted.state["messages"]["input"]["value"] == {request_id: expected}


@every_place
@pytest.mark.parametrize("reload", [False, True], ids=["warm", "cold"])
@pytest.mark.parametrize("name", list(DECLARED))
async def test_c63_an_answer_fits_the_declared_type_or_is_refused_before_any_commit(
    place: Place, name: str, reload: bool, tmp_path: Path
) -> None:
    workflow = asking_for(name)
    cp = place.create(workflow)
    await workflow.run("q", checkpoint=cp)
    if reload:
        cp = await place.reload()
    await refuses_and_converts(cp, name)


async def answer_all(kind: str, folder: str) -> list[str]:
    place = place_of(kind, Path(folder))
    for name in DECLARED:
        await refuses_and_converts(await place.reload(name), name)
    return list(DECLARED)


@every_file
async def test_c63_the_same_holds_in_a_new_process(place: Place, tmp_path: Path) -> None:
    for name in DECLARED:
        workflow = asking_for(name)
        await workflow.run("q", checkpoint=place.create(workflow, name))
    assert in_new_process(answer_all, place.kind, str(tmp_path)) == list(DECLARED)


@every_place
async def test_c63_one_wrong_answer_among_several_consumes_none(place: Place, tmp_path: Path) -> None:
    workflow = five_questions(Ticks())
    cp = place.create(workflow)
    await workflow.run("q", checkpoint=cp)
    before, files = bytes_of(cp), file_bytes(tmp_path)
    ids = open_ids(cp)
    for n in range(5):
        answers: dict[str, Any] = dict.fromkeys(ids, "fine")
        answers[ids[n]] = 5
        with pytest.raises(InvalidResponseError, match=ids[n]):
            await workflow.run(responses=answers, checkpoint=cp)
        assert open_ids(cp) == ids
    assert (bytes_of(cp), file_bytes(tmp_path)) == (before, files)


@every_place
async def test_c63_a_refusal_never_echoes_the_answer(place: Place) -> None:
    workflow = asking_for("int")
    cp = place.create(workflow)
    await workflow.run("q", checkpoint=cp)
    with pytest.raises(InvalidResponseError) as caught:
        await workflow.run(responses={only_request(cp): "my secret"}, checkpoint=cp)
    assert "my secret" not in str(caught.value)
    assert "int" in str(caught.value)
    assert "str" in str(caught.value)


@every_place
@pytest.mark.parametrize("reload", [False, True])
async def test_c63_a_cancelled_request_is_an_answer_where_the_declared_type_says_so(
    place: Place, reload: bool
) -> None:
    cancelled: Any = branchpoint.RequestCancelled

    class MayBeCancelled(Executor):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[Any, Any]) -> None:
            await ctx.request_info(text, int | cancelled)

        @response_handler(request=str, response=int | cancelled)
        async def on_answer(self, request: str, answer: Any, ctx: WorkflowContext[Any, Any]) -> None:
            await ctx.yield_output(answer)

    workflow = chain(MayBeCancelled(id="ask"))
    cp = place.create(workflow)
    await workflow.run("q", checkpoint=cp)
    if reload:
        cp = await place.reload()
    paused = cp.head_snapshot_id
    for answer in (cancelled(), cancelled("no time"), cancelled(reason="no time"), 5):
        cp.restart_from(paused)
        result = await workflow.run(responses={only_request(cp): answer}, checkpoint=cp)
        assert result.get_outputs() == [answer]
    plain = asking_for("int")
    other = place.create(plain, "other")
    await plain.run("q", checkpoint=other)
    with pytest.raises(InvalidResponseError, match=only_request(other)):
        await plain.run(responses={only_request(other): cancelled()}, checkpoint=other)


@dataclass
class Loose:
    """Nobody registered it."""

    n: int


@every_place
async def test_c63_an_answer_that_could_not_be_kept_is_refused_before_any_commit(place: Place) -> None:
    class AsksLoose(Executor):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[Any, Any]) -> None:
            await ctx.request_info(text, Loose)

        @response_handler
        async def on_answer(self, request: str, answer: Loose, ctx: WorkflowContext[Any, Any]) -> None:
            await ctx.yield_output(answer.n)

    workflow = chain(AsksLoose(id="ask"))
    cp = place.create(workflow)
    await workflow.run("q", checkpoint=cp)
    request_id = only_request(cp)
    before = bytes_of(cp)
    for answer in ({"n": 1}, Loose(1)):
        with pytest.raises(UnregisteredTypeError, match=rf"Loose.*{request_id}"):
            await workflow.run(responses={request_id: answer}, checkpoint=cp)
        assert bytes_of(cp) == before
        assert open_ids(cp) == [request_id]
    with isolated_registry():
        register_state_type(Loose, type_id="scenario.human.loose")
        cp = await place.reload()
        assert (await workflow.run(responses={request_id: {"n": 1}}, checkpoint=cp)).get_outputs() == [1]


@every_place
async def test_c63_the_declared_type_is_that_of_the_rebuilt_executor(place: Place) -> None:
    def asks(declared: Any) -> Workflow:
        class Asks(Executor):
            @handler
            async def on_text(self, text: str, ctx: WorkflowContext[Any, Any]) -> None:
                await ctx.request_info(text, int)

            @response_handler(request=str, response=declared)
            async def on_answer(self, request: str, answer: Any, ctx: WorkflowContext[Any, Any]) -> None:
                await ctx.yield_output(answer)

        return chain(Asks(id="ask"))

    cp = place.create(asks(int))
    await asks(int).run("q", checkpoint=cp)
    request_id, paused = only_request(cp), cp.head_snapshot_id
    cp = await place.reload()
    before = bytes_of(cp)
    for wrong in (5, "5"):
        with pytest.raises(InvalidResponseError, match=request_id):
            await asks(str).run(responses={request_id: wrong}, checkpoint=cp)
    assert bytes_of(cp) == before
    for rebuilt in (int, int | str, int | None, Any):
        cp.restart_from(paused)
        assert (await asks(rebuilt).run(responses={request_id: 5}, checkpoint=cp)).get_outputs() == [5]


async def test_c63_a_request_that_no_answer_could_reach_is_refused_where_it_is_made() -> None:
    class NoHandler(Executor):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[Any, Any]) -> None:
            await ctx.request_info(text, int)

        @response_handler
        async def on_answer(self, request: str, answer: str, ctx: WorkflowContext[Any, Any]) -> None:
            pass

    with pytest.raises(UndeliverableMessageError, match=r"'ask'.*int"):
        await chain(NoHandler(id="ask")).run("q")


# C65: several questions in one superstep.


class Many(Executor):
    """Asks three times in one handler, in the same words."""

    def __init__(self, id: str, ticks: Ticks, count: int = 3) -> None:
        super().__init__(id=id)
        self.ticks = ticks
        self.count = count

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[Any, Any]) -> None:
        self.ticks(self.id)
        made = [await ctx.request_info(f"{self.id}{n}", str) for n in range(self.count)]
        assert len(set(made)) == self.count

    @response_handler
    async def on_answer(self, request: str, answer: str, ctx: WorkflowContext[Any, Any]) -> None:
        self.ticks(f"{self.id}.answer")
        await ctx.yield_output((self.id, request, answer))


def five_questions(ticks: Ticks) -> Workflow:
    asked = [Many("many", ticks), Many("b", ticks, 1), Many("c", ticks, 1)]
    return WorkflowBuilder(name="five", start_executor=Step("src")).add_fan_out_edges("src", asked).build()


@every_place
@pytest.mark.parametrize("reload", [False, True])
@pytest.mark.parametrize("at_once", [True, False])
async def test_c65_every_question_has_an_id_of_its_own_and_gets_its_own_answer(
    place: Place, ticks: Ticks, reload: bool, at_once: bool
) -> None:
    workflow = five_questions(ticks)
    cp = place.create(workflow)
    result = await workflow.run("q", checkpoint=cp)
    told = [event.request_id for event in result.get_request_info_events()]
    assert len(set(told)) == 5
    assert [event.data for event in result.get_request_info_events()] == [
        "many0",
        "many1",
        "many2",
        "b0",
        "c0",
    ]
    assert open_ids(cp) == told
    assert list(pending(cp.head_snapshot)["requests"]) == told
    if reload:
        cp = await place.reload()
        assert open_ids(cp) == told
        again = await workflow.run(checkpoint=cp)
        assert [event.request_id for event in again.get_request_info_events()] == told
    questions = by_question(cp)
    answers = {request_id: f"answer to {question}" for question, request_id in questions.items()}
    backwards = dict(reversed(answers.items()))
    if at_once:
        result = await workflow.run(responses=backwards, checkpoint=cp)
    else:
        for n, (request_id, answer) in enumerate(backwards.items(), start=1):
            result = await workflow.run(responses={request_id: answer}, checkpoint=cp)
            assert open_ids(cp) == told[: 5 - n]
            if reload:
                cp = await place.reload()
    expected = [(q.rstrip("012"), q, f"answer to {q}") for q in questions]
    given = result.get_outputs()
    assert given == expected if at_once else sorted(given) == sorted(expected)
    assert ticks.all() == {"many": 1, "b": 1, "c": 1, "many.answer": 3, "b.answer": 1, "c.answer": 1}
    assert cp.status == "idle"


@every_place
async def test_c65_a_superstep_that_runs_again_asks_under_the_same_ids(place: Place, ticks: Ticks) -> None:
    seen: list[str] = []

    class Records(Many):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[Any, Any]) -> None:
            seen.extend([await ctx.request_info(f"{text}{n}", str) for n in range(2)])

    @executor
    async def src(text: str, ctx: WorkflowContext[str]) -> None:
        for word in text.split():
            await ctx.send_message(word)

    asked = Records("ask", ticks)
    builder = WorkflowBuilder(name="w", start_executor=src).add_fan_out_edges(
        src, [asked, BoomOnce("boom", ticks)]
    )
    workflow = builder.build()
    cp = place.create(workflow)
    told: list[str] = []
    with pytest.raises(Boom):
        async for event in workflow.run("p q", checkpoint=cp, stream=True):
            told += [event.type]
    assert "request_info" not in told, "a question is announced once it is committed"
    assert cp.pending_requests == []
    cp = await place.reload()
    await workflow.run(checkpoint=cp)
    assert seen[:4] == seen[4:]
    assert open_ids(cp) == seen[:4]
    assert len(set(seen)) == 4
    assert list(by_question(cp)) == ["p0", "p1", "q0", "q1"]


@every_place
async def test_c65_two_checkpoints_and_two_turns_never_share_an_id(place: Place, ticks: Ticks) -> None:
    workflow = five_questions(ticks)
    seen: list[str] = []
    for name in ("one", "two"):
        cp = place.create(workflow, name)
        for _ in range(2):
            await workflow.run("q", checkpoint=cp)
            seen += open_ids(cp)
            await workflow.run(responses=dict.fromkeys(open_ids(cp), "y"), checkpoint=cp)
    assert len(set(seen)) == len(seen) == 20


@every_place
async def test_c65_an_id_of_ones_own_is_kept_and_two_alike_are_refused(place: Place) -> None:
    class Named(Executor):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[Any, Any]) -> None:
            for name in text.split():
                assert await ctx.request_info(f"about {name}", str, request_id=name) == name

        @response_handler
        async def on_answer(self, request: str, answer: str, ctx: WorkflowContext[Any, Any]) -> None:
            await ctx.yield_output((request, answer))

    workflow = chain(Named(id="ask"))
    cp = place.create(workflow)
    await workflow.run("x y", checkpoint=cp)
    cp = await place.reload()
    assert open_ids(cp) == ["x", "y"]
    result = await workflow.run(responses={"y": "2", "x": "1"}, checkpoint=cp)
    assert result.get_outputs() == [("about x", "1"), ("about y", "2")]
    before = len(cp.snapshots)
    with pytest.raises(HandlerError, match=r"'ask'.*'z'"):
        await workflow.run("z z", checkpoint=cp)
    assert len(cp.snapshots) == before + 1
    assert cp.pending_requests == []


# C66: an answer that starts the run from the beginning.


@register_state_type("scenario.human.question")
@dataclass
class Question:
    text: str
    choices: list[str]


class AskQuestion(Ask):
    """Asks with an object, and yields the very request that comes back with the answer."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[Any, Any]) -> None:
        self.ticks(self.id)
        question = Question(text, ["y", "n"])
        await ctx.request_info(question, str)
        question.choices.append("edited after asking")

    @response_handler
    async def on_question(self, question: Question, answer: str, ctx: WorkflowContext[Any, Any]) -> None:
        self.ticks(f"{self.id}.answer")
        await ctx.yield_output(question)
        await ctx.send_message(answer)


def questioning(ticks: Ticks) -> Workflow:
    return chain(Step("start", ticks), AskQuestion("ask", ticks), Step("fin", ticks, final=True))


async def answer_question(kind: str, folder: str, counted: str, stream: bool) -> list[str]:
    cp = await place_of(kind, Path(folder)).reload()
    return await answered(questioning(Ticks(counted)), cp, stream)


async def answered(workflow: Workflow, cp: Checkpoint, stream: bool) -> list[str]:
    running = workflow.run(responses={only_request(cp): "y"}, checkpoint=cp, stream=stream)  # type: ignore[call-overload]
    result = await (running.get_final_response() if stream else running)
    return [repr(value) for value in result.get_outputs()]


@every_place
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("where", ["here", "after a reload", "in a new process"])
async def test_c66_an_answer_goes_on_where_the_question_was_asked(
    place: Place, tmp_path: Path, where: str, stream: bool
) -> None:
    counted = tmp_path / "ticks"
    workflow = questioning(Ticks(counted))
    cp = place.create(workflow)
    await workflow.run("t", checkpoint=cp)
    (request,) = cp.pending_requests
    assert request.data == Question("t>start", ["y", "n"])
    if where == "in a new process" and place.kind.startswith("file"):
        outputs = in_new_process(answer_question, place.kind, str(tmp_path), str(counted), stream)
    else:
        cp = cp if where == "here" else await place.reload()
        outputs = await answered(questioning(Ticks(counted)), cp, stream)
    assert outputs == [repr(Question("t>start", ["y", "n"])), repr("y>fin")]
    assert Ticks(counted).all() == {"start": 1, "ask": 1, "ask.answer": 1, "fin": 1}
    cp = await place.reload()
    assert boundaries(cp) == [
        "input_accepted",
        "superstep_completed",
        "paused",
        "responses_accepted",
        "superstep_completed",
        "completed",
    ]
    assert cp.pending_requests == []
    delivery = cp.snapshots[3].state["messages"]["pending"]["deliveries"][0]
    assert delivery["request"] == Question("t>start", ["y", "n"])


@every_place
async def test_c66_an_answer_survives_the_failure_of_its_handler(place: Place, ticks: Ticks) -> None:
    class FailsOnce(Ask):
        @response_handler
        async def on_answer(self, question: str, answer: str, ctx: WorkflowContext[str, str]) -> None:
            if self.ticks(f"{self.id}.answer") == 1:
                raise Boom
            await ctx.send_message(f"{question}={answer}")

    workflow = chain(FailsOnce("ask", ticks), Step("fin", ticks, final=True))
    cp = place.create(workflow)
    await workflow.run("t", checkpoint=cp)
    request_id = only_request(cp)
    with pytest.raises(Boom):
        await workflow.run(responses={request_id: "y"}, checkpoint=cp)
    cp = await place.reload()
    assert (cp.head_snapshot.boundary, cp.status) == ("responses_accepted", "in_progress")
    assert cp.pending_requests == []
    with pytest.raises(UnknownRequestError, match=request_id):
        await workflow.run(responses={request_id: "n"}, checkpoint=cp)
    result = await workflow.run(checkpoint=cp)
    assert result.get_outputs() == ["ask?t=y>fin"]
    assert ticks.all() == {"ask": 1, "ask.answer": 2, "fin": 1}


@every_place
async def test_c66_a_sync_executor_asks_and_is_answered_just_so(place: Place) -> None:
    class SyncAsk(Executor):
        @handler
        def on_text(self, text: str, ctx: SyncWorkflowContext[Any, Any]) -> None:
            ctx.request_info(text, int)

        @response_handler
        def on_answer(self, request: str, answer: int, ctx: SyncWorkflowContext[Any, Any]) -> None:
            ctx.yield_output((request, answer))

    workflow = chain(SyncAsk(id="ask"))
    cp = place.create(workflow)
    await workflow.run("t", checkpoint=cp)
    cp = await place.reload()
    result = await workflow.run(responses={only_request(cp): 5}, checkpoint=cp)
    assert result.get_outputs() == [("t", 5)]


@every_place
async def test_c66_the_handler_of_an_answer_is_the_one_for_its_types(place: Place) -> None:
    class Several(Executor):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[Any, Any]) -> None:
            await ctx.request_info(text, int)
            await ctx.request_info(text, str)
            await ctx.request_info(len(text), str)

        @response_handler
        async def text_int(self, request: str, answer: int, ctx: WorkflowContext[Any, Any]) -> None:
            await ctx.yield_output(("text_int", request, answer))

        @response_handler
        async def text_text(self, request: str, answer: str, ctx: WorkflowContext[Any, Any]) -> None:
            await ctx.yield_output(("text_text", request, answer))

        @response_handler
        async def int_text(self, request: int, answer: str, ctx: WorkflowContext[Any, Any]) -> None:
            await ctx.yield_output(("int_text", request, answer))

    workflow = chain(Several(id="ask"))
    cp = place.create(workflow)
    await workflow.run("t", checkpoint=cp)
    cp = await place.reload()
    one, two, three = open_ids(cp)
    for wrong in ({one: "5"}, {two: 5}, {three: 5}):
        with pytest.raises(InvalidResponseError):
            await workflow.run(responses=wrong, checkpoint=cp)
    result = await workflow.run(responses={one: 5, two: "a", three: "b"}, checkpoint=cp)
    assert result.get_outputs() == [("text_int", "t", 5), ("text_text", "t", "a"), ("int_text", 1, "b")]


# C67: answered questions that stay open, unknown ids that pass.


@every_place
@pytest.mark.parametrize("reload", [False, True])
async def test_c67_an_answered_question_is_closed_and_unknown_ids_are_refused(
    place: Place, ticks: Ticks, tmp_path: Path, reload: bool
) -> None:
    workflow = five_questions(ticks)
    cp = place.create(workflow)
    await workflow.run("q", checkpoint=cp)
    good, other = open_ids(cp)[:2]
    await workflow.run(responses={other: "y"}, checkpoint=cp)
    if reload:
        cp = await place.reload()

    async def refused(responses: Mapping[str, Any], *named: str) -> None:
        before, files, counted = bytes_of(cp), file_bytes(tmp_path), ticks.all()
        opened, head = open_ids(cp), cp.head_snapshot_id
        for stream in (False, True):
            running: Any = workflow.run(responses=responses, checkpoint=cp, stream=stream)
            with pytest.raises(UnknownRequestError) as caught:
                await (running.get_final_response() if stream else running)
            assert all(name in str(caught.value) for name in named)
        assert (bytes_of(cp), file_bytes(tmp_path), ticks.all()) == (before, files, counted)
        assert (open_ids(cp), cp.head_snapshot_id) == (opened, head)

    await refused({other: "y"}, other)
    await refused({"nope": "y"}, "nope")
    await refused({good: "y", "nope": "y"}, "nope")
    await refused({"nope": "y", good: "y"}, "nope")
    await refused({good: "y", other: "y"}, other)
    await refused({"": "y"}, "''")
    await workflow.run(responses=dict.fromkeys(open_ids(cp), "y"), checkpoint=cp)
    assert cp.status == "idle"
    assert pending(cp.head_snapshot) == {"deliveries": [], "requests": {}}
    if reload:
        cp = await place.reload()
    await refused({good: "y"}, good)
    await refused({"nope": "y"}, "nope")


@every_place
async def test_c67_a_checkpoint_with_nothing_pending_takes_no_answer(
    place: Place, ticks: Ticks, tmp_path: Path
) -> None:
    workflow = chain(Step("a", ticks), Step("b", ticks, final=True))
    new = place.create(workflow, "new")
    with pytest.raises(UnknownRequestError, match="nope"):
        await workflow.run(responses={"nope": 1}, checkpoint=new)
    assert new.snapshots == []
    done = place.create(workflow, "done")
    await workflow.run("t", checkpoint=done)
    before, files = bytes_of(done), file_bytes(tmp_path)
    with pytest.raises(UnknownRequestError, match="nope"):
        await workflow.run(responses={"nope": 1}, checkpoint=done)
    with pytest.raises(InvalidCallError):
        await workflow.run(responses={}, checkpoint=done)
    with pytest.raises(InvalidCallError):
        await workflow.run(responses={"nope": 1})
    assert (bytes_of(done), file_bytes(tmp_path)) == (before, files)
    assert ticks.all() == {"a": 1, "b": 1}


@every_place
async def test_c67_a_paused_checkpoint_takes_no_message(place: Place, ticks: Ticks, tmp_path: Path) -> None:
    workflow = five_questions(ticks)
    cp = place.create(workflow)
    await workflow.run("q", checkpoint=cp)
    before, files, counted = bytes_of(cp), file_bytes(tmp_path), ticks.all()
    with pytest.raises(PendingRequestsError) as caught:
        await workflow.run("new", checkpoint=cp)
    assert all(request_id in str(caught.value) for request_id in open_ids(cp))
    with pytest.raises(InvalidCallError):
        await workflow.run("new", responses={open_ids(cp)[0]: "y"}, checkpoint=cp)
    assert (bytes_of(cp), file_bytes(tmp_path), ticks.all()) == (before, files, counted)


@every_place
@pytest.mark.parametrize("reload", [False, True])
async def test_c67_an_answer_delivered_twice_under_one_input_id_acts_once(
    place: Place, ticks: Ticks, reload: bool
) -> None:
    workflow = five_questions(ticks)
    cp = place.create(workflow)
    await workflow.run("q", checkpoint=cp)
    answers: dict[str, Any] = {request_id: f"to {n}" for n, request_id in enumerate(open_ids(cp)[:3])}
    backwards = dict(reversed(answers.items()))
    first = await workflow.run(responses=backwards, checkpoint=cp, input_id="webhook-1")
    rest = dict.fromkeys(open_ids(cp), "rest")
    counted = ticks.all()
    for _ in range(2):
        if reload:
            cp = await place.reload()
        known = bytes_of(cp)
        for again in (backwards, answers):
            repeated = await workflow.run(responses=again, checkpoint=cp, input_id="webhook-1")
            assert repeated.get_outputs() == first.get_outputs()
        for other in ({**answers, next(iter(answers)): "another"}, dict(list(answers.items())[:2])):
            with pytest.raises(InputMismatchError, match="webhook-1"):
                await workflow.run(responses=other, checkpoint=cp, input_id="webhook-1")
        assert bytes_of(cp) == known
        assert ticks.all() == counted
    # And later, when it is no longer the latest input.
    await workflow.run(responses=rest, checkpoint=cp, input_id="webhook-2")
    if reload:
        cp = await place.reload()
    counted, known = ticks.all(), bytes_of(cp)
    for again in (backwards, answers):
        late = await workflow.run(responses=again, checkpoint=cp, input_id="webhook-1")
        assert late.get_outputs() == first.get_outputs()
    assert (ticks.all(), bytes_of(cp)) == (counted, known)


CONVERTED = (dict, str, list, int)


@every_place
@pytest.mark.parametrize("reload", [False, True])
@pytest.mark.parametrize("name", ["dataclass", "enum", "struct", "pydantic", "list", "datetime", "float"])
async def test_c67_so_does_an_answer_that_was_converted(place: Place, name: str, reload: bool) -> None:
    workflow = asking_for(name)
    cp = place.create(workflow)
    await workflow.run("q", checkpoint=cp)
    request_id = only_request(cp)
    given = next(raw for raw, arrives in DECLARED[name][1] if raw is not arrives and type(raw) in CONVERTED)
    first = await workflow.run(responses={request_id: given}, checkpoint=cp, input_id="webhook-1")
    known = bytes_of(cp)
    for _ in range(2):
        if reload:
            cp = await place.reload()
        repeated = await workflow.run(responses={request_id: given}, checkpoint=cp, input_id="webhook-1")
        assert repeated.get_outputs() == first.get_outputs()
    assert bytes_of(cp) == known
    await workflow.run("q2", checkpoint=cp)
    if reload:
        cp = await place.reload()
    for _ in range(2):
        repeated = await workflow.run(responses={request_id: given}, checkpoint=cp, input_id="webhook-1")
        assert repeated.get_outputs() == first.get_outputs()
    with pytest.raises(InputMismatchError, match="webhook-1"):
        await workflow.run(responses={request_id: "another"}, checkpoint=cp, input_id="webhook-1")


# C69: open questions that a new process does not hear of.


async def look_three_times(kind: str, folder: str, counted: str) -> list[dict[str, Any]]:
    cp = await place_of(kind, Path(folder)).reload()
    return await looked(questioning(Ticks(counted)), cp)


async def looked(workflow: Workflow, cp: Checkpoint) -> list[dict[str, Any]]:
    told = []
    for stream in (False, True) * 3:
        if stream:
            events = [event async for event in workflow.run(checkpoint=cp, stream=True)]
        else:
            result = await workflow.run(checkpoint=cp, include_status_events=True)
            assert result.get_final_state() is PAUSED
            assert [event.request_id for event in result.get_request_info_events()] == open_ids(cp)
            events = list(result)
        told.append(
            {
                "requests": [
                    [event.request_id, event.data.text, event.data.choices, event.source_executor_id]
                    for event in events
                    if event.type == "request_info"
                ],
                "types": [event.type for event in events],
                "states": [event.state.value for event in events if event.state is not None],
                "durable": [event.durable for event in events],
                "head": cp.head_snapshot_id,
                "count": len(cp.snapshots),
            }
        )
    return told


@every_place
async def test_c69_open_questions_are_told_again_each_time_and_once(place: Place, tmp_path: Path) -> None:
    counted = tmp_path / "ticks"
    workflow = questioning(Ticks(counted))
    cp = place.create(workflow)
    result = await workflow.run("t", checkpoint=cp)
    (asked,) = result.get_request_info_events()
    assert asked.durable
    before, ticked = bytes_of(cp), Ticks(counted).all()
    if place.kind.startswith("file"):
        told = in_new_process(look_three_times, place.kind, str(tmp_path), str(counted))
    else:
        told = await looked(questioning(Ticks(counted)), await place.reload())
    assert len(told) == 6
    for one in told:
        assert one == {
            "requests": [[asked.request_id, "t>start", ["y", "n"], "ask"]],
            "types": ["request_info", "status"],
            "states": ["idle_with_pending_requests"],
            "durable": [True, True],
            "head": cp.head_snapshot_id,
            "count": 3,
        }
    assert Ticks(counted).all() == ticked
    assert bytes_of(await place.reload()) == before
    assert await looked(questioning(Ticks(counted)), cp) == told


@every_place
@pytest.mark.parametrize("reload", [False, True])
async def test_c69_unfinished_work_tells_its_open_questions_before_it_goes_on(
    place: Place, ticks: Ticks, reload: bool
) -> None:
    builder = WorkflowBuilder(name="w", start_executor=Step("src", ticks))
    builder.add_fan_out_edges("src", [Ask("ask", ticks, final=True), Step("b1", ticks)])
    workflow = builder.add_edge("b1", BoomOnce("b2", ticks, final=True)).build()
    cp = place.create(workflow)
    with pytest.raises(Boom):
        await workflow.run("t", checkpoint=cp)
    assert cp.status == "in_progress"
    request_id = only_request(cp)
    if reload:
        cp = await place.reload()
    events = [event async for event in workflow.run(checkpoint=cp, stream=True)]
    told = [event for event in events if event.type == "request_info"]
    assert [event.request_id for event in told] == [request_id]
    assert events.index(told[0]) < next(
        n for n, event in enumerate(events) if event.type == "executor_invoked"
    )
    assert (cp.status, open_ids(cp)) == ("idle_with_pending_requests", [request_id])
    result = await workflow.run(responses={request_id: "y"}, checkpoint=cp)
    assert sorted(result.get_outputs()) == ["t>src>ask=y", "t>src>b1>b2"]
    assert ticks.all() == {"src": 1, "ask": 1, "b1": 1, "b2": 2, "ask.answer": 1}


@every_place
@pytest.mark.parametrize("reload", [False, True])
async def test_c69_unfinished_work_takes_the_answer_to_a_question_that_is_open(
    place: Place, ticks: Ticks, reload: bool
) -> None:
    builder = WorkflowBuilder(name="w", start_executor=Step("src", ticks))
    builder.add_fan_out_edges("src", [Ask("ask", ticks, final=True), Step("b1", ticks)])
    workflow = builder.add_edge("b1", BoomOnce("b2", ticks, final=True)).build()
    cp = place.create(workflow)
    with pytest.raises(Boom):
        await workflow.run("t", checkpoint=cp)
    if reload:
        cp = await place.reload()
    result = await workflow.run(responses={only_request(cp): "y"}, checkpoint=cp)
    assert sorted(result.get_outputs()) == ["t>src>ask=y", "t>src>b1>b2"]
    assert (cp.status, cp.pending_requests) == ("idle", [])
    assert ticks.all() == {"src": 1, "ask": 1, "b1": 1, "b2": 2, "ask.answer": 1}


# C70: two askers, one of whom asks twice in a row.


class AskTwice(Executor):
    """Asks A1, and A2 once A1 is answered; then sends both answers on."""

    answers: list[str] = state(factory=list)

    def __init__(self, id: str, ticks: Ticks) -> None:
        super().__init__(id=id)
        self.ticks = ticks

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, Any]) -> None:
        self.ticks(self.id)
        await ctx.request_info("A1", str)

    @response_handler
    async def on_answer(self, question: str, answer: str, ctx: WorkflowContext[str, Any]) -> None:
        self.ticks(question)
        self.answers.append(f"{question}={answer}")
        if question == "A1":
            await ctx.request_info("A2", str)
        else:
            await ctx.send_message(" ".join(self.answers))


class AskB(AskTwice):
    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, Any]) -> None:
        self.ticks(self.id)
        await ctx.request_info("B", str)


def two_askers(ticks: Ticks) -> Workflow:
    return fan(Step("src", ticks), [AskTwice("a", ticks), AskB("b", ticks)], Join("j", ticks))


ORDERS = [
    [["A1"], ["A2"], ["B"]],
    [["A1"], ["B"], ["A2"]],
    [["B"], ["A1"], ["A2"]],
    [["A1", "B"], ["A2"]],
    [["A1"], ["A2", "B"]],
]


@every_place
@pytest.mark.parametrize("reload", [False, True])
@pytest.mark.parametrize("order", ORDERS, ids=lambda order: " ".join("+".join(call) for call in order))
async def test_c70_each_question_is_asked_once_whatever_the_order_of_the_answers(
    place: Place, ticks: Ticks, order: list[list[str]], reload: bool
) -> None:
    workflow = two_askers(ticks)
    cp = place.create(workflow)
    result = await workflow.run("t", checkpoint=cp)
    announced = [event for event in result if event.type == "request_info" and event.durable]
    assert list(by_question(cp)) == ["A1", "B"]
    remaining = {"A1", "B"}
    for call in order:
        if reload:
            cp, workflow = await place.reload(), two_askers(ticks)
        ids = by_question(cp)
        assert set(ids) == remaining
        result = await workflow.run(responses={ids[q]: q.lower() for q in call}, checkpoint=cp)
        announced += [event for event in result if event.type == "request_info" and event.durable]
        remaining -= set(call)
        if "A1" in call:
            remaining.add("A2")
        assert {event.data for event in result.get_request_info_events()} == remaining
        assert result.get_final_state() is (PAUSED if remaining else WorkflowRunState.IDLE)
    assert result.get_outputs() == [["A1=a1 A2=a2", "B=b"]]
    assert sorted(event.data for event in announced) == ["A1", "A2", "B"]
    assert len({event.request_id for event in announced}) == 3
    assert ticks.all() == {"src": 1, "a": 1, "b": 1, "A1": 1, "A2": 1, "B": 1, "j": 1}
    told = [event for event in (await place.reload()).events() if event.type == "request_info"]
    assert [event.event_id for event in told] == [event.event_id for event in announced]


async def answer_one(kind: str, folder: str, counted: str, question: str) -> dict[str, Any]:
    cp = await place_of(kind, Path(folder)).reload()
    workflow = two_askers(Ticks(counted))
    result = await workflow.run(responses={by_question(cp)[question]: question.lower()}, checkpoint=cp)
    return {"open": sorted(by_question(cp)), "outputs": result.get_outputs()}


@every_file
async def test_c70_three_processes_answer_one_question_each(place: Place, tmp_path: Path) -> None:
    counted = tmp_path / "ticks"
    workflow = two_askers(Ticks(counted))
    await workflow.run("t", checkpoint=place.create(workflow))
    told = [in_new_process(answer_one, place.kind, str(tmp_path), str(counted), q) for q in ("A1", "A2", "B")]
    assert [one["open"] for one in told] == [["A2", "B"], ["B"], []]
    assert told[-1]["outputs"] == [["A1=a1 A2=a2", "B=b"]]
    assert Ticks(counted).all() == {"src": 1, "a": 1, "b": 1, "A1": 1, "A2": 1, "B": 1, "j": 1}


@every_storage
async def test_c70_of_two_who_answer_at_once_one_conflicts_before_it_acts(place: Place, ticks: Ticks) -> None:
    workflow = chain(Ask("ask", ticks), Step("fin", ticks, final=True))
    await workflow.run("t", checkpoint=place.create(workflow))
    copies = [await place.reload() for _ in range(4)]
    results = await asyncio.gather(
        *(workflow.run(responses={only_request(cp): f"{n}"}, checkpoint=cp) for n, cp in enumerate(copies)),
        return_exceptions=True,
    )
    won = [one for one in results if not isinstance(one, BaseException)]
    assert [type(one) for one in results if isinstance(one, BaseException)] == [CheckpointConflictError] * 3
    assert len(won) == 1
    assert ticks.all() == {"ask": 1, "ask.answer": 1, "fin": 1}
    assert [record.value for record in (await place.reload()).outputs()] == won[0].get_outputs()


async def test_c70_answers_given_together_are_delivered_in_the_order_of_the_requests() -> None:
    class InOrder(Many):
        got: list[str] = state(factory=list)

        @response_handler
        async def on_answer(self, request: str, answer: str, ctx: WorkflowContext[Any, Any]) -> None:
            self.got.append(answer)
            if len(self.got) == 3:
                await ctx.yield_output(self.got)

    workflow = chain(InOrder("ask", Ticks()))
    for order in itertools.permutations(range(3)):
        cp = workflow.create_checkpoint()
        await workflow.run("t", checkpoint=cp)
        ids = open_ids(cp)
        result = await workflow.run(responses={ids[n]: f"{n}" for n in order}, checkpoint=cp)
        assert result.get_outputs() == [["0", "1", "2"]]


# C71: a paused run is neither failed nor completed.


def waiting(ticks: Ticks, joined: str) -> Workflow:
    b1, b2 = Step("b1", ticks), Step("b2", ticks)
    ask, join = Ask("ask", ticks), Join("j", ticks)
    builder = WorkflowBuilder(name="w", start_executor=Step("src", ticks)).add_fan_out_edges("src", [ask, b1])
    return builder.add_edge(b1, b2).add_fan_in_edges([ask, joined], join).build()


@every_place
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("joined", ["b1", "b2"])
async def test_c71_a_paused_run_waits_and_only_what_waits_has_not_run(
    place: Place, ticks: Ticks, joined: str, stream: bool
) -> None:
    workflow = waiting(ticks, joined)
    cp = place.create(workflow)
    running: Any = workflow.run("t", checkpoint=cp, stream=stream, include_status_events=True)
    result = await (running.get_final_response() if stream else running)
    assert ticks.all() == {"src": 1, "ask": 1, "b1": 1, "b2": 1}
    assert result.get_final_state() is PAUSED
    types = [event.type for event in result]
    assert not {"failed", "error", "executor_failed", "incomplete_join", "warning"} & set(types)
    assert types[-1] == "status"
    states = [event.state for event in result.status_timeline()]
    assert states == [WorkflowRunState.IN_PROGRESS, PAUSED]
    ran = [event.executor_id for event in result if event.type == "executor_completed"]
    assert ran == ["src", "ask", "b1", "b2"]
    assert types.count("request_info") == 1
    for one in (cp, await place.reload()):
        assert one.status == one.head_snapshot.status == "idle_with_pending_requests"
        assert one.head_snapshot.boundary == "paused"
        assert one.head_snapshot.state["workflow_state"]["status"] == "idle_with_pending_requests"
        assert one.head_snapshot.plain_state()["workflow_state"]["status"] == "idle_with_pending_requests"
        assert [snapshot.status for snapshot in one.snapshots] == [
            *["in_progress"] * 3,
            "idle_with_pending_requests",
        ]
        told = [event for event in one.events() if event.type == "status"]
        assert [event.state for event in told] == [PAUSED]
        assert pending(one.head_snapshot)["deliveries"] == []
        assert [edge["received"] for edge in one.head_snapshot.state["edge_states"].values()] == [
            {joined: ["t>src>b1"] if joined == "b1" else ["t>src>b1>b2"]}
        ]
        assert one.outputs() == []
    cp = await place.reload()
    done = await workflow.run(responses={only_request(cp): "y"}, checkpoint=cp)
    assert done.get_final_state() is WorkflowRunState.IDLE
    assert done.get_outputs() == [["t>src>ask=y", "t>src>b1" if joined == "b1" else "t>src>b1>b2"]]
    assert ticks.all() == {"src": 1, "ask": 1, "b1": 1, "b2": 1, "ask.answer": 1, "j": 1}
    assert (await place.reload()).status == "idle"


async def test_c71_a_one_shot_run_stops_at_its_question_and_says_that_it_cannot_be_answered(
    ticks: Ticks,
) -> None:
    workflow = waiting(ticks, "b1")
    result = await workflow.run("t")
    assert result.get_final_state() is PAUSED
    (asked,) = result.get_request_info_events()
    assert (asked.data, asked.durable, asked.event_id) == ("ask?t>src", False, None)
    warnings = [event for event in result if event.type == "warning"]
    assert len(warnings) == 1
    assert "checkpoint" in str(warnings[0].data)
    assert not any(event.durable for event in result)
    with pytest.raises(BranchpointError):
        await workflow.run(responses={asked.request_id: "y"})
    assert ticks.all() == {"src": 1, "ask": 1, "b1": 1, "b2": 1}


# R54: the whole way, over processes.


async def ask_all(kind: str, folder: str, counted: str) -> list[str]:
    place = place_of(kind, Path(folder))
    workflow = two_askers(Ticks(counted))
    await workflow.run("t", checkpoint=place.create(workflow), input_id="in-1")
    return open_ids(await place.reload())


@every_file
async def test_r54_questions_are_pending_messages_that_any_process_can_answer(
    place: Place, tmp_path: Path
) -> None:
    counted = tmp_path / "ticks"
    asked = in_new_process(ask_all, place.kind, str(tmp_path), str(counted))
    # Here no workflow is needed to see what is asked.
    cp = await place.reload()
    assert open_ids(cp) == asked
    assert list(pending(cp.head_snapshot)["requests"]) == asked
    assert list(cp.head_snapshot.manifest.requests) == asked
    assert [
        (one.source_executor_id, one.data, one.plain_data, one.input_id, one.snapshot_id, one.path)
        for one in cp.pending_requests
    ] == [
        ("a", "A1", "A1", "in-1", cp.head_snapshot_id, ()),
        ("b", "B", "B", "in-1", cp.head_snapshot_id, ()),
    ]
    assert [(one.request_type, one.response_type) for one in cp.pending_requests] == [("str", "str")] * 2
    assert [one.response_schema for one in cp.pending_requests] == [{"type": "string"}] * 2
    told = in_new_process(answer_one, place.kind, str(tmp_path), str(counted), "B")
    assert told == {"open": ["A1"], "outputs": []}
    cp = await place.reload()
    assert open_ids(cp) == asked[:1]
    workflow = two_askers(Ticks(counted))
    await workflow.run(responses={asked[0]: "a1"}, checkpoint=cp)
    told = in_new_process(answer_one, place.kind, str(tmp_path), str(counted), "A2")
    assert told == {"open": [], "outputs": [["A1=a1 A2=a2", "B=b"]]}
    cp = await place.reload()
    assert (cp.status, cp.pending_requests) == ("idle", [])
    assert [record.value for record in cp.outputs()] == [["A1=a1 A2=a2", "B=b"]]
    assert Ticks(counted).all() == {"src": 1, "a": 1, "b": 1, "A1": 1, "A2": 1, "B": 1, "j": 1}


@every_place
async def test_r54_a_question_keeps_its_id_in_every_snapshot_it_is_open_in(place: Place) -> None:
    workflow = two_askers(Ticks())
    cp = place.create(workflow)
    await workflow.run("t", checkpoint=cp)
    (a1, b) = open_ids(cp)
    await workflow.run(responses={a1: "a1"}, checkpoint=cp)
    cp = await place.reload()
    held = [list(pending(one)["requests"]) for one in cp.snapshots]
    a2 = open_ids(cp)[1]
    assert held == [[], [], [a1, b], [b], [b, a2]]
    assert [list(one.manifest.requests) for one in cp.snapshots] == held
