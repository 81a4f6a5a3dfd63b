"""Cases of users whose values were one object in two places: C01 to C06, and two faults of public fame."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from branchpoint import (
    CheckpointConflictError,
    Executor,
    ExecutorStateError,
    Factory,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowEvent,
    executor,
    handler,
    register_state_type,
    response_handler,
    scratch,
    state,
)
from branchpoint.errors import UnsupportedValueError
from branchpoint.graph import SyncWorkflowContext
from tests.scenario.kit import (
    Ask,
    Boom,
    Place,
    Step,
    Ticks,
    bytes_of,
    chain,
    every_place,
    every_storage,
    fan,
    only_request,
    shared,
    workflow_picture,
)


@register_state_type("scenario.isolation.basket")
@dataclass
class Basket:
    """A mutable value of a registered type."""

    items: list[str] = field(default_factory=list)


@dataclass
class Loose:
    """A mutable value of a type nobody registered."""

    items: list[str] = field(default_factory=list)


# C01: the caller's object, the executor's and the stored one.


class Mut(Executor):
    """Edits its message in place, forwards it, and goes on editing."""

    @handler
    async def on_list(self, items: list[str], ctx: WorkflowContext[list[str]]) -> None:
        items.append("X")
        await ctx.send_message(items)
        items.append("after the send")


class Echo(Executor):
    """Yields its message and forwards it, and goes on editing it."""

    @handler
    async def on_list(self, items: list[str], ctx: WorkflowContext[list[str], list[str]]) -> None:
        await ctx.yield_output(items)
        await ctx.send_message(items)
        items.append("after the yield")


@every_place
async def test_c01_an_edit_by_caller_or_executor_shows_nowhere_else(place: Place) -> None:
    workflow = chain(Mut(id="mut"), Echo(id="echo"))
    cp = place.create(workflow)
    given = ["a"]
    result = await workflow.run(given, checkpoint=cp)
    assert given == ["a"]
    before = bytes_of(cp)
    given.append("Z")
    assert given == ["a", "Z"]
    assert bytes_of(cp) == before
    entered, forwarded, done = cp.snapshots
    assert entered.state["messages"]["input"]["value"] == ["a"]
    assert entered.state["messages"]["pending"]["deliveries"][0]["value"] == ["a"]
    assert forwarded.state["messages"]["pending"]["deliveries"][0]["value"] == ["a", "X"]
    assert done.state["messages"]["input"]["value"] == ["a"]
    assert result.get_outputs() == [["a", "X"]]
    loaded = await place.reload()
    assert bytes_of(loaded) == before
    assert [record.value for record in loaded.outputs()] == [["a", "X"]]


@every_place
async def test_c01_nothing_that_is_read_reaches_what_is_stored(place: Place) -> None:
    workflow = chain(Mut(id="mut"), Echo(id="echo"))
    cp = place.create(workflow, metadata={"owner": "ann"})
    result = await workflow.run(["a"], checkpoint=cp, metadata={"tags": ["t"]})
    before = bytes_of(cp)
    outputs = [event for event in result if event.type == "output"]
    for value in (
        result.get_outputs()[0],
        outputs[0].data,
        cp.outputs()[0].value,
        cp.outputs()[0].plain_value,
        cp.head_snapshot.state["messages"]["output"][0]["value"],
        cp.head_snapshot.plain_state()["messages"]["output"][0]["value"],
        cp.head_snapshot.metadata["tags"],
        cp.head_snapshot.manifest.metadata["tags"],
        next(event for event in cp.events() if event.type == "output").data,
    ):
        assert value in (["a", "X"], ["t"])
        value.append("edited by the reader")
    cp.metadata["owner"] = "eve"
    cp.header.metadata["owner"] = "eve"
    cp.header.signature.clear()
    cp.snapshots.clear()
    assert bytes_of(cp) == before
    assert cp.metadata == {"owner": "ann"}
    assert result.get_outputs() == [["a", "X"]]
    assert [record.value for record in cp.outputs()] == [["a", "X"]]
    again = await workflow.run(checkpoint=await place.reload())
    assert again.get_outputs() == [["a", "X"]]


@every_place
@pytest.mark.parametrize(
    "make",
    [
        lambda: Basket(["a"]),
        lambda: {"in": (["a"], "beside")},
        lambda: {"in": [["a"]], "k": Basket(["k"])},
    ],
    ids=["registered", "inside a tuple", "inside a dict"],
)
async def test_c01_values_of_every_shape_cross_every_boundary_by_value(
    place: Place, make: Callable[[], Any]
) -> None:
    kept: list[Any] = []

    def edit(value: Any) -> None:
        inside = value.items if isinstance(value, Basket) else value["in"][0]
        assert inside == ["a"], "somebody else's edit is seen"
        inside.append("edited")
        kept.append(value)

    class Editor(Executor):
        """Edits what it gets after it has handed it on, in each of the ways to hand something on."""

        mine: Any = state(None)

        @handler(input=object)
        async def on_any(self, value: Any, ctx: WorkflowContext[Any, Any]) -> None:
            self.mine = make()
            ctx.set_state("key", value)
            await ctx.yield_output(value)
            await ctx.request_info(value, str)
            await ctx.send_message(value)
            await ctx.add_event(WorkflowEvent("data", value))
            ctx.set_state("key", value)
            edit(value)
            ctx.set_state("edited", value)

        @response_handler(request=object, response=str)
        async def on_answer(self, request: Any, answer: str, ctx: WorkflowContext[Any, Any]) -> None:
            edit(request)

    class Reader(Executor):
        @handler(input=object)
        async def on_any(self, value: Any, ctx: WorkflowContext[Any, Any]) -> None:
            edit(value)
            edit(copied := ctx.get_state("key"))
            ctx.set_state("key2", copied)
            ctx.set_state("key", make())

    workflow = chain(Editor(id="editor"), Reader(id="reader"))
    cp = place.create(workflow)
    given = make()
    result = await workflow.run(given, checkpoint=cp)
    assert given == make()
    edit(given)
    before = bytes_of(cp)
    for event in result:
        if event.type in ("data", "output", "request_info"):
            edit(event.data)
    for value in (
        result.get_outputs()[0],
        cp.pending_requests[0].data,
        cp.outputs()[0].value,
        shared(cp.head_snapshot)["key"],
        cp.head_snapshot.state["executor_states"]["editor"]["mine"],
        cp.head_snapshot.state["messages"]["input"]["value"],
        cp.snapshots[1].state["messages"]["pending"]["deliveries"][0]["value"],
    ):
        edit(value)
    assert bytes_of(cp) == before
    cp = await place.reload()
    assert bytes_of(cp) == before
    await workflow.run(responses={only_request(cp): "yes"}, checkpoint=cp)
    assert {key: data for key, data in bytes_of(cp).items() if key in before} == before
    assert len({id(value) for value in kept}) == len(kept)


async def test_c01_the_same_holds_for_a_one_shot_run_and_unregistered_types() -> None:
    seen: list[Any] = []

    class First(Executor):
        @handler
        async def on_loose(self, loose: Loose, ctx: WorkflowContext[Loose, Loose]) -> None:
            loose.items.append("X")
            await ctx.send_message(loose)
            await ctx.yield_output(loose)
            ctx.set_state("key", loose)
            loose.items.append("late")
            ctx.set_state("key", loose)

    class Second(Executor):
        @handler
        async def on_loose(self, loose: Loose, ctx: WorkflowContext[Loose, Loose]) -> None:
            seen.append((list(loose.items), list(ctx.get_state("key").items)))
            loose.items.append("second")

    given = Loose(["a"])
    result = await chain(First(id="first"), Second(id="second")).run(given)
    assert given.items == ["a"]
    assert seen == [(["a", "X"], ["a", "X", "late"])]
    assert result.get_outputs() == [Loose(["a", "X"])]
    result.get_outputs()[0].items.clear()
    assert result.get_outputs() == [Loose(["a", "X"])]


class Emitter(Executor):
    """Edits the payload of an event after it has emitted it, in an async and in a sync handler."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[int]) -> None:
        payload = [text]
        await ctx.add_event(WorkflowEvent("data", payload))
        payload.append("late")
        await ctx.send_message(1)

    @handler
    def on_number(self, number: int, ctx: SyncWorkflowContext[int]) -> None:
        payload = [number]
        ctx.add_event(WorkflowEvent("data", payload))
        payload.append(2)


