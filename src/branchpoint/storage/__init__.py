"""How bytes last: storages that keep checkpoints, and what it takes to write another one.

A backend is a `CheckpointStorage`: `commit_snapshot`, `load` and `delete`, each a promise spelled
out there. It sees bytes only: a header per checkpoint, a manifest and new parts per snapshot. To
load, it decodes header and manifests, gathers the parts and hands all of it to
`Checkpoint.restore(...)`, which checks the rest and returns a checkpoint attached to the storage.
"""

from __future__ import annotations

from branchpoint.storage._file import FileCheckpointStorage
from branchpoint.storage._memory import InMemoryCheckpointStorage, MemoryCheckpointStorage

__all__ = ["FileCheckpointStorage", "InMemoryCheckpointStorage", "MemoryCheckpointStorage"]
