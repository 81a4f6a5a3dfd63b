"""Types at run time, and which handler gets a message."""

from __future__ import annotations

import collections
import datetime
import enum
import typing
from collections import OrderedDict, abc, defaultdict, deque
from dataclasses import dataclass
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    Never,
    NewType,
    NoReturn,
    NotRequired,
    Optional,
    Protocol,
    TypedDict,
    TypeVar,
    Union,
    runtime_checkable,
)

import msgspec
import pytest
from typing_extensions import TypeAliasType

from branchpoint.graph import (
    Executor,
    WorkflowContext,
    compatible,
    find_handler,
    find_response_handler,
    handler,
    matches,
    readable,
    response_handler,
)

T = TypeVar("T")
NoneType = type(None)


class Order: ...


class Paid(Order): ...


class Shipped(Paid): ...


@dataclass
class Box(Generic[T]):
    item: T


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Point(NamedTuple):
    x: int
    y: int


class Card(TypedDict):
    title: str
    size: NotRequired[int]


class Struct(msgspec.Struct):
    n: int


@runtime_checkable
class Sized(Protocol):
    def __len__(self) -> int: ...


OrderId = NewType("OrderId", str)
Alias = TypeAliasType("Alias", "int | str")
RealAlias = TypeAliasType("RealAlias", Union[int, str])  # noqa: UP007
Whole = TypeAliasType("Whole", int)


YES = [
    (1, int),
    ("a", str),
    (None, None),
    (None, NoneType),
    (None, Any),
    (None, object),
    (Paid(), Order),
    (Shipped(), Order),
    (Paid(), Paid),
    (True, bool),
    (True, int),
    (Level.LOW, int),
    (Colour.RED, Colour),
    (datetime.datetime(2026, 1, 1), datetime.date),
    (Struct(1), Struct),
    (Point(1, 2), Point),
    (Point(1, 2), tuple),
    (Point(1, 2), tuple[int, int]),
    (1, int | str),
    (None, Optional[str]),  # noqa: UP045
    ("a", Union[int, str]),  # noqa: UP007
    ([1], list[int] | None),
    ([], list[int]),
    ([1, 2], list[int]),
    ([1, "a"], list[int | str]),
    ([[1], []], list[list[int]]),
    ([1], list),
    ([1], list[Any]),
    ([1], typing.List),  # noqa: UP006
    ([1], abc.Sequence),
    ([1], abc.Sequence[int]),
    ("abc", abc.Sequence[str]),
    (b"abc", abc.Sequence[int]),
    (iter([1]), abc.Iterator[str]),
    ({1}, set[int]),
    (frozenset({1}), frozenset[int]),
    (frozenset({1}), abc.Set[int]),
    (deque([1]), deque[int]),
    ({"a": 1}, dict[str, int]),
    ({}, dict[str, int]),
    ({"a": [1]}, dict[str, list[int]]),
    ({"a": 1}, abc.Mapping[str, int]),
    (OrderedDict(a=1), dict[str, int]),
    (defaultdict(int, a=1), defaultdict[str, int]),
    (collections.Counter("a"), collections.Counter[str]),
    ((1, "a"), tuple[int, str]),
    ((1, 2, 3), tuple[int, ...]),
    ((), tuple[int, ...]),
    ((), tuple[()]),
    ((1,), tuple),
    ((1,), typing.Tuple),  # noqa: UP006
    ("go", Literal["go", "stop"]),
    (1, Literal[1]),
    (Colour.RED, Literal[Colour.RED]),
    (1, Annotated[int, "metadata"]),
    ([1], list[Annotated[int, "metadata"]]),
    ("a", OrderId),
    (1, RealAlias),
    (Box(1), Box),
    (Box(1), Box[str]),  # only the class of other generics is looked at
    (Paid, type),
    (Paid, type[Order]),
    (Paid, type[Any]),
    ([], Sized),
    (print, abc.Callable[[int], str]),
    ({"title": "a"}, Card),
    ({"title": "a", "size": 1}, Card),
]

