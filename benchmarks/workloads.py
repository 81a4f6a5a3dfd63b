"""The workloads of the comparison with other engines, written the way a user of branchpoint would.

Each case builds its workflow untimed, times the run, and then reads back, through a storage of its own,
what the run should have stored. `CASES` has them by key: the workload, a colon, where it stores, and
after a dash what is different from the default. They assert nothing about time.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Never

from branchpoint import (
    Checkpoint,
    CheckpointStorage,
    Executor,
    FileCheckpointStorage,
    MemoryCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    append,
    handler,
)
from branchpoint.codec import Format

__all__ = ["CASES", "Case", "Data", "Done", "Task", "message", "small_state"]

ID = "x"
STEPS = 5  # of each execution in W6

Step = Callable[[int, WorkflowContext[int, int]], None]
OpenStorage = Callable[[str], CheckpointStorage | None]


@dataclass(frozen=True)
class Data:
    """What the workloads store: the state of a step, and a message."""

    small_state: Callable[[int], dict[str, Any]]
    message: Callable[[int], dict[str, Any]]


@dataclass(frozen=True)
class Task:
    """One run of one case: its size, an empty folder or the DSN of an empty database, and its data."""

    n: int
    folder: str
    data: Data


@dataclass
class Done:
    """What came of it; `result` must equal `expected`."""

    seconds: float
    result: Any
    expected: Any
    extra: dict[str, Any] = field(default_factory=dict)


Case = Callable[[Task], Awaitable[Done]]


def small_state(step: int) -> dict[str, Any]:
    """Ten keys of mixed small values."""
    return {
        "step": step,
        "user": "u-100001",
        "topic": "plan",
        "approved": False,
        "score": 0.5,
        "tags": ["a", "b", "c"],
        "limits": {"tokens": 4096, "turns": 12},
        "cursor": None,
        "note": "five words of plain text",
        "last_tool": "search",
    }


def message(number: int) -> dict[str, Any]:
    """One message of 500 bytes; two of them are alike only thousands apart."""
    start = number * 997 % (len(_TEXT) - 500)
    return {"who": "user" if number % 2 == 0 else "assistant", "text": _TEXT[start : start + 500]}


_TEXT = "".join(random.Random(7).choices("abcdefghijkl mnopqrst", k=200_000))


# Where a case keeps its checkpoints.


def _none(folder: str) -> None:
    return None


def _memory(folder: str) -> CheckpointStorage:
    return MemoryCheckpointStorage()


def _memory_msgpack(folder: str) -> CheckpointStorage:
    return _MsgpackInMemory()


class _MsgpackInMemory(MemoryCheckpointStorage):
    """Keeps MessagePack, which only files offer by an argument."""

    serialization_format: Format = "msgpack"


def _file(**options: Any) -> OpenStorage:
    return lambda folder: FileCheckpointStorage(folder, **options)


def _sqlite(**options: Any) -> OpenStorage:
    def opened(folder: str) -> CheckpointStorage:
        from branchpoint.storage.sqlite import SQLiteCheckpointStorage

        return SQLiteCheckpointStorage(Path(folder) / "checkpoints.db", **options)

    return opened


def _postgres(**options: Any) -> OpenStorage:
    """In a database, whose DSN is in the place of the folder."""

    def opened(dsn: str) -> CheckpointStorage:
        from branchpoint.storage.postgres import PostgresCheckpointStorage

        return PostgresCheckpointStorage(dsn, **options)

    return opened


async def _close(storage: CheckpointStorage | None) -> None:
    """Close it, untimed as the floor's; what it has beside its files is gone then."""
    if storage is not None:
        await storage.aclose()


async def _set_up(storage: CheckpointStorage | None) -> None:
    """Make the tables, untimed as those of the floor are."""
    setup = getattr(storage, "setup", None)
    if setup is not None:
        await setup()


# W1 to W4 and W7: two executors pass a number back and forth.


class Bounce(Executor):
    """Counts up to `limit`, passing the number to the other one."""

    def __init__(self, id: str, limit: int, step: Step | None) -> None:
        super().__init__(id=id)
        self.limit = limit
        self.step = step

    @handler
    async def on_number(self, n: int, ctx: WorkflowContext[int, int]) -> None:
        if self.step is not None:
            self.step(n, ctx)
        if n < self.limit:
            await ctx.send_message(n + 1)
        else:
            await ctx.yield_output(n)


def _write_state(data: Data) -> Step:
    def step(n: int, ctx: WorkflowContext[int, int]) -> None:
        ctx.set_state("data", data.small_state(n))

    return step


def _append(data: Data) -> Step:
    def step(n: int, ctx: WorkflowContext[int, int]) -> None:
        ctx.set_state("history", data.message(n))

    return step


def _get_and_set(data: Data) -> Step:
    def step(n: int, ctx: WorkflowContext[int, int]) -> None:
        history = ctx.get_state("history", [])
        history.append(data.message(n))
        ctx.set_state("history", history)

    return step


