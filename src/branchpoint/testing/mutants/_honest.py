"""A small storage that keeps the contract, with a method for each thing that can be got wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

from branchpoint import clock
from branchpoint.checkpoint import (
    Capability,
    Checkpoint,
    CheckpointSnapshot,
    CheckpointStorage,
    Header,
    Lease,
    StoredHead,
    StoredLease,
    StoredRecords,
    check_id,
    decode_header,
    decode_manifest,
    encode_header,
    encode_manifest,
    refuse_leased,
    refuse_stale,
)
from branchpoint.errors import CheckpointLeasedError, CheckpointNotFoundError, CorruptCheckpointError
from branchpoint.ids import new_id
from branchpoint.testing._place import Place

__all__ = ["HonestStorage", "Vault", "VaultPlace"]


class Vault:
    """Named bytes, and a lock that all who use them share."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.things: dict[tuple[str, ...], bytes] = {}


class HonestStorage(CheckpointStorage):
    """Keeps header, lineage, manifests, parts and lease of a checkpoint as named bytes in a vault.

    Each mutant is this class with one method overridden. It is made to be read and broken, not to be used.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset({"load_head", "prune", "lease"})

    def __init__(self, vault: Vault, *, leases: bool = False, lease_seconds: float = 30.0) -> None:
        self.vault = vault
        self.leases, self.lease_seconds = leases, lease_seconds

    def key(self, checkpoint_id: str) -> str:
        """Under which name everything of a checkpoint is kept."""
        return checkpoint_id

    async def commit_snapshot(
        self, checkpoint: Checkpoint, snapshot: CheckpointSnapshot, *, expected_head_snapshot_id: str | None
    ) -> None:
        """Compare and write under the lock, without waiting for anything in between."""
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
            self.write(checkpoint, snapshot)

    def is_stored(self, checkpoint_id: str, snapshot_id: str) -> bool:
        """Whether an earlier commit of this snapshot landed, whose reply was lost."""
        return snapshot_id in self.lineage(checkpoint_id)

    def refuse(
        self,
        checkpoint: Checkpoint,
        generation: int,
        *,
        expected_head_snapshot_id: str | None,
        stored: StoredHead | None,
    ) -> None:
        """Refuse a writer whose head or generation is stale, or who has no right to write now."""
        self.refuse_leased(checkpoint)
        refuse_stale(
            checkpoint.checkpoint_id,
            expected_head_snapshot_id=expected_head_snapshot_id,
            generation=generation,
            stored=stored,
        )

    def refuse_leased(self, checkpoint: Checkpoint) -> None:
        """Compare the writer's lease with the stored one."""
        if self.leases:
            refuse_leased(
                checkpoint.checkpoint_id,
                held=checkpoint.lease,
                stored=self.stored_lease(checkpoint.checkpoint_id),
            )

    def write(self, checkpoint: Checkpoint, snapshot: CheckpointSnapshot) -> None:
        """Write all of a commit."""
        self.write_parts(checkpoint, snapshot)
        self.write_head(checkpoint, snapshot)

    def write_parts(self, checkpoint: Checkpoint, snapshot: CheckpointSnapshot) -> None:
        """Write the new parts of a commit."""
        key = self.key(checkpoint.checkpoint_id)
        for digest, data in snapshot.new_parts.items():
            self.vault.things["part", key, digest] = self.kept(data)

    def write_head(self, checkpoint: Checkpoint, snapshot: CheckpointSnapshot) -> None:
        """Write what makes a commit visible."""
        key = self.key(checkpoint.checkpoint_id)
        lineage = self.lineage(checkpoint.checkpoint_id)
        if not lineage:
            self.vault.things["header", key] = encode_header(checkpoint.header, format="json")
        self.vault.things["manifest", key, snapshot.snapshot_id] = encode_manifest(
            snapshot.manifest, format="json"
        )
        self.write_lineage(checkpoint.checkpoint_id, [*lineage, snapshot.snapshot_id])

    def write_lineage(self, checkpoint_id: str, lineage: Sequence[str]) -> None:
        """Write the ids of the snapshots, in commit order."""
        self.vault.things["lineage", self.key(checkpoint_id)] = json.dumps(lineage).encode()

    def kept(self, data: bytes) -> bytes:
        """A part as it is kept."""
        return data

    def lineage(self, checkpoint_id: str) -> list[str]:
        """The ids of the stored snapshots in commit order; none when nothing is stored."""
        data = self.vault.things.get(("lineage", self.key(checkpoint_id)))
        try:
            found: list[str] = [] if data is None else json.loads(data)
        except ValueError as error:
            raise CorruptCheckpointError(f"the lineage of checkpoint {checkpoint_id!r} is damaged") from error
        return found

    def stored_head(self, checkpoint_id: str) -> StoredHead | None:
        """What a commit is compared with."""
        lineage = self.lineage(checkpoint_id)
        return StoredHead(lineage[-1], self.header(checkpoint_id).generation) if lineage else None

    def header(self, checkpoint_id: str) -> Header:
        """The stored header."""
        data = self.vault.things.get(("header", self.key(checkpoint_id)))
        if data is None:
            raise CorruptCheckpointError(f"checkpoint {checkpoint_id!r} has no header")
        return decode_header(data, format="json", checkpoint_id=checkpoint_id)

    async def load_records(self, checkpoint_id: str) -> StoredRecords:
        """Read all under the lock."""
        check_id(checkpoint_id)
        with self.vault.lock:
            lineage = self.lineage(checkpoint_id)
            if not lineage:
                raise CheckpointNotFoundError(f"no checkpoint {checkpoint_id!r} in this vault")
            key, things = self.key(checkpoint_id), self.vault.things
            missing = [one for one in lineage if ("manifest", key, one) not in things]
            if missing:
                raise CorruptCheckpointError(f"checkpoint {checkpoint_id!r} has no manifest {missing}")
            return StoredRecords(
                header=self.header(checkpoint_id),
                manifests=[
                    decode_manifest(things["manifest", key, one], format="json", checkpoint_id=checkpoint_id)
                    for one in lineage
                ],
                parts={name[2]: data for name, data in things.items() if name[:2] == ("part", key)},
            )

    async def load_head(self, checkpoint_id: str) -> StoredHead:
        """Return the stored head."""
        check_id(checkpoint_id)
        with self.vault.lock:
            stored = self.stored_head(checkpoint_id)
        if stored is None:
            raise CheckpointNotFoundError(f"no checkpoint {checkpoint_id!r} in this vault")
        return stored

    async def delete(self, checkpoint_id: str) -> None:
        """Remove all of a checkpoint."""
        check_id(checkpoint_id)
        with self.vault.lock:
            self.remove(self.deleted(checkpoint_id))

    def deleted(self, checkpoint_id: str) -> list[tuple[str, ...]]:
        """The names of what a delete removes."""
        return [name for name in self.vault.things if name[1] == self.key(checkpoint_id)]

    def remove(self, names: Iterable[tuple[str, ...]]) -> None:
        """Remove things by name."""
        for name in list(names):
            del self.vault.things[name]

    async def prune(
        self,
        checkpoint: Checkpoint,
        *,
        header: Header,
        keep: Sequence[str],
        parts: frozenset[str],
        expected_head_snapshot_id: str,
    ) -> None:
        """Remove what is not kept, under the lock of a commit."""
        checkpoint_id, key = header.checkpoint_id, self.key(header.checkpoint_id)
        with self.vault.lock:
            stored = self.stored_head(checkpoint_id)
            if (
                stored is not None
                and self.header(checkpoint_id) == header
                and self.lineage(checkpoint_id) == keep
            ):
                return
            self.refuse(
                checkpoint,
                header.generation - 1,
                expected_head_snapshot_id=expected_head_snapshot_id,
                stored=stored,
            )
            staying = self.staying(checkpoint, keep)
            self.remove(
                name
                for name in self.vault.things
                if (name[:2] == ("manifest", key) and name[2] not in staying)
                or (name[:2] == ("part", key) and name[2] not in parts)
            )
            self.vault.things["header", key] = self.pruned_header(header)
            self.write_lineage(checkpoint_id, staying)

    def staying(self, checkpoint: Checkpoint, keep: Sequence[str]) -> list[str]:
        """The ids that a prune keeps."""
        return list(keep)

    def pruned_header(self, header: Header) -> bytes:
        """The header that a prune stores."""
        return encode_header(header, format="json")

    # Leases.

    def stored_lease(self, checkpoint_id: str) -> StoredLease | None:
        """The stored lease, as of now."""
        data = self.vault.things.get(("lease", self.key(checkpoint_id)))
        if data is None:
            return None
        token, expires = json.loads(data)
        left = datetime.fromisoformat(expires) - clock.now()
        return StoredLease(token, left.total_seconds())

    def store_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """Write a lease that begins now."""
        expires = clock.now() + timedelta(seconds=lease.seconds)
        found = json.dumps([lease.token, expires.isoformat()]).encode()
        self.vault.things["lease", self.key(checkpoint_id)] = found

    async def take_lease(self, checkpoint_id: str) -> Lease:
        """Take a lease that is free or expired."""
        check_id(checkpoint_id)
        with self.vault.lock:
            refuse_leased(checkpoint_id, held=None, stored=self.stored_lease(checkpoint_id))
            lease = Lease(new_id(), self.lease_seconds)
            self.store_lease(checkpoint_id, lease)
        return lease

    async def renew_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """Renew a lease that is still the stored one."""
        check_id(checkpoint_id)
        with self.vault.lock:
            stored = self.stored_lease(checkpoint_id)
            if stored is None or stored.token != lease.token:
                raise CheckpointLeasedError(
                    f"the lease of checkpoint {checkpoint_id!r} passed on", retry_after=0.0
                )
            self.store_lease(checkpoint_id, lease)

    async def end_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """Remove a lease that is still the stored one."""
        check_id(checkpoint_id)
        with self.vault.lock:
            stored = self.stored_lease(checkpoint_id)
            if stored is not None and stored.token == lease.token:
                self.remove([("lease", self.key(checkpoint_id))])


class VaultPlace(Place):
    """An empty vault, opened by one of the storages of this package."""

    def __init__(self, storage: type[HonestStorage] = HonestStorage) -> None:
        super().__init__()
        self._storage, self._vault = storage, Vault()

    def open(self, *, leases: bool = False, lease_seconds: float = 30.0) -> HonestStorage:
        """Return another storage on the vault."""
        return self._storage(self._vault, leases=leases, lease_seconds=lease_seconds)

    async def peek(self) -> Mapping[str, bytes]:
        """Return what is in the vault."""
        with self._vault.lock:
            return {json.dumps(name): data for name, data in self._vault.things.items()}

    async def poke(self, name: str, data: bytes | None) -> None:
        """Replace or remove what is in the vault."""
        key: Any = tuple(json.loads(name))
        with self._vault.lock:
            if data is None:
                del self._vault.things[key]
            else:
                self._vault.things[key] = data
