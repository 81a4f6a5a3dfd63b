"""An agent that was handed the conversation wants to give money back, and a person decides; both ways are tried.

Prints:
    refunds wants: refund {'order': '7'}
    approved: refunded 7
    refused: I may not do that.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence

from agent_framework import Message, tool

from branchpoint import FileCheckpointStorage, Workflow
from branchpoint.orchestrations import HandoffBuilder
from branchpoint.testing.agents import scripted_agent, tool_call


@tool(approval_mode="always_require")
def refund(order: str) -> str:
    """Give money back."""
    return f"refunded {order}"


def report(messages: Sequence[Message]) -> str:
    """Say what came of the tool, in place of a model."""
    result = str(messages[-1].contents[-1].result)
    return result if result.startswith("refunded") else "I may not do that."


def build() -> Workflow:
    """Build the desk, as each process does for itself; the scripts stand for models."""
    triage = scripted_agent([tool_call("handoff_to_refunds")], name="triage")
    refunds = scripted_agent([tool_call("refund", order="7"), report], name="refunds", tools=[refund])
    return (
        HandoffBuilder(participants=[triage, refunds], name="desk")
        .with_termination_condition(lambda conversation: conversation[-1].role == "assistant")
        .build()
    )


async def main(folder: str) -> None:
    """Play it."""
    workflow = build()
    checkpoint = workflow.create_checkpoint("case", FileCheckpointStorage(folder))
    await workflow.run("My order 7 is broken.", checkpoint=checkpoint)

    checkpoint = await FileCheckpointStorage(folder).load("case")  # another process, when somebody decides
    asked = checkpoint.head_snapshot_id
    (request,) = checkpoint.pending_requests
    call = request.data.function_call
    print(f"{request.source_executor_id} wants: {call.name} {call.parse_arguments()}")
    for word, approved in (("approved", True), ("refused", False)):
        checkpoint.restart_from(asked)
        answer = request.data.to_function_approval_response(approved=approved)
        result = await build().run(responses={request.request_id: answer}, checkpoint=checkpoint)
        print(f"{word}: {result.get_outputs()[-1].text}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(main(place))
