"""Journals made by hand, and what every reader must say of them.

A forgery is a real journal whose records were taken apart, changed and sealed again, so that only the
wanted thing is wrong with it.
"""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from branchpoint import codec
from branchpoint.checkpoint import Checkpoint, CheckpointSnapshot, Format
from branchpoint.errors import BranchpointError
from branchpoint.storage import FileCheckpointStorage, MemoryCheckpointStorage
from branchpoint.storage._journal import Slot, framed, new_preamble, sealed, whole_journal
from tests.journals import bodies_of, journal_of
from tests.storages import create, state

ID = "order-17"
LONGEST = 4_500
"""No message is longer, whatever it quotes: the bound of one text, and what is put in front of it."""


def wire(tree: Any, format: Format) -> bytes:
    """The bytes of a wire tree."""
    return msgspec.json.encode(tree) if format == "json" else msgspec.msgpack.encode(tree)


def unwire(data: bytes, format: Format) -> Any:
    """The wire tree of some bytes."""
    return msgspec.json.decode(data) if format == "json" else msgspec.msgpack.decode(data)


def storage_of(folder: Path, format: Format, **more: Any) -> FileCheckpointStorage:
    """A fresh storage on a folder, which has seen nothing of it."""
    return FileCheckpointStorage(folder, serialization_format=format, **more)


class Record:
    """One commit's record, taken apart: its manifest as a tree and its parts as bytes, by name."""

    def __init__(self, body: bytes, format: Format) -> None:
        decode = msgspec.json.decode if format == "json" else msgspec.msgpack.decode
        taken = decode(body, type=dict[str, msgspec.Raw])
        self.manifest: dict[str, Any] = unwire(bytes(taken["manifest"]), format)
        parts = decode(bytes(taken["parts"]), type=dict[str, msgspec.Raw])
        self.parts = {name: bytes(part) for name, part in parts.items()}

    def body(self, format: Format) -> bytes:
        parts = {name: msgspec.Raw(part) for name, part in self.parts.items()}
        return wire({"manifest": self.manifest, "parts": parts}, format)


class Forgery:
    """A journal taken apart: `header` and `records` may be changed, then it is written back sealed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.format, bodies = bodies_of(path)
        self.header: dict[str, Any] = unwire(bodies[0], self.format)["header"]
        self.records = [Record(body, self.format) for body in bodies[1:]]

    @property
    def head(self) -> Record:
        return self.records[-1]

    def bodies(self) -> list[bytes]:
        header = wire({"header": self.header}, self.format)
        return [header, *(record.body(self.format) for record in self.records)]

    def give_state(self, root: bytes, parts: Iterable[bytes] = ()) -> None:
        """Let the head's state be these bytes, over these parts."""
        self.head.parts = {codec.digest(part): part for part in (root, *parts)}
        self.head.manifest["root"] = codec.digest(root)

    def give_value(self, tree: Any, parts: Iterable[bytes] = ()) -> None:
        """Let the head's state hold a wire tree as the shared value `x`."""
        self.give_state(wire(state_with(tree), self.format), parts)

    def write(self, bodies: Iterable[bytes] | None = None) -> bytes:
        """Write it back, sealed as well as anybody could who knows the format."""
        data = whole_journal(list(self.bodies() if bodies is None else bodies), format=self.format)
        self.path.write_bytes(data)
        return data

    def write_with_slot(self, slot: Slot) -> bytes:
        """Write it back with both slots saying something else."""
        made = sealed(self.bodies(), format=self.format)
        rest = (framed(record, format=self.format) for record in made)
        data = b"".join((new_preamble(self.format, slot), *rest))
        self.path.write_bytes(data)
        return data


async def forgery(folder: Path, format: Format, checkpoint_id: str = ID, commits: int = 3) -> Forgery:
    """Take apart a new journal of some commits."""
    checkpoint = create(storage_of(folder, format), checkpoint_id)
    for n in range(commits):
        # Values of some length, so that there are parts to damage.
        await checkpoint.commit_snapshot(
            state(n, n=n, text="t" * 150 + str(n), items=[n, "i" * 200]), metadata={"n": n}
        )
    return Forgery(journal_of(folder, checkpoint_id))


def state_with(tree: Any) -> dict[str, Any]:
    """A state whose shared value `x` is a wire tree."""
    whole = state(1)
    whole["workflow_state"]["shared"] = {"x": tree}
    return whole


