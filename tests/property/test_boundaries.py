"""Whatever sender, receivers, caller and readers do to their values, no snapshot and nobody else sees it."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import OrderedDict, defaultdict, deque
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from branchpoint import Executor, Workflow, WorkflowBuilder, WorkflowContext, handler, response_handler, state
from tests.scenario.carry import Inner, Letter, Node, Pair, Point, letter, told
from tests.scenario.kit import Around, Place, bytes_of, place_of, reached, turns

# Values with much in them that can be changed.

ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
KEYS = st.text(max_size=3) | st.integers() | st.tuples(st.integers(), st.text(max_size=2))


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    items = st.lists(inner, max_size=4)
    return st.one_of(
        items,
        items.map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.sets(KEYS, max_size=4),
        st.binary(max_size=5).map(bytearray),
        items.map(lambda found: deque(found, 9)),
        st.dictionaries(KEYS, inner, max_size=3).map(OrderedDict),
        st.dictionaries(KEYS, inner, max_size=3).map(lambda found: defaultdict(list, found)),
        st.builds(Node, inner, st.dictionaries(st.text(max_size=3), inner, max_size=3)),
        st.builds(Point, st.integers(), inner),
        st.builds(Pair, inner, inner),
        st.integers().map(lambda n: Inner(n=n)),
        st.builds(letter),
    )


VALUES = st.recursive(ATOMS, _containers, max_leaves=12)


def vandalize(value: Any, rnd: random.Random) -> None:
    """Change a value in place, everywhere it can be changed and at random how."""
    for part in list(_parts(value)):
        try:
            _change(part, rnd)
        except (IndexError, KeyError):  # an earlier change has emptied it
            continue


def _parts(value: Any) -> Any:
    """Everything inside a value, the value last."""
    inside: list[Any] = []
    if isinstance(value, dict):
        inside = [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set, deque)):
        inside = list(value)
    elif isinstance(value, Point):
        inside = [value.y]
    elif isinstance(value, Letter):
        inside = [value.notes, value._read_by]
    elif isinstance(value, (Node, Inner)):
        inside = list(vars(value).values())
    for item in inside:
        yield from _parts(item)
    yield value


def _change(part: Any, rnd: random.Random) -> None:
    if isinstance(part, (list, deque)):
        rnd.choice([part.reverse, part.clear, part.pop, lambda: part.__setitem__(0, ["new"])])()
        part.append("vandal")
    elif isinstance(part, dict):
        rnd.choice([part.clear, part.popitem, lambda: part.update({key: ["new"] for key in part})])()
        part["vandal"] = [len(part)]
    elif isinstance(part, set):
        rnd.choice([part.clear, part.pop])()
        part.add("vandal")
    elif isinstance(part, bytearray):
        rnd.choice([part.clear, part.reverse])()
        part.extend(b"vandal")
    elif isinstance(part, Node):
        part.value = rnd.choice([None, ["vandal"], part.below])
        part.below["vandal"] = None
    elif isinstance(part, Point):
        part.x, part.y = part.x - 1, ["vandal"]
    elif isinstance(part, Inner):
        part.n += 1
    elif isinstance(part, Letter):
        part.sender += "vandal"
        part.notes.append("vandal")


# A workflow of vandals. What each gives is told at the call; what each gets is compared with that.


class Ledger:
    """What crossed which boundary, as it was at the call; outside of any workflow."""

    def __init__(self, seed: int) -> None:
        self.rnd = random.Random(seed)
        self.entered = asyncio.Event()
        self.gave: dict[str, Any] = {}
        self.wrong: list[str] = []

    def give(self, name: str, value: Any) -> Any:
        """Remember what is about to cross; say it again and it must be the same."""
        self.gave[name] = told(value)
        return value

    def got(self, name: str, value: Any) -> None:
        if told(value) != self.gave[name]:
            self.wrong.append(f"{name}: {value!r}")

    def vandalize(self, value: Any) -> None:
        vandalize(value, self.rnd)


class Source(Executor):
    kept: Any = state(default=None)

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(id="source")
        self.ledger = ledger

    @handler
    async def on_value(self, value: object, ctx: WorkflowContext[object, object]) -> None:
        ledger = self.ledger
        ledger.entered.set()
        await turns(3)  # the caller changes the input meanwhile
        ledger.got("input", value)
        ledger.vandalize(value)
        await ctx.send_message(ledger.give("message", value))
        ledger.vandalize(value)
        await ctx.yield_output(ledger.give("first output", value))
        ledger.vandalize(value)
        ctx.set_state("shared", ledger.give("shared", value))
        ledger.vandalize(value)
        await ctx.request_info(ledger.give("request", value), object)
        ledger.vandalize(value)
        self.kept = ledger.give("field", value)

    @response_handler
    async def on_answer(self, asked: object, answer: object, ctx: WorkflowContext[object, object]) -> None:
        ledger = self.ledger
        ledger.got("request", asked)
        ledger.got("answer", answer)
        ledger.got("field", self.kept)
        ledger.vandalize([asked, answer])
        await ctx.yield_output(ledger.give("last output", [asked, answer]))
        ledger.vandalize([asked, answer, self.kept])
        ledger.give("field", self.kept)  # its own, and saved as it is in the end


class Branch(Executor):
    """One of two receivers of one message; both destroy it."""

    def __init__(self, id: str, ledger: Ledger) -> None:
        super().__init__(id=id)
        self.ledger = ledger

    @handler
    async def on_value(self, value: object, ctx: WorkflowContext[object, object]) -> None:
        ledger = self.ledger
        ledger.got("message", value)
        await asyncio.sleep(0)
        ledger.got("message", value)  # the other one may have destroyed its own
        ledger.vandalize(value)
        await asyncio.sleep(0)
        ledger.got("shared", ctx.get_state("shared"))
        await ctx.send_message(ledger.give(f"from {self.id}", value))
        ledger.vandalize(value)
        if self.id == "left":
            found = ctx.get_state("shared")
            ledger.vandalize(found)
            ledger.give("shared later", found)
            ctx.set_state("shared", found)


class Meeting(Executor):
    def __init__(self, ledger: Ledger) -> None:
        super().__init__(id="meeting")
        self.ledger = ledger

    @handler
    async def on_values(self, values: list[object], ctx: WorkflowContext[object, object]) -> None:
        ledger = self.ledger
        ledger.got("from left", values[0])
        ledger.got("from right", values[1])
        ledger.got("shared later", ctx.get_state("shared"))
        ledger.vandalize(values)
        await ctx.yield_output(ledger.give("second output", values))
        ledger.vandalize(values)


def vandals(ledger: Ledger) -> Workflow:
    source, left, right = Source(ledger), Branch("left", ledger), Branch("right", ledger)
    builder = WorkflowBuilder(name="vandals", start_executor=source)
    builder.add_fan_out_edges(source, [left, right]).add_fan_in_edges([left, right], Meeting(ledger))
    return builder.build()


def check_snapshots(cp: Any, ledger: Ledger, kept: dict[str, bytes]) -> None:
    """What is stored is what was given, and what was stored before is what it was."""
    now = bytes_of(cp)
    assert {key: now[key] for key in kept} == kept
    kept |= now
    names = {0: "first output", 1: "second output", 2: "last output"}
    for snapshot in cp.snapshots:
        whole = snapshot.state
        if snapshot.boundary == "input_accepted":
            ledger.got("input", whole["messages"]["input"]["value"])
            ledger.got("input", whole["messages"]["pending"]["deliveries"][0]["value"])
        for place, record in enumerate(whole["messages"]["output"]):
            ledger.got(names[place], record["value"])
        for request in whole["messages"]["pending"]["requests"].values():
            ledger.got("request", request["data"])
        if snapshot.superstep == 1:
            (delivery,) = whole["messages"]["pending"]["deliveries"]
            ledger.got("message", delivery["value"])
            ledger.got("shared", whole["workflow_state"]["shared"]["shared"])
        if snapshot.superstep >= 2:
            ledger.got("shared later", whole["workflow_state"]["shared"]["shared"])
    ledger.vandalize([snapshot.state for snapshot in cp.snapshots])
    ledger.vandalize([one.value for one in cp.outputs()])
    ledger.vandalize([one.data for one in cp.pending_requests])
    ledger.vandalize([event.data for event in cp.events()])
    assert bytes_of(cp) == now
    assert ledger.wrong == []


async def wreck(place: Place, ledger: Ledger, given_value: Any, answer: Any, *, stream: bool) -> None:
    workflow, kept = vandals(ledger), dict[str, bytes]()
    inner = place.open()
    assert inner is not None
    # The caller also changes what it gave while storage is busy with it.
    storage = Around(inner, before=lambda number: ledger.vandalize([given_value, answer]))
    cp = workflow.create_checkpoint("run-1", storage)
    ledger.give("input", given_value)

    async def run(*args: Any, **kwargs: Any) -> Any:
        if not stream:
            return await workflow.run(*args, checkpoint=cp, **kwargs)
        reading = workflow.run(*args, checkpoint=cp, stream=True, **kwargs)
        async for event in reading:  # the reader destroys what it reads while the run goes on
            ledger.vandalize(event.data)
        return await reading.get_final_response()

    running = asyncio.ensure_future(run(given_value))
    await reached(ledger.entered, running)
    ledger.vandalize(given_value)
    result = await running
    check_snapshots(cp, ledger, kept)
    outputs, again = result.get_outputs(), result.get_outputs()
    ledger.got("first output", outputs[0])
    ledger.got("second output", outputs[1])
    ledger.vandalize(outputs)
    assert told(again) == told(result.get_outputs())
    (asked,) = result.get_request_info_events()
    if not stream:
        ledger.got("request", asked.data)
    ledger.vandalize([asked.data, [event.data for event in result]])
    check_snapshots(cp, ledger, kept)
    check_snapshots(await place.reload(), ledger, kept)
    answers = {cp.pending_requests[0].request_id: answer}
    ledger.give("answer", answer)
    done = await run(responses=answers)
    ledger.vandalize([answers, answer])
    ledger.vandalize([event.data for event in done])
    head = cp.head_snapshot
    assert head is not None
    ledger.got("answer", next(iter(head.state["messages"]["input"]["value"].values())))
    if saved := head.state["executor_states"]:  # without an entry the field is at its default
        ledger.got("field", saved["source"]["kept"])
    check_snapshots(cp, ledger, kept)
    ledger.got("last output", done.get_outputs()[2])
    assert bytes_of(await place.reload()) == bytes_of(cp)
    # Told again, after all this, it is what it was.
    told_again = (await workflow.run(checkpoint=await place.reload())).get_outputs()
    for name, value in zip(("first output", "second output", "last output"), told_again, strict=True):
        ledger.got(name, value)
    assert ledger.wrong == []


@given(value=VALUES, answer=VALUES, seed=st.integers(0, 2**32), stream=st.booleans())
def test_no_change_in_place_reaches_a_snapshot_or_anybody_else(
    value: Any, answer: Any, seed: int, stream: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = place_of("memory", Path(folder))
        asyncio.run(wreck(place, Ledger(seed), value, answer, stream=stream))


@settings(max_examples=15)
@given(value=VALUES, answer=VALUES, seed=st.integers(0, 2**32), stream=st.booleans())
def test_no_change_in_place_reaches_a_file(value: Any, answer: Any, seed: int, stream: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = place_of("file-msgpack" if seed % 2 else "file-json", Path(folder))
        asyncio.run(wreck(place, Ledger(seed), value, answer, stream=stream))


@given(value=VALUES, seed=st.integers(0, 2**32))
def test_without_a_checkpoint_nobody_sees_the_changes_of_another_either(value: Any, seed: int) -> None:
    async def once() -> None:
        ledger = Ledger(seed)
        ledger.give("input", value)
        result = await vandals(ledger).run(value)
        ledger.got("first output", result.get_outputs()[0])
        ledger.got("second output", result.get_outputs()[1])
        ledger.vandalize(result.get_outputs())
        ledger.got("first output", result.get_outputs()[0])
        assert ledger.wrong == []

    asyncio.run(once())


@given(value=VALUES, seed=st.integers(0, 2**32))
def test_a_vandal_does_change_what_can_be_changed(value: Any, seed: int) -> None:
    """The property above would say nothing if nothing were changed."""
    holder = [value]
    before = told(holder)
    vandalize(holder, random.Random(seed))
    assert told(holder) != before
