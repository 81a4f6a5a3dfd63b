"""Checkpoints in Redis, as an example of a storage of your own: complete, and it passes the whole contract.

Redis must write before it answers (`appendonly yes`, `appendfsync always`), or a commit that returned may be lost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from redis.asyncio import Redis
from redis.exceptions import RedisError

from branchpoint import Checkpoint, CheckpointSnapshot, CheckpointStorage, errors
from branchpoint import checkpoint as bp

# A script runs alone, so what it compares is still so when it writes; it returns what it found instead.
# Keys: about, lineage, manifests, parts. Arguments: the head and the generation that the writer expects, and more.
COMMIT = """
if redis.call('HEXISTS', KEYS[3], ARGV[3]) == 1 then return {} end -- an earlier reply was lost
local found = {redis.call('HGET', KEYS[1], 'head') or '', redis.call('HGET', KEYS[1], 'generation') or ARGV[2]}
if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] then return found end
if ARGV[1] == '' then redis.call('HSET', KEYS[1], 'header', ARGV[4], 'generation', ARGV[2]) end
for n = 6, #ARGV, 2 do redis.call('HSET', KEYS[4], ARGV[n], ARGV[n + 1]) end
redis.call('HSET', KEYS[3], ARGV[3], ARGV[5])
redis.call('RPUSH', KEYS[2], ARGV[3])
redis.call('HSET', KEYS[1], 'head', ARGV[3])
return {}
"""
PRUNE = """
local lineage, header = redis.call('LRANGE', KEYS[2], 0, -1), redis.call('HGET', KEYS[1], 'header')
if header == ARGV[4] and table.concat(lineage) == ARGV[5] then return {} end -- an earlier reply was lost
local found = {redis.call('HGET', KEYS[1], 'head') or '', redis.call('HGET', KEYS[1], 'generation') or ARGV[2]}
if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] then return found end
local staying = {}
for n = 6, #ARGV do staying[ARGV[n]] = true end
for k = 3, 4 do for _, name in ipairs(redis.call('HKEYS', KEYS[k])) do
  if not staying[name] then redis.call('HDEL', KEYS[k], name) end
end end
for _, id in ipairs(lineage) do if not staying[id] then redis.call('LREM', KEYS[2], 0, id) end end
redis.call('HSET', KEYS[1], 'header', ARGV[4], 'generation', ARGV[3])
return {}
"""


class RedisCheckpointStorage(CheckpointStorage):
    """Keeps each checkpoint under four keys; a connection for each call, so any number of event loops may use it."""

    capabilities: ClassVar[frozenset[bp.Capability]] = frozenset({"load_head", "prune"})

    def __init__(self, url: str, prefix: str = "branchpoint") -> None:
        self.url, self.prefix = url, prefix

    def keys(self, checkpoint_id: str) -> list[str]:
        """No two ids meet, and the braces put all keys of one onto one node of a cluster."""
        name = f"{self.prefix}:{{{bp.check_id(checkpoint_id).encode().hex()}}}"
        return [f"{name}:about", f"{name}:lineage", f"{name}:manifests", f"{name}:parts"]

    async def commit_snapshot(
        self, checkpoint: Checkpoint, snapshot: CheckpointSnapshot, *, expected_head_snapshot_id: str | None
    ) -> None:
        new = [part for named in snapshot.new_parts.items() for part in named]
        header = bp.encode_header(checkpoint.header, format=self.serialization_format)
        new = [header, bp.encode_manifest(snapshot.manifest, format=self.serialization_format), *new]
        writer = (checkpoint.checkpoint_id, expected_head_snapshot_id, checkpoint.generation)
        await self._write(COMMIT, *writer, snapshot.snapshot_id, *new)

    async def prune(
        self, checkpoint: Checkpoint, *, header: bp.Header, keep: Sequence[str], parts: frozenset[str],
        expected_head_snapshot_id: str,
    ) -> None:  # fmt: skip
        new = [header.generation, bp.encode_header(header, format=self.serialization_format), "".join(keep)]
        writer = (header.checkpoint_id, expected_head_snapshot_id, header.generation - 1)
        await self._write(PRUNE, *writer, *new, *keep, *parts)

    async def _write(self, script: str, name: str, head: str | None, generation: int, *more: Any) -> None:
        async with self._redis(name) as redis:
            found = await redis.eval(script, 4, *self.keys(name), head or "", generation, *more)
        if found:
            stored = bp.StoredHead(found[0].decode(), int(found[1])) if found[0] else None
            bp.refuse_stale(name, expected_head_snapshot_id=head, generation=generation, stored=stored)

    async def load_records(self, checkpoint_id: str) -> bp.StoredRecords:
        about, lineage, manifests, parts = self.keys(checkpoint_id)
        async with self._redis(checkpoint_id) as redis, redis.pipeline(transaction=True) as asked:
            asked.hgetall(about).lrange(lineage, 0, -1).hgetall(manifests).hgetall(parts)
            told, ids, rows, data = await asked.execute()
        if not (told or ids or rows or data):
            raise errors.CheckpointNotFoundError(f"no checkpoint {checkpoint_id!r} in this Redis")
        if b"header" not in told or told.get(b"head") != (ids or [None])[-1] or not rows.keys() >= set(ids):
            raise errors.CorruptCheckpointError(f"{checkpoint_id!r} is damaged: restore it from a backup")
        how: Any = {"format": self.serialization_format, "checkpoint_id": checkpoint_id}
        return bp.StoredRecords(
            header=bp.decode_header(told[b"header"], **how),
            manifests=[bp.decode_manifest(rows[one], **how) for one in ids],
            parts={name.decode(): part for name, part in data.items()},
        )

    async def load_head(self, checkpoint_id: str) -> bp.StoredHead:
        async with self._redis(checkpoint_id) as redis:
            head, generation = await redis.hmget(self.keys(checkpoint_id)[0], ["head", "generation"])
        if head is None:
            raise errors.CheckpointNotFoundError(f"no checkpoint {checkpoint_id!r} in this Redis")
        return bp.StoredHead(head.decode(), int(generation))

    async def delete(self, checkpoint_id: str) -> None:
        async with self._redis(checkpoint_id) as redis:
            await redis.delete(*self.keys(checkpoint_id))

    @asynccontextmanager
    async def _redis(self, name: str) -> AsyncIterator[Any]:
        try:
            async with Redis.from_url(self.url) as redis:
                yield redis
        except (RedisError, OSError) as error:
            raise errors.StorageError(f"Redis failed for {name!r}: {error}; try again") from error
