from __future__ import annotations

import collections
import collections.abc
import datetime
import decimal
import enum
import sys
import typing
from dataclasses import dataclass
from typing import Any, Generic, Literal, NewType, Optional, TypeVar, Union

import pytest

from branchpoint import errors
from branchpoint.codec import parse_type_expression, register_state_type, type_expression
from tests.unit.codec import value_kinds as kinds

T = TypeVar("T")
UserId = NewType("UserId", str)


@pytest.fixture(autouse=True)
def registry() -> Any:
    with kinds.registered():
        yield


ROUND_TRIPS: list[tuple[Any, str]] = [
    (int, "int"),
    (type(None), "None"),
    (Any, "Any"),
    (typing.Never, "Never"),
    (object, "object"),
    (bytes, "bytes"),
    (list, "list"),
    (list[int], "list[int]"),
    (list[None], "list[None]"),
    (dict[str, Any], "dict[str, Any]"),
    (tuple[int, ...], "tuple[int, ...]"),
    (tuple[int, str], "tuple[int, str]"),
    (tuple[()], "tuple[()]"),
    (set[str], "set[str]"),
    (frozenset[str], "frozenset[str]"),
    (str | None, "str | None"),
    (None | str, "None | str"),
    (list[int | None] | dict[str, list[bool]], "list[int | None] | dict[str, list[bool]]"),
    (Literal["a", 1, True, None, b"\xff"], 'Literal["a", 1, None, True, b"\\u00ff"]'),
    (Literal['with "quotes", | and ]', -3], 'Literal["with \\"quotes\\", | and ]", -3]'),
    (Literal[kinds.Color.RED], "Literal[test.color.RED]"),
    (kinds.Order, "test.order"),
    (list[kinds.Order] | kinds.Color, "list[test.order] | test.color"),
    (kinds.Box[int], "test.box[int]"),
    (kinds.Box[list[kinds.Order]], "test.box[list[test.order]]"),
    (kinds.Crate[str], "test.crate[str]"),
    (datetime.datetime, "datetime.datetime"),
    (decimal.Decimal | float, "decimal.Decimal | float"),
    (collections.deque[int], "collections.deque[int]"),
    (collections.OrderedDict[str, int], "collections.OrderedDict[str, int]"),
    (collections.Counter[str], "collections.Counter[str]"),
    (collections.abc.Sequence[int], "collections.abc.Sequence[int]"),
    (collections.abc.Mapping[str, int], "collections.abc.Mapping[str, int]"),
]


@pytest.mark.parametrize(("tp", "text"), ROUND_TRIPS, ids=[text for _, text in ROUND_TRIPS])
def test_types_are_written_and_read_back(tp: Any, text: str) -> None:
    assert type_expression(tp) == text
    assert parse_type_expression(text) == tp
    assert type_expression(parse_type_expression(text)) == text


@pytest.mark.parametrize(
    ("tp", "text"),
    [
        (None, "None"),
        (Optional[int], "int | None"),  # noqa: UP045
        (Union[int, str], "int | str"),  # noqa: UP007
        (typing.List, "list"),  # noqa: UP006
        (typing.List[int], "list[int]"),  # noqa: UP006
        (typing.Tuple, "tuple"),  # noqa: UP006
        (typing.Sequence[int], "collections.abc.Sequence[int]"),
        (typing.Annotated[int, "positive"], "int"),
        (list[typing.Annotated[int, "positive"]], "list[int]"),
        (UserId, "str"),
        (T, "Any"),
        (TypeVar("Bound", bound=int), "int"),
        (typing.NoReturn, "Never"),
    ],
)
def test_other_spellings_are_written_in_one_way(tp: Any, text: str) -> None:
    assert type_expression(tp) == text


@pytest.mark.parametrize("text", [" list[ int ]", "list[int]|None", "dict[str,int]"])
def test_spaces_do_not_matter_when_reading(text: str) -> None:
    parse_type_expression(text)


def test_an_unregistered_class_is_written_and_its_reading_says_what_to_do() -> None:
    text = type_expression(list[kinds.Plain])
    assert text == "list[tests.unit.codec.value_kinds.Plain]"
    with pytest.raises(errors.UnregisteredTypeError, match=r"value_kinds\.Plain.*register_state_type"):
        parse_type_expression(text)


def test_a_local_class_has_a_readable_text() -> None:
    @dataclass
    class Local:
        pass

    assert "<locals>.Local" in type_expression(Local)
    with pytest.raises(errors.UnregisteredTypeError):
        parse_type_expression(type_expression(Local | None))
    register_state_type(Local)
    assert parse_type_expression(type_expression(list[Local])) == list[Local]


def test_nothing_is_imported_by_a_name_in_the_text() -> None:
    assert "antigravity" not in sys.modules
    for text in ("antigravity", "antigravity.x", "Literal[antigravity.x]", "os.system"):
        with pytest.raises(errors.UnregisteredTypeError):
            parse_type_expression(text)
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "[int]",
        "list[",
        "list[]",
        "list[int",
        "list[int]]",
        "list[int, str]",
        "dict[str]",
        "int[str]",
        "int |",
        "| int",
        "int int",
        "tuple[...]",
        "tuple[int, ..., str]",
        "list[...",
        "Literal",
        "Literal[]",
        "Literal[1.5]",
        'Literal["a]',
        'Literal[b"\\u0100"]',
        "Literal[test.color.BLUE]",
        "Literal[test.order.id]",
        "'int'",
        '"int"',
        "test.order[int]",
        "None[int]",
        "list[" * 200 + "int" + "]" * 200,
        "Literal[" + "9" * 5000 + "]",
    ],
)
def test_what_is_no_expression_is_damage(text: str) -> None:
    with pytest.raises((errors.CorruptCheckpointError, errors.UnregisteredTypeError)) as caught:
        parse_type_expression(text)
    if not any(word in text for word in ("1.5", "...", "9999")):
        assert isinstance(caught.value, errors.CorruptCheckpointError)


@pytest.mark.parametrize("text", [None, 3, b"int", ["int"]])
def test_what_is_no_text_is_damage(text: Any) -> None:
    with pytest.raises(errors.CorruptCheckpointError):
        parse_type_expression(text)


@pytest.mark.parametrize(
    "tp",
    [
        collections.abc.Callable[[int], str],
        "int",
        list[typing.ForwardRef("Missing")],
        3,
        Literal[kinds.Right.READ | kinds.Right.WRITE],
    ],
)
def test_what_has_no_text_is_a_mistake_of_the_definition(tp: Any) -> None:
    with pytest.raises(errors.DefinitionError):
        type_expression(tp)


def test_a_type_id_that_means_something_else_in_expressions_is_told() -> None:
    class Odd(enum.Enum):
        A = 1

    register_state_type(Odd, type_id="object")
    with pytest.raises(errors.DefinitionError, match="another type_id"):
        type_expression(Odd)


def test_generic_dataclasses_take_arguments() -> None:
    @dataclass
    class Own(Generic[T]):
        x: T

    register_state_type(Own, type_id="own.id-with/odd:chars")
    text = type_expression(Own[int] | None)
    assert text == "own.id-with/odd:chars[int] | None"
    assert parse_type_expression(text) == Own[int] | None
