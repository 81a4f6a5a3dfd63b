"""Instruments for tests: one that keeps what it was told, and some that do all they should not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Self

from branchpoint import Instrument, InstrumentKind, add_instrument, remove_instrument
from branchpoint.events import _instrument, instruments


@contextmanager
def attached(*given: Instrument) -> Iterator[None]:
    """Have instruments entered during the block; afterwards there are those that were there before."""
    before = tuple(instruments)
    for instrument in given:
        add_instrument(instrument)
    try:
        yield
    finally:
        for instrument in given:
            remove_instrument(instrument)
        assert tuple(instruments) == before
        assert _instrument._told.keys() == set(map(id, before))


class Block:
    """One block of a recorder.

    Attributes:
        outer: The block it was entered in, as context variables tell it.
        before: What was known when it was entered.
        after: What was known when it was left; None as long as it was not.
        error: What it was left with.
    """

    def __init__(self, recorder: Recorder, kind: InstrumentKind, info: dict[str, Any]) -> None:
        self.kind = kind
        self.info = info
        self.outer: Block | None = None
        self.before: dict[str, Any] = {}
        self.after: dict[str, Any] | None = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[Any] | None = None
        self._recorder = recorder
        self._token: Token[Block | None] | None = None

    def __enter__(self) -> Self:
        self.outer, self.before, self.task = self._recorder.inside.get(), dict(self.info), _task()
        self._recorder.blocks.append(self)
        self._token = self._recorder.inside.set(self)
        self._recorder.on_enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.after is None, "left twice"
        assert self._recorder.inside.get() is self, "left before what is inside of it"
        assert self.task is _task(), "left in another task"
        assert (kind, trace) == (None, None) if error is None else kind is type(error) and trace is not None
        assert self._token is not None
        self._recorder.inside.reset(self._token)
        self.after, self.error = dict(self.info), error
        self._recorder.left.append(self)
        del error

    def __repr__(self) -> str:
        told = self.before.get("executor_id") or self.before.get("boundary")
        words = (self.kind, told, self.before.get("superstep"))
        return " ".join(str(word) for word in words if word is not None)


class Recorder:
    """Keeps every block it was entered in."""

    def __init__(self, on_enter: Callable[[Block], object] = lambda block: None) -> None:
        self.blocks: list[Block] = []
        self.left: list[Block] = []
        self.on_enter = on_enter
        self.inside: ContextVar[Block | None] = ContextVar("inside", default=None)

    def around(self, kind: InstrumentKind, info: dict[str, Any]) -> Block:
        return Block(self, kind, info)

    def of(self, kind: InstrumentKind) -> list[Block]:
        """Return the blocks of a kind, in the order in which they were entered."""
        return [block for block in self.blocks if block.kind == kind]

    def outline(self) -> list[str]:
        """Return a line for each block, in the order of entering, indented by how deep it is inside of others."""
        return ["  " * _depth(block) + repr(block) for block in self.blocks]

    def check_balanced(self) -> None:
        """Every block was left once, and after all that were entered in it."""
        assert len(self.left) == len(self.blocks)
        order = {id(block): n for n, block in enumerate(self.left)}
        assert all(block.outer is None or order[id(block)] < order[id(block.outer)] for block in self.blocks)

    def clear(self) -> None:
        self.check_balanced()
        self.blocks.clear()
        self.left.clear()


def _depth(block: Block) -> int:
    return 0 if block.outer is None else 1 + _depth(block.outer)


def _task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


class Bad:
    """An instrument whose blocks do what they are given: `does(where, error)`, where is around, enter or exit."""

    def __init__(self, does: Callable[[str, BaseException | None], Any]) -> None:
        self.does = does
        self.calls = 0

    def around(self, kind: InstrumentKind, info: dict[str, Any]) -> Any:
        self.calls += 1
        self.does("around", None)
        return self

    def __enter__(self) -> Any:
        return self.does("enter", None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Any:
        return self.does("exit", error)
