"""The registry: what can be registered, and which mistakes are found at registration."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import pytest

from branchpoint.codec import (
    decode,
    encode,
    is_registered,
    isolated_registry,
    new_parts,
    register_state_type,
    registered_type,
    type_id_of,
)
from branchpoint.errors import (
    CorruptCheckpointError,
    DefinitionError,
    UnknownVersionError,
    UnregisteredTypeError,
    UnsupportedValueError,
)


@pytest.fixture(autouse=True)
def isolated() -> Iterator[None]:
    with isolated_registry():
        yield


def kept(value: Any) -> Any:
    encoded, _ = encode(value, format="json")
    return decode(encoded.data, new_parts(encoded, ()), format="json")


@dataclasses.dataclass
class Order:
    number: int


def test_every_form_of_registration_works() -> None:
    @register_state_type("shop.a")
    @dataclasses.dataclass
    class A:
        x: int

    @register_state_type
    @dataclasses.dataclass
    class B:
        x: int

    @register_state_type(version=3)
    @dataclasses.dataclass
    class C:
        x: int

    assert register_state_type(Order, type_id="shop.order") is Order
    assert type_id_of(A) == "shop.a"
    assert type_id_of(B).endswith("test_every_form_of_registration_works.<locals>.B")
    assert registered_type("shop.order") is Order
    for value in (A(1), B(2), C(3), Order(4)):
        assert kept([value]) == [value]


def test_what_is_registered_in_an_isolated_block_is_gone_after_it() -> None:
    with isolated_registry():
        register_state_type(Order)
        assert is_registered(Order)
    assert not is_registered(Order)
    with pytest.raises(UnregisteredTypeError, match="not registered"):
        type_id_of(Order)
    with pytest.raises(UnregisteredTypeError, match=r"no class is registered as 'shop\.order'"):
        registered_type("shop.order")


def test_one_class_has_one_id_and_one_id_one_class() -> None:
    register_state_type(Order, type_id="shop.order")
    register_state_type(Order, type_id="shop.order")
    with pytest.raises(DefinitionError, match=r"already registered as 'shop\.order'"):
        register_state_type(Order, type_id="shop.other")

    @dataclasses.dataclass
    class Other:
        x: int

    with pytest.raises(DefinitionError, match=r"already belongs to .*\.Order"):
        register_state_type(Other, type_id="shop.order")


@pytest.mark.parametrize(
    "type_id", ["", "$x", "a b", "a,b", "a[int]", "a|b", "tuple", "int", "None", 'a"b', 5]
)
def test_a_type_id_must_be_usable_in_a_type_expression_and_free(type_id: Any) -> None:
    with pytest.raises(DefinitionError, match="type id"):
        register_state_type(Order, type_id=type_id)


def test_wrong_registrations_say_what_to_do() -> None:
    class Bare:
        pass

    @dataclasses.dataclass
    class Failing(Exception):
        x: int

    @dataclasses.dataclass
    class Listlike(list[int]):
        x: int = 1

    for cls in (Bare, Failing, Listlike):
        with pytest.raises(DefinitionError, match=r"encoder= and a decoder="):
            register_state_type(cls, type_id="x")
    with pytest.raises(DefinitionError, match="both encoder and decoder"):
        register_state_type(Bare, type_id="x", encoder=lambda value: 1)
    with pytest.raises(DefinitionError, match="kept by the format itself"):
        register_state_type(dict, type_id="x")
    with pytest.raises(DefinitionError, match="version must be"):
        register_state_type(Order, version=0)
    with pytest.raises(DefinitionError, match=r"upgrades\[2\] leads nowhere"):
        register_state_type(Order, version=2, upgrades={2: lambda payload: payload})
    with pytest.raises(DefinitionError, match="only a class"):
        register_state_type(lambda: 1)  # type: ignore[call-overload]


def test_a_class_of_the_main_script_gets_a_warning() -> None:
    main = type("Order", (Order,), {"__module__": "__main__"})
    with pytest.warns(UserWarning, match="only this script knows"):
        register_state_type(main)


def test_an_encoder_of_ones_own_may_return_any_value_that_can_be_kept() -> None:
    class Money:
        def __init__(self, amount: int, currency: str) -> None:
            self.amount, self.currency = amount, currency

    register_state_type(
        Money,
        type_id="shop.money",
        encoder=lambda value: (value.amount, value.currency),
        decoder=lambda payload: Money(*payload),
    )
    back = kept({"price": Money(5, "EUR")})["price"]
    assert (type(back), back.amount, back.currency) == (Money, 5, "EUR")


def test_an_encoder_or_decoder_that_fails_is_named_with_the_path() -> None:
    class Odd:
        pass

    def fail(value: Any) -> Any:
        raise RuntimeError("out of luck")

    register_state_type(Odd, type_id="odd", encoder=fail, decoder=fail)
    with pytest.raises(UnsupportedValueError, match=r"at x\.a\[0\] .*encoder of 'odd' raised RuntimeError"):
        encode({"a": [Odd()]}, format="json", path="x")
    with pytest.raises(CorruptCheckpointError, match=r"at x\.a\[0\] .*decoder of 'odd' refused"):
        decode(b'{"a":[{"$":"odd","v":1}]}', {}, format="json", path="x")


def test_an_encoder_that_returns_its_own_value_is_too_deep_rather_than_endless() -> None:
    class Self:
        pass

    register_state_type(Self, type_id="self", encoder=lambda value: value, decoder=lambda payload: payload)
    with pytest.raises(UnsupportedValueError):
        encode(Self(), format="json")


def test_versions_go_up_step_by_step_and_never_down() -> None:
    steps: list[int] = []

    def upgrade(number: int) -> Any:
        def step(payload: dict[str, Any]) -> dict[str, Any]:
            steps.append(number)
            return {**payload, f"f{number}": number}

        return step

    @dataclasses.dataclass
    class V:
        x: int
        f1: int
        f2: int

    register_state_type(V, type_id="v", version=3, upgrades={1: upgrade(1), 2: upgrade(2)})
    assert decode(b'{"$":"v","v":{"x":7}}', {}, format="json") == V(7, 1, 2)
    assert steps == [1, 2]
    data = encode(V(1, 2, 3), format="json")[0].data
    assert data == b'{"$":"v","n":3,"v":{"x":1,"f1":2,"f2":3}}'
    with pytest.raises(UnknownVersionError, match=r"at p .*version 4, .*up to 3"):
        decode(data.replace(b'"n":3', b'"n":4'), {}, format="json", path="p")
    for wrong in (b'"n":1', b'"n":0', b'"n":"3"', b'"n":true'):
        with pytest.raises(CorruptCheckpointError):
            decode(data.replace(b'"n":3', wrong), {}, format="json")


def test_fields_come_back_as_saved_and_nothing_of_the_class_runs() -> None:
    class Quiet(msgspec.Struct, frozen=True):
        x: int

        def __post_init__(self) -> None:
            ran.append("struct")

    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class Frozen:
        x: int
        seed: dataclasses.InitVar[int] = 0
        y: int = dataclasses.field(init=False)

        def __post_init__(self, seed: int) -> None:
            ran.append("dataclass")
            object.__setattr__(self, "y", self.x + seed)

    ran: list[str] = []
    register_state_type(Quiet)
    register_state_type(Frozen)
    values = [Quiet(1), Frozen(x=1, seed=5)]
    ran.clear()
    assert kept(values) == values
    assert ran == []


def test_what_stands_on_an_instance_beside_its_fields_is_kept() -> None:
    T = TypeVar("T")

    @dataclasses.dataclass
    class Box(Generic[T]):
        item: T

    register_state_type(Box)
    box = Box[int](1)  # leaves __orig_class__ behind, which is not part of the value
    box.label = "mine"  # type: ignore[attr-defined]
    back = kept(box)
    assert (back.item, back.label) == (1, "mine")
    assert "__orig_class__" not in vars(back)


def test_a_field_that_was_never_set_stays_unset() -> None:
    @dataclasses.dataclass
    class Late:
        x: int
        y: int = dataclasses.field(init=False)

    register_state_type(Late)
    assert not hasattr(kept(Late(1)), "y")


def test_a_named_tuple_keeps_its_class_and_a_subclass_of_it_is_refused() -> None:
    class P(NamedTuple):
        x: int
        y: int = 2

    class Q(P):
        pass

    register_state_type(P)
    assert type(kept(P(1))) is P
    with pytest.raises(UnregisteredTypeError, match="a subclass is never cut down to its base"):
        encode([Q(1)], format="json")


def test_a_flag_of_unknown_bits_is_kept_where_its_class_allows_it() -> None:
    class Loose(enum.IntFlag):
        A = 1

    register_state_type(Loose)
    assert kept(Loose(9)) == Loose(9)
    assert type(kept(Loose(9))) is Loose
