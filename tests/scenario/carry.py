"""A workflow that puts a value into every place a snapshot has, and values that are hard to keep.

The types are registered where they are defined, so that a new process which imports this module
knows them too.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import fractions
import pathlib
import struct
import uuid
import zoneinfo
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec
import pydantic

from branchpoint import (
    Checkpoint,
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    register_state_type,
    response_handler,
    state,
)
from tests.scenario.kit import Place, Ticks, place_of

# What a value is, told without the library.


def told(value: Any) -> Any:
    """Return a picture of a value: equal pictures mean the same types, the same order, the same bits."""
    kind = type(value)
    if kind is float:
        return kind, struct.pack(">d", value) if value == value else "nan"
    if kind is int:
        return kind, hex(value)  # no limit of digits
    if kind is complex:
        return kind, told(value.real), told(value.imag)
    if kind is decimal.Decimal:
        return kind, value.as_tuple()
    if isinstance(value, enum.Enum):
        return kind, value.name, repr(value.value)
    if kind is datetime.datetime:
        moment = value.replace(tzinfo=None, fold=0).isoformat()
        return kind, moment, value.fold, told(value.tzinfo), value.utcoffset()
    if kind is datetime.time:
        return kind, value.replace(tzinfo=None, fold=0).isoformat(), value.fold, told(value.tzinfo)
    if kind is zoneinfo.ZoneInfo:
        return kind, value.key
    if kind is datetime.timezone:
        return kind, value.utcoffset(None), value.tzname(None)
    if isinstance(value, dict):
        factory = value.default_factory if kind is collections.defaultdict else None
        return kind, factory, [(told(key), told(item)) for key, item in value.items()]
    if isinstance(value, (set, frozenset)):
        return kind, sorted(repr(told(item)) for item in value)
    if kind is collections.deque:
        return kind, value.maxlen, [told(item) for item in value]
    if isinstance(value, (list, tuple)):
        return kind, [told(item) for item in value]
    if isinstance(value, pydantic.BaseModel):
        private = value.__pydantic_private__
        return kind, told(dict(value.__dict__)), told(private), sorted(value.__pydantic_fields_set__)
    if isinstance(value, msgspec.Struct):
        return kind, [(name, told(getattr(value, name))) for name in value.__struct_fields__]
    if hasattr(value, "__dict__"):
        return kind, [(name, told(item)) for name, item in sorted(vars(value).items())]
    return kind, repr(value)


# Registered types.

T = TypeVar("T")


class Outer:
    """A class that holds other classes."""

    @register_state_type("scenario.carry.mode")
    class Mode(enum.Enum):
        ON = "on"
        OFF = ("off", 0)


@register_state_type("scenario.carry.word")
class Word(enum.StrEnum):
    YES = "yes"
    NO = "no"


@register_state_type("scenario.carry.level")
class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@register_state_type("scenario.carry.right")
class Right(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()
    RUN = enum.auto()


@register_state_type("scenario.carry.bits")
class Bits(enum.IntFlag):
    A = 1
    B = 2


@register_state_type("scenario.carry.settings")
@dataclass
class Settings:
    """Enums as fields."""

    mode: Outer.Mode
    word: Word
    rights: Right
    by_level: dict[Level, Word] = field(default_factory=dict)


@register_state_type("scenario.carry.node")
@dataclass
class Node:
    """May hold anything, itself too."""

    value: Any = None
    below: dict[str, Any] = field(default_factory=dict)


@register_state_type("scenario.carry.base")
@dataclass
class Base:
    name: str


@dataclass
class Sub(Base):
    """Adds a field to a registered class, and is not registered."""

    extra: int = 0


@register_state_type("scenario.carry.holder")
@dataclass
class Holder:
    base: Base
    more: list[Base] = field(default_factory=list)


@register_state_type("scenario.carry.point")
class Point(msgspec.Struct):
    x: int
    y: Any = None


@register_state_type("scenario.carry.pair")
class Pair(NamedTuple):
    left: Any
    right: Any = 0


@register_state_type("scenario.carry.inner")
class Inner(pydantic.BaseModel):
    n: int


@register_state_type("scenario.carry.box")
class Box(pydantic.BaseModel, Generic[T]):
    content: T


@register_state_type("scenario.carry.letter")
class Letter(pydantic.BaseModel):
    """An alias, times, a private attribute and a computed field."""

    model_config: ClassVar[pydantic.ConfigDict] = pydantic.ConfigDict(validate_by_name=True)

    sender: str = pydantic.Field(alias="from")
    written: datetime.datetime
    due: datetime.date
    notes: list[str] = []
    _read_by: list[str] = pydantic.PrivateAttr(default_factory=list)

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def late(self) -> bool:
        return self.written.date() > self.due


@register_state_type("scenario.carry.envelope")
class Envelope(pydantic.BaseModel):
    """A field declared as a base."""

    inside: Base


def letter() -> Letter:
    """A letter with everything set."""
    made = Letter(
        sender="ann",
        written=datetime.datetime(2026, 10, 25, 1, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Lisbon")),
        due=datetime.date(2026, 10, 24),
    )
    made._read_by.append("bob")
    return made


# Values by case, made anew at each call. What is here must come back as it was.

LISBON = zoneinfo.ZoneInfo("Europe/Lisbon")
ODD = datetime.timezone(-datetime.timedelta(hours=4, minutes=56, seconds=2))


def _times() -> Iterator[Any]:
    moment = datetime.datetime(2026, 10, 25, 1, 30)
    yield datetime.datetime(2026, 10, 25, 1, 30, fold=1, tzinfo=LISBON)
    yield datetime.datetime(2026, 10, 25, 1, 30, fold=0, tzinfo=LISBON)
    yield datetime.datetime(2026, 3, 29, 1, 30, tzinfo=LISBON)  # a time that the clock jumps over
    yield moment
    yield moment.replace(fold=1)
    yield moment.replace(microsecond=1)
    yield moment.replace(tzinfo=datetime.UTC)
    yield moment.replace(tzinfo=zoneinfo.ZoneInfo("UTC"))
    yield moment.replace(tzinfo=ODD)
    yield moment.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=1, microseconds=1), "odd"))
    yield from (datetime.datetime.min, datetime.datetime.max, datetime.date.min, datetime.date(2026, 10, 25))
    yield datetime.time(1, 30)
    yield datetime.time(1, 30, fold=1, tzinfo=LISBON)
    yield datetime.time(1, 30, 0, 1, tzinfo=ODD)
    yield datetime.timedelta(microseconds=1)
    yield -datetime.timedelta(days=1, microseconds=1)
    yield from (datetime.timedelta.max, LISBON, ODD, datetime.UTC)
    yield {datetime.date(2026, 1, 1): [datetime.time()], moment: {"at": moment.replace(tzinfo=ODD)}}


def _floats() -> Iterator[Any]:
    nan, inf = float("nan"), float("inf")
    specials = ["NaN", "sNaN", "-NaN123", "1.10", "-0", "Infinity", "-Infinity", "1E+3", "0E-10"]
    values = [nan, inf, -inf, -0.0, 0.0, 5e-324, 1.0, *map(decimal.Decimal, specials)]
    yield {str(place): value for place, value in enumerate(values)}
    yield values
    yield from values
    yield {nan: 1, inf: 2, decimal.Decimal("1.10"): 3, -0.0: 4}
    yield [complex(nan, -0.0), complex(inf, 1), fractions.Fraction(-1, 3)]


def _ints() -> Iterator[Any]:
    edges = [2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**5000, 0, -1]
    yield {"n": 2**70, "m": -(2**65), "k": 2**63}
    yield edges
    yield from edges
    yield {edge: [edge] for edge in edges}
    yield [1, 1.0, True, "1", {1: "int"}, {"1": "text"}, {True: "bool"}, {1: 0, "1": 1}]


def _binary() -> Iterator[Any]:
    yield {"doc": b"\x00\xff", "n": [b"", bytearray(b"ab"), bytearray()]}
    yield from ["AP8=", "YWI=", "", b"AP8=", b"\x00\xff" * 5000, bytearray(range(256))]
    yield {b"key": "bytes", "key": "text", "a2V5": b"text like base64"}
    yield [{"$": "bytes", "v": "AP8="}, b"\x00\xff"]


def _texts() -> Iterator[Any]:
    texts = ["a\x00b", "\x00", "\u2028", "\u2029\x85\x7f", "\U0001f600", "e\u0301\u00e9", "\ufeff", "\\u0000"]
    yield from texts
    yield {text: text for text in texts}
    yield "x" * 1_000_000
    yield {"\u00e9" * 500_000: "\x00" * 1000}


def _marker_like() -> Iterator[Any]:
    yield {"type": "datetime", "value": "x"}
    yield {"__type__": "set", "value": [1]}
    for marker in (
        {"$": "set", "v": [1]},
        {"$": "no.such.type", "v": 1},
        {"$": "no.such.type", "n": 2, "v": 1},
        {"$": "dict", "v": [["a", 1]]},
        {"$p": "A" * 22},
        {"$l": [[1, 2]]},
        {"$d": [{"a": 1}]},
        {"$": 1},
        {"$x": 1, "y": 2},
        {"": 1, "$": None},
    ):
        yield marker
        yield {"$": "set", "v": [{"v": marker, "$": "tuple"}]}
        yield [{"in": [marker]}, (marker, {"$": marker})]


def _enums() -> Iterator[Any]:
    members = [*Outer.Mode, *Word, *Level, *Right, *Bits]
    combined = [Right.READ | Right.RUN, Right(0), ~Right.READ, Bits.A | Bits.B, Bits(0)]
    yield from members + combined
    yield {member: [member] for member in members}
    yield {Word.YES: 1, "no": 2, Level.LOW: 3, 2: 4}
    yield Settings(Outer.Mode.OFF, Word.NO, Right.READ | Right.WRITE, {Level.HIGH: Word.YES})
    yield [Settings(Outer.Mode.ON, Word.YES, Right(0)), {Outer.Mode.ON}]


def _models() -> Iterator[Any]:
    yield Box[int](content=1)
    yield Box[Inner](content=Inner(n=1))
    yield [Box[Inner](content=Inner(n=1)), Box[Inner](content=Inner(n=2))]
    yield Box[list[Box[Inner]]](content=[Box[Inner](content=Inner(n=3))])
    yield Box[datetime.datetime](content=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
    yield Box[datetime.date](content=datetime.date(2026, 1, 1))
    yield letter()
    yield {"letters": [letter(), letter()], "box": (Box[int](content=1),)}


def _shared_objects() -> Iterator[Any]:
    x = [1]
    yield {"a": x, "b": x}
    node = Node("n")
    yield [node, node, {"again": node}]
    yield Node(x, {"x": x})


def _bases() -> Iterator[Any]:
    yield Base("b")
    yield Holder(Base("b"), [Base("c")])
    yield Envelope(inside=Base("b"))


def _rest() -> Iterator[Any]:
    yield from (None, True, False, (), [], {}, set(), frozenset(), range(1, 9, 3), slice(1, None, 2))
    yield [{3, 1, 2}, frozenset({"b", "a"}), {(1, "x"), None}]
    yield [collections.deque([1, [2]], maxlen=3), collections.OrderedDict(b=1, a=2)]
    yield [collections.Counter("aab"), collections.defaultdict(list, a=[1]), collections.defaultdict(None)]
    yield {(1, 2): "tuple", None: "none", b"b": 1, uuid.UUID(int=7): pathlib.PurePosixPath("a/b")}
    yield {"z": 1, "a": 2, "m": {"y": 1, "b": 2}}  # the order of keys is part of a value
    yield [Point(1, [2]), Pair((1, 2), Point(3)), Node(Pair(1))]


VALUES: dict[str, Callable[[], Iterator[Any]]] = {
    "c37": _times,
    "c38": _floats,
    "c39": _ints,
    "c41": _marker_like,
    "c42": _enums,
    "c43": _models,
    "c45": _bases,
    "c46": _shared_objects,
    "c47": _binary,
    "c50": _texts,
    "rest": _rest,
}


# The workflow.


entered = Ticks()
"""How often each handler of `carrier` was entered, over all tests."""


class Take(Executor):
    """Puts its message into every place: a field, shared state, an output, a request, two messages."""

    held: Any = state(default="nothing yet")

    @handler
    async def on_value(self, value: object, ctx: WorkflowContext[object, object]) -> None:
        entered(self.id)
        self.held = value
        ctx.set_state("kept", value)
        await ctx.yield_output(value)
        await ctx.request_info(value, object)
        await ctx.send_message(value)

    @response_handler
    async def on_answer(self, asked: object, answer: object, ctx: WorkflowContext[object, object]) -> None:
        entered(self.id)
        await ctx.yield_output([self.held, ctx.get_state("kept"), asked, answer])


class Pass(Executor):
    @handler
    async def on_value(self, value: object, ctx: WorkflowContext[object]) -> None:
        entered(self.id)
        await ctx.send_message(value)


class Meet(Executor):
    @handler
    async def on_values(self, values: list[object], ctx: WorkflowContext[object, object]) -> None:
        entered(self.id)
        await ctx.yield_output(values)


def carrier() -> Workflow:
    """`take` sends to `pass` and to the join `meet`, which also waits for `pass`."""
    take, hand_on, meet = Take(id="take"), Pass(id="pass"), Meet(id="meet")
    builder = WorkflowBuilder(name="carrier", start_executor=take).add_edge(take, hand_on)
    return builder.add_fan_in_edges([take, hand_on], meet).build()


JOIN = "fan_in:pass,take->meet"


def places_of(whole: dict[str, Any]) -> dict[str, Any]:
    """Every place where a value is, in a state after the first superstep of `carrier`."""
    messages = whole["messages"]
    (request,) = messages["pending"]["requests"].values()
    return {
        "executor_states": whole["executor_states"]["take"]["held"],
        "shared": whole["workflow_state"]["shared"]["kept"],
        "edge_states": whole["edge_states"][JOIN]["received"]["take"][0],
        "input": messages["input"]["value"],
        "delivery": messages["pending"]["deliveries"][0]["value"],
        "request": request["data"],
        "output": messages["output"][0]["value"],
    }


async def take_in(checkpoint: Checkpoint, value: Any) -> None:
    """Run a value into every place, and stop there."""
    await carrier().run(value, checkpoint=checkpoint, max_supersteps=1)


async def finish(checkpoint: Checkpoint, value: Any) -> None:
    """Go on from `take_in` to the end, and check what handlers got and what is read on the way."""
    wanted = told(value)
    assert checkpoint.head_snapshot is not None
    for name, found in places_of(checkpoint.head_snapshot.state).items():
        assert told(found) == wanted, f"{name} holds {found!r}"
    (request,) = checkpoint.pending_requests
    assert told(request.data) == wanted
    assert told(checkpoint.outputs()[0].value) == wanted
    announced = [event.data for event in checkpoint.events() if event.type in ("output", "request_info")]
    assert told(announced) == told([value, value])
    paused = await carrier().run(checkpoint=checkpoint)
    assert told(paused.get_outputs()) == told([value, [value, value]])
    assert told(paused.get_request_info_events()[0].data) == wanted
    answers = {request.request_id: value}
    done = await carrier().run(responses=answers, checkpoint=checkpoint)
    assert told(done.get_outputs()) == told([value, [value, value], [value] * 4])
    head = checkpoint.head_snapshot
    assert told(head.state["messages"]["input"]["value"]) == told(answers)
    head.plain_state()
    again = await carrier().run(checkpoint=checkpoint)
    assert told(again.get_outputs()) == told(done.get_outputs())


async def take_in_all(place: Place, case: str) -> int:
    """Run every value of a case into a checkpoint of its own; return how many there are."""
    values = list(VALUES[case]())
    for number, value in enumerate(values):
        await take_in(place.create(carrier(), f"{case}-{number}"), value)
    return len(values)


async def finish_all(place: Place, case: str) -> int:
    """Finish every checkpoint of a case, loaded anew; return how many there were."""
    values = list(VALUES[case]())
    for number, value in enumerate(values):
        try:
            await finish(await place.reload(f"{case}-{number}"), value)
        except AssertionError as error:
            raise AssertionError(f"value {number} of {case}: {error}") from error
    return len(values)


async def finish_all_here(kind: str, folder: str, cases: list[str]) -> dict[str, int]:
    """What another process does."""
    place = place_of(kind, pathlib.Path(folder))
    return {case: await finish_all(place, case) for case in cases}
