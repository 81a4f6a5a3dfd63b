from __future__ import annotations

import collections
import datetime
import decimal
import enum
import re
import typing
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, TypedDict

import msgspec
import pydantic
import pytest

from branchpoint import errors
from branchpoint.codec import convert, register_state_type
from tests.unit.codec import value_kinds as kinds
from tests.unit.codec.value_kinds import (
    Address,
    Box,
    Color,
    Crate,
    Level,
    Model,
    Order,
    Pair,
    Point,
    Price,
    Right,
)


@pytest.fixture(autouse=True)
def registry() -> Any:
    with kinds.registered():
        yield


@dataclass
class Approve:
    by: str


@dataclass
class Reject:
    by: str
    reason: str


@dataclass
class Review:
    verdict: Approve | Reject
    when: datetime.datetime | None = None
    color: Color = Color.RED
    points: list[Point] = field(default_factory=list)
    address: Address | None = None


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


@dataclass(kw_only=True)
class Keyword:
    a: int
    scale: InitVar[int]
    b: int = field(init=False, default=5)

    def __post_init__(self, scale: int) -> None:
        if scale < 0:
            raise ValueError("scale must not be negative")
        self.a *= scale


class Renamed(msgspec.Struct, rename="camel", tag="renamed"):
    first_name: str
    age: Annotated[int, msgspec.Meta(ge=0)] = 0


class Other(msgspec.Struct, tag="other"):
    first_name: str = ""


class Strict(pydantic.BaseModel):
    amount: int
    color: Color = Color.RED
    when: datetime.datetime | None = None
    inner: Model | None = None


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    amount: int


class Root(pydantic.RootModel[list[int]]):
    pass


class Total(TypedDict, total=False):
    a: typing.Required[int]
    b: str


UserId = NewType("UserId", int)

FITS: list[tuple[Any, Any]] = [
    (3, int),
    (True, bool),
    (3.0, float),
    ("x", str),
    (b"x", bytes),
    (None, None),
    (None, type(None)),
    (object(), Any),
    ([1, {}], object),
    (3, int | None),
    (None, int | None),
    (True, int | bool),
    ([1, 2], list[int]),
    ([1, 2], list),
    ([1, "a"], list[int | str]),
    ((1, "a"), tuple[int, str]),
    ((1, 2, 3), tuple[int, ...]),
    ((), tuple[()]),
    ({1}, set[int]),
    ({"a": [1]}, dict[str, list[int]]),
    ({"a": 1}, Mapping[str, int]),
    ((1, 2), Sequence[int]),
    (collections.deque([1]), collections.deque[int]),
    (collections.Counter("a"), collections.Counter[str]),
    (Color.RED, Color),
    (Level.LOW, Level),
    (Level.LOW, int),
    (Order("o"), Order),
    ([Order("o")], list[Order]),
    (Order("o"), Order | None),
    (Point(1), Point),
    (Model(name="m"), Model),
    (Box[int](content=1), Box[int]),
    (Crate("anything"), Crate[int]),
    ({"street": "s"}, Address),
    (datetime.date(2024, 1, 1), datetime.date),
    (decimal.Decimal(1), decimal.Decimal),
    (Path("x"), Path),
    ("a", Literal["a", 1]),
    (1, Literal["a", 1]),
    (3, UserId),
    (3, Annotated[int, "any"]),
    (3, Annotated[int, msgspec.Meta(ge=3)]),
    (kinds.Plain(), kinds.Plain),
]


def _named(value: object) -> str:
    """The same in every process, as those that share the tests need it."""
    return re.sub(" at 0x[0-9a-f]+", "", str(value))


@pytest.mark.parametrize(("value", "tp"), FITS, ids=_named)
def test_what_fits_already_passes_as_the_same_object(value: Any, tp: Any) -> None:
    assert convert(value, tp) is value


