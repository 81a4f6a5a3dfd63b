"""Reading a checkpoint, or parts of it, as of one moment."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from branchpoint.checkpoint import CheckpointInfo, Format, Manifest, Status, StoredRecords, aside, check_id
from branchpoint.errors import DataError, StorageError
from branchpoint.storage._listing import Page
from branchpoint.storage.cosmos._container import Container
from branchpoint.storage.cosmos._heads import TRIES, Seen, read_head
from branchpoint.storage.cosmos._items import (
    HeadItem,
    PartsItem,
    SnapshotItem,
    damaged,
    label,
    parts_in,
    read_item,
    refuse_other_format,
)
from branchpoint.storage.cosmos._names import sort_key

__all__ = ["load_lineage", "load_listing", "load_parts", "load_records", "snapshots_of"]

_NAMES = 50
"""How many parts are asked for by one query."""

_WHOLE = "SELECT * FROM c WHERE c.kind = @kind AND c.life = @life"
_LINEAGE = (
    "SELECT c.id, c.partition, c.kind, c.life, c.snapshot_id, c.n, c.manifest FROM c "
    "WHERE c.kind = 'snapshot' AND c.life = @life"
)
_SOME = "SELECT * FROM c WHERE c.life = @life AND ({0})"
_OWNERS = (
    "SELECT c.attempt FROM c "
    "WHERE c.kind = 'snapshot' AND c.life = @life AND ARRAY_CONTAINS(@attempts, c.attempt)"
)
_LISTING = "SELECT * FROM c WHERE {0} ORDER BY c.sort"


async def load_records(
    container: Container, checkpoint_id: str, *, format: Format, lazy_over: int | None
) -> StoredRecords:
    """Return what is stored; of more than `lazy_over` bytes the newest manifest alone, by one point read.

    Raises:
        CheckpointNotFoundError: There is none of this id.
        CorruptCheckpointError: What is stored is damaged.
        UnknownVersionError: A newer program wrote it.
        InvalidCallError: It is kept in the other format.
        StorageError: It could not be read.
    """
    doing = f"reading checkpoint {check_id(checkpoint_id)!r}"
    for _ in range(TRIES):
        seen = await _found(container, checkpoint_id, doing, format)
        head = seen.found(checkpoint_id)
        if lazy_over is not None and head.size > lazy_over:
            newest = [head.read_manifest()]
            return StoredRecords(
                header=head.read_header(), manifests=newest, parts={}, complete=False, storage_token=seen
            )
        # In this order: what is not marked as landed has its snapshot's item there, which was read before it.
        several = [
            await container.query(
                doing, _WHOLE, partition=head.partition, parameters={"kind": "snapshot", "life": head.life}
            )
        ]
        if head.loose:
            several.append(
                await container.query(
                    doing, _WHOLE, partition=head.partition, parameters={"kind": "parts", "life": head.life}
                )
            )
        if await _is_still(container, seen, doing):
            return await aside(partial(_records, seen, head, *several), sum(map(len, several)))
    raise _restless(container, doing)


async def load_lineage(container: Container, checkpoint_id: str, *, format: Format) -> StoredRecords:
    """Return header and all manifests.

    Raises:
        CheckpointNotFoundError: There is none of this id.
        CorruptCheckpointError: What is stored is damaged.
        UnknownVersionError: A newer program wrote it.
        InvalidCallError: It is kept in the other format.
        StorageError: It could not be read.
    """
    doing = f"reading checkpoint {check_id(checkpoint_id)!r}"
    for _ in range(TRIES):
        seen = await _found(container, checkpoint_id, doing, format)
        head = seen.found(checkpoint_id)
        found = await container.query(
            doing, _LINEAGE, partition=head.partition, parameters={"life": head.life}
        )
        if await _is_still(container, seen, doing):
            return await aside(partial(_records, seen, head, found), len(found))
    raise _restless(container, doing)


async def load_parts(
    container: Container, checkpoint_id: str, digests: Collection[str], *, format: Format
) -> dict[str, bytes]:
    """Return the named parts, and those that are in one item with them.

    Raises:
        CheckpointNotFoundError: There is none of this id.
        CorruptCheckpointError: What is stored is damaged.
        InvalidCallError: It is kept in the other format.
        StorageError: It could not be read.
    """
    doing = f"reading parts of checkpoint {check_id(checkpoint_id)!r}"
    head = (await _found(container, checkpoint_id, doing, format)).found(checkpoint_id)
    found: dict[str, bytes] = {}
    asked: set[str] = set()
    while True:
        names = [name for name in digests if name not in found and name not in asked][:_NAMES]
        if not names:
            return found
        asked.update(names)
        parameters = {f"name{k}": name for k, name in enumerate(names)}
        text = _SOME.format(" OR ".join(f"ARRAY_CONTAINS(c.names, @{name})" for name in parameters))
        documents = await container.query(
            doing, text, partition=head.partition, parameters={"life": head.life, **parameters}
        )
        items = [_item(document, checkpoint_id) for document in documents]
        shown = await _landed(container, head, items, doing)
        found |= await aside(partial(parts_in, shown, checkpoint_id), sum(len(one.names) for one in shown))


async def load_listing(container: Container, page: Page, **asked: Any) -> list[CheckpointInfo]:
    """Return what is stored, by id; the service filters and sorts head items, and nothing else is read.

    Raises:
        StorageError: It could not be read.
    """
    where, parameters = _filters(**asked)
    limit = asked["limit"]
    if limit == 0:
        return []
    lines: list[CheckpointInfo] = []

    def enough(document: dict[str, Any]) -> bool:
        try:
            lines.extend(page.of([_info(document)]))
        except DataError as error:
            warnings.warn(f"Left out of the listing: {error}", RuntimeWarning, stacklevel=2)
        return limit is not None and len(lines) >= limit

    def begin() -> None:
        lines.clear()

    await container.query(
        "listing",
        _LISTING.format(" AND ".join(where)),
        partition=None,
        until=enough,
        begin=begin,
        page=None if limit is None else min(limit, 100),
        parameters=parameters,
    )
    return lines


def _filters(
    *,
    workflow_name: str | None,
    status: Status | None,
    metadata: Mapping[str, str] | None,
    after: str | None,
    limit: int | None,
) -> tuple[list[str], dict[str, Any]]:
    where, parameters = ["c.kind = 'head'"], dict[str, Any]()
    if after is not None:
        where.append("c.sort > @after")
        parameters["after"] = sort_key(after)
    if status is not None:
        where.append("c.status = @status")
        parameters["status"] = status
    labels = [label(pair) for pair in (metadata or {}).items()]
    labels += [] if workflow_name is None else [label([workflow_name])]
    for k, one in enumerate(labels):
        where.append(f"ARRAY_CONTAINS(c.labels, @label{k})")
        parameters[f"label{k}"] = one
    return where, parameters


def _info(document: Mapping[str, Any]) -> CheckpointInfo:
    found = document.get("checkpoint_id")
    if type(found) is not str:
        raise damaged(str(document.get("partition"))[:80], "its head item does not name it")
    head = read_item(document, HeadItem, found)
    return CheckpointInfo.of(head.read_header(), head.read_manifest())


async def _found(container: Container, checkpoint_id: str, doing: str, format: Format) -> Seen:
    seen = await read_head(container, checkpoint_id, doing)
    refuse_other_format(seen.found(checkpoint_id).format, format, checkpoint_id)
    return seen


async def _is_still(container: Container, seen: Seen, doing: str) -> bool:
    """Say whether nothing was removed since a head item was read; what was added since is not shown."""
    head = seen.head
    assert head is not None
    now = (await read_head(container, head.checkpoint_id, doing)).head
    return now is not None and (now.life, now.generation) == (head.life, head.generation)


def _restless(container: Container, doing: str) -> StorageError:
    return StorageError(f"{doing} failed ({container.where}): it was pruned all the time; try again")


def snapshots_of(head: HeadItem, documents: Iterable[Mapping[str, Any]]) -> list[SnapshotItem]:
    """Return the snapshots that are there, in commit order.

    Raises:
        CorruptCheckpointError: They are not those of which the head item tells.
    """
    numbers = head.numbers()
    items = [read_item(document, SnapshotItem, head.checkpoint_id) for document in documents]
    shown = sorted((item for item in items if item.n in numbers), key=lambda item: item.n)
    if len(shown) != head.kept:
        raise damaged(head.checkpoint_id, f"of its {head.kept} snapshots there are {len(shown)}")
    if not shown or shown[-1].snapshot_id != head.head:
        raise damaged(head.checkpoint_id, "its head is not the newest of its snapshots")
    return shown


def _records(
    seen: Seen,
    head: HeadItem,
    documents: Sequence[Mapping[str, Any]],
    loose: Sequence[Mapping[str, Any]] | None = None,
) -> StoredRecords:
    shown = snapshots_of(head, documents)
    manifests: list[Manifest] = [item.read_manifest(head) for item in shown]
    if manifests[-1] != head.read_manifest():
        raise damaged(head.checkpoint_id, "its head item has another manifest than its newest snapshot")
    every = [read_item(document, SnapshotItem, head.checkpoint_id) for document in documents]
    attempts = {item.attempt for item in every}
    beside = [read_item(document, PartsItem, head.checkpoint_id) for document in loose or ()]
    landed = [item for item in beside if item.landed or item.attempt in attempts]
    return StoredRecords(
        header=head.read_header(),
        manifests=manifests,
        parts=parts_in([*every, *landed], head.checkpoint_id),
        storage_token=seen,
    )


def _item(document: Mapping[str, Any], checkpoint_id: str) -> SnapshotItem | PartsItem:
    if document.get("kind") == "snapshot":
        return read_item(document, SnapshotItem, checkpoint_id)
    return read_item(document, PartsItem, checkpoint_id)


async def _landed(
    container: Container, head: HeadItem, items: Sequence[SnapshotItem | PartsItem], doing: str
) -> list[SnapshotItem | PartsItem]:
    """Leave out what went ahead of commits that have not landed."""
    open_ones = [item for item in items if isinstance(item, PartsItem) and not item.landed]
    if not open_ones:
        return list(items)
    attempts = sorted({item.attempt for item in open_ones})
    owners = await container.query(
        doing, _OWNERS, partition=head.partition, parameters={"life": head.life, "attempts": attempts}
    )
    known = {owner["attempt"] for owner in owners}
    left_out = set()
    for item in open_ones:
        if item.attempt not in known:
            # A prune may have removed the snapshot's item just now, and marked this one before.
            again = (await container.read(doing, head.partition, item.id)).document
            if again is None or not read_item(again, PartsItem, head.checkpoint_id).landed:
                left_out.add(item.id)
    return [item for item in items if item.id not in left_out]
