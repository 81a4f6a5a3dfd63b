"""One container of Cosmos DB: its items, read and written, with every error told as ours."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from branchpoint.errors import BranchpointError, InvalidCallError, StorageError, quotable
from branchpoint.storage.cosmos._clients import Client, Clients, GivenClient
from branchpoint.storage.cosmos._troubles import (
    Unmet,
    driver,
    is_condition,
    is_container_missing,
    is_lost,
    is_worth_waiting,
    moment_in,
    moment_of,
    seconds_to_wait,
    status_of,
    told,
)

__all__ = ["Container", "Operation", "Read"]

Operation = tuple[str, tuple[Any, ...]] | tuple[str, tuple[Any, ...], dict[str, Any]]
"""Of a batch, as the SDK takes it."""

_PARTITION = "/partition"
_INDEXED = ("kind", "life", "n", "sort", "status", "labels/[]", "names/[]", "attempt")
"""What queries ask for. Everything else is left out of the index, and costs less to write for it."""

_MOST_IN_A_BATCH = 100
_PATIENCE = 9
_LONGEST_WAIT = 30.0
"""As the SDK has it; who is to wait for longer is told instead."""

T = TypeVar("T")


class Read(NamedTuple):
    """An item as it was read.

    Attributes:
        document: None where there is none.
        moment: When, in seconds since 1970 by the clock of the service.
    """

    document: dict[str, Any] | None
    moment: float | None


class Container:
    """One container in one database of an account.

    Args:
        source: The endpoint of the account, or a client of the SDK.
        credential: A key, an async credential, or a function that makes one for each event loop.
        options: Given to the SDK's client.

    Raises:
        ImportError: The SDK is not installed.
        InvalidCallError: An argument is of the wrong form.
    """

    def __init__(
        self, source: Any, credential: Any, *, database: str, container: str, options: Mapping[str, Any]
    ) -> None:
        self._sdk = driver()
        for name, value in (("database", database), ("container", container)):
            if type(value) is not str or not value:
                raise InvalidCallError(f"{name} is the name of one, not {ascii(value)[:80]}")
        self._database, self._container = database, container
        self._clients: Clients | None = None
        self._given: GivenClient | None = None
        names = f"{database}/{container}"
        if isinstance(source, self._sdk.Client):
            if credential is not None or options:
                raise InvalidCallError(
                    "a given CosmosClient has its own credential and options: give none here"
                )
            self._given, self.where = GivenClient(source), quotable(f"{names} of a given client", 200)
            return
        _check_access(source, credential, options)

        def make() -> tuple[Any, Any]:
            own = credential() if callable(credential) else None
            return self._sdk.Client(source, credential if own is None else own, **options), own

        self._clients = Clients(make)
        self.where = quotable(f"{names} at {urlsplit(source).netloc.rpartition('@')[2]}", 200)

    async def aclose(self) -> None:
        """Close what was opened here; a client that was given stays open."""
        if self._clients is not None:
            await self._clients.aclose()

    # Items.

    async def read(self, doing: str, partition: str, id: str) -> Read:
        """Read one item.

        Raises:
            StorageError: It could not be done.
        """

        async def work(container: Any) -> Read:
            try:
                found = await container.read_item(id, partition)
            except self._sdk.HttpError as error:
                if status_of(error) != 404 or is_container_missing(error):
                    raise
                return Read(None, moment_in(error))
            return Read(dict(found), moment_of(found.get_response_headers()))

        return await self._run(doing, work)

    async def query(
        self,
        doing: str,
        text: str,
        *,
        partition: str | None,
        parameters: Mapping[str, Any] = MappingProxyType({}),
        until: Callable[[dict[str, Any]], bool] = lambda _: False,
        begin: Callable[[], None] = lambda: None,
        page: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return the items that a query finds, in one partition or in all, page by page to the end.

        Args:
            until: Says of an item whether it is the last one that is wanted.
            begin: Called before the first item, also where it is all done again.
            page: How many items are asked for at a time; the service decides otherwise.

        Raises:
            StorageError: It could not be done.
        """
        options: dict[str, Any] = {} if partition is None else {"partition_key": partition}
        if page is not None:
            options["max_item_count"] = page
        named = [{"name": f"@{name}", "value": value} for name, value in parameters.items()]

        async def work(container: Any) -> list[dict[str, Any]]:
            begin()
            found: list[dict[str, Any]] = []
            async for item in container.query_items(text, parameters=named, **options):
                found.append(item)
                if until(item):
                    break
            return found

        return await self._run(doing, work)

    async def batch(
        self, doing: str, partition: str, operations: Sequence[Operation]
    ) -> list[dict[str, Any]]:
        """Do several writes, all or none of them, and return what became of each.

        Raises:
            Unmet: One of them found something else than it expected; nothing was done. It may have been done
                before, by the same request whose reply was lost.
            StorageError: It could not be done; or its reply was lost, several times.
        """

        async def work(container: Any) -> list[dict[str, Any]]:
            # The SDK takes things out of what it is given.
            given = [(one[0], one[1], *(dict(options) for options in one[2:])) for one in operations]
            return list(await container.execute_item_batch(given, partition))

        return await self._run(doing, work)

    async def create(self, doing: str, item: Mapping[str, Any]) -> str:
        """Write an item that is not there yet, and return its etag.

        Raises:
            Unmet: It is there.
            StorageError: It could not be done, or its reply was lost.
        """
        return await self._run(doing, lambda container: _etag(container.create_item(dict(item))))

    async def upsert(self, doing: str, item: Mapping[str, Any]) -> None:
        """Write an item, in the place of what is there.

        Raises:
            StorageError: It could not be done, or its reply was lost.
        """
        await self._run(doing, lambda container: _etag(container.upsert_item(dict(item))))

    async def replace(self, doing: str, item: Mapping[str, Any], etag: str) -> str:
        """Write an item in the place of the one that has this etag, and return its new one.

        Raises:
            Unmet: It is gone, or has another etag.
            StorageError: It could not be done, or its reply was lost.
        """
        return await self._run(
            doing,
            lambda container: _etag(
                container.replace_item(
                    item["id"], dict(item), etag=etag, match_condition=self._sdk.NotModified
                )
            ),
        )

    async def delete(self, doing: str, partition: str, id: str, etag: str | None = None) -> None:
        """Remove an item.

        Raises:
            Unmet: It is gone, or has another etag.
            StorageError: It could not be done, or its reply was lost.
        """
        options = {} if etag is None else {"etag": etag, "match_condition": self._sdk.NotModified}
        await self._run(doing, lambda container: container.delete_item(id, partition, **options))

    async def remove(self, doing: str, partition: str, items: Iterable[tuple[str, str | None]]) -> None:
        """Remove items with these ids and etags; what is gone, or was changed, is left as it is.

        Raises:
            StorageError: It could not be done; some of it may have been.
        """
        waiting = list(items)
        while waiting:
            several, waiting = waiting[:_MOST_IN_A_BATCH], waiting[_MOST_IN_A_BATCH:]
            try:
                await self.batch(
                    doing,
                    partition,
                    [
                        ("delete", (name,), {} if etag is None else {"if_match_etag": etag})
                        for name, etag in several
                    ],
                )
            except Unmet:
                for name, etag in several:
                    try:
                        await self.delete(doing, partition, name, etag)
                    except Unmet:
                        pass  # somebody else has removed or changed it

    # The container itself.

    async def setup(self, throughput: int | None) -> None:
        """Make database and container where they are not there.

        Raises:
            StorageError: It could not be done, or there is a container that this storage cannot use.
        """

        async def work(client: Any) -> None:
            database = await client.create_database_if_not_exists(self._database)
            await database.create_container_if_not_exists(
                self._container,
                self._sdk.PartitionKey(_PARTITION),
                indexing_policy={
                    "indexingMode": "consistent",
                    "automatic": True,
                    "includedPaths": [{"path": f"/{path}/?"} for path in _INDEXED],
                    "excludedPaths": [{"path": "/*"}],
                },
                **({} if throughput is None else {"offer_throughput": throughput}),
            )
            await self._check(self._in(client))

        await self._run("setting up", work, checked=False)

    async def _check(self, container: Any) -> None:
        """See that the container is there and can be used.

        Raises:
            StorageError: It is not, or can not.
        """
        try:
            found = await container.read()
        except self._sdk.HttpError as error:
            if status_of(error) != 404:
                raise
            raise self._missing() from error
        paths = found.get("partitionKey", {}).get("paths")
        if paths != [_PARTITION]:
            raise StorageError(
                f"container {self.where} has the partition key {paths} and this storage needs {_PARTITION}: name "
                "another container, and let `await storage.setup()` make it"
            )
        if found.get("defaultTtl") not in (None, -1):
            raise StorageError(
                f"container {self.where} forgets items after {found['defaultTtl']} seconds (its time to live): "
                "switch that off, or name another container"
            )

    def _missing(self) -> StorageError:
        return StorageError(
            f"there is no container {self.where}: make database and container with `await storage.setup()`, or "
            "correct their names"
        )

    def _in(self, client: Any) -> Any:
        return client.get_database_client(self._database).get_container_client(self._container)

    async def _run(self, doing: str, work: Callable[[Any], Awaitable[T]], *, checked: bool = True) -> T:
        """Do some work with the SDK, and again where that settles what happened.

        Whatever is done here may be done twice: every write says what it expects to find, or writes the same
        again. So after a lost reply it is done again, which either does it or finds something else than it
        expected; then the caller looks whether that is its own doing.
        """
        lost = False
        waited = 0
        while True:
            client: Client | GivenClient = self._given or await self._here()
            try:
                async with client.lend() as sdk:
                    if not checked:
                        return await work(sdk)
                    container = self._in(sdk)
                    if not client.checked:
                        async with client.checking:
                            if not client.checked:
                                await self._check(container)
                                client.checked = True
                    return await work(container)
            except BranchpointError:
                raise  # some of them are a ValueError as well
            except (self._sdk.AzureError, self._sdk.ClientError, OSError, ValueError, TypeError) as error:
                trouble: Exception = error
            if is_container_missing(trouble):
                client.checked = False
                raise self._missing() from trouble
            if is_condition(trouble):
                raise Unmet(status_of(trouble) or 0) from trouble
            failure = told(trouble, doing, where=self.where)
            inside = is_worth_waiting(trouble) and getattr(trouble, "operation_responses", None)
            seconds = seconds_to_wait(trouble, waited)
            if inside and waited < _PATIENCE and seconds <= _LONGEST_WAIT:
                try:
                    await asyncio.wait_for(client.closing.wait(), seconds)
                except TimeoutError:
                    waited += 1
                else:
                    raise failure from trouble  # who closes the storage waits no longer
            elif is_lost(trouble) and not lost and not isinstance(failure, InvalidCallError):
                lost = True
            else:
                raise failure from trouble

    async def _here(self) -> Client:
        assert self._clients is not None
        return await self._clients.here()


