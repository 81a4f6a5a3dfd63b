"""Commits of many checkpoints that wait at the same moment, sent as one statement.

One that finds little under way goes alone and at once. Those that come meanwhile are sent together: one
round trip and one sync of the server's log for all. A group waits for nobody's lock, and it is never the
last word: who has not landed with it, for whatever reason, goes alone afterwards, and is told there why.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Commit", "Group", "columns"]

_AT_ONCE = 3
"""How many statements of a kind are under way before those that come are made to wait for each other."""

_ALONE = 2
"""How many of these may be such that wait for somebody's lock, and so keep those behind them waiting."""

_MEMBERS = 32
"""How many go together at most; the joins in their statement cost more and more from there on."""

_BYTES = 1 << 22


class Commit(NamedTuple):
    """What one commit hands to its statement.

    Attributes:
        expected: The head it goes on from; None for a first commit, which brings a header and labels.
    """

    leases: bool
    format: str
    checkpoint_id: str
    held: str | None
    snapshot_id: str
    manifest: bytes
    status: str
    generation: int
    expected: str | None
    header: bytes
    labels: Sequence[str]
    parts: Mapping[str, bytes]
    size: int

    @property
    def begins(self) -> bool:
        """Whether it is a first commit."""
        return self.expected is None

    def row(self) -> list[Any]:
        """Return the arguments of the statement for one commit."""
        return [
            *(self.leases, self.format, self.checkpoint_id, self.held, self.snapshot_id, self.manifest),
            *(self.status, self.size),
            *((self.generation, self.header) if self.expected is None else (self.expected, self.generation)),
            *(list(self.parts), *_places(self.parts.values())),
            *([list(self.labels)] if self.expected is None else []),
        ]


class _Member:
    __slots__ = ("commit", "turn")

    def __init__(self, commit: Commit) -> None:
        self.commit = commit
        # Whether it has landed; None when it is its turn to send itself and those behind it.
        self.turn: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()


class Group:
    """The commits of one kind in one event loop."""

    def __init__(self) -> None:
        self._under_way = self._alone = 0
        self._waiting: list[_Member] = []

    async def join(
        self,
        commit: Commit,
        *,
        alone: Callable[[Commit], Awaitable[bool]],
        together: Callable[[Sequence[Commit]], Awaitable[set[str]]],
    ) -> bool:
        """Send a commit, alone or with others, and say whether it has landed.

        Args:
            alone: Sends one; what it raises is raised here.
            together: Sends several to different checkpoints, and returns the ids of those that have landed.
        """
        if commit.begins and commit.leases:
            return await alone(commit)  # the statement for several does not look at leases
        if self._under_way >= _AT_ONCE:
            member = _Member(commit)
            self._waiting.append(member)
            landed = await self._turn_of(member)
            if landed is not None:
                return landed or await alone(commit)
        else:
            self._under_way += 1
        try:
            others = self._take(commit)
            if not others and self._alone < _ALONE:
                self._alone += 1
                try:
                    return await alone(commit)
                finally:
                    self._alone -= 1
            landed = commit.checkpoint_id in await self._sent(commit, others, together)
        finally:
            self._pass_on()
        # Only now, when the next ones are on their way: alone it may have to wait for somebody's lock.
        return landed or await alone(commit)

    async def _turn_of(self, member: _Member) -> bool | None:
        try:
            return await member.turn
        except asyncio.CancelledError:
            if member in self._waiting:
                self._waiting.remove(member)
            elif member.turn.done() and not member.turn.cancelled() and member.turn.result() is None:
                self._pass_on()  # it was given the turn in the same moment
            raise

    def _take(self, first: Commit) -> list[_Member]:
        """Take those out of the queue that go with the first one: each for another checkpoint, not too much."""
        ids, size, taken = {first.checkpoint_id}, first.size, list[_Member]()
        for member in self._waiting:
            if len(ids) == _MEMBERS or size > _BYTES:
                break
            if member.commit.checkpoint_id not in ids and member.commit.size + size <= _BYTES:
                ids.add(member.commit.checkpoint_id)
                size += member.commit.size
                taken.append(member)
        if taken:
            gone = set(map(id, taken))
            self._waiting = [member for member in self._waiting if id(member) not in gone]
        return taken

    async def _sent(
        self,
        first: Commit,
        others: Sequence[_Member],
        together: Callable[[Sequence[Commit]], Awaitable[set[str]]],
    ) -> set[str]:
        landed: set[str] = set()
        try:
            landed = await together([first, *(member.commit for member in others)])
        except Exception:
            pass  # each of them finds out alone what it was, and whether it has landed all the same
        finally:
            for member in others:
                if not member.turn.done():
                    member.turn.set_result(member.commit.checkpoint_id in landed)
        return landed

    def _pass_on(self) -> None:
        while self._waiting:
            member = self._waiting.pop(0)
            if not member.turn.done():
                member.turn.set_result(None)
                return
        self._under_way -= 1


def columns(commits: Sequence[Commit]) -> list[Any]:
    """Return the arguments of the statement for several commits: columns of texts, and all bytes in one piece."""
    names = [(str(n), name) for n, commit in enumerate(commits, start=1) for name in commit.parts]
    manifests = [commit.manifest for commit in commits]
    starts, sizes, piece = _places([*manifests, *(part for one in commits for part in one.parts.values())])
    many, first = len(commits), commits[0]
    found = [
        *(first.leases, first.format),
        [commit.checkpoint_id for commit in commits],
        [commit.held for commit in commits],
        [commit.snapshot_id for commit in commits],
        *(starts[:many], sizes[:many]),
        [commit.status for commit in commits],
        [str(commit.size) for commit in commits],
        [str(commit.generation) for commit in commits],
        [commit.expected or b64encode(commit.header).decode() for commit in commits],
        *([n for n, _ in names], [name for _, name in names], starts[many:], sizes[many:], piece),
    ]
    if first.begins:
        labels = [(str(n), label) for n, commit in enumerate(commits, start=1) for label in commit.labels]
        found += [[n for n, _ in labels], [label for _, label in labels]]
    return found


def _places(pieces: Collection[bytes]) -> tuple[list[str], list[str], bytes]:
    """Return where each piece begins, counted from 1, how long it is, and all of them in one."""
    starts, at = [], 1
    for piece in pieces:
        starts.append(str(at))
        at += len(piece)
    return starts, [str(len(piece)) for piece in pieces], b"".join(pieces)
