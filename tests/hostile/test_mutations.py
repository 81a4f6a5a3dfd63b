"""Real journals whose bytes, records and values were changed at random: they give what was committed, or an error."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from branchpoint import BranchpointError, codec
from branchpoint.checkpoint import Checkpoint, CheckpointSnapshot, Format
from branchpoint.errors import CheckpointConflictError, DataError, InvalidCallError
from tests.hostile.forge import Forgery, all_reads, check_told, storage_of
from tests.hostile.mutate import changes, packed, records, trees, written
from tests.hostile.test_bytes import little_memory, readings
from tests.scenario.carry import carrier
from tests.scenario.edits import in_progress
from tests.scenario.kit import Place, bytes_of, lineage
from tests.storages import create, state

ID = "run-1"
QUICK = settings().max_examples < 1000
FORMATS = st.sampled_from(["json", "msgpack"])
relaxed = settings(
    max_examples=80 if QUICK else 4000,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)


class Truth:
    """A journal that a workflow wrote, and what is in it."""

    def __init__(self, folder: Path, format: Format) -> None:
        self.folder = folder
        self.format = format
        self.path = folder / f"{ID}.journal"
        self.data = b""
        self.bodies: list[bytes] = []
        self.lineage: list[Any] = []
        self.bytes: dict[str, bytes] = {}

    async def read(self) -> None:
        cp = await storage_of(self.folder, self.format).load(ID)
        self.data = self.path.read_bytes()
        self.bodies = self.forgery().bodies()
        self.lineage, self.bytes = lineage(cp), bytes_of(cp)

    def forgery(self) -> Forgery:
        return Forgery(self.path)

    def same(self, cp: Checkpoint) -> bool:
        return (lineage(cp), bytes_of(cp)) == (self.lineage, self.bytes) and (
            cp.head_snapshot_id == self.lineage[-1][0]
        )


@pytest.fixture(scope="module")
def truths() -> Iterator[dict[str, Truth]]:
    """One journal of each format, in the midst of a run, with every kind of record that a state can hold."""
    import asyncio

    folder = Path(tempfile.mkdtemp())

    async def make() -> dict[str, Truth]:
        made: dict[str, Truth] = {}
        for format in ("json", "msgpack"):
            place = Place(format, functools.partial(storage_of, folder / format, format))  # type: ignore[arg-type]
            await in_progress(place)
            made[format] = Truth(folder / format, format)  # type: ignore[arg-type]
            await made[format].read()
        return made

    yield asyncio.run(make())
    shutil.rmtree(folder)


async def outcome(truth: Truth, *, sealed: bool) -> None:
    """Ask a changed journal for everything; whatever it answers is what was committed, or an error of ours."""
    before = truth.path.read_bytes()
    loaded = None
    for what in ("load", "load_head", "lazy"):
        storage = storage_of(truth.folder, truth.format, lazy_over=0 if what == "lazy" else None)
        try:
            found: Any = await (storage.load_head(ID) if what == "load_head" else storage.load(ID))
        except (DataError, InvalidCallError) as error:
            check_told(error, ID)
            event(f"{what} refused: {type(error).__name__}")
            continue
        event(f"{what} gave an answer")
        if not sealed and what == "load_head":
            assert found.head_snapshot_id == truth.lineage[-1][0]
        if not sealed and what == "load":
            assert truth.same(found)
        if what != "load_head":
            loaded = found
            await all_reads(found)
    assert truth.path.read_bytes() == before
    try:
        await create(storage_of(truth.folder, truth.format), ID).commit_snapshot(state())
    except (DataError, InvalidCallError, CheckpointConflictError) as error:
        check_told(error, ID)
    else:
        raise AssertionError("a journal was written over")
    assert truth.path.read_bytes() == before
    if loaded is not None and sealed:
        await use(loaded)


async def use(cp: Checkpoint) -> None:
    """Go on with what was loaded, whatever it is, in every way; in a fork, so that the journal stays."""
    try:
        fork = await cp.fork()
    except BranchpointError as error:
        check_told(error)
        return
    for call in (
        lambda: carrier().run(checkpoint=fork),
        lambda: carrier().run("new", checkpoint=fork, input_id="in"),
        lambda: carrier().run(responses={"ask": "yes"}, checkpoint=fork),
        fork.abandon,
        fork.prune,
        lambda: fork.commit_snapshot(),
    ):
        try:
            await call()
        except BranchpointError as error:
            check_told(error)
        assert fork.in_use_by is None


@relaxed
@given(data=st.data(), format=FORMATS)
async def test_c54_c62_a_journal_changed_anywhere_gives_what_was_committed_or_an_error(
    truths: dict[str, Truth], data: st.DataObject, format: str
) -> None:
    truth = truths[format]
    changed = data.draw(changes(truth.data))
    truth.path.write_bytes(changed)
    try:
        with little_memory():
            await outcome(truth, sealed=False)
    finally:
        truth.path.write_bytes(truth.data)


@relaxed
@given(data=st.data(), format=FORMATS)
async def test_c62_records_changed_and_sealed_again_are_read_or_refused(
    truths: dict[str, Truth], data: st.DataObject, format: str
) -> None:
    truth = truths[format]
    made = truth.forgery()
    changed = data.draw(records(truth.bodies))
    try:
        if written(made, changed) is not None:
            with little_memory():
                await outcome(truth, sealed=True)
    finally:
        truth.path.write_bytes(truth.data)


@relaxed
@given(data=st.data(), format=FORMATS)
async def test_c62_values_changed_and_sealed_again_are_read_or_refused(
    truths: dict[str, Truth], data: st.DataObject, format: str
) -> None:
    """What is in envelopes and parts, changed as a tree; a journal's parts keep the names they are given."""
    truth = truths[format]
    made = truth.forgery()
    where = data.draw(st.sampled_from(["header", "manifest", "part", "part", "part"]))
    if where == "header":
        made.header = data.draw(trees(made.header))
    elif where == "manifest":
        record = data.draw(st.sampled_from(made.records))
        record.manifest = data.draw(trees(record.manifest))
    elif not _change_part(made, data):
        return
    try:
        bodies = made.bodies()
    except (OverflowError, RecursionError):  # this notation has no such bytes
        return
    try:
        made.write(bodies)
        with little_memory():
            await outcome(truth, sealed=True)
    finally:
        truth.path.write_bytes(truth.data)


