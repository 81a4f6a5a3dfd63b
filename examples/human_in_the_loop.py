"""A human in the loop across a restart: the workflow asks, the process ends, another one takes the answer.

python examples/human_in_the_loop.py                 asks, and ends
python examples/human_in_the_loop.py --answer yes    a day later: goes on with the answer
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Never

from storage_flags import storage_flags, storage_of

from branchpoint import (
    CheckpointNotFoundError,
    Executor,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)
from branchpoint.agents import AgentExecutorResponse
from branchpoint.testing.agents import scripted_agent


class Desk(Executor):
    """Sends a letter when a person has agreed to it."""

    @handler
    async def on_draft(self, draft: AgentExecutorResponse, ctx: WorkflowContext) -> None:
        """Ask; the question is part of the next snapshot."""
        await ctx.request_info(draft.agent_response.text, bool)

    @response_handler
    async def on_answer(self, letter: str, yes: bool, ctx: WorkflowContext[Never, str]) -> None:
        """Do as the person says, in whatever process this is."""
        await ctx.yield_output(f"sent: {letter}" if yes else "thrown away")


def build() -> Workflow:
    """Build the workflow; every process builds it anew, and it holds no state."""
    writer = scripted_agent(["Dear customer, your bees are on their way."], name="writer")
    desk = Desk(id="desk")
    return (
        WorkflowBuilder(name="letters", start_executor=writer, output_from=[desk])
        .add_edge(writer, desk)
        .build()
    )


async def main(options: argparse.Namespace) -> None:
    """Ask, or answer what is open."""
    workflow = build()
    async with storage_of(options) as storage:
        try:
            checkpoint = await storage.load("letter-1")
        except CheckpointNotFoundError:
            checkpoint = workflow.create_checkpoint("letter-1", storage)
            await workflow.run("Tell them their bees are sent.", checkpoint=checkpoint)
        for request in checkpoint.pending_requests:
            print(f"May this go out? {request.data}")
        if options.answer and checkpoint.pending_requests:
            answers = {one.request_id: options.answer == "yes" for one in checkpoint.pending_requests}
            await workflow.run(responses=answers, checkpoint=checkpoint)
        for output in checkpoint.outputs():
            print(output.value)


if __name__ == "__main__":
    flags = storage_flags(__doc__)
    flags.add_argument("--answer", choices=["yes", "no"], help="what the person says")
    asyncio.run(main(flags.parse_args()))
