"""The whole contract against one storage, without pytest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from branchpoint.checkpoint import Capability
from branchpoint.errors import InvalidCallError
from branchpoint.testing._clause import Clause, clauses, obey
from branchpoint.testing._findings import explained
from branchpoint.testing._place import Place
from branchpoint.testing._report import Outcome, Report

__all__ = ["validate"]


def validate(make_place: Callable[[], Place], *, only: Collection[str] | None = None) -> Report:
    """Check the contract clause by clause, each on an empty place of its own, and report all of them.

    It runs event loops of its own, so from a coroutine call it by `asyncio.to_thread`. It needs no pytest.

    Args:
        make_place: Returns another empty place each time; a subclass of `Place` whose constructor takes
            nothing will do.
        only: Names of clauses, or of groups of clauses, to look at; None: all.

    Raises:
        InvalidCallError: It was called inside of a running loop, or `only` names no clause.

    Example:
        >>> import tempfile
        >>> from branchpoint.storage import FileCheckpointStorage
        >>> from branchpoint.testing import Place, validate
        >>> class FilePlace(Place):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.folder = tempfile.TemporaryDirectory()
        ...
        ...     def open(self, *, lazy_over=None):
        ...         return FileCheckpointStorage(self.folder.name, lazy_over=lazy_over)
        ...
        ...     async def discard(self):
        ...         self.folder.cleanup()
        >>> report = validate(FilePlace, only=["isolation"])
        >>> report.ok
        True
    """
    chosen = _chosen(only)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise InvalidCallError(
            "validate() runs event loops of its own; from a coroutine: await asyncio.to_thread(validate, make_place)"
        )
    name, capabilities = asyncio.run(_described(make_place()))
    return Report(name, capabilities, tuple(_outcome(one, make_place) for one in chosen))


def _chosen(only: Collection[str] | None) -> list[Clause]:
    everything = clauses()
    if only is None:
        return list(everything)
    names = {name for one in everything for name in (one.name, one.name.partition(".")[0])}
    unknown = sorted(set(only) - names)
    if isinstance(only, str) or unknown:
        raise InvalidCallError(f"there is no clause or group {unknown or only!r}; there are {sorted(names)}")
    return [one for one in everything if one.name in only or one.name.partition(".")[0] in only]


async def _described(place: Place) -> tuple[str, frozenset[Capability]]:
    try:
        storage = await place.storage()
        return type(storage).__name__, storage.capabilities
    finally:
        await place.close_storages()
        await place.discard()


def _outcome(wanted: Clause, make_place: Callable[[], Place]) -> Outcome:
    try:
        lacking = asyncio.run(obey(wanted, make_place()))
    except Exception as error:
        return Outcome(wanted.name, "failed", explained(error))
    return Outcome(wanted.name, "passed") if lacking is None else Outcome(wanted.name, "skipped", lacking)
