"""A file system in memory that keeps of an un-fsynced write, name or length only what a power cut would.

What the system shows and what is safe are held apart: a file's bytes and length are safe from the sync of
the file on, a name from the sync of its folder on. It is a program of its own, `python -m
tests.servers.lossy_disk STORE MOUNT`: it begins with what is in the folder STORE, and a cut leaves there what
was safe, or part of the rest by chance. The cut is ordered by making a folder `.power-cut-HOW` at the top,
where HOW is `nothing` or `everything` of what is not safe, or a number for the chance; from then on
every call fails.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mfusepy

from tests.crash.power import KEPT, LOST, Change, Fate, File, some_fate

CUT = ".power-cut-"
CUT_DONE = errno.ESHUTDOWN
HIDDEN = ".fuse_hidden"

_numbers = itertools.count(1)


@dataclass(eq=False)
class Node:
    """A file: its bytes as the system shows them, and the record of what is safe of them."""

    mode: int
    data: bytearray = field(default_factory=bytearray)
    record: File = field(default_factory=File)
    number: int = field(default_factory=lambda: next(_numbers))

    def write(self, data: bytes, at: int) -> None:
        self.data.extend(bytes(max(0, at - len(self.data))))
        self.data[at : at + len(data)] = data
        self.record.changes.append(Change(at, data))

    def truncate(self, length: int) -> None:
        del self.data[length:]
        self.data.extend(bytes(length - len(self.data)))
        self.record.changes.append(Change(length, None))

    def sync(self) -> None:
        self.record = File(bytes(self.data))

    def left(self, choose: Callable[[Change], Fate]) -> bytes:
        return self.record.content([choose(change) for change in self.record.changes])


@dataclass(eq=False)
class Folder:
    """A folder: its names as the system shows them, those that are safe, and each deed that is not."""

    mode: int
    names: dict[str, Node | Folder] = field(default_factory=dict)
    safe: dict[str, Node | Folder] = field(default_factory=dict)
    deeds: list[dict[str, Node | Folder | None]] = field(default_factory=list)
    number: int = field(default_factory=lambda: next(_numbers))

    def name(self, deed: dict[str, Node | Folder | None]) -> None:
        """Give and take away names in one deed, which a cut keeps or loses whole."""
        _name(self.names, deed)
        self.deeds.append(deed)

    def sync(self) -> None:
        self.safe = dict(self.names)
        self.deeds.clear()


def _name(names: dict[str, Node | Folder], deed: dict[str, Node | Folder | None]) -> None:
    for name, node in deed.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class LossyDisk(mfusepy.Operations):
    """What the kernel asks for. libfuse runs it on one thread, so one call ends before the next begins."""

    use_ns = True

    def __init__(self, store: Path) -> None:
        self.store = store
        self.root = read_folder(store)
        self.open_nodes: dict[int, Node] = {}
        self.hidden: dict[str, Node] = {}
        self.hiding: dict[str, Node | Folder | None] = {}
        self.handles = itertools.count(1)
        self.dead = False

    def init(self, path: str) -> None:
        print("mounted", flush=True)

    # Finding things.

    def _find(self, path: str) -> Node | Folder:
        if self.dead:
            raise OSError(errno.EIO, "the power is off")
        if path in self.hidden:
            return self.hidden[path]
        found: Node | Folder | None = self.root
        for name in path.split("/"):
            if name:
                found = found.names.get(name) if isinstance(found, Folder) else None
            if found is None:
                raise OSError(errno.ENOENT, path)
        assert found is not None
        return found

    def _folder(self, path: str) -> Folder:
        found = self._find(path)
        if not isinstance(found, Folder):
            raise OSError(errno.ENOTDIR, path)
        return found

    def _place(self, path: str) -> tuple[Folder, str]:
        above, _, name = path.rpartition("/")
        return self._folder(above), name

    def _node(self, path: str | None, handle: int | None) -> Node:
        if self.dead:
            raise OSError(errno.EIO, "the power is off")
        if handle in self.open_nodes:
            return self.open_nodes[handle]
        found = self._find(path or "")
        if not isinstance(found, Node):
            raise OSError(errno.EISDIR, path)
        return found

    def getattr(self, path: str | None, fh: int | None = None) -> dict[str, Any]:
        found = self._node(path, fh) if fh in self.open_nodes else self._find(path or "")
        # No times: the kernel would drop its pages, and with them what is mapped, whenever they change.
        return {
            "st_mode": found.mode,
            "st_ino": found.number,
            "st_size": len(found.data) if isinstance(found, Node) else 0,
            "st_nlink": int(path not in self.hidden) if isinstance(found, Node) else 2,
            "st_uid": os.getuid(),
            "st_gid": os.getgid(),
        }

    def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
        folder = self._folder(path)
        inside = {".": folder, "..": folder, **folder.names}
        # A name with the number 0 is left out by the C library.
        return [(name, {"st_mode": one.mode, "st_ino": one.number}, 0) for name, one in inside.items()]

    # Files.

    def _opened(self, node: Node) -> int:
        handle = next(self.handles)
        self.open_nodes[handle] = node
        return handle

    def open(self, path: str, flags: int) -> int:
        node = self._node(path, None)
        if flags & os.O_TRUNC:
            node.truncate(0)
        return self._opened(node)

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        folder, name = self._place(path)
        node = Node(stat.S_IFREG | stat.S_IMODE(mode))
        folder.name({name: node})
        return self._opened(node)

    def read(self, path: str | None, size: int, offset: int, fh: int) -> bytes:
        return bytes(self._node(path, fh).data[offset : offset + size])

    def write(self, path: str | None, data: bytes, offset: int, fh: int) -> int:
        self._node(path, fh).write(bytes(data), offset)
        return len(data)

    def truncate(self, path: str | None, length: int, fh: int | None = None) -> int:
        self._node(path, fh).truncate(length)
        return 0

    def flush(self, path: str | None, fh: int) -> int:
        return 0

    def release(self, path: str | None, fh: int) -> int:
        self.open_nodes.pop(fh, None)
        return 0

    def fsync(self, path: str | None, datasync: int, fh: int) -> int:
        self._node(path, fh).sync()
        return 0

    # Names.

    def mkdir(self, path: str, mode: int) -> int:
        folder, name = self._place(path)
        if name.startswith(CUT):
            self.cut(name.removeprefix(CUT))
            raise OSError(CUT_DONE, "the power is off")
        folder.name({name: Folder(stat.S_IFDIR | stat.S_IMODE(mode))})
        return 0

    def rmdir(self, path: str) -> int:
        if self._folder(path).names:
            raise OSError(errno.ENOTEMPTY, path)
        folder, name = self._place(path)
        folder.name({name: None})
        return 0

    def unlink(self, path: str) -> int:
        if self.hidden.pop(path, None) is not None:
            return 0
        folder, name = self._place(path)
        folder.name({name: None})
        return 0

    def link(self, target: str, source: str) -> int:
        folder, name = self._place(target)
        folder.name({name: self._find(source)})
        return 0

    def rename(self, old: str, new: str) -> int:
        node = self._find(old)
        (here, old_name), (there, new_name) = self._place(old), self._place(new)
        if new_name.startswith(HIDDEN):
            # A file loses its name while somebody has it open; libfuse wants to find it under another one.
            assert isinstance(node, Node)
            self.hidden[new] = node
            self.hiding = {old_name: None}
            here.name(self.hiding)
            return 0
        if there.deeds and there.deeds[-1] is self.hiding:
            there.deeds.pop()  # hidden for this renaming, which is one deed
        if here is there:
            here.name({old_name: None, new_name: node})
        else:
            there.name({new_name: node})
            here.name({old_name: None})
        return 0

    def fsyncdir(self, path: str | None, datasync: int, fh: int) -> int:
        # Without a path it is a folder that is gone.
        if path is not None:
            self._folder(path).sync()
        return 0

    # Of no weight here.

    def chmod(self, path: str, mode: int) -> int:
        found = self._find(path)
        found.mode = stat.S_IFMT(found.mode) | stat.S_IMODE(mode)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        return 0

    def utimens(self, path: str, times: Any = None) -> int:
        return 0

    # The cut.

    def cut(self, how: str) -> None:
        """Leave in the store what is safe, and of the rest what `how` says."""
        chance = random.Random(how)
        keep: Callable[[], bool] = {"nothing": lambda: False, "everything": lambda: True}.get(
            how, lambda: chance.random() < 0.5
        )
        choose: Callable[[Change], Fate] = {"nothing": lambda _: LOST, "everything": lambda _: KEPT}.get(
            how, lambda change: some_fate(change, chance)
        )
        for path in self.store.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self._leave(self.root, self.store, keep, choose)
        self.dead = True

    def _leave(
        self, folder: Folder, place: Path, keep: Callable[[], bool], choose: Callable[[Change], Fate]
    ) -> None:
        names = dict(folder.safe)
        for deed in folder.deeds:
            if keep():
                _name(names, deed)
        for name, node in names.items():
            if isinstance(node, Folder):
                (place / name).mkdir()
                self._leave(node, place / name, keep, choose)
            else:
                (place / name).write_bytes(node.left(choose))
            (place / name).chmod(stat.S_IMODE(node.mode))


def read_folder(path: Path) -> Folder:
    """What is in a folder of the real disk, all of it safe."""
    folder = Folder(path.stat().st_mode)
    for entry in sorted(path.iterdir()):
        node: Node | Folder
        if entry.is_dir():
            node = read_folder(entry)
        else:
            node = Node(entry.stat().st_mode, bytearray(entry.read_bytes()))
            node.sync()
        folder.names[entry.name] = node
    folder.sync()
    return folder


if __name__ == "__main__":
    mfusepy.FUSE(
        LossyDisk(Path(sys.argv[1])),
        sys.argv[2],
        foreground=True,
        nothreads=True,
        fsname="lossy",
        use_ino=True,
        **({"big_writes": True} if mfusepy.fuse_version_major == 2 else {}),
        default_permissions=True,
    )
