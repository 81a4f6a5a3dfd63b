"""What the scenarios share: executors, counters outside of any workflow, storages and processes.

The words are those of the cases: `chain(a, b, c)` is a row of executors, `fan(src, [b, c], j)` fans
out and joins, `Ask` asks the outside world and passes the answer on, `BoomOnce` raises on its first
entry alone, and `ticks[x]` says how often the handler of `x` was entered.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from branchpoint import (
    Checkpoint,
    CheckpointSnapshot,
    CheckpointStorage,
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)
from branchpoint.checkpoint import Lease, StoredHead
from tests.storages import SCENARIOS, opener

ROOT = Path(__file__).resolve().parents[2]


class Boom(Exception):
    """What a failing executor raises."""


class Outside:
    """Belongs to the test and to no workflow: `picture` tells it by identity."""


class Ticks(Outside):
    """How often something happened, counted outside of every workflow.

    With a file the count spans processes and survives their death.
    """

    def __init__(self, file: str | os.PathLike[str] | None = None) -> None:
        self.file = None if file is None else Path(file)
        self._counted: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, name: str) -> int:
        """Count one more, and return how many that makes."""
        with self._lock:
            if self.file is None:
                self._counted[name] += 1
            else:
                with self.file.open("a", encoding="utf-8") as lines:
                    lines.write(name + "\n")
        return self[name]

    def __getitem__(self, name: str) -> int:
        return self.all()[name]

    def clear(self, name: str) -> None:
        """Forget what was counted under a name, in this process."""
        assert self.file is None
        del self._counted[name]

    def all(self) -> Counter[str]:
        """Return every count, as a value of its own."""
        if self.file is None:
            return Counter(self._counted)
        if not self.file.exists():
            return Counter()
        return Counter(self.file.read_text(encoding="utf-8").split())


class Step(Executor):
    """Adds `>id` to a text and sends it on; with `final` it yields it."""

    def __init__(self, id: str, ticks: Ticks | None = None, *, final: bool = False) -> None:
        super().__init__(id=id)
        self.ticks = ticks or Ticks()
        self.final = final

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.ticks(self.id)
        await self.done(f"{text}>{self.id}", ctx)

    async def done(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        if self.final:
            await ctx.yield_output(text)
        else:
            await ctx.send_message(text)


class BoomOnce(Step):
    """A step that raises `Boom` on its first entry alone, as its ticks count it."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        if self.ticks(self.id) == 1:
            raise Boom(f"{self.id} got {text}")
        await self.done(f"{text}>{self.id}", ctx)


class Join(Executor):
    """Joins texts and yields them as one list."""

    def __init__(self, id: str, ticks: Ticks | None = None) -> None:
        super().__init__(id=id)
        self.ticks = ticks or Ticks()

    @handler
    async def on_texts(self, texts: list[str], ctx: WorkflowContext[str, list[str]]) -> None:
        self.ticks(self.id)
        await ctx.yield_output(texts)


