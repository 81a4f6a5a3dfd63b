"""Removing: what a prune or a delete leaves behind, decided from a list and then done."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec

from branchpoint.checkpoint import Checkpoint, Format, Header, encode_header, refuse_stale
from branchpoint.errors import InvalidCallError, StorageError
from branchpoint.storage.cosmos._container import Container
from branchpoint.storage.cosmos._heads import (
    TRIES,
    Seen,
    as_document,
    read_head,
    refuse_other_lease,
)
from branchpoint.storage.cosmos._items import (
    HeadItem,
    Listed,
    Numbers,
    PartsItem,
    SnapshotItem,
    damaged,
    data_of,
    encoded_size,
    read_item,
    refuse_other_format,
)
from branchpoint.storage.cosmos._names import HEAD, partition_name
from branchpoint.storage.cosmos._packing import REQUEST_BYTES
from branchpoint.storage.cosmos._troubles import Unmet

__all__ = ["Plan", "delete", "planned", "prune"]

_logger = logging.getLogger("branchpoint")

_LIST = (
    "SELECT c.id, c.kind, c.life, c._etag, c.generation, c.n, c.snapshot_id, c.attempt, c.landed, c.names, c.sizes "
    "FROM c WHERE c.kind = @kind"
)
_EVERYTHING = "SELECT c.id, c.life FROM c"


class Plan(NamedTuple):
    """What a prune does with the items of a checkpoint, in this order.

    Attributes:
        rewritten: Items that went ahead and of which something stays.
        turned: Snapshots' items of which parts stay.
        removed: The rest, with the etags they have; none where it does not matter.
        loose: How many items of parts there are afterwards.
    """

    rewritten: list[Listed]
    turned: list[Listed]
    removed: list[tuple[str, str | None]]
    loose: int


def planned(
    listed: Collection[Listed], *, life: str, generation: int, keep: Collection[str], parts: Collection[str]
) -> Plan:
    """Decide what a prune that raised the generation to `generation` does.

    What was made in this generation or a later one belongs to commits that may land, and is left alone.
    """
    plan = Plan([], [], [], 0)
    loose = 0
    owners = {
        item.attempt: item
        for item in listed
        if item.life == life and item.kind == "snapshot" and item.attempt is not None
    }
    for item in listed:
        needed = sum(name in parts for name in item.names)
        owner = owners.get(item.attempt or "")
        if item.life != life:
            plan.removed.append((item.id, None))  # that life is over
        elif item.generation >= generation:
            continue
        elif item.kind == "snapshot":
            if item.snapshot_id in keep:
                continue
            if needed:
                plan.turned.append(item)
                loose += 1
            else:
                plan.removed.append((item.id, None))
        elif needed and (item.landed or owner is not None):
            loose += 1
            if needed < len(item.names) or (owner is not None and owner.snapshot_id not in keep):
                plan.rewritten.append(item)
        else:
            # If it was marked since, by another prune that came further, it stays.
            plan.removed.append((item.id, item.etag))
    return plan._replace(loose=loose)


async def prune(
    container: Container,
    checkpoint: Checkpoint,
    *,
    header: Header,
    keep: Sequence[str],
    parts: frozenset[str],
    expected: str,
    format: Format,
    leases: bool,
) -> Seen:
    """Make one head item of what stays, and then remove the rest; return the head item.

    Raises:
        CheckpointConflictError: The head or the generation is stale; nothing is removed.
        CheckpointLeasedError: Another's lease is in force; nothing is removed.
        CorruptCheckpointError: What is stored is damaged.
        StorageError: It could not be done, or its reply was lost.
    """
    checkpoint_id = header.checkpoint_id
    doing = f"pruning checkpoint {checkpoint_id!r}"
    raised = data_of(encode_header(header, format=format))
    for _ in range(TRIES):
        seen = await read_head(container, checkpoint_id, doing)
        head = seen.head
        listed = [] if head is None else await _list(container, head.partition, doing)
        if head is not None and head.header == raised and _lineage(head, listed) == list(keep):
            break  # an earlier reply was lost
        if leases:
            refuse_other_lease(checkpoint_id, seen, checkpoint.lease)
        refuse_stale(
            checkpoint_id,
            expected_head_snapshot_id=expected,
            generation=header.generation - 1,
            stored=None if head is None else head.stored,
        )
        assert head is not None  # it is the expected one
        refuse_other_format(head.format, format, checkpoint_id)
        plan = planned(
            listed, life=head.life, generation=header.generation, keep=frozenset(keep), parts=parts
        )
        after = _pruned(head, listed, keep, parts, generation=header.generation, loose=plan.loose)
        after = msgspec.structs.replace(after, header=raised)
        _refuse_too_large(after)
        try:
            etag = await container.replace(doing, as_document(after), seen.etag)
        except Unmet:
            continue
        seen = Seen(container.where, after, etag)
        break
    else:
        raise StorageError(
            f"{doing} failed ({container.where}): its head item changed all the time; try again"
        )
    assert seen.head is not None
    try:
        return await _sweep(container, seen, seen.head, listed, keep, parts, doing)
    except StorageError as error:
        _logger.warning(
            "%s left something behind, which is not shown and goes with the next: %s", doing, error
        )
        return seen


def _pruned(
    head: HeadItem,
    listed: Iterable[Listed],
    keep: Sequence[str],
    parts: Collection[str],
    *,
    generation: int,
    loose: int,
) -> HeadItem:
    """Return the head item of what stays."""
    numbers = head.numbers()
    own = [item for item in listed if item.life == head.life]
    there = {item.snapshot_id: item.n for item in own if item.kind == "snapshot" and item.n in numbers}
    missing = [snapshot_id for snapshot_id in keep if snapshot_id not in there]
    if missing:
        raise damaged(head.checkpoint_id, f"its snapshot {missing[0]!r} is not there")
    sizes = {
        name: size
        for item in own
        for name, size in zip(item.names, item.sizes, strict=False)
        if name in parts
    }
    return msgspec.structs.replace(
        head,
        generation=generation,
        kept=len(keep),
        cut=head.n,
        runs=Numbers.runs((there[snapshot_id] for snapshot_id in keep), head.n),
        size=sum(sizes.values()),
        loose=loose,
    )


def _refuse_too_large(head: HeadItem) -> None:
    if encoded_size(as_document(head)) > REQUEST_BYTES:
        raise InvalidCallError(
            f"what is kept of checkpoint {head.checkpoint_id!r} lies in {len(head.runs) // 2} pieces, which does not "
            "fit into an item of Cosmos DB: keep longer stretches, or fewer snapshots"
        )


def _lineage(head: HeadItem, listed: Iterable[Listed]) -> list[str]:
    numbers = head.numbers()
    own = [
        item for item in listed if item.kind == "snapshot" and item.life == head.life and item.n in numbers
    ]
    return [item.snapshot_id for item in sorted(own, key=lambda item: item.n)]


async def _list(container: Container, partition: str, doing: str) -> list[Listed]:
    """Return all items beside the head item; snapshots' first, since what they name is told by them."""
    found: list[Listed] = []
    for kind in ("snapshot", "parts"):
        documents = await container.query(doing, _LIST, partition=partition, parameters={"kind": kind})
        found += [read_item(document, Listed, partition) for document in documents]
    return found