@pytest.mark.parametrize("stream", [False, True])
async def test_c01_the_payload_of_an_event_is_the_readers_own(stream: bool) -> None:
    workflow = WorkflowBuilder(name="w", start_executor=Emitter(id="emit")).add_edge("emit", "emit").build()
    running: Any = workflow.run("a", stream=stream)
    events = [event async for event in running] if stream else list(await running)
    assert [event.data for event in events if event.type == "data"] == [["a"], [1]]


class KeepsAnswer(Executor):
    """Edits the answer it gets and the request it gets back."""

    answers: list[Any] = state(factory=list)

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, Any]) -> None:
        await ctx.request_info([text], list)

    @response_handler
    async def on_answer(
        self,
        request: list,
        answer: list,
        ctx: WorkflowContext[str, Any],  # type: ignore[type-arg]
    ) -> None:
        answer.append("edited")
        request.append("edited")
        self.answers.append(answer)
        await ctx.yield_output(answer)
        answer.append("late")


@every_place
async def test_c01_an_answer_is_taken_by_value_too(place: Place) -> None:
    workflow = chain(KeepsAnswer(id="ask"))
    cp = place.create(workflow)
    result = await workflow.run("q", checkpoint=cp)
    result.get_request_info_events()[0].data.append("edited by the reader")
    given = {only_request(cp): ["yes"]}
    answered = await workflow.run(responses=given, checkpoint=cp)
    before = bytes_of(cp)
    (answer,) = given.values()
    assert answer == ["yes"]
    answer.append("Z")
    given.clear()
    assert bytes_of(cp) == before
    accepted, done = cp.snapshots[-2:]
    assert accepted.boundary == "responses_accepted"
    delivery = accepted.state["messages"]["pending"]["deliveries"][0]
    assert (delivery["request"], delivery["value"]) == (["q"], ["yes"])
    assert list(done.state["messages"]["input"]["value"].values()) == [["yes"]]
    assert done.state["executor_states"]["ask"]["answers"] == [["yes", "edited", "late"]]
    assert answered.get_outputs() == [["yes", "edited"]]