NO = [
    (1, str),
    ("1", int),
    (1, float),
    (1.0, int),
    (1, bool),
    (0, None),
    ("", None),
    (None, int),
    (None, Order),
    (Order(), Paid),
    (1, str | None),
    ([1], list[str]),
    ([1, "a"], list[int]),
    ([[1], ["a"]], list[list[int]]),
    ((1,), list[int]),
    ("abc", abc.Sequence[int]),
    ("abc", list[str]),
    ({"a"}, set[int]),
    ({"a": "b"}, dict[str, int]),
    ({1: 1}, dict[str, int]),
    ([("a", 1)], dict[str, int]),
    ((1, "a"), tuple[int, int]),
    ((1,), tuple[int, int]),
    ((1, 2, 3), tuple[int, int]),
    ((1, "a"), tuple[int, ...]),
    ((1,), tuple[()]),
    (True, Literal[1]),
    (1.0, Literal[1]),
    ("red", Literal[Colour.RED]),
    ("stop!", Literal["go", "stop"]),
    ("a", Annotated[int, "metadata"]),
    (1, OrderId),
    (1.5, RealAlias),
    (Struct(1), Box[int]),
    (Order, type[Paid]),
    (1, type[int]),
    (1, Sized),
    (1, Never),
    (None, NoReturn),
    ({"size": 1}, Card),
    ({"title": "a", "size": "big"}, Card),
    ({"title": "a", "colour": "red"}, Card),
]


@pytest.mark.parametrize(("value", "tp"), YES)
def test_a_value_fits(value: Any, tp: Any) -> None:
    assert matches(value, tp)


@pytest.mark.parametrize(("value", "tp"), NO)
def test_a_value_does_not_fit(value: Any, tp: Any) -> None:
    assert not matches(value, tp)


@pytest.mark.parametrize(
    ("value", "tp", "fits"),
    [
        (True, int, False),
        ([True], list[int], False),
        ({"a": (True,)}, dict[str, tuple[int, ...]], False),
        (True, int | str, False),
        (True, int | bool, True),
        (True, Any, True),
        (True, object, True),
        (True, bool, True),
        (1, int, True),
        (Level.LOW, int, True),
    ],
)
def test_strictly_a_bool_is_no_int(value: Any, tp: Any, fits: bool) -> None:
    assert matches(value, tp, strict=True) is fits


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (int, int),
        (Paid, Order),
        (bool, int),
        (Order, object),
        (Order, Any),
        (Any, Order),
        (None, NoneType),
        (None, str | None),
        (int, int | str),
        (int | str, int | str | None),
        (Paid | Shipped, Order),
        (list[Paid], list[Order]),
        (list[int], list),
        (list, list[int]),
        (list[int], abc.Sequence[int]),
        (list[int], list[Any]),
        (list[int], list[int | str]),
        (dict[str, int], dict[str, int | None]),
        (dict[str, int], abc.Mapping),
        (tuple[int, str], tuple[int, str]),
        (tuple[int, int], tuple[int, ...]),
        (tuple[int, ...], tuple[int, ...]),
        (tuple[int, str], abc.Sequence[int | str]),
        (tuple, tuple[int, int]),
        (Literal["a"], str),
        (Literal["a"], Literal["a", "b"]),
        (Literal["a", 1], str | int),
        (Annotated[int, "m"], int),
        (int, Annotated[int, "m"]),
        (OrderId, str),
        (Box[int], Box[int]),
        (Box[int], Box),
        (type[Paid], type[Order]),
        (type[Paid], type),
        (Never, int),
        (Card, dict),
        (list, Sized),
    ],
)
def test_a_type_may_flow_into_another(source: Any, target: Any) -> None:
    assert compatible(source, target)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (int, str),
        (Order, Paid),
        (int, bool),
        (int, float),
        (None, int),
        (str | None, str),
        (int | str, int),
        (list[int], list[str]),
        (list[int], set[int]),
        (list[Order], list[Paid]),
        (list[int | str], list[int]),
        (dict[str, int], dict[str, str]),
        (dict[str, int], dict[int, int]),
        (tuple[int, str], tuple[int, int]),
        (tuple[int, ...], tuple[int, int]),
        (tuple[int], tuple[int, int]),
        (tuple[int, ...], tuple[int]),
        (tuple[int, str], abc.Sequence[int]),
        (Literal["c"], Literal["a", "b"]),
        (str, Literal["a"]),
        (Literal["a"], int),
        (Box[int], Box[str]),
        (type[Order], type[Paid]),
        (object, int),
        (int, Never),
        (int, Sized),
    ],
)
def test_a_type_may_not_flow_into_another(source: Any, target: Any) -> None:
    assert not compatible(source, target)


