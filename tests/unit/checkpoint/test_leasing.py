"""What a lease means, decided without storage: who may take one, how long it lasts, and who holds it in memory."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from branchpoint import clock
from branchpoint.checkpoint import (
    Lease,
    LeaseRecord,
    StoredLease,
    check_lease_seconds,
    refuse_leased,
    refuse_lost,
    renewed_every,
)
from branchpoint.errors import CheckpointConflictError, CheckpointLeasedError, InvalidCallError, StorageError
from tests.unit.checkpoint.doubles import TinyStorage, new_checkpoint

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class At:
    """A clock that shows so many seconds after noon."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.seconds)


def taken(at: float, stored: LeaseRecord | None = None, seconds: float = 30.0) -> LeaseRecord:
    with clock.injected(At(at)):
        return LeaseRecord.taken("cp", stored, seconds=seconds)


def test_a_free_lease_is_taken_with_a_token_of_its_own() -> None:
    first, second = taken(0), taken(0)
    assert first.expires == NOON + timedelta(seconds=30)
    assert first.lease == Lease(first.token, 30.0)
    assert first.token != second.token


@pytest.mark.parametrize(("later", "left"), [(0, 30.0), (10, 20.0), (29.5, 0.5)])
def test_a_lease_in_force_is_refused_with_the_time_that_is_left(later: float, left: float) -> None:
    record = taken(0)
    with pytest.raises(
        CheckpointLeasedError, match=f"'cp' is leased by another run.*{left} seconds"
    ) as caught:
        taken(later, record)
    assert caught.value.retry_after == left
    assert caught.value.retryable
    assert isinstance(caught.value, CheckpointConflictError)


@pytest.mark.parametrize("later", [30, 31, 1e6])
def test_an_expired_lease_passes_on(later: float) -> None:
    record = taken(0)
    assert taken(later, record).token != record.token


def test_a_renewed_lease_lasts_from_then_also_when_it_had_expired_and_nobody_took_it() -> None:
    record = taken(0)
    for later in (10, 29, 300):
        with clock.injected(At(later)):
            record = LeaseRecord.renewed("cp", record, record.lease)
        assert record.expires == NOON + timedelta(seconds=later + 30)
    with pytest.raises(CheckpointLeasedError):
        taken(320, record)


def test_a_lease_that_passed_on_or_is_gone_is_not_renewed() -> None:
    mine = taken(0)
    theirs = taken(31, mine)
    with clock.injected(At(32)):
        with pytest.raises(CheckpointLeasedError, match="expired and passed on") as caught:
            LeaseRecord.renewed("cp", theirs, mine.lease)
        assert caught.value.retry_after == 29
        with pytest.raises(CheckpointLeasedError, match="no longer leased by this run"):
            LeaseRecord.renewed("cp", None, mine.lease)


@pytest.mark.parametrize("later", [0, 30, 10_000])
def test_a_holder_is_fenced_once_its_lease_passed_on_even_when_the_other_one_expired_too(
    later: float,
) -> None:
    mine = taken(0)
    theirs = taken(31, mine)
    with clock.injected(At(31 + later)), pytest.raises(CheckpointLeasedError, match="passed on"):
        refuse_leased("cp", held=mine.lease, stored=theirs.as_of_now())


def test_a_holder_commits_while_its_own_is_stored_expired_or_not_and_when_none_is() -> None:
    mine = Lease("mine", 30.0)
    refuse_leased("cp", held=mine, stored=StoredLease("mine", 10.0))
    refuse_leased("cp", held=mine, stored=StoredLease("mine", -10.0))
    refuse_leased("cp", held=mine, stored=None)
    refuse_leased("cp", held=None, stored=None)
    refuse_leased("cp", held=None, stored=StoredLease("theirs", 0.0))
    refuse_lost("cp", lease=mine, stored=StoredLease("mine", -10.0))


def test_the_clock_of_another_does_not_make_a_lease_last_longer_than_it_does() -> None:
    """Whoever waits is told to ask again in time, where a clock was ahead or this one was set back."""
    record = taken(3600)
    with clock.injected(At(0)):
        assert record.as_of_now() == StoredLease(record.token, 30.0)
    with clock.injected(At(3600 + 20)):
        assert record.as_of_now().expires_in == 10.0
    with clock.injected(At(3600 + 40)):
        assert record.as_of_now().expires_in == -10.0


def test_a_lease_is_renewed_three_times_in_the_time_it_lasts() -> None:
    assert renewed_every(Lease("one", 30.0)) == 10.0
    assert renewed_every(Lease("one", 0.3)) == pytest.approx(0.1)


@pytest.mark.parametrize("seconds", [1, 0.001, 86_400])
def test_a_number_of_seconds_is_taken(seconds: float) -> None:
    assert check_lease_seconds(seconds) == seconds


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan, 86_401, True, "30", None])
def test_what_is_no_number_of_seconds_is_refused(seconds: Any) -> None:
    with pytest.raises(InvalidCallError, match="lease_seconds is a number of seconds"):
        check_lease_seconds(seconds)


# In memory.


def test_a_checkpoint_has_the_lease_of_its_holder_and_none_without() -> None:
    checkpoint, lease = new_checkpoint(), Lease("one", 30.0)
    assert checkpoint.lease is None
    hold = checkpoint.hold("a run")
    assert checkpoint.lease is None
    hold.lease = lease
    assert checkpoint.lease == hold.lease == lease
    hold.lease = None
    hold.release()
    assert checkpoint.lease is None
    with checkpoint.hold("another") as another:
        assert another.left_lease is None


def test_a_lease_that_was_not_given_back_is_left_for_the_next_holder() -> None:
    checkpoint, lease = new_checkpoint(), Lease("one", 30.0)
    hold = checkpoint.hold("a run")
    hold.lease = lease
    hold.release()
    assert checkpoint.lease is None
    with checkpoint.hold("another") as another:
        assert (another.lease, another.left_lease) == (None, lease)


def test_a_hold_that_was_released_says_nothing_of_the_lease() -> None:
    checkpoint, lease = new_checkpoint(), Lease("one", 30.0)
    old = checkpoint.hold("a run")
    old.release()
    with checkpoint.hold("another") as hold:
        hold.lease = lease
        old.lease = None
        assert checkpoint.lease == lease


def test_a_commit_in_flight_keeps_the_lease_until_it_has_landed() -> None:
    checkpoint, lease = new_checkpoint(), Lease("one", 30.0)
    hold = checkpoint.hold("a run")
    hold.lease = lease
    commit = hold.committing()
    commit.begin()
    hold.release()
    assert checkpoint.lease == lease
    commit.end()
    assert checkpoint.lease is None


async def test_a_storage_without_leases_says_so() -> None:
    storage, lease = TinyStorage(), Lease("one", 30.0)
    assert not storage.leases
    with pytest.raises(StorageError, match="take_lease"):
        await storage.take_lease("cp")
    with pytest.raises(StorageError, match="renew_lease"):
        await storage.renew_lease("cp", lease)
    with pytest.raises(StorageError, match="end_lease"):
        await storage.end_lease("cp", lease)
