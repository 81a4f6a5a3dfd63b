"""Classes of every kind that values are made of, for the tests of this folder."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import fractions
import functools
import pathlib
import threading
import uuid
import zoneinfo
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field
from typing import Any, Generic, NamedTuple, NotRequired, TypedDict, TypeVar

import msgspec
import pydantic

from branchpoint.codec import isolated_registry, register_state_type

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Right(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Order:
    """What a customer wants."""

    id: str
    lines: list[str] = field(default_factory=list)
    total: int = 0


@dataclass(frozen=True)
class Price:
    amount: int
    tags: Any = ()


@dataclass(slots=True)
class Slotted:
    name: str
    items: list[int]


@dataclass
class Loud:
    """Counts how often it was made by its constructor."""

    name: str
    extra: InitVar[int] = 0
    seen: list[str] = field(default_factory=list, init=False)

    made = 0

    def __post_init__(self, extra: int) -> None:
        Loud.made += 1
        self.seen = [self.name * extra]

    @functools.cached_property
    def derived(self) -> list[str]:
        return [self.name]


class Point(msgspec.Struct):
    x: int
    y: list[int] = []


class FrozenPoint(msgspec.Struct, frozen=True):
    x: int
    y: Any = ()


class Pair(NamedTuple):
    left: Any
    right: Any = 0


class Model(pydantic.BaseModel):
    name: str
    items: list[int] = []
    _private: list[int] = pydantic.PrivateAttr(default_factory=list)


class Box(pydantic.BaseModel, Generic[T]):
    content: T


@dataclass
class Crate(Generic[T]):
    content: T


class Address(TypedDict):
    street: str
    zip: NotRequired[int]


class Counter:
    """Registered with its own encoder; holds something that cannot be copied."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts
        self.lock = threading.Lock()


class Plain:
    """Not registered."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def read(self) -> None:
        """A bound method takes its object along."""


MARK = object()


class Event(pydantic.BaseModel):
    at: datetime.datetime


class PlainSlots:
    __slots__ = ("a", "b")


REGISTERED = (Color, Level, Right, Order, Price, Slotted, Loud, Point, FrozenPoint, Pair, Model, Box, Crate)


@contextmanager
def registered() -> Iterator[None]:
    """A registry that knows the classes above, but for `Plain` and `PlainSlots`."""
    with isolated_registry():
        for cls in REGISTERED:
            register_state_type(cls, type_id=f"test.{cls.__name__.lower()}")
        register_state_type(Counter, type_id="test.counter", encoder=lambda c: c.counts, decoder=Counter)
        yield


IMMUTABLE: tuple[Any, ...] = (
    None,
    True,
    1,
    2**70,
    1.5,
    float("nan"),
    1j,
    "text",
    b"bytes",
    decimal.Decimal("1.0"),
    fractions.Fraction(1, 3),
    datetime.datetime(2024, 1, 2, 3, 4, 5, 6, datetime.UTC),
    datetime.date(2024, 1, 2),
    datetime.time(1, 2, 3),
    datetime.timedelta(1, 2, 3),
    datetime.timezone(datetime.timedelta(hours=1), "X"),
    zoneinfo.ZoneInfo("UTC"),
    uuid.UUID(int=7),
    pathlib.PurePosixPath("a/b"),
    pathlib.PureWindowsPath("a/b"),
    pathlib.Path("a"),
    range(3),
    slice(1, None, 2),
    Color.RED,
    Level.LOW,
    Right.READ | Right.WRITE,
    (),
    (1, "a", (b"x", Color.GREEN)),
    frozenset({1, (2, 3)}),
    Price(1, ("a", frozenset({Color.RED}))),
    FrozenPoint(1, (2, 3)),
    Pair(1, Price(2)),
    (Price(1), FrozenPoint(2)),
    len,
    registered,
    Order,
    ...,
    MARK,
)


def mutable_values() -> list[Any]:
    """Fresh values, each with something in it that can change."""
    loud = Loud("a", 2)
    model = Model(name="m", items=[1])
    model._private.append(3)
    slots = PlainSlots()
    slots.a = [1]
    return [
        [],
        [1, [2]],
        {},
        {"a": {"b": [1]}, "c": 2},
        {(1, 2): [3], Color.RED: {}},
        {1, 2},
        {Price(1), (1, 2)},
        bytearray(b"x"),
        collections.deque([1, [2]], maxlen=5),
        collections.OrderedDict(a=[1], b=2),
        collections.Counter("aab"),
        collections.defaultdict(list, a=[1]),
        ([1], 2),
        (1, ({"a": []},)),
        slice([1], None),
        Order("o", ["a"], 3),
        Price(1, ["mutable"]),
        Slotted("s", [1]),
        loud,
        Point(1, [2]),
        FrozenPoint(1, [2]),
        Pair([1], {}),
        model,
        Box[int](content=3),
        Crate([1]),
        Plain(a=1, b=[2], c=Plain(d={})),
        slots,
        [Order("o", []), {"p": Point(1)}],
        Counter({"a": 1}),
        Event.model_validate_json('{"at": "2024-01-02T03:04:05+01:00"}'),
        Plain(event=Event.model_validate_json('{"at": "2024-01-02T03:04:05+01:00"}')),
        Plain(
            method=Plain(a=[1]).read,
            part=functools.partial(len, [1]),
            error=ValueError([1]),
            many=iter([1, 2]),
        ),
    ]
