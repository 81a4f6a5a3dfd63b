"""Questions from inside of a child: answered by an executor of the parent, or by the caller."""

from __future__ import annotations

from typing import Any

import pytest

from branchpoint import (
    Executor,
    HandlerError,
    InvalidResponseError,
    PendingRequestsError,
    SubWorkflowRequestMessage,
    SubWorkflowResponseMessage,
    UnknownRequestError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    WorkflowExecutor,
    handler,
    response_handler,
)
from tests.scenario.kit import (
    Ask,
    Boom,
    BoomOnce,
    Place,
    Step,
    Ticks,
    chain,
    every_place,
    only_request,
    pending,
)
from tests.scenario.nests import around, behind, beside, inside, lawful, nested


class Desk(Executor):
    """Answers what it knows, and asks the caller for the rest; passes results on as outputs."""

    def __init__(self, ticks: Ticks, known: dict[str, Any] | None = None) -> None:
        super().__init__(id="desk")
        self.ticks = ticks
        self.known = known or {}

    @handler
    async def on_question(
        self, question: SubWorkflowRequestMessage, ctx: WorkflowContext[SubWorkflowResponseMessage]
    ) -> None:
        self.ticks("desk")
        if question.source_event.data in self.known:
            answer = self.known[question.source_event.data]
            await ctx.send_message(question.create_response(answer), target_id=question.executor_id)
        else:
            await ctx.request_info(question, str)

    @response_handler
    async def on_answer(
        self,
        question: SubWorkflowRequestMessage,
        answer: str,
        ctx: WorkflowContext[SubWorkflowResponseMessage],
    ) -> None:
        await ctx.send_message(question.create_response(answer), target_id=question.executor_id)

    @handler
    async def on_result(self, text: str, ctx: WorkflowContext[Any, str]) -> None:
        await ctx.yield_output(f"{text}>desk")


def at_a_desk(child: Workflow, desk: Executor, **more: Any) -> Workflow:
    kid = WorkflowExecutor(child, "kid", **more)
    builder = WorkflowBuilder(name="parent", start_executor=kid)
    return builder.add_edge(kid, desk).add_edge(desk, kid).build()


def asking(ticks: Ticks) -> Workflow:
    return chain(Step("a", ticks), Ask("q1", ticks), Ask("q2", ticks, final=True), name="child")


DONE = "x>a>q1=one>q2=two>desk"
KNOWN = {"q1?x>a": "one", "q2?x>a>q1=one": "two"}


@every_place
@pytest.mark.parametrize("stored", [True, False])
async def test_r51_an_executor_of_the_parent_answers(place: Place, ticks: Ticks, stored: bool) -> None:
    workflow = at_a_desk(asking(ticks), Desk(ticks, KNOWN))
    checkpoint = place.create(workflow) if stored else None
    result = await workflow.run("x", checkpoint=checkpoint)
    assert result.get_outputs() == [DONE]
    assert [event for event in result if event.type == "request_info"] == []
    assert ticks.all() == {"a": 1, "q1": 1, "q1.answer": 1, "q2": 1, "q2.answer": 1, "desk": 2}
    if checkpoint is not None:
        assert checkpoint.status == "idle"
        await lawful(place, checkpoint)


class Unkept:
    """Can be copied, and cannot be stored."""


