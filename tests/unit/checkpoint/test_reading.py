"""What a checkpoint says without a workflow, and without the types of what it holds."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from branchpoint import codec
from branchpoint.checkpoint import Checkpoint
from branchpoint.errors import InvalidCallError, UnregisteredTypeError
from tests.states import DELIVERY, commit_superstep, earlier_input, make_state, output, request
from tests.unit.checkpoint.doubles import TinyStorage, new_checkpoint


@pytest.fixture(params=["json", "msgpack"])
def cp(request: pytest.FixtureRequest) -> Checkpoint:
    return new_checkpoint(TinyStorage(request.param), "run-1")


async def test_a_new_checkpoint_has_nothing_to_say(cp: Checkpoint) -> None:
    assert cp.status is None
    assert cp.pending_requests == []
    assert cp.outputs() == []
    assert cp.events() == []
    assert cp.ancestors() == []
    assert "new" in repr(cp)


async def test_open_requests_are_read_in_their_order(cp: Checkpoint) -> None:
    requests = {"r2": request("why?", superstep=1), "r1": request(["x" * 2000], path=["child", "inner"])}
    snapshot = await cp.commit_snapshot(make_state(1, requests=requests))
    first, second = cp.pending_requests
    assert (first.request_id, second.request_id) == ("r2", "r1")
    assert first.data == first.plain_data == "why?"
    assert (first.source_executor_id, first.path, first.input_id) == ("ask", (), "in-1")
    assert (first.superstep, second.superstep) == (1, 0)
    assert (first.request_type, first.response_type, first.response_schema) == (
        "str",
        "int",
        {"type": "integer"},
    )
    assert first.snapshot_id == snapshot.snapshot_id
    assert second.path == ("child", "inner")
    second.data.append("mine")
    assert second.data == ["x" * 2000]
    assert "r2" in repr(first)


async def test_outputs_are_read_by_the_turn_of_an_input(cp: Checkpoint) -> None:
    earlier = [earlier_input("in-0", 1), earlier_input("in-1", 2)]
    records = [
        output("a", 1),
        output("b", {"n": 2}, 2),
        output("c", 3, 3, kind="intermediate"),
        output("d", 4, 3),
    ]
    await cp.commit_snapshot(make_state(3, input_id="in-2", turn=3, earlier=earlier, output=records))
    assert [record.value for record in cp.outputs()] == [1, {"n": 2}, 3, 4]
    assert [record.output_id for record in cp.outputs("in-0")] == ["a"]
    assert [record.plain_value for record in cp.outputs("in-1")] == [{"n": 2}]
    assert [(record.output_id, record.kind) for record in cp.outputs("in-2")] == [
        ("c", "intermediate"),
        ("d", "output"),
    ]
    assert cp.outputs("in-9") == []
    only = cp.outputs("in-0")[0]
    assert (only.turn, only.superstep, only.executor_id) == (1, 1, "tally")


@dataclass
class Order:
    n: int


async def test_no_type_needs_to_be_registered_until_its_value_is_read(cp: Checkpoint) -> None:
    with codec.isolated_registry():
        codec.register_state_type(Order, type_id="shop.order")
        await cp.commit_snapshot(
            make_state(1, requests={"r": request(Order(1))}, output=[output("o", Order(2))])
        )
        assert cp.pending_requests[0].data == Order(1)
        assert cp.outputs()[0].value == Order(2)
    storage = cp.checkpoint_storage
    assert storage is not None
    loaded = await storage.load("run-1")
    assert loaded.status == "idle_with_pending_requests"
    (asked,) = loaded.pending_requests
    assert asked.plain_data["$"] == "shop.order"
    assert loaded.outputs()[0].plain_value["v"] == {"n": 2}
    with pytest.raises(UnregisteredTypeError, match=r"messages\.pending\.requests\.r\.data.*shop\.order"):
        _ = asked.data
    with pytest.raises(UnregisteredTypeError, match=r"messages\.output\[0\]\.value"):
        _ = loaded.outputs()[0].value
    assert loaded.head_snapshot is not None
    with pytest.raises(UnregisteredTypeError):
        _ = loaded.head_snapshot.state


async def test_events_are_told_again_from_the_snapshots(cp: Checkpoint) -> None:
    s0 = await cp.commit_snapshot(make_state(0, deliveries=[DELIVERY]))
    s1 = await commit_superstep(cp, make_state(1, deliveries=[DELIVERY], output=[output("a", "A")]))
    paused = make_state(2, output=[output("a", "A"), output("b", "B", superstep=2, kind="intermediate")])
    paused["messages"]["pending"]["requests"] = {"r": request("why?", path=["child"], superstep=2)}
    s2 = await commit_superstep(cp, paused)
    events = cp.events()
    assert [(event.type, event.snapshot_id) for event in events] == [
        ("executor_completed", s1.snapshot_id),
        ("output", s1.snapshot_id),
        ("superstep_completed", s1.snapshot_id),
        ("executor_completed", s2.snapshot_id),
        ("intermediate", s2.snapshot_id),
        ("request_info", s2.snapshot_id),
        ("superstep_completed", s2.snapshot_id),
        ("status", s2.snapshot_id),
    ]
    assert all(
        event.durable and event.checkpoint_id == "run-1" and event.input_id == "in-1" for event in events
    )
    assert [event.data for event in events[1:6]] == ["A", None, None, "B", "why?"]
    assert events[5].path == ("child",)
    assert events[5].event_id == f"{s2.snapshot_id}/2"
    for index, event in enumerate(events):
        assert cp.events(after=event.event_id) == events[index + 1 :]
    assert cp.events(input_id="in-9") == []
    assert cp.events(after=f"{s0.snapshot_id}/0") == events
    for wrong in ("nope", f"{s2.snapshot_id}/x", f"{s2.snapshot_id}", "/"):
        with pytest.raises(InvalidCallError, match="not the id of an event"):
            cp.events(after=wrong)
    for no_text in (5, b"x/0", ["x/0"], events[0]):
        with pytest.raises(InvalidCallError, match="after is the `event_id` of an event, a text, not"):
            cp.events(after=no_text)  # type: ignore[arg-type]
    cp.restart_from(s1.snapshot_id)
    assert cp.events() == events[:3]
    fork = await cp.fork(s2.snapshot_id)
    assert [event.type for event in fork.events()] == ["status"]