@every_place
@pytest.mark.parametrize("one_shot", [False, True])
async def test_c01_edits_while_the_run_goes_on_show_nowhere_either(place: Place, one_shot: bool) -> None:
    workflow = chain(Mut(id="mut"), Echo(id="echo"), KeepsAnswerOf(id="ask"))
    cp = None if one_shot else place.create(workflow)

    async def read(running: Any, given: list[str]) -> Any:
        async for event in running:
            given.append("edited by the caller")
            if isinstance(event.data, list):
                event.data.append("edited by the reader")
        return await running.get_final_response()

    given = ["a"]
    result = await read(workflow.run(given, checkpoint=cp, stream=True), given)
    assert result.get_outputs() == [["a", "X"]]
    if cp is None:
        return
    (request,) = cp.pending_requests
    assert request.data == ["a", "X"]
    answer = ["yes"]
    running = workflow.run(responses={request.request_id: answer}, checkpoint=cp, stream=True)
    result = await read(running, answer)
    assert result.get_outputs() == [["a", "X"], ["a", "X", "yes"]]
    assert [record.value for record in cp.outputs()] == result.get_outputs()
    assert cp.snapshots[0].state["messages"]["input"]["value"] == ["a"]


class KeepsAnswerOf(Executor):
    """Asks with the list it gets, and yields it with the answer."""

    @handler
    async def on_list(self, items: list[str], ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.request_info(items, list[str])

    @response_handler
    async def on_answer(self, items: list[str], answer: list[str], ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.yield_output(items + answer)


@every_place
async def test_c01_the_metadata_of_a_run_is_taken_by_value(place: Place) -> None:
    seen: list[Any] = []

    @executor
    async def look(text: str, ctx: WorkflowContext[str]) -> None:
        metadata: Any = ctx.run_metadata
        seen.append(metadata["tags"][:])
        metadata["tags"].append("edited by a handler")
        await ctx.send_message(text)

    @executor
    async def look_again(text: str, ctx: WorkflowContext[str]) -> None:
        seen.append(ctx.run_metadata["tags"])
        given["tags"].append("edited by the caller during the run")

    workflow = chain(look, look_again)
    cp = place.create(workflow)
    given: dict[str, Any] = {"tags": ["t"]}
    await workflow.run("a", checkpoint=cp, metadata=given)
    assert seen == [["t"], ["t"]]
    assert [one.metadata["tags"] for one in cp.snapshots] == [["t"]] * 3


# C02: history that shows the last value everywhere.


class Countdown(Executor):
    """Counts down in one dict of the shared state, and in one of its own, both edited in place."""

    own: dict[str, int] = state(factory=dict)

    @handler
    async def on_number(self, n: int, ctx: WorkflowContext[int, int]) -> None:
        box = ctx.get_state("box", {})
        box["n"] = self.own["n"] = n
        self.own.setdefault("steps", 0)
        self.own["steps"] += 1
        ctx.set_state("box", box)
        if n:
            await ctx.send_message(n - 1)
        else:
            await ctx.yield_output(n)


class KeepsTheDict(Executor):
    """The same, but the dict it edits is the very one it wrote, held in its own state."""

    box: dict[str, int] = state(factory=dict)

    @handler
    async def on_number(self, n: int, ctx: WorkflowContext[int, int]) -> None:
        self.box["n"] = n
        ctx.set_state("box", self.box)
        if n:
            await ctx.send_message(n - 1)
        else:
            await ctx.yield_output(n)


@every_place
@pytest.mark.parametrize("kind", [Countdown, KeepsTheDict])
async def test_c02_every_snapshot_holds_the_counter_of_its_own_boundary(
    place: Place, kind: type[Executor]
) -> None:
    workflow = WorkflowBuilder(name="down", start_executor=kind(id="x")).add_edge("x", "x").build()
    cp = place.create(workflow)
    await workflow.run(4, checkpoint=cp)

    def counted(snapshots: Any) -> list[tuple[int, int]]:
        name = "own" if kind is Countdown else "box"
        return [(shared(one)["box"]["n"], one.state["executor_states"]["x"][name]["n"]) for one in snapshots]

    first = cp.snapshots
    assert shared(first[0]) == {}
    assert counted(first[1:]) == [(n, n) for n in (4, 3, 2, 1, 0)]
    before = bytes_of(cp)
    cp.restart_from(first[2].snapshot_id)
    result = await workflow.run(checkpoint=cp)
    assert result.get_outputs() == [0]
    assert counted(cp.snapshots[1:6]) == [(n, n) for n in (4, 3, 2, 1, 0)]
    assert counted(cp.snapshots[6:]) == [(n, n) for n in (3, 2, 1, 0)]
    assert {key: data for key, data in bytes_of(cp).items() if key in before} == before
    if kind is Countdown:
        assert cp.head_snapshot.state["executor_states"]["x"]["own"] == {"n": 0, "steps": 5}
    loaded = await place.reload()
    assert bytes_of(loaded) == bytes_of(cp)


@every_place
async def test_c02_an_edit_in_place_that_is_not_written_back_is_refused(place: Place) -> None:
    @executor
    async def first(text: str, ctx: WorkflowContext[str]) -> None:
        ctx.set_state("box", {"n": [1]})
        await ctx.send_message(text)

    @executor
    async def second(text: str, ctx: WorkflowContext[str]) -> None:
        ctx.get_state("box")["n"].append(2)

    workflow = chain(first, second)
    cp = place.create(workflow)
    with pytest.raises(ExecutorStateError, match=r"second.*'box'"):
        await workflow.run("a", checkpoint=cp)
    assert [shared(one) for one in cp.snapshots] == [{}, {"box": {"n": [1]}}]


async def test_c02_nor_is_an_edit_of_the_default_lost_in_silence() -> None:
    @executor
    async def only(text: str, ctx: WorkflowContext[str]) -> None:
        ctx.get_state("box", {})["n"] = 1

    with pytest.raises(ExecutorStateError, match=r"only.*'box'"):
        await chain(only).run("a")


@pytest.mark.parametrize("write", ["set_state", "update_state"])
async def test_c02_nor_is_an_edit_of_the_copy_after_it_was_written_back(write: str) -> None:
    @executor
    async def first(text: str, ctx: WorkflowContext[str]) -> None:
        ctx.set_state("box", {"n": 0})
        await ctx.send_message(text)

    @executor
    async def only(text: str, ctx: WorkflowContext[str]) -> None:
        if write == "set_state":
            box = ctx.get_state("box")
            box["n"] = 1
            ctx.set_state("box", box)
        else:
            box = ctx.update_state("box", lambda box: {**box, "n": 1})
        box["n"] = 2

    with pytest.raises(ExecutorStateError, match=r"only.*'box'"):
        await chain(first, only).run("a")


@every_place
async def test_c02_a_value_is_written_as_it_is_at_the_call_whatever_its_maker_does_with_it(
    place: Place,
) -> None:
    @executor
    async def only(items: list[str], ctx: WorkflowContext[str, Any]) -> None:
        ctx.set_state("items", items)
        items.append("for the output alone")
        await ctx.yield_output(items)
        await ctx.yield_output(ctx.get_state("items"))

    workflow = chain(only)
    cp = place.create(workflow)
    result = await workflow.run(["a"], checkpoint=cp)
    assert result.get_outputs() == [["a", "for the output alone"], ["a"]]
    assert shared(cp.head_snapshot) == {"items": ["a"]}


async def test_c02_a_read_only_view_cannot_be_edited() -> None:
    @executor
    async def first(text: str, ctx: WorkflowContext[str]) -> None:
        ctx.set_state("box", {"n": [[1]], "d": {"k": []}})
        await ctx.send_message(text)

    @executor
    async def second(text: str, ctx: WorkflowContext[str, Any]) -> None:
        box = ctx.get_state("box", copy=False)
        for edit in (
            lambda: box.update(n=2),
            lambda: box.__setitem__("n", 2),
            lambda: box["n"].append(2),
            lambda: box["n"][0].append(2),
            lambda: box["d"]["k"].append(2),
            lambda: next(iter(box["n"])).append(2),
            lambda: next(iter(box.values())).append(2),
            lambda: box["n"][:].append(2),
        ):
            with pytest.raises((AttributeError, TypeError)):
                edit()
        await ctx.yield_output(ctx.get_state("box"))

    assert (await chain(first, second).run("a")).get_outputs() == [{"n": [[1]], "d": {"k": []}}]


@every_place
async def test_c02_a_read_only_view_in_a_field_is_refused_with_what_to_keep_instead(place: Place) -> None:
    class Keeps(Executor):
        kept: Any = state(None)

        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, Any]) -> None:
            if ctx.get_state("box") is None:
                ctx.set_state("box", [["a"]])
                await ctx.send_message(text)
            elif text == "view":
                self.kept = {"box": ctx.get_state("box", copy=False)}
            else:
                self.kept = {"box": ctx.get_state("box")}

    keeps = Keeps(id="keeps")
    workflow = WorkflowBuilder(name="w", start_executor=keeps).add_edge(keeps, keeps).build()
    cp = place.create(workflow)
    with pytest.raises(
        UnsupportedValueError, match=r"executor_states\.keeps\.kept\.box .*without copy=False"
    ):
        await workflow.run("view", checkpoint=cp)
    await cp.abandon()
    await workflow.run("copy", checkpoint=cp)
    head = (await place.reload()).head_snapshot
    assert head is not None
    assert head.state["executor_states"] == {"keeps": {"kept": {"box": [["a"]]}}}


