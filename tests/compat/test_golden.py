"""What a released version wrote is read for ever, means the same, and would be written the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from branchpoint import Checkpoint, FileCheckpointStorage, codec
from branchpoint.checkpoint import Format
from branchpoint.storage._journal import PREAMBLE_SIZE, whole_journal
from branchpoint.storage._records import commit_body, header_body, read_commit, read_header
from tests.compat.golden_runs import (
    CHECKPOINTS,
    GOLDEN,
    ORDER,
    PRICE,
    Grade,
    Order,
    Pair,
    builtin_values,
    large_values,
    orders,
    registered,
)
from tests.compat.write_golden import expected
from tests.journals import bodies_of

VERSIONS = sorted(found.name for found in GOLDEN.iterdir() if found.is_dir())
FORMATS: tuple[Format, ...] = ("json", "msgpack")


class Golden(NamedTuple):
    """The files of one version in one format, copied to where a storage may lock them."""

    format: Format
    folder: Path

    @property
    def storage(self) -> FileCheckpointStorage:
        return FileCheckpointStorage(self.folder, serialization_format=self.format)

    def told(self, checkpoint_id: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / f"{checkpoint_id}.json").read_text("ascii"))
        return found


@pytest.fixture(params=[(version, form) for version in VERSIONS for form in FORMATS], ids="-".join)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    version, form = request.param
    shutil.copytree(GOLDEN / version / form, tmp_path / form)
    return Golden(form, tmp_path / form)


@pytest.fixture
def types() -> Iterator[None]:
    with registered():
        yield


def test_there_are_golden_files_of_every_kind() -> None:
    assert "0.1.0" in VERSIONS
    for version in VERSIONS:
        for form in FORMATS:
            held = {path.name for path in (GOLDEN / version / form).iterdir()}
            assert held >= {f"{name}{end}" for name in CHECKPOINTS for end in (".json", ".journal")}


# They are read.


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.usefixtures("types")
async def test_a_golden_file_says_what_it_said(golden: Golden, name: str) -> None:
    checkpoint = await golden.storage.load(name)
    # Through JSON, which knows no tuples.
    assert json.loads(json.dumps(expected(checkpoint))) == golden.told(name)


@pytest.mark.parametrize("name", CHECKPOINTS)
async def test_a_golden_file_is_read_without_its_types_and_lazily(golden: Golden, name: str) -> None:
    told = golden.told(name)
    lazy = await FileCheckpointStorage(golden.folder, serialization_format=golden.format, lazy_over=0).load(
        name
    )
    for snapshot, found in zip(lazy.snapshots, told["snapshots"], strict=True):
        await lazy.load_snapshot(snapshot.snapshot_id)
        assert snapshot.plain_state() == found["state"]
    assert [[one.request_id, one.plain_data] for one in lazy.pending_requests] == [
        [one[0], one[4]] for one in told["requests"]
    ]


def same(one: Any, other: Any) -> bool:
    """Whether two values are alike in every visible way: types, order, signs of zeros, all of it."""
    return codec.fingerprint(one) == codec.fingerprint(other)


@pytest.mark.usefixtures("types")
async def test_values_of_every_kind_come_back(golden: Golden) -> None:
    checkpoint = await golden.storage.load("values")
    builtin, large, changed = (one.state["workflow_state"]["shared"] for one in checkpoint.snapshots)
    for name, value in builtin_values().items():
        assert same(builtin[name], value), name
    for name, value in large_values().items():
        assert same(large[name], value), name
    assert changed["messages"][:-1] == large["messages"][40:]
    assert [*changed["numbers"][:200], *changed["numbers"][201:]] == large["numbers"]
    assert checkpoint.snapshots[0].state["messages"]["input"]["value"] == ORDER


@pytest.mark.usefixtures("types")
async def test_a_paused_run_has_its_question_and_what_waits_at_its_join(golden: Golden) -> None:
    checkpoint = await golden.storage.load("paused")
    (request,) = checkpoint.pending_requests
    assert (request.data, request.source_executor_id) == (ORDER, "approval")
    head = checkpoint.head_snapshot
    assert head is not None
    (buffer,) = head.state["edge_states"].values()
    assert buffer["received"] == {"pricing": [PRICE]}
    assert head.state["executor_states"] == {"pricing": {"priced": [17]}, "approval": {"asked": 1}}
    assert checkpoint.metadata == {"tenant": "golden"}


# They go on.


@pytest.mark.usefixtures("types")
async def test_a_paused_run_is_answered(golden: Golden) -> None:
    checkpoint = await golden.storage.load("paused")
    (request,) = checkpoint.pending_requests
    result = await orders().run(responses={request.request_id: Grade.GOOD}, checkpoint=checkpoint)
    assert result.get_outputs() == [Pair(PRICE, Grade.GOOD)]
    again = await golden.storage.load("paused")
    assert again.status == "idle"
    assert [one.boundary for one in again.snapshots[-3:]] == [
        "responses_accepted",
        "superstep_completed",
        "completed",
    ]


@pytest.mark.usefixtures("types")
async def test_branches_are_told_apart_and_a_new_one_grows(golden: Golden) -> None:
    checkpoint = await golden.storage.load("branches")
    answered = [one for one in checkpoint.snapshots if one.boundary == "completed"]
    outputs = [one.state["messages"]["output"][0]["value"] for one in answered]
    assert outputs == [Pair(PRICE, Grade.GOOD), Pair(PRICE, Grade.POOR)]
    (given_up,) = [one for one in checkpoint.snapshots if one.boundary == "abandoned"]
    assert given_up.metadata["reason"] == "nobody answered"
    roots = [one for one in checkpoint.snapshots if one.parent_snapshot_id is None]
    assert len(roots) == 2
    checkpoint.restart_from(given_up.snapshot_id)
    await orders().run(Order(19), checkpoint=checkpoint)
    again = await golden.storage.load("branches")
    assert again.status == "idle_with_pending_requests"
    assert again.ancestors()[3].snapshot_id == given_up.snapshot_id
    fork = await golden.storage.load("fork")
    assert fork.snapshots[0].forked_from is not None
    assert fork.snapshots[0].forked_from.checkpoint_id == "branches"


@pytest.mark.usefixtures("types")
async def test_a_pruned_history_can_be_pruned_again(golden: Golden) -> None:
    checkpoint = await golden.storage.load("pruned")
    assert checkpoint.generation == 1
    assert [one.superstep for one in checkpoint.snapshots] == [1, 4, 7, 8]
    assert [one.superstep for one in checkpoint.ancestors()] == [8, 7, 4, 1]
    await checkpoint.prune([checkpoint.snapshots[1].snapshot_id])
    again = await golden.storage.load("pruned")
    assert [one.superstep for one in again.snapshots] == [4, 8]
    assert again.generation == 2


# They would be written the same.


def _states(checkpoint: Checkpoint) -> None:
    for snapshot in checkpoint.snapshots:
        part, _ = codec.encode_state(snapshot.state, format=checkpoint.format)
        assert part.digest == snapshot.root
        assert codec.new_parts(part, ()) == snapshot.parts()


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.usefixtures("types")
async def test_encoding_the_states_again_gives_the_same_parts(golden: Golden, name: str) -> None:
    _states(await golden.storage.load(name))


@pytest.mark.usefixtures("types")
async def test_a_state_carried_to_the_other_format_is_the_one_written_there(golden: Golden) -> None:
    other = FORMATS[1 - FORMATS.index(golden.format)]
    checkpoint = await golden.storage.load("values")
    for snapshot in checkpoint.snapshots:
        parts = snapshot.parts()
        (part,) = codec.transcode(snapshot.root, parts, source=golden.format, target=other)
        assert part.digest == codec.encode_state(snapshot.state, format=other)[0].digest


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_writing_the_records_again_gives_the_same_bytes(golden: Golden, name: str) -> None:
    path = golden.folder / f"{name}.journal"
    form, bodies = bodies_of(path)
    assert form == golden.format
    where = {"format": form, "checkpoint_id": name, "where": name}
    header = read_header(bodies[0], **where)  # type: ignore[arg-type]
    again = [header_body(header, format=form)]
    for body in bodies[1:]:
        commit = read_commit(body, **where)  # type: ignore[arg-type]
        assert commit is not None
        again.append(commit_body(commit.manifest, commit.parts, format=form))
    assert again == bodies
    # The slots before that say which of the commits came last, and depend on how the file grew.
    assert whole_journal(again, format=form)[PREAMBLE_SIZE:] == path.read_bytes()[PREAMBLE_SIZE:]
