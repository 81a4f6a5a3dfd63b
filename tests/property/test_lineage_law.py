"""The lineage law finds what breaks it, whatever it is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta, timezone
from typing import Any

import msgspec
import pytest

from branchpoint import Checkpoint, MemoryCheckpointStorage
from branchpoint.checkpoint import Manifest
from branchpoint.testing import LineageLaw, check_lineage_law
from tests.property.errands import errands

Doctor = Callable[[dict[str, Manifest]], None]


async def lived() -> tuple[Checkpoint, dict[str, str]]:
    """A checkpoint that much was done to, and its snapshots by what they are."""
    workflow = errands()
    checkpoint = workflow.create_checkpoint("run-1", MemoryCheckpointStorage())
    await workflow.run("oqfa", checkpoint=checkpoint, input_id="in-1")
    first, second = (request.request_id for request in checkpoint.pending_requests)
    await workflow.run(responses={first: "yes"}, checkpoint=checkpoint, input_id="in-2")
    await workflow.run(responses={second: "yes"}, checkpoint=checkpoint, input_id="in-3")
    await workflow.run("ll", checkpoint=checkpoint, input_id="in-4", max_supersteps=1)
    checkpoint.restart_from(checkpoint.snapshots[-1].snapshot_id)
    await checkpoint.abandon()
    checkpoint.restart_from(checkpoint.snapshots[1].snapshot_id)
    await workflow.run(checkpoint=checkpoint, max_supersteps=1)
    names: dict[str, str] = {}
    for snapshot in checkpoint.snapshots:
        names.setdefault(snapshot.boundary, snapshot.snapshot_id)
    names["last"] = checkpoint.snapshots[-1].snapshot_id
    return checkpoint, names


def rebuilt(checkpoint: Checkpoint, manifests: list[Manifest]) -> Checkpoint:
    return Checkpoint.restore(
        header=checkpoint.header,
        manifests=manifests,
        head_snapshot_id=manifests[-1].snapshot_id,
        parts=checkpoint.parts,
        checkpoint_storage=checkpoint.checkpoint_storage,
    )


async def test_what_was_done_to_a_checkpoint_breaks_no_law() -> None:
    checkpoint, _ = await lived()
    storage = checkpoint.checkpoint_storage
    assert storage is not None
    check_lineage_law(checkpoint, await storage.load("run-1"))
    forked = await checkpoint.fork(checkpoint.snapshots[2].snapshot_id, "run-2")
    check_lineage_law(forked, await storage.load("run-2"))
    law = LineageLaw()
    law.check(checkpoint)
    await checkpoint.prune([checkpoint.snapshots[0].snapshot_id, checkpoint.snapshots[4].snapshot_id])
    law.check(checkpoint, await storage.load("run-1"))


@pytest.mark.parametrize(
    ("which", "change"),
    [
        ("superstep_completed", {"superstep": 7}),
        ("superstep_completed", {"status": "idle"}),
        ("superstep_completed", {"executors": ()}),
        ("superstep_completed", {"executors": ("hub", "left")}),
        ("superstep_completed", {"boundary": "completed"}),
        ("superstep_completed", {"boundary": "input_accepted"}),
        ("superstep_completed", {"boundary": "restarted"}),
        ("superstep_completed", {"parent_snapshot_id": None}),
        ("superstep_completed", {"input_id": "in-9"}),
        ("superstep_completed", {"format_version": 2}),
        ("superstep_completed", {"graph_signature_hash": "another"}),
        ("paused", {"requests": ()}),
        ("paused", {"boundary": "superstep_completed"}),
        ("responses_accepted", {"boundary": "input_accepted"}),
        ("completed", {"boundary": "abandoned"}),
        ("abandoned", {"boundary": "completed"}),
        ("abandoned", {"boundary": "responses_accepted"}),
        ("restarted", {"boundary": "superstep_completed"}),
        ("input_accepted", {"boundary": "restarted"}),
        ("input_accepted", {"executors": ("hub",)}),
    ],
)
async def test_an_envelope_that_says_something_else_breaks_it(which: str, change: dict[str, Any]) -> None:
    checkpoint, names = await lived()
    manifests = [
        msgspec.structs.replace(one.manifest, **(change if one.snapshot_id == names[which] else {}))
        for one in checkpoint.snapshots
    ]
    with pytest.raises(AssertionError):
        check_lineage_law(rebuilt(checkpoint, manifests))


@pytest.mark.parametrize(
    "which", ["superstep_completed", "paused", "responses_accepted", "completed", "abandoned"]
)
async def test_another_state_or_another_parent_breaks_it(which: str) -> None:
    checkpoint, names = await lived()
    others = [one for one in checkpoint.snapshots if one.snapshot_id < names[which]]
    for other in others:
        for change in ({"root": other.root}, {"parent_snapshot_id": other.snapshot_id}):
            manifests = [
                msgspec.structs.replace(one.manifest, **(change if one.snapshot_id == names[which] else {}))
                for one in checkpoint.snapshots
            ]
            if manifests == [one.manifest for one in checkpoint.snapshots]:
                continue
            with pytest.raises(AssertionError):
                check_lineage_law(rebuilt(checkpoint, manifests))


async def test_a_time_that_is_not_in_utc_breaks_it() -> None:
    checkpoint, _ = await lived()
    manifests = [one.manifest for one in checkpoint.snapshots]
    there = manifests[-1].timestamp.astimezone(timezone(timedelta(hours=1)))
    manifests[-1] = msgspec.structs.replace(manifests[-1], timestamp=there)
    with pytest.raises(AssertionError):
        check_lineage_law(rebuilt(checkpoint, manifests))


async def test_memory_and_store_that_differ_break_it() -> None:
    checkpoint, _ = await lived()
    with pytest.raises(AssertionError):
        check_lineage_law(
            checkpoint, rebuilt(checkpoint, [one.manifest for one in checkpoint.snapshots[:-1]])
        )


async def test_a_snapshot_that_changes_breaks_it() -> None:
    checkpoint, _ = await lived()
    law = LineageLaw()
    law.check(checkpoint)
    manifests = [one.manifest for one in checkpoint.snapshots]
    manifests[-1] = msgspec.structs.replace(manifests[-1], metadata={"late": True})
    check_lineage_law(rebuilt(checkpoint, manifests))
    with pytest.raises(AssertionError, match="not what was committed"):
        law.check(rebuilt(checkpoint, manifests))


async def test_ids_that_do_not_sort_break_it() -> None:
    checkpoint, _ = await lived()
    manifests = [one.manifest for one in checkpoint.snapshots]
    manifests[-1] = msgspec.structs.replace(manifests[-1], snapshot_id="0")
    with pytest.raises(AssertionError, match="do not sort"):
        check_lineage_law(rebuilt(checkpoint, manifests))


async def test_a_commit_that_is_no_child_of_the_selected_head_breaks_it() -> None:
    checkpoint, _ = await lived()
    before = LineageLaw.sight(checkpoint)
    assert LineageLaw.followed(before, checkpoint) == []
    checkpoint.restart_from(checkpoint.snapshots[0].snapshot_id)
    with pytest.raises(AssertionError):
        LineageLaw.followed(before, checkpoint)
    await checkpoint.commit_snapshot()
    with pytest.raises(AssertionError, match="is no child of"):
        LineageLaw.followed(before, checkpoint)
