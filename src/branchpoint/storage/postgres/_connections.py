"""Connections to one server, for each event loop its own.

A driver's connection belongs to the loop that opened it. A program may work in several, one after the other
or in threads, so each loop gets its connections when it first asks for one, and they end with it at the latest.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import Any

from branchpoint.errors import BranchpointError, InvalidCallError
from branchpoint.storage.postgres._grouping import Group
from branchpoint.storage.postgres._statements import Statement

__all__ = ["Connections", "Given", "Link", "Loops"]

_IDLE_SECONDS = 120.0
"""One that was idle for longer is not used again: something on the way may have forgotten it in silence."""

_CLOSING_SECONDS = 10.0

_open: set[Connections] = set()
"""Those that nobody has ended yet. A connection must not be collected as it is, together with its storage."""


class Link:
    """One connection, lent for a while.

    Attributes:
        connection: The driver's.
    """

    __slots__ = ("_prepared", "connection", "since")

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.since = 0.0
        self._prepared: dict[tuple[Statement, bool], Any] = {}

    async def fetch(self, statement: Statement, *arguments: Any, named: bool) -> list[Any]:
        """Execute a statement in one round trip, after one more when it is new to this connection.

        Args:
            named: Whether the server keeps it prepared. Otherwise it is sent along each time, and the two
                steps of the first time may happen on two servers behind a pooler.
        """
        prepared = self._prepared.get((statement, named))
        if prepared is None:
            prepared = await self.connection.prepare(statement.text, name=statement.name if named else None)
            self._prepared[statement, named] = prepared
        found: list[Any] = await prepared.fetch(*arguments)
        return found

    @property
    def closed(self) -> bool:
        """Whether it is over."""
        return bool(self.connection.is_closed())


class Connections:
    """The connections of one event loop; used in that loop alone.

    Args:
        connect: Opens one.
        most: How many there are at the same time; who finds none waits for its turn.
    """

    def __init__(self, connect: Callable[[], Awaitable[Any]], most: int) -> None:
        # What the user of this keeps beside them: whether the schema was found to be there, and who waits.
        self.checked = False
        self.checking = asyncio.Lock()
        self.begins, self.commits = Group(), Group()
        self.gone: Future[None] = Future()
        self._connect = connect
        self._turns = asyncio.Semaphore(most)
        self._idle: list[Link] = []
        self._using = 0
        self._unused = asyncio.Event()
        self._closing = False
        _open.add(self)

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Link]:
        """Lend a connection, which nobody else uses meanwhile.

        One on which something else fails than a statement is not used again.
        """
        self._using += 1
        self._unused.clear()
        try:
            async with self._turns:
                link = self._rested() or Link(await self._connect())
                whole = False
                try:
                    yield link
                    whole = True
                except Exception as error:
                    # The server has answered and goes on, or we did not like its answer.
                    whole = hasattr(error, "sqlstate") or isinstance(error, BranchpointError)
                    raise
                finally:
                    if whole and not self._closing and not link.closed:
                        link.since = asyncio.get_running_loop().time()
                        self._idle.append(link)
                    else:
                        link.connection.terminate()
        finally:
            self._using -= 1
            if not self._using:
                self._unused.set()

    def _rested(self) -> Link | None:
        """Take the one that was used last, and end those that were idle for too long."""
        long_ago = asyncio.get_running_loop().time() - _IDLE_SECONDS
        while self._idle and (self._idle[0].since < long_ago or self._idle[0].closed):
            self._idle.pop(0).connection.terminate()
        while self._idle:
            link = self._idle.pop()
            if not link.closed:
                return link
            link.connection.terminate()
        return None

    async def renew(self) -> None:
        """End the idle ones: one was found dead, and the server may have been started again."""
        self._end_idle()

    async def close(self) -> None:
        """Wait for what is under way, and end all."""
        self._closing = True
        try:
            if self._using:
                await self._unused.wait()
            while self._idle:
                with suppress(Exception):
                    await self._idle.pop().connection.close(timeout=_CLOSING_SECONDS)
        finally:
            self.terminate()

    def terminate(self) -> None:
        """End the idle ones at once; those in use end when they are given back."""
        self._closing = True
        self._end_idle()
        _open.discard(self)
        if not self.gone.done():
            self.gone.set_result(None)

    def _end_idle(self) -> None:
        while self._idle:
            self._idle.pop().connection.terminate()


class Given:
    """The caller's own pool of the driver, in the place of `Connections`; it stays the caller's to close."""

    def __init__(self, pool: Any) -> None:
        self.checked = False
        self.checking = asyncio.Lock()
        self.begins, self.commits = Group(), Group()
        self._pool = pool
        self._loop: asyncio.AbstractEventLoop | None = getattr(pool, "_loop", None)

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Link]:
        """Lend a connection of the pool.

        Raises:
            InvalidCallError: The pool belongs to another event loop.
        """
        here = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = here
        if self._loop is not here:
            raise InvalidCallError(
                "an asyncpg.Pool works in the event loop that made it, and this is another one: give the storage "
                "the DSN, so that each loop has its own connections"
            )
        async with self._pool.acquire() as connection:
            yield _Borrowed(connection)

    async def renew(self) -> None:
        """Have the pool connect anew."""
        with suppress(Exception):  # one that is closed says so at the next use
            await self._pool.expire_connections()


class _Borrowed(Link):
    """A connection of somebody else's pool, where the driver's own cache decides what is prepared."""

    __slots__ = ()

    async def fetch(self, statement: Statement, *arguments: Any, named: bool) -> list[Any]:
        found: list[Any] = await self.connection.fetch(statement.text, *arguments)
        return found


class Loops:
    """The connections of every event loop that has asked for some.

    They end with `aclose`, or when their loop is shut down, or when this object is gone, whatever comes first.
    """

    def __init__(self, connect: Callable[[], Awaitable[Any]], most: int) -> None:
        self._connect = connect
        self._most = most
        self._lock = threading.Lock()
        self._known: dict[asyncio.AbstractEventLoop, tuple[Connections, AsyncGenerator[None, None]]] = {}

    async def here(self) -> Connections:
        """Return those of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            known = self._known.get(loop)
        if known is not None and not known[0].gone.done():
            return known[0]
        connections = Connections(self._connect, self._most)
        end = _ending(connections)
        # Nothing waits between here and the first `yield`, so no other task of this loop comes between.
        await anext(end)
        with self._lock:
            for other in [other for other in self._known if other.is_closed()]:
                del self._known[other]
            self._known[loop] = connections, end
        return connections

    async def aclose(self) -> None:
        """End the connections of all loops, each in its own."""
        with self._lock:
            known, self._known = self._known, {}
        for loop, (connections, _) in known.items():
            if loop is asyncio.get_running_loop():
                await connections.close()
            elif loop.is_running():
                with suppress(RuntimeError):  # it was closed just now, and they with it
                    asyncio.run_coroutine_threadsafe(connections.close(), loop)
                    await asyncio.wait([asyncio.wrap_future(connections.gone)], timeout=_CLOSING_SECONDS)
            elif not loop.is_closed():
                loop.call_soon_threadsafe(connections.terminate)  # when it runs again


async def _ending(connections: Connections) -> AsyncGenerator[None, None]:
    """End connections when the loop is shut down, or when nobody has this generator any more.

    The loop knows every generator that was begun in it, and ends them all at its own end.
    """
    try:
        yield
    finally:
        connections.terminate()
        await asyncio.sleep(0)  # so that what is closed now is closed before the loop
