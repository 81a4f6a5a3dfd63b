"""The storage in Cosmos DB: how it is opened, what it says when it cannot, and what it does with damage."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from branchpoint.errors import (
    CheckpointNotFoundError,
    CorruptCheckpointError,
    InvalidCallError,
    StorageError,
    UnknownVersionError,
    UnsupportedValueError,
)
from branchpoint.testing.samples import create, grown, lineage, small_state

pytest.importorskip("azure.cosmos")

from branchpoint.storage.cosmos import CosmosCheckpointStorage
from tests.servers.cosmos import KEY, CosmosServer
from tests.servers.process import free_port
from tests.unit.storage.cosmos_places import Here

_WHERE = {"database": "d", "container": "c"}
_QUICK = {"client_options": {"retry_total": 1, "retry_backoff_factor": 0.01}}


def test_wrong_arguments_are_refused_when_it_is_made() -> None:
    class Blocking:
        def get_token(self) -> None: ...

    good = "https://account.documents.azure.com:443/"
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        (("account",), {}), ((5, KEY), {}), ((good,), {}), ((good, ""), {}), ((good, 5), {}), ((good, Blocking()), {}),
        ((good, "no base64"), {}),
        ((good, KEY), {"database": ""}), ((good, KEY), {"container": 5}), ((good, KEY), {"lazy_over": -1}),
        ((good, KEY), {"serialization_format": "xml"}), ((good, KEY), {"lease_seconds": 0}),
        ((good, KEY), {"client_options": {"multiple_write_locations": True}}), ((good, KEY), {"client_options": [1]}),
    ]  # fmt: skip
    for arguments, options in wrong:
        with pytest.raises(InvalidCallError) as refused:
            CosmosCheckpointStorage(*arguments, **{**_WHERE, **options})
        assert KEY not in str(refused.value)
    storage = CosmosCheckpointStorage(good, KEY, **_WHERE)
    assert repr(storage) == "<CosmosCheckpointStorage in d/c at account.documents.azure.com:443, json>"


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "azure.cosmos", None)
    with pytest.raises(ImportError, match=r"pip install 'branchpoint\[cosmos\]'"):
        CosmosCheckpointStorage("https://account.documents.azure.com:443/", KEY, **_WHERE)


async def test_setup_makes_what_is_missing_and_the_first_use_says_so(cosmos_server: CosmosServer) -> None:
    database = "made-by-setup"
    async with CosmosCheckpointStorage(
        cosmos_server.endpoint, KEY, database=database, container="x"
    ) as storage:
        for call in (storage.list_checkpoints, lambda: storage.load("a"), lambda: storage.delete("a")):
            with pytest.raises(StorageError, match=r"no container made-by-setup/x.*setup\(\)"):
                await call()
        with pytest.raises(StorageError, match=r"setup\(\)"):
            await create(storage).commit_snapshot(small_state(0))
        await storage.setup(throughput=400)
        await storage.setup()
        await create(storage).commit_snapshot(small_state(0))
        assert len((await storage.load("order-17")).snapshots) == 1


async def test_a_container_that_cannot_be_used_is_refused(
    cosmos_server: CosmosServer, cosmos_database: str
) -> None:
    for name, paths, more in (("other", ["/id"], {}), ("forgets", ["/partition"], {"defaultTtl": 60})):
        body = {"id": name, "partitionKey": {"paths": paths, "kind": "Hash", "version": 2}, **more}
        cosmos_server._post(f"dbs/{cosmos_database}/colls", body)
        async with CosmosCheckpointStorage(
            cosmos_server.endpoint, KEY, database=cosmos_database, container=name
        ) as storage:
            for call in (storage.list_checkpoints, storage.setup):
                with pytest.raises(StorageError, match=r"partition key|time to live"):
                    await call()


async def test_a_wrong_key_and_missing_rights_are_told(
    cosmos_server: CosmosServer, cosmos_place: str
) -> None:
    here = Here(cosmos_place)
    async with here.storage() as storage:
        cosmos_server.refuse(401, 99, "other", skip=1)
        with pytest.raises(StorageError, match=r"status 401.*Correct the key"):
            await storage.load("a")
        cosmos_server.reset()
        with pytest.raises(CheckpointNotFoundError):
            await storage.load("a")
        cosmos_server.refuse(403, 9, "batch")
        with pytest.raises(StorageError, match=r"status 403.*Data Contributor") as refused:
            await create(storage).commit_snapshot(small_state(0))
        assert "order-17" in str(refused.value) and refused.value.__cause__ is not None
        cosmos_server.reset()
        cosmos_server.refuse(403, 9, "other")
        with pytest.raises(StorageError, match="an administrator"):
            await storage.setup()


async def test_a_service_that_is_not_there_is_told(cosmos_place: str) -> None:
    here = Here(cosmos_place)
    async with CosmosCheckpointStorage(
        f"http://127.0.0.1:{free_port()}/", KEY, database="d", container="c", **_QUICK
    ) as storage:
        with pytest.raises(StorageError, match="Check the service") as refused:
            await storage.load("a")
        assert refused.value.retryable
    assert here.kinds() == {}


async def test_a_given_client_is_used_and_stays_open(cosmos_place: str) -> None:
    from azure.cosmos.aio import CosmosClient

    here = Here(cosmos_place)
    async with CosmosClient(here.endpoint, KEY) as client:
        with pytest.raises(InvalidCallError):
            CosmosCheckpointStorage(client, KEY, **_WHERE)
        storage = CosmosCheckpointStorage(client, database=here.database, container=here.container)
        checkpoint = await grown(storage, commits=2)
        await storage.aclose()
        assert lineage(await storage.load("order-17")) == lineage(checkpoint)

        def elsewhere() -> None:
            with pytest.raises(InvalidCallError, match="one event loop"):
                asyncio.run(storage.load_head("order-17"))

        await asyncio.to_thread(elsewhere)


async def test_a_credential_is_asked_for_tokens_and_made_for_each_loop(cosmos_place: str) -> None:
    class Credential:
        """As those of azure.identity.aio are."""

        closed = asked = 0

        async def get_token(self, *scopes: str, **_: Any) -> Any:
            type(self).asked += 1
            raise OSError("nobody here gives tokens")

        async def close(self) -> None:
            type(self).closed += 1

    here = Here(cosmos_place)
    for given, closed in ((Credential(), 0), (Credential, 1)):
        storage = CosmosCheckpointStorage(here.endpoint, given, database="d", container="c", **_QUICK)
        with pytest.raises(StorageError):
            await storage.load("a")
        await storage.aclose()
        assert bool(Credential.closed) == bool(closed)


def test_it_works_in_one_loop_after_the_other_and_after_it_was_closed(cosmos_place: str) -> None:
    storage = Here(cosmos_place).storage()
    for n in range(3):
        asyncio.run(grown(storage, f"c{n}", commits=2))  # each loop closes its client itself
    asyncio.run(storage.aclose())
    asyncio.run(storage.aclose())
    assert len(asyncio.run(storage.list_checkpoints())) == 3


async def test_what_is_larger_than_an_item_beside_the_state_is_refused(cosmos_place: str) -> None:
    here = Here(cosmos_place)
    async with here.storage() as storage:
        checkpoint = create(storage, metadata={"note": "n" * 1_200_000})
        with pytest.raises(UnsupportedValueError, match=r"'order-17'.*metadata"):
            await checkpoint.commit_snapshot(small_state(0))
        assert here.kinds() == {} and checkpoint.head_snapshot_id is None
        await create(storage, metadata={"note": "n" * 400_000}).commit_snapshot(small_state(0))
        assert len((await storage.load("order-17")).metadata["note"]) == 400_000
        assert [len(line.metadata["note"]) for line in await storage.list_checkpoints()] == [400_000]


async def test_r33_another_format_is_listed_and_refused(cosmos_place: str) -> None:
    here = Here(cosmos_place)
    async with here.storage() as json, here.storage(serialization_format="msgpack") as msgpack:
        checkpoint = await grown(json, commits=2)
        for call in (msgpack.load, msgpack.load_lineage, lambda name: msgpack.load_parts(name, ["x"])):
            with pytest.raises(InvalidCallError, match="serialization_format='json'"):
                await call("order-17")
        assert [line.checkpoint_id for line in await msgpack.list_checkpoints()] == ["order-17"]
        forked = await checkpoint.fork(checkpoint_id="forked", checkpoint_storage=msgpack)
        assert forked.snapshots[0].state == checkpoint.snapshots[-1].state
        with pytest.raises(InvalidCallError):
            await json.load("forked")


async def test_c54_damaged_items_are_told_and_left_as_they_are(cosmos_place: str) -> None:
    here = Here(cosmos_place)
    for id, fields in (
        ("head", {"v": 2}), ("head", {"n": "x"}), ("head", {"checkpoint_id": "other"}), ("head", {"kept": 1}),
        ("head", {"header": "{}"}), ("head", {"manifest": "{}"}), ("head", {"generation": 4}), ("head", {"life": "x"}),
        ("head", {"status": "in_progress"}), ("head", {"cut": 2, "runs": [1, 1]}), ("head", {"head": None}),
        ("snapshot", {"n": 7}), ("snapshot", {"manifest": {"base64": "?"}}), ("snapshot", {"names": ["x"]}),
        ("snapshot", {"snapshot_id": "x"}), ("snapshot", {"data": None}),
    ):  # fmt: skip
        async with here.storage() as storage:
            checkpoint = await grown(storage, commits=2)
            here.change(id, **fields)
            before = [item["_etag"] for item in here.items.all()]
            with pytest.raises(
                UnknownVersionError if "v" in fields else CorruptCheckpointError, match="order-17"
            ):
                await storage.load("order-17")
            if id == "head" and "kept" not in fields and "cut" not in fields and "life" not in fields:
                with pytest.warns(RuntimeWarning, match="order-17|other"):
                    assert await storage.list_checkpoints() == []
            assert [item["_etag"] for item in here.items.all()] == before
            assert len(checkpoint.snapshots) == 2
            await storage.delete("order-17")
            assert here.kinds() == {}, fields
