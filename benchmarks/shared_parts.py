"""What a change of a long history writes, what looking at it costs, and what whole copies would cost.

The history is a list of messages of about 500 bytes of JSON in the shared state. Bytes are those of the
parts that storage does not hold yet; they are the same on every machine. Times are the best of a few.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec

from branchpoint import codec
from branchpoint.codec import Format, encode_state, new_parts

COUNT = 2000
EDITS: dict[str, Callable[[list[Any], Any], list[Any]]] = {
    "append one": lambda items, new: [*items, new],
    "insert one at the front": lambda items, new: [new, *items],
    "drop 300 from the front": lambda items, new: items[300:],
    "replace one in the middle": lambda items, new: [*items[:900], new, *items[901:]],
    "delete one in the middle": lambda items, new: [*items[:900], *items[901:]],
}


def messages(count: int) -> list[dict[str, Any]]:
    """Messages unlike each other, 500 bytes of JSON each."""
    chance = random.Random(7)
    return [
        {"role": "user", "id": f"m-{n:06}", "text": "".join(chance.choices("abcdefgh ijklm", k=455))}
        for n in range(count)
    ]


def state_of(history: list[Any]) -> dict[str, Any]:
    """A state that holds a history and little else."""
    return {
        "workflow_state": {"iteration_count": len(history), "shared": {"history": history}},
        "executor_states": {},
        "edge_states": {},
        "messages": {"input": {}, "pending": {"deliveries": [], "requests": {}}, "output": []},
    }


def written(before: list[Any], after: list[Any], format: Format) -> int:
    """How many bytes of new parts the step from one history to another makes."""
    known = new_parts(encode_state(state_of(before), format=format)[0], ())
    return sum(map(len, new_parts(encode_state(state_of(after), format=format)[0], known).values()))


def changes(format: Format) -> None:
    """Print what each kind of change writes."""
    pool = messages(COUNT + 320)
    print(f"{format}: bytes of new parts for one change of {COUNT} messages, over 12 lists: mean, most")
    for name, edit in EDITS.items():
        costs = []
        for start in range(0, 300, 25):
            items = pool[start : start + COUNT + start % 7]
            costs.append(written(items, edit(items, pool[-1]), format))
        print(f"  {name:<28}{statistics.mean(costs):8.0f}{max(costs):8}")


def growth(format: Format) -> None:
    """Print what the snapshots of a growing history take together."""
    pool = messages(COUNT)
    coder = msgspec.json if format == "json" else msgspec.msgpack
    shared = whole = length = 0
    known: dict[str, bytes] = {}
    memo = None
    for count in range(1, COUNT + 1):
        root, memo = encode_state(state_of(pool[:count]), format=format, memo=memo)
        fresh = new_parts(root, known)
        known.update(fresh)
        shared += sum(map(len, fresh.values()))
        length += len(coder.encode(pool[count - 1]))
        whole += length
    print(f"{format}: {COUNT} snapshots of a history that grows by one message each, in MB")
    print(
        f"  parts {shared / 1e6:.2f}, the messages themselves {length / 1e6:.2f}, whole copies {whole / 1e6:.0f}"
    )


def best(work: Callable[[], Any], rounds: int = 7) -> float:
    """The least time a call took, in milliseconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times) * 1000


def looking(format: Format) -> None:
    """Print what it costs to encode a history, to look at it again, and to decode it."""
    same, more = state_of(messages(COUNT)), state_of(messages(COUNT + 1))
    root, memo = encode_state(same, format=format)
    parts = new_parts(root, ())
    figures: dict[str, Callable[[], Any]] = {
        "encode for the first time": lambda: encode_state(same, format=format),
        "look again, nothing changed": lambda: encode_state(same, format=format, memo=memo),
        "look again, one appended": lambda: encode_state(more, format=format, memo=memo),
        "decode a snapshot": lambda: codec.decode_state(root.digest, parts, format=format),
    }
    print(f"{format}: milliseconds for a history of {COUNT} messages")
    for name, work in figures.items():
        print(f"  {name:<28}{best(work):8.2f}")


def main() -> None:
    """Print all of it."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    formats: tuple[Format, ...] = ("json", "msgpack")
    for notation in formats:
        changes(notation)
        growth(notation)
        looking(notation)


if __name__ == "__main__":
    main()
