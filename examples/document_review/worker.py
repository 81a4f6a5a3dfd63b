"""The process that runs the workflow; it tells what happens as one JSON object per line.

    worker.py PLACE start --docs FOLDER…     a new checkpoint, and its first input
    worker.py PLACE resume                   go on where the last process stopped
    worker.py PLACE answer REQUEST yes|no    answer a question, and go on

It holds nothing that matters: kill it at any time, and another one goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from documents import find
from messages import Job, Outcome
from place import CHECKPOINT_ID, Place
from workflow import Services, build

from branchpoint import Workflow, WorkflowEvent, WorkflowRunStream

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Run what the command line asks for; 0 when the run ended at a boundary without an error."""
    options = _parser().parse_args(arguments)
    place = Place(options.place)
    services = Services(
        ticks=place.ticks,
        published=place.published,
        pace=options.pace,
        gate=None if options.gate is None else _gate(options.gate),
    )
    asyncio.run(_run(options, place, build(services)))
    return 0


async def _run(options: argparse.Namespace, place: Place, workflow: Workflow) -> None:
    async for event in await _stream(options, place, workflow):
        if (told := _told(event)) is not None:
            _say(told)


async def _stream(options: argparse.Namespace, place: Place, workflow: Workflow) -> WorkflowRunStream:
    if options.command == "start":
        found = find(options.docs)
        job = Job(found.root, found.documents, options.batch, found.closed_folders)
        checkpoint = workflow.create_checkpoint(
            CHECKPOINT_ID, place.storage, metadata={"documents": str(len(found.documents))}
        )
        return workflow.run(job, checkpoint=checkpoint, stream=True)
    checkpoint = await place.storage.load(CHECKPOINT_ID)
    if options.command == "resume":
        return workflow.run(checkpoint=checkpoint, stream=True)
    if options.at is not None:
        checkpoint.restart_from(options.at)
    answers = {options.request: options.answer == "yes"}
    return workflow.run(responses=answers, checkpoint=checkpoint, stream=True)


def _told(event: WorkflowEvent[Any]) -> dict[str, Any] | None:
    """Return what the parent is told of an event, or None when it need not know."""
    match event.type:
        case "data":
            return {"event": "reviewed", **event.data}
        case "superstep_completed":
            return {"event": "superstep", "superstep": event.superstep}
        case "request_info":
            return {"event": "question", "request": event.request_id}
        case "output":
            outcome: Outcome = event.data
            return {"event": "output", "kind": outcome.kind, "file": outcome.file}
        case _:
            return None


def _gate(batch: int) -> Callable[[int, str], Awaitable[None]]:
    """Make the gate: at the last document of that batch it says so, and waits for the parent.

    The parent kills this process there. When the parent itself is gone, its end of the pipe is
    closed, the gate opens, and the review goes on.
    """

    async def wait(number: int, document: str) -> None:
        if number == batch:
            await asyncio.sleep(0)  # a turn of the loop, in which the other reviewers begin too
            _say({"event": "gate", "batch": number, "document": document})
            loop, opened = asyncio.get_running_loop(), asyncio.Event()
            # A daemon, so that it holds nobody up when another reviewer fails meanwhile.
            threading.Thread(target=_when_told, args=(loop, opened.set), daemon=True).start()
            await opened.wait()

    return wait


def _when_told(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    os.read(0, 1)
    with suppress(RuntimeError):  # the run is over, and its loop is closed
        loop.call_soon_threadsafe(call)


def _say(told: dict[str, Any]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
    sys.stdout.buffer.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="worker.py", description="Runs the document review in this process."
    )
    parser.add_argument("place", type=Path, help="the folder of the play")
    parser.add_argument("--pace", type=float, default=0.0, help="seconds a reviewer takes for a document")
    parser.add_argument("--gate", type=int, default=None, help="the batch at whose last document to wait")
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("start")
    start.add_argument("--docs", type=Path, nargs="+", required=True)
    start.add_argument("--batch", type=int, default=4)
    commands.add_parser("resume")
    answer = commands.add_parser("answer")
    answer.add_argument("request")
    answer.add_argument("answer", choices=["yes", "no"])
    answer.add_argument("--at", default=None, help="the snapshot to go back to first")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
