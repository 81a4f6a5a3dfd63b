from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import json
import uuid
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from branchpoint import errors
from branchpoint.codec import from_json, json_schema, register_state_type, to_json
from tests.unit.codec import value_kinds as kinds
from tests.unit.codec.value_kinds import Box, Color, Crate, Level, Model, Order, Pair, Point


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
    """A verdict on an order."""

    verdict: Approve | Reject
    when: datetime.datetime | str
    order: Order | None = None
    model: Model | None = None
    data: bytes = b"x"
    colors: dict[Color, int] = field(default_factory=dict)


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


class Tagged(msgspec.Struct, tag="tagged", rename="camel"):
    first_name: Annotated[str, msgspec.Meta(min_length=1, description="given name")]
    age: Annotated[int, msgspec.Meta(ge=0, lt=200)] = 0
    skip: int | msgspec.UnsetType = msgspec.UNSET


class Node(pydantic.BaseModel):
    name: str
    children: list[Node] = []
    alias: int = pydantic.Field(3, alias="other")


class Holder(pydantic.BaseModel):
    node: Node


SCHEMAS: list[tuple[Any, Any]] = [
    (Any, {}),
    (object, {}),
    (None, {"type": "null"}),
    (int, {"type": "integer"}),
    (bool, {"type": "boolean"}),
    (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
    (list, {"type": "array", "items": {}}),
    (list[int], {"type": "array", "items": {"type": "integer"}}),
    (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
    (dict, {"type": "object"}),
    (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
    (collections.Counter[str], {"type": "object", "additionalProperties": {"type": "integer"}}),
    (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
    (
        tuple[int, str],
        {
            "type": "array",
            "prefixItems": [{"type": "integer"}, {"type": "string"}],
            "items": False,
            "minItems": 2,
            "maxItems": 2,
        },
    ),
    (Literal["a", 1], {"enum": ["a", 1]}),
    (datetime.datetime, {"type": "string", "format": "date-time"}),
    (uuid.UUID, {"type": "string", "format": "uuid"}),
    (Color, {"title": "Color", "enum": ["red", "green"]}),
    (Level, {"title": "Level", "enum": [1, 2]}),
    (Annotated[int, msgspec.Meta(ge=3, title="T")], {"type": "integer", "minimum": 3, "title": "T"}),
    (
        Annotated[list[int], msgspec.Meta(max_length=3)],
        {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
    ),
    (
        Order,
        {
            "title": "Order",
            "description": "What a customer wants.",
            "type": "object",
            "properties": {
                "id": {"type": "string"},
                "lines": {"type": "array", "items": {"type": "string"}},
                "total": {"type": "integer", "default": 0},
            },
            "required": ["id"],
            "additionalProperties": False,
        },
    ),
    (
        Tagged,
        {
            "title": "Tagged",
            "type": "object",
            "properties": {
                "type": {"const": "tagged"},
                "firstName": {"type": "string", "minLength": 1, "description": "given name"},
                "age": {"type": "integer", "minimum": 0, "exclusiveMaximum": 200, "default": 0},
                "skip": {"type": "integer"},
            },
            "required": ["firstName"],
            "additionalProperties": False,
        },
    ),
    (
        Pair,
        {
            "title": "Pair",
            "type": "array",
            "prefixItems": [{}, {}],
            "items": False,
            "minItems": 1,
            "maxItems": 2,
        },
    ),
]


@pytest.mark.parametrize(("tp", "schema"), SCHEMAS, ids=str)
def test_schemas(tp: Any, schema: Any) -> None:
    assert json_schema(tp) == schema
    json.dumps(json_schema(tp))


def test_the_schema_of_records_in_records_has_definitions() -> None:
    schema = json_schema(Review)
    assert schema["title"] == "Review" and schema["description"] == "A verdict on an order."
    assert schema["properties"]["verdict"] == {
        "anyOf": [{"$ref": "#/$defs/Approve"}, {"$ref": "#/$defs/Reject"}]
    }
    assert set(schema["$defs"]) == {"Approve", "Reject", "Order", "Model", "Color"}
    assert schema["properties"]["colors"]["propertyNames"] == {"$ref": "#/$defs/Color"}
    assert schema["properties"]["data"]["default"] == "eA=="


def test_a_recursive_record_refers_to_itself() -> None:
    schema = json_schema(Tree)
    assert schema["$ref"] == "#/$defs/Tree"
    assert schema["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}


def test_pydantic_describes_its_models_and_references_stay_whole() -> None:
    assert json_schema(Model) == Model.model_json_schema()
    schema = json_schema(list[Holder] | Node)
    text = json.dumps(schema)
    for name in {part.split('"')[0] for part in text.split('"#/$defs/')[1:]}:
        assert name in schema["$defs"]


def test_two_classes_of_one_name_get_two_definitions() -> None:
    @dataclass
    class Color:
        shade: int

    schema = json_schema(tuple[Color, kinds.Color, Crate[int], Crate[str]])
    references = [item["$ref"] for item in schema["prefixItems"]]
    assert len(set(references)) == 4 == len(schema["$defs"])
    assert references[1] == "#/$defs/tests.unit.codec.value_kinds.Color"


def test_a_schema_is_fresh_each_time() -> None:
    json_schema(int)["type"] = "changed"
    json_schema(Order)["properties"].clear()
    assert json_schema(int) == {"type": "integer"} and json_schema(Order)["properties"]


@pytest.mark.parametrize("tp", [kinds.Plain, list[kinds.Plain], range, slice])
def test_an_unknown_type_is_told_with_what_to_do(tp: Any) -> None:
    with pytest.raises(errors.UnregisteredTypeError, match="register"):
        json_schema(tp)
    with pytest.raises(errors.UnregisteredTypeError, match="register"):
        from_json({}, tp)


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


def test_registered_types_use_their_schema_encoder_and_decoder() -> None:
    register_state_type(
        Money,
        type_id="money",
        encoder=lambda money: (money.cents, "EUR"),
        decoder=lambda payload: Money(payload[0]),
        json_schema={"type": "array"},
    )
    assert json_schema(list[Money]) == {"type": "array", "items": {"type": "array"}}
    assert to_json({"k": Money(3)}) == {"k": [3, "EUR"]}
    assert from_json([[3, "EUR"]], list[Money])[0].cents == 3
    assert json_schema(kinds.Counter) == {"title": "test.counter"}
    assert from_json({"a": 1}, kinds.Counter).counts == to_json(kinds.Counter({"a": 1})) == {"a": 1}
    with pytest.raises(errors.UnsupportedValueError):
        from_json(5, Money)


WIRE: list[tuple[Any, Any, Any]] = [
    (None, None, None),
    (1, int, 1),
    (2**70, int, 2**70),
    ("é", str, "é"),
    ([1, [2]], list[Any], [1, [2]]),
    ((1, "a"), tuple[int, str], [1, "a"]),
    ({3, 1, 2}, set[int], [1, 2, 3]),
    (frozenset({"b", "a"}), frozenset[str], ["a", "b"]),
    (collections.deque([1]), collections.deque[int], [1]),
    ({1: "a", 2: "b"}, dict[int, str], {"1": "a", "2": "b"}),
    ({Color.RED: 1}, dict[Color, int], {"red": 1}),
    ({datetime.date(2024, 1, 2): 1}, dict[datetime.date, int], {"2024-01-02": 1}),
    ({True: 1, 2.5: 2}, dict[Any, int], {"true": 1, "2.5": 2}),
    (b"\xff\x00", bytes, "/wA="),
    (bytearray(b"x"), bytearray, "eA=="),
    (1 + 2j, complex, [1.0, 2.0]),
    (decimal.Decimal("1.50"), decimal.Decimal, "1.50"),
    (fractions.Fraction(1, 3), fractions.Fraction, "1/3"),
    (PurePosixPath("a/b"), PurePosixPath, "a/b"),
    (uuid.UUID(int=1), uuid.UUID, "00000000-0000-0000-0000-000000000001"),
    (datetime.timedelta(seconds=90), datetime.timedelta, "PT90S"),
    (
        datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
        datetime.datetime,
        "2024-01-02T00:00:00+01:00",
    ),
    (Level.HIGH, Level, 2),
    (Order("o", ["a"]), Order, {"id": "o", "lines": ["a"], "total": 0}),
    (Pair(1, "x"), Pair, [1, "x"]),
    (Point(1), Point, {"x": 1, "y": []}),
    (Tagged("a"), Tagged, {"type": "tagged", "firstName": "a", "age": 0}),
    (Box[int](content=1), Box[int], {"content": 1}),
    (Crate(Order("o")), Crate[Order], {"content": {"id": "o", "lines": [], "total": 0}}),
    (Node(name="a", other=4), Node, {"name": "a", "children": [], "other": 4}),
    (
        Review(Reject("a", "b"), "soon", Order("o"), None, b"y", {Color.GREEN: 1}),
        Review,
        {
            "verdict": {"by": "a", "reason": "b"},
            "when": "soon",
            "order": {"id": "o", "lines": [], "total": 0},
            "model": None,
            "data": "eQ==",
            "colors": {"green": 1},
        },
    ),
]


@pytest.mark.parametrize(("value", "tp", "plain"), WIRE, ids=lambda value: type(value).__name__)
def test_values_go_out_as_plain_json_and_come_back(value: Any, tp: Any, plain: Any) -> None:
    written = to_json(value)
    assert written == plain
    assert json.loads(json.dumps(written)) == plain
    if tp != dict[Any, int]:
        back = from_json(json.loads(json.dumps(written)), tp)
        assert back == value and type(back) is type(value)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ([1.0, float("nan")], r"\[1\]"),
        ({"a": {"b": float("inf")}}, r"a\.b"),
        ({"a": "\ud800"}, "a"),
        ({7: 1, "7": 2}, r"\['7'\]"),
        ({(1, 2): 1}, r"\[<tuple>\]"),
        (Order("o", [kinds.Plain()]), r"lines\[0\]"),  # type: ignore[list-item]
        ([kinds.Plain()], r"\[0\]"),
        ([range(3)], r"\[0\]"),
        (Point(float("nan")), "x"),  # type: ignore[arg-type]
    ],
)
def test_nothing_is_dropped_in_silence(value: Any, where: str) -> None:
    with pytest.raises(errors.EncodingError, match=f"^{where}: "):
        to_json(value)


def test_cycles_and_depth_are_errors() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(errors.UnsupportedValueError, match="256"):
        to_json(endless)


def test_subclasses_of_plain_types_are_written_as_their_base() -> None:
    class Text(str):
        pass

    class Number(int):
        pass

    class Share(float):
        pass

    written = to_json({Text("a"): [Text("b"), Number(3), Share(0.5)]})
    assert [type(part) for part in written["a"]] == [str, int, float] and type(next(iter(written))) is str


def test_pydantic_reads_json_by_its_own_rules() -> None:
    assert from_json({"name": "m", "items": ["1"]}, Model) == Model(name="m", items=[1])
    with pytest.raises(errors.UnsupportedValueError, match=r"^items\[0\]: "):
        from_json({"name": "m", "items": ["x"]}, Model)


@pytest.mark.parametrize(
    ("plain", "tp"),
    [
        ("1", int),
        (3.0, int),
        (True, int),
        ("?", bytes),
        ({"id": "o", "x": 1}, Order),
        ({"x": 1}, dict[int, int]),
    ],
)
def test_what_does_not_fit_is_refused(plain: Any, tp: Any) -> None:
    with pytest.raises(errors.UnsupportedValueError):
        from_json(plain, tp)
