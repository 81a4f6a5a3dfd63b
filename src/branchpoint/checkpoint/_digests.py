"""Many digests in little memory: 22 bytes each, where a set of texts takes over a hundred."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

__all__ = ["NO_DIGESTS", "Digests"]


class Digests(Collection[str]):
    """A frozen set of names of parts, looked up by halving among those of the same length.

    A storage may have been given other names than digests, so they need not all be as long.
    """

    __slots__ = ("_joined",)

    def __init__(self, digests: Iterable[str] = ()) -> None:
        by_size: dict[int, list[bytes]] = {}
        for digest in sorted({digest.encode("ascii") for digest in digests}):
            by_size.setdefault(len(digest), []).append(digest)
        self._joined = {size: b"".join(found) for size, found in by_size.items()}

    def __contains__(self, digest: object) -> bool:
        if type(digest) is not str or not digest.isascii():
            return False
        wanted = digest.encode("ascii")
        size = len(wanted)
        joined = self._joined.get(size)
        if joined is None:
            return False
        low, high = 0, len(joined) // size
        while low < high:
            middle = (low + high) // 2
            if joined[middle * size : (middle + 1) * size] < wanted:
                low = middle + 1
            else:
                high = middle
        return joined[low * size : (low + 1) * size] == wanted

    def __iter__(self) -> Iterator[str]:
        for size, joined in self._joined.items():
            for place in range(0, len(joined), size):
                yield joined[place : place + size].decode("ascii")

    def __len__(self) -> int:
        return sum(len(joined) // size for size, joined in self._joined.items())


NO_DIGESTS = Digests()
