"""A row of agents that loses its model in the middle, goes on, and is taken back to try another end.

Prints:
    the model cannot be reached, 1 agent was done
    critic says: Rain, softly, on the roof.
    from the writer's draft, another way: Rain on the roof, at night.
"""

from __future__ import annotations

import asyncio
import tempfile

from branchpoint import FileCheckpointStorage, Workflow
from branchpoint.orchestrations import SequentialBuilder
from branchpoint.testing.agents import scripted_agent


def build(last: str | BaseException) -> Workflow:
    """Build the row, as each process does for itself; the script stands for a model."""
    writer = scripted_agent(["Rain on the roof."], name="writer")
    critic = scripted_agent([last], name="critic")
    return SequentialBuilder(participants=[writer, critic], name="poems").build()


async def main(folder: str) -> None:
    """Play it."""
    workflow = build(ConnectionError("the model cannot be reached"))
    checkpoint = workflow.create_checkpoint("poem", FileCheckpointStorage(folder))
    try:
        await workflow.run("Write about rain.", checkpoint=checkpoint)
    except ConnectionError as error:
        done = [
            name
            for name in ("writer", "critic")
            if checkpoint.head_snapshot.state["executor_states"].get(name)
        ]
        print(f"{error.args[0]}, {len(done)} agent was done")

    # Another process, later. The writer is not asked again.
    checkpoint = await FileCheckpointStorage(folder).load("poem")
    draft = checkpoint.head_snapshot_id
    result = await build("Rain, softly, on the roof.").run(checkpoint=checkpoint)
    print("critic says:", result.get_outputs()[0].text)

    checkpoint.restart_from(draft)
    result = await build("Rain on the roof, at night.").run(checkpoint=checkpoint)
    print("from the writer's draft, another way:", result.get_outputs()[0].text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(main(place))
