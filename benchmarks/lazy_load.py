"""What a checkpoint takes in memory after a load, with and without `lazy_over`, and what a fetch costs.

The journal holds 2,000 snapshots: a history of the last 200 messages, and a text of 3 kB that is new in
each. Memory is what `tracemalloc` counts, so it leaves out the interpreter's own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import tempfile
import time
import tracemalloc
from pathlib import Path

from branchpoint import Checkpoint, FileCheckpointStorage

ID = "run-1"


async def write(folder: Path, count: int) -> None:
    """Write the journal."""
    chance = random.Random(1)
    checkpoint = Checkpoint.create(
        checkpoint_id=ID,
        workflow_name="bench",
        graph_signature_hash="none",
        signature={},
        checkpoint_storage=FileCheckpointStorage(folder),
    )
    history: list[dict[str, str]] = []
    for n in range(count):
        history.append({"role": "user", "text": "".join(chance.choices("abcdefgh", k=460))})
        shared = {"history": history[-200:], "page": "".join(chance.choices("xyz", k=3000))}
        await checkpoint.commit_snapshot(
            {
                "workflow_state": {
                    "iteration_count": n,
                    "status": "idle",
                    "turn": 0,
                    "shared": shared,
                    "cursor": {"input_iteration": 0},
                },
                "executor_states": {},
                "edge_states": {},
                "messages": {"input": {}, "pending": {"deliveries": [], "requests": {}}, "output": []},
            }
        )


def size_of(folder: Path) -> int:
    """How many bytes the journal has."""
    return sum(path.stat().st_size for path in folder.glob("*.journal"))


async def measure(folder: Path, lazy_over: int | None) -> None:
    """Load the journal once for its memory, once for its time, and fetch an old snapshot."""
    storage = FileCheckpointStorage(folder, lazy_over=lazy_over)
    gc.collect()
    tracemalloc.start()
    checkpoint = await storage.load(ID)
    gc.collect()
    held, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    start = time.perf_counter()
    checkpoint = await storage.load(ID)
    loaded = time.perf_counter()
    parts = sum(map(len, checkpoint.parts.values()))
    await checkpoint.load_snapshot(checkpoint.snapshots[1].snapshot_id)
    fetched = time.perf_counter()
    print(
        f"lazy_over={lazy_over!s:<10} parts {parts / 1e6:6.2f} MB, held {held / 1e6:6.2f} MB, "
        f"most during the load {most / 1e6:6.2f} MB, load {loaded - start:5.2f} s, "
        f"fetch {fetched - loaded:5.2f} s"
    )


async def run(count: int) -> None:
    """Write one journal and load it in three ways."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        await write(folder, count)
        print(f"a journal of {size_of(folder) / 1e6:.1f} MB with {count} snapshots")
        for lazy_over in (None, 1_000_000, 0):
            await measure(folder, lazy_over)


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snapshots", type=int, default=2000)
    asyncio.run(run(parser.parse_args().snapshots))


if __name__ == "__main__":
    main()
