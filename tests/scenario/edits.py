"""States to edit, and every way in which one thing in them can be wrong."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from branchpoint import Checkpoint
from tests.scenario.carry import JOIN, carrier, take_in
from tests.scenario.kit import Place

# States to edit. In both, every kind of record that a state can hold is there.


async def in_progress(place: Place) -> Checkpoint:
    """The second turn of `carrier`, after its first superstep."""
    cp = place.create(carrier())
    await carrier().run("first", checkpoint=cp)
    (request,) = cp.pending_requests
    await carrier().run(responses={request.request_id: "yes"}, checkpoint=cp)
    await take_in(cp, ["second"])
    return cp


async def answered(place: Place) -> Checkpoint:
    """The first turn of `carrier`, when its answer was accepted and nobody was told of it yet."""
    cp = place.create(carrier())
    await carrier().run("first", checkpoint=cp)
    (request,) = cp.pending_requests
    await carrier().run(responses={request.request_id: "yes"}, checkpoint=cp, max_supersteps=0)
    return cp


def state_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """The state at the head, under request ids that do not vary."""
    assert checkpoint.head_snapshot is not None
    whole = checkpoint.head_snapshot.state
    pending = whole["messages"]["pending"]
    pending["requests"] = dict(zip(["ask"], pending["requests"].values(), strict=False))
    for delivery in pending["deliveries"]:
        if "request_id" in delivery:
            delivery["request_id"] = "ask"
    return whole


# What the engine keeps, and what each of it must be. Values of the user's own are anything at all.
COUNT: list[Any] = [None, "x", [7], {"a": 7}, True, -1, 2.5]
TEXT: list[Any] = [None, 7, ["x"], {"a": 7}, True, 2.5]
LIST: list[Any] = [None, 7, "x", {"a": 7}, True]
TEXTS: list[Any] = [*LIST, [7], ["x", None]]
DICT: list[Any] = [None, 7, "x", [7], True, {7: 7}]
RECORD: list[Any] = [*DICT, {"a": 7}, {}]
ANY: list[Any] = []

Steps = tuple[str | int, ...]
DELIVERY: Steps = ("messages", "pending", "deliveries", 0)
REQUEST: Steps = ("messages", "pending", "requests", "ask")
OUTPUT: Steps = ("messages", "output", -1)

FIELDS: dict[Steps, list[Any]] = {
    ("workflow_state",): [{"a": 7}, {}],
    ("workflow_state", "iteration_count"): COUNT,
    ("workflow_state", "status"): [*TEXT, "x", "failed"],
    ("workflow_state", "turn"): COUNT,
    ("workflow_state", "shared"): DICT,
    ("workflow_state", "cursor"): RECORD,
    ("workflow_state", "cursor", "input_iteration"): [*COUNT, 1000],
    ("executor_states",): [{7: {}}],
    ("executor_states", "take"): DICT,
    ("edge_states",): [{7: {}}],
    ("messages", "input"): [*DICT, {"a": 7}],
    ("messages", "input", "input_id"): TEXT,
    ("messages", "input", "turn"): [*COUNT, 1000],
    ("messages", "input", "kind"): [*TEXT, "x"],
    ("messages", "input", "value"): ANY,
    ("messages", "input", "earlier"): LIST,
    ("messages", "pending"): RECORD,
    ("messages", "pending", "deliveries"): [*LIST, [7], [None], [{}]],
    ("messages", "pending", "requests"): [*DICT, {"ask": 7}, {"ask": {}}],
    (*DELIVERY, "value"): ANY,
    (*DELIVERY, "sources"): TEXTS,
    (*DELIVERY, "targets"): [*TEXTS, []],
    ("messages", "output"): [*LIST, [7], [{}]],
    OUTPUT: RECORD,
    (*OUTPUT, "turn"): [*COUNT, 1000],
    (*OUTPUT, "superstep"): [*COUNT, 1000],
    (*OUTPUT, "executor_id"): TEXT,
    (*OUTPUT, "output_id"): TEXT,
    (*OUTPUT, "value"): ANY,
}
ONLY_IN_PROGRESS: dict[Steps, list[Any]] = {
    ("edge_states", JOIN): RECORD,
    ("edge_states", JOIN, "received"): DICT,
    ("edge_states", JOIN, "received", "take"): LIST,
    REQUEST: RECORD,
    (*REQUEST, "data"): ANY,
    (*REQUEST, "source_executor_id"): TEXT,
    (*REQUEST, "path"): TEXTS,
    (*REQUEST, "input_id"): [value for value in TEXT if value is not None],
    (*REQUEST, "superstep"): [*COUNT, 1000],
    (*REQUEST, "request_type"): TEXT,
    (*REQUEST, "response_type"): TEXT,
    (*REQUEST, "response_schema"): ANY,
}
ONLY_ANSWERED: dict[Steps, list[Any]] = {
    (*DELIVERY, "kind"): [*TEXT, "x"],
    (*DELIVERY, "request_id"): TEXT,
    (*DELIVERY, "request"): ANY,
}
RECORD_OF_INPUT: Steps = ("messages", "input", "earlier", 0)
# What a run looks at only when it is asked about an earlier input.
EARLIER: dict[Steps, list[Any]] = {
    RECORD_OF_INPUT: RECORD,
    (*RECORD_OF_INPUT, "input_id"): TEXT,
    (*RECORD_OF_INPUT, "turn"): COUNT,
    (*RECORD_OF_INPUT, "digest"): TEXT,
    (*RECORD_OF_INPUT, "superstep"): COUNT,
}
# A state without these is one that says less, and is whole all the same.
MAY_GO: set[Steps] = {("executor_states", "take"), ("edge_states", JOIN), REQUEST, OUTPUT, RECORD_OF_INPUT}
MAY_GO |= {("edge_states", JOIN, "received", "take")}
# These are buckets; a commit already refuses a state without them.
MAY_GO |= {("messages", name) for name in ("input", "pending", "output")}


def path_of(steps: Steps, whole: dict[str, Any]) -> str:
    """The path as errors write it."""
    path = ""
    at: Any = whole
    for step in steps:
        path += f"[{len(at) + step if step < 0 else step}]" if isinstance(step, int) else f".{step}"
        at = at[step]
    return path.lstrip(".")


def at(whole: Any, steps: Steps) -> Any:
    for step in steps:
        whole = whole[step]
    return whole


def edits(whole: dict[str, Any], fields: dict[Steps, list[Any]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every way in which one thing in a state can be wrong: what was done, the path, and the state."""
    for steps, wrong in fields.items():
        path = path_of(steps, whole)
        if len(steps) > 1 and steps not in MAY_GO:
            edited = copy.deepcopy(whole)
            del at(edited, steps[:-1])[steps[-1]]
            yield f"{path} is missing", path, edited
        for value in wrong:
            edited = copy.deepcopy(whole)
            at(edited, steps[:-1])[steps[-1]] = copy.deepcopy(value)
            yield f"{path} is {value!r}", path, edited
        if isinstance(at(whole, steps), dict) and {"a": 7} in wrong:  # a record, closed
            edited = copy.deepcopy(whole)
            at(edited, steps)["more"] = 1
            yield f"{path} has more", f"{path}.more", edited


MAKERS: dict[str, tuple[Callable[[Place], Any], dict[Steps, list[Any]]]] = {
    "in progress": (in_progress, ONLY_IN_PROGRESS),
    "answered": (answered, ONLY_ANSWERED),
}

# Where the values of the user's own are.
BUCKETS: dict[str, Steps] = {
    "workflow_state.shared.kept": ("workflow_state", "shared", "kept"),
    "executor_states.take.held": ("executor_states", "take", "held"),
    f"edge_states[{JOIN!r}].received.take[0]": ("edge_states", JOIN, "received", "take", 0),
    "messages.input.value": ("messages", "input", "value"),
    "messages.pending.deliveries[0].value": (*DELIVERY, "value"),
    "messages.pending.requests.ask.data": (*REQUEST, "data"),
    "messages.output[3].value": (*OUTPUT, "value"),
}
