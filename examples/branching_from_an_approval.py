"""Branching from an approval: what would have come of the other answer? Both are kept, side by side.

python examples/branching_from_an_approval.py
"""

from __future__ import annotations

import argparse
import asyncio

from agent_framework import tool
from storage_flags import storage_flags, storage_of

from branchpoint import WorkflowBuilder
from branchpoint.testing.agents import scripted_agent, tool_call


@tool(approval_mode="always_require")
def plant(tree: str) -> str:
    """Plant a tree."""
    print(f"planting a {tree}")
    return f"The {tree} stands."


async def main(options: argparse.Namespace) -> None:
    """Ask once, go both ways from the question, and show the snapshots."""
    script = [tool_call("plant", tree="linden"), lambda messages: f"Told: {messages[-1].contents[-1].result}"]
    gardener = scripted_agent(script, name="gardener", tools=[plant])
    workflow = WorkflowBuilder(name="garden", start_executor=gardener).build()
    async with storage_of(options) as storage:
        await storage.delete("garden-1")  # so that the sample can be run again
        checkpoint = workflow.create_checkpoint("garden-1", storage)
        await workflow.run("Make it green.", checkpoint=checkpoint)
        (request,), question = checkpoint.pending_requests, checkpoint.head_snapshot_id

        for approved in (True, False):
            checkpoint.restart_from(question)  # deletes nothing
            answer = request.data.to_function_approval_response(approved=approved)
            result = await workflow.run(responses={request.request_id: answer}, checkpoint=checkpoint)
            print(f"{'yes' if approved else 'no'}: {result.get_outputs()[-1].text}")

        checkpoint = await storage.load("garden-1")
        numbers = {one.snapshot_id: at for at, one in enumerate(checkpoint.snapshots)}
        for one in checkpoint.snapshots:
            parent = numbers.get(one.parent_snapshot_id or "", "-")
            print(f"{numbers[one.snapshot_id]} after {parent}: {one.boundary}")


if __name__ == "__main__":
    asyncio.run(main(storage_flags(__doc__).parse_args()))