def ping_pong(limit: int, step: Step | None = None, *, reduced: bool = False) -> Workflow:
    """Two executors that count to `limit` together; with `reduced` the history has a reducer."""
    ping, pong = Bounce("ping", limit, step), Bounce("pong", limit, step)
    builder = WorkflowBuilder(name="bench", start_executor=ping, max_iterations=limit + 10)
    if reduced:
        builder.add_state("history", list[dict[str, Any]], reducer=append)
    return builder.add_edge(ping, pong).add_edge(pong, ping).build()


async def _bare(task: Task) -> Done:
    workflow = ping_pong(task.n)
    start = time.perf_counter()
    result = await workflow.run(1)
    return Done(time.perf_counter() - start, result.get_outputs(), [task.n])


def _state_each_step(storage: OpenStorage) -> Case:
    async def case(task: Task) -> Done:
        workflow = ping_pong(task.n, _write_state(task.data))
        checkpoint = workflow.create_checkpoint(ID, kept := storage(task.folder))
        await _set_up(kept)
        start = time.perf_counter()
        result = await workflow.run(1, checkpoint=checkpoint)
        seconds = time.perf_counter() - start
        shared, count = await _stored(checkpoint, kept)
        await _close(kept)
        # One snapshot for the input and one for each superstep.
        return Done(
            seconds,
            (result.get_outputs(), shared, count),
            ([task.n], {"data": task.data.small_state(task.n)}, task.n + 1),
        )

    return case


def _history(storage: OpenStorage, *, reduced: bool = True, left: int = 0) -> Case:
    """W4; with `left` the run stops when so many supersteps are left to do."""

    async def case(task: Task) -> Done:
        workflow = _growing(task.n + left, task.data, reduced)
        checkpoint = workflow.create_checkpoint(ID, kept := storage(task.folder))
        await _set_up(kept)
        before = _most_resident()
        start = time.perf_counter()
        result = await workflow.run(1, checkpoint=checkpoint, max_supersteps=task.n)
        seconds = time.perf_counter() - start
        memory = {"rss_before": before, "rss_run": _most_resident()}  # without what reading back takes
        shared, count = await _stored(checkpoint, kept)
        await _close(kept)
        return Done(
            seconds,
            (result.get_outputs(), _differing(shared, task.data, task.n), count),
            ([] if left else [task.n], [], task.n + 1),
            memory,
        )

    return case


def _growing(limit: int, data: Data, reduced: bool) -> Workflow:
    return ping_pong(limit, _append(data) if reduced else _get_and_set(data), reduced=reduced)


def _differing(shared: dict[str, Any], data: Data, count: int) -> list[int]:
    """Return the numbers of the messages that are not what they should be, missing or too many."""
    history = shared["history"]
    wrong = [n for n, kept in enumerate(history, 1) if n > count or kept != data.message(n)]
    return [*wrong, *range(len(history) + 1, count + 1)]


def _contents(folder: str) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


def _put_back(folder: str, contents: dict[Path, bytes]) -> None:
    for path, now in _contents(folder).items():
        if path not in contents:
            path.unlink()
        elif now != contents[path]:
            path.write_bytes(contents[path])