def _change_part(made: Forgery, data: st.DataObject) -> bool:
    """Change a part of the head, which goes on being named as it was."""
    decode = msgspec.json.decode if made.format == "json" else msgspec.msgpack.decode
    name = data.draw(st.sampled_from(sorted(made.head.parts)))
    new = packed(data.draw(trees(decode(made.head.parts[name]))), made.format)
    if new is None:
        return False
    made.head.parts[name] = new
    return True


@relaxed
@given(data=st.data(), format=FORMATS)
async def test_c62_the_bytes_of_a_snapshot_changed_anywhere_are_read_or_refused(
    truths: dict[str, Truth], data: st.DataObject, format: str
) -> None:
    truth = truths[format]
    good = data.draw(st.sampled_from(sorted(truth.bytes.values())))
    decode = msgspec.json.decode if format == "json" else msgspec.msgpack.decode
    if data.draw(st.booleans()):
        changed: bytes | None = data.draw(changes(good))
    else:
        changed = packed(data.draw(trees(decode(good))), truth.format)
    if changed is None:
        return
    with little_memory():
        try:
            found = CheckpointSnapshot.from_bytes(changed)
        except DataError as error:
            check_told(error)
            return
        assert found.to_bytes() == changed
        for read in (lambda: found.state, found.plain_state, lambda: repr(found)):
            try:
                read()
            except BranchpointError as error:
                check_told(error)


@relaxed
@given(data=st.data(), format=FORMATS)
async def test_c62_the_bytes_of_a_value_changed_anywhere_are_read_or_refused(
    truths: dict[str, Truth], data: st.DataObject, format: str
) -> None:
    """At every door of the codec that takes bytes; and what is read is written with the very bytes."""
    truth = truths[format]
    form: Format = truth.format
    decode = msgspec.json.decode if format == "json" else msgspec.msgpack.decode
    good = data.draw(
        st.sampled_from(
            sorted({part for record in truth.forgery().records for part in record.parts.values()})
        )
    )
    changed = (
        data.draw(changes(good)) if data.draw(st.booleans()) else packed(data.draw(trees(decode(good))), form)
    )
    if changed is None:
        return
    with little_memory():
        for name, call in readings(changed, form).items():
            try:
                found = call()
            except BranchpointError as error:
                check_told(error)
                continue
            if name == "decode" and b"$" not in changed and len(changed) < 90:
                assert codec.encode(found, format=form)[0].data == changed


@relaxed
@given(data=st.data(), format=FORMATS)
async def test_c62_a_backend_that_mixes_up_its_parts_is_found_out(
    truths: dict[str, Truth], data: st.DataObject, format: str
) -> None:
    """A faulty backend hands over parts, manifests or a head that do not belong together."""
    truth = truths[format]
    cp = await storage_of(truth.folder, truth.format).load(ID)
    parts, manifests = dict(cp.parts), [one.manifest for one in cp.snapshots]
    names = sorted(parts)
    one, other = (data.draw(st.sampled_from(names)) for _ in range(2))
    kind = data.draw(st.sampled_from(["swap", "lose", "change", "leave out", "move", "head", "more"]))
    head = manifests[-1].snapshot_id
    if kind == "swap":
        parts[one], parts[other] = parts[other], parts[one]
    elif kind == "lose":
        del parts[one]
    elif kind == "change":
        parts[one] = data.draw(changes(parts[one]))
    elif kind == "leave out":
        del manifests[data.draw(st.integers(0, len(manifests) - 1))]
    elif kind == "move":
        manifests.insert(0, manifests.pop(data.draw(st.integers(0, len(manifests) - 1))))
    elif kind == "head":
        head = data.draw(st.sampled_from([one.snapshot_id for one in manifests]) | st.text(max_size=5))
    else:
        parts["A" * 22] = b"1"
    try:
        found = Checkpoint.restore(
            header=cp.header,
            manifests=manifests,
            head_snapshot_id=head,
            parts=parts,
            checkpoint_storage=storage_of(truth.folder, truth.format),
        )
    except DataError as error:
        check_told(error, ID)
        return
    for snapshot in found.snapshots:
        assert snapshot.to_bytes() == truth.bytes[snapshot.snapshot_id]
    assert found.head_snapshot_id == head
