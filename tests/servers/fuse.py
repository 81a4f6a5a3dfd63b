"""A folder on a disk whose power can be cut: `lossy_disk.py`, mounted by FUSE in a process of its own.

It needs `/dev/fuse`, a libfuse (Debian: `libfuse2` or `fuse3`) and the package `mfusepy`, which finds either.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal, Self

from tests.servers.process import ServerProcess

ROOT = Path(__file__).resolve().parents[2]


def fuse_missing() -> str | None:
    """Why no file system can be mounted here; None if one can."""
    if importlib.util.find_spec("mfusepy") is None:
        return "the package mfusepy is not installed"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "there is no /dev/fuse that this user may open"
    if not (ctypes.util.find_library("fuse") or ctypes.util.find_library("fuse3")):
        return "there is no libfuse (`make servers` installs it)"
    if os.geteuid() != 0 and _fusermount() is None:
        return "fusermount is not on the path, and only root can do without"
    return None


def _fusermount() -> str | None:
    return shutil.which("fusermount3") or shutil.which("fusermount")


class Disk:
    """A disk with one folder, mounted and cut as often as one likes.

    Everything works in it that SQLite and journals need, across processes: `flock`, `fcntl` locks, shared
    `mmap` (so WAL works with its shared memory file), names without files and files without names.
    Who still uses the folder at a cut gets an OSError from each call; end processes that map files of it, for a page
    that must be read anew kills them.
    """

    def __init__(self, place: Path) -> None:
        self.folder = place / "mounted"
        self.store = place / "store"
        self.folder.mkdir(parents=True)
        self.store.mkdir()
        self.process = ServerProcess(
            [sys.executable, "-m", "tests.servers.lossy_disk", self.store, self.folder],
            log=place / "log",
            ready="mounted",
            environment={"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        )

    def __enter__(self) -> Self:
        self.mount()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._unmount()

    def mount(self) -> None:
        """Mount it, with what the last cut left."""
        self.process.start()

    def cut(self, kept: Literal["nothing", "everything"] | int = "nothing") -> None:
        """Cut the power, and unmount.

        Of what no fsync made safe, nothing is kept, or everything (an orderly end), or what a chance with this
        number leaves: each name and each write on its own may be kept, lost, torn or zeros.
        """
        from tests.servers.lossy_disk import CUT, CUT_DONE

        try:
            (self.folder / f"{CUT}{kept}").mkdir()
        except OSError as error:
            if error.errno != CUT_DONE:
                raise
        self._unmount()

    def _unmount(self) -> None:
        if not self.process.running:
            return
        by_root = ["umount", "--lazy"] if os.geteuid() == 0 else [str(_fusermount()), "-u", "-z"]
        subprocess.run([*by_root, self.folder], check=True, capture_output=True)
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
