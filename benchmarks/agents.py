"""What a conversation with an agent costs: time of a turn over a history, and bytes of many turns.

The agent here says at once what it has to say, and keeps its history in its session, as Agent
Framework's own do; so what is measured is what branchpoint adds. Each turn is a run of its own on one
`Checkpoint` object. The floor encodes the two new messages with msgspec and appends each with an fsync.
"""

from __future__ import annotations

import os
import random
import statistics
import string
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
from agent_framework import AgentResponse, AgentSession, Content, Message

from branchpoint import Checkpoint, FileCheckpointStorage, Workflow, WorkflowBuilder
from branchpoint.agents import AgentExecutor
from branchpoint.checkpoint import whole_of
from branchpoint.codec import encode, new_parts

__all__ = ["measure"]

SIZES = (10, 100, 1_000)
SHAPES = ((1_000, 1_000), (500, 1_500))
"""Characters that a user and the agent say in a turn."""
_CHANCE = random.Random(7)
_WORDS = ["".join(_CHANCE.choices(string.ascii_lowercase, k=3 + n % 6)) for n in range(3_000)]


def text(size: int) -> str:
    """Return words unlike any before."""
    return " ".join(_CHANCE.choices(_WORDS, k=size // 4 + 5))[:size]


class Talker:
    """Answers at once; its first answer is preceded by so many messages said before."""

    id = name = "talker"
    description = None

    def __init__(self, reply: int, before: int = 0) -> None:
        self._reply = reply
        self._before = before

    def create_session(self, *, session_id: str | None = None) -> AgentSession:
        """Return an empty session, or one in which much was said."""
        session = AgentSession(session_id=session_id)
        said = [Message("user", [Content.from_text(text(1_000))]) for _ in range(self._before)]
        session.state["history"] = {"messages": said}
        return session

    async def run(self, messages: list[Message], *, session: AgentSession, **options: Any) -> AgentResponse:
        """Say something."""
        answer = Message("assistant", [Content.from_text(text(self._reply))], author_name=self.name)
        session.state["history"]["messages"] += [*messages, answer]
        return AgentResponse(messages=[answer])


def _talk(reply: int, before: int = 0) -> Workflow:
    return WorkflowBuilder(name="talk", start_executor=AgentExecutor(Talker(reply, before))).build()  # type: ignore[arg-type]


async def _turn(messages: int, folder: Path, rounds: int) -> dict[str, Any]:
    workflow = _talk(1_000, messages)
    storage = FileCheckpointStorage(folder)
    checkpoint = workflow.create_checkpoint("talk", storage)
    for _ in range(3):
        await workflow.run(text(1_000), checkpoint=checkpoint)
    own, ratios = [], []
    with (folder / "floor").open("ab", buffering=0) as file:
        for _ in range(rounds):
            said = text(1_000)
            begun = time.perf_counter()
            for role in ("user", "assistant"):
                file.write(msgspec.json.encode({"role": role, "text": said}) + b"\n")
                os.fsync(file.fileno())
            floor = time.perf_counter() - begun
            begun = time.perf_counter()
            await workflow.run(said, checkpoint=checkpoint)
            own.append(time.perf_counter() - begun)
            ratios.append(own[-1] / floor)
    stored = await storage.load("talk")
    session = stored.head_snapshot.state["executor_states"]["talker"]["agent_session"]  # type: ignore[union-attr]
    if len(session.state["history"]["messages"]) != messages + 2 * (rounds + 3):
        raise SystemExit(f"a history of {messages} messages was stored wrong")
    return {"messages": messages, "ms": statistics.median(own) * 1e3, "ratio": statistics.median(ratios)}


async def _talked(user: int, reply: int, folder: Path, turns: int) -> dict[str, Any]:
    workflow = _talk(reply)
    checkpoint = workflow.create_checkpoint("talk", FileCheckpointStorage(folder, commit_thread=False))
    for _ in range(turns):
        await workflow.run(text(user), checkpoint=checkpoint)
    stored = _stored(folder)
    return {"user": user, "reply": reply, "turns": turns, "ratio": stored / (turns * (user + reply))}


def _stored(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.journal"))


async def _carried(counts: tuple[int, ...]) -> list[dict[str, Any]]:
    """A session that carries a checkpoint without storage, whole."""
    workflow = _talk(1_000)
    checkpoint = workflow.create_checkpoint("talk")
    rows, done = [], 0
    for turns in counts:
        for _ in range(turns - done):
            await workflow.run(text(1_000), checkpoint=checkpoint)
        done = turns
        rows.append({"turns": turns, "bytes": _size(checkpoint)})
    return rows


def _size(checkpoint: Checkpoint) -> int:
    encoded, _ = encode(whole_of(checkpoint), format="json")
    return sum(map(len, new_parts(encoded, ()).values()))


async def measure(base: Path, *, quick: bool) -> dict[str, Any]:
    """Return the rows of turns over histories, of what conversations take, and of sessions that carry all."""
    turns = 100 if quick else 1_000
    report: dict[str, Any] = {"turns": [], "talks": []}
    for messages in SIZES:
        with tempfile.TemporaryDirectory(dir=base) as folder:
            report["turns"].append(await _turn(messages, Path(folder), 5 if quick else 25))
    for user, reply in SHAPES:
        with tempfile.TemporaryDirectory(dir=base) as folder:
            report["talks"].append(await _talked(user, reply, Path(folder), turns))
    report["carried"] = await _carried((10, 100) if quick else (100, 1_000))
    return report
