"""The recorded result of an input that others have followed, also where its last snapshot was pruned."""

from __future__ import annotations

from branchpoint.checkpoint import Checkpoint, CheckpointSnapshot, OutputRecord, Source, Stored
from branchpoint.engine._admission import earlier_inputs
from branchpoint.engine._opening import open_state
from branchpoint.engine._state import IDLE, RunState
from branchpoint.errors import SnapshotNotFoundError

__all__ = ["recorded"]


async def recorded(
    checkpoint: Checkpoint, state: RunState, input_id: str, where: str
) -> tuple[RunState, CheckpointSnapshot | None]:
    """Return the state in which the lineage left an earlier input, with the snapshot that holds it.

    Where a message ended the turn of that input and the snapshot is gone, the state says what every
    later one still knows of that turn: that it was over, and its outputs. The snapshot is None then.

    Args:
        checkpoint: Where it is; what a lazy storage left behind is fetched.
        state: The state at the selected head, in whose lineage the input was accepted before others.
        input_id: The input.
        where: The checkpoint, for messages.

    Raises:
        SnapshotNotFoundError: The snapshot is gone, and with it what was asked in it.
    """
    turn, until, ended = _course(state, input_id, where)
    await checkpoint.load_lineage()
    at = next((found for found in checkpoint.ancestors() if found.input_id == input_id), None)
    # Its last snapshot, or the last one that was kept: the next input was accepted in the superstep and,
    # if it was a message, at the status in which this one was left.
    if at is not None and at.superstep == until and (at.status == IDLE or not ended):
        at = await checkpoint.load_snapshot(at.snapshot_id)
        return open_state(state.graph, checkpoint, at), at
    if not ended:
        raise SnapshotNotFoundError(
            f"{where} accepted input {input_id!r} before, and the snapshot that holds its result is not here: it was "
            "pruned, or left behind by a fork. So the result cannot be told again. The input does not act a second "
            "time; outputs of all turns are in checkpoint.outputs()."
        )
    return _end_of_turn(state, turn, until, where), None


def _course(state: RunState, input_id: str, where: str) -> tuple[int, int, bool]:
    """Return the turn of an earlier input, the superstep it went on until, and whether that ended the turn."""
    records = earlier_inputs(state, where)
    record = next(record for record in records if record.input_id == input_id)
    following = next(records, None)
    if following is None:
        return record.turn, state.input_iteration, state.turn > record.turn
    return record.turn, following.superstep, following.turn > record.turn


def _end_of_turn(state: RunState, turn: int, superstep: int, where: str) -> RunState:
    medium = state.medium
    assert medium is not None
    source = Source(medium.parts, medium.format, where)
    outputs = [
        made
        for made in state.outputs
        if OutputRecord(Stored(made.record.encoded(medium), made.record.path, source)).turn == turn
    ]
    return RunState(state.graph, medium, iteration=superstep, status=IDLE, turn=turn, outputs=outputs)