class Ask(Step):
    """Asks `id?text` for a text and passes `text>id=answer` on. Counts its answers as `id.answer`."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.ticks(self.id)
        await ctx.request_info(f"{self.id}?{text}", str)

    @response_handler
    async def on_answer(self, question: str, answer: str, ctx: WorkflowContext[str, str]) -> None:
        self.ticks(f"{self.id}.answer")
        await self.done(f"{question.partition('?')[2]}>{self.id}={answer}", ctx)


class Scripted(Step):
    """A step that does what the test gives it before it goes on: `await does(text, ctx)`."""

    def __init__(
        self, id: str, ticks: Ticks | None, does: Callable[[str, Any], Any], *, final: bool = False
    ) -> None:
        super().__init__(id, ticks, final=final)
        self.does = does

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.ticks(self.id)
        await self.does(text, ctx)
        await self.done(f"{text}>{self.id}", ctx)


def chain(*executors: Executor, name: str = "chain", **more: Any) -> Workflow:
    """A row of executors."""
    builder = WorkflowBuilder(name=name, start_executor=executors[0], **more)
    return (builder.add_chain(executors) if len(executors) > 1 else builder).build()


def fan(
    source: Executor, branches: Sequence[Executor], join: Executor, *, name: str = "fan", **more: Any
) -> Workflow:
    """`source` fans out to `branches`, and `join` is a fan-in of all of them."""
    builder = WorkflowBuilder(name=name, start_executor=source, **more)
    return builder.add_fan_out_edges(source, branches).add_fan_in_edges(branches, join).build()


# Where a checkpoint is kept.


@dataclass
class Place:
    """Where a scenario keeps its checkpoints: in memory alone, or in one of the storages.

    Attributes:
        kind: `none`, or the name of a backend.
        open: Makes another storage object on the same stored data, with options of its class; None for `none`.
    """

    kind: str
    open: Callable[..., CheckpointStorage | None]
    _held: dict[str, Checkpoint] = field(default_factory=dict)

    @property
    def is_stored(self) -> bool:
        return self.kind != "none"

    def create(self, workflow: Workflow, checkpoint_id: str = "run-1", **more: Any) -> Checkpoint:
        """Make a new checkpoint of a workflow here."""
        made = workflow.create_checkpoint(checkpoint_id, self.open(), **more)
        self._held[checkpoint_id] = made
        return made

    async def reload(self, checkpoint_id: str = "run-1") -> Checkpoint:
        """Return the checkpoint as storage has it; without storage, the one that was made."""
        storage = self.open()
        return self._held[checkpoint_id] if storage is None else await storage.load(checkpoint_id)


def place_of(kind: str, folder: Path) -> Place:
    """Return the place of that kind, under a folder."""
    return Place(kind, (lambda **_: None) if kind == "none" else opener(kind, folder))


every_place = pytest.mark.parametrize("place", ["none", *SCENARIOS], indirect=True)
"""Without storage, and with every storage of the scenarios in every format. The argument is a `Place`."""

every_storage = pytest.mark.parametrize("place", list(SCENARIOS), indirect=True)
"""With every storage of the scenarios in every format."""

every_file = pytest.mark.parametrize("place", [kind for kind in SCENARIOS if kind != "memory"], indirect=True)
"""With every storage of the scenarios that another process can open."""

every_backend = pytest.mark.parametrize(
    "place", [*SCENARIOS, "postgres-json", "cosmos-json", "encrypted-sqlite-json"], indirect=True
)
"""With the storages of the scenarios, those on servers, and one that encrypts.

Formats, and what encrypts the others, are told apart by the contract's own clauses.
"""


class Around(CheckpointStorage):
    """A storage in front of another, where a commit may wait, fail, or lose its reply.

    Attributes:
        before: Called with the number of the commit, from 1, before it is made; may be async.
        after: The same, once it is made.
        commits: How many commits were begun.
    """

    def __init__(
        self,
        inner: CheckpointStorage,
        *,
        before: Callable[[int], Any] | None = None,
        after: Callable[[int], Any] | None = None,
    ) -> None:
        self.inner = inner
        self.serialization_format = inner.serialization_format
        self.leases, self.lease_seconds = inner.leases, inner.lease_seconds
        self.before = before
        self.after = after
        self.commits = 0

    async def commit_snapshot(
        self,
        checkpoint: Checkpoint,
        snapshot: CheckpointSnapshot,
        *,
        expected_head_snapshot_id: str | None,
    ) -> None:
        self.commits += 1
        number = self.commits
        await _called(self.before, number)
        await self.inner.commit_snapshot(
            checkpoint, snapshot, expected_head_snapshot_id=expected_head_snapshot_id
        )
        await _called(self.after, number)

    async def load(self, checkpoint_id: str) -> Checkpoint:
        return await self.inner.load(checkpoint_id)

    async def load_head(self, checkpoint_id: str) -> StoredHead:
        return await self.inner.load_head(checkpoint_id)

    async def delete(self, checkpoint_id: str) -> None:
        await self.inner.delete(checkpoint_id)

    async def take_lease(self, checkpoint_id: str) -> Lease:
        return await self.inner.take_lease(checkpoint_id)

    async def renew_lease(self, checkpoint_id: str, lease: Lease) -> None:
        await self.inner.renew_lease(checkpoint_id, lease)

    async def end_lease(self, checkpoint_id: str, lease: Lease) -> None:
        await self.inner.end_lease(checkpoint_id, lease)


async def _called(hook: Callable[[int], Any] | None, number: int) -> None:
    result = None if hook is None else hook(number)
    if inspect.isawaitable(result):
        await result


# Timing without time.


class LoopTime(Outside):
    """The time of the running loop, put forward by the test in place of waiting for it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        real, self._ahead = loop.time, 0.0
        loop.time = lambda: real() + self._ahead  # type: ignore[method-assign]

    def forward(self, seconds: float) -> None:
        """Let so much time pass at once: whatever is due by then happens in the next turn of the loop."""
        self._ahead += seconds


