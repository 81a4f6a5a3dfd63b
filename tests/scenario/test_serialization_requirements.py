"""R16 to R18 through runs, R34, R40 to R43, R61 and R62: what is kept, by whom, and how."""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from branchpoint import (
    BranchpointError,
    Checkpoint,
    CheckpointConflictError,
    CheckpointInUseError,
    CheckpointNotFoundError,
    CorruptCheckpointError,
    DataError,
    EncodingError,
    Executor,
    FileCheckpointStorage,
    GraphMismatchError,
    MemoryCheckpointStorage,
    UnknownVersionError,
    UnregisteredTypeError,
    UnsupportedValueError,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    clock,
    codec,
    handler,
    ids,
    register_state_type,
)
from branchpoint.checkpoint import Header, Manifest, Summary, decode_header
from branchpoint.codec import isolated_registry
from tests.journals import bodies_of, journal_of, reseal
from tests.scenario.carry import VALUES, carrier, finish, places_of, take_in, told
from tests.scenario.kit import (
    ROOT,
    Around,
    Boom,
    Place,
    Step,
    Ticks,
    boundaries,
    bytes_of,
    chain,
    every_file,
    every_place,
    every_storage,
    file_bytes,
    in_new_process,
    lineage,
    place_of,
)
from tests.scenario.test_storage_cases import V1

# One way for a snapshot to come into being.


@every_storage
async def test_r16_a_run_commits_through_the_checkpoint_alone(place: Place) -> None:
    """Storage is asked once per snapshot, before anybody sees it, with the head of the one before."""
    inner = place.open()
    assert inner is not None
    seen: list[tuple[Any, ...]] = []

    class Watching(Around):
        async def commit_snapshot(self, checkpoint: Checkpoint, snapshot: Any, **more: Any) -> None:
            seen.append((snapshot, more["expected_head_snapshot_id"], checkpoint.head_snapshot_id))
            seen[-1] += (list(checkpoint.snapshots),)
            await super().commit_snapshot(checkpoint, snapshot, **more)

    workflow = carrier()
    cp = workflow.create_checkpoint("run-1", Watching(inner))
    await workflow.run("first", checkpoint=cp)
    (request,) = cp.pending_requests
    await workflow.run(responses={request.request_id: "yes"}, checkpoint=cp)
    await workflow.run("second", checkpoint=cp)
    assert [found[0] for found in seen] == cp.snapshots
    for n, (snapshot, expected, head, shown) in enumerate(seen):
        before = cp.snapshots[:n]
        assert shown == before
        assert expected == head == (before[-1].snapshot_id if before else None)
        assert snapshot.parent_snapshot_id == head
    again = await inner.load("run-1")
    assert bytes_of(again) == bytes_of(cp)


async def test_r16_without_storage_a_run_commits_the_same(tmp_path: Path) -> None:
    """With injected ids and clock the snapshots of the same run are the same, byte for byte."""
    kept = []
    for kind in ("none", "memory", "file-json"):
        with ids.injected(ids.SequentialIds()), clock.injected(clock.SteppingClock()):
            cp = place_of(kind, tmp_path / kind).create(carrier())
            await carrier().run("first", checkpoint=cp)
            await carrier().run(responses={cp.pending_requests[0].request_id: "yes"}, checkpoint=cp)
        kept.append((lineage(cp), boundaries(cp), bytes_of(cp)))
    assert kept[0] == kept[1] == kept[2]
    assert kept[0][1] == [
        "input_accepted",
        *["superstep_completed"] * 2,
        "paused",
        "responses_accepted",
        "completed",
    ]


def test_r16_the_engine_knows_neither_storage_nor_lineage() -> None:
    """It exports a state and gives it to a hold; nothing else of the checkpoint's is at its hand."""
    source = ROOT / "src" / "branchpoint"
    for path in [*(source / "engine").glob("*.py"), *(source / "workflow").glob("*.py")]:
        text = path.read_text(encoding="utf-8")
        for name in (
            "_history",
            ".advance(",
            "land(",
            "Manifest(",
            "CheckpointSnapshot(",
            "branchpoint.storage",
        ):
            assert name not in text, f"{path.name} speaks of {name}"
        if "engine" in path.parts:
            assert "checkpoint_storage" not in text, path.name
            assert text.count("commit_snapshot(") <= 1, path.name


