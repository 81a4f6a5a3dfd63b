"""What a lease means: who may take one, how long it lasts, when its holder renews it. No waiting, no storage."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from branchpoint import clock
from branchpoint.checkpoint._contract import Lease, StoredLease, refuse_leased, refuse_lost
from branchpoint.errors import InvalidCallError
from branchpoint.ids import new_id

__all__ = ["LeaseRecord", "check_lease_seconds", "renewed_every"]

_BEATS = 3
"""How often a lease is renewed in the time it lasts: two may fail before it passes on."""

_LONGEST = 86_400


class LeaseRecord(msgspec.Struct, frozen=True):
    """What is stored of a lease, where the clock of this process says when it expires.

    Attributes:
        token: That of its holder.
        expires: When it passes on unless it is renewed.
        seconds: How long it lasts from the moment it was taken or renewed.
    """

    token: str
    expires: datetime
    seconds: float

    @classmethod
    def taken(cls, checkpoint_id: str, stored: LeaseRecord | None, *, seconds: float) -> LeaseRecord:
        """Return the record of a new lease, to be stored in the place of `stored`.

        Raises:
            CheckpointLeasedError: Another's lease is in force.
        """
        refuse_leased(checkpoint_id, held=None, stored=None if stored is None else stored.as_of_now())
        return cls(new_id(), _after(seconds), seconds)

    @classmethod
    def renewed(cls, checkpoint_id: str, stored: LeaseRecord | None, lease: Lease) -> LeaseRecord:
        """Return the record of the same lease that lasts from now, to be stored in the place of `stored`.

        Raises:
            CheckpointLeasedError: It passed on to another, or was removed.
        """
        refuse_lost(checkpoint_id, lease=lease, stored=None if stored is None else stored.as_of_now())
        return cls(lease.token, _after(lease.seconds), lease.seconds)

    @property
    def lease(self) -> Lease:
        """What its holder has."""
        return Lease(self.token, self.seconds)

    def as_of_now(self) -> StoredLease:
        """Return what commits are compared with.

        A lease lasts no longer than it was taken for, whatever two clocks make of it: where the one that wrote
        it is ahead, or this one was set back, it stays in force, and who waits asks again in time.
        """
        left = (self.expires - clock.now()).total_seconds()
        return StoredLease(self.token, min(left, self.seconds))


def check_lease_seconds(lease_seconds: float) -> float:
    """Return for how many seconds a lease lasts.

    Raises:
        InvalidCallError: It is no number of seconds above 0, or more than a day of them.
    """
    if type(lease_seconds) not in (int, float) or not 0 < lease_seconds <= _LONGEST:
        raise InvalidCallError(
            f"lease_seconds is a number of seconds above 0 and at most {_LONGEST:,}, not {lease_seconds!r}: after "
            "so long a killed holder's checkpoint is free"
        )
    return float(lease_seconds)


def renewed_every(lease: Lease) -> float:
    """Return how many seconds the holder of a lease waits between two renewals."""
    return lease.seconds / _BEATS


def _after(seconds: float) -> datetime:
    return clock.now() + timedelta(seconds=seconds)