class Shuffle:
    """Lets those who wait in `turn` go on in an order of its own, one for each that comes.

    Stands for sleeps of random length, without a clock: the same seed gives the same order.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._parked: list[asyncio.Future[None]] = []

    async def turn(self) -> None:
        loop = asyncio.get_running_loop()
        gate: asyncio.Future[None] = loop.create_future()
        self._parked.append(gate)
        # Two turns of the loop later, so that others who are about to come take part.
        loop.call_soon(loop.call_soon, self._release)
        await gate

    def _release(self) -> None:
        while self._parked:
            gate = self._parked.pop(self._random.randrange(len(self._parked)))
            if not gate.done():
                gate.set_result(None)
                return


async def turns(count: int = 20) -> None:
    """Let everything go on that can."""
    for _ in range(count):
        await asyncio.sleep(0)


# What a checkpoint holds.


def lineage(checkpoint: Checkpoint) -> list[tuple[str, str | None]]:
    """Ids and parents, in commit order."""
    return [(one.snapshot_id, one.parent_snapshot_id) for one in checkpoint.snapshots]


def boundaries(checkpoint: Checkpoint) -> list[str]:
    """Names of the boundaries, in commit order."""
    return [one.boundary for one in checkpoint.snapshots]


def bytes_of(checkpoint: Checkpoint) -> dict[str, bytes]:
    """Every snapshot whole, as bytes."""
    return {one.snapshot_id: one.to_bytes() for one in checkpoint.snapshots}


def shared(snapshot: CheckpointSnapshot | None) -> dict[str, Any]:
    """The user's keys of the shared state."""
    assert snapshot is not None
    found: dict[str, Any] = snapshot.state["workflow_state"]["shared"]
    return found


def pending(snapshot: CheckpointSnapshot | None) -> dict[str, Any]:
    """The bucket `messages.pending`."""
    assert snapshot is not None
    found: dict[str, Any] = snapshot.state["messages"]["pending"]
    return found


def only_request(checkpoint: Checkpoint) -> str:
    """The id of the one open request."""
    (request,) = checkpoint.pending_requests
    return request.request_id


