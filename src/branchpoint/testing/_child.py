"""What a process of the kit does: opens the place by a name it is given, and obeys its standard input."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import sys
from typing import Any

from branchpoint.checkpoint import Checkpoint, CheckpointStorage
from branchpoint.errors import BranchpointError
from branchpoint.testing.samples import create, small_state

__all__ = ["find"]


def find(name: str) -> Any:
    """Return what `"module:name"` names; whoever runs a test gives the name, no stored data does."""
    module, _, inside = name.partition(":")
    return getattr(importlib.import_module(module), inside)


class _Worker:
    def __init__(self, storage: CheckpointStorage, number: int) -> None:
        self.storage, self.number = storage, number
        self.checkpoint: Checkpoint | None = None

    async def load(self, checkpoint_id: str) -> dict[str, Any]:
        self.checkpoint = await self.storage.load(checkpoint_id)
        return {"head": self.checkpoint.head_snapshot_id}

    async def create(self, checkpoint_id: str) -> dict[str, Any]:
        self.checkpoint = create(self.storage, checkpoint_id)
        return {}

    async def commit(self, n: int) -> dict[str, Any]:
        assert self.checkpoint is not None
        snapshot = await self.checkpoint.commit_snapshot(small_state(n, n=n, writer=self.number))
        return {"won": snapshot.snapshot_id}

    async def commit_forever(self, checkpoint_id: str) -> dict[str, Any]:
        checkpoint = await self.storage.load(checkpoint_id)
        n = len(checkpoint.snapshots)
        while True:
            await checkpoint.commit_snapshot(small_state(n, n=n, text=f"{n} " * 500))
            _say({"n": n})
            n += 1


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def _work(storage: CheckpointStorage, number: int) -> None:
    worker = _Worker(storage, number)
    async with storage:
        for line in sys.stdin:
            asked = json.loads(line)
            try:
                answer = await getattr(worker, asked.pop("do"))(**asked)
            except BranchpointError as error:
                answer = {"error": type(error).__name__, "says": str(error)}
            _say(answer)


async def _main(factory: str, arguments: str, number: str) -> None:
    made = find(factory)(**json.loads(arguments))
    await _work(await made if inspect.isawaitable(made) else made, int(number))


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
