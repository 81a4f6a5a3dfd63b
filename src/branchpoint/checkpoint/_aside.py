"""Work that is done in a thread when it is so much that it would hold the event loop up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

__all__ = ["aside"]

_FEW = 200
"""How many records are read on the event loop's own thread: in about a millisecond."""

_Result = TypeVar("_Result")


async def aside(work: Callable[[], _Result], count: int) -> _Result:
    """Return what `work` returns, which reads and checks so many records: manifests, parts, rows or items."""
    return work() if count <= _FEW else await asyncio.to_thread(work)
