"""What every storage promises; one suite over all of them."""

from __future__ import annotations

import asyncio
import threading
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from branchpoint.checkpoint import Checkpoint, CheckpointSnapshot, CheckpointStorage
from branchpoint.errors import (
    CheckpointConflictError,
    CheckpointNotFoundError,
    InvalidCallError,
    StorageError,
)
from tests.storages import BACKENDS, Opener, create, grown, lineage, shared, state


@pytest.fixture(params=sorted(BACKENDS))
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return BACKENDS[request.param](tmp_path)


@pytest.fixture
def storage(reopen: Opener) -> CheckpointStorage:
    return reopen()


class Unanswered(CheckpointStorage):
    """A storage whose replies are lost: it does what it is asked and then fails."""

    def __init__(self, inner: CheckpointStorage, *, losing: str = "commit") -> None:
        self.inner = inner
        self.losing = losing
        self.serialization_format = inner.serialization_format
        self.commits: list[tuple[Checkpoint, CheckpointSnapshot, str | None]] = []
        self.prunes: list[dict[str, Any]] = []

    async def commit_snapshot(
        self, checkpoint: Checkpoint, snapshot: CheckpointSnapshot, *, expected_head_snapshot_id: str | None
    ) -> None:
        await self.inner.commit_snapshot(
            checkpoint, snapshot, expected_head_snapshot_id=expected_head_snapshot_id
        )
        self.commits.append((checkpoint, snapshot, expected_head_snapshot_id))
        if self.losing == "commit":
            raise StorageError("the reply was lost")

    async def repeat(self, n: int = -1) -> None:
        checkpoint, snapshot, expected = self.commits[n]
        await self.inner.commit_snapshot(checkpoint, snapshot, expected_head_snapshot_id=expected)

    async def prune(self, checkpoint: Checkpoint, **asked: Any) -> None:
        await self.inner.prune(checkpoint, **asked)
        self.prunes.append({"checkpoint": checkpoint, **asked})
        raise StorageError("the reply was lost")

    async def load(self, checkpoint_id: str) -> Checkpoint:
        return await self.inner.load(checkpoint_id)

    async def delete(self, checkpoint_id: str) -> None:
        await self.inner.delete(checkpoint_id)


# What was committed is there.


async def test_r30_a_commit_stores_snapshot_lineage_and_head_as_one(
    storage: CheckpointStorage, reopen: Opener
) -> None:
    checkpoint = create(storage, metadata={"tenant": "a"})
    first = await checkpoint.commit_snapshot(state(1, n=1), metadata={"by": "me"})
    second = await checkpoint.commit_snapshot(state(2, n=2))
    loaded = await reopen().load("order-17")
    assert lineage(loaded) == [(first.snapshot_id, None), (second.snapshot_id, first.snapshot_id)]
    assert loaded.head_snapshot_id == loaded.stored_head_snapshot_id == second.snapshot_id
    for mine, stored in zip(checkpoint.snapshots, loaded.snapshots, strict=True):
        assert stored.manifest == mine.manifest
        assert stored.state == mine.state
        assert stored.metadata == mine.metadata
        assert stored.to_bytes() == mine.to_bytes()
    assert loaded.header == checkpoint.header
    assert loaded.metadata == {"tenant": "a"}


async def test_r32_a_loaded_checkpoint_stays_attached(storage: CheckpointStorage, reopen: Opener) -> None:
    await grown(storage, commits=1)
    loaded = await reopen().load("order-17")
    await loaded.commit_snapshot(state(2, n="later"))
    assert shared((await reopen().load("order-17")).head_snapshot) == {"n": "later"}


