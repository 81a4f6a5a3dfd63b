"""What it costs to go on with a functional workflow that died late: its finished steps are replayed.

A loop calls one step so many times, and the last call fails. The checkpoint is then loaded anew and run
to its end, which replays all steps but the last.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from branchpoint import FileCheckpointStorage
from branchpoint.functional import step, workflow

__all__ = ["measure"]

SIZES = (100, 1_000)
_done: list[int] = []


class _Died(Exception):
    """What stands for the death of a process."""


@step
async def _double(number: int, last: bool) -> int:
    _done.append(number)
    if last and _done.count(number) == 1:
        raise _Died
    return 2 * number


@workflow
async def _loop(steps: int) -> int:
    total = 0
    for number in range(steps):
        total += await _double(number, number == steps - 1)
    return total


async def _replayed(steps: int, folder: Path, rounds: int) -> dict[str, Any]:
    seconds = []
    for number in range(rounds):
        storage = FileCheckpointStorage(folder, commit_thread=False)
        checkpoint = _loop.create_checkpoint(f"loop-{number}", storage)
        _done.clear()
        try:
            await _loop.run(steps, checkpoint=checkpoint)
        except _Died:
            pass
        begun = time.perf_counter()
        loaded = await FileCheckpointStorage(folder).load(f"loop-{number}")
        result = await _loop.run(checkpoint=loaded)
        seconds.append(time.perf_counter() - begun)
        if result.get_outputs() != [steps * (steps - 1)] or len(_done) != steps + 1:
            raise SystemExit(f"{steps} steps were replayed wrong")
    return {
        "steps": steps,
        "seconds": statistics.median(seconds),
        "bytes": _stored(folder) / rounds / steps,
    }


def _stored(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.journal"))


async def measure(base: Path, *, quick: bool) -> list[dict[str, Any]]:
    """Return a row for each number of steps."""
    rows = []
    for steps in SIZES:
        with tempfile.TemporaryDirectory(dir=base) as folder:
            rows.append(await _replayed(steps, Path(folder), 1 if quick else 3))
    return rows
