"""What the four buckets mean to a checkpoint: their names, what they add up to, and two edits of them.

Pure functions of values. Leaves may be encoded already; those are passed on as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from branchpoint import codec
from branchpoint.checkpoint._manifest import BoundaryName, Format, Status
from branchpoint.checkpoint._naming import named
from branchpoint.errors import CorruptCheckpointError, InvalidCallError

__all__ = [
    "BUCKETS",
    "MESSAGES",
    "Summary",
    "abandoned_state",
    "check_buckets",
    "check_stored_buckets",
    "edited_state",
    "status_of",
    "summarize",
]

BUCKETS = ("workflow_state", "executor_states", "edge_states", "messages")
MESSAGES = ("input", "pending", "output")


class Summary(msgspec.Struct, frozen=True):
    """What a manifest says of a state, so that it can be read without decoding the state.

    Attributes:
        boundary: Name of the boundary that is committed.
        status: What the lineage waits for.
        superstep: The state's iteration count.
        input_id: Id of the last accepted input.
        requests: Ids of the open requests.
        executors: Ids of the executors that ran since the parent snapshot.
    """

    boundary: BoundaryName
    status: Status
    superstep: int = 0
    input_id: str | None = None
    requests: tuple[str, ...] = ()
    executors: tuple[str, ...] = ()


def check_buckets(state: Mapping[str, Any]) -> None:
    """Check that a state has exactly the four buckets, and its messages exactly their three.

    Raises:
        InvalidCallError: One is missing, there is another, or one is not a mapping.
    """
    if not isinstance(state, Mapping):
        raise InvalidCallError(f"a state is a mapping of four buckets, not {type(state).__name__}")
    _check_names("a state", state, BUCKETS)
    for name in BUCKETS:
        bucket = state[name]
        if isinstance(bucket, codec.Encoded):
            continue
        if not isinstance(bucket, Mapping):
            raise InvalidCallError(f"the bucket {name} is a mapping, not {type(bucket).__name__}")
        if name == "messages":
            _check_names("the bucket messages", bucket, MESSAGES)


def _check_names(what: str, found: Mapping[str, Any], names: tuple[str, ...]) -> None:
    wrong = _difference(found, names)
    if wrong:
        raise InvalidCallError(
            f"{what} has exactly {', '.join(names)}: {wrong}. Put additions inside one of these"
        )


def _difference(found: Mapping[str, Any], names: tuple[str, ...]) -> str:
    missing = [name for name in names if name not in found]
    extra = [ascii(name)[:40] for name in found if name not in names]
    return ", ".join(
        [f"{name} is missing" for name in missing] + [f"{name} is not one of them" for name in extra]
    )


def check_stored_buckets(root: str, parts: Mapping[str, bytes], *, format: Format, where: str) -> None:
    """Check the names of the buckets of a stored state, decoding no value inside them.

    Raises:
        CorruptCheckpointError: A bucket is missing, there is another, or the root is damaged.
    """
    buckets = _open(root, parts, format, where)
    wrong = _difference(buckets, BUCKETS)
    if wrong:
        raise CorruptCheckpointError(f"the state of {where} does not have exactly the four buckets: {wrong}")
    messages = _opened(buckets["messages"].data, parts, format, where)
    wrong = _difference(messages, MESSAGES)
    if wrong:
        raise CorruptCheckpointError(
            f"the messages of {where} are not exactly {', '.join(MESSAGES)}: {wrong}"
        )


def _open(root: str, parts: Mapping[str, bytes], format: Format, where: str) -> dict[str, codec.Encoded]:
    data = parts.get(root)
    if data is None:
        raise CorruptCheckpointError(
            f"the state of {where} is missing: there is no part {root[:40]!a}; restore it from a backup"
        )
    return _opened(data, parts, format, where)


def _opened(data: bytes, parts: Mapping[str, bytes], format: Format, where: str) -> dict[str, codec.Encoded]:
    with named(where):
        return codec.open_dict(data, parts, format=format)


def status_of(pending: Any) -> Status:
    """Derive the status from `messages.pending`: to be delivered, else asked, else nothing."""
    if isinstance(pending, Mapping):
        if pending.get("deliveries"):
            return "in_progress"
        if pending.get("requests"):
            return "idle_with_pending_requests"
        return "idle"
    return "in_progress" if pending else "idle"


def summarize(
    state: Mapping[str, Any], *, boundary: BoundaryName = "edited", executors: tuple[str, ...] = ()
) -> Summary:
    """Read from a state what its manifest says; the buckets that are read must not be encoded already."""
    workflow_state, messages = state["workflow_state"], state["messages"]
    pending, accepted = messages["pending"], messages["input"]
    requests = pending.get("requests") if isinstance(pending, Mapping) else None
    superstep = workflow_state.get("iteration_count", 0)
    input_id = accepted.get("input_id") if isinstance(accepted, Mapping) else None
    return Summary(
        boundary=boundary,
        status=status_of(pending),
        superstep=superstep if type(superstep) is int else 0,
        input_id=input_id if type(input_id) is str else None,
        requests=tuple(key for key in requests if type(key) is str) if isinstance(requests, Mapping) else (),
        executors=executors,
    )


def edited_state(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an edited state whose status follows what is pending in it.

    A state that says no status is left as it is.
    """
    workflow_state = state["workflow_state"]
    status = status_of(state["messages"]["pending"])
    if workflow_state.get("status", status) == status:
        return state
    return {**state, "workflow_state": {**workflow_state, "status": status}}


def abandoned_state(
    head: str, completed: str | None, parts: Mapping[str, bytes], *, format: Format, where: str
) -> dict[str, Any]:
    """Return the state that giving up leaves behind: the last completed boundary's, nothing pending.

    The last accepted input and all counters stay those of the head: the input did enter this
    lineage, so its id is not accepted a second time, and no turn or superstep is counted twice.
    Nothing is decoded, so no type needs to be registered.

    Args:
        head: Root of the unfinished state.
        completed: Root of the state at the last completed boundary; None when there is none.
    """
    given_up = _open(head, parts, format, where)
    counters = _opened(given_up["workflow_state"].data, parts, format, where)
    accepted = _opened(given_up["messages"].data, parts, format, where)["input"]
    kept: Mapping[str, Any]
    shared: Any
    output: Any
    if completed is None:
        kept, shared, output = {"executor_states": {}, "edge_states": {}}, {}, []
    else:
        kept = _open(completed, parts, format, where)
        shared = _opened(kept["workflow_state"].data, parts, format, where).get("shared", {})
        output = _opened(kept["messages"].data, parts, format, where)["output"]
    return {
        "workflow_state": {**counters, "status": "idle", "shared": shared},
        "executor_states": kept["executor_states"],
        "edge_states": kept["edge_states"],
        "messages": {"input": accepted, "pending": {"deliveries": [], "requests": {}}, "output": output},
    }
