"""One immutable snapshot: its manifest, and a way to the parts its state is made of."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NoReturn

import msgspec

from branchpoint import codec
from branchpoint.checkpoint._digests import NO_DIGESTS, Digests
from branchpoint.checkpoint._manifest import (
    Format,
    Manifest,
    Origin,
    Status,
    decode_manifest,
    encode_manifest,
)
from branchpoint.checkpoint._naming import named, snapshot_name
from branchpoint.checkpoint._plain import check_id, copy_plain
from branchpoint.errors import CorruptCheckpointError, InvalidCallError, SnapshotNotLoadedError, quotable

__all__ = ["CheckpointSnapshot", "PartTable"]


class PartTable:
    """The parts that the snapshots of one checkpoint share, and which snapshots' parts are not here.

    A table only grows. A prune makes a new one, so a snapshot that somebody still holds keeps
    reading from the old one.

    Attributes:
        parts: Digest to bytes; with a part, everything below it is here.
        unloaded: Ids of the snapshots some of whose parts were left in storage.
        left: Digests of parts that storage held beside these when it was read. A commit that makes
            one of them again keeps it in memory and does not write it. It stays as it is when such
            a part is fetched, so that a commit in flight sees one answer.
    """

    __slots__ = ("left", "parts", "unloaded")

    def __init__(
        self,
        parts: dict[str, bytes] | None = None,
        unloaded: set[str] | None = None,
        left: Digests = NO_DIGESTS,
    ) -> None:
        self.parts: dict[str, bytes] = {} if parts is None else parts
        self.unloaded: set[str] = set() if unloaded is None else unloaded
        self.left = left


class _Whole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The form of a snapshot that needs nothing beside it."""

    checkpoint_id: str = msgspec.field(name="branchpoint")
    manifest: msgspec.Raw = msgspec.field(name="m")
    parts: dict[str, msgspec.Raw] = msgspec.field(name="p")


