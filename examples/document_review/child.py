"""A worker process, seen from its parent: what it tells, how it is killed, how it ended."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from place import Place

__all__ = ["Child"]

WORKER = Path(__file__).with_name("worker.py")


class Child:
    """A running worker. Leaving the `with` block ends it, whatever happened inside."""

    def __init__(
        self, place: Place, arguments: Sequence[str], *, pace: float, gate: int | None = None
    ) -> None:
        options = ["--pace", str(pace), *([] if gate is None else ["--gate", str(gate)])]
        command = [sys.executable, str(WORKER), *options, str(place.folder), *arguments]
        with place.errors.open("ab") as errors:
            # Our own program with arguments in a list: nothing here is read by a shell.
            self._process = subprocess.Popen(  # noqa: S603
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        self.pid = self._process.pid

    def told(self) -> Iterator[dict[str, Any]]:
        """Yield what the worker tells, as it comes, until it ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):  # a killed process may leave half a line
                yield msgspec.json.decode(line)

    def kill(self) -> None:
        """Kill it as `kill -9` does: it cannot catch this, clean up, or save anything."""
        self._process.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        """Wait for its end and return the exit code; -9 when it was killed."""
        return self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()
