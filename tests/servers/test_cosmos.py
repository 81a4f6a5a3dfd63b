"""The stand-in for Cosmos DB does to the real SDK what the documentation of the service describes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import AzureError
from azure.cosmos import PartitionKey, exceptions
from azure.cosmos.aio import ContainerProxy, CosmosClient

from tests.servers.cosmos import CosmosServer, cosmos_missing
from tests.servers.fixtures import need
from tests.servers.test_servers import alive


@pytest.fixture
async def container(cosmos_server: CosmosServer, cosmos_database: str) -> AsyncIterator[ContainerProxy]:
    async with CosmosClient(cosmos_server.endpoint, cosmos_server.key, retry_connect=0) as client:
        database = client.get_database_client(cosmos_database)
        yield await database.create_container("items", PartitionKey("/checkpoint"))


def item(id: str, n: int = 0, checkpoint: str = "p") -> dict[str, Any]:
    return {"id": id, "checkpoint": checkpoint, "n": n}


def create(id: str) -> tuple[str, tuple[Any, ...]]:
    return ("create", (item(id),))


def replace(id: str, n: int, etag: str) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    return ("replace", (id, item(id, n)), {"if_match_etag": etag})


async def ids(container: ContainerProxy, key: str = "p") -> list[str]:
    return [
        found["id"]
        async for found in container.query_items("SELECT c.id FROM c ORDER BY c.id", partition_key=key)
    ]


async def test_single_items_keep_their_etags(container: ContainerProxy) -> None:
    first = await container.create_item(item("m", 1))
    with pytest.raises(exceptions.CosmosResourceExistsError):
        await container.create_item(item("m", 1))
    second = await container.replace_item(
        "m", item("m", 2), etag=first["_etag"], match_condition=MatchConditions.IfNotModified
    )
    with pytest.raises(exceptions.CosmosAccessConditionFailedError):
        await container.replace_item(
            "m", item("m", 3), etag=first["_etag"], match_condition=MatchConditions.IfNotModified
        )
    assert (await container.read_item("m", "p"))["_etag"] == second["_etag"]
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        await container.read_item("m", "other")


async def test_a_batch_is_done_whole_or_not_at_all(container: ContainerProxy) -> None:
    first = await container.create_item(item("m"))
    done = await container.execute_item_batch([create("a"), replace("m", 1, first["_etag"])], "p")
    assert [one["statusCode"] for one in done] == [201, 200]
    assert done[1]["eTag"] == (await container.read_item("m", "p"))["_etag"]
    with pytest.raises(exceptions.CosmosBatchOperationError) as refused:
        await container.execute_item_batch([create("b"), replace("m", 2, first["_etag"]), create("c")], "p")
    assert (refused.value.status_code, refused.value.error_index) == (412, 1)
    assert [one["statusCode"] for one in refused.value.operation_responses] == [424, 412, 424]
    with pytest.raises(exceptions.CosmosBatchOperationError) as refused:
        await container.execute_item_batch([create("b"), ("delete", ("nobody",))], "p")
    assert refused.value.status_code == 404
    with pytest.raises(exceptions.CosmosBatchOperationError) as refused:
        await container.execute_item_batch([create("b"), create("b")], "p")
    assert refused.value.status_code == 409
    assert await ids(container) == ["a", "m"]


async def test_one_of_many_batches_wins(container: ContainerProxy) -> None:
    async def race(writer: str, etag: str) -> bool:
        try:
            await container.execute_item_batch([create(writer), replace("m", 1, etag)], "p")
        except exceptions.CosmosBatchOperationError as lost:
            assert lost.status_code == 412
            return False
        return True

    await container.create_item(item("m"))
    for turn in range(5):
        etag = (await container.read_item("m", "p"))["_etag"]
        won = await asyncio.gather(*(race(f"{turn}-{writer}", etag) for writer in range(8)))
        assert won.count(True) == 1
    assert len(await ids(container)) == 6


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # the SDK gives aiohttp one text
async def test_limits_are_kept(container: ContainerProxy) -> None:
    await container.execute_item_batch([create(str(n)) for n in range(100)], "p")
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        await container.execute_item_batch([create(f"b{n}") for n in range(101)], "p")
    assert refused.value.status_code == 400
    large = {**item("large"), "text": "x" * 2_097_152}
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        await container.create_item(large)
    assert refused.value.status_code == 413
    halves = [("create", ({**item(f"half{n}"), "text": "x" * 1_100_000},)) for n in range(2)]
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        await container.execute_item_batch(halves, "p")
    assert refused.value.status_code == 413
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        await container.execute_item_batch([("create", (item("a", checkpoint="q"),))], "p")
    assert refused.value.status_code == 400
    assert len(await ids(container)) == 100


async def test_a_query_sees_its_partition_page_by_page(
    container: ContainerProxy, cosmos_server: CosmosServer
) -> None:
    for n in range(6):
        await container.create_item({**item(f"{n}", n), "text": "x" * 1_000_000})
        await container.create_item(item(f"{n}", n, checkpoint="q"))
    cosmos_server.reset()
    text = "SELECT * FROM c WHERE c.n = @n OR c.n > 1 ORDER BY c.id DESC"
    found = container.query_items(text, parameters=[{"name": "@n", "value": 0}], partition_key="p")
    assert [(one["id"], one["checkpoint"]) async for one in found] == [
        (n, "p") for n in ("5", "4", "3", "2", "0")
    ]
    assert len(cosmos_server.seen("query")) > 1, "a page is 4 MB at most"
    everywhere = container.query_items("SELECT c.id FROM c WHERE c.n = 3")
    assert [one["id"] async for one in everywhere] == ["3", "3"]
    assert [
        one async for one in container.query_items("SELECT VALUE COUNT(1) FROM c", partition_key="q")
    ] == [6]


async def test_throttling_is_told_and_waited_for(
    container: ContainerProxy, cosmos_server: CosmosServer
) -> None:
    cosmos_server.reset()
    cosmos_server.throttle(2, "batch", retry_after_ms=1)
    await container.execute_item_batch([create("a")], "p")
    assert cosmos_server.seen("batch") == [("batch", 429), ("batch", 429), ("batch", 200)]


async def test_a_cut_before_does_nothing_and_a_cut_after_does_all(
    container: ContainerProxy, cosmos_server: CosmosServer
) -> None:
    cosmos_server.cut_before("create")
    with pytest.raises(AzureError):
        await container.create_item(item("before"))
    cosmos_server.reset()
    assert await ids(container) == []
    cosmos_server.cut_after("create")
    with pytest.raises(AzureError):
        await container.create_item(item("after"))
    cosmos_server.reset()
    assert await ids(container) == ["after"]


def test_stopped_it_leaves_nothing() -> None:
    need(cosmos_missing())
    server = CosmosServer()
    try:
        server.start()
        everyone = [server.inner.pid, server.proxy.pid]
        assert alive(everyone) == everyone
    finally:
        server.remove()
    assert not alive(everyone)
    assert not server.folder.exists()