class CheckpointSnapshot:
    """The complete state at one boundary of one checkpoint. Immutable, and made only by a commit or a load.

    Every read of `state` or `metadata` gives a fresh value: changing it reaches neither the
    snapshot nor the store.
    """

    __slots__ = ("__weakref__", "_checkpoint_id", "_format", "_manifest", "_new", "_table")

    _checkpoint_id: str
    _format: Format
    _manifest: Manifest
    _new: Mapping[str, bytes]
    _table: PartTable

    def __init__(
        self,
        *,
        checkpoint_id: str,
        manifest: Manifest,
        table: PartTable,
        format: Format,
        new_parts: Mapping[str, bytes] | None = None,
    ) -> None:
        assign = object.__setattr__
        assign(self, "_checkpoint_id", checkpoint_id)
        assign(self, "_manifest", manifest)
        assign(self, "_table", table)
        assign(self, "_format", format)
        assign(self, "_new", {} if new_parts is None else new_parts)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(
            f"a snapshot is immutable: {name!r} cannot be set; commit an edited state instead"
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a snapshot is immutable: {name!r} cannot be deleted")

    def __repr__(self) -> str:
        found = self._manifest
        return (
            f"<CheckpointSnapshot {quotable(found.snapshot_id, 80)} of {self._checkpoint_id!r}: {found.boundary}, "
            f"{found.status}, superstep {found.superstep}, parent {quotable(str(found.parent_snapshot_id), 80)}>"
        )

    @property
    def snapshot_id(self) -> str:
        """A fresh id per commit, sortable by time, never derived from parent or content."""
        return self._manifest.snapshot_id

    @property
    def parent_snapshot_id(self) -> str | None:
        """The snapshot this one continues; None for a root. It may have been pruned since."""
        return self._manifest.parent_snapshot_id

    @property
    def checkpoint_id(self) -> str:
        """The checkpoint this snapshot was committed to."""
        return self._checkpoint_id

    @property
    def timestamp(self) -> datetime:
        """When it was committed; aware, in UTC."""
        return self._manifest.timestamp

    @property
    def format_version(self) -> int:
        """The version of the format its envelope is written in."""
        return self._manifest.format_version

    @property
    def graph_signature_hash(self) -> str:
        """Hash of the signature of the graph that made it."""
        return self._manifest.graph_signature_hash

    @property
    def boundary(self) -> str:
        """The name of the boundary, the same as `metadata["boundary"]`."""
        return self._manifest.boundary

    @property
    def status(self) -> Status:
        """`in_progress`, `idle_with_pending_requests` (paused) or `idle` (completed)."""
        return self._manifest.status

    @property
    def superstep(self) -> int:
        """Supersteps completed in this lineage up to here."""
        return self._manifest.superstep

    @property
    def input_id(self) -> str | None:
        """Id of the last accepted input; None before any."""
        return self._manifest.input_id

    @property
    def forked_from(self) -> Origin | None:
        """For the root of a fork: checkpoint id and snapshot id of where it came from."""
        return self._manifest.forked_from

    @property
    def root(self) -> str:
        """Digest of the part at the root of the state; equal digests mean equal states."""
        return self._manifest.root

    @property
    def manifest(self) -> Manifest:
        """The envelope, as a value of its own."""
        found = self._manifest
        return (
            msgspec.structs.replace(found, metadata=copy_plain(found.metadata)) if found.metadata else found
        )

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata given to the commit, with the engine's `boundary`; a fresh value."""
        return {**copy_plain(self._manifest.metadata), "boundary": self._manifest.boundary}

    @property
    def described(self) -> str:
        """This snapshot and its checkpoint in words, for messages."""
        return snapshot_name(self.snapshot_id, self._checkpoint_id)

    @property
    def is_loaded(self) -> bool:
        """Whether the state is in memory; False only when a lazy storage left it behind."""
        return self._manifest.snapshot_id not in self._table.unloaded

    @property
    def state(self) -> dict[str, Any]:
        """The four buckets, decoded afresh at each read.

        Raises:
            SnapshotNotLoadedError: A lazy storage left the parts behind.
            UnregisteredTypeError: A value's type is not registered in this process.
            CorruptCheckpointError: A part is damaged.
        """
        parts = self.loaded_parts()
        with named(self.described):
            return codec.decode_state(self.root, parts, format=self._format)

    def plain_state(self) -> dict[str, Any]:
        """Return the four buckets as JSON-ready values; needs no registered type, tags stay in place.

        Raises:
            SnapshotNotLoadedError: A lazy storage left the parts behind.
            CorruptCheckpointError: A part is damaged.
        """
        parts = self.loaded_parts()
        with named(self.described):
            plain: dict[str, Any] = codec.plain(parts[self.root], parts, format=self._format)
        return plain

    @property
    def format(self) -> Format:
        """The format of its bytes."""
        return self._format

    @property
    def new_parts(self) -> dict[str, bytes]:
        """Parts that storage does not hold yet, by digest; empty once the snapshot is committed."""
        left = self._table.left
        if not left:
            return dict(self._new)
        return {digest: data for digest, data in self._new.items() if digest not in left}

    def parts(self) -> dict[str, bytes]:
        """Return every part the state is made of, by digest, in the order of the digests.

        Raises:
            SnapshotNotLoadedError: A lazy storage left the parts behind.
        """
        table = self.loaded_parts()
        with named(self.described):
            needed = codec.reachable([self.root], table, format=self._format)
        return {digest: table[digest] for digest in sorted(needed)}

    def loaded_parts(self) -> Mapping[str, bytes]:
        """Return the parts to decode from; they may serve other snapshots too. Not to be changed.

        Raises:
            SnapshotNotLoadedError: A lazy storage left the parts behind.
        """
        if not self.is_loaded:
            raise SnapshotNotLoadedError(
                f"the state of {self.described} is still in storage: "
                f"`await checkpoint.load_snapshot({self.snapshot_id!r})` fetches it"
            )
        return _Over(self._new, self._table.parts) if self._new else self._table.parts

    def to_bytes(self) -> bytes:
        """Return the whole snapshot as bytes in its own format, for a backend that stores it in one piece."""
        whole = _Whole(
            checkpoint_id=self._checkpoint_id,
            manifest=msgspec.Raw(encode_manifest(self._manifest, format=self._format)),
            parts={digest: msgspec.Raw(data) for digest, data in self.parts().items()},
        )
        return msgspec.json.encode(whole) if self._format == "json" else msgspec.msgpack.encode(whole)

    @classmethod
    def from_bytes(cls, data: bytes) -> CheckpointSnapshot:
        """Read what `to_bytes` wrote, in either format.

        Raises:
            UnknownVersionError: It was written by a newer version of the library.
            CorruptCheckpointError: It is damaged.
        """
        # An outermost JSON object begins with a brace, which in MessagePack is never a map.
        form: Format = "json" if data[:1] == b"{" else "msgpack"
        try:
            whole = (msgspec.json if form == "json" else msgspec.msgpack).decode(data, type=_Whole)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise CorruptCheckpointError(
                f"the bytes of a snapshot cannot be read ({quotable(str(error), 200)}); restore them from a backup"
            ) from None  # it quotes what was stored as it is
        try:
            check_id(whole.checkpoint_id)
        except InvalidCallError as error:
            raise CorruptCheckpointError(
                f"the bytes of a snapshot name no checkpoint ({error}); restore them from a backup"
            ) from error
        manifest = decode_manifest(bytes(whole.manifest), format=form, checkpoint_id=whole.checkpoint_id)
        table = PartTable({digest: bytes(part) for digest, part in whole.parts.items()})
        for digest, part in table.parts.items():
            check_part(digest, part, checkpoint_id=whole.checkpoint_id)
        snapshot = cls(checkpoint_id=whole.checkpoint_id, manifest=manifest, table=table, format=form)
        # They are built on this file.
        from branchpoint.checkpoint._shape import open_messages
        from branchpoint.checkpoint._stored import Source, stored_root

        source = Source(table.parts, form, snapshot.described, advice="Restore it from a backup.")
        open_messages(stored_root(manifest.root, source))
        with named(snapshot.described):
            needed = codec.reachable([manifest.root], table.parts, format=form)
        again = snapshot.to_bytes() if needed == table.parts.keys() else b""
        if again != bytes(data):
            raise CorruptCheckpointError(
                f"the bytes of snapshot {manifest.snapshot_id!r} of checkpoint {whole.checkpoint_id!r} are "
                "not in canonical form: they were edited; restore them from a backup"
            )
        return snapshot


class _Over(Mapping[str, bytes]):
    """New parts in front of those that are durable already."""

    __slots__ = ("_new", "_old")

    def __init__(self, new: Mapping[str, bytes], old: Mapping[str, bytes]) -> None:
        self._new = new
        self._old = old

    def __getitem__(self, digest: str) -> bytes:
        found = self._new.get(digest)
        return self._old[digest] if found is None else found

    def __iter__(self) -> Any:
        return iter({**self._old, **self._new})

    def __len__(self) -> int:
        return len({**self._old, **self._new})


def settle(snapshot: CheckpointSnapshot) -> None:
    """Move a snapshot's new parts into the table it shares: they are durable now."""
    snapshot._table.parts.update(snapshot._new)
    object.__setattr__(snapshot, "_new", {})


def check_part(digest: str, data: bytes, *, checkpoint_id: str) -> None:
    """Compare a part with its name.

    Raises:
        CorruptCheckpointError: The bytes are not the ones the digest was made of.
    """
    if codec.digest(data) != digest:
        raise CorruptCheckpointError(
            f"a part of checkpoint {checkpoint_id!r} is damaged: its bytes do not match its digest "
            f"{digest[:40]!a}; restore it from a backup"
        )
