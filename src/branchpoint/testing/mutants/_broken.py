"""Storages that are each broken in one way, as storages are."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

from branchpoint.checkpoint import (
    Checkpoint,
    CheckpointSnapshot,
    Header,
    StoredHead,
    encode_header,
    refuse_stale,
)
from branchpoint.testing.mutants._honest import HonestStorage, Vault

__all__ = [
    "AliasOnLoad",
    "CollidingIds",
    "ConflictForItsOwnWrite",
    "ForgetfulPrune",
    "HeadCheckOutsideTheTransaction",
    "IncompleteDelete",
    "LeaseWithoutFencing",
    "LossyTypes",
    "NoHeadCheck",
    "NothingDurable",
    "OlderHeadInSilence",
    "OrderedById",
    "PruneWithoutGeneration",
    "TornCommitVisible",
    "TornByACancellation",
]


class AliasOnLoad(HonestStorage):
    """Gives the checkpoint object that it gave before, as long as nobody has committed since."""

    def __init__(self, vault: Vault, **more: Any) -> None:
        super().__init__(vault, **more)
        self._given: dict[str, Checkpoint] = {}

    async def load(self, checkpoint_id: str, **more: Any) -> Checkpoint:
        given = self._given.get(checkpoint_id)
        if given is None or self.stored_head(checkpoint_id) != StoredHead(
            str(given.stored_head_snapshot_id), given.generation
        ):
            self._given[checkpoint_id] = given = await super().load(checkpoint_id, **more)
        return given


class LossyTypes(HonestStorage):
    """Keeps numbers as a document store does to which 1.0 is 1."""

    def kept(self, data: bytes) -> bytes:
        return re.sub(rb"(?<=\d)\.0(?=[,\]}])", b"", data)


class TornCommitVisible(HonestStorage):
    """Moves the head first and writes the parts in a second step."""

    async def commit_snapshot(
        self, checkpoint: Checkpoint, snapshot: CheckpointSnapshot, *, expected_head_snapshot_id: str | None
    ) -> None:
        await super().commit_snapshot(
            checkpoint, snapshot, expected_head_snapshot_id=expected_head_snapshot_id
        )
        await asyncio.sleep(0)
        with self.vault.lock:
            self.write_parts(checkpoint, snapshot)

    def write(self, checkpoint: Checkpoint, snapshot: CheckpointSnapshot) -> None:
        self.write_head(checkpoint, snapshot)


class TornByACancellation(HonestStorage):
    """Writes the manifest last, where an interruption is in time to prevent it."""

    async def commit_snapshot(
        self, checkpoint: Checkpoint, snapshot: CheckpointSnapshot, *, expected_head_snapshot_id: str | None
    ) -> None:
        await super().commit_snapshot(
            checkpoint, snapshot, expected_head_snapshot_id=expected_head_snapshot_id
        )
        name = ("manifest", self.key(checkpoint.checkpoint_id), snapshot.snapshot_id)
        data = self.vault.things.pop(name)
        await asyncio.sleep(0)
        self.vault.things[name] = data


class NoHeadCheck(HonestStorage):
    """Stores whatever comes."""

    def refuse(self, checkpoint: Checkpoint, generation: int, **more: Any) -> None:
        self.refuse_leased(checkpoint)


class HeadCheckOutsideTheTransaction(HonestStorage):
    """Compares the head, and writes later."""

    async def commit_snapshot(
        self, checkpoint: Checkpoint, snapshot: CheckpointSnapshot, *, expected_head_snapshot_id: str | None
    ) -> None:
        with self.vault.lock:
            stored = self.stored_head(checkpoint.checkpoint_id)
            if self.is_stored(checkpoint.checkpoint_id, snapshot.snapshot_id):
                return
            self.refuse(
                checkpoint,
                checkpoint.generation,
                expected_head_snapshot_id=expected_head_snapshot_id,
                stored=stored,
            )
        await asyncio.sleep(0)
        with self.vault.lock:
            self.write(checkpoint, snapshot)


class IncompleteDelete(HonestStorage):
    """Removes what a load would find, and leaves the parts."""

    def deleted(self, checkpoint_id: str) -> list[tuple[str, ...]]:
        return [name for name in super().deleted(checkpoint_id) if name[0] != "part"]


class NothingDurable(HonestStorage):
    """Keeps everything in the storage object, as a cache does that is never written back."""

    def __init__(self, vault: Vault, **more: Any) -> None:
        super().__init__(Vault(), **more)


class CollidingIds(HonestStorage):
    """Keeps checkpoints as a file system does that ignores case."""

    def key(self, checkpoint_id: str) -> str:
        return checkpoint_id.casefold()


class ConflictForItsOwnWrite(HonestStorage):
    """Reports a conflict when its own commit is repeated."""

    def is_stored(self, checkpoint_id: str, snapshot_id: str) -> bool:
        return False


class ForgetfulPrune(HonestStorage):
    """Keeps the way from the head to the root, and no other branch."""

    def staying(self, checkpoint: Checkpoint, keep: Sequence[str]) -> list[str]:
        way = {one.snapshot_id for one in checkpoint.ancestors(checkpoint.stored_head_snapshot_id)}
        return [one for one in keep if one in way]


class PruneWithoutGeneration(HonestStorage):
    """Prunes, and lets those commit who have not seen it."""

    def refuse(
        self,
        checkpoint: Checkpoint,
        generation: int,
        *,
        expected_head_snapshot_id: str | None,
        stored: StoredHead | None,
    ) -> None:
        self.refuse_leased(checkpoint)
        refuse_stale(
            checkpoint.checkpoint_id,
            expected_head_snapshot_id=expected_head_snapshot_id,
            generation=generation,
            stored=None if stored is None else StoredHead(stored.head_snapshot_id, generation),
        )

    def pruned_header(self, header: Header) -> bytes:
        return encode_header(header, format="json")


class LeaseWithoutFencing(HonestStorage):
    """Gives leases, and compares none when it commits."""

    def refuse_leased(self, checkpoint: Checkpoint) -> None:
        pass


class OlderHeadInSilence(HonestStorage):
    """Shows what comes before a snapshot that cannot be read."""

    def lineage(self, checkpoint_id: str) -> list[str]:
        key = self.key(checkpoint_id)
        return [one for one in super().lineage(checkpoint_id) if ("manifest", key, one) in self.vault.things]


class OrderedById(HonestStorage):
    """Sorts snapshots by their ids, which are times, in place of keeping the order of commits."""

    def write_lineage(self, checkpoint_id: str, lineage: Sequence[str]) -> None:
        super().write_lineage(checkpoint_id, sorted(lineage))
