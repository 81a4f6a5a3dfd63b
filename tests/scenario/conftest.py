"""Fixtures of the scenarios; what they share besides is in `kit.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenario.kit import Place, Ticks, place_of


@pytest.fixture
def place(request: pytest.FixtureRequest, backend_folder: Path) -> Place:
    """Where the checkpoints of a scenario are kept; `every_place`, `every_storage`, `every_file` say which."""
    return place_of(getattr(request, "param", "none"), backend_folder)


@pytest.fixture
def ticks() -> Ticks:
    """How often handlers were entered, counted in this process."""
    return Ticks()
