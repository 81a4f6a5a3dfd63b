"""How the cost of a superstep grows with what there is already, in memory, in files and in SQLite.

Each dimension has one bed for each size. Within a round the sizes take turns, and a ratio is the median
over the rounds of a size's cost over that of the base size in the same round. All in one process; the
peak of memory is taken in fresh ones. What was measured is read back from storage, and must be right.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from agents import measure as talks
from beds import Dimension, Measured, Reading
from resuming import ALL
from workloads import CASES, Data, Task, message, small_state

WARM = 4


async def grow(
    dimension: Dimension, place: str, folder: Path, *, rounds: int, most: int
) -> list[dict[str, Any]]:
    """Measure one dimension in one place; one row for each size up to `most`."""
    sizes = [size for size in dimension.sizes if size <= most]
    beds: dict[int, Measured] = {}
    for size in sizes:
        beds[size] = await dimension.make(size, None if place == "memory" else _made(folder / str(size)))
    readings: dict[int, list[Reading]] = {size: [] for size in sizes}
    for _ in range(rounds):
        for size, bed in beds.items():
            gc.collect()
            readings[size].append(await bed.measure(WARM, dimension.ticks))
    wrong = [size for size, bed in beds.items() if not await bed.is_right()]
    if wrong:
        raise SystemExit(f"{dimension.name} in {place}: the stored state is wrong for {wrong}")
    base = [reading.seconds / dimension.per(dimension.base) for reading in readings[dimension.base]]
    rows = []
    for size in sizes:
        per = dimension.per(size)
        costs = [reading.seconds / per for reading in readings[size]]
        rows.append(
            {
                "dimension": dimension.name,
                "place": place,
                "size": size,
                "base": dimension.base,
                "microseconds": statistics.median(costs) * 1e6,
                "ratio": statistics.median(mine / its for mine, its in zip(costs, base, strict=True)),
                "bytes": statistics.median(reading.bytes for reading in readings[size]) / per,
            }
        )
    return rows


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


# Peak memory.


def peak(count: int) -> dict[str, Any]:
    """Run W4 with so many supersteps in a fresh process; how far did its memory rise?"""
    command = [sys.executable, __file__, "--peak-of", str(count)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    told: dict[str, Any] = json.loads(answer)
    return told


async def _peak_here(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        done = await CASES["W4:file"](Task(count, folder, Data(small_state, message)))
    if done.result != done.expected:
        raise SystemExit(f"W4 with {count} supersteps stored something wrong")
    grown = done.extra["rss_run"] - done.extra["rss_before"]
    return {"messages": count, "data": sum(len(message(n)["text"]) for n in range(count)), "grown": grown}


# All of it.


async def measure(base: Path, *, quick: bool) -> dict[str, Any]:
    """Return the rows of every dimension in every place, those of memory, and those of agents."""
    rounds, most = (3, 1_000) if quick else (7, 50_000)
    rows: list[dict[str, Any]] = []
    for number, dimension in enumerate(ALL):
        for place in dimension.places:
            with tempfile.TemporaryDirectory(dir=base) as folder:
                grown = await grow(dimension, place, Path(folder), rounds=rounds, most=most)
            rows += grown
            told = ", ".join(
                f"{row['size']}: {row['microseconds']:.0f} us x{row['ratio']:.2f}" for row in grown
            )
            print(f"  {number + 1}/{len(ALL)} {dimension.name} ({place}): {told}", file=sys.stderr)
    counts = (500, 1_000, 2_000) if quick else (500, 1_000, 2_000, 4_000)
    agents = await talks(base, quick=quick)
    return {"rows": rows, "rounds": rounds, "peaks": [peak(count) for count in counts], "agents": agents}


def main() -> None:
    """Write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and nothing above 1,000")
    parser.add_argument(
        "--dir", type=Path, default=Path(tempfile.gettempdir()), help="where to store; a real disk"
    )
    parser.add_argument("--out", type=Path, default=Path("growth.json"))
    parser.add_argument("--peak-of", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak_of is not None:
        print(json.dumps(asyncio.run(_peak_here(options.peak_of))))
        return
    report = asyncio.run(measure(options.dir, quick=options.quick))
    options.out.write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
