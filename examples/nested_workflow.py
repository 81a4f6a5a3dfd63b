"""A nested workflow, paused and resumed: the child waits for a person, inside of the parent's checkpoint.

python examples/nested_workflow.py                   the child asks, and the process ends
python examples/nested_workflow.py --answer 3        the child goes on, and then the parent
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
    WorkflowExecutor,
    executor,
    handler,
    response_handler,
)
from branchpoint.agents import AgentExecutorResponse
from branchpoint.testing.agents import scripted_agent


class Grader(Executor):
    """Has a person grade what the agent wrote; this is the end of the child."""

    @handler
    async def on_essay(self, essay: AgentExecutorResponse, ctx: WorkflowContext) -> None:
        """Ask for a grade."""
        await ctx.request_info(essay.agent_response.text, int)

    @response_handler
    async def on_grade(self, essay: str, grade: int, ctx: WorkflowContext[Never, str]) -> None:
        """What the child yields is what the parent goes on with."""
        await ctx.yield_output(f"{essay!r} got a {grade}")


@executor(id="register")
async def register(line: str, ctx: WorkflowContext[Never, str]) -> None:
    """Write the grade down; this is the parent's own step."""
    await ctx.yield_output(f"registered: {line}")


def build() -> Workflow:
    """Build child and parent."""
    pupil, grader = scripted_agent(["Bees are small."], name="pupil"), Grader(id="grader")
    exam = WorkflowBuilder(name="exam", start_executor=pupil, output_from=[grader]).add_edge(pupil, grader)
    child = WorkflowExecutor(exam.build(), id="exam")
    return WorkflowBuilder(name="school", start_executor=child).add_edge(child, register).build()


async def main(options: argparse.Namespace) -> None:
    """Begin, or answer what is open."""
    workflow = build()
    async with storage_of(options) as storage:
        try:
            checkpoint = await storage.load("exam-1")
        except CheckpointNotFoundError:
            checkpoint = workflow.create_checkpoint("exam-1", storage)
            await workflow.run("Write about bees.", checkpoint=checkpoint)
        for request in checkpoint.pending_requests:
            print(f"{request.source_executor_id} asks: what grade for {request.data!r}?")
            if options.answer is not None:
                answers = {request.request_id: options.answer}
                result = await workflow.run(responses=answers, checkpoint=checkpoint)
                print(*result.get_outputs())
        print(f"status: {checkpoint.status}")


if __name__ == "__main__":
    flags = storage_flags(__doc__)
    flags.add_argument("--answer", type=int, help="the grade")
    asyncio.run(main(flags.parse_args()))
