"""The journals in one folder: what a file storage does, without an event loop around it.

Every operation opens the journal anew by its path, under the lock of its stripe, so it never acts
on a file that was replaced or removed in the meantime.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path

from branchpoint.checkpoint import (
    CheckpointInfo,
    CheckpointSnapshot,
    Header,
    Lease,
    StoredHead,
    check_id,
    refuse_stale,
)
from branchpoint.errors import (
    CheckpointNotFoundError,
    CorruptCheckpointError,
    DataError,
    InvalidCallError,
    StorageError,
)
from branchpoint.storage._disk import (
    Disk,
    is_there,
    make_folder,
    open_journal,
    reported,
    token,
)
from branchpoint.storage._formats import refuse_format
from branchpoint.storage._journal import Format
from branchpoint.storage._leases import Leases
from branchpoint.storage._lock import STRIPES, holding
from branchpoint.storage._names import SUFFIX, file_name, stripe, stripe_of_temporary, temporary_name
from branchpoint.storage._reading import (
    Journal,
    Place,
    Standing,
    parse_journal,
    read_bytes,
    read_end,
    read_id,
    read_on,
    read_whole,
)
from branchpoint.storage._records import Commit, commit_body, header_body
from branchpoint.storage._writing import append, promise, publish, replace, take_back

__all__ = ["Folder"]

_REMEMBERED = 1024


class Folder:
    """A folder of journals, one per checkpoint; safe to use from several threads and processes.

    Attributes:
        leases: Whether a commit is refused while another's lease is in force.
    """

    def __init__(self, path: Path, format: Format, disk: Disk, *, leases: bool = False) -> None:
        self.path = path
        self.leases = leases
        self._format: Format = format
        self._disk = disk
        self._lease_files = Leases(path, disk)
        self._seen: OrderedDict[str, Standing] = OrderedDict()
        self._guard = threading.Lock()
        self._places = lru_cache(_REMEMBERED)(self._find_place)
        self._anchored = False
        self._swept = False
        # Commits that were refused by the disk and may still be seen, by checkpoint id.
        self._failed: dict[str, str] = {}

    def commit(
        self,
        checkpoint_id: str,
        snapshot: CheckpointSnapshot,
        *,
        header: Callable[[], Header],
        generation: int,
        expected_head_snapshot_id: str | None,
        lease: Lease | None = None,
    ) -> None:
        """Append one record, or write the first journal of this checkpoint.

        Args:
            header: Gives the header, which only a first commit needs.
            lease: That of the writer.

        Raises:
            CheckpointConflictError: The expected head or the generation is stale, or another's lease is in
                force.
            DataError: What is stored cannot be read.
            StorageError: The operating system refused.
        """
        place = self._place(checkpoint_id)
        body = commit_body(snapshot.manifest, snapshot.new_parts, format=snapshot.format)
        refuse = partial(
            refuse_stale,
            place.checkpoint_id,
            expected_head_snapshot_id=expected_head_snapshot_id,
            generation=generation,
        )
        self._make_ready(place)
        self._take_back(place)
        with self._locked(place, "committing") as path:
            if not is_there(path):
                if self.leases:
                    self._lease_files.refuse(place, lease)
                refuse(stored=None)
                first = header()
                bodies = [header_body(first, format=snapshot.format), body]
                with self._unless_it_fails(place, snapshot.snapshot_id):
                    standing = publish(
                        self._disk,
                        path,
                        self._temporary(place),
                        bodies,
                        head=StoredHead(snapshot.snapshot_id, first.generation),
                        format=snapshot.format,
                    )
                self._remember(place, standing)
                return
            with open_journal(path, where=str(place), write=True) as descriptor:
                standing = self._verified(descriptor, place)
                # Ids sort by time, so one greater than all is new, and nothing needs to be searched.
                if snapshot.snapshot_id <= standing.newest and snapshot.snapshot_id in _lineage(
                    read_whole(descriptor, place)
                ):
                    promise(self._disk, descriptor, path, standing)  # an earlier reply was lost
                    return
                if self.leases:
                    self._lease_files.refuse(place, lease)
                refuse(stored=standing.head)
                _refuse_other_format(standing.preamble.format, snapshot.format, place)
                if standing.preamble.untouched and not standing.named:
                    # Who made the file may have died before its name was durable. What is added to it
                    # would be gone with the name, and a file that a prune replaced would be back.
                    self._disk.sync_folder(self.path)
                with self._unless_it_fails(place, snapshot.snapshot_id):
                    standing = append(self._disk, descriptor, standing, body, snapshot.snapshot_id)
                self._remember(place, standing)

    def prune(
        self,
        header: Header,
        *,
        keep: Sequence[str],
        parts: frozenset[str],
        expected_head_snapshot_id: str,
        lease: Lease | None = None,
    ) -> None:
        """Write a journal of what is kept and put it in the place of the old one.

        Raises:
            CheckpointConflictError: The head or the generation is stale, or another's lease is in force.
            DataError: What is stored cannot be read.
            StorageError: The operating system refused.
        """
        place = self._place(header.checkpoint_id)
        refuse = partial(
            refuse_stale,
            place.checkpoint_id,
            expected_head_snapshot_id=expected_head_snapshot_id,
            generation=header.generation - 1,
        )
        self._make_ready(place)
        self._take_back(place)
        with self._locked(place, "pruning") as path:
            if not is_there(path):
                refuse(stored=None)
                return
            with open_journal(path, where=str(place)) as descriptor:
                journal = read_whole(descriptor, place)
            if journal.header == header and _lineage(journal) == list(keep):
                self._disk.sync_folder(self.path)
                return  # an earlier reply was lost
            if self.leases:
                self._lease_files.refuse(place, lease)
            refuse(stored=journal.standing.head)
            format = journal.standing.preamble.format  # noqa: A001
            missing = parts - journal.parts.keys()
            if missing or not set(keep) <= set(_lineage(journal)):
                # The one operation that throws bytes away makes sure that it has what should stay.
                raise CorruptCheckpointError(
                    f"{place}: {len(missing)} parts or some snapshots that should stay are not in the journal. "
                    "Nothing was removed; load the checkpoint again before you prune it."
                )
            bodies = [header_body(header, format=format), *_kept(journal, set(keep), parts, format)]
            standing = replace(
                self._disk,
                path,
                self._temporary(place),
                bodies,
                last=len(bodies) - 1 - _skipped_at_the_end(journal),
                head=StoredHead(expected_head_snapshot_id, header.generation),
                newest=max(keep),
                format=format,
            )
            self._remember(place, standing)

    def load(self, checkpoint_id: str) -> Journal:
        """Read a whole journal.

        Raises:
            CheckpointNotFoundError: There is none.
            DataError: It is damaged, or of another version.
            InvalidCallError: It is of the other format.
            StorageError: The operating system refused.
        """
        place = self._place(checkpoint_id)
        self._take_back(place)
        with self._found(place, "reading") as path, open_journal(path, where=str(place)) as descriptor:
            data = read_bytes(descriptor, place)
        journal = parse_journal(data, place)  # the lock is free again
        _refuse_other_format(journal.standing.preamble.format, self._format, place)
        self._remember(place, journal.standing)
        return journal

    def load_head(self, checkpoint_id: str) -> StoredHead:
        """Read only the head and the generation.

        Raises:
            CheckpointNotFoundError: There is no journal.
            DataError: What was read is damaged, or of another version.
            StorageError: The operating system refused.
        """
        place = self._place(checkpoint_id)
        self._take_back(place)
        with self._found(place, "reading") as path, open_journal(path, where=str(place)) as descriptor:
            return (self._seen_on(descriptor, place) or read_end(descriptor, place).standing).head

    def delete(self, checkpoint_id: str) -> None:
        """Remove a journal, readable or not, so that a crash does not bring it back; and the lease beside it.

        Raises:
            StorageError: The operating system refused.
        """
        place = self._place(checkpoint_id)
        with suppress(CheckpointNotFoundError), self._found(place, "deleting", shared=False) as path:
            os.unlink(path)
            self._lease_files.remove(place)
        self._lease_files.remove_alone(place)
        # Also when there is nothing: whoever removed it may have died before that was durable.
        with reported("deleting", str(place)), suppress(FileNotFoundError):
            self._disk.sync_folder(self.path)
        with self._guard:
            self._seen.pop(place.checkpoint_id, None)
            self._failed.pop(place.checkpoint_id, None)

    def describe(self) -> tuple[list[CheckpointInfo], list[DataError | StorageError]]:
        """Return a line for every checkpoint in the folder, and an error for every file that is not readable.

        Raises:
            StorageError: The folder could not be read.
        """
        lines: list[CheckpointInfo] = []
        unreadable: list[DataError | StorageError] = []
        with reported("listing", str(self.path)):
            try:
                names = sorted(name for name in os.listdir(self.path) if name.endswith(SUFFIX))
            except FileNotFoundError:
                return [], []
        for name in names:
            try:
                lines.append(self._describe(name))
            except CheckpointNotFoundError:
                continue  # deleted since the folder was listed
            except (DataError, StorageError) as error:
                unreadable.append(error)
        return lines, unreadable

    def _describe(self, name: str) -> CheckpointInfo:
        path = self.path / name
        with reported("listing", str(path)):
            try:
                with open_journal(path, where=str(path)) as descriptor:
                    place = self._place(read_id(descriptor, path))
            except FileNotFoundError as error:
                raise CheckpointNotFoundError(f"{path} is gone.") from error
            except InvalidCallError as error:
                raise CorruptCheckpointError(f"{path}: the id in this journal is none: {error}") from error
        if place.path != path:
            raise CorruptCheckpointError(f"{path} holds {place}: it was moved or copied; move it back.")
        with self._found(place, "listing") as found, open_journal(found, where=str(place)) as descriptor:
            journal = read_end(descriptor, place)
        return CheckpointInfo.of(journal.header, journal.commits[-1].manifest)

    # Leases.

    def take_lease(self, checkpoint_id: str, seconds: float) -> Lease:
        """Take the lease of a checkpoint that is stored here or not; see `Leases.take`."""
        place = self._place(checkpoint_id)
        self._make_ready(place)
        return self._lease_files.take(place, seconds)

    def renew_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """Let a lease last from now; see `Leases.renew`."""
        self._lease_files.renew(self._place(checkpoint_id), lease)

    def end_lease(self, checkpoint_id: str, lease: Lease) -> None:
        """Remove a lease; see `Leases.end`."""
        self._lease_files.end(self._place(checkpoint_id), lease)

    # Places and locks.

    def _place(self, checkpoint_id: str) -> Place:
        if type(checkpoint_id) is not str:
            check_id(checkpoint_id)
        return self._places(checkpoint_id)

    def _find_place(self, checkpoint_id: str) -> Place:
        name = file_name(checkpoint_id)
        return Place(checkpoint_id, self.path / name, stripe(checkpoint_id, STRIPES))

    def _temporary(self, place: Place) -> Path:
        return self.path / temporary_name(place.stripe, token())

    @contextmanager
    def _locked(self, place: Place, doing: str) -> Iterator[Path]:
        with reported(doing, str(place)), holding(self.path, place.stripe):
            yield place.path

    @contextmanager
    def _found(self, place: Place, doing: str, *, shared: bool = True) -> Iterator[Path]:
        """Hold the lock of a journal that exists; without one not even a lock file is made."""
        path = place.path
        with reported(doing, str(place)):
            try:
                os.lstat(path)
                with holding(self.path, place.stripe, shared=shared):
                    os.lstat(path)
                    yield path
            except FileNotFoundError as error:
                raise CheckpointNotFoundError(
                    f"No checkpoint {place.checkpoint_id!r} in {self.path}; "
                    "create it, or look where it was saved."
                ) from error

    def _make_ready(self, place: Place) -> None:
        if self._anchored and self._swept and os.path.isdir(self.path):
            return
        with reported("preparing the folder", str(place)):
            if not self._anchored or not self.path.is_dir():
                self._anchored = False
                make_folder(self.path, self._disk)
                self._anchored = True
            if not self._swept:
                self._swept = True
                with suppress(OSError):  # no commit fails for want of tidiness
                    self._sweep()

    def _sweep(self) -> None:
        # A writer holds its stripe's lock for as long as its temporary file exists. So a file whose
        # lock can be had belongs to a writer that died.
        for name in os.listdir(self.path):
            number = stripe_of_temporary(name)
            if number is not None and number < STRIPES:
                # What cannot be removed, a folder of that name for instance, is in nobody's way.
                with suppress(OSError), holding(self.path, number, wait=False) as alone:
                    if alone:
                        os.unlink(self.path / name)

    # Commits that failed.

    @contextmanager
    def _unless_it_fails(self, place: Place, snapshot_id: str) -> Iterator[None]:
        """Remember that a commit failed when it does: a disk that breaks may keep what it could not sync."""
        self._failed[place.checkpoint_id] = snapshot_id
        yield
        self._failed.pop(place.checkpoint_id, None)

    def _take_back(self, place: Place) -> None:
        """See to it that a commit that was reported as failed is not there, before anything else is done.

        A disk that breaks while a commit is synced may keep its record and refuse to cut it off. It could
        be read then, would pass for a commit whose reply was lost, and be gone after a power cut.
        """
        if place.checkpoint_id not in self._failed:
            return
        doing = "removing a commit that failed"
        with reported(doing, str(place)):
            if not is_there(place.path):
                return
        with self._locked(place, doing) as path:
            failed = self._failed.get(place.checkpoint_id)
            if failed is None or not is_there(path):
                return  # it was still under way, and has landed
            with open_journal(path, where=str(place), write=True) as descriptor:
                take_back(self._disk, descriptor, path, read_whole(descriptor, place), failed)
            self._failed.pop(place.checkpoint_id, None)

    # What was seen before.

    def _verified(self, descriptor: int, place: Place) -> Standing:
        return self._seen_on(descriptor, place) or read_whole(descriptor, place).standing

    def _seen_on(self, descriptor: int, place: Place) -> Standing | None:
        with self._guard:
            seen = self._seen.get(place.checkpoint_id)
        return None if seen is None else read_on(descriptor, place, seen)

    def _remember(self, place: Place, standing: Standing) -> None:
        with self._guard:
            self._seen[place.checkpoint_id] = standing
            self._seen.move_to_end(place.checkpoint_id)
            while len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)


def _lineage(journal: Journal) -> list[str]:
    return [commit.manifest.snapshot_id for commit in journal.commits]


def _skipped_at_the_end(journal: Journal) -> int:
    return next(n for n, one in enumerate(reversed(journal.records)) if isinstance(one, Commit))


def _kept(journal: Journal, keep: set[str], parts: frozenset[str], format: Format) -> Iterator[bytes]:
    """Yield the bodies that stay; a needed part of a dropped commit moves to the next one that stays."""
    moved: dict[str, bytes] = {}
    for one in journal.records:
        if not isinstance(one, Commit):
            yield one
            continue
        moved |= {name: part for name, part in one.parts.items() if name in parts}
        if one.manifest.snapshot_id in keep:
            yield commit_body(one.manifest, moved, format=format)
            moved = {}


def _refuse_other_format(stored: Format, given: Format, place: Place) -> None:
    refuse_format(stored, given, what=str(place), storage="FileCheckpointStorage")
