"""Serialization cases C37 to C51 at the level of the codec: what a value goes in as, it comes back as."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import math
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, Generic, Never, TypeVar
from zoneinfo import ZoneInfo

import pydantic
import pytest

from branchpoint import Executor, MemoryCheckpointStorage, WorkflowBuilder, WorkflowContext, handler
from branchpoint.codec import (
    Format,
    copy_value,
    decode,
    decode_state,
    encode,
    encode_state,
    isolated_registry,
    new_parts,
    plain,
    register_state_type,
)
from branchpoint.errors import (
    DefinitionError,
    EncodingError,
    UnknownVersionError,
    UnregisteredTypeError,
    UnsupportedValueError,
)
from branchpoint.testing.strategies import same

BOTH = pytest.mark.parametrize("format", ["json", "msgpack"])
T = TypeVar("T")


@pytest.fixture(autouse=True)
def isolated() -> Iterator[None]:
    with isolated_registry():
        yield


def kept(value: Any, format: Format) -> Any:
    """The value after a way through a stored state."""
    root, _ = encode_state({"workflow_state": {"shared": {"it": value}}}, format=format)
    state = decode_state(root.digest, new_parts(root, ()), format=format)
    return state["workflow_state"]["shared"]["it"]


@BOTH
@pytest.mark.parametrize(
    "value",
    [
        datetime.datetime(2026, 10, 25, 1, 30, fold=1, tzinfo=ZoneInfo("Europe/Lisbon")),
        datetime.datetime(2026, 10, 25, 1, 30, fold=0, tzinfo=ZoneInfo("Europe/Lisbon")),
        datetime.datetime(2026, 10, 25, 1, 30),
        datetime.datetime(2026, 10, 25, 1, 30, fold=1),
        datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC),
        datetime.datetime(
            1900, 1, 1, tzinfo=datetime.timezone(-datetime.timedelta(hours=4, minutes=56, seconds=2))
        ),
        datetime.datetime(1900, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(microseconds=1))),
        datetime.datetime(1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2), "EET")),
        datetime.date(2026, 10, 25),
        datetime.time(1, 30, fold=1, tzinfo=ZoneInfo("Europe/Lisbon")),
        datetime.timedelta(microseconds=1),
        datetime.timedelta(days=-999999999),
    ],
    ids=str,
)
def test_c37_times_keep_type_zone_fold_and_instant(value: Any, format: Format) -> None:
    back = kept([value], format)[0]
    assert same(back, value)
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        assert back.utcoffset() == value.utcoffset()


@BOTH
def test_c37_a_time_zone_that_cannot_be_kept_is_refused(format: Format) -> None:
    class Own(datetime.tzinfo):
        def utcoffset(self, when: Any) -> datetime.timedelta:
            return datetime.timedelta(hours=1)

        def dst(self, when: Any) -> None:
            return None

        def tzname(self, when: Any) -> str:
            return "own"

    with pytest.raises(UnsupportedValueError, match=r"workflow_state\.shared\.it.*time zone is a .*Own"):
        kept(datetime.datetime(2026, 1, 1, tzinfo=Own()), format)


@BOTH
def test_c38_special_numbers_keep_kind_and_value(format: Format) -> None:
    values = [
        math.nan, math.inf, -math.inf, -0.0, decimal.Decimal("NaN"), decimal.Decimal("sNaN7"),
        decimal.Decimal("1.10"), decimal.Decimal("-0"), decimal.Decimal("1E+400"), complex(math.nan, -0.0),
    ]  # fmt: skip
    assert same(kept(values, format), values)
    assert same(kept(dict(enumerate(values)), format), dict(enumerate(values)))
    assert len(kept({math.nan, float("nan")}, format)) == 2
    with decimal.localcontext(decimal.Context(capitals=0)):
        assert kept(decimal.Decimal("1E+400"), format) == decimal.Decimal("1E+400")


@BOTH
def test_c39_integers_of_any_size_are_exact(format: Format) -> None:
    numbers = {
        "n": 2**70, "m": -(2**65), "k": 2**63, "huge": 10**6000,
        "edges": [2**64 - 1, 2**64, -(2**63), -(2**63) - 1],
    }  # fmt: skip
    back = kept(numbers, format)
    assert back == numbers
    assert all(type(number) is int for number in back["edges"])


@BOTH
def test_c41_user_data_is_never_taken_for_a_tag(format: Format) -> None:
    shapes: list[Any] = [
        {"type": "datetime", "value": "x"},
        {"__type__": "set", "value": [1]},
        {"$p": "AAAAAAAAAAAAAAAAAAAAAA"},
        {"$l": [[1]]},
        {"$d": [{"a": 1}]},
        {"a": 1, "$": "set", "v": [1]},
        {"$": "no.such.type", "v": 1},
        {"$": "set", "n": 2, "v": []},
    ]
    for value in ({1, 2}, {1: 2}, 2**70, datetime.date(2026, 1, 1)):
        encoded, _ = encode(value, format=format)
        shapes.append(plain(encoded.data, new_parts(encoded, ()), format=format))  # what we really write
    for shape in shapes:
        nested = [shape, {"x": {"y": [shape]}}, {"$": shape}, {1: shape}]
        assert same(kept(nested, format), nested)
        once = plain(encode(shape, format=format)[0].data, {}, format=format)
        assert same(kept({"again": once}, format), {"again": once})


class Outer:
    class Mode(enum.Enum):
        FAST = 1
        SLOW = [1]


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Right(enum.Flag):
    READ = 1
    WRITE = 2


@BOTH
def test_c42_enums_come_back_as_the_same_member(format: Format) -> None:
    @dataclasses.dataclass
    class Holder:
        mode: Any

    for cls in (Outer.Mode, Colour, Level, Right, Holder):
        register_state_type(cls)
    members: list[Any] = [
        Outer.Mode.FAST, Outer.Mode.SLOW, Colour.RED, Level.LOW, Right.READ | Right.WRITE, Right(0),
    ]  # fmt: skip
    for member in members:
        value, keyed, held = kept([member, {member: 1}, Holder(member)], format)
        assert value is member
        assert next(iter(keyed)) is member
        assert held.mode is member


@BOTH
@pytest.mark.parametrize(
    "member", [Outer.Mode.FAST, Colour.RED, Level.LOW, Right.READ | Right.WRITE], ids=repr
)
def test_c42_an_unregistered_enum_is_refused(member: Any, format: Format) -> None:
    for value in (member, {member: 1}, [1, {"a": member}]):
        with pytest.raises(UnregisteredTypeError, match=type(member).__qualname__):
            kept(value, format)


class Inner(pydantic.BaseModel):
    when: datetime.datetime
    day: datetime.date


class Box(pydantic.BaseModel, Generic[T]):
    item: T


class Rich(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")

    name: str = pydantic.Field(alias="theName")
    when: datetime.datetime
    day: datetime.date
    tags: list[str] = []
    _secret: int = pydantic.PrivateAttr(default=1)

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def loud(self) -> str:
        return self.name.upper()


@BOTH
def test_c43_pydantic_models_come_back_as_their_class_and_equal(format: Format) -> None:
    for cls in (Inner, Box, Rich):
        register_state_type(cls)
    inner = Inner(when=datetime.datetime(2026, 1, 1), day=datetime.date(2026, 1, 1))
    rich = Rich(theName="a", when=inner.when, day=inner.day, more=[1])  # type: ignore[call-arg]
    rich._secret = 7
    values: list[Any] = [
        Box[int](item=1),
        Box[Inner](item=inner),
        [Box[Inner](item=inner)],
        Box(item=3),
        rich,
    ]
    values.append(Box[list[Box[int]]](item=[Box[int](item=1)]))
    back = kept(values, format)
    assert back == values
    assert [type(value) for value in back] == [type(value) for value in values]
    assert type(back[1].item.when) is datetime.datetime
    assert type(back[1].item.day) is datetime.date
    assert (back[4]._secret, back[4].loud, back[4].model_extra) == (7, "A", {"more": [1]})
    assert back[4].model_fields_set == rich.model_fields_set
    assert back[4].model_dump(by_alias=True) == rich.model_dump(by_alias=True)


class BoxSender(Executor):
    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[Box[int | None]]) -> None:
        ordered = collections.OrderedDict(a=1, b=2)
        ordered.move_to_end("a")
        ctx.set_state("ordered", ordered)
        await ctx.send_message(Box[int | None](item=len(text)))


class BoxReceiver(Executor):
    @handler
    async def on_box(self, box: Box[int | None], ctx: WorkflowContext[Never, str]) -> None:
        await ctx.yield_output(f"{box.item} {','.join(ctx.get_state('ordered'))}")


async def test_c43_a_message_of_a_parametrised_model_is_delivered_after_a_load() -> None:
    register_state_type(Box)
    storage = MemoryCheckpointStorage()

    def boxes() -> Any:
        sender, receiver = BoxSender(id="sender"), BoxReceiver(id="receiver")
        return WorkflowBuilder(name="boxes", start_executor=sender).add_edge(sender, receiver).build()

    workflow = boxes()
    checkpoint = workflow.create_checkpoint(checkpoint_storage=storage, checkpoint_id="boxes")
    await workflow.run("abc", checkpoint=checkpoint, max_supersteps=1)
    result = await boxes().run(checkpoint=await storage.load("boxes"))
    assert result.get_outputs() == ["3 b,a"]


@BOTH
def test_c43_a_model_of_an_unregistered_origin_or_argument_is_refused(format: Format) -> None:
    with pytest.raises(UnregisteredTypeError, match="Box"):
        kept(Box[int](item=1), format)
    register_state_type(Box)
    inner = Inner(when=datetime.datetime(2026, 1, 1), day=datetime.date(2026, 1, 1))
    with pytest.raises(UnregisteredTypeError, match="Inner"):
        kept(Box[Inner](item=inner), format)


class Base(pydantic.BaseModel):
    x: int


class Sub(Base):
    y: int


@BOTH
def test_c45_a_subclass_is_never_cut_down_to_its_base(format: Format) -> None:
    @dataclasses.dataclass
    class DataBase:
        x: int

    @dataclasses.dataclass
    class DataSub(DataBase):
        y: int

    @dataclasses.dataclass
    class Holder:
        item: DataBase

    class ModelHolder(pydantic.BaseModel):
        item: Base

    for cls in (DataBase, Holder, Base, ModelHolder):
        register_state_type(cls)
    sub = DataSub(1, 2)
    held = ModelHolder.model_construct(item=Sub(x=1, y=2))
    cases = [
        (sub, r"at workflow_state\.shared\.it "),
        ([DataBase(1), sub], r"it\[1\]"),
        (Holder(sub), r"it\.item"),
        (held, r"it\.item"),
    ]
    for value, where in cases:
        with pytest.raises(UnregisteredTypeError, match=r"Sub.*" + where + r".*a subclass is never cut down"):
            kept(value, format)


class _List(list[Any]):
    pass


class _Text(str):
    __slots__ = ()


class _Int(int):
    pass


@BOTH
@pytest.mark.parametrize(
    "value", [_List(), _Text("a"), _Int(1), {_Text("a"): 1}, types.SimpleNamespace()], ids=repr
)
def test_c45_a_subclass_of_a_plain_type_is_refused(value: Any, format: Format) -> None:
    with pytest.raises(UnregisteredTypeError):
        kept(["a", value], format)


def _nested(depth: int) -> Any:
    value: Any = "end"
    for _ in range(depth):
        value = [value]
    return value


def _below(frames: int, function: Callable[[], Any]) -> Any:
    return function() if frames == 0 else _below(frames - 1, function)


@BOTH
def test_c46_one_object_used_twice_is_fine(format: Format) -> None:
    x = [1]
    assert kept({"a": x, "b": x}, format) == {"a": [1], "b": [1]}


@BOTH
def test_c46_cycles_are_refused_with_the_path(format: Format) -> None:
    @dataclasses.dataclass
    class Node:
        link: Any = None

    register_state_type(Node)
    y: list[Any] = []
    y.append(y)
    node = Node()
    node.link = {"back": node}
    with pytest.raises(UnsupportedValueError, match=r"it\[0\].*contains itself"):
        kept(y, format)
    with pytest.raises(UnsupportedValueError, match=r"it\.link\.back.*contains itself"):
        kept(node, format)


@BOTH
@pytest.mark.parametrize("depth", [257, 900, 5000])
def test_c46_what_is_too_deep_is_refused(depth: int, format: Format) -> None:
    with pytest.raises(UnsupportedValueError, match="256 levels"):
        kept(_nested(depth), format)


@BOTH
def test_c46_what_is_accepted_loads_from_any_stack(format: Format) -> None:
    @dataclasses.dataclass
    class Level:
        inner: Any

    register_state_type(Level)
    records: Any = "end"
    for _ in range(250):
        records = Level(records)
    mixed: Any = "end"
    for number in range(160):
        mixed = {number: (mixed,)} if number % 2 else {"a": "x" * 300, "b": mixed}
    for value in (_nested(250), records, mixed):
        encoded, _ = encode(value, format=format)
        parts = new_parts(encoded, ())
        room = sys.getrecursionlimit() - _depth() - 60
        back = _below(room, lambda data=encoded.data, parts=parts: decode(data, parts, format=format))  # type: ignore[misc]
        assert type(back) is type(value)
        assert encode(back, format=format)[0].data == encoded.data
        again = _below(room, lambda value=value: encode(value, format=format))[0]  # type: ignore[misc]
        assert again.data == encoded.data


def _depth() -> int:
    frame, count = sys._getframe(), 0
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count


@BOTH
def test_c47_bytes_stay_bytes_and_text_stays_text(format: Format) -> None:
    value = {
        "doc": b"\x00\xff",
        "n": [b"", bytearray(b"ab"), "AP8=", b"AP8="],
        b"key": "bytes as a key",
        "big": b"\x00" * 5000,
    }
    assert same(kept(value, format), value)
    with pytest.raises(UnsupportedValueError, match=r"memoryview .*it\.n\[0\].*bytes\(view\)"):
        kept({"n": [memoryview(b"c")]}, format)


@dataclasses.dataclass
class Unregistered:
    x: int


def _hopeless() -> list[tuple[Any, str]]:
    return [
        (threading.Lock(), "lock"),
        (int, "type"),
        ((n for n in [1]), "generator"),
        (Unregistered(1), "Unregistered"),
        (ValueError("x"), "ValueError"),
        (compile("1", "x", "eval"), "code"),
        (lambda: 1, "function"),
        (sys, "module"),
    ]


@BOTH
@pytest.mark.parametrize("number", range(len(_hopeless())))
def test_c49_a_refusal_names_the_type_and_the_full_path(number: int, format: Format) -> None:
    value, name = _hopeless()[number]
    deep = {"cache": [0, 1, 2, {"lock": value}]}
    states: dict[str, dict[str, Any]] = {
        r"executor_states\.triage\.cache\[3\]\.lock": {"executor_states": {"triage": deep}},
        r"workflow_state\.shared\.cache\[3\]\.lock": {"workflow_state": {"shared": deep}},
        r"messages\.pending\.deliveries\[0\]\.value\.cache\[3\]\.lock": {
            "messages": {"pending": {"deliveries": [{"value": deep}]}}
        },
        r"messages\.output\[1\]\.value\.cache\[3\]\.lock": {"messages": {"output": [{}, {"value": deep}]}},
    }
    for path, state in states.items():
        with pytest.raises(EncodingError, match=rf"type \S*{name} at {path} cannot be kept"):
            encode_state(state, format=format)
    with pytest.raises(EncodingError, match=r"at executor_states\.triage\.cache\[3\]\.lock "):
        encode(deep, format=format, path="executor_states.triage")
    many = [{"n": number} for number in range(400)]
    with pytest.raises(EncodingError, match=r"at f\[390\]\.a\[0\] "):
        encode([*many[:390], {"a": [value]}, *many], format=format, path="f")
    with pytest.raises(EncodingError, match=r"at f\[\(1, 2\)\]|at f\[<tuple>\]"):
        encode({(1, 2): value}, format=format, path="f")


@BOTH
def test_c50_odd_text_is_identical_or_refused(format: Format) -> None:
    texts = ["a\x00b", "\u2028", "\ufeff", "\U0001f600", "é" * 2**19, "", '"\\\n']
    assert kept(texts, format) == texts
    assert list(kept(dict.fromkeys(texts), format)) == texts
    for bad in ("\ud83d", {"\ud83d": 1}, ["a", {"b": ("\ud83d" * 2000,)}], {"x\ud83d": {1: 2}}):
        with pytest.raises(UnsupportedValueError, match="lone surrogate"):
            kept(bad, format)
    with pytest.raises(UnsupportedValueError, match=r"at p\.a\[2\]\.b cannot.*lone surrogate"):
        encode({"a": [1, 2, {"b": "\ud83d"}]}, format=format, path="p")


def test_c51_two_classes_of_one_name_are_told_apart_or_refused() -> None:
    def make(module: str) -> type[Any]:
        cls = dataclasses.make_dataclass("Order", ["x"])
        cls.__module__ = module  # newer Pythons let no namespace= say it
        return cls

    first, second = make("shop.a"), make("shop.b")
    register_state_type(first)
    register_state_type(second)
    assert type(kept([second(1)], "json")[0]) is second
    with pytest.raises(DefinitionError, match=r"'shop\.a\.Order' already belongs to"):
        register_state_type(make("shop.a"))
    register_state_type(first)


def test_c51_a_class_local_to_a_function_works() -> None:
    @register_state_type
    @dataclasses.dataclass
    class Local:
        x: int

    assert kept(Local(1), "json") == Local(1)


@BOTH
def test_c51_a_changed_class_loads_or_says_which_field(format: Format) -> None:
    def make(*names: Any) -> type[Any]:
        cls = dataclasses.make_dataclass("Order", names)
        return register_state_type(cls, type_id="shop.order")

    with isolated_registry():
        encoded, _ = encode(make("x", "y")(1, 2), format=format)
    with isolated_registry():
        more = make("x", "y", ("z", list, dataclasses.field(default_factory=lambda: [3])))
        assert decode(encoded.data, {}, format=format) == more(1, 2, [3])
    with isolated_registry():
        make("x")
        with pytest.raises(UnknownVersionError, match=r"at a\.b .*'shop\.order'.*no field 'y'"):
            decode(encoded.data, {}, format=format, path="a.b")
    with isolated_registry():
        make("x", "y", "z")
        with pytest.raises(UnknownVersionError, match="its field 'z' is required"):
            decode(encoded.data, {}, format=format)
    with pytest.raises(UnregisteredTypeError, match=r"no class is registered as 'shop\.order'"):
        decode(encoded.data, {}, format=format, path="a.b")
    assert plain(encoded.data, {}, format=format) == {"$": "shop.order", "v": {"x": 1, "y": 2}}


@BOTH
def test_c57_what_was_encoded_does_not_change_with_the_value(format: Format) -> None:
    value = {"items": [{"n": number} for number in range(500)]}
    before = copy_value(value)
    encoded, _ = encode(value, format=format)
    value["items"].append({"n": 500})
    value["items"][0]["n"] = 7
    assert decode(encoded.data, new_parts(encoded, ()), format=format) == before
