"""A small storage that keeps the contract for real, in memory; a wrapper that fails on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from branchpoint.checkpoint import (
    Capability,
    Checkpoint,
    CheckpointSnapshot,
    CheckpointStorage,
    Format,
    Header,
    StoredHead,
    decode_header,
    decode_manifest,
    encode_header,
    encode_manifest,
    refuse_stale,
)
from branchpoint.errors import CheckpointNotFoundError

SIGNATURE = {"name": "count", "start": "tally", "executors": {"tally": "shop.Tally"}, "edges": []}


def new_checkpoint(
    storage: CheckpointStorage | None = None, checkpoint_id: str | None = None, **more: Any
) -> Checkpoint:
    return Checkpoint.create(
        workflow_name="count",
        graph_signature_hash="sig-1",
        signature=SIGNATURE,
        checkpoint_id=checkpoint_id,
        checkpoint_storage=storage,
        **more,
    )


@dataclass
class Record:
    header: bytes
    manifests: list[bytes] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    parts: dict[str, bytes] = field(default_factory=dict)
    head: str = ""
    generation: int = 0


class TinyStorage(CheckpointStorage):
    """Bytes in a dict; every call yields once, so that others get their turn."""

    capabilities: ClassVar[frozenset[Capability]] = frozenset({"load_head", "prune", "load_parts"})

    def __init__(self, serialization_format: Format = "json", *, lazy: bool = False) -> None:
        self.serialization_format = serialization_format
        self.lazy = lazy
        self.records: dict[str, Record] = {}
        self.calls: list[str] = []
        self.written_again: set[str] = set()

    async def commit_snapshot(
        self,
        checkpoint: Checkpoint,
        snapshot: CheckpointSnapshot,
        *,
        expected_head_snapshot_id: str | None,
    ) -> None:
        self.calls.append("commit")
        await asyncio.sleep(0)
        form, key = self.serialization_format, checkpoint.checkpoint_id
        record = self.records.get(key)
        if record is not None and snapshot.snapshot_id in record.ids:
            return
        refuse_stale(
            key,
            expected_head_snapshot_id=expected_head_snapshot_id,
            generation=checkpoint.generation,
            stored=None if record is None else StoredHead(record.head, record.generation),
        )
        if record is None:
            record = self.records[key] = Record(encode_header(checkpoint.header, format=form))
        self.written_again |= snapshot.new_parts.keys() & record.parts.keys()
        record.parts.update(snapshot.new_parts)
        record.manifests.append(encode_manifest(snapshot.manifest, format=form))
        record.ids.append(snapshot.snapshot_id)
        record.head = snapshot.snapshot_id

    async def load(self, checkpoint_id: str) -> Checkpoint:
        self.calls.append("load")
        await asyncio.sleep(0)
        record, form = self._record(checkpoint_id), self.serialization_format
        manifests = [
            decode_manifest(data, format=form, checkpoint_id=checkpoint_id) for data in record.manifests
        ]
        parts, unloaded, left = record.parts, set[str](), set[str]()
        if self.lazy:
            whole = Checkpoint.restore(
                header=decode_header(record.header, format=form, checkpoint_id=checkpoint_id),
                manifests=manifests,
                head_snapshot_id=record.head,
                parts=parts,
                checkpoint_storage=self,
            )
            unloaded = {found.snapshot_id for found in whole.snapshots} - {record.head}
            parts = whole.get_snapshot(record.head).parts()
            left = whole.parts.keys() - parts.keys()
        return Checkpoint.restore(
            header=decode_header(record.header, format=form, checkpoint_id=checkpoint_id),
            manifests=manifests,
            head_snapshot_id=record.head,
            parts=parts,
            checkpoint_storage=self,
            unloaded=unloaded,
            left=left,
        )

    async def delete(self, checkpoint_id: str) -> None:
        self.calls.append("delete")
        self.records.pop(checkpoint_id, None)

    async def load_head(self, checkpoint_id: str) -> StoredHead:
        self.calls.append("load_head")
        record = self._record(checkpoint_id)
        return StoredHead(record.head, record.generation)

    async def prune(
        self,
        checkpoint: Checkpoint,
        *,
        header: Header,
        keep: Sequence[str],
        parts: frozenset[str],
        expected_head_snapshot_id: str,
    ) -> None:
        self.calls.append("prune")
        await asyncio.sleep(0)
        form, record = self.serialization_format, self.records.get(checkpoint.checkpoint_id)
        refuse_stale(
            checkpoint.checkpoint_id,
            expected_head_snapshot_id=expected_head_snapshot_id,
            generation=header.generation - 1,
            stored=None if record is None else StoredHead(record.head, record.generation),
        )
        assert record is not None
        kept = [(name, data) for name, data in zip(record.ids, record.manifests, strict=True) if name in keep]
        record.header, record.generation = encode_header(header, format=form), header.generation
        record.ids, record.manifests = [name for name, _ in kept], [data for _, data in kept]
        record.parts = {digest: data for digest, data in record.parts.items() if digest in parts}

    async def load_parts(self, checkpoint_id: str, digests: Collection[str]) -> dict[str, bytes]:
        self.calls.append("load_parts")
        parts = self._record(checkpoint_id).parts
        return {digest: parts[digest] for digest in digests if digest in parts}

    def _record(self, checkpoint_id: str) -> Record:
        if checkpoint_id not in self.records:
            raise CheckpointNotFoundError(f"no checkpoint {checkpoint_id!r}")
        return self.records[checkpoint_id]


class Faults(CheckpointStorage):
    """A storage in front of another that fails or waits where a test says so.

    Attributes:
        before: Raised by the next commit or prune, in place of doing it.
        after: Raised by the next commit or prune when it is done: a lost reply.
        gate: When set, a commit or prune announces itself in `entered` and waits for it.
    """

    def __init__(self, inner: TinyStorage) -> None:
        self.inner = inner
        self.serialization_format = inner.serialization_format
        self.before: BaseException | None = None
        self.after: BaseException | None = None
        self.gate: asyncio.Event | None = None
        self.entered = asyncio.Event()

    async def _around(self, call: Any) -> None:
        try:
            self.entered.set()
            if self.gate is not None:
                await self.gate.wait()
            before, self.before = self.before, None
            if before is not None:
                raise before
            await call
        finally:
            call.close()
        after, self.after = self.after, None
        if after is not None:
            raise after

    async def commit_snapshot(
        self,
        checkpoint: Checkpoint,
        snapshot: CheckpointSnapshot,
        *,
        expected_head_snapshot_id: str | None,
    ) -> None:
        await self._around(
            self.inner.commit_snapshot(
                checkpoint, snapshot, expected_head_snapshot_id=expected_head_snapshot_id
            )
        )

    async def prune(self, checkpoint: Checkpoint, **more: Any) -> None:
        await self._around(self.inner.prune(checkpoint, **more))

    async def load(self, checkpoint_id: str) -> Checkpoint:
        return await self.inner.load(checkpoint_id)

    async def delete(self, checkpoint_id: str) -> None:
        await self.inner.delete(checkpoint_id)

    async def load_head(self, checkpoint_id: str) -> StoredHead:
        return await self.inner.load_head(checkpoint_id)

    async def load_parts(self, checkpoint_id: str, digests: Collection[str]) -> dict[str, bytes]:
        return await self.inner.load_parts(checkpoint_id, digests)
