"""Strategies of hypothesis for values, states and checkpoint ids, and what "the same value" means.

`values()` draws from every builtin kind and from the registered types below; those need
`registered_types()` around the test. `states()` and `checkpoint_ids()` are what a storage is given.
Needs the extra `testing`.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import math
import pathlib
import zoneinfo
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple

import msgspec
from hypothesis import strategies as st

from branchpoint.codec import isolated_registry, register_state_type
from branchpoint.testing.samples import small_state

__all__ = [
    "ATOMS",
    "KEYS",
    "PLAIN_ATOMS",
    "REGISTERED",
    "Derived",
    "Fixed",
    "Item",
    "Level",
    "Mode",
    "Name",
    "Order",
    "Pair",
    "Point",
    "Right",
    "checkpoint_ids",
    "plain_values",
    "registered_types",
    "same",
    "states",
    "values",
]


class Mode(enum.Enum):
    FAST = 1
    SLOW = "slow"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Name(enum.StrEnum):
    LEFT = "left"
    RIGHT = "right"


class Right(enum.Flag):
    READ = 1
    WRITE = 2
    RUN = 4


@dataclass
class Order:
    number: int
    items: list[Any]
    note: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: Any
    y: Any = 0.0


@dataclass
class Derived:
    """Has what `__init__` alone cannot give back."""

    base: Any
    seed: InitVar[int] = 1
    total: Any = field(init=False)

    def __post_init__(self, seed: int) -> None:
        self.total = seed
        self.beside = [seed]


class Item(msgspec.Struct):
    sku: str
    data: Any = None


class Fixed(msgspec.Struct, frozen=True, kw_only=True):
    a: Any
    b: Any = None

    def __post_init__(self) -> None:
        if self.a == "never":
            raise AssertionError


class Pair(NamedTuple):
    left: Any
    right: Any = None


REGISTERED = (Mode, Level, Name, Right, Order, Point, Derived, Item, Fixed, Pair)


@contextmanager
def registered_types() -> Iterator[None]:
    """Register the types of this file inside the block."""
    with isolated_registry():
        for cls in REGISTERED:
            register_state_type(cls, type_id=f"strategies.{cls.__name__.lower()}")
        yield


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_ZONES = st.one_of(
    st.none(),
    st.just(datetime.UTC),
    st.builds(datetime.timezone, st.timedeltas(datetime.timedelta(hours=-23), datetime.timedelta(hours=23))),
    st.just(datetime.timezone(datetime.timedelta(hours=1), "named")),
    st.sampled_from(["Europe/Lisbon", "America/New_York", "Asia/Kolkata", "UTC"]).map(zoneinfo.ZoneInfo),
)
_FLOATS = st.floats() | st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf, -math.inf, 5e-324, 1e22])
_INTS = st.one_of(
    st.integers(-3, 300),
    st.integers(),
    st.sampled_from([2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 10**4000]),
)

ATOMS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    _INTS,
    _FLOATS,
    _TEXT,
    st.sampled_from(["$", "$p", "\x00", "\u2028", "x" * 90, "y" * 1500]),
    st.binary(max_size=12) | st.just(b"z" * 1200),
    st.builds(bytearray, st.binary(max_size=12)),
    st.complex_numbers(),
    st.decimals() | st.sampled_from([decimal.Decimal(x) for x in ("1.10", "-0", "1E+30", "sNaN", "NaN12")]),
    st.fractions(),
    st.builds(
        lambda moment, zone, fold: moment.replace(tzinfo=zone, fold=fold),
        st.datetimes(),
        _ZONES,
        st.sampled_from([0, 1]),
    ),
    st.builds(
        lambda time, zone, fold: time.replace(tzinfo=zone, fold=fold),
        st.times(),
        _ZONES,
        st.sampled_from([0, 1]),
    ),
    st.dates(),
    st.timedeltas(),
    _ZONES,
    st.uuids(),
    st.sampled_from([pathlib.PurePosixPath("a/b"), pathlib.PureWindowsPath("c:\\d"), pathlib.Path("/e")]),
    st.builds(range, st.integers(-5, 5), st.integers(-5, 5), st.sampled_from([1, -2])),
    st.builds(slice, st.integers() | st.none(), st.integers() | st.none()),
    st.sampled_from([*Mode, *Level, *Name, Right.READ, Right.READ | Right.RUN, Right(0)]),
)

KEYS: st.SearchStrategy[Any] = st.one_of(
    _TEXT,
    st.sampled_from(["$", "$p", "$l", "$d", "n", "v", "k" * 200]),
    st.integers(-3, 3),
    st.booleans(),
    st.none(),
    st.floats(allow_nan=False),
    st.binary(max_size=4),
    st.dates(),
    st.sampled_from([Mode.FAST, Level.HIGH, Name.LEFT, Right.READ | Right.WRITE]),
    st.tuples(st.integers(0, 3), _TEXT),
    st.builds(Point, x=st.integers(0, 3)),
    st.frozensets(st.integers(0, 5), max_size=3),
)

PLAIN_ATOMS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.0, -0.0, 1.0, 2.5]),
    _TEXT,
    st.sampled_from(["x" * 120, "y" * 700]),
)
"""What JSON has, with the pairs that are equal for Python and different for us."""


def _records(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def derived(base: Any, total: Any, extra: Any) -> Derived:
        value = Derived(base, 7)
        value.total = total
        value.beside = [extra]
        return value

    return st.one_of(
        st.builds(Order, number=st.integers(), items=st.lists(inner, max_size=3), note=inner),
        st.builds(Point, x=inner, y=inner),
        st.builds(derived, inner, inner, inner),
        st.builds(Item, sku=_TEXT, data=inner),
        st.builds(Fixed, a=inner, b=inner),
        st.builds(Pair, inner, inner),
    )


@st.composite
def _moved(draw: st.DrawFn, mapping: st.SearchStrategy[Any]) -> collections.OrderedDict[Any, Any]:
    """An OrderedDict, some of whose keys were moved: then its order is not that of the dict below it."""
    value = collections.OrderedDict(draw(mapping))
    for key in draw(st.lists(st.sampled_from(list(value)), max_size=3)) if value else ():
        value.move_to_end(key, last=draw(st.booleans()))
    return value


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    mapping = st.dictionaries(KEYS, inner, max_size=5)
    return st.one_of(
        st.lists(inner, max_size=6),
        st.lists(inner, max_size=6).map(tuple),
        st.dictionaries(_TEXT, inner, max_size=5),
        mapping,
        st.sets(KEYS, max_size=6),
        st.frozensets(KEYS, max_size=6),
        st.builds(collections.deque, st.lists(inner, max_size=4), st.sampled_from([None, 4, 10])),
        _moved(mapping),
        st.dictionaries(KEYS, st.integers(-2, 9), max_size=5).map(collections.Counter),
        st.builds(collections.defaultdict, st.sampled_from([None, int, list, dict, set]), mapping),
        _records(inner),
        st.builds(lambda item, count: [item] * count, inner, st.sampled_from([3, 40, 300])),
        st.builds(lambda keys, item: {f"k{n}": item for n in range(keys)}, st.sampled_from([3, 90]), inner),
    )


def values(max_leaves: int = 12) -> st.SearchStrategy[Any]:
    """Values of every kind that the codec keeps, small and large."""
    return st.recursive(ATOMS, _containers, max_leaves=max_leaves)


def plain_values(max_leaves: int = 20) -> st.SearchStrategy[Any]:
    """Values of exact None, bool, int, float, str, list, dict with text keys, and tuple."""
    return st.recursive(
        PLAIN_ATOMS,
        lambda inner: st.one_of(
            st.lists(inner, max_size=6), st.lists(inner, max_size=3).map(tuple), st.dictionaries(_TEXT, inner)
        ),
        max_leaves=max_leaves,
    )


def states(shared: st.SearchStrategy[Any] | None = None) -> st.SearchStrategy[dict[str, Any]]:
    """Complete states that a checkpoint commits, with these shared values; by default plain ones.

    Example:
        >>> from branchpoint.testing import strategies
        >>> found = strategies.states().example()  # doctest: +SKIP
        >>> sorted(found)  # doctest: +SKIP
        ['edge_states', 'executor_states', 'messages', 'workflow_state']
    """
    values = st.dictionaries(_TEXT, plain_values() if shared is None else shared, max_size=5)
    asked = st.lists(st.sampled_from(["r1", "r2", "r3"]), unique=True, max_size=2)
    return st.builds(
        lambda superstep, requests, found: small_state(superstep, requests=requests, value=found),
        st.integers(0, 5),
        asked,
        values,
    )


def checkpoint_ids() -> st.SearchStrategy[str]:
    """Ids that every storage takes, and that a careless one confuses: case, Unicode form, separators, length."""
    legal = st.characters(exclude_categories=["Cc", "Cs"])
    near = st.text(st.sampled_from("aAäÄéE\u0301/\\.:*%_~ -#{}"), min_size=1, max_size=6)
    return st.one_of(
        near, st.text(legal, min_size=1, max_size=20), st.text(legal, min_size=512, max_size=512)
    )


def same(left: Any, right: Any) -> bool:
    """Whether two values are the same for a reader: types, values, order, signs and NaN."""
    if type(left) is not type(right):
        return False
    if isinstance(left, enum.Enum):
        return bool(left is right)
    if isinstance(left, float):
        return (math.isnan(left) and math.isnan(right)) or (
            left == right and math.copysign(1, left) == math.copysign(1, right)
        )
    if isinstance(left, complex):
        return same(left.real, right.real) and same(left.imag, right.imag)
    if isinstance(left, decimal.Decimal):
        return bool(left.as_tuple() == right.as_tuple())
    if isinstance(left, (datetime.datetime, datetime.time)):
        return (
            left.replace(tzinfo=None) == right.replace(tzinfo=None)
            and left.fold == right.fold
            and same(left.tzinfo, right.tzinfo)
        )
    if isinstance(left, datetime.timezone):
        return bool(left == right and left.tzname(None) == right.tzname(None))
    if isinstance(left, (dict, collections.OrderedDict)):
        return (
            len(left) == len(right)
            and all(
                same(a, b) and same(c, d) for (a, c), (b, d) in zip(left.items(), right.items(), strict=True)
            )
            and getattr(left, "default_factory", None) is getattr(right, "default_factory", None)
        )
    if isinstance(left, collections.deque):
        return left.maxlen == right.maxlen and same(list(left), list(right))
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, (set, frozenset)):
        rest = list(right)
        for item in left:
            found = next((place for place, other in enumerate(rest) if same(item, other)), None)
            if found is None:
                return False
            del rest[found]
        return not rest
    if is_dataclass(left):
        names = {one.name for one in fields(left)} | set(getattr(left, "__dict__", ()))
        return all(same(getattr(left, name), getattr(right, name)) for name in names)
    if isinstance(left, msgspec.Struct):
        return all(same(getattr(left, name), getattr(right, name)) for name in left.__struct_fields__)
    return bool(left == right)