async def test_r22_every_retained_branch_is_there_and_can_be_selected(
    storage: CheckpointStorage, reopen: Opener
) -> None:
    checkpoint = await grown(storage, commits=3)
    root = checkpoint.snapshots[0].snapshot_id
    for branch in ("left", "right"):
        checkpoint.restart_from(root)
        await checkpoint.commit_snapshot(state(1, branch=branch))
    checkpoint.restart_from(None)
    await checkpoint.commit_snapshot(state(0, branch="second root"))
    loaded = await reopen().load("order-17")
    assert lineage(loaded) == lineage(checkpoint)
    assert [one.parent_snapshot_id for one in loaded.snapshots[-3:]] == [root, root, None]
    for n, branch in enumerate(("left", "right", "second root"), start=3):
        loaded.restart_from(loaded.snapshots[n].snapshot_id)
        assert shared(loaded.head_snapshot) == {"branch": branch}
    loaded.restart_from(loaded.snapshots[3].snapshot_id)
    await loaded.commit_snapshot(state(2, branch="left of left"))
    again = await reopen().load("order-17")
    assert again.snapshots[-1].parent_snapshot_id == loaded.snapshots[3].snapshot_id
    assert again.head_snapshot_id == again.snapshots[-1].snapshot_id


async def test_r23_the_head_compared_is_the_one_seen_in_storage(
    storage: CheckpointStorage, reopen: Opener
) -> None:
    await grown(storage, commits=5)
    mine = await reopen().load("order-17")
    mine.restart_from(mine.snapshots[1].snapshot_id)
    await mine.commit_snapshot(state(2, by="mine"))
    other = await reopen().load("order-17")
    await other.commit_snapshot(state(3, by="other"))
    mine.restart_from(mine.snapshots[1].snapshot_id)
    with pytest.raises(CheckpointConflictError):
        await mine.commit_snapshot(state(2, by="mine again"))


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -(2**63), 2**64 - 1, 1.5, -0.0, "", "a\x00b", "\u2028", "é", "e\u0301", "😀",
        [1, [2, []]], {"a\x00b": 1, "": 2, "c\nd": 3}, "x" * 1_000_000, list(range(3000)),
    ],
    ids=ascii,
)  # fmt: skip
async def test_c50_values_come_back_as_they_were(
    storage: CheckpointStorage, reopen: Opener, value: object
) -> None:
    checkpoint = create(storage)
    await checkpoint.commit_snapshot(state(1, value=value, keys={str(value)[:50]: 1}))
    found = shared((await reopen().load("order-17")).head_snapshot)
    assert repr(found) == repr({"value": value, "keys": {str(value)[:50]: 1}})


# Nothing is shared.


async def test_nothing_a_caller_holds_reaches_the_store(storage: CheckpointStorage, reopen: Opener) -> None:
    labels, notes, items = {"tenant": "a"}, {"tags": ["x"]}, ["one"]
    checkpoint = create(storage, metadata=labels)
    given = state(1, items=items)
    await checkpoint.commit_snapshot(given, metadata=notes)
    labels["tenant"], notes["tags"][0], items[0] = "b", "y", "two"
    given["workflow_state"]["shared"]["more"] = 1
    header = checkpoint.header
    header.metadata["tenant"], header.signature["name"] = "c", "d"
    loaded = await reopen().load("order-17")
    shared(loaded.head_snapshot)["items"].append("three")
    loaded.header.signature["name"] = "e"
    loaded.snapshots.clear()
    for found in (loaded, await reopen().load("order-17")):
        assert found.metadata == {"tenant": "a"}
        assert found.header.signature == {"name": "orders"}
        assert found.snapshots[0].metadata["tags"] == ["x"]
        assert shared(found.snapshots[0]) == {"items": ["one"]}


async def test_every_load_is_a_checkpoint_of_its_own(storage: CheckpointStorage) -> None:
    await grown(storage)
    one, other = await storage.load("order-17"), await storage.load("order-17")
    assert one is not other
    one.restart_from(one.snapshots[0].snapshot_id)
    assert other.head_snapshot_id == other.snapshots[-1].snapshot_id
    with one.hold("a run"), other.hold("another run"):
        pass


# One winner.


