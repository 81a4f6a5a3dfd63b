"""A listing has what is stored, by id in code point order, filtered and in pages."""

from __future__ import annotations

from typing import Any

from branchpoint.errors import InvalidCallError
from branchpoint.testing._clause import clause
from branchpoint.testing._findings import refused, same
from branchpoint.testing._place import Place
from branchpoint.testing.samples import create, grown, small_state


@clause("listing", needs=("list_checkpoints",))
async def a_listing_has_filters_and_pages(place: Place) -> None:
    """Lines tell header and head; filters and pages give those that pass, in code point order."""
    storage = await place.storage()
    same(await storage.list_checkpoints(), [])
    for n, name in enumerate(["b", "a", "Z", "é", "b/c"]):
        checkpoint = create(
            storage,
            name,
            workflow_name=f"w{n % 2}",
            metadata={"tenant": "t1" if n < 3 else "t2", "n": str(n)},
        )
        await checkpoint.commit_snapshot(small_state(n, requests=("q",) if n == 4 else ()))
    found = await (await place.storage()).list_checkpoints()
    same([line.checkpoint_id for line in found], ["Z", "a", "b", "b/c", "é"])
    line = found[3]
    stored = await storage.load("b/c")
    same((line.workflow_name, line.status, line.superstep), ("w0", "idle_with_pending_requests", 4))
    same((line.head_snapshot_id, line.requests), (stored.head_snapshot_id, ("q",)))
    same((line.created_at, line.metadata), (stored.created_at, {"tenant": "t2", "n": "4"}))
    same(line.updated_at, stored.snapshots[-1].timestamp)

    async def ids(**filters: Any) -> list[str]:
        return [one.checkpoint_id for one in await storage.list_checkpoints(**filters)]

    same(await ids(workflow_name="w1"), ["a", "é"])
    same(await ids(metadata={"tenant": "t1"}), ["Z", "a", "b"])
    same(await ids(metadata={"tenant": "t1", "n": "2"}), ["Z"])
    same(await ids(metadata={"other": "t1"}), [])
    same(await ids(status="idle_with_pending_requests"), ["b/c"])
    same(await ids(workflow_name="w0", status="idle", metadata={"tenant": "t1"}, limit=1), ["Z"])
    same(await ids(limit=2), ["Z", "a"])
    same(await ids(after="a", limit=2), ["b", "b/c"])
    same(await ids(after="b/"), ["b/c", "é"])
    same(await ids(after="é"), [])
    same(await ids(limit=0), [])
    found[0].metadata["tenant"] = "changed"
    same(await ids(metadata={"tenant": "changed"}), [])


@clause("listing", needs=("list_checkpoints",))
async def a_line_follows_the_head(place: Place) -> None:
    """A listing shows the stored head, whatever branch it is on, and forgets what was deleted."""
    storage = await place.storage()
    checkpoint = await grown(storage, commits=3)
    checkpoint.restart_from(checkpoint.snapshots[0].snapshot_id)
    await checkpoint.commit_snapshot(small_state(1, requests=("r",)))
    if "prune" in storage.capabilities:
        await checkpoint.prune()
    (line,) = await storage.list_checkpoints()
    same((line.head_snapshot_id, line.superstep), (checkpoint.head_snapshot_id, 1))
    same(line.requests, ("r",))
    same(await storage.list_checkpoints(status="idle"), [])
    await storage.delete("order-17")
    same(await storage.list_checkpoints(), [])


@clause("listing", needs=("list_checkpoints",))
async def a_listing_refuses_what_is_no_filter(place: Place) -> None:
    """An argument of the wrong kind raises InvalidCallError, whatever is stored."""
    storage = await place.storage()
    wrong: list[dict[str, Any]] = [
        {"limit": -1}, {"limit": "x"}, {"limit": 1.5}, {"limit": True}, {"after": 5}, {"workflow_name": 5},
        {"status": "nonsense"}, {"status": []}, {"metadata": 5}, {"metadata": {"a": 5}}, {"metadata": {5: "a"}},
        {"status": "\ud800"},
    ]  # fmt: skip
    for name in ("one", "another"):
        for filters in wrong:
            with refused(InvalidCallError, what=repr(filters)):
                await storage.list_checkpoints(**filters)
        await grown(storage, name, commits=1)
