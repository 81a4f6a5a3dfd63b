"""The system calls of a file storage, seen, failed or cut short where it makes them.

The functions of `os` and `fcntl` themselves are stepped into, so nothing that is done below the watched
folder passes by, whichever file of the library does it; calls about anything else go straight through.
Each call is really made, unless an `Act` decides otherwise.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

WATCHED: dict[Any, tuple[str, ...]] = {
    os: (
        *("open", "close", "pwrite", "pread", "fdatasync", "fsync", "ftruncate", "fstat", "lstat", "stat"),
        *("link", "rename", "replace", "unlink", "mkdir", "listdir", "access"),
    ),
    fcntl: ("flock",),
}
CHANGING = frozenset(
    ("pwrite", "fdatasync", "fsync", "ftruncate", "link", "rename", "replace", "unlink", "mkdir")
)
"""The calls that a disk refuses once it can only be read."""

_ALWAYS_LATE = frozenset(("close",))  # a descriptor is gone even when closing it failed
_NEVER_LATE = frozenset(("open",))  # the caller could not close what it did not get


@dataclass
class Call:
    """One system call: what it was about and, once it was made, whether it failed.

    Attributes:
        path: The file or folder; for a descriptor, the one it was opened for.
        data: What was really written.
        number: The offset of a write, the length of a truncation, the flags of an opening.
        done: Whether the operating system did it, whatever the caller was told.
        failed: What the caller was told, 0 for success.
    """

    name: str
    path: str
    target: str = ""
    descriptor: int = -1
    number: int = 0
    data: bytes = b""
    done: bool = False
    failed: int = 0

    @property
    def changes(self) -> bool:
        return self.name in CHANGING or (self.name == "open" and bool(self.number & os.O_CREAT))

    def __str__(self) -> str:
        told = f" = {errno.errorcode[self.failed]}" if self.failed else ""
        return f"{self.name}({Path(self.path).name}){told}"


Act = Callable[[int, Call, Callable[[], Any]], Any]
"""Decides what becomes of a call, from its place since this was armed, the call, and what makes it."""


def _make(place: int, call: Call, make: Callable[[], Any]) -> Any:
    return make()


class SystemCalls:
    """Watches one folder and everything below it inside a `with` block.

    Attributes:
        calls: The calls that were made, in order.
    """

    def __init__(self, folder: Path) -> None:
        self.calls: list[Call] = []
        self._act: Act = _make
        self._since = 0
        self._root = str(folder)
        self._opened: dict[int, str] = {}
        self._real: list[tuple[Any, str, Any]] = []
        self._here = threading.local()

    def __enter__(self) -> Self:
        for module, names in WATCHED.items():
            for name in names:
                real = getattr(module, name)
                self._real.append((module, name, real))
                setattr(module, name, partial(self._step_in, name, real))
        return self

    def __exit__(self, *exc_info: object) -> None:
        for module, name, real in self._real:
            setattr(module, name, real)

    def arm(self, act: Act | None = None) -> None:
        """Let every call from now on be dealt with by an act; without one, as the system does."""
        self._act, self._since = act or _make, len(self.calls)

    def _step_in(self, name: str, real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if getattr(self._here, "inside", False) or (call := self._call(name, args)) is None:
            return real(*args, **kwargs)
        place = len(self.calls) - self._since
        self.calls.append(call)
        self._here.inside = True
        try:
            return self._act(place, call, partial(self._really, call, real, args, kwargs))
        except OSError as error:
            call.failed = error.errno or 0
            raise
        finally:
            self._here.inside = False

    def _really(self, call: Call, real: Callable[..., Any], args: tuple[Any, ...], kwargs: Any) -> Any:
        result = real(*args, **kwargs)
        call.done = True
        if call.name == "open":
            call.descriptor = result
            self._opened[result] = call.path
        elif call.name == "close":
            del self._opened[call.descriptor]
        elif call.name == "pwrite":
            call.data = bytes(args[1])[:result]
        return result

    def _call(self, name: str, args: tuple[Any, ...]) -> Call | None:
        first = args[0] if args else "."
        if isinstance(first, int):
            if first not in self._opened:
                return None
            number = args[2] if name in ("pwrite", "pread") else args[1] if name == "ftruncate" else 0
            return Call(name, self._opened[first], descriptor=first, number=number)
        path = os.path.abspath(os.fsdecode(first))
        if path != self._root and not path.startswith(self._root + os.sep):
            return None
        target = os.fsdecode(args[1]) if name in ("link", "rename", "replace") else ""
        return Call(name, path, target, number=args[1] if name == "open" else 0)


# What may become of a call.


def failing(at: int, number: int, *, late: bool = False) -> Act:
    """The call at a place fails, before it did anything or, `late`, after it did everything."""

    def act(place: int, call: Call, make: Callable[[], Any]) -> Any:
        if place != at:
            return make()
        if (late and call.name not in _NEVER_LATE) or call.name in _ALWAYS_LATE:
            make()
        raise OSError(number, os.strerror(number), call.path)

    return act


def read_only(at: int, number: int = errno.EROFS) -> Act:
    """From a place on, every call that would change something fails, as on a disk that broke."""

    def act(place: int, call: Call, make: Callable[[], Any]) -> Any:
        if place < at or not call.changes:
            return make()
        if call.name == "open" and os.path.lexists(call.path) and not call.number & os.O_EXCL:
            return make()
        raise OSError(number if place > at else errno.EIO, os.strerror(number), call.path)

    return act


def short(at: int, then: int = 0) -> Act:
    """The write at a place writes half of what it was given; `then` is how the next write fails."""
    broken = [0]

    def act(place: int, call: Call, make: Callable[[], Any]) -> Any:
        if place == at and call.name == "pwrite":
            broken[0] = then
            return _half(make)
        if call.name == "pwrite" and broken[0]:
            number, broken[0] = broken[0], 0
            raise OSError(number, os.strerror(number), call.path)
        return make()

    return act


def _half(make: Callable[[], Any]) -> int:
    assert isinstance(make, partial)
    call, real, (descriptor, data, offset), kwargs = make.args
    written: int = make.func(call, real, (descriptor, bytes(data)[: max(1, len(data) // 2)], offset), kwargs)
    return written


def killing(at: int, *, half: bool = False) -> Act:
    """The process kills itself when it comes to a call, or in the middle of that write."""

    def act(place: int, call: Call, make: Callable[[], Any]) -> Any:
        if place == at:
            if half and call.name == "pwrite":
                _half(make)
            os.kill(os.getpid(), signal.SIGKILL)
        return make()

    return act


class Died(BaseException):
    """Raised in a writer that is taken for dead, so that nothing of it goes on."""


def dying(at: int, *, half: bool = False) -> Act:
    """As `killing`, for a writer in this process: from a call on it does nothing but let go of its files."""

    def act(place: int, call: Call, make: Callable[[], Any]) -> Any:
        if place < at or call.name in ("close", "flock"):
            return make()
        if place == at and half and call.name == "pwrite":
            _half(make)
        raise Died

    return act
