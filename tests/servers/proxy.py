"""A proxy on the loopback interface that cuts a TCP connection at a chosen moment around a request.

A request is all that a client sends between two replies; what protocol is spoken does not matter. One that
is larger than 64 kB comes in pieces, and those before the piece that decides are passed on. The proxy runs on
the test's own event loop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal, Self

from tests.servers.process import HOST

When = Literal["before", "sent", "after", "within", "held"]
"""The moment of a cut.

`before`: nothing of the request reaches the server.
`sent`: it is on its way, and whether the server does it stays open.
`after`: the server has replied, and nothing of the reply reaches the client.
`within`: half of the reply does.
`held`: no cut; the reply waits until the test lets it go.
"""


@dataclass(eq=False)
class Cut:
    """One cut to come: what it waits for, and the events by which a test follows it."""

    when: When
    request: int
    matching: bytes
    met: asyncio.Event = field(default_factory=asyncio.Event)
    """The moment has come: the connection is cut, or the reply is being held."""
    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    """The test sets this to let a held reply go."""


@dataclass(eq=False)
class _Connection:
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    asking: bool = False
    asked: bytes = b""
    counted: list[Cut] = field(default_factory=list)
    cut: Cut | None = None

    def abort(self) -> None:
        for end in (self.client, self.server):
            end.transport.abort()


class TcpProxy:
    """Passes bytes on to a port of this machine, and cuts when told to."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.refusing = False
        """Whether new connections are dropped at once."""
        self.requests = 0
        """How many requests have begun."""
        self._cuts: list[Cut] = []
        self._connections: list[_Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()
        self.cut_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def cut(self, when: When, *, request: int = 1, matching: bytes = b"") -> Cut:
        """Cut around a coming request: the `request`-th from now on of those that hold the bytes `matching`."""
        cut = Cut(when, request, matching)
        self._cuts.append(cut)
        return cut

    def cut_all(self) -> None:
        """Cut every connection now."""
        for connection in self._connections:
            connection.abort()

    async def _accept(self, from_client: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if not self.refusing:
                await self._serve(from_client, client)
        except OSError:
            pass  # an end that is cut
        finally:
            client.transport.abort()
            self._tasks.discard(task)

    async def _serve(self, from_client: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        from_server, server = await asyncio.open_connection(HOST, self.target)
        connection = _Connection(client, server)
        self._connections.append(connection)
        there = asyncio.ensure_future(self._pass_requests(connection, from_client))
        back = asyncio.ensure_future(self._pass_replies(connection, from_server))
        try:
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            there.cancel()
            back.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
            connection.abort()
            self._connections.remove(connection)

    async def _pass_requests(self, connection: _Connection, source: asyncio.StreamReader) -> None:
        while data := await source.read(65536):
            if not connection.asking:
                connection.asking, connection.asked, connection.counted = True, b"", []
                self.requests += 1
            connection.asked += data
            if connection.cut is None:
                connection.cut = self._cut_of(connection)
            cut = connection.cut
            if cut is not None and cut.when == "before":
                cut.met.set()
                return
            connection.server.write(data)
            await connection.server.drain()
            if cut is not None and cut.when == "sent":
                # Closed and not aborted: the bytes are delivered first.
                connection.server.close()
                await connection.server.wait_closed()
                cut.met.set()
                return

    async def _pass_replies(self, connection: _Connection, source: asyncio.StreamReader) -> None:
        while data := await source.read(65536):
            cut, connection.cut, connection.asking = connection.cut, None, False
            if cut is not None and cut.when == "held":
                cut.met.set()
                await cut.let_go.wait()
            elif cut is not None:
                if cut.when == "within":
                    connection.client.write(data[: len(data) // 2])
                    connection.client.close()
                    await connection.client.wait_closed()
                cut.met.set()
                return
            connection.client.write(data)
            await connection.client.drain()

    def _cut_of(self, connection: _Connection) -> Cut | None:
        """The cut that is to be at this request, as far as it has come; a request counts once for each cut."""
        for cut in self._cuts:
            if cut.matching in connection.asked and cut not in connection.counted:
                connection.counted.append(cut)
                cut.request -= 1
                if cut.request == 0:
                    self._cuts.remove(cut)
                    return cut
        return None