async def _sweep(
    container: Container,
    seen: Seen,
    head: HeadItem,
    listed: Sequence[Listed],
    keep: Sequence[str],
    parts: frozenset[str],
    doing: str,
) -> Seen:
    """Remove what a prune hides, and then let the head item forget about it; may be repeated by anybody."""
    plan = planned(listed, life=head.life, generation=head.generation, keep=frozenset(keep), parts=parts)
    for item in (*plan.rewritten, *plan.turned):
        await _rewrite(container, head, item.id, parts, doing)
    await container.remove(doing, head.partition, plan.removed)
    after = msgspec.structs.replace(head, cut=0, runs=())
    try:
        return Seen(seen.where, after, await container.replace(doing, as_document(after), seen.etag))
    except Unmet:
        return seen  # somebody has gone on; the numbers go with the next prune


async def _rewrite(container: Container, head: HeadItem, id: str, parts: frozenset[str], doing: str) -> None:
    """Leave of an item the parts that stay, marked as landed."""
    for _ in range(TRIES):
        document = (await container.read(doing, head.partition, id)).document
        if document is None:
            return
        if document.get("kind") == "snapshot":
            snapshot = read_item(document, SnapshotItem, head.checkpoint_id)
            item = PartsItem(
                id=id,
                partition=head.partition,
                life=snapshot.life,
                generation=snapshot.generation,
                attempt=snapshot.id,
                names=snapshot.names,
                sizes=snapshot.sizes,
                data=snapshot.data,
            )
        else:
            item = read_item(document, PartsItem, head.checkpoint_id)
        stays = [name in parts for name in item.names]
        item = msgspec.structs.replace(
            item,
            landed=True,
            names=list(itertools.compress(item.names, stays)),
            sizes=list(itertools.compress(item.sizes, stays)),
            data=list(itertools.compress(item.data, stays)),
        )
        try:
            await container.replace(doing, as_document(item), document["_etag"])
        except Unmet:
            continue
        return
    raise StorageError(f"{doing} failed ({container.where}): item {id!r} changed all the time")


async def delete(container: Container, checkpoint_id: str) -> None:
    """Remove the head item, and then all that is of a life which no head item names.

    Raises:
        StorageError: It could not be done; the checkpoint is gone, or as it was.
    """
    partition, doing = partition_name(checkpoint_id), f"deleting checkpoint {checkpoint_id!r}"
    gone: object = None
    for _ in range(TRIES):
        document = (await container.read(doing, partition, HEAD)).document
        # Another life than the first one: that is gone, by whomever, and a new one has begun since.
        if document is None or (gone is not None and document.get("life") != gone):
            break
        gone = document.get("life")
        try:
            await container.delete(doing, partition, HEAD, document["_etag"])
        except Unmet:
            continue  # committed to meanwhile, or deleted
        break
    else:
        raise StorageError(
            f"{doing} failed ({container.where}): its head item changed all the time; try again"
        )
    listed = await container.query(doing, _EVERYTHING, partition=partition)
    now = (await container.read(doing, partition, HEAD)).document
    living = None if now is None else now.get("life")
    await container.remove(
        doing,
        partition,
        [
            (item["id"], None)
            for item in listed
            if item["id"] != HEAD and (now is None or item.get("life") != living)
        ],
    )
