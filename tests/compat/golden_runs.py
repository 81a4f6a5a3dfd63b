"""What the golden files hold: types, a workflow, and values, told once for writing and for reading.

The files of a released version are read for ever. So what stands here may be added to, and not
changed: the names of the executors' classes are in the signature of the graph, the ids of the types
are in the values.
"""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
import fractions
import pathlib
import uuid
import zoneinfo
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from branchpoint import (
    Checkpoint,
    CheckpointStorage,
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
    state,
)
from branchpoint.codec import isolated_registry, register_state_type

GOLDEN = Path(__file__).resolve().parent / "golden"


# Registered types.


class Grade(enum.Enum):
    GOOD = "good"
    POOR = "poor"


@dataclass
class Order:
    number: int
    lines: list[str] = field(default_factory=list)
    grade: Grade = Grade.GOOD


@dataclass(frozen=True)
class Price:
    """Of version 2; version 1 had no currency."""

    amount: decimal.Decimal
    currency: str


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Pair(NamedTuple):
    left: Any
    right: Any


@contextmanager
def registered() -> Iterator[None]:
    """A registry that knows the types of the golden files."""
    with isolated_registry():
        for cls in (Grade, Order, Point, Pair):
            register_state_type(cls, type_id=f"golden.{cls.__name__.lower()}")
        register_state_type(
            Price, type_id="golden.price", version=2, upgrades={1: lambda old: {**old, "currency": "EUR"}}
        )
        yield


# A workflow: an order goes to a price list and to a person, and both results meet.


class Intake(Executor):
    """Sends an order to everybody."""

    @handler
    async def on_order(self, order: Order, ctx: WorkflowContext[Order]) -> None:
        ctx.set_state("order", order.number)
        await ctx.send_message(order)


class Pricing(Executor):
    """Prices an order, and remembers which ones it priced."""

    priced: list[int] = state(factory=list)

    @handler
    async def on_order(self, order: Order, ctx: WorkflowContext[Price]) -> None:
        self.priced.append(order.number)
        await ctx.send_message(Price(decimal.Decimal("9.90") * len(order.lines), "EUR"))


class Approval(Executor):
    """Asks a person for a grade."""

    asked: int = state(default=0)

    @handler
    async def on_order(self, order: Order, ctx: WorkflowContext[Grade]) -> None:
        self.asked += 1
        await ctx.request_info(order, Grade)

    @response_handler
    async def on_grade(self, order: Order, grade: Grade, ctx: WorkflowContext[Grade]) -> None:
        await ctx.send_message(grade)


class Closing(Executor):
    """Puts price and grade together."""

    @handler
    async def on_results(self, results: list[Price | Grade], ctx: WorkflowContext[Order, Pair]) -> None:
        await ctx.yield_output(Pair(*results))


def orders() -> Workflow:
    """The workflow of the golden files."""
    intake, pricing, approval, closing = (
        Intake(id="intake"), Pricing(id="pricing"), Approval(id="approval"), Closing(id="closing"),
    )  # fmt: skip
    builder = WorkflowBuilder(name="golden orders", start_executor=intake)
    builder = builder.add_fan_out_edges(intake, [pricing, approval])
    return builder.add_fan_in_edges([pricing, approval], closing).build()


ORDER = Order(17, ["pen", "ink", "a long line: " + "paper " * 60], Grade.POOR)
PRICE = Price(decimal.Decimal("29.70"), "EUR")


# Every builtin kind of value, and values large enough to be cut.


def builtin_values() -> dict[str, Any]:
    """A value of each builtin kind, fresh each time."""
    utc, oslo = dt.UTC, zoneinfo.ZoneInfo("Europe/Oslo")
    odd = dt.timezone(dt.timedelta(hours=5, minutes=30, seconds=1, microseconds=7))
    return {
        "plain": [None, True, False, 0, -(2**63), 2**64 - 1, 1.5, -0.0, 1e300, "", "é \x00 \u2028 😀"],
        "list": [[], [1, [2, [3]]]],
        "dict": [{}, {"b": 1, "a": {"": 2}}, {1: "int", "1": "str", None: 0, (1, 2): []}],
        "like tags": [{"$": "tuple", "v": [1]}, {"$p": "A" * 22}, {"$l": []}, {"$d": [{}]}],
        "tuple": [(), (1, (2, [3]))],
        "set": [set(), {1, 2, "a", (3, 4)}, frozenset({frozenset(), b"x"})],
        "bytes": [b"", bytes(range(256)), bytearray(b"\xff\x00")],
        "int": [2**64, -(2**63) - 1, 10**60],
        "float": [float("nan"), float("inf"), float("-inf")],
        "complex": [1j, complex(-0.0, float("inf"))],
        "decimal": [decimal.Decimal("1.10"), decimal.Decimal("NaN"), decimal.Decimal("-1E+9")],
        "fraction": [fractions.Fraction(-1, 3)],
        "datetime": [
            dt.datetime(2024, 2, 29, 12, 30, 15, 123456),
            dt.datetime(2024, 2, 29, 12, 30, tzinfo=utc),
            dt.datetime(2024, 2, 29, 12, 30, tzinfo=odd),
            dt.datetime(2024, 10, 27, 2, 30, tzinfo=oslo),
            dt.datetime(2024, 10, 27, 2, 30, tzinfo=oslo, fold=1),
            dt.datetime(1, 1, 1, fold=1),
        ],
        "date": [dt.date(1, 1, 1), dt.date(9999, 12, 31)],
        "time": [dt.time(), dt.time(23, 59, 59, 999999, tzinfo=utc), dt.time(2, 30, fold=1)],
        "timedelta": [dt.timedelta(), dt.timedelta(days=-1, microseconds=1)],
        "timezone": [utc, odd, dt.timezone(dt.timedelta(hours=1), "one"), oslo],
        "uuid": [uuid.UUID(int=0x1234567890ABCDEF1234567890ABCDEF)],
        "path": [pathlib.PurePosixPath("/a/b"), pathlib.PureWindowsPath("C:\\a")],
        "deque": [collections.deque(), collections.deque([1, [2]], maxlen=2)],
        "ordered": [collections.OrderedDict(b=1, a=2), collections.Counter("aab")],
        "defaultdict": [collections.defaultdict(list, a=[1]), collections.defaultdict(None, {1: 2})],
        "range": [range(3), range(10, 0, -3), slice(1, None, 2)],
        "registered": [ORDER, Grade.GOOD, {Grade.POOR: 1}, PRICE, Point(1), Pair(Point(1, 2), [(3,)])],
    }


