"""Records come back with what they hold and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from branchpoint.codec import (
    Format,
    copy_value,
    decode,
    encode,
    fingerprint,
    isolated_registry,
    new_parts,
    register_state_type,
)
from branchpoint.errors import UnregisteredTypeError

BOTH = pytest.mark.parametrize("format", ["json", "msgpack"])


class Patch(msgspec.Struct):
    name: str | msgspec.UnsetType
    note: str | msgspec.UnsetType | None = msgspec.UNSET
    size: Annotated[int | msgspec.UnsetType, "size"] = 3
    plain: int = 4


class Guarded(msgspec.Struct):
    items: list[int]

    def __copy__(self) -> Guarded:
        raise AssertionError("its own copy")


class Hashed(msgspec.Struct, frozen=True, cache_hash=True):
    a: int
    b: tuple[int, ...] = ()


class Root(pydantic.RootModel[list[int]]):
    pass


class Secret(pydantic.RootModel[list[int]]):
    _seen: int = pydantic.PrivateAttr(default=3)


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    with isolated_registry():
        for cls in (Patch, Guarded, Hashed, Root, Secret):
            register_state_type(cls, type_id=f"test.{cls.__name__.lower()}")
        yield


def kept(value: Any, format: Format) -> Any:
    encoded, _ = encode(value, format=format)
    return decode(encoded.data, new_parts(encoded, ()), format=format)


UNSET = msgspec.UNSET


@BOTH
@pytest.mark.parametrize(
    "value",
    [
        Patch("a"), Patch(UNSET), Patch(UNSET, UNSET, UNSET), Patch("a", None), Patch("a", UNSET, UNSET),
        Patch("a", "b", 5, 6), Patch(UNSET, None, 3, 4),
    ],
)  # fmt: skip
def test_an_unset_field_is_left_out_and_unset_again(value: Patch, format: Format) -> None:
    found = kept([value], format)[0]
    assert found == value
    for name in ("name", "note", "size"):
        assert (getattr(found, name) is UNSET) == (getattr(value, name) is UNSET)


def test_an_unset_field_takes_no_bytes_and_needs_to_be_declared() -> None:
    assert encode(Patch(UNSET), format="json")[0].data == b'{"$":"test.patch","v":{"size":3,"plain":4}}'
    with pytest.raises(UnregisteredTypeError, match=r"UnsetType at p\.plain"):
        encode(Patch("a", plain=UNSET), format="json", path="p")  # type: ignore[arg-type]


@BOTH
def test_a_struct_that_copies_itself_in_its_own_way_is_decoded_without_it(format: Format) -> None:
    assert kept(Guarded([1]), format) == Guarded([1])
    assert copy_value(Guarded([1])) == Guarded([1])


@BOTH
def test_a_hash_that_was_asked_for_is_no_change(format: Format) -> None:
    value = Hashed(1, (2,))
    before = fingerprint(value)
    assert hash(value) == hash(Hashed(1, (2,)))
    assert fingerprint(value) == before == fingerprint(kept(value, format))
    assert fingerprint(value) != fingerprint(Hashed(2, (2,)))
    assert fingerprint([value]) == fingerprint([Hashed(1, (2,))])
    assert hash(kept(value, format)) == hash(value)


@BOTH
@pytest.mark.parametrize("cls", [Root, Secret])
def test_a_root_model_holds_what_it_held_and_nothing_else(cls: Any, format: Format) -> None:
    value = cls([1, 2])
    found = kept(value, format)
    assert found == value
    assert found.__dict__ == value.__dict__
    assert found.__pydantic_fields_set__ == value.__pydantic_fields_set__
    assert found.__pydantic_private__ == value.__pydantic_private__
    assert found.__pydantic_extra__ == value.__pydantic_extra__
    assert fingerprint(found) == fingerprint(value)
