"""Rewind, fork, prune, abandon, lazy loading, and what a load checks."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import msgspec
import pytest

from branchpoint import codec
from branchpoint.checkpoint import (
    Capability,
    Checkpoint,
    CheckpointSnapshot,
    CheckpointStorage,
    Format,
    Header,
    Manifest,
    common_ancestor,
    decode_header,
    decode_manifest,
    encode_header,
    encode_manifest,
)
from branchpoint.errors import (
    CheckpointConflictError,
    CheckpointNotFoundError,
    CorruptCheckpointError,
    GraphMismatchError,
    InvalidCallError,
    SnapshotNotFoundError,
    SnapshotNotLoadedError,
    StorageError,
)
from branchpoint.graph import explain_difference
from tests.states import DELIVERY, earlier_input, make_state, output, request
from tests.unit.checkpoint.doubles import SIGNATURE, Faults, TinyStorage, new_checkpoint

FORMATS: list[Format] = ["json", "msgpack"]


async def chain(cp: Checkpoint, count: int) -> list[CheckpointSnapshot]:
    return [
        await cp.commit_snapshot(make_state(n, shared={"log": [f"{k} " + "x" * 300 for k in range(n)]}))
        for n in range(1, count + 1)
    ]


# Fork.


@pytest.mark.parametrize("source", [None, "json", "msgpack"])
@pytest.mark.parametrize("target", ["json", "msgpack"])
async def test_a_fork_holds_the_same_state_in_either_format(source: Format | None, target: Format) -> None:
    cp = new_checkpoint(None if source is None else TinyStorage(source), metadata={"owner": "ann"})
    state = make_state(
        2,
        shared={"odd": [b"\x00\xff", {1, 2}, 2**70, float("inf")], "log": ["y" * 500] * 40},
        requests={"r": request()},
        status="idle_with_pending_requests",
    )
    await cp.commit_snapshot(state, {"who": "me"})
    fork = await cp.fork(checkpoint_storage=TinyStorage(target))
    root = fork.snapshots[0]
    assert root.state == state
    assert root.parent_snapshot_id is None
    assert root.forked_from is not None
    assert (root.forked_from.checkpoint_id, root.forked_from.snapshot_id) == (
        cp.checkpoint_id,
        cp.head_snapshot_id,
    )
    assert root.metadata == {"who": "me", "boundary": "forked"}
    assert fork.status == "idle_with_pending_requests"
    assert root.manifest.requests == ("r",)
    assert fork.metadata == {"owner": "ann"}
    assert fork.workflow_name == cp.workflow_name
    # The same bytes as if the state had been committed there in the first place.
    assert (await new_checkpoint(TinyStorage(target)).commit_snapshot(state)).root == root.root
    assert fork.checkpoint_storage is not None
    loaded = await fork.checkpoint_storage.load(fork.checkpoint_id)
    assert loaded.snapshots[0].state == state
    assert loaded.snapshots[0].forked_from == root.forked_from
    await fork.commit_snapshot(make_state(3))
    assert len(cp.snapshots) == 1


async def test_a_fork_stays_where_its_source_is_stored_and_never_overwrites() -> None:
    storage = TinyStorage()
    cp = new_checkpoint(storage, "one")
    first, *_ = await chain(cp, 3)
    fork = await cp.fork(first.snapshot_id, checkpoint_id="two")
    assert (await storage.load("two")).head_snapshot_id == fork.head_snapshot_id
    assert fork.snapshots[0].root == first.root
    with pytest.raises(CheckpointConflictError):
        await cp.fork(checkpoint_id="two")
    with pytest.raises(InvalidCallError):
        await cp.fork(checkpoint_id="")
    with pytest.raises(SnapshotNotFoundError):
        await cp.fork(fork.head_snapshot_id)
    cp.restart_from(None)
    with pytest.raises(InvalidCallError, match="empty start"):
        await cp.fork()


def test_a_checkpoint_is_not_copied() -> None:
    cp = new_checkpoint()
    with pytest.raises(TypeError, match="fork"):
        copy.copy(cp)
    with pytest.raises(TypeError, match="fork"):
        copy.deepcopy(cp)


# Prune.


@pytest.mark.parametrize("storage", [None, TinyStorage("json"), TinyStorage("msgpack")])
async def test_prune_keeps_the_heads_and_the_lineage_readable(storage: TinyStorage | None) -> None:
    cp = new_checkpoint(storage)
    s1, s2, s3, s4 = await chain(cp, 4)
    cp.restart_from(s2.snapshot_id)
    branch = await cp.commit_snapshot(make_state(9))
    cp.restart_from(s1.snapshot_id)
    removed = await cp.prune(keep=[s4.snapshot_id])
    assert [found.snapshot_id for found in removed] == [s2.snapshot_id, s3.snapshot_id]
    kept = [s1.snapshot_id, s4.snapshot_id, branch.snapshot_id]
    assert [found.snapshot_id for found in cp.snapshots] == kept
    assert (cp.head_snapshot_id, cp.stored_head_snapshot_id) == (s1.snapshot_id, branch.snapshot_id)
    assert cp.get_snapshot(s4.snapshot_id).parent_snapshot_id == s3.snapshot_id
    assert [found.superstep for found in cp.ancestors(s4.snapshot_id)] == [4, 1]
    assert cp.header.pruned == {s3.snapshot_id: s1.snapshot_id, s2.snapshot_id: s1.snapshot_id}
    parents = {found.snapshot_id: found.parent_snapshot_id for found in cp.snapshots}
    both = common_ancestor(parents, s4.snapshot_id, branch.snapshot_id, cp.header.pruned)
    assert both == s1.snapshot_id
    with pytest.raises(SnapshotNotFoundError, match="it was pruned"):
        cp.get_snapshot(s2.snapshot_id)
    # A removed snapshot that somebody holds stays readable; so do the kept ones.
    assert s3.state["workflow_state"]["iteration_count"] == 3
    assert cp.get_snapshot(s4.snapshot_id).state == s4.state
    assert set(cp.parts) == set().union(*(found.parts() for found in cp.snapshots))
    if storage is not None:
        loaded = await storage.load(cp.checkpoint_id)
        assert [found.snapshot_id for found in loaded.snapshots] == kept
        assert loaded.generation == cp.generation == 1
        assert [found.superstep for found in loaded.ancestors(s4.snapshot_id)] == [4, 1]
        assert storage.records[cp.checkpoint_id].parts.keys() == cp.parts.keys()
    await cp.commit_snapshot(make_state(10))
    assert [found.superstep for found in cp.ancestors()] == [10, 1]
    # A second prune carries the gaps of the first.
    await cp.prune(keep=lambda found: found.superstep == 4)
    assert [found.superstep for found in cp.snapshots] == [4, 10]
    assert [found.superstep for found in cp.ancestors(s4.snapshot_id)] == [4]


@pytest.mark.parametrize("keep", [None, 5, "an-id"])
async def test_what_to_keep_is_ids_or_a_function(keep: Any) -> None:
    cp = new_checkpoint()
    await chain(cp, 2)
    with pytest.raises(
        InvalidCallError, match=rf"collection of snapshot ids .* not one {type(keep).__name__}"
    ):
        await cp.prune(keep=keep)
    assert len(cp.snapshots) == 2 and cp.in_use_by is None


async def test_a_prune_that_cannot_be_done_removes_nothing() -> None:
    storage = TinyStorage()
    cp = new_checkpoint(storage)
    s1, *_ = await chain(cp, 3)
    other = await storage.load(cp.checkpoint_id)
    for keep, error in (
        ([s1.snapshot_id, "nope"], SnapshotNotFoundError),
        (s1.snapshot_id, InvalidCallError),
    ):
        with pytest.raises(error):
            await cp.prune(keep)
    await other.commit_snapshot(make_state(4))
    with pytest.raises(CheckpointConflictError):
        await cp.prune()
    assert len(cp.snapshots) == 3
    assert cp.generation == 0
    assert len((await storage.load(cp.checkpoint_id)).snapshots) == 4


async def test_a_commit_never_refers_to_what_was_pruned_elsewhere() -> None:
    storage = TinyStorage()
    cp = new_checkpoint(storage)
    s1, *_ = await chain(cp, 3)
    stale = await storage.load(cp.checkpoint_id)
    await cp.prune()
    stale.restart_from(s1.snapshot_id)
    with pytest.raises(CheckpointConflictError, match="pruned elsewhere"):
        await stale.commit_snapshot()
    with pytest.raises(CheckpointConflictError, match="pruned elsewhere"):
        await stale.check_head()
    await stale.refresh()
    assert len(stale.snapshots) == 1
    await stale.commit_snapshot(make_state(4))


async def test_a_failed_prune_changes_nothing_and_nothing_to_prune_is_no_call() -> None:
    faults = Faults(TinyStorage())
    cp = new_checkpoint(faults)
    assert await cp.prune() == []
    await chain(cp, 3)
    faults.before = OSError("disk full")
    with pytest.raises(OSError, match="disk full"):
        await cp.prune()
    assert len(cp.snapshots) == 3
    assert cp.generation == 0
    assert len(await cp.prune()) == 2
    assert await cp.prune() == []
    assert faults.inner.calls.count("prune") == 1


async def test_a_prune_whose_reply_was_lost_is_settled_by_reading_back() -> None:
    faults = Faults(TinyStorage())
    cp = new_checkpoint(faults)
    for n in range(3):
        await cp.commit_snapshot(make_state(n))
    faults.after = StorageError("the reply was lost")
    assert len(await cp.prune()) == 2
    assert len(cp.snapshots) == 1
    await cp.commit_snapshot(make_state(4))
    # What was not done is not taken for done, and a conflict is none that reading back could settle.
    for failure in (StorageError("it failed"), CheckpointConflictError("it moved on")):
        faults.before = failure
        with pytest.raises(StorageError) as caught:
            await cp.prune()
        assert caught.value is failure
        assert len(cp.snapshots) == 2
    assert len(await cp.prune()) == 1


async def test_a_storage_without_prune_says_so() -> None:
    class Plain(TinyStorage):
        capabilities: ClassVar[frozenset[Capability]] = frozenset()
        prune = CheckpointStorage.prune
        load_head = CheckpointStorage.load_head

    async with Plain() as storage:
        cp = new_checkpoint(storage)
        await chain(cp, 2)
        await cp.check_head()
        assert storage.calls[-1] == "load"
        with pytest.raises(StorageError, match=r"Plain has no prune\(\)"):
            await cp.prune()
        with pytest.raises(StorageError, match="list_checkpoints"):
            await storage.list_checkpoints()
    assert len(cp.snapshots) == 2


# Abandon.


async def test_abandon_goes_back_to_the_last_completed_boundary() -> None:
    storage = TinyStorage()
    cp = new_checkpoint(storage)
    out = output("o", 3)
    done = await cp.commit_snapshot(
        make_state(2, shared={"k": "x" * 500}, executors={"tally": {"n": 1}}, output=[out])
    )
    earlier = [earlier_input("in-1", 1)]
    await cp.commit_snapshot(
        make_state(2, input_id="in-2", turn=2, earlier=earlier, deliveries=[DELIVERY], shared={"k": "y"})
    )
    broken = await cp.commit_snapshot(
        make_state(
            5,
            input_id="in-2",
            turn=2,
            earlier=earlier,
            requests={"r": request()},
            executors={"tally": {"n": 9}},
            output=[out, {**out, "turn": 2, "output_id": "half"}],
        ),
        {"who": "me"},
    )
    given_up = await cp.abandon("nobody answers")
    assert given_up.parent_snapshot_id == broken.snapshot_id
    assert given_up.metadata == {"who": "me", "reason": "nobody answers", "boundary": "abandoned"}
    assert (given_up.status, given_up.superstep, given_up.input_id) == ("idle", 5, "in-2")
    state = given_up.state
    assert state["executor_states"] == {"tally": {"n": 1}}
    assert state["workflow_state"] == {
        **broken.state["workflow_state"],
        "status": "idle",
        "shared": {"k": "x" * 500},
    }
    assert state["messages"] == {
        "input": broken.state["messages"]["input"],
        "pending": {"deliveries": [], "requests": {}},
        "output": [out],
    }
    assert cp.outputs("in-2") == []
    assert [record.value for record in cp.outputs("in-1")] == [3]
    assert cp.pending_requests == []
    assert (await storage.load(cp.checkpoint_id)).head_snapshot_id == given_up.snapshot_id
    cp.restart_from(broken.snapshot_id)
    assert cp.status == "idle_with_pending_requests"
    with pytest.raises(InvalidCallError, match="completed"):
        cp.restart_from(done.snapshot_id)
        await cp.abandon()
    with pytest.raises(InvalidCallError, match="empty start"):
        cp.restart_from(None)
        await cp.abandon()


async def test_abandon_of_the_first_turn_leaves_nothing_but_the_count() -> None:
    cp = new_checkpoint()
    await cp.commit_snapshot(make_state(0, deliveries=[DELIVERY]))
    await cp.commit_snapshot(
        make_state(
            1, deliveries=[DELIVERY], shared={"k": 1}, executors={"tally": {"n": 1}}, output=[output("o", 1)]
        )
    )
    state = (await cp.abandon()).state
    assert state["workflow_state"]["shared"] == {}
    assert state["workflow_state"]["iteration_count"] == 1
    assert state["executor_states"] == {}
    assert state["messages"]["output"] == []
    assert state["messages"]["input"]["input_id"] == "in-1"
    assert cp.status == "idle"


async def test_abandon_needs_no_registered_type() -> None:
    class Order:
        def __init__(self, n: int) -> None:
            self.n = n

    cp = new_checkpoint()
    with codec.isolated_registry():
        codec.register_state_type(
            Order, type_id="shop.order", encoder=lambda order: order.n, decoder=lambda n: Order(n)
        )
        await cp.commit_snapshot(make_state(1, shared={"order": Order(1)}))
        await cp.commit_snapshot(make_state(2, deliveries=[{**DELIVERY, "value": Order(2)}]))
    await cp.abandon()
    assert cp.head_snapshot is not None
    plain = cp.head_snapshot.plain_state()
    assert plain["workflow_state"]["shared"]["order"]["$"] == "shop.order"


async def test_abandon_says_when_a_prune_took_the_way_back() -> None:
    cp = new_checkpoint()
    await cp.commit_snapshot(make_state(1))
    await cp.commit_snapshot(make_state(2, deliveries=[DELIVERY]))
    first = cp.snapshots[0].snapshot_id
    await cp.commit_snapshot(make_state(3, deliveries=[DELIVERY]))
    await cp.prune(keep=[first])
    with pytest.raises(InvalidCallError, match="prune removed"):
        await cp.abandon()
    await cp.prune()
    with pytest.raises(InvalidCallError, match="prune removed"):
        await cp.abandon()


# What a load checks.


class Stored:
    """Stored bytes that a test edits before they are read."""

    def __init__(self, storage: TinyStorage, checkpoint_id: str) -> None:
        record = storage.records[checkpoint_id]
        form = storage.serialization_format
        self.storage = storage
        self.header: Header = decode_header(record.header, format=form, checkpoint_id=checkpoint_id)
        self.manifests: list[Manifest] = [
            decode_manifest(data, format=form, checkpoint_id=checkpoint_id) for data in record.manifests
        ]
        self.parts = dict(record.parts)
        self.head = record.head

    def load(self) -> Checkpoint:
        return Checkpoint.restore(
            header=self.header,
            manifests=self.manifests,
            head_snapshot_id=self.head,
            parts=self.parts,
            checkpoint_storage=self.storage,
        )


@pytest.fixture(params=FORMATS)
async def stored(request: pytest.FixtureRequest) -> Stored:
    storage = TinyStorage(request.param)
    cp = new_checkpoint(storage, "run-1")
    await chain(cp, 3)
    return Stored(storage, "run-1")


async def test_a_load_shows_what_was_committed_and_no_left_overs(stored: Stored) -> None:
    data = b'"left over"'
    stored.parts[codec.digest(data)] = data
    cp = stored.load()
    assert [found.superstep for found in cp.snapshots] == [1, 2, 3]
    assert codec.digest(data) not in cp.parts
    assert cp.head_snapshot_id == cp.stored_head_snapshot_id == stored.head


async def test_a_missing_and_a_damaged_part_are_found(stored: Stored) -> None:
    for digest in list(stored.parts):
        data = stored.parts.pop(digest)
        with pytest.raises(CorruptCheckpointError, match=r"run-1|part"):
            stored.load()
        stored.parts[digest] = bytes([data[0] ^ 1]) + data[1:]
        with pytest.raises(CorruptCheckpointError):
            stored.load()
        stored.parts[digest] = data
    stored.load()


async def test_wrong_buckets_are_found_at_load(stored: Stored) -> None:
    states: list[Any] = [
        {**make_state(1), "fifth": {}},
        {key: value for key, value in make_state(1).items() if key != "messages"},
        {**make_state(1), "messages": {"input": {}, "pending": {}}},
        {**make_state(1), "messages": {"input": {}, "pending": {}, "output": [], "inbox": 1}},
    ]
    for state in states:
        part, _ = codec.encode_state(state, format=stored.storage.serialization_format)
        stored.parts.update(codec.new_parts(part, ()))
        stored.manifests[1] = msgspec.structs.replace(stored.manifests[1], root=part.digest)
        with pytest.raises(CorruptCheckpointError, match="run-1"):
            stored.load()


async def test_a_broken_lineage_is_found_at_load(stored: Stored) -> None:
    stored.head = "nope"
    with pytest.raises(CorruptCheckpointError, match="head 'nope'"):
        stored.load()
    stored.head = stored.manifests[2].snapshot_id
    stored.manifests.reverse()
    with pytest.raises(CorruptCheckpointError, match="before its parent"):
        stored.load()
    stored.manifests = []
    with pytest.raises(CorruptCheckpointError, match="without any snapshot"):
        stored.load()


@pytest.mark.parametrize("form", FORMATS)
async def test_a_whole_snapshot_travels_as_bytes(form: Format) -> None:
    cp = new_checkpoint(TinyStorage(form), "run-1")
    await chain(cp, 3)
    for snapshot in cp.snapshots:
        data = snapshot.to_bytes()
        again = CheckpointSnapshot.from_bytes(data)
        assert again.state == snapshot.state
        assert again.manifest == snapshot.manifest
        assert again.checkpoint_id == "run-1"
        assert again.to_bytes() == data
        for edited in (data[:-1], data + b" ", data.replace(b"x" * 200, b"y" * 200), b"", b"{}"):
            if edited != data:
                with pytest.raises(CorruptCheckpointError):
                    CheckpointSnapshot.from_bytes(edited)


async def test_a_simple_backend_stores_snapshots_whole() -> None:
    cp = new_checkpoint(checkpoint_id="run-1")
    await chain(cp, 3)
    blobs, header = [found.to_bytes() for found in cp.snapshots], encode_header(cp.header, format="json")
    read = [CheckpointSnapshot.from_bytes(blob) for blob in blobs]
    again = Checkpoint.restore(
        header=decode_header(header, format="json", checkpoint_id="run-1"),
        manifests=[found.manifest for found in read],
        head_snapshot_id=read[-1].snapshot_id,
        parts={digest: data for found in read for digest, data in found.parts().items()},
        checkpoint_storage=None,
    )
    assert [found.state for found in again.snapshots] == [found.state for found in cp.snapshots]


# Lazy loading.


async def test_a_lazy_load_leaves_old_snapshots_behind_until_asked() -> None:
    storage = TinyStorage(lazy=True)
    cp = new_checkpoint(storage, "run-1")
    snapshots = await chain(cp, 4)
    lazy = await storage.load("run-1")
    assert lazy.head_snapshot is not None
    assert lazy.head_snapshot.state == snapshots[-1].state
    old = lazy.snapshots[1]
    assert not old.is_loaded
    assert old.status == "idle"
    for read in (lambda: old.state, old.plain_state, old.to_bytes, old.parts):
        with pytest.raises(SnapshotNotLoadedError, match=r"await checkpoint\.load_snapshot"):
            read()
    assert await lazy.load_snapshot(old.snapshot_id) is old
    assert old.state == snapshots[1].state
    calls = len(storage.calls)
    await lazy.load_snapshot(old.snapshot_id)
    assert len(storage.calls) == calls
    assert not lazy.snapshots[0].is_loaded


async def test_the_head_is_never_left_behind(stored: Stored) -> None:
    cp = Checkpoint.restore(
        header=stored.header,
        manifests=stored.manifests,
        head_snapshot_id=stored.head,
        parts=stored.parts,
        checkpoint_storage=stored.storage,
        unloaded=[found.snapshot_id for found in stored.manifests],
    )
    assert [found.is_loaded for found in cp.snapshots] == [False, False, True]
    assert cp.snapshots[2].state["workflow_state"]["iteration_count"] == 3


async def test_a_lazy_checkpoint_commits_forks_and_prunes_by_itself() -> None:
    storage = TinyStorage(lazy=True)
    cp = new_checkpoint(storage, "run-1")
    s1, s2, s3, _ = await chain(cp, 4)
    lazy = await storage.load("run-1")
    assert (await lazy.fork(s1.snapshot_id)).snapshots[0].state == s1.state
    lazy.restart_from(s2.snapshot_id)
    moved = await lazy.commit_snapshot()
    assert moved.state == s2.state
    lazy = await storage.load("run-1")
    await lazy.prune(keep=[s3.snapshot_id])
    whole = TinyStorage()
    whole.records = storage.records
    loaded = await whole.load("run-1")
    assert [found.state for found in loaded.snapshots] == [s3.state, s2.state]


async def test_a_lazy_part_that_is_gone_or_damaged_is_found() -> None:
    storage = TinyStorage(lazy=True)
    cp = new_checkpoint(storage, "run-1")
    s1, *_ = await chain(cp, 3)
    lazy = await storage.load("run-1")
    parts = storage.records["run-1"].parts
    only_old = [digest for digest in s1.parts() if digest not in lazy.parts]
    for digest in only_old:
        good, parts[digest] = parts[digest], b'"bad"'
        with pytest.raises(CorruptCheckpointError):
            await lazy.load_snapshot(s1.snapshot_id)
        del parts[digest]
        with pytest.raises(CorruptCheckpointError, match="not in storage"):
            await lazy.load_snapshot(s1.snapshot_id)
        parts[digest] = good
        assert not lazy.get_snapshot(s1.snapshot_id).is_loaded
    await lazy.load_snapshot(s1.snapshot_id)
    assert lazy.get_snapshot(s1.snapshot_id).state == s1.state


# The graph.


async def test_r36_another_graph_is_refused_and_the_difference_told() -> None:
    cp = new_checkpoint(TinyStorage(), "run-1")
    await cp.commit_snapshot(make_state(1))
    good: dict[str, Any] = {
        "workflow_name": "count",
        "graph_signature_hash": "sig-1",
        "signature": SIGNATURE,
    }
    cp.verify_graph(**good)
    with pytest.raises(GraphMismatchError, match="'run-1' was made by another graph: executor tally is gone"):
        cp.verify_graph(
            **{**good, "graph_signature_hash": "sig-2"}, explain=lambda old, new: ["executor tally is gone"]
        )
    with pytest.raises(GraphMismatchError, match="was named 'count' and is named 'other'"):
        cp.verify_graph(**{**good, "workflow_name": "other"})
    assert len(cp.snapshots) == 1


@pytest.mark.parametrize("executors", [{"a": {"type": "shop.A"}}, 5])
async def test_r36_another_name_is_told_once(executors: Any) -> None:
    """Also where the stored signature cannot be explained."""
    signature = {"name": "count", "start": "a", "executors": {"a": {"type": "shop.A"}}, "edges": []}
    stored = {**signature, "executors": executors}
    cp = Checkpoint.create(workflow_name="count", graph_signature_hash="sig-1", signature=stored)
    with pytest.raises(GraphMismatchError) as caught:
        cp.verify_graph(
            workflow_name="other",
            graph_signature_hash="sig-2",
            signature={**signature, "name": "other"},
            explain=explain_difference,
        )
    assert str(caught.value).count("'other'") == 1


async def test_check_head_tells_every_other_writer() -> None:
    storage = TinyStorage()
    cp = new_checkpoint(storage, "run-1")
    await cp.check_head()
    await new_checkpoint().check_head()
    await cp.commit_snapshot(make_state(1))
    await cp.check_head()
    late = new_checkpoint(storage, "run-1")
    with pytest.raises(CheckpointConflictError, match="already in storage"):
        await late.check_head()
    other = await storage.load("run-1")
    await other.commit_snapshot(make_state(2))
    with pytest.raises(CheckpointConflictError, match=r"refresh\(\)"):
        await cp.check_head()
    await storage.delete("run-1")
    with pytest.raises(CheckpointConflictError, match="no longer in storage"):
        await cp.check_head()
    with pytest.raises(CheckpointNotFoundError):
        await cp.refresh()
    assert len(cp.snapshots) == 1


def test_only_a_storage_is_a_storage() -> None:
    with pytest.raises(InvalidCallError, match="not str"):
        new_checkpoint("runs")  # type: ignore[arg-type]
    odd = TinyStorage()
    odd.serialization_format = "xml"  # type: ignore[assignment]
    with pytest.raises(InvalidCallError, match="xml"):
        new_checkpoint(odd)


def test_manifest_and_header_are_what_storage_gets() -> None:
    cp = new_checkpoint(checkpoint_id="run-1", metadata={"owner": "ann"})
    assert b'"owner":"ann"' in encode_header(cp.header, format="json")
    assert not hasattr(cp.header, "checkpoint_storage")
    assert encode_manifest.__doc__
