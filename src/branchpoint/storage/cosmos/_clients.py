"""Clients of one account, for each event loop its own.

A client of the async SDK belongs to the loop in which it was opened. A program may work in several, one after the
other or in threads, so each loop gets its client when it first asks for one, and it ends with it at the latest.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import Any

from branchpoint.errors import InvalidCallError

__all__ = ["Client", "Clients", "GivenClient"]

_CLOSING_SECONDS = 10.0


class Client:
    """The SDK's client of one event loop; used in that loop alone.

    Args:
        make: Makes the SDK's client and what else is to be closed with it.

    Attributes:
        checked: Whether the container was found to be there, which the user of this notes.
        closing: Set when it is to be closed, so that nobody waits for better times any more.
        gone: Done when it is closed.
    """

    def __init__(self, make: Callable[[], tuple[Any, Any]]) -> None:
        self.checked = False
        self.checking = asyncio.Lock()
        self.closing = asyncio.Event()
        self.gone: Future[None] = Future()
        self._make = make
        self._made: tuple[Any, Any] | None = None
        self._opening = asyncio.Lock()
        self._using = 0
        self._unused = asyncio.Event()

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Any]:
        """Lend the SDK's client; it is not closed before it is given back."""
        self._using += 1
        self._unused.clear()
        try:
            yield (await self._open())[0]
        finally:
            self._using -= 1
            if not self._using:
                self._unused.set()

    async def _open(self) -> tuple[Any, Any]:
        async with self._opening:
            if self._made is None:
                made = self._make()
                try:
                    await made[0].__aenter__()
                except BaseException:
                    await _closed(made)
                    raise
                self._made = made
            return self._made

    async def close(self) -> None:
        """Wait for what is under way, and close it."""
        self.closing.set()
        try:
            if self._using:
                await self._unused.wait()
            made, self._made = self._made, None
            if made is not None:
                await _closed(made)
        finally:
            if not self.gone.done():
                self.gone.set_result(None)


class GivenClient:
    """The caller's own client of the SDK, in the place of `Client`; it stays the caller's to close."""

    def __init__(self, client: Any) -> None:
        self.checked = False
        self.checking = asyncio.Lock()
        self.closing = asyncio.Event()  # never, by this storage
        self._client = client
        self._loop: asyncio.AbstractEventLoop | None = None

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Any]:
        """Lend the client.

        Raises:
            InvalidCallError: It was used in another event loop.
        """
        here = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = here
        if self._loop is not here:
            raise InvalidCallError(
                "a CosmosClient works in one event loop, and this is another one: give the storage endpoint and "
                "credential, so that each loop has its own client"
            )
        yield self._client


class Clients:
    """The client of every event loop that has asked for one.

    They end with `aclose`, or when their loop is shut down, or when this object is gone, whatever comes first.
    """

    def __init__(self, make: Callable[[], tuple[Any, Any]]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._known: dict[asyncio.AbstractEventLoop, tuple[Client, AsyncGenerator[None, None]]] = {}

    async def here(self) -> Client:
        """Return that of the running loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            known = self._known.get(loop)
        if known is not None and not known[0].gone.done():
            return known[0]
        client = Client(self._make)
        end = _ending(client)
        # Nothing waits between here and the first `yield`, so no other task of this loop comes between.
        await anext(end)
        with self._lock:
            for other in [other for other in self._known if other.is_closed()]:
                del self._known[other]
            self._known[loop] = client, end
        return client

    async def aclose(self) -> None:
        """Close the clients of all loops, each in its own."""
        with self._lock:
            known, self._known = self._known, {}
        for loop, (client, _) in known.items():
            if loop is asyncio.get_running_loop():
                await client.close()
            elif loop.is_running():
                with suppress(RuntimeError):  # it was closed just now, and the client with it
                    asyncio.run_coroutine_threadsafe(client.close(), loop)
                    await asyncio.wait([asyncio.wrap_future(client.gone)], timeout=_CLOSING_SECONDS)
            # One that stands still closes its client when it runs again: the generator is let go of here.


async def _ending(client: Client) -> AsyncGenerator[None, None]:
    """Close a client when the loop is shut down, or when nobody has this generator any more.

    The loop knows every generator that was begun in it, and ends them all at its own end.
    """
    try:
        yield
    finally:
        await client.close()
        await asyncio.sleep(0)  # so that what is closed now is closed before the loop


async def _closed(made: tuple[Any, Any]) -> None:
    client, credential = made
    with suppress(Exception):  # it is of no use any more, whatever it says
        await client.close()
    close = getattr(credential, "close", None)
    if close is not None:
        with suppress(Exception):
            closing = close()
            if inspect.isawaitable(closing):
                await closing
