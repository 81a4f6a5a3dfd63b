"""Workflows run on the storage, stop, and go on from what it kept."""

from __future__ import annotations

from branchpoint.graph import Executor, WorkflowContext, handler, state
from branchpoint.testing._clause import clause
from branchpoint.testing._findings import same
from branchpoint.testing._lineage_law import check_lineage_law
from branchpoint.testing._place import Place
from branchpoint.workflow import Workflow, WorkflowBuilder


class _Grow(Executor):
    """Sends a text to itself, longer each time, until it is long enough."""

    count: int = state(default=0)

    @handler
    async def on_text(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        self.count += 1
        ctx.set_state("page", f"{len(text)} " * 1000)
        if len(text) < 8:
            await ctx.send_message(text + "x")
        else:
            await ctx.yield_output(text)


def _growing() -> Workflow:
    grow = _Grow(id="grow")
    return WorkflowBuilder(name="growing", start_executor=grow).add_edge(grow, grow).build()


@clause("running", shows="R35")
async def a_run_goes_on_from_what_is_stored(place: Place) -> None:
    """Every superstep is stored; a run goes on from any of them, and from the end with the next message."""
    workflow = _growing()
    checkpoint = workflow.create_checkpoint("order-17", checkpoint_storage=await place.storage())
    same((await workflow.run("x", checkpoint=checkpoint)).get_outputs(), ["x" * 8])
    loaded = await (await place.storage()).load("order-17")
    check_lineage_law(checkpoint, loaded)
    same([one.boundary for one in loaded.snapshots][1:], [*["superstep_completed"] * 7, "completed"])
    again = _growing()
    loaded.restart_from(loaded.snapshots[4].snapshot_id)
    same((await again.run(checkpoint=loaded)).get_outputs(), ["x" * 8])
    same((await again.run("x" * 8, checkpoint=loaded)).get_outputs(), ["x" * 8])
    found = await (await place.storage()).load("order-17")
    check_lineage_law(loaded, found)


@clause("running", needs=("load_parts",), options=("lazy_over",))
async def a_run_fetches_what_it_goes_on_from(place: Place) -> None:
    """A run on a lazy checkpoint fetches by itself, from the head as from an older snapshot."""
    workflow = _growing()
    whole = workflow.create_checkpoint("order-17", checkpoint_storage=await place.storage())
    await workflow.run("x", checkpoint=whole)
    lazy = await (await place.storage(lazy_over=0)).load("order-17")
    same((await workflow.run("x" * 7, checkpoint=lazy)).get_outputs(), ["x" * 8])
    lazy = await (await place.storage(lazy_over=0)).load("order-17")
    await lazy.load_lineage()
    lazy.restart_from(lazy.snapshots[3].snapshot_id)
    same((await workflow.run(checkpoint=lazy)).get_outputs(), ["x" * 8])
    again = await (await place.storage()).load("order-17")
    same(again.snapshots[-1].state, lazy.snapshots[-1].state)
    same(set(again.parts) >= set(lazy.parts), True, "what is in memory is stored")
