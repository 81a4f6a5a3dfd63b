"""A log outside of the workflow: one line whenever a handler is entered or a document was examined.

A workflow could say anything about itself. This file is only ever appended to, by every process, so
it tells what really happened, also what a killed process did and never saved.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

__all__ = ["Tick", "TickLog", "calls_of", "documents_of"]


class Tick(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was done.

    Attributes:
        process: Id of the process that did it.
        executor: Id of the executor.
        call: The idempotency key of the delivery that was handled.
        document: For an examined document: its name; None when a handler was entered.
    """

    process: int
    executor: str
    call: str
    document: str | None = None


class TickLog:
    """The file; may be shared by executors and by processes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, executor: str, call: str, document: str | None = None) -> None:
        """Append a tick. A single write in append mode: lines of two writers never mix."""
        line = msgspec.json.encode(Tick(os.getpid(), executor, call, document)) + b"\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    def read(self) -> list[Tick]:
        """Return all ticks, oldest first."""
        if not self.path.exists():
            return []
        return msgspec.json.decode(
            b"[" + b",".join(self.path.read_bytes().splitlines()) + b"]", type=list[Tick]
        )


def calls_of(ticks: Iterable[Tick], process: int) -> list[Tick]:
    """Return the handlers that a process entered, in order."""
    return [tick for tick in ticks if tick.process == process and tick.document is None]


def documents_of(ticks: Iterable[Tick], process: int | None = None) -> list[str]:
    """Return the documents that a process examined, in order; or all processes."""
    chosen = (tick for tick in ticks if process is None or tick.process == process)
    return [tick.document for tick in chosen if tick.document is not None]