@every_place
@pytest.mark.parametrize("inside", [False, True])
async def test_c02_a_read_only_view_that_is_handed_on_becomes_a_value_of_its_own(
    place: Place, inside: bool
) -> None:
    class Shows(Executor):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[list[Any], Any]) -> None:
            ctx.set_state("box", [["a"]])
            await ctx.send_message([text])

        @handler
        async def on_list(self, given: list[str], ctx: WorkflowContext[dict[str, Any], list[Any]]) -> None:
            seen = ctx.get_state("box", copy=False)
            shown: Any = [seen[0]] if inside else seen
            ctx.set_state("other", shown)
            await ctx.yield_output(shown)
            await ctx.request_info(shown, str)
            await ctx.send_message({"shown": shown})

        @handler
        async def on_dict(self, given: dict[str, Any], ctx: WorkflowContext[Any, Any]) -> None:
            given["shown"][0].append("edited")
            await ctx.yield_output(given["shown"])

        @response_handler
        async def on_answer(
            self,
            request: list,
            answer: str,
            ctx: WorkflowContext[Any, Any],  # type: ignore[type-arg]
        ) -> None:
            request[0].append(answer)
            await ctx.yield_output(request)

    workflow = WorkflowBuilder(name="w", start_executor=Shows(id="x")).add_edge("x", "x").build()
    cp = place.create(workflow)
    result = await workflow.run("t", checkpoint=cp)
    assert result.get_outputs() == [[["a"]], [["a", "edited"]]]
    result = await workflow.run(responses={only_request(cp): "y"}, checkpoint=cp)
    assert result.get_outputs()[-1] == [["a", "y"]]
    assert shared(cp.head_snapshot) == {"box": [["a"]], "other": [["a"]]}
    one_shot = await workflow.run("t")
    assert one_shot.get_outputs() == [[["a"]], [["a", "edited"]]]
    assert type(one_shot.get_outputs()[0]) is list


