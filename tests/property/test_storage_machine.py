"""Whatever is done to checkpoints on a storage, in whatever order: the machine of the conformance kit, over ours."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.stateful import run_state_machine_as_test

from branchpoint.checkpoint import check_id
from branchpoint.storage import FileCheckpointStorage, MemoryCheckpointStorage
from branchpoint.testing import Place, storage_machine
from branchpoint.testing.mutants import MUTANTS, Mutant, VaultPlace
from branchpoint.testing.samples import create, shared
from branchpoint.testing.strategies import checkpoint_ids, states
from tests.profiles import brief, brief_machine


class FilePlace(Place):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.folder, self.options = tempfile.TemporaryDirectory(), options

    def open(self) -> FileCheckpointStorage:
        return FileCheckpointStorage(Path(self.folder.name) / "runs", commit_thread=False, **self.options)

    async def discard(self) -> None:
        self.folder.cleanup()


class MemoryPlace(Place):
    def __init__(self) -> None:
        super().__init__()
        self.kept = MemoryCheckpointStorage()

    def open(self) -> MemoryCheckpointStorage:
        return self.kept


PLACES = {
    "memory": MemoryPlace,
    "file": FilePlace,
    "file-msgpack": lambda: FilePlace(serialization_format="msgpack"),
    "file-lazy": lambda: FilePlace(lazy_over=0),
    "honest": VaultPlace,
}


@pytest.mark.parametrize("name", PLACES)
def test_storage_and_model_agree(name: str) -> None:
    run_state_machine_as_test(storage_machine(PLACES[name]), settings=brief_machine(12, 25))


# Those that can be seen without hooks, races and lost replies.
SEEN = ("no head check", "nothing durable", "ids that collide", "prune that forgets a branch")
FOUND = [one for one in MUTANTS if one.name in (*SEEN, "prune without a generation")]


@pytest.mark.parametrize("mutant", FOUND, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_machine_can_fail(mutant: Mutant) -> None:
    machine = storage_machine(lambda: VaultPlace(mutant.storage))
    with pytest.raises(Exception):  # an assertion, or what the library makes of it
        run_state_machine_as_test(machine, settings=settings(brief_machine(60, 25), print_blob=False))


@given(checkpoint_ids(), states())
@brief(40)
async def test_ids_and_states_of_the_strategies_are_legal(checkpoint_id: str, state: dict[str, Any]) -> None:
    assert check_id(checkpoint_id) == checkpoint_id
    storage = MemoryCheckpointStorage()
    await create(storage, checkpoint_id).commit_snapshot(state)
    found = shared((await storage.load(checkpoint_id)).head_snapshot)
    assert found == state["workflow_state"]["shared"]