async def _etag(writing: Awaitable[Any]) -> str:
    """Return the etag of what was written."""
    written = await writing
    etag: str = written.get("_etag") or written.get_response_headers()["etag"]
    return etag


def _check_access(source: Any, credential: Any, options: Mapping[str, Any]) -> None:
    if type(source) is not str or urlsplit(source).scheme not in ("https", "http"):
        raise InvalidCallError(
            "CosmosCheckpointStorage takes an endpoint, https://account.documents.azure.com:443/, or an "
            f"azure.cosmos.aio.CosmosClient, not {'another text' if isinstance(source, str) else type(source).__name__}"
        )
    get_token = getattr(credential, "get_token", None)
    if get_token is not None and not asyncio.iscoroutinefunction(get_token):
        raise InvalidCallError(
            f"{type(credential).__name__} is a credential of the blocking SDK: take the one of the same name from "
            "azure.identity.aio"
        )
    if get_token is None and not callable(credential) and (type(credential) is not str or not credential):
        raise InvalidCallError(
            "credential is the account's key, an async credential of azure.identity.aio, or a function that makes "
            f"one, not {type(credential).__name__}"
        )
    if isinstance(credential, str):
        try:
            base64.b64decode(credential, validate=True)
        except ValueError:
            raise InvalidCallError(
                "credential is the account's key, and that is base64; this text is not"
            ) from None
    if not isinstance(options, Mapping):
        raise InvalidCallError(f"client_options are a mapping, not {type(options).__name__}")
    for name in ("multiple_write_locations", "no_response_on_write"):
        if options.get(name):
            raise InvalidCallError(
                f"{name} cannot be among client_options: commits are compared with each other in one write region, "
                "and etags come with the replies"
            )
