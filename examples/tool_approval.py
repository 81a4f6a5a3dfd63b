"""Tool approval: an agent may look things up by itself, and must ask before it gives money back.

python examples/tool_approval.py                     asks for the approval, and ends
python examples/tool_approval.py --approve           the tool runs, here and now, and the agent goes on
python examples/tool_approval.py --refuse            the agent is told, and goes on without
"""

from __future__ import annotations

import argparse
import asyncio

from agent_framework import tool
from storage_flags import storage_flags, storage_of

from branchpoint import CheckpointNotFoundError, Workflow, WorkflowBuilder
from branchpoint.testing.agents import scripted_agent, tool_call


@tool(approval_mode="never_require")
def look_up(order: str) -> str:
    """Say what an order cost."""
    print(f"looking up order {order}")
    return "20 euros"


@tool(approval_mode="always_require")
def refund(order: str, euros: int) -> str:
    """Give money back."""
    print(f"refunding {euros} euros for order {order}")
    return "refunded"


def build() -> Workflow:
    """Build the workflow: one agent with two tools."""
    script = [
        tool_call("look_up", order="7"),
        tool_call("refund", order="7", euros=20),
        lambda messages: f"The tool said: {messages[-1].contents[-1].result}",
    ]
    clerk = scripted_agent(script, name="clerk", tools=[look_up, refund])
    return WorkflowBuilder(name="refunds", start_executor=clerk).build()


async def main(options: argparse.Namespace) -> None:
    """Ask, or answer what is open."""
    workflow = build()
    async with storage_of(options) as storage:
        try:
            checkpoint = await storage.load("case-7")
        except CheckpointNotFoundError:
            checkpoint = workflow.create_checkpoint("case-7", storage)
            await workflow.run("My order 7 is broken.", checkpoint=checkpoint)
        for request in checkpoint.pending_requests:
            call = request.data.function_call
            print(f"May it? {call.name} {call.parse_arguments()}")
            if options.approved is not None:
                # An approval is of this very call: other arguments would be refused.
                answer = request.data.to_function_approval_response(approved=options.approved)
                await workflow.run(responses={request.request_id: answer}, checkpoint=checkpoint)
        for output in checkpoint.outputs():
            print(output.value.text)


if __name__ == "__main__":
    flags = storage_flags(__doc__)
    answer = flags.add_mutually_exclusive_group()
    answer.add_argument("--approve", dest="approved", action="store_true", default=None)
    answer.add_argument("--refuse", dest="approved", action="store_false", default=None)
    asyncio.run(main(flags.parse_args()))
