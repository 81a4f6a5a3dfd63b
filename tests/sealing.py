"""Encrypted storages for tests, and the records that stand in a memory storage under them."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from branchpoint.checkpoint import (
    Capability,
    CheckpointStorage,
    Header,
    Manifest,
    StoredRecords,
    decode_header,
    decode_manifest,
    encode_header,
    encode_manifest,
)
from branchpoint.storage import FileCheckpointStorage, MemoryCheckpointStorage
from branchpoint.storage.encrypted import EncryptedCheckpointStorage, EncryptionKeys

OLD, NEW, OTHER = bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96))


def sealed(inner: CheckpointStorage, **keys: bytes) -> EncryptedCheckpointStorage:
    """Another encrypting storage around the same inner one; the last key is the one that writes."""
    given = keys or {"k1": OLD}
    return EncryptedCheckpointStorage(inner, EncryptionKeys(given, current=list(given)[-1]))


def stored_bytes(inner: CheckpointStorage) -> bytes:
    """Everything that a store holds, in one piece."""
    if isinstance(inner, FileCheckpointStorage):
        return b"".join(path.read_bytes() for path in sorted(inner.path.glob("*.journal")))
    assert isinstance(inner, MemoryCheckpointStorage)
    return b"".join(
        piece
        for kept in inner._kept.values()
        for piece in (kept.header, *kept.manifests.values(), *kept.parts.values())
    )


class OnDemand(MemoryCheckpointStorage):
    """Reads little, as a database does: a load brings the header and the newest manifest alone."""

    capabilities: ClassVar[frozenset[Capability]] = MemoryCheckpointStorage.capabilities | {"load_lineage"}

    async def load_records(self, checkpoint_id: str) -> StoredRecords:
        found = await super().load_records(checkpoint_id)
        return StoredRecords(header=found.header, manifests=found.manifests[-1:], parts={}, complete=False)

    async def load_lineage(self, checkpoint_id: str) -> StoredRecords:
        found = await super().load_records(checkpoint_id)
        return StoredRecords(header=found.header, manifests=found.manifests, parts={})


class Stored:
    """One checkpoint as it stands in a memory storage, to be changed by somebody who can write there."""

    def __init__(self, inner: MemoryCheckpointStorage, checkpoint_id: str = "order-17") -> None:
        self.id = checkpoint_id
        self.kept = inner._kept[checkpoint_id]

    @property
    def ids(self) -> list[str]:
        return list(self.kept.manifests)

    @property
    def header(self) -> Header:
        return decode_header(self.kept.header, format="json", checkpoint_id=self.id)

    @header.setter
    def header(self, header: Header) -> None:
        self.kept.header = encode_header(header, format="json")

    def manifest(self, place: int) -> Manifest:
        found = self.kept.manifests[self.ids[place]]
        return decode_manifest(found, format="json", checkpoint_id=self.id)

    def put(self, place: int, manifest: Manifest) -> None:
        """Replace a manifest, in its place."""
        self.change(lambda manifests: manifests.__setitem__(place, manifest))

    def change(self, change: Callable[[list[Manifest]], object]) -> None:
        """Change the list of manifests."""
        manifests = [self.manifest(place) for place in range(len(self.ids))]
        change(manifests)
        self.kept.manifests = {
            manifest.snapshot_id: encode_manifest(manifest, format="json") for manifest in manifests
        }
