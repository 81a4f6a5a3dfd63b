"""One run at a time works on a checkpoint, and one whose lease passed on commits nothing."""

from __future__ import annotations

import asyncio

from branchpoint.checkpoint import Checkpoint, Lease
from branchpoint.errors import CheckpointLeasedError, InvalidCallError
from branchpoint.testing._clause import clause
from branchpoint.testing._findings import Caught, holds, refused, same
from branchpoint.testing._place import Place
from branchpoint.testing.samples import create, grown, lineage, shared, small_state

_SECONDS = 30.0
_ASKED = ("leases", "lease_seconds")


def _is_told(caught: Caught) -> None:
    """The error says when the lease may be free."""
    error = caught.error
    holds(isinstance(error, CheckpointLeasedError), "the error is a CheckpointLeasedError")
    assert isinstance(error, CheckpointLeasedError)
    after = error.retry_after
    holds(after is not None and 0 < after <= _SECONDS, f"retry_after is {after!r}, of {_SECONDS} seconds")


async def _commit(checkpoint: Checkpoint, lease: Lease | None, n: int) -> None:
    """Commit as a run does that has this lease."""
    with checkpoint.hold("a run") as hold:
        hold.lease = lease
        await hold.commit_snapshot(small_state(n, n=n))


@clause("leasing", needs=("lease",), options=_ASKED)
async def a_lease_is_taken_by_one(place: Place) -> None:
    """While a lease is in force another one is refused, with the seconds until it may be free."""
    one, other = [await place.storage(leases=True, lease_seconds=_SECONDS) for _ in range(2)]
    lease = await one.take_lease("order-17")
    holds(lease.token and lease.seconds == _SECONDS, f"the lease is {lease}")
    for storage in (one, other):
        with refused(CheckpointLeasedError, "order-17") as caught:
            await storage.take_lease("order-17")
        _is_told(caught)
    free = await other.take_lease("order-18")
    holds(free.token != lease.token, "two leases have one token")
    await other.end_lease("order-17", lease)  # whoever knows the token
    again = await other.take_lease("order-17")
    holds(again.token != lease.token, "a token was given twice")


@clause("leasing", needs=("lease",), options=_ASKED)
async def of_several_takers_exactly_one_gets_it(place: Place) -> None:
    """Several that take one lease at the same time: one has it, the others are told to wait."""
    storages = [await place.storage(leases=True, lease_seconds=_SECONDS) for _ in range(4)]
    for n in range(place.rounds):
        outcomes = await asyncio.gather(
            *(storage.take_lease(f"run-{n}") for storage in storages), return_exceptions=True
        )
        kinds = sorted(type(one).__name__ for one in outcomes)
        same(kinds, [*["CheckpointLeasedError"] * 3, "Lease"])


@clause("leasing", needs=("lease",), options=_ASKED)
async def who_has_no_lease_is_refused_inside_the_commit(place: Place) -> None:
    """While a run has the lease only its own commits land; nothing of another's is persisted."""
    one, other = [await place.storage(leases=True, lease_seconds=_SECONDS) for _ in range(2)]
    await grown(one, commits=1)
    mine, theirs = await one.load("order-17"), await other.load("order-17")
    lease = await one.take_lease("order-17")
    with refused(CheckpointLeasedError) as caught:
        await theirs.commit_snapshot(small_state(9))
    _is_told(caught)
    with refused(CheckpointLeasedError):
        await _commit(theirs, Lease("another", _SECONDS), 9)
    await _commit(mine, lease, 1)
    await _commit(mine, lease, 2)
    same(lineage(await other.load("order-17")), lineage(mine))
    await one.end_lease("order-17", lease)
    await theirs.refresh()
    await theirs.commit_snapshot(small_state(3, n=3))
    same(shared((await one.load("order-17")).head_snapshot), {"n": 3})


@clause("leasing", needs=("lease",), options=_ASKED)
async def the_first_commit_is_fenced_as_well(place: Place) -> None:
    """A lease can be taken for a checkpoint that is not stored yet, and fences its first commit."""
    one, other = [await place.storage(leases=True, lease_seconds=_SECONDS) for _ in range(2)]
    mine = create(one)
    lease = await one.take_lease("order-17")
    with refused(CheckpointLeasedError):
        await create(other).commit_snapshot(small_state(0))
    await _commit(mine, lease, 0)
    same(lineage(await other.load("order-17")), lineage(mine))


