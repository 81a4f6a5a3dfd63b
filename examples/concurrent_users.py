"""Concurrent users on one workflow: it holds no state, so one object serves them all at once.

python examples/concurrent_users.py --users 50
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from agent_framework import Message
from storage_flags import storage_flags, storage_of

from branchpoint import CheckpointStorage, Workflow, WorkflowBuilder
from branchpoint.testing.agents import scripted_agent


def recall(messages: Sequence[Message]) -> str:
    """Say back what the user said, in place of a model; a user must never hear what another one said."""
    return "You said: " + ", ".join(message.text for message in messages if message.role == "user")


async def talk(workflow: Workflow, storage: CheckpointStorage, user: int) -> str:
    """Have a conversation of three turns on a checkpoint of one's own."""
    await storage.delete(f"user-{user}")  # so that the sample can be run again
    checkpoint = workflow.create_checkpoint(f"user-{user}", storage)
    heard = ""
    for turn in ("a", "b", "c"):
        result = await workflow.run(f"{user}{turn}", checkpoint=checkpoint)
        heard = result.get_outputs()[0].text
    return heard


async def main(options: argparse.Namespace) -> None:
    """Let all users talk at once, and look whether each heard only what is its own."""
    workflow = WorkflowBuilder(name="chat", start_executor=scripted_agent(recall, name="parrot")).build()
    async with storage_of(options) as storage:
        heard = await asyncio.gather(*(talk(workflow, storage, user) for user in range(options.users)))
    print(heard[0])
    own = sum(text == f"You said: {user}a, {user}b, {user}c" for user, text in enumerate(heard))
    print(f"{own} of {options.users} users heard what they said, and nothing else")


if __name__ == "__main__":
    flags = storage_flags(__doc__)
    flags.add_argument("--users", type=int, default=20)
    asyncio.run(main(flags.parse_args()))
