"""A container of the stand-in for Cosmos DB, for the tests of one backend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from branchpoint.checkpoint import Checkpoint
from branchpoint.storage.cosmos import CosmosCheckpointStorage
from branchpoint.testing.samples import create, small_state
from tests.servers.cosmos import KEY, CosmosItems

__all__ = ["Gate", "Here", "big", "filled"]


class Here:
    """What `cosmos_place` gave, to be opened and looked at."""

    def __init__(self, place: str) -> None:
        self.endpoint, self.database, self.container = place.split()
        self.items = CosmosItems(self.endpoint, self.database, self.container)

    def storage(self, **options: Any) -> CosmosCheckpointStorage:
        """Open it; whoever asks closes it."""
        where = {"database": self.database, "container": self.container}
        return CosmosCheckpointStorage(self.endpoint, KEY, **{**where, **options})

    def kinds(self) -> dict[str, int]:
        """How many items of each kind there are."""
        kinds = [item["kind"] for item in self.items.all()]
        return {kind: kinds.count(kind) for kind in sorted(set(kinds))}

    def change(self, id: str, **fields: Any) -> None:
        """Change fields of the items whose id begins so; None takes a field out."""
        found = [item for item in self.items.all() if item["id"].startswith(id)]
        assert found
        for item in found:
            changed = {**item, **fields}
            self.items.put({name: value for name, value in changed.items() if value is not None})


class Gate:
    """Stands before the batches of a storage, or its queries, so that something can be done in between."""

    def __init__(self, storage: CosmosCheckpointStorage, before: str = "batch") -> None:
        self._container = storage._container
        self._before = before
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    @contextmanager
    def standing(self) -> Iterator[Gate]:
        """Hold up what comes."""
        go_on: Callable[..., Any] = getattr(self._container, self._before)

        async def held_up(*args: Any, **options: Any) -> Any:
            self.reached.set()
            await self.open.wait()
            return await go_on(*args, **options)

        vars(self._container)[self._before] = held_up
        try:
            yield self
        finally:
            del vars(self._container)[self._before]


def big(megabytes: float, sign: str = "a") -> dict[str, Any]:
    """Shared state of about so many megabytes, in texts of 20 kB."""
    return {f"{sign}{n:04}": f"{sign} {n:08} " * 1800 for n in range(int(megabytes * 50))}


async def filled(storage: CosmosCheckpointStorage, commits: int = 2) -> Checkpoint:
    """A checkpoint with commits of 2 MB each, of which a part goes ahead."""
    checkpoint = create(storage)
    for n in range(commits):
        await checkpoint.commit_snapshot(small_state(n, **big(2, "abcdefgh"[n])))
    return checkpoint
