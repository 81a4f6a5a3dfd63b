"""A workflow as an agent, with a session store: a conversation that goes on in every process, questions and all.

    python examples/workflow_as_agent.py "My order 7 is broken."    talks; the session is saved after each call
    python examples/workflow_as_agent.py --approve                  answers what it asks
    python examples/workflow_as_agent.py "Thanks."                  goes on

The session holds two ids; what they name is in the storage.
"""

from __future__ import annotations

import argparse
import asyncio
import warnings
from pathlib import Path

from agent_framework import FileSessionStore, tool
from storage_flags import storage_flags, storage_of

from branchpoint import Workflow, WorkflowBuilder
from branchpoint.testing.agents import scripted_agent, tool_call


@tool(approval_mode="always_require")
def refund(order: str) -> str:
    """Give money back."""
    print(f"refunding order {order}")
    return "refunded"


def build() -> Workflow:
    """Build the workflow: a clerk who asks before it gives money back."""
    script = [tool_call("refund", order="7"), "Your money is on its way.", "You are welcome."]
    clerk = scripted_agent(script, name="clerk", tools=[refund])
    return WorkflowBuilder(name="shop", start_executor=clerk).build()


async def main(options: argparse.Namespace) -> None:
    """Have one call of the conversation."""
    with warnings.catch_warnings(
        action="ignore"
    ):  # Agent Framework says of its stores that they may still change
        sessions = FileSessionStore(Path(options.folder) / "sessions")
    async with storage_of(options) as storage:
        agent = build().as_agent(name="shop", checkpoint_storage=storage)
        session = await sessions.get("customer-1") or agent.create_session(session_id="customer-1")
        if options.approve:
            waiting = await agent.run(session=session)  # without a message: what is open, and nothing runs
            said = [one.to_function_approval_response(True) for one in waiting.user_input_requests]
        else:
            said = options.message
        response = await agent.run(said, session=session)
        await sessions.set("customer-1", session)
        for question in response.user_input_requests:
            call = question.function_call
            print(f"May it? {call.name} {call.parse_arguments()['order']}")
        if response.text:
            print(response.text)
        print(f"the session keeps {sorted(session.state['branchpoint.checkpoint'])}")


if __name__ == "__main__":
    flags = storage_flags(__doc__)
    flags.add_argument("message", nargs="?", default="Hello.")
    flags.add_argument("--approve", action="store_true", help="say yes to what it asks")
    asyncio.run(main(flags.parse_args()))
