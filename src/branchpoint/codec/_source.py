"""Where one reading finds its parts; it ends, whatever the parts refer to.

Parts that are mentioned several times are read several times, since every place gets a value of its own. So
31 small parts of two equal references each would stand for a thousand million values. A reading
that follows many more references than there are parts stops once and counts what they come to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from branchpoint.codec._flaw import Flaw
from branchpoint.codec._format import Notation

__all__ = ["MOST_REFERENCES", "Source", "leaves_of", "load", "mentioned", "mentions", "reference_in"]

MOST_REFERENCES: Final = 2**24
"""How many references one value may come to when all of them are followed."""

_UNSUSPICIOUS: Final = 10_000


def load(notation: Notation, data: bytes) -> Any:
    """Decode one piece of bytes and check that it is canonical.

    Raises:
        Flaw: It is not.
    """
    try:
        tree = notation.decode(data)
        again = notation.encode(tree)
    except (msgspec.DecodeError, UnicodeError, TypeError, ValueError, OverflowError) as error:
        raise Flaw(f"this is no {notation.name} ({error})") from None
    if again != data:
        raise Flaw(
            "the bytes are not the ones that this value is written with (spacing, repeated keys or the like)"
        )
    return tree


def reference_in(tree: Any) -> str | None:
    """The digest, if a tree is a reference to a part."""
    if type(tree) is dict and "$p" in tree:
        digest = tree["$p"]
        if len(tree) != 1 or type(digest) is not str:
            raise Flaw("a reference to a part has another shape")
        return digest
    return None


def mentioned(tree: Any) -> Iterator[str]:
    """The digests that a tree mentions, in order; a digest may come twice."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if type(node) is dict:
            digest = reference_in(node)
            if digest is not None:
                yield digest
            else:
                waiting.extend(reversed(node.values()))
        elif type(node) is list:
            waiting.extend(reversed(node))


def mentions(notation: Notation, data: bytes) -> bool:
    """Whether some bytes mention a part; text and binary may hold the marker by chance."""
    return notation.marker in data and any(True for _ in mentioned(load(notation, data)))


class Source:
    """The parts under one piece of bytes.

    Attributes:
        notation: Of the bytes.
        parts: Digest -> data.
        data: The bytes that are read.
    """

    __slots__ = ("_count", "_limit", "data", "notation", "parts")

    def __init__(self, notation: Notation, data: bytes, parts: Mapping[str, bytes]) -> None:
        self.notation = notation
        self.parts = parts
        self.data = data
        self._count = 0
        self._limit = -1

    def bytes_of(self, digest: str) -> bytes:
        """The data of a part.

        Raises:
            Flaw: There is no such part, or the references come to too many.
        """
        self._count += 1
        if self._count > _UNSUSPICIOUS and self._count > self._limit:
            self._look()
        data = self.parts.get(digest)
        if data is None:
            raise Flaw(f"the part {digest} is missing")
        return data

    def tree(self, digest: str) -> Any:
        """The wire tree of a part."""
        return load(self.notation, self.bytes_of(digest))

    def _look(self) -> None:
        if self._limit < 0:
            self._limit = _UNSUSPICIOUS + 4 * len(self.parts)
        elif self._limit == MOST_REFERENCES or self._total() > MOST_REFERENCES:
            raise Flaw(f"its references come to over {MOST_REFERENCES} when all of them are followed")
        else:
            self._limit = MOST_REFERENCES

    def _total(self) -> int:
        """How many references there are to follow; each part is looked at once."""
        totals: dict[str, int] = {}
        on_path: set[str] = set()
        below: list[tuple[str, list[str]]] = [("", list(mentioned(load(self.notation, self.data))))]
        waiting = [iter(below[0][1])]
        while True:
            for digest in waiting[-1]:
                if digest in on_path:
                    raise Flaw(f"the part {digest} contains itself")
                if digest in totals:
                    continue
                data = self.parts.get(digest)
                if data is None:
                    raise Flaw(f"the part {digest} is missing")
                on_path.add(digest)
                inner = list(mentioned(load(self.notation, data)))
                below.append((digest, inner))
                waiting.append(iter(inner))
                break
            else:
                waiting.pop()
                digest, inner = below.pop()
                total = len(inner) + sum(totals[one] for one in inner)
                if not below:
                    return total
                on_path.discard(digest)
                totals[digest] = total


def leaves_of(root: Any, opened: Callable[[Any], tuple[bool, Any]]) -> Iterator[Any]:
    """The leaves of a cut value from left to right; `opened` gives a leaf, or True and the nodes below."""
    waiting = [root]
    while waiting:
        inner, found = opened(waiting.pop())
        if inner:
            waiting.extend(reversed(found))
        else:
            yield found
