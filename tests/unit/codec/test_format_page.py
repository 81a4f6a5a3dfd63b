"""The rules of the page on where a writer cuts, held against a writer made from that page alone."""

from __future__ import annotations

import base64
import hashlib
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from branchpoint import codec
from tests.compat.golden_runs import builtin_values, large_values, registered, value_state

LOOSE = {"complex", "fraction", "timedelta", "range", "slice", "deque", "defaultdict"}
PAIRED = {"dict", "ordereddict", "counter"}


@dataclass
class Said:
    who: str
    text: Any


class Writer:
    """Sections 5.3 and 5.4, in JSON: wire trees to parts."""

    def __init__(self) -> None:
        self.parts: dict[str, bytes] = {}

    def part(self, data: bytes) -> str:
        found = hashlib.blake2b(data, digest_size=16).digest()
        digest = base64.urlsafe_b64encode(found).decode().rstrip("=")
        self.parts[digest] = data
        return digest

    def inline(self, data: bytes) -> bytes:
        return data if len(data) <= 96 else b'{"$p":"%s"}' % self.part(data).encode()

    def root(self, tree: Any) -> bytes:
        small = self.frame(tree, 0)
        return small if len(small) <= 768 else self.value(tree, 0)

    def frame(self, tree: Any, depth: int, deepest: int = 2) -> bytes:
        if depth > deepest or type(tree) is not dict or "$" in tree:
            return self.inline(self.value(tree, depth))
        entries = {}
        for key, item in tree.items():
            below = 1 if depth == 0 and key in ("executor_states", "edge_states") else deepest
            entries[key] = msgspec.Raw(self.frame(item, depth + 1, below))
        return msgspec.json.encode(entries)

    def value(self, tree: Any, depth: int, pairs: bool = False, pair: bool = False) -> bytes:
        if type(tree) is dict and "$" in tree:
            kind, payload = tree["$"], tree["v"]
            if kind in LOOSE:
                depth = max(depth, 3)
            if type(payload) is dict and "$" not in payload and self.speaks(tree):
                entries = self.entries(payload, depth + 1)
                return msgspec.json.encode({**tree, "v": msgspec.Raw(self.sequence(entries, b"{%s}", b"$d"))})
            inner = self.value(payload, depth, kind in PAIRED)
            return msgspec.json.encode({**tree, "v": msgspec.Raw(inner)})
        whole = msgspec.json.encode(tree)
        framed = depth <= 2 and (not pair or any(map(self.opens, tree)))
        if type(tree) not in (list, dict) or (len(whole) <= 1024 and not framed and not self.speaks(tree)):
            return whole
        below = depth if pair else depth + 1
        if type(tree) is list:
            items = [self.inline(self.value(item, below, False, pairs)) for item in tree]
            return self.sequence(items, b"[%s]", b"$l")
        return self.sequence(self.entries(tree, below), b"{%s}", b"$d")

    def entries(self, tree: dict[str, Any], depth: int) -> list[bytes]:
        return [
            msgspec.json.encode(key) + b":" + self.inline(self.value(item, depth))
            for key, item in tree.items()
        ]

    def speaks(self, tree: Any) -> bool:
        """Whether there is a tag with a long text among its fields in it, or it is the fields of one itself."""
        if type(tree) is dict and "$" in tree:
            fields = tree["v"]
            long = type(fields) is dict and any(
                type(item) is str and len(item) > 256 for item in fields.values()
            )
            return (long and "$" not in fields) or self.speaks(fields)
        inside = tree if type(tree) is list else tree.values() if type(tree) is dict else ()
        return any(map(self.speaks, inside))

    def opens(self, tree: Any) -> bool:
        if type(tree) is dict and "$" in tree:
            return tree["$"] not in LOOSE and self.opens(tree["v"])
        return type(tree) in (list, dict)

    def sequence(self, items: list[bytes], leaf: bytes, name: bytes) -> bytes:
        segments: list[list[tuple[bytes, int]]] = [[]]
        for item in items:
            crc = zlib.crc32(item)
            segments[-1].append((item, crc))
            if crc % 64 == 0 or len(segments[-1]) == 256:
                segments.append([])
        if not segments[-1] and len(segments) > 1:
            segments.pop()
        inner = b'{"' + name + b'":[%s]}'
        whole = [self.grouped(segment, leaf, inner, 0) for segment in segments]
        if len(whole) == 1:
            return whole[0]
        nodes = [(self.inline(data), segment[-1][1]) for data, segment in zip(whole, segments, strict=True)]
        return self.grouped(nodes, inner, inner, 8)

    def grouped(self, children: list[tuple[bytes, int]], form: bytes, inner: bytes, level: int) -> bytes:
        while sum(len(data) + 1 for data, _ in children) > 256:
            items = form is not inner
            groups: list[list[tuple[bytes, int]]] = [[]]
            for child in children:
                groups[-1].append(child)
                size = sum(len(data) + 1 for data, _ in groups[-1])
                ends = size >= 512 or (size >= 96 and child[1] >> (6 + level % 26) & 1)
                if ends and (items or len(groups[-1]) > 1):
                    groups.append([])
            if not groups[-1]:
                groups.pop()
            if len(groups) == 1:
                break
            children = [
                group[0]
                if len(group) == 1 and not items
                else (self.inline(form % b",".join(data for data, _ in group)), group[-1][1])
                for group in groups
            ]
            form, level = inner, level + 1
        return form % b",".join(data for data, _ in children)


