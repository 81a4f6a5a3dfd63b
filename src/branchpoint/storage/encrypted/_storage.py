"""Checkpoints in any storage, sealed before they reach it."""

from __future__ import annotations

import asyncio
import secrets
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from typing import NamedTuple, TypeVar

import msgspec

from branchpoint.checkpoint import (
    Checkpoint,
    CheckpointInfo,
    CheckpointSnapshot,
    CheckpointStorage,
    Header,
    Lease,
    Manifest,
    Status,
    StoredHead,
    StoredRecords,
    check_id,
    checkpoint_standin,
    snapshot_standin,
)
from branchpoint.errors import CheckpointNotFoundError, DataError, InvalidCallError
from branchpoint.storage._listing import Page
from branchpoint.storage.encrypted._keys import EncryptionKeys
from branchpoint.storage.encrypted._order import kept_now, refuse_other_order
from branchpoint.storage.encrypted._sealer import Birth, Sealer

__all__ = ["EncryptedCheckpointStorage"]

_FEW = 50
_SMALL = 64 * 1024
_PAGE = 64
_REMEMBERED = 256

_T = TypeVar("_T")


class _Token(NamedTuple):
    """What a checkpoint keeps for this storage: what it was born with, its stored header, the inner token."""

    birth: Birth
    header: Header
    inner: object


