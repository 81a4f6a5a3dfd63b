"""Parametrised pydantic models come back as the very class they were, however their arguments are spelled."""

from __future__ import annotations

import gc
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Dict, Generic, List, Literal, NewType, Optional, Tuple, TypeVar, Union  # noqa: UP035

import pydantic
import pytest

from branchpoint.codec import (
    Format,
    decode,
    encode,
    is_registered,
    new_parts,
    parse_type_expression,
    register_state_type,
    registered_type,
    type_expression,
    type_id_of,
)
from branchpoint.errors import UnregisteredTypeError, UnsupportedValueError
from tests.unit.codec import value_kinds as kinds

BOTH = pytest.mark.parametrize("format", ["json", "msgpack"])

T = TypeVar("T")
UserId = NewType("UserId", int)


class Holder(pydantic.BaseModel, Generic[T]):
    model_config = {"arbitrary_types_allowed": True}
    content: T


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    with kinds.registered():
        register_state_type(Holder, type_id="test.holder")
        yield


def kept(value: Any, format: Format) -> Any:
    encoded, _ = encode(value, format=format)
    return decode(encoded.data, new_parts(encoded, ()), format=format)


SPELLINGS: list[tuple[Any, str]] = [
    (int, "int"),
    (None, "None"),
    (type(None), "NoneType"),
    (int | None, "int | None"),
    (Optional[int], "typing.Union[int, None]"),  # noqa: UP045
    (int | str, "int | str"),
    (Union[int, str], "typing.Union[int, str]"),  # noqa: UP007
    (Literal["a"] | None, 'Literal["a"] | None'),
    (list[int], "list[int]"),
    (List[int], "typing.List[int]"),  # noqa: UP006
    (List, "typing.List"),  # noqa: UP006
    (list[List[int]], "list[typing.List[int]]"),  # noqa: UP006
    (list[int | None], "list[int | None]"),
    (List[int] | None, "typing.List[int] | None"),  # noqa: UP006
    (dict[str, int], "dict[str, int]"),
    (Dict[str, List[int]], "typing.Dict[str, typing.List[int]]"),  # noqa: UP006
    (tuple[int, ...], "tuple[int, ...]"),
    (Tuple[int, ...], "typing.Tuple[int, ...]"),  # noqa: UP006
    (typing.Sequence[int], "typing.Sequence[int]"),
    (typing.AbstractSet[int], "typing.AbstractSet[int]"),
    (Any, "Any"),
    (kinds.Order, "test.order"),
    (kinds.Crate[int], "test.crate[int]"),
    (kinds.Box[List[int]] | None, "test.box[typing.List[int]] | None"),  # noqa: UP006
]
IDS = [text for _, text in SPELLINGS]


@BOTH
@pytest.mark.parametrize(("argument", "text"), SPELLINGS, ids=IDS)
def test_the_class_that_was_encoded_comes_back(argument: Any, text: str, format: Format) -> None:
    cls: Any = Holder[argument]
    assert type_id_of(cls) == f"test.holder[{text}]"
    assert type(kept(cls.model_construct(content=None), format)) is cls
    assert parse_type_expression(type_expression(list[cls])) == list[cls]


@pytest.mark.parametrize(("argument", "text"), SPELLINGS, ids=IDS)
def test_a_process_that_never_met_the_class_makes_the_one_that_is_spelled_so(
    argument: Any, text: str
) -> None:
    class Cold(pydantic.BaseModel, Generic[T]):
        content: T

    register_state_type(Cold, type_id="test.cold")
    made = registered_type(f"test.cold[{text}]")
    assert made is Cold[argument]
    assert type_id_of(made) == f"test.cold[{text}]"


def test_the_class_that_the_program_has_wins_over_another_spelling_in_the_data() -> None:
    class Changed(pydantic.BaseModel, Generic[T]):
        content: T

    register_state_type(Changed, type_id="test.changed")
    now: Any = Changed[int | None]  # the data was written when the program said Optional[int]
    data = b'{"$":"test.changed[typing.Union[int, None]]","v":{"content":1}}'
    assert type(decode(data, {}, format="json")) is now
    other: Any = Changed[Optional[int]]  # noqa: UP045
    if other is not now:  # one class from Python 3.14 on
        assert type(kept(other(content=1), "json")) is other
        assert type(kept(now(content=1), "json")) is now
        assert type(decode(data, {}, format="json")) is other


def test_a_class_that_pydantic_forgot_is_made_again() -> None:
    encoded, _ = encode(kinds.Box[List[int]](content=[1]), format="json")  # noqa: UP006
    gc.collect()
    assert type(decode(encoded.data, {}, format="json")) is kinds.Box[List[int]]  # noqa: UP006


class Unknown:
    """Not registered."""


@BOTH
@pytest.mark.parametrize(
    ("argument", "why"),
    [
        (Annotated[int, pydantic.Field(gt=0)], "says more than a stored name can"),
        (list[Annotated[int, pydantic.Field(gt=0)]], "says more than a stored name can"),
        (UserId, "says more than a stored name can"),
        (Unknown, r"Unknown' is not registered"),
        (list[Unknown], r"Unknown' is not registered"),
        (typing.Callable[[int], str], "cannot be written as a type expression"),
        (kinds.Box[Annotated[int, pydantic.Field(gt=0)]], "says more than a stored name can"),
    ],
)
def test_an_argument_that_no_text_can_say_is_refused_and_never_dropped(
    argument: Any, why: str, format: Format
) -> None:
    cls: Any = Holder[argument]
    value = cls.model_construct(content=None)
    with pytest.raises(
        (UnsupportedValueError, UnregisteredTypeError), match=rf"at a\.b\[0\].*{why}.*type_id of its own"
    ):
        encode([value], format=format, path="a.b")
    assert not is_registered(cls)
    register_state_type(cls, type_id="test.precise")
    assert type(kept(value, format)) is cls
    assert is_registered(cls)


@pytest.mark.parametrize(
    "text", ["int|None", "typing.Union", "typing.Union[int, str, ]", "Annotated[int]", "int, int", ""]
)
def test_an_id_that_would_be_written_otherwise_is_unknown(text: str) -> None:
    with pytest.raises(UnregisteredTypeError):
        registered_type(f"test.holder[{text}]")


def test_a_generic_model_with_a_codec_of_its_own_is_not_cut_down_to_its_origin() -> None:
    class Own(pydantic.BaseModel, Generic[T]):
        content: T

    register_state_type(
        Own, type_id="test.own", encoder=lambda own: own.content, decoder=lambda x: Own(content=x)
    )
    assert type(kept(Own(content=1), "json")) is Own
    with pytest.raises(UnregisteredTypeError, match="never cut down to its base"):
        encode(Own[int](content=1), format="json")
