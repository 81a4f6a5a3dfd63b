"""A person looks at a writer's draft, sends it back once, and approves it; on a branch the first one is taken.

Prints:
    draft: Rain on the roof.
    draft: Rain.
    editor says: Rain, softly.
    with the first draft, editor says: Rain on the roof, softly.
"""

from __future__ import annotations

import asyncio
import tempfile

from branchpoint import Checkpoint, FileCheckpointStorage, Workflow
from branchpoint.orchestrations import AgentRequestInfoResponse, SequentialBuilder
from branchpoint.testing.agents import scripted_agent


def build() -> Workflow:
    """Build the row, as each process does for itself; the scripts stand for models."""
    writer = scripted_agent(["Rain on the roof.", "Rain."], name="writer")
    editor = scripted_agent(lambda messages: messages[-1].text.replace(".", ", softly."), name="editor")
    builder = SequentialBuilder(participants=[writer, editor], name="reviewed")
    return builder.with_request_info(agents=[writer]).build()


async def review(checkpoint: Checkpoint, response: AgentRequestInfoResponse) -> list[str]:
    """Answer the one open question, and return what came of it."""
    (request,) = checkpoint.pending_requests
    result = await build().run(responses={request.request_id: response}, checkpoint=checkpoint)
    return [output.text for output in result.get_outputs()]


async def main(folder: str) -> None:
    """Play it."""
    workflow = build()
    checkpoint = workflow.create_checkpoint("poem", FileCheckpointStorage(folder))
    await workflow.run("Write about rain.", checkpoint=checkpoint)

    checkpoint = await FileCheckpointStorage(folder).load("poem")  # another process, when there is time
    first = checkpoint.head_snapshot_id
    print("draft:", checkpoint.pending_requests[0].data.agent_response.text)
    await review(checkpoint, AgentRequestInfoResponse.from_strings(["Shorter, please."]))
    print("draft:", checkpoint.pending_requests[0].data.agent_response.text)
    (text,) = await review(checkpoint, AgentRequestInfoResponse.approve())
    print("editor says:", text)

    checkpoint.restart_from(first)
    (text,) = await review(checkpoint, AgentRequestInfoResponse.approve())
    print("with the first draft, editor says:", text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(main(place))
