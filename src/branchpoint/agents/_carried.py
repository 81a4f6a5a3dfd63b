"""Where a session keeps the checkpoint of its workflow: whole, or by its ids."""

from __future__ import annotations

from typing import Any, Final

from agent_framework import AgentSession

from branchpoint.checkpoint import (
    Checkpoint,
    CheckpointStorage,
    checkpoint_of,
    copied_checkpoint,
    mark_of,
    whole_of,
)
from branchpoint.errors import InvalidCallError

__all__ = ["CarriedCheckpoint", "carried_by", "carry", "place_of"]

KEY: Final = "branchpoint.checkpoint"
"""The one key of a session's state."""

_ENTRY: Final = {"checkpoint_id", "snapshot_id"}


class CarriedCheckpoint:
    """A checkpoint without a storage, as a value: a copy of the session has a copy of it.

    Attributes:
        checkpoint: The checkpoint.
    """

    __slots__ = ("checkpoint",)

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint

    def __repr__(self) -> str:
        return f"<carried: {self.checkpoint!r}>"

    def __copy__(self) -> CarriedCheckpoint:
        return CarriedCheckpoint(copied_checkpoint(self.checkpoint))

    def __deepcopy__(self, memo: dict[int, Any]) -> CarriedCheckpoint:
        return self.__copy__()

    @staticmethod
    def encode(carried: CarriedCheckpoint) -> dict[str, Any]:
        """Return it as plain text that can be read."""
        return whole_of(carried.checkpoint)

    @staticmethod
    def decode(whole: Any) -> CarriedCheckpoint:
        """Return what `encode` wrote, checked."""
        return CarriedCheckpoint(checkpoint_of(whole))

    @staticmethod
    def mark(carried: CarriedCheckpoint) -> tuple[Any, ...]:
        """Return what changes whenever it does."""
        return mark_of(carried.checkpoint)


async def carried_by(
    session: AgentSession, storage: CheckpointStorage | None, input_id: str | None = None
) -> Checkpoint | None:
    """Return the checkpoint of a session, at the snapshot the session is at; None before its first turn.

    Args:
        session: The session.
        storage: Of its agent.
        input_id: What is about to be delivered. If it was accepted after the snapshot that this copy of the
            session is at, which was not saved then, the checkpoint is where that delivery led.

    Raises:
        InvalidCallError: The session keeps ids, and there is no storage to load from, or it keeps something else.
        CheckpointNotFoundError: It was deleted from the storage.
        SnapshotNotFoundError: The snapshot was pruned.
    """
    entry = session.state.get(KEY)
    if isinstance(entry, dict) and "type" in entry:
        # It was restored before anything had imported this room, and so as plain data.
        entry = AgentSession.from_dict({"session_id": "-", "state": {KEY: entry}}).state[KEY]
        session.state[KEY] = entry
    if entry is None:
        return None
    if isinstance(entry, CarriedCheckpoint):
        return entry.checkpoint
    if type(entry) is not dict or set(entry) != _ENTRY or not all(type(one) is str for one in entry.values()):
        raise InvalidCallError(
            f"session {session.session_id!r} has something under {KEY!r} that is no checkpoint: take the session as it "
            "was saved, or a new one"
        )
    if storage is None:
        raise InvalidCallError(
            f"session {session.session_id!r} names checkpoint {entry['checkpoint_id']!r}, which lives in a storage, "
            "and this agent has none: make it with as_agent(checkpoint_storage=...)"
        )
    checkpoint = await storage.load(entry["checkpoint_id"])
    await _go_to(checkpoint, entry["snapshot_id"])
    if input_id is not None:
        await checkpoint.load_lineage()
        for snapshot in reversed(checkpoint.snapshots):
            if snapshot.input_id == input_id and any(
                before.snapshot_id == entry["snapshot_id"]
                for before in checkpoint.ancestors(snapshot.snapshot_id)
            ):
                await _go_to(checkpoint, snapshot.snapshot_id)
                break
    return checkpoint


async def _go_to(checkpoint: Checkpoint, snapshot_id: str) -> None:
    if checkpoint.head_snapshot_id != snapshot_id:
        await checkpoint.load_snapshot(snapshot_id)
        checkpoint.restart_from(snapshot_id)


def place_of(session: AgentSession) -> str | None:
    """Return the snapshot that a session is at, as it says itself; None before its first turn."""
    entry = session.state.get(KEY)
    if isinstance(entry, CarriedCheckpoint):
        return entry.checkpoint.head_snapshot_id
    return None if entry is None else entry["snapshot_id"]


def carry(session: AgentSession, checkpoint: Checkpoint) -> None:
    """Have a session keep a checkpoint, at its selected head; nothing is to keep before its first commit."""
    if checkpoint.stored_head_snapshot_id is None:
        return
    if checkpoint.checkpoint_storage is None:
        entry = session.state.get(KEY)
        if not isinstance(entry, CarriedCheckpoint) or entry.checkpoint is not checkpoint:
            session.state[KEY] = CarriedCheckpoint(checkpoint)
    elif checkpoint.head_snapshot_id is not None:
        session.state[KEY] = {
            "checkpoint_id": checkpoint.checkpoint_id,
            "snapshot_id": checkpoint.head_snapshot_id,
        }
