"""One registry with Agent Framework: types cross in both directions, and a checkpoint goes along whole."""

from __future__ import annotations

import enum
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import agent_framework
import pytest
from agent_framework import AgentResponse, AgentSession, Content, FileSessionStore, Message

import branchpoint.agents  # noqa: F401 - joins the registries
from branchpoint import (
    Checkpoint,
    CorruptCheckpointError,
    DefinitionError,
    MemoryCheckpointStorage,
    UnregisteredTypeError,
    UnsupportedValueError,
    WorkflowBuilder,
    register_state_type,
)
from branchpoint.codec import copy_value, decode, encode, isolated_registry, new_parts
from branchpoint.testing import check_lineage_law
from tests.scenario.kit import Step

FORMATS: tuple[Literal["json", "msgpack"], ...] = ("json", "msgpack")


@dataclass(frozen=True)
class Order:
    number: int
    lines: tuple[str, ...] = ()


class Mood(enum.StrEnum):
    GOOD = "good"


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    with isolated_registry():
        register_state_type(Order, type_id="test.order")
        register_state_type(Mood, type_id="test.mood")
        yield


async def stored(folder: Path, state: dict[str, Any], format: Any = "json") -> dict[str, Any]:
    """The state of a session after Agent Framework's own store has written and read it."""
    session = AgentSession(session_id="s")
    session.state = state
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the store says that it is experimental
        store = FileSessionStore(folder, serialization_format=format)
        await store.set("s", session)
        read = await FileSessionStore(folder, serialization_format=format).get("s")
    assert read is not None
    return read.state


def again(value: Any, format: Any = "json") -> Any:
    encoded, _ = encode(value, format=format)
    return decode(encoded.data, new_parts(encoded, ()), format=format)


@pytest.mark.parametrize("format", FORMATS)
async def test_r41_a_type_registered_here_restores_from_the_store_of_agent_framework(
    tmp_path: Path, format: Any
) -> None:
    order = Order(7, ("a" * 3000, "b"))
    said = AgentResponse(messages=[Message("assistant", ["hi"])])
    state = {"order": order, "deep": [{"mood": Mood.GOOD}], "content": Content.from_text("hi"), "said": said}
    read = await stored(tmp_path, state, format)
    assert read["order"] == order and type(read["deep"][0]["mood"]) is Mood
    assert read["content"] == state["content"] and read["said"].text == "hi"


async def test_r41_it_is_one_opaque_text_there(tmp_path: Path) -> None:
    await stored(tmp_path, {"order": Order(7)})
    (file,) = tmp_path.iterdir()
    told = json.loads(file.read_text(encoding="utf-8"))["state"]["order"]
    assert told.keys() == {"type", "value"} and told["type"] == "branchpoint:test.order"
    assert type(told["value"]) is str


async def test_r41_a_value_that_was_damaged_there_is_an_error(tmp_path: Path) -> None:
    await stored(tmp_path, {"order": Order(7, ("a" * 3000,))})
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text(encoding="utf-8").replace("aaa", "aab"), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        with pytest.raises(ValueError, match="restore session state") as refused:
            await FileSessionStore(tmp_path).get("s")
    assert isinstance(refused.value.__cause__ and refused.value.__cause__.__cause__, CorruptCheckpointError)


class Basket:
    """Known to Agent Framework alone, in its usual way."""

    def __init__(self, items: list[str]) -> None:
        self.items = items

    def to_dict(self) -> dict[str, Any]:
        return {"items": self.items}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Basket:
        return cls(data["items"])


class Parcel:
    """Known to Agent Framework alone, by functions of its own and an id with blanks."""

    def __init__(self, weight: float) -> None:
        self.weight = weight


@pytest.fixture
def known_there() -> Iterator[None]:
    from agent_framework import _sessions

    agent_framework.register_state_type(Basket)
    agent_framework.register_state_type(
        Parcel,
        type_id="a parcel, [big]",
        encoder=lambda parcel: {"weight": parcel.weight},
        decoder=lambda data: Parcel(data["weight"]),
    )
    yield
    for cls, type_id in ((Basket, "basket"), (Parcel, "a parcel, [big]")):
        del _sessions._STATE_CLASS_REGISTRY[cls], _sessions._STATE_TYPE_REGISTRY[type_id]


@pytest.mark.usefixtures("known_there")
@pytest.mark.parametrize("format", FORMATS)
def test_r41_a_type_registered_there_is_kept_and_restores_here(format: Any) -> None:
    session = AgentSession(session_id="s")
    session.state = {"basket": Basket(["a", "b"]), "parcels": [Parcel(1.5)]}
    for read in (again(session, format), copy_value(session)):
        assert type(read.state["basket"]) is Basket and read.state["basket"].items == ["a", "b"]
        assert type(read.state["parcels"][0]) is Parcel and read.state["parcels"][0].weight == 1.5
        assert read.state["basket"].items is not session.state["basket"].items
    assert again(Basket(["a"]), format).items == ["a"]  # outside of any session, too


