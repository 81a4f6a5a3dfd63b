"""The two envelopes that storage keeps beside the parts: a header per checkpoint, a manifest per snapshot.

Both are typed, versioned and closed: an unknown field is refused, an unknown version is named.
Their names on the wire are short, because a manifest is written at every commit.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec

from branchpoint.checkpoint._plain import plain_flaw
from branchpoint.errors import CorruptCheckpointError, UnknownVersionError, quotable

__all__ = [
    "BOUNDARIES",
    "FORMAT_VERSION",
    "INNER_BOUNDARIES",
    "BoundaryName",
    "Format",
    "Header",
    "Manifest",
    "Origin",
    "Status",
    "check_manifest",
    "decode_header",
    "decode_manifest",
    "encode_header",
    "encode_manifest",
    "is_v1_checkpoint",
    "refuse_v1",
]

FORMAT_VERSION = 1

Format = Literal["json", "msgpack"]
Status = Literal["in_progress", "idle_with_pending_requests", "idle"]
BoundaryName = Literal[
    "input_accepted",
    "responses_accepted",
    "restarted",
    "superstep_completed",
    "child_superstep_completed",
    "step_completed",
    "paused",
    "completed",
    "abandoned",
    "edited",
    "forked",
]
BOUNDARIES: tuple[BoundaryName, ...] = get_args(BoundaryName)
INNER_BOUNDARIES: tuple[BoundaryName, ...] = ("child_superstep_completed", "step_completed")
"""Those in the middle of a superstep, which goes on from there."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the root snapshot of a fork came from."""

    checkpoint_id: str = msgspec.field(name="c")
    snapshot_id: str = msgspec.field(name="s")


class Manifest(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True, gc=False
):
    """Everything about one snapshot except its state, readable without decoding any value.

    Attributes:
        root: Digest of the part at the root of the state.
        metadata: The caller's own metadata; the boundary is a field of its own.
        superstep: Supersteps completed in this lineage up to here.
        requests: Ids of the requests for outside input that are open here.
        executors: Ids of the executors that ran in the superstep that this snapshot completes.
        trace: W3C `traceparent` of the span that committed this snapshot.
    """

    snapshot_id: str = msgspec.field(name="id")
    parent_snapshot_id: str | None = msgspec.field(name="up", default=None)
    timestamp: datetime = msgspec.field(name="at")
    root: str
    boundary: BoundaryName = msgspec.field(name="b")
    status: Status = msgspec.field(name="st")
    superstep: _Count = msgspec.field(name="n", default=0)
    input_id: str | None = msgspec.field(name="in", default=None)
    requests: tuple[str, ...] = msgspec.field(name="rq", default=())
    executors: tuple[str, ...] = msgspec.field(name="ex", default=())
    graph_signature_hash: str = msgspec.field(name="sig")
    metadata: dict[str, Any] = msgspec.field(name="meta", default_factory=dict)
    trace: str | None = msgspec.field(name="tr", default=None)
    forked_from: Origin | None = msgspec.field(name="from", default=None)
    format_version: int = msgspec.field(name="v", default=1)