@every_place
async def test_r17_nobody_commits_beside_a_run(place: Place) -> None:
    """While a run holds the checkpoint every other way to move its head is refused at once."""
    entered, gate = asyncio.Event(), asyncio.Event()

    class Waiting(Step):
        @handler
        async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
            entered.set()
            await gate.wait()
            await self.done(text, ctx)

    workflow = chain(Waiting("waiting"), Step("end", final=True))
    cp = place.create(workflow)
    running = asyncio.ensure_future(workflow.run("go", checkpoint=cp))
    await entered.wait()
    first = cp.snapshots[0].snapshot_id
    whole = cp.snapshots[0].state
    for call in (
        lambda: cp.commit_snapshot(whole),
        lambda: cp.commit_snapshot(metadata={"k": "v"}),
        lambda: workflow.run(checkpoint=cp),
        lambda: workflow.run("other", checkpoint=cp),
        cp.abandon,
        cp.prune,
        cp.refresh,
    ):
        with pytest.raises(CheckpointInUseError):
            await call()
    with pytest.raises(CheckpointInUseError):
        cp.restart_from(first)
    assert len(cp.snapshots) == 1
    gate.set()
    assert (await running).get_outputs() == ["go>end"]
    assert [parent for _, parent in lineage(cp)] == [None, *[one.snapshot_id for one in cp.snapshots[:-1]]]
    assert bytes_of(await place.reload()) == bytes_of(cp)


@every_storage
async def test_r17_of_two_runs_on_two_copies_one_commits_and_one_conflicts(place: Place) -> None:
    ticks = Ticks()
    workflow = chain(Step("a", ticks), Step("b", ticks, final=True))
    await workflow.run("0", checkpoint=place.create(workflow))
    for n in range(1, 20):
        copies = [await place.reload() for _ in range(2)]
        done = await asyncio.gather(
            *(workflow.run(f"{n}{name}", checkpoint=cp) for cp, name in zip(copies, "xy", strict=True)),
            return_exceptions=True,
        )
        failed = [found for found in done if isinstance(found, BaseException)]
        assert [type(found) for found in failed] == [CheckpointConflictError]
        assert ticks["a"] == ticks["b"] == n + 1  # the loser entered no handler
    final = await place.reload()
    parents = [parent for _, parent in lineage(final)]
    assert len(parents) == len(set(parents)) == 20 * 3
    assert parents[1:] == [one.snapshot_id for one in final.snapshots[:-1]]


@every_storage
@pytest.mark.parametrize("failing", [1, 2, 3], ids=["entry", "middle", "last"])
@pytest.mark.parametrize(
    "error", [Boom("no"), OSError(28, "No space left on device")], ids=["own", "disk full"]
)
async def test_r18_a_failed_commit_of_a_run_changes_nothing_and_reaches_the_caller(
    place: Place, failing: int, error: Exception
) -> None:
    inner = place.open()
    assert inner is not None
    broken = True

    def before(number: int) -> None:
        if broken and number >= failing:
            raise error

    ticks = Ticks()
    workflow = chain(Step("a", ticks), Step("b", ticks, final=True))
    cp = workflow.create_checkpoint("run-1", Around(inner, before=before))
    with pytest.raises((Boom, OSError)) as caught:
        await workflow.run("go", checkpoint=cp)
    assert caught.value is error
    assert len(cp.snapshots) == failing - 1
    assert cp.head_snapshot_id == cp.stored_head_snapshot_id
    assert cp.head_snapshot_id == (cp.snapshots[-1].snapshot_id if cp.snapshots else None)
    assert cp.in_use_by is None
    if failing == 1:
        with pytest.raises(CheckpointNotFoundError):
            await inner.load("run-1")
        assert ticks.all() == {}
    else:
        assert bytes_of(await inner.load("run-1")) == bytes_of(cp)
    with pytest.raises((Boom, OSError)):  # nor does the next call, while it lasts
        await workflow.run(*(["go"] if failing == 1 else []), checkpoint=cp)
    assert len(cp.snapshots) == failing - 1
    broken = False
    result = await workflow.run(*(["go"] if failing == 1 else []), checkpoint=cp)
    assert result.get_outputs() == ["go>a>b"]
    assert boundaries(cp) == ["input_accepted", "superstep_completed", "completed"]
    assert bytes_of(await inner.load("run-1")) == bytes_of(cp)


