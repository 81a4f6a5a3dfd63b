"""What an accepted input and a finished superstep make of the state: pure, without await or clock.

Each function takes the state and what happened, and leaves the state of the next boundary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from branchpoint.checkpoint import status_of
from branchpoint.engine._admission import payload_digest
from branchpoint.engine._cell import Cell
from branchpoint.engine._routing import Routed
from branchpoint.engine._share import Share, folded, is_known
from branchpoint.engine._state import (
    IN_PROGRESS,
    AcceptedInput,
    Delivery,
    OpenRequest,
    Produced,
    RunState,
)
from branchpoint.errors import HandlerError
from branchpoint.graph import ABSENT, Write, append

__all__ = ["accept_answers", "accept_message", "finish_superstep", "incomplete_joins", "settle_status"]


def accept_message(state: RunState, message: Any, input_id: str) -> list[tuple[str, list[str]]]:
    """Begin a turn: the message is pending for the start executor.

    Returns:
        The joins that were dropped half filled, as `incomplete_joins` says them: an edit may have
        ended the turn before in the middle of one.
    """
    dropped = incomplete_joins(state)
    _remember_input(state)
    state.turn += 1
    _enter(state, input_id, "message", message, None)
    state.deliveries = [Delivery(message, (), (state.graph.start_id,))]
    return dropped


def accept_answers(
    state: RunState, responses: Mapping[str, Any], input_id: str, digest: str | None = None
) -> None:
    """Turn answered requests into deliveries to those who asked, in the order of the requests.

    `digest` is that of the payload as it was given, when converting changed it.
    """
    _remember_input(state)
    _enter(state, input_id, "responses", dict(responses), digest)
    for key, answer in responses.items():
        record = state.requests.pop(key).read(state.medium)
        asker = record["path"][0] if record["path"] else record["source_executor_id"]
        state.deliveries.append(Delivery(answer, (asker,), (asker,), key, record["data"]))


def _enter(state: RunState, input_id: str, kind: str, value: Any, digest: str | None) -> None:
    entered = Cell(f"{state.at}messages.input.value", 3, live=value)
    state.input = AcceptedInput(input_id, state.turn, kind, entered, digest)
    state.input_iteration = state.iteration
    state.status = IN_PROGRESS
    state.began = ""


def _remember_input(state: RunState) -> None:
    """Keep the id and the digest of the input that is about to be followed by another."""
    last = state.input
    if last is None or state.medium is None:  # a one-shot run keeps none
        return
    record = {
        "input_id": last.input_id,
        "turn": last.turn,
        "digest": last.digest or payload_digest(last.kind, last.value.value(state.medium)),
        "superstep": state.input_iteration,
    }
    state.earlier.append(Cell(f"{state.at}messages.input.earlier[{len(state.earlier)}]", 4, live=record))


class Done(msgspec.Struct):
    """What a superstep added, to be told once it is committed.

    Attributes:
        executors: Ids of those that ran, in declared order.
        asked: Ids of the requests they opened.
        outputs: What they yielded.
    """

    executors: list[str]
    asked: list[str]
    outputs: list[Produced]


def finish_superstep(state: RunState, shares: Sequence[Share], routed: Routed) -> Done:
    """Apply what all executors did: count, writes, messages, requests and outputs.

    Returns:
        What is new.

    Raises:
        StateConflictError: Two executors wrote one key that has no reducer.
        HandlerError: Two requests have one id.
    """
    state.iteration += 1
    state.began = ""
    _fold_writes(state, shares)
    state.deliveries = routed.deliveries
    state.buffers = routed.buffers
    done = Done([], [], [])
    for share in shares:
        done.executors.append(share.executor_id)
        for request_id in share.withdrawn:
            state.requests.pop(request_id, None)
        for asked in share.asked:
            if asked.request_id in state.requests:
                raise HandlerError(
                    f"Executor {share.executor_id!r} asked under the request id {asked.request_id!r}, which is open "
                    "already. Leave request_id out to have one made, or choose another."
                )
            cell = Cell(f"{state.at}messages.pending.requests.{asked.request_id}", 4, live=asked.record)
            state.requests[asked.request_id] = OpenRequest(asked.request_id, cell)
            done.asked.append(asked.request_id)
        if share.yielded:
            done.outputs += _add_outputs(state, share)
    return done


def _fold_writes(state: RunState, shares: Sequence[Share]) -> None:
    writes: dict[str, list[Write]] = {}
    for share in shares:
        for key, made in share.writes.items():
            writes.setdefault(key, []).extend(made)
    for key, made in writes.items():
        if state.written is not None:
            state.written.add(key)
        cell = state.shared.get(key)
        declared = state.graph.state_keys.get(key)
        current: Any = ABSENT
        if cell is None:
            pass
        elif declared is not None and declared.reducer is append and declared.accepts_more(made):
            current = cell.items(state.medium)
        else:
            current = cell.value(state.medium)
        value = folded(key, declared, current, made)
        # What a reducer of the developer returned may be something it keeps and goes on changing.
        shared = declared is not None and declared.reducer is not None and not is_known(declared.reducer)
        if value is ABSENT:
            state.shared.pop(key, None)
        elif cell is None:
            state.shared[key] = Cell(f"{state.at}workflow_state.shared.{key}", 3, live=value, shared=shared)
        else:
            cell.set(value, shared=shared)


def _add_outputs(state: RunState, share: Share) -> list[Produced]:
    kind = state.graph.classify_output(share.executor_id)
    before = len(state.outputs)
    for made in share.yielded if kind is not None else ():
        record: dict[str, Any] = {
            "turn": state.turn,
            "superstep": state.iteration,
            "executor_id": share.executor_id,
            "output_id": made.output_id,
            "value": made.value,
        }
        if kind == "intermediate" or made.intermediate:
            record["kind"] = "intermediate"
        state.outputs.append(
            Produced(Cell(f"{state.at}messages.output[{len(state.outputs)}]", 3, live=record))
        )
    return state.outputs[before:]


def settle_status(state: RunState) -> None:
    """Set the status from what is pending: deliveries, else requests, else nothing."""
    state.status = status_of(state.deliveries, state.requests)


def incomplete_joins(state: RunState) -> list[tuple[str, list[str]]]:
    """Drop the joins that a completed turn leaves half filled, and say which, with who had sent.

    A join built with `keep=True` stays.
    """
    dropped: list[tuple[str, list[str]]] = []
    for group_id, received in list(state.buffers.items()):
        group = state.graph.group(group_id)
        if group is None or not group.keep:
            dropped.append((group_id, list(received)))
            del state.buffers[group_id]
    return dropped
