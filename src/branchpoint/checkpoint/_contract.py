"""What a storage backend promises.

A backend sees bytes: a header per checkpoint, a manifest and new parts per snapshot. Whatever
those bytes mean is decided above it, so every backend accepts exactly the same values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import msgspec

from branchpoint.checkpoint._manifest import Format, Header, Manifest, Status
from branchpoint.checkpoint._plain import check_id
from branchpoint.errors import CheckpointConflictError, CheckpointLeasedError, StorageError
from branchpoint.events import instrumented, instruments

if TYPE_CHECKING:
    from branchpoint.checkpoint._checkpoint import Checkpoint
    from branchpoint.checkpoint._snapshot import CheckpointSnapshot

__all__ = [
    "Capability",
    "CheckpointInfo",
    "CheckpointStorage",
    "Lease",
    "StoredHead",
    "StoredLease",
    "StoredRecords",
    "refuse_leased",
    "refuse_lost",
    "refuse_stale",
]

Capability = Literal["load_head", "list_checkpoints", "prune", "load_parts", "load_lineage", "lease"]


class StoredHead(msgspec.Struct, frozen=True):
    """What a commit is compared with: the head that storage holds, and the generation of its parts."""

    head_snapshot_id: str
    generation: int = 0


class StoredRecords(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend has stored of one checkpoint; what `load_records` gives.

    Attributes:
        header: From `decode_header`.
        manifests: From `decode_manifest`, in commit order; the last one is the stored head.
        parts: Name to bytes; needs no copy, it is not kept.
        complete: False when older manifests, or parts, were left in storage: the head's manifest is
            there, `load_parts` fetches parts and `load_lineage` the other manifests.
        sealed: The backend has proven by checksums of its own that all this is whole and belongs to commits
            that landed, with nothing left over; see `Checkpoint.restore`.
        storage_token: What the checkpoint keeps for the backend, for instance an etag.
    """

    header: Header
    manifests: Sequence[Manifest]
    parts: Mapping[str, bytes]
    complete: bool = True
    sealed: bool = False
    storage_token: Any = None


class Lease(msgspec.Struct, frozen=True):
    """The right to work on one checkpoint for a while, which its holder renews.

    Attributes:
        token: The fencing token: an id of this taking alone, compared inside every commit.
        seconds: How long it lasts without being renewed.
    """

    token: str
    seconds: float


class StoredLease(msgspec.Struct, frozen=True):
    """The lease that storage holds.

    Attributes:
        token: That of its holder.
        expires_in: Seconds from now, by the clock of the storage, until it passes on; not above 0 when it has.
    """

    token: str
    expires_in: float


class CheckpointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a listing; made from header and head manifest, no state is decoded."""

    checkpoint_id: str
    workflow_name: str
    status: Status
    superstep: int
    head_snapshot_id: str
    requests: tuple[str, ...]
    created_at: datetime
    updated_at: datetime
    metadata: dict[str, str]

    @classmethod
    def of(cls, header: Header, head: Manifest) -> CheckpointInfo:
        """Describe a stored checkpoint by its header and the manifest of its stored head."""
        return cls(
            checkpoint_id=header.checkpoint_id,
            workflow_name=header.workflow_name,
            status=head.status,
            superstep=head.superstep,
            head_snapshot_id=head.snapshot_id,
            requests=head.requests,
            created_at=header.created_at,
            updated_at=head.timestamp,
            metadata=dict(header.metadata),
        )

    def matches(
        self,
        *,
        workflow_name: str | None = None,
        status: Status | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> bool:
        """Say whether this line passes the filters of `list_checkpoints`."""
        return (
            (workflow_name is None or self.workflow_name == workflow_name)
            and (status is None or self.status == status)
            and all(self.metadata.get(key) == value for key, value in (metadata or {}).items())
        )


class CheckpointStorage(ABC):
    """How bytes last. Subclass this to write a backend.

    Required are `commit_snapshot`, `delete` and one of `load_records` (what was stored, from which
    `load` is made) and `load`. The rest are capabilities: a backend that has one overrides the method
    and names it in `capabilities`.

    A backend may be used from several event loops and threads at once, and it never blocks a loop.
    It keeps no reference to the objects it is given: it takes their bytes
    (`encode_manifest(snapshot.manifest, format=...)`, `snapshot.new_parts`,
    `encode_header(checkpoint.header, format=...)`), or stores `snapshot.to_bytes()` whole.

    Attributes:
        serialization_format: The format of everything it stores, header, manifests and parts.
        capabilities: Names of the optional methods that this backend really has.
        commit_waits: Whether `commit_snapshot` may wait for something. False promises that it is through
            when its coroutine is first stepped; then no task of its own is made to see it through.
        lazy_over: How many bytes of parts a loaded checkpoint may hold at first; None: all of them.
        leases: Whether runs take a lease and commits compare it. All who use one store agree on it.
        lease_seconds: How long a lease lasts that nobody renews; its holder does so three times in it.
    """

    serialization_format: Format = "json"
    commit_waits: bool = True
    lazy_over: int | None = None
    leases: bool = False
    lease_seconds: float = 30.0
    capabilities: ClassVar[frozenset[Capability]] = frozenset()

    @abstractmethod
    async def commit_snapshot(
        self,
        checkpoint: Checkpoint,
        snapshot: CheckpointSnapshot,
        *,
        expected_head_snapshot_id: str | None,
    ) -> None:
        """Persist snapshot, lineage and new head as one atomic, conflict-checked operation.

        On return all of it is durable. When this raises, or when the process dies inside it, either
        all of it is durable or nothing of it is visible; what is left over is never shown.

        Under one lock or in one transaction: the stored head must be `expected_head_snapshot_id`
        (None: nothing is stored under this id) and the stored generation must be
        `checkpoint.generation`; see `refuse_stale`. Then `snapshot.new_parts` are added (one that is
        already there has the same bytes, digests name their content), the manifest is appended to
        the lineage and the head becomes `snapshot.snapshot_id`. The first commit stores
        `checkpoint.header` as well. The name of a part is a text of letters, digits, `-` and `_`; it is
        stored with the bytes and never computed from them.

        With `leases`, the stored lease is compared as well, under the same lock: `refuse_leased`.

        A backend that is about to report a conflict first looks whether `snapshot.snapshot_id` is in
        the stored lineage already: then an earlier reply was lost, and it reports success.

        It may keep an etag of its own in `checkpoint.storage_token`.

        Raises:
            CheckpointConflictError: The expected head or the generation is stale; nothing is persisted.
            CheckpointLeasedError: Another holds the lease, or it passed on; nothing is persisted.
            StorageError: It could not be done; nothing of it is visible, or the reply was lost and
                `await checkpoint.refresh()` shows which.
        """

    async def load(self, checkpoint_id: str, *, expected_head_snapshot_id: str | None = None) -> Checkpoint:
        """Return the stored checkpoint, attached to this storage, with every retained branch.

        Made from `load_records`; bucket names, lineage and digests are checked. With `lazy_over`, parts of
        older snapshots may be left in storage, and where `load_records` leaves them, older snapshots.
        A backend that stores whole snapshots overrides this, and ends it with `Checkpoint.restore`.

        A storage cannot see from inside that all of it was set back, by a restored backup for instance. Who
        keeps the id of the last head elsewhere can ask for it.

        Args:
            checkpoint_id: What to load.
            expected_head_snapshot_id: Load it only if exactly this is the stored head; None takes any.

        Raises:
            CheckpointNotFoundError: Nothing is stored under this id.
            CheckpointConflictError: The stored head is another, and the expected one is stored before it:
                somebody committed since.
            CorruptCheckpointError: What is stored is damaged; never an older head in silence. Or the expected
                head is not stored: the store was set back, or a prune removed it.
            UnknownVersionError: It was written by a newer version, or by Agent Framework's version 1.
            InvalidCallError: The id is none that a storage could keep.
            StorageError: It could not be read.
        """
        from branchpoint.checkpoint._restoring import restored  # it is built on this file

        check_id(checkpoint_id)
        expected = expected_head_snapshot_id
        if expected is not None:
            check_id(expected, "expected_head_snapshot_id")
        if not instruments:
            return await restored(self, checkpoint_id, expected)
        known = {"checkpoint_id": checkpoint_id, "storage": type(self).__name__, "head_snapshot_id": None}
        with instrumented("load", known) as info:
            loaded = await restored(self, checkpoint_id, expected)
            info["head_snapshot_id"] = loaded.head_snapshot_id
            return loaded

    async def load_records(self, checkpoint_id: str) -> StoredRecords:
        """Return what is stored: header and manifests decoded, parts as bytes, read as of one moment.

        With `lazy_over` a backend may leave parts and older manifests behind (`complete=False`): no part
        needs to be there then, since what the head needs is fetched by `load_parts`.

        Raises:
            CheckpointNotFoundError: Nothing is stored under this id.
            CorruptCheckpointError: What is stored is damaged.
            UnknownVersionError: It was written by a newer version.
            StorageError: It could not be read, or this backend stores whole snapshots.
        """
        raise self._unsupported("load_records")

    async def load_lineage(self, checkpoint_id: str) -> StoredRecords:
        """Return header and all manifests, and no parts, for a checkpoint of which `load` left some in storage.

        Raises:
            CheckpointNotFoundError: Nothing is stored under this id.
            CorruptCheckpointError: What is stored is damaged.
            StorageError: It could not be read, or this backend always loads all manifests.
        """
        raise self._unsupported("load_lineage")

    @abstractmethod
    async def delete(self, checkpoint_id: str) -> None:
        """Remove the checkpoint and everything of it; an unknown id is no error.

        A commit that arrives later finds nothing stored, conflicts and brings nothing back. A lease is
        removed as well.
        """

    async def load_head(self, checkpoint_id: str) -> StoredHead:
        """Return the stored head alone. Without the capability this loads the whole checkpoint.

        Raises:
            CheckpointNotFoundError: Nothing is stored under this id.
        """
        checkpoint = await self.load(checkpoint_id)
        head = checkpoint.stored_head_snapshot_id
        if head is None:
            raise StorageError(
                f"{type(self).__name__}.load() returned checkpoint {checkpoint_id!r} without a head"
            )
        return StoredHead(head, checkpoint.generation)

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

        Args:
            workflow_name: Only checkpoints of workflows of this name.
            status: Only checkpoints whose stored head has this status.
            metadata: Only checkpoints whose own metadata has all these pairs.
            after: Only ids that sort after this one: the last id of the page before.
            limit: At most so many.

        Raises:
            StorageError: This backend cannot list.
        """
        raise self._unsupported("list_checkpoints")

    async def prune(
        self,
        checkpoint: Checkpoint,
        *,
        header: Header,
        keep: Sequence[str],
        parts: frozenset[str],
        expected_head_snapshot_id: str,
    ) -> None:
        """Remove every snapshot that is not in `keep` and every part that is not in `parts`, atomically.

        Runs under the lock or in the transaction of a commit: the stored head must be
        `expected_head_snapshot_id` and the stored generation `header.generation - 1`. `header`
        replaces the stored header; commits that saw the older generation conflict from then on.
        If the stored generation is `header.generation` and the stored lineage is exactly `keep`,
        an earlier reply was lost and this is success.

        Args:
            header: The header to store, with the raised generation.
            keep: Ids of the snapshots that stay, in commit order; the head is among them.
            parts: Names of all parts that those snapshots need.

        Raises:
            CheckpointConflictError: The head or the generation is stale; nothing is removed.
            StorageError: This backend cannot prune.
        """
        raise self._unsupported("prune")

    async def load_parts(self, checkpoint_id: str, digests: Collection[str]) -> dict[str, bytes]:
        """Return the named parts, for a checkpoint of which `load` left some in storage.

        What is not there is left out; the caller reports it as damage. A backend may add parts that are
        below the named ones, if it has them at hand: the caller asks level by level otherwise.

        Raises:
            CheckpointNotFoundError: Nothing is stored under this id.
            StorageError: This backend always loads everything.
        """
        raise self._unsupported("load_parts")

    async def take_lease(self, checkpoint_id: str) -> Lease:
        """Take the lease of a checkpoint, stored or not, for `lease_seconds`; a free or expired one alone.

        The record holds a new token and when it expires, by the clock of the storage, and is made under
        the short lock or in the transaction of its own.

        Raises:
            CheckpointLeasedError: Another holds it; `retry_after` says for how long at most. See
                `refuse_leased`.
            StorageError: This backend has no leases.
        """
        raise self._unsupported("take_lease")

    async def renew_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """Let a lease last `lease.seconds` from now, also one that has expired and that nobody took since.

        Raises:
            CheckpointLeasedError: It passed on to another, or was removed; see `refuse_lost`.
            StorageError: This backend has no leases.
        """
        raise self._unsupported("renew_lease")

    async def end_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """Remove a lease; one that passed on is no error and stays with its holder.

        Raises:
            StorageError: This backend has no leases.
        """
        raise self._unsupported("end_lease")

    async def aclose(self) -> None:  # noqa: B027 - many backends hold nothing open
        """Release what the backend holds open; what was committed stays. Closing twice is fine."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def _unsupported(self, name: str) -> StorageError:
        return StorageError(
            f"{type(self).__name__} has no {name}(); its capabilities are {sorted(self.capabilities)}. "
            "Use a storage that has it."
        )


def refuse_stale(
    checkpoint_id: str,
    *,
    expected_head_snapshot_id: str | None,
    generation: int,
    stored: StoredHead | None,
) -> None:
    """Compare what a writer expects with what is stored; the one wording of a conflict.

    Raises:
        CheckpointConflictError: They differ.
    """
    if stored is None and expected_head_snapshot_id is None:
        return
    if stored is None:
        raise CheckpointConflictError(
            f"checkpoint {checkpoint_id!r} is no longer in storage: it was deleted since this object saw its "
            f"head {expected_head_snapshot_id!r}. Nothing was persisted; create a new checkpoint"
        )
    if expected_head_snapshot_id is None:
        raise CheckpointConflictError(
            f"checkpoint {checkpoint_id!r} is already in storage with head {stored.head_snapshot_id!r}: "
            "nothing was persisted. Load it, or create the new checkpoint under another id"
        )
    if stored.head_snapshot_id != expected_head_snapshot_id:
        raise CheckpointConflictError(
            f"checkpoint {checkpoint_id!r} moved on in storage: expected head {expected_head_snapshot_id!r}, "
            f"found {stored.head_snapshot_id!r}. Nothing was persisted; call refresh() and decide again"
        )
    if stored.generation != generation:
        raise CheckpointConflictError(
            f"checkpoint {checkpoint_id!r} was pruned elsewhere: expected generation {generation}, "
            f"found {stored.generation}. Nothing was persisted; call refresh() and decide again"
        )


def refuse_leased(checkpoint_id: str, *, held: Lease | None, stored: StoredLease | None) -> None:
    """Compare the lease of a writer with the one that is stored; the one wording of a refusal.

    Nobody else's lease is in force when none is stored, or when the stored one is the writer's own, expired
    or not. Without a lease, a writer is let through where the stored one has expired.

    Raises:
        CheckpointLeasedError: Another one's lease is in force, or the writer's own passed on.
    """
    if stored is None or (held is not None and stored.token == held.token):
        return
    if held is None and stored.expires_in <= 0:
        return
    left = max(stored.expires_in, 0.0)
    what = (
        "is leased by another run"
        if held is None
        else "is leased by another run now: the lease of this one expired and passed on"
    )
    raise CheckpointLeasedError(
        f"checkpoint {checkpoint_id!r} {what}. Nothing was persisted; try again in {left:.1f} seconds, "
        "after refresh()",
        retry_after=left,
    )


def refuse_lost(checkpoint_id: str, *, lease: Lease, stored: StoredLease | None) -> None:
    """Compare a lease that is to be renewed with the one that is stored; the one wording of a lost one.

    Raises:
        CheckpointLeasedError: It passed on to another, or was removed.
    """
    if stored is None:
        raise CheckpointLeasedError(
            f"checkpoint {checkpoint_id!r} is no longer leased by this run: its lease was removed, with the "
            "checkpoint or alone, or it expired and another run has ended since. Nothing more is persisted; "
            "load the checkpoint again",
            retry_after=0.0,
        )
    refuse_leased(checkpoint_id, held=lease, stored=stored)