# Backends.


@every_storage
async def test_r34_a_backend_keeps_loads_and_deletes_for_real(place: Place, tmp_path: Path) -> None:
    storage = place.open()
    assert storage is not None
    for unknown in ("never-there", "run-1", "x" * 512, "a/../b", "*"):
        with pytest.raises(CheckpointNotFoundError) as caught:
            await storage.load(unknown)
        assert isinstance(caught.value, LookupError)
        assert repr(unknown)[1:20] in str(caught.value)
        assert caught.value.retryable is False
        assert await storage.delete(unknown) is None  # type: ignore[func-returns-value]
    assert file_bytes(tmp_path) == {}  # asking leaves nothing behind
    cp, other = place.create(carrier()), place.create(carrier(), "other")
    await take_in(cp, "mine")
    await take_in(other, "theirs")
    kept = bytes_of(await place.reload("other"))
    assert bytes_of(await place.reload()) == bytes_of(cp)
    for _ in range(2):
        assert await storage.delete("run-1") is None  # type: ignore[func-returns-value]
        with pytest.raises(CheckpointNotFoundError, match="run-1"):
            await place.reload()
    assert not [name for name in file_bytes(tmp_path) if "run-1" in name]
    assert bytes_of(await place.reload("other")) == kept
    with pytest.raises(BranchpointError):  # what holds the deleted one cannot bring it back
        await carrier().run(checkpoint=cp)
    with pytest.raises(CheckpointNotFoundError):
        await place.reload()
    again = place.create(carrier())
    await take_in(again, "anew")
    await finish(await place.reload(), "anew")


@every_file
async def test_r34_a_file_outlives_its_process(place: Place, tmp_path: Path) -> None:
    taken = await asyncio.to_thread(in_new_process, take_in_elsewhere, place.kind, str(tmp_path))
    cp = await place.reload()
    assert [one.snapshot_id for one in cp.snapshots] == taken
    await finish(cp, ["from elsewhere"])
    with pytest.raises(CheckpointNotFoundError):
        await place.reload("run-2")


async def take_in_elsewhere(kind: str, folder: str) -> list[str]:
    cp = place_of(kind, Path(folder)).create(carrier())
    await take_in(cp, ["from elsewhere"])
    return [one.snapshot_id for one in cp.snapshots]


async def test_r34_memory_is_kept_as_long_as_its_object() -> None:
    one, other = MemoryCheckpointStorage(), MemoryCheckpointStorage()
    await take_in(carrier().create_checkpoint("run-1", one), "x")
    with pytest.raises(CheckpointNotFoundError):
        await other.load("run-1")
    first, second = await one.load("run-1"), await one.load("run-1")
    assert first is not second
    assert bytes_of(first) == bytes_of(second)
    await finish(first, "x")
    assert len(second.snapshots) == 2  # what was loaded before is not moved by others


# Serialization.


async def test_r40_json_is_the_default_and_can_be_read(tmp_path: Path) -> None:
    storage = FileCheckpointStorage(tmp_path)
    assert storage.serialization_format == "json"
    cp = carrier().create_checkpoint("run-1", storage)
    value = {"name": 'Zoë ☃ "quoted"', "n": 7, "list": [1.5, None, True], "raw": b"\x00\xff"}
    await take_in(cp, value)
    (path,) = [found for found in tmp_path.iterdir() if found.suffix == ".journal"]
    form, bodies = bodies_of(path)
    assert form == "json"
    for body in bodies:
        assert isinstance(json.loads(body), dict)  # any reader of JSON reads it
    text = b"".join(bodies).decode()
    assert 'Zoë ☃ \\"quoted\\"' in text  # as it is, neither escaped nor inside of another text
    assert base64.b64encode(b"\x00\xff").decode() in text
    commits = [json.loads(body) for body in bodies[1:]]
    assert [found["manifest"]["b"] for found in commits] == ["input_accepted", "superstep_completed"]
    assert [found["manifest"]["id"] for found in commits] == [one.snapshot_id for one in cp.snapshots]