def large_values() -> dict[str, Any]:
    """Values over every limit of the rules by which a state is cut."""
    messages = [{"role": "user", "text": f"{n}: " + "word " * (n * 7 % 30)} for n in range(150)]
    return {
        "messages": messages,
        "numbers": list(range(400)),
        "equal": ["again and again"] * 300,
        "table": {f"key {n}": "x" * (n * 11 % 130) for n in range(70)},
        "pairs": {n: f"value {n} " * 3 for n in range(50)},
        "text": "a text is never cut. " * 60,
        "bytes": bytes(range(256)) * 5,
        "nested": {"rows": [[f"{row}.{column}" for column in range(12)] for row in range(25)]},
        "set": {f"item {n}" for n in range(120)},
        "deque": collections.deque((f"entry {n} " * 4 for n in range(40)), maxlen=40),
        "orders": [Order(n, [f"line {k}" for k in range(n % 5)]) for n in range(30)],
    }


def value_state(superstep: int, shared: dict[str, Any]) -> dict[str, Any]:
    """A complete state of a run that holds some values and has nothing to do."""
    return {
        "workflow_state": {
            "iteration_count": superstep,
            "status": "idle",
            "turn": 1,
            "shared": shared,
            "cursor": {"input_iteration": 0},
        },
        "executor_states": {},
        "edge_states": {},
        "messages": {
            "input": {"input_id": "in-1", "turn": 1, "kind": "message", "value": ORDER, "earlier": []},
            "pending": {"deliveries": [], "requests": {}},
            "output": [],
        },
    }


# The runs.

Writer = Callable[[CheckpointStorage], Any]


async def _paused(storage: CheckpointStorage, checkpoint_id: str = "paused") -> Checkpoint:
    """An order that waits for its grade; its price waits at the join."""
    workflow = orders()
    checkpoint = workflow.create_checkpoint(
        checkpoint_id, checkpoint_storage=storage, metadata={"tenant": "golden"}
    )
    await workflow.run(ORDER, checkpoint=checkpoint, input_id="order-17", metadata={"by": ["a", {"b": 1}]})
    return checkpoint


async def _branches(storage: CheckpointStorage) -> None:
    """One question, answered twice from the same snapshot, then given up from there, then a second root."""
    workflow, checkpoint = orders(), await _paused(storage, "branches")
    paused = checkpoint.head_snapshot
    assert paused is not None
    (request,) = checkpoint.pending_requests
    for grade in Grade:
        checkpoint.restart_from(paused.snapshot_id)
        await workflow.run(responses={request.request_id: grade}, checkpoint=checkpoint)
    checkpoint.restart_from(paused.snapshot_id)
    await checkpoint.abandon("nobody answered")
    checkpoint.restart_from(None)
    await workflow.run(Order(18), checkpoint=checkpoint)
    await checkpoint.fork(paused.snapshot_id, "fork")


async def _values(storage: CheckpointStorage) -> None:
    """Values of every builtin kind, then large ones, then a change of each large list."""
    checkpoint = orders().create_checkpoint("values", checkpoint_storage=storage)
    large = large_values()
    await checkpoint.commit_snapshot(value_state(1, builtin_values()))
    await checkpoint.commit_snapshot(value_state(2, large), {"note": "large"})
    large["messages"] = [*large["messages"][40:], {"role": "user", "text": "one more"}]
    large["numbers"].insert(200, -1)
    await checkpoint.commit_snapshot(value_state(3, large))


async def _pruned(storage: CheckpointStorage) -> None:
    """A history of which some snapshots were removed, and a commit after that."""
    checkpoint = orders().create_checkpoint("pruned", checkpoint_storage=storage)
    log: list[str] = []
    for n in range(8):
        log.append(f"entry {n} " * 20)
        await checkpoint.commit_snapshot(value_state(n, {"log": log, "own": f"{n}" * 200}))
    await checkpoint.prune([checkpoint.snapshots[n].snapshot_id for n in (1, 4)])
    await checkpoint.commit_snapshot(value_state(8, {"log": log}))


RUNS: tuple[Writer, ...] = (_paused, _branches, _values, _pruned)
CHECKPOINTS = ("branches", "fork", "paused", "pruned", "values")