@pytest.mark.usefixtures("known_there")
def test_r41_what_was_stored_as_a_type_registered_there_says_so_when_it_is_not() -> None:
    data = encode(Parcel(1.5), format="json")[0].data
    assert b"agent_framework.state:a%20parcel%2C%20%5Bbig%5D" in data
    other = data.replace(b"big", b"small")
    with pytest.raises(UnregisteredTypeError, match="small"):
        decode(other, {}, format="json")


def test_r41_a_type_that_neither_knows_is_refused_by_its_path() -> None:
    session = AgentSession(session_id="s")
    session.state = {"deep": [Basket([])]}  # Agent Framework would write a dict, and restore a dict
    with pytest.raises(UnregisteredTypeError, match=r"state\.deep\[0\]"):
        encode(session, format="json", path="executor_states.a.agent_session")


async def test_r41_a_registration_that_is_undone_is_undone_there(tmp_path: Path) -> None:
    for number in range(2):

        @dataclass
        class Once:
            number: int

        with isolated_registry():
            register_state_type(Once, type_id="test.once")
            read = (await stored(tmp_path, {"it": Once(number)}))["it"]
            assert type(read) is Once and read.number == number
    with pytest.raises(DefinitionError):
        register_state_type(Once, type_id="test.order")


def two_steps() -> Any:
    return WorkflowBuilder(name="w", start_executor=Step("a")).add_edge("a", Step("b", final=True)).build()


@pytest.mark.parametrize("format", FORMATS)
async def test_a_checkpoint_in_a_session_survives_the_store_of_agent_framework(
    tmp_path: Path, format: Any
) -> None:
    workflow = two_steps()
    checkpoint = workflow.create_checkpoint("inside", metadata={"owner": "me"})
    await workflow.run("hi", checkpoint=checkpoint)
    checkpoint.restart_from(checkpoint.snapshots[1].snapshot_id)

    read: Checkpoint = (await stored(tmp_path, {"run": checkpoint}, format))["run"]
    assert read.checkpoint_id == "inside" and read.metadata == {"owner": "me"}
    assert [one.manifest for one in read.snapshots] == [one.manifest for one in checkpoint.snapshots]
    assert read.head_snapshot_id == checkpoint.head_snapshot_id  # the selected one
    check_lineage_law(read)
    result = await workflow.run(checkpoint=read)
    assert result.get_outputs() == ["hi>a>b"]
    assert len(read.snapshots) > len(checkpoint.snapshots), "the two go on by themselves"
    assert (await workflow.run(checkpoint=checkpoint)).get_outputs() == ["hi>a>b"]


async def test_a_checkpoint_in_a_state_is_kept_by_this_codec_and_copied_by_value() -> None:
    workflow = two_steps()
    new = workflow.create_checkpoint("new")
    assert again(new).snapshots == [] and again(new).checkpoint_id == "new"
    await workflow.run("hi", checkpoint=new)
    copied = copy_value({"run": new})["run"]
    await workflow.run("ho", checkpoint=copied)
    assert len(copied.snapshots) == 2 * len(new.snapshots)
    assert again(copied).head_snapshot.state == copied.head_snapshot.state
    await copied.prune(keep=[copied.snapshots[1].snapshot_id])
    assert [one.snapshot_id for one in again(copied).snapshots] == [
        one.snapshot_id for one in copied.snapshots
    ]


async def test_a_checkpoint_with_a_storage_is_no_part_of_another_state() -> None:
    checkpoint = two_steps().create_checkpoint("kept", MemoryCheckpointStorage())
    for refused in (
        lambda: encode({"run": checkpoint}, format="json"),
        lambda: copy_value({"run": checkpoint}),
    ):
        with pytest.raises(UnsupportedValueError, match="has a storage"):
            refused()


async def test_a_session_that_carries_its_whole_checkpoint_grows_linearly() -> None:
    workflow = two_steps()
    checkpoint = workflow.create_checkpoint("long")
    stored_parts: dict[str, bytes] = {}
    sizes = []
    for turn in range(40):
        await workflow.run(f"turn {turn} " + "x" * 500, checkpoint=checkpoint)
        encoded, _ = encode({"run": checkpoint}, format="json")
        stored_parts |= new_parts(encoded, stored_parts.keys())
        sizes.append(sum(map(len, stored_parts.values())))
    early, late = sizes[19] - sizes[9], sizes[39] - sizes[29]
    assert late < 1.5 * early


@pytest.mark.parametrize("spoil", ["manifests", "parts", "head", "header"])
async def test_a_checkpoint_that_was_damaged_in_a_state_is_an_error(spoil: str) -> None:
    from branchpoint.checkpoint import checkpoint_of, whole_of

    workflow = two_steps()
    checkpoint = workflow.create_checkpoint("inside")
    await workflow.run("hi", checkpoint=checkpoint)
    whole = whole_of(checkpoint)
    whole[spoil] = {"manifests": whole["manifests"][1:], "parts": {}, "head": "x", "header": "{}"}[spoil]
    with pytest.raises(CorruptCheckpointError):
        checkpoint_of(whole)
    with pytest.raises(CorruptCheckpointError):
        checkpoint_of({**whole_of(checkpoint), "more": 1})
