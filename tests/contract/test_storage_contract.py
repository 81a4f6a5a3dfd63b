"""Every backend in every format keeps the whole storage contract; the clauses are those of `branchpoint.testing`."""

from __future__ import annotations

from pathlib import Path

import pytest

from branchpoint.testing import CheckpointStorageContract
from tests.contract.place import BackendPlace
from tests.storages import BACKENDS


class TestEveryBackend(CheckpointStorageContract):
    @pytest.fixture(params=sorted(BACKENDS))
    def place(self, request: pytest.FixtureRequest, backend_folder: Path) -> BackendPlace:
        return BackendPlace(request.param, backend_folder)
