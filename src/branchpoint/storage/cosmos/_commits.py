"""A commit: one batch, and what goes ahead of it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec

from branchpoint.checkpoint import (
    Checkpoint,
    CheckpointSnapshot,
    Format,
    encode_header,
    encode_manifest,
    refuse_stale,
)
from branchpoint.errors import CheckpointConflictError, StorageError, UnsupportedValueError
from branchpoint.storage.cosmos._container import Container, Operation
from branchpoint.storage.cosmos._heads import (
    TRIES,
    Seen,
    as_document,
    held_elsewhere,
    is_landed,
    new_head,
    read_head,
    refuse_other_lease,
)
from branchpoint.storage.cosmos._items import (
    HeadItem,
    PartsItem,
    SnapshotItem,
    data_of,
    encoded_size,
    label,
    refuse_other_format,
)
from branchpoint.storage.cosmos._names import ahead_name, partition_name, snapshot_name
from branchpoint.storage.cosmos._packing import REQUEST_BYTES, Bundle, packed
from branchpoint.storage.cosmos._troubles import Unmet

__all__ = ["Commit", "new_token"]

_LITTLE = 200_000
"""How many bytes of parts are packed on the event loop's own thread: in about a millisecond."""

_ENVELOPE = 2_000  # of a batch of two, beside the two items


def new_token() -> str:
    """Return a name that nothing had before, in whatever process."""
    return secrets.token_urlsafe(12)


class _Ahead(NamedTuple):
    """What was put ahead of the batch.

    Attributes:
        life, generation: In which it was put there; in any other it counts for nothing.
        attempt: What it is named after.
        several: How many items.
    """

    life: str
    generation: int
    attempt: str
    several: int


