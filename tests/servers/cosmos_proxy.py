"""A proxy in front of `@vercel/cosmosdb-server` that adds what Cosmos DB documents and that server lacks.

- A transactional batch is atomic: all preconditions are checked first, under a lock of the partition key;
  a refused batch is answered with 207, the operation's own status, and 424 for all others.
- Limits: 2 MB an item and a request, 100 operations a batch, 4 MB a page of a query, ids without `/ \\ ? #`.
- A query with a partition key sees that partition only, whatever its text says.
- On command it throttles (429), or drops the connection before or after the server has acted.

It is a program of its own: `python -m tests.servers.cosmos_proxy PORT INNER_PORT`. Commands come by HTTP
below `/_proxy`; `cosmos.py` gives them.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import aiohttp
from aiohttp import web

HOST = "127.0.0.1"
MEGABYTE = 1024 * 1024
ITEM_BYTES = 2 * MEGABYTE
REQUEST_BYTES = 2 * MEGABYTE
PAGE_BYTES = 4 * MEGABYTE
BATCH_OPERATIONS = 100
ID_BYTES = 1023
PAGE_ITEMS = 100

_DOCUMENTS = re.compile(r"/+(dbs/[^/]+/colls/[^/]+)/docs(?:/([^/]+))?/?")
_PARTITION = "x-ms-documentdb-partitionkey"
_ACROSS = "x-ms-documentdb-query-enablecrosspartition"
_SELECT = re.compile(
    r"(?P<head>.*?\bFROM\s+(?P<alias>\w+))(?:\s+WHERE\s+(?P<where>.*?))?(?P<tail>\s+(?:ORDER\s+BY|GROUP\s+BY|OFFSET)\b.*)?",
    re.IGNORECASE | re.DOTALL,
)
# Of a connection, not of a message; the rest is passed on.
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "content-encoding", "date", "host"}


class Refused(Exception):
    """A request that the real service would not take."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass
