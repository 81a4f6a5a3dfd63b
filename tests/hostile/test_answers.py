"""Answers, inputs and JSON from outside that are made to hang, to crash or to look like the library's own marks."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import uuid
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from branchpoint import (
    BranchpointError,
    EncodingError,
    Executor,
    InvalidCallError,
    InvalidInputError,
    InvalidResponseError,
    UnknownRequestError,
    UnsupportedValueError,
    Workflow,
    WorkflowContext,
    handler,
    response_handler,
)
from branchpoint.codec import convert, from_json
from tests.hostile.forge import check_told, refused
from tests.scenario.kit import Place, bytes_of, chain, every_place

RED, LONG = "\x1b[31m\u202e", "x" * 1_000_000


def deep(levels: int, kind: type = list) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"x": value} if kind is dict else [value]
    return value


def wide(value: Any, levels: int) -> Any:
    """Few objects that would be many when each is taken by itself."""
    for _ in range(levels):
        value = [value, value]
    return value


class Colour(enum.Enum):
    RED = "red"


class Bits(enum.IntFlag):
    A = 1
    B = 2


@dataclasses.dataclass
class And:
    below: list[Expression] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Or:
    below: list[Expression] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Not:
    below: list[Expression] = dataclasses.field(default_factory=list)


Expression = And | Or | Not | str


class Row(msgspec.Struct):
    name: str
    more: list[Row] = []


class Pair(NamedTuple):
    left: int
    right: list[int]


class Note(TypedDict):
    text: str


class Model(pydantic.BaseModel):
    name: str
    below: list[Model] = []


TYPES: list[Any] = [
    int, float, bool, str, bytes, bytearray, complex, None, Any, object, list, dict, tuple, set, frozenset,
    list[int],
    dict[str, int], dict[int, str], dict[float, str], dict[bytes, int], dict[datetime.date, int], tuple[int, ...],
    tuple[int, str], set[str], frozenset[int], collections.deque[int], collections.Counter[str], int | str,
    list[int] | None,
    datetime.datetime, datetime.date, datetime.time, datetime.timedelta, uuid.UUID, decimal.Decimal,
    fractions.Fraction,
    pathlib.PurePath, pathlib.Path, Colour, Bits, Literal["a", 1], And, Expression, Row, Pair, Note, Model,
    list[Expression],
    dict[str, Row], list[Model] | dict[str, Model], collections.OrderedDict[str, int], dict[Colour, int],
    dict[uuid.UUID, int],
]  # fmt: skip
TEXTS = [
    "", "1", "-1", "1e400", "1e999999999", "1E+999999999999999999", "-1e-999999999", "9" * 5000,
    "1/" + "9" * 5000, "1/0", "0/0", "1/3", "nan", "NaN", "Infinity", "-inf", "sNaN123", "0x10", "1_000", "٣",
    "𝟙", "½", " 1 ", "+1", "--1", "1.5e3", ".5", "5.", "1/2/3", "9" * 1_000_000, "2026-01-01",
    "2026-01-01T00:00:00Z", "9999-12-31T23:59:59+99:99", "P1D", "P999999999999999999D", "-P1Y", "PT1e400S",
    "red", "RED", "__class__", "name", "_missing_", "A|B", "\x00", "\ud800", "\udc00\ud800", RED, "AA==", "A",
    "====", "AA\n==", "/etc/passwd", "../x", "a\x00b", "{" * 32, "0" * 32, "12345678123456781234567812345678",
    "{12345678-1234-5678-1234-567812345678}", "urn:uuid:" + "0" * 32, LONG,
]  # fmt: skip
NUMBERS = [
    0,
    1,
    -1,
    2**63,
    2**64,
    -(2**63) - 1,
    10**400,
    10**5000,
    1.5,
    -0.0,
    1e308,
    float("nan"),
    float("inf"),
]
SHAPES: list[Any] = [
    *TEXTS, *NUMBERS, None, True, [], {}, [None], [[]], [{}], {"": 1}, {"x": []}, deep(100), deep(300), deep(5_000),
    deep(100_000), deep(100_000, dict), [1] * 100_000, ["1"] * 1000, {str(n): n for n in range(10_000)},
    wide([1], 16), {"$": "os.system", "v": "id"}, {"$": "tuple", "v": [1]}, {"$p": "A" * 22}, {"$l": [[1]]},
    {"$d": [{}]},
    {"name": "x", "more": [{"name": "x", "more": [1]}]},
    {"name": "x", "below": [{"name": "x", "below": deep(300)}]},
    {"below": [{"below": [{"below": "x"}]}]}, {"left": 1, "right": [LONG]}, [1, ["x"]], [1, [1], 1], {"text": 1},
    {"text": "x", RED: 1}, {LONG: 1}, {RED: RED}, {"__class__": "x"}, {"__init__": 1}, {"self": 1},
    {"\ud800": 1}, {"1": 1, "01": 2},
    {"1": "a", "1.0": "b"}, {"true": 1}, [["a", 1], ["a", 2]], {"a": 1, "b": {"c": [None, True, 1.5]}},
]  # fmt: skip


def test_json_of_any_shape_is_read_as_any_type_or_refused() -> None:
    for tp in TYPES:
        for value in SHAPES:
            for read in (from_json, convert):
                try:
                    read(value, tp)
                except BranchpointError as error:
                    check_told(error)
                    assert len(str(error)) <= 4_100


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(TEXTS[:20] + TEXTS[30:60]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=4)
            | st.sampled_from(["name", "below", "more", "left", "right", "text", "$", "v"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON, st.sampled_from(TYPES))
@settings(max_examples=300 if settings().max_examples < 1000 else 20_000)
def test_made_up_json_is_read_or_refused(value: Any, tp: Any) -> None:
    for read in (from_json, convert):
        try:
            read(value, tp)
        except BranchpointError as error:
            check_told(error)


def expression(levels: int, leaf: Any) -> Any:
    value: Any = leaf
    for _ in range(levels):
        value = {"below": [value]}
    return value


@pytest.mark.parametrize("leaf", ["x", 5, {"below": 5}, {"other": 1}], ids=repr)
def test_a_union_that_leads_to_itself_is_tried_once_at_each_place(leaf: Any) -> None:
    """Three members at a hundred levels: each way through them would be one of 3**100."""
    value = expression(100, leaf)
    for read in (from_json, convert):
        try:
            found = read(value, Expression)
        except UnsupportedValueError as error:
            check_told(error)
            assert leaf != "x"
            continue
        assert leaf == "x"
        for _ in range(100):
            assert type(found) is And
            (found,) = found.below
        assert found == "x"


def test_two_places_of_one_object_are_two_values() -> None:
    one = {"below": ["x"]}
    found = from_json({"below": [one, one]}, Expression)
    assert found == And([And(["x"]), And(["x"])])
    assert found.below[0] is not found.below[1]


# Through a run.


class Asks(Executor):
    """Asks for an answer of one type and yields it."""

    def __init__(self, tp: Any) -> None:
        super().__init__(id="asks")
        self.tp = tp

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.request_info(text, self.tp, request_id="ask")

    @response_handler
    async def on_any(self, question: str, answer: Any, ctx: WorkflowContext[Any, Any]) -> None:
        await ctx.yield_output(answer)


def asking(tp: Any) -> Workflow:
    return chain(Asks(tp), name="asking")


@every_place
async def test_c61_an_answer_that_looks_like_a_mark_comes_back_as_it_is(place: Place) -> None:
    """What a stranger gives is data at every depth, whatever it looks like."""
    answers: list[Any] = [
        {"$": "os.system", "v": "id"}, {"$": "tuple", "v": [1]}, {"$p": "A" * 22}, {"$l": [[1]]},
        {"$d": [{"a": 1}]},
        [{"$": "dict", "v": [[1, 2]]}] * 3, {"$": {"$": {"$": "$"}}}, {"a": [{"$p": 1}]},
        {"$": "x", "n": 2, "v": {"$p": "x" * 200}},
        {"__class__": "os.system"}, {RED: RED}, "\x00", deep(200), {"": {"": {"": ""}}},
    ]  # fmt: skip
    for n, answer in enumerate(answers):
        cp = place.create(asking(Any), f"run-{n}")
        await asking(Any).run("?", checkpoint=cp)
        cp = await place.reload(f"run-{n}")
        result = await asking(Any).run(responses={"ask": answer}, checkpoint=cp)
        assert result.get_outputs() == [answer]
        again = await place.reload(f"run-{n}")
        assert [record.value for record in again.outputs()] == [answer]


@every_place
async def test_an_answer_of_a_hostile_shape_is_refused_and_the_request_stays_open(place: Place) -> None:
    unfit: list[Any] = [
        deep(300), deep(5_000), deep(20_000), deep(20_000, dict), LONG, RED, "\ud800", 10**5000, float("nan"),
        {"\ud800": 1},
        {RED: 1}, {LONG: 1}, print, object(), type, (n for n in ()), ValueError(LONG), [lambda: 1],
        {1: {2: {3: print}}},
    ]  # fmt: skip
    circle: list[Any] = []
    circle.append(circle)
    unfit.append(circle)
    for tp in (int, dict[str, int], Any):
        name = f"run-{TYPES.index(tp)}"
        cp = place.create(asking(tp), name)
        await asking(tp).run("?", checkpoint=cp)
        before = bytes_of(cp)
        for answer in unfit:
            if _fits(answer, tp):
                continue
            with pytest.raises(BranchpointError) as caught:
                await asking(tp).run(responses={"ask": answer}, checkpoint=cp)
            check_told(caught.value)
            assert isinstance(caught.value, (InvalidResponseError, EncodingError)), answer
            assert "ask" in str(caught.value)
            await refused(
                lambda: asking(tp).run(responses={"ask": answer, "other": 1}, checkpoint=cp),  # noqa: B023
                UnknownRequestError,
                name,
            )
            assert bytes_of(cp) == before
            assert cp.in_use_by is None
        assert [one.request_id for one in cp.pending_requests] == ["ask"]


def _fits(answer: Any, tp: Any) -> bool:
    """Whether it is odd and no more than that."""
    if tp is int:
        return type(answer) is int
    named = type(answer) is dict and (RED in answer or LONG in answer)
    return named or (tp is Any and type(answer) in (str, float, int) and answer != "\ud800")


@every_place
async def test_answers_under_hostile_names_are_refused_by_name_and_in_short(place: Place) -> None:
    cp = place.create(asking(int))
    await asking(int).run("?", checkpoint=cp)
    before = bytes_of(cp)
    names: list[Any] = [
        "",
        "ask ",
        "ASK",
        RED,
        LONG,
        "\ud800",
        "../ask",
        "a\nb",
        "$",
        None,
        5,
        ("ask",),
        b"ask",
    ]
    for name in names:
        for answers in ({name: 1}, {"ask": 1, name: 1}):
            await refused(
                lambda: asking(int).run(responses=answers, checkpoint=cp),  # noqa: B023
                (UnknownRequestError, InvalidCallError),
            )
    many = {f"{n}{RED}": 1 for n in range(10_000)}
    await refused(lambda: asking(int).run(responses=many, checkpoint=cp), (UnknownRequestError,))
    for answers in ([], [("ask", 1)], "ask", 5, object()):
        await refused(
            lambda: asking(int).run(responses=answers, checkpoint=cp),  # type: ignore[arg-type] # noqa: B023
            (InvalidCallError, UnknownRequestError, InvalidResponseError),
        )
    assert bytes_of(cp) == before
    assert (await asking(int).run(responses={"ask": 7}, checkpoint=cp)).get_outputs() == [7]


@every_place
async def test_an_input_of_a_hostile_shape_is_refused_before_anything_is_kept(place: Place) -> None:
    class Takes(Executor):
        @handler
        async def on_any(self, message: Any, ctx: WorkflowContext[Any, Any]) -> None:
            await ctx.yield_output(message)

    def takes() -> Workflow:
        return chain(Takes(id="takes"), name="takes")

    for n, message in enumerate(
        (deep(300), deep(20_000), deep(20_000, dict), "\ud800", {"\ud800": 1}, [print], object())
    ):
        cp = place.create(takes(), f"run-{n}")
        with pytest.raises(BranchpointError) as caught:
            await takes().run(message, checkpoint=cp)
        check_told(caught.value)
        assert cp.snapshots == [] or list(cp.snapshots) == []
        assert cp.in_use_by is None
    with pytest.raises((InvalidInputError, BranchpointError)):
        await asking(int).run(deep(20_000), checkpoint=place.create(asking(int), "run-x"))
