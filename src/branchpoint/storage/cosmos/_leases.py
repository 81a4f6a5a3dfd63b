"""The lease of a checkpoint: a field of its head item, so that a commit that compares the item compares it too.

It expires by the clock of the service, which its replies tell in whole seconds. So it lasts up to a second longer.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from branchpoint.checkpoint import Lease, refuse_leased, refuse_lost
from branchpoint.errors import StorageError
from branchpoint.ids import new_id
from branchpoint.storage.cosmos._commits import new_token
from branchpoint.storage.cosmos._container import Container
from branchpoint.storage.cosmos._heads import (
    TRIES,
    Seen,
    as_document,
    known,
    new_head,
    read_head,
    stored_lease,
)
from branchpoint.storage.cosmos._items import HeadItem, LeaseItem
from branchpoint.storage.cosmos._troubles import Unmet

__all__ = ["end_lease", "renew_lease", "take_lease"]

_ROUNDING = 1.0


async def take_lease(container: Container, checkpoint_id: str, seconds: float) -> Lease:
    """Take the lease of a checkpoint, stored or not.

    Raises:
        CheckpointLeasedError: Another's is in force.
        StorageError: It could not be done.
    """
    lease = Lease(new_id(), seconds)

    def taken(seen: Seen) -> LeaseItem | None:
        stored = None if seen.head is None else seen.head.lease
        if stored is None or stored.token != lease.token:  # it is ours where a reply was lost
            refuse_leased(checkpoint_id, held=None, stored=stored_lease(stored, seen.moment))
        return _lasting(lease, seen)

    await _change(container, checkpoint_id, f"taking the lease of checkpoint {checkpoint_id!r}", taken)
    return lease


async def renew_lease(container: Container, checkpoint_id: str, lease: Lease) -> None:
    """Let a lease last from now.

    Raises:
        CheckpointLeasedError: It passed on to another, or was removed.
        StorageError: It could not be done.
    """

    def renewed(seen: Seen) -> LeaseItem | None:
        stored = None if seen.head is None else seen.head.lease
        refuse_lost(checkpoint_id, lease=lease, stored=stored_lease(stored, seen.moment))
        return _lasting(lease, seen)

    await _change(container, checkpoint_id, f"renewing the lease of checkpoint {checkpoint_id!r}", renewed)


async def end_lease(container: Container, checkpoint_id: str, lease: Lease) -> None:
    """Remove a lease; one that passed on stays with its holder.

    Raises:
        StorageError: It could not be done.
    """

    def ended(seen: Seen) -> LeaseItem | None:
        stored = None if seen.head is None else seen.head.lease
        return None if stored is not None and stored.token == lease.token else stored

    await _change(container, checkpoint_id, f"ending the lease of checkpoint {checkpoint_id!r}", ended)


def _lasting(lease: Lease, seen: Seen) -> LeaseItem:
    return LeaseItem(lease.token, known(seen.moment) + lease.seconds + _ROUNDING, lease.seconds)


async def _change(
    container: Container, checkpoint_id: str, doing: str, change: Callable[[Seen], LeaseItem | None]
) -> None:
    """Write another lease into the head item, as long as it takes until nobody comes in between."""
    for _ in range(TRIES):
        seen = await read_head(container, checkpoint_id, doing)
        lease = change(seen)
        if lease == (None if seen.head is None else seen.head.lease):
            return
        try:
            await _write(container, doing, seen, lease, checkpoint_id)
        except Unmet:
            continue
        return
    raise StorageError(f"{doing} failed ({container.where}): its head item changed all the time; try again")


async def _write(
    container: Container, doing: str, seen: Seen, lease: LeaseItem | None, checkpoint_id: str
) -> None:
    head = seen.head
    if head is None:
        made: HeadItem = msgspec.structs.replace(new_head(checkpoint_id, new_token()), lease=lease)
        await container.create(doing, as_document(made))
    elif lease is None and head.head is None:
        await container.delete(doing, head.partition, head.id, seen.etag)
    else:
        await container.replace(doing, as_document(msgspec.structs.replace(head, lease=lease)), seen.etag)
