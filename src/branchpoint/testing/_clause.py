"""One clause of the storage contract: a name, what it needs, and a function that checks it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from branchpoint import clock
from branchpoint.checkpoint import Capability, CheckpointStorage
from branchpoint.testing._place import Place

__all__ = ["Clause", "clause", "clauses", "missing", "obey"]

Check = Callable[[Place], Awaitable[None]]

_known: dict[str, Clause] = {}


@dataclass(frozen=True)
class Clause:
    """One promise of a storage, and how it is looked at.

    Attributes:
        name: `group.what_holds`; reports, tests and the proofs of the mutants use it.
        needs: Capabilities that the storage declares.
        options: What `Place.open` takes.
        hooks: What the place was given besides.
        shows: Numbers of the requirements and cases it belongs to.
        check: Raises when the promise is broken; its first docstring line is the promise in a sentence.
    """

    name: str
    needs: tuple[Capability, ...]
    options: tuple[str, ...]
    hooks: tuple[str, ...]
    shows: tuple[str, ...]
    check: Check

    @property
    def promise(self) -> str:
        """The promise in one sentence."""
        return (self.check.__doc__ or self.name).strip().splitlines()[0]


def clause(
    group: str,
    *,
    shows: str = "",
    needs: tuple[Capability, ...] = (),
    options: tuple[str, ...] = (),
    hooks: tuple[str, ...] = (),
) -> Callable[[Check], Check]:
    """Make a coroutine function over a place a clause of the contract.

    Args:
        group: The first part of its name.
        shows: Numbers of the requirements and cases it belongs to.
        needs: Capabilities without which it is skipped.
        options: Options of `open` without which it is skipped.
        hooks: Hooks of the place without which it is skipped.
    """

    def registered(check: Check) -> Check:
        name = f"{group}.{getattr(check, '__name__', '')}"
        if name in _known:
            raise ValueError(f"there are two clauses {name}")
        _known[name] = Clause(name, needs, options, hooks, tuple(shows.split()), check)
        return check

    return registered


def clauses() -> tuple[Clause, ...]:
    """Return all clauses of the contract, in the order in which they are checked."""
    from branchpoint.testing._clauses import GROUPS  # its files register them here

    order = [group.__name__ for group in GROUPS]
    return tuple(sorted(_known.values(), key=lambda one: order.index(one.check.__module__)))


def missing(wanted: Clause, place: Place, storage: CheckpointStorage) -> str | None:
    """Say what a storage or its place lacks for a clause; None when it can be checked."""
    lacking = [
        f"the storage does not declare {one!r}" for one in wanted.needs if one not in storage.capabilities
    ]
    lacking += [f"Place.open() takes no {one!r}" for one in wanted.options if not place.takes(one)]
    lacking += [
        f"the place has no {one}{'' if one == 'process' else '()'}"
        for one in wanted.hooks
        if not place.has(one)
    ]
    return "; ".join(lacking) or None


async def obey(wanted: Clause, place: Place) -> str | None:
    """Check one clause on a place of its own.

    Returns:
        Why it could not be checked, or None when the storage keeps it.

    Raises:
        Exception: The storage does not keep it.
    """
    with clock.injected(place.clock):
        try:
            lacking = missing(wanted, place, await place.storage())
            if lacking is None:
                await wanted.check(place)
        finally:
            try:
                await place.close_storages()
            finally:
                await place.discard()
    return lacking
