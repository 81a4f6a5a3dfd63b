"""Where one reading finds its parts; it ends, whatever the parts refer to.

Parts that are mentioned several times are read several times, since every place gets a value of its own. So
31 small parts of two equal references each would stand for a thousand million values, and one large
part that is mentioned often for more than any memory holds. A reading that has followed references to
many more bytes than there are stops once and counts what they all come to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from branchpoint.codec._flaw import Flaw
from branchpoint.codec._format import Notation

__all__ = ["MOST_BYTES", "Source", "leaves_of", "load", "mentioned", "mentions", "reference_in"]

MOST_BYTES: Final = 2**29
"""How many bytes of memory one value may take beyond what is stored, when all references are followed."""

_UNSUSPICIOUS: Final = 2**17
_FOLLOWING: Final = 64  # what it costs to follow a reference, whatever is there
_VALUE: Final = 64  # about what a value takes that is written with a byte
_SEVERAL: Final = 4  # a state whose values are that often the same is not suspicious, however large


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

    __slots__ = ("_cost", "_limit", "_looked", "_texts", "data", "notation", "parts")

    def __init__(self, notation: Notation, data: bytes, parts: Mapping[str, bytes]) -> None:
        self.notation = notation
        self.parts = parts
        self.data = data
        self._cost = 0
        self._limit = _UNSUSPICIOUS
        self._looked = 0
        self._texts: dict[str, str] = {}  # the only parts that several places of a value may share

    def bytes_of(self, digest: str) -> bytes:
        """The data of a part.

        Raises:
            Flaw: There is no such part, or the references come to too much.
        """
        data = self.parts.get(digest)
        if data is None:
            raise Flaw(f"the part {digest} is missing")
        self._charge(len(data) + _FOLLOWING)
        return data

    def tree(self, digest: str) -> Any:
        """The wire tree of a part."""
        text = self._texts.get(digest)
        if text is not None:
            self._charge(_FOLLOWING)
            return text
        tree = load(self.notation, self.bytes_of(digest))
        if type(tree) is str:
            self._texts[digest] = tree
        return tree

    def _charge(self, cost: int) -> None:
        self._cost += cost
        if self._cost > self._limit:
            self._look()

    def _look(self) -> None:
        # Most values come to no more than there is; how much that is takes a moment to find out.
        if self._looked == 0:
            self._looked = 1
            self._limit += _FOLLOWING * len(self.parts)
            if self._cost <= self._limit:
                return
        if self._looked == 1:
            self._looked = 2
            self._limit += sum(map(len, self.parts.values()))
            if self._cost <= self._limit:
                return
        total, stored = self._total()
        most = MOST_BYTES + _SEVERAL * stored
        if total > most:
            raise Flaw(f"its references come to over {most} bytes when all of them are followed")
        self._limit = sys.maxsize

    def _total(self) -> tuple[int, int]:
        """What following all references costs, and what it would if each part was mentioned once.

        Each part is looked at once.
        """
        totals: dict[str, int] = {}
        stored = 0
        on_path: set[str] = set()
        below: list[tuple[str, int, list[str]]] = [("", 0, self._weigh(self.data)[1])]
        waiting = [iter(below[0][2])]
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
                own, inner = self._weigh(data)
                stored += own
                # A text is read once and shared.
                below.append((digest, _FOLLOWING if data[:1] in self.notation.texts else own, inner))
                waiting.append(iter(inner))
                break
            else:
                waiting.pop()
                digest, own, inner = below.pop()
                total = own + sum(totals[one] for one in inner)
                if not below:
                    return total, stored
                on_path.discard(digest)
                totals[digest] = total

    def _weigh(self, data: bytes) -> tuple[int, list[str]]:
        """About what a part takes in memory, without what it mentions, and what that is."""
        found: list[str] = []
        values = 0
        waiting = [load(self.notation, data)]
        while waiting:
            node = waiting.pop()
            if type(node) is dict:
                digest = reference_in(node)
                if digest is not None:
                    found.append(digest)
                    continue
                waiting.extend(node.values())
            elif type(node) is list:
                waiting.extend(node)
            values += 1
        return len(data) + _FOLLOWING + _VALUE * values, found


def leaves_of(root: Any, opened: Callable[[Any], tuple[bool, Any]]) -> Iterator[Any]:
    """The leaves of a cut value from left to right; `opened` gives a leaf, or True and the nodes below."""
    waiting = [root]
    while waiting:
        inner, found = opened(waiting.pop())
        if inner:
            waiting.extend(reversed(found))
        else:
            yield found
