"""A snapshot's events depend on that snapshot alone, so they are the same whatever becomes of the others."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from branchpoint.checkpoint import (
    Announced,
    BoundaryView,
    Checkpoint,
    CheckpointSnapshot,
    announced,
    boundary_view,
    durable_events,
)
from branchpoint.errors import InvalidCallError
from branchpoint.events import WorkflowEvent
from tests.states import DELIVERY, commit_superstep, make_state, output, request
from tests.unit.checkpoint.doubles import TinyStorage, new_checkpoint


@pytest.fixture(params=["json", "msgpack"])
def cp(request: pytest.FixtureRequest) -> Checkpoint:
    return new_checkpoint(TinyStorage(request.param), "run-1")


OUTPUTS = [output(f"o{n}", f"value {n} " * 20, superstep=n) for n in range(1, 5)]
REQUESTS = {
    "early": request("early?", superstep=1),
    "late": request("late?", superstep=3, path=["child"]),
    "last": request("last?", superstep=3),
}


def after(superstep: int, **more: Any) -> dict[str, Any]:
    """The state after so many supersteps, each of which yields, and two of which ask."""
    asked = {key: one for key, one in REQUESTS.items() if one["superstep"] <= superstep}
    made = {"output": OUTPUTS[:superstep], "requests": asked, **more}
    return make_state(superstep, deliveries=[DELIVERY], **made)


async def line(cp: Checkpoint) -> list[CheckpointSnapshot]:
    """An input, four supersteps with a move stored between them, and the end."""
    made = [await cp.commit_snapshot(after(0))]
    made += [await commit_superstep(cp, after(n)) for n in (1, 2)]
    made.append(await cp.commit_snapshot())
    made += [await commit_superstep(cp, after(n), "tally", "ask") for n in (3, 4)]
    return made


def told_of(view: BoundaryView) -> tuple[list[str], list[str]]:
    return [one.output_id for one in view.outputs], [one.request_id for one in view.requests]


def by_snapshot(checkpoint: Checkpoint) -> dict[str, list[WorkflowEvent]]:
    """What each retained snapshot announces."""
    return {one.snapshot_id: durable_events(boundary_view(one)) for one in checkpoint.snapshots}


# What a snapshot announces.


async def test_a_superstep_announces_what_it_made_and_nothing_of_before(cp: Checkpoint) -> None:
    views = [boundary_view(one) for one in await line(cp)]
    assert [told_of(view) for view in views] == [
        ([], []),
        (["o1"], ["early"]),
        (["o2"], []),
        ([], []),
        (["o3"], ["late", "last"]),
        (["o4"], []),
    ]
    assert [list(view.executors) for view in views] == [
        [],
        ["tally"],
        ["tally"],
        [],
        ["tally", "ask"],
        ["tally", "ask"],
    ]
    assert views[4].requests[0].path == ("child",)
    assert views[4].outputs[0].value == "value 3 " * 20


async def test_outputs_and_requests_of_one_superstep_keep_their_order(cp: Checkpoint) -> None:
    outputs = [*OUTPUTS[:1], *(output(name, name, superstep=2) for name in ("z", "a", "m"))]
    requests = {name: request(name, superstep=2 if name != "b" else 1) for name in ("z", "b", "a", "m")}
    snapshot = await commit_superstep(cp, make_state(2, output=outputs, requests=requests))
    assert told_of(boundary_view(snapshot)) == (["z", "a", "m"], ["z", "a", "m"])


async def test_only_supersteps_announce_outputs_and_requests(cp: Checkpoint) -> None:
    """A restart, an edit, a fork and giving up hold what supersteps made, and made nothing themselves."""
    third = (await line(cp))[4]
    cp.restart_from(third.snapshot_id)
    silent = [
        await cp.commit_snapshot(),
        await cp.commit_snapshot({**third.state, "executor_states": {"tally": {"n": 5}}}),
        await cp.commit_snapshot(after(3, output=[*OUTPUTS[:2], output("mine", "by hand", superstep=3)])),
        await cp.abandon(),
        (await cp.fork(third.snapshot_id)).snapshots[0],
    ]
    for snapshot in silent:
        view = boundary_view(snapshot)
        assert (told_of(view), list(view.executors)) == (([], []), [])
        types = [event.type for event in durable_events(view)]
        assert types == ([] if snapshot.status == "in_progress" else ["status"])


async def test_a_request_asked_again_under_its_id_is_announced_by_both_supersteps(cp: Checkpoint) -> None:
    first = await commit_superstep(cp, make_state(1, requests={"r": request("one?", superstep=1)}))
    answered = await cp.commit_snapshot(make_state(1, deliveries=[DELIVERY]))
    second = await commit_superstep(cp, make_state(2, requests={"r": request("two?", superstep=2)}))
    for _ in range(2):
        told = [(one.snapshot_id, one.data) for one in cp.events() if one.type == "request_info"]
        assert told == [(first.snapshot_id, "one?"), (second.snapshot_id, "two?")]
        await cp.prune([first.snapshot_id])
    with pytest.raises(InvalidCallError):
        cp.events(after=f"{answered.snapshot_id}/0")


@pytest.mark.parametrize("field", ["output", "requests"])
async def test_an_edit_cannot_foretell_what_a_superstep_to_come_will_announce(
    cp: Checkpoint, field: str
) -> None:
    await line(cp)
    made: Any = [*OUTPUTS, output("soon", "x", superstep=5)] if field == "output" else None
    made = made or {"soon": request("x", superstep=5)}
    before = cp.head_snapshot_id
    with pytest.raises(InvalidCallError, match=r"superstep is 5, beyond the iteration count of 4"):
        await cp.commit_snapshot(after(4, **{field: made}))
    assert cp.head_snapshot_id == before


# And whatever is pruned.


@pytest.mark.parametrize("gone", range(1, 6))
async def test_what_a_retained_snapshot_announces_is_the_same_after_every_prune(gone: int) -> None:
    for chosen in combinations(range(5), gone):
        cp = new_checkpoint()
        made = await line(cp)
        before, events = by_snapshot(cp), cp.events()
        await cp.prune([one.snapshot_id for n, one in enumerate(made) if n not in chosen])
        left = [one.snapshot_id for one in cp.snapshots]
        assert left == [one.snapshot_id for n, one in enumerate(made) if n not in chosen]
        assert by_snapshot(cp) == {key: before[key] for key in left}
        kept = [event for event in events if event.snapshot_id in left]
        assert cp.events() == kept
        for n, event in enumerate(kept):
            assert cp.events(after=event.event_id) == kept[n + 1 :]


async def test_who_saw_a_pruned_event_last_is_refused_and_told_to_read_from_the_start(cp: Checkpoint) -> None:
    made = await line(cp)
    events = cp.events()
    await cp.prune([made[2].snapshot_id])
    for event in events:
        if event.snapshot_id not in (made[2].snapshot_id, made[5].snapshot_id):
            with pytest.raises(InvalidCallError, match=r"was pruned.*Read from the start"):
                cp.events(after=event.event_id)
    seen = {event.event_id for event in events[:7]}
    assert [one for one in cp.events() if one.event_id not in seen] == [
        one for one in events[7:] if one.snapshot_id == made[5].snapshot_id
    ]


# The events of before, told again.


async def told_again(cp: Checkpoint, *supersteps: int) -> Announced:
    assert cp.head_snapshot is not None
    found = await announced(cp, cp.head_snapshot, supersteps=supersteps)
    events = cp.events()
    assert all(one in events for one in [*found.outputs.values(), *found.requests.values()])
    return found


async def test_what_a_snapshot_holds_is_told_by_the_events_that_announced_it(cp: Checkpoint) -> None:
    made = await line(cp)
    done = await commit_superstep(cp, make_state(5, requests=REQUESTS, output=OUTPUTS))
    found = await told_again(cp, 2, 3, 4)
    assert {key: one.snapshot_id for key, one in found.outputs.items()} == {
        f"o{n}": made[at].snapshot_id for n, at in ((2, 2), (3, 4), (4, 5))
    }
    assert {key: one.snapshot_id for key, one in found.requests.items()} == dict.fromkeys(
        ("late", "last"), made[4].snapshot_id
    )
    assert found.status == cp.events()[-1]
    assert found.status.snapshot_id == done.snapshot_id
    nothing = await told_again(cp)
    assert (nothing.outputs, nothing.requests, nothing.status) == ({}, {}, found.status)


async def test_what_is_not_held_any_more_or_was_pruned_is_not_among_them(cp: Checkpoint) -> None:
    made = await line(cp)
    await cp.commit_snapshot(after(4, output=OUTPUTS[1:], requests={"late": REQUESTS["late"]}))
    found = await told_again(cp, 1, 2, 3, 4)
    assert (list(found.outputs), list(found.requests)) == (["o2", "o3", "o4"], ["late"])
    await cp.prune([one.snapshot_id for one in (made[1], made[5])])
    found = await told_again(cp, 1, 2, 3, 4)
    assert (list(found.outputs), list(found.requests), found.status) == (["o4"], [], None)


@pytest.mark.parametrize("pruned", [False, True])
async def test_what_an_edit_changed_is_not_told_by_the_event_of_before(
    cp: Checkpoint, *, pruned: bool
) -> None:
    """Neither on the edited snapshot nor later, also when the edit itself is gone."""
    made = await line(cp)
    outputs = [{**one, "value": one["value"] + "!"} if n == 1 else one for n, one in enumerate(OUTPUTS)]
    requests = {**REQUESTS, "late": {**REQUESTS["late"], "response_type": "str"}}
    await cp.commit_snapshot(after(4, output=outputs, requests=requests))
    await commit_superstep(cp, make_state(5, output=outputs, requests=requests))
    if pruned:
        await cp.prune([one.snapshot_id for one in made])
    found = await told_again(cp, 1, 2, 3, 4, 5)
    assert (list(found.outputs), list(found.requests)) == (["o1", "o3", "o4"], ["early", "last"])


async def test_a_record_is_the_same_wherever_it_is_cut(cp: Checkpoint) -> None:
    """A request stands inline beside few others, and is a part of its own beside many."""
    asked = request("x" * 200, superstep=1)
    value = output("o", {"text": "y" * 200}, superstep=1)
    first = await commit_superstep(cp, make_state(1, requests={"r": asked}, output=[value]))
    more = {f"more {n}": request("z" * 200, superstep=2) for n in range(20)}
    others = [output(f"more {n}", "z" * 200, superstep=2) for n in range(200)]
    await commit_superstep(
        cp, make_state(2, requests={"r": asked, **more}, output=[value, *others], shared={"k": "v" * 900})
    )
    found = await told_again(cp, 1)
    assert found.outputs["o"].snapshot_id == found.requests["r"].snapshot_id == first.snapshot_id
