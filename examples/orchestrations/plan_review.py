"""A person sends a manager's plan back once, and approves the next one; on a branch the first one is taken.

Prints:
    plan: Ask everybody.
    plan: Ask one.
    Done: Ask one.
    with the first plan: Done: Ask everybody.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence

from agent_framework import Message

from branchpoint import Checkpoint, FileCheckpointStorage, Workflow
from branchpoint.orchestrations import MagenticBuilder, MagenticPlanReviewResponse
from branchpoint.testing.agents import scripted_agent


def manage(messages: Sequence[Message]) -> str:
    """Answer the manager's questions, in place of a model."""
    plans = [message.text for message in messages if message.text.startswith("Ask ")]
    match messages[-1].text.split()[0]:
        case "Facts":
            return "Nothing is known."
        case "Plan":
            return "Ask everybody."
        case "Replan":
            return "Ask one."
        case "Answer":
            return f"Done: {plans[-1]}"
    answers = {
        "is_request_satisfied": any(message.author_name == "asker" for message in messages),
        "is_in_loop": False,
        "is_progress_being_made": True,
        "next_speaker": "asker",
        "instruction_or_question": "Follow the plan.",
    }
    return json.dumps({name: {"reason": "-", "answer": answer} for name, answer in answers.items()})


def build() -> Workflow:
    """Build the team, as each process does for itself; the scripts stand for models."""
    return MagenticBuilder(
        participants=[scripted_agent(["I asked."], name="asker")],
        manager_agent=scripted_agent(manage, name="manager"),
        task_ledger_facts_prompt="Facts",
        task_ledger_facts_update_prompt="Facts",
        task_ledger_plan_prompt="Plan",
        task_ledger_plan_update_prompt="Replan",
        task_ledger_full_prompt="{plan}",
        final_answer_prompt="Answer",
        enable_plan_review=True,
        name="survey",
    ).build()


async def review(checkpoint: Checkpoint, response: MagenticPlanReviewResponse) -> list[str]:
    """Answer the one open question, and return what came of it."""
    (request,) = checkpoint.pending_requests
    result = await build().run(responses={request.request_id: response}, checkpoint=checkpoint)
    return [output.text for output in result.get_outputs()]


async def main(folder: str) -> None:
    """Play it."""
    workflow = build()
    checkpoint = workflow.create_checkpoint("survey", FileCheckpointStorage(folder))
    await workflow.run("What do people think?", checkpoint=checkpoint)

    checkpoint = await FileCheckpointStorage(folder).load("survey")  # another process, when there is time
    first = checkpoint.head_snapshot_id
    print("plan:", checkpoint.pending_requests[0].data.plan.text)
    await review(checkpoint, MagenticPlanReviewResponse.revise("Cheaper, please."))
    print("plan:", checkpoint.pending_requests[0].data.plan.text)
    print(*await review(checkpoint, MagenticPlanReviewResponse.approve()))

    checkpoint.restart_from(first)
    print("with the first plan:", *await review(checkpoint, MagenticPlanReviewResponse.approve()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(main(place))