async def test_r31_a_stale_writer_conflicts_and_nothing_of_it_is_persisted(
    storage: CheckpointStorage, reopen: Opener
) -> None:
    await grown(storage, commits=2)
    mine, other = await reopen().load("order-17"), await reopen().load("order-17")
    await mine.commit_snapshot(state(3, by="mine"))
    before = lineage(other)
    with pytest.raises(CheckpointConflictError, match="order-17"):
        await other.commit_snapshot(state(3, by="other"))
    assert lineage(other) == before
    loaded = await reopen().load("order-17")
    assert lineage(loaded) == lineage(mine)
    assert loaded.parts == mine.parts
    await other.refresh()
    await other.commit_snapshot(state(4, by="other"))
    assert shared((await reopen().load("order-17")).head_snapshot) == {"by": "other"}


async def test_c17_of_two_writers_exactly_one_wins_every_round(
    storage: CheckpointStorage, reopen: Opener
) -> None:
    await grown(storage, commits=1)
    for n in range(99):
        two = [await reopen().load("order-17") for _ in range(2)]
        outcomes = await asyncio.gather(
            *(one.commit_snapshot(state(n, writer=k)) for k, one in enumerate(two)), return_exceptions=True
        )
        kinds = sorted(type(outcome).__name__ for outcome in outcomes)
        assert kinds == ["CheckpointConflictError", "CheckpointSnapshot"]
    parents = [parent for _, parent in lineage(await reopen().load("order-17"))]
    assert len(parents) == len(set(parents)) == 100


async def test_c18_of_two_first_commits_exactly_one_wins(storage: CheckpointStorage, reopen: Opener) -> None:
    for n in range(20):
        several = [create(reopen(), f"new-{n}") for _ in range(4)]
        outcomes = await asyncio.gather(
            *(one.commit_snapshot(state(0, writer=k)) for k, one in enumerate(several)),
            return_exceptions=True,
        )
        won = [k for k, outcome in enumerate(outcomes) if isinstance(outcome, CheckpointSnapshot)]
        assert len(won) == 1
        assert sum(isinstance(outcome, CheckpointConflictError) for outcome in outcomes) == 3
        loaded = await storage.load(f"new-{n}")
        assert lineage(loaded) == lineage(several[won[0]])
        assert shared(loaded.head_snapshot) == {"writer": won[0]}
        with pytest.raises(CheckpointConflictError):
            await create(reopen(), f"new-{n}").commit_snapshot(state(0, writer="late"))


async def test_commits_to_different_checkpoints_do_not_hinder_each_other(
    storage: CheckpointStorage, reopen: Opener
) -> None:
    checkpoints = await asyncio.gather(*(grown(reopen(), f"run-{n}", commits=4) for n in range(50)))
    for n, checkpoint in enumerate(checkpoints):
        assert lineage(await storage.load(f"run-{n}")) == lineage(checkpoint)


def test_one_storage_serves_several_threads_and_event_loops(storage: CheckpointStorage) -> None:
    wins: list[int] = []
    failures: list[BaseException] = []
    start = threading.Barrier(4)

    async def work(k: int) -> None:
        await grown(storage, f"own-{k}", commits=5)
        for _ in range(10):
            race = await storage.load("race")
            start.wait()
            try:
                await race.commit_snapshot(state(1, writer=k))
                wins.append(k)
            except CheckpointConflictError:
                pass
            start.wait()

    def run(k: int) -> None:
        try:
            asyncio.run(work(k))
        except BaseException as error:
            failures.append(error)
            start.abort()

    asyncio.run(grown(storage, "race", commits=1))
    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(wins) == 10
    parents = [parent for _, parent in lineage(asyncio.run(storage.load("race")))]
    assert len(parents) == len(set(parents)) == 11


