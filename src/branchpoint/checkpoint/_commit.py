"""The one path on which a snapshot comes into being."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from branchpoint import clock, codec
from branchpoint.checkpoint._contract import CheckpointStorage
from branchpoint.checkpoint._history import History
from branchpoint.checkpoint._landing import landed
from branchpoint.checkpoint._manifest import FORMAT_VERSION, Manifest, Origin
from branchpoint.checkpoint._plain import copy_metadata
from branchpoint.checkpoint._reading import summary_again
from branchpoint.checkpoint._snapshot import CheckpointSnapshot
from branchpoint.checkpoint._state import Summary, check_buckets, checked_edit
from branchpoint.errors import CheckpointConflictError, CheckpointLeasedError, InvalidCallError
from branchpoint.events import instrumented
from branchpoint.ids import new_id

if TYPE_CHECKING:
    from branchpoint.checkpoint._checkpoint import Checkpoint
    from branchpoint.checkpoint._hold import Hold

__all__ = ["commit_state", "land", "watched"]


async def watched(
    history: History, commit: Coroutine[Any, Any, CheckpointSnapshot], *, summary: Summary | None, again: bool
) -> CheckpointSnapshot:
    """Make a commit inside of the instruments of this process.

    Args:
        summary: What the manifest will say; None for an edit, and for the same state again.
        again: It is the same state again.
    """
    parent, head = history.selected, history.head()
    known: dict[str, Any] = {
        "checkpoint_id": history.header.checkpoint_id,
        "boundary": summary.boundary if summary is not None else "restarted" if again else "edited",
        "superstep": None,
        "parent_snapshot_id": parent,
        "snapshot_id": None,
    }
    if summary is not None:
        known["superstep"] = summary.superstep
    elif again and head is not None:
        known["superstep"] = head.superstep
    try:
        with instrumented("commit", known) as info:
            try:
                return await commit
            finally:
                # Also when it was cancelled: it may have landed all the same.
                head = history.head()
                if head is not None and head.snapshot_id != parent:
                    info["superstep"], info["snapshot_id"] = head.superstep, head.snapshot_id
    finally:
        commit.close()  # it has not begun when an instrument was interrupted


async def commit_state(
    checkpoint: Checkpoint,
    history: History,
    hold: Hold,
    *,
    state: Mapping[str, Any] | None,
    metadata: Mapping[str, Any] | None,
    summary: Summary | None,
    trace: str | None,
) -> CheckpointSnapshot:
    """Encode a state and land it as child of the selected head; None lands the head's state again.

    A state without a summary is an edit, and nobody vouches for its shape: it is checked first.
    """
    copied = copy_metadata(metadata)
    if state is None:
        head = history.head()
        if head is None:
            raise InvalidCallError(
                f"checkpoint {checkpoint.checkpoint_id!r} is at its empty start, so there is no state to "
                "commit again: give a state, or run the workflow with a message"
            )
        await checkpoint.load_snapshot(head.snapshot_id)
        return await land(
            checkpoint,
            history,
            hold,
            root=head.root,
            new={},
            summary=summary or summary_again(head, "restarted"),
            metadata=copied,
            parent=head.snapshot_id,
            trace=trace,
        )
    if summary is None or type(state) is not codec.Frame:  # whose maker vouches for its names
        check_buckets(state)
    if summary is None:
        state, summary = checked_edit(state, format=history.format)
        memo = None  # who edits may change the same objects again
        part, _ = codec.encode_state(state, format=history.format)
    else:
        part, memo = codec.encode_state(state, format=history.format, memo=hold.memo)
    snapshot = await land(
        checkpoint,
        history,
        hold,
        root=part.digest,
        new=codec.new_parts(part, history.table.parts),
        summary=summary,
        metadata=copied,
        parent=history.selected,
        trace=trace,
    )
    hold.memo = memo
    return snapshot


async def land(
    checkpoint: Checkpoint,
    history: History,
    hold: Hold,
    *,
    root: str,
    new: Mapping[str, bytes],
    summary: Summary,
    metadata: dict[str, Any],
    parent: str | None,
    trace: str | None = None,
    forked_from: Origin | None = None,
) -> CheckpointSnapshot:
    """Create the snapshot, have it persisted, and only then show it and move both heads.

    A hold whose lease passed on lands nothing. When this raises, the history is as it was; unless it raises
    a cancellation, after which the snapshot has landed or failed, and memory says which.
    """
    manifest = Manifest(
        snapshot_id=new_id(),
        parent_snapshot_id=parent,
        timestamp=clock.now(),
        root=root,
        boundary=summary.boundary,
        status=summary.status,
        superstep=summary.superstep,
        input_id=summary.input_id,
        requests=summary.requests,
        executors=summary.executors,
        graph_signature_hash=history.header.graph_signature_hash,
        metadata=metadata,
        trace=trace,
        forked_from=forked_from,
        format_version=FORMAT_VERSION,
    )
    snapshot = CheckpointSnapshot(
        checkpoint_id=checkpoint.checkpoint_id,
        manifest=manifest,
        table=history.table,
        format=history.format,
        new_parts=new,
    )
    if history.storage is None:
        with hold.committing():
            history.advance(snapshot)
        return snapshot
    if hold.lost is not None:
        raise CheckpointLeasedError(*hold.lost)
    storage = history.storage
    what = f"the commit of {snapshot.snapshot_id!r} to {checkpoint.checkpoint_id!r}"
    if storage.commit_waits:
        await landed(hold, _persist(storage, checkpoint, history, snapshot), what)
        return snapshot
    with hold.committing():  # nothing can strike between the call and its end
        failure = await _attempt(storage, checkpoint, history, snapshot)
    if failure is not None:
        await landed(hold, _settle(failure, storage, checkpoint, history, snapshot), what)
    return snapshot


async def _persist(
    storage: CheckpointStorage, checkpoint: Checkpoint, history: History, snapshot: CheckpointSnapshot
) -> None:
    # In one task, so that memory follows even when nobody is waiting any more.
    failure = await _attempt(storage, checkpoint, history, snapshot)
    if failure is not None:
        await _settle(failure, storage, checkpoint, history, snapshot)


async def _attempt(
    storage: CheckpointStorage, checkpoint: Checkpoint, history: History, snapshot: CheckpointSnapshot
) -> Exception | None:
    """Persist a snapshot and show it, or return what leaves it open whether that happened."""
    try:
        await storage.commit_snapshot(checkpoint, snapshot, expected_head_snapshot_id=history.stored)
    except CheckpointConflictError:
        raise  # the backend has looked for a lost reply already
    except Exception as error:
        return error
    history.advance(snapshot)
    return None


async def _settle(
    failure: Exception,
    storage: CheckpointStorage,
    checkpoint: Checkpoint,
    history: History,
    snapshot: CheckpointSnapshot,
) -> None:
    """Show a snapshot that was persisted although that failed; otherwise raise the failure."""
    if not await _is_stored(storage, checkpoint.checkpoint_id, snapshot.snapshot_id):
        raise failure
    history.advance(snapshot)


async def _is_stored(storage: CheckpointStorage, checkpoint_id: str, snapshot_id: str) -> bool:
    """Say whether a commit that raised has landed all the same: its reply was lost.

    The stored head tells, unless another writer has gone on from there; then the stored lineage does.
    Storage that cannot be read now says no, and `refresh()` settles it later.
    """
    try:
        if (await storage.load_head(checkpoint_id)).head_snapshot_id == snapshot_id:
            return True
        stored = await storage.load(checkpoint_id)
        await stored.load_lineage()
    except Exception:
        return False
    return any(found.snapshot_id == snapshot_id for found in stored.snapshots)
