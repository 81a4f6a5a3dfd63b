"""What may happen to the bytes of a journal, for property tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from branchpoint.checkpoint import Format
from tests.hostile.forge import Forgery, wire

Change = Callable[[bytes], bytes]
MARKS = [
    b"", b"\0", b"\xff", b"{", b"}", b"[", b"]", b'"', b",", b":", b"\n", b"-", b"0", b"9" * 30, b"null", b"[]",
    b"{}", b'""', b'{"$p":"', b'{"$l":[', b'{"$":"tuple","v":[]}', b'{"$":"x","v":1}', b"\\u0000",
    b"\xef\xbb\xbf", b"\xc3\x28", b"\x80", b"\x90", b"\xc0", b"\xc1", b"\xc7", b"\xd4", b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\x81\xa2$p\xb6", b"\xa1$", b" ",
]  # fmt: skip


def _place(draw: st.DrawFn, size: int) -> int:
    return draw(st.integers(0, size))


@st.composite
def changes(draw: st.DrawFn, data: bytes) -> bytes:
    """Some bytes with one to four things done to them: flipped, cut, filled in, doubled, moved, taken out."""
    for _ in range(draw(st.integers(1, 4))):
        size = len(data)
        kind = draw(
            st.sampled_from(["flip", "flip", "set", "cut", "drop", "double", "move", "mark", "zero", "grow"])
        )
        a, b = sorted((_place(draw, size), _place(draw, size)))
        if kind == "flip" and a < size:
            data = data[:a] + bytes([data[a] ^ (1 << draw(st.integers(0, 7)))]) + data[a + 1 :]
        elif kind == "set" and a < size:
            data = data[:a] + bytes([draw(st.integers(0, 255))]) + data[a + 1 :]
        elif kind == "cut":
            data = data[:a]
        elif kind == "drop":
            data = data[:a] + data[min(b, a + draw(st.integers(1, 40))) :]
        elif kind == "double":
            data = data[:b] + data[a:b] + data[b:]
        elif kind == "move":
            data = data[:a] + data[b:] + data[a:b]
        elif kind == "mark":
            data = data[:a] + draw(st.sampled_from(MARKS)) + data[a + draw(st.integers(0, 3)) :]
        elif kind == "zero":
            b = min(b, a + draw(st.integers(1, 40)))
            data = data[:a] + bytes(b - a) + data[b:]
        elif kind == "grow":
            data += draw(st.sampled_from([b"\0", b"\n", data[a:b], data, bytes(5000)]))
    return data


LEAVES: list[Any] = [
    None, True, 0, -1, 1.5, 2**63, "", "x", "\x1b[2J", "x" * 300, [], {}, [[]], {"$p": "A" * 22}, {"$p": 5},
    {"$l": [[1]]},
    {"$d": [{"a": 1}]}, {"$": "tuple", "v": [1]}, {"$": "os.system", "v": "id"},
    {"$": "int", "v": "0x10000000000000000"},
    {"$": "float", "v": "nan"}, {"$": "dict", "v": [[1, 2]]}, {"$x": 1}, {"": 1},
]  # fmt: skip


@st.composite
def trees(draw: st.DrawFn, tree: Any, depth: int = 0) -> Any:
    """A wire tree with one thing in it replaced, taken out, doubled or added; most often deep inside."""
    if isinstance(tree, dict) and tree and (depth < 2 or draw(st.booleans())):
        key = draw(st.sampled_from(sorted(tree, key=str)))
        rest = {name: item for name, item in tree.items() if name != key}
        kind = draw(st.sampled_from(["in", "in", "in", "drop", "add", "rename", "last"]))
        if kind == "drop":
            return rest
        if kind == "add":
            return {
                **tree,
                draw(st.sampled_from(["more", "$", "$p", "$l", "v", "", "id"])): draw(
                    st.sampled_from(LEAVES)
                ),
            }
        if kind == "rename":
            return {
                (draw(st.sampled_from(["more", "$", "x" * 200])) if name == key else name): item
                for name, item in tree.items()
            }
        if kind == "last":
            return {**rest, key: tree[key]}
        return {name: draw(trees(item, depth + 1)) if name == key else item for name, item in tree.items()}
    if isinstance(tree, list) and tree and draw(st.booleans()):
        place = draw(st.integers(0, len(tree) - 1))
        kind = draw(st.sampled_from(["in", "in", "drop", "double", "back"]))
        if kind == "drop":
            return tree[:place] + tree[place + 1 :]
        if kind == "double":
            return [*tree, tree[place]]
        if kind == "back":
            return tree[::-1]
        return [draw(trees(item, depth + 1)) if n == place else item for n, item in enumerate(tree)]
    return draw(st.sampled_from(LEAVES))


@st.composite
def records(draw: st.DrawFn, bodies: Sequence[bytes]) -> list[bytes]:
    """The records of a journal with some taken out, doubled, moved or changed in their bytes."""
    found = list(bodies)
    for _ in range(draw(st.integers(1, 3))):
        if not found:
            break
        a, b = (draw(st.integers(0, len(found) - 1)) for _ in range(2))
        kind = draw(st.sampled_from(["drop", "double", "swap", "change", "change"]))
        if kind == "drop":
            del found[a]
        elif kind == "double":
            found.insert(b, found[a])
        elif kind == "swap":
            found[a], found[b] = found[b], found[a]
        else:
            found[a] = draw(changes(found[a])).replace(b"\n", b" ") or b"{"
    return found


def written(made: Forgery, bodies: Sequence[bytes]) -> bytes | None:
    """Write records as a journal; None where there is no journal of them."""
    if not bodies or (made.format == "json" and not all(body[:1] == b"{" for body in bodies)):
        return None
    return made.write(bodies)


def packed(tree: Any, format: Format) -> bytes | None:
    """The bytes of a changed tree; None where the notation has none for it."""
    try:
        return wire(tree, format)
    except (OverflowError, RecursionError, UnicodeEncodeError):
        return None
