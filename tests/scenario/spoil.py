"""Values that cannot be kept, and a workflow that puts one wherever a test wants it."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import threading
import zoneinfo
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pydantic
import pytest

from branchpoint import (
    BranchpointError,
    EncodingError,
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    executor,
    handler,
    response_handler,
    state,
)
from tests.scenario.carry import Base, Box, Envelope, Holder, Node, Pair, Point, Settings, Sub
from tests.scenario.kit import Place, bytes_of, file_bytes, lineage


@dataclass
class Loose:
    """A dataclass that nobody registered."""

    a: int = 1


@dataclass
class Wish:
    """What a `Spoil` is to do; a test changes it between two runs."""

    where: str
    make: Callable[[], Any]
    mended: bool = False

    def value(self) -> Any:
        return {"a": [0, {"b": ("good" if self.mended else self.make(),)}]}


STEPS = ".a[1].b[0]"


class Spoil(Executor):
    """Puts a value that cannot be kept where a `Wish` says."""

    held: Any = state(default=None)

    def __init__(self, id: str, wish: Wish) -> None:
        super().__init__(id=id)
        self.wish = wish

    @handler
    async def on_text(self, text: object, ctx: WorkflowContext[object, object]) -> None:
        value, where = self.wish.value(), self.wish.where
        if where == "shared":
            ctx.set_state("k", value)
        elif where == "updated":
            ctx.update_state("k", lambda found: value)
        elif where == "field":
            self.held = value
        elif where == "output":
            await ctx.yield_output(value)
        elif where == "request":
            await ctx.request_info(value, object, request_id="ask")
        elif where == "response":
            await ctx.request_info("?", object, request_id="ask")
        await ctx.send_message(value if where in ("message", "join") else "go on")

    @response_handler
    async def on_answer(self, asked: object, answer: object, ctx: WorkflowContext[object, object]) -> None:
        await ctx.yield_output("answered")


def spoiled(wish: Wish) -> Workflow:
    spoil = Spoil("spoil", wish)

    @executor(id="remember")
    async def remember(text: object, ctx: WorkflowContext[object]) -> None:
        if wish.where == "function":
            ctx.executor_state["k"] = wish.value()
        await ctx.send_message(text)

    @executor(id="meet")
    async def meet(texts: list[object], ctx: WorkflowContext[object, object]) -> None:
        await ctx.yield_output(texts)

    builder = WorkflowBuilder(name="spoiled", start_executor=spoil)
    if wish.where != "message":
        builder.add_fan_in_edges([spoil, remember], meet)
    return builder.add_edge(spoil, remember).build()


# Where it is: the paths that say so, and who made it.
WHERE: dict[str, tuple[tuple[str, ...], str]] = {
    "shared": (("workflow_state.shared.k",), "spoil"),
    "updated": (("workflow_state.shared.k",), "spoil"),
    "field": (("executor_states.spoil.held", "executor_states.spoil"), "spoil"),
    "function": (("executor_states.remember.state.k", "executor_states.remember"), "remember"),
    "message": (
        ("messages.pending.deliveries[0].value", "messages.pending.deliveries[from spoil].value"),
        "spoil",
    ),
    "join": (
        (
            "edge_states.fan_in:remember,spoil->meet.received.spoil[0]",
            "messages.pending.deliveries[0].value",
            "messages.pending.deliveries[from spoil].value",
        ),
        "spoil",
    ),
    "output": (("messages.output[0].value", "messages.output[of spoil].value"), "spoil"),
    "request": (("messages.pending.requests.ask.data",), "spoil"),
    "input": (("messages.input.value",), ""),
    "response": (("messages.input.value.ask", "responses.ask"), ""),
}


async def stored(place: Place, folder: Path) -> Any:
    """Everything there is of a checkpoint, in storage and on disk."""
    loaded = await place.reload()
    return lineage(loaded), loaded.stored_head_snapshot_id, bytes_of(loaded), file_bytes(folder)


async def is_refused(
    place: Place, folder: Path, where: str, make: Callable[[], Any], type_name: str, *, steps: str = STEPS
) -> None:
    """Run into a value that cannot be kept; check what is said, and that nothing else happened."""
    wish = Wish(where, make)
    workflow = spoiled(wish)
    cp = place.create(workflow)
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "input": lambda: workflow.run(wish.value(), checkpoint=cp),
        "response": lambda: workflow.run(responses={"ask": wish.value()}, checkpoint=cp),
    }
    if where == "input":
        assert not cp.snapshots
    else:
        await workflow.run("go", checkpoint=cp, max_supersteps=1 if where == "function" else 0)
    if where == "response":
        await workflow.run(checkpoint=cp)
    before = lineage(cp), cp.head_snapshot_id, bytes_of(cp)
    on_disk = file_bytes(folder) if where == "input" else await stored(place, folder)
    call = calls.get(where, lambda: workflow.run(checkpoint=cp))
    for _ in range(2):
        with pytest.raises(BranchpointError) as caught:
            await call()
        error = caught.value
        assert isinstance(error, EncodingError) or where == "response", repr(error)
        paths, maker = WHERE[where]
        assert any(path + steps in str(error) for path in paths), str(error)
        assert type_name in str(error)
        assert maker in str(error) + " ".join(getattr(error, "__notes__", ()))
        assert (lineage(cp), cp.head_snapshot_id, bytes_of(cp)) == before
        assert cp.in_use_by is None
        assert (file_bytes(folder) if where == "input" else await stored(place, folder)) == on_disk
    wish.mended = True
    await call()
    assert cp.status in ("idle", "idle_with_pending_requests")
    loaded = await place.reload()
    assert bytes_of(loaded) == bytes_of(cp)
    assert lineage(loaded)[: len(before[0])] == before[0]
    if place.is_stored:
        storage = place.open()
        assert storage is not None
        await storage.delete("run-1")


def _generator() -> Iterator[int]:
    yield 1


C49: dict[str, tuple[Callable[[], Any], str]] = {
    "a lock": (threading.Lock, "lock"),
    "a class": (lambda: Loose, "type"),
    "a generator": (_generator, "generator"),
    "a dataclass": (Loose, "Loose"),
}


class OwnZone(datetime.tzinfo):
    """A zone that only this program knows."""

    def utcoffset(self, moment: datetime.datetime | None) -> datetime.timedelta:
        return datetime.timedelta(hours=1)

    def tzname(self, moment: datetime.datetime | None) -> str:
        return "own"

    def dst(self, moment: datetime.datetime | None) -> None:
        return None


class OwnMoment(datetime.datetime):
    pass


class OwnFloat(float):
    pass


class OwnInt(int):
    pass


class OwnText(str):
    __slots__ = ()


class OwnBytes(bytes):
    pass


class OwnList(list[Any]):
    pass


class OwnDict(dict[str, Any]):
    pass


class OwnDecimal(decimal.Decimal):
    pass


class LooseMode(enum.Enum):
    ON = "on"


class LooseWord(enum.StrEnum):
    YES = "yes"


class LooseLevel(enum.IntEnum):
    LOW = 1


class LooseRight(enum.Flag):
    READ = 1
    WRITE = 2


class LooseStruct(msgspec.Struct):
    x: int = 0


class LoosePair(NamedTuple):
    left: int = 0


class LooseModel(pydantic.BaseModel):
    n: int = 0


class SubModel(Box[int]):
    more: int = 0


class SubPoint(Point):
    z: int = 0


class SubPair(Pair):
    pass


def _keyless() -> zoneinfo.ZoneInfo:
    found = next(Path(folder, "Europe", "Lisbon") for folder in zoneinfo.TZPATH if Path(folder).is_dir())
    with found.open("rb") as opened:
        return zoneinfo.ZoneInfo.from_file(opened)


def _cycle() -> list[Any]:
    y: list[Any] = []
    y.append(y)
    return y


def _cycle_through_a_dataclass() -> dict[str, Any]:
    node = Node()
    node.below = {"node": node}
    return node.below


def nested(depth: int) -> list[Any]:
    """Lists inside lists."""
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


# The values that are refused: how each is made, the type that is named, and what the path ends with.
REFUSED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "c37 a zone of one's own": (lambda: datetime.datetime(2026, 1, 1, tzinfo=OwnZone()), "OwnZone", ""),
    "c37 a zone of one's own in a time": (lambda: datetime.time(1, tzinfo=OwnZone()), "OwnZone", ""),
    "c37 a subclass of datetime": (lambda: OwnMoment(2026, 1, 1), "OwnMoment", ""),
    "c38 a subclass of float": (lambda: OwnFloat(1), "OwnFloat", ""),
    "c38 a subclass of Decimal": (lambda: OwnDecimal("NaN"), "OwnDecimal", ""),
    "c39 a subclass of int": (lambda: OwnInt(2**70), "OwnInt", ""),
    "c41 a subclass of dict": (lambda: OwnDict({"$": "set", "v": [1]}), "OwnDict", ""),
    "c41 a subclass of list": (lambda: OwnList([1]), "OwnList", ""),
    "c42 an enum": (lambda: LooseMode.ON, "LooseMode", ""),
    "c42 a text enum": (lambda: LooseWord.YES, "LooseWord", ""),
    "c42 an int enum": (lambda: LooseLevel.LOW, "LooseLevel", ""),
    "c42 a flag": (lambda: LooseRight.READ | LooseRight.WRITE, "LooseRight", ""),
    "c42 an enum as a key": (lambda: {LooseWord.YES: 1}, "LooseWord", ""),
    "c42 an enum as a field": (
        lambda: Settings(LooseMode.ON, LooseWord.YES, LooseRight.READ),  # type: ignore[arg-type]
        "LooseMode",
        ".mode",
    ),
    "c43 a model": (LooseModel, "LooseModel", ""),
    "c43 a model of an unregistered one": (
        lambda: Box[LooseModel](content=LooseModel()),
        "LooseModel",
        "",
    ),
    "c43 a subclass of a model": (lambda: SubModel(content=1), "SubModel", ""),
    "c45 a subclass": (lambda: Sub("s"), "Sub", ""),
    "c45 a list of both": (lambda: [Base("b"), Sub("s")], "Sub", "[1]"),
    "c45 a field declared as the base": (lambda: Holder(Sub("s")), "Sub", ".base"),
    "c45 a list in a field declared as the base": (lambda: Holder(Base("b"), [Sub("s")]), "Sub", ".more[0]"),
    "c45 a field of a model declared as the base": (lambda: Envelope(inside=Sub("s")), "Sub", ".inside"),
    "c45 a field of a struct": (lambda: Point(1, Sub("s")), "Sub", ".y"),
    "c45 a field of a tuple": (lambda: Pair(Sub("s")), "Sub", ".left"),
    "c45 a subclass of a struct": (lambda: SubPoint(1), "SubPoint", ""),
    "c45 a subclass of a named tuple": (lambda: SubPair(1), "SubPair", ""),
    "c47 a memoryview": (lambda: memoryview(b"c"), "memoryview", ""),
    "c47 a subclass of bytes": (lambda: OwnBytes(b"c"), "OwnBytes", ""),
    "c49 an exception": (lambda: ValueError("x"), "ValueError", ""),
    "c49 a function": (lambda: nested, "function", ""),
    "c49 a module": (lambda: json, "module", ""),
    "c49 code": (lambda: nested.__code__, "code", ""),
    "c49 a struct": (LooseStruct, "LooseStruct", ""),
    "c49 a named tuple": (LoosePair, "LoosePair", ""),
    "c49 a bare object": (object, "object", ""),
    "c49 a lock in a registered value": (lambda: Node({"x": threading.Lock()}), "lock", ".value.x"),
    "c50 a lone surrogate": (lambda: "\ud83d", "str", ""),
    "c50 a lone surrogate as a key": (lambda: {"\ud83d": 1}, "str", ""),
    "c50 a lone surrogate in a field": (lambda: Node("a\udc00b"), "str", ".value"),
    "c50 a subclass of str": (lambda: OwnText("x"), "OwnText", ""),
}


C46: dict[str, tuple[Callable[[], Any], str, str]] = {
    "a list in itself": (_cycle, "contains itself", STEPS),
    "a dict and a dataclass in each other": (_cycle_through_a_dataclass, "contains itself", STEPS),
    "900 lists": (lambda: nested(900), "deeper than 256 levels", ""),
    "5,000 lists": (lambda: nested(5000), "deeper than 256 levels", ""),
    "300 dataclasses": (lambda: _nodes(300), "deeper than 256 levels", ""),
}


def _nodes(depth: int) -> Node:
    value = Node()
    for _ in range(depth):
        value = Node(value)
    return value