CONVERTS: list[tuple[Any, Any, Any]] = [
    (3, float, 3.0),
    (2**53, float, float(2**53)),
    ("red", Color, Color.RED),
    ("GREEN", Color, Color.GREEN),
    (1, Level, Level.LOW),
    ("HIGH", Level, Level.HIGH),
    (3, Right, Right.READ | Right.WRITE),
    ("red", Color | None, Color.RED),
    ("red", Literal[Color.RED], Color.RED),
    ("RED", Literal[Color.RED], Color.RED),
    ({"id": "o"}, Order, Order("o")),
    ({"id": "o", "lines": ["a"], "total": 2}, Order, Order("o", ["a"], 2)),
    ([{"id": "o"}, Order("p")], list[Order], [Order("o"), Order("p")]),
    ({"k": {"id": "o"}}, dict[str, Order], {"k": Order("o")}),
    ({"id": "o"}, Order | None, Order("o")),
    ({"x": 1}, Point, Point(1)),
    ({"name": "m", "items": [1]}, Model, Model(name="m", items=[1])),
    ({"content": 1}, Box[int], Box[int](content=1)),
    ({"content": {"id": "o"}}, Crate[Order], Crate(Order("o"))),
    ({"left": 1}, Pair, Pair(1)),
    ([1, 2], Pair, Pair(1, 2)),
    ([1, 2], tuple[int, ...], (1, 2)),
    ([1, "a"], tuple[int, str], (1, "a")),
    ([1], tuple, (1,)),
    ([1, 2], set[int], {1, 2}),
    ([1, 2], frozenset[int], frozenset({1, 2})),
    ([1], collections.deque[int], collections.deque([1])),
    ({"a": 1}, collections.OrderedDict[str, int], collections.OrderedDict(a=1)),
    ({"a": 1}, collections.Counter[str], collections.Counter(a=1)),
    ({"red": 1}, dict[Color, int], {Color.RED: 1}),
    ("2024-01-02", datetime.date, datetime.date(2024, 1, 2)),
    ("2024-01-02T03:04:05Z", datetime.datetime, datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)),
    ("03:04:05", datetime.time, datetime.time(3, 4, 5)),
    ("PT90S", datetime.timedelta, datetime.timedelta(seconds=90)),
    ("1.50", decimal.Decimal, decimal.Decimal("1.50")),
    (str(uuid.UUID(int=5)), uuid.UUID, uuid.UUID(int=5)),
    ({"by": "a"}, Approve | Reject, Approve("a")),
    ({"by": "a", "reason": "r"}, Approve | Reject, Reject("a", "r")),
    ({"by": "a", "reason": "r"}, Approve | Reject | None, Reject("a", "r")),
    ({"by": "a"}, Approve | dict[str, str], {"by": "a"}),
    ({"verdict": {"by": "a"}}, Review, Review(Approve("a"))),
    (
        {
            "verdict": Reject("a", "b"),
            "color": "green",
            "points": [{"x": 1}],
            "address": {"street": "s", "zip": 1},
        },
        Review,
        Review(Reject("a", "b"), None, Color.GREEN, [Point(1)], {"street": "s", "zip": 1}),
    ),
    ({"name": "a", "children": [{"name": "b"}]}, Tree, Tree("a", [Tree("b")])),
    ({"a": 2, "scale": 3}, Keyword, None),
    ({"firstName": "a"}, Renamed, Renamed("a")),
    ({"type": "renamed", "firstName": "a", "age": 3}, Renamed, Renamed("a", 3)),
    ({"type": "other"}, Renamed | Other, Other()),
    ({"amount": 1, "color": "green"}, Strict, Strict(amount=1, color=Color.GREEN)),
    ({"amount": 1, "inner": {"name": "x"}}, Strict, Strict(amount=1, inner=Model(name="x"))),
    ({"amount": 1, "inner": Model(name="x")}, Strict, Strict(amount=1, inner=Model(name="x"))),
    ({"amount": 1, "more": 2}, Open, Open(amount=1, more=2)),
    ([1, 2], Root, Root([1, 2])),
    ("2024-01-02", str | datetime.date, "2024-01-02"),
    ("2024-01-02", datetime.date | int, datetime.date(2024, 1, 2)),
    (3, float | int, 3),
    ("red", Color | str, "red"),
]


