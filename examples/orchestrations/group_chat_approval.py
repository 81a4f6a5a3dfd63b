"""An agent leads a group chat in which a tool needs approval, and a person looks at what the writer says.

Prints:
    writer says: Rain on the roof.
    writer says: Rain.
    archivist wants: publish {'text': 'Rain.'}
    Published.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from typing import Any

from agent_framework import Content, Message, tool

from branchpoint import FileCheckpointStorage, PendingRequest, Workflow
from branchpoint.orchestrations import AgentRequestInfoResponse, GroupChatBuilder
from branchpoint.testing.agents import scripted_agent, tool_call


@tool(approval_mode="always_require")
def publish(text: str) -> str:
    """Publish a text."""
    return f"published {text}"


def lead(messages: Sequence[Message]) -> str:
    """Say who is next, in place of a model."""
    heard = " ".join(message.text for message in messages if not message.text.startswith("{"))
    done = "It is out." in heard
    speaker = None if done else "archivist" if "Rain." in heard else "writer"
    final = "Published." if done else None
    return json.dumps({"terminate": done, "reason": "-", "next_speaker": speaker, "final_message": final})


def build() -> Workflow:
    """Build the chat, as each process does for itself; the scripts stand for models."""
    writer = scripted_agent(["Rain on the roof.", "Rain."], name="writer")
    archivist = scripted_agent(
        [tool_call("publish", text="Rain."), "It is out."], name="archivist", tools=[publish]
    )
    chair = scripted_agent(lead, name="chair")
    builder = GroupChatBuilder(participants=[writer, archivist], orchestrator_agent=chair, name="press")
    return builder.with_request_info(agents=[writer]).build()


def decide(request: PendingRequest) -> Any:
    """Answer as a person would."""
    if isinstance(request.data, Content):
        call = request.data.function_call
        print(f"{request.source_executor_id} wants: {call.name} {call.parse_arguments()}")
        return request.data.to_function_approval_response(approved=True)
    text = request.data.agent_response.text
    print(f"{request.source_executor_id} says: {text}")
    if text == "Rain.":
        return AgentRequestInfoResponse.approve()
    return AgentRequestInfoResponse.from_strings(["Shorter, please."])


async def main(folder: str) -> None:
    """Play it; each answer comes from another process, which has nothing but the files."""
    workflow = build()
    result = await workflow.run(
        "Write about rain.", checkpoint=workflow.create_checkpoint("press", FileCheckpointStorage(folder))
    )
    while (checkpoint := await FileCheckpointStorage(folder).load("press")).pending_requests:
        answers = {request.request_id: decide(request) for request in checkpoint.pending_requests}
        result = await build().run(responses=answers, checkpoint=checkpoint)
    print(result.get_outputs()[0].text)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(main(place))
