"""A panel that votes; one member's model fails, and on a branch the panel is asked again.

Prints:
    the model cannot be reached, nobody's vote counts yet
    ada: Yes. bob: No.
    asked again from the start, ada: Yes. bob: Maybe.
"""

from __future__ import annotations

import asyncio
import tempfile

from branchpoint import FileCheckpointStorage, Workflow
from branchpoint.agents import AgentExecutorResponse
from branchpoint.orchestrations import ConcurrentBuilder
from branchpoint.testing.agents import scripted_agent


def votes(answers: list[AgentExecutorResponse]) -> str:
    """Put the answers together; they come in the order of the participants."""
    return " ".join(f"{answer.executor_id}: {answer.agent_response.text}" for answer in answers)


def build(bob: str | BaseException) -> Workflow:
    """Build the panel, as each process does for itself; the script stands for a model."""
    panel = [scripted_agent(["Yes."], name="ada"), scripted_agent([bob], name="bob")]
    return ConcurrentBuilder(participants=panel, name="panel").with_aggregator(votes).build()


async def main(folder: str) -> None:
    """Play it."""
    workflow = build(ConnectionError("the model cannot be reached"))
    checkpoint = workflow.create_checkpoint("vote", FileCheckpointStorage(folder))
    try:
        await workflow.run("Shall we?", checkpoint=checkpoint)
    except ConnectionError as error:
        # They work in one superstep, which becomes true as a whole or not at all.
        print(f"{error.args[0]}, nobody's vote counts yet")

    checkpoint = await FileCheckpointStorage(folder).load("vote")  # another process, later
    question = checkpoint.head_snapshot_id
    result = await build("No.").run(checkpoint=checkpoint)
    print(result.get_outputs()[0])

    checkpoint.restart_from(question)
    result = await build("Maybe.").run(checkpoint=checkpoint)
    print("asked again from the start,", result.get_outputs()[0])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(main(place))
