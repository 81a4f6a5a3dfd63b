"""Which snapshots a lazy load leaves behind, where everything is read in any case: the newest that fit are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from branchpoint.checkpoint import Checkpoint
from branchpoint.errors import SnapshotNotLoadedError
from branchpoint.testing._clauses._lazy import size, written
from tests.states import commit_superstep, output
from tests.storages import Opener, create, opener, state

COMMITS = 20


@pytest.fixture(params=["memory", "file-json", "file-msgpack"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return opener(request.param, tmp_path)


def loaded(checkpoint: Checkpoint) -> list[int]:
    """The places in commit order of the snapshots whose state is in memory."""
    return [n for n, snapshot in enumerate(checkpoint.snapshots) if snapshot.is_loaded]


async def test_the_newest_are_kept_as_far_as_they_fit(reopen: Opener) -> None:
    whole = await written(reopen(), COMMITS)
    lazy = await reopen(lazy_over=30_000).load("order-17")
    assert loaded(lazy) == list(range(COMMITS - 6, COMMITS))
    less = await reopen(lazy_over=size(whole.parts) - 1).load("order-17")
    assert loaded(less) == list(range(1, COMMITS))


@pytest.mark.parametrize("lazy_over", [0, 1, 3000])
async def test_the_head_is_there_whatever_its_size(reopen: Opener, lazy_over: int) -> None:
    whole = await written(reopen(), 4)
    lazy = await reopen(lazy_over=lazy_over).load("order-17")
    assert whole.head_snapshot is not None
    assert lazy.parts == whole.head_snapshot.parts()
    assert loaded(lazy) == [3]


async def test_a_snapshot_whose_state_the_head_has_again_is_there(reopen: Opener) -> None:
    whole = await written(reopen(), 5)
    whole.restart_from(whole.snapshots[1].snapshot_id)
    await whole.commit_snapshot()
    assert loaded(await reopen(lazy_over=0).load("order-17")) == [1, 5]


async def test_events_of_what_is_not_there_say_which_snapshot_is_missing(reopen: Opener) -> None:
    whole = create(reopen())
    for n in range(4):
        found = state(n, own=f"{n}" * 2000)
        found["messages"]["output"] = [output(f"o{k}", "v" * 2000, superstep=k + 1) for k in range(n)]
        await commit_superstep(whole, found, "a")
    lazy = await reopen(lazy_over=0).load("order-17")
    for snapshot in lazy.ancestors()[:-1]:
        await lazy.load_snapshot(snapshot.snapshot_id)
    with pytest.raises(SnapshotNotLoadedError, match=lazy.snapshots[0].snapshot_id):
        lazy.events()
    await lazy.load_snapshot(lazy.snapshots[0].snapshot_id)
    assert [event.event_id for event in lazy.events()] == [event.event_id for event in whole.events()]
