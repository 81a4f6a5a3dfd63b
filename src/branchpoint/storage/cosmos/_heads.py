"""The head item of a checkpoint, read and compared."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from branchpoint.checkpoint import Lease, StoredLease, refuse_leased
from branchpoint.errors import CheckpointNotFoundError, StorageError
from branchpoint.storage.cosmos._container import Container
from branchpoint.storage.cosmos._items import VERSION, HeadItem, LeaseItem, SnapshotItem, read_item
from branchpoint.storage.cosmos._names import HEAD, partition_name, snapshot_name, sort_key

__all__ = [
    "TRIES",
    "Seen",
    "as_document",
    "held_elsewhere",
    "is_landed",
    "known",
    "new_head",
    "read_head",
    "refuse_other_lease",
    "stored_lease",
]

TRIES = 50
"""How often something is tried again that another one came before, who has then got on."""


class Seen(NamedTuple):
    """A head item as it was seen; what a checkpoint keeps, so that its next commit need not look.

    Attributes:
        where: In which container.
        head: None where there is none.
        etag: What the item must still have to be replaced.
        moment: When it was read, in seconds since 1970 by the clock of the service.
    """

    where: str
    head: HeadItem | None
    etag: str = ""
    moment: float | None = None

    def found(self, checkpoint_id: str) -> HeadItem:
        """Return the head item of a checkpoint that was committed.

        Raises:
            CheckpointNotFoundError: There is none.
        """
        if self.head is None or self.head.head is None:
            raise CheckpointNotFoundError(
                f"No checkpoint {checkpoint_id!r} in {self.where}; create it, or ask the storage it was saved in."
            )
        return self.head


async def read_head(container: Container, checkpoint_id: str, doing: str) -> Seen:
    """Read the head item of a checkpoint, if there is one.

    Raises:
        CorruptCheckpointError: It is damaged.
        UnknownVersionError: A newer program wrote it.
        StorageError: It could not be read.
    """
    document, moment = await container.read(doing, partition_name(checkpoint_id), HEAD)
    if document is None:
        return Seen(container.where, None, moment=moment)
    return Seen(container.where, read_item(document, HeadItem, checkpoint_id), document["_etag"], moment)


def new_head(checkpoint_id: str, life: str) -> HeadItem:
    """Return the head item of a checkpoint of which nothing was committed yet."""
    return HeadItem(
        partition=partition_name(checkpoint_id),
        kind="unborn",
        v=VERSION,
        checkpoint_id=checkpoint_id,
        life=life,
        sort=sort_key(checkpoint_id),
    )


def as_document(item: msgspec.Struct) -> dict[str, Any]:
    """Return an item as it is written, with the fields that queries ask for even where they are as by default."""
    document: dict[str, Any] = msgspec.to_builtins(item)
    if "kind" not in document:
        document["kind"] = "snapshot" if isinstance(item, SnapshotItem) else "parts"
    document.setdefault("id", HEAD)
    return document


async def is_landed(container: Container, seen: Seen, snapshot_id: str, doing: str) -> bool:
    """Say whether a snapshot is in the stored lineage: its item is there exactly when its commit has landed."""
    head = seen.head
    if head is None or head.head is None:
        return False
    if head.head == snapshot_id:
        return True
    document, _ = await container.read(doing, head.partition, snapshot_name(head.life, snapshot_id))
    if document is None:
        return False
    item = read_item(document, SnapshotItem, head.checkpoint_id)
    # One that came after the head item was read is there as well; a hidden one was pruned.
    return item.snapshot_id == snapshot_id and (item.n > head.n or item.n in head.numbers())


# Leases.


def stored_lease(lease: LeaseItem | None, moment: float | None) -> StoredLease | None:
    """Return a stored lease as of the moment in which it was read.

    Raises:
        StorageError: Nobody knows that moment.
    """
    if lease is None:
        return None
    return StoredLease(lease.token, min(lease.expires - known(moment), lease.seconds))


def known(moment: float | None) -> float:
    """Return a moment of the service's clock.

    Raises:
        StorageError: Nobody knows it.
    """
    if moment is None:
        raise StorageError(
            "Cosmos DB answered without a Date, by which leases expire: let whatever stands in between pass it on"
        )
    return moment


def held_elsewhere(head: HeadItem | None, held: Lease | None) -> bool:
    """Say whether a head item has another lease than a writer, or one that it lacks."""
    lease = None if head is None else head.lease
    return (None if lease is None else lease.token) != (None if held is None else held.token)


def refuse_other_lease(checkpoint_id: str, seen: Seen, held: Lease | None) -> None:
    """Refuse a writer whose lease is not the stored one.

    Raises:
        CheckpointLeasedError: Another's is in force, or its own passed on.
    """
    if seen.head is not None and seen.head.lease is not None:
        refuse_leased(checkpoint_id, held=held, stored=stored_lease(seen.head.lease, seen.moment))