class Header(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """What belongs to the checkpoint as a whole; written at the first commit, replaced only by a prune.

    Attributes:
        signature: The readable signature of the graph, so that a mismatch can say what changed.
        metadata: Text to text, fixed at creation: the place for owner and tenant.
        generation: Raised by each prune; a commit that saw an older one conflicts.
        pruned: For each pruned snapshot that a retained one names as its parent: the nearest
            retained ancestor, or None when nothing above it was retained.
    """

    format_version: int = msgspec.field(name="branchpoint")
    checkpoint_id: str = msgspec.field(name="id")
    workflow_name: str = msgspec.field(name="wf")
    graph_signature_hash: str = msgspec.field(name="sig")
    signature: dict[str, Any] = msgspec.field(name="graph", default_factory=dict)
    metadata: dict[str, str] = msgspec.field(name="meta", default_factory=dict)
    created_at: datetime = msgspec.field(name="at")
    generation: _Count = msgspec.field(name="gen", default=0)
    pruned: dict[str, str | None] = msgspec.field(default_factory=dict)


class _ManifestVersion(msgspec.Struct):
    """The one field that is read even from envelopes of versions that do not exist yet."""

    version: int = msgspec.field(name="v", default=1)


class _HeaderVersion(msgspec.Struct):
    version: int = msgspec.field(name="branchpoint")


_JSON = msgspec.json.Encoder()
_MSGPACK = msgspec.msgpack.Encoder()
_T = TypeVar("_T", "Manifest", "Header")


def encode_manifest(manifest: Manifest, *, format: Format) -> bytes:
    """Return the bytes of a manifest in one format."""
    return _JSON.encode(manifest) if format == "json" else _MSGPACK.encode(manifest)


def encode_header(header: Header, *, format: Format) -> bytes:
    """Return the bytes of a header in one format."""
    return _JSON.encode(header) if format == "json" else _MSGPACK.encode(header)


def decode_manifest(data: bytes, *, format: Format, checkpoint_id: str) -> Manifest:
    """Read a manifest back.

    Raises:
        UnknownVersionError: It was written by a newer version of the library.
        CorruptCheckpointError: It is damaged, has unknown fields, or is not in canonical form.
    """
    where = f"a snapshot manifest of checkpoint {checkpoint_id!r}"
    manifest = _decode(data, Manifest, _ManifestVersion, format, where)
    check_manifest(manifest, checkpoint_id=checkpoint_id)
    _refuse_noncanonical(data, encode_manifest(manifest, format=format), where)
    return manifest


def check_manifest(manifest: Manifest, *, checkpoint_id: str) -> None:
    """Check what the fields' types do not say; a backend that decodes a whole record at once calls this.

    Raises:
        UnknownVersionError: It was written by a newer version of the library.
        CorruptCheckpointError: Its time is not in UTC, or its metadata is none that a commit takes.
    """
    metadata = manifest.metadata
    if not metadata and manifest.timestamp.tzinfo is UTC and manifest.format_version == FORMAT_VERSION:
        return
    where = f"a snapshot manifest of checkpoint {checkpoint_id!r}"
    _refuse_other_version(manifest.format_version, where)
    _refuse_other_zone(manifest.timestamp, where)
    if metadata:
        _refuse_not_plain(metadata, f"the metadata of {where}")
        if "boundary" in metadata:
            raise CorruptCheckpointError(f"{where} has a boundary in its metadata; restore it from a backup")


def decode_header(data: bytes, *, format: Format, checkpoint_id: str) -> Header:
    """Read a header back and check that it belongs to `checkpoint_id`.

    Raises:
        UnknownVersionError: It was written by a newer version of the library, or it is a version 1
            checkpoint of Agent Framework.
        CorruptCheckpointError: It is damaged, has unknown fields, is not in canonical form, or
            names another checkpoint.
    """
    where = f"the header of checkpoint {checkpoint_id!r}"
    if format == "json":
        refuse_v1(data, checkpoint_id=checkpoint_id)
    header = _decode(data, Header, _HeaderVersion, format, where)
    if header.checkpoint_id != checkpoint_id:
        raise CorruptCheckpointError(
            f"{where} names another checkpoint, {header.checkpoint_id[:80]!a}: "
            "the stored record was moved or edited; restore it from a backup"
        )
    _refuse_other_zone(header.created_at, where)
    _refuse_not_plain(header.signature, f"the signature in {where}")
    _refuse_noncanonical(data, encode_header(header, format=format), where)
    return header


def _decode(data: bytes, kind: type[_T], version_of: type[Any], format: Format, where: str) -> _T:
    decoder = msgspec.json.decode if format == "json" else msgspec.msgpack.decode
    try:
        found = decoder(data, type=kind)
        if found.format_version == FORMAT_VERSION:
            return found
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass  # an unknown version is told before anything else
    try:
        version = decoder(data, type=version_of).version
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptCheckpointError(
            f"{where} cannot be read ({_brief(error)}); restore it from a backup"
        ) from None  # it quotes what was stored as it is
    _refuse_other_version(version, where)
    try:
        return decoder(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _damaged(where, _brief(error)) from None  # it quotes what was stored as it is


def _refuse_other_version(version: int, where: str) -> None:
    if version > FORMAT_VERSION:
        raise UnknownVersionError(
            f"{where} is of format version {version} and this program knows up to {FORMAT_VERSION}: "
            "upgrade branchpoint to read it"
        )
    if version < 1:
        raise _damaged(where, f"there is no format version {version}")


def _damaged(where: str, why: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"{where} is damaged or not written by branchpoint ({why}); restore it from a backup"
    )


def _refuse_other_zone(moment: datetime, where: str) -> None:
    if moment.tzinfo is not UTC and moment.utcoffset() != timedelta(0):
        raise CorruptCheckpointError(f"{where} has a time that is not in UTC; restore it from a backup")


def _refuse_not_plain(value: Any, where: str) -> None:
    """Refuse what no program was let write, before somebody copies it or writes it in the other format."""
    flaw = plain_flaw(value)
    if flaw is not None:
        raise CorruptCheckpointError(f"{where} is not plain JSON: {flaw}; restore it from a backup")


def _refuse_noncanonical(data: bytes, again: bytes, where: str) -> None:
    # Catches duplicate keys, other spacing and other spellings of one value, which msgspec accepts.
    if bytes(data) != again:
        raise CorruptCheckpointError(
            f"{where} is not in canonical form: it was edited or not written by branchpoint; "
            "restore it from a backup"
        )


def _brief(error: Exception) -> str:
    return quotable(f"{type(error).__name__}: {error}", 200)


_V1_IDENTITY = frozenset({"workflow_name", "workflow_id"})
_V1_CONTENT = frozenset(
    {"messages", "state", "shared_state", "iteration_count", "pending_request_info_events"}
)


def is_v1_checkpoint(data: bytes) -> bool:
    """Say whether bytes are a checkpoint file of Agent Framework's version 1 workflow engine.

    Only the names of the outermost JSON object are looked at; nothing inside is decoded.
    """
    if data.lstrip()[:1] != b"{" or b'"checkpoint_id"' not in data:
        return False
    try:
        names = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).keys()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return "checkpoint_id" in names and bool(names & _V1_IDENTITY) and bool(names & _V1_CONTENT)


def refuse_v1(data: bytes, *, checkpoint_id: str) -> None:
    """Refuse a version 1 checkpoint file by name; a backend whose files meet such bytes calls this.

    Raises:
        UnknownVersionError: `data` is a version 1 checkpoint.
    """
    if is_v1_checkpoint(data):
        raise UnknownVersionError(
            f"what is stored as checkpoint {checkpoint_id!r} is a version 1 checkpoint of Agent Framework: "
            "it is never read here (it holds pickled values); migrate it offline and load the result"
        )