@clause("leasing", needs=("lease",), options=_ASKED)
async def an_expired_lease_passes_on_and_its_holder_is_fenced(place: Place) -> None:
    """After its seconds a lease can be taken, and whoever had it before commits nothing from then on."""
    one, other = [await place.storage(leases=True, lease_seconds=_SECONDS) for _ in range(2)]
    await grown(one, commits=1)
    stopped, next_one = await one.load("order-17"), await other.load("order-17")
    lease = await one.take_lease("order-17")
    await place.pass_time(_SECONDS - 5)
    with refused(CheckpointLeasedError):
        await other.take_lease("order-17")
    await place.pass_time(6)
    theirs = await other.take_lease("order-17")
    # It wakes up before the other has committed: the head is still the one it knows.
    with refused(CheckpointLeasedError):
        await _commit(stopped, lease, 8)
    with refused(CheckpointLeasedError):
        await one.renew_lease("order-17", lease)
    await one.end_lease("order-17", lease)  # no error, and not the other's
    with refused(CheckpointLeasedError):
        await one.take_lease("order-17")
    await _commit(next_one, theirs, 1)
    same(lineage(await one.load("order-17")), lineage(next_one))


@clause("leasing", needs=("lease",), options=_ASKED)
async def a_renewed_lease_lasts_from_then(place: Place) -> None:
    """Renewing counts from now, and brings back an expired lease that nobody took."""
    one, other = [await place.storage(leases=True, lease_seconds=_SECONDS) for _ in range(2)]
    mine = await grown(one, commits=1)
    lease = await one.take_lease("order-17")
    await place.pass_time(_SECONDS - 5)
    await one.renew_lease("order-17", lease)
    await place.pass_time(_SECONDS - 5)
    with refused(CheckpointLeasedError):
        await other.take_lease("order-17")
    await place.pass_time(_SECONDS)
    await _commit(mine, lease, 1)  # it expired, and is still nobody else's
    await one.renew_lease("order-17", lease)
    with refused(CheckpointLeasedError):
        await other.take_lease("order-17")
    with refused(CheckpointLeasedError):
        await one.renew_lease("order-18", lease)  # there is none


@clause("leasing", needs=("lease",), options=_ASKED)
async def an_expired_lease_hinders_nobody(place: Place) -> None:
    """Who has no lease is let through once the stored one has expired."""
    one, other = [await place.storage(leases=True, lease_seconds=_SECONDS) for _ in range(2)]
    await grown(one, commits=1)
    await one.take_lease("order-17")
    checkpoint = await other.load("order-17")
    await place.pass_time(_SECONDS + 1)
    await checkpoint.commit_snapshot(small_state(2, n=2))
    same(len((await one.load("order-17")).snapshots), 2)


@clause("leasing", shows="R61", needs=("lease", "prune"), options=_ASKED)
async def a_prune_is_fenced_as_well(place: Place) -> None:
    """While a run has the lease, nobody else prunes."""
    one, other = [await place.storage(leases=True, lease_seconds=_SECONDS) for _ in range(2)]
    await grown(one, commits=3)
    await one.take_lease("order-17")
    with refused(CheckpointLeasedError):
        await (await other.load("order-17")).prune()
    same(len((await one.load("order-17")).snapshots), 3)


@clause("leasing", needs=("lease",), options=("leases",))
async def a_delete_removes_the_lease(place: Place) -> None:
    """Deleting a checkpoint frees its id at once."""
    storage = await place.storage(leases=True)
    await grown(storage, commits=1)
    lease = await storage.take_lease("order-17")
    await storage.delete("order-17")
    await storage.take_lease("order-17")
    with refused(CheckpointLeasedError):
        await storage.renew_lease("order-17", lease)


@clause("leasing", needs=("lease",), options=("leases",))
async def a_lease_needs_a_legal_id(place: Place) -> None:
    """An id that no storage could keep has no lease either."""
    storage = await place.storage(leases=True)
    for call in (
        storage.take_lease,
        lambda name: storage.renew_lease(name, Lease("t", 1.0)),
        lambda name: storage.end_lease(name, Lease("t", 1.0)),
    ):
        with refused(InvalidCallError):
            await call("a\x00b")