async def test_a_lost_reply_is_no_conflict(storage: CheckpointStorage, reopen: Opener) -> None:
    unanswered = Unanswered(storage)
    checkpoint = create(unanswered)
    await checkpoint.commit_snapshot(state(1, n=1))  # settled by reading back
    assert len(checkpoint.snapshots) == 1
    await unanswered.repeat()
    other = await reopen().load("order-17")
    assert len(other.snapshots) == 1
    later = await other.commit_snapshot(state(2, n=2))
    await unanswered.repeat()  # it is further down the lineage by now, and still stored
    await checkpoint.refresh()
    await checkpoint.commit_snapshot(state(3, n=3))
    await unanswered.repeat()
    found = await reopen().load("order-17")
    assert [parent for _, parent in lineage(found)][1:] == [found.snapshots[0].snapshot_id, later.snapshot_id]
    # Whatever head it names: what is stored is not stored twice.
    for snapshot in found.snapshots:
        for expected in (found.head_snapshot_id, snapshot.snapshot_id, "nonsense", None):
            await storage.commit_snapshot(found, snapshot, expected_head_snapshot_id=expected)
    assert lineage(await reopen().load("order-17")) == lineage(found)
    await storage.delete("order-17")
    with pytest.raises(CheckpointConflictError):
        await unanswered.repeat()
    with pytest.raises(CheckpointNotFoundError):
        await storage.load("order-17")


async def test_c21_a_cancelled_commit_lands_or_fails_before_its_caller_goes_on(
    storage: CheckpointStorage, reopen: Opener
) -> None:
    checkpoint = await grown(storage, commits=1)
    for n in range(20):
        committing = asyncio.ensure_future(checkpoint.commit_snapshot(state(n, n=n)))
        for _ in range(n % 5):
            await asyncio.sleep(0)
        committing.cancel()
        await asyncio.wait([committing])
        loaded = await reopen().load("order-17")
        assert lineage(loaded) == lineage(checkpoint)
        assert loaded.head_snapshot_id == checkpoint.head_snapshot_id
    await checkpoint.commit_snapshot(state(99))


# Heads, listings.


async def test_load_head_says_what_a_commit_is_compared_with(
    storage: CheckpointStorage, reopen: Opener
) -> None:
    assert "load_head" in storage.capabilities
    checkpoint = await grown(storage, commits=2)
    head = await reopen().load_head("order-17")
    assert (head.head_snapshot_id, head.generation) == (checkpoint.head_snapshot_id, 0)
    await checkpoint.commit_snapshot(state(3))
    assert (await storage.load_head("order-17")).head_snapshot_id == checkpoint.head_snapshot_id
    await checkpoint.check_head()
    with pytest.raises(CheckpointNotFoundError, match="nobody"):
        await storage.load_head("nobody")


async def test_listing_by_id_with_filters_and_pages(storage: CheckpointStorage, reopen: Opener) -> None:
    assert await storage.list_checkpoints() == []
    for n, name in enumerate(["b", "a", "Z", "é", "b/c"]):
        checkpoint = create(
            storage,
            name,
            workflow_name=f"w{n % 2}",
            metadata={"tenant": "t1" if n < 3 else "t2", "n": str(n)},
        )
        await checkpoint.commit_snapshot(state(n, requests=("q",) if n == 4 else ()))
    found = await reopen().list_checkpoints()
    assert [line.checkpoint_id for line in found] == ["Z", "a", "b", "b/c", "é"]
    line = found[3]
    stored = await storage.load("b/c")
    assert (line.workflow_name, line.status, line.superstep) == ("w0", "idle_with_pending_requests", 4)
    assert (line.head_snapshot_id, line.requests) == (stored.head_snapshot_id, ("q",))
    assert (line.created_at, line.metadata) == (stored.created_at, {"tenant": "t2", "n": "4"})
    assert line.updated_at == stored.snapshots[-1].timestamp

    async def ids(**filters: Any) -> list[str]:
        return [one.checkpoint_id for one in await storage.list_checkpoints(**filters)]

    assert await ids(workflow_name="w1") == ["a", "é"]
    assert await ids(metadata={"tenant": "t1"}) == ["Z", "a", "b"]
    assert await ids(metadata={"tenant": "t1", "n": "2"}) == ["Z"]
    assert await ids(metadata={"other": "t1"}) == []
    assert await ids(status="idle_with_pending_requests") == ["b/c"]
    assert await ids(limit=2) == ["Z", "a"]
    assert await ids(after="a", limit=2) == ["b", "b/c"]
    assert await ids(after="é") == []
    assert await ids(limit=0) == []
    found[0].metadata["tenant"] = "changed"
    assert await ids(metadata={"tenant": "changed"}) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": -1}, {"limit": "x"}, {"limit": 1.5}, {"limit": True}, {"after": 5}, {"workflow_name": 5},
        {"status": "nonsense"}, {"status": []}, {"metadata": 5}, {"metadata": {"a": 5}}, {"metadata": {5: "a"}},
        {"status": "\ud800"},
    ],
)  # fmt: skip
async def test_a_listing_refuses_what_is_no_filter(storage: CheckpointStorage, wrong: dict[str, Any]) -> None:
    for name in ("one", "another"):
        with pytest.raises(InvalidCallError, match=next(iter(wrong))):
            await storage.list_checkpoints(**wrong)
        await grown(storage, name, commits=1)


