"""Bad input gets a clear error and loses nothing: edited states, damaged files, answers, changed graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from branchpoint import (
    BranchpointError,
    Checkpoint,
    CorruptCheckpointError,
    EncodingError,
    Executor,
    ExecutorStateError,
    GraphMismatchError,
    InvalidCallError,
    InvalidResponseError,
    UndeliverableMessageError,
    UnknownRequestError,
    UnknownVersionError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    register_state_type,
    response_handler,
)
from branchpoint.checkpoint import Summary
from tests.journals import bodies_of, journal_of, reseal
from tests.scenario.carry import JOIN, Meet, Pass, Take, carrier, entered, take_in, told
from tests.scenario.edits import (
    BUCKETS,
    DELIVERY,
    EARLIER,
    FIELDS,
    MAKERS,
    REQUEST,
    at,
    edits,
    in_progress,
    state_of,
)
from tests.scenario.kit import (
    Place,
    Step,
    Ticks,
    bytes_of,
    every_file,
    every_place,
    file_bytes,
    lineage,
)
from tests.scenario.spoil import C46, C49, REFUSED


async def refuses_to_run(cp: Checkpoint, what: str, error: type[BranchpointError], says: str) -> None:
    """Whatever is called, the same is said, nothing runs and nothing is committed."""
    before, ticks = (lineage(cp), cp.head_snapshot_id, bytes_of(cp)), entered.all()
    for call in ({}, {"message": "new"}, {"responses": {"ask": "yes"}}, {"message": "new", "input_id": "in"}):
        with pytest.raises(BranchpointError) as caught:
            await carrier().run(checkpoint=cp, **call)  # type: ignore[arg-type]
        assert type(caught.value) is error, f"{what}: {caught.value!r}"
        assert says in str(caught.value), f"{what}: {caught.value}"
    assert (lineage(cp), cp.head_snapshot_id, bytes_of(cp)) == before, what
    assert entered.all() == ticks, what
    assert cp.in_use_by is None, what


async def written(cp: Checkpoint, whole: dict[str, Any]) -> None:
    """What a program does that commits whatever it likes."""
    with cp.hold("another program") as hold:
        await hold.commit_snapshot(whole, summary=Summary("edited", "in_progress", requests=("ask",)))


@every_place
@pytest.mark.parametrize("made", MAKERS)
async def test_an_edited_state_of_another_shape_is_refused_at_the_commit_by_path(
    place: Place, tmp_path: Path, made: str
) -> None:
    make, more = MAKERS[made]
    cp = await make(place)
    whole = state_of(cp)
    before, on_disk = (lineage(cp), cp.head_snapshot_id, bytes_of(cp)), file_bytes(tmp_path)
    found = list(edits(whole, {**FIELDS, **EARLIER, **more}))
    assert len(found) > 200
    for what, path, edited in found[:: 7 if place.is_stored else 1]:  # quick without a storage
        with pytest.raises(InvalidCallError) as caught:
            await cp.commit_snapshot(edited)
        assert path in str(caught.value), f"{what}: {caught.value}"
        assert (lineage(cp), cp.head_snapshot_id, bytes_of(cp)) == before, what
        assert file_bytes(tmp_path) == on_disk, what
        assert cp.in_use_by is None
    # Nothing is lost: a good edit of it runs to its end.
    whole["messages"]["pending"]["deliveries"][0]["value"] = "edited"
    await cp.commit_snapshot(whole)
    assert "edited" in str((await carrier().run(checkpoint=await place.reload())).get_outputs())


@every_place
@pytest.mark.parametrize("made", MAKERS)
async def test_a_stored_state_of_another_shape_is_refused_by_path_before_anything_runs(
    place: Place, made: str
) -> None:
    make, more = MAKERS[made]
    cp = await make(place)
    whole, good = state_of(cp), cp.head_snapshot_id
    for what, path, edited in list(edits(whole, {**FIELDS, **more}))[:: 7 if place.is_stored else 1]:
        await written(cp, edited)
        await refuses_to_run(cp, what, CorruptCheckpointError, path)
        cp.restart_from(good)
    loaded = await place.reload()
    assert bytes_of(loaded) == bytes_of(cp)
    if place.is_stored:  # the last bad state is the stored head, and every reader is told the same
        await refuses_to_run(loaded, "after a reload", CorruptCheckpointError, path)
        loaded.restart_from(good)
    # Nothing is lost: the snapshot before them runs to its end.
    paused = await carrier().run(checkpoint=loaded)
    if made == "in progress":
        assert paused.get_outputs() == [["second"], [["second"], ["second"]]]


@every_place
async def test_stored_earlier_inputs_of_another_shape_are_refused_when_they_are_asked_for(
    place: Place,
) -> None:
    cp = await in_progress(place)
    good, records = cp.head_snapshot_id, state_of(cp)["messages"]["input"]["earlier"]
    assert len(records) == 2
    for what, path, edited in edits(state_of(cp), EARLIER):
        await written(cp, edited)
        before = lineage(cp)
        with pytest.raises(CorruptCheckpointError) as caught:
            await carrier().run("first", checkpoint=cp, input_id="again")
        assert path in str(caught.value), what
        assert lineage(cp) == before
        cp.restart_from(good)
    result = await carrier().run("first", checkpoint=cp, input_id=records[0]["input_id"])
    assert result.get_outputs() == ["first", ["first", "first"]]  # a good record is answered from


@every_place
@pytest.mark.parametrize("made", MAKERS)
async def test_reading_a_state_of_another_shape_raises_only_the_librarys_errors(
    place: Place, made: str
) -> None:
    """Whoever looks without a workflow sees what can be shown, or gets a clear error."""
    make, more = MAKERS[made]
    cp = await make(place)
    whole, good = state_of(cp), cp.head_snapshot_id
    looks: list[Callable[[], Any]] = [
        lambda: cp.status,
        lambda: [(one.data, one.path, one.response_schema, repr(one)) for one in cp.pending_requests],
        lambda: [(one.value, one.turn, repr(one)) for one in cp.outputs()],
        lambda: cp.outputs("no such input"),
        lambda: cp.outputs(whole["messages"]["input"]["input_id"]),
        lambda: cp.events(),
        lambda: cp.head_snapshot.state,  # type: ignore[union-attr]
        lambda: cp.head_snapshot.plain_state(),  # type: ignore[union-attr]
    ]
    found = list(edits(whole, {**FIELDS, **EARLIER, **more}))
    for what, _, edited in found[:: 7 if place.is_stored else 1]:
        await written(cp, edited)
        for look in looks:
            try:
                look()
            except BranchpointError:
                pass
            except Exception as error:
                pytest.fail(f"{what}: {error!r}")
        forked = await cp.fork()
        assert forked.head_snapshot is not None
        assert forked.head_snapshot.root == cp.head_snapshot.root  # type: ignore[union-attr]
        if cp.status != "idle":
            assert (await cp.abandon()).status == "idle"
        cp.restart_from(good)


# Names that the graph does not have.

GHOSTS: dict[str, Callable[[dict[str, Any]], None]] = {
    "executor_states.ghost": lambda whole: whole["executor_states"].update(ghost={"held": 1}),
    "edge_states.fan_in:a,b->c": lambda whole: whole["edge_states"].update(
        {"fan_in:a,b->c": {"received": {}}}
    ),
    f"edge_states.{JOIN}.received.ghost": lambda whole: at(whole, ("edge_states", JOIN, "received")).update(
        ghost=[1]
    ),
    "messages.pending.deliveries[0] to 'ghost'": lambda whole: at(whole, DELIVERY)["targets"].append("ghost"),
    "messages.pending.deliveries[0] from 'ghost'": lambda whole: at(whole, DELIVERY)["sources"].append(
        "ghost"
    ),
    "messages.pending.requests.ask of 'ghost'": lambda whole: at(whole, REQUEST).update(
        source_executor_id="ghost"
    ),
}


@every_place
@pytest.mark.parametrize("says", GHOSTS)
async def test_ghosts_in_an_edited_state_are_named(place: Place, says: str) -> None:
    cp = await in_progress(place)
    good, whole = cp.head_snapshot_id, state_of(cp)
    GHOSTS[says](whole)
    await cp.commit_snapshot(whole)
    loaded = await place.reload()
    for held in (cp, loaded):
        await refuses_to_run(held, says, GraphMismatchError, says)
    loaded.restart_from(good)
    assert (await carrier().run(checkpoint=loaded)).get_outputs()[0] == ["second"]


async def test_all_ghosts_are_named_at_once(place: Place) -> None:
    cp = await in_progress(place)
    whole = state_of(cp)
    for haunt in GHOSTS.values():
        haunt(whole)
    await cp.commit_snapshot(whole)
    for says in GHOSTS:
        await refuses_to_run(cp, says, GraphMismatchError, says)


@every_place
async def test_a_field_that_no_class_declares_is_named_before_its_executor_runs(place: Place) -> None:
    cp = await in_progress(place)
    good, whole = cp.head_snapshot_id, state_of(cp)
    whole["executor_states"]["take"]["ghost"] = 1
    at(whole, DELIVERY)["targets"] = ["take"]
    await cp.commit_snapshot(whole)
    before, ticks = lineage(cp), entered.all()
    with pytest.raises(ExecutorStateError, match=r"'take'.*'ghost'.*'held'"):
        await carrier().run(checkpoint=await place.reload())
    assert lineage(await place.reload()) == before
    assert entered.all() == ticks
    cp.restart_from(good)
    assert (await carrier().run(checkpoint=cp)).get_outputs()[0] == ["second"]


@every_place
async def test_a_pending_message_that_no_handler_takes_is_named(place: Place) -> None:
    start, end = Step("start"), Step("end", final=True)
    workflow = WorkflowBuilder(name="typed", start_executor=start).add_edge(start, end).build()
    cp = place.create(workflow)
    await workflow.run("go", checkpoint=cp, max_supersteps=1)
    good, whole = cp.head_snapshot_id, cp.head_snapshot.state  # type: ignore[union-attr]
    whole["messages"]["pending"]["deliveries"][0]["value"] = 7
    await cp.commit_snapshot(whole)
    before = bytes_of(cp)
    with pytest.raises(UndeliverableMessageError, match=r"'end'.*\bint\b"):
        await workflow.run(checkpoint=cp)
    assert bytes_of(cp) == before
    cp.restart_from(good)
    assert (await workflow.run(checkpoint=cp)).get_outputs() == ["go>start>end"]


# Buckets.


@every_place
async def test_another_number_of_buckets_is_refused_at_the_commit(place: Place, tmp_path: Path) -> None:
    cp = await in_progress(place)
    before, on_disk = (lineage(cp), bytes_of(cp)), file_bytes(tmp_path)
    whole = state_of(cp)
    bad: dict[str, Any] = {"fifth": {**whole, "fifth": {}}, "mapping": [], "not int": 7}
    for bucket in whole:
        bad[bucket] = {name: found for name, found in whole.items() if name != bucket}
        bad[f"{bucket} is a mapping"] = {**whole, bucket: ["x"]}
    for part in whole["messages"]:
        kept = {name: found for name, found in whole["messages"].items() if name != part}
        bad[f"{part} is missing"] = {**whole, "messages": kept}
    bad["'more' is not one of them"] = {**whole, "messages": {**whole["messages"], "more": []}}
    for says, edited in bad.items():
        with pytest.raises(InvalidCallError) as caught:
            await cp.commit_snapshot(edited)
        assert says in str(caught.value)
        assert (lineage(cp), bytes_of(cp)) == before
        assert file_bytes(tmp_path) == on_disk
    assert (await carrier().run(checkpoint=cp)).get_outputs()[0] == ["second"]


# Values that cannot be kept, in an edited state.


@every_place
@pytest.mark.parametrize("path", BUCKETS)
async def test_what_cannot_be_kept_is_refused_at_the_commit_by_its_full_path(
    place: Place, tmp_path: Path, path: str
) -> None:
    cp = await in_progress(place)
    before, on_disk = (lineage(cp), cp.head_snapshot_id, bytes_of(cp)), file_bytes(tmp_path)
    bad: list[tuple[Any, str, str]] = [(make(), named, "") for make, named in C49.values()]
    bad += [(make(), named, steps) for make, named, steps in REFUSED.values()]
    bad += [(make(), says, "" if "deeper" in says else "[0]") for make, says, _ in list(C46.values())[:1]]
    for value, named, steps in bad:
        whole = state_of(cp)
        steps_to = BUCKETS[path]
        at(whole, steps_to[:-1])[steps_to[-1]] = {"a": [0, {"b": (value,)}]}
        with pytest.raises(EncodingError) as caught:
            await cp.commit_snapshot(whole)
        assert named in str(caught.value)
        assert f"{path}.a[1].b[0]{steps}" in str(caught.value)
        assert (lineage(cp), cp.head_snapshot_id, bytes_of(cp)) == before
        assert file_bytes(tmp_path) == on_disk
    assert (await carrier().run(checkpoint=await place.reload())).get_outputs()[0] == ["second"]


@every_place
async def test_c46_cycles_in_an_edited_state_are_refused_by_path(place: Place, tmp_path: Path) -> None:
    await are_refused(place, tmp_path, "contains itself")


@every_place
async def test_c46_depth_in_an_edited_state_is_refused_by_path(place: Place, tmp_path: Path) -> None:
    await are_refused(place, tmp_path, "deeper than 256 levels")


async def are_refused(place: Place, folder: Path, says: str) -> None:
    """Every value of C46 that is wrong in this way, in every bucket."""
    cp = await in_progress(place)
    before, on_disk = (lineage(cp), cp.head_snapshot_id, bytes_of(cp)), file_bytes(folder)
    for path, steps in BUCKETS.items():
        for make, reason, _ in C46.values():
            if reason != says:
                continue
            whole = state_of(cp)
            at(whole, steps[:-1])[steps[-1]] = make()
            with pytest.raises(EncodingError) as caught:
                await cp.commit_snapshot(whole)
            assert says in str(caught.value)
            assert path in str(caught.value)
            assert (lineage(cp), cp.head_snapshot_id, bytes_of(cp)) == before
            assert file_bytes(folder) == on_disk
    assert (await carrier().run(checkpoint=cp)).get_outputs()[0] == ["second"]


# Versions and damage.


def edited_json(n: int, old: bytes, new: bytes) -> Callable[[list[bytes]], None]:
    def edit(bodies: list[bytes]) -> None:
        assert bodies[n].count(old) == 1
        bodies[n] = bodies[n].replace(old, new)

    return edit


VERSIONS: dict[str, tuple[type[BranchpointError], Callable[[list[bytes]], None]]] = {
    "the header is newer": (UnknownVersionError, edited_json(0, b'"branchpoint":1,', b'"branchpoint":2,')),
    "the newest snapshot is newer": (UnknownVersionError, edited_json(-1, b'"sig":', b'"v":2,"sig":')),
    "the first snapshot is newer": (UnknownVersionError, edited_json(1, b'"sig":', b'"v":2,"sig":')),
    "the header is of no version": (
        CorruptCheckpointError,
        edited_json(0, b'"branchpoint":1,', b'"branchpoint":0,'),
    ),
    "a snapshot is of no version": (CorruptCheckpointError, edited_json(-1, b'"sig":', b'"v":0,"sig":')),
    "a status that is none": (
        CorruptCheckpointError,
        edited_json(-1, b'"st":"in_progress"', b'"st":"failed"'),
    ),
    "a boundary that is none": (
        CorruptCheckpointError,
        edited_json(-1, b'"b":"superstep_completed"', b'"b":"superstep"'),
    ),
}


@pytest.mark.parametrize("place", ["file-json"], indirect=True)
@pytest.mark.parametrize("what", VERSIONS)
async def test_a_wrong_version_is_told_and_the_right_one_still_runs(
    place: Place, tmp_path: Path, what: str
) -> None:
    error, edit = VERSIONS[what]
    await in_progress(place)
    path = journal_of(tmp_path / "runs", "run-1")
    _, bodies = bodies_of(path)
    reseal(path, bodies)
    good = path.read_bytes()
    edit(bodies)
    reseal(path, bodies)
    bad = path.read_bytes()
    assert bad != good
    held = place.create(carrier(), "another")
    for _ in range(2):
        with pytest.raises(error, match="run-1"):
            await place.reload()
        assert path.read_bytes() == bad
    await carrier().run("beside", checkpoint=held)  # other checkpoints are not concerned
    path.write_bytes(good)
    assert (await carrier().run(checkpoint=await place.reload())).get_outputs()[0] == ["second"]


# Answers of another type.


@register_state_type("scenario.bad.address")
@dataclass
class Address:
    street: str
    number: int


class Question(msgspec.Struct, frozen=True):
    """One way to ask, for each type of answer."""

    about: str


register_state_type(Question, type_id="scenario.bad.question")

ANSWERS: dict[str, tuple[Any, list[Any], Any]] = {
    "int": (int, [True, 3.0, "3", None, [3], {"n": 3}], 3),
    "bool": (bool, [1, 0, "true", None], True),
    "float": (float, ["1.5", True, None], 1.5),
    "str": (str, [1, b"x", None, ["x"]], "x"),
    "list": (list[int], [[1, "2"], (1,), {"a": 1}, [True], [[1]], "12", None], [1, 2]),
    "address": (
        Address,
        [
            {},
            {"street": "a"},
            {"street": "a", "number": "1"},
            {"street": "a", "number": 1, "more": 2},
            ["a", 1],
            None,
        ],
        {"street": "a", "number": 1},
    ),
    "literal": (Literal["yes", "no"], ["maybe", True, 1, None], "no"),
    "tuple": (tuple[int, str], [[1], [1, 2], [1, "a", 3], "1a", None], [1, "a"]),
    "union": (int | Address, ["3", 3.0, True, {"street": "a"}], {"street": "a", "number": 2}),
    "nothing": (type(None), [0, False, "", "None"], None),
}


def asking(kind: str, ticks: Ticks) -> Workflow:
    declared = ANSWERS[kind][0]

    class Asker(Executor):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, Any]) -> None:
            ticks("asked")
            await ctx.request_info(Question(text), declared, request_id="ask")

        @response_handler(request=Question, response=declared)
        async def on_answer(self, asked: Question, answer: Any, ctx: WorkflowContext[str, Any]) -> None:
            ticks("answered")
            await ctx.yield_output([type(answer).__name__, answer])

    return WorkflowBuilder(name="asking", start_executor=Asker(id="asker")).build()


@every_place
@pytest.mark.parametrize("kind", ANSWERS)
async def test_an_answer_of_another_type_is_refused_and_the_request_stays_open(
    place: Place, tmp_path: Path, kind: str
) -> None:
    _, wrong, right = ANSWERS[kind]
    ticks = Ticks()
    held = place.create(asking(kind, ticks))
    await asking(kind, ticks).run("go", checkpoint=held)
    for cp in (held, await place.reload()):  # warm, and after a cold load
        before, on_disk = (lineage(cp), bytes_of(cp)), file_bytes(tmp_path)
        for answer in wrong:
            with pytest.raises(InvalidResponseError) as caught:
                await asking(kind, ticks).run(responses={"ask": answer}, checkpoint=cp)
            assert "'ask'" in str(caught.value), answer
            assert "'asker'" in str(caught.value)
            assert "responses.ask" in str(caught.value), (answer, str(caught.value))
            assert (lineage(cp), bytes_of(cp)) == before, answer
        for unknown in ({"nope": right}, {"ask": right, "nope": right}, {"": right}):
            with pytest.raises(UnknownRequestError, match=r"'nope'|''"):
                await asking(kind, ticks).run(responses=unknown, checkpoint=cp)
        with pytest.raises(InvalidCallError):
            await asking(kind, ticks).run(responses={}, checkpoint=cp)
        assert (lineage(cp), bytes_of(cp)) == before
        assert file_bytes(tmp_path) == on_disk
        assert [request.request_id for request in cp.pending_requests] == ["ask"]
        assert ticks.all() == {"asked": 1}
    done = await asking(kind, ticks).run(responses={"ask": right}, checkpoint=cp)
    assert ticks.all() == {"asked": 1, "answered": 1}
    ((found, value),) = done.get_outputs()
    assert found == {"address": "Address", "union": "Address", "tuple": "tuple"}.get(
        kind, type(right).__name__
    )
    if kind in ("address", "union"):
        assert value == Address(**right)
    else:
        assert told(value) == told(tuple(right) if kind == "tuple" else right)
    with pytest.raises(UnknownRequestError, match="'ask'"):
        await asking(kind, ticks).run(responses={"ask": right}, checkpoint=cp)


# Changed graphs.


class OtherPass(Pass):
    pass


class Gather(Meet):
    """Takes anything, so that edges may lead to it which are no joins."""

    @handler
    async def on_value(self, value: object, ctx: WorkflowContext[object, object]) -> None:
        await ctx.yield_output(value)


def big(value: object) -> bool:
    return True


def small(value: object) -> bool:
    return True


def changed(what: str) -> Workflow:
    """`carrier` with a condition, and with one thing changed."""
    take: Executor = Take(id="take")
    hand_on: Executor = OtherPass(id="pass") if what == "type" else Pass(id="pass")
    meet: Executor = Gather(id="meet")
    if what == "renamed":
        hand_on = Pass(id="pass-on")
    name, start = ("another" if what == "name" else "carrier"), take
    if what == "start":
        start = hand_on
    builder = WorkflowBuilder(name=name, start_executor=start, max_iterations=9)
    condition = {"condition": small, "no condition": None}.get(what, big)
    if what == "kind":
        extra = Pass(id="more")
        builder.add_fan_out_edges(take, [hand_on, extra]).add_edge(extra, hand_on)
    else:
        builder.add_edge(take, hand_on, condition)
    if what == "start":
        builder.add_edge(hand_on, take)
    if what == "added":
        builder.add_edge(meet, Gather(id="more"))
    if what == "edge added":
        builder.add_edge(hand_on, take)
    if what in ("edge removed", "join turned"):
        builder.add_edge(hand_on, meet)
        if what == "join turned":
            builder.add_edge(take, meet)
    else:
        builder.add_fan_in_edges([take, hand_on], meet)
    return builder.build()


CHANGES: dict[str, list[str]] = {
    "name": ["'carrier'", "'another'"],
    "renamed": ["executor renamed", "'pass'", "'pass-on'"],
    "type": ["executor 'pass' changed its type", "Pass is now OtherPass"],
    "added": ["executor added: 'more'", "edge added: 'meet' -> 'more'"],
    "edge added": ["edge added: 'pass' -> 'take'"],
    "condition": ["condition of edge 'take' -> 'pass' was 'big', is now 'small'"],
    "no condition": ["condition of edge 'take' -> 'pass' was 'big', is now none"],
    "start": ["start executor was 'take', is now 'pass'"],
    "kind": [
        "edge removed: 'take' -> 'pass'",
        "executor added: 'more'",
        "edge added: 'take' -> ['more', 'pass']",
    ],
    "edge removed": ["edge removed: ['pass', 'take'] -> 'meet' (fan_in)", "edge added: 'pass' -> 'meet'"],
    "join turned": ["edge removed: ['pass', 'take'] -> 'meet' (fan_in)", "edge added: 'take' -> 'meet'"],
}


@every_place
@pytest.mark.parametrize("what", CHANGES)
async def test_c30_a_changed_graph_is_refused_and_what_changed_is_named(
    place: Place, tmp_path: Path, what: str
) -> None:
    original = changed("nothing")
    cp = place.create(original)
    await original.run(["first"], checkpoint=cp, max_supersteps=1)
    loaded = await place.reload()
    before, on_disk, ticks = (lineage(loaded), bytes_of(loaded)), file_bytes(tmp_path), entered.all()
    other = changed(what)
    assert other.graph_signature_hash != original.graph_signature_hash
    for call in ({}, {"message": "new"}, {"responses": {"ask": 1}}):
        with pytest.raises(GraphMismatchError) as caught:
            await other.run(checkpoint=loaded, **call)  # type: ignore[arg-type]
        for says in CHANGES[what]:
            assert says in str(caught.value), str(caught.value)
        assert (lineage(loaded), bytes_of(loaded)) == before
        assert file_bytes(tmp_path) == on_disk
        assert loaded.in_use_by is None
    assert entered.all() == ticks
    result = await changed("nothing").run(checkpoint=loaded)
    assert result.get_outputs() == [["first"], [["first"], ["first"]]]


@every_place
async def test_c30_what_the_signature_does_not_cover_may_change(place: Place) -> None:
    """A bound, bodies of functions, designated outputs and the order of declaration."""
    cp = place.create(carrier())
    await take_in(cp, "first")
    take, hand_on, meet = Take(id="take"), Pass(id="pass"), Meet(id="meet")
    builder = WorkflowBuilder(
        name="carrier", start_executor=take, max_iterations=7, description="new", output_from=[meet]
    )
    other = builder.add_fan_in_edges([hand_on, take], meet).add_edge(take, hand_on).build()
    loaded = await place.reload()
    result = await other.run(checkpoint=loaded)
    assert sorted(map(repr, result.get_outputs())) == ["'first'", "['first', 'first']"]


@every_file
async def test_c30_another_graph_is_named_after_a_fork_and_after_a_prune(place: Place) -> None:
    cp = place.create(carrier())
    await take_in(cp, "first")
    forked = await cp.fork(checkpoint_id="forked")
    await cp.prune()
    for held in (cp, await place.reload(), forked, await place.reload("forked")):
        with pytest.raises(GraphMismatchError, match="executor 'pass' changed its type"):
            await changed("type").run(checkpoint=held)
        assert held.status == "in_progress"