def file_bytes(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, as bytes; a database as the rows that are in it, if there are any."""
    found = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    for path in [path for path, data in found.items() if data.startswith(b"SQLite format 3")]:
        for beside in ("-wal", "-shm", "-next", "-lock"):
            found.pop(path.with_name(path.name + beside), None)
        rows = _rows(path)
        if rows:
            found[path] = rows
        else:
            del found[path]
    return {str(path): data for path, data in found.items()}


def _rows(path: Path) -> bytes:
    db = sqlite3.connect(path)
    try:
        rows = (line for line in db.iterdump() if line.startswith("INSERT"))
        # Which numbers are taken is kept, so that none is used again.
        return "\n".join(line for line in rows if "sqlite_sequence" not in line).encode()
    finally:
        db.close()


# What a workflow is, to compare it before and after.


def picture(value: Any) -> Any:
    """Return everything reachable from a value as plain nested tuples, equal only if nothing changed.

    Functions, classes, what is `Outside` and objects without attributes are told by identity.
    """
    return _picture(value, {})


def _picture(value: Any, seen: dict[int, int]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return (type(value).__name__, value)
    if id(value) in seen:
        return ("seen", seen[id(value)])
    seen[id(value)] = len(seen)
    kind = (type(value).__qualname__, id(value))
    if isinstance(value, (type, types.ModuleType, Outside)):
        return kind
    if isinstance(value, (Mapping, types.MappingProxyType)):
        items: Any = [(_picture(key, seen), _picture(item, seen)) for key, item in value.items()]
    elif isinstance(value, (set, frozenset)):
        items = sorted((repr(item), id(item)) for item in value)
    elif isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
        items = [_picture(item, seen) for item in value]
    else:
        items = []
    names = dict(getattr(value, "__dict__", {}))
    for cls in type(value).__mro__:
        for name in cls.__dict__.get("__slots__", ()):
            if name not in ("__dict__", "__weakref__"):
                names[name] = getattr(value, name, None)
    held = [(name, _picture(item, seen)) for name, item in sorted(names.items())]
    if isinstance(value, types.FunctionType):
        held.append(("closure", [id(cell.cell_contents) for cell in value.__closure__ or ()]))
    return (*kind, tuple(items), tuple(held))


def workflow_picture(workflow: Workflow) -> Any:
    """Everything a workflow holds, with what its executors' classes hold."""
    classes = {type(executor) for executor in workflow.get_executors_list()}
    attributes = [
        (cls.__qualname__, name, id(value))
        for cls in sorted(classes, key=lambda cls: cls.__qualname__)
        for name, value in sorted(vars(cls).items())
    ]
    return picture(workflow), attributes, workflow.to_json(), workflow.graph_signature_hash


# Meeting a run under way.


async def reached(event: asyncio.Event, task: asyncio.Future[Any]) -> None:
    """Wait until a handler of the run in `task` has set `event`; raise what the run raised instead."""
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
    if not waiting.done():
        waiting.cancel()
        await task
        raise AssertionError("the run ended before it got there")


# Another process.


def in_new_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of a test module in a fresh interpreter and return its result.

    The function is at module level, plain or async. Arguments and result travel as JSON. The module is
    imported anew, so workflows, storages and registrations are rebuilt from nothing.
    """
    code = "from tests.scenario.kit import _child; _child()"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, function.__module__, function.__qualname__],
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"the other process failed:\n{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


class Talking:
    """A function of a test module in a fresh interpreter that one can talk with, and kill.

    The function calls `say(text)` to write a line and `listen()` to wait for one. Leaving the block
    kills what still runs.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        code = "from tests.scenario.kit import _talking_child; _talking_child()"
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code, function.__module__, function.__qualname__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        )
        self.tell(json.dumps(arguments))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.process.kill()
        self.process.communicate()

    def tell(self, line: str = "go") -> None:
        """Write a line that the function hears."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """Wait for the next line that the function says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the other process ended without a word"
        return line.rstrip("\n")

    def result(self) -> Any:
        """Wait for the end and return the function's result."""
        result = json.loads(self.hear())
        assert self.process.wait(60) == 0
        return result

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait until it is dead."""
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait(60) == -signal.SIGKILL


def say(line: str) -> None:
    """In a talking process: write a line."""
    print(line, flush=True)


def listen() -> str:
    """In a talking process: wait for a line; blocks the whole process."""
    return sys.stdin.readline().rstrip("\n")


def _talking_child() -> None:
    _call(json.loads(sys.stdin.readline()))


def _child() -> None:
    _call(json.load(sys.stdin))


def _call(arguments: list[Any]) -> None:
    module, name = sys.argv[1:]
    function = getattr(importlib.import_module(module), name)
    result = function(*arguments)
    if inspect.isawaitable(result):

        async def awaited() -> Any:
            return await result

        result = asyncio.run(awaited())
    print(json.dumps(result))
