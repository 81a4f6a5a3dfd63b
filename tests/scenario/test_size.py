"""How many bytes reach the disk, measured on the real file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from branchpoint import (
    Checkpoint,
    Executor,
    FileCheckpointStorage,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    append,
    clock,
    handler,
    ids,
    state,
)
from tests.journals import bodies_of, journal_of

MESSAGES = 2_000


def message(number: int) -> dict[str, Any]:
    """A message of 500 bytes as JSON, unlike any other."""
    text = f"{number:06d} " * 70
    made = {"role": "user", "id": f"m-{number}", "text": text}
    made["text"] = text[: 500 - len(json.dumps(made, separators=(",", ":"))) + len(text)]
    assert len(json.dumps(made, separators=(",", ":"))) == 500
    return made


class Keeper(Executor):
    """Keeps a long list, and changes it as it is told."""

    kept: list[Any] = state(factory=list)

    @handler
    async def on_change(self, change: list[Any], ctx: WorkflowContext[Any, int]) -> None:
        what, *given = change
        if what == "fill":
            self.kept = [message(number) for number in range(given[0])]
        elif what == "insert":
            self.kept.insert(given[0], message(given[1]))
        elif what == "drop":
            del self.kept[: given[0]]
        elif what == "edit":
            self.kept[given[0]] = message(given[1])
        await ctx.yield_output(len(self.kept))


class Sharer(Executor):
    """The same with a key of the shared state."""

    @handler
    async def on_change(self, change: list[Any], ctx: WorkflowContext[Any, int]) -> None:
        what, *given = change
        kept = ctx.get_state("kept", [])
        if what == "fill":
            kept = [message(number) for number in range(given[0])]
        elif what == "insert":
            kept.insert(given[0], message(given[1]))
        elif what == "drop":
            del kept[: given[0]]
        elif what == "edit":
            kept[given[0]] = message(given[1])
        ctx.set_state("kept", kept)
        await ctx.yield_output(len(kept))


def keeping(kind: type[Executor]) -> Workflow:
    return WorkflowBuilder(name="keeping", start_executor=kind(id="keeper")).build()


async def filled(folder: Path, kind: type[Executor]) -> Checkpoint:
    """A checkpoint whose state holds 2,000 messages, loaded from its file."""
    storage = FileCheckpointStorage(folder)
    with (
        ids.injected(ids.SequentialIds()),
        clock.injected(clock.SteppingClock()),
    ):  # the same bytes every time
        checkpoint = keeping(kind).create_checkpoint("run-1", storage)
        await keeping(kind).run(["fill", MESSAGES], checkpoint=checkpoint)
    return await FileCheckpointStorage(folder).load("run-1")


async def grows(checkpoint: Checkpoint, folder: Path, kind: type[Executor], change: list[Any]) -> int:
    """Run one change; return by how many bytes the commit of its superstep made the file longer."""
    path = journal_of(folder, "run-1")
    unused = ids.SequentialIds(start=1_000 * (1 + len(checkpoint.snapshots)))
    with ids.injected(unused), clock.injected(clock.SteppingClock()):
        await keeping(kind).run(change, checkpoint=checkpoint, max_supersteps=0)  # accepts it, and no more
        before = path.stat().st_size
        await keeping(kind).run(checkpoint=checkpoint)
    return path.stat().st_size - before


@pytest.mark.parametrize("kind", [Keeper, Sharer])
@pytest.mark.parametrize(
    ("change", "limit"),
    [
        (["insert", 0, 9999], 3_000),
        (["insert", MESSAGES // 2, 9999], 3_000),
        (["insert", MESSAGES, 9999], 2_250),
        (["drop", 300], 3_500),
        (["edit", 700, 9999], 3_000),
        (["nothing"], 1_000),
    ],
    ids=["at the front", "in the middle", "at the end", "drop 300", "edit one", "nothing"],
)
async def test_a_change_to_a_long_list_writes_little(
    tmp_path: Path, kind: type[Executor], change: list[Any], limit: int
) -> None:
    cp = await filled(tmp_path, kind)
    written = await grows(cp, tmp_path, kind, change)
    assert written < limit
    # And what was written is all of it: whoever loads the file sees the whole list.
    expected = [message(number) for number in range(MESSAGES)]
    edit: dict[str, Callable[..., Any]] = {
        "insert": lambda at, number: expected.insert(at, message(number)),
        "drop": lambda count: expected.__delitem__(slice(count)),
        "edit": lambda at, number: expected.__setitem__(at, message(number)),
        "nothing": lambda: None,
    }
    edit[change[0]](*change[1:])
    head = (await FileCheckpointStorage(tmp_path).load("run-1")).head_snapshot
    assert head is not None
    found = head.state
    kept = (
        found["executor_states"]["keeper"]["kept"]
        if kind is Keeper
        else found["workflow_state"]["shared"]["kept"]
    )
    assert kept == expected


async def test_inserting_at_the_front_again_and_again_stays_small(tmp_path: Path) -> None:
    cp = await filled(tmp_path, Keeper)
    written = [await grows(cp, tmp_path, Keeper, ["insert", 0, 10_000 + n]) for n in range(10)]
    assert max(written) < 3_000


class Appender(Executor):
    """Adds one message to a key of the shared state, and goes round."""

    @handler
    async def on_count(self, left: int, ctx: WorkflowContext[int, int]) -> None:
        ctx.set_state("history", message(left))
        if left > 1:
            await ctx.send_message(left - 1)
        else:
            await ctx.yield_output(left)


async def test_2000_complete_snapshots_of_a_growing_list_stay_under_4_mb(tmp_path: Path) -> None:
    appender = Appender(id="appender")
    builder = WorkflowBuilder(name="growing", start_executor=appender, max_iterations=MESSAGES)
    workflow = builder.add_edge(appender, appender).add_state("history", list, reducer=append).build()
    cp = workflow.create_checkpoint("run-1", FileCheckpointStorage(tmp_path))
    await workflow.run(MESSAGES, checkpoint=cp)
    path = journal_of(tmp_path, "run-1")
    assert path.stat().st_size < 4_000_000
    assert path.stat().st_size > 500 * MESSAGES  # each message is there
    form, bodies = bodies_of(path)
    assert form == "json"
    assert len(bodies) == 1 + 1 + MESSAGES  # the header, the input, and one record for each superstep
    loaded = await FileCheckpointStorage(tmp_path).load("run-1")
    assert len(loaded.snapshots) == 1 + MESSAGES
    history = [message(left) for left in range(MESSAGES, 0, -1)]
    for n in (0, 1, 2, 63, 64, 65, 999, MESSAGES):  # each snapshot is complete, and read by itself
        found = loaded.snapshots[n].state["workflow_state"]["shared"]
        assert found == ({"history": history[:n]} if n else {})
    sizes = [len(body) for body in bodies[2:]]
    assert max(sizes[-500:]) < 4 * min(sizes[-500:])  # linear: late ones are as small as early ones
    assert sum(sizes[-500:]) < 1.3 * sum(sizes[500:1000])
