"""The lease of a checkpoint as a small file beside its journal.

A record is written to a file of its own and moved into place, so a reader finds the old one or the new
one. Nothing is synced: a power cut ends every holder on this machine, so a record that it lost, tore or
brought back stands for nobody who still works. One that was brought back expires. What is no lease of
this checkpoint leases nothing, and the next one takes its place; commits compare the head as ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec

from branchpoint.checkpoint import Lease, LeaseRecord, refuse_leased
from branchpoint.errors import UnknownVersionError
from branchpoint.storage._disk import Disk, is_there, open_journal, read_at, reported, token
from branchpoint.storage._lock import holding
from branchpoint.storage._names import lease_name, temporary_name
from branchpoint.storage._reading import Place

__all__ = ["Leases"]

_VERSION = 1
_LONGEST = 1 << 14


class _Versioned(msgspec.Struct, frozen=True):
    version: int


class _Stored(_Versioned, frozen=True):
    checkpoint_id: str
    token: str
    expires: Annotated[datetime, msgspec.Meta(tz=True)]
    seconds: Annotated[float, msgspec.Meta(gt=0)]


class Leases:
    """The leases in one folder, each under the lock of its checkpoint."""

    def __init__(self, folder: Path, disk: Disk) -> None:
        self._folder = folder
        self._disk = disk

    def take(self, place: Place, seconds: float) -> Lease:
        """Write the record of a new lease; the folder is there.

        Raises:
            CheckpointLeasedError: Another's is in force.
            CorruptCheckpointError: There is something else than a file under that name.
            UnknownVersionError: A newer version wrote the one that is there.
            StorageError: The operating system refused.
        """
        with self._locked(place, "taking the lease") as path:
            record = LeaseRecord.taken(place.checkpoint_id, _read(path, place), seconds=seconds)
            self._write(path, place, record)
        return record.lease

    def renew(self, place: Place, lease: Lease) -> None:
        """Write the record of a lease again, with its new end.

        Raises:
            CheckpointLeasedError: It passed on to another, or was removed.
            CorruptCheckpointError: There is something else than a file under that name.
            UnknownVersionError: A newer version wrote the one that is there.
            StorageError: The operating system refused; the lease is as it was.
        """
        with self._locked(place, "renewing the lease") as path:
            self._write(path, place, LeaseRecord.renewed(place.checkpoint_id, _read(path, place), lease))

    def end(self, place: Place, lease: Lease) -> None:
        """Remove the record of a lease; that of another stays.

        Raises:
            CorruptCheckpointError: There is something else than a file under that name.
            UnknownVersionError: A newer version wrote the one that is there.
            StorageError: The operating system refused.
        """
        doing = "giving the lease back"
        if not self._is_there(place, doing):
            return
        with self._locked(place, doing) as path:
            stored = _read(path, place)
            if stored is not None and stored.token == lease.token:
                os.unlink(path)

    def refuse(self, place: Place, held: Lease | None) -> None:
        """Compare the lease of a writer with the one that is stored; for a caller who has the lock.

        Raises:
            CheckpointLeasedError: Another's is in force, or the writer's own passed on.
            CorruptCheckpointError: There is something else than a file under that name.
            UnknownVersionError: A newer version wrote it.
            OSError: It could not be read.
        """
        stored = _read(self._path(place), place)
        if stored is not None:
            refuse_leased(place.checkpoint_id, held=held, stored=stored.as_of_now())

    def remove(self, place: Place) -> None:
        """Remove the record, whosever it is; for a caller who has the lock.

        Raises:
            OSError: It could not be removed.
        """
        with suppress(FileNotFoundError):
            os.unlink(self._path(place))

    def remove_alone(self, place: Place) -> None:
        """Remove a record beside which there is no journal, since nothing was committed under it.

        Raises:
            StorageError: The operating system refused.
        """
        doing = "deleting the lease"
        if self._is_there(place, doing):
            with self._locked(place, doing):
                if not is_there(place.path):
                    self.remove(place)

    def _path(self, place: Place) -> Path:
        return self._folder / lease_name(place.checkpoint_id)

    def _is_there(self, place: Place, doing: str) -> bool:
        """Look without the lock: without a lease not even a lock file is made."""
        with reported(doing, str(place)):
            return is_there(self._path(place))

    @contextmanager
    def _locked(self, place: Place, doing: str) -> Iterator[Path]:
        with reported(doing, str(place)), holding(self._folder, place.stripe):
            yield self._path(place)

    def _write(self, path: Path, place: Place, record: LeaseRecord) -> None:
        stored = _Stored(_VERSION, place.checkpoint_id, record.token, record.expires, record.seconds)
        temporary = self._folder / temporary_name(place.stripe, token())
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(temporary, flags, 0o600)
        try:
            try:
                self._disk.write_all(descriptor, msgspec.json.encode(stored) + b"\n", 0)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):  # a leftover is never read, and swept by a later writer
                os.unlink(temporary)
            raise


def _read(path: Path, place: Place) -> LeaseRecord | None:
    """Return the lease at `path`; None where there is none, or nothing that is a lease of this checkpoint."""
    try:
        with open_journal(path, where=str(path)) as descriptor:
            data = read_at(descriptor, 0, _LONGEST)
    except FileNotFoundError:
        return None
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
        if version > _VERSION:
            raise UnknownVersionError(
                f"{path}: the lease of {place} is of version {version}, and this program reads up to {_VERSION}. "
                "Run it with the version of branchpoint that the others use."
            )
        found = msgspec.json.decode(data, type=_Stored)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if found.checkpoint_id != place.checkpoint_id:
        return None  # it was copied here
    return LeaseRecord(found.token, found.expires, found.seconds)