# Going away.


async def test_r34_an_unknown_id_is_not_found_and_may_be_deleted(storage: CheckpointStorage) -> None:
    for _ in range(2):
        with pytest.raises(CheckpointNotFoundError, match="nobody"):
            await storage.load("nobody")
        await storage.delete("nobody")


async def test_c22_a_late_commit_brings_nothing_back(storage: CheckpointStorage, reopen: Opener) -> None:
    stale = await grown(storage, commits=3)
    await grown(storage, "bystander")
    await reopen().delete("order-17")
    with pytest.raises(CheckpointConflictError, match="deleted"):
        await stale.commit_snapshot(state(9))
    with pytest.raises(CheckpointNotFoundError):
        await storage.load("order-17")
    assert [line.checkpoint_id for line in await storage.list_checkpoints()] == ["bystander"]
    fresh = await grown(reopen(), commits=2)
    with pytest.raises(CheckpointConflictError):
        await stale.commit_snapshot(state(9))
    with pytest.raises(CheckpointConflictError):
        await stale.check_head()
    with pytest.raises(CheckpointConflictError):
        await stale.prune()
    loaded = await reopen().load("order-17")
    assert lineage(loaded) == lineage(fresh)
    assert loaded.created_at == fresh.created_at
    assert loaded.parts == fresh.parts


async def test_r61_prune_removes_what_is_not_kept_and_nothing_else_does(
    storage: CheckpointStorage, reopen: Opener
) -> None:
    checkpoint = create(storage)
    for n in range(6):
        await checkpoint.commit_snapshot(state(n, n=n, text=f"{n}" * 400, same="s" * 400))
    keep = [checkpoint.snapshots[n].snapshot_id for n in (1, 3)]
    states = {one.snapshot_id: one.state for one in checkpoint.snapshots}
    removed = await checkpoint.prune(keep)
    assert len(removed) == 3
    expected = [*keep, checkpoint.head_snapshot_id]
    for found in (checkpoint, await reopen().load("order-17")):
        assert [one.snapshot_id for one in found.snapshots] == expected
        assert {one.snapshot_id: one.state for one in found.snapshots} == {
            one: states[one] for one in expected
        }
        assert [one.snapshot_id for one in found.ancestors()] == expected[::-1]
        assert found.generation == 1
    stored = await reopen().load("order-17")
    assert stored.header == checkpoint.header
    assert stored.parts == checkpoint.parts
    await checkpoint.commit_snapshot(state(7, n=7))
    await checkpoint.prune()
    assert [one.snapshot_id for one in (await reopen().load("order-17")).snapshots] == [
        checkpoint.head_snapshot_id
    ]


async def test_prune_keeps_the_parts_that_branches_share(storage: CheckpointStorage, reopen: Opener) -> None:
    checkpoint = create(storage)
    big = {"text": "shared " * 300}
    await checkpoint.commit_snapshot(state(0, **big))
    root = checkpoint.snapshots[0].snapshot_id
    for n in range(3):
        checkpoint.restart_from(root)
        await checkpoint.commit_snapshot(state(1, branch=n, **big))
    keep = checkpoint.snapshots[2].snapshot_id
    await checkpoint.prune([keep])
    loaded = await reopen().load("order-17")
    assert [shared(one) for one in loaded.snapshots] == [{"branch": 1, **big}, {"branch": 2, **big}]


