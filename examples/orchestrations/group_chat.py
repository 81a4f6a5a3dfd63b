"""A group chat that loses a model in the middle, goes on, and is taken back to another last word.

Prints:
    the model cannot be reached, after: ['Write about rain.', 'Rain on the roof.']
    ['Write about rain.', 'Rain on the roof.', 'Softer.', 'Rain, softly.']
    on a branch: ['Write about rain.', 'Rain on the roof.', 'Louder!', 'Rain, softly.']
"""

from __future__ import annotations

import asyncio
import tempfile

from branchpoint import Checkpoint, FileCheckpointStorage, Workflow
from branchpoint.orchestrations import GroupChatBuilder, GroupChatState
from branchpoint.testing.agents import scripted_agent


def in_turn(chat: GroupChatState) -> str:
    """Let one speak after the other."""
    names = list(chat.participants)
    return names[chat.current_round % len(names)]


def build(criticism: str | BaseException) -> Workflow:
    """Build the chat, as each process does for itself; the scripts stand for models."""
    writer = scripted_agent(["Rain on the roof.", "Rain, softly."], name="writer")
    critic = scripted_agent([criticism], name="critic")
    builder = GroupChatBuilder(
        participants=[writer, critic], selection_func=in_turn, max_rounds=3, name="poems"
    )
    return builder.build()


def said(checkpoint: Checkpoint) -> list[str]:
    """Return what was said so far, without the orchestrator's last word."""
    state = checkpoint.head_snapshot.state["executor_states"]["group_chat_orchestrator"]
    return [
        message.text for message in state["conversation"] if message.author_name != "group_chat_orchestrator"
    ]


async def main(folder: str) -> None:
    """Play it."""
    workflow = build(ConnectionError("the model cannot be reached"))
    checkpoint = workflow.create_checkpoint("poem", FileCheckpointStorage(folder))
    try:
        await workflow.run("Write about rain.", checkpoint=checkpoint)
    except ConnectionError as error:
        print(f"{error.args[0]}, after: {said(checkpoint)}")

    # Another process, later. The writer is not asked again.
    checkpoint = await FileCheckpointStorage(folder).load("poem")
    before = checkpoint.head_snapshot_id
    await build("Softer.").run(checkpoint=checkpoint)
    print(said(checkpoint))

    checkpoint.restart_from(before)
    await build("Louder!").run(checkpoint=checkpoint)
    print("on a branch:", said(checkpoint))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(main(place))
