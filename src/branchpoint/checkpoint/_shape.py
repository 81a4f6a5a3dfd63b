"""The shape of a state: what is where in the four buckets. The one place that says so.

Reading a state is checking it. Values that are the user's own are left encoded.
"""

from __future__ import annotations

from typing import get_args

import msgspec

from branchpoint.checkpoint._manifest import Format, Status
from branchpoint.checkpoint._records import EarlierInput, OutputRecord, PendingRequest
from branchpoint.checkpoint._stored import Stored

__all__ = [
    "BUCKETS", "MESSAGES", "OpenedInput", "OpenedState", "is_small_root", "open_messages", "read_input",
    "read_state",
]  # fmt: skip

BUCKETS = ("workflow_state", "executor_states", "edge_states", "messages")
MESSAGES = ("input", "pending", "output")

_RESPONSE = ("kind", "request_id", "request")


class OpenedInput(msgspec.Struct, frozen=True):
    """The last accepted input; `earlier` are the records of those before it."""

    input_id: str
    turn: int
    kind: str
    value: Stored
    digest: str | None
    earlier: list[Stored]


class OpenedState(msgspec.Struct, frozen=True):
    """The four buckets of a stored state that has the right shape.

    Attributes:
        buffers: By join and source, what waits there.
        deliveries: The records of pending messages.
        requests: The records of open requests.
        outputs: The records of what was produced.
    """

    iteration: int
    status: str
    turn: int
    input_iteration: int
    began: str
    shared: dict[str, Stored]
    executors: dict[str, Stored]
    buffers: dict[str, dict[str, list[Stored]]]
    input: OpenedInput | None
    deliveries: list[Stored]
    requests: dict[str, Stored]
    outputs: list[Stored]


class _Messages(msgspec.Struct, forbid_unknown_fields=True):
    input: msgspec.Raw
    pending: msgspec.Raw
    output: msgspec.Raw


class _Root(msgspec.Struct, forbid_unknown_fields=True):
    workflow_state: msgspec.Raw
    executor_states: msgspec.Raw
    edge_states: msgspec.Raw
    messages: _Messages


_CODECS = {
    "json": (msgspec.json.Decoder(_Root).decode, msgspec.json.Encoder().encode),
    "msgpack": (msgspec.msgpack.Decoder(_Root).decode, msgspec.msgpack.Encoder().encode),
}


def is_small_root(data: bytes, *, format: Format) -> bool:
    """Say whether bytes are a root with its buckets and messages in it, named and spelled as the engine does.

    That is so for most roots, and a look at one costs next to nothing. Others may be right as well.
    """
    decode, encode = _CODECS[format]
    try:
        return bool(encode(decode(data)) == data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def read_state(root: Stored, *, whole: bool = False) -> OpenedState:
    """Return what a state holds, having checked that it has the shape that the engine writes.

    Args:
        root: The state, or a state that is kept inside another.
        whole: Look at everything. A run does not look at the outputs of earlier turns, nor at the
            records of earlier inputs before it is asked for one, so that long histories cost nothing.

    Raises:
        BranchpointError: Something has another shape; the class is the one that the source of `root`
            names, `CorruptCheckpointError` if nothing else was said, and the message has the path.
    """
    buckets = root.fields(*BUCKETS)
    own = buckets["workflow_state"].fields("iteration_count", "status", "turn", "shared", "cursor")
    iteration, turn = own["iteration_count"].number(), own["turn"].number()
    cursor = own["cursor"].fields("input_iteration", also=("began",))
    accepted = cursor["input_iteration"]
    if accepted.number() > iteration:
        accepted.refuse(f"is {accepted.number()}, beyond the iteration count of {iteration}")
    messages = buckets["messages"].fields(*MESSAGES)
    pending = messages["pending"].fields("deliveries", "requests")
    opened = OpenedState(
        iteration=iteration,
        status=own["status"].choice(*get_args(Status)),
        turn=turn,
        input_iteration=accepted.number(),
        began=cursor["began"].text() if "began" in cursor else "",
        shared=own["shared"].entries(),
        executors=buckets["executor_states"].entries(),
        buffers={
            group_id: {
                source: items.items()
                for source, items in found.fields("received")["received"].entries().items()
            }
            for group_id, found in buckets["edge_states"].entries().items()
        },
        input=read_input(messages["input"]),
        deliveries=pending["deliveries"].items(),
        requests=pending["requests"].entries(),
        outputs=messages["output"].items(),
    )
    for found in opened.executors.values():
        found.entries()
    for found in opened.deliveries:
        _check_delivery(found)
    for request_id, found in opened.requests.items():
        _check_superstep(found, PendingRequest(request_id, found).superstep, iteration)
    _check_outputs(opened, whole)
    if opened.input is not None:
        _check_turn(messages["input"], opened.input.turn, turn)
        for found in opened.input.earlier if whole else ():
            _check_turn(found, EarlierInput.read(found).turn, turn)
    return opened


def open_messages(root: Stored) -> dict[str, Stored]:
    """Return the three parts of the messages of a state that has exactly the four buckets."""
    return root.fields(*BUCKETS)["messages"].fields(*MESSAGES)


def read_input(stored: Stored) -> OpenedInput | None:
    """Return the last accepted input, checked; None before any."""
    if not stored.entries():
        return None
    found = stored.fields("input_id", "turn", "kind", "value", "earlier", also=("digest",))
    return OpenedInput(
        found["input_id"].text(),
        found["turn"].number(),
        found["kind"].choice("message", "responses"),
        found["value"],
        found["digest"].text() if "digest" in found else None,
        found["earlier"].items(),
    )


def _check_delivery(stored: Stored) -> None:
    found = stored.fields("value", "sources", "targets", also=_RESPONSE)
    if not found.keys().isdisjoint(_RESPONSE):
        stored.fields("value", "sources", "targets", *_RESPONSE)
        found["kind"].choice("response")
        found["request_id"].text()
    found["sources"].texts()
    if not found["targets"].texts():
        found["targets"].refuse("names nobody, so the message would be lost")


def _check_outputs(opened: OpenedState, whole: bool) -> None:
    """Check the records that this turn will tell at its end; those of earlier turns only in a whole check."""
    for stored in reversed(opened.outputs):
        record = OutputRecord(stored)
        _check_turn(stored, record.turn, opened.turn)
        _check_superstep(stored, record.superstep, opened.iteration)
        if record.turn < opened.turn and not whole:
            return


def _check_turn(stored: Stored, named: int, turn: int) -> None:
    """Refuse a record of a turn that has not begun."""
    if named > turn:
        stored.entries()["turn"].refuse(f"is {named}, but only {turn} turns began")


def _check_superstep(stored: Stored, named: int, iteration: int) -> None:
    """Refuse a record of a superstep to come, which that one would announce as its own."""
    if named > iteration:
        stored.entries()["superstep"].refuse(f"is {named}, beyond the iteration count of {iteration}")
