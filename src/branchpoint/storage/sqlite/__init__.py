"""Checkpoints in an SQLite database: one file, many checkpoints, many writers; the standard library alone.

Not brought in by `import branchpoint`, because `sqlite3` is not.
"""

from __future__ import annotations

from branchpoint.storage.sqlite._storage import SQLiteCheckpointStorage

__all__ = ["SQLiteCheckpointStorage"]
