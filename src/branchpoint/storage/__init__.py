"""How bytes last: storages that keep checkpoints, and what it takes to write another one.

A backend is a `CheckpointStorage`: `commit_snapshot`, `load_records` and `delete`, each a promise
spelled out there. It sees bytes only: a header per checkpoint, a manifest and new parts per
snapshot. `load_records` gives back header and manifests, decoded, and the parts; `load` makes a
checked checkpoint of them, attached to the storage. `branchpoint.testing` holds a backend to the
contract.

Each of the others is a module of its own, imported by name: `branchpoint.storage.sqlite` needs
nothing, `branchpoint.storage.postgres`, `branchpoint.storage.cosmos` and
`branchpoint.storage.encrypted` need the extra of their name (`encryption` for the last).
"""

from __future__ import annotations

from branchpoint.storage._file import FileCheckpointStorage
from branchpoint.storage._memory import InMemoryCheckpointStorage, MemoryCheckpointStorage

__all__ = ["FileCheckpointStorage", "InMemoryCheckpointStorage", "MemoryCheckpointStorage"]