class AsksWith(Executor):
    """Takes what cannot be stored."""

    @handler
    async def on_value(self, value: Unkept, ctx: WorkflowContext[str, str]) -> None:
        await ctx.request_info("known?", str)

    @response_handler
    async def on_answer(self, question: str, answer: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(answer)


async def test_r51_without_a_checkpoint_nothing_of_that_is_encoded(ticks: Ticks) -> None:
    child = WorkflowBuilder(name="child", start_executor=AsksWith(id="asks")).build()
    result = await at_a_desk(child, Desk(ticks, {"known?": "yes"})).run(Unkept())
    assert result.get_outputs() == ["yes>desk"]


@every_place
async def test_r51_what_it_does_not_know_it_asks_the_caller(place: Place, ticks: Ticks) -> None:
    workflow = at_a_desk(asking(ticks), Desk(ticks, {"q1?x>a": "one"}))
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    checkpoint = await place.reload()
    (request,) = checkpoint.pending_requests
    assert (request.source_executor_id, request.path) == ("desk", ())
    event = request.data.source_event
    assert (event.data, event.source_executor_id, event.path) == ("q2?x>a>q1=one", "q2", ("kid",))
    result = await workflow.run(responses={request.request_id: "two"}, checkpoint=checkpoint)
    assert result.get_outputs() == [DONE]
    await lawful(place, checkpoint)


@every_place
async def test_r51_every_boundary_of_that_can_be_gone_back_to(place: Place, ticks: Ticks) -> None:
    workflow = at_a_desk(asking(ticks), Desk(ticks, KNOWN))
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    for snapshot in checkpoint.snapshots[:-1]:
        checkpoint = await place.reload()
        checkpoint.restart_from(snapshot.snapshot_id)
        assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == [DONE]
    await lawful(place, checkpoint)


@every_place
async def test_r51_a_child_can_be_told_to_ask_the_caller_always(place: Place, ticks: Ticks) -> None:
    workflow = at_a_desk(asking(ticks), Desk(ticks, KNOWN), propagate_request=True)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    assert [request.path for request in checkpoint.pending_requests] == [("kid",)]
    assert ticks["desk"] == 0


class Anything(Step):
    """Takes what comes."""

    @handler
    async def on_text(self, value: Any, ctx: WorkflowContext[str, Any]) -> None:
        self.ticks(self.id)
        await ctx.yield_output(value)


async def test_r51_one_that_takes_anything_does_not_get_questions(ticks: Ticks) -> None:
    kid = WorkflowExecutor(chain(Ask("ask", ticks, final=True), name="child"), "kid")
    workflow = chain(kid, Anything("any", ticks), name="parent")
    checkpoint = workflow.create_checkpoint()
    await workflow.run("x", checkpoint=checkpoint)
    assert ticks["any"] == 0
    result = await workflow.run(responses={only_request(checkpoint): "yes"}, checkpoint=checkpoint)
    assert result.get_outputs() == ["x>ask=yes"]


@pytest.mark.parametrize("lets", [True, False])
async def test_r51_a_condition_decides_who_answers(ticks: Ticks, lets: bool) -> None:
    kid, desk = WorkflowExecutor(asking(ticks), "kid"), Desk(ticks, KNOWN)

    def let(message: Any) -> bool:
        return lets or not isinstance(message, SubWorkflowRequestMessage)

    builder = WorkflowBuilder(name="parent", start_executor=kid)
    workflow = builder.add_edge(kid, desk, let).add_edge(desk, kid).build()
    checkpoint = workflow.create_checkpoint()
    await workflow.run("x", checkpoint=checkpoint)
    assert (checkpoint.status == "idle") is lets
    assert [request.path for request in checkpoint.pending_requests] == ([] if lets else [("kid",)])


@every_place
async def test_r51_a_grandparent_answers(place: Place, ticks: Ticks) -> None:
    mid = WorkflowBuilder(name="mid", start_executor=WorkflowExecutor(asking(ticks), "kid", True)).build()
    kid = WorkflowExecutor(mid, "mid")
    desk = Desk(ticks, KNOWN)
    workflow = WorkflowBuilder(name="top", start_executor=kid).add_edge(kid, desk).add_edge(desk, kid).build()
    checkpoint = place.create(workflow)
    assert (await workflow.run("x", checkpoint=checkpoint)).get_outputs() == [DONE]
    assert ticks["desk"] == 2
    await lawful(place, checkpoint)


# Overlapping calls, of which one asks the parent and another one the caller.


@every_place
async def test_r51_answers_find_the_right_one_of_several_calls(place: Place, ticks: Ticks) -> None:
    class Calls(Step):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            for name in "xy":
                await ctx.send_message(name)

    calls = Calls("calls", ticks)
    kid, desk = WorkflowExecutor(asking(ticks), "kid"), Desk(ticks, KNOWN)
    builder = WorkflowBuilder(name="parent", start_executor=calls)
    workflow = builder.add_edge(calls, kid).add_edge(kid, desk).add_edge(desk, kid).build()
    checkpoint = place.create(workflow)
    result = await workflow.run("go", checkpoint=checkpoint)
    assert result.get_outputs() == [DONE]
    for question, answer in [("q1?y>a", "1"), ("q2?y>a>q1=1", "2")]:
        checkpoint = await place.reload()
        (request,) = checkpoint.pending_requests
        assert request.data.source_event.data == question
        result = await workflow.run(responses={request.request_id: answer}, checkpoint=checkpoint)
    assert result.get_outputs() == [DONE, "y>a>q1=1>q2=2>desk"]
    await lawful(place, checkpoint)


# Answers of the caller beside work that is not done.


@every_place
async def test_r51_an_answer_may_come_while_another_call_is_in_the_middle(place: Place, ticks: Ticks) -> None:
    """A call waits for the caller, the next one of the same child fails half way, and then the answer comes."""

    class Ways(Step):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            self.ticks(self.id)
            if text.startswith("ask"):
                await ctx.request_info(text, str)
            else:
                await ctx.send_message(text)

        @response_handler
        async def on_answer(self, asked: str, answer: str, ctx: WorkflowContext[str, str]) -> None:
            await ctx.yield_output(f"{asked}={answer}")

    child = chain(Ways("ways", ticks), BoomOnce("boom", ticks, final=True), name="child")

    class Two(Step):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            await ctx.send_message("ask", "kid")
            await ctx.send_message("later", "again")

    class Again(Step):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            await ctx.send_message(text)

    two, again, kid = Two("two", ticks), Again("again", ticks), WorkflowExecutor(child, "kid")
    end = Step("end", ticks, final=True)
    builder = WorkflowBuilder(name="parent", start_executor=two)
    workflow = builder.add_edge(two, kid).add_edge(two, again).add_edge(again, kid).add_edge(kid, end).build()
    checkpoint = place.create(workflow)
    with pytest.raises(Boom, match="boom got later"):
        await workflow.run("go", checkpoint=checkpoint)
    checkpoint = await place.reload()
    assert checkpoint.status == "in_progress"
    request = only_request(checkpoint)
    result = await workflow.run(responses={request: "yes"}, checkpoint=checkpoint)
    assert sorted(result.get_outputs()) == ["ask=yes>end", "later>boom>end"]
    assert ticks["ways"] == 2
    await lawful(place, checkpoint)


# Wrong answers.


@every_place
@pytest.mark.parametrize("depth", [1, 2])
async def test_r51_a_wrong_answer_takes_nothing(place: Place, ticks: Ticks, depth: int) -> None:
    workflow = nested(chain(Ask("ask", ticks, final=True), name="child"), ticks, depth)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    request, head = only_request(checkpoint), checkpoint.head_snapshot_id
    with pytest.raises(InvalidResponseError, match="of executor 'ask' must be str, got int"):
        await workflow.run(responses={request: 3}, checkpoint=checkpoint)
    with pytest.raises(UnknownRequestError):
        await workflow.run(responses={"other": "yes"}, checkpoint=checkpoint)
    with pytest.raises(PendingRequestsError):
        await workflow.run("y", checkpoint=checkpoint)
    assert checkpoint.head_snapshot_id == head
    result = await workflow.run(responses={request: "yes"}, checkpoint=checkpoint)
    assert result.get_outputs() == [behind("x>ask=yes", depth)]


class Twice(Desk):
    """Answers every question twice, or with the wrong thing."""

    def __init__(self, ticks: Ticks, answers: list[Any]) -> None:
        super().__init__(ticks)
        self.answers = answers

    @handler
    async def on_question(
        self, question: SubWorkflowRequestMessage, ctx: WorkflowContext[SubWorkflowResponseMessage]
    ) -> None:
        for answer in self.answers:
            await ctx.send_message(SubWorkflowResponseMessage(answer, question.source_event))


async def test_r51_a_second_answer_of_the_parent_is_an_error(ticks: Ticks) -> None:
    child = chain(Ask("ask", ticks, final=True), name="child")
    workflow = at_a_desk(child, Twice(ticks, ["one"]))
    assert (await workflow.run("x")).get_outputs() == ["x>ask=one>desk"]
    checkpoint = workflow.create_checkpoint()
    stale: Any = SubWorkflowResponseMessage("late", WorkflowEvent("request_info", "?", request_id="r-1"))
    with pytest.raises(UnknownRequestError, match="answer to request 'r-1', which no execution") as raised:
        await workflow.run(stale, checkpoint=checkpoint)
    assert any("executor 'kid'" in text for text in raised.value.__notes__)


async def test_r51_a_wrong_answer_of_the_parent_is_an_error(ticks: Ticks) -> None:
    child = chain(Ask("ask", ticks, final=True), name="child")
    workflow = at_a_desk(child, Twice(ticks, [3]))
    with pytest.raises(InvalidResponseError, match="of executor 'ask' must be str, got int"):
        await workflow.run("x")
    event = WorkflowEvent("request_info", "?", request_id="r", source_executor_id="ask", response_type="str")
    with pytest.raises(InvalidResponseError, match="request 'r' of executor 'ask' must be str, got int"):
        SubWorkflowRequestMessage(event, "kid").create_response(3)


class Named(Ask):
    """Asks under an id of its own."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.request_info(f"?{text}", str, request_id="mine")


@every_place
async def test_r51_an_id_of_ones_own_is_kept(place: Place, ticks: Ticks) -> None:
    workflow = nested(chain(Named("ask", ticks, final=True), name="child"), ticks, 2)
    checkpoint = place.create(workflow)
    await workflow.run("x", checkpoint=checkpoint)
    assert only_request(checkpoint) == "mine"
    result = await workflow.run(responses={"mine": "yes"}, checkpoint=checkpoint)
    assert result.get_outputs() == [behind("x>ask=yes", 2)]


async def test_r51_two_of_one_id_are_refused(ticks: Ticks) -> None:
    child = chain(Named("ask", ticks, final=True), name="child")
    workflow = beside([WorkflowExecutor(child, "one"), WorkflowExecutor(child, "two")], ticks)
    with pytest.raises(HandlerError, match="under the request id 'mine', which is open already"):
        await workflow.run("x", checkpoint=workflow.create_checkpoint())


async def test_r51_a_question_that_nobody_answered_waits_in_the_child(ticks: Ticks) -> None:
    workflow = at_a_desk(chain(Ask("ask", ticks, final=True), name="child"), Twice(ticks, []))
    checkpoint = workflow.create_checkpoint()
    await workflow.run("x", checkpoint=checkpoint)
    assert checkpoint.status == "idle"
    assert pending(checkpoint.head_snapshot)["requests"] == {}
    assert len(inside(checkpoint, *around(1))["messages"]["pending"]["requests"]) == 1