class EncryptedCheckpointStorage(CheckpointStorage):
    """Seals what another storage keeps: whoever reads or changes its files or rows has no key.

    The inner storage sees the checkpoint's id, ids, order, parents and times of its snapshots, their status,
    the generation, and how many parts there are of which size. Everything else is sealed with AES-256-GCM-SIV:
    states, metadata of checkpoint and snapshots, the workflow's name and graph, executors, requests, inputs.
    Parts are named by keyed digests, so that equal contents of two checkpoints do not look equal.

    What was changed, moved to another checkpoint, snapshot or parent, swapped, left out in the middle or
    replaced by plain text is refused with `CorruptCheckpointError`. That the newest commits were cut off, or
    all of a checkpoint set back, cannot be seen from inside: `load(id, expected_head_snapshot_id=...)` sees it.
    Nor can it be seen that a checkpoint came from another store with the same key and id.

    Capabilities, format, leases and laziness are those of the inner storage, which is closed with this one.

    Args:
        inner: Any storage that has `load_records`. It holds sealed checkpoints only.
        keys: The keys to read with, and the one to write with.

    Raises:
        InvalidCallError: `inner` is no storage or encrypts itself, or `keys` are no `EncryptionKeys`.
    """

    def __init__(self, inner: CheckpointStorage, keys: EncryptionKeys) -> None:
        if not isinstance(inner, CheckpointStorage):
            raise InvalidCallError(f"inner is a CheckpointStorage, not {type(inner).__name__}")
        if isinstance(inner, EncryptedCheckpointStorage):
            raise InvalidCallError(
                "inner is an EncryptedCheckpointStorage already; what is sealed once is enough"
            )
        if not isinstance(keys, EncryptionKeys):
            raise InvalidCallError(
                f"keys are EncryptionKeys({{id: 32 bytes}}, current=id), not {type(keys).__name__}"
            )
        self._inner = inner
        self._keys = keys
        self._sealer = lru_cache(_REMEMBERED)(partial(Sealer, keys, format=inner.serialization_format))
        self.serialization_format = inner.serialization_format
        self.commit_waits = inner.commit_waits
        self.lazy_over = inner.lazy_over
        self.leases = inner.leases
        self.lease_seconds = inner.lease_seconds
        self.capabilities = inner.capabilities  # type: ignore[misc]  # they are those of one object here

    @property
    def inner(self) -> CheckpointStorage:
        """The storage around which this one is."""
        return self._inner

    def __repr__(self) -> str:
        return f"EncryptedCheckpointStorage({self._inner!r}, {self._keys!r})"

    # Commits.

    async def commit_snapshot(
        self,
        checkpoint: Checkpoint,
        snapshot: CheckpointSnapshot,
        *,
        expected_head_snapshot_id: str | None,
    ) -> None:
        """Seal the snapshot with the current key and commit it to the inner storage, whose promises hold.

        Raises:
            CheckpointConflictError: The expected head or the generation is stale; nothing is persisted.
            CheckpointLeasedError: Another holds the lease, or it passed on; nothing is persisted.
            DataError: The key that names this checkpoint's parts is not among the keys.
            StorageError: As the inner storage has it.
        """
        sealer = self._sealer(checkpoint.checkpoint_id)
        token = await self._token(sealer, checkpoint, new=expected_head_snapshot_id is None)
        seal = partial(
            _sealed, sealer, token.birth, snapshot, expected_head_snapshot_id, checkpoint.generation
        )
        if self.commit_waits:
            manifest, parts = await _beside_the_loop(seal, snapshot.new_parts)
        else:
            manifest, parts = seal()
        standin = self._standin(checkpoint, token)
        try:
            await self._inner.commit_snapshot(
                standin,
                snapshot_standin(snapshot, manifest=manifest, new_parts=parts),
                expected_head_snapshot_id=expected_head_snapshot_id,
            )
        finally:
            # Also when it failed, for it may have landed all the same.
            checkpoint.storage_token = token._replace(inner=standin.storage_token)

    async def prune(
        self,
        checkpoint: Checkpoint,
        *,
        header: Header,
        keep: Sequence[str],
        parts: frozenset[str],
        expected_head_snapshot_id: str,
    ) -> None:
        """Prune the inner storage; the new header is sealed with the current key, and tells what stays.

        Raises:
            CheckpointConflictError: The head or the generation is stale; nothing is removed.
            DataError: The key that names this checkpoint's parts is not among the keys.
            StorageError: As the inner storage has it.
        """
        sealer = self._sealer(header.checkpoint_id)
        token = await self._token(sealer, checkpoint, new=False)
        sealed = sealer.seal_header(header, birth=token.birth, kept=kept_now(keep))
        names = await _beside_the_loop(partial(_names, sealer, token.birth, parts), parts)
        standin = self._standin(checkpoint, token)
        try:
            await self._inner.prune(
                standin,
                header=sealed,
                keep=keep,
                parts=names,
                expected_head_snapshot_id=expected_head_snapshot_id,
            )
            token = token._replace(header=sealed)
        finally:
            checkpoint.storage_token = token._replace(inner=standin.storage_token)

    async def _token(self, sealer: Sealer, checkpoint: Checkpoint, *, new: bool) -> _Token:
        """Return what is known of a checkpoint's stored header; one that is new gets its first."""
        found = checkpoint.storage_token
        if isinstance(found, _Token):
            return found
        if not new:  # it was not loaded here
            try:
                stored = await self._inner.load_records(checkpoint.checkpoint_id)
            except CheckpointNotFoundError:
                pass  # which the inner storage will say in its own words
            else:
                return _Token(sealer.open_header(stored.header).birth, stored.header, stored.storage_token)
        birth = Birth(self._keys.current, secrets.token_urlsafe(12))
        return _Token(birth, sealer.seal_header(checkpoint.header, birth=birth, kept=None), found)

    def _standin(self, checkpoint: Checkpoint, token: _Token) -> Checkpoint:
        # The reply to a prune may have been lost; then the checkpoint knows better than what it kept.
        header = msgspec.structs.replace(token.header, generation=checkpoint.generation)
        return checkpoint_standin(checkpoint, header=header, storage=self._inner, storage_token=token.inner)

    # Reading.

    async def load_records(self, checkpoint_id: str) -> StoredRecords:
        """Return what is stored, opened; every seal is checked, and the order of the commits.

        Raises:
            CheckpointNotFoundError: Nothing is stored under this id.
            CorruptCheckpointError: Something is not sealed, was changed, or was moved here from elsewhere.
            DataError: It is sealed with a key that is not among the keys.
            StorageError: As the inner storage has it.
        """
        check_id(checkpoint_id)
        return await self._opened(checkpoint_id, await self._inner.load_records(checkpoint_id))

    async def load_lineage(self, checkpoint_id: str) -> StoredRecords:
        """Return header and all manifests, opened, and no parts.

        Raises:
            CheckpointNotFoundError: Nothing is stored under this id.
            CorruptCheckpointError: Something is not sealed, was changed, or was moved here from elsewhere.
            DataError: It is sealed with a key that is not among the keys.
            StorageError: As the inner storage has it.
        """
        check_id(checkpoint_id)
        records = await self._inner.load_lineage(checkpoint_id)
        return await self._opened(checkpoint_id, records, lineage=True)

    async def load_parts(self, checkpoint_id: str, digests: Collection[str]) -> dict[str, bytes]:
        """Return the named parts, opened; what is not there is left out.

        Raises:
            CheckpointNotFoundError: Nothing is stored under this id.
            CorruptCheckpointError: One is not sealed, was changed, or was moved here from elsewhere.
            DataError: One is sealed with a key that is not among the keys.
            StorageError: As the inner storage has it.
        """
        check_id(checkpoint_id)
        sealer = self._sealer(checkpoint_id)
        # The header, which says what key names the parts, is not at hand; most often there is one key.
        names = {
            sealer.naming(key_id).name(digest): digest for key_id in self._keys.ids for digest in digests
        }
        stored = await self._inner.load_parts(checkpoint_id, list(names))
        found = {name: data for name, data in stored.items() if name in names}
        opened = await _beside_the_loop(partial(sealer.open_parts, found), found)
        return {names[name]: plain for name, plain in opened.items()}  # digests are checked by the caller

    async def load_head(self, checkpoint_id: str) -> StoredHead:
        """Return the stored head; it stands outside of the seals and is taken as it is.

        Raises:
            CheckpointNotFoundError: Nothing is stored under this id.
        """
        check_id(checkpoint_id)
        if "load_head" in self._inner.capabilities:
            return await self._inner.load_head(checkpoint_id)
        return await super().load_head(checkpoint_id)

    async def list_checkpoints(
        self,
        *,
        workflow_name: str | None = None,
        status: Status | None = None,
        metadata: Mapping[str, str] | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[CheckpointInfo]:
        """Return what is stored, by checkpoint id in code point order; header and head of each are opened.

        The inner storage filters by status alone, since it knows neither names nor metadata. A checkpoint
        that cannot be opened is left out, with a `RuntimeWarning` that names it.

        Raises:
            InvalidCallError: An argument is of the wrong form.
            StorageError: The inner storage cannot list, or failed.
        """
        page = Page(workflow_name=workflow_name, status=status, metadata=metadata, after=after, limit=limit)
        ask = None if limit is None else max(limit, _PAGE)
        found: list[CheckpointInfo] = []
        while True:
            stored = await self._inner.list_checkpoints(status=status, after=after, limit=ask)
            lines, unreadable = await _beside_the_loop(partial(self._lines, stored), stored)
            for error in unreadable:
                warnings.warn(f"Left out of the listing: {error}", RuntimeWarning, stacklevel=2)
            found += page.of(lines)
            if ask is None or limit is None or len(stored) < ask or len(found) >= limit:
                return found[:limit]
            after, ask = stored[-1].checkpoint_id, 2 * ask

    def _lines(self, stored: Sequence[CheckpointInfo]) -> tuple[list[CheckpointInfo], list[DataError]]:
        lines: list[CheckpointInfo] = []
        unreadable: list[DataError] = []
        for line in stored:
            try:
                lines.append(self._sealer(line.checkpoint_id).open_line(line))
            except DataError as error:
                unreadable.append(error)
        return lines, unreadable

    async def _opened(
        self, checkpoint_id: str, records: StoredRecords, *, lineage: bool = False
    ) -> StoredRecords:
        work = partial(_open_all, self._sealer(checkpoint_id), records, lineage=lineage)
        return await _beside_the_loop(work, records.manifests, records.parts)

    # The rest is the inner storage's.

    async def delete(self, checkpoint_id: str) -> None:
        """Remove the checkpoint, readable or not, and everything of it; an unknown id is no error."""
        await self._inner.delete(checkpoint_id)

    async def take_lease(self, checkpoint_id: str) -> Lease:
        """Take the lease of a checkpoint in the inner storage; leases are not sealed.

        Raises:
            CheckpointLeasedError: Another holds it.
            StorageError: The inner storage has no leases, or failed.
        """
        return await self._inner.take_lease(checkpoint_id)

    async def renew_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """Renew a lease in the inner storage.

        Raises:
            CheckpointLeasedError: It passed on to another, or was removed.
            StorageError: The inner storage has no leases, or failed.
        """
        await self._inner.renew_lease(checkpoint_id, lease)

    async def end_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """Remove a lease from the inner storage.

        Raises:
            StorageError: The inner storage has no leases, or failed.
        """
        await self._inner.end_lease(checkpoint_id, lease)

    async def aclose(self) -> None:
        """Close the inner storage. Closing twice is fine."""
        await self._inner.aclose()


async def _beside_the_loop(work: Callable[[], _T], *sizes: Collection[object]) -> _T:
    """Do in a thread what would hold the event loop up."""
    if sum(map(len, sizes)) <= _FEW and sum(map(_bytes_of, sizes)) <= _SMALL:
        return work()
    return await asyncio.to_thread(work)


def _bytes_of(things: Collection[object]) -> int:
    return sum(map(len, things.values())) if isinstance(things, dict) else 0


def _sealed(
    sealer: Sealer, birth: Birth, snapshot: CheckpointSnapshot, after: str | None, generation: int
) -> tuple[Manifest, dict[str, bytes]]:
    return (
        sealer.seal_manifest(snapshot.manifest, after=after, generation=generation, birth=birth),
        sealer.seal_parts(snapshot.new_parts, birth=birth),
    )


def _names(sealer: Sealer, birth: Birth, digests: Collection[str]) -> frozenset[str]:
    return frozenset(map(sealer.naming(birth.names).name, digests))


def _open_all(sealer: Sealer, records: StoredRecords, *, lineage: bool) -> StoredRecords:
    opened = sealer.open_header(records.header)
    birth = opened.birth
    manifests = [sealer.open_manifest(manifest, birth=birth) for manifest in records.manifests]
    refuse_other_order(opened.header, manifests, opened.kept, complete=records.complete or lineage)
    return StoredRecords(
        header=opened.header,
        manifests=[found.manifest for found in manifests],
        parts={} if lineage or not records.complete else sealer.open_named(records.parts, birth=birth),
        complete=records.complete,
        # Each part was just opened, and named by its own digest; the inner storage says if any is left over.
        sealed=records.sealed,
        storage_token=_Token(birth, records.header, records.storage_token),
    )
