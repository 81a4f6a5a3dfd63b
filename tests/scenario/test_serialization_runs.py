"""Cases of users whose values came back as something else: C37 to C51, through runs and reloads."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import enum
import threading
import zoneinfo
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from branchpoint import (
    BranchpointError,
    Checkpoint,
    DefinitionError,
    EncodingError,
    Executor,
    UnknownVersionError,
    UnregisteredTypeError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    register_state_type,
    response_handler,
)
from branchpoint.codec import isolated_registry
from tests.journals import bodies_of, journal_of
from tests.scenario.carry import (
    VALUES,
    Base,
    Node,
    Sub,
    carrier,
    finish,
    finish_all,
    finish_all_here,
    places_of,
    take_in,
    take_in_all,
    told,
)
from tests.scenario.changing import TYPE_ID, enter_changing, go_on_changing
from tests.scenario.kit import (
    Place,
    Step,
    bytes_of,
    every_file,
    every_place,
    every_storage,
    in_new_process,
    place_of,
)
from tests.scenario.spoil import C46, C49, REFUSED, STEPS, WHERE, Loose, Wish, is_refused, nested, spoiled

# What is kept comes back as it was, in every place, to handlers and to readers.


async def carried(place: Place, case: str) -> None:
    assert await take_in_all(place, case) == await finish_all(place, case) > 0


@every_place
async def test_c37_times_keep_zone_fold_and_instant(place: Place) -> None:
    await carried(place, "c37")


@every_place
async def test_c38_floats_and_decimals_keep_every_special(place: Place) -> None:
    await carried(place, "c38")


@every_place
async def test_c39_ints_of_any_size_stay_exact(place: Place) -> None:
    await carried(place, "c39")


@every_place
async def test_c41_what_looks_like_a_tag_is_user_data(place: Place) -> None:
    await carried(place, "c41")


@every_place
async def test_c42_enums_come_back_as_the_same_members(place: Place) -> None:
    await carried(place, "c42")


@every_place
async def test_c43_models_come_back_as_themselves(place: Place) -> None:
    await carried(place, "c43")


@every_place
async def test_c45_a_base_is_a_base(place: Place) -> None:
    await carried(place, "c45")


@every_place
async def test_c46_one_object_used_twice_is_no_cycle(place: Place) -> None:
    await carried(place, "c46")


@every_place
async def test_c47_bytes_stay_bytes_and_text_stays_text(place: Place) -> None:
    await carried(place, "c47")


@every_place
async def test_c50_odd_texts_come_back_identical(place: Place) -> None:
    await carried(place, "c50")


@every_place
async def test_every_other_kind_comes_back_as_it_was(place: Place) -> None:
    await carried(place, "rest")


@every_file
async def test_c37_c38_c39_c41_c42_c43_c45_c46_c47_c50_in_a_new_process(place: Place, tmp_path: Path) -> None:
    entered = {case: await take_in_all(place, case) for case in VALUES}
    done = await asyncio.to_thread(in_new_process, finish_all_here, place.kind, str(tmp_path), list(VALUES))
    assert done == entered


def test_the_picture_of_a_value_tells_values_apart() -> None:
    moment = datetime.datetime(2026, 10, 25, 1, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Lisbon"))
    nearly = [
        *(1, 1.0, True, "1", b"1", bytearray(b"1"), decimal.Decimal(1), 0.0, -0.0, None, float("nan")),
        *(moment, moment.replace(fold=1), moment.replace(tzinfo=None), moment.isoformat()),
        moment.replace(tzinfo=datetime.timezone(moment.utcoffset() or datetime.timedelta())),
        *({"a": 1, "b": 2}, {"b": 2, "a": 1}, [1], (1,), {1}, frozenset({1}), Base("b"), Sub("b"), Node("b")),
    ]
    pictures = [repr(told(value)) for value in nearly]
    assert len(set(pictures)) == len(nearly)


# What cannot be kept is refused, by type and path, and nothing else happens.


@every_place
@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("what", C49)
async def test_c49_the_error_says_where_it_sits(place: Place, tmp_path: Path, where: str, what: str) -> None:
    await is_refused(place, tmp_path, where, *C49[what])


def some_places(place: Place, turn: int) -> list[str]:
    """Every place where that is quick; with a storage three of them, other ones at each turn."""
    every = list(WHERE)
    return [every[(turn + step) % len(every)] for step in range(3 if place.is_stored else len(every))]


@every_place
@pytest.mark.parametrize("what", REFUSED)
async def test_c37_c38_c39_c41_c42_c43_c45_c47_c49_c50_what_is_not_kept_is_refused_everywhere(
    place: Place, tmp_path: Path, what: str
) -> None:
    make, type_name, steps = REFUSED[what]
    for where in some_places(place, list(REFUSED).index(what)):
        await is_refused(place, tmp_path, where, make, type_name, steps=STEPS + steps)


@every_place
@pytest.mark.parametrize("what", C46)
async def test_c46_cycles_and_what_is_too_deep_are_refused_everywhere(
    place: Place, tmp_path: Path, what: str
) -> None:
    make, says, steps = C46[what]
    for where in some_places(place, 3 * list(C46).index(what)):
        await is_refused(place, tmp_path, where, make, says, steps=steps)


def in_depth(frames: int, call: Callable[[], Any]) -> Any:
    """Call a function from a stack that is that many frames deep."""
    return call() if frames == 0 else in_depth(frames - 1, call)


@every_storage
def test_c46_what_a_commit_accepts_a_load_accepts_from_any_stack(place: Place) -> None:
    """Around the limit too: every depth is either refused as too deep or comes back from everywhere."""
    accepted = set()
    for depth in (10, 200, *range(244, 260), 900, 5000):
        value, checkpoint_id = nested(depth), f"deep-{depth}"
        cp = place.create(carrier(), checkpoint_id)
        try:
            asyncio.run(take_in(cp, value))
        except EncodingError as error:
            assert "deeper than 256 levels" in str(error)
            assert len(cp.snapshots) <= 1
            continue
        accepted.add(depth)
        for frames in (0, 200, 600):
            loaded = in_depth(frames, lambda: asyncio.run(place.reload(checkpoint_id)))  # noqa: B023
            found = in_depth(frames, lambda: loaded.head_snapshot.state)  # noqa: B023
            assert told_depths(places_of(found)) == {depth}
            in_depth(frames, lambda: loaded.head_snapshot.plain_state())  # noqa: B023
        in_depth(200, lambda: asyncio.run(finish_deep(loaded, depth)))  # noqa: B023
    assert {10, 200} <= accepted
    assert max(accepted) <= 256


def told_depths(found: dict[str, Any]) -> set[int]:
    """How deep the nested lists at each place are."""
    depths = set()
    for value in found.values():
        depth = 0
        while isinstance(value, list):
            depth, value = depth + 1, value[0] if value else None
        depths.add(depth)
    return depths


async def finish_deep(checkpoint: Checkpoint, depth: int) -> None:
    """Go on after a reload; what handlers make of the value is one or two levels deeper."""
    workflow = carrier()
    try:
        paused = await workflow.run(checkpoint=checkpoint)
        assert told_depths({"first": paused.get_outputs()[0]}) == {depth}
    except EncodingError as error:
        assert depth > 250  # the join's list holds the value one level deeper
        assert "deeper than 256 levels" in str(error)


async def test_c49_a_run_without_a_checkpoint_needs_no_registration_and_still_says_where() -> None:
    """Nothing is encoded; what cannot even be copied is refused by type and path."""
    for where in WHERE:
        if where in ("input", "response", "request"):
            continue
        outputs = (await spoiled(Wish(where, Loose)).run("go")).get_outputs()
        assert len(outputs) == {"message": 0, "output": 2}.get(where, 1)
        if where in ("field", "function"):  # they never leave the executor
            await spoiled(Wish(where, threading.Lock)).run("go")
            continue
        with pytest.raises(EncodingError, match="lock") as caught:
            await spoiled(Wish(where, threading.Lock)).run("go")
        assert STEPS in str(caught.value)
        assert any("'spoil'" in note for note in caught.value.__notes__)
    with pytest.raises(EncodingError, match=r"messages\.input\.value\.a\[1\]\.b\[0\].*lock"):
        await carrier().run({"a": [0, {"b": (threading.Lock(),)}]})


# C41: the very markers that the library writes.


def markers_in(data: Any) -> Iterator[dict[str, Any]]:
    """Every dict with a key that begins with `$`, at any depth."""
    if isinstance(data, dict):
        if any(isinstance(key, str) and key.startswith("$") for key in data):
            yield data
        for item in data.values():
            yield from markers_in(item)
    elif isinstance(data, list):
        for item in data:
            yield from markers_in(item)


@pytest.mark.parametrize("place", ["file-json", "file-msgpack"], indirect=True)
async def test_c41_markers_from_a_stored_file_are_user_data_too(place: Place, tmp_path: Path) -> None:
    long = [{"n": n, "text": "x" * 200} for n in range(400)]
    rich = {
        "set": {1},
        "b": b"x",
        "node": Node({1, 2}),
        "long": long,
        "by": {str(n): "y" * 99 for n in range(300)},
    }
    await take_in(place.create(carrier(), "source"), [rich, {"$": 1}, {1: 2}, 2**70])
    form, bodies = bodies_of(journal_of(tmp_path / "runs", "source"))
    decode = msgspec.json.decode if form == "json" else msgspec.msgpack.decode
    found: dict[str, dict[str, Any]] = {}
    for body in bodies:
        for marker in markers_in(decode(body)):
            kind = repr(marker["$"]) if "$" in marker else min(marker)
            found[kind] = marker
    assert {"'set'", "'bytes'", "'dict'", "'int'", "'scenario.carry.node'", "$p", "$l", "$d"} <= found.keys()
    for number, marker in enumerate(found.values()):
        value = [
            marker,
            {"in": {"in": marker}},
            [[marker]],
            {"$": marker},
            {"$": "dict", "v": [[marker, marker]]},
        ]
        await take_in(place.create(carrier(), f"user-{number}"), value)
        await finish(await place.reload(f"user-{number}"), value)


@every_place
async def test_c41_names_may_look_like_markers(place: Place) -> None:
    names = ["$", "$p", "$l", "$d", "$x"]

    def workflow() -> Workflow:
        class Odd(Executor):
            @handler
            async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
                for name in names:
                    ctx.set_state(name, {name: text})
                    await ctx.request_info({name: text}, dict, request_id=name)
                await ctx.send_message(text)

            @response_handler
            async def on_answer(
                self, asked: dict[str, Any], answer: dict[str, Any], ctx: WorkflowContext[str, Any]
            ) -> None:
                await ctx.yield_output([asked, answer])

        def remember(name: str) -> Any:
            @executor(id=name)
            async def keep(text: str, ctx: WorkflowContext[str]) -> None:
                ctx.executor_state[name] = {name: text}
                await ctx.send_message(text)

            return keep

        odd, keepers = Odd(id="$d"), [remember(name) for name in names if name != "$d"]
        builder = WorkflowBuilder(name="$", start_executor=odd).add_fan_out_edges(odd, keepers)

        @executor(id="meet")
        async def meet(texts: list[str], ctx: WorkflowContext[str, Any]) -> None:
            await ctx.yield_output(texts)

        late = Step("$late")
        builder.add_edge(keepers[0], late)
        return builder.add_fan_in_edges([*keepers[1:], late], meet).build()

    cp = place.create(workflow(), "$p", metadata={"$": "$"})
    await workflow().run("t", checkpoint=cp, input_id="$", metadata={"$": {"$p": 1}}, max_supersteps=2)
    cp = await place.reload("$p")
    whole = cp.head_snapshot.state  # type: ignore[union-attr]
    assert whole["workflow_state"]["shared"] == {name: {name: "t"} for name in names}
    assert whole["executor_states"] == {
        name: {"state": {name: {name: "t"}}} for name in names if name != "$d"
    }
    assert {request.request_id: request.data for request in cp.pending_requests} == {
        name: {name: "t"} for name in names
    }
    assert cp.head_snapshot.metadata["$"] == {"$p": 1}  # type: ignore[union-attr]
    await workflow().run(checkpoint=cp)
    cp = await place.reload("$p")
    answers = {name: {"$": name} for name in names}
    done = await workflow().run(responses=answers, checkpoint=cp, input_id="$p")
    assert done.get_outputs()[1:] == [[{name: "t"}, {"$": name}] for name in names]
    assert cp.head_snapshot.state["messages"]["input"]["value"] == answers  # type: ignore[union-attr]


# C50: odd text as the name of something.

TEXTS = {"nul": "a\x00b", "line separator": "\u2028", "long": "x" * 1_000_000, "surrogate": "\ud83d"}
MAY_BE_REFUSED = {
    ("metadata", "long"),  # 16 KiB at most
    ("metadata key", "long"),
    ("checkpoint id", "nul"),  # no control characters, at most 512
    ("checkpoint id", "long"),
    ("input id", "nul"),  # likewise
    ("input id", "long"),
}


def named(what: str, text: str) -> Workflow:
    """A workflow in which something has a text as its name."""

    class Start(Executor):
        @handler
        async def on_text(self, given: str, ctx: WorkflowContext[str, str]) -> None:
            if what == "shared key":
                ctx.set_state(text, given)
            elif what == "request id":
                await ctx.request_info(given, str, request_id=text)
            await ctx.send_message(given)

        @response_handler
        async def on_answer(self, asked: str, answer: str, ctx: WorkflowContext[str, str]) -> None:
            await ctx.yield_output(answer)

    async def last(given: str, ctx: WorkflowContext[str, str]) -> None:
        if what == "function key":
            ctx.executor_state[text] = given
        await ctx.yield_output(given)

    start = Start(id=text if what == "executor id" else "start")
    builder = WorkflowBuilder(name=text if what == "workflow name" else "named", start_executor=start)
    return builder.add_edge(start, executor(last, id="last")).build()


@every_place
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    "what",
    [
        *("shared key", "function key", "request id", "executor id", "workflow name", "input id"),
        *("metadata", "metadata key", "checkpoint metadata", "checkpoint id"),
    ],
)
async def test_c50_odd_text_as_a_name_is_kept_or_refused_the_same_everywhere(
    place: Place, what: str, text: str
) -> None:
    value = TEXTS[text]
    checkpoint_id = value if what == "checkpoint id" else "run-1"
    labels = {"metadata": {"k": value}} if what == "checkpoint metadata" else {}
    metadata = {"metadata": {"k": value}, "metadata key": {value: "v"}}.get(what)
    held: list[Checkpoint] = []

    async def attempt() -> None:
        workflow = named(what, value)
        held.append(place.create(workflow, checkpoint_id, **labels))
        input_id = value if what == "input id" else None
        await workflow.run("go", checkpoint=held[0], input_id=input_id, metadata=metadata)

    if text == "surrogate" or (what, text) in MAY_BE_REFUSED:
        with pytest.raises(BranchpointError) as caught:
            await attempt()
        str(caught.value).encode()  # what is said can be shown
        for cp in held:  # whatever was committed before can be read by others
            assert value not in repr([one.state for one in cp.snapshots])
            if cp.snapshots:
                assert bytes_of(await place.reload(checkpoint_id)) == bytes_of(cp)
        return
    await attempt()
    cp = await place.reload(checkpoint_id)
    head = cp.head_snapshot
    assert head is not None
    whole, found = head.state, head.metadata
    expected = {
        "shared key": lambda: list(whole["workflow_state"]["shared"]),
        "function key": lambda: list(whole["executor_states"]["last"]["state"]),
        "request id": lambda: [request.request_id for request in cp.pending_requests],
        "executor id": lambda: [cp.header.signature["start"]],
        "workflow name": lambda: [cp.workflow_name],
        "input id": lambda: [whole["messages"]["input"]["input_id"]],
        "metadata": lambda: [found["k"]],
        "metadata key": lambda: [key for key in found if key != "boundary"],
        "checkpoint metadata": lambda: [cp.metadata["k"]],
        "checkpoint id": lambda: [cp.checkpoint_id],
    }[what]
    assert expected() == [value]
    again = named(what, value)
    if what == "request id":
        assert (await again.run(responses={value: "a"}, checkpoint=cp)).get_outputs() == ["go", "a"]
    else:
        assert (await again.run("more", checkpoint=cp)).get_outputs() == ["more"]


# C51: names of types, and types that change.


async def test_c51_two_classes_of_one_name_stay_apart(tmp_path: Path) -> None:
    def thing(module: str) -> type[Any]:
        made = dataclass(type("Thing", (), {"__annotations__": {"n": int}, "__module__": module}))
        made.__qualname__ = "Thing"
        return made

    with isolated_registry():
        one, other, third = thing("shop.one"), thing("shop.other"), thing("shop.one")
        assert register_state_type(one) is one
        register_state_type(other)
        register_state_type(one)  # the same class twice is fine
        with pytest.raises(DefinitionError, match=r"'shop\.one\.Thing' already belongs to shop\.one\.Thing"):
            register_state_type(third)
        with pytest.raises(DefinitionError, match=r"'shop\.one\.Thing' already belongs to shop\.one\.Thing"):
            register_state_type(other, type_id="shop.one.Thing")
        with pytest.raises(DefinitionError, match=r"already registered as 'shop\.other\.Thing'"):
            register_state_type(other, type_id="shop.third")
        for kind in ("none", "memory", "file-json", "file-msgpack"):
            place, value = place_of(kind, tmp_path / kind), [one(1), other(1), {"o": other(2)}]
            await take_in(place.create(carrier()), value)
            await finish(await place.reload(), value)
            with pytest.raises(UnregisteredTypeError, match=r"Thing"):
                await take_in(place.create(carrier(), "third"), third(1))


@every_place
async def test_c51_a_class_local_to_a_function_works(place: Place) -> None:
    @dataclass
    class Local:
        n: int

    class Kind(enum.Enum):
        A = 1

    with isolated_registry():
        register_state_type(Local, type_id="scenario.local")
        register_state_type(Kind)
        value = {Kind.A: [Local(1)]}
        await take_in(place.create(carrier()), value)
        await finish(await place.reload(), value)


# Flavour of the class, its shape when it was stored, its shape when it is loaded, the error, what it says.
CHANGES: dict[str, tuple[str, str, str, type[BranchpointError] | None, str]] = {
    "the same": ("dataclass", "first", "first", None, ""),
    "a new version with an upgrade": ("dataclass", "first", "second version", None, ""),
    "data of a newer version": ("dataclass", "second version", "first", UnknownVersionError, "version 2"),
    "a class that is gone": ("dataclass", "first", "gone", UnregisteredTypeError, TYPE_ID),
    "an enum with more members": ("enum", "first", "added default", None, ""),
    "an enum with a member less": ("enum", "first", "removed", UnknownVersionError, "size"),
}
for flavour in ("dataclass", "struct", "model", "tuple"):
    CHANGES |= {
        f"a {flavour} with a new default": (flavour, "first", "added default", None, ""),
        f"a {flavour} with a field less": (flavour, "first", "removed", UnknownVersionError, "size"),
        f"a {flavour} with a new field": (flavour, "first", "added required", UnknownVersionError, "color"),
    }


@every_file
async def test_c51_a_class_that_changed_loads_or_says_what_is_wrong(place: Place, tmp_path: Path) -> None:
    changes = {what: change[:3] for what, change in CHANGES.items()}

    async def elsewhere(function: Callable[..., Any], *more: Any) -> Any:
        return await asyncio.to_thread(in_new_process, function, place.kind, str(tmp_path), changes, *more)

    await elsewhere(enter_changing)
    found = await elsewhere(go_on_changing)
    for what, (_, _, _, error, says) in CHANGES.items():
        said, shown = found[what]["said"], found[what]["shown"]
        assert [name for name, _ in said] == ([] if error is None else [error.__name__] * 4), (what, said)
        for _, text in said:
            assert TYPE_ID in text, what
            assert says in text, what
            assert "it[0]" in text, what
        assert shown["$"] == TYPE_ID
    # Nothing was lost by trying: a program with the class as it was goes on.
    changes = {what: change[:3] for what, change in CHANGES.items() if change[3] is not None}
    found = await elsewhere(go_on_changing, True)
    assert not any(found[what]["said"] for what in changes), found
