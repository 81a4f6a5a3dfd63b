"""The example of a storage of one's own keeps the whole contract, on a real Redis."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from examples import redis_storage
from examples.redis_storage import RedisCheckpointStorage
from redis.asyncio import Redis

from branchpoint.errors import StorageError
from branchpoint.testing import CheckpointStorageContract, Place, Process
from branchpoint.testing.samples import create, grown, lineage, small_state
from tests.profiles import SOAKING

ROOT = Path(__file__).resolve().parents[2]


class RedisPlace(Place):
    """An empty Redis, and its keys past the storage."""

    rounds = 200 if SOAKING else 10
    writers = 8 if SOAKING else 3

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.process = Process("examples.redis_storage:RedisCheckpointStorage", {"url": url})

    def open(self) -> RedisCheckpointStorage:
        return RedisCheckpointStorage(self.url)

    async def peek(self) -> Mapping[str, bytes]:
        found: dict[str, bytes] = {}
        async with Redis.from_url(self.url) as redis:
            async for key in redis.scan_iter():
                if await redis.type(key) == b"hash":
                    fields = await redis.hgetall(key)
                    found |= {json.dumps([key.decode(), name.decode()]): fields[name] for name in fields}
                else:
                    ids = await redis.lrange(key, 0, -1)
                    found |= {json.dumps([key.decode(), n]): one for n, one in enumerate(ids)}
        return found

    async def poke(self, name: str, data: bytes | None) -> None:
        key, field = json.loads(name)
        async with Redis.from_url(self.url) as redis:
            if isinstance(field, str):
                await (redis.hdel(key, field) if data is None else redis.hset(key, field, data))
            elif data is not None:
                await redis.lset(key, field, data)
            elif field < await redis.llen(key):
                await redis.lset(key, field, b"")
                await redis.lrem(key, 1, b"")


class TestRedis(CheckpointStorageContract):
    @pytest.fixture
    def place(self, redis_url: str) -> RedisPlace:
        return RedisPlace(redis_url)


async def test_prefixes_keep_apart_what_is_stored(redis_url: str) -> None:
    one, other = [RedisCheckpointStorage(redis_url, prefix) for prefix in ("one", "other")]
    checkpoint = await grown(one)
    await create(other).commit_snapshot(small_state(9))
    await other.delete("order-17")
    assert lineage(await one.load("order-17")) == lineage(checkpoint)


async def test_a_redis_that_cannot_be_reached_is_a_storage_error() -> None:
    storage = RedisCheckpointStorage("redis://127.0.0.1:1/0")
    with pytest.raises(StorageError, match=r"order-17.*try again") as caught:
        await storage.load("order-17")
    assert caught.value.__cause__ is not None


def test_the_page_shows_the_file_as_it_is() -> None:
    path = Path(redis_storage.__file__)
    text = path.read_text(encoding="utf-8")
    page = (ROOT / "docs" / "how-to" / "write-a-backend.md").read_text(encoding="utf-8")
    assert f"```python\n{text}```\n" in page
    code = [line for line in text.splitlines() if line.strip()]
    assert len(code) < 150