# C03: resuming twice from one snapshot with a half-filled join.


class Box(Executor):
    """Sends a dict that holds a list."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[dict[str, Any]]) -> None:
        await ctx.send_message({"from": self.id, "items": [text]})


class AskBox(Ask):
    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[dict[str, Any]]) -> None:
        await ctx.request_info(text, str)

    @response_handler
    async def on_answer(self, question: str, answer: str, ctx: WorkflowContext[dict[str, Any]]) -> None:
        await ctx.send_message({"from": self.id, "items": [answer]})


class EditingJoin(Executor):
    """Yields what it gets as text and then empties it, in place and deep."""

    def __init__(self, id: str, ticks: Ticks) -> None:
        super().__init__(id=id)
        self.ticks = ticks

    @handler
    async def on_boxes(self, boxes: list[dict[str, Any]], ctx: WorkflowContext[str, str]) -> None:
        self.ticks(self.id)
        await ctx.yield_output(" ".join(f"{box['from']}:{box['items']}" for box in boxes))
        for box in boxes:
            box["items"].clear()
        boxes.clear()


@every_place
@pytest.mark.parametrize("reload", [False, True])
async def test_c03_a_half_filled_join_can_be_resumed_again_and_again(
    place: Place, ticks: Ticks, reload: bool
) -> None:
    src, b, ask = Step("src"), Box(id="b"), AskBox(id="ask")
    workflow = fan(src, [b, ask], EditingJoin("j", ticks))
    cp = place.create(workflow)
    await workflow.run("q", checkpoint=cp)
    paused = cp.head_snapshot
    assert paused.status == "idle_with_pending_requests"
    before = paused.to_bytes()
    buffered = [{"b": [{"from": "b", "items": ["q>src"]}]}]
    assert [edge["received"] for edge in paused.state["edge_states"].values()] == buffered
    tips = []
    for n, answer in enumerate(["yes", "no", "yes"]):
        if reload:
            cp = await place.reload()
        cp.restart_from(paused.snapshot_id)
        result = await workflow.run(responses={only_request(cp): answer}, checkpoint=cp)
        assert ticks["j"] == n + 1
        assert result.get_outputs() == [f"b:['q>src'] ask:['{answer}']"]
        assert cp.status == "idle"
        assert cp.head_snapshot.state["edge_states"] == {}
        assert cp.get_snapshot(paused.snapshot_id).to_bytes() == before
        assert [edge["received"] for edge in paused.state["edge_states"].values()] == buffered
        tips.append(cp.head_snapshot_id)
    assert len(set(tips)) == 3
    for tip, answer in zip(tips, ["yes", "no", "yes"], strict=True):
        cp.restart_from(tip)
        assert [record.value for record in cp.outputs()] == [f"b:['q>src'] ask:['{answer}']"]


# C05: branches of one superstep.


class MarksThenWaits(Executor):
    """Edits the dict it gets, then lets the other go on and waits for it."""

    def __init__(self, id: str, mine: Any, theirs: Any) -> None:
        super().__init__(id=id)
        self.mine = mine
        self.theirs = theirs

    @handler
    async def on_dict(self, d: dict[str, Any], ctx: WorkflowContext[Any, Any]) -> None:
        d["x"] = 1
        d["deep"][0]["x"] = 1
        self.theirs.set()
        await self.mine.wait()


class WaitsThenLooks(Executor):
    """Looks at the dict it gets after the other has edited its own."""

    def __init__(self, id: str, mine: Any, theirs: Any) -> None:
        super().__init__(id=id)
        self.mine = mine
        self.theirs = theirs

    @handler
    async def on_dict(self, d: dict[str, Any], ctx: WorkflowContext[Any, Any]) -> None:
        await self.mine.wait()
        await ctx.yield_output(d)
        self.theirs.set()


class LooksThenWaits(Executor):
    """The other order: looks while the other has not yet edited, and again after it has."""

    def __init__(self, id: str, mine: Any, theirs: Any) -> None:
        super().__init__(id=id)
        self.mine = mine
        self.theirs = theirs

    @handler
    async def on_dict(self, d: dict[str, Any], ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.yield_output(d)
        self.theirs.set()
        await self.mine.wait()
        await ctx.yield_output(d)


class WaitsThenMarks(MarksThenWaits):
    @handler
    async def on_dict(self, d: dict[str, Any], ctx: WorkflowContext[Any, Any]) -> None:
        await self.mine.wait()
        d["x"] = 1
        d["deep"][0]["x"] = 1
        self.theirs.set()


class SyncMarks(MarksThenWaits):
    @handler
    def on_dict(self, d: dict[str, Any], ctx: SyncWorkflowContext[Any, Any]) -> None:
        d["x"] = 1
        d["deep"][0]["x"] = 1
        self.theirs.set()
        assert self.mine.wait(60)


class SyncLooks(MarksThenWaits):
    @handler
    def on_dict(self, d: dict[str, Any], ctx: SyncWorkflowContext[Any, Any]) -> None:
        assert self.mine.wait(60)
        ctx.yield_output(d)
        self.theirs.set()


@executor
async def spread(text: str, ctx: WorkflowContext[dict[str, Any]]) -> None:
    await ctx.send_message({"text": text, "deep": [{}]})


def by_fan_out(b: Executor, c: Executor) -> Workflow:
    return WorkflowBuilder(name="w", start_executor=spread).add_fan_out_edges(spread, [b, c]).build()


def by_two_edges(b: Executor, c: Executor) -> Workflow:
    return WorkflowBuilder(name="w", start_executor=spread).add_edge(spread, b).add_edge(spread, c).build()


def by_selection(b: Executor, c: Executor) -> Workflow:
    def everyone(message: Any, targets: list[str]) -> list[str]:
        return targets

    builder = WorkflowBuilder(name="w", start_executor=spread)
    return builder.add_multi_selection_edge_group(spread, [b, c], everyone).build()


@every_place
@pytest.mark.parametrize("wire", [by_fan_out, by_two_edges, by_selection])
@pytest.mark.parametrize(
    ("b", "c", "event"),
    [
        (MarksThenWaits, WaitsThenLooks, asyncio.Event),
        (WaitsThenMarks, LooksThenWaits, asyncio.Event),
        (SyncMarks, SyncLooks, threading.Event),
    ],
    ids=["edit first", "look first", "in threads"],
)
async def test_c05_branches_of_one_superstep_never_see_each_others_edits(
    place: Place, b: Any, c: Any, event: Any, wire: Callable[[Executor, Executor], Workflow]
) -> None:
    for_b, for_c = event(), event()
    workflow = wire(b("b", for_b, for_c), c("c", for_c, for_b))
    cp = place.create(workflow)
    result = await workflow.run("t", checkpoint=cp)
    assert result.get_outputs()
    assert all(seen == {"text": "t", "deep": [{}]} for seen in result.get_outputs())
    (delivery,) = cp.snapshots[1].state["messages"]["pending"]["deliveries"]
    assert delivery["value"] == {"text": "t", "deep": [{}]}
    assert delivery["targets"] == ["b", "c"]


async def test_c05_two_messages_that_share_a_value_do_not_share_it_any_more() -> None:
    @executor
    async def twice(text: str, ctx: WorkflowContext[list[str]]) -> None:
        one = [text]
        await ctx.send_message(one)
        one.append("between")
        await ctx.send_message(one)

    class Edits(Executor):
        @handler
        async def on_list(self, items: list[str], ctx: WorkflowContext[str, list[str]]) -> None:
            await ctx.yield_output(items)
            items.append("edited")

    assert (await chain(twice, Edits(id="e")).run("a")).get_outputs() == [["a"], ["a", "between"]]


# C06: leftovers of the conversation before.


class Declared(Executor):
    items: list[str] = state(factory=list)


class DeclaredDefault(Executor):
    items: list[str] = state([])


class DeclaredInInit(Executor):
    items: list[str] = state(factory=list)

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.items = []


class Scratch(Executor):
    items: list[str] = scratch(factory=list)


class InInit(Executor):
    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.items: list[str] = []


class OnTheClass(Executor):
    items: list[str] = []


class Deque(Executor):
    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.items: deque[str] = deque()


class Nested(Executor):
    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.held: dict[str, tuple[list[str], ...]] = {"items": ([],)}

    @property
    def items(self) -> list[str]:
        return self.held["items"][0]


class Assigns(Executor):
    """Assigns a new list in place of editing the old one."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.kept: list[str] = []

    @property
    def items(self) -> Any:
        return self

    def append(self, text: str) -> None:
        self.kept = [*self.kept, text]


