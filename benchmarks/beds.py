"""Executions that have grown in one way each, ready to take some more supersteps.

Every bed can go back to the snapshot at which it was ready, so each measurement starts from the same
state, on a branch of its own. What it writes has the number of the measurement in it: what another
branch has already would not be stored again.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from workloads import message

from branchpoint import (
    Checkpoint,
    Executor,
    FileCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    append,
    handler,
    state,
)

__all__ = ["DIMENSIONS", "ENDLESS", "Bed", "Dimension", "Measured", "Reading"]

ENDLESS = 10_000_000
Context = WorkflowContext[int, int]


@dataclass(frozen=True)
class Reading:
    """What one superstep cost, as a mean over some."""

    seconds: float
    bytes: float


class Meter:
    """Reads clock and disk at the first and the last of a number of ticks, and counts them.

    Attributes:
        turn: The number of the measurement; 0 while the bed is made.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self.turn = -1
        self.set(0, 0)

    def set(self, first: int, last: int) -> None:
        """Count from nought again, and read at these two ticks."""
        self.turn += 1
        self.ticks, self._first, self._last = 0, first, last
        self._began = self._ended = 0.0
        self._bytes = 0

    def __call__(self) -> None:
        self.ticks += 1
        if self.ticks == self._first:
            self._bytes -= self._stored()
            self._began = time.perf_counter()
        elif self.ticks == self._last:
            self._ended = time.perf_counter()
            self._bytes += self._stored()

    def reading(self) -> Reading:
        """Return the means between the two ticks."""
        between = self._last - self._first
        return Reading((self._ended - self._began) / between, self._bytes / between)

    def _stored(self) -> int:
        if self._folder is None:
            return 0
        return sum(path.stat().st_size for path in self._folder.glob("*.journal"))


Check = Callable[[dict[str, Any], int], bool]


@dataclass
class Bed:
    """An execution that is ready at one snapshot.

    Attributes:
        supersteps: How many there are between two ticks.
        check: Whether a state is right after so many ticks since the bed was ready.
    """

    workflow: Workflow
    checkpoint: Checkpoint
    meter: Meter
    folder: Path | None
    ready: str
    supersteps: int
    check: Check
    ticks: int = 0

    async def measure(self, warm: int, ticks: int) -> Reading:
        """Go back to where it was ready, let it warm up, and read what the next supersteps cost."""
        self.ticks = warm + ticks
        self.meter.set(warm, self.ticks)
        self.checkpoint.restart_from(self.ready)
        await self.workflow.run(checkpoint=self.checkpoint, max_supersteps=self.ticks * self.supersteps)
        assert self.meter.ticks == self.ticks, f"{self.meter.ticks} ticks in place of {self.ticks}"
        return self.meter.reading()

    async def is_right(self) -> bool:
        """Say whether the head, as storage has it, is what the last measurement should have left."""
        stored = self.checkpoint
        if self.folder is not None:
            stored = await FileCheckpointStorage(self.folder).load(self.checkpoint.checkpoint_id)
        return self.check(stored.head_snapshot.state, self.ticks)


class Measured(Protocol):
    """What has grown, and can be measured again and again."""

    async def measure(self, warm: int, ticks: int) -> Reading:
        """Return what a superstep costs now."""
        ...

    async def is_right(self) -> bool:
        """Say whether storage has what the last measurement should have left."""
        ...


@dataclass(frozen=True)
class Dimension:
    """One way to grow.

    Attributes:
        name: What there is more and more of.
        sizes: How much of it; measured against `base`.
        make: Makes the bed of a size, in a folder or in memory.
        per: What a reading is divided by, for a size.
        ticks: How many ticks a measurement takes.
        places: Where it is measured; only in memory there is no folder.
    """

    name: str
    sizes: tuple[int, ...]
    base: int
    make: Callable[[int, Path | None], Awaitable[Measured]]
    per: Callable[[int], int] = lambda size: 1
    ticks: int = 30
    places: tuple[str, ...] = ("memory", "file")


# The executors of the beds.


class Fill(Executor):
    """Does something once, then passes the number on."""

    def __init__(self, id: str, fill: Callable[[Context], None]) -> None:
        super().__init__(id=id)
        self.fill = fill

    @handler
    async def on_number(self, n: int, ctx: WorkflowContext[int]) -> None:
        self.fill(ctx)
        await ctx.send_message(n)


class Bounce(Executor):
    """Ticks, does something, and passes the number to the other one."""

    def __init__(self, id: str, meter: Meter, step: Callable[[int, Context], None]) -> None:
        super().__init__(id=id)
        self.meter = meter
        self.step = step

    @handler
    async def on_number(self, n: int, ctx: WorkflowContext[int]) -> None:
        self.meter()
        self.step(n, ctx)
        await ctx.send_message(n + 1)


