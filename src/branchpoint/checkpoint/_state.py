"""A state on its way into a snapshot: the names it must have, what its manifest says, and the check of an edit.

Pure functions of values. Leaves may be encoded already; those are passed on as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any

import msgspec

from branchpoint import codec
from branchpoint.checkpoint._manifest import BoundaryName, Format, Status
from branchpoint.checkpoint._shape import BUCKETS, MESSAGES, read_state
from branchpoint.checkpoint._stored import Source, stored_root
from branchpoint.errors import InvalidCallError

__all__ = ["Summary", "check_buckets", "checked_edit", "status_of"]


class Summary(msgspec.Struct, frozen=True):
    """What a manifest says of a state, so that it can be read without decoding the state.

    Attributes:
        boundary: Name of the boundary that is committed.
        status: What the lineage waits for.
        superstep: The state's iteration count.
        input_id: Id of the last accepted input.
        requests: Ids of the open requests.
        executors: Ids of the executors that ran in the superstep that this snapshot completes.
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
    if type(state) in _STATES and tuple(state) == BUCKETS:
        messages = state["messages"]
        if (
            type(messages) is dict
            and tuple(messages) == MESSAGES
            and _ARE_BUCKETS.issuperset(map(type, state.values()))
        ):
            return  # as the engine hands it over
    if not isinstance(state, Mapping):
        raise InvalidCallError(f"a state is a mapping of four buckets, not {type(state).__name__}")
    _check_names("a state", state, BUCKETS)
    for name in BUCKETS:
        bucket = state[name]
        if isinstance(bucket, codec.Encoded):
            continue
        if not isinstance(bucket, dict | Mapping):
            raise InvalidCallError(f"the bucket {name} is a mapping, not {type(bucket).__name__}")
        if name == "messages":
            _check_names("the bucket messages", bucket, MESSAGES)


_STATES = (dict, codec.Frame)
_ARE_BUCKETS: set[type[Any]] = {dict}
_ARE_BUCKETS.add(codec.Settled)


def _check_names(what: str, found: Mapping[str, Any], names: tuple[str, ...]) -> None:
    wrong = [f"{name} is missing" for name in names if name not in found]
    wrong += [f"{ascii(name)[:40]} is not one of them" for name in found if name not in names]
    if wrong:
        raise InvalidCallError(
            f"{what} has exactly {', '.join(names)}: {', '.join(wrong)}. Put additions inside one of these"
        )


def status_of(deliveries: Sized, requests: Sized) -> Status:
    """Derive the status from what is pending: to be delivered, else asked, else nothing."""
    if deliveries:
        return "in_progress"
    return "idle_with_pending_requests" if requests else "idle"


def checked_edit(state: Mapping[str, Any], *, format: Format) -> tuple[dict[str, Any], Summary]:
    """Check the whole shape of a state that a person edited, as a run that restores from it will see it.

    Returns:
        The state, with a status that follows what is pending in it, and its summary.

    Raises:
        InvalidCallError: Something in it has another shape than the engine writes; names the path.
        EncodingError: It holds a value that cannot be kept; names the path.
    """
    part, _ = codec.encode_state(state, format=format)
    source = Source(
        codec.new_parts(part, ()),
        format,
        "the edited state cannot be run",
        InvalidCallError,
        "Nothing was committed: mend it and commit it again.",
    )
    found = read_state(stored_root(part.digest, source), whole=True)
    status = status_of(found.deliveries, found.requests)
    input_id = None if found.input is None else found.input.input_id
    summary = Summary("edited", status, found.iteration, input_id, tuple(found.requests))
    return {**state, "workflow_state": {**state["workflow_state"], "status": status}}, summary