@pytest.mark.parametrize(("value", "tp", "expected"), CONVERTS, ids=str)
def test_documented_conversions(value: Any, tp: Any, expected: Any) -> None:
    converted = convert(value, tp)
    if tp is Keyword:
        assert (converted.a, converted.b) == (6, 5)
    else:
        assert converted == expected and type(converted) is type(expected)


REFUSED: list[tuple[Any, Any]] = [
    (True, int),
    (3.0, int),
    ("1", int),
    (1, bool),
    (1, str),
    (None, int),
    (0, None),
    ("1.0", float),
    (True, float),
    (2**53 + 1, float),
    (10**400, float),
    ("x", bytes),
    ("eA==", bytes),
    (bytearray(b"x"), bytes),
    (1, complex),
    ("x", Path),
    (1, decimal.Decimal),
    (1.5, decimal.Decimal),
    ("one", decimal.Decimal),
    ("tomorrow", datetime.datetime),
    (0, datetime.datetime),
    (datetime.datetime(2024, 1, 1), datetime.date),
    ("2024-01-02T03:04:05Z", datetime.date),
    ("x", uuid.UUID),
    ((1,), list[int]),
    ([1, "a"], list[int]),
    ([True], list[int]),
    ("ab", list[str]),
    ("ab", Sequence[str]),
    ([1], tuple[int, int]),
    ([1, 2, 3], tuple[int, int]),
    ([1], tuple[()]),
    ([[1]], set[list[int]]),
    ({1: "a"}, dict[str, str]),
    ({"a": 1}, dict[str, str]),
    ({"1": 1}, dict[int, int]),
    ({"a": 1}, list[str]),
    ([], dict),
    ({"RED": 1, "red": 2}, dict[Color, int]),
    ({"a": 1}, collections.defaultdict[str, int]),
    ("blue", Color),
    (1, Color),
    (True, Level),
    (64, Right),
    ("c", Literal["a", 1]),
    (True, Literal["a", 1]),
    ({"id": 1}, Order),
    ({}, Order),
    ([], Order),
    ("o", Order),
    (Price(1), Order),
    ({"x": 1, "y": ["a"]}, Point),
    ({"id": "o", 3: 4}, Order),
    ([1, 2, 3], Pair),
    ([], Pair),
    ({"zip": 1}, Address),
    ({"street": "s", "zip": "1"}, Address),
    ({"b": "x"}, Total),
    ({"by": "a", "reason": 1}, Approve | Reject),
    ({"type": "other", "firstName": "a"}, Renamed),
    ({"first_name": "a"}, Renamed),
    ({"amount": "1"}, Strict),
    ({"amount": True}, Strict),
    ({"amount": 3.0}, Strict),
    ([], Strict),
    ("x", Root),
    (1, kinds.Plain),
    ({"a": 1}, kinds.Plain),
    ({"a": 1}, kinds.Counter),
    (1, typing.Never),
    (2, Annotated[int, msgspec.Meta(ge=3)]),
    ("abc", Annotated[str, msgspec.Meta(max_length=2)]),
    ([1, 2, 3], Annotated[list[int], msgspec.Meta(max_length=2)]),
]


@pytest.mark.parametrize(("value", "tp"), REFUSED, ids=str)
def test_everything_else_is_refused(value: Any, tp: Any) -> None:
    with pytest.raises(errors.UnsupportedValueError):
        convert(value, tp)


