"""The place of each backend that is tested here, for the conformance kit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from branchpoint.checkpoint import CheckpointStorage
from branchpoint.testing import Place, Process
from tests.profiles import SOAKING
from tests.raw import RAW
from tests.storages import BACKENDS


class BackendPlace(Place):
    """One backend in one folder."""

    rounds = 200 if SOAKING else 10
    writers = 8 if SOAKING else 3

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__()
        if "cosmos" in name and not SOAKING:
            self.rounds = 4  # a request passes through three processes
        self._open = BACKENDS[name](folder)
        self._raw = RAW[name](folder) if name in RAW else None
        if name != "memory":
            self.process = Process("tests.storages:opened_in", {"name": name, "folder": str(folder)})

    def open(self, **options: Any) -> CheckpointStorage:
        return self._open(**options)

    def has(self, hook: str) -> bool:
        if hook == "process":
            return super().has(hook)
        return self._raw is not None and (hook != "poke" or self._raw.pokes)

    async def peek(self) -> Mapping[str, bytes]:
        assert self._raw is not None
        return await self._raw.peek()

    async def poke(self, name: str, data: bytes | None) -> None:
        assert self._raw is not None
        await self._raw.poke(name, data)

    async def pass_time(self, seconds: float) -> None:
        if self._raw is None or not await self._raw.pass_time(seconds):
            await super().pass_time(seconds)