def _most_resident() -> int:
    """Return the most memory this process has had, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _one_more(storage: OpenStorage) -> Case:
    """W7; afterwards the folder is as it was, so that every round has the same to do."""

    async def case(task: Task) -> Done:
        before = _contents(task.folder)
        start = time.perf_counter()
        workflow = _growing(task.n + 1, task.data, True)
        built = time.perf_counter()
        kept = storage(task.folder)
        assert kept is not None
        checkpoint = await kept.load(ID)
        loaded = time.perf_counter()
        result = await workflow.run(checkpoint=checkpoint)
        ended = time.perf_counter()
        shared, count = await _stored(checkpoint, kept)
        await _close(kept)
        _put_back(task.folder, before)
        return Done(
            ended - start,
            (result.get_outputs(), _differing(shared, task.data, task.n + 1), count),
            ([task.n + 1], [], task.n + 2),
            {"build_seconds": built - start, "load_seconds": loaded - built},
        )

    return case


async def _stored(checkpoint: Checkpoint, storage: CheckpointStorage | None) -> tuple[Any, int]:
    """Return the shared state of the stored head, and how many snapshots there are."""
    if isinstance(storage, FileCheckpointStorage):
        opened = FileCheckpointStorage(storage.path, serialization_format=storage.serialization_format)
        checkpoint = await opened.load(ID)
    elif storage is not None:
        checkpoint = await storage.load(ID)
    return checkpoint.head_snapshot.state["workflow_state"]["shared"], len(checkpoint.snapshots)


# W5: a fan-out and a fan-in.


class Source(Executor):
    """Sends the number to every worker."""

    @handler
    async def on_number(self, n: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(n)


class Worker(Executor):
    """Sends twice its own number."""

    def __init__(self, id: str, value: int) -> None:
        super().__init__(id=id)
        self.value = value

    @handler
    async def on_number(self, n: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(self.value * 2)


class Total(Executor):
    """Yields the sum of all."""

    @handler
    async def on_numbers(self, numbers: list[int], ctx: WorkflowContext[Never, int]) -> None:
        await ctx.yield_output(sum(numbers))


def _fan(*, stored: bool) -> Case:
    async def case(task: Task) -> Done:
        source, total = Source(id="source"), Total(id="total")
        workers = [Worker(f"w{i}", i) for i in range(task.n)]
        begin = time.perf_counter()
        builder = WorkflowBuilder(name="bench", start_executor=source)
        workflow = builder.add_fan_out_edges(source, workers).add_fan_in_edges(workers, total).build()
        built = time.perf_counter() - begin
        checkpoint = workflow.create_checkpoint() if stored else None
        start = time.perf_counter()
        result = await workflow.run(1, checkpoint=checkpoint)
        seconds = time.perf_counter() - start
        count = 0 if checkpoint is None else len(checkpoint.snapshots)
        return Done(
            seconds,
            (result.get_outputs(), count),
            ([task.n * (task.n - 1)], 4 if stored else 0),
            {"build_seconds": built},
        )

    return case


# W6: many executions at once.


class Wait(Executor):
    """Waits for ten milliseconds, writes the state of its step, and passes the number on."""

    def __init__(self, id: str, data: Data) -> None:
        super().__init__(id=id)
        self.data = data

    @handler
    async def on_number(self, n: int, ctx: WorkflowContext[int, int]) -> None:
        await asyncio.sleep(0.01)
        ctx.set_state("data", self.data.small_state(n))
        if n < STEPS:
            await ctx.send_message(n + 1)
        else:
            await ctx.yield_output(n)


def _at_once(storage: OpenStorage) -> Case:
    async def case(task: Task) -> Done:
        steps = [Wait(f"s{i}", task.data) for i in range(STEPS)]
        workflow = WorkflowBuilder(name="bench", start_executor=steps[0]).add_chain(steps).build()
        kept = storage(task.folder)
        await _set_up(kept)
        checkpoints: list[Checkpoint] = []

        async def execution(number: int) -> int:
            checkpoint = workflow.create_checkpoint(f"run-{number}", kept)
            checkpoints.append(checkpoint)
            outputs = (await workflow.run(1, checkpoint=checkpoint)).get_outputs()
            return sum(outputs)

        start = time.perf_counter()
        done = sum(await asyncio.gather(*map(execution, range(task.n))))
        seconds = time.perf_counter() - start
        if kept is not None:
            checkpoints = [await kept.load(f"run-{number}") for number in range(task.n)]
        await _close(kept)
        heads = [each.head_snapshot.state["workflow_state"]["shared"]["data"]["step"] for each in checkpoints]
        stored = sum(len(each.snapshots) for each in checkpoints)
        return Done(seconds, (done, heads, stored), (task.n * STEPS, [STEPS] * task.n, task.n * (STEPS + 1)))

    return case


CASES: dict[str, Case] = {
    "W1": _bare,
    "W2": _state_each_step(_none),
    "W2:storage": _state_each_step(_memory),
    "W2:msgpack": _state_each_step(_memory_msgpack),
    "W4:file-getset": _history(_file(), reduced=False),
    "W5:none": _fan(stored=False),
    "W5:memory": _fan(stored=True),
    "W6:memory": _at_once(_none),
}
_FILES: dict[str, OpenStorage] = {"file": _file(), "file-msgpack": _file(serialization_format="msgpack")}
if "commit_thread" in inspect.signature(FileCheckpointStorage).parameters:
    _FILES["file-loop"] = _file(commit_thread=False)
_FILES |= {"sqlite": _sqlite(), "sqlite-loop": _sqlite(commit_thread=False)}
for _name, _storage in _FILES.items():
    CASES[f"W3:{_name}"] = _state_each_step(_storage)
    CASES[f"W4:{_name}"] = _history(_storage)
    CASES[f"W6:{_name}"] = _at_once(_storage)
    CASES[f"W7:{_name}:prepare"] = _history(_storage, left=1)
    CASES[f"W7:{_name}"] = _one_more(_storage)
CASES["W3:sqlite-msgpack"] = _state_each_step(_sqlite(serialization_format="msgpack"))
CASES["W4:sqlite-msgpack"] = _history(_sqlite(serialization_format="msgpack"))
CASES["W3:postgres"] = _state_each_step(_postgres())
CASES["W3:postgres-msgpack"] = _state_each_step(_postgres(serialization_format="msgpack"))
CASES["W6:postgres"] = _at_once(_postgres())
