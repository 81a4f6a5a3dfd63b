"""Checkpoints in Azure Cosmos DB: the items of one logical partition each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from branchpoint.checkpoint import (
    Capability,
    Checkpoint,
    CheckpointInfo,
    CheckpointSnapshot,
    CheckpointStorage,
    Format,
    Header,
    Lease,
    Status,
    StoredHead,
    StoredRecords,
    check_id,
    check_lazy_over,
    check_lease_seconds,
)
from branchpoint.storage._formats import check_format
from branchpoint.storage._listing import Page
from branchpoint.storage.cosmos import _leases, _reads, _sweeps
from branchpoint.storage.cosmos._commits import Commit
from branchpoint.storage.cosmos._container import Container
from branchpoint.storage.cosmos._heads import read_head

if TYPE_CHECKING:
    from azure.core.credentials_async import AsyncTokenCredential
    from azure.cosmos.aio import CosmosClient

__all__ = ["CosmosCheckpointStorage"]


class CosmosCheckpointStorage(CheckpointStorage):
    """Keeps checkpoints in a container of Azure Cosmos DB for NoSQL that many machines may use at once.

    A commit is one transactional batch: it compares the head item by its etag and stores snapshot and new parts,
    all of it or nothing. What is too large for a batch goes ahead of it and is shown only when it has landed.

    Needs an account with one write region. Under consistency level Strong a load shows every commit that has
    returned. Under Session, the default of accounts, no commit is lost or doubled either, yet who loads what
    another client has just committed may find it as it was before, and learns so at its first commit.

    The SDK sends a request again when its reply was lost or when the service asks for patience (429); a commit
    that meets its own earlier self is success. It may be used from several event loops and threads; each loop has
    its own client, which ends with `aclose()`, with the loop, or with this object. After `aclose()` it may be used
    again and connects anew.

    Tried against a stand-in for the service, and never yet against the service itself.

    Args:
        endpoint: `https://account.documents.azure.com:443/`; or an `azure.cosmos.aio.CosmosClient`, which stays
            yours to close and works in its own loop alone.
        credential: The account's key; or an async credential of `azure.identity.aio`, which stays yours to close
            and works in one loop; or a function that makes one, called for each loop.
        database: Its name.
        container: Its name; it has the partition key `/partition` and is made by `setup()`.
        serialization_format: `"json"` or `"msgpack"`, for what is written. It belongs to each checkpoint:
            one of the other format is listed, and refused when opened.
        lazy_over: How many bytes of parts a loaded checkpoint may hold at first. One with more in all is
            loaded with its newest snapshot alone; the others, and their states, come when they are needed.
        leases: Whether a run takes a lease, so that nobody else runs the same checkpoint meanwhile.
        lease_seconds: How long a lease lasts that nobody renews, by the service's clock.
        client_options: Given to the SDK's client: `consistency_level`, `preferred_locations`, `retry_total` ...

    Raises:
        ImportError: `azure-cosmos` or `aiohttp` is not installed.
        InvalidCallError: An argument is of the wrong form.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {"load_head", "list_checkpoints", "prune", "load_parts", "load_lineage", "lease"}
    )

    def __init__(
        self,
        endpoint: str | CosmosClient,
        credential: str | AsyncTokenCredential | Any | None = None,
        *,
        database: str,
        container: str,
        serialization_format: Format = "json",
        lazy_over: int | None = None,
        leases: bool = False,
        lease_seconds: float = 30.0,
        client_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.serialization_format = check_format(serialization_format)
        self.lazy_over = check_lazy_over(lazy_over)
        self.leases = leases
        self.lease_seconds = check_lease_seconds(lease_seconds)
        self._container = Container(
            endpoint, credential, database=database, container=container, options=client_options or {}
        )

    def __repr__(self) -> str:
        return f"<CosmosCheckpointStorage in {self._container.where}, {self.serialization_format}>"

    async def setup(self, *, throughput: int | None = None) -> None:
        """Make database and container where they are not there; what is there is left as it is.

        Needs the account's key, or an identity that may make them.

        Args:
            throughput: In request units a second, for a container that is made; None leaves it to the account.

        Raises:
            StorageError: The service refuses or cannot be reached, or the container is one that cannot be used.
        """
        await self._container.setup(throughput)

    async def aclose(self) -> None:
        """Wait for what is under way in this loop and the others, and close all clients that were opened here."""
        await self._container.aclose()

    async def commit_snapshot(
        self,
        checkpoint: Checkpoint,
        snapshot: CheckpointSnapshot,
        *,
        expected_head_snapshot_id: str | None,
    ) -> None:
        """Store the snapshot, by one transactional batch; on return it is durable.

        If this is interrupted, it is stored as a whole or not at all, and nothing else of it is ever shown.

        Raises:
            CheckpointConflictError: The expected head or the generation is stale, or the checkpoint
                was deleted; nothing is persisted.
            CheckpointLeasedError: Another's lease is in force; nothing is persisted.
            InvalidCallError: What is stored is of the other format.
            UnsupportedValueError: What is told of the checkpoint beside its state does not fit into an item.
            StorageError: The service refused, or its reply was lost several times.
        """
        commit = Commit(
            self._container,
            checkpoint,
            snapshot,
            expected_head_snapshot_id,
            format=self.serialization_format,
            leases=self.leases,
        )
        checkpoint.storage_token = await commit.land()

    async def load_records(self, checkpoint_id: str) -> StoredRecords:
        """Return what is stored; `load` is made from this.

        Raises:
            CheckpointNotFoundError: There is none of this id.
            CorruptCheckpointError: What is stored is damaged; it is left as it is.
            UnknownVersionError: A newer version wrote it.
            InvalidCallError: The id is none that a storage could keep, or it is kept in the other format.
            StorageError: It could not be read.
        """
        return await _reads.load_records(
            self._container, checkpoint_id, format=self.serialization_format, lazy_over=self.lazy_over
        )

    async def load_lineage(self, checkpoint_id: str) -> StoredRecords:
        """Return header and all manifests.

        Raises:
            CheckpointNotFoundError: There is none of this id.
            CorruptCheckpointError: What is stored is damaged; it is left as it is.
            UnknownVersionError: A newer version wrote it.
            InvalidCallError: The id is none that a storage could keep, or it is kept in the other format.
            StorageError: It could not be read.
        """
        return await _reads.load_lineage(self._container, checkpoint_id, format=self.serialization_format)

    async def load_parts(self, checkpoint_id: str, digests: Collection[str]) -> dict[str, bytes]:
        """Return the named parts, and those that are kept together with them; what is not there is left out.

        Raises:
            CheckpointNotFoundError: There is none of this id.
            CorruptCheckpointError: What is stored is damaged; it is left as it is.
            InvalidCallError: The id is none that a storage could keep, or it is kept in the other format.
            StorageError: It could not be read.
        """
        return await _reads.load_parts(
            self._container, checkpoint_id, digests, format=self.serialization_format
        )

    async def load_head(self, checkpoint_id: str) -> StoredHead:
        """Return the stored head and generation, by one point read.

        Raises:
            CheckpointNotFoundError: There is none of this id.
            CorruptCheckpointError: The head item is damaged.
            InvalidCallError: The id is none that a storage could keep.
            StorageError: It could not be read.
        """
        doing = f"reading the head of checkpoint {check_id(checkpoint_id)!r}"
        stored = (await read_head(self._container, checkpoint_id, doing)).found(checkpoint_id).stored
        assert stored is not None  # it was found
        return stored

    async def list_checkpoints(
        self,
        *,
        workflow_name: str | None = None,
        status: Status | None = None,
        metadata: Mapping[str, str] | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[CheckpointInfo]:
        """Return what is stored, by checkpoint id in code point order; no state is decoded.

        The service filters and sorts head items, in all partitions. A checkpoint that is damaged is left out,
        with a `RuntimeWarning` that names it.

        Raises:
            InvalidCallError: An argument is of the wrong form.
            StorageError: It could not be read.
        """
        asked: dict[str, Any] = {
            "workflow_name": workflow_name,
            "status": status,
            "metadata": metadata,
            "after": after,
            "limit": limit,
        }
        return await _reads.load_listing(self._container, Page(**asked), **asked)

    async def prune(
        self,
        checkpoint: Checkpoint,
        *,
        header: Header,
        keep: Sequence[str],
        parts: frozenset[str],
        expected_head_snapshot_id: str,
    ) -> None:
        """Let what is not kept be seen no more, in one step, and then remove it.

        If this is interrupted between the two, the next prune or a delete removes what is left.

        Raises:
            CheckpointConflictError: The head or the generation is stale; nothing is removed.
            CheckpointLeasedError: Another's lease is in force; nothing is removed.
            CorruptCheckpointError: What is stored is damaged; nothing is removed.
            StorageError: The service refused, or its reply was lost several times.
        """
        checkpoint.storage_token = await _sweeps.prune(
            self._container,
            checkpoint,
            header=header,
            keep=keep,
            parts=parts,
            expected=expected_head_snapshot_id,
            format=self.serialization_format,
            leases=self.leases,
        )

    async def delete(self, checkpoint_id: str) -> None:
        """Remove everything of the checkpoint, readable or not, and its lease; an unknown id is no error.

        The head item goes first: if this is interrupted then, the checkpoint is gone, and the next delete
        under this id removes what is left, which is never shown.

        Raises:
            InvalidCallError: The id is none that a storage could keep.
            StorageError: The service refused, or its reply was lost several times.
        """
        await _sweeps.delete(self._container, check_id(checkpoint_id))

    async def take_lease(self, checkpoint_id: str) -> Lease:
        """Take the lease of a checkpoint, stored or not.

        Raises:
            CheckpointLeasedError: Another's is in force.
            InvalidCallError: The id is none that a storage could keep.
            StorageError: The service refused, or could not be reached.
        """
        return await _leases.take_lease(self._container, check_id(checkpoint_id), self.lease_seconds)

    async def renew_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """Let a lease last from now.

        Raises:
            CheckpointLeasedError: It passed on to another, or was removed.
            InvalidCallError: The id is none that a storage could keep.
            StorageError: The service refused, or could not be reached.
        """
        await _leases.renew_lease(self._container, check_id(checkpoint_id), lease)

    async def end_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """Remove a lease; one that passed on stays with its holder.

        Raises:
            InvalidCallError: The id is none that a storage could keep.
            StorageError: The service refused, or could not be reached.
        """
        await _leases.end_lease(self._container, check_id(checkpoint_id), lease)
