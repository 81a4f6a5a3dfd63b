"""What instruments do to a run: set context variables for it, come, and go. A bad one can do nothing else."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from branchpoint import (
    CheckpointConflictError,
    FileCheckpointStorage,
    MemoryCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    add_instrument,
    clock,
    executor,
    ids,
    remove_instrument,
)
from branchpoint.clock import SteppingClock
from branchpoint.events import _instrument, instruments
from branchpoint.ids import SequentialIds
from tests.instruments import Bad, Recorder, attached
from tests.scenario.kit import (
    Around,
    Ask,
    Boom,
    BoomOnce,
    Join,
    Scripted,
    Step,
    Ticks,
    bytes_of,
    chain,
    fan,
    only_request,
    place_of,
    reached,
)

# Context variables.

span: ContextVar[str] = ContextVar("span", default="none")


class Spans:
    """Sets a context variable in each block, as tracing does."""

    def around(self, kind: str, info: dict[str, Any]) -> Any:
        return _Span(f"{span.get()}/{kind}")


class _Span:
    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.token = span.set(self.name)

    def __exit__(self, *error: object) -> None:
        assert span.get() == self.name
        span.reset(self.token)


async def test_what_is_set_around_a_run_is_seen_in_all_that_it_does() -> None:
    seen: dict[str, str] = {}

    def in_a_commit(number: int) -> None:
        seen[f"commit {number}"] = span.get()

    def condition(text: str) -> bool:
        seen["condition"] = span.get()
        return True

    def reducer(old: list[str], new: list[str]) -> list[str]:
        seen["reducer"] = span.get()
        return [*old, *new]

    @executor(id="first")
    async def first(text: str, ctx: WorkflowContext[str]) -> None:
        seen["async"] = span.get()
        await asyncio.create_task(elsewhere())
        ctx.set_state("log", [text])
        await ctx.send_message(text)

    async def elsewhere() -> None:
        seen["its own task"] = span.get()

    @executor(id="second")
    def second(text: str) -> str:
        seen["sync"] = span.get()
        seen["thread"] = str(threading.current_thread() is not threading.main_thread())
        return text

    builder = WorkflowBuilder(name="spans", start_executor=first).add_edge(first, second, condition)
    workflow = builder.add_state("log", list, factory=list, reducer=reducer).build()
    storage = Around(MemoryCheckpointStorage(), before=in_a_commit)
    with attached(Spans()):
        token = span.set("caller")
        try:
            await workflow.run("x", checkpoint=workflow.create_checkpoint("run-1", storage))
            assert span.get() == "caller"
        finally:
            span.reset(token)
    inside = "caller/run/superstep/executor"
    assert seen == {
        "async": inside,
        "its own task": inside,
        "condition": inside,
        "sync": inside,
        "thread": "True",
        "reducer": "caller/run",
        "commit 1": "caller/run/commit",
        "commit 2": "caller/run/commit",
        "commit 3": "caller/run/commit",
    }


# Instruments that come, go, or are bad.


@pytest.mark.parametrize("what", ["added", "removed", "replaced"])
async def test_one_that_comes_or_goes_during_a_run(ticks: Ticks, what: str) -> None:
    old, new = Recorder(), Recorder()

    async def changes(text: str, ctx: Any) -> None:
        if what != "added":
            remove_instrument(old)
        if what != "removed":
            add_instrument(new)

    workflow = chain(Step("a", ticks), Scripted("b", ticks, changes), Step("c", ticks, final=True))
    checkpoint = workflow.create_checkpoint()
    if what != "added":
        add_instrument(old)
    try:
        assert (await workflow.run("x", checkpoint=checkpoint)).get_outputs() == ["x>a>b>c"]
    finally:
        if what != "removed":
            remove_instrument(new)
    assert instruments == []
    old.check_balanced()
    new.check_balanced()
    seen = [repr(block) for block in old.blocks]
    assert seen == ([] if what == "added" else [*_ROW[:6], "executor b 2"])
    assert [repr(block) for block in new.blocks] == ([] if what == "removed" else _ROW[7:])
    assert all(block.error is None for block in (*old.blocks, *new.blocks))


_ROW = [
    "run",
    "commit input_accepted 0",
    "superstep 1",
    "executor a 1",
    "commit superstep_completed 1",
    "superstep 2",
    "executor b 2",
    "commit superstep_completed 2",
    "superstep 3",
    "executor c 3",
    "commit completed 3",
]


def _raising(error: type[BaseException], *places: str) -> Callable[[str, BaseException | None], Any]:
    def does(where: str, given: BaseException | None) -> None:
        if where in places:
            raise error("of the instrument")

    return does


def _again(where: str, given: BaseException | None) -> None:
    if given is not None:
        raise given


BADNESS: dict[str, Callable[[str, BaseException | None], Any]] = {
    "raises in around": _raising(Boom, "around"),
    "raises on entering": _raising(Boom, "enter"),
    "raises on leaving": _raising(Boom, "exit"),
    "cancels in around": _raising(asyncio.CancelledError, "around"),
    "cancels on entering": _raising(asyncio.CancelledError, "enter"),
    "cancels on leaving": _raising(asyncio.CancelledError, "exit"),
    "raises a conflict": _raising(CheckpointConflictError, "around", "exit"),
    "raises the same again": _again,
    "swallows": lambda where, given: True,
}


async def _story(kind: str, folder: Path) -> dict[str, Any]:
    """Return all that can be seen of a fan-out with a pause, an answer, a failure, a cancellation and a branch."""
    told: dict[str, Any] = {}
    ticks, entered, passing = Ticks(), asyncio.Event(), asyncio.Event()

    async def waits(text: str, ctx: Any) -> None:
        if ticks["d"] == 2:
            entered.set()
        await passing.wait()

    def workflow() -> Workflow:
        b, d = BoomOnce("b", ticks), Scripted("d", ticks, waits)
        return fan(Step("s", ticks), [Ask("a", ticks), b, d], Join("j", ticks))

    with ids.injected(SequentialIds()), clock.injected(SteppingClock()):
        place = place_of(kind, folder)
        checkpoint = place.create(workflow())

        async def call(name: str, **more: Any) -> None:
            events: list[Any] = []
            try:
                events += [
                    event async for event in workflow().run(checkpoint=checkpoint, stream=True, **more)
                ]
            except BaseException as error:
                told[f"{name} error"] = (
                    repr(error),
                    getattr(error, "__notes__", None),
                    repr(error.__context__),
                )
            told[name] = events

        await call("fails", message="x")
        task = asyncio.ensure_future(call("is cancelled"))
        await reached(entered, task)
        task.cancel()
        await asyncio.wait({task})
        passing.set()
        await call("pauses")
        checkpoint = await place.reload()
        await call("is refused", message="z")
        await call("is answered", responses={only_request(checkpoint): "yes"})
        checkpoint.restart_from(checkpoint.snapshots[1].snapshot_id)
        await call("branches")
        told["bytes"] = bytes_of(checkpoint)
        told["files"] = [path.read_bytes() for path in sorted(folder.rglob("*.*"))]
        told["ticks"] = ticks.all()
    return told


@pytest.mark.parametrize("kind", ["memory", "file-json"])
@pytest.mark.parametrize("badness", BADNESS)
async def test_a_bad_one_changes_nothing(kind: str, badness: str, tmp_path: Path) -> None:
    alone = await _story(kind, tmp_path / "alone")
    bad, told = Bad(BADNESS[badness]), Recorder()
    with attached(bad, told):
        watched = await _story(kind, tmp_path / "watched")
    assert watched == alone
    assert len(alone["bytes"]) == 8
    assert {"fails error", "is cancelled error", "is refused error"} <= alone.keys()
    assert bad.calls == len(told.blocks) > 40  # it stays, and is asked each time
    told.check_balanced()


async def test_what_is_seen_and_changed_in_the_info_reaches_no_run(ticks: Ticks) -> None:
    class Eraser:
        def around(self, kind: str, info: dict[str, Any]) -> Any:
            info.clear()
            return _Erased(info)

    class _Erased:
        def __init__(self, info: dict[str, Any]) -> None:
            self.info = info

        def __enter__(self) -> None:
            self.info.update(checkpoint_id="another", snapshot_id="none", status=object())

        __exit__ = lambda self, *error: self.info.clear()  # noqa: E731

    storage = MemoryCheckpointStorage()
    with attached(Eraser()):
        workflow = chain(Step("a", ticks, final=True))
        checkpoint = workflow.create_checkpoint("run-1", storage)
        assert (await workflow.run("x", checkpoint=checkpoint)).get_outputs() == ["x>a"]
        assert (await storage.load("run-1")).head_snapshot_id == checkpoint.head_snapshot_id


# None at all.


async def test_without_one_nothing_of_theirs_is_called(tmp_path: Path, ticks: Ticks) -> None:
    called: list[str] = []

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename == _instrument.__file__:
            called.append(frame.f_code.co_name)

    async def everything() -> None:
        for storage in (MemoryCheckpointStorage(), FileCheckpointStorage(tmp_path)):
            workflow = fan(Step("s", ticks), [Ask("a", ticks), Step("b", ticks)], Join("j", ticks))
            checkpoint = workflow.create_checkpoint("run-1", storage)
            await workflow.run("x", checkpoint=checkpoint)
            checkpoint = await storage.load("run-1")
            await workflow.run(responses={only_request(checkpoint): "yes"}, checkpoint=checkpoint)
            await checkpoint.fork()

    told = Recorder()
    assert instruments == []
    sys.setprofile(profile)
    try:
        await everything()
        assert called == []
        with attached(told):
            called.clear()
            await chain(Step("a", ticks, final=True)).run("x")
            assert "__enter__" in called  # it would be seen
    finally:
        sys.setprofile(None)
    assert told.outline() == ["build", "run", "  superstep 1", "    executor a 1"]
