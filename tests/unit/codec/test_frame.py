"""A frame that remembers what it was made of gives the bytes of one that remembers nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from branchpoint.codec import Encoded, Format, Frame, Level, Settled, encode, encode_state

BOTH = pytest.mark.parametrize("format", ["json", "msgpack"])


class Growing:
    """A state whose dict of values changes as an engine changes it: by `with_`, or made anew.

    Attributes:
        plain: The same without anything that could be remembered.
    """

    def __init__(self, format: Format, seed: int, count: int) -> None:
        self.format = format
        self.chance = random.Random(seed)
        self.plain: dict[str, Encoded] = {f"name-{number}": self.value() for number in range(count)}
        self.settled = Settled(self.plain)

    def value(self) -> Encoded:
        size = self.chance.choice([0, 1, 30, 90, 150, 600, 2000])
        made, _ = encode(["x" * size, self.chance.random()], format=self.format)
        return made

    def state(self, settled: dict[str, Any], number: int) -> dict[str, Any]:
        return {
            "workflow_state": {"iteration_count": number, "status": "idle", "shared": settled},
            "executor_states": settled,
            "edge_states": Settled(),
            "messages": {"input": {}, "pending": {"deliveries": [], "requests": {}}, "output": []},
        }

    def change(self, count: int) -> None:
        names = self.chance.sample(list(self.plain), min(count, len(self.plain)))
        changes = {name: self.value() for name in names}
        self.settled = self.settled.with_(changes)
        self.plain.update(changes)

    def insert(self, place: int | None = None) -> None:
        entries = list(self.plain.items())
        place = self.chance.randrange(len(entries) + 1) if place is None else place
        entries.insert(place, (f"new-{self.chance.random()}", self.value()))
        self.plain = dict(entries)
        self.settled = Settled(self.plain)

    def remove(self) -> None:
        if self.plain:
            del self.plain[self.chance.choice(list(self.plain))]
            self.settled = Settled(self.plain)


def steps(growing: Growing) -> Iterator[str]:
    """Mostly a change of one entry, as a superstep makes it."""
    kinds = ["one"] * 12 + [
        "few",
        "many",
        "insert",
        "append",
        "append",
        "remove",
        "twice",
        "again",
        "anew",
        "same",
    ]
    for _ in range(60):
        kind = growing.chance.choice(kinds)
        if kind == "one":
            growing.change(1)
        elif kind == "few":
            growing.change(growing.chance.randrange(2, 6))
        elif kind == "many":
            growing.change(40)
        elif kind == "insert":
            growing.insert()
        elif kind == "append":
            growing.insert(len(growing.plain))
        elif kind == "remove":
            growing.remove()
        elif kind == "twice":  # one of them is never encoded
            growing.change(1)
            growing.change(1)
        elif kind == "anew":
            growing.settled = Settled(growing.plain)
        elif kind == "same":
            growing.settled = growing.settled.with_({})
        yield kind


@BOTH
@pytest.mark.parametrize("count", [0, 1, 10, 31, 32, 64, 200, 700])
def test_a_frame_that_remembers_has_the_bytes_of_one_that_does_not(format: Format, count: int) -> None:
    growing = Growing(format, count, count)
    memo: Level | None = None
    for number, kind in enumerate(steps(growing)):
        part, kept = encode_state(Frame(growing.state(growing.settled, number)), format=format, memo=memo)
        fresh, _ = encode_state(growing.state(dict(growing.plain), number), format=format)
        assert part.digest == fresh.digest, (number, kind)
        assert part.data == fresh.data
        if growing.chance.random() < 0.9:  # else the commit failed, and what came before is remembered
            memo = kept


def test_a_settled_dict_tells_what_changed_since_the_one_it_was_made_of_and_no_other() -> None:
    first = Settled(a=1, b=2)
    second = first.with_({"a": 3})
    third = second.with_({"b": 4})
    assert (first, second, third) == ({"a": 1, "b": 2}, {"a": 3, "b": 2}, {"a": 3, "b": 4})
    assert third.changed_since(second) == ("b",)
    assert third.changed_since(third) == ()
    assert third.changed_since(first) is None
    assert second.changed_since(first) is None  # it keeps nothing of those before it any more
    assert third.changed_since(None) is None