@pytest.fixture(autouse=True)
def types() -> Iterator[None]:
    with registered():
        codec.register_state_type(Said, type_id="page.said")
        yield


def many() -> Iterator[dict[str, Any]]:
    chance = random.Random(11)
    for length in (0, 1, 2, 31, 32, 63, 64, 65, 255, 256, 257, 300, 700, 2500):
        for size in (0, 3, 40, 95, 120, 700):
            if length * size < 400_000:
                texts = ["".join(chance.choices("abcdefgh", k=size)) for _ in range(length)]
                yield {"list": texts, "same": texts[:1] * length, "dict": dict(enumerate(texts))}
                yield {"$odd": {text: [text] for text in texts}, "deep": [[texts[:n]] for n in range(30)]}
    for _ in range(6):
        yield {f"{n}": [chance.randrange(10**4) for _ in range(1000)] for n in range(10)}


def around_the_bound() -> Iterator[dict[str, Any]]:
    """States whose frame is a little smaller or a little larger than one part may be."""
    for length in range(60, 100):
        yield {f"key{n}": "x" * length for n in range(3)}
    yield {
        "texts": ["x" * 500],
        "$text": "y",
        "\u00e9": "\n" * 15,
        "n": 2**63,
        "deep": {"a": {"b": {"c": {}}}},
    }
    yield {f"{n}": n for n in range(40)}


def long_texts() -> Iterator[dict[str, Any]]:
    """Records with a text that is a little shorter or longer than one that is a part of its own."""
    for length in (255, 256, 257, 600):
        said = Said("me", "\u00e9" * length)
        yield {
            "one": said,
            "list": [said, 1],
            "in": {"a": [(said,)]},
            "pairs": {1: said},
            "plain": ["x" * length],
        }
        yield {"many": [Said(str(n), "y" * length) for n in range(80)], "deep": Said("s", [said])}


STATES: list[dict[str, Any]] = [
    builtin_values(),
    large_values(),
    {},
    *around_the_bound(),
    *many(),
    *long_texts(),
]


@pytest.mark.parametrize("number", range(len(STATES)))
def test_a_writer_made_from_the_page_writes_the_same_parts(number: int) -> None:
    shared = STATES[number]
    state = value_state(number, shared)
    if number % 2:
        state["executor_states"] = {"a": shared, "b": {"field": (1, ["x" * 200])}}
        state["edge_states"] = {"$e": {"received": {"a": [1, "y" * 100]}}, "e": {}, "$text": "z" * 100}
    root, _ = codec.encode_state(state, format="json")
    parts = codec.new_parts(root, ())
    writer = Writer()
    assert writer.part(writer.root(codec.plain(root.data, parts, format="json"))) == root.digest
    assert writer.parts.keys() >= parts.keys()
