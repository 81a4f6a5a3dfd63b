"""Checkpoint and resume: three agents in a row; the process dies in the middle, and another one goes on.

python examples/checkpoint_and_resume.py --crash     dies while the second agent works
python examples/checkpoint_and_resume.py             goes on from there; the first is not asked again
"""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import Any

from storage_flags import storage_flags, storage_of

from branchpoint import CheckpointNotFoundError, Workflow, WorkflowBuilder
from branchpoint.testing.agents import scripted_agent


def build(crash: bool) -> Workflow:
    """Build the workflow; the agents follow scripts, yours have a chat client."""

    def says(name: str, text: str) -> Any:
        def reply(messages: object) -> str:
            print(f"{name} works", flush=True)
            if crash and name == "editor":
                os._exit(1)  # as a power cut would: nothing is cleaned up, nothing is saved
            return text

        return scripted_agent([reply], name=name)

    writer, editor = says("writer", "Bees sleep too, often holding hands."), says("editor", "Cut 'too'.")
    printer = says("printer", "Printed.")
    return (
        WorkflowBuilder(name="news", start_executor=writer)
        .add_edge(writer, editor)
        .add_edge(editor, printer)
        .build()
    )


async def main(options: argparse.Namespace) -> None:
    """Load what is there or begin, and run to the end."""
    workflow = build(options.crash)
    async with storage_of(options) as storage:
        try:
            checkpoint = await storage.load("news-1")
            message = ()
            print(
                f"found {len(checkpoint.snapshots)} snapshots, the last is {checkpoint.snapshots[-1].boundary}"
            )
        except CheckpointNotFoundError:
            checkpoint = workflow.create_checkpoint("news-1", storage)
            message = ("Write a line about bees.",)
        result = await workflow.run(*message, checkpoint=checkpoint)
        for response in result.get_outputs():
            print(f"-> {response.text}")


if __name__ == "__main__":
    flags = storage_flags(__doc__)
    flags.add_argument("--crash", action="store_true", help="die while the editor works")
    asyncio.run(main(flags.parse_args()))