FRESH = [Declared, DeclaredDefault, DeclaredInInit, Scratch]
REFUSED = [InInit, OnTheClass, Deque, Nested, Assigns]


def remembering(base: Any) -> Any:
    """An executor class that appends to `items` and bumps a shared key, and fails when told to."""

    class Remembers(base):  # type: ignore[misc]
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, Any]) -> None:
            self.items.append(text)
            ctx.set_state("n", ctx.get_state("n", 0) + 1)
            if text == "boom" and ctx.get_state("n") == 2:
                raise Boom
            if ctx.get_state("n") < 3:
                await ctx.send_message(text)
            else:
                await ctx.yield_output((list(self.items), ctx.get_state("n")))

    return Remembers


@every_place
@pytest.mark.parametrize("by_factory", [False, True])
@pytest.mark.parametrize("base", FRESH)
async def test_c06_a_new_conversation_starts_with_nothing_of_the_one_before(
    place: Place, base: type[Executor], by_factory: bool
) -> None:
    cls = remembering(base)
    start = Factory(lambda: cls(id="x"), id="x") if by_factory else cls(id="x")
    workflow = WorkflowBuilder(name="w", start_executor=start).add_edge(start, start).build()
    before = workflow_picture(workflow)
    assert (await workflow.run("p")).get_outputs() == [(["p"] * 3, 3)]
    with pytest.raises(Boom):
        await workflow.run("boom")
    assert (await workflow.run("q")).get_outputs() == [(["q"] * 3, 3)]
    cp = place.create(workflow)
    assert (await workflow.run("r", checkpoint=cp)).get_outputs() == [(["r"] * 3, 3)]
    assert [one.state["workflow_state"]["iteration_count"] for one in cp.snapshots] == [0, 1, 2, 3]
    assert [shared(one).get("n") for one in cp.snapshots] == [None, 1, 2, 3]
    other = place.create(workflow, "run-2")
    with pytest.raises(Boom):
        await workflow.run("boom", checkpoint=other)
    assert (await workflow.run("s")).get_outputs() == [(["s"] * 3, 3)]
    assert workflow_picture(workflow) == before