class Cell(Executor):
    """Has a small state, which a number changes; a text prepares it."""

    count: int = state(0)
    turn: int = state(0)
    tags: list[str] = state(factory=list)

    def __init__(self, id: str, meter: Meter, *, first: bool) -> None:
        super().__init__(id=id)
        self.meter = meter
        self.first = first

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[int]) -> None:
        self.tags = ["prepared", text, self.id]
        if self.first:
            await ctx.send_message(1)

    @handler
    async def on_number(self, n: int, ctx: WorkflowContext[int]) -> None:
        self.meter()
        self.count += n
        self.turn = self.meter.turn
        await ctx.send_message(1)


class Spread(Executor):
    """Ticks, and sends the number to every worker."""

    def __init__(self, id: str, meter: Meter) -> None:
        super().__init__(id=id)
        self.meter = meter

    @handler
    async def on_number(self, n: int, ctx: WorkflowContext[int]) -> None:
        self.meter()
        ctx.set_state("rounds", [self.meter.turn, n])
        await ctx.send_message(n)


class Worker(Executor):
    """Passes the number on."""

    @handler
    async def on_number(self, n: int, ctx: WorkflowContext[int]) -> None:
        await ctx.send_message(n)


class Gather(Executor):
    """Notes how many numbers came together, and begins the next round."""

    @handler
    async def on_numbers(self, numbers: list[int], ctx: WorkflowContext[int]) -> None:
        ctx.set_state("gathered", len(numbers))
        await ctx.send_message(numbers[0] + 1)

    @handler
    async def on_number(self, number: int, ctx: WorkflowContext[int]) -> None:
        await self.on_numbers([number], ctx)


# Making beds.


async def _bed(
    workflow: Workflow,
    meter: Meter,
    folder: Path | None,
    check: Check,
    *,
    message: Any = 1,
    first: int = 1,
    supersteps: int = 1,
) -> Bed:
    """Run the first supersteps, after which the bed is ready."""
    storage = None if folder is None else FileCheckpointStorage(folder)
    checkpoint = workflow.create_checkpoint("bed", storage)
    await workflow.run(message, checkpoint=checkpoint, max_supersteps=first)
    ready = checkpoint.head_snapshot_id
    assert ready is not None
    return Bed(workflow, checkpoint, meter, folder, ready, supersteps, check)


def _pair(
    meter: Meter, fill: Callable[[Context], None], step: Callable[[int, Context], None]
) -> WorkflowBuilder:
    """`fill` once, and then two executors that pass a number back and forth."""
    start, ping, pong = Fill("fill", fill), Bounce("ping", meter, step), Bounce("pong", meter, step)
    builder = WorkflowBuilder(name="bed", start_executor=start, max_iterations=ENDLESS)
    return builder.add_edge(start, ping).add_edge(ping, pong).add_edge(pong, ping)


def _shared(found: dict[str, Any]) -> dict[str, Any]:
    shared: dict[str, Any] = found["workflow_state"]["shared"]
    return shared


async def _history(size: int, folder: Path | None) -> Bed:
    """A history of messages, to which each superstep appends one."""
    first = [message(-n) for n in range(size)]

    def fill(ctx: Context) -> None:
        ctx.update_state("history", lambda nothing: first)

    meter = Meter(folder)

    def one(n: int) -> dict[str, Any]:
        return message(meter.turn * 1000 + n)

    def step(n: int, ctx: Context) -> None:
        ctx.set_state("history", one(n))

    def check(found: dict[str, Any], ticks: int) -> bool:
        return bool(_shared(found)["history"] == [*first, *(one(n + 1) for n in range(ticks))])

    builder = _pair(meter, fill, step).add_state("history", list[dict[str, Any]], reducer=append)
    return await _bed(builder.build(), meter, folder, check)


async def _keys(size: int, folder: Path | None) -> Bed:
    """Keys of the shared state, of which each superstep writes one."""

    meter = Meter(folder)

    def value(n: int, turn: int = 0) -> dict[str, Any]:
        return {"number": n, "text": f"the value of number {n}", "tags": ["a", "b"], "turn": turn}

    def fill(ctx: Context) -> None:
        for key in range(size):
            ctx.set_state(f"key-{key}", value(-key))

    def step(n: int, ctx: Context) -> None:
        ctx.set_state(f"key-{n % size}", value(n, meter.turn))

    def check(found: dict[str, Any], ticks: int) -> bool:
        expected = {f"key-{key}": value(-key) for key in range(size)}
        expected |= {f"key-{n % size}": value(n, meter.turn) for n in range(1, ticks + 1)}
        return _shared(found) == expected

    return await _bed(_pair(meter, fill, step).build(), meter, folder, check)


