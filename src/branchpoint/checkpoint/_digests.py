"""Many digests in little memory: 22 bytes each, where a set of texts takes over a hundred."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

__all__ = ["NO_DIGESTS", "Digests"]


class Digests(Collection[str]):
    """A frozen set of digests, looked up by halving."""

    __slots__ = ("_joined", "_size")

    def __init__(self, digests: Iterable[str] = ()) -> None:
        ordered = sorted({digest.encode("ascii") for digest in digests})
        self._size = len(ordered[0]) if ordered else 1
        self._joined = b"".join(ordered)

    def __contains__(self, digest: object) -> bool:
        if not self._joined or type(digest) is not str:
            return False
        wanted, joined, size = digest.encode("ascii"), self._joined, self._size
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if joined[middle * size : (middle + 1) * size] < wanted:
                low = middle + 1
            else:
                high = middle
        return joined[low * size : (low + 1) * size] == wanted

    def __iter__(self) -> Iterator[str]:
        for place in range(0, len(self._joined), self._size):
            yield self._joined[place : place + self._size].decode("ascii")

    def __len__(self) -> int:
        return len(self._joined) // self._size


NO_DIGESTS = Digests()