@every_place
@pytest.mark.parametrize("base", REFUSED)
async def test_c06_an_undeclared_attribute_is_refused_and_never_leaks(
    place: Place, base: type[Executor]
) -> None:
    mine = remembering(base)(id="x")
    workflow = WorkflowBuilder(name="w", start_executor=mine).add_edge(mine, mine).build()
    before = workflow_picture(workflow)
    for text in ("p", "boom", "q"):
        with pytest.raises(ExecutorStateError, match=r"'x'.*(state|scratch)\("):
            await workflow.run(text)
    cp = place.create(workflow)
    with pytest.raises(ExecutorStateError, match="'x'"):
        await workflow.run("r", checkpoint=cp)
    assert len(cp.snapshots) == 1
    assert shared(cp.head_snapshot) == {}
    assert workflow_picture(workflow) == before


@every_place
@pytest.mark.parametrize("make", [lambda: Counter(a=1), lambda: defaultdict(list), set, dict, bytearray])
async def test_c06_so_is_every_other_container_of_the_definition(
    place: Place, make: Callable[[], Any]
) -> None:
    class Holds(Executor):
        def __init__(self, id: str) -> None:
            super().__init__(id=id)
            self.held = make()

        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str]) -> None:
            {
                Counter: lambda: self.held.update("b"),
                defaultdict: lambda: self.held["k"].append(1),
                set: lambda: self.held.add(1),
                dict: lambda: self.held.setdefault("k", 1),
                bytearray: lambda: self.held.append(1),
            }[type(self.held)]()

    workflow = chain(Holds(id="x"))
    before = workflow_picture(workflow)
    cp = place.create(workflow)
    for _ in range(2):
        with pytest.raises(ExecutorStateError, match="'held'"):
            await workflow.run("a")
    with pytest.raises(ExecutorStateError, match="'held'"):
        await workflow.run("a", checkpoint=cp)
    assert len(cp.snapshots) == 1
    assert workflow_picture(workflow) == before


@every_place
async def test_c06_functions_remember_in_the_checkpoint_alone(place: Place) -> None:
    @executor
    async def remember(text: str, ctx: WorkflowContext[str, list[str]]) -> None:
        kept = ctx.executor_state.setdefault("items", [])
        kept.append(text)
        await ctx.yield_output(kept)

    workflow = chain(remember)
    one, two = place.create(workflow, "one"), place.create(workflow, "two")
    for text, cp, expected in (
        ("a", one, ["a"]),
        ("p", None, ["p"]),
        ("b", two, ["b"]),
        ("c", one, ["a", "c"]),
        ("q", None, ["q"]),
        ("d", two, ["b", "d"]),
    ):
        assert (await workflow.run(text, checkpoint=cp)).get_outputs() == [expected]


async def test_c06_editing_the_callers_executor_after_the_build_changes_nothing() -> None:
    class Configured(Executor):
        def __init__(self, id: str, words: list[str]) -> None:
            super().__init__(id=id)
            self.words = words

        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, list[str]]) -> None:
            await ctx.yield_output([text, *self.words])

    words = ["w"]
    mine = Configured("x", words)
    builder = WorkflowBuilder(name="w", start_executor=mine)
    one, two = builder.build(), builder.build()
    words.append("late")
    mine.words = ["other"]
    assert (await one.run("a")).get_outputs() == (await two.run("a")).get_outputs() == [["a", "w"]]