def check_told(error: BaseException, *names: str) -> None:
    """What an error says is bounded, shows every character it holds, and has these names in it.

    So do the errors that it came from, which a log shows as well; not those of a program's own decoders.
    """
    text = str(error)
    for name in names:
        assert name in text, f"{name!r} is not in {text!r}"
    seen: BaseException | None = error
    while seen is not None:
        for told in (str(seen), *getattr(seen, "__notes__", ())):
            assert told.isprintable(), f"{type(seen).__name__}: {told!r}"
            assert len(told) <= LONGEST, f"{type(seen).__name__} of {len(told)} characters: {told[:200]!r}"
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
        if not isinstance(
            seen, (BranchpointError, msgspec.MsgspecError, UnicodeError, OSError, RecursionError)
        ):
            return


async def refused(
    call: Callable[[], Any], error: type[BranchpointError] | tuple[type[BranchpointError], ...], *names: str
) -> BranchpointError:
    """Call something that must raise this error, and check what it says."""
    try:
        result = call()
        if inspect.isawaitable(result):
            result = await result
    except BranchpointError as caught:
        kinds = error if isinstance(error, tuple) else (error,)
        assert type(caught) in kinds, repr(caught)
        check_told(caught, *names)
        return caught
    raise AssertionError(f"it was taken: {str(result)[:200]}")


async def refused_everywhere(
    made: Forgery, error: type[BranchpointError] | tuple[type[BranchpointError], ...], *names: str
) -> None:
    """A journal is refused by `load` in every way, and whatever else is tried, it stays as it is."""
    before = made.path.read_bytes()
    folder = made.path.parent
    for lazy_over in (None, 0):
        storage = storage_of(folder, made.format, lazy_over=lazy_over)
        await refused(lambda: storage.load(ID), error, ID, *names)  # noqa: B023
    await tried(folder, made.format)
    assert made.path.read_bytes() == before


async def tried(folder: Path, format: Format) -> None:
    """Whatever else is asked about a damaged journal gets an answer or an error of ours; nothing is changed."""
    storage = storage_of(folder, format)
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: storage.load_head(ID),
        lambda: storage.load_parts(ID, ["A" * 22]),
        lambda: create(storage).commit_snapshot(state()),
    ]
    for call in calls:
        try:
            await call()
        except BranchpointError as error:
            check_told(error)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        await storage.list_checkpoints()
    for warning in told:
        assert str(warning.message).isprintable()
        assert len(str(warning.message)) <= LONGEST


async def all_reads(checkpoint: Checkpoint) -> list[BranchpointError]:
    """Read everything that a checkpoint shows; returns the errors of ours, and lets no other one through."""
    errors: list[BranchpointError] = []

    async def attempt(call: Callable[[], Any]) -> None:
        try:
            result = call()
            if inspect.isawaitable(result):
                await result
        except BranchpointError as error:
            check_told(error)
            errors.append(error)

    def stranger() -> None:
        checkpoint.verify_graph(workflow_name="other", graph_signature_hash="x", signature={})

    for snapshot in checkpoint.snapshots:
        await attempt(lambda: checkpoint.load_snapshot(snapshot.snapshot_id))  # noqa: B023
        for name in ("state", "metadata", "new_parts", "manifest"):
            await attempt(lambda: getattr(snapshot, name))  # noqa: B023
        await attempt(snapshot.plain_state)
        await attempt(lambda: CheckpointSnapshot.from_bytes(snapshot.to_bytes()))  # noqa: B023
        assert repr(snapshot).isprintable()
    await attempt(lambda: [repr((one, one.data, one.plain_data)) for one in checkpoint.pending_requests])
    await attempt(lambda: [repr((one, one.value, one.plain_value)) for one in checkpoint.outputs()])
    await attempt(lambda: checkpoint.outputs("no such input"))
    await attempt(checkpoint.events)
    await attempt(stranger)
    await attempt(lambda: checkpoint.fork(checkpoint_storage=MemoryCheckpointStorage()))
    return errors


def run(awaitable: Awaitable[Any]) -> Any:
    """Run something to its end, for tests that are not async."""

    async def awaited() -> Any:
        return await awaitable

    return asyncio.run(awaited())


def laughing(format: Format, shape: str, levels: int, leaf: Any, width: int = 2) -> tuple[Any, list[bytes]]:
    """A tree whose parts mention the next one `width` times, and those parts: few bytes that stand for many."""
    data = wire(leaf, format)
    parts = []
    node: Any = leaf
    for _ in range(levels):
        parts.append(data)
        refs = [{"$p": codec.digest(data)}] * width
        shapes: Mapping[str, Any] = {
            "list": refs,
            "dict": {f"k{n}": ref for n, ref in enumerate(refs)},
            "$l": {"$l": refs},
            "$d": {"$d": refs},
        }
        node = shapes[shape]
        data = wire(node, format)
    return node, parts
