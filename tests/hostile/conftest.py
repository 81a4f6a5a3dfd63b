"""What hostile tests share: the places of scenarios, and both formats."""

from __future__ import annotations

import pytest

from branchpoint.checkpoint import Format
from tests.scenario.conftest import place

__all__ = ["format", "place"]


@pytest.fixture(params=["json", "msgpack"])
def format(request: pytest.FixtureRequest) -> Format:
    kind: Format = request.param
    return kind
