"""What is in the items of a checkpoint, and how bytes are text there."""

from __future__ import annotations

import base64
import binascii
import itertools
import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from branchpoint.checkpoint import (
    Format,
    Header,
    Manifest,
    Status,
    StoredHead,
    decode_header,
    decode_manifest,
)
from branchpoint.errors import CorruptCheckpointError, UnknownVersionError, quotable
from branchpoint.storage._formats import refuse_format
from branchpoint.storage.cosmos._names import HEAD

__all__ = [
    "VERSION",
    "Data",
    "HeadItem",
    "LeaseItem",
    "Listed",
    "Numbers",
    "PartsItem",
    "SnapshotItem",
    "base64_size",
    "bytes_of",
    "damaged",
    "data_of",
    "encoded_size",
    "label",
    "parts_in",
    "read_item",
    "refuse_other_format",
]

VERSION = 1
"""Of the items; a reader that knows no newer one refuses it."""

Data = str | dict[Literal["base64"], str]
"""Bytes: text as it is where that takes no more room, otherwise base64."""

_Count = Annotated[int, msgspec.Meta(ge=0)]
_Number = Annotated[int, msgspec.Meta(ge=1)]


class LeaseItem(msgspec.Struct, frozen=True):
    """The lease of a checkpoint, inside its head item.

    Attributes:
        expires: When it passes on, in seconds since 1970 by the clock of the service.
        seconds: How long it lasts from when it was taken or renewed.
    """

    token: str
    expires: float
    seconds: float


class HeadItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The item that commits compare, one of each checkpoint.

    Attributes:
        kind: `head`; or `unborn` while nothing was committed, where a lease or a large first commit needs it.
        life: Every other item of this checkpoint names the same.
        n: The number of the newest snapshot; the first one has 1, and none is given twice.
        kept: How many snapshots there are.
        size: Bytes of parts.
        loose: How many items of parts have landed beside the snapshots' own.
        cut, runs: Which of the snapshots up to number `cut` stay, while a prune has not removed the others.
    """

    id: str = HEAD
    partition: str
    kind: Literal["head", "unborn"]
    v: int
    checkpoint_id: str
    life: str
    sort: str
    format: Format = "json"
    generation: _Count = 0
    head: str | None = None
    n: _Count = 0
    kept: _Count = 0
    size: _Count = 0
    loose: _Count = 0
    cut: _Count = 0
    runs: tuple[_Count, ...] = ()
    status: Status | None = None
    labels: tuple[str, ...] = ()
    header: Data = ""
    manifest: Data = ""
    lease: LeaseItem | None = None

    @property
    def stored(self) -> StoredHead | None:
        """What a commit is compared with; None while nothing was committed."""
        return None if self.head is None else StoredHead(self.head, self.generation)

    def numbers(self) -> Numbers:
        """Which snapshots are there.

        Raises:
            CorruptCheckpointError: It does not say so.
        """
        return Numbers(self)

    def read_header(self) -> Header:
        """Decode the header.

        Raises:
            CorruptCheckpointError: It is damaged.
            UnknownVersionError: A newer program wrote it.
        """
        data = bytes_of(self.header, self.checkpoint_id)
        header = decode_header(data, format=self.format, checkpoint_id=self.checkpoint_id)
        if header.generation != self.generation:
            raise damaged(self.checkpoint_id, "its header is of another generation than its head item")
        return header

    def read_manifest(self) -> Manifest:
        """Decode the newest manifest.

        Raises:
            CorruptCheckpointError: It is damaged.
            UnknownVersionError: A newer program wrote it.
        """
        manifest = _manifest(self.manifest, self.head, self)
        if manifest.status != self.status:
            raise damaged(self.checkpoint_id, "its head item has another status than its newest snapshot")
        return manifest


class SnapshotItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A committed snapshot, with the parts that came with it.

    Attributes:
        attempt: What the items name that went ahead of this commit.
    """

    id: str
    partition: str
    kind: Literal["snapshot"] = "snapshot"
    life: str
    snapshot_id: str
    n: _Number
    generation: _Count = 0
    attempt: str | None = None
    manifest: Data
    names: list[str] = []
    sizes: list[_Count] = []
    data: list[Data] = []

    def read_manifest(self, head: HeadItem) -> Manifest:
        """Decode the manifest.

        Raises:
            CorruptCheckpointError: It is damaged.
            UnknownVersionError: A newer program wrote it.
        """
        return _manifest(self.manifest, self.snapshot_id, head)


class PartsItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Parts beside the snapshots' own.

    Attributes:
        attempt: Of which attempt at a commit this is.
        landed: That commit has landed, and its snapshot's item may be gone.
        piece: Which piece of how many of its one part this is, from 0.
    """

    id: str
    partition: str
    kind: Literal["parts"] = "parts"
    life: str
    generation: _Count = 0
    attempt: str
    landed: bool = False
    piece: tuple[_Count, _Number] | None = None
    names: list[str] = []
    sizes: list[_Count] = []
    data: list[Data] = []


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked at of an item to decide whether it stays."""

    id: str
    kind: Literal["snapshot", "parts"]
    life: str
    etag: str = msgspec.field(name="_etag")
    generation: _Count = 0
    n: _Count = 0
    snapshot_id: str = ""
    attempt: str | None = None
    landed: bool = False
    names: list[str] = []
    sizes: list[_Count] = []


_Item = TypeVar("_Item", HeadItem, SnapshotItem, PartsItem, Listed, LeaseItem)