# Two faults of public fame.


class Foreign(Executor):
    """Wraps an object of its own: hands out its live dict, and takes over the dict it is given."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.live: dict[str, Any] = {"seen": []}

    def on_snapshot_save(self) -> dict[str, Any]:
        return self.live

    def on_snapshot_restore(self, state: dict[str, Any]) -> None:
        self.live = state

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, list[str]]) -> None:
        self.live["seen"].append(text)
        if len(self.live["seen"]) % 3:
            await ctx.send_message(text)
        else:
            await ctx.yield_output(self.live["seen"])


class DeclaredForeign(Executor):
    """The same with a declared field."""

    live: dict[str, Any] = state(factory=lambda: {"seen": []})

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, list[str]]) -> None:
        self.live["seen"].append(text)
        if len(self.live["seen"]) % 3:
            await ctx.send_message(text)
        else:
            await ctx.yield_output(self.live["seen"])


@every_place
@pytest.mark.parametrize("reload", [False, True])
@pytest.mark.parametrize("kind", [Foreign, DeclaredForeign])
async def test_fame_a_state_that_was_exported_is_not_reached_by_edits_after_a_restore(
    place: Place, kind: type[Executor], reload: bool
) -> None:
    workflow = WorkflowBuilder(name="w", start_executor=kind(id="x")).add_edge("x", "x").build()
    pristine = workflow_picture(workflow)
    cp = place.create(workflow)
    await workflow.run("a", checkpoint=cp)

    def seen(snapshots: Any) -> list[int]:
        found = [one.state["executor_states"].get("x", {}) for one in snapshots]
        return [len(entry.get("live", entry).get("seen", [])) for entry in found]

    assert seen(cp.snapshots) == [0, 1, 2, 3]
    for _ in range(3):
        if reload:
            cp = await place.reload()
        before = bytes_of(cp)
        first = cp.snapshots[1]
        cp.restart_from(first.snapshot_id)
        result = await workflow.run(checkpoint=cp)
        assert result.get_outputs() == [["a", "a", "a"]]
        assert {key: data for key, data in bytes_of(cp).items() if key in before} == before
        assert seen(cp.snapshots[:4]) == [0, 1, 2, 3]
        assert seen(cp.snapshots[-3:]) == [1, 2, 3]
    again = await workflow.run("b", checkpoint=cp)
    assert again.get_outputs() == [["a", "a", "a", "b", "b", "b"]]
    assert seen(cp.snapshots[:4]) == [0, 1, 2, 3]
    assert workflow_picture(workflow) == pristine


@every_storage
async def test_fame_a_loaded_checkpoint_that_was_edited_is_loaded_again_as_it_was(place: Place) -> None:
    workflow = chain(Step("a"), KeepsBasket(id="keep"), Ask("ask", final=True))
    cp = place.create(workflow, metadata={"owner": "ann"})
    await workflow.run("t", checkpoint=cp, metadata={"tags": ["t"]})
    before = bytes_of(cp)
    for _ in range(3):
        loaded = await place.reload()
        assert bytes_of(loaded) == before
        assert loaded.metadata == {"owner": "ann"}
        found = loaded.head_snapshot.state
        assert found["executor_states"]["keep"]["basket"] == Basket(["t>a"])
        assert shared(loaded.head_snapshot) == {"basket": Basket(["t>a"])}
        found["executor_states"]["keep"]["basket"].items.append("edited")
        found["workflow_state"]["shared"]["basket"].items.append("edited")
        found["messages"]["pending"]["requests"].clear()
        found["messages"]["output"].append("edited")
        found.clear()
        loaded.head_snapshot.metadata["tags"].append("edited")
        loaded.metadata["owner"] = "eve"
        loaded.header.signature["name"] = "eve"
        loaded.snapshots.clear()
        loaded.restart_from(loaded.snapshots[0].snapshot_id)
        assert bytes_of(loaded) == before
    loaded = await place.reload()
    assert loaded.head_snapshot_id == cp.head_snapshot_id
    result = await workflow.run(responses={only_request(loaded): "y"}, checkpoint=loaded)
    assert result.get_outputs() == ["t>a>ask=y"]


class KeepsBasket(Executor):
    basket: Any = state(None)

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str]) -> None:
        self.basket = Basket([text])
        ctx.set_state("basket", self.basket)
        await ctx.send_message(text)


@every_storage
async def test_fame_two_loaded_copies_share_nothing(place: Place) -> None:
    workflow = chain(Step("a"), Ask("ask", final=True))
    await workflow.run("t", checkpoint=place.create(workflow))
    one, two = await place.reload(), await place.reload()
    request_id = only_request(two)
    before = bytes_of(two)
    result = await workflow.run(responses={request_id: "one"}, checkpoint=one)
    assert result.get_outputs() == ["t>a>ask=one"]
    assert bytes_of(two) == before
    assert only_request(two) == request_id
    with pytest.raises(CheckpointConflictError):
        await workflow.run(responses={request_id: "two"}, checkpoint=two)
    assert bytes_of(two) == before
    assert [record.value for record in (await place.reload()).outputs()] == ["t>a>ask=one"]
