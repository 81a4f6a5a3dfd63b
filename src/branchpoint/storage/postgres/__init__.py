"""Checkpoints in PostgreSQL; needs the extra `postgres`, which brings `asyncpg`."""

from __future__ import annotations

from branchpoint.storage.postgres._storage import PostgresCheckpointStorage

__all__ = ["PostgresCheckpointStorage"]