MESSAGES: list[tuple[Any, Any, str]] = [
    (True, int, r"^answer: expected int, got bool\.$"),
    (
        {"id": "o", "colour": 1},
        Order,
        r"^answer\.colour: there is no such field; .*test\.order.*id, lines, total",
    ),
    ({"lines": []}, Order, r"^answer\.id: this field is missing; test\.order requires it"),
    ({"id": "o", "lines": ["a", 2]}, Order, r"^answer\.lines\[1\]: expected str, got int"),
    (
        {"verdict": {"by": "a", "reason": 3}},
        Review,
        r"^answer\.verdict: .*answer\.verdict\.reason: expected str",
    ),
    ({"a": {"b c": "x"}}, dict[str, dict[str, int]], r"^answer\.a\['b c'\]: expected int, got str"),
    ("blue", Color, r"^answer: expected test\.color, got str \(one of RED, GREEN\)"),
    (1.5, int | None, r"^answer: expected int \| None, got float"),
    ({"type": "other"}, Renamed, r"^answer\.type: this tag belongs to another type"),
    ({"amount": 1, "surprise": 2}, Strict, r"^answer\.surprise: .*not permitted"),
    (
        {"amount": 1, "inner": {"name": "x", "surprise": 2}},
        Strict,
        r"^answer\.inner\.surprise: .*not permitted",
    ),
    ({"amount": "1"}, Strict, r"^answer\.amount: .*valid integer"),
    ({"a": 1, "scale": -1}, Keyword, r"^answer: .*Keyword refuses these fields .*must not be negative"),
    ({"firstName": "a", "age": -1}, Renamed, r"^answer\.age: .*>= 0"),
    ({Order: 1}, dict[str, int], r"^key of answer\[<type>\]: expected str"),
]


@pytest.mark.parametrize(("value", "tp", "message"), MESSAGES, ids=str)
def test_the_message_has_path_and_expectation(value: Any, tp: Any, message: str) -> None:
    with pytest.raises(errors.UnsupportedValueError, match=message):
        convert(value, tp, path="answer")


def test_the_message_never_shows_the_value() -> None:
    with pytest.raises(errors.UnsupportedValueError) as caught:
        convert({"amount": "hunter2", "inner": "hunter2"}, Strict)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(errors.UnsupportedValueError) as caught:
        convert({"id": "o", "total": "hunter2"}, Order | int)
    assert "hunter2" not in str(caught.value)


def test_the_value_given_is_never_changed() -> None:
    value = {"verdict": {"by": "a"}, "points": [{"x": 1}]}
    convert(value, Review)
    assert value == {"verdict": {"by": "a"}, "points": [{"x": 1}]}


def test_a_type_with_a_described_json_form_takes_plain_json() -> None:
    class Money:
        def __init__(self, cents: int) -> None:
            self.cents = cents

    register_state_type(
        Money,
        type_id="money",
        encoder=lambda money: {"cents": money.cents},
        decoder=lambda payload: Money(payload["cents"]),
        json_schema={"type": "object"},
    )
    assert convert([{"cents": 3}], list[Money])[0].cents == 3
    with pytest.raises(errors.UnsupportedValueError, match="decoder of money refuses"):
        convert({"euros": 3}, Money)
    with pytest.raises(errors.UnsupportedValueError):
        convert((1,), Money)


def test_a_record_whose_annotations_cannot_be_resolved_is_the_developers_mistake() -> None:
    class Local(enum.Enum):
        A = "a"

    @dataclass
    class Record:
        local: Local

    assert convert(value := Record(Local.A), Record) is value
    with pytest.raises(errors.DefinitionError, match="module level"):
        convert({"local": "a"}, Record)


def test_recursive_types_and_values_are_bounded() -> None:
    deep: dict[str, Any] = {"name": "leaf"}
    for _ in range(100):
        deep = {"name": "n", "children": [deep]}
    assert convert(deep, Tree).children[0].name == "n"
    for _ in range(100):
        deep = {"name": "n", "children": [deep]}
    with pytest.raises(errors.UnsupportedValueError, match="deep"):
        convert(deep, Tree)
    endless: list[Any] = []
    endless.append(endless)
    nested: Any = list
    for _ in range(300):
        nested = list[nested]
    with pytest.raises(errors.UnsupportedValueError, match="deep"):
        convert(endless, nested)


def test_a_validator_of_a_model_may_raise_what_it_likes() -> None:
    class Moody(pydantic.BaseModel):
        mood: str

        @pydantic.field_validator("mood")
        @classmethod
        def check(cls, mood: str) -> str:
            raise RuntimeError("not today")

    with pytest.raises(errors.UnsupportedValueError, match="not today"):
        convert({"mood": "x"}, Moody)