class Answer:
    """What the inner server said, or what is said in its place."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Fault:
    """What is done to coming requests of these kinds (all, if there is none), after some have passed."""

    action: str
    kinds: list[str]
    skip: int = 0
    count: int = 1
    retry_after_ms: int = 0
    status: int = 0

    def meets(self, kind: str) -> bool:
        if self.count == 0 or (self.kinds and kind not in self.kinds):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.count -= 1
        return True


def said(status: int, body: Any, **headers: str) -> Answer:
    own = {"content-type": "application/json", "x-ms-request-charge": "1"}
    return Answer(status, own | headers, json.dumps(body).encode())


def kind_of(request: web.Request) -> str:
    """`batch`, `query`, `upsert`, `create`, `replace`, `delete`, `patch`, `read`, `list`; else `other`."""
    found = _DOCUMENTS.fullmatch(request.raw_path.partition("?")[0])
    if found is None:
        return "other"
    if request.method == "POST":
        if _true(request, "x-ms-documentdb-isquery") or request.content_type == "application/query+json":
            return "query"
        if _true(request, "x-ms-cosmos-is-batch-request"):
            return "batch"
        return "upsert" if _true(request, "x-ms-documentdb-is-upsert") else "create"
    if request.method == "GET":
        return "read" if found[2] else "list"
    return {"PUT": "replace", "DELETE": "delete", "PATCH": "patch"}.get(request.method, "other")


def _true(request: web.Request, header: str) -> bool:
    return request.headers.get(header, "").lower() == "true"


def check_item(item: Any) -> None:
    """What is documented of every item."""
    if not isinstance(item, dict) or not isinstance(item.get("id"), str) or not item["id"]:
        raise Refused(400, "BadRequest", "an item needs an id that is a non-empty text")
    if set("/\\?#") & set(item["id"]) or len(item["id"].encode()) > ID_BYTES:
        raise Refused(400, "BadRequest", "an id has no / \\ ? # and at most 1023 bytes")
    if len(json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode()) > ITEM_BYTES:
        raise Refused(413, "RequestEntityTooLarge", "Request size is too large")


class Proxy:
    """Passes requests on, one after another for each partition key where they write."""

    def __init__(self, port: int, inner: int, session: aiohttp.ClientSession) -> None:
        self.port = port
        self.inner = inner
        self.session = session
        self.faults: list[Fault] = []
        self.seen: list[tuple[str, int]] = []
        self.locks: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self.paths: dict[str, list[str]] = {}

    # Commands.

    async def command(self, request: web.Request) -> web.Response:
        what = request.match_info["what"]
        if what == "fault":
            self.faults.append(Fault(**await request.json()))
        elif what == "reset":
            self.faults.clear()
            self.seen.clear()
        return web.json_response(self.seen)

    # Requests.

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        kind = kind_of(request)
        fault = next((fault for fault in self.faults if fault.meets(kind)), None)
        action = fault.action if fault is not None else ""
        if fault is not None and action == "throttle":
            answer = said(
                429,
                {"code": "TooManyRequests", "message": "Request rate is large"},
                **{"x-ms-retry-after-ms": str(fault.retry_after_ms), "x-ms-substatus": "3200"},
            )
        elif fault is not None and action == "refuse":
            answer = said(fault.status, {"code": "Refused", "message": "as the test wanted it"})
        elif fault is not None and action == "refuse-inside":
            others = [{"statusCode": 424} for _ in json.loads(body)[1:]]
            first = {"statusCode": fault.status, "retryAfterMilliseconds": fault.retry_after_ms}
            answer = said(207, [first, *others])
        elif action == "cut-before":
            answer = said(0, {})
        else:
            try:
                answer = await self.answer(request, kind, body)
            except Refused as refused:
                answer = said(refused.status, {"code": refused.code, "message": refused.message})
        self.seen.append((kind, answer.status))
        if action.startswith("cut"):
            self.seen[-1] = (kind, 0)
            assert request.transport is not None
            request.transport.abort()
            return web.Response(status=500)
        headers = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
        return web.Response(status=answer.status, headers=headers, body=answer.body)

    async def answer(self, request: web.Request, kind: str, body: bytes) -> Answer:
        if len(body) > REQUEST_BYTES:
            raise Refused(413, "RequestEntityTooLarge", "Request size is too large")
        if kind == "other":
            if request.method != "GET":
                self.paths.clear()  # containers come and go
            answer = await self.ask(request, body)
            # The account tells where it is; clients go there.
            here = answer.body.replace(
                f"https://{HOST}:{self.inner}".encode(), f"http://{HOST}:{self.port}".encode()
            )
            return Answer(answer.status, answer.headers, here)
        place = _DOCUMENTS.fullmatch(request.raw_path.partition("?")[0])
        assert place is not None
        container = place[1]
        if kind == "query":
            return await self.query(request, container, json.loads(body))
        if kind == "read":
            return await self.read_one(request, container, unquote(place[2]))
        if kind == "list":
            return await self.ask(request, body)
        async with self.locks[container, request.headers.get(_PARTITION, "")]:
            if kind == "batch":
                return await self.batch(request, container, json.loads(body))
            if kind in ("create", "upsert", "replace"):
                await self.check_write(request, container, json.loads(body))
            return await self.ask(request, body)

    async def ask(
        self, request: web.Request, body: bytes, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Pass a request on to the inner server, with another body or further headers."""
        passed = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        passed |= headers or {}
        url = f"http://{HOST}:{self.inner}{request.raw_path}"
        async with self.session.request(request.method, url, data=body, headers=passed) as response:
            return Answer(response.status, dict(response.headers), await response.read())

    async def read(self, container: str, key: str, ids: list[str]) -> list[dict[str, Any] | None]:
        """The items with these ids, None for each that is not there; all as of one moment."""
        reads = [{"operationType": "Read", "id": each, "partitionKey": key} for each in ids]
        headers = {"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-continue-on-error": "True"}
        url = f"http://{HOST}:{self.inner}/{container}/docs"
        async with self.session.post(url, json=reads, headers=headers) as response:
            if response.status != 200:
                raise Refused(404, "NotFound", "Resource Not Found")
            return [found.get("resourceBody") for found in await response.json(content_type=None)]

    async def read_one(self, request: web.Request, container: str, id: str) -> Answer:
        """Read an item; asked for a missing one by itself, the inner server falls over itself with a 500."""
        (found,) = await self.read(container, request.headers.get(_PARTITION, ""), [id])
        if found is None:
            raise Refused(404, "NotFound", "Entity with the specified id does not exist in the system.")
        if request.headers.get("if-none-match") == found["_etag"]:
            return said(304, {}, etag=found["_etag"])
        return said(200, found, etag=found["_etag"])

    async def partition_path(self, request: web.Request, container: str) -> list[str]:
        """The names on the way to an item's partition key."""
        if container not in self.paths:
            async with self.session.get(f"http://{HOST}:{self.inner}/{container}") as response:
                if response.status != 200:
                    raise Refused(404, "NotFound", "Resource Not Found")
                found = await response.json(content_type=None)
            self.paths[container] = found["partitionKey"]["paths"][0].strip("/").split("/")
        return self.paths[container]

    async def check_write(self, request: web.Request, container: str, item: Any) -> None:
        """An item is written with its own partition key."""
        check_item(item)
        found = item
        for name in await self.partition_path(request, container):
            found = found.get(name) if isinstance(found, dict) else None
        if request.headers.get(_PARTITION) is None or json.loads(request.headers[_PARTITION]) != [found]:
            raise Refused(
                400,
                "BadRequest",
                "PartitionKey extracted from document doesn't match the one specified in the header",
            )

    # Batches.

    async def batch(self, request: web.Request, container: str, operations: list[dict[str, Any]]) -> Answer:
        if not operations or len(operations) > BATCH_OPERATIONS:
            raise Refused(400, "BadRequest", f"a batch has 1 to {BATCH_OPERATIONS} operations")
        for operation in operations:
            if "resourceBody" in operation:
                await self.check_write(request, container, operation["resourceBody"])
            if operation.get("ifNoneMatch"):
                raise Refused(400, "BadRequest", "this stand-in knows no ifNoneMatch in a batch")
        key = request.headers[_PARTITION]
        ids = [operation.get("id") or operation["resourceBody"]["id"] for operation in operations]
        once = list(dict.fromkeys(ids))
        there = await self.read(container, key, once)
        etags = {id: item and str(item["_etag"]) for id, item in zip(once, there, strict=True)}
        for at, operation in enumerate(operations):
            status = self.status_of(operation, ids[at], etags)
            if status >= 400:
                failed = [{"statusCode": 424, "requestCharge": 0} for _ in operations]
                failed[at]["statusCode"] = status
                return said(207, failed)
        done = await self.ask(
            request, json.dumps([{**operation, "partitionKey": key} for operation in operations]).encode()
        )
        assert all(one["statusCode"] < 400 for one in json.loads(done.body)), (
            "checked, and refused all the same"
        )
        return done

    @staticmethod
    def status_of(operation: Mapping[str, Any], id: str, etags: dict[str, Any]) -> int:
        """What becomes of an operation after those before it; `etags` then tells what is there."""
        kind, etag, expected = operation["operationType"], etags[id], operation.get("ifMatch")
        if kind == "Create":
            if etag is not None:
                return 409
        elif kind in ("Read", "Replace", "Delete", "Upsert"):
            if etag is None and kind != "Upsert":
                return 404
            if expected not in (None, "*", etag) and kind != "Read":
                return 412
        else:
            raise Refused(400, "BadRequest", f"this stand-in knows no {kind} in a batch")
        if kind == "Delete":
            etags[id] = None
        elif kind != "Read":
            etags[id] = "written by this batch"
        return 200

    # Queries.

    async def query(self, request: web.Request, container: str, query: dict[str, Any]) -> Answer:
        headers = {_ACROSS: "True"}
        key = request.headers.get(_PARTITION)
        if key is not None and json.loads(key):
            found = _SELECT.fullmatch(query["query"].strip())
            if found is None:
                raise Refused(400, "BadRequest", "this stand-in cannot confine the query to its partition")
            path = "".join(f"[{json.dumps(name)}]" for name in await self.partition_path(request, container))
            also = f" AND ({found['where']})" if found["where"] else ""
            text = f"{found['head']} WHERE {found['alias']}{path} = @_partition{also}{found['tail'] or ''}"
            parameters = [*query.get("parameters", ()), {"name": "@_partition", "value": json.loads(key)[0]}]
            query = {**query, "query": text, "parameters": parameters}
        asked = int(request.headers.get("x-ms-max-item-count", "0"))
        items = asked if asked > 0 else PAGE_ITEMS
        while True:
            answer = await self.ask(
                request, json.dumps(query).encode(), {**headers, "x-ms-max-item-count": str(items)}
            )
            if len(answer.body) <= PAGE_BYTES or items == 1:
                return answer
            items = max(1, items // 2)


def application(port: int, inner: int) -> web.Application:
    async def running(app: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            proxy = Proxy(port, inner, session)
            app["proxy"].append(proxy)
            yield

    app = web.Application(client_max_size=64 * MEGABYTE)
    app["proxy"] = []
    app.cleanup_ctx.append(running)

    async def command(request: web.Request) -> web.Response:
        return await app["proxy"][0].command(request)

    async def handle(request: web.Request) -> web.StreamResponse:
        return await app["proxy"][0].handle(request)

    app.router.add_route("*", "/_proxy/{what}", command)
    app.router.add_route("*", "/{path:.*}", handle)
    return app


if __name__ == "__main__":
    web.run_app(
        application(int(sys.argv[1]), int(sys.argv[2])),
        host=HOST,
        port=int(sys.argv[1]),
        access_log=None,
        print=lambda *_: print("the proxy is ready", flush=True),
    )
