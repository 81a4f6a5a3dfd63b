"""Where a sample keeps its checkpoints: in files, in PostgreSQL or in Cosmos DB, as its flags say."""

from __future__ import annotations

import argparse
import os

from branchpoint import CheckpointStorage, FileCheckpointStorage

__all__ = ["storage_flags", "storage_of"]


def storage_flags(sample: str | None) -> argparse.ArgumentParser:
    """Return a parser that knows the flags; a sample adds its own."""
    parser = argparse.ArgumentParser(description=sample)
    parser.add_argument("--storage", choices=["file", "postgres", "cosmos"], default="file")
    parser.add_argument("--folder", default="runs", help="of the files (runs)")
    parser.add_argument("--url", help="postgresql://user@host/database, or the endpoint of a Cosmos account")
    parser.add_argument("--database", default="branchpoint", help="of Cosmos; its key is in COSMOS_KEY")
    parser.add_argument("--container", default="samples", help="of Cosmos")
    return parser


def storage_of(options: argparse.Namespace) -> CheckpointStorage:
    """Return the storage; `async with` closes it."""
    if options.storage == "file":
        return FileCheckpointStorage(options.folder)
    if options.url is None:
        raise SystemExit(f"--storage {options.storage} needs --url")
    if options.storage == "postgres":
        from branchpoint.storage.postgres import PostgresCheckpointStorage

        return PostgresCheckpointStorage(options.url)
    from branchpoint.storage.cosmos import CosmosCheckpointStorage

    # Once, before its first use, make the container: `await storage.setup()`.
    return CosmosCheckpointStorage(
        options.url, os.environ["COSMOS_KEY"], database=options.database, container=options.container
    )
