"""What the errands compute, as plain dicts; and how an engine without any engine would step them.

A state is a dict:

    n, turn, began, status      counters and status
    tally, hub, left, right, join, waiting
                                shared state, what the executors keep, what waits at the join
    inputs                      {input id: (turn, superstep)} of all accepted inputs, and when that was;
                                `last` is the payload of the last
    todo, asked, out            deliveries, {request id: text}, [(turn, superstep, executor, value)]

Ids of requests are the engine's to choose. A model that asks writes a `?` there, and `named` puts in what
the engine chose.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from typing import Any

from branchpoint import CheckpointSnapshot
from tests.property.errands import EXECUTORS, Leg

State = dict[str, Any]

IDLE, PAUSED, GOING = "idle", "idle_with_pending_requests", "in_progress"


def nothing() -> State:
    """The state before any input."""
    return {
        "n": 0,
        "turn": 0,
        "began": 0,
        "status": IDLE,
        "tally": None,
        "hub": {"seen": [], "answers": []},
        "left": 0,
        "right": 0,
        "join": 0,
        "waiting": {},
        "inputs": {},
        "last": None,
        "todo": [],
        "asked": {},
        "out": [],
    }


def status_of(state: State) -> str:
    return GOING if state["todo"] else PAUSED if state["asked"] else IDLE


def with_message(before: State, text: str, input_id: str) -> State:
    """A message is accepted. What an edit left at the join belongs to the turn before."""
    after = copy.deepcopy(before)
    todo = [{"value": text, "sources": [], "targets": ["hub"]}]
    after.update(turn=before["turn"] + 1, began=before["n"], status=GOING, last=text, todo=todo, waiting={})
    after["inputs"][input_id] = (after["turn"], after["n"])
    return after


def with_answers(before: State, answers: Mapping[str, str], input_id: str) -> State:
    """Answers are accepted, in the order of the requests."""
    after = copy.deepcopy(before)
    given = {one: answers[one] for one in before["asked"] if one in answers}
    after.update(began=before["n"], status=GOING, last=given)
    after["inputs"][input_id] = (after["turn"], after["n"])
    for one, answer in given.items():
        asked = {"text": after["asked"].pop(one)}
        record = {"kind": "response", "request_id": one, "request": asked, "value": answer}
        after["todo"].append({**record, "sources": ["hub"], "targets": ["hub"]})
    return after


def superstep(before: State) -> tuple[State, tuple[str, ...], Counter[str]]:
    """One superstep: the state after it, who ran, and how often each was entered."""
    after = copy.deepcopy(before)
    after["n"] += 1
    todo, after["todo"] = after["todo"], []
    entries: Counter[str] = Counter()
    for name in EXECUTORS:
        for delivery in todo:
            if name in delivery["targets"]:
                entries[name] += 1
                _HANDLERS[name](after, name, delivery)
    waiting = after["waiting"]
    if waiting.get("left") and waiting.get("right"):
        _send(after, [*waiting["left"], *waiting["right"]], ["left", "right"], "join")
        after["waiting"] = {}
    after["status"] = status_of(after)
    if after["status"] == IDLE:
        after["waiting"] = {}
    return after, tuple(name for name in EXECUTORS if entries[name]), entries


def _send(state: State, value: Any, sources: list[str], *targets: str) -> None:
    state["todo"].append({"value": value, "sources": sources, "targets": list(targets)})


def _add(state: State, n: int) -> None:
    state["tally"] = (state["tally"] or 0) + n


def _yield(state: State, name: str, value: str) -> None:
    state["out"].append((state["turn"], state["n"], name, value))


def _hub(state: State, name: str, delivery: Mapping[str, Any]) -> None:
    if delivery.get("kind") == "response":
        state["hub"]["answers"].append(delivery["value"])
        _add(state, 1000)
        asked = delivery["request"]["text"]
        if asked[0] == "a":
            _send(state, asked[1:], ["hub"], "hub")
        return
    text = delivery["value"]
    state["hub"]["seen"].append(text)
    _add(state, 1)
    letter, rest = text[:1], text[1:]
    if letter == "":
        _yield(state, name, f"end {len(state['hub']['seen'])}")
    if letter == "o":
        _yield(state, name, f"first {text}")
        _yield(state, name, f"second {text}")
    if letter in ("a", "q"):
        state["asked"][f"?{state['n']}.{len(state['asked'])}"] = text
    if letter == "f":
        _send(state, Leg("hub", rest), ["hub"], "left", "right")
    if letter == "h":
        _send(state, Leg("hub", rest), ["hub"], "left")
    if letter in ("l", "o", "h", "q"):
        _send(state, rest, ["hub"], "hub")


def _side(state: State, name: str, delivery: Mapping[str, Any]) -> None:
    state[name] += 1
    _add(state, 10)
    state["waiting"].setdefault(name, []).append(Leg(name, delivery["value"].rest))


def _join(state: State, name: str, delivery: Mapping[str, Any]) -> None:
    state["join"] += 1
    _add(state, 100)
    _yield(state, name, " ".join(leg.by for leg in delivery["value"]))
    _send(state, delivery["value"][-1].rest, ["join"], "hub")


_HANDLERS = {"hub": _hub, "left": _side, "right": _side, "join": _join}


def abandoned(given_up: State, completed: State | None) -> State:
    """Unfinished work is given up: what it did is gone, what it counted is not."""
    kept = completed or nothing()
    after = copy.deepcopy(given_up)
    after.update({name: copy.deepcopy(kept[name]) for name in (*EXECUTORS, "tally", "waiting", "out")})
    after.update(status=IDLE, todo=[], asked={})
    return after


def last_input(state: State) -> str | None:
    return next(reversed(state["inputs"]), None)


def end_of_turn(state: State, turn: int, superstep: int) -> State:
    """What a later state still knows of how a turn ended."""
    return {**nothing(), "turn": turn, "n": superstep, "out": state["out"]}


def turn_outputs(state: State) -> list[str]:
    """What the result of the turn tells."""
    return [value for turn, _, _, value in state["out"] if turn == state["turn"]]


def named(state: State, names: Mapping[str, str]) -> State:
    """The state with the ids of requests that the engine chose."""
    return {**state, "asked": {names.get(one, one): text for one, text in state["asked"].items()}}


def observed(snapshot: CheckpointSnapshot) -> State:
    """The state that a snapshot holds, in the model's words."""
    state = snapshot.state
    own, kept, messages = state["workflow_state"], state["executor_states"], state["messages"]
    assert own["shared"].keys() <= {"tally"}
    accepted = messages["input"]
    (joined,) = [edge["received"] for edge in state["edge_states"].values()] or [{}]
    return {
        "n": own["iteration_count"],
        "turn": own["turn"],
        "began": own["cursor"]["input_iteration"],
        "status": own["status"],
        "tally": own["shared"].get("tally"),
        "hub": kept.get("hub", {"seen": [], "answers": []}),
        **{name: kept.get(name, {"n": 0})["n"] for name in ("left", "right", "join")},
        "waiting": joined,
        "inputs": {
            **{one["input_id"]: (one["turn"], one["superstep"]) for one in accepted["earlier"]},
            accepted["input_id"]: (accepted["turn"], own["cursor"]["input_iteration"]),
        },
        "last": accepted["value"],
        "todo": messages["pending"]["deliveries"],
        "asked": {one: asked["data"]["text"] for one, asked in messages["pending"]["requests"].items()},
        "out": [
            (one["turn"], one["superstep"], one["executor_id"], one["value"]) for one in messages["output"]
        ],
    }
