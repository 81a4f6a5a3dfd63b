"""The contract as a class of tests for pytest, which is imported by nobody until it runs them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from branchpoint.testing._clause import Clause, clauses, obey
from branchpoint.testing._place import Place

__all__ = ["CheckpointStorageContract"]


class CheckpointStorageContract:
    """The whole storage contract for pytest: subclass it, and give a fixture `place`.

    Each clause is a test of its own, `test_<group>_<what_holds>`, with a place of its own, in an event loop of
    its own; no plugin is needed. A clause for which the storage or the place lacks something is skipped
    with the reason. The storage keeps the contract when nothing fails and what is skipped is what it
    does not claim.

    Example:
        >>> import pytest
        >>> from branchpoint.storage import FileCheckpointStorage
        >>> from branchpoint.testing import CheckpointStorageContract, Place
        >>> class FilePlace(Place):
        ...     def __init__(self, folder):
        ...         super().__init__()
        ...         self.folder = folder
        ...
        ...     def open(self, *, lazy_over=None):
        ...         return FileCheckpointStorage(self.folder, lazy_over=lazy_over)
        >>> class TestFile(CheckpointStorageContract):
        ...     @pytest.fixture
        ...     def place(self, tmp_path):
        ...         return FilePlace(tmp_path)
    """


def _test_of(wanted: Clause) -> Callable[[Any, Place], None]:
    def test(self: Any, place: Place) -> None:
        lacking = asyncio.run(obey(wanted, place))
        if lacking is not None:
            import pytest  # whoever runs this test has it

            pytest.skip(lacking)

    test.__name__ = f"test_{wanted.name.replace('.', '_')}"
    test.__qualname__ = f"{CheckpointStorageContract.__qualname__}.{test.__name__}"
    test.__doc__ = wanted.promise
    return test


for _one in clauses():
    setattr(CheckpointStorageContract, f"test_{_one.name.replace('.', '_')}", _test_of(_one))
