"""A team led by a manager loses a model in the middle, goes on, and is taken back to another finding.

Prints:
    the model cannot be reached, in round 1
    The answer: It rains in Bergen.
    on a branch: The answer: It snows in Bergen.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence

from agent_framework import Message

from branchpoint import FileCheckpointStorage, Workflow
from branchpoint.orchestrations import MagenticBuilder
from branchpoint.testing.agents import scripted_agent


def manage(messages: Sequence[Message]) -> str:
    """Answer the manager's questions, in place of a model."""
    found = [message.text for message in messages if message.author_name == "researcher"]
    match messages[-1].text.split()[0]:
        case "Facts":
            return "To look up: the weather."
        case "Plan":
            return "The researcher looks it up."
        case "Answer":
            return f"The answer: {found[-1]}"
    answers = {
        "is_request_satisfied": bool(found),
        "is_in_loop": False,
        "is_progress_being_made": True,
        "next_speaker": "researcher",
        "instruction_or_question": "How is the weather?",
    }
    return json.dumps({name: {"reason": "-", "answer": answer} for name, answer in answers.items()})


def build(finding: str | BaseException) -> Workflow:
    """Build the team, as each process does for itself; the scripts stand for models."""
    return MagenticBuilder(
        participants=[scripted_agent([finding], name="researcher")],
        manager_agent=scripted_agent(manage, name="manager"),
        task_ledger_facts_prompt="Facts of {task}",
        task_ledger_plan_prompt="Plan for {team}",
        final_answer_prompt="Answer {task}",
        max_round_count=5,
        name="weather",
    ).build()


async def main(folder: str) -> None:
    """Play it."""
    workflow = build(ConnectionError("the model cannot be reached"))
    checkpoint = workflow.create_checkpoint("task", FileCheckpointStorage(folder))
    try:
        await workflow.run("How is the weather in Bergen?", checkpoint=checkpoint)
    except ConnectionError as error:
        state = checkpoint.head_snapshot.state["executor_states"]["magentic_orchestrator"]
        print(f"{error.args[0]}, in round {state['round_index']}")

    # Another process, later. The plan stands, and is not made again.
    checkpoint = await FileCheckpointStorage(folder).load("task")
    planned = checkpoint.head_snapshot_id
    result = await build("It rains in Bergen.").run(checkpoint=checkpoint)
    print(result.get_outputs()[0].text)

    checkpoint.restart_from(planned)
    result = await build("It snows in Bergen.").run(checkpoint=checkpoint)
    print("on a branch:", result.get_outputs()[0].text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(main(place))