async def test_r40_messagepack_is_written_on_request(tmp_path: Path) -> None:
    storage = FileCheckpointStorage(tmp_path, serialization_format="msgpack")
    await take_in(carrier().create_checkpoint("run-1", storage), {"raw": b"\x00\xff", "text": "x"})
    form, bodies = bodies_of(journal_of(tmp_path, "run-1"))
    assert form == "msgpack"
    assert b"\x00\xff" in b"".join(bodies)  # bytes are bytes here
    for body in bodies:
        assert isinstance(msgspec.msgpack.decode(body), dict)
    with pytest.raises((ValueError, BranchpointError)):
        FileCheckpointStorage(tmp_path, serialization_format="yaml")  # type: ignore[arg-type]


def without_order(plain: Any) -> Any:
    """A plain state whose sets are in one order; each format writes them in that of its own bytes."""
    if isinstance(plain, list):
        return [without_order(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    found = {key: without_order(item) for key, item in plain.items()}
    if found.get("$") in ("set", "frozenset") and isinstance(found.get("v"), list):
        found["v"] = sorted(found["v"], key=repr)
    return found


@pytest.mark.parametrize("case", VALUES)
async def test_r40_both_formats_are_one_model(tmp_path: Path, case: str) -> None:
    """The same run in either format: the same manifests, the same states, and one can become the other."""
    for number, value in enumerate(VALUES[case]()):
        kept: dict[str, Checkpoint] = {}
        for kind in ("file-json", "file-msgpack"):
            with ids.injected(ids.SequentialIds()), clock.injected(clock.SteppingClock()):
                place = place_of(kind, tmp_path / kind / str(number))
                await take_in(place.create(carrier()), value)
            kept[kind] = await place.reload()
        one, other = kept.values()
        for mine, theirs in zip(one.snapshots, other.snapshots, strict=True):
            assert told(mine.state) == told(theirs.state)
            assert without_order(mine.plain_state()) == without_order(theirs.plain_state())
            changed = msgspec.structs.replace(mine.manifest, root=theirs.root)
            assert changed == theirs.manifest
        assert msgspec.structs.replace(one.header, created_at=other.created_at) == other.header
        forked = await one.fork(checkpoint_id="forked", checkpoint_storage=other.checkpoint_storage)
        assert forked.head_snapshot is not None
        assert other.head_snapshot is not None
        assert forked.head_snapshot.root == other.head_snapshot.root


async def test_r40_envelopes_are_typed_versioned_structs(tmp_path: Path) -> None:
    for struct in (Header, Manifest):
        assert issubclass(struct, msgspec.Struct)
        assert struct.__struct_config__.frozen
        assert struct.__struct_config__.forbid_unknown_fields
        assert "format_version" in struct.__struct_fields__
    cp = place_of("file-json", tmp_path).create(carrier())
    await take_in(cp, "x")
    _, bodies = bodies_of(journal_of(tmp_path / "runs", "run-1"))
    (header,) = msgspec.json.decode(bodies[0], type=dict[str, msgspec.Raw]).values()
    assert decode_header(bytes(header), format="json", checkpoint_id="run-1") == cp.header
    assert {one.format_version for one in cp.snapshots} == {cp.header.format_version} == {1}


def test_r40_r42_saving_and_loading_need_msgspec_and_no_other_serializer(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from branchpoint import *

class Tally(Executor):
    seen: list = state(factory=list)
    @handler
    async def on_word(self, word: str, ctx: WorkflowContext[str, int]) -> None:
        self.seen.append({word, b"bytes", 2**70})
        await ctx.yield_output(len(self.seen))

async def main(folder):
    workflow = WorkflowBuilder(name="count", start_executor=Tally(id="tally")).build()
    for form in ("json", "msgpack"):
        storage = FileCheckpointStorage(folder, serialization_format=form)
        await workflow.run("a", checkpoint=workflow.create_checkpoint(form, storage))
        checkpoint = await storage.load(form)
        result = await workflow.run("b", checkpoint=checkpoint)
        assert result.get_outputs() == [2]

asyncio.run(main(sys.argv[1]))
others = {"pickle", "_pickle", "cPickle", "shelve", "dill", "cloudpickle", "jsonpickle", "joblib", "yaml", "orjson",
          "ujson", "simplejson", "cbor2", "msgpack", "bson", "pydantic"}
print(sorted(others & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("[]\n", "", 0)


@every_place
async def test_r41_one_registration_serves_every_place(place: Place) -> None:
    """State, executors, messages, buffers, requests, outputs, and a value that is encoded by itself."""
    with isolated_registry():

        class Coin:
            def __init__(self, cents: int) -> None:
                self.cents = cents

        calls: list[str] = []

        def to_wire(coin: Coin) -> dict[str, int]:
            calls.append("out")
            return {"cents": coin.cents}

        def from_wire(payload: dict[str, int]) -> Coin:
            calls.append("in")
            return Coin(payload["cents"])

        value = {"session": {"state": {"purse": [Coin(5), (Coin(7), "x")]}}}
        with pytest.raises(UnregisteredTypeError, match="Coin"):
            await take_in(place.create(carrier(), "too-early"), value)
        register_state_type(Coin, type_id="scenario.coin", encoder=to_wire, decoder=from_wire)
        cp = place.create(carrier())
        await take_in(cp, value)
        head = cp.head_snapshot
        assert head is not None
        alone, _ = codec.encode(value, format=cp.format)
        parts: dict[str, bytes] = {}
        for part in alone.refs:
            parts |= codec.new_parts(part, ())
        expected = codec.plain(alone.data, parts, format=cp.format)
        shown = places_of(head.plain_state())
        assert set(map(str, shown.values())) == {str(expected)}
        assert "scenario.coin" in str(expected)
        assert set(calls) == {"out", "in"}
        await finish(await place.reload(), value)
        assert codec.registered_type("scenario.coin") is Coin
        assert register_state_type is codec.register_state_type  # there is no second registry
    with pytest.raises(UnregisteredTypeError, match=r"'scenario\.coin'"):
        (await place.reload()).snapshots[-1].state  # noqa: B018


# What stored data may not do.

# Type tag and payload, and the error that every reader of it gets.
FORGED: dict[str, tuple[str, Any, type[BranchpointError]]] = {
    "os.system": ("os.system", ["echo forged"], UnregisteredTypeError),
    "a class of the system": ("subprocess.Popen", {"args": ["echo", "forged"]}, UnregisteredTypeError),
    "a class that is imported": ("tests.scenario.kit.Step", {"id": "x"}, UnregisteredTypeError),
    "a module that nobody imported": ("this", None, UnregisteredTypeError),
    "a builtin": ("builtins.eval", "1", UnregisteredTypeError),
    "no type at all": ("", "", UnregisteredTypeError),
    "a model of a stranger": ("scenario.carry.box[os.system]", {"content": 1}, UnregisteredTypeError),
    "a field too many": ("scenario.carry.base", {"name": "x", "more": 1}, UnknownVersionError),
    "a field too few": ("scenario.carry.base", {}, UnknownVersionError),
    "another shape": ("scenario.carry.base", ["x"], CorruptCheckpointError),
    "no member": ("scenario.carry.mode", "NOPE", UnknownVersionError),
    "a set with one item twice": ("set", [1, 1], CorruptCheckpointError),
    "a plain int in a tag": ("int", "0x1", CorruptCheckpointError),
    "no int": ("int", "os", CorruptCheckpointError),
    "no bytes": ("bytes", "###", CorruptCheckpointError),
}
FORGED_AT: dict[str, tuple[str | int, ...]] = {
    "workflow_state.shared.kept": ("workflow_state", "shared", "kept"),
    "executor_states.take.held": ("executor_states", "take", "held"),
    "messages.pending.deliveries[0].value": ("messages", "pending", "deliveries", 0, "value"),
    "messages.output[0].value": ("messages", "output", 0, "value"),
    "messages.input.value": ("messages", "input", "value"),
}


async def forge(place: Place, checkpoint_id: str, path: str, tag: Any, payload: Any) -> str:
    """Store a whole, sealed snapshot that holds a tag nobody wrote; return the id of the one before."""
    cp = place.create(carrier(), checkpoint_id)
    await take_in(cp, "x")
    assert cp.head_snapshot_id is not None
    before, whole = cp.head_snapshot_id, cp.head_snapshot.state  # type: ignore[union-attr]
    at: Any = whole
    *way, last = FORGED_AT[path]
    for step in way:
        at = at[step]
    encode = msgspec.json.encode if cp.format == "json" else msgspec.msgpack.encode
    at[last] = {"in": [codec.Encoded(encode({"$": tag, "v": payload}))]}
    with cp.hold("a forger") as hold:
        summary = Summary("superstep_completed", "in_progress", 1, executors=("take",))
        await hold.commit_snapshot(whole, summary=summary)
    return before


async def open_forged(kind: str, folder: str, forged: dict[str, str]) -> dict[str, Any]:
    """In a process of its own, watched: load, read and run what was forged."""
    place = place_of(kind, Path(folder))
    seen: list[list[str]] = []
    watching = False  # read by the hook
    watched = {"import", "exec", "compile", "pickle.find_class", "marshal.loads", "code.__new__"}
    watched |= {
        "os.system",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "subprocess.Popen",
    }

    def hook(event: str, arguments: Any) -> None:
        if watching and event in watched:
            seen.append([event, repr(arguments)[:200]])

    sys.addaudithook(hook)
    said: dict[str, Any] = {}
    for turn in range(2):  # the first time around imports what an error needs
        watching = turn == 1
        for checkpoint_id in forged:
            said[checkpoint_id] = await _say_of_forged(place, checkpoint_id)
    watching = False
    return {"seen": seen, "said": said}


async def _say_of_forged(place: Place, checkpoint_id: str) -> list[list[str]]:
    cp = await place.reload(checkpoint_id)
    head = cp.head_snapshot
    assert head is not None
    before = bytes_of(cp)
    head.plain_state()  # shows the tag, and builds nothing
    calls: list[Callable[[], Any]] = [lambda: head.state]
    if "deliveries" in checkpoint_id:
        calls += [lambda: carrier().run(checkpoint=cp)]
    if "output" in checkpoint_id:
        calls += [lambda: cp.outputs()[0].value, cp.events]
    said = []
    for call in calls:
        try:
            found = call()
            if inspect.isawaitable(found):
                await found
        except (DataError, EncodingError) as error:
            text = "\n".join((str(error), *getattr(error, "__notes__", ())))
            said.append([type(error).__name__, text])
        else:
            said.append(["nothing", ""])
    assert bytes_of(cp) == before
    return said


@every_file
async def test_c61_r42_nothing_is_imported_called_or_unpickled_by_what_data_says(
    place: Place, tmp_path: Path
) -> None:
    forged, expected = {}, {}
    for path in FORGED_AT:
        for what, (tag, payload, error) in FORGED.items():
            checkpoint_id = f"{path} {what}"
            forged[checkpoint_id] = await forge(place, checkpoint_id, path, tag, payload)
            expected[checkpoint_id] = (error.__name__, path, tag)
    found = await asyncio.to_thread(in_new_process, open_forged, place.kind, str(tmp_path), forged)
    assert found["seen"] == []
    for checkpoint_id, (error, path, tag) in expected.items():
        said = found["said"][checkpoint_id]
        assert said[0][0] == error, (checkpoint_id, said)
        assert f"{path}['in'][0]" in said[0][1] or f"{path}.in[0]" in said[0][1], (checkpoint_id, said)
        assert tag in said[0][1]
        if "deliveries" in path:
            assert said[1][0] == error, (checkpoint_id, said)
            assert f"{path}" in said[1][1]
            assert checkpoint_id in said[1][1]  # which checkpoint
        if "output" in path:
            assert [name for name, _ in said] == [error] * 3
    for checkpoint_id, snapshot_id in forged.items():  # and what was there before the forgery still runs
        cp = await place.reload(checkpoint_id)
        assert (await cp.abandon()).status == "idle"  # nothing of it need be built to give it up
        cp.restart_from(snapshot_id)
        await finish(cp, "x")


async def test_r42_each_refusal_is_an_error_of_its_own(tmp_path: Path) -> None:
    """Unknown version, wrong graph, damage, an unregistered value, a value of a kind that is never kept."""
    place = place_of("file-json", tmp_path)
    path = journal_of(tmp_path / "runs", "run-1")
    said: dict[str, BranchpointError] = {}

    async def refused(what: str, call: Callable[[], Any]) -> None:
        with pytest.raises(BranchpointError) as caught:
            await call()
        said[what] = caught.value

    class Unknown:
        pass

    with isolated_registry():
        register_state_type(
            Unknown, type_id="scenario.gone", encoder=lambda value: {}, decoder=lambda payload: Unknown()
        )
        await take_in(place.create(carrier()), {"deep": [Unknown()]})
    good = path.read_bytes()
    loaded = await place.reload()
    await refused("value", lambda: carrier().run(checkpoint=loaded))
    await refused("graph", lambda: chain(Step("a"), name="carrier").run("x", checkpoint=loaded))
    path.write_bytes(good[:-9])
    await refused("damage", place.reload)
    _, bodies = bodies_of_bytes(path, good)
    reseal(path, [bodies[0].replace(b'"branchpoint":1', b'"branchpoint":2'), *bodies[1:]])
    await refused("version", place.reload)
    path.write_bytes(good)
    await refused("kind", lambda: take_in(place.create(carrier(), "new"), {"deep": [print]}))
    await refused("type", lambda: take_in(place.create(carrier(), "new"), {"deep": [Unknown()]}))
    expected = {
        "value": (
            UnregisteredTypeError,
            ("'run-1'", "scenario.gone", "messages.pending.deliveries[0].value.deep[0]"),
        ),
        "graph": (GraphMismatchError, ("'run-1'", "executor removed: 'take'", "start executor was 'take'")),
        "damage": (CorruptCheckpointError, ("'run-1'",)),
        "version": (UnknownVersionError, ("'run-1'", "version 2")),
        "kind": (
            UnsupportedValueError,
            ("'new'", "builtin_function_or_method", "messages.input.value.deep[0]"),
        ),
        "type": (UnregisteredTypeError, ("'new'", "Unknown", "messages.input.value.deep[0]")),
    }
    for what, (error, names) in expected.items():
        assert type(said[what]) is error, (what, said[what])
        text = " ".join((str(said[what]), *getattr(said[what], "__notes__", ())))
        for name in names:
            assert name in text, (what, text)
    assert len({type(error).kind for error in said.values()}) == 5
    assert path.read_bytes() == good


def bodies_of_bytes(path: Path, data: bytes) -> tuple[Any, list[bytes]]:
    path.write_bytes(data)
    return bodies_of(path)


@every_place
async def test_r42_nothing_falls_back_to_text(place: Place) -> None:
    """What comes back is what was given, or nothing was kept; `repr` and `str` of a value are never asked for."""

    class Shy:
        def __repr__(self) -> str:
            raise AssertionError("its repr was taken")

        __str__ = __repr__

    cp = place.create(carrier())
    with pytest.raises(UnregisteredTypeError, match="Shy"):
        await take_in(cp, {"it": [Shy()]})
    assert cp.snapshots == []


def without_locks(folder: Path) -> dict[str, bytes]:
    """Every file but the empty ones that writers lock."""
    return {
        name: data for name, data in file_bytes(folder).items() if not Path(name).name.startswith(".lock-")
    }


@pytest.mark.parametrize("kind", ["file-json", "file-msgpack"])
@pytest.mark.parametrize("spaces", [None, 2])
async def test_r43_a_v1_file_is_refused_by_name_before_anything_runs(
    tmp_path: Path, kind: str, spaces: int | None
) -> None:
    place, ticks = place_of(kind, tmp_path), Ticks()
    workflow = chain(Step("a", ticks), Step("b", ticks, final=True))
    await workflow.run("beside", checkpoint=place.create(workflow, "beside"))
    ticks.clear("a")
    path = journal_of(tmp_path / "runs", "order-17")
    path.write_text(json.dumps(V1, indent=spaces))
    before = without_locks(tmp_path)
    storage = place.open()
    assert storage is not None
    for call in (
        lambda: storage.load("order-17"),
        lambda: storage.load_head("order-17"),
        lambda: workflow.run("go", checkpoint=place.create(workflow, "order-17")),
    ):
        with pytest.raises(UnknownVersionError, match=r"order-17.*version 1") as caught:
            await call()
        assert "offline" in str(caught.value)
    assert ticks["a"] == 0
    assert without_locks(tmp_path) == before
    assert (await workflow.run("on", checkpoint=await place.reload("beside"))).get_outputs() == ["on>a>b"]


# Limits that are stated.


@every_place
async def test_r61_no_snapshot_goes_without_being_asked_to(place: Place) -> None:
    class Again(Executor):
        @handler
        async def on_count(self, left: int, ctx: WorkflowContext[int, int]) -> None:
            if left:
                await ctx.send_message(left - 1)
            else:
                await ctx.yield_output(0)

    again = Again(id="again")
    workflow = (
        WorkflowBuilder(name="again", start_executor=again, max_iterations=500).add_edge(again, again).build()
    )
    cp = place.create(workflow)
    for _ in range(5):
        await workflow.run(50, checkpoint=cp)
    first = cp.snapshots[1].snapshot_id
    cp.restart_from(first)
    await workflow.run(checkpoint=cp)
    expected = 5 * 52 + 1 + 50  # each turn; then the move, and the rest of the first turn once more
    assert len(cp.snapshots) == expected
    loaded = await place.reload()
    assert bytes_of(loaded) == bytes_of(cp)
    assert len({one.snapshot_id for one in loaded.snapshots}) == expected
    assert loaded.snapshots[0].state["messages"]["pending"]["deliveries"][0]["value"] == 50
    for one in loaded.snapshots:
        loaded.restart_from(one.snapshot_id)  # every one can be gone on from
    loaded.restart_from(loaded.snapshots[-1].snapshot_id)
    await loaded.fork(checkpoint_id="forked")
    assert len((await place.reload()).snapshots) == expected
    removed = await loaded.prune(keep=[first])
    kept = {first, loaded.head_snapshot_id}
    assert {one.snapshot_id for one in loaded.snapshots} == kept
    assert len(removed) == expected - len(kept)
    assert {one.snapshot_id for one in (await place.reload()).snapshots} == kept


@every_storage
async def test_r62_an_id_is_a_name_and_not_a_right(place: Place) -> None:
    """Whoever names a checkpoint gets it; the owner it was given is there to be compared by adapters."""
    cp = place.create(carrier(), metadata={"owner": "ann", "tenant": "t1"})
    await take_in(cp, "secret")
    anybody = await place.reload()
    assert anybody.metadata == {"owner": "ann", "tenant": "t1"}
    await finish(anybody, "secret")
    storage = place.open()
    assert storage is not None
    listed = await storage.list_checkpoints(metadata={"owner": "ann"})
    assert [(one.checkpoint_id, one.metadata["owner"]) for one in listed] == [("run-1", "ann")]
    assert await storage.list_checkpoints(metadata={"owner": "eve"}) == []
    anybody.metadata["owner"] = "eve"  # what is read is a copy; the owner is fixed at creation
    assert (await place.reload()).metadata["owner"] == "ann"
    for said in (Workflow.create_checkpoint.__doc__, Checkpoint.checkpoint_id.__doc__):
        assert "not an authorization boundary" in str(said) or "not a right" in str(said)
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    assert "not an authorization boundary" in text
