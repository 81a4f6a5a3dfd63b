"""Snapshots that do not form one lineage, sealed as well as anybody could."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest

from branchpoint.checkpoint import Checkpoint, Format
from branchpoint.errors import CorruptCheckpointError
from tests.hostile.forge import ID, Forgery, forgery, refused, refused_everywhere, storage_of

CORRUPT = CorruptCheckpointError
LONG, RED = "x" * 100_000, "\x1b[31m\u202e"


def _cycle(length: int) -> Callable[[Forgery], None]:
    def forge(made: Forgery) -> None:
        ids = [record.manifest["id"] for record in made.records]
        for n in range(length):
            made.records[n].manifest["up"] = ids[(n + 1) % length]

    return forge


def _twice(made: Forgery) -> None:
    made.records.append(copy.deepcopy(made.records[0]))


def _same_id(made: Forgery) -> None:
    made.head.manifest["id"] = made.records[0].manifest["id"]


def _orphan(made: Forgery) -> None:
    del made.records[0]


def _reversed(made: Forgery) -> None:
    made.records.reverse()


def _no_records(made: Forgery) -> None:
    made.records.clear()


def _pruned(**entries: str | None) -> Callable[[Forgery], None]:
    def forge(made: Forgery) -> None:
        _orphan(made)
        parent = made.records[0].manifest["up"]
        made.header["pruned"] = {parent if name == "parent" else name: to for name, to in entries.items()}

    return forge


def _pruned_and_there(made: Forgery) -> None:
    made.header["pruned"] = {made.records[0].manifest["id"]: None}


LINEAGES: dict[str, Callable[[Forgery], None]] = {
    "its own parent": _cycle(1),
    "a cycle of two": _cycle(2),
    "a cycle of five": _cycle(5),
    "a snapshot twice": _twice,
    "two snapshots of one id": _same_id,
    "a parent that is missing": _orphan,
    "children before parents": _reversed,
    "no snapshot": _no_records,
    "pruned to nothing that is there": _pruned(parent="nothing"),
    "pruned to itself": _pruned(parent=RED),
    "another one was pruned": _pruned(other=None),
    "pruned and there": _pruned_and_there,
}


@pytest.mark.parametrize("what", LINEAGES)
async def test_c62_a_lineage_that_is_none_is_refused(runs: Path, format: Format, what: str) -> None:
    made = await forgery(runs, format, commits=5)
    LINEAGES[what](made)
    made.write()
    await refused_everywhere(made, CORRUPT)


async def test_c62_a_head_that_is_not_in_the_list_is_refused(runs: Path, format: Format) -> None:
    """What a backend may find that keeps its head beside the snapshots."""
    checkpoint = await storage_of(runs, format).load((await forgery(runs, format)).header["id"])
    parts = checkpoint.parts
    for head in ("nothing", "", RED, LONG):

        def restore(head: str = head) -> Checkpoint:
            return Checkpoint.restore(
                header=checkpoint.header,
                manifests=[one.manifest for one in checkpoint.snapshots],
                head_snapshot_id=head,
                parts=parts,
                checkpoint_storage=storage_of(runs, format),
            )

        await refused(restore, CORRUPT, ID)