async def test_a_commit_that_has_not_seen_a_prune_conflicts(
    storage: CheckpointStorage, reopen: Opener
) -> None:
    pruner = await grown(storage, commits=4)
    other = await reopen().load("order-17")
    await pruner.prune()
    assert other.stored_head_snapshot_id == pruner.stored_head_snapshot_id
    other.restart_from(other.snapshots[0].snapshot_id)
    with pytest.raises(CheckpointConflictError, match="pruned"):
        await other.commit_snapshot(state(9))
    with pytest.raises(CheckpointConflictError):
        await other.check_head()
    with pytest.raises(CheckpointConflictError):
        await other.prune()
    await other.refresh()
    await other.commit_snapshot(state(9))
    with pytest.raises(CheckpointConflictError):
        await pruner.commit_snapshot(state(10))
    assert lineage(await reopen().load("order-17")) == lineage(other)


async def test_a_lost_reply_to_a_prune_is_no_conflict(storage: CheckpointStorage, reopen: Opener) -> None:
    unanswered = Unanswered(storage, losing="prune")
    checkpoint = await grown(unanswered, commits=4)
    assert len(await checkpoint.prune()) == 3  # settled by reading back
    assert len(checkpoint.snapshots) == 1
    await storage.prune(**unanswered.prunes[0])
    assert lineage(await reopen().load("order-17")) == lineage(checkpoint)
    await checkpoint.commit_snapshot(state(4))
    assert lineage(await reopen().load("order-17")) == lineage(checkpoint)


# Ids.

IDS = [
    "../../x", "/etc/x", "a/b", "a\\b", "..", ".", "C:\\x", "*", "[ab]", "?", "x' OR '1'='1", "%", "_", "-rf",
    " ", "a ", "a.", ".hidden", "con", "CON", "nul.txt", "a:b", "<a>", '"', "é", "e\u0301", "É", "ß", "ss",
    "ı", "I", "i", "\u212a", "k", "K", "a", "A", "aB", "Ab", "AB", "ab", "😀", "\u2028", "\u200b",
    "a" * 512, "é" * 512, "a" * 511,
]  # fmt: skip


async def test_c58_c59_every_legal_id_is_its_own_checkpoint(
    storage: CheckpointStorage, reopen: Opener
) -> None:
    ordinary = [f"ordinary-{n}" for n in range(5)]
    for name in [*ordinary, *IDS]:
        await create(storage, name).commit_snapshot(state(0, name=name))
    listed = [line.checkpoint_id for line in await reopen().list_checkpoints()]
    assert listed == sorted([*ordinary, *IDS])
    left = set(listed)
    for name in IDS:
        assert shared((await reopen().load(name)).head_snapshot) == {"name": name}
        await reopen().delete(name)
        left.discard(name)
        assert {line.checkpoint_id for line in await storage.list_checkpoints()} == left
    assert left == set(ordinary)


@pytest.mark.parametrize("name", ["", "a\x00b", "a\nb", "\x1b[31m", "\x7f", "a" * 513, "a" * 5000, "\ud83d"])
async def test_c59_an_illegal_id_is_refused_before_anything_happens(
    storage: CheckpointStorage, name: str
) -> None:
    with pytest.raises(InvalidCallError) as caught:
        create(storage, name)
    errors = [caught.value]
    for call in (storage.load, storage.delete, storage.load_head):
        with pytest.raises(InvalidCallError) as caught:
            await call(name)
        errors.append(caught.value)
    for error in errors:
        assert not any(unicodedata.category(one).startswith("C") for one in str(error))
        assert len(str(error)) < 300
    assert await storage.list_checkpoints() == []


async def test_a_storage_is_a_context_manager_that_may_be_closed_twice(reopen: Opener) -> None:
    async with reopen() as storage:
        await grown(storage)
    await storage.aclose()
    assert len((await reopen().load("order-17")).snapshots) == 3
