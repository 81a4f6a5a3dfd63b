"""A reducer that works in place, which it should not, changes nothing that anybody else sees."""

from __future__ import annotations

from typing import Any

import pytest

from branchpoint import Workflow, WorkflowBuilder, WorkflowContext
from tests.scenario.kit import (
    Boom,
    Join,
    Place,
    Scripted,
    Step,
    Ticks,
    every_place,
    shared,
)


def extends(current: list[str], more: list[str]) -> list[str]:
    current.extend(more)
    return current


def building(ticks: Ticks, does: Any) -> Workflow:
    src, join = Step("src", ticks), Join("j", ticks)
    branches = [Scripted(id, ticks, does) for id in "bc"]
    builder = WorkflowBuilder(name="in place", start_executor=src)
    builder.add_state("log", list[str], default=["start"], reducer=extends)
    return builder.add_fan_out_edges(src, branches).add_fan_in_edges(branches, join).build()


@every_place
async def test_it_changes_no_snapshot_and_nothing_that_a_sibling_or_a_retry_sees(
    place: Place, ticks: Ticks
) -> None:
    seen: list[list[str]] = []
    failing = True

    async def does(text: str, ctx: WorkflowContext[str, str]) -> None:
        seen.append(list(ctx.get_state("log", copy=False)))
        ctx.set_state("log", [text])
        assert ctx.get_state("log") == [*seen[-1], text]
        ctx.set_state("log", [text.upper()])
        assert list(ctx.get_state("log", copy=False)) == [*seen[-1], text, text.upper()]
        if failing and len(seen) % 2 == 0:
            raise Boom

    workflow = building(ticks, does)
    checkpoint = place.create(workflow)
    for _ in range(2):
        with pytest.raises(Boom):
            await workflow.run(
                "x", checkpoint=checkpoint
            ) if checkpoint.status is None else await workflow.run(checkpoint=checkpoint)
    failing = False
    await workflow.run(checkpoint=checkpoint)
    first = ["start", *["x>src", "X>SRC"] * 2]
    await workflow.run("y", checkpoint=checkpoint)
    checkpoint = await place.reload()
    assert seen == [["start"]] * 6 + [first] * 2
    found = [shared(one).get("log") for one in checkpoint.snapshots]
    assert found == [*[None] * 2, *[first] * 4, *[[*first, *["y>src", "Y>SRC"] * 2]] * 2]
    # A one-shot run knows nothing of it, and the default is as it was declared.
    await workflow.run("z")
    assert seen[-2:] == [["start"]] * 2
