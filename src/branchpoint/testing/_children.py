"""Processes of the kit's own, that open a place and do what they are told, line by line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from branchpoint.testing._place import Place

__all__ = ["Children"]


class Children:
    """Several processes on one place; they end with the block.

    Every call waits for the answers of all, and nothing else can happen meanwhile: the event loop stands still.
    """

    def __init__(self, place: Place, count: int) -> None:
        process = place.process
        if process is None:
            raise ValueError("the place does not say how a process opens it")
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self._running = [
            subprocess.Popen(  # noqa: S603 - this interpreter, and a module of this package
                [
                    *(sys.executable, "-m", "branchpoint.testing._child"),
                    *(process.factory, json.dumps(dict(process.arguments)), str(number)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": paths},
                text=True,
                encoding="utf-8",
            )
            for number in range(count)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for child in self._running:
            if child.stdin is not None:
                with suppress(BrokenPipeError):
                    child.stdin.close()
        for child in self._running:
            if error is not None:
                child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()

    def do(self, what: str, **more: Any) -> list[dict[str, Any]]:
        """Tell all of them at once, and return what each answers."""
        for child in self._running:
            self._tell(child, what, more)
        return [self._answer(child) for child in self._running]

    def killed_while_committing(self, checkpoint_id: str, *, after: int) -> int:
        """Kill the only child while it commits again and again; return how many commits it acknowledged."""
        (child,) = self._running
        self._tell(child, "commit_forever", {"checkpoint_id": checkpoint_id})
        acknowledged = 0
        for _ in range(after):
            self._answer(child)
            acknowledged += 1
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert child.stdout is not None
        # A line without its end was being written when it died.
        return acknowledged + sum(line.endswith("\n") for line in child.stdout)

    def _tell(self, child: subprocess.Popen[str], what: str, more: dict[str, Any]) -> None:
        assert child.stdin is not None
        with suppress(BrokenPipeError):  # it ended; who waits for its answer says so
            child.stdin.write(json.dumps({"do": what, **more}) + "\n")
            child.stdin.flush()

    def _answer(self, child: subprocess.Popen[str]) -> dict[str, Any]:
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line:
            raise AssertionError(f"a process of the kit ended with {child.wait()}; what it said is on stderr")
        answer: dict[str, Any] = json.loads(line)
        return answer
