"""What is refused, and how it is told: with what is wrong, in which type, and where."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from branchpoint.codec import Format, decode, encode, isolated_registry, register_state_type
from branchpoint.errors import (
    CorruptCheckpointError,
    DefinitionError,
    UnknownVersionError,
    UnsupportedValueError,
)

BOTH = pytest.mark.parametrize("format", ["json", "msgpack"])
LONE = "\ud800"


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    with isolated_registry():
        yield


@dataclasses.dataclass
class Note:
    text: Any
    more: Any = None


class Wrapped:
    def __init__(self, value: Any) -> None:
        self.value = value


@BOTH
@pytest.mark.parametrize("padding", ["", "x" * 2000])
@pytest.mark.parametrize(
    ("value", "path"),
    [
        (LONE, "p"),
        ([1, LONE], "p[1]"),
        ({"a": LONE}, "p.a"),
        ({LONE: 1}, r"p['\ud800']"),
        ({"a": {1: LONE}}, "p.a[1]"),
        ({"a": {1: {"b": [LONE]}}}, "p.a[1].b[0]"),
        ({(1, 2): LONE}, "p[<tuple>]"),
        ({1: 2, LONE: 3}, r"p['\ud800']"),
        ((1, LONE), "p[1]"),
        ({LONE}, r"p['\ud800']"),
        (collections.deque([1, LONE]), "p[1]"),
        (collections.defaultdict(list, a=LONE), "p.a"),
        (collections.OrderedDict(a=[LONE]), "p.a[0]"),
        (Note([LONE]), "p.text[0]"),
        (Note(1, {2: LONE}), "p.more[2]"),
        (Wrapped({3: LONE}), "p[3]"),
        ([{"a": datetime.timezone(datetime.timedelta(0), LONE)}], "p[0].a"),
        ([datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(0), LONE))], "p[0]"),
        ({1: pathlib.PurePosixPath(LONE)}, "p[1]"),
        ([*range(600), *["x"] * 600, {1: LONE}], "p[1200][1]"),
    ],
)
def test_a_text_without_utf8_form_is_told_with_the_path_in_the_live_value(
    value: Any, path: str, padding: str, format: Format
) -> None:
    register_state_type(Note, type_id="test.note")
    register_state_type(Wrapped, type_id="test.wrapped", encoder=lambda one: one.value, decoder=Wrapped)
    with pytest.raises(UnsupportedValueError, match="lone surrogate") as caught:
        encode({"first": padding, "p": value}, format=format)
    assert f" at {path} cannot be kept" in str(caught.value)


def test_a_text_that_an_encoder_makes_up_is_told_as_well() -> None:
    made = iter([LONE, "fine", "fine"])
    register_state_type(Wrapped, type_id="test.wrapped", encoder=lambda one: next(made), decoder=Wrapped)
    with pytest.raises(UnsupportedValueError, match=r"at p\[0\] .*lone surrogate"):
        encode({"p": [Wrapped(1)]}, format="json")


def test_a_type_id_without_utf8_form_is_refused() -> None:
    with pytest.raises(DefinitionError, match="no UTF-8 form"):
        register_state_type(Note, type_id=LONE)


@BOTH
def test_a_decoder_has_to_return_the_class_it_is_registered_for(format: Format) -> None:
    class Narrow(Wrapped):
        pass

    results: list[Any] = [1, Note, Narrow(1), None]
    for result in results:
        with isolated_registry():
            register_state_type(
                Wrapped, type_id="test.wrapped", encoder=lambda one: 1, decoder=lambda _, made=result: made
            )
            encoded, _ = encode([Wrapped(1)], format=format)
            with pytest.raises(
                CorruptCheckpointError, match=r"at p\[0\] .*decoder of 'test\.wrapped' returned a .*Wrapped"
            ):
                decode(encoded.data, {}, format=format, path="p")


def test_an_upgrade_that_fails_is_told_as_the_upgrade() -> None:
    def upgrade(payload: Any) -> Any:
        raise KeyError("lines")

    register_state_type(Note, type_id="test.note", version=3, upgrades={2: upgrade})
    with pytest.raises(
        UnknownVersionError, match=r"at p .*upgrade of 'test\.note' from version 2 to 3 .*KeyError"
    ) as caught:
        decode(b'{"$":"test.note","v":{"text":1}}', {}, format="json", path="p")
    assert "decoder" not in str(caught.value)


@pytest.mark.parametrize(
    ("junk", "told"),
    [
        (None, "NoneType, and .*dict of its fields"),
        ([], "list, and .*dict of its fields"),
        (Note("x"), r"Note, and .*dict of its fields"),
        ({}, "dict, and .*Note does not take that: its field 'text' is required"),
        ({"text": 1, "rest": 2}, "dict, and .*Note does not take that: it has no field 'rest'"),
        ({1: 2}, "dict, and .*Note does not take that: it has no field 1"),
    ],
)
def test_an_upgrade_that_returns_junk_is_told_as_the_upgrade(junk: Any, told: str) -> None:
    """What was stored is as good as before, so it is not called corrupt."""
    register_state_type(Note, type_id="test.note", version=4, upgrades={1: dict, 2: lambda payload: junk})
    with pytest.raises(
        UnknownVersionError,
        match=rf"at p .*upgrade of 'test\.note' from version 2 to 3 has to be mended: it returned .*{told}",
    ):
        decode(b'{"$":"test.note","v":{"text":1}}', {}, format="json", path="p")


def test_an_upgrade_of_a_custom_codec_that_returns_junk_is_told_as_the_upgrade() -> None:
    def decoder(payload: Any) -> Any:
        return Wrapped(payload["value"])

    register_state_type(
        Wrapped,
        type_id="test.wrapped",
        encoder=lambda one: {"value": one.value},
        decoder=decoder,
        version=2,
        upgrades={1: lambda payload: 7},
    )
    with pytest.raises(
        UnknownVersionError, match=r"from version 1 to 2 has .* int, and the decoder"
    ) as caught:
        decode(b'{"$":"test.wrapped","v":{}}', {}, format="json")
    assert isinstance(caught.value.__cause__, TypeError)
