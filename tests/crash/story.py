"""A checkpoint that is changed while somebody notes what may be found of it at every moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from branchpoint.checkpoint import Checkpoint, Format
from branchpoint.errors import CheckpointNotFoundError
from branchpoint.storage import FileCheckpointStorage
from branchpoint.storage._disk import Disk
from tests.crash.power import Left, put
from tests.crash.system_calls import SystemCalls
from tests.storages import create, shared, state

Labels = tuple[int, ...]
"""The snapshots of a checkpoint in commit order, each by the number in its state."""

Allowed = frozenset[Labels | None]
"""Everything that may be found; None for no checkpoint at all."""


class QuickDisk(Disk):
    """A disk that is not waited for, where nothing but what is shown matters."""

    def sync(self, descriptor: int) -> None:
        pass

    def sync_folder(self, folder: Path) -> None:
        pass


def labels(checkpoint: Checkpoint) -> Labels:
    """What a checkpoint holds; its lineage is a straight line, or the line that a prune left of it."""
    known = set()
    for one in checkpoint.snapshots:
        parent = one.parent_snapshot_id
        assert parent is None or parent in known or parent in checkpoint.header.pruned
        known.add(one.snapshot_id)
    return tuple(shared(one)["n"] for one in checkpoint.snapshots)


class Story:
    """One checkpoint in one folder, whose changes are watched.

    Attributes:
        settled: What must be there: everything that was reported as done.
        moments: From which call on what was allowed to be there.
    """

    def __init__(
        self, folder: Path, format: Format, calls: SystemCalls, settled: Labels | None = None
    ) -> None:
        self.folder, self.format, self.calls = folder, format, calls
        self.settled = settled
        self.moments: list[tuple[int, Allowed]] = []
        self.failed: set[Labels | None] = set()
        self.checkpoint: Checkpoint | None = None
        self.storage = self.opened()
        self._note()

    def opened(self) -> FileCheckpointStorage:
        return FileCheckpointStorage(self.folder, serialization_format=self.format)

    async def taken_up(self) -> None:
        """Go on as another process would, from whatever is there."""
        self.storage, self.checkpoint = self.opened(), None
        try:
            self.checkpoint = await self.storage.load("order-17")
        except CheckpointNotFoundError:
            found = None
        else:
            found = labels(self.checkpoint)
        assert found in self.allowed
        # Nobody was told of it: it is settled only when the next change says so.
        self._now = found

    _now: Labels | None = None

    @property
    def allowed(self) -> Allowed:
        return self.moments[-1][1]

    async def commit(self, label: int, text: str = "x" * 150) -> None:
        made = self.checkpoint or create(self.storage)
        begun = self._begin((*(self._now or ()), label))
        await made.commit_snapshot(state(label, n=label, text=text))
        self.checkpoint = made
        self._done(begun)

    async def prune(self) -> None:
        assert self.checkpoint is not None and self._now is not None
        begun, before = self._begin(self._now[-1:]), self._now
        since = len(self.calls.calls)
        await self.checkpoint.prune()
        self._done(begun)
        if any(call.failed for call in self.calls.calls[since:]):
            # Documented: only the name of the new file may wait for the next change to be made durable.
            self.failed.add(before)
            self._note()

    async def delete(self) -> None:
        begun = self._begin(None)
        await self.storage.delete("order-17")
        self.checkpoint = None
        self._done(begun)

    def _begin(self, outcome: Labels | None) -> Labels | None:
        self.failed.add(outcome)
        self._note()
        return outcome

    def _done(self, outcome: Labels | None) -> None:
        self.settled = self._now = outcome
        self.failed.clear()
        self._note()

    def _note(self) -> None:
        allowed: Allowed = frozenset({self.settled, *self.failed})
        self.moments.append((len(self.calls.calls), allowed))

    def allowed_after(self, calls: int) -> Allowed:
        """What may be found when that many calls were made."""
        return [allowed for at, allowed in self.moments if at <= calls][-1]

    def changes(self) -> Iterator[tuple[int, Allowed]]:
        """Every moment worth a power cut: after how many calls, and what is allowed then."""
        reports = {at for at, _ in self.moments}
        for n in range(len(self.calls.calls) + 1):
            if n in reports or (n and self.calls.calls[n - 1].changes):
                yield n, self.allowed_after(n)


class Inspection:
    """Loads what was left of a folder, and goes on from there."""

    def __init__(self, space: Path, format: Format) -> None:
        self.space, self.format = space, format
        self.count = 0
        self._known: dict[tuple[tuple[str, bytes | None], ...], Labels | None] = {}

    async def __call__(self, left: Left, allowed: Allowed, inside: str = "deep/runs") -> Labels | None:
        """Return what is found, which is allowed, whole, and can be gone on from."""
        key = tuple(sorted(left.items()))
        if key not in self._known:
            self._known[key] = await self._look(left, inside)
        found = self._known[key]
        assert found in allowed, f"found {found}, expected one of {set(allowed)}, in {list(left)}"
        return found

    async def _look(self, left: Left, inside: str) -> Labels | None:
        self.count += 1
        folder = self.space / str(self.count)
        folder.mkdir()
        put(left, folder)
        folder /= inside

        def opened() -> FileCheckpointStorage:
            return FileCheckpointStorage(folder, serialization_format=self.format, disk=QuickDisk())

        storage = opened()
        found: Labels | None
        try:
            checkpoint = await storage.load("order-17")
        except CheckpointNotFoundError:
            found, checkpoint = None, create(storage)
            assert await storage.list_checkpoints() == []
        else:
            found = labels(checkpoint)
            head = checkpoint.head_snapshot_id
            assert (await opened().load_head("order-17")).head_snapshot_id == head
            assert [one.head_snapshot_id for one in await storage.list_checkpoints()] == [head]
        await checkpoint.commit_snapshot(state(99, n=99))
        assert labels(await opened().load("order-17")) == (*(found or ()), 99)
        assert not list(folder.glob(".tmp-*"))
        return found
