"""Every backend in every format keeps the whole storage contract; the clauses are those of `branchpoint.testing`."""

from __future__ import annotations

from pathlib import Path

import pytest

from branchpoint.testing import CheckpointStorageContract
from tests.contract.place import BackendPlace
from tests.profiles import SOAKING
from tests.storages import BACKENDS

# What encrypts is the same over each of them, and each without it runs always; these run in a soak.
_LONG = {
    f"encrypted-{name}" for name in ("cosmos-json", "cosmos-msgpack", "postgres-msgpack", "sqlite-msgpack")
}


class TestEveryBackend(CheckpointStorageContract):
    @pytest.fixture(params=sorted(BACKENDS if SOAKING else BACKENDS.keys() - _LONG))
    def place(self, request: pytest.FixtureRequest, backend_folder: Path) -> BackendPlace:
        return BackendPlace(request.param, backend_folder)
