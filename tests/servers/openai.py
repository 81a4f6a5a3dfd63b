"""An OpenAI-compatible server on 127.0.0.1 with a script in place of a model: two APIs, streams, faults.

It keeps no place in its script: which reply comes next is read off the conversation that it is given.
Responses that a client lets it keep are found again by their id, as with the service.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.servers.openai_wire import Api, Call, ChatCompletions, Reply, Responses
from tests.servers.process import HOST

__all__ = ["Asked", "Call", "Cut", "Fault", "OpenAIServer", "Reply", "Script", "openai_server"]

Script = Sequence[Reply] | Callable[["Asked"], Reply]


@dataclass(frozen=True)
class Cut:
    """The connection is closed after that many pieces of a stream."""

    after: int


Fault = int | Cut
"""A status of HTTP, or a cut of a stream."""


@dataclass(frozen=True)
class Asked:
    """What a client asked.

    Attributes:
        path: Of the API.
        model: Which one.
        said: The whole conversation as roles and texts; a call of a tool and its result are texts, too.
        body: The request.
        key: The API key.
    """

    path: str
    model: str
    said: tuple[tuple[str, str], ...]
    body: dict[str, Any]
    key: str

    @property
    def turn(self) -> int:
        """How often the model has spoken in this conversation."""
        return sum(
            role == "assistant" and (at == 0 or self.said[at - 1][0] != "assistant")
            for at, (role, _) in enumerate(self.said)
        )


class OpenAIServer:
    """The server.

    Attributes:
        script: By model, a reply for each turn, or what makes one.
        faults: What goes wrong with the next requests, one each; `None` is for one that goes well.
        asked: Every request, also those that a fault met.
    """

    def __init__(self) -> None:
        self.script: dict[str, Script] = {}
        self.faults: deque[Fault | None] = deque()
        self.asked: list[Asked] = []
        self.kept: dict[str, list[Any]] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        server = self

        class Handler(_Handler):
            served = server

        self._http = ThreadingHTTPServer((HOST, 0), Handler)
        self._http.daemon_threads = False  # so that closing waits for them
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        """What a client takes as its base URL."""
        return f"http://{HOST}:{self._http.server_address[1]}/v1"

    def start(self) -> None:
        """Serve, until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for every thread."""
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def answer(self, api: Api, path: str, body: dict[str, Any], key: str) -> tuple[Fault | None, str, Reply]:
        """Return what goes wrong with a request, the id of its response, and what is said."""
        with self._lock:
            conversation = [*self.kept.get(body.get("previous_response_id") or "", ()), *api.items(body)]
            asked = Asked(path, body["model"], tuple(map(api.said, conversation)), body, key)
            self.asked.append(asked)
            fault = self.faults.popleft() if self.faults else None
            name = f"resp_{next(self._numbers)}"
            if isinstance(fault, int):
                return fault, name, ""
            script = self.script[asked.model]
            reply = script(asked) if callable(script) else script[asked.turn]
            if isinstance(api, Responses) and body.get("store") is not False:
                self.kept[name] = [*conversation, *api.output(name, reply)]
            return fault, name, reply


@contextmanager
def openai_server() -> Iterator[OpenAIServer]:
    """A server for the time of the block."""
    server = OpenAIServer()
    server.start()
    try:
        yield server
    finally:
        server.stop()


_APIS: dict[str, Api] = {"/v1/chat/completions": ChatCompletions(), "/v1/responses": Responses()}


class _Handler(BaseHTTPRequestHandler):
    served: OpenAIServer
    protocol_version = "HTTP/1.1"  # a stream in chunks, so that its end is told from a cut

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        api = _APIS.get(self.path)
        if api is None or body.get("previous_response_id", "") not in {"", None, *self.served.kept}:
            self._json(
                404, {"error": {"message": f"nothing at {self.path}", "type": "invalid_request_error"}}
            )
            return
        key = self.headers["Authorization"].removeprefix("Bearer ")
        fault, name, reply = self.served.answer(api, self.path, body, key)
        if isinstance(fault, int):
            self._json(fault, {"error": {"message": "told to fail", "type": "server_error"}})
        elif body.get("stream"):
            self._stream(api.pieces(name, body["model"], reply), fault)
        else:
            self._json(200, api.whole(name, body["model"], reply))

    def _head(self, status: int, kind: str, *more: tuple[str, str]) -> None:
        self.send_response(status)
        # A client that tries again by itself waits; here every failure is the caller's to see.
        for header in (("Content-Type", kind), ("Connection", "close"), ("x-should-retry", "false"), *more):
            self.send_header(*header)
        self.end_headers()

    def _json(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self._head(status, "application/json", ("Content-Length", str(len(data))))
        self.wfile.write(data)

    def _stream(self, pieces: Sequence[str], cut: Cut | None) -> None:
        self._head(200, "text/event-stream", ("Transfer-Encoding", "chunked"))
        for piece in pieces if cut is None else pieces[: cut.after]:
            data = piece.encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        if cut is None:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing; `asked` has it."""