@pytest.mark.parametrize(
    ("tp", "text"),
    [
        (int, "int"),
        (None, "None"),
        (NoneType, "None"),
        (Any, "Any"),
        (Order, "Order"),
        (str | None, "str | None"),
        (Union[int, str], "int | str"),  # noqa: UP007
        (list[Order | None], "list[Order | None]"),
        (dict[str, list[int]], "dict[str, list[int]]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (Literal["a", 1], "Literal['a', 1]"),
        (Annotated[int, "m"], "int"),
        (OrderId, "OrderId"),
        (Box[int], "Box[int]"),
        (abc.Callable[[int], str], "Callable[[int], str]"),
        (Never, "Never"),
    ],
)
def test_types_have_readable_names(tp: Any, text: str) -> None:
    assert readable(tp) == text


# Handler choice.


def _taking(*types: Any) -> Executor:
    """An executor with a handler for each type, named by its place."""
    members: dict[str, Any] = {}
    for place, tp in enumerate(types):

        async def on_message(self: Any, message: Any, ctx: Any) -> None: ...

        members[f"h{place}"] = handler(input=NoneType if tp is None else tp)(on_message)
    return type("Taking", (Executor,), members)("taking")  # type: ignore[no-any-return]


CHOICES = [
    # exact type first
    (1, (Any, int), 1),
    (1, (object, int), 1),
    (1, (int | str, int), 1),
    (Paid(), (Order, Paid), 1),
    (None, (Any, None), 1),
    (None, (None,), 0),
    (None, (str | None,), 0),
    # then the nearest base class
    (Shipped(), (Order, Paid), 1),
    (Shipped(), (Paid, Order), 0),
    (Shipped(), (Any, Order), 1),
    (Shipped(), (Paid | str, Order), 1),
    (Shipped(), (object, Order), 1),
    (Level.LOW, (enum.Enum, int), 1),
    # then unions, Any and the rest in declaration order
    (1, (Any, int | str), 0),
    (1, (int | str, Any), 0),
    (1, (float | str, Any), 1),
    (1, (float | str, int | None), 1),
    ([1], (abc.Sequence, Any), 0),
    ([1], (Any, abc.Sequence), 0),
    # more said about a class comes before the bare class
    ([1], (list, list[int]), 1),
    (["a"], (list, list[int]), 0),
    ([1], (list[str], list[int]), 1),
    ([], (list[str], list[int]), 0),
    ([1], (Any, list[int]), 1),
    ("go", (str, Literal["go"]), 1),
    ("no", (str, Literal["go"]), 0),
    ((1, 2), (tuple, tuple[int, ...], tuple[int, int]), 1),
    ({"a": 1}, (dict, dict[str, int]), 1),
    ({"title": "a"}, (dict, Card), 1),
    (1, (Annotated[int, "m"],), 0),
    ("a", (OrderId,), 0),
    # a type under another name stands where the type would
    (1, (object, Whole), 1),
    (True, (Whole, Any), 1),
    ("a", (Any, OrderId), 1),
    ("a", (object, RealAlias), 0),
    # bool goes to int only when nothing else takes it
    (True, (int, bool), 1),
    (True, (int, Any), 1),
    (True, (int, object), 1),
    (True, (int, bool | str), 1),
    (True, (int, int | str), 0),
    (True, (int | str, int), 1),
    (True, (int,), 0),
    (True, (str, int | None), 1),
    ([True], (list[int], list[bool]), 1),
    ([True], (list[int], Any), 1),
    ([True], (list[int],), 0),
    (1, (bool, int), 1),
    # nothing
    (1, (str, bool), None),
    (None, (int, str), None),
    (1, (float,), None),
    ([1], (list[str],), None),
]


@pytest.mark.parametrize(("message", "types", "place"), CHOICES)
def test_the_handler_of_a_message(message: Any, types: tuple[Any, ...], place: int | None) -> None:
    executor = _taking(*types)
    found = find_handler(executor, message)
    assert (found and found.name) == (None if place is None else f"h{place}")
    assert executor.can_handle(message) is (place is not None)


def test_mixed_classes_do_not_disturb_the_choice() -> None:
    executor = _taking(int, list[int], Order, str)
    for message, name in [(1, "h0"), ([1], "h1"), (Shipped(), "h2"), ("a", "h3"), (True, "h0")]:
        found = find_handler(executor, message)
        assert found is not None and found.name == name
    assert find_handler(executor, Decimal(1)) is None


def _answered(*pairs: tuple[Any, Any]) -> Executor:
    members: dict[str, Any] = {}
    for place, (request, response) in enumerate(pairs):

        async def on_answer(self: Any, request: Any, response: Any, ctx: Any) -> None: ...

        members[f"h{place}"] = response_handler(request=request, response=response)(on_answer)

    async def on_message(self: Any, message: str, ctx: WorkflowContext) -> None: ...

    members["on_message"] = handler(on_message)
    return type("Answered", (Executor,), members)("answered")  # type: ignore[no-any-return]


RESPONSES = [
    (Paid(), True, ((Order, bool), (Paid, bool)), 1),
    (Paid(), 3, ((Paid, bool), (Order, int)), 1),
    (Paid(), True, ((Paid, int), (Paid, bool)), 1),
    (Paid(), True, ((Paid, int),), 0),
    (Paid(), None, ((Paid, str), (Paid, str | None)), 1),
    (Paid, bool, ((Order, int), (Order, bool)), 1),
    (Paid, bool, ((Order, int),), 0),
    (Order, str, ((Order, str | None), (Order, str)), 1),
    (Order, str | None, ((Order, str), (Order, str | None)), 1),
    (Order, str | None, ((Order, Any), (Order, str | None)), 1),
    (Order, bool, ((Order, int), (Order, Any)), 1),
    (Order, list[int], ((Order, list[str]), (Order, list[int])), 1),
    (Paid(), str, ((Paid, int), (Any, Any)), 1),
    (Paid(), OrderId, ((Paid, object), (Paid, str)), 1),
    (Paid(), str, ((Paid, object), (Paid, OrderId)), 1),
    (Paid(), bool, ((Paid, Whole), (Paid, object)), 1),
    (Paid(), "x", ((Paid, int),), None),
    (Order(), 1, ((Paid, int),), None),
    (Order, int, ((Paid, int),), None),
]


@pytest.mark.parametrize(("request_", "response", "pairs", "place"), RESPONSES)
def test_the_handler_of_an_answer(request_: Any, response: Any, pairs: Any, place: int | None) -> None:
    found = find_response_handler(_answered(*pairs), request_, response)
    assert (found and found.name) == (None if place is None else f"h{place}")


def test_whether_a_request_can_be_answered() -> None:
    executor = _answered((Order, bool | None))
    assert executor.is_request_supported(Paid, bool)
    assert not executor.is_request_supported(Paid, str)
    assert not executor.is_request_supported(str, bool)
