"""Write the golden files of the version at hand: `python -m tests.compat.write_golden`.

Run it once, when a version is released; the files of a released version are never written again.
It refuses to write over any, unless it is told that the version is not out yet (`--unreleased`).
Ids and times are injected, so that the same program writes the same bytes.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import branchpoint
from branchpoint import Checkpoint, FileCheckpointStorage, clock, ids
from branchpoint.checkpoint import Format
from tests.compat.golden_runs import CHECKPOINTS, GOLDEN, RUNS, registered

FORMATS: tuple[Format, ...] = ("json", "msgpack")


def expected(checkpoint: Checkpoint) -> dict[str, Any]:
    """What a reader must find in a checkpoint, told in plain JSON."""
    return {
        "checkpoint_id": checkpoint.checkpoint_id,
        "workflow_name": checkpoint.workflow_name,
        "metadata": checkpoint.metadata,
        "created_at": checkpoint.created_at.isoformat(),
        "generation": checkpoint.generation,
        "head": checkpoint.head_snapshot_id,
        "requests": [
            [one.request_id, one.source_executor_id, one.request_type, one.response_type, one.plain_data]
            for one in checkpoint.pending_requests
        ],
        "events": [event.event_id for event in checkpoint.events()],
        "snapshots": [
            {
                "id": one.snapshot_id,
                "parent": one.parent_snapshot_id,
                "at": one.timestamp.isoformat(),
                "boundary": one.boundary,
                "status": one.status,
                "superstep": one.superstep,
                "input_id": one.input_id,
                "metadata": one.metadata,
                "root": one.root,
                "parts": len(one.parts()),
                "state": one.plain_state(),
            }
            for one in checkpoint.snapshots
        ],
    }


def _lines(told: dict[str, Any]) -> str:
    """JSON with a line for each field and each snapshot, so that a difference can be found."""
    snapshots = ",\n".join(json.dumps(one) for one in told.pop("snapshots"))
    fields = "".join(f"{json.dumps(key)}: {json.dumps(value)},\n" for key, value in told.items())
    return f'{{\n{fields}"snapshots": [\n{snapshots}\n]\n}}\n'


async def write(folder: Path) -> None:
    """Write journals, and beside each what is in it, to `folder/json` and `folder/msgpack`."""
    for form in FORMATS:
        place = folder / form
        storage = FileCheckpointStorage(place, serialization_format=form)
        with registered(), ids.injected(ids.SequentialIds()), clock.injected(clock.SteppingClock()):
            for run in RUNS:
                await run(storage)
            for checkpoint_id in CHECKPOINTS:
                told = expected(await storage.load(checkpoint_id))
                (place / f"{checkpoint_id}.json").write_text(_lines(told), encoding="ascii")
        for lock in place.glob(".lock-*"):
            lock.unlink()


def main(arguments: list[str]) -> None:
    """Write the files of this version.

    Raises:
        SystemExit: They are there already.
    """
    target = GOLDEN / branchpoint.__version__
    if target.exists() and arguments != ["--unreleased"]:
        raise SystemExit(
            f"{target} is there already, and golden files of a released version are never written again. "
            "If this version is not out yet: --unreleased"
        )
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(write(Path(made)))
        shutil.rmtree(target, ignore_errors=True)
        for file in sorted(Path(made).rglob("*.*")):  # by content alone: a storage's files are private
            copy = target / file.relative_to(made)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    print(f"wrote {sum(1 for _ in target.rglob('*.*'))} files to {target}")


if __name__ == "__main__":
    main(sys.argv[1:])