def _executors(*, ring: bool) -> Callable[[int, Path | None], Awaitable[Bed]]:
    """Executors with small states, of which one runs in each superstep: the same one, or the next."""

    async def make(size: int, folder: Path | None) -> Bed:
        meter = Meter(folder)
        start = _Start(id="start")
        cells = [Cell(f"cell-{n}", meter, first=n == 0) for n in range(size)]
        builder = WorkflowBuilder(name="bed", start_executor=start, max_iterations=ENDLESS)
        if size == 1:
            builder.add_edge(start, cells[0])
        else:
            builder.add_fan_out_edges(start, cells)
        for n, cell in enumerate(cells):
            builder.add_edge(cell, cells[(n + 1) % size if ring else n])

        def check(found: dict[str, Any], ticks: int) -> bool:
            states = found["executor_states"]
            counts = [states[cell.id].get("count", 0) for cell in cells]
            # The first cell, which begins, sends to the next one; or to itself.
            ran = [tick % size if ring else 0 for tick in range(1, ticks + 1)]
            expected = [ran.count(n) for n in range(size)]
            turns = {states[f"cell-{n}"]["turn"] for n in ran}
            tags = all(states[cell.id]["tags"][2] == cell.id for cell in cells)
            return counts == expected and turns == {meter.turn} and tags

        return await _bed(builder.build(), meter, folder, check, message="go", first=2)

    return make


class _Start(Executor):
    """Passes the text on."""

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str]) -> None:
        await ctx.send_message(text)


async def _fan_out(size: int, folder: Path | None) -> Bed:
    """A fan-out to workers and a fan-in, again and again; three supersteps each time."""
    meter = Meter(folder)
    spread, gather = Spread("spread", meter), Gather(id="gather")
    workers = [Worker(id=f"worker-{n}") for n in range(size)]
    builder = WorkflowBuilder(name="bed", start_executor=spread, max_iterations=ENDLESS)
    if size == 1:
        builder.add_edge(spread, workers[0]).add_edge(workers[0], gather)
    else:
        builder.add_fan_out_edges(spread, workers).add_fan_in_edges(workers, gather)

    def check(found: dict[str, Any], ticks: int) -> bool:
        return _shared(found) == {"rounds": [meter.turn, ticks], "gathered": size}

    workflow = builder.add_edge(gather, spread).build()
    return await _bed(workflow, meter, folder, check, first=0, supersteps=3)


async def _snapshots(size: int, folder: Path | None) -> Bed:
    """Snapshots of a small state in one checkpoint, on one branch."""
    bed = await _small(size - 1, folder)
    assert len(bed.checkpoint.snapshots) == size + 1
    return bed


async def _branches(size: int, folder: Path | None) -> Bed:
    """Branches of one superstep each, out of one snapshot."""
    bed = await _small(5, folder)
    for _ in range(size - 1):
        bed.checkpoint.restart_from(bed.ready)
        bed.meter.set(0, 0)  # each of them writes something of its own
        await bed.workflow.run(checkpoint=bed.checkpoint, max_supersteps=1)
    return bed


async def _small(steps: int, folder: Path | None) -> Bed:
    meter = Meter(folder)

    def step(n: int, ctx: Context) -> None:
        ctx.set_state("data", {"number": n, "turn": meter.turn, "tags": ["a", "b", "c"]})

    def check(found: dict[str, Any], ticks: int) -> bool:
        expected = {"number": steps + ticks, "turn": meter.turn, "tags": ["a", "b", "c"]}
        return bool(_shared(found)["data"] == expected)

    workflow = _pair(meter, lambda ctx: None, step).build()
    return await _bed(workflow, meter, folder, check, first=steps + 1)


DIMENSIONS: tuple[Dimension, ...] = (
    Dimension("messages in a history, one appended", (0, 1_000, 10_000), 0, _history),
    Dimension("executors with state, the same one runs", (1, 10, 100, 1_000), 10, _executors(ring=False)),
    Dimension("executors with state, the next one runs", (1, 10, 100, 1_000), 10, _executors(ring=True)),
    Dimension("keys of shared state, one written", (10, 1_000), 10, _keys),
    Dimension("workers of a fan-out, cost of each", (1, 10, 100, 1_000), 1, _fan_out, lambda n: n, 6),
    Dimension("snapshots in the checkpoint", (10, 1_000, 10_000), 10, _snapshots),
    Dimension("branches in the checkpoint", (1, 100), 1, _branches),
)