class Commit:
    """One commit of a snapshot, tried until it has landed or is refused.

    Args:
        format: In which the storage writes.
        leases: Whether the lease is compared.
    """

    def __init__(
        self,
        container: Container,
        checkpoint: Checkpoint,
        snapshot: CheckpointSnapshot,
        expected: str | None,
        *,
        format: Format,
        leases: bool,
    ) -> None:
        self.checkpoint_id = checkpoint.checkpoint_id
        self._container = container
        self._checkpoint = checkpoint
        self._snapshot = snapshot
        self._expected = expected
        self._format: Format = format
        self._leases = leases
        self._partition = partition_name(self.checkpoint_id)
        self._doing = f"committing to checkpoint {self.checkpoint_id!r}"
        self._manifest = data_of(encode_manifest(snapshot.manifest, format=format))
        self._bundles: tuple[Bundle, list[Bundle]] | None = None
        self._ahead: _Ahead | None = None

    async def land(self) -> Seen | None:
        """Make the commit, and return the head item it left, if that is known.

        Raises:
            CheckpointConflictError: The expected head or the generation is stale; nothing is persisted.
            CheckpointLeasedError: Another's lease is in force; nothing is persisted.
            InvalidCallError: What is stored is of the other format.
            UnsupportedValueError: What is told of the checkpoint beside its state does not fit into an item.
            StorageError: It could not be done, or its reply was lost.
        """
        seen, anew = await self._first_seen()
        for _ in range(TRIES):
            if anew and await self._is_landed_or_refused(seen):
                return None
            if seen.head is not None and seen.head.head is not None:
                refuse_other_format(seen.head.format, self._format, self.checkpoint_id)
            try:
                landed = await self._try(seen)
            except Unmet:
                landed = None
            if landed is not None:
                return landed
            seen, anew = await self._read(), True
            if await is_landed(self._container, seen, self._snapshot.snapshot_id, self._doing):
                return None
        raise StorageError(
            f"{self._doing} failed ({self._container.where}): its head item changed all the time; try again"
        )

    async def _first_seen(self) -> tuple[Seen, bool]:
        """Return the head item that the checkpoint remembers, if that may still be so, or read it."""
        token, held = self._checkpoint.storage_token, self._checkpoint.lease
        if isinstance(token, Seen) and token.where == self._container.where and token.head is not None:
            head = token.head
            if (
                head.checkpoint_id == self.checkpoint_id
                and (head.head, head.generation) == (self._expected, self._checkpoint.generation)
                and not (self._leases and held_elsewhere(head, held))
            ):
                return token, False
        if self._expected is None and not self._leases:
            return Seen(self._container.where, None), False
        return await self._read(), True

    async def _read(self) -> Seen:
        return await read_head(self._container, self.checkpoint_id, self._doing)

    async def _is_landed_or_refused(self, seen: Seen) -> bool:
        """Say whether it has landed already, where it would be refused."""
        try:
            if self._leases:
                refuse_other_lease(self.checkpoint_id, seen, self._checkpoint.lease)
            refuse_stale(
                self.checkpoint_id,
                expected_head_snapshot_id=self._expected,
                generation=self._checkpoint.generation,
                stored=None if seen.head is None else seen.head.stored,
            )
        except CheckpointConflictError:
            if await is_landed(self._container, seen, self._snapshot.snapshot_id, self._doing):
                return True
            await self._withdraw()
            raise
        return False

    # One try.

    async def _try(self, seen: Seen) -> Seen | None:
        """Put ahead what must go ahead, and make the batch.

        Returns:
            The head item it left; None when it is to be tried with another head item.

        Raises:
            Unmet: The head item is another one by now.
        """
        head = self._next(seen.head)
        bundle, waiting = await self._packed(REQUEST_BYTES - self._size_beside(head))
        if waiting:
            seen = await self._put_ahead(seen, waiting)
            if seen.head is None:
                return None
            head = self._next(seen.head, loose=len(waiting))
        operations: list[Operation] = [
            ("create", (as_document(head),))
            if seen.head is None
            else ("replace", (head.id, as_document(head)), {"if_match_etag": seen.etag}),
            ("create", (as_document(self._snapshot_item(head, bundle)),)),
        ]
        done = await self._container.batch(self._doing, self._partition, operations)
        return Seen(self._container.where, head, done[0]["eTag"])

    def _next(self, head: HeadItem | None, loose: int = 0) -> HeadItem:
        """Return the head item after this commit."""
        snapshot = self._snapshot
        if head is None:
            head = new_head(self.checkpoint_id, new_token())
        if head.head is None:
            header = self._checkpoint.header
            head = msgspec.structs.replace(
                head,
                format=self._format,
                generation=header.generation,
                labels=(
                    label([header.workflow_name]),
                    *(label(pair) for pair in header.metadata.items()),
                ),
                header=data_of(encode_header(header, format=self._format)),
            )
        return msgspec.structs.replace(
            head,
            kind="head",
            head=snapshot.snapshot_id,
            n=head.n + 1,
            kept=head.kept + 1,
            size=head.size + sum(map(len, snapshot.new_parts.values())),
            loose=head.loose + loose,
            status=snapshot.manifest.status,
            manifest=self._manifest,
        )

    def _snapshot_item(self, head: HeadItem, bundle: Bundle) -> SnapshotItem:
        return SnapshotItem(
            id=snapshot_name(head.life, self._snapshot.snapshot_id),
            partition=self._partition,
            life=head.life,
            snapshot_id=self._snapshot.snapshot_id,
            n=head.n,
            generation=head.generation,
            attempt=None if self._ahead is None else self._ahead.attempt,
            manifest=self._manifest,
            names=bundle.names,
            sizes=bundle.sizes,
            data=bundle.data,
        )

    def _size_beside(self, head: HeadItem) -> int:
        """Return how many bytes the batch takes beside the parts.

        Raises:
            UnsupportedValueError: More than there may be.
        """
        size = encoded_size(as_document(head)) + encoded_size(self._manifest) + _ENVELOPE
        if size > REQUEST_BYTES:
            raise UnsupportedValueError(
                f"checkpoint {self.checkpoint_id!r} cannot be stored in Cosmos DB: what is told of it beside its "
                f"state (graph signature, metadata, open requests) takes {size} bytes of {REQUEST_BYTES}. Keep "
                "large values in the state; nothing was persisted"
            )
        return size

    async def _packed(self, room: int) -> tuple[Bundle, list[Bundle]]:
        if self._bundles is None:  # once, so that every try has the same ahead of it
            parts: Mapping[str, bytes] = self._snapshot.new_parts
            little = sum(map(len, parts.values())) <= _LITTLE
            pack = partial(packed, parts, room)
            self._bundles = pack() if little else await asyncio.to_thread(pack)
        return self._bundles

    # What goes ahead.

    async def _put_ahead(self, seen: Seen, bundles: Sequence[Bundle]) -> Seen:
        """Put items ahead of the batch, bound to the life and generation of the head item.

        Returns:
            The head item they are bound to; without one when another came before.
        """
        if seen.head is None:
            seen = await self._begin()
        head = seen.head
        if head is None:
            return seen
        generation = head.generation if head.head is not None else self._checkpoint.generation
        if self._ahead is not None and self._ahead[:2] == (head.life, generation):
            return seen  # they are there
        if self._ahead is None and head.head is not None:
            # Most conflicts are seen here, and then nothing has to be taken away again.
            seen = await self._read()
            if seen.head is None or (seen.head.life, seen.head.stored) != (head.life, head.stored):
                raise Unmet(412)
        attempt = new_token()
        self._ahead = _Ahead(head.life, generation, attempt, len(bundles))
        for number, bundle in enumerate(bundles):
            item = PartsItem(
                id=ahead_name(head.life, attempt, number),
                partition=self._partition,
                life=head.life,
                generation=generation,
                attempt=attempt,
                piece=bundle.piece,
                names=bundle.names,
                sizes=bundle.sizes,
                data=bundle.data,
            )
            await self._container.upsert(self._doing, as_document(item))
        return seen

    async def _begin(self) -> Seen:
        """Make a head item without a head, so that a delete that comes in between ends this commit."""
        head = new_head(self.checkpoint_id, new_token())
        try:
            etag = await self._container.create(self._doing, as_document(head))
        except Unmet:
            return Seen(self._container.where, None)
        return Seen(self._container.where, head, etag)

    async def _withdraw(self) -> None:
        """Remove what was put ahead of a commit that was refused, and so can not land any more.

        The batch, if it is still on its way, names an etag that the head item has no more.
        """
        if self._ahead is not None:
            life, _, attempt, several = self._ahead
            with suppress(StorageError):  # a prune or a delete removes what is left
                names = [(ahead_name(life, attempt, number), None) for number in range(several)]
                await self._container.remove(self._doing, self._partition, names)