def read_item(document: Mapping[str, Any], kind: type[_Item], checkpoint_id: str) -> _Item:
    """Read an item as what it is to be.

    Raises:
        CorruptCheckpointError: It is damaged, or of another checkpoint.
        UnknownVersionError: A newer program wrote it.
    """
    if kind is HeadItem:
        version = document.get("v")
        if type(version) is int and version > VERSION:
            raise UnknownVersionError(
                f"the items of checkpoint {checkpoint_id!r} are of version {version} and this program knows up to "
                f"{VERSION}: upgrade branchpoint to read them"
            )
    try:
        item = msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise damaged(
            checkpoint_id, f"item {document.get('id')!r:.80}: {quotable(str(error), 200)}"
        ) from None
    if isinstance(item, HeadItem):
        if item.v != VERSION:
            raise damaged(checkpoint_id, f"there are no items of version {item.v}")
        if item.checkpoint_id != checkpoint_id:
            raise damaged(checkpoint_id, f"its head item is of checkpoint {item.checkpoint_id[:80]!r}")
        if (item.head is None) != (item.kind == "unborn"):
            raise damaged(checkpoint_id, "its head item does not say whether there is a head")
    return item


def damaged(checkpoint_id: str, why: str) -> CorruptCheckpointError:
    """Return what says that the items of a checkpoint are damaged."""
    return CorruptCheckpointError(
        f"checkpoint {checkpoint_id!r} is damaged in Cosmos DB: {why}. It is left as it is; restore it from a backup"
    )


def refuse_other_format(stored: Format, given: Format, checkpoint_id: str) -> None:
    """Refuse what was stored in the format that a storage does not write.

    Raises:
        InvalidCallError: It is of the other format.
    """
    what = f"checkpoint {checkpoint_id!r}"
    refuse_format(stored, given, what=what, storage="CosmosCheckpointStorage")


def _manifest(data: Data, snapshot_id: str | None, head: HeadItem) -> Manifest:
    manifest = decode_manifest(
        bytes_of(data, head.checkpoint_id), format=head.format, checkpoint_id=head.checkpoint_id
    )
    if manifest.snapshot_id != snapshot_id:
        raise damaged(head.checkpoint_id, "a snapshot is stored under the id of another one")
    return manifest


def label(value: Sequence[str]) -> str:
    """Return the text by which a listing filters: of a workflow's name alone, or of a pair of metadata."""
    return json.dumps(list(value), ensure_ascii=True, separators=(",", ":"))


# Bytes as text.


def data_of(data: bytes) -> Data:
    """Return bytes as an item holds them."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return _as_base64(data)
    return text if len(encode_basestring_ascii(text)) <= base64_size(len(data)) else _as_base64(data)


def _as_base64(data: bytes) -> Data:
    return {"base64": binascii.b2a_base64(data, newline=False).decode("ascii")}


def base64_size(size: int) -> int:
    """Return how many bytes an item holds for so many at most."""
    return (size + 2) // 3 * 4 + len('{"base64":""}')


def bytes_of(data: Data, checkpoint_id: str) -> bytes:
    """Return the bytes that an item holds.

    Raises:
        CorruptCheckpointError: They are no base64, or no text that could be stored.
    """
    try:
        if isinstance(data, str):
            return data.encode("utf-8")
        return base64.b64decode(data["base64"], validate=True)
    except (KeyError, ValueError):
        raise damaged(checkpoint_id, "an item holds bytes that are neither text nor base64") from None


def encoded_size(value: Any) -> int:
    """Return how many bytes a value takes in a request, as the SDK writes it."""
    return len(json.dumps(value, separators=(",", ":")))


def parts_in(items: Iterable[SnapshotItem | PartsItem], checkpoint_id: str) -> dict[str, bytes]:
    """Return the parts that items hold; one of which a piece is missing is left out.

    Raises:
        CorruptCheckpointError: An item is damaged.
    """
    found: dict[str, bytes] = {}
    pieces: dict[tuple[str, str, int], dict[int, bytes]] = {}
    for item in items:
        if not len(item.names) == len(item.sizes) == len(item.data):
            raise damaged(checkpoint_id, f"item {item.id[:80]!r} has not as many parts as names")
        for name, size, data in zip(item.names, item.sizes, item.data, strict=True):
            part = bytes_of(data, checkpoint_id)
            if len(part) != size:
                raise damaged(checkpoint_id, f"part {name[:40]!r} has {len(part)} bytes of {size}")
            if isinstance(item, PartsItem) and item.piece is not None:
                number, of = item.piece
                pieces.setdefault((item.attempt, name, of), {})[number] = part
            else:
                found[name] = part
    for (_, name, of), several in pieces.items():
        if len(several) == of == max(several) + 1:
            found[name] = b"".join(several[number] for number in range(of))
    return found


# Which snapshots stay.


class Numbers:
    """Which snapshots are there, by their numbers: those that a prune kept, and all that came after it.

    Raises:
        CorruptCheckpointError: The head item does not say so.
    """

    def __init__(self, head: HeadItem) -> None:
        self._cut, self._newest = head.cut, head.n
        self._ends = list(itertools.accumulate(head.runs))
        if head.cut > head.n or (self._ends[-1] if self._ends else 0) != head.cut:
            raise damaged(head.checkpoint_id, "its head item does not say which snapshots there are")

    def __contains__(self, n: int) -> bool:
        if n > self._cut:
            return n <= self._newest
        return bisect_left(self._ends, n) % 2 == 0

    @staticmethod
    def runs(numbers: Iterable[int], cut: int) -> tuple[int, ...]:
        """Return how many stay, go, stay, ... in turn, from number 1 up to `cut`."""
        runs = [0]
        last = 0
        for n in sorted(numbers):
            if n == last + 1:
                runs[-1] += 1
            else:
                runs += [n - last - 1, 1]
            last = n
        return (*runs, cut - last) if last < cut else tuple(runs)
