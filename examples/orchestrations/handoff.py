"""A help desk of three: triage hands over, the user is asked, a model fails, and another answer is tried.

Prints:
    triage hands over to orders
    orders asks: Which order is it?
    the model cannot be reached
    orders says: Order 7 is on its way.
    on another branch, orders says: Order 8 is on its way.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from typing import Any

from agent_framework import Message

from branchpoint import FileCheckpointStorage, Workflow
from branchpoint.orchestrations import HandoffAgentUserRequest, HandoffBuilder
from branchpoint.testing.agents import scripted_agent, tool_call


def build(*, down: bool = False) -> Workflow:
    """Build the desk, as each process does for itself; the scripts stand for models."""

    def answer(messages: Sequence[Message]) -> Any:
        if down:
            return ConnectionError("the model cannot be reached")
        return f"Order {messages[-1].text} is on its way."

    triage = scripted_agent([tool_call("handoff_to_orders")], name="triage")
    orders = scripted_agent(["Which order is it?", answer], name="orders", description="Knows all orders.")
    refunds = scripted_agent(["Never asked."], name="refunds", description="Gives money back.")
    return (
        HandoffBuilder(participants=[triage, orders, refunds], name="desk")
        .add_handoff(triage, [orders, refunds])
        .with_termination_condition(lambda conversation: "on its way" in conversation[-1].text)
        .build()
    )


async def main(folder: str) -> None:
    """Play it."""
    workflow = build()
    checkpoint = workflow.create_checkpoint("case", FileCheckpointStorage(folder))
    async for event in workflow.run("Where is my order?", checkpoint=checkpoint, stream=True):
        if event.type == "handoff_sent":
            print(f"{event.data.source} hands over to {event.data.target}")

    checkpoint = await FileCheckpointStorage(folder).load("case")  # another process, when the user answers
    asked = checkpoint.head_snapshot_id
    (request,) = checkpoint.pending_requests
    print("orders asks:", request.data.agent_response.text)
    answer = HandoffAgentUserRequest.create_response("7")
    try:
        await build(down=True).run(responses={request.request_id: answer}, checkpoint=checkpoint)
    except ConnectionError as error:
        print(error.args[0])

    # The answer is kept: nobody has to ask the user again.
    checkpoint = await FileCheckpointStorage(folder).load("case")
    result = await build().run(checkpoint=checkpoint)
    print("orders says:", result.get_outputs()[-1].text)

    checkpoint.restart_from(asked)
    answer = HandoffAgentUserRequest.create_response("8")
    result = await build().run(responses={request.request_id: answer}, checkpoint=checkpoint)
    print("on another branch, orders says:", result.get_outputs()[-1].text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(main(place))
