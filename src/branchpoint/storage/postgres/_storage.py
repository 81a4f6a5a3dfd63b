"""Checkpoints in PostgreSQL: a row each, one of each snapshot, and one of each part."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from functools import partial
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
    StoredLease,
    StoredRecords,
    aside,
    check_id,
    check_lazy_over,
    check_lease_seconds,
    encode_header,
    encode_manifest,
    refuse_leased,
    refuse_lost,
    refuse_stale,
)
from branchpoint.errors import CheckpointNotFoundError, DataError, InvalidCallError, StorageError
from branchpoint.ids import new_id
from branchpoint.storage._formats import check_format
from branchpoint.storage._listing import Page
from branchpoint.storage.postgres._grouping import Commit
from branchpoint.storage.postgres._rows import (
    damaged,
    info_of,
    label,
    labels_of,
    records_of,
    refuse_other_format,
)
from branchpoint.storage.postgres._server import Asked, Server
from branchpoint.storage.postgres._statements import DEFAULT_SCHEMA

if TYPE_CHECKING:
    import asyncpg

__all__ = ["PostgresCheckpointStorage"]

_TRIES = 20
_LONGEST_LEASE = 1e9
_MOST_LINES = 2**62


class PostgresCheckpointStorage(CheckpointStorage):
    """Keeps checkpoints in a PostgreSQL database that many machines may use at once.

    A commit is one statement and one round trip: it compares the head and stores snapshot and new parts,
    all of it or nothing. A commit that returned is durable as far as the server makes it so; one that the
    server would acknowledge before its log is on the disk (`synchronous_commit = off`) waits all the same.

    A connection that is lost in the middle is replaced, and the statement sent again: it finds what the
    first one did, or does it. It may be used from several event loops and threads; each loop has its own
    connections, which end with `aclose()`, with the loop, or with this object. After `aclose()` it may be
    used again and connects anew.

    It keeps no state in a session, so it works behind a pooler in transaction mode, PgBouncer for one;
    where that keeps no prepared statements, this is noticed and none are used from then on.

    The tables are made at the first use if there are none and the role may make them; see `setup`.

    Args:
        source: A DSN, `postgresql://user:password@host:5432/database`, with `?sslmode=verify-full` and the
            like for TLS; or an `asyncpg.Pool`, which stays yours to close and works in its own loop alone.
        serialization_format: `"json"` or `"msgpack"`, for what is written. It belongs to each checkpoint:
            one of the other format is listed, and refused when opened.
        lazy_over: How many bytes of parts a loaded checkpoint may hold at first. One with more in all is
            loaded with its newest snapshot alone; the others, and their states, come when they are needed.
        schema: The PostgreSQL schema that holds the tables.
        connections: How many connections each event loop opens at most; of no meaning with a pool.
        leases: Whether a run takes a lease, so that nobody else runs the same checkpoint meanwhile.
        lease_seconds: How long a lease lasts that nobody renews, by the server's clock.

    Raises:
        ImportError: `asyncpg` is not installed.
        InvalidCallError: An argument is of the wrong form.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {"load_head", "list_checkpoints", "prune", "load_parts", "load_lineage", "lease"}
    )

    def __init__(
        self,
        source: str | asyncpg.Pool,
        *,
        serialization_format: Format = "json",
        lazy_over: int | None = None,
        schema: str = DEFAULT_SCHEMA,
        connections: int = 10,
        leases: bool = False,
        lease_seconds: float = 30.0,
    ) -> None:
        if type(connections) is not int or connections < 1:
            raise InvalidCallError(f"connections is how many there are at most, from 1, not {connections!r}")
        self.serialization_format = check_format(serialization_format)
        self.lazy_over = check_lazy_over(lazy_over)
        self.leases = leases
        self.lease_seconds = check_lease_seconds(lease_seconds)
        self._server = Server(source, schema=schema, most=connections)
        self._sql = self._server.statements

    def __repr__(self) -> str:
        return (
            f"<PostgresCheckpointStorage in schema {self._sql.schema!r} of {self._server.where}, "
            f"{self.serialization_format}>"
        )

    async def setup(self) -> None:
        """Make the tables, or lead those of an older version to this one; several may do so at once.

        Needs the right to create in the database, or in the schema if that is there. The tables then belong to
        this role; another one that is to work with them needs USAGE on the schema and SELECT, INSERT, UPDATE
        and DELETE on its tables. It happens in one transaction.

        Raises:
            StorageError: The server could not be reached, or refuses; nothing has changed.
            UnknownVersionError: A newer version of this library made the tables.
        """
        await self._server.setup()

    async def aclose(self) -> None:
        """Wait for what is under way in this loop and the others, and end all connections."""
        await self._server.aclose()

    async def commit_snapshot(
        self,
        checkpoint: Checkpoint,
        snapshot: CheckpointSnapshot,
        *,
        expected_head_snapshot_id: str | None,
    ) -> None:
        """Store the snapshot, by one statement; on return it is durable.

        If this is interrupted, it is stored as a whole or not at all.

        Raises:
            CheckpointConflictError: The expected head or the generation is stale, or the checkpoint
                was deleted; nothing is persisted.
            CheckpointLeasedError: Another's lease is in force; nothing is persisted.
            InvalidCallError: What is stored is of the other format.
            StorageError: The server refused, or could not be reached again to see what it did.
        """
        checkpoint_id, manifest, parts = checkpoint.checkpoint_id, snapshot.manifest, snapshot.new_parts
        form, held = self.serialization_format, checkpoint.lease
        header = checkpoint.header if expected_head_snapshot_id is None else None
        commit = Commit(
            leases=self.leases,
            format=form,
            checkpoint_id=checkpoint_id,
            held=None if held is None else held.token,
            snapshot_id=snapshot.snapshot_id,
            manifest=encode_manifest(manifest, format=form),
            status=manifest.status,
            generation=checkpoint.generation if header is None else header.generation,
            expected=expected_head_snapshot_id,
            header=b"" if header is None else encode_header(header, format=form),
            labels=() if header is None else labels_of(header),
            parts=parts,
            size=sum(map(len, parts.values())),
        )
        doing = f"committing to checkpoint {checkpoint_id!r}"
        for _ in range(_TRIES):
            if await self._server.commit(doing, commit):
                return
            looked = await self._server.ask(doing, self._sql.look, checkpoint_id, snapshot.snapshot_id)
            row = looked[0] if looked else None
            if row is not None and row["there"]:
                return  # an earlier reply was lost
            # Where none of these raises, a lease has gone in between, and it is tried again.
            self._refuse_leased(row, checkpoint_id, held=held)
            refuse_stale(
                checkpoint_id,
                expected_head_snapshot_id=expected_head_snapshot_id,
                generation=checkpoint.generation,
                stored=_head_of(row),
            )
            if row is not None and row["head"] is not None:
                refuse_other_format(row["format"], self.serialization_format, checkpoint_id)
        raise damaged(checkpoint_id, "its row does not say how many snapshots there are")

    async def load_records(self, checkpoint_id: str) -> StoredRecords:
        """Return what is stored, read by one statement; `load` is made from this.

        Raises:
            CheckpointNotFoundError: There is none of this id.
            CorruptCheckpointError: What is stored is damaged; it is left as it is.
            UnknownVersionError: A newer version wrote it.
            InvalidCallError: The id is none that a storage could keep, or it is kept in the other format.
            StorageError: It could not be read.
        """
        return await self._read(checkpoint_id, self._sql.records, self.lazy_over)

    async def load_lineage(self, checkpoint_id: str) -> StoredRecords:
        """Return header and all manifests, read by one statement.

        Raises:
            CheckpointNotFoundError: There is none of this id.
            CorruptCheckpointError: What is stored is damaged; it is left as it is.
            UnknownVersionError: A newer version wrote it.
            InvalidCallError: The id is none that a storage could keep, or it is kept in the other format.
            StorageError: It could not be read.
        """
        return await self._read(checkpoint_id, self._sql.lineage, parts=False)

    async def _read(
        self, checkpoint_id: str, statement: Any, *arguments: Any, parts: bool = True
    ) -> StoredRecords:
        check_id(checkpoint_id)
        rows = await self._server.ask(
            f"reading checkpoint {checkpoint_id!r}", statement, checkpoint_id, *arguments
        )
        if not rows:
            raise self._not_found(checkpoint_id)
        decode = partial(
            records_of, rows, format=self.serialization_format, checkpoint_id=checkpoint_id, parts=parts
        )
        return await aside(decode, len(rows))

    async def load_parts(self, checkpoint_id: str, digests: Collection[str]) -> dict[str, bytes]:
        """Return the named parts; what is not there is left out.

        Raises:
            CheckpointNotFoundError: There is none of this id.
            InvalidCallError: The id is none that a storage could keep, or it is kept in the other format.
            StorageError: It could not be read.
        """
        check_id(checkpoint_id)
        rows = await self._server.ask(
            f"reading parts of checkpoint {checkpoint_id!r}", self._sql.parts, checkpoint_id, list(digests)
        )
        if not rows:
            raise self._not_found(checkpoint_id)
        refuse_other_format(rows[0]["format"], self.serialization_format, checkpoint_id)
        return {row["name"]: row["data"] for row in rows if row["name"] is not None}

    async def load_head(self, checkpoint_id: str) -> StoredHead:
        """Return the stored head and generation.

        Raises:
            CheckpointNotFoundError: There is none of this id.
            InvalidCallError: The id is none that a storage could keep.
            StorageError: It could not be read.
        """
        check_id(checkpoint_id)
        doing = f"reading the head of checkpoint {checkpoint_id!r}"
        for row in await self._server.ask(doing, self._sql.head, checkpoint_id):
            return StoredHead(row["head"], row["generation"])
        raise self._not_found(checkpoint_id)

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

        The server filters and pages. A checkpoint that is damaged is left out, with a `RuntimeWarning`
        that names it.

        Raises:
            InvalidCallError: An argument is of the wrong form.
            StorageError: It could not be read.
        """
        page = Page(workflow_name=workflow_name, status=status, metadata=metadata, after=after, limit=limit)
        try:
            labels = [label(pair) for pair in (metadata or {}).items()]
            labels += [] if workflow_name is None else [label(workflow_name)]
        except UnicodeEncodeError:
            return []  # no stored text holds half of a surrogate pair
        lines: list[CheckpointInfo] = []
        at, most = _bound(after or ""), _MOST_LINES if limit is None else min(limit, _MOST_LINES)
        while len(lines) < most:
            asked = most - len(lines)
            rows = await self._server.ask("listing", self._sql.list, at, labels, status, asked)
            for row in rows:
                try:
                    lines.append(info_of(row))
                except DataError as error:
                    warnings.warn(f"Left out of the listing: {error}", RuntimeWarning, stacklevel=2)
            lines = page.of(lines)
            if len(rows) < asked:
                break
            at = rows[-1]["checkpoint_id"]
        return lines

    async def prune(
        self,
        checkpoint: Checkpoint,
        *,
        header: Header,
        keep: Sequence[str],
        parts: frozenset[str],
        expected_head_snapshot_id: str,
    ) -> None:
        """Delete what is not kept, in one transaction.

        Raises:
            CheckpointConflictError: The head or the generation is stale; nothing is removed.
            CheckpointLeasedError: Another's lease is in force; nothing is removed.
            StorageError: The server refused, or could not be reached again to see what it did.
        """
        checkpoint_id, kept = header.checkpoint_id, list(keep)
        raised = encode_header(header, format=self.serialization_format)

        async def work(asked: Asked) -> None:
            locked = await asked(self._sql.lock, checkpoint_id)
            row = locked[0] if locked else None
            if row is not None and row["header"] == raised:
                stored = await asked(self._sql.order, row["id"])
                if [one["snapshot_id"] for one in stored] == kept:
                    return  # an earlier reply was lost
            self._refuse_leased(row, checkpoint_id, held=checkpoint.lease)
            refuse_stale(
                checkpoint_id,
                expected_head_snapshot_id=expected_head_snapshot_id,
                generation=header.generation - 1,
                stored=_head_of(row),
            )
            assert row is not None  # it has a head
            refuse_other_format(row["format"], self.serialization_format, checkpoint_id)
            await asked(self._sql.prune, row["id"], kept, list(parts), raised, header.generation)

        await self._server.within(f"pruning checkpoint {checkpoint_id!r}", work)

    async def delete(self, checkpoint_id: str) -> None:
        """Delete every row of the checkpoint, readable or not, and its lease; an unknown id is no error.

        Raises:
            InvalidCallError: The id is none that a storage could keep.
            StorageError: The server refused, or could not be reached again to see what it did.
        """
        check_id(checkpoint_id)

        async def work(asked: Asked) -> None:
            for row in await asked(self._sql.delete, checkpoint_id):
                await asked(self._sql.clear, row["id"])

        await self._server.within(f"deleting checkpoint {checkpoint_id!r}", work)

    async def take_lease(self, checkpoint_id: str) -> Lease:
        """Take the lease of a checkpoint, stored or not.

        Raises:
            CheckpointLeasedError: Another's is in force.
            InvalidCallError: The id is none that a storage could keep.
            StorageError: The server refused, or could not be reached.
        """
        check_id(checkpoint_id)
        lease, doing = (
            Lease(new_id(), self.lease_seconds),
            f"taking the lease of checkpoint {checkpoint_id!r}",
        )
        seconds = min(lease.seconds, _LONGEST_LEASE)
        while not await self._server.ask(doing, self._sql.take, checkpoint_id, lease.token, seconds):
            # If this does not raise, the other one has gone in between: then it is tried again.
            refuse_leased(checkpoint_id, held=None, stored=await self._stored_lease(checkpoint_id, doing))
        return lease

    async def renew_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """Let a lease last from now.

        Raises:
            CheckpointLeasedError: It passed on to another, or was removed.
            InvalidCallError: The id is none that a storage could keep.
            StorageError: The server refused, or could not be reached.
        """
        check_id(checkpoint_id)
        doing = f"renewing the lease of checkpoint {checkpoint_id!r}"
        seconds = min(lease.seconds, _LONGEST_LEASE)
        if not await self._server.ask(doing, self._sql.renew, checkpoint_id, lease.token, seconds):
            refuse_lost(checkpoint_id, lease=lease, stored=await self._stored_lease(checkpoint_id, doing))
            raise StorageError(f"{doing} failed: it changed meanwhile; try again")

    async def end_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """Remove a lease; one that passed on stays with its holder.

        Raises:
            InvalidCallError: The id is none that a storage could keep.
            StorageError: The server refused, or could not be reached.
        """
        check_id(checkpoint_id)
        doing = f"ending the lease of checkpoint {checkpoint_id!r}"
        for row in await self._server.ask(doing, self._sql.end, checkpoint_id, lease.token):
            if row["head"] is None:
                await self._server.ask(doing, self._sql.forget, row["id"])

    async def _stored_lease(self, checkpoint_id: str, doing: str) -> StoredLease | None:
        for row in await self._server.ask(doing, self._sql.look, checkpoint_id, ""):
            return _lease_of(row)
        return None

    def _refuse_leased(self, row: Any, checkpoint_id: str, *, held: Lease | None) -> None:
        if self.leases and row is not None:
            refuse_leased(checkpoint_id, held=held, stored=_lease_of(row))

    def _not_found(self, checkpoint_id: str) -> CheckpointNotFoundError:
        return CheckpointNotFoundError(
            f"No checkpoint {checkpoint_id!r} in schema {self._sql.schema} of {self._server.where}; "
            "create it, or ask the storage it was saved in."
        )


def _head_of(row: Any) -> StoredHead | None:
    """Return the head in a row; None where there is no row, or only a lease in it."""
    return None if row is None or row["head"] is None else StoredHead(row["head"], row["generation"])


def _lease_of(row: Any) -> StoredLease | None:
    return None if row["lease"] is None else StoredLease(row["lease"], row["expires_in"])


def _bound(after: str) -> str:
    """Return a text that PostgreSQL takes and after which every id comes that comes after this one."""
    for place, character in enumerate(after):
        if character == "\0" or "\ud800" <= character <= "\udfff":
            return after[:place]
    return after
