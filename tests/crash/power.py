"""What a power cut leaves of a folder, by the rules that file systems promise and no more.

A file's bytes and length are safe from the sync of the file on, a name from the sync of its folder on.
Anything since then may be kept, lost, torn or zeros, each on its own and in any combination. What was
written when a sync failed may be gone although the system shows it: a later sync does not bring it back.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.crash.system_calls import Call

Left = Mapping[str, bytes | None]
"""What is in a folder: its files with their bytes, and its folders with None, by relative path."""

FOLDER = -1


@dataclass
class Change:
    """Bytes written at a place of a file, or None for a new length."""

    at: int
    data: bytes | None
    safe: bool = False
    failed: bool = False


class Fate(NamedTuple):
    """What becomes of a change that is not safe.

    `lost`, `kept`, `head` (only the first bytes are kept), `tail` (the others are; zeros where there was
    nothing before them), or `zeros` (the file is longer, and empty there).
    """

    kind: str
    cut: int = 0


LOST, KEPT, ZEROS = Fate("lost"), Fate("kept"), Fate("zeros")


def fates(change: Change, tears: int) -> list[Fate]:
    """Every fate of a change, with that many ways of being torn."""
    if change.data is None or not tears:
        return [LOST, KEPT]
    size = len(change.data)
    cuts = sorted({1, size - 1, *(size * n // tears for n in range(1, tears))} - {0, size})
    return [LOST, KEPT, ZEROS, *(Fate(kind, cut) for cut in cuts for kind in ("head", "tail"))]


def some_fate(change: Change, chance: random.Random) -> Fate:
    """A fate by chance."""
    kind = chance.choice(("lost", "kept", "zeros", "head", "tail") if change.data else ("lost", "kept"))
    return Fate(kind, chance.randrange(len(change.data)) if change.data else 0)


@dataclass
class File:
    """A file: the bytes it began with, and every change since."""

    base: bytes = b""
    changes: list[Change] = field(default_factory=list)

    def open_changes(self) -> list[Change]:
        return [change for change in self.changes if not change.safe]

    def content(self, chosen: Iterable[Fate]) -> bytes:
        """The bytes, when these are the fates of the open changes, in order."""
        fate = iter(chosen)
        data = bytearray(self.base)
        for change in self.changes:
            _apply(data, change, KEPT if change.safe else next(fate))
        return bytes(data)


def _apply(data: bytearray, change: Change, fate: Fate) -> None:
    if fate.kind == "lost":
        return
    if change.data is None:
        del data[change.at :]
        data.extend(bytes(change.at - len(data)))
        return
    end = change.at + len(change.data)
    start, stop = {"kept": (0, len(change.data)), "zeros": (0, 0), "head": (0, fate.cut)}.get(
        fate.kind, (fate.cut, len(change.data))
    )
    reach = change.at + fate.cut if fate.kind == "head" else end
    data.extend(bytes(max(0, reach - len(data))))
    data[change.at + start : change.at + stop] = change.data[start:stop]


class Platter:
    """A folder on a disk: what the system shows of it, and what a power cut could leave.

    Attributes:
        tears: How many ways of tearing each write are tried.
    """

    def __init__(self, folder: Path, left: Left | None = None, tears: int = 3) -> None:
        self.root = str(folder)
        self.tears = tears
        self.files: dict[int, File] = {}
        self.shown: dict[str, int] = {self.root: FOLDER}
        self._safe: dict[str, int] = {}
        self._open: list[tuple[str, int | None]] = []
        self._descriptors: dict[int, int] = {}
        self._count = itertools.count()
        self._seen: dict[str, Callable[[Call], None]] = {
            "open": self._opened,
            "mkdir": self._made,
            "link": self._linked,
            "rename": self._renamed,
            "replace": self._renamed,
            "unlink": self._unlinked,
            "pwrite": self._written,
            "ftruncate": self._cut,
            "fdatasync": self._synced,
            "fsync": self._synced,
        }
        for name, data in (left or {}).items():
            path = os.path.join(self.root, name)
            self._safe[path] = FOLDER if data is None else self._new(File(data))
        self.shown |= self._safe

    def see(self, call: Call) -> None:
        """Take note of a call that was made."""
        if call.failed and call.name in ("fsync", "fdatasync"):
            self._sync_failed(call)
        elif call.done and (seen := self._seen.get(call.name)) is not None:
            seen(call)

    def _new(self, file: File) -> int:
        number = next(self._count)
        self.files[number] = file
        return number

    def _name(self, path: str, number: int | None) -> None:
        if os.path.basename(path).startswith(".lock-"):
            return  # empty, and made again when it is missing
        self._open.append((path, number))
        if number is None:
            del self.shown[path]
        else:
            self.shown[path] = number

    def _made(self, call: Call) -> None:
        self._name(call.path, FOLDER)

    def _opened(self, call: Call) -> None:
        number = self.shown.get(call.path)
        if number is None:
            number = self._new(File())
            self._name(call.path, number)
        self._descriptors[call.descriptor] = number

    def _linked(self, call: Call) -> None:
        self._name(call.target, self.shown[call.path])

    def _renamed(self, call: Call) -> None:
        if self.shown.get(call.target) == self.shown[call.path]:
            return  # two names of one file: the system does nothing
        self._name(call.target, self.shown[call.path])
        self._name(call.path, None)

    def _unlinked(self, call: Call) -> None:
        self._name(call.path, None)

    def _written(self, call: Call) -> None:
        self.files[self._descriptors[call.descriptor]].changes.append(Change(call.number, call.data))

    def _cut(self, call: Call) -> None:
        self.files[self._descriptors[call.descriptor]].changes.append(Change(call.number, None))

    def _synced(self, call: Call) -> None:
        number = self._descriptors[call.descriptor]
        if number == FOLDER:
            inside = [one for one in self._open if os.path.dirname(one[0]) == call.path]
            self._open = [one for one in self._open if one not in inside]
            for path, what in inside:
                if what is None:
                    self._safe.pop(path, None)
                else:
                    self._safe[path] = what
            return
        file = self.files[number]
        for change in file.changes:
            change.safe = change.safe or not change.failed
        while file.changes and file.changes[0].safe:
            data = bytearray(file.base)
            _apply(data, file.changes.pop(0), KEPT)
            file.base = bytes(data)

    def _sync_failed(self, call: Call) -> None:
        number = self._descriptors[call.descriptor]
        if number != FOLDER:
            for change in self.files[number].open_changes():
                change.failed = True

    # What a cut leaves.

    def cuts(self) -> Iterator[dict[str, bytes | None]]:
        """Everything that a power cut could leave now, each once; lock files and the like left out."""
        seen: set[tuple[tuple[str, bytes | None], ...]] = set()
        for kept in itertools.product((True, False), repeat=len(self._open)):
            names = self._names(kept)
            numbers = sorted({number for path, number in names.items() if _counts(path, number)})
            ways = [
                itertools.product(
                    *(fates(change, self.tears) for change in self.files[number].open_changes())
                )
                for number in numbers
            ]
            for chosen in itertools.product(*ways):
                left = self._left(names, dict(zip(numbers, chosen, strict=True)))
                key = tuple(sorted(left.items()))
                if key not in seen:
                    seen.add(key)
                    yield left

    def some_cut(self, chance: random.Random) -> dict[str, bytes | None]:
        """One of the things a power cut could leave, by chance."""
        names = self._names([chance.random() < 0.5 for _ in self._open])
        numbers = {number for path, number in names.items() if _counts(path, number)}
        chosen = {
            number: tuple(some_fate(change, chance) for change in self.files[number].open_changes())
            for number in numbers
        }
        return self._left(names, chosen)

    def _names(self, kept: Iterable[bool]) -> dict[str, int]:
        names = dict(self._safe)
        for (path, what), keep in zip(self._open, kept, strict=True):
            if keep and what is None:
                names.pop(path, None)
            elif keep and what is not None:
                names[path] = what
        return {path: what for path, what in names.items() if self._is_reached(path, names)}

    def _is_reached(self, path: str, names: Mapping[str, int]) -> bool:
        above = os.path.dirname(path)
        return above == self.root or (names.get(above) == FOLDER and self._is_reached(above, names))

    def _left(
        self, names: Mapping[str, int], chosen: Mapping[int, Iterable[Fate]]
    ) -> dict[str, bytes | None]:
        left: dict[str, bytes | None] = {}
        for path, number in names.items():
            name = os.path.relpath(path, self.root)
            if number == FOLDER:
                left[name] = None
            elif number in chosen:
                left[name] = self.files[number].content(chosen[number])
            elif ".tmp-" in name:
                left[f"{os.path.dirname(name)}/.tmp-00-dead"] = b""  # what is in one is never read
        return left


def _counts(path: str, number: int) -> bool:
    return number != FOLDER and path.endswith(".journal")


def put(left: Left, folder: Path) -> None:
    """Make an empty folder hold what a power cut left."""
    for name, data in sorted(left.items()):
        path = folder / name
        if data is None:
            path.mkdir()
        else:
            path.write_bytes(data)


def found(folder: Path) -> dict[str, bytes | None]:
    """What is in a folder, as a power cut would leave it once everything is safe."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if not path.name.startswith(".lock-")
    }
